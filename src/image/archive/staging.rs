//! Files and directories that are made beside their destination and renamed when they are whole.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Context as _, Error, Result};

/// A path beside a destination; what stands there goes away with the value unless it was put in place.
pub(crate) struct Staged {
    path: PathBuf,
    dest: PathBuf,
    done: bool,
}

impl Staged {
    /// Creates the directory that the destination is in where there is none, and nothing else.
    pub(crate) fn beside(dest: &Path) -> Result<Staged> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = dest
            .file_name()
            .ok_or_else(|| Error::bad_input(format!("{} is not the name of a file", dest.display())))?;
        let parent = parent(dest);
        fs::create_dir_all(parent).unusable(|| format!("cannot create the directory {}", parent.display()))?;
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut temporary = std::ffi::OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".kollage-{}-{count}", std::process::id()));
        let path = parent.join(temporary);
        // A process with the same number may have died here.
        remove(&path).unusable(|| format!("cannot remove {}", path.display()))?;
        Ok(Staged { path, dest: dest.to_path_buf(), done: false })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn create_file(&self) -> Result<File> {
        File::create_new(&self.path).unusable(|| format!("cannot create {}", self.path.display()))
    }

    pub(crate) fn create_dir(&self) -> Result<()> {
        fs::create_dir(&self.path).unusable(|| format!("cannot create {}", self.path.display()))
    }

    /// The file's or directory's data has to be on disk already, as far as it matters.
    pub(crate) fn put_in_place(mut self) -> Result<()> {
        fs::rename(&self.path, &self.dest).unusable(|| format!("cannot rename a file to {}", self.dest.display()))?;
        self.done = true;
        sync_directory(parent(&self.dest))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.done {
            let _ = remove(&self.path);
        }
    }
}

/// A file with these bytes, whole or not at all.
pub(crate) fn write_file(dest: &Path, bytes: &[u8]) -> Result<()> {
    let staged = Staged::beside(dest)?;
    let mut file = staged.create_file()?;
    io::Write::write_all(&mut file, bytes)
        .and_then(|()| file.sync_all())
        .unusable(|| format!("cannot write {}", dest.display()))?;
    staged.put_in_place()
}

/// Whatever is there; nothing there is no error.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

/// `.` for a bare name.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

pub(crate) fn sync_directory(path: &Path) -> Result<()> {
    File::open(path).and_then(|dir| dir.sync_all()).unusable(|| format!("cannot sync the directory {}", path.display()))
}
