//! Which node is the most urgent: the one with the longest chain of work behind it.

use crate::graph::node::{Graph, NodeId, NodeKind};

/// Seconds from the start of each node to the end of the longest chain that begins with it. `expected` is by node.
pub fn priorities(graph: &Graph, dependents: &[Vec<NodeId>], expected: &[Option<f64>]) -> Vec<f64> {
    let mut longest = vec![0.0; graph.nodes.len()];
    for id in graph.ids().rev() {
        let own = expected.get(id.0).copied().flatten().unwrap_or(match graph.node(id).kind {
            // Guesses for what was never measured: only their order matters.
            NodeKind::Base(_) => 40.0,
            NodeKind::Image(_) => 20.0,
            NodeKind::Plugin { .. } => 8.0,
        });
        let behind = dependents[id.0].iter().map(|d| longest[d.0]).fold(0.0, f64::max);
        longest[id.0] = own + behind;
    }
    longest
}
