//! What was fetched from elsewhere: files by their digest, repositories of git, and what is known of each address.

use std::fs::File;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Store, records};
use crate::error::{Context as _, Result};
use crate::image::digest::{Digest, Key};
use crate::image::layer::sys::OsContext;

impl Store {
    /// Where a file with this digest is, if it is there.
    pub fn source_file(&self, digest: &Digest) -> PathBuf {
        let path = self.path("sources/files").join(digest.hex());
        if path.exists() {
            records::touch(&path);
        }
        path
    }

    /// Takes a file over. It is on disk before it has its name: nobody computes its digest again.
    pub fn put_source_file(&self, file: &Path, digest: &Digest) -> Result<()> {
        let path = self.path("sources/files").join(digest.hex());
        let cannot = || format!("cannot write {}", path.display());
        File::open(file).and_then(|f| f.sync_all()).os(file, cannot)?;
        std::fs::rename(file, &path).os(&path, cannot)
    }

    /// What is known of an address; None when nothing is that makes sense.
    pub fn source_record<T: DeserializeOwned>(&self, key: &Key) -> Option<T> {
        let path = self.source_record_path(key);
        let record = serde_json::from_slice(&std::fs::read(&path).ok()?).ok()?;
        records::touch(&path);
        Some(record)
    }

    pub fn put_source_record<T: Serialize>(&self, key: &Key, record: &T) -> Result<()> {
        let bytes = serde_json::to_vec(record).failed(|| "cannot write down what was fetched".into())?;
        self.write_file(&self.source_record_path(key), &bytes, false)
    }

    fn source_record_path(&self, key: &Key) -> PathBuf {
        self.path("sources/addresses").join(format!("{}.json", key.as_str()))
    }

    /// Where the bare repository of an address is, or will be.
    pub fn source_repository(&self, key: &Key) -> PathBuf {
        let path = self.path("sources/git").join(key.as_str());
        if path.exists() {
            records::touch(&path);
        }
        path
    }
}
