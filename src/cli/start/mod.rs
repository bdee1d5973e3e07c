//! `kollage start ls|pack|check|adopt`

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cli::App;
use crate::cli::args::{StartCommand, TextOrJson};
use crate::cli::workspace::catalogue_root;
use crate::error::Result;
use crate::report::style::Paint;
use crate::report::table::{Cell, Table};
use crate::start::Definitions;
use crate::start::bundle::{Bundle, PROGRAM};
use crate::start::runtime::Runtime;

mod image;
mod pack;

pub fn run(app: &App, command: &StartCommand) -> Result<u8> {
    match command {
        StartCommand::Ls { format } => ls(app, *format),
        StartCommand::Pack { output, runtime } => pack::run(app, output, runtime.as_deref()),
        StartCommand::Check(args) => image::check(app, args),
        StartCommand::Adopt(args) => image::adopt(app, args),
    }
}

fn ls(app: &App, format: TextOrJson) -> Result<u8> {
    let definitions = Definitions::load(&catalogue_root(&app.global)?)?;
    if format == TextOrJson::Json {
        let services = definitions.services.values().map(|(folder, service)| {
            let tasks = service
                .tasks
                .iter()
                .map(|task| json!({"name": task.name, "summary": task.summary, "variable": task.variable}));
            json!({
                "name": service.name,
                "summary": service.summary,
                "file": folder.join("start.toml"),
                "command": service.command,
                "user": service.user,
                "tasks": tasks.collect::<Vec<Value>>(),
                "health": service.health,
            })
        });
        app.print_json(&Value::Array(services.collect()))?;
        return Ok(0);
    }
    let mut table = Table::with_heading(&["service", "user", "tasks", ""]);
    for (_, service) in definitions.services.values() {
        let tasks: Vec<&str> = service.tasks.iter().map(|task| task.name.as_str()).collect();
        table.row([
            Cell::new(&service.name).paint(Paint::Strong),
            Cell::new(service.user.as_ref().map_or("root", |user| user.name.as_str())),
            Cell::new(tasks.join(" ")),
            Cell::new(&service.summary).paint(Paint::Dim),
        ]);
    }
    let (look, width) = app.table_look();
    app.print(&table.render(look, width))?;
    Ok(0)
}

/// All definitions of the catalogue, with the runtime that was named or that is beside this program.
fn bundle(app: &App, runtime: Option<&Path>) -> Result<(Definitions, Bundle)> {
    let root = catalogue_root(&app.global)?;
    let definitions = Definitions::load(&root)?;
    let mut places = vec![root.join("target/start").join(PROGRAM)];
    places.extend(beside());
    let bundle = Bundle::new(&definitions, Runtime::find(runtime, &places)?)?;
    Ok((definitions, bundle))
}

fn beside() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.with_file_name(PROGRAM))
}
