//! Runs commands. The last one takes this process's place, unless this is process 1: then somebody has to pass signals
//! on, which process 1 would ignore, and to reap what others leave behind.

use crate::command::refused;
use crate::error::{Failure, Result, reason};
use crate::privileges::Privileges;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Seek, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// A program, and as whom it runs.
#[derive(Debug, Clone, Default)]
pub struct Launch {
    pub program: PathBuf,
    /// The first is what the program sees as its own name.
    pub words: Vec<OsString>,
    pub privileges: Privileges,
    pub environment: Vec<(OsString, OsString)>,
    /// What it doesn't find in its environment, unless it is in `environment`.
    pub without: Vec<OsString>,
    /// What it reads, instead of this process's standard input.
    pub input: Option<Vec<u8>>,
    pub directory: Option<PathBuf>,
}

/// What process 1 does. (Any other process is only replaced: there is an init already.)
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mode {
    /// Signals go to the command.
    Single,
    /// Signals go to the command and all that it started in its process group.
    Group,
    /// The command becomes process 1.
    Off,
}

#[derive(Debug, Clone, Copy)]
pub struct Init {
    pub mode: Mode,
    /// What SIGTERM is passed on as.
    pub stop_signal: i32,
    /// How long a command may take to stop.
    pub stop_timeout: Option<Duration>,
}

const TERM: i32 = 15;

impl Init {
    /// From KOLLAGE_INIT, KOLLAGE_STOP_SIGNAL and KOLLAGE_STOP_TIMEOUT.
    pub fn new(mode: Option<&str>, stop_signal: Option<&str>, stop_timeout: Option<&str>) -> Result<Init> {
        let mode = match mode {
            None | Some("single") => Mode::Single,
            Some("group") => Mode::Group,
            Some("off") => Mode::Off,
            Some(other) => {
                return Err(Failure::wrong(format!("KOLLAGE_INIT: `{other}` is not single, group or off")));
            }
        };
        let stop_signal = match stop_signal {
            None => TERM,
            Some(name) => signal(name)
                .ok_or_else(|| Failure::wrong(format!("KOLLAGE_STOP_SIGNAL: there is no signal `{name}`")))?,
        };
        let seconds = |text: &str| text.parse::<u32>().map(|seconds| Duration::from_secs(seconds.into()));
        let stop_timeout = match stop_timeout.map(seconds) {
            None => None,
            Some(Ok(limit)) => Some(limit),
            Some(Err(_)) => return Err(Failure::wrong("KOLLAGE_STOP_TIMEOUT is no number of seconds")),
        };
        Ok(Init { mode, stop_signal, stop_timeout })
    }

    /// Runs the container's command, and gives its exit code; or becomes it.
    pub fn run(&self, launch: &Launch) -> Result<u8> {
        if rustix::process::getpid().as_raw_nonzero().get() != 1 || self.mode == Mode::Off {
            launch.privileges.take()?;
            let error = launch.command()?.exec();
            return Err(refused(&launch.program, &error));
        }
        self.supervise(launch)
    }

    /// Runs a command to its end, passes signals on to it meanwhile, and reaps. Its exit code as a shell has it.
    pub fn supervise(&self, launch: &Launch) -> Result<u8> {
        let mut signals = Signals::new(forwarded()).map_err(|error| Failure::system("listen for signals", error))?;
        let child = self.spawn(launch)?;
        let group = self.mode == Mode::Group;
        let mut stopping = false;
        loop {
            for signal in signals.wait() {
                if signal == signal_hook::consts::SIGCHLD {
                    if let Some(status) = reap(child)? {
                        return Ok(status);
                    }
                    continue;
                }
                let signal = if signal == TERM { self.stop_signal } else { signal };
                send(child, signal, group);
                if let (false, true, Some(limit)) = (stopping, is_stop(signal, self.stop_signal), self.stop_timeout) {
                    stopping = true;
                    std::thread::spawn(move || {
                        std::thread::sleep(limit);
                        crate::log::warning(format_args!(
                            "the command did not stop within {} seconds, and is killed",
                            limit.as_secs()
                        ));
                        send(child, 9, group);
                    });
                }
            }
        }
    }

    /// Ids and capabilities belong to a thread: one gives up its own, starts the command with what is left, and ends.
    fn spawn(&self, launch: &Launch) -> Result<Pid> {
        let foreground = terminal();
        let started = std::thread::scope(|scope| {
            let thread = scope.spawn(|| -> Result<u32> {
                launch.privileges.take()?;
                let child = launch.command()?.process_group(0).spawn();
                child.map(|child| child.id()).map_err(|error| refused(&launch.program, &error))
            });
            thread.join().unwrap_or_else(|_| Err(Failure::refused("the thread that starts the command broke off")))
        })?;
        let child = i32::try_from(started).ok().and_then(Pid::from_raw);
        let child = child.ok_or_else(|| Failure::refused("the command has no process id"))?;
        if foreground && rustix::termios::tcsetpgrp(rustix::stdio::stdin(), child).is_ok() {
            // It may have read from the terminal before that was its own, and been stopped for it.
            send(child, 18, true);
        }
        Ok(child)
    }
}

impl Launch {
    fn command(&self) -> Result<Command> {
        let mut command = Command::new(&self.program);
        if let Some((name, words)) = self.words.split_first() {
            command.arg0(name).args(words);
        }
        for name in &self.without {
            command.env_remove(name);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(home) = self.privileges.home() {
            command.env("HOME", home);
        }
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        if let Some(input) = &self.input {
            command.stdin(in_memory(input).map_err(|error| Failure::system("hand text to a command", error))?);
        }
        Ok(command)
    }
}

/// A file without a name, so that what is in it is nowhere on a disk and in nobody's arguments.
fn in_memory(bytes: &[u8]) -> std::io::Result<File> {
    let mut file = File::from(rustix::fs::memfd_create("input", rustix::fs::MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

/// Whether standard input is a terminal that this process may use now.
fn terminal() -> bool {
    // In this order: in a new namespace without a session of its own there is no process group to ask for.
    rustix::termios::tcgetpgrp(rustix::stdio::stdin()).is_ok_and(|foreground| foreground == rustix::process::getpgrp())
}

/// Reaps whatever ended. The exit code, once the command is among it.
fn reap(child: Pid) -> Result<Option<u8>> {
    let mut ended = None;
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == child => ended = exit_code(status).or(ended),
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) | Err(rustix::io::Errno::CHILD) => return Ok(ended),
            Err(error) => return Err(Failure::system("wait for the command", error)),
        }
    }
}

fn exit_code(status: WaitStatus) -> Option<u8> {
    let code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal))?;
    u8::try_from(code).ok()
}

fn send(child: Pid, signal: i32, group: bool) {
    let Some(signal) = Signal::from_named_raw(signal) else { return };
    let sent = if group {
        rustix::process::kill_process_group(child, signal)
    } else {
        rustix::process::kill_process(child, signal)
    };
    match sent {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => crate::log::warning(format_args!("cannot pass a signal on: {}", reason(&error.into()))),
    }
}

fn is_stop(signal: i32, stop_signal: i32) -> bool {
    signal == stop_signal || [signal_hook::consts::SIGINT, signal_hook::consts::SIGQUIT, TERM].contains(&signal)
}

/// All that a process can catch, but for what is about itself: faults, and writing to nobody.
fn forwarded() -> impl Iterator<Item = i32> {
    const OWN: [i32; 10] = [4, 5, 6, 7, 8, 9, 11, 13, 19, 31];
    (1..=31).filter(|signal| !OWN.contains(signal))
}

/// `TERM`, `SIGTERM` or `15`.
fn signal(name: &str) -> Option<i32> {
    let upper = name.to_uppercase();
    let upper = upper.strip_prefix("SIG").unwrap_or(&upper);
    let number = match upper {
        "HUP" => 1,
        "INT" => 2,
        "QUIT" => 3,
        "KILL" => 9,
        "USR1" => 10,
        "USR2" => 12,
        "TERM" => 15,
        "CONT" => 18,
        "STOP" => 19,
        "WINCH" => 28,
        number => number.parse().ok()?,
    };
    Signal::from_named_raw(number).map(|_| number)
}
