//! What a `deployment.toml` says, once it has been read and held against the catalogue.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::start::Definition;

/// Where containers have the bundle, whatever it comes from.
pub const BUNDLE: &str = "/var/lib/kollage/start";
/// Where containers have a service's configuration.
pub const CONFIG: &str = "/var/lib/kolla/config_files";

#[derive(Clone, Debug)]
pub struct Deployment {
    /// The first part of all names of containers, volumes and networks.
    pub name: String,
    pub bundle: Bundle,
    pub secrets: BTreeMap<String, SecretSource>,
    /// Each after those that it needs.
    pub services: Vec<Service>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bundle {
    /// Absolute, on the host.
    Directory(PathBuf),
    /// A volume of the engine, by its own name.
    Volume(String),
    /// An image that has the bundle at its root.
    Image(String),
}

/// Where a secret's value is when it is needed; the value itself is kept nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    Environment(String),
    File(PathBuf),
}

#[derive(Clone, Debug)]
pub struct Service {
    pub name: String,
    pub image: String,
    pub start: Arc<Definition>,
    pub config: Option<Config>,
    pub host_network: bool,
    pub ports: Vec<Port>,
    pub mounts: Vec<Mount>,
    pub environment: BTreeMap<String, String>,
    /// Names of secrets, by variable.
    pub secrets: BTreeMap<String, String>,
    pub after: Vec<String>,
    pub restart: Restart,
    /// More than what a start as root takes, and than its definition says.
    pub capabilities: Vec<String>,
    /// Seconds.
    pub health_timeout: u32,
    pub tasks: Tasks,
}

/// The directory that becomes `/var/lib/kolla/config_files`.
#[derive(Clone, Debug)]
pub struct Config {
    pub dir: PathBuf,
    /// There are passwords in it.
    pub secret: bool,
    /// By path below it.
    pub files: BTreeMap<String, ConfigFile>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFile {
    pub bytes: Vec<u8>,
    /// Permissions alone.
    pub mode: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub source: MountSource,
    pub target: String,
    pub read_only: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountSource {
    /// As the deployment calls it.
    Volume(String),
    /// Absolute, on the host.
    Path(PathBuf),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    pub address: Option<String>,
    pub host: u16,
    pub container: u16,
    pub udp: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Restart {
    No,
    OnFailure,
    Always,
    #[default]
    UnlessStopped,
}

impl Restart {
    pub const ALL: [(&'static str, Restart); 4] = [
        ("no", Restart::No),
        ("on-failure", Restart::OnFailure),
        ("always", Restart::Always),
        ("unless-stopped", Restart::UnlessStopped),
    ];

    /// As Docker and Compose have it.
    pub fn as_str(self) -> &'static str {
        Restart::ALL.iter().find(|(_, restart)| *restart == self).map_or("no", |(word, _)| word)
    }
}

/// Tasks of the definition, by when they are done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tasks {
    /// Once, before the service is started for the first time.
    pub first: Vec<String>,
    /// With a new image, while the old one still runs.
    pub upgrade: Vec<String>,
    /// With a new image, once it is well.
    pub finish: Vec<String>,
}

impl Deployment {
    /// What the container of a service is called; `-` cannot end a name, so that no two are alike by accident.
    pub fn container(&self, service: &Service) -> String {
        format!("{}-{}", self.name, service.name)
    }

    pub fn volume(&self, name: &str) -> String {
        format!("{}-{name}", self.name)
    }

    pub fn service(&self, name: &str) -> Option<&Service> {
        self.services.iter().find(|service| service.name == name)
    }

    /// All volumes that services name, sorted.
    pub fn volumes(&self) -> Vec<&str> {
        let mut all: Vec<&str> = self.services.iter().flat_map(Service::volumes).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether any service is on the deployment's own network.
    pub fn has_network(&self) -> bool {
        self.services.iter().any(|service| !service.host_network)
    }
}

impl Service {
    pub fn volumes(&self) -> impl Iterator<Item = &str> {
        self.mounts.iter().filter_map(|mount| match &mount.source {
            MountSource::Volume(name) => Some(name.as_str()),
            MountSource::Path(_) => None,
        })
    }

    /// Everything that is set besides secrets: what the runtime needs to know, and what the deployment says.
    pub fn plain_environment(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::from([("KOLLAGE_SERVICE".to_owned(), self.start.name.clone())]);
        if self.config.is_some() {
            all.insert("KOLLA_CONFIG_STRATEGY".into(), "COPY_ALWAYS".into());
        }
        all.extend(self.environment.clone());
        all
    }

    /// How many seconds a stop may take. The runtime's own limit comes first, so that it is the one that is told.
    pub fn stop_timeout(&self) -> u32 {
        let own = self.start.stop.timeout.as_ref().and_then(|seconds| seconds.parse::<u32>().ok());
        own.map_or(15, |seconds| seconds.saturating_add(5))
    }

    /// Those of its definition, and those that the deployment gives it besides.
    pub fn capabilities(&self) -> impl Iterator<Item = &str> {
        let more = self.capabilities.iter().filter(|name| !self.start.capabilities.contains(name));
        self.start.capabilities.iter().chain(more).map(String::as_str)
    }

    pub fn has_probe(&self) -> bool {
        !self.start.health.is_empty()
    }
}

/// The runtime in a container.
pub fn runtime() -> String {
    format!("{BUNDLE}/{}", crate::start::bundle::PROGRAM)
}

/// What a start as root needs, whatever the service is: files of other owners, and becoming the service's user.
pub const CAPABILITIES: [&str; 8] =
    ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID"];
