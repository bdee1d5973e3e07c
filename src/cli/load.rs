//! `-o type=docker`: what the embedded engine has built goes into Docker or Podman.

use crate::daemon;
use crate::engine::docker;
use crate::error::Result;
use crate::event::Cancel;
use crate::graph::node::Graph;
use crate::image::store::Store;
use crate::report::human;
use crate::schedule::NodeResult;

/// `-o type=docker` without a file.
pub const SPEC: &str = "type=docker";

/// Brings the selected images into Docker or Podman, and says so.
pub fn load(
    engine: &daemon::Engine,
    store: &Store,
    graph: &Graph,
    results: &[NodeResult],
    cancel: &Cancel,
) -> Result<String> {
    let mut count = 0;
    for (node, result) in graph.nodes.iter().zip(results).filter(|(node, _)| node.selected) {
        let (Some(spec), Some(built)) = (node.spec(), &result.built) else { continue };
        if !spec.names.is_empty() {
            docker::load(engine, store, built, spec.names.clone(), cancel)?;
            count += 1;
        }
    }
    Ok(format!("{} loaded into {}", human::count(count, "image"), engine.facts.name))
}
