use super::*;

/// What the kernel would do.
fn run(program: &[Instruction], audit: u32, number: u32, first: u64) -> u32 {
    let (mut at, mut accumulator) = (0, 0);
    loop {
        let Instruction { code, jump_true, jump_false, value } = program[at];
        at += 1;
        let mut jump = |taken: bool| at += usize::from(if taken { jump_true } else { jump_false });
        match code {
            LOAD => {
                accumulator = match value {
                    NUMBER => number,
                    ARCH => audit,
                    FIRST_ARGUMENT => first as u32,
                    other => panic!("nothing is loaded from {other}"),
                }
            }
            JUMP => at += value as usize,
            JUMP_EQUAL => jump(accumulator == value),
            JUMP_GREATER_EQUAL => jump(accumulator >= value),
            JUMP_SET => jump(accumulator & value != 0),
            RETURN => return value,
            other => panic!("{other:#x} is no instruction of ours"),
        }
    }
}

const ALLOW: u32 = RETURN_ALLOW;
const PERM: u32 = RETURN_ERRNO | EPERM as u32;
const NOSYS: u32 = RETURN_ERRNO | ENOSYS as u32;

/// Docker's default ones that matter to the table.
const DEFAULT: CapabilitySet = CapabilitySet::SYS_CHROOT;

#[test]
fn every_number_of_every_architecture_has_the_answer_of_the_table() {
    for abis in [ON_X86_64, ON_AARCH64] {
        for capabilities in [CapabilitySet::empty(), DEFAULT, CapabilitySet::SYS_TIME, CapabilitySet::all()] {
            let program = assemble(abis, capabilities);
            assert!(program.len() <= 4096, "the kernel takes no more: {}", program.len());
            for abi in abis {
                let bit = if abi.x32 { X32_BIT } else { 0 };
                let number_of = |(name, numbers): &Row| {
                    let own = X32.iter().find(|(n, _)| abi.x32 && n == name);
                    own.map_or(numbers[abi.column], |(_, number)| *number)
                };
                let mut expected = BTreeMap::new();
                let mut last = 0;
                let mut add = |row: &Row, allowed: bool| {
                    let number = number_of(row);
                    if row.1[abi.column] != NO {
                        let before = expected.get(&number).copied().unwrap_or(false);
                        expected.insert(number, allowed || before);
                        last = last.max(if number < ARM_PRIVATE { number } else { 0 });
                    }
                };
                ALWAYS.iter().for_each(|row| add(row, true));
                for (capability, rows) in WITH {
                    rows.iter().for_each(|row| add(row, capabilities.contains(*capability)));
                }
                let admin = capabilities.contains(CapabilitySet::SYS_ADMIN);
                // With harmless arguments.
                [CLONE, SOCKET, PERSONALITY].iter().for_each(|row| add(row, true));
                let numbers = (0..700).chain(ARM_PRIVATE - 2..ARM_PRIVATE + 8).chain([X32_BIT - 1]);
                for number in numbers.filter(|n| *n != CLONE3.1[0]) {
                    let wanted = match expected.get(&number) {
                        Some(true) => ALLOW,
                        _ if number > last => NOSYS,
                        _ => PERM,
                    };
                    assert_eq!(run(&program, abi.audit, number | bit, 0), wanted, "{abi:?} {number} {capabilities:?}");
                }
                let clone3 = run(&program, abi.audit, CLONE3.1[0] | bit, 0);
                assert_eq!(clone3, if admin { ALLOW } else { NOSYS });
            }
        }
    }
}

#[test]
fn arguments_decide_where_they_must() {
    let program = assemble(ON_X86_64, DEFAULT);
    let asked = |number: u32, first: u64| run(&program, X86_64, number, first);
    let [clone, socket, personality] = [CLONE, SOCKET, PERSONALITY].map(|(_, numbers)| numbers[0]);
    // As pthread_create and fork do it.
    assert_eq!((asked(clone, 0x3d_0f00), asked(clone, 0x0120_0011)), (ALLOW, ALLOW));
    for namespace in [0x2_0000u64, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000] {
        assert_eq!(asked(clone, namespace | 17), PERM, "{namespace:#x}");
    }
    let allowed = [1u64, 2, 10, 16, 17, 39, 41].map(|family| asked(socket, family));
    assert_eq!(allowed, [ALLOW; 7]);
    // The kernel takes no notice of the upper half, and neither does the filter.
    assert_eq!([38, 40, (1 << 32) | 40].map(|family: u64| asked(socket, family)), [PERM; 3]);
    assert_eq!([0, 8, 0x2_0000, 0x2_0008, 0xffff_ffff].map(|p: u64| asked(personality, p)), [ALLOW; 5]);
    assert_eq!([1, 0x4_0000, 0x40_0000, 0xffff_fffe].map(|p: u64| asked(personality, p)), [PERM; 4]);
}

#[test]
fn another_architecture_gets_nothing() {
    assert_eq!(run(&assemble(ON_X86_64, DEFAULT), AARCH64, 0, 0), PERM);
    assert_eq!(run(&assemble(ON_AARCH64, DEFAULT), X86_64, 0, 0), PERM);
}

#[test]
fn names_stand_once_and_in_order() {
    let names: Vec<&str> = ALWAYS.iter().map(|(name, _)| name.trim_start_matches('_')).collect();
    assert!(names.is_sorted(), "{names:?}");
    for column in 0..4 {
        let gated = WITH.iter().flat_map(|(_, rows)| rows.iter());
        let mut by_number = BTreeMap::new();
        for (name, numbers) in ALWAYS.iter().chain(gated).chain(&[CLONE, CLONE3, SOCKET, PERSONALITY]) {
            if numbers[column] != NO {
                let other = by_number.insert(numbers[column], name);
                assert!(other.is_none_or(|other| other == name), "{name} and {other:?} in column {column}");
            }
        }
    }
}
