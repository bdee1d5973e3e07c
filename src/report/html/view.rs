//! What the page shows of a record: figures, bars as percentages, and the chain that decided how long it took.

use serde::Serialize;

use crate::report::record::{NodeRecord, RunRecord, Turn};
use crate::report::summary::Group;
use crate::report::svg::{Drawing, DrawnEdge, DrawnNode};
use crate::report::text;

/// A bar is never so thin that it cannot be seen.
const THINNEST: f64 = 0.15;

#[derive(Serialize)]
pub(super) struct View<'a> {
    run: &'a RunRecord,
    outcome: &'static str,
    headline: String,
    counts: Vec<Count>,
    /// Share of the time in which workers had something to do, in percent.
    busy: Option<u32>,
    ticks: Vec<Tick>,
    workers: Vec<Worker<'a>>,
    behind: Vec<Worked<'a>>,
    any_expected: bool,
    critical: Vec<Link<'a>>,
    critical_seconds: f64,
    failures: Vec<FailureView<'a>>,
    graph: String,
    nodes: Vec<NodeView<'a>>,
    sizes: Vec<SizeView<'a>>,
    largest: u64,
}

#[derive(Serialize)]
struct Count {
    status: &'static str,
    count: usize,
}

#[derive(Serialize)]
struct Tick {
    at: f64,
    seconds: f64,
}

#[derive(Serialize)]
struct Worker<'a> {
    number: usize,
    bars: Vec<Bar<'a>>,
}

/// Work behind a node; those of several nodes at once lie over each other.
#[derive(Serialize)]
struct Worked<'a> {
    name: &'a str,
    left: f64,
    width: f64,
    start: f64,
    seconds: f64,
}

#[derive(Serialize)]
struct Bar<'a> {
    id: usize,
    name: &'a str,
    status: &'static str,
    critical: bool,
    left: f64,
    width: f64,
    start: f64,
    seconds: f64,
    steps: Vec<StepBar<'a>>,
}

#[derive(Serialize)]
struct StepBar<'a> {
    title: &'a str,
    left: f64,
    width: f64,
    seconds: f64,
    reused: bool,
}

#[derive(Serialize)]
struct Link<'a> {
    id: usize,
    name: &'a str,
    seconds: f64,
}

#[derive(Serialize)]
struct FailureView<'a> {
    id: usize,
    name: &'a str,
    step: Option<&'a str>,
    error: &'a str,
    output: String,
    left_out: usize,
}

#[derive(Serialize)]
struct NodeView<'a> {
    id: usize,
    node: &'a NodeRecord,
    status: &'static str,
    critical: bool,
    steps: Vec<StepView<'a>>,
    needs: Vec<Link<'a>>,
}

#[derive(Serialize)]
struct StepView<'a> {
    number: usize,
    title: &'a str,
    /// None: it was not finished.
    seconds: Option<f64>,
    reused: bool,
}

#[derive(Serialize)]
struct SizeView<'a> {
    id: usize,
    name: &'a str,
    total: u64,
    /// What the image adds to its parent.
    own: u64,
    compressed: Option<u64>,
    layers: Vec<LayerBar<'a>>,
}

#[derive(Serialize)]
struct LayerBar<'a> {
    width: f64,
    size: u64,
    created_by: &'a str,
    digest: &'a str,
    inherited: bool,
    /// Of the few colours, so that the same layer looks the same in all images.
    shade: usize,
}

pub(super) fn view(run: &RunRecord) -> View<'_> {
    let critical = critical_path(run);
    let link = |id: usize| Link { id, name: &run.nodes[id].name, seconds: worked(&run.nodes[id]) };
    let (outcome, headline) = outcome(run);
    let counts = Group::OF_A_RUN.map(|group| Count { status: group.as_str(), count: run.count(group) });
    let sizes = sizes(run);
    let work: f64 = run.nodes.iter().map(worked).sum();
    let available = run.seconds * run.jobs as f64;
    View {
        run,
        outcome,
        headline,
        counts: counts.into_iter().filter(|c| c.count > 0).collect(),
        busy: (available > 0.0 && work > 0.0).then(|| (100.0 * work / available).round().min(100.0) as u32),
        ticks: ticks(run.seconds),
        workers: workers(run, &critical),
        behind: behind(run),
        any_expected: run.nodes.iter().any(|node| node.expected.is_some_and(|seconds| seconds > 0.0)),
        critical_seconds: critical.iter().map(|id| worked(&run.nodes[*id])).sum(),
        failures: run.nodes.iter().enumerate().filter_map(|(id, node)| failure(id, node)).collect(),
        graph: drawing(run, &critical).inline(),
        nodes: run
            .nodes
            .iter()
            .enumerate()
            .map(|(id, node)| NodeView {
                id,
                node,
                status: node.status.as_str(),
                critical: critical.contains(&id),
                steps: node.turn.iter().flat_map(|turn| &turn.steps).map(step).collect(),
                needs: node.needs.iter().map(|need| link(need.node)).collect(),
            })
            .collect(),
        critical: critical.into_iter().map(link).collect(),
        largest: sizes.iter().map(|size| size.total).max().unwrap_or(0),
        sizes,
    }
}

fn step(step: &crate::report::record::StepRecord) -> StepView<'_> {
    let seconds = step.end.map(|end| (end - step.start).max(0.0));
    StepView { number: step.number, title: &step.title, seconds, reused: step.reused }
}

fn outcome(run: &RunRecord) -> (&'static str, String) {
    let failed = run.count(Group::Failed);
    if run.interrupted {
        ("skipped", "Interrupted".to_owned())
    } else if failed > 0 {
        ("failed", format!("{failed} of {} failed", run.nodes.len()))
    } else if run.count(Group::Built) == 0 {
        ("reused", "Nothing to build".to_owned())
    } else {
        ("built", "Done".to_owned())
    }
}

fn worked(node: &NodeRecord) -> f64 {
    node.turn.as_ref().map_or(0.0, |turn| (turn.end - turn.start).max(0.0))
}

/// The longest chain of nodes that waited for each other, by what each really took.
fn critical_path(run: &RunRecord) -> Vec<usize> {
    let mut longest: Vec<(f64, Option<usize>)> = Vec::with_capacity(run.nodes.len());
    for node in &run.nodes {
        let before = node.needs.iter().map(|need| need.node).filter(|id| *id < longest.len());
        let before = before.max_by(|a, b| longest[*a].0.total_cmp(&longest[*b].0)).filter(|id| longest[*id].0 > 0.0);
        longest.push((worked(node) + before.map_or(0.0, |id| longest[id].0), before));
    }
    let last = (0..longest.len()).max_by(|a, b| longest[*a].0.total_cmp(&longest[*b].0).then(b.cmp(a)));
    let mut path: Vec<usize> = std::iter::successors(last, |id| longest[*id].1).collect();
    path.retain(|id| worked(&run.nodes[*id]) > 0.0);
    path.reverse();
    path
}

/// Up to ten marks at round times.
fn ticks(seconds: f64) -> Vec<Tick> {
    const ROUND: [f64; 16] =
        [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0];
    let apart = ROUND.into_iter().find(|apart| seconds / apart <= 10.0).unwrap_or(seconds / 10.0);
    if !(seconds > 0.0 && apart > 0.0) {
        return Vec::new();
    }
    let marks = (0..=10).map(|i| f64::from(i) * apart).take_while(|at| *at <= seconds);
    marks.map(|at| Tick { at: 100.0 * at / seconds, seconds: at }).collect()
}

fn workers<'a>(run: &'a RunRecord, critical: &[usize]) -> Vec<Worker<'a>> {
    let mut workers: Vec<Worker<'_>> = Vec::new();
    for (id, node) in run.nodes.iter().enumerate() {
        let Some(turn) = &node.turn else { continue };
        let number = turn.worker + 1;
        let position = workers.iter().position(|w| w.number == number).unwrap_or_else(|| {
            workers.push(Worker { number, bars: Vec::new() });
            workers.len() - 1
        });
        workers[position].bars.push(bar(run, id, node, turn, critical.contains(&id)));
    }
    workers.sort_by_key(|worker| worker.number);
    for worker in &mut workers {
        worker.bars.sort_by(|a, b| a.start.total_cmp(&b.start));
    }
    workers
}

fn percent(seconds: f64, of: f64) -> f64 {
    if of > 0.0 { (100.0 * seconds / of).clamp(0.0, 100.0) } else { 0.0 }
}

fn behind(run: &RunRecord) -> Vec<Worked<'_>> {
    let work = run.behind.iter().map(|work| {
        let seconds = (work.end.unwrap_or(run.seconds) - work.start).max(0.0);
        let left = percent(work.start, run.seconds).min(100.0 - THINNEST);
        let width = percent(seconds, run.seconds).max(THINNEST).min(100.0 - left);
        Worked { name: &work.node, left, width, start: work.start, seconds }
    });
    work.collect()
}

fn bar<'a>(run: &RunRecord, id: usize, node: &'a NodeRecord, turn: &'a Turn, critical: bool) -> Bar<'a> {
    let seconds = (turn.end - turn.start).max(0.0);
    let left = percent(turn.start, run.seconds).min(100.0 - THINNEST);
    let steps = turn.steps.iter().map(|step| {
        let end = step.end.unwrap_or(turn.end);
        let left = percent(step.start - turn.start, seconds);
        StepBar {
            title: &step.title,
            left,
            width: percent(end - step.start, seconds).min(100.0 - left),
            seconds: (end - step.start).max(0.0),
            reused: step.reused,
        }
    });
    Bar {
        id,
        name: &node.name,
        status: node.status.as_str(),
        critical,
        left,
        width: percent(seconds, run.seconds).max(THINNEST).min(100.0 - left),
        start: turn.start,
        seconds,
        steps: steps.filter(|step| step.width > 0.0).collect(),
    }
}

fn failure(id: usize, node: &NodeRecord) -> Option<FailureView<'_>> {
    let failure = node.failure.as_ref()?;
    let steps = node.turn.iter().flat_map(|turn| turn.steps.last());
    Some(FailureView {
        id,
        name: &node.name,
        step: steps.filter(|step| step.end.is_none()).map(|step| step.title.as_str()).next(),
        error: failure.error.trim_end(),
        output: failure.output.join("\n"),
        left_out: failure.left_out,
    })
}

fn drawing(run: &RunRecord, critical: &[usize]) -> Drawing {
    let mark = |is: bool| if is { " critical" } else { "" };
    let follows = |from: usize, to: usize| critical.windows(2).any(|pair| pair == [from, to]);
    let nodes = run.nodes.iter().enumerate().map(|(id, node)| DrawnNode {
        label: node.name.clone(),
        title: format!("{}: {}", node.name, node.reason.as_deref().unwrap_or(node.status.as_str())),
        class: format!("{} {}{}", kind(node), node.status.as_str(), mark(critical.contains(&id))),
        link: Some(format!("#node-{id}")),
    });
    let edges = run.nodes.iter().enumerate().flat_map(|(to, node)| {
        let edge = move |need: &crate::report::record::NeedRecord| DrawnEdge {
            from: need.node,
            to,
            class: format!("{}{}", need.kind, mark(follows(need.node, to))),
        };
        node.needs.iter().map(edge)
    });
    Drawing { title: format!("Build graph of the run {}", run.name), nodes: nodes.collect(), edges: edges.collect() }
}

fn kind(node: &NodeRecord) -> &'static str {
    use crate::report::summary::NodeKind;
    match node.kind {
        NodeKind::Base => "external",
        NodeKind::Image | NodeKind::Bundle => "image",
        NodeKind::Plugin => "plugin",
    }
}

/// Images by size, the largest first.
fn sizes(run: &RunRecord) -> Vec<SizeView<'_>> {
    const SHADES: usize = 8;
    let size = |layer: &usize| run.layers[*layer].size;
    let mut sizes: Vec<SizeView<'_>> = run
        .nodes
        .iter()
        .enumerate()
        .filter(|(_, node)| !node.layers.is_empty())
        .map(|(id, node)| {
            let total: u64 = node.layers.iter().map(size).sum();
            let parent = node.needs.iter().find(|need| need.kind != "copies-from");
            let below: &[usize] = parent.map_or(&[], |need| &run.nodes[need.node].layers);
            let layers = node.layers.iter().map(|index| {
                let layer = &run.layers[*index];
                LayerBar {
                    width: if total > 0 { 100.0 * layer.size as f64 / total as f64 } else { 0.0 },
                    size: layer.size,
                    created_by: &layer.created_by,
                    digest: &layer.digest,
                    inherited: below.contains(index),
                    shade: index % SHADES,
                }
            });
            let layers: Vec<LayerBar<'_>> = layers.collect();
            let own = layers.iter().filter(|layer| !layer.inherited).map(|layer| layer.size).sum();
            SizeView { id, name: &node.name, total, own, compressed: node.size, layers }
        })
        .collect();
    sizes.sort_by(|a, b| b.total.cmp(&a.total).then_with(|| text::one_line(a.name).cmp(&text::one_line(b.name))));
    sizes
}
