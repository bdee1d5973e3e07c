//! Namespaces of a step, and what is put into a fresh one.
//!
//! `unsafe`: rustix calls `unshare` unsafe because of CLONE_FILES, which gives a thread a table of descriptors of its
//! own. The helper has one thread and never asks for that.
#![allow(unsafe_code)]

use std::io;

use rustix::mount::{MountFlags, MountPropagationFlags, mount_bind, mount_change, mount_remount};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::process::Signal;
use rustix::thread::UnshareFlags;

use crate::error::{Context as _, Error, Result};

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

/// Makes a bind mount of `source` at `target`, which carries `flags` of its own.
pub fn bind(source: &std::path::Path, target: &std::path::Path, flags: MountFlags) -> io::Result<()> {
    mount_bind(source, target)?;
    if !flags.is_empty() {
        mount_remount(target, MountFlags::BIND | flags, "")?;
    }
    Ok(())
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
