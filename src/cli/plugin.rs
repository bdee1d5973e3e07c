//! `kollage plugin`: which plugins there are, and whether they fit.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::catalogue::{Catalogue, PluginDef};
use crate::cli::App;
use crate::cli::args::{PluginCheck, PluginCommand, PluginLs, Select, TextOrJson};
use crate::cli::machine::{self, EngineFlags};
use crate::cli::workspace::{Workspace, store_path};
use crate::error::{Error, Kind, Result};
use crate::fit;
use crate::graph::node::NodeKind;
use crate::report::style::Paint;
use crate::report::table::{Cell, Table};

pub fn run(app: &App, command: &PluginCommand) -> Result<u8> {
    match command {
        PluginCommand::Ls(args) => ls(app, args),
        PluginCommand::Check(args) => check(app, args),
    }
}

fn ls(app: &App, args: &PluginLs) -> Result<u8> {
    let workspace = Workspace::load(&app.global, &app.env, &Select::default(), &args.settings)?;
    app.show_warnings(&workspace.catalogue.warnings);
    let facts: Vec<Facts> =
        workspace.catalogue.plugins.values().map(|plugin| Facts::of(&workspace.catalogue, plugin)).collect();
    match args.format {
        TextOrJson::Json => app.print_json(&Value::Array(facts.iter().map(Facts::json).collect()))?,
        TextOrJson::Text => {
            let mut table = Table::with_heading(&["plugin", "fits", "chosen for", "requires", "conflicts", "summary"]);
            for plugin in &facts {
                let requires: Vec<String> = plugin
                    .requires
                    .iter()
                    .cloned()
                    .chain(plugin.needs.iter().map(|(d, r)| format!("{d}{r}")))
                    .collect();
                let chosen: Vec<String> =
                    plugin.chosen.iter().map(|(image, file)| format!("{image} ({file})")).collect();
                table.row([
                    Cell::new(&plugin.name).paint(Paint::Strong),
                    Cell::new(plugin.fits.join(" ")),
                    Cell::new(chosen.join(" ")),
                    Cell::new(requires.join(" ")),
                    Cell::new(plugin.conflicts.join(" ")),
                    Cell::new(&plugin.summary).paint(Paint::Dim),
                ]);
            }
            let (look, width) = app.table_look();
            app.print(&table.render(look, width))?;
        }
    }
    Ok(0)
}

struct Facts {
    name: String,
    summary: String,
    /// Images that it is made for and that accept it.
    fits: Vec<String>,
    /// Images that have it, with the file that says so.
    chosen: Vec<(String, String)>,
    requires: Vec<String>,
    conflicts: Vec<String>,
    needs: Vec<(String, String)>,
}

impl Facts {
    fn of(catalogue: &Catalogue, plugin: &PluginDef) -> Facts {
        let images = catalogue.images.values();
        let fits = images.clone().filter(|image| catalogue.refusal(image, plugin).is_none());
        let has = images.filter(|image| catalogue.plugins_of(image).iter().any(|p| p.name == plugin.name));
        Facts {
            name: plugin.name.clone(),
            summary: plugin.summary.clone(),
            fits: fits.map(|image| image.name.clone()).collect(),
            chosen: has.map(|image| (image.name.clone(), catalogue.chosen_in(image))).collect(),
            requires: plugin.requires.clone(),
            conflicts: plugin.conflicts.clone(),
            needs: plugin.needs.iter().map(|(name, range)| (name.clone(), range.clone())).collect(),
        }
    }

    fn json(&self) -> Value {
        let chosen = |(image, file): &(String, String)| json!({"image": image, "by": file});
        json!({
            "name": self.name,
            "summary": self.summary,
            "fits": self.fits,
            "chosen": self.chosen.iter().map(chosen).collect::<Vec<_>>(),
            "requires": self.requires,
            "conflicts": self.conflicts,
            "needs": self.needs.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
        })
    }
}

/// Definitions are checked as the catalogue is loaded, layers where the store has them.
fn check(app: &App, args: &PluginCheck) -> Result<u8> {
    let select = Select { patterns: args.patterns.clone(), profiles: Vec::new(), plugins: args.plugins.clone() };
    let workspace = Workspace::load(&app.global, &app.env, &select, &args.settings)?;
    app.show_warnings(&workspace.catalogue.warnings);
    let graph = workspace.graph()?;
    let store = machine::open_store(&store_path(&app.global, &app.env)?)?;
    let engine = machine::engine(store.clone(), EngineFlags::default(), &workspace.catalogue.settings, &app.env)?;
    let planned = workspace.planned(&graph, &store, &engine)?;
    let mut rows = Table::with_heading(&["image", "plugin", "fit"]);
    let mut misfits: Vec<Error> = Vec::new();
    let mut seen = BTreeSet::new();
    for id in graph.ids() {
        let NodeKind::Plugin { image, plugin, .. } = &graph.node(id).kind else { continue };
        seen.insert(plugin.clone());
        let verdict = fit::of_node(&graph, id, &engine, &|other| planned[other.0].built.clone())?;
        let state = match &verdict {
            None => Cell::new("by its definition; not built yet").paint(Paint::Dim),
            Some(verdict) => match verdict.error() {
                None => Cell::new("yes"),
                Some(error) if verdict.allowed => {
                    app.say(&format!("warning: {error}"));
                    Cell::new("no, allowed").paint(Paint::Warning)
                }
                Some(error) => {
                    misfits.push(error);
                    Cell::new("no").paint(Paint::Failed)
                }
            },
        };
        rows.row([Cell::new(&**image).paint(Paint::Strong), Cell::new(&**plugin), state]);
    }
    if seen.is_empty() {
        app.say("no plugin is chosen for these images");
        return Ok(0);
    }
    let (look, width) = app.table_look();
    app.print(&rows.render(look, width))?;
    for error in &misfits {
        app.show_error(error);
    }
    Ok(if misfits.is_empty() { 0 } else { Kind::Failed.exit_code() })
}
