//! What `kolla_start` does: configuration, certificates, the image's own start script, and then the command.

use crate::command::{self, locate};
use crate::config::Config;
use crate::environment::Environment;
use crate::error::{Failure, Result, shown};
use crate::init::{Init, Launch};
use crate::places::Places;
use crate::privileges::Privileges;
use crate::set_configs::{self, Strategy};
use crate::users::Users;
use crate::{cacerts, log};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Path, PathBuf};

/// What every way to start has in common.
pub struct Start<'a> {
    pub environment: &'a Environment,
    pub places: Places,
    pub users: Users,
}

impl Start<'_> {
    pub fn new(environment: &Environment) -> Result<Start<'_>> {
        let places = Places::new(environment.config_dir.as_deref(), environment.state_dir.as_deref());
        let users = Users::load(&places.etc);
        let users = match &environment.users {
            Some(text) => users.with_stand_ins(text).map_err(|failure| failure.of("KOLLAGE_USERS"))?,
            None => users,
        };
        Ok(Start { environment, places, users })
    }

    pub fn strategy(&self) -> Result<Strategy> {
        match self.environment.kolla_config_strategy.as_deref() {
            Some("COPY_ALWAYS") => Ok(Strategy::CopyAlways),
            Some("COPY_ONCE") => Ok(Strategy::CopyOnce),
            Some(other) => {
                Err(Failure::wrong(format!("KOLLA_CONFIG_STRATEGY: `{other}` is not COPY_ONCE or COPY_ALWAYS")))
            }
            None => Err(Failure::wrong("KOLLA_CONFIG_STRATEGY is not set; it must be COPY_ONCE or COPY_ALWAYS")),
        }
    }

    /// Configures, and runs the command to its end or becomes it.
    pub fn run(&self) -> Result<u8> {
        let environment = self.environment;
        let init = Init::new(
            environment.init.as_deref(),
            environment.stop_signal.as_deref(),
            environment.stop_timeout.as_deref(),
        )?;
        let privileges = Privileges::new(
            &self.users,
            environment.user.as_deref(),
            environment.capabilities.as_deref(),
            environment.no_new_privs.as_deref(),
        )?;
        let strategy = self.strategy()?;
        let config = Config::load(&self.places.config)?;
        let extension = self.extension();
        if extension.is_none() && !(strategy == Strategy::CopyOnce && self.places.configured.exists()) {
            // Before anything is changed; a script could still bring the program.
            let plan = set_configs::plan(&config, &self.places, &self.users)?;
            let words = command::words(&config.command);
            if let Some(program) = words.first() {
                locate(program, &environment.path, Some(&plan))?;
            }
        }
        set_configs::configure(&config, &self.places, &self.users, strategy)?;
        let variables = self.certificates()?;
        self.install_projects(&init)?;
        let command = set_configs::command(&self.places)?;
        let mut launch = match extension {
            Some(extension) => self.extended(&command, &extension, &privileges)?,
            None => self.plain(&command, &privileges)?,
        };
        launch.environment.extend(variables);
        init.run(&launch)
    }

    /// What `kolla_copy_cacerts` does. The variables by which the command finds certificates in another place.
    pub fn certificates(&self) -> Result<Vec<(OsString, OsString)>> {
        let Some(bundle) = &self.environment.ca_bundle else {
            cacerts::install(&self.places)?;
            return Ok(Vec::new());
        };
        if !cacerts::write_bundle(&self.places, bundle)? {
            return Ok(Vec::new());
        }
        let unset = self.environment.ca_variables.iter().filter(|(_, set)| !set);
        Ok(unset.map(|(name, _)| ((*name).into(), bundle.into())).collect())
    }

    /// The script that an image, or whoever deploys it, wants to be sourced before the command.
    fn extension(&self) -> Option<PathBuf> {
        if self.environment.kolla_skip_extend_start {
            return None;
        }
        if let Some(script) = &self.environment.extend_start {
            return Some(script.clone());
        }
        // A shell takes the first file of that name that it can read, executable or not.
        let place = std::env::split_paths(&self.environment.path).map(|directory| directory.join("kolla_extend_start"));
        place.into_iter().find(|place| place.is_file()).filter(|place| is_script(place))
    }

    fn plain(&self, command: &str, privileges: &Privileges) -> Result<Launch> {
        log::info(format_args!("running the command {command}"));
        let words = command::words(command);
        let program = words.first().cloned().unwrap_or_default();
        let program = locate(&program, &self.environment.path, None)?;
        Ok(Launch { program, words, privileges: privileges.clone(), environment: Vec::new() })
    }

    /// The shell that sources the script goes on as the command, which the script may have changed.
    fn extended(&self, command: &str, script: &Path, privileges: &Privileges) -> Result<Launch> {
        let program = self.shell(script)?;
        log::info(format_args!("sourcing {}", shown(script)));
        let words = ["bash", "-c", SOURCING, "kolla_start", command].map(OsString::from);
        let words = words.into_iter().chain([script.into()]).collect();
        Ok(Launch { program, words, privileges: privileges.clone(), environment: Vec::new() })
    }

    fn shell(&self, script: &Path) -> Result<PathBuf> {
        locate(OsStr::new("bash"), &self.environment.path, None).map_err(|failure| Failure {
            problems: vec![format!(
                "{} is to be sourced, which takes bash, and the image has none; KOLLA_SKIP_EXTEND_START leaves it out",
                shown(script)
            )],
            ..failure
        })
    }

    /// `kolla_extend_start` by itself: the script alone, with nothing to become.
    pub fn extend(&self) -> Result<u8> {
        let Some(script) = self.extension() else { return Ok(0) };
        let command = set_configs::command(&self.places).unwrap_or_default();
        let mut launch = self.extended(&command, &script, &Privileges::default())?;
        if let Some(text) = launch.words.get_mut(2) {
            *text = SOURCING_ONLY.into();
        }
        Init::new(Some("off"), None, None)?.run(&launch)
    }

    /// Kolla's images can install what a developer mounts at /dev-mode.
    fn install_projects(&self, init: &Init) -> Result<()> {
        if !Path::new("/dev-mode").is_dir() {
            return Ok(());
        }
        let name = OsStr::new("kolla_install_projects");
        let Ok(program) = locate(name, &self.environment.path, None) else { return Ok(()) };
        let launch =
            Launch { program, words: vec![name.into()], privileges: Privileges::default(), environment: Vec::new() };
        match init.supervise(&launch)? {
            0 => Ok(()),
            code => Err(Failure { problems: vec![format!("kolla_install_projects ended with {code}")], code }),
        }
    }
}

/// Not an empty file, as an image without start steps has it, and not a program (this one, by another name).
fn is_script(path: &Path) -> bool {
    let mut start = [0; 4];
    let length = std::fs::File::open(path).and_then(|mut file| file.read(&mut start)).unwrap_or(0);
    length > 0 && start[..length] != *b"\x7fELF"
}

/// The options, and the variables CMD and ARGS, that scripts for Kolla are written for.
const SOURCING: &str = r#"set -o errexit -o pipefail -o nounset -o xtrace
CMD=$1 ARGS='' kollage_script=$2
set --
. "$kollage_script"
echo "Running command: '$CMD${ARGS:+ $ARGS}'"
exec $CMD $ARGS
"#;

const SOURCING_ONLY: &str = r#"set -o errexit -o pipefail -o nounset -o xtrace
CMD=$1 ARGS='' kollage_script=$2
set --
. "$kollage_script"
"#;
