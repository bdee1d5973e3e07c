//! Nodes and edges of the build graph.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use crate::context::Context;
use crate::diag::{Diagnostic, Diagnostics};
use crate::dockerfile::Resolved;
use crate::engine::{BaseSource, Check};
use crate::fetch::Remote;
use crate::fit::Rules;
use crate::image::config::Platform;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub usize);

/// Nodes stand after everything that they need: the order of `nodes` is an order of building.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub nodes: Vec<Node>,
    /// What looks like a mistake in how they are put together, and may be meant.
    pub odd: Diagnostics,
    /// Files of contexts that are made of something elsewhere. One that isn't there yet will be when a build runs; what is
    /// there is what it was the last time.
    pub awaited: BTreeMap<PathBuf, Remote>,
}

#[derive(Clone, Debug)]
pub struct Node {
    /// What a person calls it: `keystone`, `keystone+ldappool`, `bootstrap:debian/bookworm`.
    pub name: Arc<str>,
    pub kind: NodeKind,
    pub needs: Vec<Edge>,
    /// Chosen by the user, and not only needed by what was chosen.
    pub selected: bool,
    pub platform: Platform,
}

impl Node {
    /// Its name without the platform that several side by side say.
    pub fn plain_name(&self) -> &str {
        let platform = format!(" ({})", self.platform);
        self.name.strip_suffix(&*platform).unwrap_or(&self.name)
    }
}

#[derive(Clone, Debug)]
pub enum NodeKind {
    /// A base image from outside the catalogue.
    Base(BaseSource),
    Image(Box<Spec>),
    /// One plugin on one image (or on the plugin before it).
    Plugin {
        image: Arc<str>,
        plugin: Arc<str>,
        rules: Rules,
        spec: Box<Spec>,
    },
}

#[derive(Clone, Debug)]
pub struct Edge {
    pub to: NodeId,
    pub kind: EdgeKind,
    /// What the Dockerfile calls it.
    pub reference: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeKind {
    Parent,
    CopiesFrom,
    PluginOf,
}

impl EdgeKind {
    pub fn as_str(self) -> &'static str {
        match self {
            EdgeKind::Parent => "parent",
            EdgeKind::CopiesFrom => "copies-from",
            EdgeKind::PluginOf => "plugin-of",
        }
    }
}

/// Given to every build, whether a Dockerfile asks for it or not.
const SOURCE_DATE_EPOCH: &str = "SOURCE_DATE_EPOCH";

/// What is built and how: everything about a node that isn't known from its parents only.
#[derive(Clone, Debug)]
pub struct Spec {
    pub resolved: Resolved,
    pub context: Arc<Context>,
    pub labels: BTreeMap<String, String>,
    pub checks: Vec<Check>,
    /// Names under which the result stands in the store and is exported; empty when a plugin above has them.
    pub names: Vec<String>,
    pub max_layers: Option<usize>,
}

impl Node {
    pub fn spec(&self) -> Option<&Spec> {
        match &self.kind {
            NodeKind::Base(_) => None,
            NodeKind::Image(spec) | NodeKind::Plugin { spec, .. } => Some(spec),
        }
    }

    pub fn kind_name(&self) -> &'static str {
        match &self.kind {
            NodeKind::Base(BaseSource::Bootstrap(_)) => "bootstrap",
            NodeKind::Base(_) => "external",
            NodeKind::Image(_) => "image",
            NodeKind::Plugin { .. } => "plugin",
        }
    }
}

impl Graph {
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = NodeId> + use<> {
        (0..self.nodes.len()).map(NodeId)
    }

    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0]
    }

    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.nodes.iter().position(|n| &*n.name == name).map(NodeId)
    }

    pub fn platforms(&self) -> BTreeSet<&Platform> {
        self.nodes.iter().map(|node| &node.platform).collect()
    }

    /// Whether an image or plugin of the catalogue is in it, on any platform.
    pub fn has(&self, name: &str) -> bool {
        let is_it =
            |node: &Node| node.name.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(" ("));
        self.nodes.iter().any(is_it)
    }

    pub fn push(&mut self, node: Node) -> NodeId {
        debug_assert!(node.needs.iter().all(|e| e.to.0 < self.nodes.len()));
        self.nodes.push(node);
        NodeId(self.nodes.len() - 1)
    }

    /// Graphs of the same definitions for several platforms, side by side in one: a name says which platform it is for.
    pub fn side_by_side(graphs: Vec<Graph>) -> Graph {
        let mut all = Graph::default();
        if graphs.len() == 1 {
            return graphs.into_iter().next().unwrap_or_default();
        }
        for graph in graphs {
            let first = all.nodes.len();
            // What is odd in a definition is so on every platform.
            if first == 0 {
                all.odd = graph.odd;
            }
            for mut node in graph.nodes {
                let on = |name: &str| Arc::from(format!("{name} ({})", node.platform));
                node.name = on(&node.name);
                if let NodeKind::Plugin { image, .. } = &mut node.kind {
                    *image = on(image);
                }
                for edge in &mut node.needs {
                    edge.to.0 += first;
                }
                all.push(node);
            }
        }
        all
    }

    /// What is odd in the Dockerfiles of the selected nodes but stops nothing, and build arguments that none takes.
    pub fn warnings(&self) -> Diagnostics {
        let mut warnings = self.odd.clone();
        let specs: Vec<&Spec> = self.nodes.iter().filter_map(Node::spec).collect();
        for spec in self.nodes.iter().filter(|n| n.selected).filter_map(Node::spec) {
            warnings.extend(spec.resolved.dockerfile.warnings.clone());
        }
        let unused = |spec: &&Spec| spec.resolved.unused_build_args.iter().cloned().collect::<BTreeSet<_>>();
        let everywhere = specs.iter().map(unused).reduce(|all, more| all.intersection(&more).cloned().collect());
        for name in everywhere.unwrap_or_default().into_iter().filter(|name| name != SOURCE_DATE_EPOCH) {
            let warning = Diagnostic::warning(format!("no Dockerfile has an ARG `{name}`"));
            warnings.push(warning.hint("the build argument is given and changes nothing"));
        }
        warnings
    }

    /// For every node, the nodes that need it.
    pub fn dependents(&self) -> Vec<Vec<NodeId>> {
        let mut dependents = vec![Vec::new(); self.nodes.len()];
        for id in self.ids() {
            for edge in &self.node(id).needs {
                let list: &mut Vec<NodeId> = &mut dependents[edge.to.0];
                if list.last() != Some(&id) {
                    list.push(id);
                }
            }
        }
        dependents
    }
}
