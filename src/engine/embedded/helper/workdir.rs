//! WORKDIR: the directory is made when it isn't there, and belongs to the user of that moment.

use std::path::Path;

use rustix::fs::FileType;
use rustix::thread::UnshareFlags;

use super::inroot::{Owner, kind_of};
use super::spec::{Report, WorkdirSpec};
use super::tree::{not_a_directory, shown};
use super::users::Accounts;
use super::{isolate, overlay};
use crate::engine::embedded::fs_error;
use crate::error::Result;

pub fn run(spec: &WorkdirSpec) -> Result<Report> {
    isolate::enter(UnshareFlags::empty())?;
    let place = overlay::Place::new(&spec.root.work)?;
    let root = overlay::mount_root(&place, &spec.root, &[])?;
    let failed = |e| fs_error(format!("cannot make the directory `{}`", spec.path), e);
    let real = root.real_path(Path::new(&spec.path)).map_err(failed)?;
    if let Some(stat) = root.stat(&real).map_err(failed)? {
        return match kind_of(&stat) {
            FileType::Directory => Ok(Report::Done { changed: false }),
            _ => Err(not_a_directory(&root, &real, &stat)),
        };
    }
    let identity = Accounts::of(&root).identity(&spec.user)?;
    let owner = Owner { uid: identity.uid, gid: identity.gid };
    let mut made = Vec::new();
    root.make_dirs(&real, owner, 0o755, &mut made)
        .map_err(|e| fs_error(format!("cannot make the directory `{}`", shown(&real)), e))?;
    Ok(Report::Done { changed: !made.is_empty() })
}
