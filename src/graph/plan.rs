//! What will be done with each node and why, found out without touching anything.
//!
//! The same `Planner` answers before a run (when the results of parents that are going to be built aren't known yet)
//! and during it (when they are): a node whose parent came out equal to what it was before is then reused after all.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::context::{Context, HashTable, is_pattern};
use crate::diag::{Diagnostic, Diagnostics};
use crate::dockerfile;
use crate::dockerfile::step::{Action as StepAction, From, LoweredStage, MountKind, Source, Step};
use crate::engine::surroundings::Surroundings;
use crate::engine::{BaseSource, Built, NoCache};
use crate::fetch::{Pin, Remote};
use crate::graph::key::{Content, Fingerprint, NodeInputs, base_key, node_fingerprint};
use crate::graph::node::{Graph, Node, NodeId, NodeKind, Spec};
use crate::image::config::{ImageConfig, Platform};
use crate::image::digest::Key;

/// What all nodes of a run have in common.
#[derive(Clone, Debug)]
pub struct Settings {
    pub source_date_epoch: Option<i64>,
    /// What is built although the store has the result.
    pub no_cache: NoCache,
    /// Ask for base images again (`--pull`).
    pub refresh: bool,
    pub surroundings: Surroundings,
    /// What a node adds to its base becomes one layer.
    pub squash: bool,
    /// What things elsewhere are, by their names, without asking: kollage.lock.
    pub locked: BTreeMap<String, Pin>,
    /// Nothing else may be asked for.
    pub only_locked: bool,
}

/// What earlier runs left behind: asked, never written, by the planner.
pub trait Memory: Sync {
    fn recall(&self, key: &Key) -> Option<Built>;
    /// An image of the store by its name.
    fn named(&self, name: &str) -> Option<Built>;
    fn history(&self, node: &str) -> Option<&NodeHistory>;
    /// Configuration that a base which isn't in the store yet is going to have, where that is known.
    fn foresee(&self, source: &BaseSource, platform: &Platform) -> Option<ImageConfig>;
    /// What something elsewhere was the last time, or is without asking.
    fn known(&self, remote: &Remote) -> Option<Pin>;
}

/// The last time that a node was built.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeHistory {
    pub fingerprint: Fingerprint,
    pub seconds: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    Build,
    Reuse,
    /// A base from a registry or a file.
    Pull,
    /// A base made by a package manager.
    Bootstrap,
}

impl Action {
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Build => "build",
            Action::Reuse => "reuse",
            Action::Pull => "pull",
            Action::Bootstrap => "bootstrap",
        }
    }
}

/// One node, as far as it can be known now.
#[derive(Clone, Debug)]
pub struct Planned {
    pub action: Action,
    pub reason: String,
    /// None while a parent's result isn't known.
    pub key: Option<Key>,
    pub fingerprint: Option<Fingerprint>,
    pub stages: Vec<LoweredStage>,
    /// The earlier result, when that is what will be used.
    pub built: Option<Arc<Built>>,
    /// The configuration that it has or will have.
    pub config: Option<ImageConfig>,
    /// What others have to be asked before this holds; what they said the last time is assumed meanwhile.
    pub asks: Vec<Ask>,
}

/// Something that a step fetches, and which step it is.
#[derive(Clone, Debug)]
pub struct Ask {
    pub remote: Remote,
    pub line: usize,
    pub title: String,
}

impl Planned {
    /// Nothing is known yet but that it has to be built.
    fn to_build() -> Self {
        Planned {
            action: Action::Build,
            reason: String::new(),
            key: None,
            fingerprint: None,
            stages: Vec::new(),
            built: None,
            config: None,
            asks: Vec::new(),
        }
    }
}

/// What is known of a node that another one needs.
#[derive(Clone, Debug)]
pub enum Known {
    Built(Arc<Built>),
    /// It is going to be built; its configuration can be told, its files can't.
    Config(Box<ImageConfig>),
    Nothing,
}

pub struct Planner<'a> {
    pub graph: &'a Graph,
    pub settings: &'a Settings,
    pub table: &'a HashTable,
    pub memory: &'a dyn Memory,
    digests: Mutex<HashMap<SelectionId, Option<Key>>>,
    /// What was asked in this run: all nodes see the same.
    pins: Mutex<BTreeMap<Remote, Pin>>,
}

/// A selection of context files: the directory, the pattern, and what is excluded.
type SelectionId = (std::path::PathBuf, Wanted);

/// What one source of an instruction asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Wanted {
    /// Of `COPY --parents`.
    pivot: Option<String>,
    pattern: String,
    excludes: Vec<String>,
}

impl Wanted {
    fn plain(pattern: &str) -> Wanted {
        Wanted { pivot: None, pattern: pattern.to_owned(), excludes: Vec::new() }
    }

    /// As it is written.
    fn name(&self) -> String {
        match self.pivot.as_deref() {
            None | Some(".") => self.pattern.clone(),
            Some(pivot) => format!("{pivot}/./{}", self.pattern),
        }
    }
}

impl<'a> Planner<'a> {
    pub fn new(graph: &'a Graph, settings: &'a Settings, table: &'a HashTable, memory: &'a dyn Memory) -> Self {
        let (digests, pins) = (Mutex::default(), Mutex::default());
        Planner { graph, settings, table, memory, digests, pins }
    }

    /// Takes note of an answer.
    pub fn pin(&self, remote: Remote, pin: Pin) {
        self.pins.lock().unwrap_or_else(PoisonError::into_inner).insert(remote, pin);
    }

    /// What was asked in this run, or need not be.
    pub fn pinned(&self, remote: &Remote) -> Option<Pin> {
        let asked = self.pins.lock().unwrap_or_else(PoisonError::into_inner).get(remote).cloned();
        asked.or_else(|| self.settings.locked.get(&remote.name()).cloned())
    }

    /// What everything that the stages fetch is, as it was asked for.
    pub fn pins(&self, stages: &[LoweredStage]) -> BTreeMap<Remote, Pin> {
        let remotes = stages.iter().flat_map(|stage| &stage.steps).flat_map(remotes);
        remotes.filter_map(|remote| Some((remote.clone(), self.pinned(&remote)?))).collect()
    }

    /// What the stages fetch and nobody has asked for in this run; and of that, what not even an earlier run knew.
    fn asks(&self, spec: &Spec, stages: &[LoweredStage]) -> (Vec<Ask>, Option<Remote>) {
        let mut asks: Vec<Ask> = Vec::new();
        let mut unknown = None;
        for step in stages.iter().flat_map(|stage| &stage.steps) {
            let awaited = context_patterns(step);
            for remote in awaited.iter().filter_map(|wanted| self.awaited(spec, &wanted.pattern)) {
                if !remote.is_fixed() {
                    asks.push(Ask { remote: remote.clone(), line: step.line, title: step.title.clone() });
                }
            }
            for remote in remotes(step) {
                if self.pinned(&remote).is_some() || asks.iter().any(|ask| ask.remote == remote) {
                    continue;
                }
                match self.memory.known(&remote) {
                    Some(pin) if remote.is_fixed() => {
                        self.pin(remote, pin);
                        continue;
                    }
                    Some(_) => {}
                    None => {
                        unknown.get_or_insert(remote.clone());
                    }
                }
                asks.push(Ask { remote, line: step.line, title: step.title.clone() });
            }
        }
        (asks, unknown)
    }

    fn awaited(&self, spec: &Spec, name: &str) -> Option<&Remote> {
        self.graph.awaited.get(&spec.context.root().join(name))
    }

    /// Something that a file of the context is made of, which isn't there.
    fn unfetched(&self, spec: &Spec) -> Option<&Remote> {
        let root = spec.context.root();
        // Paths are ordered by their components, so that those below a directory are next to each other.
        let mut own = self.graph.awaited.range(root.to_owned()..).take_while(|(path, _)| path.starts_with(root));
        let there = |path: &Path| path.strip_prefix(root).is_ok_and(|name| spec.context.has(name));
        own.find(|(path, _)| !there(path)).map(|(_, remote)| remote)
    }

    /// The whole plan, in the order of the graph; or every problem that can be found before anything is built.
    pub fn plan(&self) -> Result<Vec<Planned>, Diagnostics> {
        let mut plan: Vec<Planned> = Vec::with_capacity(self.graph.nodes.len());
        let mut problems = Diagnostics::default();
        for id in self.graph.ids() {
            let planned = self.node(id, &|other: NodeId| match plan.get(other.0) {
                Some(Planned { built: Some(built), .. }) => Known::Built(built.clone()),
                Some(Planned { config: Some(config), .. }) => Known::Config(Box::new(config.clone())),
                _ => Known::Nothing,
            });
            plan.push(planned.unwrap_or_else(|found| {
                problems.extend(found);
                Planned::to_build()
            }));
        }
        if problems.has_errors() { Err(problems) } else { Ok(plan) }
    }

    /// One node, given what is known of those it needs.
    pub fn node(&self, id: NodeId, known: &dyn Fn(NodeId) -> Known) -> Result<Planned, Diagnostics> {
        let node = self.graph.node(id);
        match &node.kind {
            NodeKind::Base(source) => self.base(source, &node.platform),
            NodeKind::Image(spec) | NodeKind::Plugin { spec, .. } => self.image(node, spec, known),
        }
    }

    fn base(&self, source: &BaseSource, platform: &Platform) -> Result<Planned, Diagnostics> {
        let Settings { source_date_epoch, refresh, .. } = self.settings;
        if let BaseSource::Registry { reference } = source
            && !*refresh
            && let Some(built) = self.memory.named(reference)
            && built.config.platform() == *platform
        {
            return Ok(Planned {
                action: Action::Reuse,
                reason: "in the store under this name".into(),
                key: Some(built.key.clone()),
                config: Some(built.config.clone()),
                built: Some(Arc::new(built)),
                ..Planned::to_build()
            });
        }
        let content = match source {
            BaseSource::OciLayout { path, .. } if path.is_dir() => Some(self.file(&path.join("index.json"))?),
            BaseSource::OciLayout { path, .. }
            | BaseSource::DockerArchive { path, .. }
            | BaseSource::RootfsTar { path } => Some(self.file(path)?),
            BaseSource::Directory { path } => Some(self.directory(path)?),
            BaseSource::Remote(remote) => match self.pinned(remote).or_else(|| self.memory.known(remote)) {
                Some(pin) => Some(pin.key()),
                None => {
                    let reason = "asked for when the build runs".to_owned();
                    let config = self.memory.foresee(source, platform);
                    let (action, asks) = (Action::Pull, self.base_asks(remote));
                    return Ok(Planned { action, reason, config, asks, ..Planned::to_build() });
                }
            },
            BaseSource::Bootstrap(_) | BaseSource::Registry { .. } => None,
        };
        let key = base_key(source, content.as_ref(), platform, *source_date_epoch);
        let recalled = self.memory.recall(&key).map(Arc::new);
        let action = match source {
            BaseSource::Bootstrap(_) => Action::Bootstrap,
            _ => Action::Pull,
        };
        let (action, reason, built) = match recalled {
            Some(_) if *refresh => (action, "asked for again".to_owned(), None),
            Some(built) => (Action::Reuse, "in the store".to_owned(), Some(built)),
            None => (action, "not in the store".to_owned(), None),
        };
        let config = match &built {
            Some(built) => Some(built.config.clone()),
            None => self.memory.foresee(source, platform),
        };
        let asks = match source {
            BaseSource::Remote(remote) => self.base_asks(remote),
            _ => Vec::new(),
        };
        Ok(Planned { action, reason, key: Some(key), built, config, asks, ..Planned::to_build() })
    }

    fn base_asks(&self, remote: &Remote) -> Vec<Ask> {
        let ask = || Ask { remote: remote.clone(), line: 0, title: format!("--build-context {}", remote.shown()) };
        if self.pinned(remote).is_some() { Vec::new() } else { vec![ask()] }
    }

    /// Digest of what a build may see of a directory.
    fn directory(&self, path: &Path) -> Result<Key, Diagnostics> {
        let digest = || {
            let context = Context::open(path, None)?;
            context.digest(&context.select(".", &[])?, self.table)
        };
        digest().map_err(|error| Diagnostics(vec![Diagnostic::error(error.to_string())]))
    }

    fn image(&self, node: &Node, spec: &Spec, known: &dyn Fn(NodeId) -> Known) -> Result<Planned, Diagnostics> {
        let mut configs = BTreeMap::new();
        let mut results = BTreeMap::new();
        let mut waiting: Option<&str> = None;
        let mut foreseen = true;
        for edge in &node.needs {
            let name = &self.graph.node(edge.to).name;
            match known(edge.to) {
                Known::Built(built) => {
                    results.insert(edge.reference.clone(), (name.to_string(), built.config.result_id()));
                    configs.insert(edge.reference.clone(), built.config.clone());
                }
                Known::Config(config) => {
                    waiting.get_or_insert(name);
                    configs.insert(edge.reference.clone(), *config);
                }
                Known::Nothing => {
                    waiting.get_or_insert(name);
                    foreseen = false;
                }
            }
        }
        let mut planned = Planned::to_build();
        if foreseen {
            planned.stages = dockerfile::lower(&spec.resolved, &configs)?;
            planned.config = planned.stages.last().map(|s| s.config.clone());
        }
        let contents = self.contents(spec, &planned.stages)?;
        if let Some(remote) = self.unfetched(spec) {
            planned.reason = format!("{} is unknown until it is fetched", remote.shown());
            return Ok(planned);
        }
        if let Some(name) = waiting {
            planned.reason = format!("{name} is made first");
            return Ok(planned);
        }
        let (asks, unknown) = self.asks(spec, &planned.stages);
        planned.asks = asks;
        if let Some(remote) = unknown {
            planned.reason = format!("{} is asked for when it runs", remote.shown());
            return Ok(planned);
        }
        let fingerprint = node_fingerprint(
            &planned.stages,
            &NodeInputs {
                platform: &node.platform,
                source_date_epoch: self.settings.source_date_epoch,
                surroundings: &self.settings.surroundings,
                squash: self.settings.squash,
                labels: &spec.labels,
                checks: &spec.checks,
                bases: &results,
                content: &|stage, step| contents.get(&(stage, step)).cloned().unwrap_or_default(),
            },
        );
        let key = fingerprint.key();
        let history = self.memory.history(&history_name(node));
        let again = planned.stages.iter().find(|stage| self.settings.no_cache.covers(stage.name.as_deref()));
        if let NoCache::Everything = self.settings.no_cache {
            planned.reason = "reuse is switched off".into();
        } else if let Some(stage) = again {
            let name = stage.name.as_deref().unwrap_or_default();
            planned.reason = format!("reuse is switched off for the stage `{name}`");
        } else if let Some(built) = self.memory.recall(&key) {
            planned.action = Action::Reuse;
            planned.reason = match planned.asks.as_slice() {
                [] => "nothing changed".into(),
                [ask, ..] => format!("nothing changed, if {} is what it was", ask.remote.shown()),
            };
            planned.config = Some(built.config.clone());
            planned.built = Some(Arc::new(built));
        } else {
            planned.reason = match history {
                None => "not built before".into(),
                Some(old) => fingerprint
                    .difference(&old.fingerprint)
                    .unwrap_or_else(|| "its result is no longer in the store".into()),
            };
        }
        planned.key = Some(key);
        planned.fingerprint = Some(fingerprint);
        Ok(planned)
    }

    /// Digests of the context files of every step, by stage index and position; a source that selects nothing is a
    /// problem with a place.
    pub fn contents(
        &self,
        spec: &Spec,
        stages: &[LoweredStage],
    ) -> Result<BTreeMap<(usize, usize), Content>, Diagnostics> {
        let mut found = BTreeMap::new();
        let mut problems = Diagnostics::default();
        for stage in stages {
            for (position, step) in stage.steps.iter().enumerate() {
                match self.content(spec, step) {
                    Ok(content) if content.is_empty() => {}
                    Ok(content) => {
                        found.insert((stage.index, position), content);
                    }
                    Err(diagnostic) => problems.push(diagnostic),
                }
            }
        }
        if problems.is_empty() { Ok(found) } else { Err(problems) }
    }

    /// The context files of one step, as `graph::key` wants them.
    fn content(&self, spec: &Spec, step: &Step) -> Result<Content, Diagnostic> {
        let mut content = Content::new();
        for remote in remotes(step) {
            // One that nobody knows yet stands in no key: there is none until it was asked for.
            let Some(pin) = self.pinned(&remote).or_else(|| self.memory.known(&remote)) else { continue };
            let mut name = remote.shown();
            while content.contains_key(&name) {
                name.push('\'');
            }
            content.insert(name, pin.key());
        }
        for wanted in context_patterns(step) {
            let name = wanted.name();
            match self.digest(spec, wanted) {
                Ok(Some(key)) => {
                    content.insert(name, key);
                }
                // As in Docker: `COPY optional* /` may find nothing.
                Ok(None) if matches!(step.action, StepAction::Copy(_)) && is_pattern(&name) => {}
                // It stands in no key either until it is there.
                Ok(None) if self.awaited(spec, &name).is_some() => {}
                Ok(None) => {
                    return Err(Diagnostic::error(format!("no file in the context matches `{name}`"))
                        .at(&spec.resolved.dockerfile.file, step.span.clone())
                        .hint(format!(
                            "the context is {}; see also its .dockerignore",
                            spec.context.root().display()
                        )));
                }
                Err(error) => {
                    return Err(
                        Diagnostic::error(error.to_string()).at(&spec.resolved.dockerfile.file, step.span.clone())
                    );
                }
            }
        }
        Ok(content)
    }

    fn digest(&self, spec: &Spec, wanted: Wanted) -> crate::error::Result<Option<Key>> {
        let id = (spec.context.root().to_owned(), wanted);
        let digests = || self.digests.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = digests().get(&id) {
            return Ok(known.clone());
        }
        let Wanted { pivot, pattern, excludes } = &id.1;
        let selected = match pivot {
            None => spec.context.select(pattern, excludes)?,
            Some(pivot) => spec.context.select_parents(pivot, pattern, excludes)?,
        };
        let digest = match selected.is_empty() {
            true => None,
            false => Some(spec.context.digest(&selected, self.table)?),
        };
        digests().insert(id, digest.clone());
        Ok(digest)
    }

    fn file(&self, path: &Path) -> Result<Key, Diagnostics> {
        self.table.file(path).map_err(|error| {
            let mut problems = Diagnostics::default();
            problems.push(Diagnostic::error(error.to_string()));
            problems
        })
    }
}

/// The name under which a node's history is kept: its published name, so that catalogues can share a store; with its
/// platform where that is another than the machine's.
pub fn history_name(node: &Node) -> Cow<'_, str> {
    let name = node.spec().and_then(|s| s.names.first()).map_or(&*node.name, String::as_str);
    match node.platform == Platform::host() {
        true => Cow::Borrowed(name),
        false => Cow::Owned(format!("{name} {}", node.platform)),
    }
}

/// What a step takes from elsewhere.
pub fn remotes(step: &Step) -> Vec<Remote> {
    match &step.action {
        StepAction::Copy(copy) => copy.sources.iter().filter_map(|source| copy.remote(source)).collect(),
        _ => Vec::new(),
    }
}

fn context_patterns(step: &Step) -> Vec<Wanted> {
    match &step.action {
        StepAction::Copy(copy) if copy.from == From::Context => copy
            .sources
            .iter()
            .filter_map(|source| match source {
                Source::Path(pattern) => Some(Wanted { excludes: copy.excludes.clone(), ..Wanted::plain(pattern) }),
                Source::Parents { pivot, pattern } => Some(Wanted {
                    pivot: Some(pivot.clone()),
                    excludes: copy.excludes.clone(),
                    ..Wanted::plain(pattern)
                }),
                _ => None,
            })
            .collect(),
        StepAction::Run(run) => run
            .mounts
            .iter()
            .filter_map(|mount| match &mount.kind {
                MountKind::Bind { from: From::Context, source, .. } => Some(Wanted::plain(source)),
                MountKind::Cache { from: Some(From::Context), source, .. } => Some(Wanted::plain(source)),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    }
}
