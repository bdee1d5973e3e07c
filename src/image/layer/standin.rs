//! What an ordinary user cannot make on a disk, kept in a way that gives the same layer again.
//!
//! Root of a user namespace makes files of every owner that is mapped there, and deletions of overlayfs. It makes no
//! device nodes, and sets no attributes but `user.*` and `security.capability`; with a single id it gives no file to
//! anybody else. Instead:
//!
//! - `user.kollage.node=c:1:3` on an empty file: it is a device node
//! - `user.kollage.owner=1000:1001`, with a single id only: who it belongs to
//! - `user.kollage.xattr.NAME`: an attribute that could not be set
//!
//! overlayfs copies such attributes up with their file, so that they survive what a step does to it. Links, pipes and
//! sockets carry no attributes: with a single id they belong to root.
//!
//! Real root makes the things themselves and uses none of these. Attributes of such names are never taken from a tar
//! and never given to one.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Uid, XattrFlags, major, makedev, minor};
use rustix::io::Errno;

use super::{is_private_xattr, sys};
use crate::userns;

const NODE: &[u8] = b"user.kollage.node";
const OWNER: &[u8] = b"user.kollage.owner";
const ATTRIBUTE: &[u8] = b"user.kollage.xattr.";

pub(crate) type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// What an inode is, with what stands in for something taken for that.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) kind: FileType,
    pub(crate) device: (u32, u32),
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Those that belong to the file.
    pub(crate) xattrs: Xattrs,
}

impl Seen {
    /// From what the system says, all attributes included.
    pub(crate) fn of(stat: &Stat, xattrs: Xattrs) -> Seen {
        let here = userns::current();
        Seen::in_namespace(stat, xattrs, here.is_initial(), here.is_single())
    }

    fn in_namespace(stat: &Stat, mut xattrs: Xattrs, initial: bool, single: bool) -> Seen {
        let mut seen = Seen {
            kind: sys::file_type(stat),
            device: (major(stat.st_rdev), minor(stat.st_rdev)),
            uid: stat.st_uid,
            gid: stat.st_gid,
            xattrs: Xattrs::new(),
        };
        if !initial {
            if let Some((kind, device)) = xattrs.get(NODE).and_then(|v| node(v))
                && seen.kind == FileType::RegularFile
            {
                (seen.kind, seen.device) = (kind, device);
            }
            if single && let Some((uid, gid)) = xattrs.get(OWNER).and_then(|v| owner(v)) {
                (seen.uid, seen.gid) = (uid, gid);
            }
            let kept = xattrs.iter().filter_map(|(name, value)| Some((name.strip_prefix(ATTRIBUTE)?, value)));
            seen.xattrs = kept.map(|(name, value)| (name.to_vec(), value.clone())).collect();
        }
        xattrs.retain(|name, _| !is_private_xattr(name));
        seen.xattrs.append(&mut xattrs);
        seen
    }
}

/// Whether an attribute goes with its file wherever that is copied to within the store.
pub(crate) fn goes_along(name: &[u8]) -> bool {
    !is_private_xattr(name) || (!userns::current().is_initial() && (name == NODE || name.starts_with(ATTRIBUTE)))
}

/// Who a file belongs to.
pub(crate) fn owner_of(path: &Path, stat: &Stat) -> Result<(u32, u32), Errno> {
    let real = (stat.st_uid, stat.st_gid);
    if !userns::current().is_single() {
        return Ok(real);
    }
    Ok(sys::xattr(path, OWNER)?.and_then(|v| owner(&v)).unwrap_or(real))
}

/// The same for what is open, also with `O_PATH`.
pub(crate) fn owner_of_fd(fd: BorrowedFd<'_>, stat: &Stat) -> Result<(u32, u32), Errno> {
    let real = (stat.st_uid, stat.st_gid);
    if !userns::current().is_single() {
        return Ok(real);
    }
    // Two numbers of ten digits.
    let mut value = [0u8; 32];
    match rustix::fs::getxattr(sys::fd_path(fd), OWNER, &mut value[..]) {
        Ok(length) => Ok(owner(&value[..length]).unwrap_or(real)),
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => Ok(real),
        Err(e) => Err(e),
    }
}

/// Makes a device node or a pipe. The mode is set as the umask leaves it.
pub(crate) fn make_node(dir: impl AsFd, name: &[u8], kind: FileType, mode: Mode, device: u64) -> Result<(), Errno> {
    let letter = match kind {
        FileType::CharacterDevice => 'c',
        FileType::BlockDevice => 'b',
        _ => return rustix::fs::mknodat(dir, name, kind, mode, device),
    };
    // A deletion is a device that everybody may make.
    if userns::current().is_initial() || (letter == 'c' && device == makedev(0, 0)) {
        return rustix::fs::mknodat(dir, name, kind, mode, device);
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(&dir, name, flags, mode)?;
    let value = format!("{letter}:{}:{}", major(device), minor(device));
    sys::set_xattr(&sys::proc_path(dir.as_fd(), name), NODE, value.as_bytes())
}

/// Gives a name in a directory to somebody; links are not followed.
pub(crate) fn chown_at(dir: BorrowedFd<'_>, name: &[u8], uid: u32, gid: u32) -> io::Result<()> {
    if userns::current().is_single() {
        return Ok(keep_owner(&sys::proc_path(dir, name), uid, gid, false)?);
    }
    mapped(uid, gid)?;
    Ok(rustix::fs::chownat(dir, name, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)), AtFlags::SYMLINK_NOFOLLOW)?)
}

pub(crate) fn chown_path(path: &Path, uid: u32, gid: u32) -> io::Result<()> {
    if userns::current().is_single() {
        return Ok(keep_owner(path, uid, gid, false)?);
    }
    mapped(uid, gid)?;
    Ok(rustix::fs::chownat(CWD, path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)), AtFlags::SYMLINK_NOFOLLOW)?)
}

/// The same for what is open, also with `O_PATH`.
pub(crate) fn chown_fd(fd: BorrowedFd<'_>, uid: u32, gid: u32) -> io::Result<()> {
    if userns::current().is_single() {
        // Through the descriptor's link in /proc, which leads to the file itself, even if that is a link.
        return Ok(keep_owner(&sys::fd_path(fd), uid, gid, true)?);
    }
    mapped(uid, gid)?;
    Ok(rustix::fs::chownat(fd, "", Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)), AtFlags::EMPTY_PATH)?)
}

fn mapped(uid: u32, gid: u32) -> io::Result<()> {
    userns::current().refusal(uid, gid).map_or(Ok(()), |unmapped| Err(unmapped.into()))
}

fn keep_owner(place: &Path, uid: u32, gid: u32, follow: bool) -> Result<(), Errno> {
    let value = format!("{uid}:{gid}");
    let changed = match ((uid, gid) == (0, 0), follow) {
        (true, true) => rustix::fs::removexattr(place, OWNER),
        (true, false) => rustix::fs::lremovexattr(place, OWNER),
        (false, true) => rustix::fs::setxattr(place, OWNER, value.as_bytes(), XattrFlags::empty()),
        (false, false) => sys::set_xattr(place, OWNER, value.as_bytes()),
    };
    match changed {
        // There was none; or it can carry none, and then belongs to root.
        Err(Errno::NODATA | Errno::PERM) => Ok(()),
        other => other,
    }
}

/// Sets an attribute, or keeps what this user may not set. What carries neither loses it.
pub(crate) fn set_xattr(path: &Path, name: &[u8], value: &[u8]) -> Result<(), Errno> {
    set_or_keep(name, |name| sys::set_xattr(path, name, value))
}

/// The same for what is open, also with `O_PATH`.
pub(crate) fn set_xattr_fd(fd: BorrowedFd<'_>, name: &[u8], value: &[u8]) -> Result<(), Errno> {
    let path = sys::fd_path(fd);
    set_or_keep(name, |name| rustix::fs::setxattr(&path, name, value, XattrFlags::empty()))
}

fn set_or_keep(name: &[u8], set: impl Fn(&[u8]) -> Result<(), Errno>) -> Result<(), Errno> {
    match set(name) {
        Err(Errno::PERM) if !userns::current().is_initial() => match set(&[ATTRIBUTE, name].concat()) {
            Err(Errno::PERM) => Ok(()),
            other => other,
        },
        other => other,
    }
}

fn node(value: &[u8]) -> Option<(FileType, (u32, u32))> {
    let mut parts = std::str::from_utf8(value).ok()?.split(':');
    let kind = match parts.next()? {
        "c" => FileType::CharacterDevice,
        "b" => FileType::BlockDevice,
        _ => return None,
    };
    let numbers = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next().is_none().then_some((kind, numbers))
}

fn owner(value: &[u8]) -> Option<(u32, u32)> {
    let (uid, gid) = std::str::from_utf8(value).ok()?.split_once(':')?;
    Some((uid.parse().ok()?, gid.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xattrs(list: &[(&str, &str)]) -> Xattrs {
        list.iter().map(|(n, v)| (n.as_bytes().to_vec(), v.as_bytes().to_vec())).collect()
    }

    #[test]
    fn stand_ins_are_what_they_stand_for_and_only_where_they_are_used() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f"), "").unwrap();
        let stat = rustix::fs::lstat(dir.path().join("f")).unwrap();
        let all = xattrs(&[
            ("user.kollage.node", "b:7:200"),
            ("user.kollage.owner", "1000:1001"),
            ("user.kollage.xattr.trusted.x", "1"),
            ("user.overlay.opaque", "y"),
            ("user.own", "2"),
        ]);
        let single = Seen::in_namespace(&stat, all.clone(), false, true);
        assert_eq!((single.kind, single.device), (FileType::BlockDevice, (7, 200)));
        assert_eq!((single.uid, single.gid), (1000, 1001));
        assert_eq!(single.xattrs, xattrs(&[("trusted.x", "1"), ("user.own", "2")]));
        let range = Seen::in_namespace(&stat, all.clone(), false, false);
        assert_eq!((range.kind, range.uid), (FileType::BlockDevice, stat.st_uid));
        let root = Seen::in_namespace(&stat, all, true, false);
        assert_eq!((root.kind, root.uid), (FileType::RegularFile, stat.st_uid));
        assert_eq!(root.xattrs, xattrs(&[("user.own", "2")]));
        // A directory is no node whatever it says.
        let stat = rustix::fs::lstat(dir.path()).unwrap();
        let lies = Seen::in_namespace(&stat, xattrs(&[("user.kollage.node", "c:1:3")]), false, true);
        assert_eq!(lies.kind, FileType::Directory);
    }

    #[test]
    fn values_that_make_no_sense_say_nothing() {
        assert_eq!(node(b"c:1:3"), Some((FileType::CharacterDevice, (1, 3))));
        for wrong in ["", "c", "c:1", "d:1:3", "c:1:3:4", "c:x:3", "c:-1:3"] {
            assert_eq!(node(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(owner(b"0:4294967294"), Some((0, 4_294_967_294)));
        for wrong in ["", "1", "1:", ":1", "a:b", "1:2:3", "4294967296:0"] {
            assert_eq!(owner(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
