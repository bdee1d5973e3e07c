//! The innermost helper, which becomes the step: mounts /proc, makes the step's root the root, gives up everything
//! that a step must not have, and executes the command.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command as Process;

use rustix::fs::Mode;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::thread::{CapabilitySet, Gid, Uid};

use super::inroot::Root;
use super::spec::{Inner, ProcessSpec, Report, ToolSpec};
use super::users::{Accounts, Identity};
use super::wire::Wire;
use super::{caps, isolate, limits, seccomp, syscall};
use crate::error::{Context as _, Error, Result};
use crate::userns;

/// Says more about the host than a step should know, or lets it do more; Docker hides these too.
const MASKED: [&str; 12] = [
    "proc/acpi",
    "proc/asound",
    "proc/interrupts",
    "proc/kcore",
    "proc/keys",
    "proc/latency_stats",
    "proc/timer_list",
    "proc/timer_stats",
    "proc/sched_debug",
    "proc/scsi",
    "sys/devices/virtual/powercap",
    "sys/firmware",
];
const READ_ONLY: [&str; 5] = ["proc/bus", "proc/fs", "proc/irq", "proc/sys", "proc/sysrq-trigger"];

/// Returns only when the command could not be executed.
pub fn run(outer: &Wire) -> Result<Report> {
    let Some((what, stdin)) = outer.receive_with_fd::<Inner>().unusable(|| "cannot read what to execute".into())?
    else {
        return Err(Error::failed("the outer helper is gone"));
    };
    match what {
        Inner::Step { process, root } => become_step(&process, &root, stdin),
        Inner::Tool(tool) => become_tool(&tool),
    }
}

fn become_tool(tool: &ToolSpec) -> Result<Report> {
    rustix::process::setsid().unusable(|| "cannot start a session".into())?;
    let strict = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", strict, None).unusable(|| "cannot mount `/proc`".into())?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let Some(name) = tool.argv.first() else {
        return Err(Error::bad_input("there is no program to execute"));
    };
    let mut command = Process::new(name);
    command.args(&tool.argv[1..]).env_clear();
    for (name, value) in &tool.env {
        command.env(name, OsStr::from_bytes(&value.0));
    }
    let error = command.exec();
    Ok(not_executed(name, Path::new(name), &error))
}

fn become_step(spec: &ProcessSpec, root: &Path, stdin: Option<OwnedFd>) -> Result<Report> {
    // A session of its own: no controlling terminal, and a group that signals can be sent to.
    rustix::process::setsid().unusable(|| "cannot start a session".into())?;
    mount_proc(root, spec.insecure).map_err(|e| {
        Error::unusable("cannot mount `/proc` for a step")
            .cause(e)
            .hint("a container that Kollage runs in must be privileged")
    })?;
    enter_root(root).unusable(|| "cannot make the step's root the root directory".into())?;

    let image = Root::open(Path::new("/")).unusable(|| "cannot open the root directory".into())?;
    let identity = Accounts::of(&image).identity(&spec.user)?;
    possible(&identity, &spec.user)?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    rustix::process::chdir(spec.cwd.as_str())
        .map_err(|e| Error::failed(format!("cannot change to the working directory `{}`", spec.cwd)).cause(e))?;
    match (spec.terminal, stdin) {
        (Some(_), Some(terminal)) => on_terminal(&terminal, &identity),
        (_, stdin) => standard_streams(stdin, &identity),
    }
    .unusable(|| "cannot prepare the standard streams".into())?;
    limits::set(&spec.ulimits)?;
    let capabilities = caps::wanted(spec.insecure).unusable(|| "cannot read the capabilities of a process".into())?;
    own_keyring().unusable(|| "cannot give a step a session keyring of its own".into())?;
    if !spec.insecure {
        seccomp::install(capabilities)?;
    }
    become_user(&identity, capabilities).unusable(|| format!("cannot become user {}", identity.uid))?;
    execute(spec, &identity)
}

fn mount_proc(root: &Path, insecure: bool) -> io::Result<()> {
    let strict = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", root.join("proc"), "proc", strict, None)?;
    if insecure {
        return Ok(());
    }
    for name in READ_ONLY {
        let path = root.join(name);
        if path.exists() {
            isolate::bind(&path, &path, MountFlags::RDONLY | strict)?;
        }
    }
    for name in MASKED {
        let path = root.join(name);
        match std::fs::metadata(&path) {
            Ok(meta) if meta.is_dir() => mount("mask", &path, "tmpfs", strict | MountFlags::RDONLY, c"size=0")?,
            Ok(_) => isolate::bind(&root.join("dev/null"), &path, MountFlags::empty())?,
            Err(_) => {}
        }
    }
    Ok(())
}

/// With `.` for both, the old root is mounted upon the new one and can be let go at once. The kernel moves the outer
/// helpers, too: their root was the old one.
fn enter_root(root: &Path) -> io::Result<()> {
    rustix::process::chdir(root)?;
    rustix::process::pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    rustix::process::chdir("/")?;
    Ok(())
}

/// Output goes through pipes of the main process; `/dev/stdout` must be open to whoever the step runs as.
fn standard_streams(stdin: Option<OwnedFd>, identity: &Identity) -> io::Result<()> {
    match stdin {
        Some(stdin) => rustix::stdio::dup2_stdin(stdin)?,
        None => rustix::stdio::dup2_stdin(File::open("/dev/null")?)?,
    }
    for stream in [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()] {
        let file = File::from(stream.as_fd().try_clone_to_owned()?);
        let meta = file.metadata()?;
        if meta.file_type().is_fifo() && meta.uid() != identity.uid {
            let given = std::os::unix::fs::fchown(&file, Some(identity.uid), None);
            // A pipe that somebody else made stays theirs where this is not the root of all.
            given.or_else(|e| if userns::current().is_initial() { Err(e) } else { Ok(()) })?;
        }
    }
    Ok(())
}

/// The terminal becomes the session's, which is how Ctrl-C finds whom it is meant for, and belongs to the user.
fn on_terminal(terminal: &OwnedFd, identity: &Identity) -> io::Result<()> {
    rustix::process::ioctl_tiocsctty(terminal)?;
    if identity.uid != 0 {
        std::os::unix::fs::fchown(terminal, Some(identity.uid), None)?;
    }
    rustix::stdio::dup2_stdin(terminal)?;
    rustix::stdio::dup2_stdout(terminal)?;
    Ok(rustix::stdio::dup2_stderr(terminal)?)
}

/// Whether a process can be that user at all.
fn possible(identity: &Identity, user: &str) -> Result<()> {
    let here = userns::current();
    let groups = if here.is_single() { &identity.groups[..0] } else { &identity.groups };
    let ids = std::iter::once(identity.gid).chain(groups.iter().copied());
    match ids.filter_map(|gid| here.refusal(identity.uid, gid)).next() {
        None => Ok(()),
        Some(unmapped) => Err(Error::unusable(format!("nothing can be run here as user `{user}`"))
            .cause(unmapped)
            .hint(unmapped.hint())),
    }
}

/// The caller's would be inherited, and with it whatever keys it has. A kernel without keys, or a container around us
/// that refuses everything about them, refuses it to the step as well.
fn own_keyring() -> io::Result<()> {
    use rustix::io::Errno;
    match syscall::new_session_keyring() {
        Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::NOSYS | Errno::PERM)) => Ok(()),
        result => result,
    }
}

fn become_user(identity: &Identity, capabilities: CapabilitySet) -> io::Result<()> {
    caps::limit(capabilities)?;
    let groups: Vec<Gid> = identity.groups.iter().map(|g| Gid::from_raw(*g)).collect();
    let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
    // Whoever has a single id may not change them.
    if !userns::current().is_single() {
        rustix::thread::set_thread_groups(&groups)?;
    }
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    caps::settle(capabilities, identity.uid == 0)
}

fn execute(spec: &ProcessSpec, identity: &Identity) -> Result<Report> {
    let Some(name) = spec.argv.first() else {
        return Err(Error::bad_input("there is no command to execute"));
    };
    let value = |wanted: &str| {
        let found = spec.env.iter().rev().find(|(n, _)| n == wanted);
        found.map(|(_, v)| String::from_utf8_lossy(&v.0).into_owned())
    };
    let path = match find(name, value("PATH").as_deref().unwrap_or_default()) {
        Ok(path) => path,
        Err(report) => return Ok(report),
    };
    let mut command = Process::new(&path);
    command.arg0(name).args(&spec.argv[1..]).env_clear();
    for (name, value) in &spec.env {
        command.env(name, OsStr::from_bytes(&value.0));
    }
    if value("HOME").is_none_or(|home| home.is_empty()) {
        command.env("HOME", &identity.home);
    }
    let error = command.exec();
    Ok(not_executed(name, &path, &error))
}

/// Looks a name up in the image's own PATH.
fn find(name: &str, path: &str) -> std::result::Result<PathBuf, Report> {
    if name.contains('/') {
        return Ok(PathBuf::from(name));
    }
    let mut denied = false;
    for dir in path.split(':').filter(|d| !d.is_empty()) {
        let candidate = Path::new(dir).join(name);
        match std::fs::metadata(&candidate) {
            Ok(meta) if meta.is_file() && meta.permissions().mode() & 0o111 != 0 => return Ok(candidate),
            Ok(meta) => denied |= meta.is_file(),
            Err(_) => {}
        }
    }
    let (code, message) = if denied {
        (126, format!("`{name}` is in PATH but not executable"))
    } else {
        (127, format!("there is no `{name}` in PATH"))
    };
    Err(Report::NotExecuted { code, message, hint: None })
}

fn not_executed(name: &str, path: &Path, error: &io::Error) -> Report {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error);
    let there = std::fs::metadata(path).is_ok();
    let (code, hint) = match errno {
        Some(Errno::NOENT) if there => (127, Some("its interpreter (`#!` line or dynamic linker) is not in the image")),
        Some(Errno::NOENT) => (
            127,
            name.ends_with("/sh")
                .then_some("an image without a shell needs RUN in its exec form: RUN [\"program\", \"argument\"]"),
        ),
        Some(Errno::NOEXEC) => (126, Some("it is for another architecture, or a script without a `#!` line")),
        _ => (126, None),
    };
    let message = format!("cannot execute `{name}`: {error}");
    Report::NotExecuted { code, message, hint: hint.map(str::to_owned) }
}
