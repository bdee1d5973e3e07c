//! What a rendering is: files below one directory. They are compared with what is there, or written, each whole and
//! renamed into its place; what an earlier rendering wrote and this one doesn't goes away.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use super::definition::Deployment;
use crate::catalogue::names;
use crate::error::{Context as _, Error, Result};
use crate::image::archive::staging::{Staged, write_file};

/// Names the files of the last rendering, one a line.
const LIST: &str = ".kollage-rendered";

#[derive(Debug, Default)]
pub struct Rendering {
    /// By path below the directory.
    pub files: BTreeMap<String, Rendered>,
    /// What a person has to do besides, each a sentence or a command.
    pub notes: Vec<String>,
}

/// The mode of a symbolic link; its bytes are what it points to.
pub const LINK: u32 = 0o120_777;

#[derive(Debug)]
pub struct Rendered {
    pub bytes: Vec<u8>,
    pub mode: u32,
    /// Its text must not be shown.
    pub secret: bool,
}

/// What is different at one path.
#[derive(Debug, PartialEq, Eq)]
pub struct Change {
    pub path: String,
    pub kind: Kind,
    /// A unified diff, or a line in its place where there is nothing to be shown.
    pub diff: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    New,
    Changed,
    /// An earlier rendering's.
    Gone,
}

impl Rendering {
    pub fn text(&mut self, path: impl Into<String>, text: String) {
        self.files.insert(path.into(), Rendered { bytes: text.into_bytes(), mode: 0o644, secret: false });
    }

    /// The configuration of every service below `config/`, for targets that mount directories.
    pub fn configuration(&mut self, deployment: &Deployment) {
        for service in &deployment.services {
            let Some(config) = &service.config else { continue };
            for (path, file) in &config.files {
                let rendered = Rendered { bytes: file.bytes.clone(), mode: file.mode, secret: config.secret };
                self.files.insert(format!("config/{}/{path}", service.name), rendered);
            }
        }
    }

    /// What writing would change.
    pub fn changes(&self, dir: &Path) -> Result<Vec<Change>> {
        let mut changes = Vec::new();
        for (path, file) in &self.files {
            match present(&dir.join(path))? {
                None => changes.push(change(path, Kind::New, None, Some(file))),
                Some((bytes, mode)) if bytes != file.bytes || mode != file.mode => {
                    changes.push(change(path, Kind::Changed, Some((&bytes, mode)), Some(file)));
                }
                Some(_) => {}
            }
        }
        for path in listed(dir)?.iter().filter(|path| !self.files.contains_key(*path)) {
            if let Some((bytes, mode)) = present(&dir.join(path))? {
                changes.push(change(path, Kind::Gone, Some((&bytes, mode)), None));
            }
        }
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(changes)
    }

    /// Writes what differs; what is right already isn't touched.
    pub fn write(&self, dir: &Path) -> Result<Vec<Change>> {
        let changes = self.changes(dir)?;
        let earlier = listed(dir)?;
        for change in changes.iter().filter(|change| change.kind == Kind::Changed) {
            if !earlier.contains(&change.path) {
                let path = dir.join(&change.path);
                let message = format!("`{}` is there already, and no earlier rendering wrote it", path.display());
                return Err(Error::bad_input(message).hint("name another directory with `-o DIR`, or remove it"));
            }
        }
        // Before the files: after a crash the list names too many rather than too few.
        let ours = self.files.keys().map(String::as_str).collect::<BTreeSet<_>>();
        let all = ours.iter().copied().chain(earlier.iter().map(String::as_str)).collect::<BTreeSet<_>>();
        if all.iter().any(|path| !earlier.contains(*path)) {
            write_file(&dir.join(LIST), &lines(&all))?;
        }
        for change in &changes {
            let path = dir.join(&change.path);
            match self.files.get(&change.path) {
                Some(file) => put(&path, file)?,
                None => fs::remove_file(&path).unusable(|| format!("cannot remove `{}`", path.display()))?,
            }
        }
        if all.len() != ours.len() {
            write_file(&dir.join(LIST), &lines(&ours))?;
        }
        Ok(changes)
    }
}

fn lines(paths: &BTreeSet<&str>) -> Vec<u8> {
    paths.iter().flat_map(|path| [path.as_bytes(), b"\n"]).flatten().copied().collect()
}

/// The mode is there before the content is.
fn put(path: &Path, file: &Rendered) -> Result<()> {
    let staged = Staged::beside(path)?;
    if file.mode == LINK {
        let target = std::ffi::OsStr::from_bytes(&file.bytes);
        symlink(target, staged.path()).unusable(|| format!("cannot write `{}`", path.display()))?;
        return staged.put_in_place();
    }
    let mut out = staged.create_file()?;
    out.set_permissions(fs::Permissions::from_mode(file.mode))
        .and_then(|()| out.write_all(&file.bytes))
        .and_then(|()| out.sync_all())
        .unusable(|| format!("cannot write `{}`", path.display()))?;
    staged.put_in_place()
}

fn present(path: &Path) -> Result<Option<(Vec<u8>, u32)>> {
    let read = || -> io::Result<(Vec<u8>, u32)> {
        let meta = fs::symlink_metadata(path)?;
        if meta.is_symlink() {
            return Ok((fs::read_link(path)?.into_os_string().into_vec(), LINK));
        }
        if !meta.is_file() {
            return Err(io::Error::other("it is no file"));
        }
        Ok((fs::read(path)?, meta.permissions().mode() & 0o777))
    };
    match read() {
        Ok(found) => Ok(Some(found)),
        Err(why) if matches!(why.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(why) => Err(Error::unusable(format!("cannot read `{}`", path.display())).cause(why)),
    }
}

/// The files of an earlier rendering. Whatever else may stand in the list is left alone.
fn listed(dir: &Path) -> Result<BTreeSet<String>> {
    let Some((bytes, _)) = present(&dir.join(LIST))? else { return Ok(BTreeSet::new()) };
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.lines().filter(|path| names::inside(path).is_ok()).map(str::to_owned).collect())
}

fn change(path: &str, kind: Kind, old: Option<(&[u8], u32)>, new: Option<&Rendered>) -> Change {
    let mut diff = String::new();
    if let (Some((_, old)), Some(new)) = (old, new)
        && old != new.mode
    {
        diff.push_str(&format!("{path}: mode {old:04o} becomes {:04o}\n", new.mode));
    }
    let (before, after) = (old.map_or(&[][..], |(bytes, _)| bytes), new.map_or(&[][..], |file| &file.bytes));
    // Whether a file that goes away had secrets isn't known any more, but what it was for is.
    let secret = new.map_or_else(|| path.starts_with("config/"), |file| file.secret);
    if before != after {
        diff.push_str(&match (std::str::from_utf8(before), std::str::from_utf8(after)) {
            _ if secret => format!("{path}: differs; its content is not shown\n"),
            (Ok(before), Ok(after)) => {
                let names = match kind {
                    Kind::New => ("/dev/null".to_owned(), format!("b/{path}")),
                    Kind::Changed => (format!("a/{path}"), format!("b/{path}")),
                    Kind::Gone => (format!("a/{path}"), "/dev/null".to_owned()),
                };
                let lines = similar::TextDiff::from_lines(before, after);
                lines.unified_diff().header(&names.0, &names.1).to_string()
            }
            _ => format!("{path}: binary files differ\n"),
        });
    }
    if diff.is_empty() {
        let word = if kind == Kind::Gone { "goes away" } else { "is new" };
        diff = format!("{path}: {word}, and empty\n");
    }
    Change { path: path.to_owned(), kind, diff }
}
