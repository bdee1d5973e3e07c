//! What steps do to files. They may do it as root in directories that belong to a service, so no link is followed that
//! somebody else than root could have made.

use super::{Content, Variables};
use crate::error::{Failure, Result, shown};
use crate::plan::{Content as Bytes, Own};
use crate::preflight::Who;
use crate::{files, glob, log, permissions};
use rustix::process::geteuid;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// What a step says about a path; what it doesn't say stays.
pub(super) struct Owned {
    pub owner: Option<(u32, u32)>,
    pub mode: Option<u32>,
}

/// Makes what isn't there; what is there keeps owner and mode unless the step has them.
pub(super) fn make(path: &Path, directory: bool, owned: &Owned, default: Option<(u32, u32)>) -> Result<()> {
    trusted(path)?;
    match fs::metadata(path) {
        Ok(there) if there.is_dir() == directory => return set(path, owned),
        Ok(_) => {
            let (is, wanted) = if directory { ("no directory", "a directory") } else { ("a directory", "a file") };
            return Err(Failure::refused(format!("{} is {is}, and should be {wanted}", shown(path))));
        }
        Err(_) => {}
    }
    let system = |error| Failure::system(format_args!("make {}", shown(path)), error);
    if directory {
        fs::create_dir_all(path).map_err(system)?;
    } else {
        parents(path)?;
        fs::File::create_new(path).map_err(system)?;
    }
    let usual = if directory { 0o755 } else { 0o644 };
    set(path, &Owned { owner: owned.owner.or(default), mode: Some(owned.mode.unwrap_or(usual)) })
}

pub(super) fn own(path: &Path, owned: &Owned, recurse: bool) -> Result<()> {
    trusted(path)?;
    if recurse { own_below(path, owned) } else { set(path, owned) }
}

/// Below a path, links are what they are: only they change their owner.
fn own_below(path: &Path, owned: &Owned) -> Result<()> {
    set(path, owned)?;
    if files::is_real_directory(path) {
        let cannot = |error| Failure::system(format_args!("read {}", shown(path)), error);
        for entry in fs::read_dir(path).map_err(cannot)? {
            own_below(&entry.map_err(cannot)?.path(), owned)?;
        }
    }
    Ok(())
}

fn set(path: &Path, owned: &Owned) -> Result<()> {
    let system = |error| Failure::system(format_args!("set owner and mode of {}", shown(path)), error);
    let there = fs::symlink_metadata(path).map_err(system)?;
    let now = (there.uid(), there.gid());
    let (uid, gid) = owned.owner.unwrap_or(now);
    if let Some(why) = Who::now().cannot_give(Some(now), uid, gid) {
        return Err(Failure::refused(format!("{}: {why}", shown(path))));
    }
    permissions::one(path, uid, gid, owned.mode).map_err(system)
}

pub(super) fn link(path: &Path, to: &Path) -> Result<()> {
    trusted_parents(path)?;
    match fs::symlink_metadata(path) {
        Ok(there) if there.is_symlink() && fs::read_link(path).is_ok_and(|now| now == to) => return Ok(()),
        Ok(there) if there.is_dir() => {
            return Err(Failure::refused(format!("{} is a directory, and is not replaced by a link", shown(path))));
        }
        Ok(_) => {}
        Err(_) => parents(path)?,
    }
    files::link(path, to)
}

pub(super) fn remove(path: &Path) -> Result<()> {
    trusted_parents(path)?;
    files::remove(path)
}

/// A file that a step writes.
pub(super) struct New<'a> {
    pub path: &'a Path,
    pub owner: Option<(u32, u32)>,
    pub mode: u32,
    pub keep: bool,
}

impl New<'_> {
    /// Writes beside, lets `check` look at that, and puts it in place. What is right already isn't touched.
    pub(super) fn put(&self, bytes: &[u8], check: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        let path = self.path;
        trusted_parents(path)?;
        let there = fs::symlink_metadata(path);
        if self.keep && there.is_ok() {
            return Ok(());
        }
        if there.as_ref().is_ok_and(fs::Metadata::is_dir) {
            return Err(Failure::refused(format!("{} is a directory, and should be a file", shown(path))));
        }
        let (uid, gid) = self.owner.unwrap_or_else(|| (geteuid().as_raw(), rustix::process::getegid().as_raw()));
        let own = Own { uid, gid, mode: self.mode, like: None };
        let content = Bytes::Bytes(bytes.to_vec());
        if there.is_ok_and(|there| there.is_file()) && files::same_content(path, &content).unwrap_or(false) {
            return set(path, &Owned { owner: self.owner, mode: Some(self.mode) });
        }
        parents(path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let candidate = path.with_file_name(format!(".{name}.candidate"));
        files::install(&candidate, &content, &own)?;
        let checked = check(&candidate).and_then(|()| {
            let system = |error| Failure::system(format_args!("write {}", shown(path)), error);
            fs::rename(&candidate, path).map_err(system)
        });
        if checked.is_err() {
            let _ = fs::remove_file(&candidate);
        }
        checked
    }
}

/// What a step's file is to contain.
pub(super) fn content(content: &Content, variables: &Variables<'_>) -> Result<Vec<u8>> {
    let patterns = match content {
        Content::Text { text, escape } => return Ok(variables.expand_as(text, *escape)?.into_bytes()),
        Content::Fragments(patterns) => patterns,
    };
    let mut found: Vec<PathBuf> = Vec::new();
    for pattern in patterns {
        let more = glob::expand(&variables.expand(pattern)?);
        let new: Vec<PathBuf> = more.into_iter().filter(|path| path.is_file() && !found.contains(path)).collect();
        found.extend(new);
    }
    if found.is_empty() {
        return Err(Failure::wrong(format!("there is no fragment at {}", patterns.join(", "))));
    }
    let mut all = Vec::new();
    for path in &found {
        log::info(format_args!("  with {}", shown(path)));
        let bytes = fs::read(path)
            .map_err(|error| Failure::system(format_args!("read the fragment {}", shown(path)), error))?;
        all.extend_from_slice(&bytes);
        if bytes.last().is_some_and(|last| *last != b'\n') {
            all.push(b'\n');
        }
    }
    Ok(all)
}

fn parents(path: &Path) -> Result<()> {
    let Some(parent) = path.parent() else { return Ok(()) };
    fs::create_dir_all(parent).map_err(|error| Failure::system(format_args!("make {}", shown(parent)), error))
}

fn trusted_parents(path: &Path) -> Result<()> {
    path.parent().map_or(Ok(()), trusted)
}

/// A service that was taken over must not turn the next start, which is root's, against the system by a link.
fn trusted(path: &Path) -> Result<()> {
    if !path.is_absolute() || path.components().any(|part| part == Component::ParentDir) {
        return Err(Failure::wrong(format!("`{}` is no absolute path without `..`", shown(path))));
    }
    let own = geteuid().as_raw();
    for part in path.ancestors() {
        let Ok(there) = fs::symlink_metadata(part) else { continue };
        if there.is_symlink() && there.uid() != 0 && there.uid() != own {
            let uid = there.uid();
            return Err(Failure::refused(format!(
                "{} is a link that user {uid} made, and isn't followed",
                shown(part)
            )));
        }
    }
    Ok(())
}
