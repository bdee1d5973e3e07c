//! A file for `docker buildx bake`: one target for each node, linked as the graph is, so that BuildKit builds it
//! without Kollage. Plugins are targets of their own on top of what they change, profiles are groups.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Map, Value, json};

use super::dockerfile::Edits;
use super::lend::{self, Lent};
use super::{HEAD, base, context, dockerfile, names, pins, tops};
use crate::deploy::files::Rendering;
use crate::dockerfile::context_name;
use crate::engine::{BaseSource, Check};
use crate::error::{Context as _, Error, Result};
use crate::fetch::Pin;
use crate::graph::node::{Graph, Node, NodeId, NodeKind, Spec};
use crate::image::config::ImageConfig;
use crate::image::digest::Key;

pub const FILE: &str = "docker-bake.json";

/// What the graph doesn't say.
pub struct Bake<'a> {
    /// In front of tags.
    pub registry: Option<&'a str>,
    /// None: whatever the builder's is.
    pub platforms: &'a [String],
    /// Images by profile.
    pub profiles: &'a BTreeMap<String, BTreeSet<String>>,
    /// `id=…` and where it comes from, by id.
    pub secrets: &'a BTreeMap<String, String>,
    /// By id.
    pub ssh: &'a BTreeMap<String, String>,
    /// Registries' images by the digest that they are pinned to.
    pub digests: &'a BTreeMap<String, String>,
    /// What ADD fetches, by the name that kollage.lock has for it.
    pub pins: &'a BTreeMap<String, Pin>,
    /// A file of the machine that builds, which steps trust.
    pub ca_bundle: Option<&'a Path>,
    /// What is known of a base that only Kollage can make.
    pub base: &'a dyn Fn(NodeId) -> Result<(Key, ImageConfig)>,
}

/// Files, and tars that are too large to be one of them.
pub struct Exported {
    pub rendering: Rendering,
    /// Whole root file systems, by their place.
    pub tars: BTreeMap<String, NodeId>,
}

pub fn export(graph: &Graph, bake: &Bake<'_>) -> Result<Exported> {
    let targets = names::targets(graph);
    let mut export = Export { graph, bake, targets, out: Map::new(), rendering: Rendering::default() };
    let mut tars = BTreeMap::new();
    for id in graph.ids() {
        match &graph.node(id).kind {
            NodeKind::Base(BaseSource::Registry { .. }) => {}
            NodeKind::Base(BaseSource::Directory { .. } | BaseSource::Remote(_)) => {
                let message = format!("`{}` cannot be exported", graph.node(id).name);
                return Err(Error::bad_input(message).cause("it is a context, and no base of a catalogue"));
            }
            NodeKind::Base(_) => drop(tars.insert(export.base(id)?, id)),
            NodeKind::Image(spec) | NodeKind::Plugin { spec, .. } => export.image(id, spec)?,
        }
    }
    let groups = export.groups();
    let Export { out, mut rendering, .. } = export;
    let text = serde_json::to_string_pretty(&json!({ "group": groups, "target": out }))
        .failed(|| "cannot write JSON".into())?;
    rendering.text(FILE, text + "\n");
    if bake.platforms.len() > 1 && !tars.is_empty() {
        let bases: Vec<&str> = tars.values().map(|id| &*graph.node(*id).name).collect();
        let message = format!("{} is of one platform, and {} are asked for", bases.join(", "), bake.platforms.len());
        return Err(Error::bad_input(message).hint("begin with an image of a registry, or export each platform"));
    }
    Ok(Exported { rendering, tars })
}

struct Export<'a> {
    graph: &'a Graph,
    bake: &'a Bake<'a>,
    targets: BTreeMap<NodeId, String>,
    out: Map<String, Value>,
    rendering: Rendering,
}

impl Export<'_> {
    /// Where its tar has to be.
    fn base(&mut self, id: NodeId) -> Result<String> {
        let name = self.targets[&id].clone();
        let (key, config) = (self.bake.base)(id)?;
        let text = base::dockerfile(&self.graph.node(id).name, &key, &config);
        self.rendering.text(format!("{name}/Dockerfile"), text);
        self.out.insert(name.clone(), json!({ "context": name, "dockerfile": "Dockerfile" }));
        Ok(format!("{name}/{}", base::TAR))
    }

    fn image(&mut self, id: NodeId, spec: &Spec) -> Result<()> {
        let node = self.graph.node(id);
        let target = self.targets[&id].clone();
        let needs = dockerfile::needs(&spec.resolved.dockerfile);
        let (links, renamed) = self.links(node);
        let renamed: BTreeMap<&str, &str> = renamed.iter().map(|(old, new)| (old.as_str(), new.as_str())).collect();
        let mut edits = Edits::default();
        dockerfile::rename(&spec.resolved.dockerfile, &renamed, &mut edits)
            .map_err(|problems| Error::from_diagnostics(format!("{} cannot be exported", node.name), problems))?;
        for open in pins::pin(&spec.resolved, self.bake.pins, &mut edits) {
            let note = format!("{} fetches {open} as it is on the day of the build; `kollage lock` pins it", node.name);
            self.rendering.notes.push(note);
        }
        let lent = self.bake.ca_bundle.map(Lent::new);
        let lent = lent.filter(|lent| lent.write(&spec.resolved.dockerfile, &mut edits));
        self.rendering.text(format!("{target}/Dockerfile"), edits.text(&spec.resolved.dockerfile));
        let mut entry = Map::new();
        let files = match needs.context {
            true => {
                context::write(&spec.context, needs.everything, &format!("{target}/context"), &mut self.rendering)?;
                ("context", "../Dockerfile")
            }
            false => ("", "Dockerfile"),
        };
        entry.insert("context".into(), format!("{target}/{}", files.0).trim_end_matches('/').into());
        entry.insert("dockerfile".into(), files.1.into());
        if !links.is_empty() {
            entry.insert("contexts".into(), json!(links));
        }
        let tags = spec.names.iter().map(|name| match self.bake.registry {
            Some(registry) => format!("{registry}/{name}"),
            None => name.clone(),
        });
        entry.insert("tags".into(), tags.collect());
        let resolved = &spec.resolved;
        let mut args = resolved.inputs.build_args.clone();
        // BuildKit dates an image by it whether or not a Dockerfile asks for it.
        args.retain(|name, _| name == "SOURCE_DATE_EPOCH" || !resolved.unused_build_args.contains(name));
        let args: BTreeMap<String, String> = args.into_iter().map(|(name, value)| (name, literal(&value))).collect();
        let labels: BTreeMap<&String, String> =
            spec.labels.iter().map(|(name, value)| (name, literal(value))).collect();
        for (key, map) in [("args", json!(args)), ("labels", json!(labels))] {
            if map.as_object().is_some_and(|map| !map.is_empty()) {
                entry.insert(key.into(), map);
            }
        }
        if !self.bake.platforms.is_empty() {
            entry.insert("platforms".into(), json!(self.bake.platforms));
        }
        for (key, wanted, given) in [("secret", &needs.secrets, self.bake.secrets), ("ssh", &needs.ssh, self.bake.ssh)]
        {
            let is_secret = key == "secret";
            let plain = |id: &String| if is_secret { format!("id={id}") } else { id.clone() };
            let mut said: Vec<String> =
                wanted.iter().map(|id| given.get(id).cloned().unwrap_or_else(|| plain(id))).collect();
            if let Some(lent) = lent.as_ref().filter(|_| is_secret) {
                said.extend(lent.secrets());
                self.rendering.text(lend::APT_FILE, lent.apt_config());
            }
            for id in wanted.iter().filter(|id| is_secret && !given.contains_key(*id)) {
                self.rendering.notes.push(format!(
                    "{} needs the secret `{id}`: give `--secret id={id},src=FILE`, or set it in bake",
                    node.name
                ));
            }
            if !said.is_empty() {
                entry.insert(key.into(), json!(said));
            }
        }
        self.out.insert(target.clone(), Value::Object(entry));
        self.checks(&target, spec);
        Ok(())
    }

    /// What names in the Dockerfile mean, and those that need to be others.
    fn links(&self, node: &Node) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
        let (mut links, mut renamed) = (BTreeMap::new(), BTreeMap::new());
        let mut linked: BTreeMap<NodeId, &str> = BTreeMap::new();
        for edge in &node.needs {
            let target = || format!("target:{}", self.targets[&edge.to]);
            match &self.graph.node(edge.to).kind {
                NodeKind::Base(BaseSource::Registry { .. }) => {
                    if let Some(pinned) = self.bake.digests.get(&edge.reference) {
                        let image = format!("docker-image://{pinned}");
                        links.insert(context_name(&edge.reference).to_owned(), image);
                    }
                }
                NodeKind::Base(_) => {
                    let name = self.targets[&edge.to].clone();
                    links.insert(name.clone(), target());
                    renamed.insert(edge.reference.clone(), name);
                }
                // Of two names for one target buildx understands one.
                _ => match *linked.entry(edge.to).or_insert(&edge.reference) {
                    name if name == edge.reference => {
                        links.insert(context_name(name).to_owned(), target());
                    }
                    name => drop(renamed.insert(edge.reference.clone(), name.to_owned())),
                },
            }
        }
        (links, renamed)
    }

    /// A target that fails when a check does, and makes nothing.
    fn checks(&mut self, target: &str, spec: &Spec) {
        if spec.checks.is_empty() {
            return;
        }
        let mut text = format!("{HEAD}FROM checked\n");
        // Those of the image's own user first: once there was another, its name is gone.
        let (own, others): (Vec<&Check>, Vec<&Check>) = spec.checks.iter().partition(|check| check.user.is_none());
        for check in own.into_iter().chain(others) {
            if let Some(user) = &check.user {
                text.push_str(&format!("USER {user}\n"));
            }
            text.push_str(&format!("RUN --network=none {}\n", command(check)));
        }
        let name = format!("{target}_checks");
        self.rendering.text(format!("{name}/Dockerfile"), text);
        let mut entry = json!({
            "context": name,
            "dockerfile": "Dockerfile",
            "contexts": { "checked": format!("target:{target}") },
            "output": ["type=cacheonly"],
        });
        if !self.bake.platforms.is_empty() {
            entry["platforms"] = json!(self.bake.platforms);
        }
        self.out.insert(name, entry);
    }

    /// Everything that was chosen, each profile of which every image is there, and the checks.
    fn groups(&self) -> Map<String, Value> {
        let tops = tops(self.graph);
        let members = |images: &mut dyn Iterator<Item = &str>| {
            let mut targets: Vec<&str> =
                images.filter_map(|image| Some(self.targets[tops.get(image)?].as_str())).collect();
            targets.sort_unstable();
            json!({ "targets": targets })
        };
        let mut groups = Map::new();
        let mut add = |name: &str, group: Value| {
            let mut name = names::word(name);
            while groups.contains_key(&name) || self.out.contains_key(&name) {
                name.insert_str(0, "profile-");
            }
            groups.insert(name, group);
        };
        let selected = |image: &&&str| self.graph.node(tops[**image]).selected;
        add("default", members(&mut tops.keys().filter(selected).copied()));
        for (profile, images) in self.bake.profiles {
            if images.iter().all(|image| tops.contains_key(image.as_str())) {
                add(profile, members(&mut images.iter().map(String::as_str)));
            }
        }
        let checks: Vec<&String> = self.out.keys().filter(|name| name.ends_with("_checks")).collect();
        if !checks.is_empty() {
            let checks = json!({ "targets": checks });
            add("checks", checks);
        }
        groups
    }
}

/// In bake's own language, in which strings are templates.
fn literal(value: &str) -> String {
    value.replace("${", "$${").replace("%{", "%%{")
}

fn command(check: &Check) -> String {
    let words = match (check.when_there, check.run.first()) {
        (true, Some(program)) => {
            let script = r#"if command -v "$0" >/dev/null; then exec "$0" "$@"; fi"#;
            let mut words = vec!["/bin/sh".to_owned(), "-c".to_owned(), script.to_owned(), program.clone()];
            words.extend(check.run.iter().skip(1).cloned());
            words
        }
        _ => check.run.clone(),
    };
    serde_json::to_string(&words).unwrap_or_default()
}
