//! The files that a Dockerfile copies, as a tar: the same files give the same bytes.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::context::{EntryKind, Selected};
use crate::engine::BuildJob;
use crate::engine::embedded::helper::mode::ModeChange;
use crate::error::{Context as _, Error, Result};
use crate::event::Cancel;

/// What goes into the tar, by the name it has there.
#[derive(Debug)]
pub struct Files {
    entries: BTreeMap<PathBuf, Entry>,
    source_date_epoch: Option<i64>,
}

#[derive(Debug)]
struct Entry {
    content: Content,
    mode: u32,
    /// Seconds since 1970; None is that of the file it comes from.
    modified: Option<i64>,
}

#[derive(Debug)]
enum Content {
    Directory,
    /// With the file whose time it has.
    Symlink(PathBuf, PathBuf),
    File(PathBuf),
    Bytes(Vec<u8>),
}

impl Files {
    pub(super) fn new(job: &BuildJob) -> Files {
        Files { entries: BTreeMap::new(), source_date_epoch: job.source_date_epoch }
    }

    /// What was selected of the tree at `root`, below the directory `place`; gives what COPY has to name: the
    /// directory, whose contents are meant, or the file in it. Several matches are kept apart.
    pub(super) fn add(
        &mut self,
        place: &str,
        root: &Path,
        selected: Vec<Selected>,
        chmod: Option<&ModeChange>,
    ) -> Result<Vec<PathBuf>> {
        let mut named = Vec::with_capacity(selected.len());
        for (number, one) in selected.into_iter().enumerate() {
            let place = PathBuf::from(format!("{place}.{number}"));
            let is_directory = one.entries.first().is_some_and(|first| first.kind == EntryKind::Directory);
            let top = if is_directory { place.clone() } else { place.join(&one.name) };
            for entry in one.entries {
                let below = entry.path.strip_prefix(&one.root).unwrap_or(&entry.path);
                // A path with nothing behind it would end in a slash.
                let name = if below.as_os_str().is_empty() { top.clone() } else { top.join(below) };
                let source = root.join(&entry.path);
                let content = match entry.kind {
                    EntryKind::File => Content::File(source.clone()),
                    EntryKind::Directory => Content::Directory,
                    EntryKind::Symlink(target) => Content::Symlink(target, source.clone()),
                    EntryKind::Other => {
                        return Err(Error::bad_input(format!(
                            "`{}` is neither a file nor a directory",
                            source.display()
                        ))
                        .hint("leave it out in .dockerignore: other engines don't take it"));
                    }
                };
                let is_directory = matches!(content, Content::Directory);
                let is_link = matches!(content, Content::Symlink(..));
                let mode = chmod.filter(|_| !is_link).map_or(entry.mode, |chmod| chmod.apply(entry.mode, is_directory));
                let modified = match is_directory {
                    true => Some(modified(&source)?),
                    false => None,
                };
                self.entries.insert(name, Entry { content, mode, modified });
            }
            named.push(top);
        }
        Ok(named)
    }

    /// A file with this content.
    pub(super) fn add_bytes(&mut self, place: &str, name: &str, content: Vec<u8>, mode: u32) -> PathBuf {
        let path = Path::new(place).join(name);
        // As long as nobody said otherwise, it is as old as anything can be: the same text gives the same layer.
        let entry = Entry { content: Content::Bytes(content), mode, modified: Some(0) };
        self.entries.insert(path.clone(), entry);
        path
    }

    /// A file from elsewhere.
    pub(super) fn add_file(&mut self, place: &str, name: &str, file: PathBuf, mode: u32, modified: i64) -> PathBuf {
        let path = Path::new(place).join(name);
        let entry = Entry { content: Content::File(file), mode, modified: Some(modified) };
        self.entries.insert(path.clone(), entry);
        path
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Writes the tar, with the Dockerfile in front.
    pub fn write<W: Write>(&self, out: W, dockerfile: &str, cancel: &Cancel) -> Result<W> {
        let mut tar = tar::Builder::new(out);
        let cannot = |name: &Path| format!("cannot hand over the file `{}`", name.display());
        let mut head = header(tar::EntryType::Regular, 0o644, 0, dockerfile.len() as u64);
        let name = Path::new(super::DOCKERFILE);
        tar.append_data(&mut head, name, dockerfile.as_bytes()).map_err(|e| told(cancel, cannot(name), e))?;
        for (name, entry) in &self.entries {
            cancel.check()?;
            self.one(&mut tar, name, entry, cancel).map_err(|e| told(cancel, cannot(name), e))?;
        }
        tar.into_inner().map_err(|e| told(cancel, "cannot hand over the files of the build".into(), e))
    }

    fn one<W: Write>(&self, tar: &mut tar::Builder<W>, name: &Path, entry: &Entry, cancel: &Cancel) -> io::Result<()> {
        let time = |file: &Path| match entry.modified {
            Some(time) => Ok(time),
            None => fs::symlink_metadata(file).map(|metadata| metadata.mtime()),
        };
        let time = |file: &Path| -> io::Result<u64> {
            let time = time(file)?;
            let time = self.source_date_epoch.map_or(time, |epoch| time.min(epoch));
            Ok(u64::try_from(time).unwrap_or(0))
        };
        match &entry.content {
            Content::Directory => {
                let mut head = header(tar::EntryType::Directory, entry.mode, time(name)?, 0);
                let mut name = name.as_os_str().to_owned();
                name.push("/");
                tar.append_data(&mut head, Path::new(&name), io::empty())
            }
            Content::Symlink(target, file) => {
                let mut head = header(tar::EntryType::Symlink, 0o777, time(file)?, 0);
                tar.append_link(&mut head, name, target)
            }
            Content::Bytes(bytes) => {
                let mut head = header(tar::EntryType::Regular, entry.mode, time(name)?, bytes.len() as u64);
                tar.append_data(&mut head, name, bytes.as_slice())
            }
            Content::File(path) => {
                let file = File::open(path)?;
                let size = file.metadata()?.len();
                let mut head = header(tar::EntryType::Regular, entry.mode, time(path)?, size);
                let mut data = Whole { file: file.take(size), left: size, cancel };
                tar.append_data(&mut head, name, &mut data)
            }
        }
    }
}

fn modified(file: &Path) -> Result<i64> {
    fs::symlink_metadata(file).map(|metadata| metadata.mtime()).bad_input(|| format!("cannot read {}", file.display()))
}

fn told(cancel: &Cancel, message: String, error: io::Error) -> Error {
    // Whoever takes the tar has more to say about a pipe that broke.
    if cancel.is_cancelled() { Error::interrupted() } else { Error::bad_input(message).cause(error) }
}

fn header(kind: tar::EntryType, mode: u32, modified: u64, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(modified);
    header.set_size(size);
    header
}

/// As many bytes as were announced: a file that shrinks while it is read would spoil the tar.
struct Whole<'a> {
    file: io::Take<File>,
    left: u64,
    cancel: &'a Cancel,
}

impl Read for Whole<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            return Err(io::Error::other("interrupted"));
        }
        let n = self.file.read(buffer)?;
        self.left -= n as u64;
        if n == 0 && self.left > 0 && !buffer.is_empty() {
            return Err(io::Error::other("it changed while it was read"));
        }
        Ok(n)
    }
}

/// A source of COPY as a word that means exactly this path: neither a pattern nor a variable.
pub(super) fn literal(path: &OsStr, escape: char) -> Result<String> {
    let text = path.to_str().ok_or_else(|| {
        Error::bad_input(format!("the name `{}` is not UTF-8", path.display()))
            .hint("rename it, or copy the directory that holds it")
    })?;
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    Ok(word(&pattern, escape))
}

/// Text of which the engine's expansion leaves exactly this.
pub(super) fn word(text: &str, escape: char) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c == escape || matches!(c, '$' | '"' | '\'') {
            out.push(escape);
        }
        out.push(c);
    }
    out
}
