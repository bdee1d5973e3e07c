//! Kubernetes manifests: a Deployment for each service, a Service for its ports, claims for its volumes, and its
//! configuration as a ConfigMap. Secrets are named, and made by whoever has them.

use std::collections::BTreeMap;

use super::definition::{
    BUNDLE, Bundle, CAPABILITIES, CONFIG, Config, Deployment, Mount, MountSource, SecretSource, Service, runtime,
};
use super::files::Rendering;
use super::yaml::Yaml;

/// How a bundle's image comes to a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BundleBy {
    /// As a volume: Kubernetes 1.33 and newer.
    #[default]
    Volume,
    /// Copied by an init container.
    Init,
}

pub fn render(deployment: &Deployment, by: BundleBy) -> Rendering {
    let mut rendering = Rendering::default();
    let name = &deployment.name;
    for volume in deployment.volumes() {
        let claim = object(
            "v1",
            "PersistentVolumeClaim",
            deployment,
            &deployment.volume(volume),
            None,
            [(
                "spec",
                Yaml::map([
                    ("accessModes", Yaml::list(["ReadWriteOnce"])),
                    ("resources", Yaml::map([("requests", Yaml::map([("storage", "10Gi")]))])),
                ]),
            )],
        );
        rendering.text(format!("{}.volume.yaml", deployment.volume(volume)), claim.document());
    }
    for service in &deployment.services {
        let mut documents = Vec::new();
        if let Some(config) = &service.config {
            match config.secret {
                false => documents.push(config_map(deployment, service, config)),
                true => rendering.notes.push(format!(
                    "the configuration of {}: kubectl create secret generic {} --from-file={}",
                    service.name,
                    config_name(deployment, service),
                    config.dir.display()
                )),
            }
        }
        if !service.ports.is_empty() {
            documents.push(network_service(deployment, service));
        }
        documents.push(workload(deployment, service, by));
        let texts: Vec<String> = documents.iter().map(Yaml::document).collect();
        rendering.text(format!("{}.yaml", deployment.container(service)), texts.join("---\n"));
    }
    if !deployment.secrets.is_empty() {
        let from = deployment.secrets.iter().map(|(secret, source)| match source {
            SecretSource::Environment(variable) => format!("--from-literal={secret}=\"${variable}\""),
            SecretSource::File(path) => format!("--from-file={secret}={}", path.display()),
        });
        let from = from.collect::<Vec<_>>().join(" ");
        rendering.notes.push(format!("secrets: kubectl create secret generic {name} {from}"));
    }
    rendering
}

fn config_name(deployment: &Deployment, service: &Service) -> String {
    format!("{}-config", deployment.container(service))
}

fn object<const N: usize>(
    version: &str,
    kind: &str,
    deployment: &Deployment,
    name: &str,
    service: Option<&Service>,
    rest: [(&str, Yaml); N],
) -> Yaml {
    let metadata = Yaml::map([("name", Yaml::from(name)), ("labels", Yaml::Map(labels(deployment, service)))]);
    let mut out =
        vec![("apiVersion".to_owned(), version.into()), ("kind".into(), kind.into()), ("metadata".into(), metadata)];
    out.extend(rest.map(|(key, value)| (key.to_owned(), value)));
    Yaml::Map(out)
}

fn labels(deployment: &Deployment, service: Option<&Service>) -> Vec<(String, Yaml)> {
    let mut labels = vec![("app.kubernetes.io/part-of".to_owned(), Yaml::from(deployment.name.as_str()))];
    labels.extend(service.map(|service| ("app.kubernetes.io/name".to_owned(), service.name.as_str().into())));
    labels
}

/// A key of a ConfigMap has no slash; `items` says where each belongs.
fn key(path: &str) -> String {
    let fine = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '.') { c } else { '_' };
    let plain: String = path.replace('/', "__").chars().map(fine).collect();
    match plain == path {
        true => plain,
        // Two paths must not come to one key.
        false => format!("{plain}.{}", &blake3::hash(path.as_bytes()).to_hex()[..8]),
    }
}

fn config_map(deployment: &Deployment, service: &Service, config: &Config) -> Yaml {
    let (mut text, mut binary) = (Vec::new(), Vec::new());
    for (path, file) in &config.files {
        match std::str::from_utf8(&file.bytes) {
            Ok(content) => text.push((key(path), content.into())),
            Err(_) => {
                use base64::Engine as _;
                let encoded = base64::engine::general_purpose::STANDARD.encode(&file.bytes);
                binary.push((key(path), Yaml::Text(encoded)));
            }
        }
    }
    let name = config_name(deployment, service);
    let data = [("data", Yaml::Map(text)), ("binaryData", Yaml::Map(binary))];
    object("v1", "ConfigMap", deployment, &name, Some(service), data)
}

/// Other pods reach it by the service's name, as on the other targets.
fn network_service(deployment: &Deployment, service: &Service) -> Yaml {
    let ports = service.ports.iter().map(|port| {
        let (protocol, short) = if port.udp { ("UDP", "udp") } else { ("TCP", "tcp") };
        Yaml::map([
            ("name", Yaml::Text(format!("{short}-{}", port.host))),
            ("port", u32::from(port.host).into()),
            ("targetPort", u32::from(port.container).into()),
            ("protocol", protocol.into()),
        ])
    });
    let spec =
        Yaml::map([("selector", Yaml::Map(labels(deployment, Some(service)))), ("ports", Yaml::List(ports.collect()))]);
    object("v1", "Service", deployment, &service.name, Some(service), [("spec", spec)])
}

fn workload(deployment: &Deployment, service: &Service, by: BundleBy) -> Yaml {
    let mut init = Vec::new();
    if let (Bundle::Image(image), BundleBy::Init) = (&deployment.bundle, by) {
        init.push(Yaml::map([
            ("name", Yaml::from("bundle")),
            ("image", image.as_str().into()),
            ("command", Yaml::list([format!("/{}", crate::start::bundle::PROGRAM), "install".into(), BUNDLE.into()])),
            ("volumeMounts", Yaml::list([Yaml::map([("name", "bundle"), ("mountPath", BUNDLE)])])),
        ]));
    }
    for task in &service.tasks.first {
        init.push(container(deployment, service, task, &["task", task]));
    }
    let mut main = container(deployment, service, &service.name, &["start"]);
    if let Yaml::Map(main) = &mut main {
        if !service.ports.is_empty() {
            let ports = service.ports.iter().map(|port| {
                let protocol = if port.udp { "UDP" } else { "TCP" };
                Yaml::map([("containerPort", Yaml::from(u32::from(port.container))), ("protocol", protocol.into())])
            });
            main.push(("ports".into(), Yaml::List(ports.collect())));
        }
        main.extend(probes(service));
    }
    let mut spec = vec![("terminationGracePeriodSeconds".to_owned(), service.stop_timeout().into())];
    if service.host_network {
        spec.push(("hostNetwork".into(), true.into()));
        spec.push(("dnsPolicy".into(), "ClusterFirstWithHostNet".into()));
    }
    if !init.is_empty() {
        spec.push(("initContainers".into(), Yaml::List(init)));
    }
    spec.push(("containers".into(), Yaml::List(vec![main])));
    spec.push(("volumes".into(), Yaml::List(volumes(deployment, service, by))));
    let labels = labels(deployment, Some(service));
    let template = Yaml::map([
        (
            "metadata",
            Yaml::map([
                ("labels", Yaml::Map(labels.clone())),
                ("annotations", Yaml::map([("org.kollage/configuration", config_digest(service))])),
            ]),
        ),
        ("spec", Yaml::Map(spec)),
    ]);
    let spec = Yaml::map([
        ("replicas", Yaml::Number(1)),
        // Two of one service would share its volumes.
        ("strategy", Yaml::map([("type", "Recreate")])),
        ("selector", Yaml::map([("matchLabels", Yaml::Map(labels))])),
        ("template", template),
    ]);
    object("apps/v1", "Deployment", deployment, &deployment.container(service), Some(service), [("spec", spec)])
}

/// Pods are made anew when what they are configured with changes.
fn config_digest(service: &Service) -> String {
    let mut hasher = blake3::Hasher::new();
    for (path, file) in service.config.iter().flat_map(|config| &config.files) {
        hasher.update(path.as_bytes()).update(&[0]).update(blake3::hash(&file.bytes).as_bytes());
    }
    hasher.finalize().to_hex()[..16].to_owned()
}

fn container(deployment: &Deployment, service: &Service, name: &str, command: &[&str]) -> Yaml {
    let plain = service.plain_environment();
    let mut environment: BTreeMap<&str, Yaml> = plain
        .iter()
        // `$(NAME)` would be another variable's value.
        .map(|(name, value)| (name.as_str(), Yaml::map([("name", name.clone()), ("value", value.replace('$', "$$"))])))
        .collect();
    for (variable, secret) in &service.secrets {
        let key = Yaml::map([("name", deployment.name.as_str()), ("key", secret.as_str())]);
        let from = Yaml::map([("secretKeyRef", key)]);
        environment.insert(variable, Yaml::map([("name", Yaml::from(variable.as_str())), ("valueFrom", from)]));
    }
    let add = CAPABILITIES.into_iter().chain(service.capabilities());
    let capabilities = Yaml::map([("drop", Yaml::list(["ALL"])), ("add", Yaml::list(add))]);
    // The runtime begins as root and becomes the service's user.
    let security = Yaml::map([
        ("runAsUser", Yaml::Number(0)),
        ("runAsGroup", Yaml::Number(0)),
        ("privileged", false.into()),
        ("capabilities", capabilities),
        ("seccompProfile", Yaml::map([("type", "RuntimeDefault")])),
    ]);
    let mounted = |name: String, path: &str, read_only: bool| {
        let mut out = vec![("name", Yaml::from(name)), ("mountPath", path.into())];
        if read_only {
            out.push(("readOnly", true.into()));
        }
        Yaml::map(out)
    };
    let mut mounts = vec![mounted("bundle".into(), BUNDLE, true)];
    if service.config.is_some() {
        mounts.push(mounted("config".into(), CONFIG, true));
    }
    mounts.extend(
        service
            .mounts
            .iter()
            .enumerate()
            .map(|(index, mount)| mounted(volume_name(index, mount), &mount.target, mount.read_only)),
    );
    Yaml::map([
        ("name", Yaml::Text(name.replace(['.', '_'], "-"))),
        ("image", service.image.as_str().into()),
        ("command", Yaml::list([runtime()])),
        ("args", Yaml::list(command.iter().copied())),
        ("env", Yaml::List(environment.into_values().collect())),
        ("securityContext", security),
        ("volumeMounts", Yaml::List(mounts)),
    ])
}

fn probes(service: &Service) -> Vec<(String, Yaml)> {
    if !service.has_probe() {
        return Vec::new();
    }
    let probe = |period: u32, failures: u32| {
        let command = Yaml::list([runtime(), "healthcheck".into()]);
        Yaml::map([
            ("exec", Yaml::map([("command", command)])),
            ("periodSeconds", period.into()),
            ("timeoutSeconds", 30.into()),
            ("failureThreshold", failures.into()),
        ])
    };
    vec![
        ("startupProbe".into(), probe(5, service.health_timeout.div_ceil(5))),
        ("readinessProbe".into(), probe(10, 3)),
        ("livenessProbe".into(), probe(30, 3)),
    ]
}

/// A directory of the host has no name that a volume could have.
fn volume_name(index: usize, mount: &Mount) -> String {
    match &mount.source {
        MountSource::Volume(name) => format!("data-{}", name.replace(['.', '_'], "-")),
        MountSource::Path(_) => format!("host-{index}"),
    }
}

fn volumes(deployment: &Deployment, service: &Service, by: BundleBy) -> Vec<Yaml> {
    let host = |path: String| ("hostPath", Yaml::map([("path", path)]));
    let claim = |name: String| ("persistentVolumeClaim", Yaml::map([("claimName", name)]));
    let named = |name: &str, source: (&str, Yaml)| Yaml::map([("name", Yaml::from(name)), source]);
    let bundle = match (&deployment.bundle, by) {
        (Bundle::Directory(path), _) => host(path.display().to_string()),
        (Bundle::Volume(name), _) => claim(name.clone()),
        (Bundle::Image(image), BundleBy::Volume) => {
            ("image", Yaml::map([("reference", image.as_str()), ("pullPolicy", "IfNotPresent")]))
        }
        (Bundle::Image(_), BundleBy::Init) => ("emptyDir", Yaml::Map(Vec::new())),
    };
    let mut volumes = vec![named("bundle", bundle)];
    if let Some(config) = &service.config {
        let name = config_name(deployment, service);
        volumes.push(named(
            "config",
            match config.secret {
                true => ("secret", Yaml::map([("secretName", name)])),
                false => {
                    let items = config.files.iter().map(|(path, file)| {
                        Yaml::map([
                            ("key", Yaml::Text(key(path))),
                            ("path", path.as_str().into()),
                            ("mode", file.mode.into()),
                        ])
                    });
                    ("configMap", Yaml::map([("name", Yaml::Text(name)), ("items", Yaml::List(items.collect()))]))
                }
            },
        ));
    }
    let mut seen = Vec::new();
    for (index, mount) in service.mounts.iter().enumerate() {
        let name = volume_name(index, mount);
        if seen.contains(&name) {
            continue;
        }
        let source = match &mount.source {
            MountSource::Volume(volume) => claim(deployment.volume(volume)),
            MountSource::Path(path) => host(path.display().to_string()),
        };
        volumes.push(named(&name, source));
        seen.push(name);
    }
    volumes
}
