//! The image configuration (OCI image spec, config.md) with the fields that Docker adds to it.
//!
//! oci-spec's types know neither `Healthcheck`, `Shell` nor `OnBuild` and drop what they don't know; a parent's
//! configuration has to come through a build whole, so unknown fields are kept in `other`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::image::digest::{Digest, Key, KeyHasher};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ImageConfig {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    pub architecture: String,
    pub os: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    #[serde(default)]
    pub config: RuntimeConfig,
    pub rootfs: RootFs,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<History>,
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RootFs {
    #[serde(rename = "type")]
    pub kind: String,
    pub diff_ids: Vec<Digest>,
}

impl Default for RootFs {
    fn default() -> Self {
        RootFs { kind: "layers".into(), diff_ids: Vec::new() }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub empty_layer: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct RuntimeConfig {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub exposed_ports: BTreeMap<String, Empty>,
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub env: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cmd: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthcheck: Option<Healthcheck>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_is_default")]
    pub volumes: BTreeMap<String, Empty>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub working_dir: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub on_build: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_is_default")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<Vec<String>>,
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

impl RuntimeConfig {
    pub fn env_get(&self, name: &str) -> Option<&str> {
        self.env.iter().find_map(|e| e.split_once('=').filter(|(n, _)| *n == name).map(|(_, v)| v))
    }

    /// Replaces in place or appends, as Docker does: the order of first setting is kept.
    pub fn env_set(&mut self, name: &str, value: &str) {
        let entry = format!("{name}={value}");
        match self.env.iter_mut().find(|e| e.split_once('=').is_some_and(|(n, _)| n == name)) {
            Some(old) => *old = entry,
            None => self.env.push(entry),
        }
    }
}

/// Durations in nanoseconds, as in Docker's API; zero means inherited.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Healthcheck {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub test: Vec<String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub interval: i64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub timeout: i64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub start_period: i64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub start_interval: i64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retries: i64,
}

/// `{}`, the value of the sets in the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Empty {}

impl ImageConfig {
    pub fn new(platform: &Platform) -> Self {
        ImageConfig {
            architecture: platform.architecture.clone(),
            os: platform.os.clone(),
            variant: platform.variant.clone(),
            ..ImageConfig::default()
        }
    }

    /// The layers, the lowest first, with the instruction that made each. Histories of images from elsewhere may be
    /// shorter than their layers, or missing.
    pub fn layers(&self) -> impl Iterator<Item = (&Digest, Option<&str>)> {
        let made = self.history.iter().filter(|entry| !entry.empty_layer).map(|entry| entry.created_by.as_deref());
        self.rootfs.diff_ids.iter().zip(made.chain(std::iter::repeat(None)))
    }

    pub fn platform(&self) -> Platform {
        Platform { os: self.os.clone(), architecture: self.architecture.clone(), variant: self.variant.clone() }
    }

    /// Identifies what a child can see of this image: its layers and its configuration, but no dates and no
    /// history. A parent that is rebuilt to the same result id leaves its children as they are.
    pub fn result_id(&self) -> Key {
        let mut hasher = KeyHasher::new("kollage result 1");
        hasher.part("platform", self.platform().to_string());
        for id in &self.rootfs.diff_ids {
            hasher.part("layer", id.hex());
        }
        // Maps are ordered and fields are in the order of their declaration: the text is canonical.
        hasher.part("config", serde_json::to_vec(&self.config).unwrap_or_default());
        hasher.finish()
    }

    /// Identifies the file tree alone.
    pub fn chain_id(&self) -> Key {
        chain_id(&self.rootfs.diff_ids)
    }
}

pub fn chain_id(diff_ids: &[Digest]) -> Key {
    let mut hasher = KeyHasher::new("kollage chain 1");
    for id in diff_ids {
        hasher.part("layer", id.hex());
    }
    hasher.finish()
}

/// `os/architecture[/variant]` in Go's names, as everywhere in this field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Platform {
    pub os: String,
    pub architecture: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

impl Platform {
    pub fn host() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "powerpc64" => "ppc64le",
            "x86" => "386",
            other => other,
        };
        Platform { os: "linux".into(), architecture: architecture.into(), variant: None }
    }
}

impl std::fmt::Display for Platform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        if let Some(variant) = &self.variant {
            write!(f, "/{variant}")?;
        }
        Ok(())
    }
}

fn is_zero(n: &i64) -> bool {
    *n == 0
}

/// Docker writes `null` where a list or map is empty.
fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
