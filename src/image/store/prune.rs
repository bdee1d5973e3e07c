//! Removes what no image needs. Nothing else may use the store meanwhile.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::layers::LayerRecord;
use super::runs::KEPT_BY_PRUNE;
use super::{Codec, Ref, StepRecord, Store, WorkDir, records};
use crate::error::Result;
use crate::event::Cancel;
use crate::image::digest::Digest;
use crate::image::layer::sys::{self, OsContext};
use crate::image::manifest::{Descriptor, Manifest};

/// What to remove besides what no named image needs.
#[derive(Clone, Debug, Default)]
pub struct PruneOptions {
    /// The named images themselves too.
    pub all: bool,
    /// Leaves alone whatever was used within this time.
    pub unused_for: Option<Duration>,
    /// Cache mounts too.
    pub caches: bool,
    /// Only says what would be removed.
    pub dry_run: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PruneReport {
    /// Names that were removed.
    pub images: Vec<String>,
    pub layers: u64,
    pub blobs: u64,
    pub steps: u64,
    pub results: u64,
    pub caches: u64,
    /// Runs whose record and logs were removed.
    pub runs: u64,
    /// Bytes on disk.
    pub freed: u64,
}

/// What has to stay.
#[derive(Default)]
struct Live {
    layers: BTreeSet<Digest>,
    blobs: BTreeSet<Digest>,
}

struct Pruner<'a> {
    store: &'a Store,
    options: &'a PruneOptions,
    cancel: &'a Cancel,
    report: PruneReport,
    /// What is removed goes here first, whole, so that nobody ever sees half of it.
    bin: Option<WorkDir>,
}

impl Store {
    /// An error when a build is running, here or elsewhere. What was removed before an error stays removed, and what
    /// is left is whole.
    pub fn prune(&self, options: &PruneOptions, cancel: &Cancel) -> Result<PruneReport> {
        if options.dry_run {
            return self.prune_locked(options, cancel);
        }
        self.exclusive()?;
        let result = self.prune_locked(options, cancel);
        self.shared_again()?;
        result
    }

    fn prune_locked(&self, options: &PruneOptions, cancel: &Cancel) -> Result<PruneReport> {
        let bin = if options.dry_run { None } else { Some(self.work_dir()?) };
        let mut pruner = Pruner { store: self, options, cancel, report: PruneReport::default(), bin };
        let live = pruner.live()?;
        // Names first and files last: at no moment does a record speak of something that is gone.
        pruner.records(&live)?;
        pruner.layers(&live)?;
        pruner.blobs(&live)?;
        pruner.runs()?;
        if options.caches {
            let sources = ["sources/files", "sources/git", "sources/addresses"];
            let kept = ["cache"].iter().chain(&sources).map(|dir| self.files(dir)).collect::<Result<Vec<_>>>()?;
            for path in kept.into_iter().flatten() {
                if !pruner.recent(&path) {
                    pruner.remove(&path)?;
                    pruner.report.caches += 1;
                }
            }
        }
        if !options.dry_run {
            // Nobody waits for a lock now. Too small to be counted.
            for path in self.files("locks")? {
                let _ = std::fs::remove_file(path);
            }
        }
        Ok(pruner.report)
    }
}

impl Pruner<'_> {
    fn recent(&self, path: &Path) -> bool {
        let Some(limit) = self.options.unused_for else { return false };
        let age = std::fs::metadata(path).and_then(|m| m.modified()).ok().and_then(|time| time.elapsed().ok());
        // A time in the future is recent too.
        age.is_none_or(|age| age < limit)
    }

    fn keeps_ref(&self, path: &Path) -> bool {
        !self.options.all || self.recent(path)
    }

    fn live(&self) -> Result<Live> {
        let mut live = Live::default();
        for path in self.store.files("refs")? {
            let Some(named) = read::<Ref>(&path).filter(|_| self.keeps_ref(&path)) else { continue };
            live.blobs.insert(named.manifest.clone());
            // A damaged image keeps what can be read of it.
            let Some(manifest) = read::<Manifest>(&self.store.blob_path(&named.manifest)) else { continue };
            live.blobs.extend(manifest.layers.into_iter().map(|l| l.digest));
            if let Ok(config) = self.store.image_config(&manifest.config.digest) {
                live.layers.extend(config.rootfs.diff_ids);
            }
            live.blobs.insert(manifest.config.digest);
        }
        if self.options.unused_for.is_some() {
            self.recently_used(&mut live)?;
        }
        for diff_id in &live.layers {
            let json = self.store.layer_dir(diff_id).join("layer.json");
            if let Some(source) = records::parse::<LayerRecord>(&json).and_then(|e| e.record.source) {
                live.blobs.insert(source.digest);
            }
        }
        Ok(live)
    }

    fn recently_used(&self, live: &mut Live) -> Result<()> {
        for path in self.store.files("results")?.iter().filter(|p| self.recent(p)) {
            if let Some(envelope) = records::parse::<Value>(path) {
                live.layers.extend(records::diff_ids(&envelope.record).unwrap_or_default());
            }
        }
        for path in self.store.files("steps")?.iter().filter(|p| self.recent(p)) {
            live.layers.extend(records::parse::<StepRecord>(path).and_then(|e| e.record.layer));
        }
        for path in self.store.files("layers")? {
            if self.recent(&path.join("layer.json")) {
                live.layers.extend(digest_of(&path));
            }
        }
        for path in self.store.files("blobs/sha256")? {
            if self.recent(&path) {
                live.blobs.extend(digest_of(&path));
            }
        }
        Ok(())
    }

    fn records(&mut self, live: &Live) -> Result<()> {
        for path in self.store.files("refs")? {
            if !self.keeps_ref(&path) {
                if let Some(named) = read::<Ref>(&path) {
                    self.report.images.push(named.name);
                }
                self.remove(&path)?;
            }
        }
        for path in self.store.files("results")? {
            let layers = records::parse::<Value>(&path).and_then(|e| records::diff_ids(&e.record).ok());
            let needed = layers.is_some_and(|l| l.is_subset(&live.layers) && !(l.is_empty() && self.options.all));
            if !needed && !self.recent(&path) {
                self.remove(&path)?;
                self.report.results += 1;
            }
        }
        for path in self.store.files("steps")? {
            let needed = match records::parse::<StepRecord>(&path).map(|e| e.record.layer) {
                Some(Some(layer)) => live.layers.contains(&layer),
                Some(None) => !self.options.all,
                None => false,
            };
            if !needed && !self.recent(&path) {
                self.remove(&path)?;
                self.report.steps += 1;
            }
        }
        Ok(())
    }

    fn layers(&mut self, live: &Live) -> Result<()> {
        for path in self.store.files("layers")? {
            self.cancel.check()?;
            match digest_of(&path).filter(|d| live.layers.contains(d)) {
                None => {
                    self.remove(&path)?;
                    self.report.layers += 1;
                }
                Some(diff_id) => {
                    for codec in [Codec::Gzip, Codec::Zstd, Codec::None] {
                        let path = self.store.codec_path(&diff_id, codec);
                        let blob = records::parse::<Descriptor>(&path).map(|e| e.record.digest);
                        if path.exists() && !blob.is_some_and(|b| live.blobs.contains(&b)) {
                            self.remove(&path)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn blobs(&mut self, live: &Live) -> Result<()> {
        for path in self.store.files("blobs/sha256")? {
            self.cancel.check()?;
            if !digest_of(&path).is_some_and(|d| live.blobs.contains(&d)) {
                self.remove(&path)?;
                self.report.blobs += 1;
            }
        }
        Ok(())
    }

    /// All but the last ones.
    fn runs(&mut self) -> Result<()> {
        let names = self.store.all_runs()?;
        let kept = if self.options.all { 0 } else { KEPT_BY_PRUNE };
        for name in names.iter().take(names.len().saturating_sub(kept)) {
            let paths = self.store.paths_of_run(name);
            if !paths.iter().any(|path| self.recent(path)) {
                paths.iter().try_for_each(|path| self.remove(path))?;
                self.report.runs += 1;
            }
        }
        Ok(())
    }

    fn remove(&mut self, path: &Path) -> Result<()> {
        self.report.freed += sys::disk_use(path);
        let Some(bin) = &self.bin else { return Ok(()) };
        let cannot = || format!("cannot remove {}", path.display());
        if path.is_dir() {
            let gone = bin.path().join("gone");
            std::fs::rename(path, &gone).os(path, cannot)?;
            sys::remove_tree(&gone).os(&gone, cannot)
        } else {
            std::fs::remove_file(path).os(path, cannot)
        }
    }
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// Of a directory in `layers` or a file in `blobs`; None when the name is none.
pub(super) fn digest_of(path: &Path) -> Option<Digest> {
    format!("sha256:{}", path.file_name()?.to_str()?).parse().ok()
}
