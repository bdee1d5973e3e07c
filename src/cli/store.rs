//! `kollage store ls|verify|prune`

use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::App;
use crate::cli::args::{StoreCommand, TextOrJson};
use crate::cli::machine;
use crate::cli::signals;
use crate::cli::workspace::store_path;
use crate::error::Result;
use crate::event::Cancel;
use crate::image::store::{PruneOptions, Store};
use crate::report::human;
use crate::report::style::Paint;
use crate::report::table::{Cell, Table};

pub fn run(app: &App, command: &StoreCommand) -> Result<u8> {
    let store = machine::open_store(&store_path(&app.global, &app.env)?)?;
    let cancel = Cancel::new()?;
    signals::watch(&cancel, |_| {})?;
    match command {
        StoreCommand::Ls { format } => ls(app, &store, *format),
        StoreCommand::Verify { repair } => verify(app, &store, *repair, &cancel),
        StoreCommand::Prune { all, dry_run, unused_for } => {
            let options = PruneOptions {
                all: *all,
                caches: *all,
                unused_for: unused_for.map(|days| Duration::from_secs(days.saturating_mul(24 * 3600))),
                dry_run: *dry_run,
            };
            prune(app, &store, &options, &cancel)
        }
    }
}

fn ls(app: &App, store: &Store, format: TextOrJson) -> Result<u8> {
    let images = store.images()?;
    if format == TextOrJson::Json {
        let values: Vec<Value> = images
            .iter()
            .map(|image| {
                json!({
                    "name": image.name,
                    "digest": image.manifest,
                    "updated": image.updated,
                    "created": image.created,
                    "platform": image.platform.as_ref().map(ToString::to_string),
                    "layers": image.layers.len(),
                    "size": image.size,
                    "compressed_size": image.compressed_size,
                    "problem": image.problem,
                })
            })
            .collect();
        app.print_json(&Value::Array(values))?;
        return Ok(0);
    }
    let mut table =
        Table::with_heading(&["image", "digest", "layers", "size", "compressed", ""]).right(2).right(3).right(4);
    for image in &images {
        table.row([
            Cell::new(&image.name).paint(Paint::Strong),
            Cell::new(image.manifest.short()).paint(Paint::Dim),
            Cell::new(image.layers.len().to_string()),
            Cell::new(human::size(image.size)),
            Cell::new(human::size(image.compressed_size)),
            Cell::new(image.problem.clone().unwrap_or_default()).paint(Paint::Failed),
        ]);
    }
    let (look, width) = app.table_look();
    app.print(&table.render(look, width))?;
    let used = store.disk_use()?;
    app.say(&format!(
        "{} in {}: layers {}, blobs {}, cache mounts {}",
        human::size(used.total()),
        store.root().display(),
        human::size(used.layers),
        human::size(used.blobs),
        human::size(used.caches)
    ));
    Ok(0)
}

fn verify(app: &App, store: &Store, repair: bool, cancel: &Cancel) -> Result<u8> {
    let findings = store.verify(repair, cancel)?;
    let mut bad = 0;
    for finding in &findings {
        let done = if finding.repaired { " (removed)" } else { "" };
        let kind = if finding.is_harmless() { "note" } else { "damaged" };
        app.print(&format!("{kind}: {}: {}{done}\n", finding.what, finding.problem))?;
        if !finding.is_harmless() && !finding.repaired {
            bad += 1;
        }
    }
    if bad == 0 {
        app.say(&format!("{} is whole", store.root().display()));
        return Ok(0);
    }
    app.say(&format!(
        "{} damaged; `kollage store verify --repair` removes what is, and the next build makes it again",
        human::count(bad, "thing")
    ));
    Ok(1)
}

fn prune(app: &App, store: &Store, options: &PruneOptions, cancel: &Cancel) -> Result<u8> {
    let report = store.prune(options, cancel)?;
    for image in &report.images {
        app.print(&format!("{image}\n"))?;
    }
    let verb = if options.dry_run { "would remove" } else { "removed" };
    app.say(&format!(
        "{verb} {}: {}, {}, {}, {}, {}",
        human::size(report.freed),
        human::count(usize::try_from(report.layers).unwrap_or(usize::MAX), "layer"),
        human::count(usize::try_from(report.blobs).unwrap_or(usize::MAX), "blob"),
        human::count(usize::try_from(report.steps + report.results).unwrap_or(usize::MAX), "record"),
        human::count(usize::try_from(report.caches).unwrap_or(usize::MAX), "cache mount"),
        human::count(usize::try_from(report.runs).unwrap_or(usize::MAX), "run"),
    ));
    Ok(0)
}
