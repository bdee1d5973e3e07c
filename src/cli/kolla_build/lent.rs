//! A Kolla tree where another command has a catalogue: `kollage plan --kolla DIR` and its like. Nothing is fetched for it:
//! what an earlier run brought is what sources are taken to be, and the rest is unknown.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use rayon::prelude::*;

use crate::cli::App;
use crate::cli::args::{Global, KollaTree};
use crate::cli::kolla_build::{Chosen, build, read};
use crate::error::{Error, Result};
use crate::event::Cancel;
use crate::fetch::Remote;
use crate::image::store::WorkDir;
use crate::kolla::options::Options;
use crate::kolla::settings::Settings;
use crate::kolla::sources::{self, By};
use crate::kolla::tree::Tree;
use crate::net::Caller;

/// kolla-build's options, as commands of Kollage's have them.
pub struct Told<'a, Files, const N: usize> {
    pub config_files: Files,
    pub template_overrides: &'a [PathBuf],
    /// By the option's name.
    pub texts: [(&'a str, Option<&'a str>); N],
}

impl<'a, Files: Iterator<Item = &'a PathBuf>, const N: usize> Told<'a, Files, N> {
    pub fn read<'t>(self, app: &App, tree: &'t Tree) -> Result<(Options<'t>, Settings)> {
        let mut arguments: Vec<OsString> = Vec::new();
        // What stands later wins.
        let overrides = self.template_overrides.iter().map(|path| ("--template-override", path));
        for (name, path) in self.config_files.map(|path| ("--config-file", path)).chain(overrides) {
            arguments.extend([name.into(), path.into()]);
        }
        for (name, value) in self.texts {
            if let Some(value) = value {
                arguments.extend([format!("--{name}").into(), value.into()]);
            }
        }
        read(app, tree, &arguments)?
            .map_err(|error| Error::bad_input("this Kolla release doesn't take these options").cause(error))
    }
}

/// What a command works on.
pub struct Lent {
    pub global: Global,
    /// What files of sources are made of.
    pub awaited: BTreeMap<PathBuf, Remote>,
    /// Where a tree was written as a catalogue; it goes with this.
    _room: Option<WorkDir>,
}

/// The catalogue that is asked for, or the tree as one.
pub fn lent(app: &App, args: &KollaTree) -> Result<Lent> {
    let Some(dir) = &args.kolla else {
        return Ok(Lent { global: app.global.clone(), awaited: BTreeMap::new(), _room: None });
    };
    let tree = Tree::open(dir)?;
    let told = Told {
        config_files: args.config_file.iter(),
        template_overrides: &args.template_override,
        texts: [("base", args.base.as_deref()), ("base-image", args.base_image.as_deref())],
    };
    let (options, settings) = told.read(app, &tree)?;
    let chosen = Chosen::of(app, &tree, options, settings)?;
    let fetcher = build::fetcher(app, &chosen.options)?;
    let room = fetcher.work_dir()?;
    let laid_out = build::laid_out(&chosen, room.path())?;
    let (cancel, told) = (Cancel::new()?, build::Fetched(app));
    let node: Arc<str> = "sources".into();
    let caller = Caller { node: &node, sink: &told, cancel: &cancel };
    let by = By { fetcher: &fetcher, caller: &caller, asks: false };
    let images = laid_out.images.par_iter().map(|(_, sources, dir)| sources::at_hand(sources, dir, &by));
    let plugins = laid_out.plugins.par_iter().map(|(_, source, dir)| {
        let found = sources::bundle_at_hand("plugins", std::slice::from_ref(source), dir, &by)?;
        Ok(found.into_iter().collect())
    });
    let awaited: Vec<Vec<(PathBuf, Remote)>> = images.chain(plugins).collect::<Result<_>>()?;
    let global = Global { directory: Some(room.path().to_owned()), ..app.global.clone() };
    Ok(Lent { global, awaited: awaited.into_iter().flatten().collect(), _room: Some(room) })
}
