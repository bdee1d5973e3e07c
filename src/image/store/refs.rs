//! Names of images.

use std::path::PathBuf;

use super::{Ref, Store, file_name};
use crate::error::{Context, Error, Result};
use crate::image::digest::Digest;
use crate::image::layer::sys::OsContext;
use crate::image::manifest::Manifest;

impl Store {
    fn ref_path(&self, name: &str) -> PathBuf {
        self.path("refs").join(format!("{}.json", file_name(name)))
    }

    /// On disk when this returns: a name is what a person relies on.
    pub fn set_ref(&self, name: &str, manifest: &Digest) -> Result<()> {
        if !self.has_blob(manifest) {
            return Err(Error::failed(format!("cannot name an image `{name}`"))
                .cause(format!("the store has no manifest {manifest}")));
        }
        let now = jiff::Timestamp::now();
        let updated = jiff::Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
        let record = Ref { name: name.to_owned(), manifest: manifest.clone(), updated };
        let bytes = serde_json::to_vec(&record).failed(|| format!("cannot name an image `{name}`"))?;
        self.write_file(&self.ref_path(name), &bytes, true)
    }

    pub fn get_ref(&self, name: &str) -> Option<Ref> {
        let bytes = std::fs::read(self.ref_path(name)).ok()?;
        serde_json::from_slice::<Ref>(&bytes).ok().filter(|r| r.name == name)
    }

    /// True when there was such a name.
    pub fn remove_ref(&self, name: &str) -> Result<bool> {
        let path = self.ref_path(name);
        match std::fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e).os(&path, || format!("cannot remove the name `{name}`")),
        }
    }

    /// All names in order. A file that makes no sense is left out; `verify` names it.
    pub fn refs(&self) -> Result<Vec<Ref>> {
        let mut refs: Vec<Ref> = Vec::new();
        for path in self.files("refs")? {
            if let Some(found) = std::fs::read(&path).ok().and_then(|b| serde_json::from_slice(&b).ok()) {
                refs.push(found);
            }
        }
        refs.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(refs)
    }

    pub fn manifest(&self, digest: &Digest) -> Result<Manifest> {
        let bytes = self.read_blob(digest)?;
        serde_json::from_slice(&bytes).failed(|| format!("the blob {digest} is no manifest"))
    }

    /// Everything in one of the store's directories, in order.
    pub(super) fn files(&self, directory: &str) -> Result<Vec<PathBuf>> {
        let dir = self.path(directory);
        let cannot = || format!("cannot list {}", dir.display());
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(&dir).os(&dir, cannot)? {
            paths.push(entry.os(&dir, cannot)?.path());
        }
        paths.sort();
        Ok(paths)
    }
}
