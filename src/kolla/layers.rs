//! `--plugins-as-layers`: plugins that a recipe installs in the middle of an image become layers above it. Where the recipe does
//! more with them (`install` says what), they stay in the image, and that is told.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::catalogue::names;
use crate::diag::{Diagnostic, Diagnostics, SourceFile};
use crate::error::{Context as _, Error, Result};
use crate::kolla::images::{Image, Status};
use crate::kolla::install::{ARCHIVE, Around, Install, Stays, is_root};
use crate::kolla::options::Options;
use crate::kolla::pieces::{self, Kind, Piece, escaped};
use crate::kolla::repos::Repos;
use crate::kolla::settings::Settings;
use crate::kolla::sources::{self, Source, Sources};
use crate::kolla::{house, render};

/// The option; `plugins_as_layers` in kolla-build.conf.
pub const OPTION: &str = "plugins-as-layers";

/// The plugins of the selected images that are layers of their own.
#[derive(Debug, Default)]
pub struct Layers {
    /// By the tree's name of the image.
    images: BTreeMap<String, Above>,
    /// Images whose plugins stay in them, and why.
    pub left: Diagnostics,
}

#[derive(Debug)]
struct Above {
    install: Install,
    /// By what the catalogue calls them, which is the order of their layers.
    plugins: BTreeMap<String, Source>,
}

impl Layers {
    /// None, unless the option is set.
    pub fn of(images: &[Image], options: &Options<'_>, settings: &Settings) -> Result<Layers> {
        let mut layers = Layers::default();
        if !options.flag(&OPTION.replace('-', "_"))? {
            return Ok(layers);
        }
        let cleanup = Repos::of(options, settings)?.cleanup().map_err(Error::bad_input)?;
        for image in images.iter().filter(|image| image.status == Status::Matched) {
            let plugins = sources::sources(image, options, settings.source_arch())?.plugins;
            if plugins.is_empty() {
                continue;
            }
            let file = SourceFile::new(image.path.join("Dockerfile"), image.text.as_str());
            let around = Around { cleanup: cleanup.clone(), patched: house::series(settings, &image.name).is_some() };
            match above(image, images, plugins, &around) {
                Ok(above) => drop(layers.images.insert(image.name.clone(), above)),
                Err(Stays { why, at }) => {
                    let end = file.text[at..].find('\n').map_or(file.text.len(), |end| at + end);
                    let message = format!("the plugins of `{}` stay in the image: {why}", image.name);
                    let hint = "they are built in as without `--plugins-as-layers`";
                    layers.left.push(Diagnostic::warning(message).at(&file, at..end).hint(hint));
                }
            }
        }
        Ok(layers)
    }

    /// What the layers of an image are called, the lowest first.
    pub fn names(&self, image: &str) -> Vec<&str> {
        self.images.get(image).into_iter().flat_map(|above| above.plugins.keys().map(String::as_str)).collect()
    }

    pub fn all_names(&self) -> BTreeSet<&str> {
        self.images.keys().flat_map(|image| self.names(image)).collect()
    }

    /// What is left for the image itself.
    pub fn below(&self, image: &str, sources: Sources) -> Sources {
        match self.images.contains_key(image) {
            true => Sources { plugins: Vec::new(), ..sources },
            false => sources,
        }
    }

    /// The Dockerfiles of an image's layers, by name, for a person to read.
    pub fn dockerfiles(&self, image: &Image) -> Vec<(&str, String)> {
        let above = self.images.get(&image.name);
        let text = |above: &Above, name: &str| above.install.dockerfile(name, &image.canonical, ARCHIVE, str::to_owned);
        above
            .into_iter()
            .flat_map(|above| above.plugins.keys().map(move |name| (name.as_str(), text(above, name))))
            .collect()
    }

    /// Writes the plugins into the catalogue `to`. Gives what has to go into which directory, as its only plugin.
    pub fn write(&self, to: &Path, images: &[Image], settings: &Settings) -> Result<Vec<(String, Source, PathBuf)>> {
        let all = to.join("plugins");
        let _ = fs::remove_dir_all(&all);
        let mut wanted = Vec::new();
        for plugin in self.all_names() {
            let dir = all.join(plugin);
            let on: Vec<(&Image, &Above, &Source)> = images
                .iter()
                .filter_map(|image| Some((image, self.images.get(&image.name)?)))
                .filter_map(|(image, above)| Some((image, above, above.plugins.get(plugin)?)))
                .collect();
            let mut recipe = String::new();
            let mut names = Vec::new();
            for (image, above, source) in &on {
                let name = house::name(image, settings);
                // The recipes of two images may install the same plugin in different ways.
                let text = above.install.dockerfile(plugin, "{{ parent }}", &format!("{name}/{ARCHIVE}"), escaped);
                match on.len() {
                    1 => recipe = text,
                    _ => recipe.push_str(&format!("{{% if image.name == \"{name}\" -%}}\n{text}{{% endif %}}")),
                }
                let dir = dir.join(&name);
                fs::create_dir_all(&dir).unusable(|| format!("cannot make {}", dir.display()))?;
                wanted.push((image.name.clone(), (*source).clone(), dir));
                names.push(name);
            }
            let sections: Vec<String> = on.iter().map(|(_, _, source)| format!("[{}]", source.name)).collect();
            let mut about = toml::Table::new();
            about.insert("images".into(), names.into());
            about.insert("summary".into(), format!("{} of a Kolla tree", sections.join(", ")).into());
            let mut definition = toml::Table::new();
            definition.insert("plugin".into(), about.into());
            for (file, text) in
                [("plugin.toml", toml::to_string(&definition).unwrap_or_default()), (render::TEMPLATE, recipe)]
            {
                let path = dir.join(file);
                fs::write(&path, text).unusable(|| format!("cannot write {}", path.display()))?;
            }
        }
        Ok(wanted)
    }
}

fn above(image: &Image, images: &[Image], plugins: Vec<Source>, around: &Around) -> Result<Above, Stays> {
    let read = |image: &Image| {
        let stays = |at: usize| Stays { why: "what its template gives is no Dockerfile".into(), at };
        pieces::read(&image.name, &image.text)
            .map_err(|problems| stays(problems.0.first().and_then(|p| Some(p.place.as_ref()?.span.start)).unwrap_or(0)))
    };
    let install = Install::find(&read(image)?, &image.text, around)?;
    let mut next = image.parent;
    while let Some(parent) = next.and_then(|number| images.get(number)) {
        match last_user(&read(parent)?) {
            Some(user) if !install.says_user && !is_root(&user) => {
                let why = format!("they are installed by the user `{user}`, as whom `{}` runs", parent.name);
                return Err(Stays { why, at: 0 });
            }
            Some(_) => break,
            None => next = parent.parent,
        }
    }
    let mut named = BTreeMap::new();
    for source in plugins {
        let name = plugin(&source.name, &image.name).to_owned();
        if let Err(why) = names::component(&name) {
            return Err(Stays { why: format!("no layer can be called `{name}`: {why}"), at: 0 });
        }
        named.insert(name, source);
    }
    Ok(Above { install, plugins: named })
}

/// What the section of an image's plugin calls it.
pub fn plugin<'a>(section: &'a str, image: &str) -> &'a str {
    section.strip_prefix(image).and_then(|rest| rest.strip_prefix("-plugin-")).unwrap_or(section)
}

fn last_user(pieces: &[Piece]) -> Option<String> {
    pieces.iter().rev().find_map(|piece| match &piece.kind {
        Kind::User(name) => Some(name.clone()),
        _ => None,
    })
}
