//! `kollage push`: images of the store to registries, and releases taken back.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::catalogue::{Catalogue, Settings};
use crate::cli::args::{self, Push, Select};
use crate::cli::publish::{Publisher, Target, allowed, target};
use crate::cli::workspace::{Workspace, catalogue_root, config_files, overrides, store_path, wrong_definitions};
use crate::cli::{App, images, machine, signals};
use crate::error::{Context as _, Error, Kind, Result};
use crate::event::{Cancel, Sink};
use crate::image::reference::Reference;
use crate::image::store::Store;
use crate::registry::release::{Release, Undone, roll_back};
use crate::report::progress::{self, Progress};

pub fn run(app: &App, args: &Push) -> Result<u8> {
    let cancel = Cancel::new()?;
    signals::watch(&cancel, |_| {})?;
    if let Some(file) = &args.rollback {
        return rollback(app, args, file, &cancel);
    }
    let store = machine::open_store(&store_path(&app.global, &app.env)?)?;
    let chosen = chosen(app, args, &store)?;
    let publisher =
        Publisher::new(app, &args.pushing, &args.registries, &chosen.settings, &store, chosen.root.as_deref())?;
    let progress = shown(app, args.progress, &chosen.targets)?;
    let sink: Arc<dyn Sink> = progress.clone();
    let names: Vec<Reference> = chosen.targets.iter().map(|target| target.name.clone()).collect();
    publisher.check(&chosen.settings, &names, &*sink, &cancel).map_err(|e| e.context("nothing was pushed"))?;
    let (lines, error) = publisher.push(&store, &chosen.targets, &*sink, &cancel);
    progress.close();
    lines.iter().for_each(|line| app.say(line));
    match error {
        Some(error) => Err(error),
        None => Ok(0),
    }
}

struct Chosen {
    settings: Settings,
    targets: Vec<Target>,
    root: Option<std::path::PathBuf>,
}

/// Within a catalogue its images, elsewhere those of the store.
fn chosen(app: &App, args: &Push, store: &Store) -> Result<Chosen> {
    let root = catalogue_root(&app.global).ok();
    if !args.all && images::in_catalogue(app, &args.profiles)? {
        return of_catalogue(app, args, store).map(|(settings, targets)| Chosen { settings, targets, root });
    }
    if args.patterns.is_empty() && !args.all {
        return Err(Error::bad_input("which images are to be pushed isn't said")
            .hint("name them, or push everything in the store with `--all`"));
    }
    let settings = settings_alone(app, args)?;
    let known = store.images()?;
    let targets = images::of_store(&args.patterns, &known)?
        .shown
        .into_iter()
        .map(|(name, info)| {
            let to = target(&info.name, settings.build.registry.as_deref())?;
            Ok(Target { node: Arc::from(name), name: to, manifest: info.manifest.clone() })
        })
        .collect::<Result<_>>()?;
    Ok(Chosen { settings, targets, root })
}

fn settings_alone(app: &App, args: &Push) -> Result<Settings> {
    let overrides = overrides(&app.env, &Select::default(), &args.settings)?;
    Catalogue::settings_alone(&overrides, &config_files(&app.env)).map_err(wrong_definitions)
}

fn of_catalogue(app: &App, args: &Push, store: &Store) -> Result<(Settings, Vec<Target>)> {
    let select = Select { patterns: args.patterns.clone(), profiles: args.profiles.clone(), plugins: Vec::new() };
    let workspace = Workspace::load(&app.global, &app.env, &select, &args.settings)?;
    // What they were built as, should another namespace or tag be given only now.
    let built = args::Settings { namespace: None, tag: None, ..args.settings.clone() };
    let renamed = args.settings.namespace.is_some() || args.settings.tag.is_some();
    let built = match renamed {
        true => Some(Workspace::load(&app.global, &app.env, &select, &built)?.catalogue),
        false => None,
    };
    let settings = workspace.catalogue.settings.clone();
    let registry = settings.build.registry.as_deref();
    let (mut targets, mut missing) = (Vec::new(), Vec::new());
    for image in &workspace.selected {
        let name = workspace.catalogue.image_ref(image);
        let found = store
            .get_ref(&name)
            .or_else(|| built.as_ref().and_then(|catalogue| store.get_ref(&catalogue.image_ref(image))));
        match found {
            Some(found) => targets.push(Target {
                node: Arc::from(image.as_str()),
                name: target(&name, registry)?,
                manifest: found.manifest,
            }),
            // Whoever named it wants it; of all images, those that are built are meant.
            None if args.patterns.is_empty() && args.profiles.is_empty() => {}
            None => missing.push(name),
        }
    }
    match missing.is_empty() && !targets.is_empty() {
        true => Ok((settings, targets)),
        false => {
            let what = if missing.is_empty() { "no image of the catalogue is".into() } else { missing.join(", ") };
            Err(Error::bad_input(format!("not built yet: {what}"))
                .hint("build them with `kollage build`; `--push` does both"))
        }
    }
}

fn shown(app: &App, how: args::Progress, targets: &[Target]) -> Result<Arc<dyn Progress>> {
    let mode = how.mode(&app.env)?;
    let mut options = progress::Options::new(app.look);
    options.name_width = targets.iter().map(|target| target.node.chars().count()).max().unwrap_or(0);
    Ok(progress::start(app.facts.resolve(mode), Box::new(io::stderr()), App::size(), options))
}

fn rollback(app: &App, args: &Push, file: &Path, cancel: &Cancel) -> Result<u8> {
    let bytes = std::fs::read(file).bad_input(|| format!("cannot read {}", file.display()))?;
    let release = Release::parse(&bytes).map_err(|e| e.context(format!("cannot take back {}", file.display())))?;
    let settings = settings_alone(app, args)?;
    let names = release.tags.iter().map(|tag| tag.name.parse()).collect::<Result<Vec<Reference>>>()?;
    allowed(&settings, &names)?;
    let options = machine::registry_options(&app.env, &args.registries, settings.build.retries)?;
    let progress = shown(app, args.progress, &[])?;
    let done = roll_back(&release, args.force, &options, &*progress, cancel);
    progress.close();
    let mut stays = 0;
    for (tag, undone) in done? {
        app.say(&match (undone, &tag.old) {
            (Undone::Restored, Some(old)) => format!("{} leads to {old} again", tag.name),
            (Undone::Restored | Undone::Removed, _) => format!("{} is gone again: it was new", tag.name),
            (Undone::Already, _) => format!("{} is as it was before", tag.name),
            (Undone::Stays(error), _) => {
                stays += 1;
                let hint = error.hint_text().map(|hint| format!(" ({hint})")).unwrap_or_default();
                format!("{} stays: {error}{hint}", tag.name)
            }
        });
    }
    Ok(if stays == 0 { 0 } else { Kind::Failed.exit_code() })
}
