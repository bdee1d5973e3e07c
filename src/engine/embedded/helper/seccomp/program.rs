//! Assembles the filter: a classic BPF program that the kernel asks about each system call.
//!
//! Numbers are sorted into ranges with one answer each, and the program finds the range by bisection: with a chain of
//! comparisons, an old kernel (before 5.11, which remembers what is always allowed) would pay for each of them at every
//! system call.

use std::collections::BTreeMap;

use rustix::thread::CapabilitySet;

use super::table::{ALWAYS, CLONE, CLONE3, NO, PERSONALITY, Row, SOCKET, WITH, X32};

/// `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    pub code: u16,
    pub jump_true: u8,
    pub jump_false: u8,
    pub value: u32,
}

/// What a program says about one architecture of system calls: the kernel's number for it (linux/audit.h), and which
/// column of the table holds its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abi {
    pub audit: u32,
    pub column: usize,
    pub x32: bool,
}

const X86_64: u32 = 0xc000_003e;
const I386: u32 = 0x4000_0003;
const AARCH64: u32 = 0xc000_00b7;
const ARM: u32 = 0x4000_0028;

/// Those that a 64-bit kernel of a kind can run programs of.
pub const ON_X86_64: &[Abi] = &[
    Abi { audit: X86_64, column: 0, x32: false },
    Abi { audit: X86_64, column: 0, x32: true },
    Abi { audit: I386, column: 1, x32: false },
];
pub const ON_AARCH64: &[Abi] =
    &[Abi { audit: AARCH64, column: 2, x32: false }, Abi { audit: ARM, column: 3, x32: false }];

/// Of this machine. None where nobody has told us the numbers yet.
pub fn native() -> Option<&'static [Abi]> {
    match std::env::consts::ARCH {
        "x86_64" => Some(ON_X86_64),
        "aarch64" => Some(ON_AARCH64),
        _ => None,
    }
}

/// Set in the numbers of x32, which are x86_64's to the kernel.
const X32_BIT: u32 = 0x4000_0000;
/// From here on ARM has a few system calls of its own; they are not what "the last known one" is about.
const ARM_PRIVATE: u32 = 0xf_0000;

const EPERM: u16 = 1;
const ENOSYS: u16 = 38;

/// All CLONE_NEW… (linux/sched.h) but NEWTIME, which is a signal number in clone's flags.
const NEW_NAMESPACES: u32 = 0x7e02_0000;
/// Direct use of the kernel's cryptography, and sockets to the hypervisor, which know no network namespace.
const AF_ALG: u32 = 38;
const AF_VSOCK: u32 = 40;
/// Linux, UNAME26, both for 32-bit programs, and the question for the present one.
const PERSONALITIES: [u32; 5] = [0, 0x8, 0x2_0000, 0x2_0008, u32::MAX];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Allow,
    Refuse(u16),
    Look(Look),
}

/// Where the first argument decides. All of these are 32-bit values to the kernel, so the upper half isn't looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    NewNamespaces,
    SocketFamily,
    Personality,
}

/// The whole filter for processes that can get no more than these capabilities.
pub fn assemble(abis: &[Abi], capabilities: CapabilitySet) -> Vec<Instruction> {
    let mut out = vec![load(ARCH)];
    let mut done = Vec::new();
    for abi in abis {
        if done.contains(&abi.audit) {
            continue;
        }
        done.push(abi.audit);
        let mut body = vec![load(NUMBER)];
        match abis.iter().find(|other| other.audit == abi.audit && other.x32 != abi.x32) {
            Some(other) => {
                let (plain, x32) = if abi.x32 { (other, abi) } else { (abi, other) };
                branch(&mut body, X32_BIT, search(&ranges(plain, capabilities)), search(&ranges(x32, capabilities)));
            }
            None => body.extend(search(&ranges(abi, capabilities))),
        }
        // On to the next architecture unless it is this one.
        out.push(Instruction { code: JUMP_EQUAL, jump_true: 1, jump_false: 0, value: abi.audit });
        out.push(Instruction { code: JUMP, jump_true: 0, jump_false: 0, value: length(&body) });
        out.extend(body);
    }
    // No program of this machine gets here.
    out.push(give(Answer::Refuse(EPERM)));
    out
}

/// Where a range begins, and the answer up to the next one.
fn ranges(abi: &Abi, capabilities: CapabilitySet) -> Vec<(u32, Answer)> {
    let mut answers = BTreeMap::new();
    let mut last = 0;
    let mut add = |(name, numbers): &Row, answer: Option<Answer>| {
        let number = numbers[abi.column];
        if number == NO {
            return;
        }
        let number = match X32.iter().find(|(own, _)| abi.x32 && own == name) {
            Some((_, number)) => *number,
            None => number,
        };
        if number < ARM_PRIVATE {
            last = last.max(number);
        }
        if let Some(answer) = answer {
            answers.insert(number, answer);
        }
    };
    for row in ALWAYS {
        add(row, Some(Answer::Allow));
    }
    let admin = capabilities.contains(CapabilitySet::SYS_ADMIN);
    add(&CLONE, Some(if admin { Answer::Allow } else { Answer::Look(Look::NewNamespaces) }));
    // Its flags are in memory, where no filter can look: the C library then takes clone.
    add(&CLONE3, Some(if admin { Answer::Allow } else { Answer::Refuse(ENOSYS) }));
    add(&SOCKET, Some(Answer::Look(Look::SocketFamily)));
    add(&PERSONALITY, Some(Answer::Look(Look::Personality)));
    for (capability, rows) in WITH {
        for row in *rows {
            add(row, capabilities.contains(*capability).then_some(Answer::Allow));
        }
    }
    // One that is newer than this table does not exist, so that programs fall back to what they did before.
    let unknown = |number: u32| Answer::Refuse(if number > last { ENOSYS } else { EPERM });
    let bit = if abi.x32 { X32_BIT } else { 0 };
    let mut out: Vec<(u32, Answer)> = Vec::new();
    let mut push = |number: u32, answer: Answer| {
        if out.last().is_none_or(|(_, before)| *before != answer) {
            out.push((number | bit, answer));
        }
    };
    let mut next = 0;
    for (number, answer) in &answers {
        if *number > next {
            push(next, unknown(next));
            // A refused one that is the last known may lie in between.
            if next <= last && *number > last + 1 {
                push(last + 1, unknown(last + 1));
            }
        }
        push(*number, *answer);
        next = number + 1;
    }
    if next <= last {
        push(next, unknown(next));
    }
    push(last.max(next - 1) + 1, Answer::Refuse(ENOSYS));
    out
}

/// The answer for the number that has been loaded.
fn search(ranges: &[(u32, Answer)]) -> Vec<Instruction> {
    match ranges {
        [] => vec![give(Answer::Refuse(EPERM))],
        [(_, Answer::Look(look))] => look.instructions(),
        [(_, answer)] => vec![give(*answer)],
        _ => {
            let (below, above) = ranges.split_at(ranges.len() / 2);
            let mut out = Vec::new();
            branch(&mut out, above[0].0, search(below), search(above));
            out
        }
    }
}

/// `below` for what is less than `value`, else `above`. Both give an answer.
fn branch(out: &mut Vec<Instruction>, value: u32, below: Vec<Instruction>, above: Vec<Instruction>) {
    match u8::try_from(below.len()) {
        Ok(distance) => {
            out.push(Instruction { code: JUMP_GREATER_EQUAL, jump_true: distance, jump_false: 0, value });
        }
        // A conditional jump reaches no further.
        Err(_) => {
            out.push(Instruction { code: JUMP_GREATER_EQUAL, jump_true: 0, jump_false: 1, value });
            out.push(Instruction { code: JUMP, jump_true: 0, jump_false: 0, value: length(&below) });
        }
    }
    out.extend(below);
    out.extend(above);
}

impl Look {
    fn instructions(self) -> Vec<Instruction> {
        let (code, values, listed, else_) = match self {
            Look::NewNamespaces => (JUMP_SET, &[NEW_NAMESPACES][..], Answer::Refuse(EPERM), Answer::Allow),
            Look::SocketFamily => (JUMP_EQUAL, &[AF_ALG, AF_VSOCK][..], Answer::Refuse(EPERM), Answer::Allow),
            Look::Personality => (JUMP_EQUAL, &PERSONALITIES[..], Answer::Allow, Answer::Refuse(EPERM)),
        };
        let mut out = vec![load(FIRST_ARGUMENT)];
        for (position, value) in values.iter().enumerate() {
            // Past the other comparisons and the answer for what isn't listed.
            let distance = (values.len() - position) as u8;
            out.push(Instruction { code, jump_true: distance, jump_false: 0, value: *value });
        }
        out.extend([give(else_), give(listed)]);
        out
    }
}

// linux/bpf_common.h: class, size or operation, mode or source.
const LOAD: u16 = 0x20;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER_EQUAL: u16 = 0x35;
const JUMP_SET: u16 = 0x45;
const RETURN: u16 = 0x06;

// Offsets in `struct seccomp_data`; the lower half of an argument comes first on every machine that we know.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;

// linux/seccomp.h
const RETURN_ALLOW: u32 = 0x7fff_0000;
const RETURN_ERRNO: u32 = 0x0005_0000;

fn load(offset: u32) -> Instruction {
    Instruction { code: LOAD, jump_true: 0, jump_false: 0, value: offset }
}

fn give(answer: Answer) -> Instruction {
    let value = match answer {
        Answer::Allow => RETURN_ALLOW,
        Answer::Refuse(errno) => RETURN_ERRNO | u32::from(errno),
        // Whoever gets here has been asked for a look, and has none.
        Answer::Look(_) => RETURN_ERRNO | u32::from(EPERM),
    };
    Instruction { code: RETURN, jump_true: 0, jump_false: 0, value }
}

fn length(instructions: &[Instruction]) -> u32 {
    u32::try_from(instructions.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
