//! Podman's systemd units (Quadlet, of Podman 5): one `.container` for each service and for each task that comes first,
//! a `.volume` for each volume, and a `.network`.

use std::fmt::Write as _;

use super::definition::{
    BUNDLE, Bundle, CONFIG, Deployment, Mount, MountSource, Restart, SecretSource, Service, runtime,
};
use super::files::Rendering;

pub fn render(deployment: &Deployment) -> Rendering {
    let mut rendering = Rendering::default();
    rendering.configuration(deployment);
    let name = &deployment.name;
    for service in &deployment.services {
        for task in &service.tasks.first {
            let unit = of_task(deployment, service, task);
            rendering.text(format!("{}.container", task_unit(deployment, service, task)), unit);
        }
        rendering.text(format!("{}.container", deployment.container(service)), of_service(deployment, service));
    }
    for volume in deployment.volumes() {
        let name = deployment.volume(volume);
        rendering.text(format!("{name}.volume"), format!("[Volume]\nVolumeName={name}\n"));
    }
    if deployment.has_network() {
        rendering.text(format!("{name}.network"), format!("[Network]\nNetworkName={name}\n"));
    }
    for (secret, source) in &deployment.secrets {
        let secret_name = format!("{name}-{secret}");
        rendering.notes.push(match source {
            SecretSource::Environment(variable) => {
                format!("the secret {secret}: podman secret create --env {secret_name} {variable}")
            }
            SecretSource::File(path) => {
                format!("the secret {secret}: podman secret create {secret_name} {}", path.display())
            }
        });
    }
    rendering
}

/// Unit files are lines of keys; sections come in the order in which they are begun.
#[derive(Default)]
struct Unit(String);

impl Unit {
    fn section(&mut self, name: &str) {
        let gap = if self.0.is_empty() { "" } else { "\n" };
        let _ = writeln!(self.0, "{gap}[{name}]");
    }

    fn key(&mut self, key: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.0, "{key}={value}");
    }
}

/// systemd looks for specifiers, and where the command is run for variables.
fn plain(text: &str) -> String {
    text.replace('%', "%%").replace('$', "$$")
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in plain(text).chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn task_unit(deployment: &Deployment, service: &Service, task: &str) -> String {
    format!("{}-{task}", deployment.container(service))
}

fn of_service(deployment: &Deployment, service: &Service) -> String {
    let mut unit = Unit::default();
    let first = service.tasks.first.last().map(|task| task_unit(deployment, service, task));
    let needs = service.after.iter().filter_map(|name| deployment.service(name));
    head(&mut unit, &service.start.summary, needs.map(|other| deployment.container(other)).chain(first));
    container(&mut unit, deployment, service, "start");
    unit.key("ContainerName", deployment.container(service));
    for port in &service.ports {
        unit.key("PublishPort", port.line());
    }
    if service.has_probe() {
        // As a list: an image needn't have a shell.
        unit.key("HealthCmd", format!("[\"CMD\", \"{}\", \"healthcheck\"]", runtime()));
        unit.key("HealthInterval", "30s");
        unit.key("HealthTimeout", "30s");
        unit.key("HealthRetries", 3);
        unit.key("HealthStartPeriod", format!("{}s", service.health_timeout));
        unit.key("HealthStartupCmd", format!("[\"CMD\", \"{}\", \"healthcheck\"]", runtime()));
        unit.key("HealthStartupInterval", "2s");
        // Those that need it are started once it is well.
        unit.key("Notify", "healthy");
    }
    unit.key("StopTimeout", service.stop_timeout());
    unit.section("Service");
    let restart = match service.restart {
        Restart::No => "no",
        Restart::OnFailure => "on-failure",
        Restart::Always | Restart::UnlessStopped => "always",
    };
    unit.key("Restart", restart);
    unit.key("TimeoutStartSec", service.health_timeout);
    unit.key("TimeoutStopSec", service.stop_timeout().saturating_add(15));
    unit.section("Install");
    unit.key("WantedBy", "multi-user.target default.target");
    unit.0
}

/// Done at each boot, before the service; tasks that are done first may run again.
fn of_task(deployment: &Deployment, service: &Service, task: &str) -> String {
    let mut unit = Unit::default();
    let index = service.tasks.first.iter().position(|name| name == task).unwrap_or(0);
    let before = index.checked_sub(1).and_then(|index| service.tasks.first.get(index));
    let needs = service.after.iter().filter_map(|name| deployment.service(name));
    let needs = needs.map(|other| deployment.container(other));
    let before = before.map(|before| task_unit(deployment, service, before));
    head(&mut unit, &format!("{}: {task}", service.start.summary), needs.chain(before));
    container(&mut unit, deployment, service, &format!("task {task}"));
    unit.key("ContainerName", task_unit(deployment, service, task));
    unit.section("Service");
    unit.key("Type", "oneshot");
    unit.key("RemainAfterExit", "yes");
    unit.key("Restart", "no");
    // A database can take its time.
    unit.key("TimeoutStartSec", "infinity");
    unit.0
}

fn head(unit: &mut Unit, about: &str, needs: impl Iterator<Item = String>) {
    unit.section("Unit");
    unit.key("Description", plain(about));
    for need in needs {
        unit.key("Requires", format!("{need}.service"));
        unit.key("After", format!("{need}.service"));
    }
}

fn container(unit: &mut Unit, deployment: &Deployment, service: &Service, command: &str) {
    unit.section("Container");
    unit.key("Image", &service.image);
    // The runtime begins as root and gives that up.
    unit.key("User", "0:0");
    unit.key("Entrypoint", runtime());
    unit.key("Exec", command);
    // The runtime is one.
    unit.key("RunInit", "false");
    unit.key("StopSignal", "SIGTERM");
    for (name, value) in service.plain_environment() {
        unit.key("Environment", quoted(&format!("{name}={value}")));
    }
    for (variable, secret) in &service.secrets {
        unit.key("Secret", format!("{}-{secret},type=env,target={variable}", deployment.name));
    }
    match &deployment.bundle {
        Bundle::Directory(path) => unit.key("Volume", plain(&format!("{}:{BUNDLE}:ro", path.display()))),
        Bundle::Volume(name) => unit.key("Volume", format!("{name}:{BUNDLE}:ro")),
        Bundle::Image(image) => unit.key("Mount", format!("type=image,source={image},destination={BUNDLE}")),
    }
    if service.config.is_some() {
        // Beside the units.
        unit.key("Volume", format!("./config/{}:{CONFIG}:ro", service.name));
    }
    for Mount { source, target, read_only } in &service.mounts {
        let source = match source {
            MountSource::Volume(name) => format!("{}.volume", deployment.volume(name)),
            MountSource::Path(path) => path.display().to_string(),
        };
        unit.key("Volume", plain(&format!("{source}:{target}{}", if *read_only { ":ro" } else { "" })));
    }
    for capability in service.capabilities() {
        unit.key("AddCapability", format!("CAP_{capability}"));
    }
    match service.host_network {
        true => unit.key("Network", "host"),
        false => {
            unit.key("Network", format!("{}.network", deployment.name));
            if command == "start" {
                unit.key("NetworkAlias", &service.name);
            }
        }
    }
}
