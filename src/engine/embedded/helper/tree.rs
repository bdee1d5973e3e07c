//! Puts files into a mounted root: data, owners, modes, times, attributes and hard links.

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, SeekFrom, Stat, Timestamps, XattrFlags};
use rustix::io::Errno;

use super::inroot::{Made, Owner, Root, chown, kind_of, proc_path, set_times, times_of};
use super::mode::ModeChange;
use crate::engine::embedded::fs_error;
use crate::error::{Error, Result};
use crate::image::layer::standin;

/// Owners and modes that an instruction gives, and what has been written so far.
pub struct Writer<'a> {
    dest: &'a Root,
    /// None: as the source has it.
    owner: Option<Owner>,
    /// None: as the source has it.
    mode: Option<ModeChange>,
    keep_xattrs: bool,
    /// Where each file with several names was put first, by its device and inode.
    links: HashMap<(u64, u64), PathBuf>,
    /// Directories get their times when everything is in them.
    times: Vec<(PathBuf, Timestamps)>,
    changed: bool,
}

impl<'a> Writer<'a> {
    pub fn new(dest: &'a Root, owner: Option<Owner>, mode: Option<ModeChange>, keep_xattrs: bool) -> Self {
        Writer { dest, owner, mode, keep_xattrs, links: HashMap::new(), times: Vec::new(), changed: false }
    }

    /// Directories that an instruction needs and nobody described.
    pub fn make_parents(&mut self, real: &Path) -> Result<OwnedFd> {
        let mut made = Vec::<Made>::new();
        let owner = self.owner.unwrap_or(Owner { uid: 0, gid: 0 });
        let mode = self.mode.as_ref().and_then(ModeChange::fixed).unwrap_or(0o755);
        let dir = self.dest.make_dirs(real, owner, mode, &mut made).map_err(|e| match Errno::from_io_error(&e) {
            Some(Errno::NOTDIR | Errno::LOOP) => {
                Error::failed(format!("`{}` in the image is not a directory", shown(real)))
            }
            _ => fs_error(format!("cannot make the directory `{}`", shown(real)), e),
        })?;
        self.changed |= !made.is_empty();
        Ok(dir)
    }

    /// Copies one thing that is not a directory to a real path, replacing what is no directory there.
    pub fn copy(&mut self, source: &OwnedFd, stat: &Stat, real: &Path) -> Result<()> {
        let (parent, name) = self.place(real)?;
        let failed = |e: io::Error| fs_error(format!("cannot write `{}`", shown(real)), e);
        match kind_of(stat) {
            FileType::RegularFile => {
                let identity = (stat.st_dev, stat.st_ino);
                if stat.st_nlink > 1
                    && let Some(first) = self.links.get(&identity)
                {
                    rustix::fs::linkat(self.dest.fd(), first, &parent, name, AtFlags::empty())
                        .map_err(|e| failed(e.into()))?;
                    return Ok(());
                }
                let input = File::open(proc_path(source.as_fd())).map_err(failed)?;
                let output = create(&parent, name).map_err(failed)?;
                copy_data(&input, &output, stat).map_err(failed)?;
                self.describe(output.as_fd(), source, stat).map_err(failed)?;
                if stat.st_nlink > 1 {
                    self.links.insert(identity, real.to_path_buf());
                }
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(source, "", Vec::new()).map_err(|e| failed(e.into()))?;
                let owner = self.owner_of(source, stat).map_err(failed)?;
                self.symlink(&parent, name, &target, owner, Some(&times_of(stat))).map_err(failed)?;
            }
            kind @ (FileType::CharacterDevice | FileType::BlockDevice | FileType::Fifo) => {
                let mode = Mode::from_raw_mode(stat.st_mode);
                standin::make_node(&parent, name.as_bytes(), kind, mode, stat.st_rdev).map_err(|e| failed(e.into()))?;
                let node = open_path(&parent, name).map_err(failed)?;
                self.describe(node.as_fd(), source, stat).map_err(failed)?;
            }
            // A socket means nothing without the process that listens at it.
            _ => {}
        }
        Ok(())
    }

    /// Writes a file that comes from nowhere on a disk.
    pub fn write(&mut self, content: &mut dyn io::Read, real: &Path, meta: &Meta) -> Result<()> {
        let (parent, name) = self.place(real)?;
        let failed = |e: io::Error| fs_error(format!("cannot write `{}`", shown(real)), e);
        let mut output = create(&parent, name).map_err(failed)?;
        io::copy(content, &mut output).map_err(failed)?;
        self.apply(output.as_fd(), meta, false).map_err(failed)
    }

    pub fn write_symlink(&mut self, target: &std::ffi::CStr, real: &Path, meta: &Meta) -> Result<()> {
        let (parent, name) = self.place(real)?;
        let owner = self.owner.unwrap_or(meta.owner);
        self.symlink(&parent, name, target, owner, meta.times.as_ref())
            .map_err(|e| fs_error(format!("cannot write `{}`", shown(real)), e))
    }

    pub fn write_node(&mut self, kind: FileType, device: u64, real: &Path, meta: &Meta) -> Result<()> {
        let (parent, name) = self.place(real)?;
        let failed = |e: io::Error| fs_error(format!("cannot write `{}`", shown(real)), e);
        standin::make_node(&parent, name.as_bytes(), kind, Mode::from_raw_mode(meta.mode), device)
            .map_err(|e| failed(e.into()))?;
        let node = open_path(&parent, name).map_err(failed)?;
        self.apply(node.as_fd(), meta, false).map_err(failed)
    }

    /// Another name for a file that is there already.
    pub fn write_link(&mut self, first: &Path, real: &Path) -> Result<()> {
        let (parent, name) = self.place(real)?;
        rustix::fs::linkat(self.dest.fd(), first, &parent, name, AtFlags::empty())
            .map_err(|e| fs_error(format!("cannot link `{}` to `{}`", shown(real), shown(first)), e.into()))
    }

    /// Makes a directory, or takes the one that is there; either looks like its source then.
    pub fn directory(&mut self, source: Option<&OwnedFd>, real: &Path, meta: &Meta) -> Result<()> {
        let failed = |e: io::Error| fs_error(format!("cannot write `{}`", shown(real)), e);
        self.changed = true;
        match self.dest.stat(real).map_err(failed)? {
            Some(stat) if kind_of(&stat) == FileType::Directory => {}
            Some(stat) => return Err(not_a_directory(self.dest, real, &stat)),
            None => {
                let (parent, name) = self.place(real)?;
                rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755)).map_err(|e| failed(e.into()))?;
            }
        }
        let (parent, name) = self.parent(real)?;
        let dir = open_path(&parent, name).map_err(failed)?;
        self.apply(dir.as_fd(), &Meta { times: None, ..meta.clone() }, true).map_err(failed)?;
        if let Some(source) = source.filter(|_| self.keep_xattrs) {
            copy_xattrs(source.as_fd(), dir.as_fd()).map_err(failed)?;
        }
        if let Some(times) = &meta.times {
            self.times.push((real.to_path_buf(), times.clone()));
        }
        Ok(())
    }

    /// A directory that only leads to what is copied: made like its source. One that is there takes its mode, whatever
    /// the instruction says about modes, and keeps its owner, as in Docker.
    pub fn pass(&mut self, source: &OwnedFd, stat: &Stat, real: &Path) -> Result<()> {
        let failed = |e: io::Error| fs_error(format!("cannot write `{}`", shown(real)), e);
        match self.dest.stat(real).map_err(failed)? {
            Some(there) if kind_of(&there) == FileType::Directory => {
                self.changed = true;
                let dir = self.dest.open_at(real, OFlags::PATH | OFlags::NOFOLLOW).map_err(failed)?;
                let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
                rustix::fs::chmodat(rustix::fs::CWD, proc_path(dir.as_fd()), mode, AtFlags::empty())
                    .map_err(|e| failed(e.into()))
            }
            _ => {
                let owner = self.owner_of(source, stat).map_err(failed)?;
                self.directory(Some(source), real, &Meta { owner, ..Meta::of(stat) })
            }
        }
    }

    /// Whether anything was written at all.
    pub fn finish(self) -> Result<bool> {
        for (real, times) in self.times.iter().rev() {
            let dir = self.dest.open_at(real, OFlags::PATH | OFlags::NOFOLLOW);
            dir.and_then(|dir| set_times(dir.as_fd(), times))
                .map_err(|e| fs_error(format!("cannot set the time of `{}`", shown(real)), e))?;
        }
        Ok(self.changed)
    }

    pub fn owner_of(&self, source: &OwnedFd, stat: &Stat) -> io::Result<Owner> {
        self.owner.map_or_else(|| own(source.as_fd(), stat), Ok)
    }

    fn parent<'p>(&self, real: &'p Path) -> Result<(OwnedFd, &'p OsStr)> {
        let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
            return Err(Error::failed("the root directory cannot be replaced"));
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let dir = if parent.as_os_str().is_empty() {
            self.dest.fd().try_clone_to_owned()
        } else {
            self.dest.open_at(parent, flags)
        };
        let dir = dir.map_err(|e| fs_error(format!("cannot open `{}`", shown(parent)), e))?;
        Ok((dir, name))
    }

    /// The directory for something new, with what is in its way removed.
    fn place<'p>(&mut self, real: &'p Path) -> Result<(OwnedFd, &'p OsStr)> {
        let (parent, name) = self.parent(real)?;
        self.changed = true;
        match rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if kind_of(&stat) == FileType::Directory => {
                return Err(Error::failed(format!("cannot replace the directory `{}` with a file", shown(real))));
            }
            Ok(_) => rustix::fs::unlinkat(&parent, name, AtFlags::empty())
                .map_err(|e| fs_error(format!("cannot replace `{}`", shown(real)), e.into()))?,
            Err(Errno::NOENT) => {}
            Err(e) => return Err(fs_error(format!("cannot write `{}`", shown(real)), e.into())),
        }
        Ok((parent, name))
    }

    fn symlink(
        &self,
        parent: &OwnedFd,
        name: &OsStr,
        target: &std::ffi::CStr,
        owner: Owner,
        times: Option<&Timestamps>,
    ) -> io::Result<()> {
        rustix::fs::symlinkat(target, parent, name)?;
        standin::chown_at(parent.as_fd(), name.as_bytes(), owner.uid, owner.gid)?;
        if let Some(times) = times {
            rustix::fs::utimensat(parent, name, times, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }

    fn describe(&self, target: BorrowedFd<'_>, source: &OwnedFd, stat: &Stat) -> io::Result<()> {
        self.apply(target, &Meta { times: None, owner: self.owner_of(source, stat)?, ..Meta::of(stat) }, false)?;
        if self.keep_xattrs {
            copy_xattrs(source.as_fd(), target)?;
        }
        set_times(target, &times_of(stat))
    }

    /// The order matters: a change of the owner clears the set-user-ID bit and file capabilities.
    fn apply(&self, target: BorrowedFd<'_>, meta: &Meta, directory: bool) -> io::Result<()> {
        chown(target, self.owner.unwrap_or(meta.owner))?;
        let mode = self.mode.as_ref().map_or(meta.mode, |change| change.apply(meta.mode, directory));
        let mode = Mode::from_raw_mode(mode & 0o7777);
        // fchmod refuses O_PATH, and fchmodat with an empty path is too new: the link of /proc works for all.
        rustix::fs::chmodat(rustix::fs::CWD, proc_path(target), mode, AtFlags::empty())?;
        for (name, value) in &meta.xattrs {
            standin::set_xattr_fd(target, name.to_bytes(), value)?;
        }
        match &meta.times {
            Some(times) => set_times(target, times),
            None => Ok(()),
        }
    }
}

/// What is said about a file besides its content.
#[derive(Clone, Debug)]
pub struct Meta {
    pub owner: Owner,
    pub mode: u32,
    pub times: Option<Timestamps>,
    pub xattrs: Vec<(CString, Vec<u8>)>,
}

impl Meta {
    pub fn of(stat: &Stat) -> Meta {
        Meta {
            owner: Owner { uid: stat.st_uid, gid: stat.st_gid },
            mode: stat.st_mode,
            times: Some(times_of(stat)),
            xattrs: Vec::new(),
        }
    }
}

/// Who something belongs to.
pub fn own(source: BorrowedFd<'_>, stat: &Stat) -> io::Result<Owner> {
    let (uid, gid) = standin::owner_of_fd(source, stat)?;
    Ok(Owner { uid, gid })
}

/// A real path as a person writes it.
pub fn shown(real: &Path) -> String {
    format!("/{}", real.display())
}

/// A directory is to be put where something else is: never silently replaced.
pub fn not_a_directory(root: &Root, real: &Path, stat: &Stat) -> Error {
    let target = (kind_of(stat) == FileType::Symlink)
        .then(|| rustix::fs::readlinkat(root.fd(), real, Vec::new()).ok())
        .flatten();
    match target {
        Some(target) => {
            let target = target.to_string_lossy().into_owned();
            Error::failed(format!(
                "cannot copy a directory to `{}`: it is a link to `{target}`, not a directory",
                shown(real)
            ))
            .hint(format!("copy what is in the directory to where the link leads (`{target}`)"))
        }
        None => Error::failed(format!("cannot copy a directory to `{}`: it is not a directory", shown(real))),
    }
}

pub fn open_path(dir: impl AsFd, name: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
}

fn create(parent: &OwnedFd, name: &OsStr) -> io::Result<File> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o600))?))
}

/// Keeps holes: a sparse file of 200 GB stays a small one.
fn copy_data(mut input: &File, mut output: &File, stat: &Stat) -> io::Result<()> {
    let size = stat.st_size.try_into().unwrap_or(0u64);
    if u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512) >= size {
        io::copy(&mut input, &mut output)?;
        return Ok(());
    }
    let mut at = 0;
    while at < size {
        at = match rustix::fs::seek(input, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(Errno::NXIO) => break,
            Err(e) => return Err(e.into()),
        };
        let end = rustix::fs::seek(input, SeekFrom::Hole(at))?;
        input.seek(io::SeekFrom::Start(at))?;
        output.seek(io::SeekFrom::Start(at))?;
        if io::copy(&mut input.take(end - at), &mut output)? == 0 {
            break;
        }
        at = end;
    }
    output.flush()?;
    output.set_len(size)
}

fn copy_xattrs(source: BorrowedFd<'_>, target: BorrowedFd<'_>) -> io::Result<()> {
    let (source, target) = (proc_path(source), proc_path(target));
    let size = match rustix::fs::listxattr_query(&source) {
        Ok(size) => size,
        Err(Errno::NOTSUP) => return Ok(()),
        Err(e) => return Err(e.into()),
    };
    let mut names = vec![0u8; size];
    let length = rustix::fs::listxattr(&source, names.as_mut_slice())?;
    for name in names[..length].split_inclusive(|b| *b == 0) {
        let bare = name.strip_suffix(b"\0").unwrap_or(name);
        // Records of overlayfs and labels of this machine say nothing about the file.
        if bare.is_empty() || !standin::goes_along(bare) {
            continue;
        }
        let mut value = vec![0u8; rustix::fs::getxattr_query(&source, bare)?];
        let length = rustix::fs::getxattr(&source, bare, value.as_mut_slice())?;
        rustix::fs::setxattr(&target, bare, &value[..length], XattrFlags::empty())?;
    }
    Ok(())
}
