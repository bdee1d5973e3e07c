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
        self.select_matching(pattern, excludes, None)
    }

    pub(super) fn select_below(&self, pivot: &str, pattern: &str, excludes: &[String]) -> Result<Vec<Selected>> {
        let includes = Includes::new(pattern)?;
        let mut selected = self.select_matching(pivot, excludes, Some(&includes))?;
        let directory = |one: &Selected| one.entries.first().is_some_and(|e| e.kind == EntryKind::Directory);
        selected.retain(directory);
        // Docker takes nothing of a pivot that nothing stands behind, and of patterns that match nothing; a name has
        // to be there.
        if pattern != "." && !glob::has_wildcards(pivot) && !glob::has_wildcards(pattern) {
            let excluded = |one: &Selected| !excludes.is_empty() && self.has(&one.root.join(pattern));
            selected.retain(|one| one.entries.iter().any(|entry| entry.path != one.root) || excluded(one));
        }
        Ok(selected)
    }

    fn select_matching(
        &self,
        pattern: &str,
        excludes: &[String],
        includes: Option<&Includes>,
    ) -> Result<Vec<Selected>> {
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
            let mut walk = Walk { context: self, excludes: &excludes, includes, root: &root, entries: Vec::new() };
            walk.begin()?;
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
            if pattern.contains('\\') && !self.has(&base) {
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
        match self.metadata(directory) {
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
            let is_directory = self.metadata(&path).is_ok_and(|m| m.is_dir());
            // Of a directory, something below may not be left out.
            if is_directory || !self.ignored(&path).0 {
                names.push(path);
            }
        }
        Ok(())
    }

    fn list(&self, directory: &Path) -> Result<Vec<OsString>> {
        let names = self.parts.list(self.root(), directory);
        names.bad_input(|| format!("cannot read the directory {}", self.place(directory).display()))
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
            let metadata = match self.metadata(&real) {
                Ok(metadata) => metadata,
                Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                    return Ok(None);
                }
                Err(e) => {
                    return Err(Error::bad_input(format!("cannot read {}", self.place(&real).display())).cause(e));
                }
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
                let full = self.place(&real);
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

    fn metadata(&self, path: &Path) -> io::Result<fs::Metadata> {
        self.parts.metadata(self.root(), path)
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

/// The pattern of `COPY --parents`.
struct Includes {
    matcher: Matcher,
    /// The names that it begins with, before anything that is a pattern.
    literal: Vec<String>,
}

impl Includes {
    fn new(pattern: &str) -> Result<Includes> {
        let matcher = Matcher::new([pattern]).map_err(|(_, why)| {
            let error = Error::bad_input(format!("`{pattern}` is not a pattern: {why}"));
            error.hint("put `\\` before a character that is meant as it is")
        })?;
        let literal = pattern.split('/').take_while(|part| !part.contains(['*', '?', '[', '\\', '!']));
        Ok(Includes { matcher, literal: literal.map(str::to_owned).collect() })
    }

    fn may_match_below(&self, directory: &str) -> bool {
        directory.split('/').zip(&self.literal).all(|(part, literal)| part == literal)
    }
}

struct Walk<'a> {
    context: &'a Context,
    excludes: &'a Matcher,
    /// None: everything that is not excluded.
    includes: Option<&'a Includes>,
    /// The match: `--exclude` looks at paths below it, and never at what was named itself.
    root: &'a Path,
    entries: Vec<Entry>,
}

impl Walk<'_> {
    fn begin(&mut self) -> Result<()> {
        let above = self.root.parent().map(|parent| self.context.ignored(parent).1);
        self.visit(self.root, &States { ignore: above.flatten(), ..States::default() })
    }

    fn visit(&mut self, path: &Path, above: &States) -> Result<()> {
        let full = self.context.place(path);
        let metadata = self.context.parts.of(&full).bad_input(|| format!("cannot read {}", full.display()))?;
        let text = path.to_string_lossy();
        let below = path.strip_prefix(self.root).unwrap_or(path).to_string_lossy();
        let (ignored, ignore) = match text.as_ref() {
            "" => (false, None),
            text => {
                let (ignored, state) = self.context.ignore.matches(text, above.ignore.as_ref());
                (ignored, Some(state))
            }
        };
        let (excluded, exclude) = match below.as_ref() {
            "" => (false, None),
            below => {
                let (excluded, state) = self.excludes.matches(below, above.exclude.as_ref());
                (excluded, Some(state))
            }
        };
        let (included, include) = match (below.as_ref(), self.includes) {
            ("", _) | (_, None) => (true, None),
            (below, Some(includes)) => {
                let (included, state) = includes.matcher.matches(below, above.include.as_ref());
                (included, Some(state))
            }
        };
        let hidden = ignored || excluded || !included;
        if !metadata.is_dir() {
            if !hidden && let Some(entry) = entry(path, &full, &metadata)? {
                self.entries.push(entry);
            }
            return Ok(());
        }
        if (ignored && !self.context.ignore.may_bring_back_below(&text))
            || (excluded && !self.excludes.may_bring_back_below(&below))
            || (!included && self.includes.is_some_and(|includes| !includes.may_match_below(&below)))
        {
            return Ok(());
        }
        let before = self.entries.len();
        let counts = !text.is_empty() || self.context.root_mode_counts;
        let mode = if counts { metadata.mode() & 0o7777 } else { 0o755 };
        let on_the_way = excluded || !included;
        self.entries.push(Entry { path: path.to_owned(), kind: EntryKind::Directory, mode, size: 0, on_the_way });
        let states = States { ignore, exclude, include };
        for name in self.context.list(path)? {
            self.visit(&path.join(name), &states)?;
        }
        if hidden && self.entries.len() == before + 1 {
            // Only there for the sake of what is below it, and there is nothing.
            self.entries.truncate(before);
        }
        Ok(())
    }
}

/// What each kind of pattern said about the directory above.
#[derive(Default)]
struct States {
    ignore: Option<State>,
    exclude: Option<State>,
    include: Option<State>,
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
    Ok(Some(Entry { path: path.to_owned(), kind, mode, size, on_the_way: false }))
}
