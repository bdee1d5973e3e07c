//! What a graph uses that moves and that kollage.lock doesn't pin, as far as definitions show.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{Lock, inputs};
use crate::catalogue::{Catalogue, Snapshot};
use crate::engine::BaseSource;
use crate::graph::node::{Graph, NodeId, NodeKind};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gap {
    /// A base without a digest.
    Base(String),
    /// `debian/bookworm`
    Snapshot(String),
    /// A node that has asked PyPI for nothing yet: what the lock calls it.
    Missing(String),
    /// A node that asks for something else than it did: what the lock calls it.
    Stale(String),
}

impl Gap {
    /// What the lock calls the node whose packages don't count any more.
    pub fn stale(&self) -> Option<&str> {
        match self {
            Gap::Stale(node) => Some(node),
            _ => None,
        }
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Gap::Base(name) => write!(f, "the base {name} has no digest"),
            Gap::Snapshot(suite) => write!(f, "{suite} has no day of the archive"),
            Gap::Missing(node) => write!(f, "{node} has no packages of PyPI"),
            Gap::Stale(node) => write!(f, "{node} has packages of PyPI that were found for another definition"),
        }
    }
}

pub fn gaps(graph: &Graph, catalogue: &Catalogue) -> Vec<Gap> {
    let lock = &catalogue.lock;
    let mut gaps = Vec::new();
    for node in &graph.nodes {
        match &node.kind {
            NodeKind::Base(BaseSource::Registry { reference }) if !reference.contains('@') => {
                gaps.push(Gap::Base(node.plain_name().to_owned()));
            }
            NodeKind::Base(BaseSource::Bootstrap(wanted))
                if catalogue.settings.build.snapshot == Snapshot::Locked
                    && wanted.distribution == "debian"
                    && wanted.mirror.is_none()
                    && wanted.snapshot.is_none() =>
            {
                gaps.push(Gap::Snapshot(format!("debian/{}", wanted.suite)));
            }
            _ => {}
        }
    }
    // Those of several platforms are the same.
    let mut seen = BTreeSet::new();
    gaps.retain(|gap| seen.insert(gap.to_string()));
    gaps.extend(unanswered(graph, lock, &inputs(graph)));
    gaps
}

fn unanswered(graph: &Graph, lock: &Lock, inputs: &BTreeMap<NodeId, String>) -> Vec<Gap> {
    let gap = |(id, inputs): (&NodeId, &String)| {
        let node = super::entry(graph.node(*id));
        match lock.pypi.get(&node) {
            None => Some(Gap::Missing(node)),
            Some(resolved) if resolved.inputs != *inputs => Some(Gap::Stale(node)),
            Some(_) => None,
        }
    };
    inputs.iter().filter_map(gap).collect()
}
