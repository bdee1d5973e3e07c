//! An image of the store in the form in which it is pushed: whose media types, which compression, and what is written
//! on it. What is in the store stays as it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::error::{Context as _, Error, Result};
use crate::event::Cancel;
use crate::image::digest::Digest;
use crate::image::manifest::{
    DOCKER_CONFIG, DOCKER_INDEX, DOCKER_LAYER_GZIP, DOCKER_MANIFEST, Descriptor, Index, Manifest, OCI_CONFIG,
    OCI_INDEX, OCI_MANIFEST,
};
use crate::image::store::{Codec, Store};
use crate::registry::Reference;
use crate::registry::push::{Blob, Image};

/// What a manifest names, as it goes to a registry: its layers, then its configuration.
pub fn blobs(store: &Store, manifest: &Manifest) -> Vec<Blob> {
    let count = manifest.layers.len();
    let layers = manifest.layers.iter().enumerate().map(|(i, layer)| (layer, format!("layer {} of {count}", i + 1)));
    layers
        .chain([(&manifest.config, "the configuration".to_owned())])
        .map(|(part, what)| Blob {
            digest: part.digest.clone(),
            size: part.size,
            path: store.blob_path(&part.digest),
            what,
            near: None,
            from: None,
        })
        .collect()
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Types {
    #[default]
    Oci,
    /// Docker's second format, for registries and clients from before OCI.
    Docker,
}

#[derive(Clone, Debug, Default)]
pub struct Form {
    pub types: Types,
    /// None: layers as the store's manifest has them.
    pub codec: Option<Codec>,
    /// Of the manifest.
    pub annotations: BTreeMap<String, String>,
    /// Added to the configuration's.
    pub labels: BTreeMap<String, String>,
}

impl Form {
    /// Docker's format knows neither annotations nor zstd.
    pub fn check(&self) -> Result<()> {
        if self.types == Types::Oci {
            return Ok(());
        }
        if self.codec == Some(Codec::Zstd) {
            return Err(Error::bad_input("Docker's format has no layers compressed by zstd")
                .hint("leave out `--format docker`, or take `--compression gzip`"));
        }
        if !self.annotations.is_empty() {
            return Err(Error::bad_input("Docker's format has no annotations")
                .hint("leave out `--format docker`, or write labels"));
        }
        Ok(())
    }

    /// Compresses what isn't compressed in this form yet.
    pub fn prepare(
        &self,
        store: &Store,
        node: &Arc<str>,
        name: &Reference,
        manifest: &Digest,
        cancel: &Cancel,
    ) -> Result<Image> {
        let own = store.read_blob(manifest)?;
        let parsed: Manifest =
            serde_json::from_slice(&own).failed(|| format!("the blob {manifest} is no manifest of an image"))?;
        let config = store.read_blob(&parsed.config.digest)?;
        let diff_ids = store.image_config(&parsed.config.digest)?.rootfs.diff_ids;
        let (config_digest, config_size) = match self.labels.is_empty() {
            true => (parsed.config.digest.clone(), parsed.config.size),
            false => {
                let bytes = self.labelled(&config)?;
                (store.put_blob(&bytes)?, bytes.len() as u64)
            }
        };
        let descriptor = |media_type: &str, digest: &Digest, size: u64| Descriptor {
            media_type: media_type.to_owned(),
            digest: digest.clone(),
            size,
            platform: None,
            annotations: BTreeMap::new(),
        };
        let mut layers = Vec::with_capacity(parsed.layers.len());
        for (layer, diff_id) in parsed.layers.iter().zip(&diff_ids) {
            // Docker's format has gzip only.
            let docker = self.types == Types::Docker;
            let wanted = self.codec.or(docker.then_some(Codec::Gzip));
            let kept = wanted.is_none_or(|codec| Codec::of_media_type(&layer.media_type) == Some(codec));
            let layer = match wanted {
                Some(codec) if !kept => store.compressed(diff_id, codec, cancel)?,
                _ => layer.clone(),
            };
            let media_type = if docker { DOCKER_LAYER_GZIP } else { oci(&layer) };
            layers.push(descriptor(media_type, &layer.digest, layer.size));
        }
        let (media_type, config_type) = match self.types {
            Types::Oci => (OCI_MANIFEST, OCI_CONFIG),
            Types::Docker => (DOCKER_MANIFEST, DOCKER_CONFIG),
        };
        let ours = Manifest {
            schema_version: 2,
            media_type: Some(media_type.to_owned()),
            config: descriptor(config_type, &config_digest, config_size),
            layers,
            annotations: parsed.annotations.clone().into_iter().chain(self.annotations.clone()).collect(),
        };
        // One that says the same keeps its bytes, and with them the digest that a build has told.
        let bytes = match ours == parsed {
            true => own,
            false => serde_json::to_vec(&ours).failed(|| "cannot write the image's manifest".into())?,
        };
        let blobs = blobs(store, &ours);
        blobs.iter().try_for_each(|blob| require(store, name, blob))?;
        let name = name.clone().with_default_tag();
        Ok(Image {
            node: node.clone(),
            name,
            manifest: bytes,
            media_type: media_type.to_owned(),
            blobs,
            parts: Vec::new(),
        })
    }

    /// Images of one name, each for another platform, as one.
    pub fn together(&self, store: &Store, images: Vec<Image>) -> Result<Vec<Image>> {
        let mut groups: Vec<Vec<Image>> = Vec::new();
        for image in images {
            match groups.iter_mut().find(|group| group[0].name == image.name) {
                Some(group) => group.push(image),
                None => groups.push(vec![image]),
            }
        }
        let one = |mut parts: Vec<Image>| match parts.len() {
            1 => Ok(parts.remove(0)),
            _ => self.index(store, parts),
        };
        groups.into_iter().map(one).collect()
    }

    fn index(&self, store: &Store, parts: Vec<Image>) -> Result<Image> {
        let (node, name) = (parts[0].node.clone(), parts[0].name.clone());
        let mut descriptors = Vec::with_capacity(parts.len());
        for part in &parts {
            let manifest: Manifest =
                serde_json::from_slice(&part.manifest).failed(|| format!("cannot write the index of {name}"))?;
            descriptors.push(Descriptor {
                media_type: part.media_type.clone(),
                digest: part.digest(),
                size: part.manifest.len() as u64,
                platform: Some(store.image_config(&manifest.config.digest)?.platform()),
                annotations: BTreeMap::new(),
            });
        }
        let media_type = match self.types {
            Types::Oci => OCI_INDEX,
            Types::Docker => DOCKER_INDEX,
        };
        let index = Index {
            media_type: Some(media_type.to_owned()),
            annotations: self.annotations.clone(),
            ..Index::new(descriptors)
        };
        let manifest = index.to_bytes();
        Ok(Image { node, name, manifest, media_type: media_type.to_owned(), blobs: Vec::new(), parts })
    }

    /// The configuration with more labels; all that it has besides stays as it was written.
    fn labelled(&self, config: &[u8]) -> Result<Vec<u8>> {
        let cannot = || "the image's configuration cannot be understood".to_owned();
        let mut value: Value = serde_json::from_slice(config).failed(cannot)?;
        let all = value.as_object_mut().ok_or_else(|| Error::failed(cannot()))?;
        let own = all.entry("config").or_insert_with(|| Value::Object(Default::default()));
        if own.is_null() {
            *own = Value::Object(Default::default());
        }
        let labels = own.as_object_mut().ok_or_else(|| Error::failed(cannot()))?;
        let labels = labels.entry("Labels").or_insert_with(|| Value::Object(Default::default()));
        if labels.is_null() {
            *labels = Value::Object(Default::default());
        }
        let labels = labels.as_object_mut().ok_or_else(|| Error::failed(cannot()))?;
        labels.extend(self.labels.iter().map(|(name, text)| (name.clone(), Value::String(text.clone()))));
        serde_json::to_vec(&value).failed(|| "cannot write the image's configuration".into())
    }
}

/// The media type that OCI has for a layer which may come from an image of Docker's.
fn oci(layer: &Descriptor) -> &str {
    Codec::of_media_type(&layer.media_type).map_or(&layer.media_type, |codec| codec.media_type())
}

fn require(store: &Store, name: &Reference, blob: &Blob) -> Result<()> {
    let whole = std::fs::metadata(&blob.path).is_ok_and(|meta| meta.len() == blob.size);
    if whole {
        return Ok(());
    }
    Err(Error::failed(format!("{} of {name} is not in the store {}", blob.what, store.root().display()))
        .cause(format!("the blob {} is missing or damaged", blob.digest))
        .hint("`kollage store verify --repair` removes what is damaged, and the next build makes it again"))
}
