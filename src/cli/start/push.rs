//! `kollage start push`: the bundle in a registry.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use crate::cli::App;
use crate::cli::args::StartPush;
use crate::cli::machine;
use crate::cli::publish::{self, Publisher, Target};
use crate::cli::signals;
use crate::cli::workspace::{catalogue_root, source_date_epoch, store_path};
use crate::error::{Context as _, Result};
use crate::event::Cancel;
use crate::image::digest::Digest;
use crate::image::manifest::OCI_MANIFEST;
use crate::image::store::Store;
use crate::registry::Reference;
use crate::registry::push::{Blob, Image};
use crate::start::bundle::Bundle;

/// What says to tools for OCI artifacts what they have before them.
const ARTIFACT: &str = "application/vnd.kollage.start.bundle.v1";
const ARTIFACT_LAYER: &str = "application/vnd.kollage.start.bundle.v1.tar+gzip";
const EMPTY: &str = "application/vnd.oci.empty.v1+json";
/// What the file is called for whoever fetches it.
const FILE: &str = "kollage-start.tar.gz";

pub(super) fn run(app: &App, args: &StartPush) -> Result<u8> {
    let name = publish::target(&args.reference, None)?;
    let (_, bundle) = super::bundle(app, args.runtime.as_deref())?;
    let settings = super::settings(app)?;
    let store = machine::open_store(&store_path(&app.global, &app.env)?)?;
    let cancel = Cancel::new()?;
    signals::watch(&cancel, |_| {})?;
    let root = catalogue_root(&app.global)?;
    let publisher = Publisher::new(app, &args.pushing, &args.registries, &settings, &store, Some(&root))?;
    let sink = super::Told { look: app.look };
    publisher.check(&settings, std::slice::from_ref(&name), &sink, &cancel)?;
    let time = source_date_epoch(&app.env)?.unwrap_or(0);
    let node: Arc<str> = Arc::from("bundle");
    let (lines, error) = if args.artifact {
        let image = artifact(&store, &bundle, node, name, publisher.annotations(), time)?;
        publisher.told(&publisher.send(&[image], &sink, &cancel))
    } else {
        let written = bundle.write_image(&store, time, &cancel)?;
        publisher.push(&store, &[Target { node, name, manifest: written.digest }], &sink, &cancel)
    };
    lines.iter().for_each(|line| app.say(line));
    error.map_or(Ok(0), Err)
}

/// The bundle as one file, for tools that bring files from registries; nothing that could be run.
fn artifact(
    store: &Store,
    bundle: &Bundle,
    node: Arc<str>,
    name: Reference,
    annotations: &BTreeMap<String, String>,
    time: i64,
) -> Result<Image> {
    let tar = bundle.tar_gz(time).failed(|| "cannot make the bundle".into())?;
    let (empty, digest) = (b"{}", store.put_blob(&tar)?);
    let config = store.put_blob(empty)?;
    let mut manifest = json!({
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": ARTIFACT,
        "config": { "mediaType": EMPTY, "digest": config, "size": empty.len() },
        "layers": [{
            "mediaType": ARTIFACT_LAYER,
            "digest": digest,
            "size": tar.len(),
            "annotations": { "org.opencontainers.image.title": FILE },
        }],
    });
    if !annotations.is_empty() {
        manifest["annotations"] = json!(annotations);
    }
    let blob = |digest: &Digest, size: usize, what: &str| Blob {
        digest: digest.clone(),
        size: size as u64,
        path: store.blob_path(digest),
        what: what.to_owned(),
        near: None,
        from: None,
    };
    let blobs = vec![blob(&digest, tar.len(), "the bundle"), blob(&config, empty.len(), "an empty configuration")];
    let media_type = OCI_MANIFEST.to_owned();
    Ok(Image { node, name, manifest: manifest.to_string().into_bytes(), media_type, blobs, parts: Vec::new() })
}
