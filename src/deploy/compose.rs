//! A Compose file. Names of volumes, containers and the network are those that `kollage deploy up` gives.

use super::definition::{BUNDLE, Bundle, CONFIG, Deployment, MountSource, Port, SecretSource, Service, runtime};
use super::files::Rendering;
use super::yaml::Yaml;

pub fn render(deployment: &Deployment) -> Rendering {
    let mut rendering = Rendering::default();
    rendering.configuration(deployment);
    let mut services = Vec::new();
    for service in &deployment.services {
        for task in &service.tasks.first {
            services.push((task_name(service, task), of_task(deployment, service, task)));
        }
        services.push((service.name.clone(), of_service(deployment, service)));
    }
    let mut file = vec![("services".to_owned(), Yaml::Map(services))];
    let own =
        deployment.volumes().into_iter().map(|name| (name.to_owned(), Yaml::map([("name", deployment.volume(name))])));
    let mut volumes: Vec<(String, Yaml)> = own.collect();
    if let Bundle::Volume(name) = &deployment.bundle {
        volumes
            .push((BUNDLE_VOLUME.into(), Yaml::map([("name", Yaml::from(name.as_str())), ("external", true.into())])));
    }
    if !volumes.is_empty() {
        file.push(("volumes".into(), Yaml::Map(volumes)));
    }
    if deployment.has_network() {
        let network = Yaml::map([("name", deployment.name.as_str())]);
        file.push(("networks".into(), Yaml::map([("default", network)])));
    }
    let head = format!(
        "# The deployment {}, written by `kollage deploy render`; change deployment.toml instead.\n",
        deployment.name
    );
    rendering.text("compose.yaml", head + &Yaml::Map(file).document());
    for (name, source) in &deployment.secrets {
        rendering.notes.push(match source {
            SecretSource::Environment(variable) => {
                format!("the secret {name}: export {variable} before docker compose")
            }
            SecretSource::File(path) => {
                format!(
                    "the secret {name}: export {}=\"$(cat {})\" before docker compose",
                    variable(name),
                    path.display()
                )
            }
        });
    }
    rendering
}

/// Names of volumes of a deployment have no capital letters.
const BUNDLE_VOLUME: &str = "BUNDLE";

fn task_name(service: &Service, task: &str) -> String {
    format!("{}-{task}", service.name)
}

fn of_service(deployment: &Deployment, service: &Service) -> Yaml {
    let mut out = vec![
        ("image".to_owned(), Yaml::from(service.image.as_str())),
        ("container_name".into(), deployment.container(service).into()),
    ];
    out.extend(common(deployment, service, &["start"]));
    if !service.ports.is_empty() {
        out.push(("ports".into(), Yaml::list(service.ports.iter().map(Port::line))));
    }
    if service.has_probe() {
        let test = ["CMD".to_owned(), runtime(), "healthcheck".into()];
        let check = [
            ("test", Yaml::list(test)),
            ("interval", "30s".into()),
            ("timeout", "30s".into()),
            ("retries", Yaml::Number(3)),
            ("start_period", format!("{}s", service.health_timeout).into()),
        ];
        out.push(("healthcheck".into(), Yaml::map(check)));
    }
    let own = service.tasks.first.last().map(|task| (task_name(service, task), "service_completed_successfully"));
    let needs = waits_for(deployment, service).chain(own);
    out.extend(depends_on(needs));
    out.push(("stop_grace_period".into(), format!("{}s", service.stop_timeout()).into()));
    out.push(("restart".into(), service.restart.as_str().into()));
    Yaml::Map(out)
}

/// Compose runs it at each `up`; tasks that are done first may run again.
fn of_task(deployment: &Deployment, service: &Service, task: &str) -> Yaml {
    let mut out = vec![("image".to_owned(), Yaml::from(service.image.as_str()))];
    out.extend(common(deployment, service, &["task", task]));
    let index = service.tasks.first.iter().position(|name| name == task).unwrap_or(0);
    let before = index.checked_sub(1).and_then(|index| service.tasks.first.get(index));
    let before = before.map(|before| (task_name(service, before), "service_completed_successfully"));
    out.extend(depends_on(waits_for(deployment, service).chain(before)));
    out.push(("restart".into(), "no".into()));
    Yaml::Map(out)
}

fn waits_for<'a>(
    deployment: &'a Deployment,
    service: &'a Service,
) -> impl Iterator<Item = (String, &'static str)> + 'a {
    service.after.iter().filter_map(|name| deployment.service(name)).map(|other| {
        let condition = if other.has_probe() { "service_healthy" } else { "service_started" };
        (other.name.clone(), condition)
    })
}

fn depends_on(needs: impl Iterator<Item = (String, &'static str)>) -> Option<(String, Yaml)> {
    let needs: Vec<_> = needs.map(|(name, condition)| (name, Yaml::map([("condition", condition)]))).collect();
    (!needs.is_empty()).then(|| ("depends_on".into(), Yaml::Map(needs)))
}

fn common(deployment: &Deployment, service: &Service, command: &[&str]) -> Vec<(String, Yaml)> {
    let mut out = vec![
        // The runtime begins as root and gives that up.
        ("user".to_owned(), "0:0".into()),
        ("entrypoint".into(), Yaml::list([runtime()])),
        ("command".into(), Yaml::list(command.iter().copied())),
        ("stop_signal".into(), "SIGTERM".into()),
    ];
    let mut environment: Vec<(String, Yaml)> = service
        .plain_environment()
        .into_iter()
        // A dollar begins a variable of Compose.
        .map(|(name, value)| (name, value.replace('$', "$$").into()))
        .collect();
    for (name, secret) in &service.secrets {
        let from = match deployment.secrets.get(secret) {
            Some(SecretSource::Environment(name)) => name.clone(),
            _ => variable(secret),
        };
        environment.push((name.clone(), format!("${{{from}:?the secret {secret}}}").into()));
    }
    environment.sort_by(|a, b| a.0.cmp(&b.0));
    out.push(("environment".into(), Yaml::Map(environment)));
    let mut volumes = vec![bundle(&deployment.bundle)];
    if service.config.is_some() {
        volumes.push(mount("bind", &format!("./config/{}", service.name), CONFIG, true));
    }
    volumes.extend(service.mounts.iter().map(|one| match &one.source {
        MountSource::Volume(name) => mount("volume", name, &one.target, one.read_only),
        MountSource::Path(path) => mount("bind", &path.display().to_string(), &one.target, one.read_only),
    }));
    out.push(("volumes".into(), Yaml::List(volumes)));
    if service.capabilities().next().is_some() {
        out.push(("cap_add".into(), Yaml::list(service.capabilities())));
    }
    if service.host_network {
        out.push(("network_mode".into(), "host".into()));
    }
    out
}

fn bundle(bundle: &Bundle) -> Yaml {
    match bundle {
        Bundle::Directory(path) => mount("bind", &path.display().to_string(), BUNDLE, true),
        Bundle::Volume(_) => mount("volume", BUNDLE_VOLUME, BUNDLE, true),
        Bundle::Image(reference) => Yaml::map([("type", "image"), ("source", reference.as_str()), ("target", BUNDLE)]),
    }
}

fn mount(kind: &str, source: &str, target: &str, read_only: bool) -> Yaml {
    let mut out =
        vec![("type", Yaml::from(kind)), ("source", source.replace('$', "$$").into()), ("target", target.into())];
    if read_only {
        out.push(("read_only", true.into()));
    }
    Yaml::map(out)
}

/// The variable that stands for a secret from a file.
fn variable(secret: &str) -> String {
    secret.to_ascii_uppercase().replace(['-', '.'], "_")
}

impl Port {
    /// As Docker and Podman write it.
    pub fn line(&self) -> String {
        let address = self.address.as_ref().map(|address| format!("{address}:")).unwrap_or_default();
        format!("{address}{}:{}{}", self.host, self.container, if self.udp { "/udp" } else { "" })
    }
}
