//! What was made of something that was fetched, kept so that it need not be made again.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Fetcher;
use crate::error::{Context as _, Result};
use crate::image::digest::{Digest, Key};
use crate::image::layer::hash::HashWriter;

#[derive(Serialize, Deserialize)]
struct Record {
    made: Digest,
}

impl Fetcher {
    /// The file that was made for this key, where the store has it still.
    pub fn made(&self, key: &Key) -> Option<PathBuf> {
        let Record { made } = self.store.source_record(key)?;
        Some(self.store.source_file(&made)).filter(|path| path.exists())
    }

    /// Takes a file over, and says where it is now. `key` has everything that its content depends on.
    pub fn keep(&self, key: &Key, file: &Path) -> Result<PathBuf> {
        let mut hash = HashWriter::new(io::sink());
        let read = File::open(file).and_then(|mut file| io::copy(&mut file, &mut hash));
        read.unusable(|| format!("cannot read {}", file.display()))?;
        let (made, ..) = hash.finish();
        self.store.put_source_file(file, &made)?;
        let path = self.store.source_file(&made);
        self.store.put_source_record(key, &Record { made })?;
        Ok(path)
    }
}
