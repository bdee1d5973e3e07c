//! `kollage start ls|pack|push|check|adopt`

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::catalogue::{Catalogue, Settings};
use crate::cli::App;
use crate::cli::args::{self, Select, StartCommand, TextOrJson};
use crate::cli::workspace::{catalogue_root, config_files, overrides, wrong_definitions};
use crate::error::Result;
use crate::event::{Event, Sink};
use crate::report::style::{Look, Paint};
use crate::report::table::{Cell, Table};
use crate::report::text::one_line;
use crate::start::Definitions;
use crate::start::bundle::{Bundle, PROGRAM};
use crate::start::runtime::Runtime;

mod image;
mod pack;
mod push;

pub fn run(app: &App, command: &StartCommand) -> Result<u8> {
    match command {
        StartCommand::Ls { format } => ls(app, *format),
        StartCommand::Pack { output, runtime, host } => pack::run(app, output, runtime.as_deref(), host.as_deref()),
        StartCommand::Push(args) => push::run(app, args),
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

/// The machine's and the user's: a catalogue of start definitions needs no settings of its own.
fn settings(app: &App) -> Result<Settings> {
    let overrides = overrides(&app.env, &Select::default(), &args::Settings::default())?;
    Catalogue::settings_alone(&overrides, &config_files(&app.env)).map_err(wrong_definitions)
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

/// Shows what goes on behind as lines.
struct Told {
    look: Look,
}

impl Sink for Told {
    fn event(&self, event: Event) {
        let line = match event {
            Event::Background { title, .. } => self.look.paint(Paint::Dim, one_line(&title)),
            Event::Warning { message, .. } => {
                format!("{} {}", self.look.paint(Paint::Warning, "warning:"), one_line(&message))
            }
            _ => return,
        };
        // Nothing can be done about a closed stream.
        let _ = writeln!(io::stderr(), "{line}");
    }
}

fn beside() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.with_file_name(PROGRAM))
}
