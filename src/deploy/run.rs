//! A deployment on one host's engine: up, down, and how it is.

use super::carry::Carrier;
use super::container::{MADE_FROM, Parts};
use super::definition::{Deployment, Service};
use super::engine::Engine;
use super::plan::{self, Action, Present, Step};
use super::secrets::{Lookup, Secrets};
use crate::error::Result;
use crate::event::{Cancel, Sink};

pub struct Host<'a> {
    pub deployment: &'a Deployment,
    pub engine: &'a Engine,
    pub lookup: Lookup<'a>,
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
        let mut steps = plan::shared(self.deployment, &services, self.engine)?;
        steps.extend(self.of_services(&services, &secrets)?);
        Ok(steps)
    }

    /// How many steps were carried out. None: all was as it should be.
    pub fn up(&self, names: &[String]) -> Result<usize> {
        let services = plan::chosen(self.deployment, names, true)?;
        let secrets = Secrets::read(self.deployment, &services, self.lookup)?;
        let carrier = self.carrier(&secrets);
        let shared = plan::shared(self.deployment, &services, self.engine)?;
        let (pulls, shared): (Vec<Step>, Vec<Step>) =
            shared.into_iter().partition(|step| matches!(step.action, Action::Pull(_)));
        // What has to be done to a service depends on its image.
        carrier.carry_out(&pulls)?;
        let mut steps = shared;
        steps.extend(self.of_services(&services, &secrets)?);
        carrier.carry_out(&steps)?;
        Ok(pulls.len() + steps.len())
    }

    pub fn down(&self, names: &[String], volumes: bool) -> Result<usize> {
        let services = plan::chosen(self.deployment, names, false)?;
        let steps = plan::down(self.deployment, &services, self.engine, volumes)?;
        self.carrier(&Secrets::default()).carry_out(&steps)?;
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
            (Some(container), Some(image)) => {
                let label = container.labels.get(MADE_FROM).map_or("", String::as_str);
                Parts::new(self.deployment, service, &image, secrets.as_ref())?.changed(label)
            }
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

    fn of_services(&self, services: &[&Service], secrets: &Secrets) -> Result<Vec<Step>> {
        let marks = plan::marks(self.deployment, self.engine)?;
        let mut steps = Vec::new();
        for service in services {
            let present = Present::look(self.deployment, service, self.engine, &marks)?;
            steps.extend(plan::of_service(self.deployment, service, &present, secrets)?);
        }
        Ok(steps)
    }

    fn carrier<'a>(&'a self, secrets: &'a Secrets) -> Carrier<'a> {
        Carrier { deployment: self.deployment, engine: self.engine, secrets, sink: self.sink, cancel: self.cancel }
    }
}
