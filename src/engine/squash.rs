//! `--squash`: what a node adds to its base becomes one layer, whatever engine has built it. The work is done in our store,
//! so that it is the same layer whoever built the others.

use super::{BuildJob, Built};
use crate::error::Result;
use crate::event::Cancel;
use crate::image::config::History;
use crate::image::store::Store;

/// Whether there is anything to do.
pub(super) fn is_wanted(job: &BuildJob, built: &Built) -> bool {
    job.squash && built.config.rootfs.diff_ids.len() > job.layers_below() + 1
}

/// The image with one layer above its base's; all layers of `built` are in the store.
pub(super) fn squashed(store: &Store, job: &BuildJob, mut built: Built, cancel: &Cancel) -> Result<Built> {
    let count = job.layers_below();
    let (below, own) = built.config.rootfs.diff_ids.split_at(count);
    let layer = store.squash(own, below, job.source_date_epoch, cancel)?;
    let comment = format!("{} layers as one", own.len());
    built.config.rootfs.diff_ids = [below, &[layer.diff_id]].concat();
    let mut layers = 0;
    for line in &mut built.config.history {
        if !line.empty_layer {
            layers += 1;
            line.empty_layer = layers > count;
        }
    }
    let created = built.config.created.clone();
    built.config.history.push(History { created, comment: Some(comment), ..History::default() });
    built.size = built.config.rootfs.diff_ids.iter().filter_map(|id| store.layer(id)).map(|layer| layer.size).sum();
    Ok(built)
}
