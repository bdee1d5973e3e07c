//! One builder at a time for each key, across processes. Locks are the kernel's: they end with their process.

use std::fs::File;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;

use super::{Store, file_name};
use crate::error::{Error, Result};
use crate::event::Cancel;
use crate::image::digest::Key;
use crate::image::layer::sys::OsContext;

/// Held while something with this key is being made; a second builder waits and then finds the result.
#[derive(Debug)]
pub struct KeyLock {
    _file: File,
    store: Store,
}

impl Drop for KeyLock {
    fn drop(&mut self) {
        self.store.inner.active.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Store {
    /// Waits while another builder, here or in another process, makes the same thing.
    pub fn lock_key(&self, key: &Key, cancel: &Cancel) -> Result<KeyLock> {
        self.lock_named(key.as_str(), Some(cancel))
    }

    pub(super) fn lock_named(&self, name: &str, cancel: Option<&Cancel>) -> Result<KeyLock> {
        let path = self.path("locks").join(file_name(name));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let cannot = || format!("cannot take the lock {}", path.display());
        let file = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o644)).os(&path, cannot)?;
        let start = Instant::now();
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) => {
                    // Short waits first: most of what is locked takes a moment.
                    let pause = (start.elapsed() / 8).clamp(Duration::from_millis(2), Duration::from_millis(100));
                    wait(pause, cancel)?;
                }
                Err(Errno::INTR) => {}
                Err(e) => return Err(e).os(&path, cannot),
            }
        }
        self.inner.active.fetch_add(1, Ordering::SeqCst);
        Ok(KeyLock { _file: File::from(file), store: self.clone() })
    }

    /// The whole store for this process alone; `shared_again` gives it back.
    pub(super) fn exclusive(&self) -> Result<()> {
        let busy = || {
            Error::unusable(format!("the store {} is in use: a build is running", self.root().display()))
                .hint("try again when it is finished")
        };
        if self.inner.active.load(Ordering::SeqCst) > 0 {
            return Err(busy());
        }
        match flock(&self.inner.lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(()),
            Err(Errno::WOULDBLOCK) => {
                // The kernel gave the shared lock up before it tried.
                self.shared_again()?;
                Err(busy())
            }
            Err(e) => Err(e).os(self.root(), || "cannot lock the store".into()),
        }
    }

    pub(super) fn shared_again(&self) -> Result<()> {
        loop {
            match flock(&self.inner.lock, FlockOperation::LockShared) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e).os(self.root(), || "cannot lock the store".into()),
            }
        }
    }
}

/// Sleeps, and wakes up at once when the run is cancelled.
fn wait(pause: Duration, cancel: Option<&Cancel>) -> Result<()> {
    let Some(cancel) = cancel else {
        std::thread::sleep(pause);
        return Ok(());
    };
    cancel.check()?;
    let timeout = Timespec { tv_sec: 0, tv_nsec: pause.subsec_nanos().into() };
    // An interrupted wait is a shorter one.
    let _ = poll(&mut [PollFd::from_borrowed_fd(cancel.fd(), PollFlags::IN)], Some(&timeout));
    cancel.check()
}
