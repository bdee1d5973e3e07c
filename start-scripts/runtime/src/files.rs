//! Files are written beside and renamed: whoever looks sees the old or the new, with its owner and mode, never a part.

use crate::error::{Failure, Result, shown};
use crate::plan::{Content, Own};
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, StatxAttributes, StatxFlags, Timestamps, Uid, XattrFlags};
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The name that something has until it is complete. One that a broken start left is overwritten.
const BESIDE: &str = ".kollage-start.tmp";

/// Puts a regular file at a path, in place of whatever but a directory is there.
pub fn install(path: &Path, content: &Content, own: &Own) -> Result<()> {
    beside(path, |beside| {
        let mut file = create(beside)?;
        match content {
            Content::Bytes(bytes) => file.write_all(bytes)?,
            Content::Of(source) => {
                io::copy(&mut File::open(source)?, &mut file)?;
            }
        }
        own_file(&file, own)
    })
}

/// As `install`, for what is a start's own: synced, since nothing could bring it back.
pub fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    beside(path, |beside| {
        let mut file = create(beside)?;
        file.write_all(bytes)?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        file.sync_all()
    })
}

pub fn link(path: &Path, target: &Path) -> Result<()> {
    beside(path, |beside| std::os::unix::fs::symlink(target, beside))
}

/// Lets `make` make something beside a path, and renames it there.
fn beside(path: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> Result<()> {
    let beside = path.with_file_name(BESIDE);
    let made = match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => make(&beside).and_then(|()| fs::rename(&beside, path)),
    };
    made.map_err(|error| {
        let _ = fs::remove_file(&beside);
        Failure::system(format_args!("write {}", shown(path)), error)
    })
}

/// Only root can read it until it has its owner and mode.
fn create(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?))
}

fn own_file(file: &File, own: &Own) -> io::Result<()> {
    let there = file.metadata()?;
    if (there.uid(), there.gid()) != (own.uid, own.gid) {
        rustix::fs::fchown(file, Some(Uid::from_raw(own.uid)), Some(Gid::from_raw(own.gid)))?;
    }
    // After the owner: a change of owner takes set-user-ID away.
    rustix::fs::fchmod(file, Mode::from_raw_mode(own.mode))?;
    if let Some(like) = &own.like {
        for (name, value) in attributes(like)? {
            ignore_unsupported(rustix::fs::fsetxattr(file, &*name, &value, XattrFlags::empty()))?;
        }
        rustix::fs::futimens(file, &times(&fs::metadata(like)?))?;
    }
    Ok(())
}

/// Gives a directory, or a file that stays as it is, its owner and mode.
pub fn own_path(path: &Path, own: &Own) -> Result<()> {
    let set = || -> io::Result<()> {
        let there = fs::symlink_metadata(path)?;
        let chown = (there.uid(), there.gid()) != (own.uid, own.gid);
        if chown {
            let (uid, gid) = (Uid::from_raw(own.uid), Gid::from_raw(own.gid));
            rustix::fs::chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        if chown || there.mode() & 0o7777 != own.mode {
            fs::set_permissions(path, fs::Permissions::from_mode(own.mode))?;
        }
        if let Some(like) = &own.like {
            for (name, value) in attributes(like)? {
                ignore_unsupported(rustix::fs::lsetxattr(path, &*name, &value, XattrFlags::empty()))?;
            }
            let times = times(&fs::metadata(like)?);
            rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    };
    set().map_err(|error| Failure::system(format_args!("set owner and mode of {}", shown(path)), error))
}

fn times(metadata: &Metadata) -> Timestamps {
    let time = |seconds, nanoseconds| rustix::fs::Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    Timestamps {
        last_access: time(metadata.atime(), metadata.atime_nsec()),
        last_modification: time(metadata.mtime(), metadata.mtime_nsec()),
    }
}

/// Extended attributes, but for those that belong to the place and not to the file (labels of SELinux and the like).
fn attributes(path: &Path) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = vec![0; 64 * 1024];
    let length = match rustix::fs::llistxattr(path, &mut names[..]) {
        Ok(length) => length,
        Err(rustix::io::Errno::NOTSUP | rustix::io::Errno::NOSYS) => 0,
        Err(error) => return Err(error.into()),
    };
    let mut found = Vec::new();
    for name in names[..length].split(|byte| *byte == 0) {
        if name.starts_with(b"user.") || name.starts_with(b"system.posix_acl_") || name == b"security.capability" {
            let mut value = vec![0; 64 * 1024];
            if let Ok(length) = rustix::fs::lgetxattr(path, name, &mut value[..]) {
                value.truncate(length);
                found.push((name.to_vec(), value));
            }
        }
    }
    Ok(found)
}

fn ignore_unsupported(result: rustix::io::Result<()>) -> io::Result<()> {
    use rustix::io::Errno;
    match result {
        Err(Errno::NOTSUP | Errno::PERM | Errno::ACCESS | Errno::INVAL) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Copies anything with everything, links as links. Whoever isn't root can't keep owners, and does without.
pub fn clone(from: &Path, to: &Path) -> Result<()> {
    let cannot = |error| Failure::system(format_args!("copy {} to {}", shown(from), shown(to)), error);
    let there = fs::symlink_metadata(from).map_err(cannot)?;
    let kind = there.file_type();
    if kind.is_dir() {
        fs::create_dir(to).map_err(cannot)?;
        for entry in fs::read_dir(from).map_err(cannot)? {
            let name = entry.map_err(cannot)?.file_name();
            clone(&from.join(&name), &to.join(&name))?;
        }
    } else if kind.is_symlink() {
        fs::read_link(from).and_then(|target| std::os::unix::fs::symlink(target, to)).map_err(cannot)?;
    } else if kind.is_file() {
        let copy = || io::copy(&mut File::open(from)?, &mut create(to)?).map(|_| ());
        copy().map_err(cannot)?;
    } else if kind.is_socket() {
        // Nobody listens on a copy.
        return Ok(());
    } else {
        let (kind, mode) = (rustix::fs::FileType::from_raw_mode(there.mode()), Mode::from_raw_mode(there.mode()));
        rustix::fs::mknodat(CWD, to, kind, mode, there.rdev()).map_err(|error| cannot(error.into()))?;
    }
    like(from, &there, to).map_err(cannot)
}

fn like(from: &Path, there: &Metadata, to: &Path) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(there.uid()), Gid::from_raw(there.gid()));
    match rustix::fs::chownat(CWD, to, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW) {
        Err(rustix::io::Errno::PERM) if !rustix::process::geteuid().is_root() => {}
        result => result?,
    }
    if !there.file_type().is_symlink() {
        fs::set_permissions(to, there.permissions())?;
        for (name, value) in attributes(from)? {
            ignore_unsupported(rustix::fs::lsetxattr(to, &*name, &value, XattrFlags::empty()))?;
        }
    }
    Ok(rustix::fs::utimensat(CWD, to, &times(there), AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Puts a copy of `from` at `to`: what isn't a directory in one step, a directory name by name, since a directory of an
/// image's layer can't be renamed, and a mount point can't be replaced.
pub fn restore(from: &Path, to: &Path) -> Result<()> {
    let cannot = |error| Failure::system(format_args!("restore {}", shown(to)), error);
    let there = fs::symlink_metadata(from).map_err(cannot)?;
    if !there.is_dir() {
        if is_real_directory(to) {
            remove(to)?;
        }
        let beside = to.with_file_name(BESIDE);
        remove(&beside)?;
        clone(from, &beside)?;
        return fs::rename(&beside, to).map_err(cannot);
    }
    if !is_real_directory(to) {
        remove(to)?;
        fs::create_dir(to).map_err(cannot)?;
    }
    for entry in fs::read_dir(to).map_err(cannot)? {
        let name = entry.map_err(cannot)?.file_name();
        if from.join(&name).symlink_metadata().is_err() {
            remove(&to.join(&name))?;
        }
    }
    for entry in fs::read_dir(from).map_err(cannot)? {
        let name = entry.map_err(cannot)?.file_name();
        restore(&from.join(&name), &to.join(&name))?;
    }
    like(from, &there, to).map_err(cannot)
}

/// Removes whatever is at a path, if anything. Nothing that is mounted there loses its content.
pub fn remove(path: &Path) -> Result<()> {
    let cannot = |error| Failure::system(format_args!("remove {}", shown(path)), error);
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(cannot(error)),
        Ok(_) if is_mount_point(path) => Err(Failure::refused(format!("{} is a mount point, and stays", shown(path)))),
        Ok(there) if there.is_dir() => {
            for entry in fs::read_dir(path).map_err(cannot)? {
                remove(&entry.map_err(cannot)?.path())?;
            }
            fs::remove_dir(path).map_err(cannot)
        }
        Ok(_) => fs::remove_file(path).map_err(cannot),
    }
}

pub fn is_real_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|there| there.is_dir())
}

/// Whether something is mounted right at a path, a single file included. Kernels before 5.8 can't say.
pub fn is_mount_point(path: &Path) -> bool {
    rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty())
        .is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// The first mount point at or below a path.
pub fn mount_point_below(path: &Path) -> Option<PathBuf> {
    if is_mount_point(path) {
        return Some(path.into());
    }
    if !is_real_directory(path) {
        return None;
    }
    fs::read_dir(path).ok()?.flatten().find_map(|entry| mount_point_below(&entry.path()))
}

/// Whether a file has exactly this content.
pub fn same_content(path: &Path, content: &Content) -> io::Result<bool> {
    let mut file = File::open(path)?;
    match content {
        Content::Bytes(bytes) => same(&mut file, &mut &bytes[..]),
        Content::Of(source) => same(&mut file, &mut File::open(source)?),
    }
}

fn same(one: &mut impl Read, other: &mut impl Read) -> io::Result<bool> {
    let (mut left, mut right) = (vec![0; 32 * 1024], vec![0; 32 * 1024]);
    loop {
        let length = fill(one, &mut left)?;
        if fill(other, &mut right)? != length || left[..length] != right[..length] {
            return Ok(false);
        }
        if length == 0 {
            return Ok(true);
        }
    }
}

fn fill(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..])? {
            0 => break,
            length => filled += length,
        }
    }
    Ok(filled)
}
