//! From root to the service's user: groups, ids, HOME, the capabilities that it keeps, and whether it can gain any.

use crate::error::{Failure, Result};
use crate::users::{Identity, Users};
use rustix::process::{Gid, Uid, getegid, geteuid};
use rustix::thread::{self, CapabilitySet, CapabilitySets};
use std::path::{Path, PathBuf};

/// Which capabilities a command has.
#[derive(Clone, Copy, Debug)]
pub enum Capabilities<'a> {
    /// As root all that the container has, else none.
    Usual,
    /// KOLLAGE_CAPABILITIES
    Only(&'a str),
    /// What the definition of a service says that it needs.
    Of { service: &'a str, names: &'a [String] },
}

/// What becomes of the process that executes a command.
#[derive(Debug, Default, Clone)]
pub struct Privileges {
    identity: Option<Identity>,
    capabilities: Option<CapabilitySet>,
    no_new_privs: bool,
    /// The HOME of another user than the present one.
    home: Option<PathBuf>,
}

impl Privileges {
    /// From KOLLAGE_USER, KOLLAGE_CAPABILITIES and KOLLAGE_NO_NEW_PRIVS. What can't be had is said here already.
    pub fn new(
        users: &Users,
        user: Option<&str>,
        capabilities: Capabilities<'_>,
        no_new_privs: Option<&str>,
    ) -> Result<Privileges> {
        let identity = match user {
            Some(user) => Some(users.identity(user).map_err(|failure| failure.of("KOLLAGE_USER"))?),
            None => None,
        };
        let wanted = match capabilities {
            Capabilities::Usual => None,
            Capabilities::Only(text) => Some(named(text, "KOLLAGE_CAPABILITIES")?),
            Capabilities::Of { service, names } => Some(named(&names.join(","), service)?),
        };
        let mut privileges =
            Privileges { identity, capabilities: wanted, no_new_privs: said(no_new_privs)?, home: None };
        privileges.given(match capabilities {
            Capabilities::Of { service, .. } => service,
            _ => "KOLLAGE_CAPABILITIES",
        })?;
        if matches!(capabilities, Capabilities::Of { .. }) && privileges.runs_as_root() {
            // Root has them, and what any container has besides.
            privileges.capabilities = None;
        }
        privileges.with_home().possible("KOLLAGE_USER")
    }

    /// Those of one step of a service.
    pub fn of(users: &Users, user: &str, no_new_privs: Option<&str>) -> Result<Privileges> {
        let identity = Some(users.identity(user)?);
        let privileges = Privileges { identity, no_new_privs: said(no_new_privs)?, ..Privileges::default() };
        privileges.with_home().possible(user)
    }

    fn with_home(mut self) -> Privileges {
        if self.changes() {
            self.home = self.identity.as_ref().map(|identity| identity.home.clone());
        }
        self
    }

    fn possible(self, whose: &str) -> Result<Privileges> {
        let system = |error: rustix::io::Errno| Failure::system("read the capabilities of this process", error);
        let have = thread::capabilities(None).map_err(system)?;
        if let Some(identity) = &self.identity
            && self.changes()
            && !have.effective.contains(CapabilitySet::SETUID | CapabilitySet::SETGID)
        {
            return Err(Failure::refused(format!(
                "{whose}: user {} can't become {}:{}; start the container as root, or as that user",
                geteuid().as_raw(),
                identity.uid,
                identity.gid
            )));
        }
        Ok(self)
    }

    /// Whether this process has what is wanted; a capability can't be gained.
    fn given(&self, whose: &str) -> Result<()> {
        let Some(wanted) = self.capabilities else { return Ok(()) };
        let have = thread::capabilities(None)
            .map_err(|error| Failure::system("read the capabilities of this process", error))?;
        let missing = wanted.difference(have.permitted);
        if missing.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = missing.iter_names().map(|(name, _)| name.to_lowercase()).collect();
        let names = names.join(", ");
        Err(Failure::refused(format!("{whose}: the container was not given {names} (docker run --cap-add)")))
    }

    fn changes(&self) -> bool {
        let now = (geteuid().as_raw(), getegid().as_raw());
        self.identity.as_ref().is_some_and(|identity| (identity.uid, identity.gid) != now)
    }

    pub fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    /// Takes effect for the calling thread, and for what it executes.
    pub fn take(&self) -> Result<()> {
        let ids = || -> rustix::io::Result<()> {
            let keep = self.capabilities.unwrap_or(CapabilitySet::empty());
            if self.capabilities.is_some() && self.runs_as_root() {
                // Root gets back whatever is in this set with the next program.
                for (_, capability) in CapabilitySet::all().difference(keep).iter_names() {
                    if thread::capability_is_in_bounding_set(capability).unwrap_or(false) {
                        thread::remove_capability_from_bounding_set(capability)?;
                    }
                }
            }
            if let Some(identity) = self.identity.as_ref().filter(|_| self.changes()) {
                thread::set_keep_capabilities(!keep.is_empty())?;
                let groups: Vec<Gid> = identity.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
                let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
                thread::set_thread_groups(&groups)?;
                thread::set_thread_res_gid(gid, gid, gid)?;
                thread::set_thread_res_uid(uid, uid, uid)?;
            }
            if self.capabilities.is_some() {
                thread::set_capabilities(None, CapabilitySets { effective: keep, permitted: keep, inheritable: keep })?;
                for (_, capability) in keep.iter_names() {
                    thread::configure_capability_in_ambient_set(capability, true)?;
                }
            }
            if self.no_new_privs {
                thread::set_no_new_privs(true)?;
            }
            Ok(())
        };
        ids().map_err(|error| Failure::system("take on the user and capabilities of the service", error))
    }

    fn runs_as_root(&self) -> bool {
        self.identity.as_ref().map_or(geteuid().is_root(), |identity| identity.uid == 0)
    }
}

/// KOLLAGE_NO_NEW_PRIVS.
fn said(no_new_privs: Option<&str>) -> Result<bool> {
    match no_new_privs {
        None | Some("0" | "no" | "false") => Ok(false),
        Some("1" | "yes" | "true") => Ok(true),
        Some(other) => Err(Failure::wrong(format!("KOLLAGE_NO_NEW_PRIVS: `{other}` is not yes or no"))),
    }
}

fn named(text: &str, whose: &str) -> Result<CapabilitySet> {
    let mut set = CapabilitySet::empty();
    for name in text.split([',', ' ']).filter(|name| !name.is_empty()) {
        let upper = name.to_uppercase();
        let upper = upper.strip_prefix("CAP_").unwrap_or(&upper);
        set |= CapabilitySet::from_name(upper)
            .ok_or_else(|| Failure::wrong(format!("{whose}: there is no capability `{name}`")))?;
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_have_their_usual_names() {
        let both = CapabilitySet::NET_ADMIN | CapabilitySet::NET_BIND_SERVICE;
        assert_eq!(named("net_admin,CAP_NET_BIND_SERVICE", "X").unwrap(), both);
        assert_eq!(
            named("net_admn", "KOLLAGE_CAPABILITIES").unwrap_err().problems,
            ["KOLLAGE_CAPABILITIES: there is no capability `net_admn`"]
        );
    }
}
