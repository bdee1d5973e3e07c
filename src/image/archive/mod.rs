//! Images in files: OCI image layouts, Docker archives and plain root file systems, written and read.
//!
//! Whatever is written appears whole or not at all, and its bytes depend on the images alone. Whatever is read is
//! checked against the digests that name it.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::Path;

use crate::error::{Error, Result};
use crate::event::Cancel;
use crate::image::config::{ImageConfig, Platform};
use crate::image::digest::Digest;
use crate::image::manifest::Manifest;
use crate::image::reference::Reference;
use crate::image::store::Store;

pub(crate) mod docker;
mod files;
pub(crate) mod layers;
mod oci;
pub mod output;
pub(crate) mod platform;
pub(crate) mod staging;
mod tree;

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;

pub use output::{Format, Output};

/// No manifest, index or configuration of a real image comes near this.
pub(crate) const MAX_JSON: u64 = 16 << 20;

/// A finished image in the store, to be written somewhere.
#[derive(Clone, Debug)]
pub struct ExportImage {
    pub name: Reference,
    /// Digest of the manifest, whose blobs are all in the store.
    pub manifest: Digest,
}

/// An image that was brought into the store: its layers are unpacked, its blobs are kept as they came.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    pub config: ImageConfig,
    /// Uncompressed size of all layers.
    pub size: u64,
    /// Of the manifest, where the source has one.
    pub manifest: Option<Digest>,
}

/// Writes images as `output` says. The formats that hold one image refuse more. Times later than `source_date_epoch`
/// become it where files are written one by one; layers have that behind them. Gives what a user could not keep.
pub fn export(
    store: &Store,
    images: &[ExportImage],
    output: &Output,
    source_date_epoch: Option<i64>,
    cancel: &Cancel,
) -> Result<Option<String>> {
    if images.is_empty() {
        return Err(Error::bad_input("there is no image to write"));
    }
    check_destination(output)?;
    let names: BTreeSet<String> = images.iter().map(|image| image.name.to_string()).collect();
    if names.len() < images.len() && !output.format.holds_platforms() {
        return Err(Error::bad_input(format!("type `{}` holds one platform", output.format)));
    }
    if names.len() > 1 {
        if !output.format.holds_several() {
            return Err(Error::bad_input(format!("type `{}` holds one image, not {}", output.format, names.len()))
                .hint("select one image, or write type=oci"));
        }
        if output.name.is_some() {
            return Err(Error::bad_input(format!("`name` can name one image, not {}", names.len()))
                .hint("leave `name` out: each image keeps its own"));
        }
    }
    let images: Vec<Prepared> = images
        .iter()
        .map(|image| Prepared::read(store, output.name.as_ref().unwrap_or(&image.name), &image.manifest))
        .collect::<Result<_>>()?;
    // A link stays: what it points to is written.
    let dest = &std::fs::canonicalize(&output.dest).unwrap_or_else(|_| output.dest.clone());
    // Of the one image where the format has room for one.
    let diff_ids = &images[0].config.rootfs.diff_ids;
    let whole = |()| None;
    match output.format {
        Format::OciLayout => oci::write_directory(store, &images, dest, cancel).map(whole),
        Format::OciTar => oci::write_tar(store, &images, dest, cancel).map(whole),
        Format::Docker => docker::write(store, &images, dest, cancel).map(whole),
        Format::Tar => tree::write_tar(store, diff_ids, dest, source_date_epoch, cancel).map(whole),
        Format::Local => tree::write_directory(store, diff_ids, dest, source_date_epoch, cancel),
    }
    .map_err(|e| e.context(format!("cannot write {}", dest.display())))
}

/// Whether `output` can be written, as far as that can be told before there is an image: devices, pipes and
/// directories are never replaced by a file, nor files by a directory.
pub fn check_destination(output: &Output) -> Result<()> {
    let dest = &output.dest;
    let wants_directory = matches!(output.format, Format::OciLayout | Format::Local);
    let found = match std::fs::metadata(dest) {
        Ok(found) => found,
        Err(e) if e.kind() == io::ErrorKind::NotFound && !dest.is_symlink() => return Ok(()),
        Err(e) => return Err(Error::bad_input(format!("cannot write to {}", dest.display())).cause(e)),
    };
    let what = match (found.is_dir(), found.is_file()) {
        (true, _) if wants_directory => return Ok(()),
        (_, true) if !wants_directory => return Ok(()),
        (true, _) => "a directory",
        (_, true) => "a file",
        _ => "neither a file nor a directory",
    };
    let wanted = if wants_directory { "a directory" } else { "a file" };
    Err(Error::bad_input(format!("cannot write {wanted} to {}: it is {what}", dest.display()))
        .hint("name another destination with dest=PATH"))
}

/// Reads an OCI image layout: a directory, or a tar of one. `reference` chooses among several by its ref name.
pub fn import_oci(
    store: &Store,
    path: &Path,
    reference: Option<&str>,
    platform: &Platform,
    cancel: &Cancel,
) -> Result<Imported> {
    oci::read(store, path, reference, platform, cancel)
        .map_err(|e| e.context(format!("cannot read the OCI image layout {}", path.display())))
}

/// Reads what `docker save`, `podman save` and `skopeo copy … docker-archive:` write. `reference` chooses among
/// several by one of their names.
pub fn import_docker_archive(
    store: &Store,
    path: &Path,
    reference: Option<&str>,
    platform: &Platform,
    cancel: &Cancel,
) -> Result<Imported> {
    docker::read(store, path, reference, platform, cancel)
        .map_err(|e| e.context(format!("cannot read the Docker archive {}", path.display())))
}

/// An image with what every writer needs of it.
struct Prepared {
    name: Reference,
    digest: Digest,
    manifest_bytes: Vec<u8>,
    manifest: Manifest,
    config_bytes: Vec<u8>,
    config: ImageConfig,
}

impl Prepared {
    fn read(store: &Store, name: &Reference, digest: &Digest) -> Result<Prepared> {
        let broken = |what: &str, e: &dyn std::fmt::Display| {
            Error::unusable(format!("the store's {what} of {} cannot be read", name.familiar())).cause(e)
        };
        let manifest_bytes = store.read_blob(digest)?;
        let manifest: Manifest = serde_json::from_slice(&manifest_bytes).map_err(|e| broken("manifest", &e))?;
        let config_bytes = store.read_blob(&manifest.config.digest)?;
        let config: ImageConfig = serde_json::from_slice(&config_bytes).map_err(|e| broken("configuration", &e))?;
        if config.rootfs.diff_ids.len() != manifest.layers.len() {
            return Err(broken("manifest", &"it has another number of layers than the configuration"));
        }
        Ok(Prepared {
            name: name.clone().with_default_tag(),
            digest: digest.clone(),
            manifest_bytes,
            manifest,
            config_bytes,
            config,
        })
    }

    /// What Docker calls the image: a name with a tag, never a digest.
    fn repo_tag(&self) -> Option<String> {
        let familiar = self.name.familiar();
        self.name.tag()?;
        Some(familiar.split_once('@').map_or(familiar.clone(), |(name, _)| name.to_owned()))
    }
}

/// Fails reads once the run is cancelled, so that copying a large file stops soon.
pub(crate) struct Cancellable<'a, R> {
    pub inner: R,
    pub cancel: &'a Cancel,
}

impl<R: Read> Read for Cancellable<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            // Not `Interrupted`, which every loop would take as a reason to try again.
            return Err(io::Error::other("interrupted"));
        }
        self.inner.read(buf)
    }
}

/// An I/O error under a sentence, or the interruption that it really was.
pub(crate) fn io_error(cancel: &Cancel, message: impl Into<String>, error: &dyn std::fmt::Display) -> Error {
    if cancel.is_cancelled() { Error::interrupted() } else { Error::unusable(message).cause(error) }
}
