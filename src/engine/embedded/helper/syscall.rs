//! System calls that rustix has no function for.
//!
//! `unsafe`: they are made through the C library's `syscall`, with numbers and pointers that nobody checks. Each
//! function here passes either plain numbers or a pointer to something that lives until the call returns.
#![allow(unsafe_code)]

use std::io;

use super::seccomp::Instruction;

/// Filters the system calls of this thread, which has to be the only one. Does not set `no_new_privs`.
pub fn set_seccomp_filter(program: &[Instruction]) -> io::Result<()> {
    /// `struct sock_fprog`.
    #[repr(C)]
    struct Program {
        length: u16,
        instructions: *const Instruction,
    }
    let length = u16::try_from(program.len()).map_err(io::Error::other)?;
    let program = Program { length, instructions: program.as_ptr() };
    let install = |flags: libc::c_ulong| {
        // SAFETY: the kernel copies the program, whose layout is that of the kernel's structures, before it returns.
        result(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &program) })
    };
    // Kernels before 5.16 would slow a filtered process down for fear of speculation; runc does not want that either.
    match install(libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW) {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => install(0),
        result => result,
    }
}

/// A session keyring of this process's own: empty, without a name, and gone with its last user.
pub fn new_session_keyring() -> io::Result<()> {
    let no_name = std::ptr::null::<libc::c_char>();
    // SAFETY: the kernel takes a null pointer for "no name", and reads nothing.
    result(unsafe { libc::syscall(libc::SYS_keyctl, libc::KEYCTL_JOIN_SESSION_KEYRING, no_name) })
}

/// Closes everything but the standard streams. Only for the beginning of a process, when nobody in it has opened
/// anything yet: what is open is what the caller was started with, and would be inherited all the way down.
pub fn close_inherited() -> io::Result<()> {
    // SAFETY: no descriptor belongs to anybody in this process.
    if result(unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) }).is_ok() {
        return Ok(());
    }
    // A container around us may not know that system call.
    let names = std::fs::read_dir("/proc/self/fd")?.map(|entry| Ok(entry?.file_name()));
    for name in names.collect::<io::Result<Vec<_>>>()? {
        if let Some(number) = name.to_str().and_then(|n| n.parse().ok()).filter(|n| *n > 2) {
            // SAFETY: as above; the directory that was read is closed already, and closing it again does no harm.
            unsafe { libc::close(number) };
        }
    }
    Ok(())
}

fn result(returned: libc::c_long) -> io::Result<()> {
    if returned == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
