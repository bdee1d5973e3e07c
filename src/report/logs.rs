//! One log file for each node: its steps as headings, their output whole, and how it ended.
//!
//! `<node>.log`, and for a node that failed `000_FAILED_<node>.log` as well, a link that sorts before everything else.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::error::{Context, Error, Result};
use crate::event::{Event, Outcome, Sink};
use crate::report::clock::Clock;
use crate::report::diagnostics;
use crate::report::human;
use crate::report::text;

const FAILED_PREFIX: &str = "000_FAILED_";
/// Together with the prefix and the ending below what every file system takes (255 bytes).
const LONGEST_NAME: usize = 200;

/// The file name of a node's log. Different nodes have different names: what is no plain letter is written as `%XX`.
pub fn file_name(node: &str) -> String {
    let mut name = String::with_capacity(node.len() + 4);
    for (i, byte) in node.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'+' => name.push(char::from(byte)),
            // In front they would hide the file, or make it an option.
            b'.' | b'-' if i > 0 => name.push(char::from(byte)),
            _ => name.push_str(&format!("%{byte:02X}")),
        }
    }
    if name.is_empty() {
        // No other name gives a lone percent sign.
        name.push('%');
    }
    if name.len() > LONGEST_NAME {
        let hash = blake3::hash(node.as_bytes()).to_hex();
        name.truncate(LONGEST_NAME - 17);
        // `%_` comes from no byte, so a name that was cut is no other name's whole.
        name.push_str("%_");
        name.push_str(&hash[..15]);
    }
    name.push_str(".log");
    name
}

/// Writes the logs of one run. A log that cannot be written does not end the run; see [`LogDir::problem`].
pub struct LogDir {
    dir: PathBuf,
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: HashMap<Arc<str>, Log>,
    problem: Option<Error>,
}

struct Log {
    file: BufWriter<File>,
    /// Of the step that runs: its number and how many there are.
    step: (usize, usize),
}

impl LogDir {
    pub fn new(dir: impl Into<PathBuf>, clock: Clock) -> Result<Self> {
        let dir = dir.into();
        fs::create_dir_all(&dir).unusable(|| format!("cannot create the directory of logs {}", dir.display()))?;
        Ok(LogDir { dir, clock, state: Mutex::new(State::default()) })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn path_of(&self, node: &str) -> PathBuf {
        self.dir.join(file_name(node))
    }

    /// The first thing that went wrong with writing, to be told as a warning.
    pub fn problem(&self) -> Option<Error> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).problem.clone()
    }

    /// A file of this run: what an earlier run left under the name is removed first, so that nothing is written
    /// through a link that somebody else put there.
    fn open(&self, node: &str) -> io::Result<Log> {
        let name = file_name(node);
        for old in [self.dir.join(&name), self.dir.join(format!("{FAILED_PREFIX}{name}"))] {
            match fs::remove_file(old) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        let file = OpenOptions::new().write(true).create_new(true).open(self.dir.join(name))?;
        Ok(Log { file: BufWriter::new(file), step: (0, 0) })
    }

    fn write(&self, state: &mut State, event: &Event) -> io::Result<()> {
        let now = self.clock.elapsed();
        let (Event::NodeStarted { node, .. }
        | Event::StepStarted { node, .. }
        | Event::Output { node, .. }
        | Event::StepFinished { node, .. }
        | Event::StepRetried { node, .. }
        | Event::NodeFinished { node, .. }
        | Event::Background { node, .. }
        | Event::Warning { node: Some(node), .. }) = event
        else {
            return Ok(());
        };
        if !state.open.contains_key(node) {
            // What is reused, skipped or finished has nothing to log.
            match event {
                Event::NodeStarted { .. } | Event::StepStarted { .. } | Event::Output { .. } => {}
                Event::NodeFinished { outcome: Outcome::Failed(_), .. } => {}
                _ => return Ok(()),
            }
            state.open.insert(node.clone(), self.open(node)?);
        }
        let Some(log) = state.open.get_mut(node) else { return Ok(()) };
        log.event(event, now)?;
        if let Event::NodeFinished { node, outcome, .. } = event {
            let closed = state.open.remove(node).map_or(Ok(()), |mut log| log.file.flush());
            if matches!(outcome, Outcome::Failed(_)) {
                let name = file_name(node);
                std::os::unix::fs::symlink(&name, self.dir.join(format!("{FAILED_PREFIX}{name}")))?;
            }
            closed?;
        }
        Ok(())
    }
}

impl Log {
    fn event(&mut self, event: &Event, now: Duration) -> io::Result<()> {
        let at = human::elapsed(now);
        let file = &mut self.file;
        match event {
            Event::NodeStarted { node, reason, .. } => {
                writeln!(file, "==> {} [{at}] {}", text::one_line(node), text::one_line(reason))?;
                file.flush()
            }
            Event::StepStarted { step, steps, title, .. } => {
                self.step = (*step, *steps);
                writeln!(file, "\n==> [{at}] step {step}/{steps}: {}", text::one_line(title))?;
                // Whoever follows the log sees at what a long step is.
                file.flush()
            }
            Event::Output { line, .. } => writeln!(file, "{}", text::clean(line)),
            Event::StepFinished { step, reused, duration, .. } => {
                let of = if self.step.0 == *step { format!("/{}", self.step.1) } else { String::new() };
                let how = if *reused { "reused".to_owned() } else { format!("done in {}", human::duration(*duration)) };
                writeln!(file, "==> [{at}] step {step}{of} {how}")?;
                file.flush()
            }
            Event::StepRetried { step, attempt, attempts, wait, reason, .. } => {
                let (wait, reason) = (human::duration(*wait), text::one_line(reason));
                writeln!(file, "==> [{at}] retrying step {step} in {wait} (try {attempt} of {attempts}): {reason}")?;
                file.flush()
            }
            Event::Background { title, .. } => writeln!(file, "==> [{at}] {}", text::one_line(title)),
            Event::Warning { message, .. } => writeln!(file, "==> [{at}] warning: {}", text::one_line(message)),
            Event::NodeFinished { outcome, duration, .. } => {
                let took = human::duration(*duration);
                match outcome {
                    Outcome::Built => writeln!(file, "\n==> [{at}] built in {took}"),
                    Outcome::Reused(reason) => writeln!(file, "\n==> [{at}] reused: {}", text::one_line(reason)),
                    Outcome::Failed(error) => {
                        writeln!(file, "\n==> [{at}] failed after {took}")?;
                        file.write_all(diagnostics::render_error(error, false, 120).as_bytes())
                    }
                    Outcome::Skipped(cause) => {
                        writeln!(file, "\n==> [{at}] skipped: needs {}, which failed", text::one_line(cause))
                    }
                    Outcome::Cancelled => writeln!(file, "\n==> [{at}] stopped after {took}"),
                }
            }
            _ => Ok(()),
        }
    }
}

impl Sink for LogDir {
    fn event(&self, event: Event) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(e) = self.write(&mut state, &event)
            && state.problem.is_none()
        {
            let message = format!("cannot write logs to {}", self.dir.display());
            state.problem = Some(Error::unusable(message).cause(e).hint("the run itself goes on"));
        }
    }
}

impl Drop for LogDir {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        for log in state.open.values_mut() {
            // Nobody is left to be told.
            let _ = log.file.flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use proptest::prelude::*;

    use super::*;
    use crate::report::clock::testing::Hand;
    use crate::report::progress::testing::{finished, output, run, started, step, step_done};

    #[test]
    fn a_log_has_the_steps_as_headings() {
        let dir = tempfile::tempdir().unwrap();
        let hand = Hand::default();
        let logs = LogDir::new(dir.path().join("run"), hand.clock()).unwrap();
        run(&logs, &hand);
        assert_snapshot!(fs::read_to_string(logs.path_of("keystone")).unwrap(), @r#"
        ==> keystone [0s] its context file policy.yaml changed

        ==> [0s] step 1/3: FROM kollage/openstack-base:1
        ==> [0s] step 1/3 reused

        ==> [2s] step 2/3: Install keystone from PyPI into the virtual environment
        Collecting keystone==29.0.0
        ==> [2s] warning: `VOLUME` in a parent hides what is written there
        ==> [14s] step 2/3 done in 12s

        ==> [14s] step 3/3: USER keystone
        ==> [14s] step 3/3 done in 10ms

        ==> [41s] built in 41s
        "#);
        assert_snapshot!(fs::read_to_string(logs.path_of("haproxy")).unwrap(), @r#"
        ==> haproxy [2s] new

        ==> [2s] step 4/9: Install packages: haproxy
        Reading package lists...
        E: Unable to locate package haproxyy

        ==> [14s] failed after 12s
        error: `apt-get install` exited with code 100
          cause: in images/haproxy/Dockerfile.j2, line 12
        hint: is the package's name right?
        "#);
        let link = logs.dir().join("000_FAILED_haproxy.log");
        assert_eq!(fs::read_link(&link).unwrap(), PathBuf::from("haproxy.log"));
        assert!(!logs.path_of("base").exists(), "a reused node has no log");
        assert!(logs.problem().is_none());
    }

    #[test]
    fn a_later_run_in_the_same_directory_starts_afresh() {
        let dir = tempfile::tempdir().unwrap();
        let hand = Hand::default();
        let failed = Outcome::Failed(Error::failed("exit code 1"));
        for outcome in [failed, Outcome::Built] {
            let logs = LogDir::new(dir.path(), hand.clock()).unwrap();
            logs.event(started("a", ""));
            logs.event(step("a", 1, 1, "RUN false"));
            logs.event(step_done("a", 1, false, 100));
            logs.event(finished("a", outcome, 100));
        }
        let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["a.log"]);
        assert!(fs::read_to_string(dir.path().join("a.log")).unwrap().contains("built"));
    }

    #[test]
    fn a_link_that_lies_in_the_way_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let precious = dir.path().join("precious");
        fs::write(&precious, "kept").unwrap();
        std::os::unix::fs::symlink(&precious, dir.path().join("a.log")).unwrap();
        let logs = LogDir::new(dir.path(), Hand::default().clock()).unwrap();
        logs.event(started("a", "new"));
        drop(logs);
        assert_eq!(fs::read_to_string(&precious).unwrap(), "kept");
        assert!(fs::read_to_string(dir.path().join("a.log")).unwrap().contains("new"));
    }

    #[test]
    fn a_log_that_cannot_be_written_is_a_problem_and_not_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let logs = LogDir::new(dir.path().join("gone"), Hand::default().clock()).unwrap();
        fs::remove_dir(logs.dir()).unwrap();
        logs.event(output("a", 1, "line"));
        logs.event(output("a", 1, "line"));
        assert!(logs.problem().unwrap().message().contains("cannot write logs to"));
    }

    #[test]
    fn names_are_safe_and_tell_nodes_apart() {
        assert_eq!(file_name("neutron-server+networking-bgpvpn"), "neutron-server+networking-bgpvpn.log");
        assert_eq!(file_name("debian:bookworm"), "debian%3Abookworm.log");
        assert_eq!(file_name("../../etc/passwd"), "%2E.%2F..%2Fetc%2Fpasswd.log");
        assert_eq!(file_name("-rf"), "%2Drf.log");
        assert_eq!(file_name(""), "%.log");
        let (a, b) = ("x".repeat(500), "x".repeat(501));
        assert_ne!(file_name(&a), file_name(&b));
        assert!(file_name(&a).len() + FAILED_PREFIX.len() <= 255);
    }

    proptest! {
        #[test]
        fn no_two_names_collide(a in "[a%/:.é-]{0,6}", b in "[a%/:.é-]{0,6}") {
            prop_assert_eq!(a == b, file_name(&a) == file_name(&b));
            prop_assert!(!file_name(&a).contains('/'));
        }
    }
}
