//! What earlier runs left behind about each node: why it would be built again, and how long it took.
//!
//! It only makes reasons and estimates better; a lost or damaged file costs nothing else.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::engine::{BaseSource, Built, Engine};
use crate::error::{Context as _, Result};
use crate::event::Outcome;
use crate::fetch::{Pin, Remote};
use crate::graph::node::Graph;
use crate::graph::plan::{Action, Memory, NodeHistory, Planned, history_name};
use crate::image::config::{ImageConfig, Platform};
use crate::image::digest::Key;
use crate::schedule::NodeResult;

pub struct History<'a> {
    engine: &'a dyn Engine,
    path: PathBuf,
    nodes: BTreeMap<String, NodeHistory>,
}

impl<'a> History<'a> {
    pub fn load(path: &Path, engine: &'a dyn Engine) -> Self {
        History { engine, path: path.to_owned(), nodes: read(path) }
    }

    /// Adds what this run built. Read again just before, so that a run beside this one loses nothing but a race.
    pub fn save(&self, graph: &Graph, results: &[NodeResult]) -> Result<()> {
        let mut nodes = read(&self.path);
        let mut changed = false;
        for (id, result) in graph.ids().zip(results) {
            let name = &*history_name(graph.node(id));
            let fingerprint = result.fingerprint.clone().unwrap_or_default();
            match &result.outcome {
                Outcome::Built => {
                    nodes.insert(name.to_owned(), NodeHistory { fingerprint, seconds: result.duration.as_secs_f64() });
                }
                // Reused through another name or after an early cut-off: the reason must be told from here on.
                Outcome::Reused(_) if nodes.get(name).is_none_or(|old| old.fingerprint != fingerprint) => {
                    let seconds = nodes.get(name).map_or(0.0, |old| old.seconds);
                    nodes.insert(name.to_owned(), NodeHistory { fingerprint, seconds });
                }
                _ => continue,
            }
            changed = true;
        }
        if !changed {
            return Ok(());
        }
        let say = || format!("cannot write {}", self.path.display());
        let beside = self.path.with_extension(format!("{}.new", std::process::id()));
        if let Some(parent) = self.path.parent() {
            std::fs::create_dir_all(parent).unusable(say)?;
        }
        std::fs::write(&beside, serde_json::to_vec(&nodes).failed(say)?).unusable(say)?;
        std::fs::rename(&beside, &self.path).unusable(say)
    }

    /// Seconds that each node of a plan will take, as the last time: none for what was never measured, 0 for what is
    /// reused.
    pub fn expected(&self, graph: &Graph, planned: &[Planned]) -> Vec<Option<f64>> {
        let nodes = graph.nodes.iter().zip(planned);
        nodes
            .map(|(node, planned)| match planned.action {
                Action::Reuse if planned.asks.is_empty() => Some(0.0),
                _ => self.nodes.get(&*history_name(node)).map(|h| h.seconds).filter(|s| *s > 0.0),
            })
            .collect()
    }
}

fn read(path: &Path) -> BTreeMap<String, NodeHistory> {
    std::fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

impl Memory for History<'_> {
    fn recall(&self, key: &Key) -> Option<Built> {
        // A result that can't be read is one that has to be made again.
        self.engine.recall(key).ok().flatten()
    }

    fn named(&self, name: &str) -> Option<Built> {
        self.engine.named(name).ok().flatten()
    }

    fn history(&self, node: &str) -> Option<&NodeHistory> {
        self.nodes.get(node)
    }

    fn foresee(&self, source: &BaseSource, platform: &Platform) -> Option<ImageConfig> {
        self.engine.foresee(source, platform)
    }

    fn known(&self, remote: &Remote) -> Option<Pin> {
        self.engine.known(remote)
    }
}
