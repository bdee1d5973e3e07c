//! `kollage schema`

use crate::catalogue::schema::{File, schema};
use crate::cli::App;
use crate::cli::args::SchemaArgs;
use crate::error::{Context as _, Result};

pub fn run(app: &App, args: &SchemaArgs) -> Result<u8> {
    if let Some(file) = args.file {
        app.print_json(&schema(file.typed()))?;
    }
    if let Some(dir) = &args.output {
        std::fs::create_dir_all(dir).unusable(|| format!("cannot create the directory `{}`", dir.display()))?;
        for file in File::ALL {
            let path = dir.join(format!("{}.json", file.as_str()));
            let text = serde_json::to_string_pretty(&schema(file)).failed(|| "cannot write JSON".into())?;
            std::fs::write(&path, text + "\n").unusable(|| format!("cannot write `{}`", path.display()))?;
            app.say(&format!("wrote {}", path.display()));
        }
    }
    Ok(0)
}
