//! The system calls of a step are filtered as Docker does it by default: those that are listed and nothing else. A
//! step thus reaches far less of the kernel than it has, and what it may call depends on the capabilities that it has.

use rustix::thread::CapabilitySet;

use super::syscall;
use crate::error::{Context as _, Error, Result};

mod program;
mod table;

pub use program::Instruction;

/// For this process and whatever it executes, for ever. Without CAP_SYS_ADMIN the kernel would want `no_new_privs`,
/// which Docker does not set: programs with set-user-ID work in a step. So this comes before capabilities are given up.
pub fn install(capabilities: CapabilitySet) -> Result<()> {
    let what = || "cannot filter the system calls of a step".to_owned();
    let Some(abis) = program::native() else {
        return Err(Error::unusable(what())
            .cause(format!("there is no list of system calls for {}", std::env::consts::ARCH))
            .hint("`--security=insecure` steps have no filter, where they are allowed"));
    };
    syscall::set_seccomp_filter(&program::assemble(abis, capabilities))
        .unusable(what)
        .map_err(|e| e.hint("the kernel must have CONFIG_SECCOMP_FILTER, and Kollage CAP_SYS_ADMIN"))
}
