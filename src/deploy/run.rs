//! A deployment on one host's engine: up, down, and how it is.

use std::collections::BTreeMap;

use super::bundle::{self, Mounted};
use super::carry::Carrier;
use super::container::{MADE_FROM, Parts};
use super::definition::{Deployment, Service};
use super::engine::Engine;
use super::plan::{self, Present, Step};
use super::secrets::{Lookup, Secrets};
use crate::error::{Error, Result};
use crate::event::{Cancel, Sink};
use crate::registry::credentials::Credentials;
use crate::start::definition::Then;

pub struct Host<'a> {
    pub deployment: &'a Deployment,
    pub engine: &'a Engine,
    pub lookup: Lookup<'a>,
    /// For images that the engine hasn't.
    pub credentials: &'a Credentials,
    pub sink: &'a dyn Sink,
    pub cancel: &'a Cancel,
}

/// One service as it is.
pub struct Status {
    pub service: String,
    pub image: String,
    pub state: State,
    /// As the engine's probe has it: starting, healthy, unhealthy.
    pub health: Option<String>,
    /// What an `up` would change about it.
    pub changed: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Absent,
    Runs,
    Restarts,
    Ended(i64),
}

impl Host<'_> {
    /// What `up` would do; nothing is changed.
    pub fn plan(&self, names: &[String]) -> Result<Vec<Step>> {
        let services = plan::chosen(self.deployment, names, true)?;
        let secrets = Secrets::read(self.deployment, &services, self.lookup)?;
        let mut steps = plan::images(self.deployment, &services, self.engine)?;
        steps.extend(self.steps(&services, &secrets)?);
        Ok(steps)
    }

    /// How many steps were carried out. None: all was as it should be.
    pub fn up(&self, names: &[String]) -> Result<usize> {
        let services = plan::chosen(self.deployment, names, true)?;
        let secrets = Secrets::read(self.deployment, &services, self.lookup)?;
        let carrier = self.carrier(&secrets, BTreeMap::new());
        let pulls = plan::images(self.deployment, &services, self.engine)?;
        // What has to be done to a service depends on its image.
        carrier.carry_out(&pulls)?;
        let steps = self.steps(&services, &secrets)?;
        carrier.carry_out(&steps)?;
        Ok(pulls.len() + steps.len())
    }

    /// Runs a task of a service's definition; `more` is what it finds in its environment besides.
    pub fn task(&self, name: &str, task: &str, more: BTreeMap<String, String>) -> Result<()> {
        let services = plan::chosen(self.deployment, &[name.to_owned()], false)?;
        let Some(service) = services.first() else { return Ok(()) };
        let known = service.start.tasks.iter().map(|task| task.name.as_str());
        let definition = service.start.task(task).ok_or_else(|| {
            let error = Error::bad_input(format!("{name} has no task `{task}`"));
            let all = known.clone().collect::<Vec<_>>().join(", ");
            error.hint(crate::suggest::near(task, known).unwrap_or_else(|| match all.is_empty() {
                true => format!("the start definition {} has none", service.start.name),
                false => format!("it has {all}"),
            }))
        })?;
        if definition.then == Then::Start {
            return Err(Error::bad_input(format!(
                "the task {task} goes on to start {name}, and has no end of its own"
            ))
            .hint("such a task is asked for by its variable, in `environment` of the service"));
        }
        let mut secrets = Secrets::read(self.deployment, &services, self.lookup)?;
        let is_secret = |name: &String| service.start.variables.get(name).is_some_and(|variable| variable.secret);
        more.iter().filter(|(name, _)| is_secret(name)).for_each(|(_, value)| secrets.hide(value));
        let carrier = self.carrier(&secrets, more);
        carrier.carry_out(&plan::images(self.deployment, &services, self.engine)?)?;
        let mut steps = plan::shared(self.deployment, &services, self.engine)?;
        let marks = plan::marks(self.deployment, self.engine)?;
        let present = Present::look(self.deployment, service, self.engine, &marks)?;
        steps.extend(plan::of_task(service, definition, &present)?);
        carrier.carry_out(&steps)
    }

    pub fn down(&self, names: &[String], volumes: bool) -> Result<usize> {
        let services = plan::chosen(self.deployment, names, false)?;
        let steps = plan::down(self.deployment, &services, self.engine, volumes)?;
        self.carrier(&Secrets::default(), BTreeMap::new()).carry_out(&steps)?;
        Ok(steps.len())
    }

    pub fn status(&self, names: &[String]) -> Result<Vec<Status>> {
        let services = plan::chosen(self.deployment, names, false)?;
        let look = |service: &&Service| self.status_of(service);
        services.iter().map(look).collect()
    }

    fn status_of(&self, service: &Service) -> Result<Status> {
        let container = self.engine.container(&self.deployment.container(service))?;
        // Values of secrets needn't be at hand to see how things are.
        let secrets = Secrets::read(self.deployment, &[service], self.lookup).ok();
        let changed = match (&container, self.engine.image(&service.image)?) {
            (None, _) => Vec::new(),
            (Some(_), None) => vec!["image".to_owned()],
            (Some(container), Some(image)) => match Mounted::new(self.deployment, self.engine)? {
                None => vec!["start runtime".to_owned()],
                Some(bundle) => {
                    let label = container.labels.get(MADE_FROM).map_or("", String::as_str);
                    Parts::new(self.deployment, service, &image, &bundle, secrets.as_ref())?.changed(label)
                }
            },
        };
        let state = match &container {
            None => State::Absent,
            Some(container) if container.restarting => State::Restarts,
            Some(container) if container.running => State::Runs,
            Some(container) => State::Ended(container.exit_code),
        };
        Ok(Status {
            service: service.name.clone(),
            image: service.image.clone(),
            state,
            health: container.filter(|c| c.running && service.has_probe()).and_then(|container| container.health),
            changed,
        })
    }

    /// Everything but getting images.
    fn steps(&self, services: &[&Service], secrets: &Secrets) -> Result<Vec<Step>> {
        let marks = plan::marks(self.deployment, self.engine)?;
        let mut steps = plan::shared(self.deployment, services, self.engine)?;
        let bundle = Mounted::new(self.deployment, self.engine)?;
        for service in services {
            let present = Present::look(self.deployment, service, self.engine, &marks)?;
            steps.extend(plan::of_service(self.deployment, service, &present, bundle.as_ref(), secrets)?);
        }
        if services.len() == self.deployment.services.len() {
            steps.extend(plan::stale_copies(bundle::stale(self.deployment, self.engine)?));
        }
        Ok(steps)
    }

    fn carrier<'a>(&'a self, secrets: &'a Secrets, more: BTreeMap<String, String>) -> Carrier<'a> {
        Carrier {
            deployment: self.deployment,
            engine: self.engine,
            secrets,
            credentials: self.credentials,
            more,
            sink: self.sink,
            cancel: self.cancel,
        }
    }
}
