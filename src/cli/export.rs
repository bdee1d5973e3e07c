//! `kollage export`: the selected graph for an engine or a CI that is there already.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::catalogue::CaBundle;
use crate::cli::App;
use crate::cli::args::{Export, ExportFormat, Settings};
use crate::cli::machine::{self, EngineFlags};
use crate::cli::workspace::{Workspace, absolute, store_path};
use crate::deploy::files::{Change, Kind};
use crate::engine::embedded::EmbeddedEngine;
use crate::engine::{BaseSource, Built, Ctl, Engine as _};
use crate::error::{Error, Kind as ErrorKind, Result};
use crate::event::{Cancel, Silent};
use crate::export::bake::{self, Bake};
use crate::export::{self, HEAD, Jobs, Pipeline};
use crate::graph::node::{Graph, NodeId, NodeKind};
use crate::graph::plan::Planned;
use crate::image::archive::staging::write_file;
use crate::image::archive::{self, ExportImage, Format, Output};
use crate::image::store::Store;
use crate::report::human;

pub fn run(app: &App, args: &Export) -> Result<u8> {
    // Other engines build for platforms that this one doesn't.
    let (mut settings, platforms) = (args.settings.clone(), platforms(args)?);
    settings.platform = Vec::new();
    let workspace = Workspace::load(&app.global, &app.env, &args.select, &settings)?.here(&settings);
    app.show_warnings(&workspace.catalogue.warnings);
    let graph = workspace.graph()?;
    let pipeline = match args.format {
        ExportFormat::Bake => {
            let project = workspace.catalogue.settings.build.platforms.iter().map(ToString::to_string);
            let platforms = if platforms.is_empty() { project.collect() } else { platforms };
            return bake(app, args, &workspace, &graph, &platforms);
        }
        ExportFormat::Github => Pipeline::Github,
        ExportFormat::Gitlab => Pipeline::Gitlab,
        ExportFormat::Tekton => Pipeline::Tekton,
    };
    let how = Jobs {
        flags: flags(app, args),
        store: app.global.store.as_ref().map(|store| store.display().to_string()),
        runner: args.runner.clone(),
    };
    let text = export::pipeline(&graph, pipeline, &how);
    match &args.output {
        None => app.print(&text).map(|()| 0),
        Some(path) => file(app, path, &text, args.check),
    }
}

fn platforms(args: &Export) -> Result<Vec<String>> {
    let mut platforms = Vec::new();
    for text in &args.settings.platform {
        let parts: Vec<&str> = text.split('/').collect();
        let word = |part: &&str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric());
        if !(2..=3).contains(&parts.len()) || !parts.iter().all(word) {
            return Err(Error::bad_input(format!("`{text}` is not a platform"))
                .hint("it has the form OS/ARCH, for example linux/arm64; commas between several"));
        }
        platforms.push(text.clone());
    }
    Ok(platforms)
}

/// Flags of this call that every job's call has to have as well.
fn flags(app: &App, args: &Export) -> Vec<String> {
    let Settings { namespace, tag, registry, set, overlays, build_arg, platform, locked } = &args.settings;
    let mut flags = Vec::new();
    let mut add = |flag: &str, value: String| flags.push(format!("{flag}={value}"));
    if let Some(dir) = &app.global.directory {
        add("--directory", dir.display().to_string());
    }
    let platform = (!platform.is_empty()).then(|| platform.join(","));
    for (flag, value) in
        [("--namespace", namespace), ("--tag", tag), ("--registry", registry), ("--platform", &platform)]
    {
        if let Some(value) = value {
            add(flag, value.clone());
        }
    }
    if *locked {
        flags.push("--locked".into());
    }
    let mut add = |flag: &str, value: String| flags.push(format!("{flag}={value}"));
    set.iter().for_each(|value| add("--set", value.clone()));
    overlays.iter().for_each(|dir| add("--overlay", dir.display().to_string()));
    build_arg.iter().for_each(|value| add("--build-arg", value.clone()));
    args.select.plugins.iter().for_each(|value| add("--plugin", value.clone()));
    args.secrets.iter().for_each(|value| add("--secret", value.clone()));
    args.ssh.iter().for_each(|value| add("--ssh", value.clone()));
    flags
}

/// One file that is an export, or is not there yet.
fn file(app: &App, path: &Path, text: &str, check: bool) -> Result<u8> {
    let there = match std::fs::read_to_string(path) {
        Ok(there) => Some(there),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
        Err(e) => return Err(Error::bad_input(format!("cannot read `{}`", path.display())).cause(e)),
    };
    if there.as_deref() == Some(text) {
        app.say(&format!("{} is unchanged", path.display()));
        return Ok(0);
    }
    if check {
        let before = there.as_deref().unwrap_or_default();
        let diff = similar::TextDiff::from_lines(before, text);
        app.print(&diff.unified_diff().header(&path.display().to_string(), "export").to_string())?;
        let what = if there.is_some() { "differs from what would be exported" } else { "is not there" };
        app.say(&format!("{} {what}", path.display()));
        return Ok(ErrorKind::Difference.exit_code());
    }
    if there.is_some_and(|there| !there.starts_with(HEAD)) {
        return Err(Error::bad_input(format!("`{}` is there already, and no export wrote it", path.display()))
            .hint("name another file with `-o FILE`, or remove it"));
    }
    write_file(path, text.as_bytes())?;
    app.say(&format!("wrote {}", path.display()));
    Ok(0)
}

/// What the store has of bases that only Kollage can make.
struct Bases<'a> {
    graph: &'a Graph,
    planned: Vec<Planned>,
    store: Store,
    engine: EmbeddedEngine,
}

impl Bases<'_> {
    fn built(&self, id: NodeId) -> Result<&Built> {
        self.planned[id.0].built.as_deref().ok_or_else(|| {
            let users = self.graph.dependents();
            let image = users[id.0].first().map_or("", |user| &*self.graph.node(*user).name);
            Error::unusable(format!("the base `{}` is not in the store", self.graph.node(id).name))
                .cause("no other engine can make it, so that its files are exported")
                .hint(format!("build what begins with it: `kollage build {image}`"))
        })
    }
}

fn bake(app: &App, args: &Export, workspace: &Workspace, graph: &Graph, platforms: &[String]) -> Result<u8> {
    let Some(dir) = &args.output else {
        return Err(Error::bad_input("`--format bake` writes several files").hint("name a directory with `-o DIR`"));
    };
    let catalogue = &workspace.catalogue;
    let foreign = |node: &crate::graph::node::Node| match &node.kind {
        NodeKind::Base(source) => !matches!(source, BaseSource::Registry { .. }),
        _ => false,
    };
    let digests = catalogue.lock.bases.iter();
    let digests = digests.map(|(name, digest)| (name.clone(), format!("{}@{digest}", without_tag(name)))).collect();
    let bases = match graph.nodes.iter().any(foreign) {
        false => None,
        true => {
            let store = machine::open_store(&store_path(&app.global, &app.env)?)?;
            let engine = machine::engine(store.clone(), EngineFlags::default(), &catalogue.settings, &app.env)?;
            let planned = workspace.planned(graph, &store, &engine)?;
            Some(Bases { graph, planned, store, engine })
        }
    };
    let base = |id: NodeId| {
        let known = bases.as_ref().map(|bases| &bases.planned[id.0]);
        match known.and_then(|planned| Some((planned.key.clone()?, planned.config.clone()?))) {
            Some(known) => Ok(known),
            None => match &bases {
                Some(bases) => bases.built(id).map(|built| (built.key.clone(), built.config.clone())),
                None => Err(Error::failed("a base was not looked for")),
            },
        }
    };
    let profiles: BTreeMap<String, BTreeSet<String>> = catalogue
        .settings
        .profiles
        .keys()
        .filter_map(|profile| Some((profile.clone(), catalogue.profile_images(profile)?)))
        .collect();
    let (secrets, ssh) = (by_id("--secret", &args.secrets)?, by_id("--ssh", &args.ssh)?);
    // This machine's own certificates say nothing of the one that is going to build.
    let ca_bundle = match &catalogue.settings.build.ca_bundle {
        CaBundle::Path(path) => Some(absolute(path)?),
        CaBundle::Auto | CaBundle::Off => None,
    };
    let exported = bake::export(
        graph,
        &Bake {
            registry: catalogue.settings.build.registry.as_deref(),
            platforms,
            profiles: &profiles,
            secrets: &secrets,
            ssh: &ssh,
            digests: &digests,
            pins: &catalogue.lock.remotes,
            ca_bundle: ca_bundle.as_deref(),
            base: &base,
        },
    )?;
    let changes = exported.rendering.changes(dir)?;
    let missing: Vec<(&String, &NodeId)> = exported.tars.iter().filter(|(path, _)| !dir.join(path).is_file()).collect();
    if args.check {
        let names = changes.iter().map(|change| change.path.as_str());
        let names: Vec<&str> = names.chain(missing.iter().map(|(path, _)| path.as_str())).collect();
        return Ok(match names.len() {
            0 => 0,
            count => {
                names.iter().try_for_each(|name| app.print(&format!("{name}\n")))?;
                app.say(&format!("{} would change in {}", human::count(count, "file"), dir.display()));
                ErrorKind::Difference.exit_code()
            }
        });
    }
    // A base whose Dockerfile names another key has other files as well.
    let stale = |path: &str| {
        let beside = Path::new(path).with_file_name("Dockerfile").display().to_string();
        changes.iter().any(|change| change.path == beside && change.kind != Kind::Gone)
    };
    // Before the files that name them.
    for (path, id) in &exported.tars {
        if let Some(bases) = &bases
            && (!dir.join(path).is_file() || stale(path))
        {
            tar(bases, *id, &dir.join(path), workspace.source_date_epoch)?;
            app.say(&format!("wrote {}", dir.join(path).display()));
        }
    }
    for Change { path, kind, .. } in exported.rendering.write(dir)? {
        let word = if kind == Kind::Gone { "removed" } else { "wrote" };
        app.say(&format!("{word} {}", dir.join(path).display()));
    }
    exported.rendering.notes.iter().for_each(|note| app.say(note));
    app.say(&format!("build it with `cd {} && docker buildx bake`", dir.display()));
    Ok(0)
}

/// BuildKit takes a digest or a tag.
fn without_tag(name: &str) -> &str {
    name.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')).map_or(name, |(name, _)| name)
}

/// `id=ID,…` of a secret, `ID[=…]` of an agent.
fn by_id(flag: &str, specs: &[String]) -> Result<BTreeMap<String, String>> {
    let id = |spec: &str| match flag {
        "--secret" => spec.split(',').find_map(|field| field.strip_prefix("id=")).map(str::to_owned),
        _ => spec.split('=').next().map(str::to_owned),
    };
    let mut all = BTreeMap::new();
    for spec in specs {
        // The spec itself isn't shown: mistyped, it may hold the value.
        let id = id(spec).filter(|id| !id.is_empty());
        let id =
            id.ok_or_else(|| Error::bad_input(format!("a `{flag}` has no id")).hint("write it as buildx takes it"))?;
        all.insert(id, spec.clone());
    }
    Ok(all)
}

/// The root file system of a base.
fn tar(bases: &Bases<'_>, id: NodeId, dest: &Path, source_date_epoch: Option<i64>) -> Result<()> {
    let cancel = Cancel::new()?;
    let (built, node) = (bases.built(id)?, &bases.graph.node(id).name);
    let published = bases.engine.finish(built, &[], &Ctl { node, sink: &Silent, cancel: &cancel })?;
    if let Some(parent) = dest.parent() {
        std::fs::create_dir_all(parent)
            .map_err(|e| Error::unusable(format!("cannot create the directory `{}`", parent.display())).cause(e))?;
    }
    let image = ExportImage { name: "base:latest".parse()?, manifest: published.digest };
    let output = Output { format: Format::Tar, dest: dest.to_owned(), name: None };
    archive::export(&bases.store, &[image], &output, source_date_epoch, &cancel).map(drop)
}
