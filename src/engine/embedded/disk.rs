//! How much a run may write: the layers that it has made, and what its running steps have written so far. Whatever the
//! limit, a step is stopped before the file system is full.
//!
//! There is no quota that every file system has, so directories are looked at while steps write to them; often when
//! little room is left, seldom when there is much.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};

use crate::error::{Error, Result};
use crate::image::space::Space;
use crate::quantity;

/// Nobody writes faster than this, by the second; it tells how long one may look away.
const FASTEST: u64 = 4 << 30;
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(200));
/// Looking takes no more than this part of the time.
const SHARE: u32 = 20;
/// No layer may be deeper, so nothing is looked for further down.
const DEEPEST: usize = 256;

/// Of one engine, thus of one run.
#[derive(Debug, Default)]
pub struct Disk {
    limit: Option<u64>,
    used: AtomicU64,
}

impl Disk {
    pub fn new(limit: Option<u64>) -> Self {
        Disk { limit, used: AtomicU64::new(0) }
    }

    /// Watches what is written below `dir`, which need not be there yet. `place` is on the same file system.
    pub fn watch(&self, place: &Path, dir: &Path) -> Watch<'_> {
        Watch {
            disk: self,
            place: place.to_owned(),
            dir: dir.to_owned(),
            counted: 0,
            free: None,
            next: Instant::now(),
            next_count: Instant::now(),
        }
    }
}

/// Of one step. What it has counted is given back when it ends, unless a layer comes of it.
pub struct Watch<'a> {
    disk: &'a Disk,
    place: PathBuf,
    dir: PathBuf,
    counted: u64,
    /// When `counted` was counted.
    free: Option<u64>,
    next: Instant,
    next_count: Instant,
}

impl Watch<'_> {
    /// Until it has to be looked at again.
    pub fn pause(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// The error that the step is to be stopped with.
    pub fn look(&mut self) -> Result<()> {
        if self.pause() > Duration::ZERO {
            return Ok(());
        }
        let space = Space::of(&self.place)?;
        space.check()?;
        let mut room = space.free - space.reserve;
        if let Some(limit) = self.disk.limit {
            // As if all that has gone since were this step's.
            let gone = self.free.map_or(u64::MAX, |then| then.saturating_sub(space.free));
            let guess = self.disk.used.load(Ordering::Relaxed).saturating_add(gone);
            if guess > limit || Instant::now() >= self.next_count {
                self.count(space.free)?;
            }
            room = room.min(limit.saturating_sub(self.disk.used.load(Ordering::Relaxed)));
        }
        let pause = Duration::from_secs_f64(room as f64 / FASTEST as f64);
        self.next = self.next.max(Instant::now() + pause.clamp(PAUSES.0, PAUSES.1));
        Ok(())
    }

    fn count(&mut self, free: u64) -> Result<()> {
        let Some(limit) = self.disk.limit else { return Ok(()) };
        let begun = Instant::now();
        let now = disk_usage(&self.dir);
        let took = begun.elapsed();
        let used = if now >= self.counted {
            let more = now - self.counted;
            self.disk.used.fetch_add(more, Ordering::Relaxed) + more
        } else {
            let less = self.counted - now;
            self.disk.used.fetch_sub(less, Ordering::Relaxed) - less
        };
        self.counted = now;
        self.free = Some(free);
        self.next = Instant::now() + took * SHARE;
        self.next_count = self.next + Duration::from_secs(1);
        if used <= limit {
            return Ok(());
        }
        Err(Error::failed(format!(
            "stopped, as the build has written {} and may write {}",
            quantity::shown(used),
            quantity::shown(limit)
        ))
        .hint("write less, or allow more with `--disk-limit SIZE` or `[engine] disk_limit`"))
    }

    /// The step has ended well: the last look at what it wrote, which stays.
    pub fn keep(mut self) -> Result<()> {
        self.count(0)?;
        self.counted = 0;
        Ok(())
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.disk.used.fetch_sub(self.counted, Ordering::Relaxed);
    }
}

/// Blocks, not lengths: holes cost nothing. Meanwhile things come and go, and a directory may become a link.
fn disk_usage(dir: &Path) -> u64 {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = |at: &OwnedFd, name: &std::ffi::CStr| rustix::fs::openat(at, name, flags, Mode::empty());
    let Ok(root) = rustix::fs::openat(CWD, dir, flags, Mode::empty()) else { return 0 };
    let mut total = 0u64;
    let mut linked = HashSet::new();
    let mut stack = vec![root];
    // Directories that are left to be read, by the one that they are in.
    let mut todo: Vec<Vec<std::ffi::CString>> = vec![Vec::new()];
    let mut fresh = true;
    while let Some(fd) = stack.last() {
        if fresh && let Ok(entries) = Dir::read_from(fd) {
            for entry in entries.flatten() {
                let name = entry.file_name();
                if name == c"." || name == c".." {
                    continue;
                }
                let Ok(stat) = rustix::fs::statat(fd, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
                if stat.st_nlink < 2 || linked.insert(stat.st_ino) {
                    total = total.saturating_add((stat.st_blocks as u64).saturating_mul(512));
                }
                if FileType::from_raw_mode(stat.st_mode) == FileType::Directory
                    && stack.len() < DEEPEST
                    && let Some(names) = todo.last_mut()
                {
                    names.push(name.to_owned());
                }
            }
        }
        let Some(name) = todo.last_mut().and_then(Vec::pop) else {
            stack.pop();
            todo.pop();
            fresh = false;
            continue;
        };
        fresh = false;
        if let Ok(child) = open(fd, &name) {
            stack.push(child);
            todo.push(Vec::new());
            fresh = true;
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_counted_and_holes_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b");
        std::fs::create_dir_all(&deep).unwrap();
        let before = disk_usage(dir.path());
        std::fs::File::create(deep.join("hole")).unwrap().set_len(1 << 40).unwrap();
        assert!(disk_usage(dir.path()) < before + (1 << 20));
        std::fs::write(deep.join("data"), vec![1; 3 << 20]).unwrap();
        std::fs::hard_link(deep.join("data"), dir.path().join("again")).unwrap();
        std::os::unix::fs::symlink("/", deep.join("host")).unwrap();
        let after = disk_usage(dir.path()) - before;
        assert!(((3 << 20)..(4 << 20)).contains(&after), "{after}");
    }

    #[test]
    fn what_no_layer_comes_of_is_given_back() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (dir.path().join("one"), dir.path().join("other"));
        for path in [&one, &other] {
            std::fs::create_dir(path).unwrap();
            std::fs::write(path.join("data"), vec![1; 2 << 20]).unwrap();
        }
        let disk = Disk::new(Some(3 << 20));
        disk.watch(dir.path(), &one).look().unwrap();
        disk.watch(dir.path(), &one).keep().unwrap();
        let error = disk.watch(dir.path(), &other).look().unwrap_err();
        assert!(error.message().contains("and may write 3.1 MB"), "{error}");
        let error = disk.watch(dir.path(), &other).keep().unwrap_err();
        assert!(error.hint_text().is_some_and(|h| h.contains("--disk-limit")), "{error}");
        // Neither of those two counts any more.
        disk.watch(dir.path(), &dir.path().join("nothing")).look().unwrap();
        Disk::new(None).watch(dir.path(), &one).keep().unwrap();
    }
}
