//! The command line as it is typed: names of commands and flags, their help, and nothing about what they do.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::cli::environment::Environment;
use crate::dockerfile::step;
use crate::error::{Error, Result};
use crate::report::progress::Mode;

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

#[derive(Debug, Args)]
pub struct KollaBuild {
    /// What kolla-build would be given, and `--kolla DIR` for the tree
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<std::ffi::OsString>,
}

#[derive(Debug, Args)]
pub struct ImportKolla {
    /// The Kolla tree: a checkout, or the prefix that its package is installed in
    #[arg(value_name = "TREE")]
    pub tree: PathBuf,
    /// Directory to write the catalogue to; made when it isn't there, and never written to when something is in it
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// Images by name or glob (`nova-*`), or `re:` and a regular expression; with what they are built on [default: all]
    #[arg(long, value_name = "PATTERN")]
    pub images: Vec<String>,
    /// Compare what was written with what Kolla's Dockerfiles do: step by step, or by building both on Kollage's own engine
    /// (=build); exit code 4 when something differs
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "steps")]
    pub verify: Option<VerifyImport>,
    /// A distribution, the first one for the catalogue's own [default: all that the tree knows, Kolla's own first]
    #[arg(short, long, value_name = "NAME")]
    pub base: Vec<String>,
    /// The image to build on, as of kolla-build; also bootstrap:debian/trixie, rootfs:FILE, oci:DIR, docker-archive:FILE
    #[arg(long, value_name = "IMAGE")]
    pub base_image: Option<String>,
    /// The tag of the image to build on
    #[arg(long, value_name = "TAG")]
    pub base_tag: Option<String>,
    /// A configuration file of kolla-build; later ones win [default: /etc/kolla/kolla-build.conf]
    #[arg(long, value_name = "FILE")]
    pub config_file: Vec<PathBuf>,
    /// A template override of kolla-build
    #[arg(long, value_name = "FILE")]
    pub template_override: Vec<PathBuf>,
}

/// A Kolla tree in the place of a catalogue.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Kolla")]
pub struct KollaTree {
    /// A Kolla tree instead of a catalogue: a checkout, or the prefix that its package is installed in
    #[arg(long, value_name = "DIR", conflicts_with = "directory")]
    pub kolla: Option<PathBuf>,
    /// The distribution, as of kolla-build
    #[arg(long, value_name = "NAME", requires = "kolla")]
    pub base: Option<String>,
    /// The image to build on, as of kolla-build; also bootstrap:debian/trixie, rootfs:FILE, oci:DIR, docker-archive:FILE
    #[arg(long, value_name = "IMAGE", requires = "kolla")]
    pub base_image: Option<String>,
    /// A configuration file of kolla-build; later ones win [default: /etc/kolla/kolla-build.conf]
    #[arg(long, value_name = "FILE", requires = "kolla")]
    pub config_file: Vec<PathBuf>,
    /// A template override of kolla-build
    #[arg(long, value_name = "FILE", requires = "kolla")]
    pub template_override: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum VerifyImport {
    Steps,
    Build,
}

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

#[derive(Debug, Args)]
pub struct Build {
    #[command(flatten)]
    pub select: Select,
    #[command(flatten)]
    pub settings: Settings,
    #[command(flatten)]
    pub one: OneDockerfile,
    #[command(flatten)]
    pub how: How,
    #[command(flatten)]
    pub results: Results,
    /// Push the images when all of them are built
    #[arg(long, help_heading = "Pushing")]
    pub push: bool,
    #[command(flatten)]
    pub pushing: Pushing,
    #[command(flatten)]
    pub registries: Registries,
}

/// How images are pushed.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Pushing")]
pub struct Pushing {
    /// Move each name as soon as its image is there, not all together at the end
    #[arg(long)]
    pub push_each: bool,
    /// Blobs that go to a registry at the same time [default: 4]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub push_jobs: Option<usize>,
    /// Longest body of a request, for registries and proxies that take no more [default: found out]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub push_chunk: Option<u64>,
    /// Media types of what is pushed
    #[arg(long = "format", value_name = "FORMAT", default_value = "oci", id = "image_format")]
    pub format: ImageFormat,
    /// Compression of layers [default: as they are in the store]
    #[arg(long, value_name = "CODEC")]
    pub compression: Option<Compression>,
    /// Annotation of the manifests
    #[arg(long = "annotation", value_name = "NAME=VALUE")]
    pub annotations: Vec<String>,
    /// Write the catalogue's repository and commit into annotations of the manifests, or into labels
    #[arg(long, value_name = "WHERE", num_args = 0..=1, require_equals = true, default_missing_value = "annotations")]
    pub git_info: Option<GitInfo>,
    /// Where what names led to before and lead to now is written [default: releases/ in the store]
    #[arg(long, value_name = "FILE")]
    pub release_file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ImageFormat {
    #[default]
    Oci,
    Docker,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Compression {
    Gzip,
    Zstd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GitInfo {
    Annotations,
    Labels,
    Both,
}

/// How registries are talked to.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Registries")]
pub struct Registries {
    /// File with logins, instead of those that podman and docker keep
    #[arg(long, value_name = "FILE")]
    pub authfile: Option<PathBuf>,
    /// With `false`, certificates are not verified, and plain HTTP will do
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          action = clap::ArgAction::Set)]
    pub tls_verify: Option<bool>,
    /// Directory with certificates of authorities (*.crt) and of this client (*.cert, *.key)
    #[arg(long, value_name = "DIR")]
    pub cert_dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Push {
    /// Images by name or glob (`neutron-*`), or `re:` and a regular expression [default: all of the catalogue that are
    /// built; elsewhere none]
    #[arg(value_name = "PATTERN")]
    pub patterns: Vec<String>,
    /// Images of a profile; adds to the patterns
    #[arg(short, long = "profile", value_name = "NAME")]
    pub profiles: Vec<String>,
    /// Images of the store, whatever the catalogue says
    #[arg(long, conflicts_with = "profiles")]
    pub all: bool,
    /// Take a release back: names lead again to what they led to before
    #[arg(long, value_name = "FILE", conflicts_with_all = ["patterns", "profiles", "all"])]
    pub rollback: Option<PathBuf>,
    /// With --rollback: also what was moved again since
    #[arg(long, requires = "rollback")]
    pub force: bool,
    /// How to show progress
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub progress: Progress,
    #[command(flatten)]
    pub settings: Settings,
    #[command(flatten)]
    pub pushing: Pushing,
    #[command(flatten)]
    pub registries: Registries,
}

/// A single Dockerfile instead of a catalogue.
#[derive(Debug, Args)]
#[command(next_help_heading = "One Dockerfile instead of a catalogue")]
pub struct OneDockerfile {
    /// Build this Dockerfile; `-` reads it from standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["profiles", "plugins", "patterns"])]
    pub dockerfile: Option<PathBuf>,
    /// Its context [default: the directory of the Dockerfile]
    #[arg(long, value_name = "DIR", requires = "dockerfile")]
    pub context: Option<PathBuf>,
    /// Name of the result
    #[arg(short = 't', long = "name", value_name = "NAME[:TAG]", requires = "dockerfile")]
    pub names: Vec<String>,
    /// Stage to build [default: the last one]
    #[arg(long, value_name = "STAGE", requires = "dockerfile")]
    pub target: Option<String>,
    /// What a name in FROM, COPY --from and RUN --mount=from means: a directory, docker-image://NAME,
    /// oci-layout://DIR[:NAME], or the address of a git repository or a file
    #[arg(long = "build-context", value_name = "NAME=VALUE", requires = "dockerfile")]
    pub build_contexts: Vec<String>,
    /// Label to put on the result
    #[arg(long = "label", value_name = "NAME=VALUE", requires = "dockerfile")]
    pub labels: Vec<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "How to build")]
pub struct How {
    /// What carries the build out: embedded, docker or buildkit [default: `[engine] default`]
    #[arg(long, value_name = "NAME")]
    pub engine: Option<String>,
    /// Build the selected images on another engine as well, and report what differs (exit code 4)
    #[arg(long, value_name = "NAME")]
    pub verify_engine: Option<String>,
    #[command(flatten)]
    pub builders: Builders,
    /// Images that are built at once [default: one for each processor]
    #[arg(short, long, value_name = "N", value_parser = positive)]
    pub jobs: Option<usize>,
    /// Stop everything at the first failure, not only what needs the failed image
    #[arg(long)]
    pub fail_fast: bool,
    #[command(flatten)]
    pub again: Again,
    /// Fetch or bootstrap base images again
    #[arg(long)]
    pub pull: bool,
    /// What the layers of this build and its running steps may take on the disk
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub disk_limit: Option<u64>,
    /// Secret for RUN --mount=type=secret
    #[arg(long = "secret", value_name = "id=ID[,src=FILE|,env=NAME]")]
    pub secrets: Vec<String>,
    /// ssh-agent or keys for RUN --mount=type=ssh
    #[arg(long = "ssh", value_name = "default|ID[=SOCKET|KEY[,KEY]]")]
    pub ssh: Vec<String>,
    /// Let RUN have network.host or security.insecure
    #[arg(long = "allow", value_name = "NAME")]
    pub allow: Vec<String>,
    /// End a step that takes longer [default: no limit]
    #[arg(long, value_name = "DURATION")]
    pub step_timeout: Option<String>,
    /// How often steps and downloads are tried again after network failures [default: 2]
    #[arg(long, value_name = "N")]
    pub retries: Option<u32>,
    /// Make one layer of all that an image adds to its base
    #[arg(long)]
    pub squash: bool,
    #[command(flatten)]
    pub surroundings: Surroundings,
}

/// Of the engine buildkit.
#[derive(Clone, Debug, Default, Args)]
pub struct Builders {
    /// Builder of the engine buildkit, again for each further one: unix:///PATH, tcp://HOST:PORT or tls://HOST:PORT
    #[arg(long = "builder", value_name = "ADDRESS")]
    pub builders: Vec<String>,
    /// Where results of builders meet [default: /work below the registry and namespace of image names]
    #[arg(long, value_name = "REGISTRY/NAME")]
    pub builder_repository: Option<String>,
}

/// Which steps are carried out again although the store has their results.
#[derive(Clone, Debug, Default, Args)]
pub struct Again {
    /// Run every step again, or those of some stages
    #[arg(long, value_name = "STAGE[,STAGE]", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_delimiter = ',')]
    pub no_cache: Vec<String>,
    /// Run the steps of these stages again, as docker buildx has it
    #[arg(long, value_name = "STAGE[,STAGE]", value_delimiter = ',')]
    pub no_cache_filter: Vec<String>,
}

/// What RUN steps find around them, besides their files.
#[derive(Clone, Debug, Default, Args)]
pub struct Surroundings {
    /// Network of RUN steps: host or none
    #[arg(long, value_name = "MODE")]
    pub network: Option<Network>,
    /// Line in the /etc/hosts of RUN steps; `host-gateway` is this machine
    #[arg(long = "add-host", value_name = "NAME=ADDRESS")]
    pub hosts: Vec<String>,
    /// Resource limit of RUN steps; -1 is none
    #[arg(long = "ulimit", value_name = "NAME=SOFT[:HARD]")]
    pub ulimits: Vec<String>,
    /// Size of /dev/shm in RUN steps [default: 64m]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub shm_size: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Network {
    Default,
    Host,
    None,
}

impl Network {
    pub fn typed(self) -> step::Network {
        match self {
            Network::Default => step::Network::Default,
            Network::Host => step::Network::Host,
            Network::None => step::Network::None,
        }
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Progress and results")]
pub struct Results {
    /// How to show progress
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub progress: Progress,
    /// End with a line for each image instead of a summary that fits a screen
    #[arg(short, long)]
    pub verbose: bool,
    /// Write the images: type=oci|docker|tar|local,dest=PATH; type=docker alone loads them into Docker or Podman
    #[arg(short, long = "output", value_name = "SPEC")]
    pub outputs: Vec<String>,
    /// Write what was built, failed and skipped
    #[arg(long, value_name = "FILE")]
    pub summary_json_file: Option<PathBuf>,
    /// Write digests by image, as docker buildx bake does
    #[arg(long, value_name = "FILE")]
    pub metadata_file: Option<PathBuf>,
    /// Write figures of the run in the OpenMetrics format, for the node exporter of Prometheus
    #[arg(long, value_name = "FILE")]
    pub metrics_file: Option<PathBuf>,
    /// Directory for one log a image [default: logs/ in the store]
    #[arg(long, value_name = "DIR")]
    pub logs_dir: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Progress {
    #[default]
    Auto,
    Tty,
    Plain,
    Rawjson,
    Quiet,
}

impl Progress {
    /// The flag, else KOLLAGE_PROGRESS.
    pub fn mode(self, env: &Environment) -> Result<Mode> {
        Ok(match (self, env.progress.as_deref()) {
            (Progress::Auto, Some(name)) => {
                name.parse().map_err(|e: String| Error::bad_input(format!("KOLLAGE_PROGRESS: {e}")))?
            }
            (Progress::Auto, None) => Mode::Auto,
            (Progress::Tty, _) => Mode::Tty,
            (Progress::Plain, _) => Mode::Plain,
            (Progress::Rawjson, _) => Mode::RawJson,
            (Progress::Quiet, _) => Mode::Quiet,
        })
    }
}

#[derive(Debug, Args)]
pub struct Plan {
    #[command(flatten)]
    pub select: Select,
    #[command(flatten)]
    pub tree: KollaTree,
    #[command(flatten)]
    pub settings: Settings,
    #[command(flatten)]
    pub again: Again,
    #[command(flatten)]
    pub surroundings: Surroundings,
    /// As if every image became one layer on its base
    #[arg(long)]
    pub squash: bool,
    /// What would carry the build out: embedded, docker or buildkit [default: `[engine] default`]
    #[arg(long, value_name = "NAME")]
    pub engine: Option<String>,
    #[command(flatten)]
    pub builders: Builders,
    /// As if base images had to be fetched again
    #[arg(long)]
    pub pull: bool,
    /// Images that would be built at once, for the expected time [default: one for each processor]
    #[arg(short, long, value_name = "N", value_parser = positive)]
    pub jobs: Option<usize>,
    /// Show the merged definition of an image or plugin instead, with where each value comes from
    #[arg(long, value_name = "NAME")]
    pub explain: Option<String>,
    /// How to show the plan
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: TextOrJson,
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

#[derive(Debug, Args)]
pub struct RunArgs {
    /// Image: its name in the catalogue, or a name that the store knows
    #[arg(value_name = "IMAGE")]
    pub image: String,
    /// Command to run instead of the image's own; a `--` before it is left out
    #[arg(value_name = "CMD", trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<String>,
    /// Give it a terminal of its own
    #[arg(short, long)]
    pub tty: bool,
    /// Let it read standard input; it always does, so this is for those who are used to typing `-it`
    #[arg(short, long)]
    pub interactive: bool,
    /// User to run as
    #[arg(short, long, value_name = "USER[:GROUP]")]
    pub user: Option<String>,
    /// Environment variable; without a value, that of the environment
    #[arg(short, long = "env", value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// Working directory
    #[arg(short, long, value_name = "DIR")]
    pub workdir: Option<String>,
    /// Command to use in place of the image's entry point; empty for none
    #[arg(long, value_name = "CMD")]
    pub entrypoint: Option<String>,
    /// Network: host or none
    #[arg(long, value_name = "MODE")]
    pub network: Option<Network>,
}

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
pub struct ShellArgs {
    /// Image by its name in the catalogue or the store. IMAGE@STEP is the state after a step of an image of the catalogue,
    /// or before it, when it failed: a number or a part of its title, as a build shows them, or `last` for the last
    /// one that succeeded
    #[arg(value_name = "IMAGE[@STEP]")]
    pub image: String,
    /// Command to run instead of a shell
    #[arg(value_name = "CMD", last = true)]
    pub command: Vec<String>,
    /// The state before the step, although it succeeded
    #[arg(long)]
    pub before: bool,
    /// Show the steps of the image, and which of them are in the store
    #[arg(long, conflicts_with_all = ["command", "before"])]
    pub list: bool,
    /// User to run as [default: that of the image or step]
    #[arg(short, long, value_name = "USER[:GROUP]")]
    pub user: Option<String>,
    #[command(flatten)]
    pub settings: Settings,
    #[command(flatten)]
    pub surroundings: Surroundings,
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
pub struct StartArgs {
    #[command(subcommand)]
    pub command: StartCommand,
}

#[derive(Debug, Subcommand)]
pub enum StartCommand {
    /// List the services that there are start definitions of, and their tasks
    Ls {
        /// How to show them
        #[arg(long, value_name = "FORMAT", default_value = "text")]
        format: TextOrJson,
    },
    /// Write the start runtime and all definitions as one bundle
    Pack {
        /// Where to and as what: FILE.tar.gz, FILE.tar.zst, FILE.tar, dir:DIR, oci:DIR[:NAME] or docker[:NAME]
        #[arg(short, long, value_name = "SPEC")]
        output: String,
        /// The runtime [default: target/start/kollage-start of the catalogue, or kollage-start beside this program]
        #[arg(long, value_name = "FILE")]
        runtime: Option<PathBuf>,
        /// Engine for `docker` [default: DOCKER_HOST, or where Docker or Podman usually listens]
        #[arg(long, value_name = "ADDRESS")]
        host: Option<String>,
    },
    /// Push the start runtime and all definitions as an image that can be mounted, or as an artifact
    Push(Box<StartPush>),
    /// Say what a service needs of an image, and whether the image has it
    Check(StartCheck),
    /// Make an image that starts by its service's definition of any image: one layer more, nothing built again
    Adopt(Box<StartAdopt>),
}

#[derive(Debug, Args)]
pub struct StartPush {
    /// Name to push to, with its registry
    #[arg(value_name = "REF")]
    pub reference: String,
    /// As an OCI artifact: one file, for tools that bring files from registries
    #[arg(long)]
    pub artifact: bool,
    /// The runtime [default: target/start/kollage-start of the catalogue, or kollage-start beside this program]
    #[arg(long, value_name = "FILE")]
    pub runtime: Option<PathBuf>,
    #[command(flatten)]
    pub pushing: Pushing,
    #[command(flatten)]
    pub registries: Registries,
}

#[derive(Debug, Args)]
pub struct StartCheck {
    /// Image by its name in the store, oci:DIR[:NAME], docker-archive:FILE[:NAME], or its name in a registry
    #[arg(value_name = "IMAGE")]
    pub image: String,
    /// Service [default: what the image says, or its name]
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
    /// How to show it
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: TextOrJson,
    #[command(flatten)]
    pub registries: Registries,
}

#[derive(Debug, Args)]
pub struct StartAdopt {
    /// Image by its name in the store, oci:DIR[:NAME], docker-archive:FILE[:NAME], or its name in a registry
    #[arg(value_name = "IMAGE")]
    pub image: String,
    /// Service [default: what the image says, or its name]
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
    /// Name of the new image in the store; with a registry in front it is pushed there, from a registry without fetching
    /// the image's layers
    #[arg(short = 't', long = "name", value_name = "NAME[:TAG]")]
    pub name: String,
    /// Fetch the layers of an image of a registry, and check it like others
    #[arg(long)]
    pub check: bool,
    /// The runtime [default: target/start/kollage-start of the catalogue, or kollage-start beside this program]
    #[arg(long, value_name = "FILE")]
    pub runtime: Option<PathBuf>,
    #[command(flatten)]
    pub pushing: Pushing,
    #[command(flatten)]
    pub registries: Registries,
}

#[derive(Debug, Args)]
pub struct DeployArgs {
    #[command(subcommand)]
    pub command: DeployCommand,
}

#[derive(Debug, Subcommand)]
pub enum DeployCommand {
    /// Write files for Compose, Podman's Quadlet or Kubernetes, or show what would change
    Render(DeployRender),
    /// Make what runs on this host what the deployment says
    Up(DeployUp),
    /// Stop and remove services; their data stays
    Down(DeployDown),
    /// Show how services are, and what `up` would change
    Status(DeployStatus),
    /// Run a task of a service: a backup, a restore, and whatever else its start definition has
    Task(DeployTask),
}

/// The engine, and which services.
#[derive(Debug, Args)]
pub struct Running {
    /// Services, with all that they need [default: all]
    #[arg(value_name = "SERVICE")]
    pub services: Vec<String>,
    #[command(flatten)]
    pub engine: AtHost,
}

#[derive(Debug, Args)]
pub struct AtHost {
    /// Engine [default: DOCKER_HOST, or where Docker or Podman usually listens]
    #[arg(long, value_name = "ADDRESS")]
    pub host: Option<String>,
}

#[derive(Debug, Args)]
pub struct DeployUp {
    #[command(flatten)]
    pub running: Running,
    #[command(flatten)]
    pub deployment: Deployment,
    /// Show what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Args)]
pub struct DeployDown {
    #[command(flatten)]
    pub running: Running,
    #[command(flatten)]
    pub deployment: Deployment,
    /// Remove their volumes as well, with all data
    #[arg(long)]
    pub volumes: bool,
}

#[derive(Debug, Args)]
pub struct DeployStatus {
    #[command(flatten)]
    pub running: Running,
    #[command(flatten)]
    pub deployment: Deployment,
    /// How to show it
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: TextOrJson,
}

#[derive(Debug, Args)]
pub struct DeployTask {
    /// Service
    #[arg(value_name = "SERVICE")]
    pub service: String,
    /// Task of its start definition; one that takes the service stopped stops it, and starts it again
    #[arg(value_name = "TASK")]
    pub task: String,
    /// Variable for the task; without a value it comes from the environment, as it has to for a secret
    #[arg(short, long = "env", value_name = "NAME[=VALUE]")]
    pub environment: Vec<String>,
    #[command(flatten)]
    pub engine: AtHost,
    #[command(flatten)]
    pub deployment: Deployment,
}

/// Which deployment, and what the catalogue calls its images.
#[derive(Debug, Args)]
pub struct Deployment {
    /// The deployment
    #[arg(short, long, value_name = "FILE", default_value = "deployment.toml")]
    pub file: PathBuf,
    #[command(flatten)]
    pub settings: Settings,
}

#[derive(Debug, Args)]
pub struct DeployRender {
    #[command(flatten)]
    pub deployment: Deployment,
    /// What to write
    #[arg(long, value_name = "TARGET")]
    pub target: DeployTarget,
    /// Directory to write to; made when it isn't there
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// Copy a bundle's image by an init container, where Kubernetes is older than 1.33 and mounts no images
    #[arg(long)]
    pub bundle_by_init: bool,
    /// Write nothing; exit with 4 if something would change
    #[arg(long)]
    pub check: bool,
    /// Write nothing; show what would change, and exit with 4 if something would
    #[arg(long)]
    pub diff: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DeployTarget {
    /// A Compose file
    Compose,
    /// Podman's systemd units
    Quadlet,
    /// Manifests
    Kubernetes,
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

fn size(text: &str) -> Result<u64, String> {
    crate::quantity::bytes(text).filter(|bytes| *bytes > 0).ok_or_else(|| "write it as `500m` or `20g`".to_owned())
}

fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "it is a number from 1 on".to_owned())
}
