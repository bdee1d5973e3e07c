//! What only an export or a push needs, made behind the critical path: compressed layers, configuration, manifest.

use super::EmbeddedEngine;
use crate::engine::{Built, Ctl, Published};
use crate::error::Result;
use crate::event::Event;

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
    let written = store.put_image(&built.config, layers)?;
    for name in names {
        store.set_ref(name, &written.digest)?;
    }
    store.settle()?;
    Ok(Published { digest: written.digest, config_digest: written.config_digest, size: written.size })
}
