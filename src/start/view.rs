//! The files of an image as a start would find them: links are followed within it, nothing is mounted.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::FileType;

use crate::error::{Context as _, Result};
use crate::image::layer::stack::{Found, LayerStack};
use crate::image::layer::sys;

pub struct View {
    stack: LayerStack,
}

/// As many links as the kernel follows.
const MAX_LINKS: usize = 40;
/// The largest file that is read whole: /etc/passwd of a very large house.
const MAX_FILE: u64 = 1 << 20;

impl View {
    pub fn new(stack: LayerStack) -> View {
        View { stack }
    }

    /// What is at a path once every link was followed; None when there is nothing.
    pub fn find(&self, path: &Path) -> Result<Option<Found>> {
        Ok(self.resolve(path)?.map(|(_, found)| found))
    }

    /// And where it is, without links.
    pub fn resolve(&self, path: &Path) -> Result<Option<(PathBuf, Found)>> {
        let mut todo: VecDeque<OsString> = parts(path).collect();
        let mut at = PathBuf::new();
        let mut found = self.stack.lookup(Path::new("/"))?;
        let mut links = 0;
        while let Some(name) = todo.pop_front() {
            if name == ".." {
                at.pop();
                found = self.stack.lookup(&at)?;
                continue;
            }
            let Some(next) = self.stack.lookup(&at.join(&name))? else { return Ok(None) };
            if sys::file_type(&next.stat) != FileType::Symlink {
                at.push(&name);
                found = Some(next);
                continue;
            }
            links += 1;
            let target = std::fs::read_link(&next.path).unusable(|| format!("cannot read {}", next.path.display()))?;
            if links > MAX_LINKS {
                return Ok(None);
            }
            if target.is_absolute() {
                at = PathBuf::new();
            }
            for part in parts(&target).collect::<Vec<_>>().into_iter().rev() {
                todo.push_front(part);
            }
        }
        Ok(found.map(|found| (Path::new("/").join(at), found)))
    }

    /// The files of a directory whose names have a pattern; wildcards stand in the last part alone.
    pub fn matching(&self, pattern: &str) -> Result<Vec<String>> {
        let (dir, name) = pattern.rsplit_once('/').unwrap_or(("", pattern));
        let Ok(glob) = globset::Glob::new(name) else { return Ok(Vec::new()) };
        let glob = glob.compile_matcher();
        let Some((dir, _)) = self.resolve(Path::new(dir))? else { return Ok(Vec::new()) };
        let mut opened = self.stack.root();
        for part in parts(&dir) {
            opened = match opened {
                Some(above) => above.open(part.as_encoded_bytes())?,
                None => return Ok(Vec::new()),
            };
        }
        let entries = opened.map(|dir| dir.entries()).transpose()?.unwrap_or_default();
        let names = entries.keys().filter_map(|name| std::str::from_utf8(name).ok()).filter(|name| glob.is_match(name));
        Ok(names.filter_map(|name| dir.join(name).to_str().map(str::to_owned)).collect())
    }

    /// The program of a name, or at a path, that can be executed.
    pub fn program(&self, name: &str, path: &str) -> Result<Option<(PathBuf, Found)>> {
        let places: Vec<PathBuf> = match name.contains('/') {
            true => vec![PathBuf::from(name)],
            false => std::env::split_paths(path).map(|dir| dir.join(name)).collect(),
        };
        for place in places {
            if let Some(found) = self.find(&place)?
                && sys::file_type(&found.stat) == FileType::RegularFile
                && found.stat.st_mode & 0o111 != 0
            {
                return Ok(Some((place, found)));
            }
        }
        Ok(None)
    }

    /// The beginning of a regular file.
    pub fn head(&self, found: &Found, length: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = std::fs::File::open(&found.path).unusable(|| format!("cannot open {}", found.path.display()))?;
        file.take(length).read_to_end(&mut bytes).unusable(|| format!("cannot read {}", found.path.display()))?;
        Ok(bytes)
    }

    /// A small text; nothing when it isn't there.
    pub fn text(&self, path: &str) -> Result<String> {
        match self.find(Path::new(path))? {
            Some(found) if sys::file_type(&found.stat) == FileType::RegularFile => {
                Ok(String::from_utf8_lossy(&self.head(&found, MAX_FILE)?).into_owned())
            }
            _ => Ok(String::new()),
        }
    }

    /// What is right at a path, a link being one.
    pub fn entry(&self, path: &Path) -> Result<Option<Found>> {
        self.stack.lookup(path)
    }
}

fn parts(path: &Path) -> impl Iterator<Item = OsString> + '_ {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsStr::new("..").to_owned()),
        _ => None,
    })
}
