//! The embedded engine: one process, no daemon.
//!
//! - [`build`]: stages and steps of one node; [`run`]: a command in an image, for checks and `kollage run`
//! - [`base`]: images that others begin with
//! - [`disk`]: how much may be written
//! - [`preflight`]: what must hold before anything starts
//! - [`lend`]: what the host lends to a step and takes back; [`agent`]: its ssh-agents
//! - [`transient`]: which failures of a step are worth another try
//! - [`terminal`]: a terminal of a command's own, shown on another
//! - [`helper`]: the process that enters namespaces, mounts and becomes a step; [`sandbox`]: how it is talked to

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;

use crate::dockerfile::step::{Entitlement, Network};
use crate::engine::{BaseJob, BaseSource, BuildJob, Built, Ctl, Engine, Published, SecretSource, SshSource};
use crate::error::{Context as _, Error, Result};
use crate::fetch::{Fetcher, Pin, Remote};
use crate::image::config::{ImageConfig, Platform};
use crate::image::digest::{Digest, Key};
use crate::image::layer::changes::{Change, changes};
use crate::image::store::{Codec, Store, WorkDir};
use crate::net::Caller;
use crate::registry;

pub(in crate::engine) mod agent;
mod base;
mod bootstrap;
pub mod build;
mod disk;
pub(in crate::engine) mod fetched;
mod finish;
pub mod helper;
pub mod lend;
pub mod output;
mod preflight;
mod request;
pub mod run;
mod sandbox;
pub mod terminal;
pub(in crate::engine) mod transient;

pub use preflight::base_preflight;

use agent::KeyAgent;
use helper::mounts::standard_points;
use helper::overlay::{Point, build_scaffold};
use helper::spec::{LentFile, RawPath};

const SCAFFOLD: &str = "scaffold";

/// What a run gives to the engine; everything of it comes from `cli`.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program to be started as a helper: this one, except in tests, which have another.
    pub helper: PathBuf,
    /// What checks and `kollage run` get without a `--network` of their own.
    pub network: Network,
    pub lending: lend::Lending,
    pub secrets: std::collections::BTreeMap<String, SecretSource>,
    /// What `RUN --mount=type=ssh` gets to.
    pub ssh: std::collections::BTreeMap<String, SshSource>,
    pub codec: Codec,
    /// How bases are pulled.
    pub registry: crate::registry::Options,
    /// How ADD asks web servers and repositories.
    pub fetch: crate::fetch::Options,
    /// What RUN may ask for beyond what every step gets.
    pub entitlements: std::collections::BTreeSet<Entitlement>,
    /// A step that takes longer is ended.
    pub step_timeout: Option<Duration>,
    /// How often a step is tried again when the network or a mirror was in its way.
    pub retries: u32,
    /// Before the first of these tries; doubled with each.
    pub retry_wait: Duration,
    /// Less free space than this on the store's file system is reported before anything starts.
    pub min_free: u64,
    /// What the layers of a run and its running steps may take on the disk.
    pub disk_limit: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            helper: "/proc/self/exe".into(),
            network: Network::Default,
            lending: lend::Lending::default(),
            secrets: std::collections::BTreeMap::new(),
            ssh: std::collections::BTreeMap::new(),
            codec: Codec::default(),
            registry: crate::registry::Options::default(),
            fetch: crate::fetch::Options::default(),
            entitlements: std::collections::BTreeSet::new(),
            step_timeout: None,
            retries: 2,
            retry_wait: Duration::from_secs(2),
            min_free: 2 << 30,
            disk_limit: None,
        }
    }
}

#[derive(Debug)]
pub struct EmbeddedEngine {
    store: Store,
    options: Options,
    fetcher: Fetcher,
    /// Mount points of steps by what they are, each made once and put below the layers of every step.
    scaffolds: Mutex<Vec<(Vec<Point>, WorkDir)>>,
    /// Those that were started for `--ssh ID=KEY`; they end with the engine.
    agents: Mutex<Vec<(String, Arc<KeyAgent>)>>,
    disk: disk::Disk,
}

impl EmbeddedEngine {
    pub fn new(store: Store, options: Options) -> Self {
        let fetcher = Fetcher::new(store.clone(), options.fetch.clone());
        let disk = disk::Disk::new(options.disk_limit);
        if let Some(limit) = options.disk_limit {
            store.limit_layers(limit);
        }
        EmbeddedEngine { store, options, fetcher, scaffolds: Mutex::default(), agents: Mutex::default(), disk }
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The socket of an ssh-agent, and what keeps it alive.
    fn ssh_agent(&self, id: &str) -> Result<Option<(PathBuf, Option<Arc<KeyAgent>>)>> {
        let keys = match self.options.ssh.get(id) {
            None => return Ok(None),
            Some(SshSource::Socket(path)) => return Ok(Some((path.clone(), None))),
            Some(SshSource::Keys(keys)) => keys,
        };
        let mut agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
        let agent = match agents.iter().find(|(known, _)| known == id) {
            Some((_, agent)) => agent.clone(),
            None => {
                let agent = Arc::new(KeyAgent::start(&self.store, &self.options.helper, id, keys)?);
                agents.push((id.to_owned(), agent.clone()));
                agent
            }
        };
        Ok(Some((agent.socket(), Some(agent))))
    }

    /// What the name of an image in a registry stands for now.
    pub fn digest_of(&self, reference: &str, ctl: &Ctl<'_>) -> Result<Digest> {
        let name = reference.parse().map_err(|e: Error| e.context(format!("`{reference}` does not name an image")))?;
        registry::head(&name, &self.options.registry, &caller(ctl))
    }

    /// How registries are talked to.
    pub(in crate::engine) fn registry(&self) -> &crate::registry::Options {
        &self.options.registry
    }

    /// Secrets, and what RUN may ask for.
    pub(in crate::engine) fn lent(&self) -> (&BTreeMap<String, SecretSource>, &BTreeSet<Entitlement>) {
        (&self.options.secrets, &self.options.entitlements)
    }

    /// What steps find of the host.
    pub(in crate::engine) fn lending(&self) -> &lend::Lending {
        &self.options.lending
    }

    /// A socket in `dir` behind which an agent answers as it does for our own steps, and to nothing else.
    pub(in crate::engine) fn lend_agent(&self, id: &str, dir: &Path, name: &str) -> Result<Option<agent::Forward>> {
        let Some((socket, _)) = self.ssh_agent(id)? else { return Ok(None) };
        let forward = agent::Forward::start(dir, name, socket);
        forward.map(Some).unusable(|| format!("cannot make a socket for the ssh-agent `{id}`"))
    }

    /// Git asks the agent that `--ssh default` lends, as in BuildKit.
    fn fetcher_for(&self, remote: &Remote) -> Result<Fetcher> {
        let agent = match remote {
            Remote::Git(_) => self.ssh_agent("default")?.map(|(socket, _)| socket),
            Remote::File(_) => None,
        };
        Ok(self.fetcher.with_agent(agent))
    }

    fn scaffold(&self, lent: &[LentFile]) -> Result<RawPath> {
        let points = standard_points(lent);
        let mut scaffolds = self.scaffolds.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, work)) = scaffolds.iter().find(|(p, _)| *p == points) {
            return Ok(RawPath(work.path().join(SCAFFOLD)));
        }
        let work = self.store.work_dir()?;
        let path = work.path().join(SCAFFOLD);
        build_scaffold(&path, &points).map_err(|e| fs_error("cannot make the mount points of steps".into(), e))?;
        scaffolds.push((points, work));
        Ok(RawPath(path))
    }

    /// Directories of layers as an overlay takes them: each once, for a layer that comes again higher up says
    /// everything again; and none that is empty.
    fn lower(&self, diff_ids: &[Digest]) -> Result<Vec<RawPath>> {
        let layers = self.store.layers(diff_ids).ok_or_else(|| {
            let missing = diff_ids.iter().find(|id| self.store.layer(id).is_none()).or(diff_ids.last());
            Error::unusable(format!("layer {} is no longer in the store", missing.map_or("", |id| id.short())))
                .hint("it was removed while it was in use; run the command again")
        })?;
        let mut out = Vec::with_capacity(layers.len());
        for (position, (layer, fs)) in layers.iter().enumerate() {
            if layer.entries > 0 && !layers[position + 1..].iter().any(|(_, later)| later == fs) {
                out.push(RawPath(fs.clone()));
            }
        }
        Ok(out)
    }
}

impl Engine for EmbeddedEngine {
    fn name(&self) -> &'static str {
        "embedded"
    }

    fn preflight(&self) -> Vec<Error> {
        preflight::check(&self.store, &self.options)
    }

    fn recall(&self, key: &Key) -> Result<Option<Built>> {
        let built: Option<Built> = self.store.result(key);
        Ok(built.filter(|b| self.store.layers(&b.config.rootfs.diff_ids).is_some()))
    }

    fn changes(&self, built: &Built, first: usize) -> Result<Vec<Change>> {
        let ids = &built.config.rootfs.diff_ids;
        let mut found = Vec::new();
        for position in first..ids.len() {
            let below = &ids[..position];
            let (_, layer) = self
                .store
                .layer_over(&ids[position], below)
                .ok_or_else(|| Error::failed(format!("the store has no layer {}", ids[position])))?;
            found.extend(changes(&layer, &self.store.stack(below)?)?);
        }
        Ok(found)
    }

    fn named(&self, name: &str) -> Result<Option<Built>> {
        let last = name.rsplit('/').next().unwrap_or(name);
        let tagged = if last.contains([':', '@']) { name.to_owned() } else { format!("{name}:latest") };
        let Some(found) = self.store.get_ref(&tagged) else { return Ok(None) };
        let config = self.store.image_config(&self.store.manifest(&found.manifest)?.config.digest)?;
        let Some(layers) = self.store.layers(&config.rootfs.diff_ids) else { return Ok(None) };
        let size = layers.iter().map(|(layer, _)| layer.size).sum();
        Ok(Some(Built { key: config.result_id(), config, size }))
    }

    fn foresee(&self, source: &BaseSource, platform: &Platform) -> Option<ImageConfig> {
        base::foresee(source, platform)
    }

    fn known(&self, remote: &Remote) -> Option<Pin> {
        self.fetcher.known(remote)
    }

    fn pin(&self, remote: &Remote, ctl: &Ctl<'_>) -> Result<Pin> {
        self.fetcher_for(remote)?.pin(remote, &caller(ctl))
    }

    fn base(&self, job: &BaseJob, ctl: &Ctl<'_>) -> Result<Built> {
        base::base(self, job, ctl)
    }

    fn build(&self, job: &BuildJob, ctl: &Ctl<'_>) -> Result<Built> {
        build::build(self, job, ctl)
    }

    fn finish(&self, built: &Built, names: &[String], ctl: &Ctl<'_>) -> Result<Published> {
        finish::finish(self, built, names, ctl)
    }
}

/// Who asks others, as the rooms that do it want to know.
fn caller<'a>(ctl: &Ctl<'a>) -> Caller<'a> {
    Caller { node: ctl.node, sink: ctl.sink, cancel: ctl.cancel }
}

/// An error of a file operation: the machine's fault when it has no space or no rights, the step's otherwise.
pub(crate) fn fs_error(message: String, error: io::Error) -> Error {
    if let Some(explained) = crate::userns::explained(&error, &message) {
        return explained;
    }
    let (kind, hint) = match Errno::from_io_error(&error) {
        Some(Errno::NOSPC | Errno::DQUOT) => {
            (crate::error::Kind::Unusable, Some("`kollage store prune` frees space in the store"))
        }
        Some(Errno::ROFS | Errno::IO | Errno::MFILE | Errno::NFILE | Errno::NOMEM) => {
            (crate::error::Kind::Unusable, None)
        }
        _ => (crate::error::Kind::Failed, None),
    };
    let out = Error::new(kind, message).cause(error);
    match hint {
        Some(hint) => out.hint(hint),
        None => out,
    }
}
