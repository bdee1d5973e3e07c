//! The engine of builders elsewhere: BuildKit, alone or inside a dockerd, as many of them as there are.
//!
//! Results meet in a repository of a registry that all of them reach, one tag for every key: so any builder can take any
//! node, and one that goes away takes nothing with it. What needs no builder (bases, what ADD fetches, what a plugin's
//! layer does to files) is done by the embedded engine's parts, in its store.
//!
//! - [`address`], [`dial`]: where a builder is, and connections to it
//! - [`client`]: its Control service: one build, from request to result
//! - [`lend`]: what steps find of this host while they run
//! - [`session`]: what it may ask of us meanwhile
//! - [`progress`]: what it tells meanwhile, as events
//! - [`pool`]: which builder takes which node; [`build`]: one node on one builder
//! - [`results`]: the repository where results meet; [`docker`]: a push by a dockerd that has to be asked for it

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::daemon;
use crate::diag::{Diagnostic, Diagnostics, SourceFile};
use crate::dockerfile::step::LoweredStage;
use crate::engine::embedded::EmbeddedEngine;
use crate::engine::embedded::fetched::Elsewhere;
use crate::engine::portable::{Feature, portable, uses};
use crate::engine::surroundings::Surroundings;
use crate::engine::{BaseJob, BaseSource, BuildJob, Built, Ctl, Engine, NoCache, Published, squash};
use crate::error::{Error, Result};
use crate::event::{Cancel, Event};
use crate::fetch::{Pin, Remote};
use crate::image::config::{ImageConfig, Platform};
use crate::image::digest::{Digest, Key, KeyHasher};
use crate::image::layer::changes::Change;
use crate::net::block_on;

pub mod address;
pub(in crate::engine) mod build;
pub mod client;
pub mod dial;
mod docker;
mod lend;
pub mod pool;
pub mod progress;
mod results;
pub mod session;

use address::Address;
use build::{Answer, Ended, Worker};
pub(in crate::engine) use lend::refuse_bundle;

use client::{Connection, Exporter, Facts};
use dial::{Certificates, Dial, Kind};
use pool::{Member, Pool};
use results::Results;

/// A builder as a person names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    pub address: Address,
    pub certificates: Certificates,
    /// What it is used for; None: whatever it says that it can.
    pub platform: Option<Platform>,
    pub weight: u32,
}

/// What a run gives to the engine; everything of it comes from `cli`.
#[derive(Clone, Debug)]
pub struct Options {
    pub builders: Vec<Named>,
    /// `REGISTRY/REPOSITORY`, where results meet.
    pub repository: String,
    pub platforms: Vec<Platform>,
    /// Nodes that are built at once.
    pub jobs: usize,
}

/// A builder that has answered.
pub struct Builder {
    pub address: Address,
    pub certificates: Certificates,
    worker: Worker,
}

/// What a builder made of a node.
enum Made {
    /// It has pushed the image itself.
    Pushed(Digest),
    /// The image is in its own store: the digest of its configuration.
    Kept(Digest),
}

impl Builder {
    /// For an image under a name of the repository where results meet, which is pushed by who can.
    fn exporter(&self, name: &str) -> Exporter {
        match self.worker.facts.pushes {
            true => Exporter::pushed(name),
            false => Exporter::kept(name),
        }
    }

    fn made(&self, answer: &Answer) -> Result<Made> {
        let digest = |name: &str| answer.get(name).and_then(|digest| digest.parse().ok());
        match (self.worker.facts.pushes, digest("containerimage.digest"), digest("containerimage.config.digest")) {
            (true, Some(digest), _) => Ok(Made::Pushed(digest)),
            (false, _, Some(config)) | (false, Some(config), None) => Ok(Made::Kept(config)),
            _ => Err(Error::failed(format!("the builder {} doesn't say what it has built", self.address))),
        }
    }
}

pub struct BuildKitEngine {
    own: EmbeddedEngine,
    options: Options,
    builders: Vec<Builder>,
    pool: Pool,
    results: Results,
    cancel: Cancel,
}

impl BuildKitEngine {
    /// Asks every builder what it is; all that is wrong with any of them is in one error.
    pub fn connect(own: EmbeddedEngine, options: Options, cancel: &Cancel) -> Result<BuildKitEngine> {
        let (mut builders, mut members, mut problems) = (Vec::new(), Vec::new(), Vec::new());
        for named in &options.builders {
            let dial = dial::dial(&named.address, &named.certificates)?;
            match look(named, &dial, cancel) {
                Ok(facts) => {
                    let platforms = match &named.platform {
                        Some(platform) => BTreeSet::from([platform.to_string()]),
                        None => facts.platforms.clone(),
                    };
                    members.push(Member { name: named.address.to_string(), platforms, weight: named.weight.max(1) });
                    let (address, certificates) = (named.address.clone(), named.certificates.clone());
                    builders.push(Builder { address, certificates, worker: Worker { dial, facts } });
                }
                Err(error) => problems.push(error),
            }
        }
        let missing = |platform: &&Platform| !members.iter().any(|m| m.platforms.contains(&platform.to_string()));
        if let Some(platform) = options.platforms.iter().find(missing).filter(|_| problems.is_empty()) {
            let all: BTreeSet<&str> = members.iter().flat_map(|m| &m.platforms).map(String::as_str).collect();
            let all: Vec<&str> = all.into_iter().collect();
            problems.push(
                Error::unusable(format!("no builder builds for {platform}"))
                    .cause(format!("they build for {}", all.join(", ")))
                    .hint("name one that does with `--builder ADDRESS`"),
            );
        }
        let mut problems = problems.into_iter();
        if let Some(first) = problems.next() {
            return Err(problems.fold(first, |all, next| all.cause(format!("and {next}"))));
        }
        let pool = Pool::new(members, options.jobs);
        let results = Results::new(options.repository.clone(), own.registry().clone());
        Ok(BuildKitEngine { own, builders, pool, results, options, cancel: cancel.clone() })
    }

    /// What makes bases, and keeps them.
    pub fn local(&self) -> &EmbeddedEngine {
        &self.own
    }

    /// How many there are.
    pub fn builders(&self) -> usize {
        self.builders.len()
    }

    /// What some builder is too old for, by name and place; nothing has been built then. Any of them may get any node.
    pub fn refusals(&self, file: &Arc<SourceFile>, stages: &[LoweredStage]) -> Diagnostics {
        let old = self.builders.iter().find(|builder| builder.worker.facts.is_old());
        old.map_or_else(Diagnostics::default, |old| {
            refusals(&format!("the builder {}", old.address), &old.worker.facts, file, stages)
        })
    }

    /// The same for what the command line puts around steps.
    pub fn refuse_surroundings(&self, surroundings: &Surroundings) -> Result<()> {
        refuse_bundle(self.own.lending())?;
        let refused =
            |b: &Builder| refuse_surroundings(&format!("the builder {}", b.address), &b.worker.facts, surroundings);
        self.builders.iter().try_for_each(refused)
    }

    /// Builds on one builder after the other, until one is there to the end.
    fn built(&self, job: &BuildJob, ctl: &Ctl<'_>) -> Result<Built> {
        let mut references = BTreeMap::new();
        let mut images: Vec<Key> = Vec::new();
        for (name, image) in &job.bases {
            let digest = self.results.ensure(&self.own, image, &job.platform, ctl)?;
            references.insert(name.clone(), self.results.by_digest(&digest));
            images.push(image.key.clone());
        }
        if let Some(below) = base_of(job).and_then(|name| job.bases.get(name)) {
            // What it is built on counts most.
            images.retain(|key| *key != below.key);
            images.insert(0, below.key.clone());
        }
        let refer = |name: &str, _: &Built| {
            references
                .get(name)
                .cloned()
                .ok_or_else(|| Error::failed(format!("the image `{name}` was not made available")))
        };
        let work = self.own.store().work_dir()?;
        let portable = portable(job, &refer, &Elsewhere { own: &self.own, job, work: work.path(), ctl })?;
        let prepared = build::prepare(
            &self.own,
            BTreeSet::from([self.results.repository().to_owned()]),
            job,
            portable,
            work.path(),
            ctl,
        )?;
        // Layers that become one are a result of their own, which nobody else asks for.
        let key = match job.squash {
            true => KeyHasher::new("layers to be squashed").part("of", job.key.as_str()).finish(),
            false => job.key.clone(),
        };
        let platform = job.platform.to_string();
        let mut last = None;
        while let Some(turn) = self.pool.take(&platform, &images) {
            ctl.cancel.check()?;
            let builder = &self.builders[turn.builder];
            let made = self.try_on(builder, job, &prepared, &key, ctl);
            match made {
                Ok(built) => {
                    for image in images.iter().chain([&job.key]) {
                        self.pool.has(turn.builder, image);
                    }
                    return Ok(built);
                }
                Err(Ended::Failed(error)) => return Err(error),
                Err(Ended::Gone(why)) => {
                    self.pool.gone(turn.builder);
                    let message = format!("the builder {} went away: {why}; another one does it", builder.address);
                    ctl.sink.event(Event::Warning { node: Some(ctl.node.clone()), message });
                    last = Some(format!("{}: {why}", builder.address));
                }
            }
        }
        let error = Error::unusable(format!("no builder is left for {platform}"));
        Err(match last {
            Some(last) => error.cause(last),
            None => error,
        })
    }

    fn try_on(
        &self,
        builder: &Builder,
        job: &BuildJob,
        prepared: &build::Prepared,
        key: &Key,
        ctl: &Ctl<'_>,
    ) -> Result<Built, Ended> {
        let (platform, name) = (&job.platform, &self.results.name(key));
        // An older dockerd cannot write one.
        let cache = builder.worker.facts.pushes.then(|| self.results.cache(ctl.node, platform));
        let done = build::on(&builder.worker, job, prepared, builder.exporter(name), cache, ctl)?;
        let (built, digest) = match builder.made(&done.answer)? {
            Made::Pushed(digest) => (self.results.arrived(&self.own, key, Some(&digest), platform, ctl)?, None),
            Made::Kept(config) => {
                docker::push(builder, name, &self.own.registry().credentials, ctl)?;
                (self.results.arrived(&self.own, key, None, platform, ctl)?, Some(config))
            }
        };
        let (built, found) = built;
        if digest.is_some_and(|config| config != found.config_digest) {
            return Err(
                Error::failed(format!("{name} in the registry is not what {} has pushed", builder.address)).into()
            );
        }
        job.check_layers(built.config.rootfs.diff_ids.len(), ctl.node)?;
        let (built, digest) = match *key != job.key {
            true => self.squashed(job, &built, ctl)?,
            false => (built, found.digest),
        };
        let image = self.results.by_digest(&digest);
        for check in &job.checks {
            build::check(&builder.worker, prepared, &image, check, ctl)?;
        }
        Ok(built)
    }

    /// By way of the store, and back to where results meet.
    fn squashed(&self, job: &BuildJob, layers: &Built, ctl: &Ctl<'_>) -> Result<(Built, Digest)> {
        let store = self.own.store();
        let mut whole = self.results.bring(&self.own, layers, ctl)?;
        whole.key = job.key.clone();
        let built = match squash::is_wanted(job, &whole) {
            true => squash::squashed(store, job, whole, ctl.cancel)?,
            false => whole,
        };
        let digest = self.results.ensure(&self.own, &built, &job.platform, ctl)?;
        store.put_result(&job.key, &built)?;
        Ok((built, digest))
    }

    /// The image with its files in the store.
    pub fn bring(&self, built: &Built, cancel: &Cancel) -> Result<Built> {
        let node = Arc::from("builders");
        self.brought(built, &Ctl { node: &node, sink: &crate::event::Silent, cancel })
    }

    /// Its layers are in the store: they are brought there when somebody looks at them.
    fn brought(&self, built: &Built, ctl: &Ctl<'_>) -> Result<Built> {
        if let Some(own) = self.own.recall(&built.key)?
            && own.config.rootfs == built.config.rootfs
        {
            return Ok(own);
        }
        self.results.bring(&self.own, built, ctl)
    }
}

/// What a BuildKit is too old for, by name and place.
pub(in crate::engine) fn refusals(
    who: &str,
    facts: &Facts,
    file: &Arc<SourceFile>,
    stages: &[LoweredStage],
) -> Diagnostics {
    let mut problems = Diagnostics::default();
    for used in uses(stages).into_iter().filter(|used| facts.is_old() && is_newer(used.feature)) {
        let message = format!("{who} is too old for {}", used.feature.shown());
        problems.push(Diagnostic::error(message).at(file, used.span).label("this one").hint(NEWER));
    }
    problems
}

fn is_newer(feature: Feature) -> bool {
    matches!(feature, Feature::Link | Feature::Selection | Feature::Network | Feature::Insecure)
}

const NEWER: &str = "BuildKit 0.11 and Docker 24 can do it, and so can `--engine embedded`";

/// An older one takes these without a word, and does nothing of the kind.
pub(in crate::engine) fn refuse_surroundings(who: &str, facts: &Facts, surroundings: &Surroundings) -> Result<()> {
    let flag = match surroundings {
        Surroundings { ulimits, .. } if !ulimits.is_empty() => "`--ulimit`",
        Surroundings { shm_size: Some(_), .. } => "`--shm-size`",
        _ => return Ok(()),
    };
    match facts.is_old() {
        true => Err(Error::bad_input(format!("{who} is too old for {flag}")).hint(NEWER)),
        false => Ok(()),
    }
}

fn base_of(job: &BuildJob) -> Option<&str> {
    use crate::dockerfile::step::StageBase;
    let mut base = &job.stages.last()?.base;
    loop {
        match base {
            StageBase::Image(name) => return Some(name),
            StageBase::Scratch => return None,
            StageBase::Stage(index) => base = &job.stages.iter().find(|stage| stage.index == *index)?.base,
        }
    }
}

/// The API of the one builder, where it is a dockerd's: that can keep results by itself.
pub fn docker_alone(builder: &Named, cancel: &Cancel) -> Result<Option<daemon::Endpoint>> {
    let dial = dial::dial(&builder.address, &builder.certificates)?;
    let kind = block_on(cancel, async {
        dial::kind(&dial).await.map_err(|e| does_not_answer(&builder.address, e.to_string()))
    })?;
    Ok((kind == Kind::Docker).then(|| docker::endpoint(&builder.address, &builder.certificates)))
}

fn does_not_answer(address: &Address, why: String) -> Error {
    Error::unusable(format!("the builder {address} does not answer"))
        .cause(why)
        .hint("start it, or leave it out of `--builder`, BUILDKIT_HOST and [engine.buildkit]")
}

/// What a builder says about itself.
fn look(named: &Named, dial: &Dial, cancel: &Cancel) -> Result<Facts> {
    let address = &named.address;
    let dead = |why: String| does_not_answer(address, why);
    let facts = block_on(cancel, async {
        let connection = Connection::open(dial).await.map_err(|e| dead(e.to_string()))?;
        connection.facts().await.map_err(|problem| match problem {
            client::Problem::Gone(why) => dead(why),
            client::Problem::Failed(why) => {
                Error::unusable(format!("the builder {address} is too old, or no builder")).cause(why)
            }
        })
    })?;
    if let Some(platform) = &named.platform
        && !facts.platforms.contains(&platform.to_string())
    {
        let all: Vec<&str> = facts.platforms.iter().map(String::as_str).collect();
        return Err(Error::unusable(format!("the builder {address} does not build for {platform}"))
            .cause(format!("it builds for {}", all.join(", "))));
    }
    Ok(facts)
}

impl Engine for BuildKitEngine {
    fn name(&self) -> &'static str {
        "buildkit"
    }

    fn preflight(&self) -> Vec<Error> {
        self.results.check(&self.cancel).err().into_iter().collect()
    }

    fn recall(&self, key: &Key) -> Result<Option<Built>> {
        match self.own.recall(key)? {
            Some(built) => Ok(Some(built)),
            // A key is of one platform, and doesn't say which.
            None => Ok(self.options.platforms.iter().find_map(|p| self.results.recall(&self.own, key, p))),
        }
    }

    fn named(&self, name: &str) -> Result<Option<Built>> {
        self.own.named(name)
    }

    fn foresee(&self, source: &BaseSource, platform: &Platform) -> Option<ImageConfig> {
        self.own.foresee(source, platform)
    }

    fn known(&self, remote: &Remote) -> Option<Pin> {
        self.own.known(remote)
    }

    fn pin(&self, remote: &Remote, ctl: &Ctl<'_>) -> Result<Pin> {
        self.own.pin(remote, ctl)
    }

    fn base(&self, job: &BaseJob, ctl: &Ctl<'_>) -> Result<Built> {
        self.own.base(job, ctl)
    }

    fn build(&self, job: &BuildJob, ctl: &Ctl<'_>) -> Result<Built> {
        // Two runs that share a store never do the same work at once.
        let _lock = self.own.store().lock_key(&job.key, ctl.cancel)?;
        if job.no_cache == NoCache::Nothing
            && let Some(built) = self.recall(&job.key)?
        {
            return Ok(built);
        }
        self.built(job, ctl)
    }

    fn changes(&self, built: &Built, first: usize) -> Result<Vec<Change>> {
        self.own.changes(&self.bring(built, &self.cancel)?, first)
    }

    fn finish(&self, built: &Built, names: &[String], ctl: &Ctl<'_>) -> Result<Published> {
        self.own.finish(&self.brought(built, ctl)?, names, ctl)
    }
}
