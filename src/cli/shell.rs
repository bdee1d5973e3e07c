//! `kollage shell`: a shell in an image, or in the state between two of its steps, that of a failed build included.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::sync::Arc;

use crate::cli::App;
use crate::cli::args::{Select, Settings as SettingsArgs, ShellArgs};
use crate::cli::machine::{self, EngineFlags};
use crate::cli::run;
use crate::cli::signals;
use crate::cli::workspace::{Workspace, catalogue_root, store_path, wrong_definitions};
use crate::context::HashTable;
use crate::dockerfile::step::{Action as StepAction, LoweredStage, Step};
use crate::engine::embedded::EmbeddedEngine;
use crate::engine::embedded::build::{StepState, states};
use crate::engine::embedded::run::{Finished, RunRequest};
use crate::engine::{BuildJob, Built, Ctl, NoCache};
use crate::error::{Error, Kind, Result};
use crate::event::{Cancel, Silent};
use crate::graph::node::{Graph, NodeId};
use crate::graph::plan::{Planned, Planner};
use crate::image::config::ImageConfig;
use crate::image::digest::{Digest, KeyHasher};
use crate::image::store::Store;
use crate::report::style::Paint;
use crate::report::table::{Cell, Table};
use crate::schedule::history::History;

/// In the order in which people like them.
const SHELLS: [&[&str]; 6] =
    [&["/bin/bash"], &["/usr/bin/bash"], &["/bin/sh"], &["/usr/bin/sh"], &["/bin/ash"], &["/bin/busybox", "sh"]];

pub fn run(app: &App, args: &ShellArgs) -> Result<u8> {
    let (image, step) = match args.image.split_once('@') {
        Some((image, step)) => (image, Some(step)),
        None => (args.image.as_str(), None),
    };
    if args.before && step.is_none() {
        return Err(Error::bad_input("`--before` says which side of a step, and no step is named")
            .hint(format!("name one: `kollage shell {image}@STEP --before`")));
    }
    let workspace = match catalogue_root(&app.global) {
        Ok(_) => Some(workspace(app, image, &args.settings)?),
        Err(error) if app.global.directory.is_some() || step.is_some() || args.list => return Err(error),
        Err(_) => None,
    };
    let store = machine::open_store(&store_path(&app.global, &app.env)?)?;
    let settings = workspace.as_ref().map(|w| w.catalogue.settings.clone()).unwrap_or_default();
    let flags = EngineFlags { network: args.surroundings.network, ..EngineFlags::default() };
    let engine = machine::engine(store.clone(), flags, &settings, &app.env)?;
    let cancel = Cancel::new()?;
    signals::watch(&cancel, |_| {})?;
    let place = match (&workspace, step) {
        (Some(workspace), step) if step.is_some() || args.list => {
            let steps = Steps::of(app, args, workspace, image, &store, &engine, &cancel)?;
            if args.list {
                return steps.list(app);
            }
            steps.place(app, image, step.unwrap_or_default(), args.before)?
        }
        _ => whole(&store, image, workspace.as_ref())?,
    };
    let request =
        RunRequest { user: args.user.clone().or(place.user), env: place.env, cwd: place.cwd, ..RunRequest::default() };
    // Only its configuration matters for running.
    let built = Built { key: KeyHasher::new("run").finish(), config: place.config, size: 0 };
    let finished = open(app, &engine, &built, request, &args.command, &cancel)?;
    Ok(run::code(app, &args.image, finished))
}

/// Where the shell is opened: layers, and what a process in them begins with.
#[derive(Default)]
struct Place {
    config: ImageConfig,
    env: Vec<(String, String)>,
    cwd: Option<String>,
    user: Option<String>,
}

/// The image's name may be that of a plugin on it (`keystone+ldappool`).
fn workspace(app: &App, image: &str, settings: &SettingsArgs) -> Result<Workspace> {
    let mut workspace = Workspace::load(&app.global, &app.env, &Select::default(), settings)?.here(settings);
    let name = image.split('+').next().unwrap_or(image);
    workspace.selected.retain(|known| known == name);
    Ok(workspace)
}

fn whole(store: &Store, image: &str, workspace: Option<&Workspace>) -> Result<Place> {
    let found = run::find(store, image, workspace).map_err(|error| {
        let in_catalogue = workspace.is_some_and(|w| w.catalogue.images.contains_key(image));
        match in_catalogue {
            true => error.hint(format!("`kollage shell {image}@last` opens what its last step that succeeded left")),
            false => error,
        }
    })?;
    let config = store.image_config(&store.manifest(&found.manifest)?.config.digest)?;
    Ok(Place { config, ..Place::default() })
}

/// The first shell that the image has, unless a command was given.
fn open(
    app: &App,
    engine: &EmbeddedEngine,
    built: &Built,
    mut request: RunRequest,
    command: &[String],
    cancel: &Cancel,
) -> Result<Finished> {
    let on_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    if on_terminal {
        request.env.push(run::terminal_type(app));
    }
    let start = |argv: Vec<String>| {
        let request = RunRequest { entrypoint: Some(argv), ..request.clone() };
        match on_terminal {
            true => run::on_terminal(engine, built, &request, cancel),
            false => engine.run(built, &request, Some(io::stdin().as_fd()), cancel),
        }
    };
    if !command.is_empty() {
        return start(command.to_vec());
    }
    for shell in SHELLS {
        let finished = start(shell.iter().map(|word| (*word).to_owned()).collect())?;
        if finished.message.is_none() {
            return Ok(finished);
        }
    }
    let names: Vec<String> = SHELLS.iter().map(|shell| shell.join(" ")).collect();
    Err(Error::bad_input("there is no shell in it")
        .cause(format!("none of {} can be executed", names.join(", ")))
        .hint("a program without a shell is run with `-- PROGRAM`"))
}

/// The steps of one image, with what the store has of them.
struct Steps {
    stages: Vec<LoweredStage>,
    states: Vec<StepState>,
    config: ImageConfig,
}

impl Steps {
    fn of(
        app: &App,
        args: &ShellArgs,
        workspace: &Workspace,
        image: &str,
        store: &Store,
        engine: &EmbeddedEngine,
        cancel: &Cancel,
    ) -> Result<Steps> {
        if workspace.selected.is_empty() {
            let error = Error::bad_input(format!("there is no image `{image}` in the catalogue"));
            let names = workspace.catalogue.images.keys().map(String::as_str);
            return Err(match crate::suggest::hint(image, names) {
                Some(hint) => error.hint(hint),
                None => error.hint("steps are known of images of the catalogue only; `kollage list` shows them"),
            });
        }
        let graph = workspace.graph()?;
        let id = graph.find(image).ok_or_else(|| {
            Error::bad_input(format!("`{image}` is not built from this catalogue"))
                .hint("`kollage plan` shows how images with plugins are called")
        })?;
        let table = HashTable::load(&store.state_path(machine::HASH_TABLE));
        let history = History::load(&store.state_path(machine::HISTORY), engine);
        let settings = workspace.planning(&args.surroundings)?;
        let planner = Planner::new(&graph, &settings, &table, &history);
        let plan = planner.plan().map_err(wrong_definitions)?;
        let job = job(&planner, &plan, id)?;
        let ctl = Ctl { node: &graph.node(id).name, sink: &Silent, cancel };
        let states = states(engine, &job, &ctl)?;
        app.show_warnings(&workspace.catalogue.warnings);
        let config = job.stages.last().map(|stage| stage.config.clone()).unwrap_or_default();
        Ok(Steps { stages: job.stages, states, config })
    }

    fn step(&self, state: &StepState) -> Option<&Step> {
        self.stages.get(state.stage)?.steps.get(state.position)
    }

    fn title(&self, state: &StepState) -> &str {
        self.step(state).map_or("", |step| &step.title)
    }

    fn list(&self, app: &App) -> Result<u8> {
        let mut table = Table::with_heading(&["step", "in the store", "what it does"]).right(0);
        for state in &self.states {
            let (there, paint) = match state.after {
                Some(_) => ("yes", Paint::Done),
                None => ("no", Paint::Warning),
            };
            let number = state.number.to_string();
            table.row([Cell::new(number), Cell::new(there).paint(paint), Cell::new(self.title(state))]);
        }
        let (look, width) = app.table_look();
        app.print(&table.render(look, width))?;
        Ok(0)
    }

    fn place(&self, app: &App, image: &str, wanted: &str, before: bool) -> Result<Place> {
        let state = self.find(image, wanted)?;
        let title = format!("step {} ({})", state.number, self.title(state));
        let (layers, side) = match (&state.before, &state.after) {
            (_, Some(after)) if !before => (after, "after"),
            (Some(below), _) => (below, "before"),
            (None, _) => {
                return Err(Error::bad_input(format!("neither {title} nor what it needs is in the store"))
                    .hint(format!("`kollage shell {image}@last` opens what the last step that succeeded left")));
            }
        };
        if side == "before" && !before {
            app.say(&format!("note: {title} has no result as it is defined now; this is the state before it"));
        } else {
            app.say(&format!("this is the state {side} {title}; what is changed in it is thrown away"));
        }
        Ok(self.beginning(state, layers, side))
    }

    fn find(&self, image: &str, wanted: &str) -> Result<&StepState> {
        let hint = || format!("`kollage shell {image} --list` shows the steps");
        if wanted == "last" {
            // Later stages may be there although an earlier one is not: what failed is what is wanted.
            let first_missing = self.states.iter().position(|state| state.after.is_none());
            let last = match first_missing {
                Some(0) => self.states.first(),
                Some(missing) => self.states.get(missing - 1),
                None => self.states.last(),
            };
            return last.ok_or_else(|| Error::bad_input(format!("{image} has no step that touches files")));
        }
        if let Ok(number) = wanted.parse::<usize>() {
            return self.states.iter().find(|state| state.number == number).ok_or_else(|| {
                Error::bad_input(format!("{image} has no step {number}; they go from 1 to {}", self.states.len()))
                    .hint(hint())
            });
        }
        let lower = wanted.to_lowercase();
        let fits = |state: &&StepState| !wanted.is_empty() && self.title(state).to_lowercase().contains(&lower);
        let found: Vec<&StepState> = self.states.iter().filter(fits).collect();
        match found.as_slice() {
            [one] => Ok(one),
            [] => Err(Error::bad_input(format!("no step of {image} is called `{wanted}`")).hint(hint())),
            several => {
                let numbers: Vec<String> = several.iter().map(|state| state.number.to_string()).collect();
                Err(Error::bad_input(format!("`{wanted}` can be any of the steps {}", numbers.join(", "))).hint(hint()))
            }
        }
    }

    /// A process begins as the next RUN does; behind the last of them, as the image's own command does.
    fn beginning(&self, state: &StepState, layers: &[Digest], side: &str) -> Place {
        let stage = self.stages.get(state.stage);
        let mut config = stage.map_or_else(|| self.config.clone(), |stage| stage.config.clone());
        config.rootfs.diff_ids = layers.to_vec();
        let rest = stage
            .and_then(|stage| stage.steps.get(state.position + usize::from(side == "after")..))
            .unwrap_or_default();
        let next = rest.iter().find_map(|step| match &step.action {
            StepAction::Run(run) => Some(run),
            _ => None,
        });
        match next {
            None => Place { config, ..Place::default() },
            Some(run) => {
                config.config.env.clear();
                Place { config, env: run.env.clone(), cwd: Some(run.cwd.clone()), user: Some(run.user.clone()) }
            }
        }
    }
}

/// What the engine would be handed if the image were built now.
pub(crate) fn job(planner: &Planner<'_>, plan: &[Planned], id: NodeId) -> Result<BuildJob> {
    let graph: &Graph = planner.graph;
    let node = graph.node(id);
    let (Some(spec), Some(planned)) = (node.spec(), plan.get(id.0)) else {
        return Err(Error::bad_input(format!("{} has no steps: it comes from outside the catalogue", node.name)));
    };
    let mut bases: BTreeMap<String, Arc<Built>> = BTreeMap::new();
    for edge in &node.needs {
        let below = &graph.node(edge.to).name;
        let built = plan.get(edge.to.0).and_then(|planned| planned.built.clone()).ok_or_else(|| {
            Error::new(Kind::BadInput, format!("{} needs {below}, which is not built", node.name)).hint(
                match graph.node(edge.to).spec() {
                    Some(_) => format!("`kollage shell {below}@last` opens what its last step that succeeded left"),
                    None => format!("`kollage build {}` gets it", node.name),
                },
            )
        })?;
        bases.insert(edge.reference.clone(), built);
    }
    let content = planner.contents(spec, &planned.stages).map_err(wrong_definitions)?;
    let settings = planner.settings;
    Ok(BuildJob {
        key: planned.key.clone().unwrap_or_else(|| KeyHasher::new("states").finish()),
        stages: planned.stages.clone(),
        dockerfile: spec.resolved.dockerfile.clone(),
        build_args: spec.resolved.inputs.build_args.clone(),
        context: spec.context.clone(),
        content,
        pins: BTreeMap::new(),
        bases,
        platform: node.platform.clone(),
        source_date_epoch: settings.source_date_epoch,
        labels: spec.labels.clone(),
        checks: Vec::new(),
        no_cache: NoCache::Nothing,
        surroundings: settings.surroundings.clone(),
        squash: settings.squash,
        max_layers: spec.max_layers,
    })
}
