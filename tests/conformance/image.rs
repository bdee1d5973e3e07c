//! An image as `docker save` writes it, read for comparing: its tree, and what of its configuration means something.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::tree::{Known, Tree};

/// Everything that is compared of one image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageFacts {
    /// Those fields that are set.
    #[serde(default)]
    pub config: Map<String, Value>,
    /// Above the base: what made each entry, `(empty)` in front where it made no layer.
    #[serde(default)]
    pub history: Vec<String>,
    /// Layers above the base.
    #[serde(default)]
    pub layers: usize,
    /// Whether the tree is told by what differs from the base, which the image stands on.
    #[serde(default)]
    pub on_base: bool,
    /// What is new or other than in the base, a line for each path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// What the base has and the image has not; of a whole directory only its own name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
    /// What is wrong with the layers as tars.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
}

/// Of the OCI and Docker image configuration, what a person can set with an instruction.
const FIELDS: [&str; 11] = [
    "Cmd",
    "Entrypoint",
    "Env",
    "ExposedPorts",
    "Healthcheck",
    "Labels",
    "OnBuild",
    "Shell",
    "StopSignal",
    "User",
    "Volumes",
];

/// Set by an instruction too, but `/` and not set are the same.
const WORKING_DIR: &str = "WorkingDir";

#[derive(Deserialize)]
struct ManifestEntry {
    #[serde(rename = "Config")]
    config: String,
    #[serde(rename = "Layers")]
    layers: Vec<String>,
}

/// Reads the only image of an archive.
pub fn read(archive: &Path, base: &Base) -> ImageFacts {
    let files = members(&fs::read(archive).unwrap());
    let manifest: Vec<ManifestEntry> = serde_json::from_slice(&files["manifest.json"]).unwrap();
    assert_eq!(manifest.len(), 1, "one image in {}", archive.display());
    let manifest = &manifest[0];
    let config: Value = serde_json::from_slice(&files[&manifest.config]).unwrap();
    let diff_ids = config["rootfs"]["diff_ids"].as_array().cloned().unwrap_or_default();
    let mut facts = ImageFacts { on_base: diff_ids.starts_with(&base.diff_ids), ..ImageFacts::default() };
    let own = if facts.on_base { base.diff_ids.len() } else { 0 };

    let mut tree = Tree::new();
    for (layer, diff_id) in manifest.layers.iter().zip(&diff_ids) {
        let tar = &plain(&files[layer]);
        if format!("sha256:{}", hex(&sha256(tar))) != diff_id.as_str().unwrap_or_default() {
            facts.faults.push(format!("{layer} is not what its diff id says"));
        }
        tree.apply(tar);
    }
    if manifest.layers.len() != diff_ids.len() {
        facts.faults.push(format!("{} layers and {} diff ids", manifest.layers.len(), diff_ids.len()));
    }
    facts.layers = diff_ids.len() - own;
    let all = tree.describe(&base.known);
    if facts.on_base {
        facts.removed = base.tree.keys().filter(|path| !all.contains_key(*path)).cloned().collect();
        let removed = facts.removed.clone();
        facts.removed.retain(|path| !removed.iter().any(|above| path.starts_with(&format!("{above}/"))));
        facts.files = all.into_iter().filter(|(path, line)| base.tree.get(path) != Some(line)).collect();
    } else {
        facts.files = all;
    }
    facts.faults.extend(tree.faults);
    facts.config = compared(&config["config"]);
    if let Some(author) = config["author"].as_str().filter(|author| !author.is_empty()) {
        facts.config.insert("author".into(), author.into());
    }
    let history = config["history"].as_array().cloned().unwrap_or_default();
    facts.history = history.iter().skip(if facts.on_base { base.history } else { 0 }).map(history_line).collect();
    let told = facts.history.iter().filter(|line| !line.starts_with("(empty)")).count();
    if told != facts.layers {
        facts.faults.push(format!("the history tells of {told} layers, and there are {}", facts.layers));
    }
    facts
}

/// Docker with containerd's store saves layers as they are kept, which is compressed.
fn plain(layer: &[u8]) -> Vec<u8> {
    if !layer.starts_with(&[0x1f, 0x8b]) {
        return layer.to_vec();
    }
    let mut tar = Vec::new();
    flate2::read::MultiGzDecoder::new(layer).read_to_end(&mut tar).unwrap();
    tar
}

fn history_line(entry: &Value) -> String {
    let empty = if entry["empty_layer"] == true { "(empty) " } else { "" };
    format!("{empty}{}", entry["created_by"].as_str().unwrap_or_default())
}

fn compared(config: &Value) -> Map<String, Value> {
    let mut out = Map::new();
    for field in FIELDS {
        let value = &config[field];
        let unset = match value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            _ => false,
        };
        if !unset {
            out.insert(field.into(), value.clone());
        }
    }
    let dir = config[WORKING_DIR].as_str().unwrap_or_default();
    if !dir.is_empty() && dir != "/" {
        out.insert(WORKING_DIR.into(), dir.into());
    }
    out
}

fn members(archive: &[u8]) -> HashMap<String, Vec<u8>> {
    let mut files = HashMap::new();
    let mut links = Vec::new();
    for entry in tar::Archive::new(archive).entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().to_str().unwrap().to_owned();
        if let Some(target) = entry.link_name().unwrap() {
            // Older Docker names a layer that is there already by a link.
            let target = target.to_str().unwrap().trim_start_matches("../").to_owned();
            links.push((path, target));
            continue;
        }
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        files.insert(path, content);
    }
    for (path, target) in links {
        if let Some(content) = files.get(&target).cloned() {
            files.insert(path, content);
        }
    }
    files
}

/// The base, as images are compared with it.
pub struct Base {
    diff_ids: Vec<Value>,
    /// How many entries its history has.
    history: usize,
    tree: BTreeMap<String, String>,
    known: Known,
}

impl Base {
    pub fn new(layer: &[u8], busybox: &[u8]) -> Base {
        let known = Known::from([(hex(&sha256(busybox)), "busybox")]);
        let mut tree = Tree::new();
        tree.apply(layer);
        assert!(tree.faults.is_empty(), "{:?}", tree.faults);
        let diff_ids = vec![format!("sha256:{}", hex(&sha256(layer))).into()];
        Base { diff_ids, history: 1, tree: tree.describe(&known), known }
    }

    /// The only image of an archive.
    pub fn of_archive(archive: &Path) -> Base {
        let nothing = Base { diff_ids: Vec::new(), history: 0, tree: BTreeMap::new(), known: Known::new() };
        let facts = read(archive, &nothing);
        assert!(facts.faults.is_empty(), "{:?}", facts.faults);
        let files = members(&fs::read(archive).unwrap());
        let manifest: Vec<ManifestEntry> = serde_json::from_slice(&files["manifest.json"]).unwrap();
        let config: Value = serde_json::from_slice(&files[&manifest[0].config]).unwrap();
        let diff_ids = config["rootfs"]["diff_ids"].as_array().cloned().unwrap_or_default();
        Base { diff_ids, history: facts.history.len(), tree: facts.files, known: Known::new() }
    }
}

pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
