//! The command line as it is typed: names of commands and flags, their help, and nothing about what they do.

mod around;
mod build;
mod catalogue;
mod deploy;
mod kolla;
mod registry;
mod run;
mod start;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::error::Result;

pub use around::*;
pub use build::*;
pub use catalogue::*;
pub use deploy::*;
pub use kolla::*;
pub use registry::*;
pub use run::*;
pub use start::*;

#[derive(Debug, Parser)]
#[command(
    name = "kollage",
    version,
    about = "Build families of interdependent container images, in parallel and without a daemon",
    long_about = "Build families of interdependent container images from a typed catalogue, in parallel and without a \
                  daemon; plugins are layers of their own, and everything is content-addressed.",
    after_help = "Start with `kollage init DIR`, or run `kollage list` where a kollage.toml is.\n\
                  Exit codes: 0 done, 1 something failed, 2 the command line or a definition is wrong, 3 the machine \
                  or a registry is not usable, 4 a check found a difference, 130 interrupted.",
    disable_help_subcommand = true,
    propagate_version = true
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Directory of the catalogue [default: the nearest one upwards with a kollage.toml]
    #[arg(short = 'C', long = "directory", value_name = "DIR", global = true)]
    pub directory: Option<PathBuf>,
    /// Where blobs, layers and images are kept [default: /var/lib/kollage for root, else $XDG_DATA_HOME/kollage]
    #[arg(long, value_name = "DIR", global = true)]
    pub store: Option<PathBuf>,
    /// When to use colours
    #[arg(long, value_name = "WHEN", default_value = "auto", hide_possible_values = false, global = true)]
    pub color: Color,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write a small catalogue to start from
    Init(Init),
    /// Build images
    Build(Box<Build>),
    /// Show what a build would do with each image, and why
    Plan(Box<Plan>),
    /// Push images that are built to a registry, or take a release back
    Push(Box<Push>),
    /// List images, profiles or plugins
    List(List),
    /// List plugins, and check whether they fit what they are put on
    Plugin(PluginArgs),
    /// Show what images weigh, by image or by layer
    Images(Images),
    /// Draw the build graph
    Graph(GraphArgs),
    /// Write the Dockerfile and the context of each image
    Render(Render),
    /// Look up what names that move stand for, and write it to kollage.lock
    Lock(Lock),
    /// Write the graph for docker buildx bake, or a pipeline for a CI
    Export(Export),
    /// Run a command in an image
    Run(RunArgs),
    /// Open a shell in an image, or in what one of its steps left
    Shell(ShellArgs),
    /// Look at how services are started, and bring that to images
    Start(StartArgs),
    /// Write a deployment's files for other tools, or run it on this host's engine
    Deploy(DeployArgs),
    /// Build a Kolla tree as it stands, by kolla-build's own command line
    ///
    /// Options, their defaults and their meaning are those of the tree's release; `kollage kolla-build --help` lists them.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    KollaBuild(KollaBuild),
    /// Write a Kolla tree as a catalogue that needs Kolla no more
    ///
    /// The templates are rendered as kolla-build renders them, for each distribution that the tree knows; packages, users,
    /// sources, plugins, parents and start scripts become definitions, the rest stays as each image's recipe.
    ImportKolla(ImportKolla),
    /// Show a run that was: its timeline, graph, sizes, reasons and failures
    Report(Report),
    /// Look at and look after the store
    Store(StoreArgs),
    /// Show what of this machine works, and how to mend what doesn't
    Doctor(Doctor),
    /// Write the JSON Schemas of a catalogue's files, for editors
    Schema(SchemaArgs),
    /// Write what makes a shell complete commands, images and profiles
    Completions(Completions),
    /// Write manual pages
    Man(Man),
    /// The reference of all commands, in Markdown: docs/reference/cli.md
    #[command(hide = true, name = "__reference")]
    Reference,
}

impl Command {
    /// Its files can have any owner, which takes root or a user namespace.
    pub fn uses_store(&self) -> bool {
        match self {
            Command::Build(_)
            | Command::Plan(_)
            | Command::Push(_)
            | Command::Run(_)
            | Command::Shell(_)
            | Command::Report(_)
            | Command::Lock(_)
            | Command::Store(_)
            | Command::Plugin(PluginArgs { command: PluginCommand::Check(_) })
            | Command::Images(_) => true,
            Command::Plugin(_) => false,
            // For bases that only Kollage can make.
            Command::Export(args) => args.format == ExportFormat::Bake,
            Command::Start(StartArgs {
                command: StartCommand::Check(_) | StartCommand::Adopt(_) | StartCommand::Push(_),
            }) => true,
            Command::Start(StartArgs { command: StartCommand::Pack { output, .. } }) => {
                output.starts_with("oci:") || output.starts_with("docker")
            }
            Command::Start(_) | Command::Deploy(_) => false,
            Command::Init(_) | Command::List(_) | Command::Graph(_) | Command::Render(_) => false,
            // Only a build needs it; what its options are is known later.
            Command::KollaBuild(args) => {
                let looks = [
                    "-l",
                    "--list-images",
                    "--list-dependencies",
                    "--template-only",
                    "--save-dependency",
                    "--help",
                    "-h",
                    "--version",
                ];
                !args.arguments.iter().any(|argument| looks.iter().any(|look| argument == *look))
            }
            Command::ImportKolla(args) => args.verify == Some(VerifyImport::Build),
            // It says what there is to be said about that.
            Command::Doctor(_) => false,
            Command::Schema(_) | Command::Completions(_) | Command::Man(_) | Command::Reference => false,
        }
    }
}

fn size(text: &str) -> Result<u64, String> {
    crate::quantity::bytes(text).filter(|bytes| *bytes > 0).ok_or_else(|| "write it as `500m` or `20g`".to_owned())
}

fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "it is a number from 1 on".to_owned())
}
