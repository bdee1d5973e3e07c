//! Namespaces of a step, and what is put into a fresh one.
//!
//! `unsafe`: rustix calls `unshare` unsafe because of CLONE_FILES, which gives a thread a table of descriptors of its
//! own. The helper has one thread and never asks for that.
#![allow(unsafe_code)]

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::StatVfsMountFlags;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change, mount_remount};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::process::Signal;
use rustix::thread::UnshareFlags;

use super::COMMAND;
use crate::error::{Context as _, Error, Result};
use crate::userns;

/// Dies with the thread that started us. Threads that start helpers wait for them, so that is the process.
pub fn die_with_parent() -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .unusable(|| "cannot tie the helper to its parent".into())
}

/// A mount namespace of our own in which nothing is passed on to the host's; and others.
pub fn enter(others: UnshareFlags) -> Result<()> {
    // SAFETY: see the head of this module.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS | others) }.map_err(|e| {
        Error::unusable("cannot make namespaces for a step")
            .cause(e)
            .hint("Kollage has to run as root with CAP_SYS_ADMIN; in a container that means `--privileged`")
    })?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .unusable(|| "cannot make the helper's mounts private".into())
}

/// The next child is the first process of a pid namespace of its own.
pub fn new_processes() -> Result<()> {
    // SAFETY: see the head of this module.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWPID) }
        .unusable(|| "cannot make a pid namespace for a step".into())
}

/// Makes a bind mount of `source` at `target`, which carries `flags` of its own.
pub fn bind(source: &Path, target: &Path, flags: MountFlags) -> io::Result<()> {
    mount_bind(source, target)?;
    if flags.is_empty() { Ok(()) } else { restrict(target, flags) }
}

/// Gives a bind mount flags of its own. In a user namespace, those that its file system has elsewhere stay.
pub fn restrict(target: &Path, flags: MountFlags) -> io::Result<()> {
    let mut flags = MountFlags::BIND | flags;
    if !userns::current().is_initial() {
        let has = rustix::fs::statvfs(target)?.f_flag;
        for (of_file_system, flag) in [
            (StatVfsMountFlags::RDONLY, MountFlags::RDONLY),
            (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
            (StatVfsMountFlags::NODEV, MountFlags::NODEV),
            (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        ] {
            flags.set(flag, flags.contains(flag) || has.contains(of_file_system));
        }
    }
    Ok(mount_remount(target, flags, "")?)
}

/// The role of [`mount_foreign_sysfs`]'s child.
pub const SYSFS: &str = "sysfs";

/// Mounts a sysfs that shows no network interface but a loopback. Only whose network namespace it is may mount one; so
/// a child with a network of its own does it, in this mount namespace, where it stays. What comes back keeps that
/// network: without it the kernel would take the loopback away while the step runs.
pub fn mount_foreign_sysfs(target: &Path, flags: MountFlags) -> io::Result<File> {
    let mut command = Command::new("/proc/self/exe");
    command.args([COMMAND, SYSFS]).arg(target).arg(flags.bits().to_string()).env_clear();
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut mounted = [0];
    let told = child.stdout.take().map(|mut pipe| pipe.read_exact(&mut mounted));
    let network = File::open(format!("/proc/{}/ns/net", child.id()));
    drop(child.stdin.take());
    match (child.wait()?.code(), told) {
        (Some(0), Some(Ok(()))) => network,
        (Some(errno), _) => Err(io::Error::from_raw_os_error(errno)),
        (None, _) => Err(io::Error::other("the process that mounts it was killed")),
    }
}

/// What the child does; the number of the error, or 0. It stays until its network is held.
pub fn sysfs_child(mut args: impl Iterator<Item = OsString>) -> u8 {
    let flags = |text: OsString| text.to_str()?.parse().ok().map(MountFlags::from_bits_retain);
    let (Some(target), Some(flags)) = (args.next(), args.next().and_then(flags)) else { return 2 };
    // SAFETY: see the head of this module.
    let entered = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) };
    if let Err(e) = entered.and_then(|()| mount("sysfs", &target, "sysfs", flags, None)) {
        return u8::try_from(e.raw_os_error()).unwrap_or(u8::MAX);
    }
    let held =
        io::stdout().write_all(b"1").and_then(|()| io::stdout().flush()).and_then(|()| io::stdin().read(&mut [0]));
    u8::from(held.is_err())
}

/// Brings up the loopback of a new network namespace: programs in a step may talk to themselves.
pub fn loopback_up() -> io::Result<()> {
    const RTM_NEWLINK: u16 = 16;
    const NLM_F_REQUEST_ACK: u16 = 1 | 4;
    const IFF_UP: u32 = 1;
    const LOOPBACK_INDEX: i32 = 1;

    // No protocol is NETLINK_ROUTE.
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    // struct nlmsghdr, then struct ifinfomsg (linux/netlink.h, linux/rtnetlink.h).
    let mut message = Vec::with_capacity(32);
    message.extend(32u32.to_ne_bytes());
    message.extend(RTM_NEWLINK.to_ne_bytes());
    message.extend(NLM_F_REQUEST_ACK.to_ne_bytes());
    message.extend(1u32.to_ne_bytes());
    message.extend(0u32.to_ne_bytes());
    message.extend([0u8, 0]);
    message.extend(0u16.to_ne_bytes());
    message.extend(LOOPBACK_INDEX.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes());
    rustix::net::send(&socket, &message, SendFlags::empty())?;

    let mut answer = [0u8; 256];
    let (read, _) = rustix::net::recv(&socket, &mut answer, RecvFlags::empty())?;
    // The acknowledgement is a struct nlmsgerr: a header, then an errno, negative or nought.
    match answer.get(16..20).filter(|_| read >= 20).and_then(|b| b.try_into().ok()).map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::Error::other("the kernel's answer was too short")),
    }
}
