//! The section `permissions`, on disk: owners and modes of what is there after the copies.

use crate::config::{Config, Permission};
use crate::error::{Failure, Problems, Result, reason, shown};
use crate::glob;
use crate::log;
use crate::preflight::Who;
use crate::users::Users;
use rustix::fs::{AtFlags, CWD, Gid, Uid};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

pub fn set(config: &Config, users: &Users) -> Result<()> {
    let mut problems = Problems::default();
    for rule in &config.permissions {
        let named = format!("{} ({})", rule.name, rule.path);
        let Some((uid, gid)) = problems.keep(users.owner(&rule.owner).map_err(|failure| failure.of(&named))) else {
            continue;
        };
        for path in glob::expand(&rule.path) {
            // A link that is named is followed; it may lead nowhere.
            let Ok(path) = fs::canonicalize(&path) else { continue };
            if let Err(error) = one(&path, uid, gid, rule.perm) {
                problems
                    .add(Failure::refused(format!("cannot change {}: {}", shown(&path), reason(&error))).of(&named));
            }
            if rule.recurse {
                let called = if glob::has_magic(&rule.path) { path.clone() } else { rule.path.clone().into() };
                below(&path, &called, rule, (uid, gid));
            }
        }
    }
    problems.end()
}

/// Volumes have parts that even root can't change (snapshots, mounted secrets): these are named, and the start goes on.
fn below(path: &Path, called: &Path, rule: &Permission, owner: (u32, u32)) {
    if !crate::files::is_real_directory(path) {
        return;
    }
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) => {
            return log::warning(format_args!("{}: cannot read {}: {}", rule.name, shown(path), reason(&error)));
        }
    };
    for entry in entries.flatten() {
        let (path, called) = (entry.path(), called.join(entry.file_name()));
        if !rule.exclude.iter().any(|pattern| pattern.finds(&called))
            && let Err(error) = one(&path, owner.0, owner.1, rule.perm)
        {
            log::warning(format_args!("{}: cannot change {}: {}", rule.name, shown(&path), reason(&error)));
        }
        below(&path, &called, rule, owner);
    }
}

/// Changes what differs: a needless change would copy a file of the image into the container's own layer. Links are
/// never followed here: a service could have made one to a file that isn't its own.
pub(crate) fn one(path: &Path, uid: u32, gid: u32, perm: Option<u32>) -> io::Result<()> {
    let there = fs::symlink_metadata(path)?;
    let chown = (there.uid(), there.gid()) != (uid, gid);
    if chown {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        rustix::fs::chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    let Some(perm) = perm.filter(|_| !there.file_type().is_symlink()) else { return Ok(()) };
    let perm = if there.is_dir() { crate::plan::searchable(perm) } else { perm };
    if chown || there.mode() & 0o7777 != perm {
        fs::set_permissions(path, fs::Permissions::from_mode(perm))?;
    }
    Ok(())
}

/// What whoever isn't root can't do, found before anything is changed.
pub fn look(config: &Config, users: &Users) -> Result<()> {
    let who = Who::now();
    let mut problems = Problems::default();
    for rule in &config.permissions {
        let Ok((uid, gid)) = users.owner(&rule.owner) else { continue };
        for path in glob::expand(&rule.path) {
            let Ok(there) = fs::metadata(&path) else { continue };
            if let Some(why) = who.cannot_give(Some((there.uid(), there.gid())), uid, gid) {
                problems.add(Failure::refused(format!("{} ({}): {why}", rule.name, shown(&path))));
            }
        }
    }
    problems.end()
}
