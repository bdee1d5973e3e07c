//! `kollage lock`: looks up what names that move stand for, and writes it down.
//!
//! What pip installs is found out by pip, in the image that it will install into, so parents are built on the way: what
//! `kollage build` has then left to do is the images themselves.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::cli::App;
use crate::cli::args::{self, Lock as Args};
use crate::cli::machine::{self, EngineFlags};
use crate::cli::secret::secrets;
use crate::cli::signals;
use crate::cli::ssh::agents;
use crate::cli::workspace::{Workspace, store_path, wrong_definitions};
use crate::context::HashTable;
use crate::engine::embedded::EmbeddedEngine;
use crate::engine::{BaseSource, Ctl, Engine as _, NoCache};
use crate::error::{Context as _, Error, Kind, Result};
use crate::event::{Cancel, Event, Outcome, Sink};
use crate::fetch::Remote;
use crate::graph::node::{Edge, Graph, Node, NodeId, NodeKind, Spec};
use crate::graph::plan::{Planner, Settings, remotes};
use crate::image::archive::staging::write_file;
use crate::image::digest::Digest;
use crate::image::store::Store;
use crate::lock::{self, BUILDS, FILE, Gap, Lock, REPORT, RESOLVE, Resolved};
use crate::report::human;
use crate::report::style::{Look, Paint};
use crate::report::text::one_line;
use crate::schedule::history::History;
use crate::schedule::{NodeResult, Options, Run};
use crate::suggest;

/// Of a failed step's output.
const LAST_LINES: usize = 30;

pub fn run(app: &App, args: &Args) -> Result<u8> {
    let workspace = Workspace::load(&app.global, &app.env, &args.select, &args.settings)?;
    app.show_warnings(&workspace.catalogue.warnings);
    if args.check {
        return check(app, &workspace);
    }
    let path = workspace.catalogue.root.join(FILE);
    let old = workspace.catalogue.lock.clone();
    let store = machine::open_store(&store_path(&app.global, &app.env)?)?;
    let flags = EngineFlags {
        secrets: secrets(&args.secrets, &app.env)?,
        ssh: agents(&args.ssh, app.env.ssh_auth_sock.as_deref())?,
        ..EngineFlags::default()
    };
    let engine = machine::engine(store.clone(), flags, &workspace.catalogue.settings, &app.env)?;
    let cancel = Cancel::new()?;
    signals::watch(&cancel, |_| {})?;
    let sink = Lines { look: app.look, last: Mutex::default() };
    let whole = args.select.patterns.is_empty() && args.select.profiles.is_empty() && args.select.plugins.is_empty();
    let jobs = machine::jobs(args.jobs, &workspace.catalogue.settings);
    let mut locking = Locking { workspace, store, engine, sink, cancel, jobs, used: BTreeSet::new() };
    if let Some(names) = &args.update {
        locking.forget(names)?;
    }
    locking.fill()?;
    if whole {
        locking.prune();
    }
    let new = &locking.workspace.catalogue.lock;
    let moved = new.moved(&old);
    if new != &old || !path.exists() {
        write_file(&path, new.text().as_bytes())?;
    }
    for line in &moved {
        app.print(&format!("{line}\n"))?;
    }
    app.say(&match moved.len() {
        0 => format!("{}: nothing moved", path.display()),
        count => format!("{}: {} moved", path.display(), human::count(count, "line")),
    });
    Ok(0)
}

/// What definitions alone can tell: nobody is asked.
fn check(app: &App, workspace: &Workspace) -> Result<u8> {
    let graph = workspace.assemble(&workspace.catalogue)?;
    let gaps = lock::gaps(&graph, &workspace.catalogue);
    for gap in &gaps {
        app.print(&format!("{gap}\n"))?;
    }
    Ok(if gaps.is_empty() { 0 } else { Kind::Difference.exit_code() })
}

struct Locking {
    workspace: Workspace,
    store: Store,
    engine: EmbeddedEngine,
    sink: Lines,
    cancel: Cancel,
    jobs: usize,
    /// Names of remotes that the graph uses.
    used: BTreeSet<String>,
}

impl Locking {
    fn lock(&mut self) -> &mut Lock {
        &mut self.workspace.catalogue.lock
    }

    fn graph(&self) -> Result<Graph> {
        self.workspace.assemble(&self.workspace.catalogue)
    }

    fn settings(&self) -> Result<Settings> {
        Ok(Settings {
            no_cache: NoCache::Stages(BTreeSet::from([RESOLVE.to_owned()])),
            ..self.workspace.planning(&args::Surroundings::default())?
        })
    }

    /// Takes out of the lock what the selected images use under these names, or all that they use.
    fn forget(&mut self, names: &[String]) -> Result<()> {
        let graph = self.graph()?;
        let nodes: BTreeSet<String> = graph.nodes.iter().map(|node| node.plain_name().to_owned()).collect();
        let entries: BTreeSet<String> = graph.nodes.iter().map(lock::entry).collect();
        let used = self.remotes(&graph)?.0;
        let remotes: BTreeSet<String> = used.iter().map(Remote::name).collect();
        let lock = self.lock();
        let here: Vec<&String> = lock.pypi.keys().filter(|entry| entries.contains(*entry)).collect();
        let locked = here.iter().filter_map(|entry| Some(lock::parts(entry)?.0.to_owned()));
        let mut known: BTreeSet<String> = lock.bases.keys().filter(|name| nodes.contains(*name)).cloned().collect();
        known.extend(locked);
        known.extend(lock.debian.keys().chain(lock.remotes.keys()).cloned());
        known.extend(lock.pypi.values().flat_map(packages).cloned());
        if let Some(unknown) = names.iter().find(|name| !known.contains(*name)) {
            let error = Error::bad_input(format!("nothing that is locked and selected is called `{unknown}`"));
            let hint = suggest::hint(unknown, known.iter().map(String::as_str));
            return Err(error.hint(
                hint.unwrap_or_else(|| format!("name an image, a base, an address or a package as {FILE} has it")),
            ));
        }
        let meant = |name: &String| names.is_empty() || names.contains(name);
        lock.bases.retain(|name, _| !(nodes.contains(name) && meant(name)));
        lock.debian.retain(|name, _| !meant(name));
        lock.remotes.retain(|name, _| !(remotes.contains(name) && meant(name)));
        let node = |entry: &str| lock::parts(entry).map(|(node, _)| node.to_owned()).unwrap_or_default();
        lock.pypi.retain(|entry, resolved| {
            !(entries.contains(entry) && (meant(&node(entry)) || packages(resolved).any(meant)))
        });
        Ok(())
    }

    /// Asks for everything that is not in the lock, from the bases upwards.
    fn fill(&mut self) -> Result<()> {
        let mut pulled = false;
        loop {
            let graph = self.graph()?;
            if self.bases(&graph)? {
                continue;
            }
            let inputs = lock::inputs(&graph);
            let open: BTreeSet<NodeId> = inputs
                .iter()
                .filter(|(id, inputs)| {
                    let known = self.workspace.catalogue.lock.pypi.get(&lock::entry(graph.node(**id)));
                    known.is_none_or(|known| known.inputs != **inputs)
                })
                .map(|(id, _)| *id)
                .collect();
            let names = open.iter().map(|id| lock::entry(graph.node(*id)));
            // A wrong answer must not be built with.
            let wrong: Vec<String> = names.filter(|name| self.lock().pypi.remove(name).is_some()).collect();
            if !wrong.is_empty() {
                continue;
            }
            let (remotes, unknown) = self.remotes(&graph)?;
            if !unknown.is_empty() && !pulled {
                pulled = true;
                // Only what a base says of itself tells what is below it.
                self.run(&part(&graph, &unknown, false))?;
                continue;
            }
            self.pin(&remotes)?;
            if open.is_empty() {
                return Ok(());
            }
            let below =
                |id: NodeId| ancestors(&graph, id).into_iter().any(|other| other != id && open.contains(&other));
            let ready: BTreeSet<NodeId> = open.iter().copied().filter(|id| !below(*id)).collect();
            let asking = part(&graph, &ready, true);
            let results = self.run(&asking)?;
            for id in ready {
                let name = graph.node(id).name.clone();
                let at = asking.nodes.iter().position(|node| node.name == name);
                let built = at.and_then(|at| results[at].built.clone());
                let built = built.ok_or_else(|| Error::failed(format!("{name} was not asked")))?;
                let diff_ids = &built.config.rootfs.diff_ids;
                let resolved = self
                    .answer(&name, inputs[&id].clone(), diff_ids)
                    .map_err(|e| e.context(format!("cannot lock {name}")))?;
                self.lock().pypi.insert(lock::entry(graph.node(id)), resolved);
            }
        }
    }

    /// What pip left in the stage that asked it.
    fn answer(&self, node: &Arc<str>, inputs: String, diff_ids: &[Digest]) -> Result<Resolved> {
        let stack = self.store.stack(diff_ids)?;
        let file = |path: &str| {
            let found = stack.lookup(Path::new(path))?;
            found.map(|found| std::fs::read(&found.path).failed(|| format!("cannot read {path}"))).transpose()
        };
        let report = file(REPORT)?.ok_or_else(|| {
            Error::failed(format!("the stage `{RESOLVE}` leaves no {REPORT}"))
                .hint(format!("it has to run `pip install --dry-run --report {REPORT} …`"))
        })?;
        let report = lock::report(&report)?;
        let builds = file(BUILDS)?;
        if let (Some(source), None) = (&report.source, &builds) {
            let message = format!(
                "{source} has no wheel, and what it is built with is not locked: the stage `{RESOLVE}` leaves no {BUILDS}"
            );
            self.sink.event(Event::Warning { node: Some(node.clone()), message });
        }
        let builds = builds.map(|bytes| lock::builds(&bytes)).transpose()?.unwrap_or_default();
        Ok(Resolved { inputs, packages: report.packages, builds })
    }

    /// Whether something was added.
    fn bases(&mut self, graph: &Graph) -> Result<bool> {
        let mut added = false;
        for gap in lock::gaps(graph, &self.workspace.catalogue) {
            match gap {
                Gap::Base(name) => {
                    let node: Arc<str> = name.as_str().into();
                    let ctl = Ctl { node: &node, sink: &self.sink, cancel: &self.cancel };
                    let digest = self.engine.digest_of(&name, &ctl)?;
                    self.lock().bases.insert(name, digest);
                }
                Gap::Snapshot(suite) => {
                    let today = jiff::Timestamp::now().strftime("%Y%m%dT000000Z").to_string();
                    self.lock().debian.insert(suite, today);
                }
                Gap::Missing(_) | Gap::Stale(_) => continue,
            }
            added = true;
        }
        Ok(added)
    }

    /// What the graph takes from elsewhere, and bases without which that can't be told.
    fn remotes(&self, graph: &Graph) -> Result<(Vec<Remote>, BTreeSet<NodeId>)> {
        let table = HashTable::load(&self.store.state_path(machine::HASH_TABLE));
        let history = History::load(&self.store.state_path(machine::HISTORY), &self.engine);
        let settings = self.settings()?;
        let planned = Planner::new(graph, &settings, &table, &history).plan().map_err(wrong_definitions)?;
        let mut found: Vec<Remote> = Vec::new();
        let mut unknown = BTreeSet::new();
        for id in graph.ids() {
            let steps = planned[id.0].stages.iter().flat_map(|stage| &stage.steps);
            for remote in steps.flat_map(remotes) {
                if !remote.is_fixed() && !found.contains(&remote) {
                    found.push(remote);
                }
            }
            if let (NodeKind::Base(_), None) = (&graph.node(id).kind, &planned[id.0].config) {
                unknown.insert(id);
            }
        }
        Ok((found, unknown))
    }

    fn pin(&mut self, remotes: &[Remote]) -> Result<()> {
        let node: Arc<str> = FILE.into();
        for remote in remotes {
            self.used.insert(remote.name());
            if self.workspace.catalogue.lock.pin(remote).is_none() {
                let ctl = Ctl { node: &node, sink: &self.sink, cancel: &self.cancel };
                let pin = self.engine.pin(remote, &ctl)?;
                self.lock().remotes.insert(remote.name(), pin);
            }
        }
        Ok(())
    }

    fn run(&self, graph: &Graph) -> Result<Vec<NodeResult>> {
        let path = self.store.state_path(machine::HASH_TABLE);
        let table = HashTable::load(&path);
        let history = History::load(&self.store.state_path(machine::HISTORY), &self.engine);
        let settings = self.settings()?;
        let options = Options { jobs: self.jobs, fail_fast: true };
        let planner = Planner::new(graph, &settings, &table, &history);
        machine::refuse_platforms(graph, &planner.plan().map_err(wrong_definitions)?)?;
        let results = Run {
            planner: &planner,
            engine: &self.engine,
            options: &options,
            sink: &self.sink,
            cancel: &self.cancel,
            expected: &vec![None; graph.nodes.len()],
        }
        .run();
        table.save(&path)?;
        for (node, result) in graph.nodes.iter().zip(&results) {
            if let Outcome::Failed(error) = &result.outcome {
                self.sink.show_last(&node.name);
                return Err(error.clone());
            }
        }
        self.cancel.check()?;
        Ok(results)
    }

    /// Takes out what no image uses; for when all are looked at.
    fn prune(&mut self) {
        let Ok(graph) = self.graph() else { return };
        let nodes: BTreeSet<&str> = graph.nodes.iter().map(Node::plain_name).collect();
        let suites: BTreeSet<String> = graph
            .nodes
            .iter()
            .filter_map(|node| match &node.kind {
                NodeKind::Base(BaseSource::Bootstrap(wanted)) if wanted.snapshot.is_some() => {
                    Some(format!("debian/{}", wanted.suite))
                }
                _ => None,
            })
            .collect();
        let asking: BTreeSet<String> = lock::inputs(&graph).keys().map(|id| lock::entry(graph.node(*id))).collect();
        let platforms = graph.platforms();
        let elsewhere = |entry: &str| lock::parts(entry).is_some_and(|(_, of)| !platforms.contains(&&of));
        let used = &self.used;
        let lock = &mut self.workspace.catalogue.lock;
        lock.bases.retain(|name, _| nodes.contains(name.as_str()));
        lock.debian.retain(|name, _| suites.contains(name));
        lock.remotes.retain(|name, _| used.contains(name));
        // What other platforms have was not looked at.
        lock.pypi.retain(|entry, _| asking.contains(entry) || elsewhere(entry));
    }
}

/// Names of all that was found for a node.
fn packages(resolved: &Resolved) -> impl Iterator<Item = &String> {
    resolved.packages.keys().chain(resolved.builds.keys())
}

/// The node and all that it needs.
fn ancestors(graph: &Graph, id: NodeId) -> BTreeSet<NodeId> {
    let mut all = BTreeSet::from([id]);
    let mut open = vec![id];
    while let Some(id) = open.pop() {
        for edge in &graph.node(id).needs {
            if all.insert(edge.to) {
                open.push(edge.to);
            }
        }
    }
    all
}

/// These nodes and what they need. `asking`: of these only the stage that asks, which nothing is built on.
fn part(graph: &Graph, wanted: &BTreeSet<NodeId>, asking: bool) -> Graph {
    let needed: BTreeSet<NodeId> = wanted.iter().flat_map(|id| ancestors(graph, *id)).collect();
    let mut part = Graph::default();
    let mut moved: BTreeMap<NodeId, NodeId> = BTreeMap::new();
    for id in needed {
        let mut node = graph.node(id).clone();
        node.selected = wanted.contains(&id);
        let question = node.spec().filter(|_| asking && wanted.contains(&id)).and_then(lock::question);
        if let (Some(question), Some(spec)) = (question, node.spec()) {
            let context = spec.context.clone();
            node.needs.retain(|edge| question.images.contains(&edge.reference));
            node.kind = NodeKind::Image(Box::new(Spec {
                resolved: question,
                context,
                labels: BTreeMap::new(),
                checks: Vec::new(),
                names: Vec::new(),
                max_layers: None,
            }));
        }
        node.needs = node.needs.into_iter().map(|edge| Edge { to: moved[&edge.to], ..edge }).collect();
        moved.insert(id, part.push(node));
    }
    part
}

/// Steps as lines, and of a failed one what it said.
struct Lines {
    look: Look,
    last: Mutex<BTreeMap<Arc<str>, VecDeque<String>>>,
}

impl Lines {
    fn show_last(&self, node: &Arc<str>) {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        for line in last.get(node).into_iter().flatten() {
            // Nothing can be done about a closed stream.
            let _ = writeln!(io::stderr(), "    {}", self.look.paint(Paint::Dim, one_line(line)));
        }
    }
}

impl Sink for Lines {
    fn event(&self, event: Event) {
        let line = match event {
            Event::StepStarted { node, title, .. } => {
                self.last.lock().unwrap_or_else(PoisonError::into_inner).remove(&node);
                format!("{}: {}", self.look.paint(Paint::Strong, node), one_line(&title))
            }
            Event::Output { node, line, .. } => {
                let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
                let lines = last.entry(node).or_default();
                if lines.len() == LAST_LINES {
                    lines.pop_front();
                }
                lines.push_back(line);
                return;
            }
            Event::Warning { node, message } => {
                let node = node.map(|node| format!("{node}: ")).unwrap_or_default();
                format!("{} {node}{}", self.look.paint(Paint::Warning, "warning:"), one_line(&message))
            }
            _ => return,
        };
        let _ = writeln!(io::stderr(), "{line}");
    }
}
