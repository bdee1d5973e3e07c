//! The merged view of a list of lower directories, as overlayfs would show it, in user space and without a mount.
//!
//! Layers lie still while they are looked at: they are in the store and nobody writes to them. Paths are built only
//! from components that were seen to be real directories, so no link is ever followed.

use std::collections::{BTreeMap, HashSet};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use super::sys::{self, OsContext};
use crate::error::Result;

#[derive(Clone, Debug, Default)]
pub struct LayerStack {
    /// Topmost first.
    layers: Vec<PathBuf>,
}

/// What the stack shows at some path.
#[derive(Clone, Debug)]
pub struct Found {
    /// Metadata in the topmost layer that has it.
    pub stat: Stat,
    /// Where that is.
    pub path: PathBuf,
}

impl Found {
    pub fn is_dir(&self) -> bool {
        sys::file_type(&self.stat) == FileType::Directory
    }
}

/// A directory of the stack: the directories that are merged in it, topmost first; never empty.
#[derive(Clone, Debug)]
pub struct StackDir {
    parts: Vec<PathBuf>,
}

impl LayerStack {
    /// `layers` are overlay lower directories, the lowest first.
    pub fn new(layers: impl IntoIterator<Item = PathBuf>) -> Self {
        let mut layers: Vec<PathBuf> = layers.into_iter().collect();
        layers.reverse();
        LayerStack { layers }
    }

    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// None when there are no layers.
    pub fn root(&self) -> Option<StackDir> {
        if self.layers.is_empty() { None } else { Some(StackDir { parts: self.layers.clone() }) }
    }

    /// What is visible at `path` (from the root, with or without a leading slash). Links on the way are not
    /// followed: there is nothing below them.
    pub fn lookup(&self, path: &Path) -> Result<Option<Found>> {
        let mut names = path.components().filter_map(|c| match c {
            Component::Normal(name) => Some(name.as_encoded_bytes()),
            _ => None,
        });
        let Some(mut dir) = self.root() else { return Ok(None) };
        let Some(mut name) = names.next() else { return dir.metadata().map(Some) };
        for next in names {
            match dir.open(name)? {
                Some(child) => dir = child,
                None => return Ok(None),
            }
            name = next;
        }
        dir.lookup(name)
    }
}

impl StackDir {
    fn stat(&self, part: &Path, name: &[u8]) -> Result<Option<(PathBuf, Stat)>> {
        let path = part.join(sys::os(name));
        match rustix::fs::lstat(&path) {
            Ok(stat) => Ok(Some((path, stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e).os(&path, || format!("cannot look at `{}`", path.display())),
        }
    }

    /// Of the directory itself.
    pub fn metadata(&self) -> Result<Found> {
        let path = self.parts.first().cloned().unwrap_or_default();
        let stat = rustix::fs::lstat(&path).os(&path, || format!("cannot look at `{}`", path.display()))?;
        Ok(Found { stat, path })
    }

    pub fn lookup(&self, name: &[u8]) -> Result<Option<Found>> {
        for part in &self.parts {
            if let Some((path, stat)) = self.stat(part, name)? {
                return Ok((!sys::is_whiteout(&stat)).then_some(Found { stat, path }));
            }
        }
        Ok(None)
    }

    /// The directory `name` in this one; None when there is none, or something else.
    pub fn open(&self, name: &[u8]) -> Result<Option<StackDir>> {
        self.open_and_hide(name).map(|(dir, _)| dir)
    }

    /// The same, and whether nothing that lies below these layers shines through it.
    pub(super) fn open_and_hide(&self, name: &[u8]) -> Result<(Option<StackDir>, bool)> {
        let (mut parts, mut hides) = (Vec::new(), false);
        for part in &self.parts {
            let Some((path, stat)) = self.stat(part, name)? else { continue };
            // A deletion hides what is below, and so does everything that isn't a directory.
            if sys::file_type(&stat) != FileType::Directory {
                hides = true;
                break;
            }
            let opaque =
                sys::is_opaque(&path).os(&path, || format!("cannot read attributes of `{}`", path.display()))?;
            parts.push(path);
            if opaque {
                hides = true;
                break;
            }
        }
        Ok(if parts.is_empty() { (None, hides) } else { (Some(StackDir { parts }), hides) })
    }

    fn names(&self, part: &Path) -> Result<Vec<Vec<u8>>> {
        sys::open_dir(part).and_then(sys::names).os(part, || format!("cannot list `{}`", part.display()))
    }

    pub fn has_visible(&self) -> Result<bool> {
        let mut hidden = HashSet::new();
        for part in &self.parts {
            for name in self.names(part)? {
                if hidden.contains(&name) {
                    continue;
                }
                match self.stat(part, &name)? {
                    Some((_, stat)) if sys::is_whiteout(&stat) => hidden.insert(name),
                    Some(_) => return Ok(true),
                    None => continue,
                };
            }
        }
        Ok(false)
    }

    /// Everything that is visible here, by name.
    pub fn entries(&self) -> Result<BTreeMap<Vec<u8>, Found>> {
        let all = self.names_and_deletions()?;
        Ok(all.into_iter().filter_map(|(name, found)| Some((name, found?))).collect())
    }

    /// The same, and what is deleted here, as None.
    pub(super) fn names_and_deletions(&self) -> Result<BTreeMap<Vec<u8>, Option<Found>>> {
        let mut seen: BTreeMap<Vec<u8>, Option<Found>> = BTreeMap::new();
        for part in &self.parts {
            for name in self.names(part)? {
                if seen.contains_key(&name) {
                    continue;
                }
                if let Some((path, stat)) = self.stat(part, &name)? {
                    let found = (!sys::is_whiteout(&stat)).then_some(Found { stat, path });
                    seen.insert(name, found);
                }
            }
        }
        Ok(seen)
    }
}
