//! Every environment variable that Kollage honours, read once and here only.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use crate::daemon;

#[derive(Clone, Debug, Default)]
pub struct Environment {
    pub home: Option<PathBuf>,
    /// `KOLLAGE_STORE`: where the store is, instead of the default place.
    pub store: Option<PathBuf>,
    /// `XDG_DATA_HOME`
    pub data_home: Option<PathBuf>,
    /// `XDG_CONFIG_HOME`
    pub config_home: Option<PathBuf>,
    /// `KOLLAGE_NAMESPACE`, `KOLLAGE_TAG`, `KOLLAGE_REGISTRY`, `KOLLAGE_RELEASE`, `KOLLAGE_BASE`, `KOLLAGE_BASE_TAG`,
    /// `KOLLAGE_JOBS`: `[build]` settings, by variable and key.
    pub build: Vec<(&'static str, &'static str, String)>,
    /// `KOLLAGE_PROGRESS`
    pub progress: Option<String>,
    /// `SOURCE_DATE_EPOCH`
    pub source_date_epoch: Option<String>,
    /// `NO_COLOR`, set to anything but nothing.
    pub no_color: bool,
    /// `CI`, set to anything but nothing or `false`.
    pub ci: bool,
    /// `SSH_AUTH_SOCK`: the agent that `--ssh default` lends.
    pub ssh_auth_sock: Option<PathBuf>,
    /// `KOLLAGE_COMPLETE`: the shell that asks how a command line goes on; only `kollage completions` sets it.
    pub complete: Option<String>,
    pub term: Option<String>,
    /// The first of `LC_ALL`, `LC_CTYPE` and `LANG` that is set.
    pub locale: Option<String>,
    /// `REGISTRY_AUTH_FILE`
    pub auth_file: Option<PathBuf>,
    /// `CONTAINERS_REGISTRIES_CONF`: where registries are reached, in place of /etc/containers/registries.conf.
    pub registries_conf: Option<PathBuf>,
    /// `DOCKER_CONFIG`, the directory of Docker's config.json.
    pub docker_config: Option<PathBuf>,
    /// `BUILDKIT_HOST`: the builder of the engine buildkit, when nothing else names one.
    pub buildkit_host: Option<String>,
    /// `KOLLAGE_ENGINE`: what carries a build out.
    pub engine: Option<String>,
    /// `DOCKER_HOST`: where Docker is, for `--engine docker` and `kollage deploy up|down|status`.
    pub docker_host: Option<String>,
    /// `DOCKER_CONTEXT`: the same by the name of one of Docker's contexts.
    pub docker_context: Option<String>,
    /// `DOCKER_TLS_VERIFY`, set to anything but nothing: Docker's TCP is spoken over TLS.
    pub docker_tls_verify: bool,
    /// `DOCKER_CERT_PATH`: the directory with ca.pem, cert.pem and key.pem.
    pub docker_cert_path: Option<PathBuf>,
    /// `CONTAINER_HOST`: where Podman is.
    pub container_host: Option<String>,
    /// `XDG_RUNTIME_DIR`, where podman and skopeo keep auth.json, and podman its socket.
    pub runtime_dir: Option<PathBuf>,
    /// `PATH`: where git and ssh are looked for.
    pub path: Option<OsString>,
    /// `KOLLAGE_KOLLA`: the Kolla tree of `kollage kolla-build`.
    pub kolla: Option<PathBuf>,
    /// `VIRTUAL_ENV` and `SNAP`: where a Kolla may be installed.
    pub prefixes: Vec<PathBuf>,
    /// Proxy variables that are lent to steps: `http_proxy`, `https_proxy`, `ftp_proxy`, `no_proxy`, `all_proxy`, and
    /// the same in capitals.
    pub proxy: Vec<(String, String)>,
}

const BUILD: [(&str, &str); 7] = [
    ("KOLLAGE_NAMESPACE", "build.namespace"),
    ("KOLLAGE_TAG", "build.tag"),
    ("KOLLAGE_REGISTRY", "build.registry"),
    ("KOLLAGE_RELEASE", "build.release"),
    ("KOLLAGE_BASE", "build.base"),
    ("KOLLAGE_BASE_TAG", "build.base_tag"),
    ("KOLLAGE_JOBS", "build.jobs"),
];

pub const COMPLETE: &str = "KOLLAGE_COMPLETE";

const PROXY: [&str; 5] = ["http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "all_proxy"];

impl Environment {
    pub fn read() -> Self {
        let path = |name: &str| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let text = |name: &str| env::var(name).ok().filter(|v| !v.is_empty());
        let proxy = PROXY.iter().flat_map(|name| [(*name).to_owned(), name.to_uppercase()]);
        Environment {
            home: path("HOME"),
            store: path("KOLLAGE_STORE"),
            data_home: path("XDG_DATA_HOME"),
            config_home: path("XDG_CONFIG_HOME"),
            build: BUILD.iter().filter_map(|(name, key)| Some((*name, *key, text(name)?))).collect(),
            progress: text("KOLLAGE_PROGRESS"),
            source_date_epoch: text("SOURCE_DATE_EPOCH"),
            no_color: text("NO_COLOR").is_some(),
            ci: text("CI").is_some_and(|v| v != "false"),
            ssh_auth_sock: path("SSH_AUTH_SOCK"),
            complete: text(COMPLETE),
            term: text("TERM"),
            locale: ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| text(name)),
            auth_file: path("REGISTRY_AUTH_FILE"),
            registries_conf: path("CONTAINERS_REGISTRIES_CONF"),
            docker_config: path("DOCKER_CONFIG"),
            buildkit_host: text("BUILDKIT_HOST"),
            engine: text("KOLLAGE_ENGINE"),
            docker_host: text("DOCKER_HOST"),
            docker_context: text("DOCKER_CONTEXT"),
            docker_tls_verify: text("DOCKER_TLS_VERIFY").is_some(),
            docker_cert_path: path("DOCKER_CERT_PATH"),
            container_host: text("CONTAINER_HOST"),
            runtime_dir: path("XDG_RUNTIME_DIR"),
            kolla: path("KOLLAGE_KOLLA"),
            prefixes: ["VIRTUAL_ENV", "SNAP"].iter().filter_map(|name| path(name)).collect(),
            path: env::var_os("PATH").filter(|v| !v.is_empty()),
            proxy: proxy.filter_map(|name| Some((name.clone(), text(&name)?))).collect(),
        }
    }

    /// What says where Docker or Podman is.
    pub fn daemon(&self) -> daemon::Hints {
        daemon::Hints {
            docker_host: self.docker_host.clone(),
            docker_context: self.docker_context.clone(),
            tls_verify: self.docker_tls_verify,
            cert_path: self.docker_cert_path.clone(),
            container_host: self.container_host.clone(),
            config: self.docker_config.clone().or_else(|| self.home.as_ref().map(|home| home.join(".docker"))),
            runtime_dir: self.runtime_dir.clone(),
        }
    }

    /// All of it, for `{{ env.NAME }}` of Kolla's templates and its `OS_GROUP__OPTION` variables.
    pub fn whole(&self) -> std::collections::BTreeMap<String, String> {
        env::vars_os().map(|(k, v)| (k.to_string_lossy().into_owned(), v.to_string_lossy().into_owned())).collect()
    }

    /// The value of any variable, for `--secret id=x,env=NAME`, `--build-arg NAME` and a deployment's secrets, which name one
    /// themselves.
    pub fn named(&self, name: &str) -> Option<OsString> {
        env::var_os(name)
    }
}
