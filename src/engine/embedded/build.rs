//! Builds one node: its stages in order, each step taken from the store or carried out, and the image's configuration.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use super::disk::Watch;
use super::helper::spec::{Report, Request, RootSpec, WorkdirSpec};
use super::output::Redactor;
use super::request::{self, Trees};
use super::run::{self, DEFAULT_PATH, RunRequest};
use super::sandbox::{self, Bounds, End, Streams};
use super::transient::{self, Tail};
use super::{EmbeddedEngine, Options, helper::spec::RawPath};
use crate::dockerfile::duration;
use crate::dockerfile::step::{Action, LoweredStage, Network, StageBase, Step};
use crate::engine::{BuildJob, Built, Check, Ctl, squash};
use crate::error::{Context as _, Error, Kind, Result};
use crate::event::{Event, Stream};
use crate::graph::key::{Content, Elsewhere, step_key};
use crate::image::config::{History, ImageConfig, chain_id};
use crate::image::digest::{Digest, Key};
use crate::image::store::StepRecord;
use crate::userns;

pub fn build(engine: &EmbeddedEngine, job: &BuildJob, ctl: &Ctl<'_>) -> Result<Built> {
    let mut steps = job.checks.len();
    steps += job.stages.iter().flat_map(|s| &s.steps).filter(|s| s.action.touches_files()).count();
    let created = timestamp(job.source_date_epoch)?;
    let mut build = Build { engine, job, ctl, created, stages: HashMap::new(), step: 0, steps };
    build.run()
}

/// A step that touches files, and what earlier builds left of it in the store.
#[derive(Clone, Debug)]
pub struct StepState {
    /// Counted as in the progress of a build.
    pub number: usize,
    /// Index in the job's stages, and position there.
    pub stage: usize,
    pub position: usize,
    /// The layers that it begins with; None: what it needs is not there.
    pub before: Option<Vec<Digest>>,
    /// The layers that it leaves; None: it failed, was never run, or was another step then.
    pub after: Option<Vec<Digest>>,
}

/// Carries nothing out.
pub fn states(engine: &EmbeddedEngine, job: &BuildJob, ctl: &Ctl<'_>) -> Result<Vec<StepState>> {
    let mut build = Build { engine, job, ctl, created: String::new(), stages: HashMap::new(), step: 0, steps: 0 };
    let mut states = Vec::new();
    for (number, stage) in job.stages.iter().enumerate() {
        let mut tree = match &stage.base {
            StageBase::Stage(index) => build.stages.get(index).cloned(),
            base => Some(build.base(base)?),
        };
        for (position, step) in stage.steps.iter().enumerate().filter(|(_, step)| step.action.touches_files()) {
            let before = tree.take().map(|tree| tree.diff_ids);
            let recorded = before.as_ref().and_then(|below| {
                let layer = build.recorded(&build.key(stage.index, position, step, below))?;
                Some(below.iter().cloned().chain(layer).collect::<Vec<Digest>>())
            });
            tree = recorded.clone().map(|diff_ids| Tree { diff_ids, ..Tree::default() });
            states.push(StepState { number: states.len() + 1, stage: number, position, before, after: recorded });
        }
        if let Some(tree) = tree {
            build.stages.insert(stage.index, tree);
        }
    }
    Ok(states)
}

/// A stage as far as it is built.
#[derive(Clone, Debug, Default)]
struct Tree {
    diff_ids: Vec<Digest>,
    history: Vec<History>,
    size: u64,
}

struct Build<'a> {
    engine: &'a EmbeddedEngine,
    job: &'a BuildJob,
    ctl: &'a Ctl<'a>,
    created: String,
    stages: HashMap<usize, Tree>,
    /// Counted from 1, over all stages and the checks.
    step: usize,
    steps: usize,
}

impl Trees for Build<'_> {
    fn stage(&self, index: usize) -> Option<&[Digest]> {
        self.stages.get(&index).map(|tree| tree.diff_ids.as_slice())
    }

    fn image(&self, name: &str) -> Option<&[Digest]> {
        self.job.bases.get(name).map(|built| built.config.rootfs.diff_ids.as_slice())
    }
}

impl Build<'_> {
    fn run(&mut self) -> Result<Built> {
        for stage in &self.job.stages {
            let tree = self.stage(stage)?;
            self.stages.insert(stage.index, tree);
        }
        let Some(target) = self.job.stages.last() else {
            return Err(Error::bad_input("the Dockerfile has no stage"));
        };
        let tree = self.stages.get(&target.index).cloned().unwrap_or_default();
        self.job.check_layers(tree.diff_ids.len(), self.ctl.node)?;
        let mut built = Built { key: self.job.key.clone(), size: tree.size, config: self.config(target, tree) };
        if squash::is_wanted(self.job, &built) {
            built = squash::squashed(&self.engine.store, self.job, built, self.ctl.cancel)?;
        }
        for check in &self.job.checks {
            self.check(check, &built)?;
        }
        self.engine.store.put_result(&self.job.key, &built)?;
        Ok(built)
    }

    fn base(&self, base: &StageBase) -> Result<Tree> {
        Ok(match base {
            StageBase::Scratch => Tree::default(),
            StageBase::Stage(index) => self
                .stages
                .get(index)
                .cloned()
                .ok_or_else(|| Error::failed(format!("stage {index} is used before it is built")))?,
            StageBase::Image(name) => {
                let built = self
                    .job
                    .bases
                    .get(name)
                    .ok_or_else(|| Error::failed(format!("the base image `{name}` was not made available")))?;
                Tree {
                    diff_ids: built.config.rootfs.diff_ids.clone(),
                    history: built.config.history.clone(),
                    size: built.size,
                }
            }
        })
    }

    fn stage(&mut self, stage: &LoweredStage) -> Result<Tree> {
        let mut tree = self.base(&stage.base)?;
        for (position, step) in stage.steps.iter().enumerate() {
            self.ctl.cancel.check()?;
            let layer = if step.action.touches_files() {
                self.timed(step.title.clone(), |build, number| {
                    build.layer(stage, position, step, &tree.diff_ids, number)
                })?
            } else {
                None
            };
            tree.history.push(History {
                created: Some(self.created.clone()),
                created_by: Some(step.created_by.clone()),
                empty_layer: layer.is_none(),
                ..History::default()
            });
            if let Some(id) = layer {
                tree.size += self.engine.store.layer(&id).map_or(0, |l| l.size);
                tree.diff_ids.push(id);
            }
        }
        Ok(tree)
    }

    /// Tells that a step begins and ends; the step says whether it was taken from the store.
    fn timed<T>(&mut self, title: String, work: impl FnOnce(&mut Self, usize) -> Result<(T, bool)>) -> Result<T> {
        self.step += 1;
        let (number, steps, node) = (self.step, self.steps, self.ctl.node.clone());
        let begun = Instant::now();
        self.ctl.sink.event(Event::StepStarted { node: node.clone(), step: number, steps, title });
        let (value, reused) = work(self, number)?;
        self.ctl.sink.event(Event::StepFinished { node, step: number, reused, duration: begun.elapsed() });
        Ok(value)
    }

    /// The layer that a step makes, and whether it was there already.
    fn layer(
        &mut self,
        stage: &LoweredStage,
        position: usize,
        step: &Step,
        below: &[Digest],
        number: usize,
    ) -> Result<(Option<Digest>, bool)> {
        let key = self.key(stage.index, position, step, below);
        let again = self.job.no_cache.covers(stage.name.as_deref());
        if let Some(layer) = self.recorded(&key).filter(|_| !again) {
            return Ok((layer, true));
        }
        let store = &self.engine.store;
        let _lock = store.lock_key(&key, self.ctl.cancel)?;
        // Whoever held the lock may have made it.
        if let Some(layer) = self.recorded(&key).filter(|_| !again) {
            return Ok((layer, true));
        }
        let layer = self
            .try_out(step, below, number)
            .map_err(|e| if e.kind() == Kind::Interrupted { e } else { self.located(e, step) })?;
        store.put_step(&key, &StepRecord { layer: layer.clone() })?;
        Ok((layer, false))
    }

    fn key(&self, stage: usize, position: usize, step: &Step, below: &[Digest]) -> Key {
        let none = Content::new();
        let content = self.job.content.get(&(stage, position)).unwrap_or(&none);
        let elsewhere = Elsewhere {
            stage: &|index| self.stage(index).map(chain_id),
            image: &|name| self.image(name).map(chain_id),
        };
        let BuildJob { surroundings, platform, source_date_epoch, .. } = self.job;
        step_key(&chain_id(below), &step.action, content, &elsewhere, surroundings, platform, *source_date_epoch)
    }

    fn recorded(&self, key: &Key) -> Option<Option<Digest>> {
        let record = self.engine.store.step(key)?;
        record.layer.as_ref().is_none_or(|id| self.engine.store.layer(id).is_some()).then_some(record.layer)
    }

    /// Carries a step out, again where the network was in its way; each try begins with what is below the step and
    /// nothing else.
    fn try_out(&self, step: &Step, below: &[Digest], number: usize) -> Result<Option<Digest>> {
        let Options { retries, retry_wait, .. } = self.engine.options;
        let mut tries = 1;
        loop {
            let tail = RefCell::new(Tail::default());
            let error = match self.carry_out(step, below, number, &tail) {
                Ok(layer) => return Ok(layer),
                Err(error) => error,
            };
            let reason = tail.borrow().reason().filter(|_| self.is_worth_a_try(step, &error));
            let Some(reason) = reason.filter(|_| tries <= retries) else {
                let error = match tail.borrow().hint() {
                    Some(hint) => error.hint(hint),
                    None => error,
                };
                return Err(if tries > 1 { error.cause(format!("it was tried {tries} times")) } else { error });
            };
            let wait = transient::wait(retry_wait, tries);
            tries += 1;
            self.ctl.sink.event(Event::StepRetried {
                node: self.ctl.node.clone(),
                step: number,
                attempt: tries,
                attempts: retries.saturating_add(1),
                wait,
                reason: reason.into(),
            });
            self.ctl.cancel.sleep(wait)?;
        }
    }

    /// Only a command that ran and failed can have failed because of the network, and only if it had one.
    fn is_worth_a_try(&self, step: &Step, error: &Error) -> bool {
        match &step.action {
            Action::Run(run) => {
                let network = self.job.surroundings.network;
                error.kind() == Kind::Failed && !request::no_network(run.network, network)
            }
            _ => false,
        }
    }

    fn carry_out(&self, step: &Step, below: &[Digest], number: usize, tail: &RefCell<Tail>) -> Result<Option<Digest>> {
        // What `--link` puts down depends on nothing that is there.
        let below = match &step.action {
            Action::Copy(copy) if copy.stands_alone() => &[],
            _ => below,
        };
        let work = self.engine.store.work_dir()?;
        let root = RootSpec { work: RawPath::from(work.path()), lower: self.engine.lower(below)?, scaffold: None };
        let upper = work.path().join(RootSpec::UPPER);
        let mut watch = self.engine.disk.watch(work.path(), &upper);
        let changed = match &step.action {
            Action::Config => false,
            Action::Run(run) => {
                let prepared = request::run(self.engine, self.job, run, step.line, self, root, self.ctl.cancel)?;
                let request = Request::Run(Box::new(prepared.spec.clone()));
                self.process(&request, number, &prepared.redactor, tail, &mut watch)?;
                true
            }
            Action::Copy(copy) => {
                let spec = request::copy(self.engine, self.job, copy, step.line, self, root, self.ctl)?;
                self.process(&Request::Copy(Box::new(spec)), number, &Redactor::default(), tail, &mut watch)?;
                true
            }
            Action::Workdir { path, user } => {
                let spec = WorkdirSpec { root, path: path.clone(), user: user.clone() };
                self.process(&Request::Workdir(spec), number, &Redactor::default(), tail, &mut watch)?
            }
        };
        if !changed {
            return Ok(None);
        }
        watch.keep()?;
        let layer = self.engine.store.commit_upper(&upper, below, self.job.source_date_epoch)?;
        Ok(Some(layer.diff_id))
    }

    /// Runs a helper to its end; whether it changed something. Its output goes to whoever watches.
    fn process(
        &self,
        request: &Request,
        number: usize,
        redactor: &Redactor,
        tail: &RefCell<Tail>,
        watch: &mut Watch<'_>,
    ) -> Result<bool> {
        let Options { helper, step_timeout: limit, .. } = &self.engine.options;
        let mut refused = false;
        let mut show = |stream, line| {
            let line = redactor.redact(line);
            refused |= userns::looks_refused(&line);
            tail.borrow_mut().push(&line);
            self.show(number, stream, line);
        };
        let bounds = Bounds { time: *limit, disk: Some(watch) };
        let end = sandbox::call_within(helper, request, Streams::Capture(&mut show), self.ctl.cancel, bounds);
        if !matches!(end, Ok(End::Reported(Report::Exited(_)))) {
            // Another try would not end in another way.
            *tail.borrow_mut() = Tail::default();
        }
        match end? {
            End::Reported(Report::Exited(0)) => Ok(true),
            End::Reported(Report::Done { changed }) => Ok(changed),
            End::Reported(Report::Exited(code)) => {
                let error = ended_badly(&Report::Exited(code));
                Err(match userns::current().step_hint().filter(|_| refused) {
                    Some(hint) => error.hint(hint),
                    None => error,
                })
            }
            End::Reported(other) => Err(ended_badly(&other)),
            End::OutOfTime => Err(out_of_time(*limit)),
        }
    }

    fn show(&self, step: usize, stream: Stream, line: String) {
        self.ctl.sink.event(Event::Output { node: self.ctl.node.clone(), step, stream, line });
    }

    /// Puts the instruction and its line in front of what went wrong with it.
    fn located(&self, error: Error, step: &Step) -> Error {
        let file = self.job.dockerfile.file.path().display();
        error.context(format!("{file}:{}: `{}` failed", step.line, step.title))
    }

    /// Whether the image has a program of this name where its PATH looks.
    fn has_program(&self, name: &str, built: &Built) -> Result<bool> {
        let path = built.config.config.env.iter().rev().find_map(|line| line.strip_prefix("PATH="));
        let stack = self.engine.store.stack(&built.config.rootfs.diff_ids)?;
        for dir in path.unwrap_or(DEFAULT_PATH).split(':') {
            if stack.lookup(&Path::new(dir).join(name))?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Without a network, whatever the build has: what a check finds must not depend on which of the host's ports are
    /// taken, nor on what answers elsewhere. Checks that run at once can all listen on the same port of their own.
    fn check(&mut self, check: &Check, built: &Built) -> Result<()> {
        if let (true, Some(program)) = (check.when_there, check.run.first())
            && !self.has_program(program, built)?
        {
            // It is counted among the steps.
            return self.timed(format!("Check: there is no {program} in the image"), |_, _| Ok(((), false)));
        }
        let command = check.run.join(" ");
        self.timed(format!("Check: {command}"), |build, number| {
            let request = RunRequest {
                entrypoint: Some(check.run.clone()),
                user: check.user.clone(),
                network: Network::None,
                ..RunRequest::default()
            };
            let streams = Streams::Capture(&mut |stream, line| build.show(number, stream, line));
            let limit = build.engine.options.step_timeout;
            let error = match run::execute(build.engine, built, &request, streams, build.ctl.cancel, limit)? {
                End::Reported(Report::Exited(0)) => return Ok(((), false)),
                End::Reported(report) => ended_badly(&report),
                End::OutOfTime => out_of_time(limit),
            };
            Err(error.context(format!("the check `{command}` failed in the finished image of {}", build.ctl.node)))
        })
    }

    fn config(&self, target: &LoweredStage, tree: Tree) -> ImageConfig {
        let mut config = target.config.clone();
        config.created = Some(self.created.clone());
        config.rootfs.diff_ids = tree.diff_ids;
        config.history = tree.history;
        config.config.labels.extend(self.job.labels.clone());
        config
    }
}

/// How a command ended that should have ended well. What it said is an event, and shown by whoever shows the run.
pub fn ended_badly(report: &Report) -> Error {
    match report {
        Report::Exited(code) => Error::failed(format!("exit status {code}")),
        Report::Signalled(9) => {
            Error::failed("killed by signal 9").hint("the kernel may have run out of memory: `dmesg` says so")
        }
        Report::Signalled(signal) => Error::failed(format!("killed by signal {signal}")),
        Report::NotExecuted { message, hint, .. } => {
            let error = Error::failed(message.clone());
            match hint {
                Some(hint) => error.hint(hint.clone()),
                None => error,
            }
        }
        Report::Terminal | Report::Done { .. } | Report::Failure(_) => {
            Error::failed("the helper gave an answer to another question")
        }
    }
}

fn out_of_time(limit: Option<Duration>) -> Error {
    let limit = i64::try_from(limit.unwrap_or_default().as_nanos()).map(duration::format).unwrap_or_default();
    Error::failed(format!("it took longer than {limit}, the limit for a step, and was ended"))
        .hint("`--step-timeout` and `[build] step_timeout` set the limit")
}

/// `created` in configurations and histories.
pub fn timestamp(source_date_epoch: Option<i64>) -> Result<String> {
    let time = match source_date_epoch {
        Some(seconds) => {
            jiff::Timestamp::from_second(seconds).bad_input(|| format!("SOURCE_DATE_EPOCH={seconds} is not a time"))?
        }
        None => jiff::Timestamp::now(),
    };
    Ok(time.to_string())
}
