//! What carries a plan out. An engine knows no catalogue: it is handed typed jobs, one node at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::dockerfile::ast::Dockerfile;
use crate::dockerfile::step::{LoweredStage, StageBase};
use crate::error::{Error, Result};
use crate::event::{Cancel, Sink};
use crate::fetch::{Pin, Remote};
use crate::graph::key::Content;
use crate::image::config::{ImageConfig, Platform};
use crate::image::digest::{Digest, Key};
use crate::image::layer::changes::Change;

pub mod buildkit;
pub mod docker;
pub mod embedded;
pub mod emulation;
pub mod portable;
mod squash;
pub mod surroundings;

use surroundings::Surroundings;

/// Of threads that call an engine.
pub const STACK: usize = crate::image::layer::WALKING_STACK;

pub trait Engine: Send + Sync {
    fn name(&self) -> &'static str;

    /// What must hold before anything starts: rights, kernel, disk. All problems, not the first one.
    fn preflight(&self) -> Vec<crate::error::Error>;

    /// The result of an earlier run, when its files are still there.
    fn recall(&self, key: &Key) -> Result<Option<Built>>;

    /// An image that was built here under this name: FROM finds it before any registry is asked, as in Docker.
    fn named(&self, name: &str) -> Result<Option<Built>>;

    /// The configuration that a base will have, where that can be told before it is there.
    fn foresee(&self, source: &BaseSource, platform: &Platform) -> Option<ImageConfig>;

    /// What something elsewhere was when it was asked for the last time.
    fn known(&self, remote: &Remote) -> Option<Pin>;

    /// Asks what something elsewhere is now.
    fn pin(&self, remote: &Remote, ctl: &Ctl<'_>) -> Result<Pin>;

    /// Makes a base image available.
    fn base(&self, job: &BaseJob, ctl: &Ctl<'_>) -> Result<Built>;

    /// Builds one node. Returns as soon as children may start; see `finish` for the rest.
    fn build(&self, job: &BuildJob, ctl: &Ctl<'_>) -> Result<Built>;

    /// What the layers of an image from number `first` on do to the files of those below.
    fn changes(&self, built: &Built, first: usize) -> Result<Vec<Change>>;

    /// What only an export or a push needs (compression, manifest), and the image's names. Off the critical path.
    fn finish(&self, built: &Built, names: &[String], ctl: &Ctl<'_>) -> Result<Published>;
}

/// How a job talks to the run that it is part of.
#[derive(Clone, Copy)]
pub struct Ctl<'a> {
    pub node: &'a Arc<str>,
    pub sink: &'a dyn Sink,
    pub cancel: &'a Cancel,
}

/// A built image as children see it. Layers are named by their diff ids in `config.rootfs`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Built {
    pub key: Key,
    pub config: ImageConfig,
    /// Uncompressed size of all layers.
    pub size: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Published {
    /// Digest of the manifest.
    pub digest: Digest,
    /// Digest of the configuration, which Docker calls the image's id.
    pub config_digest: Digest,
    /// Compressed size of all layers.
    pub size: u64,
}

/// A base image and where it comes from.
#[derive(Clone, Debug)]
pub struct BaseJob {
    pub key: Key,
    pub source: BaseSource,
    pub platform: Platform,
    pub source_date_epoch: Option<i64>,
    /// What a remote source is.
    pub pin: Option<Pin>,
    /// Ask the source again although the store has an answer (`--pull`).
    pub refresh: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BaseSource {
    Bootstrap(Bootstrap),
    /// A directory with an OCI image layout; the reference name within it, when there are several.
    OciLayout {
        path: PathBuf,
        reference: Option<String>,
    },
    /// A file as `docker save` writes it.
    DockerArchive {
        path: PathBuf,
        reference: Option<String>,
    },
    /// A tar (gzip, zstd, xz, bzip2 or plain) of a root file system.
    RootfsTar {
        path: PathBuf,
    },
    /// `registry/repository:tag[@digest]`, Docker's short forms allowed.
    Registry {
        reference: String,
    },
    /// What .dockerignore leaves of a directory, as the files of an image that says nothing else.
    Directory {
        path: PathBuf,
    },
    /// The same of a repository, or the one file that a web address gives.
    Remote(Remote),
}

/// A Debian-family base made by mmdebstrap or debootstrap.
/// A moment of an archive that keeps what Debian had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Below it is `debian/20261130T000000Z/`.
    pub archive: String,
    /// `20261130T000000Z`
    pub moment: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bootstrap {
    /// `debian` or `ubuntu`.
    pub distribution: String,
    pub suite: String,
    /// None: the tool's own default.
    pub mirror: Option<String>,
    pub components: Vec<String>,
    pub keyring: Option<PathBuf>,
    /// mmdebstrap's variants: `minbase` by default.
    pub variant: String,
    pub packages: Vec<String>,
    /// None: what the mirror has.
    pub snapshot: Option<Box<Snapshot>>,
}

/// Everything that is needed to build one node.
#[derive(Clone)]
pub struct BuildJob {
    pub key: Key,
    /// The stages that the target needs, in an order in which each comes after those it needs; the last is the target.
    pub stages: Vec<LoweredStage>,
    /// The text, for engines that take a Dockerfile as it is, and for errors with a place.
    pub dockerfile: Arc<Dockerfile>,
    pub build_args: BTreeMap<String, String>,
    pub context: Arc<Context>,
    /// Digests of the context files of each step, by stage index and position in the stage.
    pub content: BTreeMap<(usize, usize), Content>,
    /// What everything that the steps fetch is; nothing else may be fetched.
    pub pins: BTreeMap<Remote, Pin>,
    /// By the name that the Dockerfile uses in FROM, COPY --from and RUN --mount=from=.
    pub bases: BTreeMap<String, Arc<Built>>,
    pub platform: Platform,
    pub source_date_epoch: Option<i64>,
    pub labels: BTreeMap<String, String>,
    /// Run in the finished image; a failure fails the node.
    pub checks: Vec<Check>,
    pub no_cache: NoCache,
    pub surroundings: Surroundings,
    /// What the node adds to its base becomes one layer.
    pub squash: bool,
    /// Above this many layers of its own the node is an error: a plugin is one layer.
    pub max_layers: Option<usize>,
}

impl BuildJob {
    /// Refuses a result of this many layers in all, when the node has too many of its own: a plugin is one layer.
    pub fn check_layers(&self, layers: usize, node: &str) -> Result<()> {
        let Some(max) = self.max_layers else { return Ok(()) };
        let own = layers.saturating_sub(self.layers_below());
        if own <= max || self.squash {
            return Ok(());
        }
        Err(Error::bad_input(format!("{node} makes {own} layers, and at most {max} are allowed"))
            .cause(format!("in `{}`", self.dockerfile.file.path().display()))
            .hint("join its RUN, COPY and ADD instructions: a plugin is one layer"))
    }

    /// How many layers of the result are its base's.
    pub fn layers_below(&self) -> usize {
        let mut base = self.stages.last().map(|target| &target.base);
        // A stage on a stage: what is below the lowest of them is not the node's own.
        while let Some(StageBase::Stage(index)) = base {
            base = self.stages.iter().find(|stage| stage.index == *index).map(|stage| &stage.base);
        }
        match base {
            Some(StageBase::Image(name)) => self.bases.get(name).map_or(0, |base| base.config.rootfs.diff_ids.len()),
            _ => 0,
        }
    }
}

/// What is not taken from the store; its results are still written there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NoCache {
    #[default]
    Nothing,
    Everything,
    /// Steps of the stages of these names, in lower case.
    Stages(BTreeSet<String>),
}

impl NoCache {
    pub fn covers(&self, stage: Option<&str>) -> bool {
        match self {
            NoCache::Nothing => false,
            NoCache::Everything => true,
            NoCache::Stages(names) => stage.is_some_and(|name| names.contains(&name.to_ascii_lowercase())),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    pub run: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Only where the image has the program.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub when_there: bool,
}

/// Where a secret's value comes from; read only when a step that names it starts.
#[derive(Clone, PartialEq, Eq)]
pub enum SecretSource {
    File(PathBuf),
    /// The value itself, taken from the environment by the command line.
    Value(Vec<u8>),
}

/// What is behind `RUN --mount=type=ssh`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SshSource {
    /// An agent that runs.
    Socket(PathBuf),
    /// Files with private keys, for an agent that is started for this run.
    Keys(Vec<PathBuf>),
}

impl std::fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SecretSource::File(path) => f.debug_tuple("File").field(path).finish(),
            SecretSource::Value(_) => f.write_str("Value(…)"),
        }
    }
}
