//! `kollage start ls|pack`

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cli::App;
use crate::cli::args::{StartCommand, TextOrJson};
use crate::cli::workspace::{catalogue_root, source_date_epoch};
use crate::error::{Error, Result};
use crate::image::layer::compress::Codec;
use crate::report::style::Paint;
use crate::report::table::{Cell, Table};
use crate::start::Definitions;
use crate::start::bundle::{Bundle, PROGRAM};
use crate::start::runtime::Runtime;

pub fn run(app: &App, command: &StartCommand) -> Result<u8> {
    match command {
        StartCommand::Ls { format } => ls(app, *format),
        StartCommand::Pack { output, runtime } => pack(app, output, runtime.as_deref()),
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

/// Where a bundle goes.
enum Output<'a> {
    Tar(&'a Path, Codec),
    Directory(&'a Path),
}

impl Output<'_> {
    fn parse(text: &str) -> Result<Output<'_>> {
        let codecs =
            [(".tar.gz", Codec::Gzip), (".tgz", Codec::Gzip), (".tar.zst", Codec::Zstd), (".tar", Codec::None)];
        if let Some(dir) = text.strip_prefix("dir:").filter(|dir| !dir.is_empty()) {
            return Ok(Output::Directory(Path::new(dir)));
        }
        if let Some((_, codec)) = codecs.iter().find(|(end, _)| text.ends_with(end) && text.len() > end.len()) {
            return Ok(Output::Tar(Path::new(text), *codec));
        }
        Err(Error::bad_input(format!("`{text}` doesn't say what the bundle is written as"))
            .hint("write FILE.tar.gz, FILE.tar.zst, FILE.tar or dir:DIR"))
    }
}

fn pack(app: &App, output: &str, runtime: Option<&Path>) -> Result<u8> {
    let output = Output::parse(output)?;
    let bundle = bundle(app, runtime)?;
    let dest = match output {
        Output::Tar(dest, codec) => {
            bundle.write_tar(dest, codec, source_date_epoch(&app.env)?.unwrap_or(0))?;
            dest
        }
        Output::Directory(dest) => {
            if dest.read_dir().is_ok_and(|mut there| there.next().is_some()) {
                return Err(Error::bad_input(format!("`{}` is there already, and isn't empty", dest.display())));
            }
            bundle.write_directory(dest)?;
            dest
        }
    };
    app.say(&format!("wrote {}", dest.display()));
    Ok(0)
}

/// All definitions of the catalogue, with the runtime that was named or that is beside this program.
fn bundle(app: &App, runtime: Option<&Path>) -> Result<Bundle> {
    let root = catalogue_root(&app.global)?;
    let definitions = Definitions::load(&root)?;
    let mut places = vec![root.join("target/start").join(PROGRAM)];
    places.extend(beside());
    Bundle::new(&definitions, Runtime::find(runtime, &places)?)
}

fn beside() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.with_file_name(PROGRAM))
}
