//! What most commands begin with: where the store and the catalogue are, and the catalogue with every setting that the
//! command line and the environment change.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::catalogue::{self, Catalogue, ConfigFiles, Given, Overrides};
use crate::cli::args::{self, Global, Select, Settings};
use crate::cli::environment::Environment;
use crate::cli::machine;
use crate::cli::surroundings::surroundings;
use crate::context::HashTable;
use crate::diag::{Diagnostic, Diagnostics};
use crate::dockerfile::{self, Inputs};
use crate::engine::Engine;
use crate::engine::NoCache;
use crate::error::{Error, Result};
use crate::graph;
use crate::graph::assemble::assemble;
use crate::graph::node::Graph;
use crate::graph::plan::{Planned, Planner};
use crate::graph::select::{Selection, select};
use crate::image::config::Platform;
use crate::image::store::Store;
use crate::lock;
use crate::schedule::history::History;

pub const CATALOGUE_FILE: &str = "kollage.toml";

/// The name that FROM and RUN see when they ask for it, as BuildKit has it.
const EPOCH_ARG: &str = "SOURCE_DATE_EPOCH";

pub fn store_path(global: &Global, env: &Environment) -> Result<PathBuf> {
    if let Some(path) = global.store.clone().or_else(|| env.store.clone()) {
        return absolute(&path);
    }
    // Root of a user namespace is an ordinary user still.
    if rustix::process::geteuid().is_root() && crate::userns::current().is_initial() {
        return Ok(PathBuf::from("/var/lib/kollage"));
    }
    match (&env.data_home, &env.home) {
        (Some(data), _) => Ok(data.join("kollage")),
        (None, Some(home)) => Ok(home.join(".local/share/kollage")),
        (None, None) => Err(Error::bad_input("neither XDG_DATA_HOME nor HOME says where the store is")
            .hint("name a directory with `--store DIR`")),
    }
}

pub fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|e| Error::bad_input(format!("cannot use `{}`", path.display())).cause(e))
}

/// The directory with kollage.toml: `-C`, or the nearest one upwards.
pub fn catalogue_root(global: &Global) -> Result<PathBuf> {
    if let Some(dir) = &global.directory {
        return if dir.join(CATALOGUE_FILE).is_file() {
            Ok(dir.clone())
        } else if dir.is_dir() {
            Err(Error::bad_input(format!("there is no {CATALOGUE_FILE} in {}", dir.display()))
                .hint(format!("write one with `kollage init {}`", dir.display())))
        } else {
            Err(Error::bad_input(format!("there is no directory {}", dir.display())))
        };
    }
    let here = std::env::current_dir().map_err(|e| Error::unusable("cannot tell the working directory").cause(e))?;
    // Relative where that is possible: it is what a person sees in every message.
    let mut relative = PathBuf::new();
    for dir in here.ancestors() {
        if dir.join(CATALOGUE_FILE).is_file() {
            return Ok(if relative.as_os_str().is_empty() { PathBuf::from(".") } else { relative });
        }
        relative.push("..");
    }
    Err(Error::bad_input(format!("there is no {CATALOGUE_FILE} here or in a directory above"))
        .hint("start with `kollage init`, or name the catalogue with `-C DIR`"))
}

pub struct Workspace {
    pub catalogue: Catalogue,
    pub selected: BTreeSet<String>,
    pub inputs: Inputs,
    pub platforms: Vec<Platform>,
    pub source_date_epoch: Option<i64>,
    /// What kollage.lock doesn't say is refused.
    pub locked: bool,
}

impl Workspace {
    pub fn load(global: &Global, env: &Environment, which: &Select, settings: &Settings) -> Result<Workspace> {
        Workspace::with(global, &[], env, which, settings)
    }

    /// With images that are in no file, besides those of the catalogue.
    pub fn with(
        global: &Global,
        given: &[Arc<Given>],
        env: &Environment,
        which: &Select,
        settings: &Settings,
    ) -> Result<Workspace> {
        let root = catalogue_root(global)?;
        let overrides = overrides(env, which, settings)?;
        let files = config_files(env);
        let catalogue = Catalogue::with(&root, given, &overrides, &files).map_err(wrong_definitions)?;
        let selection = Selection { profiles: which.profiles.clone(), patterns: which.patterns.clone() };
        let selected = select(&catalogue, &selection)?;
        let platforms = platforms(settings, &catalogue.settings)?;
        let source_date_epoch = source_date_epoch(env)?.or(catalogue.settings.build.source_date_epoch);
        let inputs = Inputs {
            target: None,
            build_args: with_epoch(catalogue.settings.build.build_args.clone(), source_date_epoch),
            // Of which there is at least one.
            platform: platforms.first().cloned().unwrap_or_else(Platform::host),
            contexts: BTreeSet::new(),
        };
        Ok(Workspace { catalogue, selected, inputs, platforms, source_date_epoch, locked: settings.locked })
    }

    /// For what runs here: what the project is built for doesn't count, but a flag does.
    pub fn here(mut self, settings: &Settings) -> Workspace {
        if settings.platform.is_empty() {
            self.platforms = vec![Platform::host()];
            self.inputs.platform = Platform::host();
        }
        self
    }

    /// What kollage.lock says of a node is used where it is the answer to what the node asks now.
    pub fn graph(&self) -> Result<Graph> {
        let graph = self.assemble(&self.catalogue)?;
        let gaps = lock::gaps(&graph, &self.catalogue);
        if self.locked && !gaps.is_empty() {
            let first = Error::bad_input("kollage.lock does not pin everything, and `--locked` asks for that");
            let all = gaps.iter().fold(first, |error, gap| error.cause(gap));
            return Err(all.hint("`kollage lock` adds what is missing, and prints what moves"));
        }
        let stale: Vec<&str> = gaps.iter().filter_map(|gap| gap.stale()).collect();
        if stale.is_empty() {
            return Ok(graph);
        }
        let mut catalogue = self.catalogue.clone();
        catalogue.lock.pypi.retain(|node, _| !stale.contains(&node.as_str()));
        let mut graph = self.assemble(&catalogue)?;
        for node in stale {
            let message = format!("kollage.lock has packages of {node} that were found for another definition");
            let warning = Diagnostic::warning(message).hint("they are found anew; `kollage lock` pins them");
            graph.odd.push(warning);
        }
        Ok(graph)
    }

    /// With kollage.lock as it is.
    pub fn assemble(&self, catalogue: &Catalogue) -> Result<Graph> {
        let graphs = self.platforms.iter().map(|platform| {
            let mut catalogue = catalogue.clone();
            catalogue.lock = catalogue.lock.on(platform);
            assemble(&catalogue, &self.selected, &Inputs { platform: platform.clone(), ..self.inputs.clone() })
        });
        let graphs: Result<Vec<Graph>, Diagnostics> = graphs.collect();
        graphs.map(Graph::side_by_side).map_err(|problems| wrong_definitions(self.catalogue.with_both_places(problems)))
    }

    /// What a build would do, as far as the store can tell.
    pub fn planned(&self, graph: &Graph, store: &Store, engine: &dyn Engine) -> Result<Vec<Planned>> {
        let table = HashTable::load(&store.state_path(machine::HASH_TABLE));
        let history = History::load(&store.state_path(machine::HISTORY), engine);
        let settings = self.planning(&args::Surroundings::default())?;
        Planner::new(graph, &settings, &table, &history).plan().map_err(wrong_definitions)
    }

    /// For a plan of what the store has, nothing asked for anew.
    pub fn planning(&self, flags: &args::Surroundings) -> Result<graph::plan::Settings> {
        Ok(graph::plan::Settings {
            source_date_epoch: self.source_date_epoch,
            no_cache: NoCache::Nothing,
            refresh: false,
            surroundings: surroundings(flags, self.catalogue.settings.build.network)?,
            squash: false,
            locked: self.catalogue.lock.remotes.clone(),
            only_locked: self.locked,
        })
    }
}

pub fn wrong_definitions(problems: Diagnostics) -> Error {
    Error::from_diagnostics("the definitions have problems; nothing was built", problems)
}

pub type BuildArgs = std::collections::BTreeMap<String, String>;

pub fn with_epoch(mut args: BuildArgs, epoch: Option<i64>) -> BuildArgs {
    if let Some(epoch) = epoch {
        args.entry(EPOCH_ARG.into()).or_insert_with(|| epoch.to_string());
    }
    args
}

pub fn source_date_epoch(env: &Environment) -> Result<Option<i64>> {
    let Some(text) = &env.source_date_epoch else { return Ok(None) };
    let seconds = text.trim().parse::<i64>().ok().filter(|s| *s >= 0);
    let problem = || {
        Error::bad_input(format!("SOURCE_DATE_EPOCH is `{text}`, which is no number of seconds"))
            .hint("it is the time in seconds since 1970-01-01 UTC, as `date +%s` prints it")
    };
    seconds.map(Some).ok_or_else(problem)
}

/// `--platform linux/amd64,linux/arm64`, each once; else the project's, or this machine's where nothing is said.
pub fn platforms(flags: &Settings, project: &catalogue::Settings) -> Result<Vec<Platform>> {
    let mut platforms = Vec::new();
    for text in &flags.platform {
        let platform = dockerfile::built_for(text).map_err(|how| {
            Error::bad_input(format!("`{text}` is not a platform that images are built for"))
                .hint(format!("{how}; several with a comma between them"))
        })?;
        if !platforms.contains(&platform) {
            platforms.push(platform);
        }
    }
    if platforms.is_empty() {
        platforms.clone_from(&project.build.platforms);
    }
    if platforms.is_empty() {
        platforms.push(Platform::host());
    }
    Ok(platforms)
}

/// `NAME=VALUE`, or `NAME` for the value of the environment variable of that name, when it is set.
pub fn build_arg(flag: &str, text: &str, env: &Environment) -> Result<Option<(String, String)>> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (text, env.named(text).map(|v| v.to_string_lossy().into_owned())),
    };
    if name.is_empty() {
        return Err(Error::bad_input(format!("`{flag} {text}` has no name before the `=`")));
    }
    Ok(value.map(|value| (name.to_owned(), value)))
}

/// The settings files that count whatever is built: the user's and the machine's.
pub fn config_files(env: &Environment) -> ConfigFiles {
    ConfigFiles {
        user: env
            .config_home
            .clone()
            .or_else(|| env.home.as_ref().map(|h| h.join(".config")))
            .map(|dir| dir.join("kollage").join(CATALOGUE_FILE)),
        system: Some(PathBuf::from("/etc/kollage").join(CATALOGUE_FILE)),
    }
}

pub fn overrides(env: &Environment, which: &Select, settings: &Settings) -> Result<Overrides> {
    let mut overrides = Overrides::new();
    for (variable, key, value) in &env.build {
        match value.parse::<i64>() {
            Ok(number) if *key == "build.jobs" => overrides.value(variable, key, number),
            _ => overrides.string(variable, key, value),
        }
    }
    for assignment in &settings.set {
        overrides
            .set("--set", assignment)
            .map_err(|d| Error::from_diagnostics("the command line has a problem", Diagnostics(vec![d])))?;
    }
    let typed = [
        ("--namespace", "build.namespace", &settings.namespace),
        ("--tag", "build.tag", &settings.tag),
        ("--registry", "build.registry", &settings.registry),
    ];
    for (flag, key, value) in typed {
        if let Some(value) = value {
            overrides.string(flag, key, value);
        }
    }
    for dir in &settings.overlays {
        overrides.overlay(dir);
    }
    for text in &settings.build_arg {
        if let Some((name, value)) = build_arg("--build-arg", text, env)? {
            overrides.build_arg("--build-arg", &name, &value);
        }
    }
    for text in &which.plugins {
        let Some((image, plugins)) = text.split_once('=') else {
            return Err(Error::bad_input(format!("`--plugin {text}` is not of the form IMAGE=PLUGIN[,PLUGIN]"))
                .hint("for example `--plugin neutron-server=networking-bgpvpn`"));
        };
        let plugins: Vec<String> =
            plugins.split(',').map(str::trim).filter(|p| !p.is_empty()).map(str::to_owned).collect();
        overrides.plugins("--plugin", image, &plugins);
    }
    Ok(overrides)
}
