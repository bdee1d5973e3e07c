//! Why there is no user namespace for an ordinary user, and what the administrator of the machine can do about it.

use std::io;

use rustix::io::Errno;

use crate::error::Error;

/// How far it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Unshare,
    Map,
    Mount,
}

/// Settings of the kernel that forbid it; None where the kernel doesn't have them.
#[derive(Clone, Debug, Default)]
pub(super) struct Machine {
    /// Debian's own switch.
    unprivileged_userns_clone: Option<u64>,
    /// How many may be made.
    max_user_namespaces: Option<u64>,
    /// Ubuntu's: only programs with an AppArmor profile that says so.
    apparmor_restricts: Option<u64>,
}

impl Machine {
    /// Before the namespace is entered: within it, the limits are its own.
    pub(super) fn read() -> Machine {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/sys/{name}")).ok()?.trim().parse().ok();
        Machine {
            unprivileged_userns_clone: read("kernel/unprivileged_userns_clone"),
            max_user_namespaces: read("user/max_user_namespaces"),
            apparmor_restricts: read("kernel/apparmor_restrict_unprivileged_userns"),
        }
    }
}

pub(super) fn explain(step: Step, error: impl Into<io::Error>, machine: &Machine) -> Error {
    let error = error.into();
    let out = Error::unusable("building as an ordinary user needs a user namespace, and this machine gives none")
        .cause(&error);
    let denied = matches!(Errno::from_io_error(&error), Some(Errno::PERM | Errno::ACCESS));
    if machine.max_user_namespaces == Some(0) {
        return out.hint("as root: `sysctl -w user.max_user_namespaces=15000`, or run Kollage with sudo");
    }
    if denied && machine.unprivileged_userns_clone == Some(0) {
        return out.hint("as root: `sysctl -w kernel.unprivileged_userns_clone=1`, or run Kollage with sudo");
    }
    if denied && machine.apparmor_restricts.is_some_and(|v| v != 0) {
        return out.hint(
            "AppArmor restricts them here; allow them to this program with a profile (`userns,`) in /etc/apparmor.d, \
             or to all with `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, or run Kollage with sudo",
        );
    }
    match (step, Errno::from_io_error(&error)) {
        (Step::Unshare, Some(Errno::NOSPC)) => {
            out.hint("there are too many of them: see `sysctl user.max_user_namespaces`")
        }
        (Step::Unshare, Some(Errno::INVAL | Errno::NOSYS)) => {
            out.hint("its kernel is built without user namespaces (CONFIG_USER_NS); run Kollage with sudo")
        }
        _ => out.hint(
            "something forbids them, such as the seccomp filter of a container (`--security-opt seccomp=unconfined`) \
             or a chroot; run Kollage with sudo",
        ),
    }
}

/// newuidmap or newgidmap failed.
pub(super) fn not_mapped(said: &str) -> Error {
    let out = Error::unusable("cannot use the range of ids that /etc/subuid and /etc/subgid give").cause(said);
    if said.contains("not allowed") {
        return out.hint("the ranges of both files have to be this user's own, and may not overlap");
    }
    out.hint(
        "newuidmap and newgidmap need their file capabilities or set-user-ID bits (`apt-get install --reinstall \
         uidmap`), and a caller that may gain rights (no `NoNewPrivileges`)",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(step: Step, errno: Errno, machine: Machine) -> String {
        let error = explain(step, errno, &machine);
        assert_eq!(error.kind(), crate::error::Kind::Unusable);
        error.hint_text().unwrap().to_owned()
    }

    #[test]
    fn each_switch_has_its_remedy() {
        let open = Machine { max_user_namespaces: Some(9000), ..Machine::default() };
        let none = Machine { max_user_namespaces: Some(0), ..open.clone() };
        let debian = Machine { unprivileged_userns_clone: Some(0), ..open.clone() };
        let ubuntu = Machine { apparmor_restricts: Some(1), ..open.clone() };
        assert!(hint(Step::Unshare, Errno::NOSPC, none).contains("user.max_user_namespaces=15000"));
        assert!(hint(Step::Unshare, Errno::PERM, debian).contains("kernel.unprivileged_userns_clone=1"));
        for (step, errno) in [(Step::Unshare, Errno::PERM), (Step::Map, Errno::PERM), (Step::Mount, Errno::ACCESS)] {
            assert!(hint(step, errno, ubuntu.clone()).contains("AppArmor"), "{step:?}");
        }
        assert!(hint(Step::Unshare, Errno::NOSPC, open.clone()).contains("too many"));
        assert!(hint(Step::Unshare, Errno::INVAL, open.clone()).contains("CONFIG_USER_NS"));
        assert!(hint(Step::Unshare, Errno::PERM, open).contains("seccomp"));
    }

    #[test]
    fn what_newuidmap_says_is_handed_on() {
        let error = not_mapped("newuidmap: uid range [1-65537) -> [5-65541) not allowed");
        assert!(error.to_string().contains("not allowed") && error.hint_text().unwrap().contains("overlap"));
        assert!(not_mapped("newuidmap: write to uid_map failed").hint_text().unwrap().contains("uidmap"));
    }
}
