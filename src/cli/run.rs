//! `kollage run`: a command in an image, on a copy that is thrown away. `kollage shell` runs its shells the same way.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;

use crate::cli::args::{self, RunArgs, Select, Settings};
use crate::cli::machine::{self, EngineFlags};
use crate::cli::signals;
use crate::cli::workspace::{Workspace, build_arg, catalogue_root, store_path};
use crate::cli::{App, terminal};
use crate::dockerfile::step::Network;
use crate::engine::Built;
use crate::engine::embedded::EmbeddedEngine;
use crate::engine::embedded::run::{Finished, RunRequest};
use crate::error::{Error, Result};
use crate::event::Cancel;
use crate::image::config::ImageConfig;
use crate::image::digest::KeyHasher;
use crate::image::store::{Ref, Store};
use crate::suggest;

pub fn run(app: &App, args: &RunArgs) -> Result<u8> {
    let workspace = match catalogue_root(&app.global) {
        Ok(_) => {
            let none = Settings::default();
            Some(Workspace::load(&app.global, &app.env, &Select::default(), &none)?.here(&none))
        }
        // An image of the store can be run from anywhere.
        Err(error) if app.global.directory.is_some() => return Err(error),
        Err(_) => None,
    };
    let store = machine::open_store(&store_path(&app.global, &app.env)?)?;
    let image = find(&store, &args.image, workspace.as_ref())?;
    let config = store.image_config(&store.manifest(&image.manifest)?.config.digest)?;
    let settings = workspace.as_ref().map(|w| w.catalogue.settings.clone()).unwrap_or_default();
    let engine = machine::engine(store.clone(), EngineFlags::default(), &settings, &app.env)?;
    if let Some(workspace) = workspace.filter(|w| w.catalogue.images.contains_key(&args.image))
        && !is_current(workspace, &args.image, &config, &store, &engine).unwrap_or(false)
    {
        let name = &args.image;
        app.say(&format!(
            "note: {} is not what the catalogue makes now: `kollage build {name}` makes that",
            image.name
        ));
    }
    // Only its configuration matters for running.
    let built = Built { key: KeyHasher::new("run").finish(), config, size: 0 };
    let mut env = Vec::new();
    if args.tty {
        env.push(terminal_type(app));
    }
    for text in &args.env {
        env.extend(build_arg("--env", text, &app.env)?);
    }
    let request = RunRequest {
        entrypoint: args.entrypoint.as_ref().map(|e| if e.is_empty() { Vec::new() } else { vec![e.clone()] }),
        args: args.command.clone(),
        user: args.user.clone(),
        env,
        cwd: args.workdir.clone(),
        network: args.network.map_or(Network::Default, args::Network::typed),
        mounts: Vec::new(),
    };
    let cancel = Cancel::new()?;
    signals::watch(&cancel, |_| {})?;
    let finished = match args.tty {
        true => on_terminal(&engine, &built, &request, &cancel)?,
        false => engine.run(&built, &request, Some(io::stdin().as_fd()), &cancel)?,
    };
    Ok(code(app, &image.name, finished))
}

/// Whether a build would find nothing to do. An image of the same name may be from earlier definitions, with other
/// plugins, or of another catalogue.
fn is_current(
    mut workspace: Workspace,
    image: &str,
    config: &ImageConfig,
    store: &Store,
    engine: &EmbeddedEngine,
) -> Result<bool> {
    workspace.selected = BTreeSet::from([image.to_owned()]);
    let graph = workspace.graph()?;
    let planned = workspace.planned(&graph, store, engine)?;
    let name = workspace.catalogue.image_ref(image);
    let built = graph
        .ids()
        .find(|id| graph.node(*id).spec().is_some_and(|spec| spec.names.contains(&name)))
        .and_then(|id| planned[id.0].built.clone());
    Ok(built.is_some_and(|built| built.config.rootfs == config.rootfs))
}

/// With a terminal of its own, shown on the one that the person sits at.
pub fn on_terminal(engine: &EmbeddedEngine, built: &Built, request: &RunRequest, cancel: &Cancel) -> Result<Finished> {
    let (terminal, _raw) = terminal::borrow("`--tty`")?;
    engine.run_on_terminal(built, request, terminal, cancel)
}

/// What programs that draw on a terminal ask for first.
pub fn terminal_type(app: &App) -> (String, String) {
    ("TERM".into(), app.facts.term.clone().unwrap_or_else(|| "xterm".into()))
}

/// Why a command never began is said; its own messages were its own business.
pub fn code(app: &App, image: &str, finished: Finished) -> u8 {
    if let Some(message) = finished.message {
        app.say(&format!("error: {image}: {message}"));
    }
    u8::try_from(finished.code).unwrap_or(1)
}

/// By the name that the catalogue gives it, else by the name in the store, whose tag or namespace may be left out when
/// that leaves one image.
pub fn find(store: &Store, wanted: &str, workspace: Option<&Workspace>) -> Result<Ref> {
    let of_catalogue = workspace.filter(|w| w.catalogue.images.contains_key(wanted));
    if let Some(workspace) = of_catalogue {
        let name = workspace.catalogue.image_ref(wanted);
        return store.get_ref(&name).ok_or_else(|| {
            Error::bad_input(format!("{name} is not built yet")).hint(format!("build it with `kollage build {wanted}`"))
        });
    }
    if let Some(found) = store.get_ref(wanted) {
        return Ok(found);
    }
    let refs = store.refs()?;
    let without_tag = |name: &str| {
        name.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')).map_or(name.to_owned(), |(n, _)| n.to_owned())
    };
    let last = |name: &str| without_tag(name).rsplit('/').next().unwrap_or_default().to_owned();
    let found: Vec<&Ref> = refs.iter().filter(|r| without_tag(&r.name) == wanted || last(&r.name) == wanted).collect();
    match found.as_slice() {
        [one] => Ok((*one).clone()),
        [] => {
            let names: Vec<String> = match workspace {
                Some(workspace) => workspace.catalogue.images.keys().cloned().collect(),
                None => refs.iter().map(|r| r.name.clone()).collect(),
            };
            let hint = suggest::hint(wanted, names.iter().map(String::as_str));
            Err(Error::bad_input(format!("there is no image `{wanted}`"))
                .hint(hint.unwrap_or_else(|| "`kollage store ls` shows what is in the store".into())))
        }
        several => {
            let names: Vec<&str> = several.iter().map(|r| r.name.as_str()).collect();
            Err(Error::bad_input(format!("`{wanted}` can be any of {}", names.join(", "))).hint("give its whole name"))
        }
    }
}
