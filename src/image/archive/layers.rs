//! Blobs and layers on their way into the store: the checks that every source of an image goes through.

use std::fs::File;
use std::io::{self, Read};

use crate::error::{Context as _, Error, Result};
use crate::event::Cancel;
use crate::image::archive::{Cancellable, Imported, io_error};
use crate::image::config::{ImageConfig, Platform};
use crate::image::digest::Digest;
use crate::image::layer::hash::HashWriter;
use crate::image::manifest::{DOCKER_CONFIG, Descriptor, Manifest, OCI_CONFIG};
use crate::image::space::{Guard, Guarded};
use crate::image::store::Store;

/// As many as overlayfs takes.
const MAX_LAYERS: usize = 500;

/// Copies a blob into the store unless it is there; nothing is kept that is not what the descriptor says.
pub(super) fn keep_blob(store: &Store, from: impl Read, blob: &Descriptor, cancel: &Cancel) -> Result<()> {
    if store.has_blob(&blob.digest) {
        return Ok(());
    }
    let work = store.work_dir()?;
    let path = work.path().join("blob");
    let file = File::create_new(&path).unusable(|| format!("cannot create {}", path.display()))?;
    let mut out = HashWriter::new(file);
    // One byte more than it should have is enough to know that it is wrong.
    let guard = Guard::new(work.path());
    let from = Guarded { inner: Cancellable { inner: from, cancel }, guard };
    let mut from = from.take(blob.size.saturating_add(1));
    io::copy(&mut from, &mut out).map_err(|e| io_error(cancel, format!("cannot copy the blob {}", blob.digest), &e))?;
    let (digest, size, _) = out.finish();
    if size != blob.size || digest != blob.digest {
        return Err(damaged(blob, size, &digest));
    }
    store.adopt_blob(&path, &blob.digest)
}

pub(crate) fn damaged(blob: &Descriptor, size: u64, digest: &Digest) -> Error {
    let error = Error::unusable(format!("the blob {} is damaged", blob.digest));
    if size == blob.size {
        error.cause(format!("its content has the digest {digest}"))
    } else if size > blob.size {
        error.cause(format!("it is longer than the {} bytes that the manifest says", blob.size))
    } else {
        error.cause(format!("it has {size} bytes, the manifest says {}", blob.size))
    }
}

/// The configuration that a manifest names, checked to belong to it and to the platform.
pub(crate) fn read_config(
    bytes: &[u8],
    media_type: Option<&str>,
    layers: usize,
    platform: &Platform,
    what: &str,
) -> Result<ImageConfig> {
    if let Some(other) = media_type.filter(|m| *m != OCI_CONFIG && *m != DOCKER_CONFIG) {
        return Err(Error::unusable(format!("{what} is not a container image"))
            .cause(format!("its configuration has the media type {other}")));
    }
    let config: ImageConfig = serde_json::from_slice(bytes)
        .map_err(|e| Error::unusable(format!("the configuration of {what} cannot be understood")).cause(e))?;
    let diff_ids = config.rootfs.diff_ids.len();
    if layers.max(diff_ids) > MAX_LAYERS {
        return Err(Error::unusable(format!("{what} has {} layers", layers.max(diff_ids)))
            .cause(format!("more than {MAX_LAYERS} cannot be put together; other tools stop at 127")));
    }
    if diff_ids != layers {
        return Err(Error::unusable(format!("{what} contradicts itself"))
            .cause(format!("there are {layers} layers, and its configuration names {diff_ids}")));
    }
    super::platform::check(&config, platform, what)?;
    Ok(config)
}

/// Unpacks the layers of an image whose blobs are all in the store, lowest first.
pub(super) fn unpack_all(
    store: &Store,
    manifest: &Manifest,
    digest: Digest,
    config: ImageConfig,
    cancel: &Cancel,
) -> Result<Imported> {
    let mut size = 0;
    for (i, (blob, diff_id)) in manifest.layers.iter().zip(&config.rootfs.diff_ids).enumerate() {
        cancel.check()?;
        size += store.unpack_blob(blob, &config.rootfs.diff_ids[..i], Some(diff_id), cancel)?.size;
    }
    Ok(Imported { config, size, manifest: Some(digest) })
}
