//! Records: small JSON files that say what is known about a key, a layer or a name.
//!
//! A record is written at once and without waiting for the disk. It carries the id of the boot in which it was
//! written and `synced: false`, and is believed in that boot only: after a crash of the machine neither it nor what
//! it speaks of need be on disk. `settle` waits for the disk, in the background, and then marks it.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{StepRecord, Store, file_name};
use crate::error::{Context, Error, Result};
use crate::image::digest::{Digest, Key};
use crate::image::layer::sys::OsContext;

#[derive(Serialize, Deserialize)]
pub(super) struct Envelope<T> {
    boot: String,
    synced: bool,
    pub(super) record: T,
}

/// Paths of records that this process relies on, and that still have to be marked.
#[derive(Debug, Default)]
pub(super) struct Unsettled(BTreeSet<PathBuf>);

/// Notes the use of a file by its time, for `prune`; coarse, so that a build without work writes next to nothing.
pub(super) fn touch(path: &Path) {
    let fresh = |time: SystemTime| time.elapsed().is_ok_and(|age| age < Duration::from_secs(3600));
    if std::fs::metadata(path).and_then(|m| m.modified()).is_ok_and(fresh) {
        return;
    }
    let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let times = Timestamps { last_access: omit, last_modification: now };
    // Of no consequence when it fails: the file looks a little older than it is.
    let _ = rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW);
}

impl<T> Envelope<T> {
    /// Whether it can be believed in this boot.
    pub(super) fn holds(&self, boot: &str) -> bool {
        self.synced || (!boot.is_empty() && self.boot == boot)
    }
}

/// None when there is nothing, or nothing that makes sense: a crash can leave an empty file.
pub(super) fn parse<T: DeserializeOwned>(path: &Path) -> Option<Envelope<T>> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

impl Store {
    pub(super) fn envelope<T: Serialize>(&self, record: &T) -> Result<Vec<u8>> {
        let envelope = Envelope { boot: self.inner.boot.clone(), synced: false, record };
        let mut bytes = serde_json::to_vec(&envelope).failed(|| "cannot write a record of the store".into())?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    pub(super) fn record<T: DeserializeOwned>(&self, path: &Path) -> Option<T> {
        let envelope: Envelope<T> = parse(path)?;
        if !envelope.holds(&self.inner.boot) {
            return None;
        }
        if !envelope.synced {
            // Its writer may have ended before it settled; whoever relies on it sees to it.
            self.unsettled(path.to_path_buf());
        }
        touch(path);
        Some(envelope.record)
    }

    pub(super) fn put_record<T: Serialize>(&self, path: &Path, record: &T) -> Result<()> {
        let bytes = self.envelope(record)?;
        let mut unsettled = self.inner.unsettled.lock().unwrap_or_else(PoisonError::into_inner);
        self.write_file(path, &bytes, false)?;
        unsettled.0.insert(path.to_path_buf());
        Ok(())
    }

    pub(super) fn unsettled(&self, path: PathBuf) {
        self.inner.unsettled.lock().unwrap_or_else(PoisonError::into_inner).0.insert(path);
    }

    /// Waits until everything that was recorded so far is on disk, and marks the records. Takes as long as the disk
    /// does; meant for a background thread and for the end of a run.
    pub fn settle(&self) -> Result<()> {
        let paths = {
            let mut unsettled = self.inner.unsettled.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut unsettled.0)
        };
        if paths.is_empty() {
            return Ok(());
        }
        let result = self.settle_records(&paths);
        if result.is_err() {
            self.inner.unsettled.lock().unwrap_or_else(PoisonError::into_inner).0.extend(paths);
        }
        result
    }

    fn settle_records(&self, paths: &BTreeSet<PathBuf>) -> Result<()> {
        let root = File::open(self.root()).os(self.root(), || "cannot open the store".into())?;
        let sync = || rustix::fs::syncfs(&root).os(self.root(), || "cannot write the store to disk".into());
        // What the records say, before the wait: one that is written during it must not be marked.
        let before: Vec<(&PathBuf, Vec<u8>)> =
            paths.iter().filter_map(|path| Some((path, std::fs::read(path).ok()?))).collect();
        sync()?;
        let mut marked = Vec::new();
        for (path, bytes) in before {
            let Ok(mut envelope) = serde_json::from_slice::<Envelope<Value>>(&bytes) else { continue };
            envelope.synced = true;
            let text = serde_json::to_vec(&envelope).failed(|| "cannot write a record of the store".into())?;
            let beside = self.inner.owner.fresh("settled");
            std::fs::write(&beside, text).os(&beside, || format!("cannot write {}", beside.display()))?;
            marked.push((path, bytes, beside));
        }
        // The marked ones reach the disk before they take the place of the others.
        sync()?;
        let _unsettled = self.inner.unsettled.lock().unwrap_or_else(PoisonError::into_inner);
        for (path, bytes, beside) in marked {
            if std::fs::read(path).is_ok_and(|now| now == bytes) {
                std::fs::rename(&beside, path).os(path, || format!("cannot write {}", path.display()))?;
            } else {
                let _ = std::fs::remove_file(&beside);
            }
        }
        Ok(())
    }

    // --- steps and results

    pub(super) fn step_path(&self, key: &Key) -> PathBuf {
        self.path("steps").join(format!("{}.json", file_name(key.as_str())))
    }

    pub(super) fn result_path(&self, key: &Key) -> PathBuf {
        self.path("results").join(format!("{}.json", file_name(key.as_str())))
    }

    /// None when there is none, or when its layer is gone.
    pub fn step(&self, key: &Key) -> Option<StepRecord> {
        let record: StepRecord = self.record(&self.step_path(key))?;
        match &record.layer {
            Some(diff_id) if self.layer(diff_id).is_none() => None,
            _ => Some(record),
        }
    }

    pub fn put_step(&self, key: &Key, record: &StepRecord) -> Result<()> {
        self.put_record(&self.step_path(key), record)
    }

    /// None when there is none, or when a layer that it needs is gone.
    pub fn result<T: DeserializeOwned>(&self, key: &Key) -> Option<T> {
        let value: Value = self.record(&self.result_path(key))?;
        if diff_ids(&value).ok()?.iter().any(|diff_id| self.layer(diff_id).is_none()) {
            return None;
        }
        serde_json::from_value(value).ok()
    }

    pub fn put_result<T: Serialize>(&self, key: &Key, record: &T) -> Result<()> {
        self.put_record(&self.result_path(key), record)
    }
}

/// Layers that a record names, wherever in it: every list called `diff_ids`, as in an image's configuration.
pub(super) fn diff_ids(value: &Value) -> Result<BTreeSet<Digest>> {
    fn collect(value: &Value, into: &mut BTreeSet<Digest>) -> Result<()> {
        match value {
            Value::Object(map) => {
                for (name, value) in map {
                    if name == "diff_ids" {
                        let ids: Vec<Digest> = serde_json::from_value(value.clone())
                            .map_err(|e| Error::failed("a record names layers that are none").cause(e))?;
                        into.extend(ids);
                    } else {
                        collect(value, into)?;
                    }
                }
            }
            Value::Array(list) => {
                for value in list {
                    collect(value, into)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
    let mut found = BTreeSet::new();
    collect(value, &mut found)?;
    Ok(found)
}
