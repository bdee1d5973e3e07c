//! Every variable that the runtime reads, read once. Those that Kolla has count when they are set, even to nothing.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, Default)]
pub struct Environment {
    /// `COPY_ONCE` or `COPY_ALWAYS`.
    pub kolla_config_strategy: Option<String>,
    /// Leaves kolla_extend_start out.
    pub kolla_skip_extend_start: bool,
    /// Instead of /var/lib/kolla/config_files.
    pub config_dir: Option<PathBuf>,
    /// Where a start keeps all that it writes for itself, instead of /run_command, /configured and /etc/kolla/defaults.
    pub state_dir: Option<PathBuf>,
    /// Whom to take for users that the image lacks: `keystone=nova,glance=42424:42424`.
    pub users: Option<String>,
    /// Whom root becomes before it starts the command: `USER`, `USER:GROUP`, or numbers.
    pub user: Option<String>,
    /// Which capabilities the command keeps: `net_admin,net_raw`.
    pub capabilities: Option<String>,
    /// Whether the command, and what it starts, can gain privileges never again (so, no sudo).
    pub no_new_privs: Option<String>,
    /// `single` (the default), `group` or `off`.
    pub init: Option<String>,
    /// What a stop signal is passed on as.
    pub stop_signal: Option<String>,
    /// After how many seconds a stop becomes a kill.
    pub stop_timeout: Option<String>,
    /// A script that is sourced instead of the image's kolla_extend_start.
    pub extend_start: Option<PathBuf>,
    /// Where a bundle of the system's and the operator's CA certificates is written, instead of into the system's.
    pub ca_bundle: Option<PathBuf>,
    /// What OpenSSL, Python's requests and curl are told by where that is, and whether somebody told them already.
    pub ca_variables: Vec<(&'static str, bool)>,
    /// The service whose definition counts, and where the bundle with it is.
    pub service: Option<String>,
    pub start_dir: Option<PathBuf>,
    /// Whom the image is run as, where it was said when the container was made.
    pub image_user: Option<String>,
    /// Everything, for the tasks and steps of a definition, which name variables themselves.
    pub all: BTreeMap<OsString, OsString>,
    pub path: OsString,
    pub health: HealthEnvironment,
}

/// What Kolla's healthcheck_curl reads; empty counts as unset here, as there.
#[derive(Debug, Default)]
pub struct HealthEnvironment {
    pub max_time: Option<String>,
    pub user_agent: Option<String>,
    pub write_out: Option<String>,
    pub output: Option<PathBuf>,
}

impl Environment {
    pub fn read() -> Environment {
        let text = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        let filled = |name: &str| text(name).filter(|value| !value.is_empty());
        let path = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Environment {
            kolla_config_strategy: text("KOLLA_CONFIG_STRATEGY"),
            kolla_skip_extend_start: std::env::var_os("KOLLA_SKIP_EXTEND_START").is_some(),
            config_dir: path("KOLLAGE_CONFIG_DIR"),
            state_dir: path("KOLLAGE_STATE_DIR"),
            users: filled("KOLLAGE_USERS"),
            user: filled("KOLLAGE_USER"),
            capabilities: filled("KOLLAGE_CAPABILITIES"),
            no_new_privs: filled("KOLLAGE_NO_NEW_PRIVS"),
            init: filled("KOLLAGE_INIT"),
            stop_signal: filled("KOLLAGE_STOP_SIGNAL"),
            stop_timeout: filled("KOLLAGE_STOP_TIMEOUT"),
            extend_start: path("KOLLAGE_EXTEND_START"),
            ca_bundle: path("KOLLAGE_CA_BUNDLE"),
            ca_variables: ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"]
                .map(|name| (name, std::env::var_os(name).is_some()))
                .into(),
            service: filled("KOLLAGE_SERVICE"),
            start_dir: path("KOLLAGE_START_DIR"),
            image_user: filled("KOLLAGE_IMAGE_USER"),
            all: std::env::vars_os().collect(),
            path: std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into()),
            health: HealthEnvironment {
                max_time: filled("HEALTHCHECK_CURL_MAX_TIME"),
                user_agent: filled("HEALTHCHECK_CURL_USER_AGENT"),
                write_out: filled("HEALTHCHECK_CURL_WRITE_OUT"),
                output: path("HEALTHCHECK_CURL_OUTPUT"),
            },
        }
    }
}

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
