//! What a service's containers are made of, and a digest of each part of that, by which a later run knows what changed.

use std::collections::{BTreeMap, HashMap};

use bollard::models::{
    ContainerCreateBody, EndpointSettings, HealthConfig, HostConfig, Mount as EngineMount, MountType, NetworkingConfig,
    PortBinding, PortMap, RestartPolicy, RestartPolicyNameEnum,
};

use super::bundle::Mounted;
use super::definition::{CONFIG, Deployment, MountSource, Restart, Service, runtime};
use super::engine::Image;
use super::secrets::Secrets;
use crate::error::Result;
use crate::image::digest::KeyHasher;

pub const DEPLOYMENT: &str = "org.kollage.deployment";
pub const SERVICE: &str = "org.kollage.service";
/// What a container was made from: `part=digest` for each part.
pub const MADE_FROM: &str = "org.kollage.made-from";

/// The domain of the digests.
const PART: &str = "kollage-deployment-part";

/// Digests by what a person would call the part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts(pub BTreeMap<String, String>);

impl Parts {
    pub fn new(
        deployment: &Deployment,
        service: &Service,
        image: &Image,
        bundle: &Mounted,
        secrets: Option<&Secrets>,
    ) -> Result<Parts> {
        let mut parts = Parts::default();
        parts.add("image", [image.id.clone()]);
        parts.add("start runtime", bundle.parts(&deployment.bundle, service)?);
        if let Some(config) = &service.config {
            let files = config
                .files
                .iter()
                .flat_map(|(path, file)| [path.clone(), file.mode.to_string(), blake3::hash(&file.bytes).to_string()]);
            parts.add("configuration", files.chain([config.dir.display().to_string()]));
        }
        parts.add("environment", service.plain_environment().into_iter().flat_map(|(name, value)| [name, value]));
        if let Some(secrets) = secrets {
            let values = service
                .secrets
                .iter()
                .flat_map(|(variable, name)| [variable.clone(), secrets.get(name).unwrap_or_default().to_owned()]);
            parts.add("secrets", values);
        }
        let mounts = service.mounts.iter().flat_map(|mount| {
            let source = match &mount.source {
                MountSource::Volume(name) => format!("volume {name}"),
                MountSource::Path(path) => format!("path {}", path.display()),
            };
            [source, mount.target.clone(), mount.read_only.to_string()]
        });
        parts.add("volumes", mounts);
        let ports = service.ports.iter().map(super::definition::Port::line);
        parts.add("network", ports.chain([service.host_network.to_string()]));
        let rest =
            [service.restart.as_str().to_owned(), service.stop_timeout().to_string(), service.has_probe().to_string()];
        parts.add("way to run", service.capabilities().map(str::to_owned).chain(rest));
        Ok(parts)
    }

    fn add(&mut self, part: &str, facts: impl IntoIterator<Item = String>) {
        let mut hasher = KeyHasher::new(PART);
        for fact in facts {
            hasher.part("fact", fact);
        }
        // Enough to tell what changed, and a label is read by people.
        self.0.insert(part.into(), hasher.finish().as_str()[..16].to_owned());
    }

    pub fn label(&self) -> String {
        self.0.iter().map(|(part, digest)| format!("{part}={digest}")).collect::<Vec<_>>().join(" ; ")
    }

    /// What is different in a container with this label.
    pub fn changed(&self, label: &str) -> Vec<String> {
        let mut before: BTreeMap<&str, &str> = label.split(" ; ").filter_map(|part| part.split_once('=')).collect();
        let now = self.0.iter().map(|(part, digest)| (part, before.remove(part.as_str()) != Some(digest.as_str())));
        let mut changed: Vec<String> = now.filter(|(_, changed)| *changed).map(|(part, _)| part.clone()).collect();
        // Without the values of secrets nothing is known about them.
        let known = |part: &&str| *part != "secrets" || self.0.contains_key("secrets");
        changed.extend(before.into_keys().filter(known).map(str::to_owned));
        changed
    }
}

pub fn labels(deployment: &Deployment, service: &Service) -> HashMap<String, String> {
    HashMap::from([(DEPLOYMENT.into(), deployment.name.clone()), (SERVICE.into(), service.name.clone())])
}

/// What every container of a service is made from.
#[derive(Clone, Copy)]
pub struct Made<'a> {
    pub deployment: &'a Deployment,
    pub service: &'a Service,
    pub image: &'a Image,
    pub bundle: &'a Mounted,
    pub secrets: &'a Secrets,
}

/// What the containers of a service have in common; `command` is the runtime's.
fn common(made: Made<'_>, command: &[&str]) -> ContainerCreateBody {
    let Made { deployment, service, image, bundle, secrets } = made;
    let mut environment = service.plain_environment();
    if let Some(user) = &image.user {
        environment.entry("KOLLAGE_IMAGE_USER".into()).or_insert_with(|| user.clone());
    }
    let values = service.secrets.iter().filter_map(|(variable, name)| Some((variable, secrets.get(name)?)));
    environment.extend(values.map(|(variable, value)| (variable.clone(), value.to_owned())));
    let mut mounts = vec![bundle.mount.clone()];
    if let Some(config) = &service.config {
        mounts.push(mount(MountType::BIND, &config.dir.display().to_string(), CONFIG, true));
    }
    mounts.extend(service.mounts.iter().map(|one| match &one.source {
        MountSource::Volume(name) => mount(MountType::VOLUME, &deployment.volume(name), &one.target, one.read_only),
        MountSource::Path(path) => mount(MountType::BIND, &path.display().to_string(), &one.target, one.read_only),
    }));
    let network = if service.host_network { "host".to_owned() } else { deployment.name.clone() };
    ContainerCreateBody {
        image: Some(service.image.clone()),
        // The runtime begins as root and gives that up.
        user: Some("0:0".into()),
        entrypoint: Some(vec![runtime()]),
        cmd: Some(command.iter().map(|word| (*word).to_owned()).collect()),
        env: Some(environment.into_iter().map(|(name, value)| format!("{name}={value}")).collect()),
        labels: Some(labels(deployment, service)),
        stop_signal: Some("SIGTERM".into()),
        // An image's own probe knows nothing of the service.
        healthcheck: Some(HealthConfig { test: Some(vec!["NONE".into()]), ..HealthConfig::default() }),
        host_config: Some(HostConfig {
            mounts: Some(mounts),
            network_mode: Some(network),
            cap_add: Some(service.capabilities().map(str::to_owned).collect()),
            // The runtime is one.
            init: Some(false),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    }
}

/// A task that takes the service running shares the network of `beside`, so that it finds it at the same addresses.
pub fn of_task(
    made: Made<'_>,
    task: &str,
    beside: Option<&str>,
    environment: &BTreeMap<String, String>,
) -> ContainerCreateBody {
    let mut body = common(made, &["task", task]);
    let own = |line: &String| !environment.contains_key(line.split('=').next().unwrap_or(line));
    if let Some(lines) = &mut body.env {
        lines.retain(own);
        lines.extend(environment.iter().map(|(name, value)| format!("{name}={value}")));
    }
    if let (Some(host), Some(id)) = (&mut body.host_config, beside) {
        host.network_mode = Some(format!("container:{id}"));
    }
    body
}

pub fn of_service(made: Made<'_>, parts: &Parts) -> ContainerCreateBody {
    let Made { deployment, service, .. } = made;
    let mut body = common(made, &["start"]);
    if let Some(labels) = &mut body.labels {
        labels.insert(MADE_FROM.into(), parts.label());
    }
    body.stop_timeout = Some(service.stop_timeout().into());
    if service.has_probe() {
        body.healthcheck = Some(HealthConfig {
            test: Some(vec!["CMD".into(), runtime(), "healthcheck".into()]),
            interval: Some(30 * SECOND),
            timeout: Some(30 * SECOND),
            retries: Some(3),
            start_period: Some(i64::from(service.health_timeout) * SECOND),
            ..HealthConfig::default()
        });
    }
    if !service.host_network {
        let own = EndpointSettings { aliases: Some(vec![service.name.clone()]), ..EndpointSettings::default() };
        let endpoints = HashMap::from([(deployment.name.clone(), own)]);
        body.networking_config = Some(NetworkingConfig { endpoints_config: Some(endpoints) });
    }
    let mut bindings = PortMap::new();
    for port in &service.ports {
        let binding = PortBinding {
            host_ip: port.address.as_ref().map(|address| address.trim_matches(['[', ']']).to_owned()),
            host_port: Some(port.host.to_string()),
        };
        bindings.entry(inside(port)).or_default().get_or_insert_default().push(binding);
    }
    body.exposed_ports = Some(service.ports.iter().map(inside).collect());
    if let Some(host) = &mut body.host_config {
        host.port_bindings = Some(bindings);
        let name = match service.restart {
            Restart::No => RestartPolicyNameEnum::NO,
            Restart::OnFailure => RestartPolicyNameEnum::ON_FAILURE,
            Restart::Always => RestartPolicyNameEnum::ALWAYS,
            Restart::UnlessStopped => RestartPolicyNameEnum::UNLESS_STOPPED,
        };
        host.restart_policy = Some(RestartPolicy { name: Some(name), maximum_retry_count: None });
    }
    body
}

/// The API counts in nanoseconds.
const SECOND: i64 = 1_000_000_000;

fn inside(port: &super::definition::Port) -> String {
    format!("{}/{}", port.container, if port.udp { "udp" } else { "tcp" })
}

/// A directory of the host has to be there; nothing makes it.
pub fn mount(typ: MountType, source: &str, target: &str, read_only: bool) -> EngineMount {
    EngineMount {
        typ: Some(typ),
        source: Some(source.to_owned()),
        target: Some(target.to_owned()),
        read_only: Some(read_only),
        ..EngineMount::default()
    }
}
