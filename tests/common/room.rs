//! A directory with stores and archives, and images in them as a build leaves them behind.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use kollage::event::Cancel;
use kollage::image::archive::{self, ExportImage, Imported};
use kollage::image::config::Platform;
use kollage::image::digest::Digest;
use kollage::image::store::{Codec, Store};
use serde_json::{Value, json};

/// A directory with a store that goes away at the end.
pub struct Room {
    pub dir: tempfile::TempDir,
    pub cancel: Cancel,
}

impl Room {
    pub fn new() -> Room {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        // Podman makes names of paths, and names are lower case.
        let name = format!("kollage-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let dir = tempfile::Builder::new().prefix(&name).rand_bytes(0).tempdir().unwrap();
        Room { dir, cancel: Cancel::new().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// As an argument.
    pub fn arg(&self, prefix: &str, name: &str) -> String {
        format!("{prefix}{}", self.path(name).display())
    }

    pub fn store(&self, name: &str) -> Store {
        Store::open(&self.path(name)).unwrap()
    }

    pub fn export(&self, store: &Store, output: &str, images: &[(&str, &Image)]) {
        let images: Vec<ExportImage> = images
            .iter()
            .map(|(name, image)| ExportImage { name: name.parse().unwrap(), manifest: image.manifest.clone() })
            .collect();
        let output = output.replace("DIR", &self.dir.path().display().to_string()).parse().unwrap();
        archive::export(store, &images, &output, None, &self.cancel).unwrap();
    }

    pub fn import_oci(&self, store: &Store, name: &str, reference: Option<&str>) -> Imported {
        archive::import_oci(store, &self.path(name), reference, &Platform::host(), &self.cancel).unwrap()
    }

    pub fn import_docker(&self, store: &Store, name: &str, reference: Option<&str>) -> Imported {
        archive::import_docker_archive(store, &self.path(name), reference, &Platform::host(), &self.cancel).unwrap()
    }
}

/// An image in a store, as a build leaves it behind.
pub struct Image {
    pub manifest: Digest,
    pub config: Digest,
    pub diff_ids: Vec<Digest>,
}

/// An image of layers that the store has; `config` is its runtime configuration.
pub fn put_image(store: &Store, diff_ids: Vec<Digest>, codec: Codec, config: Value) -> Image {
    let cancel = Cancel::new().unwrap();
    let platform = Platform::host();
    let history: Vec<Value> = diff_ids.iter().map(|_| json!({ "created_by": "test" })).collect();
    let config = json!({
        "architecture": platform.architecture,
        "os": platform.os,
        "config": config,
        "rootfs": { "type": "layers", "diff_ids": diff_ids },
        "history": history,
    })
    .to_string();
    let layers: Vec<Value> = diff_ids
        .iter()
        .map(|diff_id| serde_json::to_value(store.compressed(diff_id, codec, &cancel).unwrap()).unwrap())
        .collect();
    let config_digest = store.put_blob(config.as_bytes()).unwrap();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": config_digest,
            "size": config.len(),
        },
        "layers": layers,
    });
    let manifest = store.put_blob(manifest.to_string().as_bytes()).unwrap();
    Image { manifest, config: config_digest, diff_ids }
}
