//! Carries steps out, one after the other, and stops at the first that fails.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::bundle::{self, Mounted};
use super::container::{self, DEPLOYMENT, Made, Parts};
use super::definition::{Deployment, Service, runtime};
use super::engine::Engine;
use super::plan::{self, Action, MARK, Step, When};
use super::secrets::Secrets;
use crate::daemon;
use crate::error::{Error, Result};
use crate::event::{Cancel, Event, Sink, Stream};
use crate::image::reference::Reference;
use crate::registry::credentials::{Credentials, Lookup};
use crate::start::definition::Takes;

pub struct Carrier<'a> {
    pub deployment: &'a Deployment,
    pub engine: &'a Engine,
    pub secrets: &'a Secrets,
    pub credentials: &'a Credentials,
    /// What tasks find in their environment besides what the deployment says.
    pub more: BTreeMap<String, String>,
    pub sink: &'a dyn Sink,
    pub cancel: &'a Cancel,
}

fn gone(image: &str) -> Error {
    Error::failed(format!("the engine has no image {image} any more"))
}

/// How many lines of a container that isn't well are shown.
const LINES: usize = 15;

impl Carrier<'_> {
    pub fn carry_out(&self, steps: &[Step]) -> Result<()> {
        for (index, step) in steps.iter().enumerate() {
            self.cancel.check()?;
            let node: Arc<str> = step.service.as_deref().unwrap_or(&self.deployment.name).into();
            let title = step.title.clone();
            self.sink.event(Event::StepStarted { node: node.clone(), step: index, steps: steps.len(), title });
            let start = Instant::now();
            self.step(step, index, &node)?;
            let duration = start.elapsed();
            self.sink.event(Event::StepFinished { node, step: index, reused: false, duration });
        }
        Ok(())
    }

    fn step(&self, step: &Step, index: usize, node: &Arc<str>) -> Result<()> {
        let (deployment, engine) = (self.deployment, self.engine);
        let of_deployment = || HashMap::from([(DEPLOYMENT.to_owned(), deployment.name.clone())]);
        let service = step.service.as_deref().and_then(|name| deployment.service(name));
        match (&step.action, service) {
            (Action::Pull(reference), _) => self.pull(reference),
            (Action::CopyBundle, _) => bundle::install(deployment, engine),
            (Action::MakeNetwork, _) => engine.make_network(&deployment.name, of_deployment()),
            (Action::MakeVolume(name), _) => engine.make_volume(name, of_deployment()),
            (Action::RemoveVolume(name), _) => engine.remove_volume(name),
            (Action::RemoveNetwork, _) => engine.remove_network(&deployment.name),
            (Action::Remove(names), service) => names.iter().try_for_each(|name| {
                engine.stop(name, service.map_or(15, Service::stop_timeout))?;
                engine.remove(name)
            }),
            (Action::BringBack, Some(service)) => {
                let name = deployment.container(service);
                engine.rename(&plan::previous(deployment, service), &name)?;
                engine.start(&name)
            }
            (Action::Task { name, when }, Some(service)) => self.task(service, name, *when, index, node),
            (Action::Stop, Some(service)) => engine.stop(&deployment.container(service), service.stop_timeout()),
            (Action::Start, Some(service)) => self.start(service),
            (Action::StartAgain, Some(service)) => engine.start(&deployment.container(service)),
            (Action::Replace, Some(service)) => self.replace(service),
            (Action::Wait, Some(service)) => self.wait(service),
            (Action::Note, Some(service)) => {
                let image = self.engine.image(&service.image)?.ok_or_else(|| gone(&service.image))?;
                self.mark(service, &plan::image_mark(deployment, service), &image.id)
            }
            (_, None) => Ok(()),
        }
    }

    /// With the login that there is for its registry.
    fn pull(&self, reference: &str) -> Result<()> {
        let parsed = reference.parse::<Reference>()?;
        let known = self.credentials.lookup(&parsed);
        self.engine.pull(reference, daemon::credentials(&known)).map_err(|error| match known {
            Lookup::Unusable(hint) => error.hint(hint),
            _ => error,
        })
    }

    /// Hands over what containers of the service are made from.
    fn made<T>(&self, service: &Service, make: impl FnOnce(Made<'_>) -> Result<T>) -> Result<T> {
        let (deployment, secrets) = (self.deployment, self.secrets);
        let image = self.engine.image(&service.image)?.ok_or_else(|| gone(&service.image))?;
        let bundle = Mounted::new(deployment, self.engine)?.ok_or_else(|| gone("of the bundle"))?;
        make(Made { deployment, service, image: &image, bundle: &bundle, secrets })
    }

    /// Labels of a volume can't be changed, so that it is made anew.
    fn mark(&self, service: &Service, name: &str, says: &str) -> Result<()> {
        self.engine.remove_volume(name)?;
        let mut labels = container::labels(self.deployment, service);
        labels.insert(MARK.into(), says.into());
        self.engine.make_volume(name, labels)
    }

    fn task(&self, service: &Service, task: &str, when: When, index: usize, node: &Arc<str>) -> Result<()> {
        let name = format!("{}..{task}", self.deployment.container(service));
        // An interrupted run may have left it.
        self.engine.remove(&name)?;
        let takes = service.start.task(task).map(|task| task.takes).unwrap_or_default();
        let own = self.deployment.container(service);
        let beside = (takes == Takes::Running && !service.host_network).then_some(own.as_str());
        let body = self.made(service, |made| Ok(container::of_task(made, task, beside, &self.more)))?;
        self.engine.create(&name, body)?;
        let ended = self.engine.start(&name).and_then(|()| {
            self.engine.follow(&name, &mut |line| {
                let line = self.secrets.redact(line);
                self.sink.event(Event::Output { node: node.clone(), step: index, stream: Stream::Stderr, line });
            })
        });
        let removed = self.engine.remove(&name);
        let code = ended?;
        removed?;
        if code != 0 {
            let error = Error::failed(format!("the task {task} of {} failed with exit code {code}", service.name));
            return Err(match (when, takes) {
                (When::Asked, Takes::Stopped) => {
                    // What it has done by now isn't known.
                    let up = format!("`kollage deploy up {}` starts it again", service.name);
                    error.hint(format!("{} stays stopped; run the task again, or {up}", service.name))
                }
                (When::Asked, _) => error,
                (When::Upgrade, Takes::Stopped) => {
                    self.engine.start(&own)?;
                    error.hint(format!("{} runs again as before; once it is mended, run this again", service.name))
                }
                _ => error.hint("once it is mended, run this again: it goes on from here"),
            });
        }
        match when {
            When::First => self.mark(service, &plan::task_mark(self.deployment, service, task), "done"),
            When::Upgrade | When::Finish | When::Asked => Ok(()),
        }
    }

    fn start(&self, service: &Service) -> Result<()> {
        let name = self.deployment.container(service);
        let body = self.made(service, |made| {
            let parts = Parts::new(made.deployment, service, made.image, made.bundle, Some(made.secrets))?;
            Ok(container::of_service(made, &parts))
        })?;
        self.engine.create(&name, body)?;
        self.engine.start(&name)
    }

    /// The old container is kept, stopped, until the new one is well.
    fn replace(&self, service: &Service) -> Result<()> {
        let (name, previous) = (self.deployment.container(service), plan::previous(self.deployment, service));
        if self.engine.container(&previous)?.is_some() {
            // One that was tried and never got well.
            self.engine.remove(&name)?;
        } else {
            self.engine.stop(&name, service.stop_timeout())?;
            self.engine.rename(&name, &previous)?;
        }
        self.start(service).or_else(|error| match error.kind() {
            crate::error::Kind::Interrupted => Err(error),
            _ => self.go_back(service, error),
        })
    }

    fn wait(&self, service: &Service) -> Result<()> {
        let previous = plan::previous(self.deployment, service);
        let replaced = self.engine.container(&previous)?.is_some();
        match self.well(service) {
            Ok(()) if replaced => self.engine.remove(&previous),
            Ok(()) => Ok(()),
            Err(error) if replaced && error.kind() != crate::error::Kind::Interrupted => self.go_back(service, error),
            Err(error) => Err(error),
        }
    }

    /// Until the probe is content with the service's container.
    fn well(&self, service: &Service) -> Result<()> {
        let name = self.deployment.container(service);
        let limit = Duration::from_secs(service.health_timeout.into());
        let start = Instant::now();
        let mut last = String::new();
        loop {
            self.cancel.check()?;
            let unwell = |message: String| -> Result<()> { Err(self.with_lines(&name, Error::failed(message))) };
            let Some(container) = self.engine.container(&name)? else {
                return Err(Error::failed(format!("the container {name} went away")));
            };
            if !container.running && !container.restarting {
                return unwell(format!("{} ended with exit code {}", service.name, container.exit_code));
            }
            if container.restarts > 3 {
                let (times, code) = (container.restarts, container.exit_code);
                return unwell(format!(
                    "{} was started again {times} times, and ends with exit code {code}",
                    service.name
                ));
            }
            if container.running {
                if !service.has_probe() {
                    // Nothing more is known about it than that it stays.
                    if start.elapsed() > Duration::from_secs(3) {
                        return Ok(());
                    }
                } else if let Ok((code, said)) = self.engine.exec(&name, &[&runtime(), "healthcheck"]) {
                    if code == 0 {
                        return Ok(());
                    }
                    last = said.lines().last().unwrap_or_default().to_owned();
                }
            }
            if start.elapsed() > limit {
                let error = Error::failed(format!("{} isn't well after {} seconds", service.name, limit.as_secs()));
                let error = if last.is_empty() { error } else { error.cause(self.secrets.redact(last)) };
                return Err(self.with_lines(&name, error));
            }
            self.cancel.sleep(Duration::from_millis(500))?;
        }
    }

    fn with_lines(&self, name: &str, error: Error) -> Error {
        let lines = self.engine.tail(name, Some(LINES)).unwrap_or_default();
        lines.into_iter().fold(error, |error, line| error.cause(self.secrets.redact(line)))
    }

    /// Always an error: what was wrong, and what runs now.
    fn go_back(&self, service: &Service, wrong: Error) -> Result<()> {
        let (name, previous) = (self.deployment.container(service), plan::previous(self.deployment, service));
        let node: Arc<str> = service.name.as_str().into();
        self.sink.event(Event::Warning { node: Some(node), message: format!("{}; going back", wrong.message()) });
        self.engine.remove(&name)?;
        self.engine.rename(&previous, &name)?;
        let back = self.engine.start(&name).and_then(|()| self.well(service));
        Err(match back {
            Ok(()) => wrong
                .context(format!("{} could not be replaced; the container that ran before runs again", service.name)),
            Err(why) => wrong.context(format!(
                "{} could not be replaced, and the container that ran before doesn't get well any more ({})",
                service.name,
                why.message()
            )),
        })
    }
}
