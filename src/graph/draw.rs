//! The graph as text for other programs: Graphviz, Mermaid, JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::graph::node::{EdgeKind, Graph};

pub fn dot(graph: &Graph) -> String {
    let mut out = String::from("digraph kollage {\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\"];\n");
    for id in graph.ids() {
        let node = graph.node(id);
        let style = match node.kind_name() {
            "bootstrap" | "external" => ", style=dashed",
            "plugin" => ", style=rounded",
            _ => "",
        };
        let _ = writeln!(out, "  n{} [label={}{style}];", id.0, quoted(&node.name));
    }
    for id in graph.ids() {
        for edge in &graph.node(id).needs {
            let style = if edge.kind == EdgeKind::CopiesFrom { " [style=dotted]" } else { "" };
            let _ = writeln!(out, "  n{} -> n{}{style};", edge.to.0, id.0);
        }
    }
    out.push_str("}\n");
    out
}

pub fn mermaid(graph: &Graph) -> String {
    let mut out = String::from("flowchart LR\n");
    for id in graph.ids() {
        let node = graph.node(id);
        let (open, close) = match node.kind_name() {
            "bootstrap" | "external" => ("([", "])"),
            "plugin" => ("(", ")"),
            _ => ("[", "]"),
        };
        let label = node.name.replace('"', "#quot;");
        let _ = writeln!(out, "  n{}{open}\"{label}\"{close}", id.0);
    }
    for id in graph.ids() {
        for edge in &graph.node(id).needs {
            let arrow = if edge.kind == EdgeKind::CopiesFrom { "-.->" } else { "-->" };
            let _ = writeln!(out, "  n{} {arrow} n{}", edge.to.0, id.0);
        }
    }
    out
}

pub fn json(graph: &Graph) -> Value {
    let nodes: Vec<Value> = graph
        .nodes
        .iter()
        .map(|node| {
            json!({
                "name": &*node.name,
                "kind": node.kind_name(),
                "selected": node.selected,
                "references": node.spec().map(|s| s.names.clone()).unwrap_or_default(),
            })
        })
        .collect();
    let edges: Vec<Value> = graph
        .nodes
        .iter()
        .flat_map(|node| {
            node.needs
                .iter()
                .map(|edge| json!({"from": &*graph.node(edge.to).name, "to": &*node.name, "kind": edge.kind.as_str()}))
        })
        .collect();
    json!({"nodes": nodes, "edges": edges})
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
