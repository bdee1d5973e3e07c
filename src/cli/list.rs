//! `kollage list`

use serde_json::{Value, json};

use crate::catalogue::{ImageDef, Parent, PluginDef};
use crate::cli::App;
use crate::cli::args::{List, ListWhat, TextOrJson};
use crate::cli::kolla_build::lent;
use crate::cli::workspace::Workspace;
use crate::error::Result;
use crate::report::style::Paint;
use crate::report::table::{Cell, Table};

pub fn run(app: &App, args: &List) -> Result<u8> {
    let lent = lent(app, &args.tree)?;
    let workspace = lent.workspace(app, &args.select, &args.settings)?;
    app.show_warnings(&workspace.catalogue.warnings);
    let (table, value) = match args.what {
        ListWhat::Images => images(&workspace),
        ListWhat::Profiles => profiles(&workspace),
        ListWhat::Plugins => plugins(&workspace),
    };
    match args.format {
        TextOrJson::Json => app.print_json(&value)?,
        TextOrJson::Text => {
            let (look, width) = app.table_look();
            app.print(&table.render(look, width))?;
        }
    }
    Ok(0)
}

fn images(workspace: &Workspace) -> (Table, Value) {
    let catalogue = &workspace.catalogue;
    let mut table = Table::with_heading(&["image", "kind", "parent", "plugins", "summary"]);
    let mut values = Vec::new();
    for image in workspace.selected.iter().filter_map(|name| catalogue.images.get(name)) {
        let plugins: Vec<String> = catalogue.plugins_of(image).iter().map(|p| p.name.clone()).collect();
        let parent = parent(image);
        table.row([
            Cell::new(&image.name).paint(Paint::Strong),
            Cell::new(image.kind.as_str()),
            Cell::new(&parent),
            Cell::new(plugins.join(" ")),
            Cell::new(&image.summary).paint(Paint::Dim),
        ]);
        values.push(json!({
            "name": image.name,
            "kind": image.kind.as_str(),
            "parent": parent,
            "reference": catalogue.image_ref(&image.name),
            "plugins": plugins,
            "summary": image.summary,
        }));
    }
    (table, Value::Array(values))
}

fn parent(image: &ImageDef) -> String {
    match &image.parent {
        Parent::Image(name) => name.clone(),
        Parent::External { reference, .. } => reference.clone(),
        Parent::Dockerfile => "(Dockerfile)".into(),
    }
}

fn profiles(workspace: &Workspace) -> (Table, Value) {
    let catalogue = &workspace.catalogue;
    let mut table = Table::with_heading(&["profile", "images"]);
    let mut values = Vec::new();
    for name in catalogue.settings.profiles.keys() {
        let images: Vec<String> = catalogue.profile_images(name).unwrap_or_default().into_iter().collect();
        table.row([Cell::new(name).paint(Paint::Strong), Cell::new(images.join(" "))]);
        values.push(json!({"name": name, "images": images}));
    }
    (table, Value::Array(values))
}

fn plugins(workspace: &Workspace) -> (Table, Value) {
    let catalogue = &workspace.catalogue;
    let mut table = Table::with_heading(&["plugin", "for", "used on", "summary"]);
    let mut values = Vec::new();
    for plugin in catalogue.plugins.values() {
        let accepts = |plugin: &PluginDef| plugin.images.iter().map(|p| p.as_str().to_owned()).collect::<Vec<_>>();
        let used: Vec<String> = catalogue
            .images
            .values()
            .filter(|image| catalogue.plugins_of(image).iter().any(|p| p.name == plugin.name))
            .map(|image| image.name.clone())
            .collect();
        table.row([
            Cell::new(&plugin.name).paint(Paint::Strong),
            Cell::new(accepts(plugin).join(" ")),
            Cell::new(used.join(" ")),
            Cell::new(&plugin.summary).paint(Paint::Dim),
        ]);
        values.push(json!({
            "name": plugin.name,
            "images": accepts(plugin),
            "used_on": used,
            "summary": plugin.summary,
        }));
    }
    (table, Value::Array(values))
}
