//! Looks at everything in the store: whether layers and blobs are what their names say, and whether records speak of
//! things that are there.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde::Serialize;
use serde_json::Value;

use super::layers::LayerRecord;
use super::prune::digest_of;
use super::{Codec, Ref, StepRecord, Store, records};
use crate::error::Result;
use crate::event::Cancel;
use crate::image::digest::Digest;
use crate::image::layer::hash::HashWriter;
use crate::image::layer::sys::{self, OsContext};
use crate::image::manifest::{Descriptor, Manifest};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Damage {
    /// The contents are not what the name says.
    Changed,
    /// It can't be read, or makes no sense.
    Unreadable,
    /// It speaks of something that isn't there.
    Dangling,
    /// It was being written when the machine stopped; it is not used, and made again when it is needed.
    Unfinished,
    /// It doesn't belong there.
    Stray,
}

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub damage: Damage,
    /// `layer sha256:…`, `image kollage/base:1`, …
    pub what: String,
    /// In plain words.
    pub problem: String,
    pub path: PathBuf,
    /// Whether it was removed.
    pub repaired: bool,
}

impl Finding {
    /// Nothing is wrong with what is in use.
    pub fn is_harmless(&self) -> bool {
        matches!(self.damage, Damage::Unfinished | Damage::Stray)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.problem)?;
        if self.repaired { f.write_str(" (removed)") } else { Ok(()) }
    }
}

impl Store {
    /// Everything that is wrong, in a fixed order. With `repair` what is damaged is removed, so that it is made again
    /// when it is needed; nothing else may use the store meanwhile.
    pub fn verify(&self, repair: bool, cancel: &Cancel) -> Result<Vec<Finding>> {
        if !repair {
            return self.find(cancel);
        }
        self.exclusive()?;
        let result = self.repair(cancel);
        self.shared_again()?;
        result
    }

    fn repair(&self, cancel: &Cancel) -> Result<Vec<Finding>> {
        let mut all: Vec<Finding> = Vec::new();
        // What is removed can leave others without what they speak of. Each round removes something, so it ends.
        loop {
            let mut found = self.find(cancel)?;
            found.retain(|f| !all.iter().any(|a| a.path == f.path && !a.repaired));
            if found.is_empty() {
                return Ok(all);
            }
            let work = self.work_dir()?;
            for (i, finding) in found.iter_mut().enumerate() {
                let bin = work.path().join(i.to_string());
                finding.repaired = match std::fs::rename(&finding.path, bin) {
                    Ok(()) => true,
                    Err(e) => e.kind() == io::ErrorKind::NotFound,
                };
            }
            all.append(&mut found);
        }
    }

    fn find(&self, cancel: &Cancel) -> Result<Vec<Finding>> {
        let layers = self.files("layers")?;
        let blobs = self.files("blobs/sha256")?;
        let mut found: Vec<Finding> = layers
            .par_iter()
            .map(|path| self.verify_layer(path, cancel))
            .chain(blobs.par_iter().map(|path| self.verify_blob(path, cancel)))
            .collect::<Result<Vec<Vec<Finding>>>>()?
            .concat();
        for path in self.files("steps")? {
            found.extend(self.verify_step(&path));
        }
        for path in self.files("results")? {
            found.extend(self.verify_result(&path));
        }
        for path in self.files("refs")? {
            found.extend(self.verify_ref(&path));
        }
        Ok(found)
    }

    fn verify_layer(&self, path: &Path, cancel: &Cancel) -> Result<Vec<Finding>> {
        cancel.check()?;
        let Some(diff_id) = digest_of(path) else {
            return Ok(vec![stray(path, "layers")]);
        };
        let what = format!("layer {diff_id}");
        let record = match self.verify_files(path, &diff_id, &what, cancel)? {
            Ok(record) => record,
            Err(finding) => return Ok(vec![finding]),
        };
        let mut found = Vec::new();
        if let Some(source) = record.source.filter(|s| !self.has_blob(&s.digest)) {
            let problem = format!("the blob {} with its tar is missing", source.digest);
            found.push(finding(Damage::Dangling, &what, problem, path));
        }
        for variant in self.variants(path)? {
            let what = format!("{what} over other layers");
            found.extend(self.verify_files(&variant, &diff_id, &what, cancel)?.err());
        }
        for codec in [Codec::Gzip, Codec::Zstd, Codec::None] {
            let path = self.codec_path(&diff_id, codec);
            if !path.exists() {
                continue;
            }
            let what = format!("{} form of layer {diff_id}", codec.name());
            match records::parse::<Descriptor>(&path) {
                None => found.push(finding(Damage::Unreadable, &what, "its record makes no sense", &path)),
                Some(e) if !e.holds(&self.inner.boot) => found.push(unfinished(&what, &path)),
                Some(e) if !self.has_blob(&e.record.digest) => {
                    let problem = format!("the blob {} is missing", e.record.digest);
                    found.push(finding(Damage::Dangling, &what, problem, &path));
                }
                Some(_) => {}
            }
        }
        Ok(found)
    }

    /// The record of a layer's directory, or what is wrong with either.
    fn verify_files(
        &self,
        path: &Path,
        diff_id: &Digest,
        what: &str,
        cancel: &Cancel,
    ) -> Result<std::result::Result<LayerRecord, Finding>> {
        let wrong = |damage, problem: String| Ok(Err(finding(damage, what, problem, path)));
        let Some(envelope) = records::parse::<LayerRecord>(&path.join("layer.json")) else {
            return wrong(Damage::Unreadable, "its layer.json is missing or makes no sense".into());
        };
        if !envelope.holds(&self.inner.boot) {
            return Ok(Err(unfinished(what, path)));
        }
        let record = envelope.record;
        if record.layer.diff_id != *diff_id {
            return wrong(Damage::Changed, format!("its layer.json speaks of {}", record.layer.diff_id));
        }
        match self.tree(&path.join("fs"), Some(cancel)) {
            Ok(tree) if tree == record.tree => Ok(Ok(record)),
            Ok(_) => wrong(Damage::Changed, "its files are not those it was made of".into()),
            Err(e) if e.kind() == crate::error::Kind::Interrupted => Err(e),
            Err(e) => wrong(Damage::Unreadable, e.to_string()),
        }
    }

    fn verify_blob(&self, path: &Path, cancel: &Cancel) -> Result<Vec<Finding>> {
        cancel.check()?;
        let Some(digest) = digest_of(path) else {
            return Ok(vec![stray(path, "blobs")]);
        };
        let what = format!("blob {digest}");
        match self.hash_file(path, cancel) {
            Ok(found) if found == digest => Ok(Vec::new()),
            Ok(found) => {
                Ok(vec![finding(Damage::Changed, &what, format!("its contents have the digest {found}"), path)])
            }
            Err(e) if e.kind() == crate::error::Kind::Interrupted => Err(e),
            Err(e) => Ok(vec![finding(Damage::Unreadable, &what, e.to_string(), path)]),
        }
    }

    fn hash_file(&self, path: &Path, cancel: &Cancel) -> Result<Digest> {
        let cannot = || format!("cannot read {}", path.display());
        let mut file = std::fs::File::open(path).os(path, cannot)?;
        let mut hash = HashWriter::new(io::sink());
        let mut buffer = vec![0u8; 256 * 1024];
        loop {
            cancel.check()?;
            match io::Read::read(&mut file, &mut buffer) {
                Ok(0) => return Ok(hash.finish().0),
                Ok(n) => io::Write::write_all(&mut hash, &buffer[..n]).os(path, cannot)?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e).os(path, cannot),
            }
        }
    }

    fn verify_step(&self, path: &Path) -> Option<Finding> {
        let what = format!("step {}", stem(path));
        let Some(envelope) = records::parse::<StepRecord>(path) else {
            return Some(finding(Damage::Unreadable, &what, "its record makes no sense", path));
        };
        if !envelope.holds(&self.inner.boot) {
            return Some(unfinished(&what, path));
        }
        let layer = envelope.record.layer.filter(|l| self.layer(l).is_none())?;
        Some(finding(Damage::Dangling, &what, format!("its layer {layer} is missing"), path))
    }

    fn verify_result(&self, path: &Path) -> Option<Finding> {
        let what = format!("result {}", stem(path));
        let parsed = records::parse::<Value>(path).and_then(|e| Some((records::diff_ids(&e.record).ok()?, e)));
        let Some((layers, envelope)) = parsed else {
            return Some(finding(Damage::Unreadable, &what, "its record makes no sense", path));
        };
        if !envelope.holds(&self.inner.boot) {
            return Some(unfinished(&what, path));
        }
        let layer = layers.into_iter().find(|l| self.layer(l).is_none())?;
        Some(finding(Damage::Dangling, &what, format!("its layer {layer} is missing"), path))
    }

    fn verify_ref(&self, path: &Path) -> Option<Finding> {
        let named: Option<Ref> = std::fs::read(path).ok().and_then(|b| serde_json::from_slice(&b).ok());
        let Some(named) = named else {
            return Some(finding(
                Damage::Unreadable,
                &format!("name {}", stem(path)),
                "its record makes no sense",
                path,
            ));
        };
        let what = format!("image {}", named.name);
        let dangling = |problem: String| Some(finding(Damage::Dangling, &what, problem, path));
        if !self.has_blob(&named.manifest) {
            return dangling(format!("its manifest {} is missing", named.manifest));
        }
        let manifest: Manifest = match self.manifest(&named.manifest) {
            Ok(manifest) => manifest,
            Err(e) => return Some(finding(Damage::Unreadable, &what, e.to_string(), path)),
        };
        if !self.has_blob(&manifest.config.digest) {
            return dangling(format!("its configuration {} is missing", manifest.config.digest));
        }
        let missing = manifest.layers.iter().find(|l| !self.has_blob(&l.digest))?;
        dangling(format!("its layer {} is missing", missing.digest))
    }
}

fn finding(damage: Damage, what: &str, problem: impl Into<String>, path: &Path) -> Finding {
    Finding { damage, what: what.to_owned(), problem: problem.into(), path: path.to_path_buf(), repaired: false }
}

fn unfinished(what: &str, path: &Path) -> Finding {
    finding(Damage::Unfinished, what, "it was being written when the machine stopped, and is not used", path)
}

fn stray(path: &Path, directory: &str) -> Finding {
    let name = sys::show(path.file_name().unwrap_or_default().as_encoded_bytes());
    finding(Damage::Stray, &format!("`{name}` in {directory}"), "it does not belong there", path)
}

fn stem(path: &Path) -> String {
    sys::show(path.file_stem().unwrap_or_default().as_encoded_bytes())
}
