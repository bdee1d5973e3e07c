//! What has to be done to a running deployment: what is there is looked at, and steps come out. Nothing is changed.

use std::collections::{BTreeMap, BTreeSet};

use super::bundle::{self, Mounted};
use super::container::{DEPLOYMENT, MADE_FROM, Parts};
use super::definition::{Bundle, Deployment, MountSource, Service};
use super::engine::{Container, Engine, Image};
use super::secrets::Secrets;
use crate::error::{Error, Result};
use crate::start::definition::{Takes, Task};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub service: Option<String>,
    /// In plain words.
    pub title: String,
    pub action: Action,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Pull(String),
    /// From an image to a volume.
    CopyBundle,
    MakeNetwork,
    MakeVolume(String),
    /// What an interrupted replacement left: the container that ran before.
    BringBack,
    Task {
        name: String,
        when: When,
    },
    Stop,
    Start,
    StartAgain,
    /// The old container comes back unless the new one gets well.
    Replace,
    Wait,
    /// Remembers which image the service's data belongs to.
    Note,
    Remove(Vec<String>),
    RemoveVolume(String),
    RemoveNetwork,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    First,
    Upgrade,
    Finish,
    /// Because somebody asked for it.
    Asked,
}

/// What the engine has of a service.
#[derive(Clone, Debug, Default)]
pub struct Present {
    pub image: Option<Image>,
    pub container: Option<Container>,
    /// One that was to be replaced.
    pub previous: bool,
    /// Tasks that were done before the first start.
    pub first_done: BTreeSet<String>,
    /// The image that ran last, with everything done that belongs to it.
    pub settled: Option<String>,
}

/// What is remembered is remembered as empty volumes: they are with the engine, and go away with the data.
pub fn task_mark(deployment: &Deployment, service: &Service, task: &str) -> String {
    format!("{}..done.{task}", deployment.container(service))
}

pub fn image_mark(deployment: &Deployment, service: &Service) -> String {
    format!("{}..image", deployment.container(service))
}

pub fn previous(deployment: &Deployment, service: &Service) -> String {
    format!("{}..previous", deployment.container(service))
}

pub const MARK: &str = "org.kollage.mark";

impl Present {
    pub fn look(deployment: &Deployment, service: &Service, engine: &Engine, marks: &Marks) -> Result<Present> {
        let tasks = service.tasks.first.iter();
        Ok(Present {
            image: engine.image(&service.image)?,
            container: engine.container(&deployment.container(service))?,
            previous: engine.container(&previous(deployment, service))?.is_some(),
            first_done: tasks.filter(|t| marks.contains_key(&task_mark(deployment, service, t))).cloned().collect(),
            settled: marks.get(&image_mark(deployment, service)).cloned(),
        })
    }
}

/// By name, with what they say.
pub type Marks = BTreeMap<String, String>;

pub fn marks(deployment: &Deployment, engine: &Engine) -> Result<Marks> {
    let volumes = engine.volumes(DEPLOYMENT, &deployment.name)?;
    Ok(volumes.into_iter().filter_map(|(name, labels)| Some((name, labels.get(MARK)?.clone()))).collect())
}

/// The services that were named with all that they need, in the order of the deployment; all of them if none was.
pub fn chosen<'a>(deployment: &'a Deployment, names: &[String], with_needs: bool) -> Result<Vec<&'a Service>> {
    let mut wanted: BTreeSet<&str> = BTreeSet::new();
    let mut open: Vec<&str> = names.iter().map(String::as_str).collect();
    while let Some(name) = open.pop() {
        let Some(service) = deployment.service(name) else {
            let known = deployment.services.iter().map(|service| service.name.as_str());
            let error = Error::bad_input(format!("there is no service `{name}` in this deployment"));
            return Err(match crate::suggest::hint(name, known.collect::<Vec<_>>()) {
                Some(hint) => error.hint(hint),
                None => error,
            });
        };
        if wanted.insert(name) && with_needs {
            open.extend(service.after.iter().map(String::as_str));
        }
    }
    Ok(deployment.services.iter().filter(|s| names.is_empty() || wanted.contains(s.name.as_str())).collect())
}

/// Images that the engine doesn't have. What else has to be done depends on them.
pub fn images(deployment: &Deployment, services: &[&Service], engine: &Engine) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    let mut images: Vec<&str> = services.iter().map(|service| service.image.as_str()).collect();
    if let Bundle::Image(reference) = &deployment.bundle {
        images.push(reference);
    }
    images.sort_unstable();
    images.dedup();
    for reference in images {
        if engine.image(reference)?.is_none() {
            steps.push(step(None, format!("Get the image {reference}"), Action::Pull(reference.to_owned())));
        }
    }
    Ok(steps)
}

/// What services share.
pub fn shared(deployment: &Deployment, services: &[&Service], engine: &Engine) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    if bundle::is_due(deployment, engine)? {
        steps.push(step(None, "Copy the start runtime from its image to a volume".into(), Action::CopyBundle));
    }
    if services.iter().any(|service| !service.host_network) && !engine.has_network(&deployment.name)? {
        steps.push(step(None, format!("Make the network {}", deployment.name), Action::MakeNetwork));
    }
    let mut volumes: Vec<&str> = services.iter().flat_map(|service| service.volumes()).collect();
    volumes.sort_unstable();
    volumes.dedup();
    for volume in volumes {
        let name = deployment.volume(volume);
        if engine.volume(&name)?.is_none() {
            steps.push(step(None, format!("Make the volume {name}"), Action::MakeVolume(name)));
        }
    }
    Ok(steps)
}

/// What has to be done to one service.
pub fn of_service(
    deployment: &Deployment,
    service: &Service,
    present: &Present,
    bundle: Option<&Mounted>,
    secrets: &Secrets,
) -> Result<Vec<Step>> {
    let own = |title: String, action| step(Some(&service.name), title, action);
    let mut steps = Vec::new();
    if present.previous && present.container.is_none() {
        // What it is then replaced with is another matter; for now that is what runs.
        steps.push(own("Bring back the container that ran before".into(), Action::BringBack));
    }
    for task in service.tasks.first.iter().filter(|task| !present.first_done.contains(*task)) {
        let action = Action::Task { name: task.clone(), when: When::First };
        steps.push(own(format!("Run the task {task}"), action));
    }
    let image = present.image.as_ref();
    let new_image = present.settled.is_some() && present.settled.as_ref() != image.map(|image| &image.id);
    let there = present.container.is_some() || present.previous;
    // What is wrong with the bundle is better said now, even if nothing is there to be compared.
    let parts = |image, bundle| Parts::new(deployment, service, image, bundle, Some(secrets));
    let parts = image.zip(bundle).map(|(image, bundle)| parts(image, bundle)).transpose()?;
    let changed = match (&parts, &present.container) {
        (Some(parts), Some(container)) => parts.changed(container.labels.get(MADE_FROM).map_or("", String::as_str)),
        (Some(_), None) => vec!["container".into()],
        (None, _) if image.is_some() => vec!["start runtime".into()],
        (None, _) => vec!["image".into()],
    };
    let running = present.container.as_ref().is_some_and(|container| container.running);
    if new_image && !changed.is_empty() {
        for task in &service.tasks.upgrade {
            if service.start.task(task).is_some_and(|task| task.takes == Takes::Stopped) && running {
                steps.push(own(format!("Stop it for the task {task}"), Action::Stop));
            }
            let action = Action::Task { name: task.clone(), when: When::Upgrade };
            steps.push(own(format!("Run the task {task} of the new image"), action));
        }
    }
    match (there, changed.is_empty()) {
        (false, _) => steps.push(own("Start it".into(), Action::Start)),
        (true, false) => steps.push(own(format!("Replace it: new {}", changed.join(", ")), Action::Replace)),
        (true, true) if !running => steps.push(own("Start it again".into(), Action::StartAgain)),
        (true, true) => {}
    }
    let settled = image.is_some() && present.settled.as_ref() == image.map(|image| &image.id);
    if steps.is_empty() && settled && !present.previous {
        return Ok(steps);
    }
    steps.push(own("Wait until it is well".into(), Action::Wait));
    if new_image {
        for task in &service.tasks.finish {
            let action = Action::Task { name: task.clone(), when: When::Finish };
            steps.push(own(format!("Run the task {task}"), action));
        }
    }
    if !settled {
        steps.push(own("Note the image that it runs with".into(), Action::Note));
    }
    Ok(steps)
}

/// A task that somebody asks for, with what it takes.
pub fn of_task(service: &Service, task: &Task, present: &Present) -> Result<Vec<Step>> {
    let own = |title: String, action| step(Some(&service.name), title, action);
    let running = present.container.as_ref().is_some_and(|container| container.running);
    let mut steps = Vec::new();
    if task.takes == Takes::Running && !running {
        let message = format!("the task {} takes {} running, and it isn't", task.name, service.name);
        return Err(Error::failed(message).hint(format!("start it: `kollage deploy up {}`", service.name)));
    }
    let stops = task.takes == Takes::Stopped && running;
    if stops {
        steps.push(own(format!("Stop it for the task {}", task.name), Action::Stop));
    }
    let action = Action::Task { name: task.name.clone(), when: When::Asked };
    steps.push(own(format!("Run the task {}", task.name), action));
    if stops {
        steps.push(own("Start it again".into(), Action::StartAgain));
        steps.push(own("Wait until it is well".into(), Action::Wait));
    }
    Ok(steps)
}

/// How services, and with `volumes` their data, go away again.
pub fn down(deployment: &Deployment, services: &[&Service], engine: &Engine, volumes: bool) -> Result<Vec<Step>> {
    let all = services.len() == deployment.services.len();
    let mut steps = Vec::new();
    let mut left = engine.containers(DEPLOYMENT, &deployment.name)?;
    for service in services.iter().rev() {
        let name = deployment.container(service);
        let own = |other: &String| *other == name || other.starts_with(&format!("{name}.."));
        let (mut own, rest): (Vec<String>, Vec<String>) = left.into_iter().partition(own);
        left = rest;
        if !own.is_empty() {
            // What it was to be replaced with goes first, so that an interruption leaves what ran before.
            own.sort();
            steps.push(step(Some(&service.name), "Stop and remove it".into(), Action::Remove(own)));
        }
    }
    if all && !left.is_empty() {
        let title = format!("Stop and remove what the deployment had before: {}", left.join(", "));
        steps.push(step(None, title, Action::Remove(left)));
    }
    if volumes {
        let kept: BTreeSet<&str> = deployment
            .services
            .iter()
            .filter(|other| !services.iter().any(|service| service.name == other.name))
            .flat_map(Service::volumes)
            .collect();
        let marks = marks(deployment, engine)?;
        for service in services {
            let own = service.mounts.iter().filter_map(|mount| match &mount.source {
                MountSource::Volume(name) if !kept.contains(name.as_str()) => Some(deployment.volume(name)),
                _ => None,
            });
            let begin = format!("{}..", deployment.container(service));
            let own: BTreeSet<String> = own.chain(marks.keys().filter(|m| m.starts_with(&begin)).cloned()).collect();
            for name in own {
                let known = steps.iter().any(|step| step.action == Action::RemoveVolume(name.clone()));
                if !known && engine.volume(&name)?.is_some() {
                    let title = match marks.contains_key(&name) {
                        true => format!("Forget what was done ({name})"),
                        false => format!("Remove the volume {name} and all data in it"),
                    };
                    steps.push(step(Some(&service.name), title, Action::RemoveVolume(name)));
                }
            }
        }
    }
    if all {
        steps.extend(stale_copies(bundle::all(deployment, engine)?));
    }
    if all && engine.has_network(&deployment.name)? {
        steps.push(step(None, format!("Remove the network {}", deployment.name), Action::RemoveNetwork));
    }
    Ok(steps)
}

/// Copies of the runtime that nothing is started with any more.
pub fn stale_copies(names: Vec<String>) -> impl Iterator<Item = Step> {
    let title = |name: &String| format!("Remove the volume {name}, a copy of the start runtime");
    names.into_iter().map(move |name| step(None, title(&name), Action::RemoveVolume(name)))
}

fn step(service: Option<&str>, title: String, action: Action) -> Step {
    Step { service: service.map(str::to_owned), title, action }
}
