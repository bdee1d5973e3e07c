//! The graph for an engine that is there already: a file for `docker buildx bake`, or a pipeline for a CI with one job
//! for each image. What is written depends on definitions alone, so that it can be kept beside them and compared.

use std::collections::BTreeMap;

use crate::graph::node::{Graph, NodeId, NodeKind};

pub mod bake;
mod base;
mod context;
mod dockerfile;
mod github;
mod gitlab;
mod lend;
mod names;
mod pins;
mod tekton;
#[cfg(test)]
mod tests;

/// The head of a file that an export may replace.
pub const HEAD: &str = "# Made by `kollage export`; do not edit.\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pipeline {
    Github,
    Gitlab,
    Tekton,
}

/// How jobs build.
#[derive(Clone, Debug, Default)]
pub struct Jobs {
    /// What `kollage build` gets besides the image: settings that are not the catalogue's own.
    pub flags: Vec<String>,
    /// `KOLLAGE_STORE` of every job.
    pub store: Option<String>,
    /// Which machines run them, as the CI has labels for that.
    pub runner: Option<String>,
}

/// A pipeline of the whole graph.
pub fn pipeline(graph: &Graph, pipeline: Pipeline, how: &Jobs) -> String {
    let jobs = jobs(graph);
    let document = match pipeline {
        Pipeline::Github => github::workflow(&jobs, how),
        Pipeline::Gitlab => gitlab::pipeline(&jobs, how),
        Pipeline::Tekton => tekton::pipeline(&jobs, how),
    };
    format!("{HEAD}{document}")
}

/// One image of the catalogue with the plugins on it.
#[derive(Debug, PartialEq, Eq)]
struct Job<'a> {
    image: &'a str,
    /// Chosen, and not only needed: its result is published.
    selected: bool,
    /// Images that have to be there before, in the order of the graph.
    needs: Vec<&'a str>,
}

impl Job<'_> {
    /// What follows `kollage build`.
    fn arguments(&self, how: &Jobs) -> Vec<String> {
        let push = self.selected.then(|| "--push".to_owned());
        [self.image.to_owned()].into_iter().chain(push).chain(how.flags.iter().cloned()).collect()
    }

    /// As a shell takes it.
    fn command(&self, how: &Jobs) -> String {
        let words: Vec<String> = self.arguments(how).iter().map(|word| quoted(word)).collect();
        format!("kollage build {}", words.join(" "))
    }
}

fn jobs(graph: &Graph) -> Vec<Job<'_>> {
    let image_of = |id: NodeId| match &graph.node(id).kind {
        NodeKind::Base(_) => None,
        NodeKind::Image(_) => Some(&*graph.node(id).name),
        NodeKind::Plugin { image, .. } => Some(&**image),
    };
    let mut jobs: Vec<Job<'_>> = Vec::new();
    for id in graph.ids() {
        let Some(image) = image_of(id) else { continue };
        let at = jobs.iter().position(|job| job.image == image).unwrap_or_else(|| {
            jobs.push(Job { image, selected: false, needs: Vec::new() });
            jobs.len() - 1
        });
        jobs[at].selected |= graph.node(id).selected;
        for needed in graph.node(id).needs.iter().filter_map(|edge| image_of(edge.to)) {
            if needed != image && !jobs[at].needs.contains(&needed) {
                jobs[at].needs.push(needed);
            }
        }
    }
    jobs
}

/// The node whose result has the image's name: the highest plugin, or the image itself.
fn tops(graph: &Graph) -> BTreeMap<&str, NodeId> {
    let mut tops = BTreeMap::new();
    for id in graph.ids() {
        match &graph.node(id).kind {
            NodeKind::Base(_) => {}
            NodeKind::Image(_) => drop(tops.insert(&*graph.node(id).name, id)),
            NodeKind::Plugin { image, .. } => drop(tops.insert(&**image, id)),
        }
    }
    tops
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ':' | '=' | ',' | '@' | '+');
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}
