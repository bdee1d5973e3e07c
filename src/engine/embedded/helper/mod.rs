//! What Kollage re-executes itself as, to do what a process with threads cannot: enter namespaces, and become a step.
//!
//! ```text
//! kollage (threads)          speaks [`spec`] over a socket that is the helper's standard input
//!  └ __helper outer          [`monitor`]: own mount namespace, overlay, mounts; or [`copy`], [`workdir`]
//!     └ __helper init        [`init`]: pid 1 of the step's pid namespace
//!        └ __helper step     [`step`]: becomes the step's command
//! ```
//!
//! Whichever of them ends, those below it end: by the death signal of the parent, by sockets that close, and by the
//! kernel, which kills a pid namespace with its first process. Mounts exist in the outer helper's namespace only and
//! go with it.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use rustix::fs::Mode;

use crate::error::{Context as _, Error, Result};

mod caps;
mod copy;
mod init;
mod inroot;
mod isolate;
mod limits;
pub(in crate::engine) mod mode;
mod monitor;
pub(super) mod mounts;
pub(super) mod overlay;
mod seccomp;
pub(super) mod spec;
mod step;
mod syscall;
mod tree;
mod unpack;
mod users;
pub(super) mod wire;
mod workdir;

use spec::{Report, Request};
use wire::Wire;

/// The hidden command.
pub const COMMAND: &str = "__helper";

/// To be called with the arguments of the process before it has any thread: does the helper's work when it is one.
pub fn main_if_called(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut args = args.into_iter().skip(1);
    if args.next()? != COMMAND {
        return None;
    }
    let role = args.next();
    // A directory of the host's that the caller was started with would be a way out of any root.
    if syscall::close_inherited().is_err() {
        return Some(ExitCode::FAILURE);
    }
    if role.as_deref().is_some_and(|r| r == isolate::SYSFS) {
        return Some(ExitCode::from(isolate::sysfs_child(args)));
    }
    let wire = match Wire::from_stdin() {
        Ok(wire) => wire,
        // Somebody typed it in.
        Err(_) => return Some(ExitCode::from(2)),
    };
    rustix::process::umask(Mode::empty());
    let result = match role.as_deref().and_then(|r| r.to_str()) {
        Some("outer") => outer(&wire),
        Some("init") => init::run(&wire),
        Some("step") => step::run(&wire),
        _ => return Some(ExitCode::from(2)),
    };
    let report = result.unwrap_or_else(|e| Report::Failure((&e).into()));
    // When nobody listens any more, nobody needs to know.
    let sent = wire.send(&report).is_ok();
    Some(if sent { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn outer(main: &Wire) -> Result<Report> {
    isolate::die_with_parent()?;
    let Some((request, stdin)) = main.receive_with_fd::<Request>().unusable(|| "cannot read what to do".into())? else {
        return Err(Error::failed("the main process is gone"));
    };
    match request {
        Request::Run(spec) => monitor::run(main, *spec, stdin),
        Request::Tool(spec) => monitor::run_tool(main, spec),
        Request::Copy(spec) => copy::run(&spec),
        Request::Workdir(spec) => workdir::run(&spec),
        Request::Probe(spec) => probe(&spec),
    }
}

/// What ADD does with a local archive, without an overlay, for what tests that alone: unpacks it at `dest` below `root`.
/// False when the file is no archive.
pub fn unpack_archive(archive: &Path, root: &Path, dest: &Path) -> Result<bool> {
    let cannot = |path: &Path| format!("cannot open `{}`", path.display());
    let file = std::fs::File::open(archive).unusable(|| cannot(archive))?;
    let Some(file) = unpack::open(&file.into()).unusable(|| cannot(archive))? else { return Ok(false) };
    let root = inroot::Root::open(root).unusable(|| cannot(root))?;
    unpack::unpack(file, &root, dest, None)?;
    Ok(true)
}

/// Mounts an overlay and writes to it, in namespaces of all kinds; filters system calls.
fn probe(spec: &spec::RootSpec) -> Result<Report> {
    use rustix::thread::UnshareFlags;
    isolate::enter(UnshareFlags::NEWPID | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS | UnshareFlags::NEWNET)?;
    let place = overlay::Place::new(&spec.work)?;
    overlay::mount_root(&place, spec, &[])?;
    let file = place.root().join("probe");
    std::fs::write(&file, "").unusable(|| "cannot write to an overlay".into())?;
    let upper = spec.work.join(spec::RootSpec::UPPER).join("probe");
    if !Path::new(&upper).exists() {
        return Err(Error::unusable("what is written to an overlay does not arrive in its upper directory"));
    }
    seccomp::install(caps::wanted(false).unusable(|| "cannot read the capabilities of a process".into())?)?;
    Ok(Report::Done { changed: true })
}
