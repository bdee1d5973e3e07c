//! Small images made by hand, for tests.

use std::io::Write as _;

use serde_json::json;

use crate::event::Cancel;
use crate::image::config::Platform;
use crate::image::digest::Digest;
use crate::image::manifest::{OCI_CONFIG, OCI_LAYER_GZIP, OCI_MANIFEST};
use crate::image::store::Store;

pub(crate) struct Image {
    pub config: Vec<u8>,
    pub manifest: Vec<u8>,
    pub layers: Vec<Blob>,
}

pub(crate) struct Blob {
    pub plain: Vec<u8>,
    pub gzip: Vec<u8>,
}

impl Blob {
    pub(crate) fn diff_id(&self) -> Digest {
        Digest::of(&self.plain)
    }

    pub(crate) fn digest(&self) -> Digest {
        Digest::of(&self.gzip)
    }
}

/// One layer for each list of names and contents; a name that ends in `/` is a directory.
pub(crate) fn image(layers: &[&[(&str, &str)]]) -> Image {
    image_for(&Platform::host(), layers)
}

pub(crate) fn image_for(platform: &Platform, layers: &[&[(&str, &str)]]) -> Image {
    let layers: Vec<Blob> = layers
        .iter()
        .map(|files| {
            let plain = tar(files);
            // A level that Kollage itself does not use: what comes back was kept, not made again.
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
            gzip.write_all(&plain).unwrap();
            Blob { gzip: gzip.finish().unwrap(), plain }
        })
        .collect();
    let diff_ids: Vec<Digest> = layers.iter().map(Blob::diff_id).collect();
    let config = json!({
        "architecture": platform.architecture,
        "os": platform.os,
        "config": { "Cmd": ["/bin/x"], "Env": ["PATH=/bin"] },
        "rootfs": { "type": "layers", "diff_ids": diff_ids },
    });
    let config = config.to_string().into_bytes();
    let descriptors: Vec<_> = layers
        .iter()
        .map(|l| json!({ "mediaType": OCI_LAYER_GZIP, "digest": l.digest(), "size": l.gzip.len() }))
        .collect();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": { "mediaType": OCI_CONFIG, "digest": Digest::of(&config), "size": config.len() },
        "layers": descriptors,
    });
    Image { config, manifest: manifest.to_string().into_bytes(), layers }
}

pub(crate) fn tar(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_ustar();
        let directory = name.ends_with('/');
        header.set_entry_type(if directory { tar::EntryType::Directory } else { tar::EntryType::Regular });
        header.set_mode(if directory { 0o755 } else { 0o644 });
        header.set_uid(7);
        header.set_gid(8);
        header.set_mtime(1_000_000_000);
        header.set_size(content.len() as u64);
        builder.append_data(&mut header, name, content.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap()
}

impl Image {
    pub(crate) fn digest(&self) -> Digest {
        Digest::of(&self.manifest)
    }

    pub(crate) fn diff_ids(&self) -> Vec<Digest> {
        self.layers.iter().map(Blob::diff_id).collect()
    }

    /// As a build leaves it behind: unpacked layers, and every blob that the manifest names.
    pub(crate) fn put(&self, store: &Store) -> Digest {
        let cancel = Cancel::new().unwrap();
        let diff_ids = self.diff_ids();
        for (i, layer) in self.layers.iter().enumerate() {
            store.put_blob(&layer.gzip).unwrap();
            store.unpack_layer(&mut &*layer.gzip, &diff_ids[..i], Some(&diff_ids[i]), &cancel).unwrap();
        }
        store.put_blob(&self.config).unwrap();
        store.put_blob(&self.manifest).unwrap()
    }

    /// Every blob by its digest.
    pub(crate) fn blobs(&self) -> Vec<(Digest, &[u8])> {
        let layers = self.layers.iter().map(|l| &*l.gzip);
        layers.chain([&*self.config, &*self.manifest]).map(|bytes| (Digest::of(bytes), bytes)).collect()
    }
}

/// Layers are unpacked with their owners; says so where that cannot be.
pub(crate) fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        #[allow(clippy::print_stderr)]
        {
            eprintln!("skipped: needs root to give files their owners");
        }
    }
    root
}
