//! Deployments.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::cli::args::{Settings, TextOrJson};

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
