//! Kolla trees: built as they stand, imported, or in the place of a catalogue.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

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
