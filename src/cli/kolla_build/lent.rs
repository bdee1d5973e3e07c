//! A Kolla tree where another command has a catalogue: `kollage plan --kolla DIR` and its like. Nothing is fetched for it:
//! what an earlier run brought is what sources are taken to be, and the rest is unknown.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use crate::cli::App;
use crate::cli::args::{self, Global, KollaTree, Select};
use crate::cli::kolla_build::{Chosen, build, read};
use crate::cli::workspace::Workspace;
use crate::error::{Error, Result};
use crate::event::Cancel;
use crate::image::store::WorkDir;
use crate::kolla::options::Options;
use crate::kolla::settings::Settings;
use crate::kolla::sources::By;
use crate::kolla::tree::Tree;
use crate::kolla::view::{self, View, Wanted};
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
    global: Global,
    pub view: View,
    build_args: Vec<String>,
    /// What a tree's catalogue has in files; it goes with this.
    _room: Option<WorkDir>,
}

impl Lent {
    pub fn workspace(&self, app: &App, which: &Select, settings: &args::Settings) -> Result<Workspace> {
        let mut settings = settings.clone();
        // Those of the command line come later, and win.
        settings.build_arg.splice(0..0, self.build_args.iter().cloned());
        Workspace::with(&self.global, &self.view.images, &app.env, which, &settings)
    }
}

/// The catalogue that is asked for, or the tree as one.
pub fn lent(app: &App, args: &KollaTree) -> Result<Lent> {
    let Some(dir) = &args.kolla else {
        return Ok(Lent { global: app.global.clone(), view: View::default(), build_args: Vec::new(), _room: None });
    };
    let tree = Tree::open(dir)?;
    let told = Told {
        config_files: args.config_file.iter(),
        template_overrides: &args.template_override,
        texts: [("base", args.base.as_deref()), ("base-image", args.base_image.as_deref())],
    };
    let (options, settings) = told.read(app, &tree)?;
    let chosen = Chosen::of(app, &tree, options, settings)?;
    let Chosen { options, settings, images, layers, .. } = &chosen;
    let fetcher = build::fetcher(app, options)?;
    let room = fetcher.work_dir()?;
    let wanted = Wanted {
        images: build::wanted(&chosen)?,
        plugins: layers.write(room.path(), images, settings)?,
        base: super::apt_files(options)?,
    };
    let (cancel, told) = (Cancel::new()?, build::Fetched(app));
    let node: Arc<str> = "sources".into();
    let caller = Caller { node: &node, sink: &told, cancel: &cancel };
    let by = By { fetcher: &fetcher, caller: &caller, asks: false };
    let view = view::view(&chosen.house(), room.path(), &wanted, &by)?;
    let global = Global { directory: Some(room.path().to_owned()), ..app.global.clone() };
    Ok(Lent { global, view, build_args: build::build_args(options)?, _room: Some(room) })
}
