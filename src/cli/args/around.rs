//! The store, runs that were, this machine, and help for shells and editors.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::cli::args::{TableFormat, TextOrJson};

#[derive(Debug, Args)]
pub struct Doctor {
    /// How to show it
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: TextOrJson,
}

#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// Which file's
    #[arg(value_name = "FILE", required_unless_present = "output")]
    pub file: Option<SchemaFile>,
    /// Write all of them here, as FILE.json
    #[arg(short, long, value_name = "DIR", conflicts_with = "file")]
    pub output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SchemaFile {
    Kollage,
    Image,
    Plugin,
    Release,
    Overlay,
    Lock,
    Start,
    Deployment,
}

#[derive(Debug, Args)]
pub struct Completions {
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

#[derive(Debug, Args)]
pub struct Man {
    /// Directory to write to; made when it isn't there
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

#[derive(Debug, Args)]
pub struct Report {
    /// Name of a run, its beginning, or `last`
    #[arg(value_name = "RUN", conflicts_with = "list")]
    pub run: Option<String>,
    /// The page to write; `-` is standard output
    #[arg(short, long = "output", value_name = "FILE", default_value = "kollage-report.html", conflicts_with = "list")]
    pub output: PathBuf,
    /// List the runs that are recorded
    #[arg(long)]
    pub list: bool,
    /// Page or list, or on standard output everything that is recorded as JSON, or a table of Markdown
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: TableFormat,
}

#[derive(Debug, Args)]
pub struct StoreArgs {
    #[command(subcommand)]
    pub command: StoreCommand,
}

#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// List the images in the store and their sizes
    Ls {
        /// How to show them
        #[arg(long, value_name = "FORMAT", default_value = "text")]
        format: TextOrJson,
    },
    /// Check everything in the store against its digest
    Verify {
        /// Remove what is damaged, so that the next build makes it again
        #[arg(long)]
        repair: bool,
    },
    /// Remove what no named image needs
    Prune {
        /// Remove named images as well, and the directories of cache mounts
        #[arg(long)]
        all: bool,
        /// Of these and of what nothing names, only what was not used for so many days
        #[arg(long, value_name = "DAYS")]
        unused_for: Option<u64>,
        /// Only show what would be removed
        #[arg(long)]
        dry_run: bool,
    },
}
