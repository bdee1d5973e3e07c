//! Result files that somebody asked for by name: written beside their place and renamed, so that a reader sees the
//! old file or the new one, whole.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use crate::error::{Context, Result};

/// Replaces the file `path`. What isn't a plain file (`/dev/stdout`, a pipe, a link) is written to as it is: renaming
/// over it would put a file in the place of a device.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let plain = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.is_file(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => true,
        // Whatever is in the way will be told by writing.
        Err(_) => false,
    };
    let written = if plain {
        replace(path, bytes)
    } else {
        OpenOptions::new().write(true).truncate(true).open(path).and_then(|mut file| file.write_all(bytes))
    };
    written.failed(|| format!("cannot write {}", path.display()))
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let mut beside = OsString::from(".");
    beside.push(name);
    beside.push(format!(".{}.tmp", std::process::id()));
    let beside = path.with_file_name(beside);
    let result = File::create(&beside)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&beside, path));
    if result.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_file(&beside);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_is_left_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("summary.json");
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_stays_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        fs::write(&target, "something longer").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        write(&link, b"new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&target).unwrap(), b"new");
    }

    #[test]
    fn what_cannot_be_written_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = write(&dir.path().join("no/such/dir.json"), b"").unwrap_err();
        assert!(error.message().ends_with("no/such/dir.json"), "{error}");
        assert_eq!(error.causes().len(), 1);
        assert!(write(dir.path(), b"").is_err());
    }
}
