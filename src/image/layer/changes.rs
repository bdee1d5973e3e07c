//! What a layer does to the files below it: which of them it replaces, alters or removes, and what it adds.
//!
//! overlayfs copies a file up before it is opened for writing, and a step may write what was there already: only what
//! can be seen afterwards counts (kind, content, mode, owner, target), and times never do.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat};

use super::stack::{Found, LayerStack, StackDir};
use super::standin;
use super::sys::{self, OsContext};
use crate::error::Result;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Added,
    Changed,
    Removed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// From the root, with a slash in front.
    pub path: PathBuf,
    pub kind: ChangeKind,
}

/// Everything that the layer in directory `layer` does to `below`, in no order. A directory counts when its mode, its
/// owner or its kind changes; what is in a removed directory is not listed.
pub fn changes(layer: &Path, below: &LayerStack) -> Result<Vec<Change>> {
    let mut found = Vec::new();
    let mut pending = vec![(PathBuf::from("/"), layer.to_owned(), below.root())];
    while let Some((path, dir, below)) = pending.pop() {
        let names = sys::open_dir(&dir).and_then(sys::names).os(&dir, || format!("cannot list `{}`", dir.display()))?;
        let opaque = sys::is_opaque(&dir).os(&dir, || format!("cannot read attributes of `{}`", dir.display()))?;
        if let (true, Some(below)) = (opaque, &below) {
            for name in below.entries()?.into_keys().filter(|name| !names.contains(name)) {
                found.push(Change { path: path.join(sys::os(&name)), kind: ChangeKind::Removed });
            }
        }
        for name in names {
            let (inner, real) = (path.join(sys::os(&name)), dir.join(sys::os(&name)));
            let stat = rustix::fs::lstat(&real).os(&real, || format!("cannot look at `{}`", real.display()))?;
            let old = below.as_ref().map(|below| below.lookup(&name)).transpose()?.flatten();
            if sys::is_whiteout(&stat) {
                if old.is_some() {
                    found.push(Change { path: inner, kind: ChangeKind::Removed });
                }
                continue;
            }
            let kind = match &old {
                None => Some(ChangeKind::Added),
                Some(old) if differs(&real, &stat, old)? => Some(ChangeKind::Changed),
                Some(_) => None,
            };
            let directory = sys::file_type(&stat) == FileType::Directory;
            // A new directory is told by what is in it.
            if let Some(kind) = kind.filter(|kind| !directory || *kind == ChangeKind::Changed) {
                found.push(Change { path: inner.clone(), kind });
            }
            if directory {
                let below = below.as_ref().map(|below| below.open(&name)).transpose()?.flatten();
                let below: Option<StackDir> = below.filter(|_| old.as_ref().is_some_and(Found::is_dir));
                pending.push((inner, real, below));
            }
        }
    }
    Ok(found)
}

fn differs(path: &Path, stat: &Stat, old: &Found) -> Result<bool> {
    let kind = sys::file_type(stat);
    if kind != sys::file_type(&old.stat) {
        return Ok(true);
    }
    let owner = |path: &Path, stat: &Stat| {
        standin::owner_of(path, stat).os(path, || format!("cannot tell the owner of `{}`", path.display()))
    };
    if kind != FileType::Symlink && stat.st_mode != old.stat.st_mode
        || owner(path, stat)? != owner(&old.path, &old.stat)?
    {
        return Ok(true);
    }
    let unreadable = || format!("cannot read `{}`", path.display());
    match kind {
        FileType::RegularFile if stat.st_size != old.stat.st_size => Ok(true),
        FileType::RegularFile => same_bytes(path, &old.path).map(|same| !same).os(path, unreadable),
        FileType::Symlink => {
            let target = |path: &Path| std::fs::read_link(path).os(path, unreadable);
            Ok(target(path)? != target(&old.path)?)
        }
        FileType::CharacterDevice | FileType::BlockDevice => Ok(stat.st_rdev != old.stat.st_rdev),
        _ => Ok(false),
    }
}

pub(super) fn same_bytes(one: &Path, other: &Path) -> io::Result<bool> {
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    let (mut left, mut right) = ([0u8; 1 << 16], [0u8; 1 << 16]);
    loop {
        let count = one.read(&mut left)?;
        if count == 0 {
            return Ok(true);
        }
        other.read_exact(&mut right[..count])?;
        if left[..count] != right[..count] {
            return Ok(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use rustix::fs::{CWD, FileType as Kind, Mode, mknodat};

    use super::*;

    /// Directories of two layers; `/` at the end makes a directory, ` -> ` a link, `!` in front a deletion.
    fn layer(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name.trim_start_matches('!'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            match (name.strip_prefix('!'), text.strip_prefix("-> ")) {
                (Some(_), _) => mknodat(CWD, &path, Kind::CharacterDevice, Mode::empty(), 0).unwrap(),
                (None, Some(target)) => symlink(target, &path).unwrap(),
                (None, None) if name.ends_with('/') => fs::create_dir_all(&path).unwrap(),
                (None, None) => fs::write(&path, text).unwrap(),
            }
        }
        dir
    }

    fn listed(upper: &tempfile::TempDir, lower: &tempfile::TempDir) -> Vec<String> {
        let stack = LayerStack::new([lower.path().to_owned()]);
        let mut lines: Vec<String> = changes(upper.path(), &stack)
            .unwrap()
            .iter()
            .map(|change| format!("{:?} {}", change.kind, change.path.display()))
            .collect();
        lines.sort();
        lines
    }

    #[test]
    fn only_what_can_be_seen_afterwards_counts() {
        let lower = layer(&[
            ("etc/same", "a"),
            ("etc/other", "a"),
            ("etc/longer", "a"),
            ("etc/mode", "a"),
            ("etc/link", "-> a"),
            ("etc/same-link", "-> a"),
            ("etc/kind", "a"),
            ("etc/gone", "a"),
            ("dir/inner", "a"),
            ("open/", ""),
        ]);
        let upper = layer(&[
            ("etc/same", "a"),
            ("etc/other", "b"),
            ("etc/longer", "aa"),
            ("etc/mode", "a"),
            ("etc/link", "-> b"),
            ("etc/same-link", "-> a"),
            ("etc/kind/", ""),
            ("!etc/gone", ""),
            ("!etc/never", ""),
            ("!dir", ""),
            ("open/", ""),
            ("new/dir/file", "a"),
        ]);
        fs::set_permissions(upper.path().join("etc/mode"), fs::Permissions::from_mode(0o4755)).unwrap();
        fs::set_permissions(upper.path().join("open"), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(
            listed(&upper, &lower),
            [
                "Added /new/dir/file",
                "Changed /etc/kind",
                "Changed /etc/link",
                "Changed /etc/longer",
                "Changed /etc/mode",
                "Changed /etc/other",
                "Changed /open",
                "Removed /dir",
                "Removed /etc/gone",
            ]
        );
    }

    #[test]
    fn a_replaced_directory_removes_what_it_does_not_have() {
        let lower = layer(&[("dir/old", "a"), ("dir/kept", "a"), ("dir/changed", "a")]);
        let upper = layer(&[("dir/kept", "a"), ("dir/changed", "b"), ("dir/new", "a")]);
        sys::mark_opaque(&upper.path().join("dir")).unwrap();
        assert_eq!(listed(&upper, &lower), ["Added /dir/new", "Changed /dir/changed", "Removed /dir/old"]);
    }
}
