//! The files of an archive by name, whether it is a directory, a tar, or a compressed tar.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::error::{Context as _, Error, Result};
use crate::event::Cancel;
use crate::image::archive::{Cancellable, MAX_JSON, io_error};
use crate::image::layer::Limits;
use crate::image::layer::decompress::{Compression, decompress, detect};
use crate::image::layer::read::{EntryKind, TarReader};
use crate::image::space::{Guard, Guarded};
use crate::image::store::{Store, WorkDir};

/// Links to links end somewhere.
const MAX_LINKS: usize = 8;
/// Blobs and their directories; an index of them is kept in memory.
const MAX_ENTRIES: usize = 1 << 18;
/// Contents of a tar are padded to this.
const BLOCK: u64 = 512;

pub(super) enum Files {
    Directory(PathBuf),
    Tar(Tar),
}

pub(super) struct Tar {
    file: Arc<File>,
    entries: BTreeMap<String, Entry>,
    /// Where a compressed archive was unpacked to.
    _work: Option<WorkDir>,
}

enum Entry {
    File { start: u64, size: u64 },
    Link(String),
}

impl Files {
    pub(super) fn open(store: &Store, path: &Path, cancel: &Cancel) -> Result<Files> {
        let meta = std::fs::metadata(path).bad_input(|| "it cannot be opened".to_owned())?;
        if meta.is_dir() {
            return Ok(Files::Directory(path.to_path_buf()));
        }
        let file = File::open(path).bad_input(|| "it cannot be opened".to_owned())?;
        let (compression, _) = detect(&file).unusable(|| format!("{} cannot be read", path.display()))?;
        if compression != Compression::Plain {
            // Layers are read out of order: they have to be reachable by their place.
            let work = store.work_dir()?;
            let plain = work.path().join("archive.tar");
            let mut out = File::options()
                .read(true)
                .write(true)
                .create_new(true)
                .open(&plain)
                .unusable(|| format!("cannot create {}", plain.display()))?;
            (&file).rewind().unusable(|| format!("{} cannot be read", path.display()))?;
            let (_, from) = decompress(Cancellable { inner: file, cancel })?;
            let most = store.unpack_limits().max_total_size;
            let from = Guarded { inner: from, guard: Guard::new(work.path()).at_most(most) };
            let copied = io::copy(&mut BufReader::new(from), &mut out).and_then(|_| out.flush());
            copied.map_err(|e| io_error(cancel, format!("{} cannot be decompressed", path.display()), &e))?;
            return Ok(Files::Tar(Tar::index(out, Some(work), cancel)?));
        }
        Ok(Files::Tar(Tar::index(file, None, cancel)?))
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.open_file(name).is_ok()
    }

    /// A file and its size.
    pub(super) fn open_file(&self, name: &str) -> Result<(Box<dyn Read>, u64)> {
        match self {
            Files::Directory(root) => {
                let path = root.join(inside(name)?);
                // A FIFO would be waited for; `NONBLOCK` means nothing to a file.
                let nonblock = rustix::fs::OFlags::NONBLOCK.bits() as i32;
                let opened = File::options().read(true).custom_flags(nonblock).open(&path);
                let opened = opened.and_then(|file| Ok((file.metadata()?, file)));
                match opened {
                    Ok((meta, file)) if meta.is_file() => Ok((Box::new(file), meta.len())),
                    Ok(_) => Err(Error::bad_input(format!("{} is not a file", path.display()))),
                    Err(e) => Err(Error::bad_input(format!("{} cannot be opened", path.display())).cause(e)),
                }
            }
            Files::Tar(tar) => tar.open(name),
        }
    }

    /// A small file, whole.
    pub(super) fn read(&self, name: &str) -> Result<Vec<u8>> {
        let (file, size) = self.open_file(name)?;
        if size > MAX_JSON {
            return Err(Error::bad_input(format!("`{name}` is {size} bytes long, which cannot be right")));
        }
        let mut bytes = Vec::new();
        file.take(MAX_JSON).read_to_end(&mut bytes).unusable(|| format!("cannot read `{name}`"))?;
        Ok(bytes)
    }
}

impl Tar {
    fn index(file: File, work: Option<WorkDir>, cancel: &Cancel) -> Result<Tar> {
        let broken = |e: io::Error| io_error(cancel, "it is not a whole tar", &e);
        (&file).rewind().map_err(broken)?;
        let mut entries = BTreeMap::new();
        let mut archive = TarReader::new(BufReader::new(&file), Limits::default());
        let mut count = 0;
        while let Some(entry) = archive.next_entry().map_err(|e| e.context("it is not a whole tar"))? {
            cancel.check()?;
            count += 1;
            if count > MAX_ENTRIES {
                return Err(Error::bad_input(format!("it has more than {MAX_ENTRIES} files, which cannot be right")));
            }
            let start = archive.seek_past().map_err(broken)?;
            let Ok(name) = inside(&String::from_utf8_lossy(&entry.path)) else {
                continue;
            };
            let target = String::from_utf8_lossy(&entry.link).into_owned();
            let found = match entry.kind {
                EntryKind::Symlink => {
                    // Relative to where the link stands.
                    let dir = name.rfind('/').map_or("", |slash| &name[..slash]);
                    Entry::Link(if target.starts_with('/') { target } else { format!("{dir}/{target}") })
                }
                EntryKind::HardLink => Entry::Link(target),
                EntryKind::File if entry.sparse.is_none() => Entry::File { start, size: entry.size },
                _ => continue,
            };
            entries.insert(name, found);
        }
        Ok(Tar { file: Arc::new(file), entries, _work: work })
    }

    fn open(&self, name: &str) -> Result<(Box<dyn Read>, u64)> {
        let mut path = inside(name)?;
        for _ in 0..MAX_LINKS {
            match self.entries.get(&path) {
                Some(Entry::File { start, size }) => {
                    let part = Part { file: self.file.clone(), at: *start, left: *size };
                    return Ok((Box::new(BufReader::with_capacity(128 << 10, part)), *size));
                }
                Some(Entry::Link(to)) => path = inside(to)?,
                None => return Err(Error::bad_input(format!("there is no file `{name}` in it"))),
            }
        }
        Err(Error::bad_input(format!("the link `{name}` in it leads nowhere")))
    }
}

/// A file within the tar; several may be read at once.
struct Part {
    file: Arc<File>,
    at: u64,
    left: u64,
}

impl Read for Part {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let most = buf.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let n = self.file.read_at(&mut buf[..most], self.at)?;
        if n == 0 && most > 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the archive ends in the middle of a file"));
        }
        self.at += n as u64;
        self.left -= n as u64;
        Ok(n)
    }
}

/// The name without `.`, `..` and a leading slash; one that climbs out is refused.
fn inside(name: &str) -> Result<String> {
    let mut parts: Vec<&str> = Vec::new();
    for component in Path::new(name).components() {
        match component {
            Component::Normal(part) => parts.push(part.to_str().unwrap_or_default()),
            Component::ParentDir => {
                parts.pop().ok_or_else(|| Error::bad_input(format!("`{name}` leads out of the archive")))?;
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    Ok(parts.join("/"))
}

/// Writes a tar of plain files whose bytes depend on names and contents alone.
pub(super) struct TarWriter<'a, W: Write> {
    tar: tar::Builder<W>,
    cancel: &'a Cancel,
}

impl<'a, W: Write> TarWriter<'a, W> {
    pub(super) fn new(out: W, cancel: &'a Cancel) -> Self {
        TarWriter { tar: tar::Builder::new(out), cancel }
    }

    pub(super) fn directory(&mut self, name: &str) -> Result<()> {
        let mut header = header(tar::EntryType::Directory, 0o755, 0);
        self.tar.append_data(&mut header, name, io::empty()).unusable(|| format!("cannot write `{name}`"))
    }

    pub(super) fn file(&mut self, name: &str, size: u64, data: impl Read) -> Result<()> {
        let mut data = Cancellable { inner: data, cancel: self.cancel }.take(size.saturating_add(1));
        let mut header = header(tar::EntryType::Regular, 0o644, size);
        self.tar
            .append_data(&mut header, name, &mut data)
            .map_err(|e| io_error(self.cancel, format!("cannot write `{name}`"), &e))?;
        // The header has gone out with this size.
        if data.limit() != 1 {
            return Err(wrong_size(name, size));
        }
        Ok(())
    }

    /// A file whose content is written by `write`, which has to give exactly `size` bytes.
    pub(super) fn file_with(
        &mut self,
        name: &str,
        size: u64,
        write: impl FnOnce(&mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        let problem = || format!("cannot write `{name}`");
        let mut header = header(tar::EntryType::Regular, 0o644, size);
        header.set_path(name).unusable(problem)?;
        header.set_cksum();
        let out = self.tar.get_mut();
        out.write_all(header.as_bytes()).unusable(problem)?;
        let mut counted = Counted { out: &mut *out, left: size };
        write(&mut counted)?;
        if counted.left != 0 {
            return Err(wrong_size(name, size));
        }
        let padding = size.next_multiple_of(BLOCK) - size;
        out.write_all(&[0; BLOCK as usize][..padding as usize]).unusable(problem)
    }

    pub(super) fn finish(self) -> Result<W> {
        self.tar.into_inner().unusable(|| "cannot finish the tar".to_owned())
    }
}

fn wrong_size(name: &str, size: u64) -> Error {
    Error::unusable(format!("cannot write `{name}`")).cause(format!("it is not {size} bytes long"))
}

/// Lets through so many bytes and no more.
struct Counted<W> {
    out: W,
    left: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if buf.len() as u64 > self.left {
            return Err(io::Error::other("there is more content than was announced"));
        }
        let n = self.out.write(buf)?;
        self.left -= n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
    // GNU's form, for files of more than 8 GiB.
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    header
}

impl<R: Seek> Seek for Cancellable<'_, R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn links_are_followed_and_names_cleaned() {
        let mut builder = tar::Builder::new(tempfile::tempfile().unwrap());
        let mut put = |name: &str, kind: tar::EntryType, target: Option<&str>, data: &[u8]| {
            let mut h = header(kind, 0o644, data.len() as u64);
            match target {
                Some(target) => builder.append_link(&mut h, name, target).unwrap(),
                None => builder.append_data(&mut h, name, data).unwrap(),
            }
        };
        put("./a/layer.tar", tar::EntryType::Regular, None, b"old");
        put("./a/layer.tar", tar::EntryType::Regular, None, b"content");
        put("b/layer.tar", tar::EntryType::Symlink, Some("../a/layer.tar"), b"");
        put("c", tar::EntryType::Link, Some("b/layer.tar"), b"");
        put("loop", tar::EntryType::Symlink, Some("loop"), b"");
        put("out", tar::EntryType::Symlink, Some("../../etc/passwd"), b"");
        let mut file = builder.into_inner().unwrap();
        file.rewind().unwrap();
        let cancel = Cancel::new().unwrap();
        let files = Files::Tar(Tar::index(file, None, &cancel).unwrap());
        for name in ["a/layer.tar", "./b/layer.tar", "/c", "x/../c"] {
            assert_eq!(files.read(name).unwrap(), b"content", "{name}");
        }
        for name in ["loop", "out", "nothing", "../c"] {
            assert!(!files.contains(name), "{name}");
        }
    }

    #[test]
    fn a_file_that_is_not_as_long_as_said_is_an_error() {
        let cancel = Cancel::new().unwrap();
        for data in [&b"12"[..], b"1234"] {
            assert!(TarWriter::new(Vec::new(), &cancel).file("f", 3, data).is_err());
        }
        assert!(TarWriter::new(Vec::new(), &cancel).file("f", 3, &b"123"[..]).is_ok());
        let write = |data: &'static [u8]| {
            let mut tar = TarWriter::new(Vec::new(), &cancel);
            tar.file_with("f", 3, |out| out.write_all(data).unusable(String::new)).map(|()| tar.finish().unwrap())
        };
        assert!(write(b"12").is_err() && write(b"1234").is_err());
        let mut same = TarWriter::new(Vec::new(), &cancel);
        same.file("f", 3, &b"123"[..]).unwrap();
        assert_eq!(write(b"123").unwrap(), same.finish().unwrap());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&bytes).unwrap();
            file.rewind().unwrap();
            let _ = Tar::index(file, None, &Cancel::new().unwrap());
        }

        #[test]
        fn what_is_written_is_read(files in proptest::collection::btree_map("[a-z]{1,8}(/[a-z]{1,8})?", "\\PC{0,600}", 0..6)) {
            let cancel = Cancel::new().unwrap();
            let mut out = TarWriter::new(tempfile::tempfile().unwrap(), &cancel);
            for (name, data) in &files {
                out.file(name, data.len() as u64, data.as_bytes()).unwrap();
            }
            let mut file = out.finish().unwrap();
            file.rewind().unwrap();
            let read = Files::Tar(Tar::index(file, None, &cancel).unwrap());
            for (name, data) in &files {
                prop_assert_eq!(read.read(name).unwrap(), data.as_bytes());
            }
        }
    }
}
