//! ADD of a local archive: told by its content, never by its name, and unpacked into the image.
//!
//! Unlike Docker's, a directory of an archive never takes the place of a link that the image has: unpacked over an
//! image whose `/lib` is a link, that would leave an image in which nothing runs.

use std::fs::File;
use std::io::{self, Read, Seek as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Timespec, Timestamps};

use super::inroot::{Owner, Root, kind_of, proc_path};
use super::tree::{Meta, Writer, not_a_directory, shown};
use crate::engine::embedded::fs_error;
use crate::error::{Error, Result};
use crate::image::layer::Limits;
use crate::image::layer::decompress::decompress;
use crate::image::layer::read::{EntryKind, TarEntry, TarReader};

/// The file again when it is a tar, compressed or not; None for everything else, compressed files included.
pub fn open(file: &OwnedFd) -> io::Result<Option<File>> {
    // Before it is opened: a FIFO would be waited for.
    if kind_of(&rustix::fs::fstat(file)?) != FileType::RegularFile {
        return Ok(None);
    }
    let mut file = File::open(proc_path(file.as_fd()))?;
    let is_archive = match decompress(&mut file) {
        Ok((_, stream)) => matches!(TarReader::new(stream, Limits::default()).next_entry(), Ok(Some(_))),
        Err(_) => false,
    };
    file.rewind()?;
    Ok(is_archive.then_some(file))
}

/// Unpacks below `dest`, which is the root for every link on the way, as in Docker. Members that climb out are refused.
/// What is in the way is replaced, but for links to directories: without `/bin` an image is lost.
pub fn unpack(archive: File, root: &Root, dest: &Path, owner: Option<Owner>) -> Result<()> {
    let (_, stream) = decompress(archive)?;
    let root = &root.below(dest).map_err(|e| fs_error(format!("cannot open `{}`", shown(dest)), e))?;
    let limits = Limits::default();
    let mut reader = TarReader::new(stream, limits.clone());
    let mut writer = Writer::new(root, owner, None, false);
    let (mut members, mut total) = (0u64, 0u64);
    while let Some(entry) = reader.next_entry()? {
        members += 1;
        total = total.saturating_add(entry.size);
        let name = String::from_utf8_lossy(&entry.path);
        if members > limits.max_entries {
            return Err(Error::failed(format!("it has more than {} members", limits.max_entries)));
        }
        if entry.path.contains(&0) || entry.link.contains(&0) {
            return Err(Error::failed(format!("the name of its member `{}` contains a NUL", name.escape_debug())));
        }
        if entry.size > limits.max_file_size || total > limits.max_total_size {
            return Err(Error::failed(format!("its member `{name}` is too large ({} bytes)", entry.size)));
        }
        if entry.path.split(|b| *b == b'/').count() > limits.max_depth {
            let start: String = name.chars().take(40).collect();
            return Err(Error::failed(format!("its member `{start}…` is nested more than {} deep", limits.max_depth)));
        }
        member(&entry, &mut reader, root, &mut writer)?;
    }
    writer.finish().map(drop)
}

fn member<R: Read>(entry: &TarEntry, reader: &mut TarReader<R>, root: &Root, writer: &mut Writer<'_>) -> Result<()> {
    let name = inside(&entry.path)?;
    let meta = meta_of(entry)?;
    let Some(file_name) = name.file_name() else {
        // The archive's own root: the destination keeps its looks.
        return Ok(());
    };
    let real = place(root, &name, file_name)?;
    if let Some(parent) = real.parent() {
        writer.make_parents(parent)?;
    }
    make_way(root, &real, entry.kind == EntryKind::Directory)?;
    match entry.kind {
        EntryKind::Directory => writer.directory(None, &real, &meta),
        EntryKind::File => match &entry.sparse {
            None => writer.write(&mut reader.by_ref().take(entry.size), &real, &meta),
            Some(parts) => {
                let mut whole = Sparse { reader, parts, next: 0, at: 0, size: entry.size };
                writer.write(&mut whole, &real, &meta)
            }
        },
        EntryKind::Symlink => {
            let target = std::ffi::CString::new(entry.link.clone())
                .map_err(|e| Error::failed(format!("the link `{}` is damaged", name.display())).cause(e))?;
            writer.write_symlink(&target, &real, &meta)
        }
        EntryKind::HardLink => {
            let first = inside(&entry.link)?;
            let Some(first_name) = first.file_name() else {
                return Err(Error::failed(format!("`{}` is a hard link to a directory", name.display())));
            };
            let first = place(root, &first, first_name)?;
            writer.write_link(&first, &real)
        }
        EntryKind::Char | EntryKind::Block | EntryKind::Fifo => {
            let kind = match entry.kind {
                EntryKind::Char => FileType::CharacterDevice,
                EntryKind::Block => FileType::BlockDevice,
                _ => FileType::Fifo,
            };
            writer.write_node(kind, rustix::fs::makedev(entry.device.0, entry.device.1), &real, &meta)
        }
        EntryKind::Other(_) => Ok(()),
    }
}

/// Relative, without dots; one that climbs is refused.
fn inside(path: &[u8]) -> Result<PathBuf> {
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            std::path::Component::Normal(name) => out.push(name),
            std::path::Component::ParentDir => {
                return Err(Error::failed(format!("its member `{}` climbs out of it", path.display())));
            }
            _ => {}
        }
    }
    Ok(out)
}

/// Removes what a member cannot be written over.
fn make_way(root: &Root, real: &Path, directory: bool) -> Result<()> {
    let Some(stat) = stat(root, real)? else { return Ok(()) };
    match (kind_of(&stat), directory) {
        // The one stays, and the writer replaces the others.
        (FileType::Directory, true) => return Ok(()),
        (FileType::Directory, false) => {}
        (FileType::Symlink, true) => return Err(not_a_directory(root, real, &stat)),
        (_, true) => {}
        (_, false) => return Ok(()),
    }
    root.remove_all(real).map_err(|e| fs_error(format!("cannot replace `{}`", shown(real)), e))
}

/// Where a member goes: its directory with links followed, its own name as it is.
fn place(root: &Root, member: &Path, name: &std::ffi::OsStr) -> Result<PathBuf> {
    let parent = member.parent().unwrap_or(Path::new(""));
    let real = root
        .real_path(parent)
        .map_err(|e| fs_error(format!("cannot resolve `{}` in the image", parent.display()), e))?;
    Ok(real.join(name))
}

fn stat(root: &Root, real: &Path) -> Result<Option<rustix::fs::Stat>> {
    root.stat(real).map_err(|e| fs_error(format!("cannot look at `{}`", real.display()), e))
}

fn meta_of(entry: &TarEntry) -> Result<Meta> {
    let id = |id: u64| {
        u32::try_from(id).map_err(|_| {
            Error::failed(format!("`{}` has an owner that is too large", String::from_utf8_lossy(&entry.path)))
        })
    };
    let time = Timespec { tv_sec: entry.mtime, tv_nsec: entry.mtime_nanoseconds.into() };
    let xattrs = entry
        .xattrs
        .iter()
        .filter_map(|(name, value)| Some((std::ffi::CString::new(name.clone()).ok()?, value.clone())))
        .filter(|(name, _)| !name.to_bytes().starts_with(b"trusted.") && name.to_bytes() != b"security.selinux")
        .collect();
    Ok(Meta {
        owner: Owner { uid: id(entry.uid)?, gid: id(entry.gid)? },
        mode: entry.mode,
        times: Some(Timestamps { last_access: time, last_modification: time }),
        xattrs,
    })
}

/// A sparse file as a stream, with its holes as zeros.
struct Sparse<'a, R> {
    reader: &'a mut TarReader<R>,
    parts: &'a [(u64, u64)],
    next: usize,
    at: u64,
    size: u64,
}

impl<R: Read> Read for Sparse<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let (end, data) = match self.parts.get(self.next) {
                Some((offset, length)) if self.at >= *offset => (offset.saturating_add(*length), true),
                Some((offset, _)) => (*offset, false),
                None => (self.size, false),
            };
            let left = end.min(self.size).saturating_sub(self.at);
            if left == 0 {
                match data {
                    true => self.next += 1,
                    false => return Ok(0),
                }
                continue;
            }
            let want = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            let read = if data {
                self.reader.read(&mut buffer[..want])?
            } else {
                buffer[..want].fill(0);
                want
            };
            if data && read == 0 && want > 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.at += read as u64;
            return Ok(read);
        }
    }
}
