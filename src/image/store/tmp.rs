//! Work in progress. Each process that has the store open owns one directory below `tmp`, and holds a lock beside it;
//! what belongs to nobody any more is swept when the store is opened.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};

use super::{BadStore, Store};
use crate::error::Result;
use crate::image::layer::sys::{self, OsContext};

/// A directory below `tmp` that belongs to this process and goes away with the value.
#[derive(Debug)]
pub struct WorkDir {
    path: PathBuf,
    store: Store,
}

impl WorkDir {
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        // What can't be removed now is swept by the next run.
        let _ = sys::remove_tree(&self.path);
        self.store.inner.active.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Store {
    pub fn work_dir(&self) -> Result<WorkDir> {
        let path = self.inner.owner.fresh("work");
        std::fs::create_dir(&path).os(&path, || "cannot make a directory to work in".into())?;
        self.inner.active.fetch_add(1, Ordering::SeqCst);
        Ok(WorkDir { path, store: self.clone() })
    }
}

/// Numbers that no other caller in this process gets.
pub(super) fn unique() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// `tmp/<pid>-<start>-<n>-<boot>` and the lock beside it.
#[derive(Debug)]
pub(super) struct Owner {
    dir: PathBuf,
    lock_path: PathBuf,
    _lock: File,
}

impl Owner {
    pub(super) fn new(root: &Path, boot: &str) -> Result<Owner> {
        let tmp = root.join("tmp");
        std::fs::create_dir_all(&tmp).bad_store(root)?;
        let pid = std::process::id();
        let start = start_time(pid).unwrap_or_default();
        loop {
            let name = format!("{pid}-{start}-{}-{}", unique(), boot.get(..8).unwrap_or(boot));
            let lock_path = tmp.join(format!("{name}.lock"));
            // The lock first: a directory is never without one while its owner lives.
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
            let lock = rustix::fs::open(&lock_path, flags, Mode::from_raw_mode(0o644)).bad_store(root)?;
            flock(&lock, FlockOperation::LockExclusive).bad_store(root)?;
            // Somebody who swept may have been faster between the two calls.
            if rustix::fs::fstat(&lock).bad_store(root)?.st_nlink == 0 {
                continue;
            }
            let dir = tmp.join(name);
            match std::fs::create_dir(&dir) {
                Ok(()) => {}
                // Of an owner with the same number in another pid namespace, dead since.
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => continue,
                Err(e) => return Err(e).bad_store(root),
            }
            return Ok(Owner { dir, lock_path, _lock: File::from(lock) });
        }
    }

    /// A path that nobody else uses.
    pub(super) fn fresh(&self, what: &str) -> PathBuf {
        self.dir.join(format!("{what}-{}", unique()))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if sys::remove_tree(&self.dir).is_ok() {
            let _ = std::fs::remove_file(&self.lock_path);
        }
    }
}

/// Removes what dead owners left. An owner is dead when its lock can be taken; a directory without a lock, when no
/// such process runs. Whatever can't be removed is left for the next time: it is in nobody's way.
pub(super) fn sweep(root: &Path, boot: &str) {
    let tmp = root.join("tmp");
    let Ok(entries) = std::fs::read_dir(&tmp) else { return };
    let mut names: Vec<String> = entries.flatten().filter_map(|e| e.file_name().into_string().ok()).collect();
    names.sort();
    for name in &names {
        if let Some(owner) = name.strip_suffix(".lock") {
            let path = tmp.join(name);
            let Ok(lock) = rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) else { continue };
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
                && sys::remove_tree(&tmp.join(owner)).is_ok()
            {
                let _ = std::fs::remove_file(&path);
            }
        } else if !tmp.join(format!("{name}.lock")).exists() && !is_alive(name, boot) {
            let _ = sys::remove_tree(&tmp.join(name));
        }
    }
}

fn is_alive(name: &str, boot: &str) -> bool {
    let mut parts = name.split('-');
    let (Some(pid), Some(start), Some(_), Some(of_boot)) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let (Ok(pid), Ok(start)) = (pid.parse::<u32>(), start.parse::<u64>()) else { return false };
    boot.starts_with(of_boot) && start_time(pid) == Some(start)
}

/// Of a process, in clock ticks since the boot: with it a process number names one process only.
fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything; the 20th field after it is the start time.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Tells boots of the machine apart. Without it nothing unsettled is ever believed.
pub(super) fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}
