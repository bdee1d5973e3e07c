//! One node on one builder.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use super::client::{Build, Connection, Exporter, Facts, Problem};
use super::dial::Dial;
use super::lend;
use super::progress::{self, Place, Watch};
use super::session::Lent;
use crate::dockerfile::step::{Action, Entitlement, Network, StageBase};
use crate::engine::embedded::EmbeddedEngine;
use crate::engine::embedded::agent::Forward;
use crate::engine::embedded::lend::Lending;
use crate::engine::embedded::output::Redactor;
use crate::engine::portable::{DOCKERFILE, Portable};
use crate::engine::{BuildJob, Check, Ctl, NoCache, SecretSource};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::net::block_on;

/// What the exporter has to say at the end.
pub type Answer = HashMap<String, String>;

/// A BuildKit that can be asked, and what it says about itself.
#[derive(Clone)]
pub struct Worker {
    pub dial: Dial,
    pub facts: Facts,
}

/// A build that came to its end.
pub struct Done {
    pub answer: Answer,
    /// How many there were, those that were reused included.
    pub steps: usize,
}

/// How a build ended that gave nothing.
pub enum Ended {
    Gone(String),
    Failed(Error),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Ended {
        Ended::Failed(error)
    }
}

/// What of a job is the same on every builder.
pub struct Prepared {
    pub portable: Arc<Portable>,
    pub lent: Lent,
    pub attributes: BTreeMap<String, String>,
    pub entitlements: Vec<String>,
    /// None: nothing is lent.
    lending: Option<Lending>,
    /// Values that must not be shown.
    redactor: Redactor,
    /// Sockets of agents; they end with this.
    _forwards: Vec<Forward>,
}

/// `images` are those that the builder fetches or pushes; `work` is a directory of the node's own, which lasts as long
/// as what is prepared.
pub fn prepare(
    own: &EmbeddedEngine,
    images: BTreeSet<String>,
    job: &BuildJob,
    portable: Portable,
    work: &Path,
    ctl: &Ctl<'_>,
) -> Result<Prepared> {
    let portable = Arc::new(portable);
    let mut lent = Lent { credentials: own.registry().credentials.clone(), images, ..Lent::default() };
    let (files, cancel) = (portable.clone(), ctl.cancel.clone());
    lent.context = Some(Arc::new(move |out: &mut dyn std::io::Write| {
        files.files.write(out, &files.dockerfile, &cancel).map(drop)
    }));
    let mut redactor = Redactor::default();
    let wants = wanted(job);
    for id in &wants.secrets {
        let Some(source) = own.lent().0.get(id) else { continue };
        let value = match source {
            SecretSource::Value(value) => value.clone(),
            SecretSource::File(path) => std::fs::read(path).map_err(|e| {
                Error::bad_input(format!("cannot read the secret `{id}` from {}", path.display())).cause(e)
            })?,
        };
        redactor.add(&value);
        lent.secrets.insert(id.clone(), SecretSource::Value(value));
    }
    let mut forwards = Vec::new();
    for id in &wants.agents {
        if let Some(forward) = own.lend_agent(id, work, &format!("ssh{}", forwards.len()))? {
            lent.ssh.insert(id.clone(), forward.socket().to_owned());
            forwards.push(forward);
        }
    }
    let lending = Some(own.lending()).filter(|lending| !lending.is_empty()).cloned();
    if let Some(lending) = &lending {
        lent.secrets.extend(lend::secrets(lending));
        lending.secrets().for_each(|secret| redactor.add(secret.as_bytes()));
    }
    let entitlements = own.lent().1.iter().map(|e| entitlement(*e).to_owned()).collect();
    Ok(Prepared {
        attributes: attributes(job, &portable),
        portable,
        lent,
        entitlements,
        lending,
        redactor,
        _forwards: forwards,
    })
}

fn entitlement(entitlement: Entitlement) -> &'static str {
    match entitlement {
        Entitlement::NetworkHost => "network.host",
        Entitlement::SecurityInsecure => "security.insecure",
    }
}

/// Ids of secrets and agents that steps name.
#[derive(Default)]
struct Wanted {
    secrets: BTreeSet<String>,
    agents: BTreeSet<String>,
}

fn wanted(job: &BuildJob) -> Wanted {
    use crate::dockerfile::step::MountKind;
    let mut wanted = Wanted::default();
    for step in job.stages.iter().flat_map(|stage| &stage.steps) {
        let Action::Run(run) = &step.action else { continue };
        for mount in &run.mounts {
            match &mount.kind {
                MountKind::Secret { id, .. } => drop(wanted.secrets.insert(id.clone())),
                MountKind::Ssh { id, .. } => drop(wanted.agents.insert(id.clone())),
                _ => {}
            }
        }
    }
    wanted
}

/// In the words of BuildKit's Dockerfile frontend.
fn attributes(job: &BuildJob, portable: &Portable) -> BTreeMap<String, String> {
    let mut attributes = BTreeMap::from([
        ("filename".to_owned(), DOCKERFILE.to_owned()),
        ("platform".to_owned(), job.platform.to_string()),
    ]);
    for (name, value) in &portable.build_args {
        attributes.insert(format!("build-arg:{name}"), value.clone());
    }
    for (name, value) in &job.labels {
        attributes.insert(format!("label:{name}"), value.clone());
    }
    let around = &job.surroundings;
    match around.network {
        Network::Default => {}
        Network::None => drop(attributes.insert("force-network-mode".into(), "none".into())),
        Network::Host => drop(attributes.insert("force-network-mode".into(), "host".into())),
    }
    if !around.hosts.is_empty() {
        let hosts: Vec<String> = around.hosts.iter().map(|(name, address)| format!("{name}={address}")).collect();
        attributes.insert("add-hosts".into(), hosts.join(","));
    }
    if !around.ulimits.is_empty() {
        let bound = |bound: Option<u64>| bound.map_or_else(|| "-1".to_owned(), |bound| bound.to_string());
        let limits: Vec<String> = around
            .ulimits
            .iter()
            .map(|limit| format!("{}={}:{}", limit.resource.as_str(), bound(limit.soft), bound(limit.hard)))
            .collect();
        attributes.insert("ulimit".into(), limits.join(","));
    }
    if let Some(size) = around.shm_size {
        attributes.insert("shm-size".into(), size.to_string());
    }
    match &job.no_cache {
        NoCache::Nothing => {}
        // Nothing between the commas means every stage.
        NoCache::Everything => drop(attributes.insert("no-cache".into(), String::new())),
        NoCache::Stages(stages) => {
            let stages: Vec<&str> = stages.iter().map(String::as_str).collect();
            attributes.insert("no-cache".into(), stages.join(","));
        }
    }
    attributes
}

/// Builds the image. `cache` is where a registry keeps what its steps gave.
pub fn on(
    worker: &Worker,
    job: &BuildJob,
    prepared: &Prepared,
    exporter: Exporter,
    cache: Option<String>,
    ctl: &Ctl<'_>,
) -> Result<Done, Ended> {
    let build = Build {
        attributes: prepared.attributes.clone(),
        exporter: Some(exporter),
        cache,
        entitlements: prepared.entitlements.clone(),
        lending: prepared.lending.clone().map(|lending| (lending, worker.facts.is_old())),
    };
    let titles = titles(job, &prepared.portable);
    let title = |place: &Place<'_>| titles.find(place);
    let mut watch = Watch::new(ctl, prepared.redactor.clone(), &title);
    let answer = solve(&worker.dial, &build, &prepared.lent, &mut watch, ctl);
    ctl.sink.event(Event::BackgroundFinished { node: ctl.node.clone() });
    match answer? {
        Ok(answer) => Ok(Done { answer, steps: watch.begun }),
        Err(Problem::Gone(why)) => Err(Ended::Gone(why)),
        Err(Problem::Failed(why)) => {
            let file = job.dockerfile.file.path().display();
            Err(Ended::Failed(match watch.failed {
                Some(failed) => {
                    let said = failed_with(&failed.why);
                    match titles.line(&failed.title) {
                        Some(line) => said.context(format!("{file}:{line}: `{}` failed", failed.title)),
                        None => said.context(format!("{file}: `{}` failed", failed.title)),
                    }
                }
                None => Error::failed(prepared.redactor.redact(why)).context(format!("cannot build {file}")),
            }))
        }
    }
}

/// The step's own words where it ran and failed, else the builder's.
fn failed_with(why: &str) -> Error {
    match progress::reason(why).strip_prefix("exit code: ") {
        Some(code) => Error::failed(format!("exit status {}", code.trim())),
        None => Error::failed(why),
    }
}

/// An error of ours, or what became of the build.
type Solved = Result<Result<Answer, Problem>>;

fn solve(dial: &Dial, build: &Build, lent: &Lent, watch: &mut Watch<'_>, ctl: &Ctl<'_>) -> Solved {
    block_on(ctl.cancel, async {
        let connection = match Connection::open(dial).await {
            Ok(connection) => connection,
            Err(error) => return Ok(Err(Problem::Gone(error.to_string()))),
        };
        let answer = connection.build(build, lent.clone(), &mut |status| watch.status(status)).await;
        Ok(match answer {
            // A builder that is going down fails builds in many ways: whether it is there still tells them apart.
            Err(Problem::Failed(why)) => match Connection::open(dial).await {
                Ok(_) => Err(Problem::Failed(why)),
                Err(error) => Err(Problem::Gone(error.to_string())),
            },
            other => other,
        })
    })
}

/// What a person calls the steps behind the builder's numbers.
struct Titles {
    /// By the stage's place in the text: its name, and its steps.
    stages: Vec<(Option<String>, Vec<Step>)>,
}

/// Title and line of a step that has a number.
type Step = (String, usize);

fn titles(job: &BuildJob, portable: &Portable) -> Titles {
    let mut order: Vec<_> = job.stages.iter().collect();
    order.sort_by_key(|stage| stage.index);
    let stages = order.iter().enumerate().map(|(number, stage)| {
        let own = portable.instructions.iter().filter(|told| told.stage == Some(number));
        // Only an image that is fetched counts as a step.
        let counts_from = matches!(stage.base, StageBase::Image(_));
        let steps = own.enumerate().filter(|(i, told)| if *i == 0 { counts_from } else { told.touches_files });
        (stage.name.clone(), steps.map(|(_, told)| (told.title.clone(), told.line)).collect())
    });
    Titles { stages: stages.collect() }
}

impl Titles {
    fn find(&self, place: &Place<'_>) -> Option<String> {
        let numbered = |stage: &str| stage.strip_prefix("stage-").and_then(|number| number.parse::<usize>().ok());
        let stage = match place.stage {
            None => self.stages.first(),
            Some(name) => self
                .stages
                .iter()
                .find(|(own, _)| own.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(name)))
                .or_else(|| self.stages.get(numbered(name)?)),
        };
        let (title, _) = stage?.1.get(place.position.checked_sub(1)?)?;
        Some(title.clone())
    }

    fn line(&self, title: &str) -> Option<usize> {
        let steps = self.stages.iter().flat_map(|(_, steps)| steps);
        steps.filter(|(own, _)| own == title).map(|(_, line)| *line).next()
    }
}

/// Runs a check in the finished image. Its network is none, as with every engine.
pub fn check(worker: &Worker, prepared: &Prepared, image: &str, check: &Check, ctl: &Ctl<'_>) -> Result<(), Ended> {
    let command = check.run.join(" ");
    let argv = serde_json::to_string(&check.run).unwrap_or_default();
    let user = check.user.as_ref().map(|user| format!("USER {user}\n")).unwrap_or_default();
    let dockerfile = format!("FROM {image}\n{user}RUN {argv}\n");
    let attribute = |name: &str| prepared.attributes.get(name).map(|value| (name.to_owned(), value.clone()));
    let mut attributes: BTreeMap<String, String> = ["platform", "filename"].into_iter().filter_map(attribute).collect();
    attributes.insert("force-network-mode".into(), "none".into());
    let build = Build { attributes, ..Build::default() };
    let context = move |out: &mut dyn std::io::Write| one_file(out, &dockerfile);
    let lent = Lent {
        context: Some(Arc::new(context)),
        secrets: BTreeMap::new(),
        ssh: BTreeMap::new(),
        ..prepared.lent.clone()
    };
    let title = |place: &Place<'_>| (place.position == 2).then(|| format!("Check: {command}"));
    let mut watch = Watch::new(ctl, prepared.redactor.clone(), &title);
    match solve(&worker.dial, &build, &lent, &mut watch, ctl)? {
        Ok(_) => Ok(()),
        Err(Problem::Gone(why)) => Err(Ended::Gone(why)),
        Err(Problem::Failed(why)) => {
            let why = watch.failed.map_or(why, |failed| failed.why);
            let is_missing = why.contains("executable file not found") || why.contains("no such file or directory");
            if check.when_there && is_missing {
                return Ok(());
            }
            let error = failed_with(&why);
            Err(error.context(format!("the check `{command}` failed in the finished image of {}", ctl.node)).into())
        }
    }
}

/// A context with nothing but a Dockerfile.
fn one_file(out: &mut dyn std::io::Write, dockerfile: &str) -> Result<()> {
    let mut tar = tar::Builder::new(out);
    let mut head = tar::Header::new_gnu();
    head.set_mode(0o644);
    head.set_size(dockerfile.len() as u64);
    let cannot = |e: std::io::Error| Error::failed("cannot hand over a check").cause(e);
    tar.append_data(&mut head, DOCKERFILE, dockerfile.as_bytes()).map_err(cannot)?;
    tar.finish().map_err(cannot)
}
