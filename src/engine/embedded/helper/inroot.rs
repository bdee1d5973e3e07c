//! Paths of an image, resolved so that its links never lead out of it.
//!
//! Nothing but the helper touches the tree while a path is resolved, so that two looks at it agree.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;

use crate::image::layer::standin;

/// As many links as the kernel follows in one path... and Docker, which counts for itself, some more.
const MAX_LINKS: usize = 255;

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The root directory of an image that is mounted somewhere.
#[derive(Debug)]
pub struct Root(OwnedFd);

/// Owner and mode of what is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
}

/// Something that was made where there was nothing, so that it can be taken away again.
#[derive(Debug)]
pub struct Made {
    parent: OwnedFd,
    parent_times: Timestamps,
    name: OsString,
    directory: bool,
}

impl Root {
    pub fn open(path: &Path) -> io::Result<Root> {
        Ok(Root(rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// The directory at a real path as a root of its own: nothing below it leads out of it.
    pub fn below(&self, real: &Path) -> io::Result<Root> {
        if real.as_os_str().is_empty() {
            return Ok(Root(self.0.try_clone()?));
        }
        Ok(Root(self.open_at(real, DIRECTORY)?))
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Opens what is there, following links within the root.
    pub fn open_at(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        loop {
            let flags = flags | OFlags::CLOEXEC;
            let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
            match rustix::fs::openat2(&self.0, path, flags, Mode::empty(), resolve) {
                // The kernel asks for another try when something was renamed meanwhile.
                Err(Errno::AGAIN | Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }

    /// The content of a regular file; an image must not make us wait at a pipe.
    pub fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut file = std::fs::File::from(self.open_at(path, OFlags::RDONLY | OFlags::NONBLOCK)?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        let mut content = Vec::new();
        file.read_to_end(&mut content)?;
        Ok(content)
    }

    /// Where a path really is, relative to the root: every link is followed, and what doesn't exist is appended.
    pub fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        let mut todo: VecDeque<OsString> = components(path).collect();
        let mut done = PathBuf::new();
        let mut depth = 0;
        // From this depth on nothing exists.
        let mut missing: Option<usize> = None;
        let mut links = 0;
        while let Some(name) = todo.pop_front() {
            if name == ".." {
                if done.pop() {
                    depth -= 1;
                }
                missing = missing.filter(|at| depth >= *at);
                continue;
            }
            let next = done.join(&name);
            if missing.is_none() {
                match rustix::fs::statat(&self.0, &next, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) if kind_of(&stat) == FileType::Symlink => {
                        links += 1;
                        if links > MAX_LINKS {
                            return Err(Errno::LOOP.into());
                        }
                        let target = rustix::fs::readlinkat(&self.0, &next, Vec::new())?;
                        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                        if target.is_absolute() {
                            done = PathBuf::new();
                            depth = 0;
                        }
                        for component in components(&target).collect::<Vec<_>>().into_iter().rev() {
                            todo.push_front(component);
                        }
                        continue;
                    }
                    Ok(_) => {}
                    Err(Errno::NOENT) => missing = Some(depth + 1),
                    Err(e) => return Err(e.into()),
                }
            }
            done = next;
            depth += 1;
        }
        Ok(done)
    }

    /// What is at a real path; None when there is nothing.
    pub fn stat(&self, real: &Path) -> io::Result<Option<Stat>> {
        let found = if real.as_os_str().is_empty() {
            rustix::fs::fstat(&self.0)
        } else {
            rustix::fs::statat(&self.0, real, AtFlags::SYMLINK_NOFOLLOW)
        };
        match found {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Opens a directory by its real path, making what is missing of it; what was made is appended to `made`.
    pub fn make_dirs(&self, real: &Path, owner: Owner, mode: u32, made: &mut Vec<Made>) -> io::Result<OwnedFd> {
        let mut dir = self.0.try_clone()?;
        for name in real.iter() {
            dir = match rustix::fs::openat(&dir, name, DIRECTORY, Mode::empty()) {
                Ok(next) => next,
                Err(Errno::NOENT) => {
                    let parent_times = times_of(&rustix::fs::fstat(&dir)?);
                    rustix::fs::mkdirat(&dir, name, Mode::from_raw_mode(mode))?;
                    let next = rustix::fs::openat(&dir, name, DIRECTORY, Mode::empty())?;
                    chown(next.as_fd(), owner)?;
                    made.push(Made { parent: dir, parent_times, name: name.to_owned(), directory: true });
                    next
                }
                Err(e) => return Err(e.into()),
            };
        }
        Ok(dir)
    }

    /// Removes what is at a real path, and everything below it.
    pub fn remove_all(&self, real: &Path) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.0, real, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => {}
            other => return Ok(other?),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(&self.0, real, flags, Mode::empty())?;
        for entry in rustix::fs::Dir::new(dir)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                self.remove_all(&real.join(name))?;
            }
        }
        Ok(rustix::fs::unlinkat(&self.0, real, AtFlags::REMOVEDIR)?)
    }

    /// Makes an empty file by its real path, for something to be mounted on.
    pub fn make_file(&self, real: &Path, made: &mut Vec<Made>) -> io::Result<()> {
        let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
            return Err(Errno::ISDIR.into());
        };
        let parent = self.make_dirs(parent, Owner { uid: 0, gid: 0 }, 0o755, made)?;
        let parent_times = times_of(&rustix::fs::fstat(&parent)?);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(0o644))?;
        made.push(Made { parent, parent_times, name: name.to_owned(), directory: false });
        Ok(())
    }
}

impl Made {
    /// Takes away what was made if nobody has put anything in it since, newest first; the parent's times come back.
    pub fn unmake(self) {
        if !self.directory {
            let size = rustix::fs::statat(&self.parent, &self.name, AtFlags::SYMLINK_NOFOLLOW).map(|s| s.st_size);
            if size != Ok(0) {
                return;
            }
        }
        let flags = if self.directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        // Not empty, or gone already: then it is the step's, and stays.
        if rustix::fs::unlinkat(&self.parent, &self.name, flags).is_ok() {
            // An image is none the worse for a wrong time on a directory.
            let _ = set_times(self.parent.as_fd(), &self.parent_times);
        }
    }
}

/// Names and `..`; a leading slash and dots say nothing within a root.
fn components(path: &Path) -> impl Iterator<Item = OsString> + '_ {
    path.components().filter_map(|c| match c {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsStr::new("..").to_owned()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    })
}

pub fn kind_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

pub fn times_of(stat: &Stat) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: stat.st_atime, tv_nsec: stat.st_atime_nsec.try_into().unwrap_or(0) },
        last_modification: Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec.try_into().unwrap_or(0) },
    }
}

/// Works on descriptors that were opened with `O_PATH`, which `fchown` refuses.
pub fn chown(fd: BorrowedFd<'_>, owner: Owner) -> io::Result<()> {
    standin::chown_fd(fd, owner.uid, owner.gid)
}

/// Works on descriptors that were opened with `O_PATH`, too, and without /proc.
pub fn set_times(fd: BorrowedFd<'_>, times: &Timestamps) -> io::Result<()> {
    Ok(rustix::fs::utimensat(fd, "", times, AtFlags::EMPTY_PATH)?)
}

/// The path by which the kernel reaches an open file again, whatever it is called; /proc must be the host's.
pub fn proc_path(fd: BorrowedFd<'_>) -> PathBuf {
    use std::os::fd::AsRawFd as _;
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn real(root: &Root, path: &str) -> String {
        root.real_path(Path::new(path)).unwrap().to_str().unwrap().to_owned()
    }

    #[test]
    fn links_stay_within_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        std::fs::create_dir_all(path.join("usr/bin")).unwrap();
        symlink("usr/bin", path.join("bin")).unwrap();
        symlink("/usr", path.join("absolute")).unwrap();
        symlink("../../../../usr/bin", path.join("usr/climbs")).unwrap();
        symlink("/run/nowhere/file", path.join("dangling")).unwrap();
        symlink("loop", path.join("loop")).unwrap();
        let root = Root::open(path).unwrap();
        assert_eq!(real(&root, "/bin/sh"), "usr/bin/sh");
        assert_eq!(real(&root, "absolute/bin/../lib"), "usr/lib");
        assert_eq!(real(&root, "/usr/climbs/x/y"), "usr/bin/x/y");
        assert_eq!(real(&root, "/dangling"), "run/nowhere/file");
        assert_eq!(real(&root, "/new/../bin/x"), "usr/bin/x");
        assert_eq!(real(&root, "/../../.."), "");
        assert_eq!(root.real_path(Path::new("/loop/x")).unwrap_err().raw_os_error(), Some(Errno::LOOP.raw_os_error()));
    }

    #[test]
    fn a_tree_is_removed_and_what_its_links_lead_to_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        std::fs::create_dir_all(path.join("gone/below/deep")).unwrap();
        std::fs::write(path.join("gone/below/file"), "x").unwrap();
        std::fs::create_dir(path.join("kept")).unwrap();
        std::fs::write(path.join("kept/file"), "x").unwrap();
        symlink("../kept", path.join("gone/link")).unwrap();
        let root = Root::open(path).unwrap();
        root.remove_all(Path::new("gone")).unwrap();
        root.remove_all(Path::new("kept/file")).unwrap();
        let left: Vec<_> = std::fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["kept"]);
        assert_eq!(root.below(Path::new("kept")).unwrap().real_path(Path::new("../../x")).unwrap(), Path::new("x"));
        assert!(root.below(Path::new("none")).is_err());
    }

    #[test]
    fn what_was_made_goes_away_unless_it_was_used() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let before = times_of(&root.stat(Path::new("")).unwrap().unwrap());
        let owner = Owner { uid: rustix::process::getuid().as_raw(), gid: rustix::process::getgid().as_raw() };
        let mut made = Vec::new();
        root.make_dirs(Path::new("a/b"), owner, 0o755, &mut made).unwrap();
        root.make_file(Path::new("a/file"), &mut made).unwrap();
        assert_eq!(made.len(), 3);
        made.into_iter().rev().for_each(Made::unmake);
        assert_eq!(root.stat(Path::new("a")).unwrap().map(|s| s.st_mode), None);
        let after = times_of(&root.stat(Path::new("")).unwrap().unwrap());
        assert_eq!(before.last_modification, after.last_modification);

        let mut made = Vec::new();
        root.make_dirs(Path::new("a/b"), owner, 0o755, &mut made).unwrap();
        std::fs::write(dir.path().join("a/kept"), "x").unwrap();
        made.into_iter().rev().for_each(Made::unmake);
        assert!(dir.path().join("a/kept").exists() && !dir.path().join("a/b").exists());
    }
}
