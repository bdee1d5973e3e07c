//! Builds with Docker or Podman, whichever answers at the API's address.
//!
//! - [`buildkit`]: one node through the BuildKit inside of Docker; [`classic`]: through the older builder, which Podman
//!   speaks as well
//! - [`images`]: what the engine has; images to it and from it
//! - [`check`]: commands in finished images
//! - [`lines`]: what its builder says, as steps
//!
//! Bases are made by our own code in our own store, and loaded where a build begins with them. A result stays in the
//! engine, under a name that says its key: `localhost/kollage-key:<key>`; that name is how it is found again, by this run
//! and by later ones, and what a child's FROM says. Nothing else about the image tells that Kollage made it, so that it
//! is the image that `docker build` would have made. Where its files are wanted here (an output, a plugin's verdict) it
//! is brought into the store.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::daemon::{self, Daemon};
use crate::diag::{Diagnostic, Diagnostics, SourceFile};
use crate::dockerfile::step::{LoweredStage, Network};
use crate::engine::embedded::EmbeddedEngine;
use crate::engine::embedded::fetched::Elsewhere;
use crate::engine::portable::{Feature, Portable, portable, uses};
use crate::engine::surroundings::Surroundings;
use crate::engine::{self, BaseJob, BaseSource, BuildJob, Built, Ctl, Engine, Published, squash};
use crate::error::{Error, Result};
use crate::event::Cancel;
use crate::fetch::{Pin, Remote};
use crate::image::config::{ImageConfig, Platform};
use crate::image::digest::{Digest, Key};
use crate::image::layer::changes::Change;
use crate::image::store::Store;

mod buildkit;
mod check;
mod classic;
mod images;
mod lines;

use buildkit::BuildKit;
use lines::Steps;

/// The name of results, whose tag is the key.
const RESULTS: &str = "localhost/kollage-key";
/// Of what is not a result yet: its checks are still to come.
const UNCHECKED: &str = "localhost/kollage-unchecked";

pub struct DockerEngine {
    /// Bases, what is fetched, and the store.
    local: EmbeddedEngine,
    engine: daemon::Engine,
    /// None: the classic builder.
    buildkit: Option<BuildKit>,
    options: Options,
    /// Images of the engine that have no name of ours, by what stands for their key: their id.
    named: Mutex<BTreeMap<Key, String>>,
}

#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Finished images are brought into the store, since an output is made from there.
    pub keep: bool,
    pub builder: Builder,
}

/// `[engine.docker] builder`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Builder {
    /// BuildKit where the engine has it.
    #[default]
    Auto,
    BuildKit,
    Classic,
}

impl Builder {
    pub const ALL: [(&'static str, Builder); 3] =
        [("auto", Builder::Auto), ("buildkit", Builder::BuildKit), ("classic", Builder::Classic)];
}

impl DockerEngine {
    pub fn new(
        local: EmbeddedEngine,
        engine: daemon::Engine,
        options: Options,
        cancel: &Cancel,
    ) -> Result<DockerEngine> {
        let buildkit = match options.builder {
            Builder::Classic => None,
            Builder::Auto => BuildKit::find(&engine, cancel).ok(),
            Builder::BuildKit => Some(BuildKit::find(&engine, cancel).map_err(|error| {
                error.hint("`builder = \"classic\"` in [engine.docker] of kollage.toml takes the older builder")
            })?),
        };
        cancel.check()?;
        Ok(DockerEngine { local, engine, buildkit, options, named: Mutex::default() })
    }

    /// What makes bases, and keeps them.
    pub fn local(&self) -> &EmbeddedEngine {
        &self.local
    }

    fn connect(&self, cancel: &Cancel) -> Result<Daemon> {
        self.engine.connect(cancel)
    }

    /// For the calls that nobody can interrupt; they are short.
    fn ask(&self) -> Result<Daemon> {
        self.connect(&Cancel::new()?)
    }

    fn result_name(key: &Key) -> String {
        format!("{RESULTS}:{key}")
    }

    /// How a FROM names an image; it is there afterwards.
    fn reference(&self, daemon: &Daemon, built: &Built) -> Result<String> {
        let mut name = DockerEngine::result_name(&built.key);
        if let Some(there) = images::inspect(daemon, &name)? {
            if there.config.rootfs == built.config.rootfs {
                return Ok(name);
            }
            // Another engine gave something else for the same key: both are right, and this one is wanted.
            name = DockerEngine::result_name(&built.config.result_id());
            if images::id(daemon, &name)?.is_some() {
                return Ok(name);
            }
        }
        let known = self.named.lock().unwrap_or_else(PoisonError::into_inner).get(&built.key).cloned();
        match known {
            Some(id) => images::tag(daemon, &id, &name)?,
            None => images::load(daemon, self.local.store(), built, vec![name.clone()])?,
        }
        Ok(name)
    }

    fn portable(&self, job: &BuildJob, daemon: &Daemon, work: &Path, ctl: &Ctl<'_>) -> Result<Portable> {
        let refer = |_: &str, built: &Built| self.reference(daemon, built);
        portable(job, &refer, &Elsewhere { own: &self.local, job, work, ctl })
    }

    /// What the builder of this engine cannot do, by name and place; nothing has been built then.
    pub fn refusals(&self, file: &Arc<SourceFile>, stages: &[LoweredStage]) -> Diagnostics {
        let name = &self.engine.facts.name;
        if let Some(buildkit) = &self.buildkit {
            return engine::buildkit::refusals(&format!("the BuildKit of {name}"), buildkit.facts(), file, stages);
        }
        let mut problems = Diagnostics::default();
        for used in uses(stages).into_iter().filter(|used| !self.classic_can(used.feature)) {
            let message = format!("the builder of {name} cannot do {}", used.feature.shown());
            problems.push(Diagnostic::error(message).at(file, used.span).label("this one").hint(self.elsewhere()));
        }
        problems
    }

    fn classic_can(&self, feature: Feature) -> bool {
        let podman = self.engine.facts.is_podman;
        match feature {
            Feature::BindMount | Feature::CacheMount | Feature::TmpfsMount | Feature::Script => podman,
            Feature::Chmod => podman,
            Feature::Secret | Feature::Ssh | Feature::Network | Feature::Insecure => false,
            Feature::Link | Feature::Selection | Feature::OnbuildCopy | Feature::MixedAdd => false,
        }
    }

    /// What can do what the classic builder can't.
    fn elsewhere(&self) -> &'static str {
        match self.options.builder {
            Builder::Classic => "BuildKit may: `builder = \"auto\"` in [engine.docker]; and so can `--engine embedded`",
            _ => "`--engine embedded` can, and needs no daemon",
        }
    }

    /// The same for what the command line puts around steps.
    pub fn refuse_surroundings(&self, surroundings: &Surroundings) -> Result<()> {
        let name = &self.engine.facts.name;
        if let Some(buildkit) = &self.buildkit {
            engine::buildkit::refuse_bundle(self.local.lending())?;
            return engine::buildkit::refuse_surroundings(
                &format!("the BuildKit of {name}"),
                buildkit.facts(),
                surroundings,
            );
        }
        let what = match surroundings {
            Surroundings { ulimits, .. } if !ulimits.is_empty() => "`--ulimit`",
            Surroundings { hosts, .. } if hosts.len() > 1 => "more than one `--add-host`",
            _ => return Ok(()),
        };
        Err(Error::bad_input(format!("the builder of {name} cannot do {what}")).hint(self.elsewhere()))
    }

    /// What steps will lack here that they have elsewhere.
    pub fn lacks(&self) -> Option<String> {
        let lends = self.buildkit.is_none() && self.local.lending().ca_bundle.is_some();
        lends.then(|| self.no_certificates())
    }

    fn no_certificates(&self) -> String {
        let name = &self.engine.facts.name;
        format!(
            "the builder of {name} cannot be lent this host's certificates; BuildKit can, and so can `--engine embedded`"
        )
    }

    /// Builds an image of this name, which is not a result yet, and checks it.
    fn unchecked(&self, job: &BuildJob, daemon: &Daemon, name: &str, ctl: &Ctl<'_>) -> Result<Built> {
        let begun = match &self.buildkit {
            Some(buildkit) => buildkit.build(self, job, daemon, name, ctl)?,
            None => classic::build(self, job, daemon, name, ctl)?,
        };
        let built = images::inspect(daemon, name)?.ok_or_else(|| {
            Error::failed(format!("the engine says that it built {}, and has no such image", ctl.node))
        })?;
        job.check_layers(built.config.rootfs.diff_ids.len(), ctl.node)?;
        let built = match squash::is_wanted(job, &built) {
            true => self.squashed(job, daemon, name, ctl)?,
            false => built,
        };
        let mut steps = Steps::after(begun, job.checks.len(), ctl);
        for check in &job.checks {
            check::run(daemon, check, name, ctl, &mut steps)?;
        }
        Ok(Built { key: job.key.clone(), ..built })
    }
}

impl DockerEngine {
    /// By way of the store, and back under the same name.
    fn squashed(&self, job: &BuildJob, daemon: &Daemon, name: &str, ctl: &Ctl<'_>) -> Result<Built> {
        let store = self.local.store();
        let whole = images::save(daemon, store, name, &job.platform)?;
        let squashed = squash::squashed(store, job, whole, ctl.cancel)?;
        // The name goes over to the new image; the old one has none any more, and so it goes as well.
        images::untag(daemon, name)?;
        images::load(daemon, store, &squashed, vec![name.to_owned()])?;
        Ok(squashed)
    }
}

/// Loads an image of the store, whatever engine built it.
pub fn load(engine: &daemon::Engine, store: &Store, built: &Built, names: Vec<String>, cancel: &Cancel) -> Result<()> {
    images::load(&engine.connect(cancel)?, store, built, names)
}

impl Engine for DockerEngine {
    fn name(&self) -> &'static str {
        "docker"
    }

    fn preflight(&self) -> Vec<Error> {
        self.ask().and_then(|daemon| daemon.ping()).err().into_iter().collect()
    }

    fn recall(&self, key: &Key) -> Result<Option<Built>> {
        let daemon = self.ask()?;
        match images::inspect(&daemon, &DockerEngine::result_name(key))? {
            Some(built) => Ok(Some(Built { key: key.clone(), ..built })),
            // Keys don't depend on the engine: what another one made is loaded where it is wanted.
            None => self.local.recall(key),
        }
    }

    fn named(&self, name: &str) -> Result<Option<Built>> {
        let daemon = self.ask()?;
        let Some(id) = images::id(&daemon, name)? else { return Ok(None) };
        let Some(built) = images::inspect(&daemon, &id)? else { return Ok(None) };
        self.named.lock().unwrap_or_else(PoisonError::into_inner).insert(built.key.clone(), id);
        Ok(Some(built))
    }

    fn foresee(&self, source: &BaseSource, platform: &Platform) -> Option<ImageConfig> {
        self.local.foresee(source, platform)
    }

    fn known(&self, remote: &Remote) -> Option<Pin> {
        self.local.known(remote)
    }

    fn pin(&self, remote: &Remote, ctl: &Ctl<'_>) -> Result<Pin> {
        self.local.pin(remote, ctl)
    }

    fn base(&self, job: &BaseJob, ctl: &Ctl<'_>) -> Result<Built> {
        self.local.base(job, ctl)
    }

    fn build(&self, job: &BuildJob, ctl: &Ctl<'_>) -> Result<Built> {
        let refused = self.refusals(&job.dockerfile.file, &job.stages);
        if !refused.is_empty() {
            // Said before the build where that was possible; what only a base brings comes to light here.
            return Err(Error::from_diagnostics(format!("{} cannot be built by this engine", ctl.node), refused));
        }
        let daemon = self.connect(ctl.cancel)?;
        let name = format!("{UNCHECKED}:{}", job.key);
        let built = self.unchecked(job, &daemon, &name, ctl);
        if built.is_ok() {
            images::tag(&daemon, &name, &DockerEngine::result_name(&job.key))?;
        }
        // Nothing is left of an image whose checks failed but the engine's own cache.
        let untagged = images::untag(&daemon, &name);
        built.and_then(|built| untagged.map(|()| built))
    }

    fn changes(&self, built: &Built, first: usize) -> Result<Vec<Change>> {
        let cancel = Cancel::new()?;
        self.bring(built, &cancel)?;
        self.local.changes(built, first)
    }

    fn finish(&self, built: &Built, names: &[String], ctl: &Ctl<'_>) -> Result<Published> {
        let daemon = self.connect(ctl.cancel)?;
        let reference = self.reference(&daemon, built)?;
        for name in names {
            images::tag(&daemon, &reference, name)?;
        }
        if self.options.keep {
            let kept = self.bring(built, ctl.cancel)?;
            return self.local.finish(&kept, names, ctl);
        }
        let id = images::id(&daemon, &reference)?.unwrap_or_default();
        // What buildx says for images that are in an engine and nowhere else.
        let digest: Digest = id.parse().map_err(|why: String| Error::failed(why).context("the engine gives no id"))?;
        Ok(Published { digest: digest.clone(), config_digest: digest, size: built.size })
    }
}

impl DockerEngine {
    /// The image in the store, with the configuration that it really has, history included.
    pub fn bring(&self, built: &Built, cancel: &Cancel) -> Result<Built> {
        let daemon = self.connect(cancel)?;
        let reference = self.reference(&daemon, built)?;
        let brought = images::save(&daemon, self.local.store(), &reference, &built.config.platform())?;
        if brought.config.rootfs.diff_ids != built.config.rootfs.diff_ids {
            return Err(Error::failed(format!("{reference} came with other layers than the engine said it has")));
        }
        Ok(Built { key: built.key.clone(), ..brought })
    }
}

/// How a step without a `--network` of its own is connected, in the API's words.
fn network_mode(network: Network) -> Option<&'static str> {
    match network {
        Network::Default => None,
        Network::None => Some("none"),
        Network::Host => Some("host"),
    }
}
