//! Free space of a file system: nothing that is unpacked or run here may use up the last of it, which others need.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::error::{Context as _, Error, Result};

/// Left free at least. A small file system has less.
const RESERVE: u64 = 256 << 20;
/// Looked at again after so many bytes.
const STRIDE: u64 = 16 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    pub free: u64,
    /// What has to stay of it.
    pub reserve: u64,
}

impl Space {
    pub fn of(place: &Path) -> Result<Space> {
        let stat = rustix::fs::statvfs(place).unusable(|| format!("cannot look at `{}`", place.display()))?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Ok(Space { free: bytes(stat.f_bavail), reserve: RESERVE.min(bytes(stat.f_blocks) / 20) })
    }

    pub fn check(self) -> Result<()> {
        if self.free >= self.reserve {
            return Ok(());
        }
        Err(Error::unusable(format!(
            "stopped, as the file system of the store has only {} MiB left",
            self.free >> 20
        ))
        .hint("`kollage store prune` frees space; `--store DIR` takes another file system; `--disk-limit` keeps a build from coming this far"))
    }
}

/// Counts what is written to a file system, and stops before it is full.
#[derive(Debug)]
pub struct Guard {
    place: PathBuf,
    unchecked: u64,
    /// What may still be written.
    left: u64,
    most: u64,
}

impl Guard {
    pub fn new(place: &Path) -> Self {
        Guard { place: place.to_owned(), unchecked: 0, left: u64::MAX, most: u64::MAX }
    }

    /// Whatever the space there is.
    pub fn at_most(self, bytes: u64) -> Self {
        Guard { left: bytes, most: bytes, ..self }
    }

    pub fn wrote(&mut self, bytes: u64) -> Result<()> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| {
            Error::failed(format!("it holds more than {} MB, which is not allowed", self.most / 1_000_000))
                .hint("`--disk-limit SIZE` or `[engine] disk_limit` say how much is")
        })?;
        self.unchecked = self.unchecked.saturating_add(bytes);
        if self.unchecked < STRIDE {
            return Ok(());
        }
        self.unchecked = 0;
        Space::of(&self.place)?.check()
    }
}

/// What is read here is written there.
pub struct Guarded<R> {
    pub inner: R,
    pub guard: Guard,
}

impl<R: Read> Read for Guarded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.guard.wrote(n as u64).map_err(|e| io::Error::other(e.to_string()))?;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_space_is_not_given_away() {
        assert!(Space { free: 1 << 30, reserve: 256 << 20 }.check().is_ok());
        let error = Space { free: 100 << 20, reserve: 256 << 20 }.check().unwrap_err();
        assert!(error.message().contains("only 100 MiB left"), "{error}");
        let here = Space::of(Path::new("/")).unwrap();
        assert!(here.reserve <= RESERVE);
    }

    #[test]
    fn a_guard_looks_now_and_then() {
        let dir = tempfile::tempdir().unwrap();
        let mut guard = Guard::new(&dir.path().join("gone"));
        // It is not looked at before enough has been written.
        guard.wrote(STRIDE - 1).unwrap();
        assert!(guard.wrote(1).is_err());
    }
}
