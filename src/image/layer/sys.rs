//! System calls as this room needs them: relative to a directory's descriptor, never following links.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_OMIT, XattrFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};

/// Turns an error of the operating system into one that says what a person can do about it.
pub(crate) trait OsContext<T> {
    /// `path` is where it happened: its file system is looked at when there is no space left.
    fn os(self, path: &Path, message: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> OsContext<T> for std::result::Result<T, E> {
    fn os(self, path: &Path, message: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| os_error(e.into(), path, message()))
    }
}

pub(crate) fn os_error(error: io::Error, path: &Path, message: String) -> Error {
    if let Some(explained) = crate::userns::explained(&error, &message) {
        return explained;
    }
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    match errno {
        Some(Errno::NOSPC | Errno::DQUOT) => {
            let mut cause = format!("{error}: {}", path.display());
            if let Some(free) = free_bytes(path) {
                let _ = write!(cause, " ({free} bytes free)");
            }
            Error::unusable(message).cause(cause).hint("free some space, or run `kollage store prune`")
        }
        Some(Errno::ROFS) => Error::unusable(message)
            .cause(error)
            .hint("choose a store on a file system that can be written: --store DIR"),
        Some(Errno::ACCESS | Errno::PERM) => Error::unusable(message)
            .cause(error)
            .hint("run as root, or choose a store on a file system of your own: --store DIR"),
        Some(Errno::OPNOTSUPP) => Error::unusable(message)
            .cause(error)
            .hint("the store needs a file system with extended attributes and devices (ext4, xfs, btrfs): --store DIR"),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::IO) => Error::unusable(message).cause(error),
        _ => Error::failed(message).cause(error),
    }
}

/// Free space where `path` is, or where it would be.
pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    let existing = path.ancestors().find(|p| p.exists())?;
    let stat = rustix::fs::statvfs(existing).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Names as a person reads them in a message.
pub(crate) fn show(name: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(name).chars().flat_map(char::escape_debug).collect();
    // `escape_debug` also escapes quotes, which is noise here.
    text.replace("\\'", "'").replace("\\\"", "\"")
}

pub(crate) fn os(name: &[u8]) -> &OsStr {
    OsStr::from_bytes(name)
}

/// Without `.` and `..`, sorted by bytes.
pub(crate) fn names(dir: impl AsFd) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    names.sort_unstable();
    Ok(names)
}

pub(crate) fn open_dir(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

pub(crate) fn open_dir_at(parent: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

/// For lookups only: works whatever the mode of the directory itself is.
pub(crate) fn open_dir_path_at(parent: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

/// Not through links.
pub(crate) fn stat_at(parent: impl AsFd, name: &[u8]) -> Result<Option<Stat>, Errno> {
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(e),
    }
}

pub(crate) fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// A character device 0:0: overlayfs's mark of a deletion.
pub(crate) fn is_whiteout(stat: &Stat) -> bool {
    file_type(stat) == FileType::CharacterDevice && stat.st_rdev == 0
}

/// A path by which the xattr calls, which know no directory descriptor, reach a name in a directory. The last
/// component is looked up in the open directory itself, however long the directory's own path is.
pub(crate) fn proc_path(parent: BorrowedFd<'_>, name: &[u8]) -> PathBuf {
    fd_path(parent).join(os(name))
}

/// A path by which the calls that take no descriptor reach what is open.
pub(crate) fn fd_path(fd: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// All attributes, also overlayfs's own. A file system without attributes has none.
pub(crate) fn xattrs(path: &Path) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, Errno> {
    let mut found = BTreeMap::new();
    let mut list = Vec::new();
    loop {
        let size = match rustix::fs::llistxattr_query(path) {
            Ok(0) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(found),
            other => other?,
        };
        list.resize(size + 64, 0u8);
        match rustix::fs::llistxattr(path, list.as_mut_slice()) {
            Ok(size) => {
                list.truncate(size);
                break;
            }
            // It grew in between.
            Err(Errno::RANGE) => continue,
            Err(e) => return Err(e),
        }
    }
    for name in list.split(|b| *b == 0).filter(|n| !n.is_empty()) {
        match xattr(path, name)? {
            Some(value) => found.insert(name.to_vec(), value),
            None => continue,
        };
    }
    Ok(found)
}

pub(crate) fn xattr(path: &Path, name: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
    loop {
        let size = match rustix::fs::lgetxattr_query(path, name) {
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(None),
            other => other?,
        };
        let mut value = vec![0u8; size + 1];
        match rustix::fs::lgetxattr(path, name, value.as_mut_slice()) {
            Ok(size) => {
                value.truncate(size);
                return Ok(Some(value));
            }
            Err(Errno::RANGE) => continue,
            Err(Errno::NODATA) => return Ok(None),
            Err(e) => return Err(e),
        }
    }
}

pub(crate) fn set_xattr(path: &Path, name: &[u8], value: &[u8]) -> Result<(), Errno> {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty())
}

pub(crate) fn mark_opaque(path: &Path) -> Result<(), Errno> {
    set_xattr(path, super::opaque_xattr(), b"y")
}

pub(crate) fn is_opaque(path: &Path) -> Result<bool, Errno> {
    Ok(xattr(path, super::opaque_xattr())?.is_some_and(|v| v == b"y"))
}

/// Sets the modification time alone.
pub(crate) fn modified(seconds: i64, nanoseconds: u32) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() },
    }
}

/// Removes a file or a whole tree: links are removed and not followed, modes don't matter, nothing below a mount
/// point is touched, and depth costs neither stack nor descriptors.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::from(Errno::INVAL));
    };
    let parent = open_dir(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })?;
    Ok(remove_tree_at(parent.as_fd(), name.as_bytes())?)
}

pub(crate) fn remove_tree_at(parent: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(e) => return Err(e),
    }
    let top = open_for_removal(parent, name)?;
    let device = rustix::fs::fstat(&top)?.st_dev;
    let mut hoisted = 0u64;
    // What is too deep is moved up into the top directory, and found there in the next round.
    loop {
        let again = empty_dir(&top, &top, device, 0, &mut hoisted)?;
        if !again {
            break;
        }
    }
    rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
}

const REMOVAL_DEPTH: usize = 48;

/// True when something was moved up to `top`.
fn empty_dir(dir: &OwnedFd, top: &OwnedFd, device: u64, depth: usize, hoisted: &mut u64) -> Result<bool, Errno> {
    let mut again = false;
    for name in names(dir)? {
        match rustix::fs::unlinkat(dir, name.as_slice(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(e) => return Err(e),
        }
        if depth >= REMOVAL_DEPTH {
            loop {
                *hoisted += 1;
                let target = format!(".kollage-removing-{hoisted}");
                match rustix::fs::renameat_with(
                    dir,
                    name.as_slice(),
                    top,
                    target.as_str(),
                    rustix::fs::RenameFlags::NOREPLACE,
                ) {
                    Ok(()) => break,
                    Err(Errno::EXIST) => continue,
                    Err(e) => return Err(e),
                }
            }
            again = true;
            continue;
        }
        let child = open_for_removal(dir.as_fd(), &name)?;
        if rustix::fs::fstat(&child)?.st_dev != device {
            return Err(Errno::BUSY);
        }
        again |= empty_dir(&child, top, device, depth + 1, hoisted)?;
        rustix::fs::unlinkat(dir, name.as_slice(), AtFlags::REMOVEDIR)?;
    }
    Ok(again)
}

/// Without root's rights a directory that can't be read has to be made readable first.
fn open_for_removal(parent: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    if !rustix::process::geteuid().is_root()
        && let Ok(Some(stat)) = stat_at(parent, name)
        && file_type(&stat) == FileType::Directory
        && stat.st_mode & 0o700 != 0o700
    {
        rustix::fs::chmodat(parent, name, Mode::RWXU, AtFlags::empty())?;
    }
    open_dir_at(parent, name)
}

/// Bytes on disk below `path`, files with several names counted once.
pub(crate) fn disk_use(path: &Path) -> u64 {
    let mut seen = std::collections::HashSet::new();
    let mut total = 0u64;
    let mut pending = vec![path.to_path_buf()];
    while let Some(path) = pending.pop() {
        let Ok(stat) = rustix::fs::lstat(&path) else { continue };
        if file_type(&stat) == FileType::Directory {
            if let Ok(names) = open_dir(&path).and_then(names) {
                pending.extend(names.iter().map(|n| path.join(os(n))));
            }
        } else if stat.st_nlink > 1 && !seen.insert((stat.st_dev, stat.st_ino)) {
            continue;
        }
        total += (stat.st_blocks as u64).saturating_mul(512);
    }
    total
}
