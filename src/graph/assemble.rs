//! From a catalogue (or one Dockerfile) to the graph: renders what the selection needs, follows every FROM, COPY
//! --from and RUN --mount=from to another image of the catalogue or to a base outside, and puts plugins on top.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use crate::catalogue::{Catalogue, ImageDef, Parent, PluginDef, Settings, Snapshot, parse_reference, registry_of};
use crate::context::Context;
use crate::diag::{Diagnostic, Diagnostics, SourceFile};
use crate::dockerfile::{self, Inputs, Resolved};
use crate::engine::{self, BaseSource, Bootstrap, Check};
use crate::fit::Rules;
use crate::graph::node::{Edge, EdgeKind, Graph, Node, NodeId, NodeKind, Spec};
use crate::image::config::Platform;
use crate::suggest;
use crate::template::{self, Rendered};

/// Says on the image which plugins it has, in the order of their layers.
pub const PLUGINS_LABEL: &str = "org.kollage.plugins";

/// Of every plugin, where there is pip.
const PIP_CHECK: [&str; 2] = ["pip", "check"];

/// An image that was rendered and read, before it has a place in the graph.
struct Prepared {
    name: String,
    resolved: Resolved,
    context: Arc<Context>,
    labels: BTreeMap<String, String>,
    checks: Vec<Check>,
}

enum Target {
    Image(String),
    Base(BaseSource),
}

/// The graph of the selected images and of everything that they need.
pub fn assemble(catalogue: &Catalogue, selected: &BTreeSet<String>, inputs: &Inputs) -> Result<Graph, Diagnostics> {
    let mut problems = Diagnostics::default();
    let mut prepared: BTreeMap<String, Prepared> = BTreeMap::new();
    let names = NameMap::new(catalogue);
    let mut round: BTreeSet<String> = selected.clone();
    while !round.is_empty() {
        let images: Vec<&Arc<ImageDef>> = round.iter().filter_map(|name| catalogue.images.get(name)).collect();
        let results: Vec<Result<Prepared, Diagnostics>> =
            images.par_iter().map(|image| prepare_image(catalogue, image, inputs)).collect();
        let mut next = BTreeSet::new();
        for result in results {
            match result {
                Ok(image) => {
                    for reference in &image.resolved.images {
                        if let Some(name) = names.image(reference) {
                            next.insert(name.to_owned());
                        }
                    }
                    prepared.insert(image.name.clone(), image);
                }
                Err(found) => problems.extend(found),
            }
        }
        next.retain(|name| !prepared.contains_key(name) && !round.contains(name));
        round = next;
    }
    if problems.has_errors() {
        return Err(problems);
    }
    Assembly { catalogue, selected, inputs, names, prepared, graph: Graph::default(), placed: BTreeMap::new() }.run()
}

/// A graph of one Dockerfile, outside any catalogue. `contexts` are what `inputs.contexts` names.
pub fn assemble_one(
    file: &Arc<SourceFile>,
    context: Arc<Context>,
    names: Vec<String>,
    labels: BTreeMap<String, String>,
    inputs: &Inputs,
    contexts: &BTreeMap<String, BaseSource>,
) -> Result<Graph, Diagnostics> {
    let dockerfile = Arc::new(dockerfile::parse(file)?);
    let resolved = dockerfile::resolve(&dockerfile, inputs)?;
    let mut graph = Graph::default();
    let mut needs = Vec::new();
    let mut problems = Diagnostics::default();
    for reference in &resolved.images {
        let given = contexts.get(reference).cloned();
        match given.map_or_else(|| parse_reference(reference, Path::new("")), Ok) {
            Ok(source) => {
                let to = graph.push(base_node(reference, source, &inputs.platform));
                needs.push(Edge { to, kind: edge_kind(&resolved, reference), reference: reference.clone() });
            }
            Err(reason) => problems.push(bad_reference(&resolved, reference, &reason)),
        }
    }
    if problems.has_errors() {
        return Err(problems);
    }
    let name: Arc<str> = names.first().cloned().unwrap_or_else(|| file.path().display().to_string()).into();
    let spec = Spec { resolved, context, labels, checks: Vec::new(), names, max_layers: None };
    let (kind, platform) = (NodeKind::Image(Box::new(spec)), inputs.platform.clone());
    graph.push(Node { name, kind, needs, selected: true, platform });
    Ok(graph)
}

fn prepare_image(catalogue: &Catalogue, image: &ImageDef, inputs: &Inputs) -> Result<Prepared, Diagnostics> {
    let owner = format!("image `{}`", image.name);
    if let Some(diagnostic) = catalogue.not_in_release(&owner, &image.sources, &image.places, &image.file) {
        return Err(one(diagnostic));
    }
    let rendered = template::render_image(catalogue, image)?;
    prepare(&image.name, rendered, image.labels.clone(), image.checks.clone(), inputs)
}

fn prepare(
    name: &str,
    rendered: Rendered,
    labels: BTreeMap<String, String>,
    checks: Vec<Check>,
    inputs: &Inputs,
) -> Result<Prepared, Diagnostics> {
    let dockerfile = Arc::new(dockerfile::parse(&rendered.dockerfile)?);
    let resolved = dockerfile::resolve(&dockerfile, inputs)?;
    let context = Context::of_parts(&rendered.context, rendered.parts, Some(rendered.dockerfile.path()))
        .map_err(|error| one(Diagnostic::error(error.to_string())))?;
    Ok(Prepared { name: name.to_owned(), resolved, context, labels, checks })
}

/// What a name in a Dockerfile means: `keystone` and `namespace/keystone:tag` are the catalogue's image.
struct NameMap {
    by_reference: BTreeMap<String, String>,
}

impl NameMap {
    fn new(catalogue: &Catalogue) -> Self {
        let mut by_reference = BTreeMap::new();
        for name in catalogue.images.keys() {
            by_reference.insert(catalogue.image_ref(name), name.clone());
            by_reference.insert(name.clone(), name.clone());
        }
        NameMap { by_reference }
    }

    fn image(&self, reference: &str) -> Option<&str> {
        self.by_reference.get(reference).map(String::as_str)
    }
}

struct Assembly<'a> {
    catalogue: &'a Catalogue,
    selected: &'a BTreeSet<String>,
    inputs: &'a Inputs,
    names: NameMap,
    prepared: BTreeMap<String, Prepared>,
    graph: Graph,
    placed: BTreeMap<String, NodeId>,
}

impl Assembly<'_> {
    fn run(mut self) -> Result<Graph, Diagnostics> {
        let mut problems = Diagnostics::default();
        let order: Vec<String> = self.prepared.keys().cloned().collect();
        for name in order {
            if let Err(found) = self.place(&name, &mut Vec::new()) {
                problems.extend(found);
                break;
            }
        }
        for name in self.selected {
            if let (Some(image), Some(id)) = (self.catalogue.images.get(name), self.placed.get(name).copied())
                && !image.plugins.inherited
                && let Err(found) = self.plugins(image, id)
            {
                problems.extend(found);
            }
        }
        if problems.has_errors() { Err(problems) } else { Ok(self.graph) }
    }

    /// Puts an image into the graph after everything that it needs. `path` is where we come from.
    fn place(&mut self, name: &str, path: &mut Vec<String>) -> Result<NodeId, Diagnostics> {
        if let Some(id) = self.placed.get(name) {
            return Ok(*id);
        }
        if let Some(start) = path.iter().position(|n| n == name) {
            let cycle = [&path[start..], &[name.to_owned()]].concat().join(" -> ");
            let mut diagnostic = Diagnostic::error(format!("images need each other in a circle: {cycle}"));
            if let Some(image) = self.catalogue.images.get(name) {
                diagnostic = diagnostic.at(&image.file, 0..0);
            }
            return Err(one(diagnostic));
        }
        let Some(image) = self.prepared.remove(name) else {
            return Err(one(Diagnostic::error(format!("image `{name}` is not in the catalogue"))));
        };
        path.push(name.to_owned());
        let result = self.place_prepared(image, path);
        path.pop();
        result
    }

    fn place_prepared(&mut self, image: Prepared, path: &mut Vec<String>) -> Result<NodeId, Diagnostics> {
        let mut needs = Vec::new();
        for reference in &image.resolved.images {
            let to = match self.target(&image, reference)? {
                // It is on the way already: let `place` report the circle.
                Target::Image(name) if !self.placed.contains_key(&name) => {
                    if path.contains(&name) {
                        return self.place(&name, path);
                    }
                    self.place(&name, path)?
                }
                Target::Image(name) => self.placed[&name],
                Target::Base(source) => match self.placed.get(reference) {
                    Some(id) => *id,
                    None => {
                        self.graph.odd.0.extend(self.mistyped(&image.resolved, reference, &source));
                        let id = self.graph.push(base_node(reference, source, &self.inputs.platform));
                        self.placed.insert(reference.clone(), id);
                        id
                    }
                },
            };
            needs.push(Edge { to, kind: edge_kind(&image.resolved, reference), reference: reference.clone() });
        }
        let selected = self.selected.contains(&image.name);
        let definition = self.catalogue.images.get(&image.name);
        let has_plugins = definition.is_some_and(|d| !self.catalogue.plugins_of(d).is_empty());
        let names = if has_plugins { Vec::new() } else { vec![self.catalogue.image_ref(&image.name)] };
        let Prepared { name, resolved, context, labels, checks } = image;
        let spec = Spec { resolved, context, labels, checks, names, max_layers: None };
        let id = self.graph.push(Node {
            name: name.as_str().into(),
            kind: NodeKind::Image(Box::new(spec)),
            needs,
            selected,
            platform: self.inputs.platform.clone(),
        });
        // Whoever needs the image needs it with the plugins that are inherited.
        let id = match definition.filter(|definition| definition.plugins.inherited) {
            Some(definition) => self.plugins(definition, id)?,
            None => id,
        };
        self.placed.insert(name, id);
        Ok(id)
    }

    fn target(&self, image: &Prepared, reference: &str) -> Result<Target, Diagnostics> {
        if let Some(name) = self.names.image(reference) {
            return Ok(Target::Image(name.to_owned()));
        }
        // The definition knows more of its base than a reference can say (packages, mirror, keyring).
        let described = self.catalogue.images.values().find_map(|definition| match &definition.parent {
            Parent::External { reference: known, source } if known == reference => Some(source.clone()),
            _ => None,
        });
        match described.map_or_else(|| parse_reference(reference, &self.catalogue.root), Ok) {
            Ok(BaseSource::Registry { reference }) if !self.allows(&reference) => {
                Err(one(forbidden(&image.resolved, &reference, &self.catalogue.settings)))
            }
            Ok(source) => Ok(Target::Base(self.pinned(reference, source))),
            Err(reason) => Err(one(bad_reference(&image.resolved, reference, &reason))),
        }
    }

    /// As kollage.lock and the settings have it.
    fn pinned(&self, name: &str, source: BaseSource) -> BaseSource {
        match source {
            BaseSource::Registry { reference } if !reference.contains('@') => {
                let digest = self.catalogue.lock.bases.get(name).map(|digest| format!("@{digest}"));
                BaseSource::Registry { reference: reference + &digest.unwrap_or_default() }
            }
            // Where the definition says where from, the archive's own days don't count.
            BaseSource::Bootstrap(wanted) if wanted.distribution == "debian" && wanted.mirror.is_none() => {
                let build = &self.catalogue.settings.build;
                let moment = match &build.snapshot {
                    Snapshot::None => None,
                    Snapshot::At(moment) => Some(moment.clone()),
                    Snapshot::Locked => self.catalogue.lock.debian.get(&format!("debian/{}", wanted.suite)).cloned(),
                };
                let archive = || build.snapshot_archive.clone();
                let snapshot = moment.map(|moment| Box::new(engine::Snapshot { archive: archive(), moment }));
                BaseSource::Bootstrap(Bootstrap { snapshot, ..wanted })
            }
            source => source,
        }
    }

    /// A name without registry and tag that is nearly one of the catalogue.
    fn mistyped(&self, resolved: &Resolved, reference: &str, source: &BaseSource) -> Option<Diagnostic> {
        let bare = matches!(source, BaseSource::Registry { .. }) && !reference.contains(['/', ':', '@']);
        let near = bare.then(|| suggest::near(reference, self.catalogue.images.keys().map(String::as_str)))??;
        let message = format!("no image of the catalogue is called `{reference}`; it is taken from a registry");
        Some(at_reference(resolved, reference, Diagnostic::warning(message)).hint(near))
    }

    fn allows(&self, reference: &str) -> bool {
        self.catalogue.settings.policy.allows_registry(registry_of(reference))
    }

    /// Puts the image's plugins above it, and gives the topmost.
    fn plugins(&mut self, image: &ImageDef, mut below: NodeId) -> Result<NodeId, Diagnostics> {
        let chosen = self.catalogue.plugins_of(image);
        let reference = self.catalogue.image_ref(&image.name);
        let mut applied: Vec<String> = Vec::new();
        for (position, plugin) in chosen.iter().enumerate() {
            let last = position + 1 == chosen.len();
            applied.push(plugin.name.clone());
            below = self.plugin(image, plugin, below, &reference, &applied, last)?;
        }
        Ok(below)
    }

    /// The plugins that an image has from those that it is built on, as their label has them.
    fn inherited(&self, mut below: NodeId) -> Option<&String> {
        loop {
            let node = self.graph.node(below);
            let edge = |kind: EdgeKind| node.needs.iter().find(move |edge| edge.kind == kind);
            below = match &node.kind {
                NodeKind::Plugin { .. } => edge(EdgeKind::PluginOf)?.to,
                _ => {
                    let parent = edge(EdgeKind::Parent)?.to;
                    let label = self.graph.node(parent).spec().and_then(|spec| spec.labels.get(PLUGINS_LABEL));
                    if label.is_some() {
                        return label;
                    }
                    parent
                }
            };
        }
    }

    fn plugin(
        &mut self,
        image: &ImageDef,
        plugin: &PluginDef,
        below: NodeId,
        reference: &str,
        applied: &[String],
        last: bool,
    ) -> Result<NodeId, Diagnostics> {
        let owner = format!("plugin `{}`", plugin.name);
        let unknown = self.catalogue.not_in_release(&owner, &plugin.sources, &plugin.places, &plugin.file);
        if let Some(diagnostic) = unknown {
            return Err(one(diagnostic));
        }
        let name = format!("{}+{}", image.name, applied.join("+"));
        let rendered = template::render_plugin(self.catalogue, plugin, image, &name, reference)?;
        let mut labels = plugin.labels.clone();
        let all: Vec<&str> = self.inherited(below).into_iter().chain(applied).map(String::as_str).collect();
        labels.insert(PLUGINS_LABEL.into(), all.join(","));
        let allowed = self.catalogue.settings.allows_misfit(&plugin.name);
        let mut checks = plugin.checks.clone();
        // Python packages that do not go together are found by pip alone.
        if !allowed && !checks.iter().any(|check| check.run == PIP_CHECK) {
            let run = PIP_CHECK.map(str::to_owned).to_vec();
            checks.push(Check { run, when_there: true, ..Check::default() });
        }
        let prepared = prepare(&plugin.name, rendered, labels, checks, self.inputs)?;
        let mut needs = Vec::new();
        for name in &prepared.resolved.images {
            let edge = match self.target(&prepared, name)? {
                Target::Image(target) if target == image.name => {
                    Edge { to: below, kind: EdgeKind::PluginOf, reference: name.clone() }
                }
                Target::Image(target) => match self.placed.get(&target) {
                    Some(id) => Edge { to: *id, kind: EdgeKind::CopiesFrom, reference: name.clone() },
                    None => {
                        let message = format!("plugin `{}` copies from `{target}`, which is not built", plugin.name);
                        let hint = format!("add `{target}` to the selection");
                        return Err(one(Diagnostic::error(message).at(&plugin.file, 0..0).hint(hint)));
                    }
                },
                Target::Base(source) => {
                    let id = match self.placed.get(name) {
                        Some(id) => *id,
                        None => self.graph.push(base_node(name, source, &self.inputs.platform)),
                    };
                    self.placed.insert(name.clone(), id);
                    Edge { to: id, kind: EdgeKind::CopiesFrom, reference: name.clone() }
                }
            };
            needs.push(edge);
        }
        let Prepared { resolved, context, labels, checks, .. } = prepared;
        let names = if last { vec![reference.to_owned()] } else { Vec::new() };
        let spec = Box::new(Spec { resolved, context, labels, checks, names, max_layers: Some(1) });
        let rules = Rules { changes: plugin.changes.clone(), requires: plugin.requires.clone(), allowed };
        let (on, plugin) = (image.name.as_str().into(), plugin.name.as_str().into());
        let kind = NodeKind::Plugin { image: on, plugin, rules, spec };
        let platform = self.inputs.platform.clone();
        let selected = self.selected.contains(&image.name);
        Ok(self.graph.push(Node { name: name.into(), kind, needs, selected, platform }))
    }
}

fn base_node(reference: &str, source: BaseSource, platform: &Platform) -> Node {
    let (kind, platform) = (NodeKind::Base(source), platform.clone());
    Node { name: reference.into(), kind, needs: Vec::new(), selected: false, platform }
}

fn edge_kind(resolved: &Resolved, reference: &str) -> EdgeKind {
    let is_parent = resolved.stages.last().is_some_and(|target| {
        let mut base = &target.base;
        while let dockerfile::step::StageBase::Stage(index) = base {
            match resolved.stages.iter().find(|s| s.index == *index) {
                Some(stage) => base = &stage.base,
                None => return false,
            }
        }
        *base == dockerfile::step::StageBase::Image(reference.to_owned())
    });
    if is_parent { EdgeKind::Parent } else { EdgeKind::CopiesFrom }
}

fn bad_reference(resolved: &Resolved, reference: &str, reason: &str) -> Diagnostic {
    at_reference(resolved, reference, Diagnostic::error(format!("`{reference}` names no image: {reason}")))
}

fn forbidden(resolved: &Resolved, reference: &str, settings: &Settings) -> Diagnostic {
    let registry = registry_of(reference);
    let message = format!("bases must not come from `{registry}` on this machine");
    let file = settings.policy_file("registries");
    at_reference(resolved, reference, Diagnostic::error(message))
        .hint(format!("[policy] in {file} says which registries are allowed"))
}

fn at_reference(resolved: &Resolved, reference: &str, diagnostic: Diagnostic) -> Diagnostic {
    let file = &resolved.dockerfile.file;
    match file.text.find(reference) {
        Some(start) => diagnostic.at(file, start..start + reference.len()),
        // It is the value of an ARG.
        None => diagnostic.at(file, 0..0),
    }
}

fn one(diagnostic: Diagnostic) -> Diagnostics {
    Diagnostics(vec![diagnostic])
}
