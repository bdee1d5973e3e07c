//! Ctrl-C once stops cleanly and says what was finished, twice stops now; nothing stays running or mounted.

use std::fs;
use std::io::Read as _;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::sandbox::{Sandbox, is_root};

/// Ways of a process to live on after the one that started it. MARK is a number of seconds that tells it from others.
const TOUGH: [&str; 5] = [
    "sleep MARK",
    "trap '' TERM INT HUP; sleep MARK & while true; do sleep MARK; done",
    "(/bin/busybox setsid sleep MARK >/dev/null 2>&1 &); sleep MARK",
    "(trap '' TERM INT HUP; (/bin/busybox setsid sh -c \"trap '' TERM INT HUP; while true; do sleep MARK; done\" >/dev/null 2>&1 </dev/null &) &); sleep MARK",
    "/bin/busybox nohup sleep MARK >/dev/null 2>&1 & (sleep MARK; sleep MARK) & wait",
];

fn wait_for(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..1200 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{what} did not happen within 60 s");
}

/// How many processes have this word in their command line.
fn count(word: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|p| fs::read(p.path().join("cmdline")).ok());
    lines.filter(|line| line.split(|b| *b == 0).any(|w| w == word.as_bytes())).count()
}

/// Nothing of the store is mounted for anybody.
fn mounted(sandbox: &Sandbox) -> Vec<String> {
    let store = sandbox.path("store").display().to_string();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let text = fs::read_to_string(entry.path().join("mountinfo")).unwrap_or_default();
        found.extend(text.lines().filter(|l| l.contains(&store)).map(str::to_owned));
    }
    found
}

struct Running {
    sandbox: Sandbox,
    child: Child,
    mark: String,
}

impl Running {
    /// An image that is done, and one whose step goes on until somebody ends it.
    fn start(number: usize, script: &str) -> Running {
        let sandbox = Sandbox::with_base();
        let mark = format!("{}{number:02}", 200_000 + std::process::id());
        sandbox.base("FROM {{ parent }}\nENV PATH=/bin\nRUN echo done > /done\n");
        sandbox.image("slow", "base", &format!("FROM {{{{ parent }}}}\nRUN {}\n", script.replace("MARK", &mark)));
        let mut command = sandbox.command(&["build", "--progress", "plain"]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let running = Running { sandbox, child, mark };
        wait_for("the step", || count(&running.mark) > 0);
        running
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id() as i32).unwrap(), signal).unwrap();
    }

    fn end(&mut self) -> (Option<i32>, String) {
        let mut stderr = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        (self.child.wait().unwrap().code(), stderr)
    }
}

#[test]
fn once_stops_cleanly_and_says_what_was_finished() {
    if !is_root() {
        return;
    }
    for (number, script) in TOUGH.iter().enumerate() {
        let mut running = Running::start(number, script);
        running.signal(Signal::INT);
        let (code, said) = running.end();
        assert_eq!(code, Some(130), "{script}:\n{said}");
        // All gone when the program has ended; nobody is waited for here.
        assert_eq!((count(&running.mark), mounted(&running.sandbox)), (0, Vec::new()), "{script}");
        assert!(said.contains("base") && said.contains("slow") && said.contains("nterrupted"), "{script}:\n{said}");
        assert_eq!(fs::read_dir(running.sandbox.path("store/tmp")).map_or(0, Iterator::count), 0, "{script}");
        running.sandbox.run(&["store", "verify"]).ok();
        // What was finished is not done again.
        let plan = running.sandbox.plan(&["base"]);
        assert!(plan.iter().all(|(_, action)| action == "reuse"), "{script}: {plan:?}");
    }
}

#[test]
fn twice_stops_now() {
    if !is_root() {
        return;
    }
    for (number, script) in TOUGH.iter().enumerate() {
        let mut running = Running::start(20 + number, script);
        running.signal(Signal::INT);
        running.signal(Signal::INT);
        std::thread::sleep(Duration::from_millis(20));
        // Two that come at once may be one to the program.
        if running.child.try_wait().unwrap().is_none() {
            running.signal(Signal::INT);
        }
        let (code, said) = running.end();
        assert_eq!(code, Some(130), "{script}:\n{said}");
        wait_for("the end of the step", || count(&running.mark) == 0 && mounted(&running.sandbox).is_empty());
        running.sandbox.run(&["store", "verify"]).ok();
    }
}

#[test]
fn a_program_that_is_killed_takes_everything_along() {
    if !is_root() {
        return;
    }
    for (number, script) in TOUGH.iter().enumerate() {
        let mut running = Running::start(40 + number, script);
        running.signal(Signal::KILL);
        let (code, _) = running.end();
        assert_eq!(code, None);
        wait_for("the end of the step", || count(&running.mark) == 0 && mounted(&running.sandbox).is_empty());
    }
}
