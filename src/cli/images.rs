//! `kollage images`: what the images of a catalogue, or of the store, weigh.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::catalogue::Pattern;
use crate::cli::App;
use crate::cli::args::{Images, Select, TableFormat};
use crate::cli::machine;
use crate::cli::workspace::{Workspace, catalogue_root, store_path};
use crate::error::{Error, Result};
use crate::graph::assemble::PLUGINS_LABEL;
use crate::image::digest::Digest;
use crate::image::store::{ImageInfo, LayerInfo};
use crate::report::human;
use crate::report::style::Paint;
use crate::report::table::{Cell, Table};

pub fn run(app: &App, args: &Images) -> Result<u8> {
    let known = machine::open_store(&store_path(&app.global, &app.env)?)?.images()?;
    let chosen = chosen(app, args, &known)?;
    let weighed: Vec<Weighed<'_>> =
        chosen.shown.iter().map(|(name, info)| Weighed::new(name.clone(), info, &known)).collect();
    let sum = Sum::of(&weighed);
    match args.format {
        TableFormat::Json => {
            let images: Vec<Value> = weighed.iter().map(Weighed::json).collect();
            app.print_json(&json!({
                "images": images,
                "not_in_store": chosen.missing,
                "layers": sum.layers,
                "size": sum.size,
                "compressed_size": sum.compressed,
            }))?;
        }
        TableFormat::Text | TableFormat::Markdown => {
            let table = if args.layers { layers(&weighed) } else { images(&weighed) };
            if args.format == TableFormat::Markdown {
                app.print(&format!("{}\n{}\n", table.markdown(), sum.sentence(weighed.len())))?;
            } else {
                let (look, width) = app.table_look();
                app.print(&table.render(look, width))?;
                app.say(&sum.sentence(weighed.len()));
            }
        }
    }
    if !chosen.missing.is_empty() {
        app.say(&format!("not in the store: {}", chosen.missing.join(", ")));
    }
    Ok(0)
}

pub struct Chosen<'a> {
    /// What a person calls it, and what the store knows of it.
    pub shown: Vec<(String, &'a ImageInfo)>,
    missing: Vec<String>,
}

/// Within a catalogue its images, by the names that they have there; elsewhere, and with `--all`, those of the store.
fn chosen<'a>(app: &App, args: &Images, known: &'a [ImageInfo]) -> Result<Chosen<'a>> {
    if args.all || !in_catalogue(app, &args.profiles)? {
        return of_store(&args.patterns, known);
    }
    let select = Select { patterns: args.patterns.clone(), profiles: args.profiles.clone(), plugins: Vec::new() };
    let workspace = Workspace::load(&app.global, &app.env, &select, &args.settings)?;
    let mut out = Chosen { shown: Vec::new(), missing: Vec::new() };
    for name in &workspace.selected {
        let full = workspace.catalogue.image_ref(name);
        match known.iter().find(|info| info.name == full) {
            Some(info) => out.shown.push((name.clone(), info)),
            None => out.missing.push(name.clone()),
        }
    }
    Ok(out)
}

/// Whether there is a catalogue, an error when one is asked for and there is none.
pub fn in_catalogue(app: &App, profiles: &[String]) -> Result<bool> {
    match catalogue_root(&app.global) {
        Ok(_) => Ok(true),
        Err(error) if !profiles.is_empty() || app.global.directory.is_some() => Err(error),
        Err(_) => Ok(false),
    }
}

/// A pattern is about the last part of a name (`keystone` of `kollage/keystone:1`), or it is the whole name.
pub fn of_store<'a>(patterns: &[String], known: &'a [ImageInfo]) -> Result<Chosen<'a>> {
    let mut wanted = BTreeSet::new();
    for text in patterns {
        let pattern = match known.iter().any(|info| info.name == *text) {
            true => None,
            false => Some(
                Pattern::parse(text)
                    .map_err(|e| Error::bad_input(format!("`{text}` is not a pattern of image names")).cause(e))?,
            ),
        };
        let matches = |name: &str| match &pattern {
            None => name == text,
            Some(pattern) => pattern.matches(last_part(name)),
        };
        let before = wanted.len();
        wanted.extend(known.iter().map(|info| info.name.as_str()).filter(|name| matches(name)));
        if wanted.len() == before && !known.iter().any(|info| matches(&info.name)) {
            return Err(Error::bad_input(format!("no image in the store matches `{text}`"))
                .hint("`kollage images --all` shows every image in the store"));
        }
    }
    let of_patterns = known.iter().filter(|info| patterns.is_empty() || wanted.contains(info.name.as_str()));
    Ok(Chosen { shown: of_patterns.map(|info| (info.name.clone(), info)).collect(), missing: Vec::new() })
}

/// `keystone` of `registry/kollage/keystone:1`.
fn last_part(name: &str) -> &str {
    let last = name.rsplit('/').next().unwrap_or(name);
    last.split_once(':').map_or(last, |(name, _)| name)
}

struct Weighed<'a> {
    name: String,
    info: &'a ImageInfo,
    plugins: Vec<&'a str>,
    /// Layers above those of the nearest other image that this one stands on.
    own: &'a [LayerInfo],
}

impl<'a> Weighed<'a> {
    fn new(name: String, info: &'a ImageInfo, all: &[ImageInfo]) -> Weighed<'a> {
        let ids = |info: &ImageInfo| info.layers.iter().map(|layer| layer.diff_id.clone()).collect::<Vec<Digest>>();
        let mine = ids(info);
        let below = all.iter().map(ids).filter(|other| other.len() < mine.len() && mine.starts_with(other));
        let below = below.map(|other| other.len()).max().unwrap_or(0);
        let label = info.labels.get(PLUGINS_LABEL).map(String::as_str).unwrap_or_default();
        let plugins = label.split(',').filter(|plugin| !plugin.is_empty()).collect();
        Weighed { name, info, plugins, own: info.layers.get(below..).unwrap_or_default() }
    }

    /// `keystone+ldappool`, as plans and reports call it.
    fn title(&self) -> String {
        [&[self.name.as_str()][..], &self.plugins].concat().join("+")
    }

    fn json(&self) -> Value {
        let info = self.info;
        json!({
            "name": self.name,
            "plugins": self.plugins,
            "reference": info.name,
            "digest": info.manifest,
            "created": info.created,
            "platform": info.platform.as_ref().map(ToString::to_string),
            "size": info.size,
            "compressed_size": info.compressed_size,
            "own_layers": self.own.len(),
            "own_size": unpacked(self.own),
            "own_compressed_size": compressed(self.own),
            "layers": info.layers,
            "problem": info.problem,
        })
    }
}

fn unpacked(layers: &[LayerInfo]) -> u64 {
    layers.iter().filter_map(|layer| layer.size).sum()
}

fn compressed(layers: &[LayerInfo]) -> u64 {
    layers.iter().map(|layer| layer.compressed_size).sum()
}

/// All images together: a layer that several have is there once.
#[derive(Default)]
struct Sum {
    layers: usize,
    size: u64,
    compressed: u64,
}

impl Sum {
    fn of(images: &[Weighed<'_>]) -> Sum {
        let all = images.iter().flat_map(|image| &image.info.layers);
        let distinct: BTreeMap<&Digest, &LayerInfo> = all.map(|layer| (&layer.diff_id, layer)).collect();
        let mut sum = Sum { layers: distinct.len(), ..Sum::default() };
        for layer in distinct.values() {
            sum.size += layer.size.unwrap_or(0);
            sum.compressed += layer.compressed_size;
        }
        sum
    }

    fn sentence(&self, images: usize) -> String {
        format!(
            "{} of {}: {} unpacked, {} compressed, layers that several have counted once",
            human::count(images, "image"),
            human::count(self.layers, "layer"),
            human::size(self.size),
            human::size(self.compressed),
        )
    }
}

fn images(images: &[Weighed<'_>]) -> Table {
    let mut table = Table::with_heading(&[
        "image",
        "layers",
        "unpacked",
        "compressed",
        "own layers",
        "own unpacked",
        "own compressed",
        "",
    ]);
    for column in 1..7 {
        table = table.right(column);
    }
    for image in images {
        let info = image.info;
        // Of a damaged image nothing is known, and nought would be wrong.
        let figure = |text: String| Cell::new(if info.problem.is_some() { String::new() } else { text });
        table.row([
            Cell::new(image.title()).paint(Paint::Strong),
            figure(info.layers.len().to_string()),
            figure(human::size(info.size)),
            figure(human::size(info.compressed_size)),
            figure(image.own.len().to_string()),
            figure(human::size(unpacked(image.own))),
            figure(human::size(compressed(image.own))),
            Cell::new(info.problem.clone().unwrap_or_default()).paint(Paint::Failed),
        ]);
    }
    table
}

fn layers(images: &[Weighed<'_>]) -> Table {
    let mut table = Table::with_heading(&["image", "layer", "unpacked", "compressed", "made by"]).right(2).right(3);
    for image in images {
        if let Some(problem) = &image.info.problem {
            let name = Cell::new(image.title()).paint(Paint::Strong);
            table.row([name, Cell::new(""), Cell::new(""), Cell::new(""), Cell::new(problem).paint(Paint::Failed)]);
        }
        for (position, layer) in image.info.layers.iter().enumerate() {
            let title = if position == 0 { image.title() } else { String::new() };
            table.row([
                Cell::new(title).paint(Paint::Strong),
                Cell::new(layer.diff_id.short()).paint(Paint::Dim),
                Cell::new(layer.size.map(human::size).unwrap_or_default()),
                Cell::new(human::size(layer.compressed_size)),
                Cell::new(layer.created_by.clone().unwrap_or_default()),
            ]);
        }
    }
    table
}
