//! A layer's tar as an overlay's lower directory.
//!
//! The tar comes from anywhere, so nothing in it is believed: every entry is reached by walking from the directory
//! that is unpacked into, one component after the other and never through a link; names with `..` are refused, a
//! leading slash is dropped (as Docker does), and what a layer may hold is limited. A layer's deletions mean what is
//! below and never what the layer itself brings, in whatever order the entries come. Of entries with the same name
//! the last one wins.
//!
//! Attributes of overlayfs are never taken from a tar: with them a layer could point at files outside of itself.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{AtFlags, FileType, Mode, makedev};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::event::Cancel;
use crate::image::digest::Digest;
use crate::image::layer::hash::HashReader;
use crate::image::layer::read::{EntryKind, TarEntry, TarReader};
use crate::image::layer::stack::{Found, LayerStack};
use crate::image::layer::standin::{self, Seen};
use crate::image::layer::sys::{self, OsContext, show};
use crate::image::layer::{AUFS_PREFIX, Limits, OPAQUE_MARKER, WHITEOUT_PREFIX, decompress};
use crate::image::space::Guard;

mod files;

/// What was unpacked: digest and size of the uncompressed stream, and the number of entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpacked {
    pub diff_id: Digest,
    pub size: u64,
    pub entries: u64,
    pub compression: decompress::Compression,
    /// Whether the tar leaves something to the layers below: the looks of parent directories that it has no entries
    /// for, what a hard link names, what an opaque root hides. Over other layers it unpacks to something else then.
    pub borrows: bool,
    pub lost: Lost,
}

/// What could not be kept of files that all belong to whoever unpacked them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Files that are somebody else's in the tar.
    pub owners: u64,
    pub devices: u64,
    /// Capabilities, and other attributes that only root can set.
    pub attributes: u64,
}

/// What an archive is unpacked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// A directory for overlayfs.
    Layer,
    /// The files as they are.
    Files,
    /// The files, all of them those of the user who unpacks.
    OwnFiles,
}

/// Unpacks a layer (any compression) into `into`, an empty directory. `below` is what lies under it: parents that the
/// tar leaves out take their metadata from there, and hard links may name its files.
pub fn unpack_layer(
    tar: &mut dyn Read,
    into: &Path,
    below: &LayerStack,
    expected: Option<&Digest>,
    limits: &Limits,
    cancel: &Cancel,
) -> Result<Unpacked> {
    run(tar, into, below, expected, Purpose::Layer, limits, cancel)
}

/// Unpacks an ordinary tar (any compression) into a directory: names that mark deletions in layers mean nothing here.
/// Nothing is written outside of `into` or through links in it.
pub fn unpack_plain(tar: &mut dyn Read, into: &Path, limits: &Limits, cancel: &Cancel) -> Result<Unpacked> {
    run(tar, into, &LayerStack::default(), None, Purpose::Files, limits, cancel)
}

/// The same for a user who wants to have the files: they belong to this process's user whatever the tar says, no
/// device is made, and no program makes anybody its owner.
pub fn unpack_own(tar: &mut dyn Read, into: &Path, limits: &Limits, cancel: &Cancel) -> Result<Unpacked> {
    run(tar, into, &LayerStack::default(), None, Purpose::OwnFiles, limits, cancel)
}

fn run(
    tar: &mut dyn Read,
    into: &Path,
    below: &LayerStack,
    expected: Option<&Digest>,
    purpose: Purpose,
    limits: &Limits,
    cancel: &Cancel,
) -> Result<Unpacked> {
    let root = sys::open_dir(into).os(into, || format!("cannot open `{}`", into.display()))?;
    let (compression, stream) = decompress::decompress(tar)?;
    let mut reader = TarReader::new(HashReader::new(stream), limits.clone());
    let mut unpacker = Unpacker {
        into,
        root: Rc::new(root),
        below,
        purpose,
        lost: Cell::default(),
        left_out: BTreeSet::new(),
        limits,
        cancel,
        dirs: BTreeMap::new(),
        opaque: BTreeSet::new(),
        last_parent: None,
        borrows: false,
        entries: 0,
        total: 0,
        buffer: vec![0; 256 * 1024],
        space: Guard::new(into),
    };
    if purpose == Purpose::Layer {
        // Unless the tar says something about the root, it is as old as the one below.
        let below = below.root().map(|root| root.metadata()).transpose()?;
        unpacker.dirs.insert(Vec::new(), below.map_or((0, 0), |b| (b.stat.st_mtime, b.stat.st_mtime_nsec as u32)));
    }
    while let Some(entry) = reader.next_entry()? {
        cancel.check()?;
        unpacker.entry(&entry, &mut reader)?;
    }
    unpacker.finish()?;
    let (entries, borrows, lost) = (unpacker.entries, unpacker.borrows, unpacker.lost.get());
    // What follows the archive's end belongs to the digest too.
    let mut hash = reader.into_inner();
    let mut rest = [0u8; 64 * 1024];
    let mut trailing = 0;
    loop {
        cancel.check()?;
        match hash.read(&mut rest) {
            Ok(0) => break,
            Ok(n) => trailing += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Error::failed("the archive is damaged").cause(e)),
        }
        if trailing > MAX_TRAILING {
            let cause = format!("more than {} MB follow its end", MAX_TRAILING >> 20);
            return Err(Error::failed("the archive is damaged").cause(cause));
        }
    }
    let (diff_id, size, _) = hash.finish();
    if let Some(expected) = expected.filter(|e| **e != diff_id) {
        return Err(Error::failed("the layer is not the one that was asked for")
            .cause(format!("its digest is {diff_id}, and not {expected}")));
    }
    Ok(Unpacked { diff_id, size, entries, compression, borrows, lost })
}

struct Unpacker<'a> {
    into: &'a Path,
    root: Rc<OwnedFd>,
    below: &'a LayerStack,
    purpose: Purpose,
    lost: Cell<Lost>,
    /// Devices that a user's own files are without.
    left_out: BTreeSet<Vec<u8>>,
    limits: &'a Limits,
    cancel: &'a Cancel,
    /// Times of directories, set when nothing is written to them any more. Paths have no slash at either end.
    dirs: BTreeMap<Vec<u8>, (i64, u32)>,
    /// Directories in which nothing of the layers below shows.
    opaque: BTreeSet<Vec<u8>>,
    last_parent: Option<(Vec<u8>, Rc<OwnedFd>)>,
    borrows: bool,
    entries: u64,
    total: u64,
    buffer: Vec<u8>,
    space: Guard,
}

/// Who owns a file, and what else is said about it.
struct Metadata<'e> {
    mode: u32,
    uid: u32,
    gid: u32,
    mtime: (i64, u32),
    xattrs: &'e BTreeMap<Vec<u8>, Vec<u8>>,
}

/// What was found where a parent directory should be.
enum Parent {
    Dir(Rc<OwnedFd>),
    /// Of this layer, and no directory: the path up to it.
    Blocked(Vec<u8>),
}

/// Writers fill up a record, which is some kilobytes long.
const MAX_TRAILING: usize = 64 << 20;
/// The least that a file takes on most file systems.
const BLOCK: u64 = 4096;

fn refuse(entry: &TarEntry, why: impl std::fmt::Display) -> Error {
    Error::failed(format!("entry `{}` of the layer is refused", show(&entry.path))).cause(why)
}

/// The components of a name in a tar, relative to the root; None when one of them climbs.
fn components(path: &[u8]) -> Option<Vec<&[u8]>> {
    let mut names = Vec::new();
    for name in path.split(|b| *b == b'/') {
        match name {
            b"" | b"." => {}
            b".." => return None,
            name => names.push(name),
        }
    }
    Some(names)
}

impl Unpacker<'_> {
    fn entry(&mut self, entry: &TarEntry, contents: &mut impl Read) -> Result<()> {
        self.entries += 1;
        if self.entries > self.limits.max_entries {
            return Err(refuse(entry, format!("the layer has more than {} entries", self.limits.max_entries)));
        }
        // Names and attributes take their part of a disk, too.
        self.space.wrote(BLOCK)?;
        if entry.path.contains(&0) || entry.link.contains(&0) {
            return Err(refuse(entry, "its name contains a NUL"));
        }
        let names = components(&entry.path).ok_or_else(|| refuse(entry, "its name climbs out with `..`"))?;
        if names.len() > self.limits.max_depth {
            return Err(refuse(entry, format!("it is nested more than {} deep", self.limits.max_depth)));
        }
        let Some((name, parents)) = names.split_last() else { return self.root_entry(entry) };
        if self.purpose == Purpose::Layer {
            if parents.iter().any(|p| p.starts_with(WHITEOUT_PREFIX)) {
                return Err(refuse(entry, "it is in a directory whose name marks a deletion"));
            }
            if name.starts_with(WHITEOUT_PREFIX) {
                return self.marker(entry, name, parents);
            }
        }
        let parent = match self.parent(entry, parents)? {
            Parent::Dir(dir) => dir,
            Parent::Blocked(by) => {
                return Err(refuse(entry, format!("`{}`, which is no directory, is in its way", show(&by))));
            }
        };
        let path = names.join(&b'/');
        if self.purpose == Purpose::OwnFiles && self.leaves_out(entry, &path) {
            return self.replace(entry, &parent, name, &path);
        }
        match entry.kind {
            EntryKind::Directory => self.directory(entry, &parent, name, path),
            EntryKind::File => {
                self.replace(entry, &parent, name, &path)?;
                self.file(entry, &parent, name, contents)
            }
            EntryKind::HardLink => self.hard_link(entry, &parent, name, &path),
            EntryKind::Symlink => {
                self.replace(entry, &parent, name, &path)?;
                rustix::fs::symlinkat(entry.link.as_slice(), &parent, *name).os(self.into, || self.cannot(entry))?;
                self.metadata(entry, parent.as_fd(), name, true)
            }
            EntryKind::Fifo | EntryKind::Char | EntryKind::Block => {
                self.replace(entry, &parent, name, &path)?;
                let (kind, device) = match entry.kind {
                    EntryKind::Fifo => (FileType::Fifo, 0),
                    EntryKind::Char => (FileType::CharacterDevice, makedev(entry.device.0, entry.device.1)),
                    _ => (FileType::BlockDevice, makedev(entry.device.0, entry.device.1)),
                };
                standin::make_node(&parent, name, kind, Mode::empty(), device).os(self.into, || self.cannot(entry))?;
                self.metadata(entry, parent.as_fd(), name, false)
            }
            EntryKind::Other(letter) => Err(refuse(entry, format!("it is of the unknown type `{}`", show(&[letter])))),
        }
    }

    /// A device, or another name of one.
    fn leaves_out(&mut self, entry: &TarEntry, path: &[u8]) -> bool {
        let left_out = match entry.kind {
            EntryKind::Char | EntryKind::Block => true,
            EntryKind::HardLink => {
                components(&entry.link).is_some_and(|names| self.left_out.contains(&names.join(&b'/')))
            }
            _ => false,
        };
        if left_out {
            self.left_out.insert(path.to_vec());
            self.lost.update(|lost| Lost { devices: lost.devices + 1, ..lost });
        } else {
            self.left_out.remove(path);
        }
        left_out
    }

    fn cannot(&self, entry: &TarEntry) -> String {
        format!("cannot unpack `{}`", show(&entry.path))
    }

    /// `./`: what is said about the root itself.
    fn root_entry(&mut self, entry: &TarEntry) -> Result<()> {
        if entry.kind != EntryKind::Directory {
            return Err(refuse(entry, "it has no name"));
        }
        let parent = self.root.clone();
        self.metadata(entry, parent.as_fd(), b".", false)?;
        self.dirs.insert(Vec::new(), (entry.mtime, entry.mtime_nanoseconds));
        Ok(())
    }

    /// The directory that an entry goes into. Missing ones are made: as the layers below have them, else as root's.
    fn parent(&mut self, entry: &TarEntry, names: &[&[u8]]) -> Result<Parent> {
        let path = names.join(&b'/');
        if let Some((last, dir)) = &self.last_parent
            && *last == path
        {
            return Ok(Parent::Dir(dir.clone()));
        }
        let mut dir = self.root.clone();
        for (depth, name) in names.iter().enumerate() {
            let child = match sys::open_dir_path_at(&dir, name) {
                Ok(child) => child,
                Err(Errno::NOENT) => {
                    self.implicit(entry, &dir, name, &names[..=depth], false)?;
                    sys::open_dir_path_at(&dir, name).os(self.into, || self.cannot(entry))?
                }
                Err(Errno::NOTDIR | Errno::LOOP) => {
                    let stat = sys::stat_at(&dir, name).os(self.into, || self.cannot(entry))?;
                    if !stat.is_some_and(|s| sys::is_whiteout(&s)) {
                        return Ok(Parent::Blocked(names[..=depth].join(&b'/')));
                    }
                    // Deleted, and made anew: nothing of the old one shows.
                    rustix::fs::unlinkat(&dir, *name, AtFlags::empty()).os(self.into, || self.cannot(entry))?;
                    self.implicit(entry, &dir, name, &names[..=depth], true)?;
                    sys::open_dir_path_at(&dir, name).os(self.into, || self.cannot(entry))?
                }
                Err(e) => return Err(e).os(self.into, || self.cannot(entry)),
            };
            dir = Rc::new(child);
        }
        self.last_parent = Some((path, dir.clone()));
        Ok(Parent::Dir(dir))
    }

    fn implicit(&mut self, entry: &TarEntry, dir: &OwnedFd, name: &[u8], names: &[&[u8]], opaque: bool) -> Result<()> {
        rustix::fs::mkdirat(dir, name, Mode::RWXU).os(self.into, || self.cannot(entry))?;
        let path = names.join(&b'/');
        let model = if opaque { None } else { self.visible_below(&path)?.filter(Found::is_dir) };
        match model {
            Some(model) => {
                let xattrs = sys::xattrs(&model.path).os(&model.path, || self.cannot(entry))?;
                let mtime = (model.stat.st_mtime, model.stat.st_mtime_nsec as u32);
                let (seen, mode) = (Seen::of(&model.stat, xattrs), model.stat.st_mode & 0o7777);
                let metadata = Metadata { mode, uid: seen.uid, gid: seen.gid, mtime, xattrs: &seen.xattrs };
                self.apply(entry, dir.as_fd(), name, &metadata, false)?;
                self.dirs.insert(path, mtime);
            }
            None => {
                let metadata = Metadata { mode: 0o755, uid: 0, gid: 0, mtime: (0, 0), xattrs: &BTreeMap::new() };
                self.apply(entry, dir.as_fd(), name, &metadata, false)?;
                if opaque {
                    self.set_opaque(entry, dir.as_fd(), name, path.clone())?;
                }
                self.dirs.insert(path, (0, 0));
            }
        }
        Ok(())
    }

    /// What the layers below show at this path, unless this layer hides it with an opaque directory.
    fn visible_below(&mut self, path: &[u8]) -> Result<Option<Found>> {
        let hidden = path.iter().enumerate().any(|(i, b)| *b == b'/' && self.opaque.contains(&path[..i]));
        if hidden || self.opaque.contains(&b""[..]) {
            return Ok(None);
        }
        // That there is nothing is an answer too.
        self.borrows = true;
        self.below.lookup(Path::new(sys::os(path)))
    }

    fn set_opaque(&mut self, entry: &TarEntry, parent: BorrowedFd<'_>, name: &[u8], path: Vec<u8>) -> Result<()> {
        sys::mark_opaque(&sys::proc_path(parent, name)).os(self.into, || self.cannot(entry))?;
        self.opaque.insert(path);
        Ok(())
    }

    /// Deletions, opaque markers, and AUFS's own records.
    fn marker(&mut self, entry: &TarEntry, name: &[u8], parents: &[&[u8]]) -> Result<()> {
        if name != OPAQUE_MARKER && name.starts_with(AUFS_PREFIX) {
            return Ok(());
        }
        let Some((last, above)) = parents.split_last().filter(|_| name == OPAQUE_MARKER) else {
            if name == OPAQUE_MARKER {
                self.borrows = true;
                self.opaque.insert(Vec::new());
                return Ok(());
            }
            return self.whiteout(entry, &name[WHITEOUT_PREFIX.len()..], parents);
        };
        // Makes the directory when the tar has no entry for it; below something else there is nothing to hide.
        if let Parent::Dir(_) = self.parent(entry, parents)?
            && let Parent::Dir(dir) = self.parent(entry, above)?
        {
            self.set_opaque(entry, dir.as_fd(), last, parents.join(&b'/'))?;
        }
        Ok(())
    }

    fn whiteout(&mut self, entry: &TarEntry, target: &[u8], parents: &[&[u8]]) -> Result<()> {
        if matches!(target, b"" | b"." | b"..") {
            return Err(refuse(entry, "it deletes something that has no name"));
        }
        // In this layer the parent is no directory: nothing of the layers below shows there anyway.
        let Parent::Dir(dir) = self.parent(entry, parents)? else { return Ok(()) };
        match sys::stat_at(&dir, target).os(self.into, || self.cannot(entry))? {
            None => {
                rustix::fs::mknodat(&dir, target, FileType::CharacterDevice, Mode::empty(), 0)
                    .os(self.into, || self.cannot(entry))?;
                rustix::fs::utimensat(&dir, target, &sys::modified(0, 0), AtFlags::SYMLINK_NOFOLLOW)
                    .os(self.into, || self.cannot(entry))
            }
            // Came with this layer: only what is below it is deleted.
            Some(stat) if sys::file_type(&stat) == FileType::Directory => {
                let path = [parents, &[target]].concat().join(&b'/');
                self.set_opaque(entry, dir.as_fd(), target, path)
            }
            Some(_) => Ok(()),
        }
    }

    /// Makes room for an entry that is no directory.
    fn replace(&mut self, entry: &TarEntry, parent: &OwnedFd, name: &[u8], path: &[u8]) -> Result<()> {
        match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(e) => return Err(e).os(self.into, || self.cannot(entry)),
        }
        sys::remove_tree_at(parent.as_fd(), name).os(self.into, || self.cannot(entry))?;
        let inside = [path, b"/"].concat();
        self.dirs.retain(|p, _| p != path && !p.starts_with(&inside));
        self.opaque.retain(|p| p != path && !p.starts_with(&inside));
        self.last_parent = None;
        Ok(())
    }

    fn directory(&mut self, entry: &TarEntry, parent: &OwnedFd, name: &[u8], path: Vec<u8>) -> Result<()> {
        let mut opaque = false;
        match sys::stat_at(parent, name).os(self.into, || self.cannot(entry))? {
            Some(stat) if sys::file_type(&stat) == FileType::Directory => {}
            found => {
                if let Some(stat) = found {
                    opaque = sys::is_whiteout(&stat);
                    self.replace(entry, parent, name, &path)?;
                }
                rustix::fs::mkdirat(parent, name, Mode::RWXU).os(self.into, || self.cannot(entry))?;
            }
        }
        self.metadata(entry, parent.as_fd(), name, false)?;
        if opaque {
            self.set_opaque(entry, parent.as_fd(), name, path.clone())?;
        }
        self.dirs.insert(path, (entry.mtime, entry.mtime_nanoseconds));
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        if self.opaque.contains(&b""[..]) {
            self.opaque_root()?;
        }
        for (path, (seconds, nanoseconds)) in std::mem::take(&mut self.dirs) {
            let cannot = || format!("cannot set the time of `{}`", show(&path));
            let names: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|n| !n.is_empty()).collect();
            let mut dir = self.root.clone();
            for name in names.iter().take(names.len().saturating_sub(1)) {
                dir = Rc::new(sys::open_dir_path_at(&dir, name).os(self.into, cannot)?);
            }
            let name = names.last().copied().unwrap_or(b".");
            rustix::fs::utimensat(&dir, name, &sys::modified(seconds, nanoseconds), AtFlags::SYMLINK_NOFOLLOW)
                .os(self.into, cannot)?;
        }
        Ok(())
    }

    /// overlayfs merges the roots of layers whatever they are marked with, so each name is hidden for itself.
    fn opaque_root(&mut self) -> Result<()> {
        let cannot = || "cannot hide what is below the layer".to_owned();
        let Some(below) = self.below.root() else { return Ok(()) };
        for name in below.entries()?.into_keys() {
            match sys::stat_at(&self.root, &name).os(self.into, cannot)? {
                None => {
                    rustix::fs::mknodat(&self.root, name.as_slice(), FileType::CharacterDevice, Mode::empty(), 0)
                        .os(self.into, cannot)?;
                }
                Some(stat) if sys::file_type(&stat) == FileType::Directory => {
                    sys::mark_opaque(&self.into.join(std::ffi::OsStr::from_bytes(&name))).os(self.into, cannot)?;
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}
