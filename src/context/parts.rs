//! A context that is put together from several places, as if they had been copied over each other.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

/// What a context has besides the directory that it is known by. With any of it, links are what they lead to, as in a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Directories whose files are there where nothing above them has the name, the topmost first.
    pub below: Vec<PathBuf>,
    /// Files and directories by the names that they have at the top of the context; they win over all else.
    pub put: BTreeMap<OsString, PathBuf>,
    /// Links are what they lead to, although there is nothing else.
    pub follows: bool,
}

impl Parts {
    fn is_plain(&self) -> bool {
        self.below.is_empty() && self.put.is_empty() && !self.follows
    }

    /// What a file that was found is.
    pub(super) fn of(&self, found: &Path) -> io::Result<Metadata> {
        if self.is_plain() { fs::symlink_metadata(found) } else { fs::metadata(found) }
    }

    /// What has to be opened, where links are followed.
    pub(super) fn real<'a>(&self, found: &'a Path) -> io::Result<Cow<'a, Path>> {
        match !self.is_plain() && fs::symlink_metadata(found)?.is_symlink() {
            true => Ok(Cow::Owned(fs::canonicalize(found)?)),
            false => Ok(Cow::Borrowed(found)),
        }
    }

    /// Where an entry is, or would be if it were there.
    pub(super) fn place(&self, root: &Path, entry: &Path) -> PathBuf {
        let mut places = self.places(root, entry);
        let first = places.next().unwrap_or_else(|| root.join(entry));
        if self.below.is_empty() || self.of(&first).is_ok() {
            return first;
        }
        places.find(|place| self.of(place).is_ok()).unwrap_or(first)
    }

    pub(super) fn metadata(&self, root: &Path, entry: &Path) -> io::Result<Metadata> {
        let mut places = self.places(root, entry);
        let first = places.next().map_or_else(|| Err(io::ErrorKind::NotFound.into()), |place| self.of(&place));
        match first {
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                places.map(|place| self.of(&place)).find(|found| found.is_ok()).unwrap_or(Err(e))
            }
            found => found,
        }
    }

    /// The names in a directory, sorted.
    pub(super) fn list(&self, root: &Path, directory: &Path) -> io::Result<Vec<OsString>> {
        let mut names: BTreeSet<OsString> = BTreeSet::new();
        let mut error = None;
        let mut found = false;
        for place in self.places(root, directory) {
            match fs::read_dir(&place) {
                Ok(entries) => {
                    found = true;
                    for entry in entries {
                        names.insert(entry?.file_name());
                    }
                }
                Err(e) => error = Some(e),
            }
        }
        if directory.as_os_str().is_empty() {
            names.extend(self.put.keys().cloned());
        }
        match error {
            Some(error) if !found => Err(error),
            _ => Ok(names.into_iter().collect()),
        }
    }

    /// Where an entry may be; what comes first wins.
    fn places<'a>(&'a self, root: &'a Path, entry: &'a Path) -> impl Iterator<Item = PathBuf> + 'a {
        let mut names = entry.components();
        let put = names.next().and_then(|first| self.put.get(first.as_os_str()));
        let put = put.map(|place| match names.as_path() {
            rest if rest.as_os_str().is_empty() => place.clone(),
            rest => place.join(rest),
        });
        let others = if put.is_some() {
            None
        } else {
            Some(std::iter::once(root).chain(self.below.iter().map(PathBuf::as_path)))
        };
        put.into_iter().chain(others.into_iter().flatten().map(move |dir| dir.join(entry)))
    }
}
