//! Where things are. Everything that a start writes besides the configured paths is here.

use std::path::{Path, PathBuf};

#[derive(Debug, Clone)]
pub struct Places {
    /// Has `config.json` or `config.yaml`.
    pub config: PathBuf,
    /// The command that the last start found.
    pub run_command: PathBuf,
    /// There once COPY_ONCE has copied.
    pub configured: PathBuf,
    /// What was there before the copies, and the records of it.
    pub defaults: PathBuf,
    /// Has `passwd` and `group`.
    pub etc: PathBuf,
}

impl Places {
    /// As Kolla has them, or all of a start's own below `state`.
    pub fn new(config: Option<&Path>, state: Option<&Path>) -> Places {
        let own = |kolla: &str, name: &str| state.map_or_else(|| PathBuf::from(kolla), |state| state.join(name));
        Places {
            config: config.unwrap_or(Path::new("/var/lib/kolla/config_files")).into(),
            run_command: own("/run_command", "run_command"),
            configured: own("/configured", "configured"),
            defaults: own("/etc/kolla/defaults", "defaults"),
            etc: "/etc".into(),
        }
    }
}
