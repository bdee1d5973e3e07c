//! From what became of each node to what is shown of it, and to the exit code.

use std::time::Duration;

use crate::catalogue::Catalogue;
use crate::engine::BaseSource;
use crate::error::Kind;
use crate::event::Outcome;
use crate::fetch::Remote;
use crate::graph::node::{Graph, Node, NodeKind};
use crate::graph::plan::{Action, Planned};
use crate::report::plan::{Action as PlanAction, Expected, Outlook, PlanRow};
use crate::report::summary::{Group, NodeKind as SummaryKind, NodeSummary, RunSummary};
use crate::schedule::NodeResult;
use crate::schedule::estimate::{CriticalPath, Estimate, Left, estimate};

pub fn summary(graph: &Graph, results: &[NodeResult], duration: Duration, interrupted: bool) -> RunSummary {
    let nodes = graph.ids().zip(results).map(|(id, result)| node_summary(graph.node(id), result)).collect();
    RunSummary { nodes, duration, interrupted, ..RunSummary::default() }
}

fn node_summary(node: &Node, result: &NodeResult) -> NodeSummary {
    let kind = match &node.kind {
        NodeKind::Base(_) => SummaryKind::Base,
        NodeKind::Image(_) => SummaryKind::Image,
        NodeKind::Plugin { .. } => SummaryKind::Plugin,
    };
    let group = match &result.outcome {
        Outcome::Built => Group::Built,
        Outcome::Reused(_) => Group::Reused,
        Outcome::Failed(_) => Group::Failed,
        Outcome::Skipped(_) => Group::Skipped,
        Outcome::Cancelled => Group::Cancelled,
    };
    let mut summary = NodeSummary::new(&*node.name, kind, group);
    summary.reference = node.spec().and_then(|spec| spec.names.first().cloned());
    summary.digest = result.published.as_ref().map(|p| p.digest.clone());
    summary.config_digest = result.published.as_ref().map(|p| p.config_digest.clone());
    summary.size = result.published.as_ref().map(|p| p.size);
    summary.duration = result.duration;
    summary.retries = result.retries;
    summary.reason = match &result.outcome {
        Outcome::Skipped(by) => Some(format!("{by} failed")),
        _ if result.reason.is_empty() => None,
        _ => Some(result.reason.clone()),
    };
    if let Outcome::Failed(error) = &result.outcome {
        summary.error = Some(error.clone());
    }
    summary
}

/// Images of the catalogue that are not in the graph: no pattern matched them.
pub fn left_out(catalogue: &Catalogue, graph: &Graph) -> Vec<NodeSummary> {
    let images = catalogue.images.values().filter(|image| !graph.has(&image.name));
    images
        .map(|image| {
            let mut summary = NodeSummary::new(&image.name, SummaryKind::Image, Group::NotMatched);
            summary.reference = Some(catalogue.image_ref(&image.name));
            summary
        })
        .collect()
}

/// The first of: interrupted, something failed, the machine is in the way, a definition is wrong.
pub fn exit_code(results: &[NodeResult], interrupted: bool) -> u8 {
    let kinds: Vec<Kind> = results
        .iter()
        .filter_map(|result| match &result.outcome {
            Outcome::Failed(error) => Some(error.kind()),
            _ => None,
        })
        .collect();
    if kinds.is_empty() {
        return if interrupted { Kind::Interrupted.exit_code() } else { 0 };
    }
    if interrupted {
        return Kind::Interrupted.exit_code();
    }
    let order = [Kind::Failed, Kind::Unusable, Kind::BadInput];
    order.into_iter().find(|kind| kinds.contains(kind)).unwrap_or(Kind::Failed).exit_code()
}

pub fn plan_row(graph: &Graph, node: &Node, planned: &Planned, expected: Option<f64>) -> PlanRow {
    let action = match planned.action {
        Action::Build => PlanAction::Build,
        Action::Reuse => PlanAction::Reuse,
        Action::Pull => PlanAction::Pull,
        Action::Bootstrap => PlanAction::Bootstrap,
    };
    let parent = node.needs.first().map(|edge| graph.node(edge.to).name.to_string());
    let expected = expected.and_then(|s| Duration::try_from_secs_f64(s).ok()).filter(|time| !time.is_zero());
    PlanRow { action, node: node.name.to_string(), reason: planned.reason.clone(), parent, expected }
}

/// How long a plan takes; `left` is by node.
pub fn outlook(graph: &Graph, left: &[Left], path: &CriticalPath, jobs: usize) -> Outlook {
    let expected = |estimate: &Estimate| Expected { time: estimate.time, unmeasured: estimate.unmeasured };
    Outlook {
        jobs,
        run: expected(&estimate(graph, left, &|_| false, jobs)),
        path: path.nodes.iter().map(|id| graph.node(*id).name.to_string()).collect(),
        path_time: expected(&path.estimate),
    }
}

/// What a base is, for `kollage plan --format json`.
pub fn source_name(source: &BaseSource) -> &'static str {
    match source {
        BaseSource::Bootstrap(_) => "bootstrap",
        BaseSource::OciLayout { .. } => "oci",
        BaseSource::DockerArchive { .. } => "docker-archive",
        BaseSource::RootfsTar { .. } => "rootfs",
        BaseSource::Registry { .. } => "registry",
        BaseSource::Directory { .. } => "directory",
        BaseSource::Remote(Remote::File(_)) => "web",
        BaseSource::Remote(Remote::Git(_)) => "git",
    }
}
