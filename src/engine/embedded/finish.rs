//! What only an export or a push needs, made behind the critical path: compressed layers, configuration, manifest.

use std::collections::BTreeMap;

use super::EmbeddedEngine;
use crate::engine::{Built, Ctl, Published};
use crate::error::{Context as _, Result};
use crate::event::Event;
use crate::image::manifest::{Descriptor, Manifest, OCI_CONFIG, OCI_MANIFEST};

pub fn finish(engine: &EmbeddedEngine, built: &Built, names: &[String], ctl: &Ctl<'_>) -> Result<Published> {
    let store = &engine.store;
    let ids = &built.config.rootfs.diff_ids;
    let todo = ids.iter().filter(|id| !store.is_compressed(id, engine.options.codec)).count();
    if todo > 0 {
        let title = format!(
            "Compress {}",
            match todo {
                1 => "1 layer".to_owned(),
                n => format!("{n} layers"),
            }
        );
        ctl.sink.event(Event::Background { node: ctl.node.clone(), title });
    }
    let mut layers = Vec::with_capacity(ids.len());
    for id in ids {
        layers.push(store.compressed(id, engine.options.codec, ctl.cancel)?);
    }
    let config = serde_json::to_vec(&built.config).failed(|| "cannot write the image's configuration".into())?;
    let config_digest = store.put_blob(&config)?;
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
    let size = manifest.layers.iter().map(|l| l.size).sum();
    let text = serde_json::to_vec(&manifest).failed(|| "cannot write the image's manifest".into())?;
    let digest = store.put_blob(&text)?;
    for name in names {
        store.set_ref(name, &digest)?;
    }
    store.settle()?;
    Ok(Published { digest, config_digest, size })
}
