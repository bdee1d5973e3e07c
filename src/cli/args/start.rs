//! How services are started.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::cli::args::{Pushing, Registries, TextOrJson};

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
