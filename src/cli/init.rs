//! `kollage init`

use crate::catalogue;
use crate::cli::App;
use crate::cli::args::Init;
use crate::error::Result;

pub fn run(app: &App, args: &Init) -> Result<u8> {
    let written = catalogue::init(&args.dir)?;
    for path in &written {
        app.say(&format!("wrote {}", path.display()));
    }
    let inside = match args.dir.as_os_str() == "." {
        true => String::new(),
        false => format!(" -C {}", args.dir.display()),
    };
    app.say(&format!("\nNext: kollage{inside} plan shows what would be built, kollage{inside} build builds it"));
    Ok(0)
}
