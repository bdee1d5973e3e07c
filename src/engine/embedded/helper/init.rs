//! The first process of a step's pid namespace: starts the step, passes SIGTERM on, collects orphans, and ends with
//! the step, whereupon the kernel kills whatever the step left running.

use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command as Process, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{DumpableBehavior, Pid, Signal, WaitOptions, kill_process_group};

use super::spec::Report;
use super::wire::Wire;
use super::{COMMAND, isolate};
use crate::error::{Context as _, Result};

pub fn run(outer: &Wire) -> Result<Report> {
    isolate::die_with_parent()?;
    // Nothing in the step may look into this process, whose capabilities and open files are the host's.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .unusable(|| "cannot protect the first process of a step".into())?;
    let ended = on_signal(signal_hook::consts::SIGCHLD)?;
    let asked = on_signal(signal_hook::consts::SIGTERM)?;
    let socket: OwnedFd = outer.try_clone().unusable(|| "cannot duplicate a socket".into())?;
    let child = Process::new("/proc/self/exe")
        .args([COMMAND, "step"])
        .env_clear()
        .stdin(Stdio::from(socket))
        .spawn()
        .unusable(|| "cannot start the step's process".into())?;
    let step = Pid::from_child(&child);
    loop {
        let mut fds = [
            PollFd::new(&ended, PollFlags::IN),
            PollFd::new(&asked, PollFlags::IN),
            // What is to be read there is the step's. Its other end closes when the outer helper is gone.
            PollFd::from_borrowed_fd(outer.as_fd(), PollFlags::empty()),
        ];
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Ok(Report::Signalled(Signal::KILL.as_raw())),
        }
        let [ended_now, asked_now, gone] = fds.map(|fd| !fd.revents().is_empty());
        if gone {
            return Ok(Report::Signalled(Signal::KILL.as_raw()));
        }
        if asked_now {
            drain(&asked);
            // The step leads a process group of its own from its first moment on, or has not come that far.
            let _ = kill_process_group(step, Signal::TERM);
        }
        if ended_now {
            drain(&ended);
            while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
                if pid != step {
                    continue;
                }
                return Ok(match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => Report::Exited(code),
                    (None, Some(signal)) => Report::Signalled(signal),
                    (None, None) => continue,
                });
            }
        }
    }
}

fn on_signal(signal: i32) -> Result<UnixStream> {
    let what = || "cannot prepare for signals".to_owned();
    let (ours, theirs) = UnixStream::pair().unusable(what)?;
    ours.set_nonblocking(true).unusable(what)?;
    signal_hook::low_level::pipe::register(signal, theirs).unusable(what)?;
    Ok(ours)
}

fn drain(mut pipe: &UnixStream) {
    let mut buffer = [0u8; 64];
    while matches!(pipe.read(&mut buffer), Ok(n) if n > 0) {}
}
