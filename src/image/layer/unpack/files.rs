//! One entry at its place: contents, hard links, owners and attributes.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, makedev};
use rustix::io::Errno;

use super::{Lost, Metadata, Parent, Purpose, Unpacker, components, refuse};
use crate::error::{Error, Result};
use crate::image::layer::is_private_xattr;
use crate::image::layer::read::TarEntry;
use crate::image::layer::stack::Found;
use crate::image::layer::standin::{self, Seen};
use crate::image::layer::sys::{self, OsContext, show};

impl Unpacker<'_> {
    pub(super) fn file(
        &mut self,
        entry: &TarEntry,
        parent: &OwnedFd,
        name: &[u8],
        contents: &mut impl Read,
    ) -> Result<()> {
        self.total = self.total.saturating_add(entry.size);
        if entry.size > self.limits.max_file_size || self.total > self.limits.max_total_size {
            return Err(refuse(entry, format!("it is too large ({} bytes, {} so far)", entry.size, self.total)));
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            rustix::fs::openat(parent, name, flags, Mode::RUSR | Mode::WUSR).os(self.into, || self.cannot(entry))?;
        let file = std::fs::File::from(file);
        match &entry.sparse {
            None => self.copy(entry, contents, &file, 0, entry.size)?,
            Some(parts) => {
                for (offset, length) in parts {
                    self.copy(entry, contents, &file, *offset, *length)?;
                }
            }
        }
        // It may end in a hole.
        file.set_len(entry.size).os(self.into, || self.cannot(entry))?;
        self.metadata(entry, parent.as_fd(), name, false)
    }

    fn copy(
        &mut self,
        entry: &TarEntry,
        from: &mut impl Read,
        to: &std::fs::File,
        mut offset: u64,
        mut length: u64,
    ) -> Result<()> {
        while length > 0 {
            self.cancel.check()?;
            let want = length.min(self.buffer.len() as u64) as usize;
            let n = match from.read(&mut self.buffer[..want]) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => {
                    return Err(Error::failed("the archive is damaged").cause(format!("{}: {e}", self.cannot(entry))));
                }
                Ok(0) => {
                    return Err(Error::failed("the archive is damaged")
                        .cause(format!("{}: it ends too soon", self.cannot(entry))));
                }
                Ok(n) => n,
            };
            // A hole: most tars of layers, ours too, have zeros in its place.
            if !self.buffer[..n].iter().all(|b| *b == 0) {
                to.write_all_at(&self.buffer[..n], offset).os(self.into, || self.cannot(entry))?;
                self.space.wrote(n as u64)?;
            }
            offset += n as u64;
            length -= n as u64;
        }
        Ok(())
    }

    /// Another name for a file of this layer, or for one below it, which then becomes part of this layer.
    pub(super) fn hard_link(&mut self, entry: &TarEntry, parent: &OwnedFd, name: &[u8], path: &[u8]) -> Result<()> {
        let names = components(&entry.link).ok_or_else(|| refuse(entry, "it links to a name that climbs out"))?;
        let Some((target, target_parents)) = names.split_last() else {
            return Err(refuse(entry, "it links to a name that is empty"));
        };
        let target_path = names.join(&b'/');
        let missing = || refuse(entry, format!("it links to `{}`, which is no file", show(&entry.link)));
        if target_path == path {
            return Err(refuse(entry, "it links to itself"));
        }
        let here = match self.existing(entry, target_parents)? {
            Some(dir) => sys::stat_at(&dir, target).os(self.into, || self.cannot(entry))?.map(|stat| (dir, stat)),
            None => None,
        };
        let dir = match here {
            Some((_, stat)) if sys::is_whiteout(&stat) || sys::file_type(&stat) == FileType::Directory => {
                return Err(missing());
            }
            Some((dir, _)) => dir,
            None => {
                let found = self.visible_below(&target_path)?.filter(|f| !f.is_dir()).ok_or_else(missing)?;
                let Parent::Dir(dir) = self.parent(entry, target_parents)? else { return Err(missing()) };
                self.copy_up(entry, &dir, target, &found)?;
                dir
            }
        };
        // The target may be inside of a directory that this entry replaces; then it is gone, and so is the link.
        if target_path.starts_with(&[path, b"/"].concat()) {
            return Err(missing());
        }
        self.replace(entry, parent, name, path)?;
        rustix::fs::linkat(&dir, *target, parent, name, AtFlags::empty()).os(self.into, || self.cannot(entry))
    }

    /// A directory of this layer, without making it.
    fn existing(&self, entry: &TarEntry, names: &[&[u8]]) -> Result<Option<Rc<OwnedFd>>> {
        let mut dir = self.root.clone();
        for name in names {
            dir = match sys::open_dir_path_at(&dir, name) {
                Ok(child) => Rc::new(child),
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
                Err(e) => return Err(e).os(self.into, || self.cannot(entry)),
            };
        }
        Ok(Some(dir))
    }

    /// Copies a file of the layers below into this one, as overlayfs does before it makes another name for it.
    fn copy_up(&mut self, entry: &TarEntry, dir: &OwnedFd, name: &[u8], found: &Found) -> Result<()> {
        let cannot = || self.cannot(entry);
        let stat = &found.stat;
        let xattrs = sys::xattrs(&found.path).os(&found.path, cannot)?;
        let seen = Seen::of(stat, xattrs);
        let kind = seen.kind;
        match kind {
            FileType::RegularFile => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let to = rustix::fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR).os(self.into, cannot)?;
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let from = rustix::fs::open(&found.path, flags, Mode::empty()).os(&found.path, cannot)?;
                let mut from = std::fs::File::from(from);
                io::copy(&mut from, &mut std::fs::File::from(to)).os(self.into, cannot)?;
            }
            FileType::Symlink => {
                let target = rustix::fs::readlink(&found.path, Vec::new()).os(&found.path, cannot)?;
                rustix::fs::symlinkat(target.as_c_str(), dir, name).os(self.into, cannot)?;
            }
            _ => {
                let device = makedev(seen.device.0, seen.device.1);
                standin::make_node(dir, name, kind, Mode::empty(), device).os(self.into, cannot)?;
            }
        }
        let metadata = Metadata {
            mode: stat.st_mode & 0o7777,
            uid: seen.uid,
            gid: seen.gid,
            mtime: (stat.st_mtime, stat.st_mtime_nsec as u32),
            xattrs: &seen.xattrs,
        };
        self.apply(entry, dir.as_fd(), name, &metadata, kind == FileType::Symlink)
    }

    pub(super) fn metadata(&self, entry: &TarEntry, parent: BorrowedFd<'_>, name: &[u8], link: bool) -> Result<()> {
        let owner = |id: u64, what: &str| {
            // The largest number means "no change" to chown.
            u32::try_from(id)
                .ok()
                .filter(|id| *id != u32::MAX)
                .ok_or_else(|| refuse(entry, format!("its {what} is {id}")))
        };
        let metadata = Metadata {
            mode: entry.mode,
            uid: owner(entry.uid, "owner")?,
            gid: owner(entry.gid, "group")?,
            mtime: (entry.mtime, entry.mtime_nanoseconds),
            xattrs: &entry.xattrs,
        };
        self.apply(entry, parent, name, &metadata, link)
    }

    /// The order matters: a change of owner takes setuid bits and capabilities away.
    pub(super) fn apply(
        &self,
        entry: &TarEntry,
        parent: BorrowedFd<'_>,
        name: &[u8],
        metadata: &Metadata<'_>,
        link: bool,
    ) -> Result<()> {
        let cannot = |what: &str| format!("cannot set the {what} of `{}`", show(&entry.path));
        let own = self.purpose == Purpose::OwnFiles;
        let mut mode = metadata.mode;
        if !own {
            standin::chown_at(parent, name, metadata.uid, metadata.gid).os(self.into, || cannot("owner"))?;
        } else if (metadata.uid, metadata.gid) != (0, 0) || mode & 0o6000 != 0 {
            // Set-user-ID bits speak of the owner, who is another one here.
            mode &= !0o6000;
            self.lost.update(|lost| Lost { owners: lost.owners + 1, ..lost });
        }
        if !link {
            rustix::fs::chmodat(parent, name, Mode::from_raw_mode(mode), AtFlags::empty())
                .os(self.into, || cannot("mode"))?;
        }
        if !metadata.xattrs.is_empty() {
            let place = sys::proc_path(parent, name);
            for (xattr, value) in metadata.xattrs.iter().filter(|(xattr, _)| !is_private_xattr(xattr)) {
                if xattr.contains(&0) {
                    return Err(refuse(entry, "the name of an attribute contains a NUL"));
                }
                if own && !xattr.starts_with(b"user.") {
                    self.lost.update(|lost| Lost { attributes: lost.attributes + 1, ..lost });
                    continue;
                }
                standin::set_xattr(&place, xattr, value)
                    .os(self.into, || cannot(&format!("attribute {}", show(xattr))))?;
            }
        }
        let times = sys::modified(metadata.mtime.0, metadata.mtime.1);
        rustix::fs::utimensat(parent, name, &times, AtFlags::SYMLINK_NOFOLLOW).os(self.into, || cannot("time"))
    }
}
