//! What is chosen of a catalogue, and what is made of it without a build.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::cli::args::{KollaTree, positive};

/// Which images of the catalogue.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Selection")]
pub struct Select {
    /// Images by name or glob (`neutron-*`), or `re:` and a regular expression [default: all]
    #[arg(value_name = "PATTERN")]
    pub patterns: Vec<String>,
    /// Images of a profile; adds to the patterns
    #[arg(short, long = "profile", value_name = "NAME")]
    pub profiles: Vec<String>,
    /// Plugins of an image, instead of those that it has by default; empty for none
    #[arg(long = "plugin", value_name = "IMAGE=PLUGIN[,PLUGIN]")]
    pub plugins: Vec<String>,
}

/// Settings of the catalogue that the command line can change.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Settings")]
pub struct Settings {
    /// First part of image names
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Tag of images
    #[arg(long, value_name = "TAG")]
    pub tag: Option<String>,
    /// Registry in front of image names
    #[arg(long, value_name = "HOST[:PORT]")]
    pub registry: Option<String>,
    /// Change any setting of kollage.toml
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Overlay to change the catalogue with; several come one over the other
    #[arg(long = "overlay", value_name = "DIR")]
    pub overlays: Vec<PathBuf>,
    /// Value of an ARG; without a value, that of the environment variable
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub build_arg: Vec<String>,
    /// Platforms to build for [default: this machine's]
    #[arg(long, value_name = "OS/ARCH[,OS/ARCH]", value_delimiter = ',')]
    pub platform: Vec<String>,
    /// Refuse whatever kollage.lock does not pin
    #[arg(long)]
    pub locked: bool,
}

#[derive(Debug, Args)]
pub struct Init {
    /// Directory to write to; made when it isn't there
    #[arg(value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TextOrJson {
    #[default]
    Text,
    Json,
}

#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    pub select: Select,
    #[command(flatten)]
    pub tree: KollaTree,
    #[command(flatten)]
    pub settings: Settings,
    /// What to list
    #[arg(long, value_name = "WHAT", default_value = "images")]
    pub what: ListWhat,
    /// How to show it
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: TextOrJson,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ListWhat {
    #[default]
    Images,
    Profiles,
    Plugins,
}

#[derive(Debug, Args)]
pub struct Images {
    /// Images by name or glob (`neutron-*`), or `re:` and a regular expression [default: all of the catalogue, or of the
    /// store where there is no catalogue]
    #[arg(value_name = "PATTERN")]
    pub patterns: Vec<String>,
    /// Images of a profile; adds to the patterns
    #[arg(short, long = "profile", value_name = "NAME")]
    pub profiles: Vec<String>,
    /// Images of the store, whatever the catalogue says
    #[arg(long, conflicts_with = "profiles")]
    pub all: bool,
    /// Show every layer and what made it
    #[arg(long)]
    pub layers: bool,
    #[command(flatten)]
    pub settings: Settings,
    /// How to show them
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: TableFormat,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TableFormat {
    #[default]
    Text,
    Json,
    Markdown,
}

#[derive(Debug, Args)]
pub struct PluginArgs {
    #[command(subcommand)]
    pub command: PluginCommand,
}

#[derive(Debug, Subcommand)]
pub enum PluginCommand {
    /// List plugins: the images that they fit, where they are chosen, what they require
    Ls(PluginLs),
    /// Check the chosen plugins: their definitions, and what their layers change where they are built
    Check(PluginCheck),
}

#[derive(Debug, Args)]
pub struct PluginLs {
    #[command(flatten)]
    pub settings: Settings,
    /// How to show them
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: TextOrJson,
}

#[derive(Debug, Args)]
pub struct PluginCheck {
    /// Images by name or glob [default: all]
    #[arg(value_name = "PATTERN")]
    pub patterns: Vec<String>,
    /// Plugins of an image, instead of those that it has by default; empty for none
    #[arg(long = "plugin", value_name = "IMAGE=PLUGIN[,PLUGIN]")]
    pub plugins: Vec<String>,
    #[command(flatten)]
    pub settings: Settings,
}

#[derive(Debug, Args)]
pub struct GraphArgs {
    #[command(flatten)]
    pub select: Select,
    #[command(flatten)]
    pub tree: KollaTree,
    #[command(flatten)]
    pub settings: Settings,
    /// Language to draw it in
    #[arg(long, value_name = "FORMAT", default_value = "dot")]
    pub format: GraphFormat,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum GraphFormat {
    #[default]
    Dot,
    Mermaid,
    Svg,
    Json,
}

#[derive(Debug, Args)]
pub struct Render {
    #[command(flatten)]
    pub select: Select,
    #[command(flatten)]
    pub tree: KollaTree,
    #[command(flatten)]
    pub settings: Settings,
    /// Directory to write to; one folder an image [default: show the Dockerfiles]
    #[arg(short, long = "output", value_name = "DIR")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Lock {
    #[command(flatten)]
    pub select: Select,
    #[command(flatten)]
    pub settings: Settings,
    /// Look up again what is locked already: all of it, or images, bases, addresses or packages by name
    #[arg(long, value_name = "NAME", num_args = 0..)]
    pub update: Option<Vec<String>>,
    /// Ask nobody; show what is missing or was found for another definition, and exit with 4 if something is
    #[arg(long, conflicts_with = "update")]
    pub check: bool,
    /// Images that are built at once [default: one for each processor]
    #[arg(short, long, value_name = "N", value_parser = positive)]
    pub jobs: Option<usize>,
    /// Secret for RUN --mount=type=secret
    #[arg(long = "secret", value_name = "id=ID[,src=FILE|,env=NAME]")]
    pub secrets: Vec<String>,
    /// ssh-agent or keys for RUN --mount=type=ssh
    #[arg(long = "ssh", value_name = "default|ID[=SOCKET|KEY[,KEY]]")]
    pub ssh: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Export {
    #[command(flatten)]
    pub select: Select,
    #[command(flatten)]
    pub settings: Settings,
    /// What to write
    #[arg(long, value_name = "FORMAT")]
    pub format: ExportFormat,
    /// Directory to write to for bake, file for a pipeline [default: show the pipeline]
    #[arg(short, long = "output", value_name = "DIR|FILE")]
    pub output: Option<PathBuf>,
    /// Write nothing; show what would change, and exit with 4 if something would
    #[arg(long, requires = "output")]
    pub check: bool,
    /// Where secrets come from, for the images that ask for them
    #[arg(long = "secret", value_name = "id=ID[,src=FILE|,env=NAME]")]
    pub secrets: Vec<String>,
    /// ssh-agent or keys, for the images that ask for them
    #[arg(long = "ssh", value_name = "default|ID[=SOCKET|KEY[,KEY]]")]
    pub ssh: Vec<String>,
    /// Label of the runners of GitHub or GitLab that build
    #[arg(long, value_name = "LABEL")]
    pub runner: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// docker-bake.json, with Dockerfiles and contexts beside it
    Bake,
    /// A workflow of GitHub Actions
    Github,
    /// A pipeline of GitLab CI
    Gitlab,
    /// A Task and a Pipeline of Tekton
    Tekton,
}
