//! Carries a plan out: the longest remaining path first, as many nodes at once as there are jobs.
//!
//! A failed node takes only those with it that need it. What only an export or a push needs is done by a thread of its
//! own while the next nodes build. Every node is planned again when its turn comes, because only then the results of
//! its parents are known.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::engine::{BaseJob, BaseSource, BuildJob, Built, Ctl, Engine, Published};
use crate::error::{Error, Kind, Result};
use crate::event::{Cancel, Event, Outcome, Sink};
use crate::fit;
use crate::graph::key::Fingerprint;
use crate::graph::node::{Graph, Node, NodeId, NodeKind};
use crate::graph::plan::{Action, Ask, Known, Planned, Planner};
use crate::image::config::Platform;
use crate::schedule::estimate::Left;

pub mod estimate;
pub mod history;
mod order;

#[derive(Clone, Debug)]
pub struct Options {
    /// Nodes that are built at once.
    pub jobs: usize,
    /// The first failure stops everything.
    pub fail_fast: bool,
}

/// What became of one node.
#[derive(Clone, Debug)]
pub struct NodeResult {
    pub outcome: Outcome,
    pub duration: Duration,
    /// Why it was built or reused, as the plan words it.
    pub reason: String,
    pub built: Option<Arc<Built>>,
    pub published: Option<Published>,
    pub fingerprint: Option<Fingerprint>,
    /// Steps that were tried again.
    pub retries: usize,
}

/// Everything that a node's turn needs, the same for all of them.
pub struct Run<'a> {
    pub planner: &'a Planner<'a>,
    pub engine: &'a dyn Engine,
    pub options: &'a Options,
    pub sink: &'a dyn Sink,
    pub cancel: &'a Cancel,
    /// Seconds that each node is expected to take: none for what was never measured, 0 for what will be reused.
    pub expected: &'a [Option<f64>],
}

#[derive(Default)]
struct State {
    /// Nodes whose needs are all there, to be taken by priority.
    ready: Vec<NodeId>,
    waiting: Vec<usize>,
    results: Vec<Option<NodeResult>>,
    running: usize,
    /// When each node's turn came.
    started: Vec<Option<Instant>>,
    /// The last one that was told.
    forecast: Option<(Duration, usize)>,
    stopped: bool,
}

impl Run<'_> {
    /// Results in the order of the graph's nodes; every node has one.
    pub fn run(&self) -> Vec<NodeResult> {
        self.run_telling(&|_, _| {})
    }

    /// `finished` is told of each node whose image is complete, while others are built.
    pub fn run_telling(&self, finished: &(dyn Fn(NodeId, &Published) + Sync)) -> Vec<NodeResult> {
        let graph = self.planner.graph;
        let dependents = graph.dependents();
        let priority = order::priorities(graph, &dependents, self.expected);
        let waiting: Vec<usize> = (0..graph.nodes.len()).map(|i| distinct_needs(graph, NodeId(i))).collect();
        let ready = graph.ids().filter(|id| waiting[id.0] == 0).collect();
        let shared = Shared {
            state: Mutex::new(State {
                ready,
                waiting,
                results: vec![None; graph.nodes.len()],
                started: vec![None; graph.nodes.len()],
                ..State::default()
            }),
            changed: Condvar::new(),
            dependents,
            priority,
        };
        self.sink.event(Event::RunStarted { nodes: graph.nodes.len() });
        self.forecast(&shared);
        let (tail, behind) = channel::<(NodeId, Arc<Built>)>();
        let behind = Mutex::new(behind);
        std::thread::scope(|scope| {
            // Gone with the last worker, whereupon `finish_all` ends.
            let tail = tail;
            let (shared, behind) = (&shared, &behind);
            let finish = move || {
                let behind = behind.lock().unwrap_or_else(PoisonError::into_inner);
                self.finish_all(&behind, shared, finished);
            };
            let deep = || std::thread::Builder::new().stack_size(crate::engine::STACK);
            // With too little memory for that, the usual stack has to do.
            if deep().spawn_scoped(scope, finish).is_err() {
                scope.spawn(finish);
            }
            for worker in 0..self.jobs() {
                let work = |tail: Sender<(NodeId, Arc<Built>)>| move || self.work(worker, shared, &tail);
                if deep().spawn_scoped(scope, work(tail.clone())).is_err() {
                    scope.spawn(work(tail.clone()));
                }
            }
        });
        let state = shared.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        state.results.into_iter().map(|r| r.unwrap_or_else(cancelled)).collect()
    }

    fn jobs(&self) -> usize {
        self.options.jobs.clamp(1, self.planner.graph.nodes.len().max(1))
    }

    fn work(&self, worker: usize, shared: &Shared, tail: &Sender<(NodeId, Arc<Built>)>) {
        while let Some(id) = shared.take(self.cancel) {
            let name = &self.planner.graph.node(id).name;
            let started = Instant::now();
            let sink = Counting { sink: self.sink, retries: AtomicUsize::new(0) };
            let judged = self.turn(id, worker, shared, &sink).and_then(|(planned, built)| {
                self.fits(id, &built, shared, &sink)?;
                Ok((planned, built))
            });
            let mut result = match judged {
                Ok((planned, built)) => {
                    let outcome = match planned.action {
                        Action::Reuse => Outcome::Reused(planned.reason.clone()),
                        _ => Outcome::Built,
                    };
                    NodeResult {
                        outcome,
                        duration: Duration::ZERO,
                        reason: planned.reason,
                        built: Some(built),
                        published: None,
                        fingerprint: planned.fingerprint,
                        retries: 0,
                    }
                }
                Err(error) if error.kind() == Kind::Interrupted || self.cancel.is_cancelled() => cancelled(),
                Err(error) => NodeResult { outcome: Outcome::Failed(error), ..cancelled() },
            };
            result.duration = started.elapsed();
            result.retries = sink.retries.into_inner();
            if matches!(result.outcome, Outcome::Failed(_)) && self.options.fail_fast {
                self.cancel.cancel();
            }
            let (outcome, duration) = (result.outcome.clone(), result.duration);
            self.sink.event(Event::NodeFinished { node: name.clone(), outcome, duration });
            let built = result.built.clone();
            self.settle(id, result, shared);
            if let Some(built) = built {
                // The receiver lives until every sender is gone.
                let _ = tail.send((id, built));
            }
        }
    }

    /// Plans the node with what is known now, and builds it when there is no result for it.
    fn turn(&self, id: NodeId, worker: usize, shared: &Shared, sink: &dyn Sink) -> Result<(Planned, Arc<Built>)> {
        let graph = self.planner.graph;
        let node = graph.node(id);
        let wrong = |found| Error::from_diagnostics(format!("cannot build {}", node.name), found);
        let known = |other: NodeId| match shared.built(other) {
            Some(built) => Known::Built(built),
            None => Known::Nothing,
        };
        let mut planned = self.planner.node(id, &known).map_err(wrong)?;
        if let (true, [ask, ..]) = (self.planner.settings.only_locked, planned.asks.as_slice()) {
            let message = format!("kollage.lock does not say what {} is", ask.remote.shown());
            return Err(Error::bad_input(message).hint("`kollage lock` asks for it; without `--locked` the build does"));
        }
        if !planned.asks.is_empty() {
            self.ask(node, &planned.asks)?;
            planned = self.planner.node(id, &known).map_err(wrong)?;
        }
        if let Some(built) = &planned.built {
            return Ok((planned.clone(), built.clone()));
        }
        let Some(key) = planned.key.clone() else {
            return Err(Error::failed(format!("{} has no key although its parents are there", node.name)));
        };
        sink.event(Event::NodeStarted { node: node.name.clone(), reason: planned.reason.clone(), worker });
        let ctl = Ctl { node: &node.name, sink, cancel: self.cancel };
        let settings = self.planner.settings;
        let built = match &node.kind {
            NodeKind::Base(source) => self.engine.base(
                &BaseJob {
                    key,
                    source: source.clone(),
                    platform: node.platform.clone(),
                    source_date_epoch: settings.source_date_epoch,
                    refresh: settings.refresh,
                    pin: match source {
                        BaseSource::Remote(remote) => self.planner.pinned(remote),
                        _ => None,
                    },
                },
                &ctl,
            )?,
            NodeKind::Image(spec) | NodeKind::Plugin { spec, .. } => {
                let mut bases = BTreeMap::new();
                for edge in &node.needs {
                    if let Some(built) = shared.built(edge.to) {
                        bases.insert(edge.reference.clone(), built);
                    }
                }
                let content = self.planner.contents(spec, &planned.stages).map_err(wrong)?;
                self.engine.build(
                    &BuildJob {
                        key,
                        stages: planned.stages.clone(),
                        dockerfile: spec.resolved.dockerfile.clone(),
                        build_args: spec.resolved.inputs.build_args.clone(),
                        context: spec.context.clone(),
                        content,
                        pins: self.planner.pins(&planned.stages),
                        bases,
                        platform: node.platform.clone(),
                        source_date_epoch: settings.source_date_epoch,
                        labels: spec.labels.clone(),
                        checks: spec.checks.clone(),
                        no_cache: settings.no_cache.clone(),
                        surroundings: settings.surroundings.clone(),
                        squash: settings.squash,
                        max_layers: spec.max_layers,
                    },
                    &ctl,
                )?
            }
        };
        Ok((planned, Arc::new(built)))
    }

    /// Judges what a plugin's layer did to the files below it, whether it was built now or earlier.
    fn fits(&self, id: NodeId, built: &Arc<Built>, shared: &Shared, sink: &dyn Sink) -> Result<()> {
        let graph = self.planner.graph;
        let known = |other: NodeId| if other == id { Some(built.clone()) } else { shared.built(other) };
        let verdict = fit::of_node(graph, id, self.engine, &known)?;
        let Some((verdict, error)) = verdict.and_then(|verdict| verdict.error().map(|error| (verdict, error))) else {
            return Ok(());
        };
        if !verdict.allowed {
            return Err(error);
        }
        sink.event(Event::Warning { node: Some(graph.node(id).name.clone()), message: format!("{error}, as allowed") });
        Ok(())
    }

    /// Asks for what the node fetches; everything that cannot be had is told at once.
    fn ask(&self, node: &Node, asks: &[Ask]) -> Result<()> {
        let ctl = Ctl { node: &node.name, sink: self.sink, cancel: self.cancel };
        let file = node.spec().map(|spec| spec.resolved.dockerfile.file.path().display().to_string());
        let mut failed: Option<Error> = None;
        for ask in asks {
            // Another node may have asked meanwhile.
            if self.planner.pinned(&ask.remote).is_some() {
                continue;
            }
            match self.engine.pin(&ask.remote, &ctl) {
                Ok(pin) => self.planner.pin(ask.remote.clone(), pin),
                Err(error) if error.kind() == Kind::Interrupted => return Err(error),
                Err(error) => {
                    let error = error.context(match &file {
                        Some(file) => format!("{file}:{}: `{}` failed", ask.line, ask.title),
                        None => format!("`{}` failed", ask.title),
                    });
                    failed = Some(match failed {
                        None => error,
                        Some(first) => first.cause(format!("and {error}")),
                    });
                }
            }
        }
        self.sink.event(Event::BackgroundFinished { node: node.name.clone() });
        failed.map_or(Ok(()), Err)
    }

    /// Records a result, frees or skips the nodes that waited for it, and wakes the others.
    fn settle(&self, id: NodeId, result: NodeResult, shared: &Shared) {
        let failed = result.built.is_none();
        let mut skipped: Vec<(NodeId, Outcome)> = Vec::new();
        {
            let mut state = shared.lock();
            let culprit = match &result.outcome {
                Outcome::Failed(_) => Outcome::Skipped(self.planner.graph.node(id).name.clone()),
                _ => Outcome::Cancelled,
            };
            state.running -= 1;
            state.results[id.0] = Some(result);
            if failed {
                let mut stack = vec![id];
                while let Some(gone) = stack.pop() {
                    for &next in &shared.dependents[gone.0] {
                        if state.results[next.0].is_none() {
                            state.results[next.0] = Some(NodeResult { outcome: culprit.clone(), ..cancelled() });
                            skipped.push((next, culprit.clone()));
                            stack.push(next);
                        }
                    }
                }
            } else {
                for &next in &shared.dependents[id.0] {
                    state.waiting[next.0] -= 1;
                    if state.waiting[next.0] == 0 && state.results[next.0].is_none() {
                        state.ready.push(next);
                    }
                }
            }
            shared.changed.notify_all();
        }
        for (node, outcome) in skipped {
            let node = self.planner.graph.node(node).name.clone();
            self.sink.event(Event::NodeFinished { node, outcome, duration: Duration::ZERO });
        }
        self.forecast(shared);
    }

    /// Tells how much longer it takes, where that is known and another figure than the last one.
    fn forecast(&self, shared: &Shared) {
        let left = |(i, result): (usize, &Option<NodeResult>), started: &[Option<Instant>]| {
            let expected = self.expected.get(i).copied().flatten();
            match (result, started[i], expected) {
                (Some(_), ..) => Left::Done,
                (None, Some(since), Some(seconds)) => Left::Seconds((seconds - since.elapsed().as_secs_f64()).max(0.0)),
                _ => Left::whole(expected),
            }
        };
        let (left, running): (Vec<Left>, Vec<bool>) = {
            let state = shared.lock();
            let results = state.results.iter().enumerate();
            let running = results.clone().map(|(i, r)| r.is_none() && state.started[i].is_some()).collect();
            (results.map(|entry| left(entry, &state.started)).collect(), running)
        };
        let estimate = estimate::estimate(self.planner.graph, &left, &|id| running[id.0], self.jobs());
        let Some(time) = estimate.time else { return };
        let told = (Duration::from_secs(time.as_secs()), estimate.unmeasured);
        if shared.lock().forecast.replace(told) != Some(told) {
            self.sink.event(Event::Forecast { remaining: time, unmeasured: estimate.unmeasured });
        }
    }

    /// Behind the critical path: compression and names. Goes on after a cancel with what was finished before it, but
    /// for compression itself, which the next run does.
    fn finish_all(
        &self,
        behind: &Receiver<(NodeId, Arc<Built>)>,
        shared: &Shared,
        told: &(dyn Fn(NodeId, &Published) + Sync),
    ) {
        let graph = self.planner.graph;
        for (id, built) in behind {
            let node = graph.node(id);
            // A name in the store means the image for this machine, where there are several.
            let is_first = node.platform == Platform::host() || graph.platforms().len() == 1;
            let names = node.spec().filter(|_| is_first).map(|s| s.names.clone()).unwrap_or_default();
            let ctl = Ctl { node: &node.name, sink: self.sink, cancel: self.cancel };
            let finished = self.engine.finish(&built, &names, &ctl);
            if let Ok(published) = &finished {
                told(id, published);
            }
            self.sink.event(Event::BackgroundFinished { node: node.name.clone() });
            if let Some(result) = shared.lock().results[id.0].as_mut() {
                apply(result, finished, &node.name, self.sink);
            }
        }
    }
}

fn apply(result: &mut NodeResult, finished: Result<Published>, name: &Arc<str>, sink: &dyn Sink) {
    match finished {
        Ok(published) => result.published = Some(published),
        Err(error) if error.kind() == Kind::Interrupted => {}
        Err(error) => {
            let error = error.context(format!("{name} is built, but could not be completed"));
            let outcome = Outcome::Failed(error);
            result.outcome = outcome.clone();
            sink.event(Event::NodeFinished { node: name.clone(), outcome, duration: result.duration });
        }
    }
}

/// Counts the retries of one node on their way to whoever watches.
struct Counting<'a> {
    sink: &'a dyn Sink,
    retries: AtomicUsize,
}

impl Sink for Counting<'_> {
    fn event(&self, event: Event) {
        if let Event::StepRetried { .. } = event {
            self.retries.fetch_add(1, Ordering::Relaxed);
        }
        self.sink.event(event);
    }
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    dependents: Vec<Vec<NodeId>>,
    priority: Vec<f64>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The most urgent ready node; None when there is nothing left to do.
    fn take(&self, cancel: &Cancel) -> Option<NodeId> {
        let mut state = self.lock();
        loop {
            if cancel.is_cancelled() || state.stopped {
                state.stopped = true;
                self.changed.notify_all();
                return None;
            }
            let best = (0..state.ready.len())
                .max_by(|&a, &b| self.priority[state.ready[a].0].total_cmp(&self.priority[state.ready[b].0]));
            if let Some(position) = best {
                state.running += 1;
                let id = state.ready.swap_remove(position);
                state.started[id.0] = Some(Instant::now());
                return Some(id);
            }
            if state.running == 0 {
                self.changed.notify_all();
                return None;
            }
            // Wakes up by itself now and then, since a cancel can come while nothing changes here.
            let waited = self.changed.wait_timeout(state, Duration::from_millis(100));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn built(&self, id: NodeId) -> Option<Arc<Built>> {
        self.lock().results[id.0].as_ref().and_then(|r| r.built.clone())
    }
}

fn distinct_needs(graph: &Graph, id: NodeId) -> usize {
    let mut needs: Vec<NodeId> = graph.node(id).needs.iter().map(|e| e.to).collect();
    needs.sort();
    needs.dedup();
    needs.len()
}

fn cancelled() -> NodeResult {
    NodeResult {
        outcome: Outcome::Cancelled,
        duration: Duration::ZERO,
        reason: String::new(),
        built: None,
        published: None,
        fingerprint: None,
        retries: 0,
    }
}

#[cfg(test)]
mod tests;
