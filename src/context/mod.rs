//! The files that a build may read: a directory seen through its .dockerignore, selected by pattern and hashed with
//! the help of a table that survives between runs.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;

use crate::error::{Context as _, Error, Result};
use crate::image::digest::{Key, KeyHasher};

mod glob;
mod hash;
mod ignore;
mod parts;
mod select;
#[cfg(test)]
mod tests;

pub use hash::HashTable;
use ignore::Matcher;
pub use parts::Parts;

/// From this many files on, hashing is shared by all threads.
const MANY: usize = 16;

/// A directory seen through its .dockerignore. Opening reads .dockerignore and nothing else.
#[derive(Debug)]
pub struct Context {
    root: PathBuf,
    parts: Parts,
    ignore_file: Option<PathBuf>,
    ignore: Matcher,
    /// Part of what is copied, unlike that of a directory which only happens to hold a context.
    root_mode_counts: bool,
}

/// One selected file, directory or link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Relative to the context's root.
    pub path: PathBuf,
    pub kind: EntryKind,
    /// Permission bits.
    pub mode: u32,
    pub size: u64,
    /// A directory that was not selected itself, but leads to something that was.
    pub on_the_way: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    File,
    Directory,
    Symlink(PathBuf),
    Other,
}

/// What one pattern of one COPY selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selected {
    /// Where the match really is, relative to the context's root (empty for all of it): links that lead to it have
    /// been followed. `entries` are below it (or are it), in an order in which directories come before what they hold.
    pub root: PathBuf,
    /// The name by which it was found, which is a link's own: what a file is called when it is copied into a directory.
    pub name: OsString,
    pub entries: Vec<Entry>,
}

impl Context {
    /// `dockerfile` names the Dockerfile as this process would open it, or else within the context:
    /// `NAME.dockerignore` beside it wins over the context's own.
    pub fn open(root: &Path, dockerfile: Option<&Path>) -> Result<Arc<Context>> {
        Context::of_parts(root, Parts::default(), dockerfile)
    }

    /// With what isn't below its root.
    pub fn of_parts(root: &Path, parts: Parts, dockerfile: Option<&Path>) -> Result<Arc<Context>> {
        let metadata = fs::metadata(root).bad_input(|| format!("cannot read the context {}", root.display()))?;
        if !metadata.is_dir() {
            let hint = "name the directory that holds the files that are copied";
            return Err(Error::bad_input(format!("the context {} is not a directory", root.display())).hint(hint));
        }
        let mut candidates = Vec::new();
        if let Some(dockerfile) = dockerfile {
            let dockerfile = if dockerfile.exists() { dockerfile.to_owned() } else { root.join(dockerfile) };
            let mut beside = dockerfile.into_os_string();
            beside.push(".dockerignore");
            candidates.push(PathBuf::from(beside));
        }
        candidates.push(parts.place(root, Path::new(".dockerignore")));
        let (mut ignore_file, mut ignore) = (None, Matcher::default());
        for path in candidates {
            match crate::text::read(&path) {
                Ok(bytes) => {
                    ignore = matcher(&path, &String::from_utf8_lossy(&bytes))?;
                    ignore_file = Some(path);
                    break;
                }
                Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
                Err(e) => return Err(Error::bad_input(format!("cannot read {}", path.display())).cause(e)),
            }
        }
        Ok(Arc::new(Context { root: root.to_path_buf(), parts, ignore_file, ignore, root_mode_counts: false }))
    }

    /// A tree that is no build context and is seen whole, such as the root of another stage.
    pub fn whole(root: &Path) -> Arc<Context> {
        let root = root.to_path_buf();
        let (parts, ignore) = (Parts::default(), Matcher::default());
        Arc::new(Context { root, parts, ignore_file: None, ignore, root_mode_counts: true })
    }

    /// The directory that the context is known by.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where an entry's content is.
    pub fn place(&self, entry: &Path) -> PathBuf {
        self.parts.place(&self.root, entry)
    }

    pub fn has(&self, entry: &Path) -> bool {
        self.parts.metadata(&self.root, entry).is_ok()
    }

    /// The file whose patterns are in force.
    pub fn ignore_file(&self) -> Option<&Path> {
        self.ignore_file.as_deref()
    }

    /// Whether .dockerignore leaves a path out: the likeliest reason for a file that is there and yet is missing.
    pub fn is_ignored(&self, path: &Path) -> bool {
        self.ignored(path.strip_prefix("/").unwrap_or(path)).0
    }

    /// Expands a pattern as COPY does (Go's filepath.Match per component, sorted). A match that is a link is followed
    /// within the context, as Docker does; links below it stay links. Each match comes with everything below it that
    /// .dockerignore and `excludes` leave. No match is an empty list.
    pub fn select(&self, pattern: &str, excludes: &[String]) -> Result<Vec<Selected>> {
        self.select_all(pattern, excludes)
    }

    /// What `COPY --parents` takes: of everything below `pivot` (expanded as by `select`) what `pattern`, a pattern of
    /// .dockerignore's kind relative to it, matches, with the directories that lead there. No link below the pivot is
    /// followed. A name, other than a pattern, that isn't there is an empty list.
    pub fn select_parents(&self, pivot: &str, pattern: &str, excludes: &[String]) -> Result<Vec<Selected>> {
        self.select_below(pivot, pattern, excludes)
    }

    /// Digest of names, kinds, permission bits, link targets and contents; never of times or owners.
    pub fn digest(&self, selected: &[Selected], table: &HashTable) -> Result<Key> {
        let files: Vec<&Path> = selected
            .iter()
            .flat_map(|selected| &selected.entries)
            .filter(|entry| entry.kind == EntryKind::File)
            .map(|entry| entry.path.as_path())
            .collect();
        let hash = |path: &&Path| {
            let full = self.place(path);
            self.parts
                .of(&full)
                .and_then(|metadata| table.digest(&self.parts.real(&full)?, &metadata))
                .bad_input(|| format!("cannot read {}", full.display()))
        };
        let hashes: Vec<_> = if files.len() < MANY {
            files.iter().map(hash).collect::<Result<_>>()?
        } else {
            files.par_iter().map(hash).collect::<Result<_>>()?
        };
        let mut hashes = hashes.into_iter();
        let mut hasher = KeyHasher::new("kollage context 1");
        for selected in selected {
            hasher.part("match", selected.name.as_bytes());
            for entry in &selected.entries {
                let below = entry.path.strip_prefix(&selected.root).unwrap_or(&entry.path);
                hasher.part("path", below.as_os_str().as_bytes()).part("mode", format!("{:o}", entry.mode));
                match &entry.kind {
                    EntryKind::File => hasher.part("file", hashes.next().unwrap_or_default()),
                    EntryKind::Directory => hasher.part("directory", ""),
                    EntryKind::Symlink(target) => hasher.part("link", target.as_os_str().as_bytes()),
                    EntryKind::Other => hasher.part("other", ""),
                };
            }
        }
        Ok(hasher.finish())
    }
}

/// Whether a source is a pattern, which may match nothing, or a name, which has to be there.
pub fn is_pattern(source: &str) -> bool {
    glob::has_wildcards(source)
}

fn matcher(path: &Path, text: &str) -> Result<Matcher> {
    let lines = ignore::lines(text);
    Matcher::new(lines.iter().map(|(pattern, _)| pattern.as_str())).map_err(|(at, why)| {
        let (pattern, line) = &lines[at];
        let message = format!("`{pattern}` in line {line} of {} is not a pattern", path.display());
        Error::bad_input(message).cause(why).hint("put `\\` before a character that is meant as it is")
    })
}
