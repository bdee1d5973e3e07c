//! How images are pushed, and how registries are talked to.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::cli::args::{Progress, Settings, positive, size};

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
