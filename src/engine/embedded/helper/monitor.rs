//! The outer helper of a RUN step. It has the step's namespaces made, mounts everything, starts the inner ones, and
//! passes messages between them and the main process. It lives outside the new pid namespace: when it has waited for
//! that namespace's first process, nothing of the step is left.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::mount::MountFlags;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, setrlimit};
use rustix::thread::UnshareFlags;

use super::overlay::Place;
use super::spec::{Command, Inner, RawPath, Report, RunSpec, ToolSpec};
use super::wire::Wire;
use super::{COMMAND, isolate, mounts};
use crate::error::{Context as _, Error, Result};

pub fn run(main: &Wire, spec: RunSpec, stdin: Option<OwnedFd>) -> Result<Report> {
    let network = if spec.no_network { UnshareFlags::NEWNET } else { UnshareFlags::empty() };
    let own = UnshareFlags::NEWIPC | UnshareFlags::NEWUTS | UnshareFlags::NEWCGROUP;
    isolate::enter(own | network)?;
    if spec.no_network {
        isolate::loopback_up().unusable(|| "cannot bring up the loopback of a step without network".into())?;
    }
    if spec.no_core_dump {
        let none = Rlimit { current: Some(0), maximum: Some(0) };
        setrlimit(Resource::Core, none).unusable(|| "cannot forbid core dumps".into())?;
    }
    rustix::system::sethostname(spec.hostname.as_bytes()).unusable(|| "cannot set a step's host name".into())?;
    let place = Place::new(&spec.root.work)?;
    let program = read_only_self(&place)?;
    let prepared = mounts::prepare(&place, &spec)?;
    let root = RawPath(place.root());
    // Not before: the first child from here on is process 1, and what comes before it may have children.
    isolate::new_processes()?;
    let stdin = match spec.process.terminal {
        Some(size) => {
            let (ours, theirs) = prepared.terminal(size).unusable(|| "cannot make a terminal for a step".into())?;
            // If nobody is there to read it, nobody waits for the step either.
            let _ = main.send_with_fd(&Report::Terminal, Some(ours.as_fd()));
            Some(theirs)
        }
        None => stdin,
    };
    let report = supervise(main, &program, &Inner::Step { process: spec.process, root }, stdin)?;
    if report == Report::Exited(0) {
        prepared.clean();
    }
    Ok(report)
}

/// The same for a program of the host: it keeps the root, and gets a /proc that shows its own processes.
pub fn run_tool(main: &Wire, spec: ToolSpec) -> Result<Report> {
    isolate::enter(UnshareFlags::NEWPID | UnshareFlags::NEWIPC)?;
    if let Some((directory, place)) = &spec.seen_at {
        isolate::bind(directory, place, MountFlags::empty())
            .unusable(|| format!("cannot mount `{}` at `{}`", directory.display(), place.display()))?;
    }
    supervise(main, Path::new("/proc/self/exe"), &Inner::Tool(spec), None)
}

fn supervise(main: &Wire, program: &Path, what: &Inner, stdin: Option<OwnedFd>) -> Result<Report> {
    let (inner, theirs) = Wire::pair().unusable(|| "cannot make a socket pair".into())?;
    let mut child = Process::new(program)
        .args([COMMAND, "init"])
        .env_clear()
        .stdin(Stdio::from(theirs))
        .spawn()
        .unusable(|| "cannot start the first process of a step".into())?;
    // The step itself reads this. If it is gone already, so is the report that is waited for below.
    let sent = inner.send_with_fd(what, stdin.as_ref().map(|fd| fd.as_fd()));
    drop(stdin);
    let report = match sent {
        Ok(()) => relay(main, &inner, &child),
        Err(_) => inner.receive().ok().flatten(),
    };
    let end = end(&mut child);
    Ok(report.unwrap_or_else(|| Report::Failure((&vanished(end)).into())))
}

/// Kills the pid namespace by its first process; returns when everything in it is gone.
fn end(child: &mut Child) -> Option<std::process::ExitStatus> {
    // It may have ended by itself.
    let _ = child.kill();
    child.wait().ok()
}

/// Waits for the step, and hands on what the main process says meanwhile. None when the inner side says nothing.
fn relay(main: &Wire, inner: &Wire, child: &Child) -> Option<Report> {
    let init = Pid::from_child(child);
    loop {
        let mut fds = [PollFd::new(main, PollFlags::IN), PollFd::new(inner, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
        if !fds[1].revents().is_empty() {
            return inner.receive().ok().flatten();
        }
        if !fds[0].revents().is_empty() {
            match main.receive::<Command>() {
                Ok(Some(Command::Terminate)) => {
                    // It has a handler for this and passes it on to the step.
                    let _ = kill_process(init, Signal::TERM);
                }
                // The main process is gone, or wants an end.
                Ok(Some(Command::Kill) | None) | Err(_) => return Some(Report::Signalled(Signal::KILL.as_raw())),
            }
        }
    }
}

fn vanished(status: Option<std::process::ExitStatus>) -> Error {
    let error = Error::failed("the step's first process was killed")
        .hint("the kernel may have run out of memory: `dmesg` says so");
    match status {
        Some(status) => error.cause(status),
        None => error,
    }
}

/// This program, mounted read-only: a step whose image makes it execute `/proc/self/exe` can then do no harm to the
/// file on the host (CVE-2019-5736 was that).
fn read_only_self(place: &Place) -> Result<PathBuf> {
    const SELF: &str = "/proc/self/exe";
    let target = place.in_memory("kollage");
    let make = || -> std::io::Result<()> {
        let identity = |path: &Path| std::fs::metadata(path).map(|m| (m.dev(), m.ino()));
        // The link itself leads to a mount of the host's namespace, of which none can be made in this one.
        let path = std::fs::read_link(SELF)?;
        if identity(&path).ok() == Some(identity(Path::new(SELF))?) {
            std::fs::File::create(&target)?;
            return isolate::bind(&path, &target, MountFlags::RDONLY | MountFlags::NODEV);
        }
        // It was replaced since it was started: a copy serves as well.
        std::fs::copy(SELF, &target).map(drop)
    };
    make().unusable(|| "cannot mount Kollage's own program for a step".into())?;
    Ok(target)
}
