//! Images in the store: configuration and manifest over layers that it has.

use std::collections::BTreeMap;

use super::Store;
use crate::error::{Context as _, Result};
use crate::image::config::ImageConfig;
use crate::image::digest::Digest;
use crate::image::manifest::{Descriptor, Manifest, OCI_CONFIG, OCI_MANIFEST};

/// What identifies an image that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Of the manifest.
    pub digest: Digest,
    pub config_digest: Digest,
    /// Of all compressed layers.
    pub size: u64,
}

impl Store {
    /// Writes the configuration and the manifest of an image whose compressed layers are these.
    pub fn put_image(&self, config: &ImageConfig, layers: Vec<Descriptor>) -> Result<Written> {
        let config = serde_json::to_vec(config).failed(|| "cannot write the image's configuration".into())?;
        let config_digest = self.put_blob(&config)?;
        let manifest = Manifest {
            schema_version: 2,
            media_type: Some(OCI_MANIFEST.into()),
            config: Descriptor {
                media_type: OCI_CONFIG.into(),
                digest: config_digest.clone(),
                size: config.len() as u64,
                platform: None,
                annotations: BTreeMap::new(),
            },
            layers,
            annotations: BTreeMap::new(),
        };
        let size = manifest.layers.iter().map(|layer| layer.size).sum();
        let text = serde_json::to_vec(&manifest).failed(|| "cannot write the image's manifest".into())?;
        Ok(Written { digest: self.put_blob(&text)?, config_digest, size })
    }
}
