//! `kollage schema`

use clap::ValueEnum;
use serde_json::Value;

use crate::catalogue::schema::{File, schema};
use crate::cli::App;
use crate::cli::args::{SchemaArgs, SchemaFile};
use crate::error::{Context as _, Result};
use crate::{deploy, lock, start};

pub fn run(app: &App, args: &SchemaArgs) -> Result<u8> {
    if let Some(file) = args.file {
        app.print_json(&of(file).1)?;
    }
    if let Some(dir) = &args.output {
        std::fs::create_dir_all(dir).unusable(|| format!("cannot create the directory `{}`", dir.display()))?;
        for file in SchemaFile::value_variants() {
            let (name, schema) = of(*file);
            let path = dir.join(format!("{name}.json"));
            let text = serde_json::to_string_pretty(&schema).failed(|| "cannot write JSON".into())?;
            std::fs::write(&path, text + "\n").unusable(|| format!("cannot write `{}`", path.display()))?;
            app.say(&format!("wrote {}", path.display()));
        }
    }
    Ok(0)
}

fn of(file: SchemaFile) -> (&'static str, Value) {
    let of_catalogue = |file: File| (file.as_str(), schema(file));
    match file {
        SchemaFile::Kollage => of_catalogue(File::Kollage),
        SchemaFile::Image => of_catalogue(File::Image),
        SchemaFile::Plugin => of_catalogue(File::Plugin),
        SchemaFile::Release => of_catalogue(File::Release),
        SchemaFile::Overlay => of_catalogue(File::Overlay),
        SchemaFile::Lock => (lock::FILE, lock::schema::schema()),
        SchemaFile::Start => ("start", start::schema::schema()),
        SchemaFile::Deployment => ("deployment", deploy::schema::schema()),
    }
}
