//! The record of a run, made from what it was, what became of it and what was taken down meanwhile.

use std::collections::HashMap;

use crate::graph::node::Graph;
use crate::image::config::ImageConfig;
use crate::image::digest::Digest;
use crate::image::store::Store;
use crate::report::diagnostics::render_error;
use crate::report::human;
use crate::report::record::recorder::Recorder;
use crate::report::record::{Failure, LayerRecord, NeedRecord, NodeRecord, RunRecord};
use crate::report::summary::{NodeSummary, RunSummary};
use crate::report::text;
use crate::schedule::NodeResult;

/// What makes a layer is shown on one line.
const CREATED_BY: usize = 300;

pub struct Facts<'a> {
    pub name: &'a str,
    pub started: &'a str,
    pub jobs: usize,
    pub expected: &'a [Option<f64>],
}

/// `run` begins with the nodes of the graph.
pub fn record(
    facts: &Facts<'_>,
    graph: &Graph,
    results: &[NodeResult],
    run: &RunSummary,
    recorder: &Recorder,
    store: &Store,
) -> RunRecord {
    let mut layers = Layers { store, known: HashMap::new(), list: Vec::new() };
    let nodes = graph.ids().zip(results).zip(&run.nodes).map(|((id, result), summary)| {
        let needs = graph.node(id).needs.iter();
        NodeRecord {
            needs: needs.map(|edge| NeedRecord { node: edge.to.0, kind: edge.kind.as_str().to_owned() }).collect(),
            expected: facts.expected.get(id.0).copied().flatten(),
            layers: result.built.as_ref().map(|built| layers.of(&built.config)).unwrap_or_default(),
            turn: recorder.turn(&summary.name),
            failure: failure(summary, recorder),
            name: text::one_line(&summary.name),
            kind: summary.kind,
            status: summary.group,
            reason: summary.reason.clone().or_else(|| recorder.reason(&summary.name)),
            reference: summary.reference.clone(),
            digest: summary.digest.as_ref().map(Digest::to_string),
            size: summary.size,
            seconds: human::seconds(summary.duration),
            retries: summary.retries,
        }
    });
    let nodes = nodes.collect();
    RunRecord {
        seconds: human::seconds(run.duration),
        jobs: facts.jobs,
        interrupted: run.interrupted,
        expected: recorder.forecast(),
        nodes,
        layers: layers.list,
        warnings: recorder.warnings(),
        behind: recorder.behind(),
        logs: run.logs.as_ref().map(|dir| dir.display().to_string()),
        ..RunRecord::new(facts.name, facts.started)
    }
}

fn failure(summary: &NodeSummary, recorder: &Recorder) -> Option<Failure> {
    let error = summary.error.as_ref()?;
    let (output, left_out) = recorder.output(&summary.name);
    Some(Failure { error: render_error(error, false, 100), output, left_out })
}

/// Images share most of their layers.
struct Layers<'a> {
    store: &'a Store,
    known: HashMap<Digest, usize>,
    list: Vec<LayerRecord>,
}

impl Layers<'_> {
    fn of(&mut self, config: &ImageConfig) -> Vec<usize> {
        let layers = config.layers().map(|(digest, created_by)| {
            let created_by = created_by.unwrap_or_default();
            *self.known.entry(digest.clone()).or_insert_with(|| {
                self.list.push(LayerRecord {
                    digest: digest.to_string(),
                    size: self.store.layer(digest).map_or(0, |layer| layer.size),
                    created_by: text::truncate(&text::one_line(created_by), CREATED_BY, "..."),
                });
                self.list.len() - 1
            })
        });
        layers.collect()
    }
}
