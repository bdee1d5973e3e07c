//! What builds, and plans of builds, are told.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::cli::args::{KollaTree, Pushing, Registries, Select, Settings, TextOrJson, positive, size};
use crate::cli::environment::Environment;
use crate::dockerfile::step;
use crate::error::{Error, Result};
use crate::report::progress::Mode;

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
