//! Names of nodes as others take them.

use std::collections::{BTreeMap, BTreeSet};

use crate::graph::node::{Graph, Node, NodeId, NodeKind};

/// A name for each node, in bake's alphabet, no two the same.
pub fn targets(graph: &Graph) -> BTreeMap<NodeId, String> {
    let mut taken = BTreeSet::new();
    let mut names = BTreeMap::new();
    for id in graph.ids() {
        let wanted = target(graph.node(id));
        let free = (1..).map(|n| if n == 1 { wanted.clone() } else { format!("{wanted}_{n}") });
        let name = free.into_iter().find(|name| !taken.contains(name)).unwrap_or(wanted);
        taken.insert(name.clone());
        names.insert(id, name);
    }
    names
}

fn target(node: &Node) -> String {
    match &node.kind {
        // It stands in FROM as well, where repeated signs and capitals are no name.
        NodeKind::Base(_) => format!("base-{}", label(&node.name)),
        _ => word(&node.name),
    }
}

/// Letters, digits, `-` and `_`.
pub fn word(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
}

/// As DNS has it, and what goes by its rules: small letters, digits and single dashes within.
pub fn label(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c.is_ascii_alphanumeric() {
            true => out.push(c.to_ascii_lowercase()),
            false if out.is_empty() || out.ends_with('-') => {}
            false => out.push('-'),
        }
    }
    out.trim_end_matches('-').to_owned()
}

/// `name` for each image, by its own name; those that come out the same are told apart by a number.
pub fn unique<'a>(images: impl Iterator<Item = &'a str>, name: impl Fn(&str) -> String) -> BTreeMap<&'a str, String> {
    let mut names: BTreeMap<&str, String> = BTreeMap::new();
    for image in images {
        let wanted = name(image);
        let mut free = wanted.clone();
        let mut number = 1;
        while names.values().any(|known| *known == free) {
            number += 1;
            free = format!("{wanted}-{number}");
        }
        names.insert(image, free);
    }
    names
}
