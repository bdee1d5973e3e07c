//! An overlay's upper directory as a deterministic tar.
//!
//! The order is that of the names' bytes, deletions before the other entries of a directory, a directory before what
//! is in it. There is no entry for the root itself, as in Docker's layers. Files with several names within the layer
//! stay one file: the first name in order is the file, the others are hard links to it. Sockets are left out.
//!
//! overlayfs marks every directory that it makes in a merged parent as opaque, and knows deletions of what is deleted
//! further down as well. What such a mark means is decided against the layers below: a deletion is written only if
//! there is something to delete, an opaque marker only if there is something to hide.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use tar::EntryType;

use super::stack::{LayerStack, StackDir};
use super::standin::Seen;
use super::sys::{self, OsContext, show};
use super::write::{Entry, TarWriter};
use super::{Limits, OPAQUE_MARKER, WHITEOUT_PREFIX, opaque_xattr, overlay_prefix};
use crate::error::{Error, Result};
use crate::event::Cancel;

/// How an upper directory is read.
#[derive(Clone, Copy)]
pub struct Diff<'a> {
    /// What lies under the layer, to tell which marks mean something. None: all of them do (the directory was
    /// normalised before).
    pub below: Option<&'a LayerStack>,
    /// Later times become this one.
    pub source_date_epoch: Option<i64>,
    /// Changes the directory so that it is what its own tar would unpack to: times that the tar has, no marks that
    /// mean nothing, no sockets. The store keeps one directory for a layer however it came about.
    pub normalise: bool,
    pub limits: &'a Limits,
    pub cancel: Option<&'a Cancel>,
}

/// Writes the tar of `upper`; gives the number of entries.
pub fn write_layer<W: Write>(upper: &Path, out: W, diff: &Diff<'_>) -> Result<u64> {
    let root = sys::open_dir(upper).os(upper, || format!("cannot open `{}`", upper.display()))?;
    let below = match diff.below {
        None => Below::Unknown,
        Some(stack) => stack.root().map_or(Below::Nothing, Below::Dir),
    };
    let mut walker = Walker {
        emit: Emitter::new(out, upper, diff.source_date_epoch, diff.limits, diff.cancel),
        normalise: diff.normalise,
    };
    walker.directory(&root, &mut Vec::new(), &below, 0)?;
    walker.emit.finish()
}

/// What the layers below have where the walk is.
enum Below {
    /// Not to be asked: every mark is kept.
    Unknown,
    Nothing,
    Dir(StackDir),
}

struct Walker<'a, W: Write> {
    emit: Emitter<'a, W>,
    normalise: bool,
}

impl<W: Write> Walker<'_, W> {
    /// True when names in the directory were removed, which changes the directory's own time.
    fn directory(&mut self, dir: &OwnedFd, path: &mut Vec<u8>, below: &Below, depth: usize) -> Result<bool> {
        self.emit.check_depth(path, depth)?;
        let names = sys::names(dir).os(self.emit.root, || format!("cannot list `/{}`", show(path)))?;
        let mut rest = Vec::with_capacity(names.len());
        let mut touched = false;
        for name in names {
            let stat = self.emit.stat(dir, path, &name)?;
            if sys::is_whiteout(&stat) {
                touched |= self.whiteout(dir, path, &name, below)?;
            } else {
                rest.push((name, stat));
            }
        }
        for (name, stat) in rest {
            if name.starts_with(WHITEOUT_PREFIX) {
                let message = format!("`/{}{}` cannot be kept in a layer", show(path), show(&name));
                return Err(Error::failed(message).cause("names that begin with `.wh.` mark deletions in layers"));
            }
            match sys::file_type(&stat) {
                FileType::Directory => self.subdirectory(dir, path, &name, &stat, below, depth)?,
                FileType::Socket => {
                    if self.normalise {
                        self.remove(dir, path, &name)?;
                        touched = true;
                    }
                }
                _ => {
                    let first = self.emit.file(dir.as_fd(), path, &name, &stat)?;
                    if self.normalise && first {
                        self.normalise_time(dir.as_fd(), path, &name, &stat)?;
                    }
                }
            }
        }
        Ok(touched)
    }

    fn whiteout(&mut self, dir: &OwnedFd, path: &[u8], name: &[u8], below: &Below) -> Result<bool> {
        let needed = match below {
            Below::Unknown => true,
            Below::Nothing => false,
            Below::Dir(stack) => stack.lookup(name)?.is_some(),
        };
        if needed {
            self.emit.marker(&[path, WHITEOUT_PREFIX, name].concat())?;
        } else if self.normalise {
            self.remove(dir, path, name)?;
            return Ok(true);
        }
        Ok(false)
    }

    fn subdirectory(
        &mut self,
        dir: &OwnedFd,
        path: &mut Vec<u8>,
        name: &[u8],
        stat: &Stat,
        below: &Below,
        depth: usize,
    ) -> Result<()> {
        let child = sys::open_dir_at(dir, name).os(self.emit.root, || cannot_read(path, name))?;
        let place = sys::proc_path(dir.as_fd(), name);
        let xattrs = sys::xattrs(&place).os(self.emit.root, || cannot_read(path, name))?;
        let opaque = xattrs.get(opaque_xattr()).is_some_and(|v| v == b"y");
        refuse_redirects(&xattrs, path, name)?;
        let seen = Seen::of(stat, xattrs);

        let (marker, inner) = match below {
            Below::Unknown => (opaque, Below::Unknown),
            Below::Nothing => (false, Below::Nothing),
            Below::Dir(stack) => match stack.open(name)? {
                Some(lower) if opaque => (lower.has_visible()?, Below::Nothing),
                Some(lower) => (false, Below::Dir(lower)),
                None => (false, Below::Nothing),
            },
        };
        if opaque && !marker && self.normalise {
            match rustix::fs::lremovexattr(&place, opaque_xattr()) {
                Ok(()) | Err(Errno::NODATA) => {}
                Err(e) => return Err(e).os(self.emit.root, || cannot_change(path, name)),
            }
        }

        let length = path.len();
        path.extend_from_slice(name);
        path.push(b'/');
        self.emit.directory(path, stat, &seen)?;
        if marker {
            self.emit.marker(&[path.as_slice(), OPAQUE_MARKER].concat())?;
        }
        let touched = self.directory(&child, path, &inner, depth + 1)?;
        path.truncate(length);

        let mtime = self.emit.clamp(stat.st_mtime);
        if self.normalise && (touched || mtime != stat.st_mtime || stat.st_mtime_nsec != 0) {
            rustix::fs::futimens(&child, &sys::modified(mtime, 0)).os(self.emit.root, || cannot_change(path, name))?;
        }
        Ok(())
    }

    fn remove(&self, dir: &OwnedFd, path: &[u8], name: &[u8]) -> Result<()> {
        rustix::fs::unlinkat(dir, name, AtFlags::empty()).os(self.emit.root, || cannot_change(path, name))
    }

    fn normalise_time(&self, dir: BorrowedFd<'_>, path: &[u8], name: &[u8], stat: &Stat) -> Result<()> {
        let mtime = self.emit.clamp(stat.st_mtime);
        if mtime == stat.st_mtime && stat.st_mtime_nsec == 0 {
            return Ok(());
        }
        rustix::fs::utimensat(dir, name, &sys::modified(mtime, 0), AtFlags::SYMLINK_NOFOLLOW)
            .os(self.emit.root, || cannot_change(path, name))
    }
}

/// With these the directory says where its contents are instead of having them.
fn refuse_redirects(xattrs: &BTreeMap<Vec<u8>, Vec<u8>>, path: &[u8], name: &[u8]) -> Result<()> {
    for kind in ["redirect", "metacopy"] {
        let xattr = [overlay_prefix(), kind.as_bytes()].concat();
        if xattrs.contains_key(&xattr) {
            let message = format!("`/{}{}` is not whole in its layer", show(path), show(name));
            return Err(Error::failed(message)
                .cause(format!("it has the attribute {}", show(&xattr)))
                .hint("the overlay has to be mounted with redirect_dir=off and metacopy=off"));
        }
    }
    Ok(())
}

fn cannot_read(path: &[u8], name: &[u8]) -> String {
    format!("cannot read `/{}{}`", show(path), show(name))
}

fn cannot_change(path: &[u8], name: &[u8]) -> String {
    format!("cannot change `/{}{}`", show(path), show(name))
}

/// Files and directories to entries, for everything that walks a tree.
pub(super) struct Emitter<'a, W: Write> {
    tar: TarWriter<W>,
    /// For errors alone.
    pub(super) root: &'a Path,
    source_date_epoch: Option<i64>,
    limits: &'a Limits,
    cancel: Option<&'a Cancel>,
    /// First name of each file that has several.
    links: HashMap<(u64, u64), Vec<u8>>,
    total: u64,
    buffer: Vec<u8>,
}

impl<'a, W: Write> Emitter<'a, W> {
    pub(super) fn new(
        out: W,
        root: &'a Path,
        source_date_epoch: Option<i64>,
        limits: &'a Limits,
        cancel: Option<&'a Cancel>,
    ) -> Self {
        let tar = TarWriter::new(out);
        let links = HashMap::new();
        Emitter { tar, root, source_date_epoch, limits, cancel, links, total: 0, buffer: vec![0; 256 * 1024] }
    }

    pub(super) fn finish(self) -> Result<u64> {
        let entries = self.tar.entries();
        self.tar.finish().os(self.root, || "cannot write the layer".into())?;
        Ok(entries)
    }

    pub(super) fn clamp(&self, mtime: i64) -> i64 {
        self.source_date_epoch.map_or(mtime, |epoch| mtime.min(epoch))
    }

    pub(super) fn check_depth(&self, path: &[u8], depth: usize) -> Result<()> {
        super::check(self.cancel)?;
        if depth > self.limits.max_depth {
            let message = format!("directories are nested more than {} deep: `/{}`", self.limits.max_depth, show(path));
            return Err(Error::failed(message));
        }
        Ok(())
    }

    fn stat(&self, dir: &OwnedFd, path: &[u8], name: &[u8]) -> Result<Stat> {
        rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).os(self.root, || cannot_read(path, name))
    }

    fn write(&mut self, entry: &Entry<'_>) -> Result<()> {
        if self.tar.entries() >= self.limits.max_entries {
            return Err(Error::failed(format!("the layer has more than {} entries", self.limits.max_entries)));
        }
        self.tar.entry(entry).os(self.root, || format!("cannot write `/{}` into the layer", show(entry.path)))
    }

    /// A mark of a deletion: an empty file that says nothing but its name.
    pub(super) fn marker(&mut self, path: &[u8]) -> Result<()> {
        self.write(&Entry {
            path,
            kind: EntryType::Regular,
            mode: 0o600,
            uid: 0,
            gid: 0,
            mtime: 0,
            size: 0,
            link: b"",
            device: (0, 0),
            xattrs: &BTreeMap::new(),
        })
    }

    fn plain<'e>(&self, path: &'e [u8], kind: EntryType, stat: &Stat, seen: &'e Seen) -> Entry<'e> {
        Entry {
            path,
            kind,
            mode: stat.st_mode & 0o7777,
            uid: seen.uid,
            gid: seen.gid,
            mtime: self.clamp(stat.st_mtime),
            size: 0,
            link: b"",
            device: (0, 0),
            xattrs: &seen.xattrs,
        }
    }

    /// `path` ends in `/`.
    pub(super) fn directory(&mut self, path: &[u8], stat: &Stat, seen: &Seen) -> Result<()> {
        let entry = self.plain(path, EntryType::Directory, stat, seen);
        self.write(&entry)
    }

    /// Everything but directories and sockets; true when this is the first name of the file.
    pub(super) fn file(&mut self, dir: BorrowedFd<'_>, parent: &[u8], name: &[u8], stat: &Stat) -> Result<bool> {
        super::check(self.cancel)?;
        let path = [parent, name].concat();
        let place = sys::proc_path(dir, name);
        let xattrs = sys::xattrs(&place).os(self.root, || cannot_read(parent, name))?;
        refuse_redirects(&xattrs, parent, name)?;
        let mut seen = Seen::of(stat, xattrs);
        if stat.st_nlink > 1 {
            if let Some(first) = self.links.get(&(stat.st_dev, stat.st_ino)).cloned() {
                seen.xattrs.clear();
                let entry = Entry { link: &first, ..self.plain(&path, EntryType::Link, stat, &seen) };
                self.write(&entry)?;
                return Ok(false);
            }
            self.links.insert((stat.st_dev, stat.st_ino), path.clone());
        }
        let device = seen.device;
        match seen.kind {
            FileType::RegularFile => self.regular(dir, &path, name, stat, &seen)?,
            FileType::Symlink => {
                let target =
                    rustix::fs::readlinkat(dir, name, Vec::new()).os(self.root, || cannot_read(parent, name))?;
                let entry = Entry { link: target.as_bytes(), ..self.plain(&path, EntryType::Symlink, stat, &seen) };
                self.write(&entry)?;
            }
            FileType::Fifo => self.write(&self.plain(&path, EntryType::Fifo, stat, &seen))?,
            FileType::CharacterDevice => {
                self.write(&Entry { device, ..self.plain(&path, EntryType::Char, stat, &seen) })?;
            }
            FileType::BlockDevice => {
                self.write(&Entry { device, ..self.plain(&path, EntryType::Block, stat, &seen) })?;
            }
            _ => return Err(Error::failed(cannot_read(parent, name)).cause("it is of a type that tar does not know")),
        }
        Ok(true)
    }

    fn regular(&mut self, dir: BorrowedFd<'_>, path: &[u8], name: &[u8], stat: &Stat, seen: &Seen) -> Result<()> {
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        self.total = self.total.saturating_add(size);
        for (size, limit, what) in [
            (size, self.limits.max_file_size, "is larger than a layer may hold"),
            (self.total, self.limits.max_total_size, "makes the layer larger than it may be"),
        ] {
            if size > limit {
                let cause = format!("{size} bytes, the limit is {limit}");
                return Err(Error::failed(format!("`/{}` {what}", show(path))).cause(cause).hint(
                    "a sparse file counts with its full size in an image: remove it, or truncate it, in the same step",
                ));
            }
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(dir, name, flags, Mode::empty())
            .os(self.root, || format!("cannot read `/{}`", show(path)))?;
        let entry = Entry { size, ..self.plain(path, EntryType::Regular, stat, seen) };
        self.write(&entry)?;
        let allocated = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
        if allocated < size {
            return self.sparse(&file, path, size);
        }
        self.range(&file, path, 0, size)
    }

    /// Holes are not read: only what has data in it.
    fn sparse(&mut self, file: &OwnedFd, path: &[u8], size: u64) -> Result<()> {
        let mut position = 0;
        while position < size {
            let data = match rustix::fs::seek(file, SeekFrom::Data(position)) {
                Ok(data) => data.min(size),
                Err(Errno::NXIO) => size,
                // The file system knows no holes.
                Err(Errno::INVAL) => return self.range(file, path, position, size),
                Err(e) => return Err(e).os(self.root, || format!("cannot read `/{}`", show(path))),
            };
            let mut hole = data - position;
            while hole > 0 {
                super::check(self.cancel)?;
                let n = hole.min(64 << 20);
                self.tar.zeros(n).os(self.root, || "cannot write the layer".into())?;
                hole -= n;
            }
            if data == size {
                break;
            }
            let end = rustix::fs::seek(file, SeekFrom::Hole(data))
                .os(self.root, || format!("cannot read `/{}`", show(path)))?;
            position = end.min(size);
            self.range(file, path, data, position)?;
        }
        Ok(())
    }

    fn range(&mut self, file: &OwnedFd, path: &[u8], from: u64, to: u64) -> Result<()> {
        let mut position = from;
        while position < to {
            super::check(self.cancel)?;
            let want = (to - position).min(self.buffer.len() as u64) as usize;
            let n = match rustix::io::pread(file, &mut self.buffer[..want], position) {
                Err(Errno::INTR) => continue,
                other => other.os(self.root, || format!("cannot read `/{}`", show(path)))?,
            };
            if n == 0 {
                return Err(Error::failed(format!("`/{}` became shorter while it was read", show(path))));
            }
            self.tar.data(&self.buffer[..n]).os(self.root, || "cannot write the layer".into())?;
            position += n as u64;
        }
        Ok(())
    }
}
