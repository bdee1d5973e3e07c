//! What is in the store, for `kollage store ls` and `kollage images`.

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::Serialize;

use super::{Ref, Store};
use crate::error::{Context, Result};
use crate::image::config::{ImageConfig, Platform};
use crate::image::digest::Digest;
use crate::image::layer::sys;

/// One named image.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ImageInfo {
    pub name: String,
    pub manifest: Digest,
    pub updated: String,
    pub created: Option<String>,
    pub platform: Option<Platform>,
    pub layers: Vec<LayerInfo>,
    pub labels: BTreeMap<String, String>,
    /// Of the compressed layers and the configuration: what a pull would transfer.
    pub compressed_size: u64,
    /// Of the uncompressed layers.
    pub size: u64,
    /// Why nothing more is known: a blob of the image is missing or damaged.
    pub problem: Option<String>,
}

/// One layer of an image, the lowest first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayerInfo {
    pub diff_id: Digest,
    /// Uncompressed; None: the layer is gone from the store.
    pub size: Option<u64>,
    pub compressed_size: u64,
    /// The instruction that made it, as the history has it.
    pub created_by: Option<String>,
}

/// Bytes on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DiskUse {
    pub layers: u64,
    pub blobs: u64,
    pub caches: u64,
    /// Records, logs, state, work in progress.
    pub other: u64,
}

impl DiskUse {
    pub fn total(&self) -> u64 {
        self.layers + self.blobs + self.caches + self.other
    }
}

impl Store {
    /// All named images, in the order of their names. A damaged one is listed with its problem.
    pub fn images(&self) -> Result<Vec<ImageInfo>> {
        Ok(self.refs()?.into_iter().map(|r| self.image_info(r)).collect())
    }

    fn image_info(&self, named: Ref) -> ImageInfo {
        let mut info = ImageInfo {
            name: named.name,
            manifest: named.manifest,
            updated: named.updated,
            created: None,
            platform: None,
            layers: Vec::new(),
            labels: BTreeMap::new(),
            compressed_size: 0,
            size: 0,
            problem: None,
        };
        if let Err(e) = self.fill_info(&mut info) {
            info.problem = Some(e.to_string());
        }
        info
    }

    fn fill_info(&self, info: &mut ImageInfo) -> Result<()> {
        let manifest = self.manifest(&info.manifest)?;
        info.compressed_size = manifest.config.size + manifest.layers.iter().map(|l| l.size).sum::<u64>();
        let config = self.image_config(&manifest.config.digest)?;
        for ((diff_id, created_by), blob) in config.layers().zip(&manifest.layers) {
            info.layers.push(LayerInfo {
                diff_id: diff_id.clone(),
                size: self.layer(diff_id).map(|layer| layer.size),
                compressed_size: blob.size,
                created_by: created_by.map(str::to_owned),
            });
        }
        info.size = info.layers.iter().filter_map(|layer| layer.size).sum();
        info.platform = Some(config.platform());
        info.created = config.created;
        info.labels = config.config.labels;
        Ok(())
    }

    /// The configuration of an image, from its blob.
    pub fn image_config(&self, digest: &Digest) -> Result<ImageConfig> {
        let bytes = self.read_blob(digest)?;
        serde_json::from_slice(&bytes).failed(|| format!("the blob {digest} is no image configuration"))
    }

    pub fn disk_use(&self) -> Result<DiskUse> {
        let sum = |directory: &str| -> Result<u64> {
            Ok(self.files(directory)?.par_iter().map(|path| sys::disk_use(path)).sum())
        };
        let mut caches = 0;
        for directory in ["cache", "sources/files", "sources/git", "sources/addresses"] {
            caches += sum(directory)?;
        }
        let mut other = 0;
        for directory in ["steps", "results", "refs", "locks", "logs", "runs", "state", "tmp"] {
            other += sum(directory)?;
        }
        Ok(DiskUse { layers: sum("layers")?, blobs: sum("blobs/sha256")?, caches, other })
    }
}
