//! What a pattern of COPY selects: names are matched component by component, links are followed within the context,
//! and everything below a match is walked through .dockerignore and `--exclude`.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use regex::Regex;

use super::ignore::{Matcher, State};
use super::{Context, Entry, EntryKind, Selected, glob};
use crate::error::{Context as _, Error, Result};

/// Of links that lead to links; the kernel's own limit is 40.
const MOST_LINKS: usize = 255;

impl Context {
    pub(super) fn select_all(&self, pattern: &str, excludes: &[String]) -> Result<Vec<Selected>> {
        let excludes = Matcher::new(excludes.iter().map(String::as_str))
            .map_err(|(at, why)| Error::bad_input(format!("`--exclude={}` is not a pattern: {why}", excludes[at])))?;
        let mut selected = Vec::new();
        for name in self.names(pattern)? {
            let Some(root) = self.follow(&name)? else {
                if glob::has_wildcards(pattern) {
                    let message = format!("`{}` in {} leads nowhere", name.display(), self.root().display());
                    return Err(Error::bad_input(message).hint("repair the link, or leave it out in .dockerignore"));
                }
                continue;
            };
            let mut walk = Walk { context: self, excludes: &excludes, root: &root, entries: Vec::new() };
            walk.begin(&name)?;
            if !walk.entries.is_empty() {
                let entries = walk.entries;
                let name = name.file_name().map(ToOwned::to_owned).unwrap_or_default();
                selected.push(Selected { root, name, entries });
            }
        }
        Ok(selected)
    }

    /// Paths that match, relative to the root; the last component may be a link.
    fn names(&self, pattern: &str) -> Result<Vec<PathBuf>> {
        let mut parts: Vec<&str> = Vec::new();
        for part in pattern.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()),
                part => parts.push(part),
            }
        }
        let plain = parts.iter().take_while(|part| !glob::has_wildcards(part)).count();
        let (before, wild) = parts.split_at(plain);
        let mut base: PathBuf = before.iter().collect();
        if wild.is_empty() {
            // A backslash may be part of the name, or protect what would otherwise be a wildcard.
            if pattern.contains('\\') && fs::symlink_metadata(self.root().join(&base)).is_err() {
                base = before.iter().map(|part| glob::unescape(part)).collect();
            }
            return Ok(vec![base]);
        }
        let Some(base) = self.follow(&base)? else { return Ok(Vec::new()) };
        let wild: std::result::Result<Vec<Regex>, String> = wild.iter().map(|part| glob::compile(part)).collect();
        let wild = wild.map_err(|why| {
            let error = Error::bad_input(format!("`{pattern}` is not a pattern: {why}"));
            error.hint("put `\\` before a character that is meant as it is")
        })?;
        let mut names = Vec::new();
        self.expand(&base, &wild, &mut names)?;
        Ok(names)
    }

    fn expand(&self, directory: &Path, wild: &[Regex], names: &mut Vec<PathBuf>) -> Result<()> {
        let Some((first, rest)) = wild.split_first() else { return Ok(()) };
        if !directory.as_os_str().is_empty() {
            let (ignored, _) = self.ignored(directory);
            if ignored && !self.ignore.may_bring_back_below(&directory.to_string_lossy()) {
                return Ok(());
            }
        }
        match fs::symlink_metadata(self.root().join(directory)) {
            Ok(metadata) if metadata.is_dir() => {}
            _ => return Ok(()),
        }
        for name in self.list(directory)? {
            if !first.is_match(&name.to_string_lossy()) {
                continue;
            }
            let path = directory.join(name);
            if !rest.is_empty() {
                self.expand(&path, rest, names)?;
                continue;
            }
            let is_directory = fs::symlink_metadata(self.root().join(&path)).is_ok_and(|m| m.is_dir());
            // Of a directory, something below may not be left out.
            if is_directory || !self.ignored(&path).0 {
                names.push(path);
            }
        }
        Ok(())
    }

    fn list(&self, directory: &Path) -> Result<Vec<OsString>> {
        let full = self.root().join(directory);
        let names = fs::read_dir(&full).and_then(|entries| {
            entries.map(|entry| entry.map(|entry| entry.file_name())).collect::<io::Result<Vec<_>>>()
        });
        let mut names = names.bad_input(|| format!("cannot read the directory {}", full.display()))?;
        names.sort();
        Ok(names)
    }

    /// Where `path` is once all links are followed; they never lead out of the context. None when there is nothing,
    /// or nothing that is not left out.
    fn follow(&self, path: &Path) -> Result<Option<PathBuf>> {
        let mut real = PathBuf::new();
        let mut links = 0;
        let mut ahead: VecDeque<OsString> = path.iter().map(ToOwned::to_owned).collect();
        while let Some(name) = ahead.pop_front() {
            match Path::new(&name).components().next() {
                Some(Component::Normal(_)) => {}
                Some(Component::ParentDir) => {
                    real.pop();
                    continue;
                }
                Some(Component::RootDir) => {
                    real = PathBuf::new();
                    continue;
                }
                _ => continue,
            }
            real.push(&name);
            let full = self.root().join(&real);
            let metadata = match fs::symlink_metadata(&full) {
                Ok(metadata) => metadata,
                Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                    return Ok(None);
                }
                Err(e) => return Err(Error::bad_input(format!("cannot read {}", full.display())).cause(e)),
            };
            if metadata.is_dir() {
                continue;
            }
            if self.ignored(&real).0 {
                return Ok(None);
            }
            if metadata.is_symlink() {
                links += 1;
                if links > MOST_LINKS {
                    return Err(Error::bad_input(format!("{} leads in a circle", self.root().join(path).display())));
                }
                let target = fs::read_link(&full).bad_input(|| format!("cannot read {}", full.display()))?;
                real.pop();
                for part in target.iter().rev() {
                    ahead.push_front(part.to_owned());
                }
            } else if !ahead.is_empty() {
                return Ok(None);
            }
        }
        Ok(Some(real))
    }

    /// What .dockerignore says about a path, and the state for what is below it.
    pub(super) fn ignored(&self, path: &Path) -> (bool, Option<State>) {
        let mut result = (false, None);
        if self.ignore.is_empty() {
            return result;
        }
        let mut above = PathBuf::new();
        for part in path {
            above.push(part);
            let (ignored, state) = self.ignore.matches(&above.to_string_lossy(), result.1.as_ref());
            result = (ignored, Some(state));
        }
        result
    }
}

struct Walk<'a> {
    context: &'a Context,
    excludes: &'a Matcher,
    /// The match: `--exclude` looks at paths below it.
    root: &'a Path,
    entries: Vec<Entry>,
}

impl Walk<'_> {
    fn begin(&mut self, name: &Path) -> Result<()> {
        let above = self.root.parent().map(|parent| self.context.ignored(parent).1);
        let full = self.context.root().join(self.root);
        let metadata = fs::metadata(&full).bad_input(|| format!("cannot read {}", full.display()))?;
        if !metadata.is_dir() {
            // A file that was named itself is measured by its name.
            let file_name = name.file_name().unwrap_or_default().to_string_lossy();
            if self.excludes.matches(&file_name, None).0 {
                return Ok(());
            }
        }
        self.visit(self.root, above.flatten().as_ref(), None)
    }

    fn visit(&mut self, path: &Path, ignore_above: Option<&State>, exclude_above: Option<&State>) -> Result<()> {
        let full = self.context.root().join(path);
        let metadata = fs::symlink_metadata(&full).bad_input(|| format!("cannot read {}", full.display()))?;
        let text = path.to_string_lossy();
        let below = path.strip_prefix(self.root).unwrap_or(path).to_string_lossy();
        let (ignored, ignore) = match text.as_ref() {
            "" => (false, None),
            text => {
                let (ignored, state) = self.context.ignore.matches(text, ignore_above);
                (ignored, Some(state))
            }
        };
        let (excluded, exclude) = match below.as_ref() {
            "" => (false, None),
            below => {
                let (excluded, state) = self.excludes.matches(below, exclude_above);
                (excluded, Some(state))
            }
        };
        let hidden = ignored || excluded;
        if !metadata.is_dir() {
            if !hidden && let Some(entry) = entry(path, &full, &metadata)? {
                self.entries.push(entry);
            }
            return Ok(());
        }
        if (ignored && !self.context.ignore.may_bring_back_below(&text))
            || (excluded && !self.excludes.may_bring_back_below(&below))
        {
            return Ok(());
        }
        let before = self.entries.len();
        let counts = !text.is_empty() || self.context.root_mode_counts;
        let mode = if counts { metadata.mode() & 0o7777 } else { 0o755 };
        self.entries.push(Entry { path: path.to_owned(), kind: EntryKind::Directory, mode, size: 0 });
        for name in self.context.list(path)? {
            self.visit(&path.join(name), ignore.as_ref(), exclude.as_ref())?;
        }
        if hidden && self.entries.len() == before + 1 {
            // Only there for the sake of what is below it, and there is nothing.
            self.entries.truncate(before);
        }
        Ok(())
    }
}

/// None for sockets, which cannot be copied.
fn entry(path: &Path, full: &Path, metadata: &fs::Metadata) -> Result<Option<Entry>> {
    let kind = metadata.file_type();
    let kind = if kind.is_file() {
        EntryKind::File
    } else if kind.is_symlink() {
        EntryKind::Symlink(fs::read_link(full).bad_input(|| format!("cannot read {}", full.display()))?)
    } else if kind.is_socket() {
        return Ok(None);
    } else {
        EntryKind::Other
    };
    let (mode, size) = (metadata.mode() & 0o7777, metadata.size());
    Ok(Some(Entry { path: path.to_owned(), kind, mode, size }))
}
