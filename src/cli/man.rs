//! `kollage man`: one page for the program and one for each command.

use clap::CommandFactory as _;

use crate::cli::App;
use crate::cli::args::{Cli, Man};
use crate::error::{Context as _, Result};

pub fn run(app: &App, args: &Man) -> Result<u8> {
    let dir = &args.dir;
    std::fs::create_dir_all(dir).unusable(|| format!("cannot create the directory `{}`", dir.display()))?;
    clap_mangen::generate_to(Cli::command(), dir)
        .unusable(|| format!("cannot write manual pages to `{}`", dir.display()))?;
    app.say(&format!("wrote manual pages to {0}; `man -l {0}/kollage.1` shows the first", dir.display()));
    Ok(0)
}
