//! `kollage run -it` and `kollage shell`: terminals, and the states between the steps of an image.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};

use crate::sandbox::{Ran, Sandbox, is_root};

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// A person at a terminal in which the program runs.
struct Person {
    sees: File,
    terminal: OwnedFd,
    child: Child,
    seen: String,
}

impl Person {
    fn runs(sandbox: &Sandbox, args: &[&str]) -> Person {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let sees = openpt(flags).unwrap();
        grantpt(&sees).unwrap();
        unlockpt(&sees).unwrap();
        tcsetwinsize(&sees, size(33, 101)).unwrap();
        let terminal = ioctl_tiocgptpeer(&sees, flags).unwrap();
        let ours = sandbox.command(args);
        // The terminal is the session's, so that the kernel tells the program when its size changes.
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(ours.get_program()).args(ours.get_args()).env_clear();
        command.envs(ours.get_envs().filter_map(|(name, value)| Some((name, value?)))).env("TERM", "vt102");
        command.current_dir(ours.get_current_dir().unwrap());
        let stream = || Stdio::from(terminal.as_fd().try_clone_to_owned().unwrap());
        let child = command.stdin(stream()).stdout(stream()).stderr(stream()).spawn().unwrap();
        Person { sees: File::from(sees), terminal, child, seen: String::new() }
    }

    fn waits_for(&mut self, text: &str) {
        let mut buffer = [0; 4096];
        while !self.seen.contains(text) {
            let n = self.sees.read(&mut buffer).unwrap_or(0);
            assert!(n > 0, "`{text}` never came:\n{}", self.seen);
            self.seen.push_str(&String::from_utf8_lossy(&buffer[..n]));
        }
    }

    fn types(&mut self, keys: &str) {
        self.sees.write_all(keys.as_bytes()).unwrap();
    }

    /// What was on the screen, and the exit code.
    fn leaves(mut self) -> (String, i32) {
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        // With our copy of its side closed, reading ends.
        drop(self.terminal);
        let mut rest = Vec::new();
        let _ = self.sees.read_to_end(&mut rest);
        (self.seen + &String::from_utf8_lossy(&rest), code)
    }
}

fn with_base(recipe: &str) -> Sandbox {
    let sandbox = Sandbox::with_base();
    sandbox.base(&format!("FROM {{{{ parent }}}}\nENV PATH=/bin\n{recipe}"));
    sandbox
}

#[test]
fn a_command_has_a_terminal_of_its_own() {
    if !is_root() {
        return;
    }
    let sandbox = with_base("RUN echo app > /who\nUSER app\n");
    sandbox.build(&[]);
    let script = "busybox tty; busybox stty size; echo $TERM; echo has: /dev/pts/*; stat -c %u /dev/pts/0; \
                  echo x > /dev/tty && exit 7";
    let person = Person::runs(&sandbox, &["run", "-it", "base", "--", "sh", "-c", script]);
    // What is asked on this side is answered about the other.
    let ours = person.sees.try_clone().unwrap();
    let before = tcgetattr(&ours).unwrap();
    let (seen, code) = person.leaves();
    assert_eq!(code, 7, "{seen}");
    // Its own file system of terminals: whatever the host has open, this is the first one in it.
    for line in ["/dev/pts/0", "33 101", "vt102", "has: /dev/pts/0 /dev/pts/ptmx", "1000", "x"] {
        assert!(seen.contains(&format!("{line}\r\n")), "{line} is not in\n{seen}");
    }
    let after = tcgetattr(&ours).unwrap();
    assert_eq!(
        (before.local_modes, before.input_modes, before.output_modes),
        (after.local_modes, after.input_modes, after.output_modes)
    );
}

#[test]
fn ctrl_c_goes_to_the_program() {
    if !is_root() {
        return;
    }
    let sandbox = with_base("RUN true\n");
    sandbox.build(&[]);
    let script = "trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.1; done";
    let mut person = Person::runs(&sandbox, &["run", "-it", "base", "--", "sh", "-c", script]);
    person.waits_for("ready");
    person.types("\x03");
    let (seen, code) = person.leaves();
    assert!(seen.contains("caught") && code == 3, "{code}\n{seen}");
    // Without a handler it dies of it, as the exit code says.
    let mut person = Person::runs(&sandbox, &["run", "-it", "base", "--", "sh", "-c", "echo ready; exec sleep 1000"]);
    person.waits_for("ready");
    person.types("\x03");
    assert_eq!(person.leaves().1, 130);
}

#[test]
fn the_program_is_told_of_a_new_size_and_reads_what_is_typed() {
    if !is_root() {
        return;
    }
    let sandbox = with_base("RUN true\n");
    sandbox.build(&[]);
    let script = "trap 'busybox stty size; read line; echo got: $line; exit 0' WINCH; echo ready; \
                  while :; do sleep 0.1; done";
    let mut person = Person::runs(&sandbox, &["run", "-it", "base", "--", "sh", "-c", script]);
    person.waits_for("ready");
    tcsetwinsize(&person.sees, size(50, 120)).unwrap();
    person.waits_for("50 120");
    person.types("hello\n");
    let (seen, code) = person.leaves();
    assert!(seen.contains("got: hello") && code == 0, "{code}\n{seen}");
}

#[test]
fn a_shell_with_a_person_in_it() {
    if !is_root() {
        return;
    }
    let sandbox = with_base("RUN echo one > /one\n");
    sandbox.build(&[]);
    let mut person = Person::runs(&sandbox, &["shell", "base"]);
    person.waits_for("# ");
    person.types("cat /one; exit 4\n");
    let (seen, code) = person.leaves();
    assert!(seen.contains("one\r\n") && code == 4, "{code}\n{seen}");
}

#[test]
fn without_a_terminal_there_is_none_to_lend() {
    if !is_root() {
        return;
    }
    let sandbox = with_base("RUN true\n");
    sandbox.build(&[]);
    sandbox.run(&["run", "-t", "base"]).exits(2).says("`--tty` needs a terminal, and standard input is none");
    // A shell reads its commands from whatever is there.
    let mut child = sandbox.command(&["shell", "base"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"echo shell of $PATH\nexit 5\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(5), &b"shell of /bin\n"[..]));
}

#[test]
fn states_between_steps_also_of_a_failed_build() {
    if !is_root() {
        return;
    }
    let recipe = "# title: The first file\nRUN echo one > /one\nCOPY two /two\nENV SEEN=yes\nWORKDIR /three\n\
                  RUN echo three > three && test -f /four\nRUN echo five > /five\n";
    let sandbox = with_base(recipe);
    sandbox.write("images/base/two", "two\n");
    sandbox.run(&["build"]).exits(1);
    let shell = |args: &[&str]| -> Ran { sandbox.run(&[&["shell"], args].concat()) };

    let list = shell(&["base", "--list"]).ok().stdout;
    let shown: Vec<Vec<&str>> = list.lines().skip(1).map(|line| line.split_whitespace().take(2).collect()).collect();
    assert_eq!(shown, [["1", "yes"], ["2", "yes"], ["3", "yes"], ["4", "no"], ["5", "no"]], "{list}");
    assert!(list.contains("The first file"), "{list}");

    let ls = |state: &str| shell(&[state, "--", "sh", "-c", "echo $SEEN $PWD; cd /; echo one* two* three*/*"]);
    assert_eq!(ls("base@1").ok().says("after step 1").stdout, "yes /three\none two* three*/*\n");
    assert_eq!(ls("base@first file").ok().stdout, ls("base@1").ok().stdout);
    assert_eq!(ls("base@COPY").ok().stdout, "yes /three\none two three*/*\n");
    assert_eq!(ls("base@last").ok().says("after step 3").stdout, "yes /three\none two three*/*\n");
    // What failed has left nothing; what comes before it is where one looks for the reason.
    let failed = ls("base@4").ok().says("step 4 (RUN echo three").says("this is the state before it");
    assert_eq!(failed.stdout, ls("base@last").ok().stdout);
    let before = shell(&["base@2", "--before", "--", "cat", "/two"]).exits(1);
    assert!(before.stderr.contains("before step 2"), "{}", before.stderr);
    // What is changed is thrown away.
    shell(&["base@1", "--", "rm", "/one"]).ok();
    assert_eq!(shell(&["base@1", "--", "cat", "/one"]).ok().stdout, "one\n");

    shell(&["base"]).exits(2).says("is not built yet").says("kollage shell base@last");
    shell(&["base@5"]).exits(2).says("neither step 5");
    shell(&["base@9"]).exits(2).says("they go from 1 to 5").says("kollage shell base --list");
    shell(&["base@echo"]).exits(2).says("can be any of the steps 4, 5");
    shell(&["base@nonsense"]).exits(2).says("no step of base is called `nonsense`");
    shell(&["bse@1"]).exits(2).says("did you mean `base`?");
    shell(&["base", "--before"]).exits(2).says("kollage shell base@STEP --before");
    sandbox.image("child", "base", "FROM {{ parent }}\nRUN echo child > /child\n");
    shell(&["child@1"]).exits(2).says("child needs base, which is not built").says("kollage shell base@last");
}

#[test]
fn an_image_without_a_shell_is_called_one() {
    if !is_root() {
        return;
    }
    let sandbox = with_base("RUN cp /bin/busybox /cat && rm -r /bin\n");
    sandbox.build(&[]);
    let ran = sandbox.run(&["shell", "base"]).exits(2).says("there is no shell in it").says("`-- PROGRAM`");
    assert!(ran.stdout.is_empty());
    assert_eq!(sandbox.run(&["shell", "base", "--", "/cat", "/etc/group"]).ok().stdout.lines().count(), 3);
}
