//! What `kolla_start` does: configuration, certificates, the service's steps or the image's own start script, and then
//! the command.

use crate::command::{self, locate};
use crate::config::Config;
use crate::environment::Environment;
use crate::error::{Failure, Result, shown};
use crate::init::{Init, Launch};
use crate::places::Places;
use crate::privileges::{Capabilities, Privileges};
use crate::service::{self, Service, Stage, Variables, Wanted};
use crate::set_configs::{self, Strategy};
use crate::users::{Numbers, Users};
use crate::{cacerts, health, log};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Path, PathBuf};

/// What every way to start has in common.
pub struct Start<'a> {
    pub environment: &'a Environment,
    pub places: Places,
    pub users: Users,
    /// What a bundle says about the service that was named.
    pub service: Option<Service>,
}

impl Start<'_> {
    /// `service` counts more than KOLLAGE_SERVICE.
    pub fn new<'a>(environment: &'a Environment, service: Option<&str>) -> Result<Start<'a>> {
        let places = Places::new(environment.config_dir.as_deref(), environment.state_dir.as_deref());
        let users = Users::load(&places.etc);
        let users = match &environment.users {
            Some(text) => users.with_stand_ins(text).map_err(|failure| failure.of("KOLLAGE_USERS"))?,
            None => users,
        };
        let bundle = || service::bundle(environment.start_dir.as_deref());
        let Some(name) = service.or(environment.service.as_deref()) else {
            return Ok(Start { environment, places, users, service: None });
        };
        let service = Service::load(&bundle(), name)?;
        let present = match &environment.user {
            Some(user) => {
                let identity = users.identity(user).map_err(|failure| failure.of("KOLLAGE_USER"))?;
                Some(Numbers { uid: identity.uid, gid: identity.gid })
            }
            None => Numbers::of_ordinary_user(),
        };
        let users = service.users(users, present, environment.image_user.as_deref())?;
        Ok(Start { environment, places, users, service: Some(service) })
    }

    /// The configuration; none where there is none, and a definition has all that a start takes.
    pub fn config(&self) -> Result<Option<Config>> {
        let command = self.default_command()?;
        let file = Config::file(&self.places.config);
        match command {
            Some(command) if !file.exists() => {
                // What an earlier configuration brought goes away with it.
                let traces = self.places.defaults.exists();
                Ok(traces.then(|| Config::of_command(command, file)))
            }
            command => Config::load(&self.places.config, command.as_deref()).map(Some),
        }
    }

    fn default_command(&self) -> Result<Option<String>> {
        let Some(service) = self.service.as_ref().filter(|service| !service.command.is_empty()) else {
            return Ok(None);
        };
        let text = Variables::new(service, &self.environment.all).expand(&service.command.join(" "));
        text.map(Some).map_err(|failure| failure.of(&format!("{}: the command", service.name)))
    }

    pub fn strategy(&self) -> Result<Strategy> {
        match self.environment.kolla_config_strategy.as_deref() {
            Some("COPY_ALWAYS") => Ok(Strategy::CopyAlways),
            Some("COPY_ONCE") => Ok(Strategy::CopyOnce),
            Some(other) => {
                Err(Failure::wrong(format!("KOLLA_CONFIG_STRATEGY: `{other}` is not COPY_ONCE or COPY_ALWAYS")))
            }
            None if !Config::file(&self.places.config).exists() && self.service.is_some() => Ok(Strategy::CopyAlways),
            None => Err(Failure::wrong("KOLLA_CONFIG_STRATEGY is not set; it must be COPY_ONCE or COPY_ALWAYS")),
        }
    }

    /// Configures, carries steps out, and runs the command to its end or becomes it. A task can be all that is done.
    pub fn run(&self, wanted: Wanted<'_>) -> Result<u8> {
        let environment = self.environment;
        let service = self.service.as_ref();
        let init = self.init()?;
        let own = service.and_then(|service| service.user.as_ref()).map(|user| user.name.as_str());
        let privileges = Privileges::new(
            &self.users,
            environment.user.as_deref().or(own),
            self.capabilities(),
            environment.no_new_privs.as_deref(),
        )?;
        let skip = environment.kolla_skip_extend_start;
        let task = match (service, wanted) {
            (Some(service), wanted) => service.selected(wanted, &environment.all, skip)?,
            (None, Wanted::Start) => None,
            (None, Wanted::Task(name)) => {
                let why = "is a service's, and none was named: --service NAME, or KOLLAGE_SERVICE";
                return Err(Failure::wrong(format!("the task `{name}` {why}")));
            }
        };
        let starts = task.is_none_or(|task| task.then_start);
        let mut stage = service.map(|service| self.stage(service, &init));
        let steps = service.filter(|_| starts && !skip).map(|service| &service.steps[..]).unwrap_or_default();
        if let Some(stage) = &stage {
            let of_task = task.map(|task| &task.steps[..]).unwrap_or_default();
            [&stage.service.prepare, of_task, steps].iter().try_for_each(|steps| stage.look(steps))?;
        }

        let config = self.config()?;
        let extension = self.extension();
        if let Some(config) = &config {
            self.configure(config, starts && extension.is_none())?;
        }
        let certificates = self.certificates()?;
        self.install_projects(&init)?;
        if let Some(stage) = &mut stage {
            stage.certificates.clone_from(&certificates);
            stage.carry_out("preparation", &stage.service.prepare)?;
            if let Some(task) = task {
                stage.carry_out(&task.name, &task.steps)?;
                log::info(format_args!("{}: {} is done", stage.service.name, task.name));
            }
            if !starts {
                return Ok(0);
            }
            stage.carry_out("", steps)?;
        }

        let mut command = match (&config, self.default_command()?) {
            (None, Some(command)) => command,
            _ => set_configs::command(&self.places)?,
        };
        if let Some(service) = service {
            let variables = Variables::new(service, &environment.all);
            for argument in &service.arguments {
                command = format!("{command} {}", variables.expand(argument)?).trim_end().into();
            }
        }
        let mut launch = match extension {
            Some(extension) => self.extended(&command, &extension, &privileges)?,
            None => self.plain(&command, &privileges)?,
        };
        launch.environment.extend(certificates);
        if let Some(stage) = &stage {
            let variables = Variables::new(stage.service, &environment.all);
            launch.environment.extend(stage.defaults(&variables)?);
            launch.without = variables.secrets().collect();
        }
        init.run(&launch)
    }

    fn capabilities(&self) -> Capabilities<'_> {
        match (&self.environment.capabilities, &self.service) {
            (Some(said), _) => Capabilities::Only(said),
            (None, Some(service)) if !service.capabilities.is_empty() => {
                Capabilities::Of { service: &service.name, names: &service.capabilities }
            }
            _ => Capabilities::Usual,
        }
    }

    fn stage<'a>(&'a self, service: &'a Service, init: &'a Init) -> Stage<'a> {
        Stage { service, environment: self.environment, users: &self.users, init, certificates: Vec::new() }
    }

    fn init(&self) -> Result<Init> {
        let (signal, timeout) = match &self.service {
            Some(service) => (service.stop_signal.as_deref(), service.stop_timeout.as_deref()),
            None => (None, None),
        };
        let environment = self.environment;
        Init::new(
            environment.init.as_deref(),
            environment.stop_signal.as_deref().or(signal),
            environment.stop_timeout.as_deref().or(timeout),
        )
    }

    fn configure(&self, config: &Config, locates: bool) -> Result<()> {
        let strategy = self.strategy()?;
        if locates && !(strategy == Strategy::CopyOnce && self.places.configured.exists()) {
            // Before anything is changed; a script could still bring the program.
            let plan = set_configs::plan(config, &self.places, &self.users)?;
            let words = command::words(&config.command);
            if let Some(program) = words.first() {
                locate(program, &self.environment.path, Some(&plan))?;
            }
        }
        set_configs::configure(config, &self.places, &self.users, strategy).map(drop)
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
        if let Some(service) = &self.service {
            // Its steps are there instead of the image's script.
            return service.script.clone();
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
        Ok(Launch { program, words, privileges: privileges.clone(), ..Launch::default() })
    }

    /// The shell that sources the script goes on as the command, which the script may have changed.
    fn extended(&self, command: &str, script: &Path, privileges: &Privileges) -> Result<Launch> {
        let program = self.shell(script)?;
        log::info(format_args!("sourcing {}", shown(script)));
        let words = ["bash", "-c", SOURCING, "kolla_start", command].map(OsString::from);
        let words = words.into_iter().chain([script.into()]).collect();
        Ok(Launch { program, words, privileges: privileges.clone(), ..Launch::default() })
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

    /// The probe of the service's definition.
    pub fn healthcheck(&self) -> Result<()> {
        let Some(service) = &self.service else {
            return Err(Failure::wrong("a check without a kind is a service's, and KOLLAGE_SERVICE names none"));
        };
        let variables = Variables::new(service, &self.environment.all);
        let words: Vec<String> = service.health.iter().map(|word| variables.expand(word)).collect::<Result<_>>()?;
        let own = service.user.as_ref().map(|user| user.name.as_str());
        if let Some(user) = self.environment.user.as_deref().or(own)
            && rustix::process::geteuid().is_root()
        {
            // Without CAP_SYS_PTRACE, which containers don't have, root can't see what another user's process has open.
            Privileges::of(&self.users, user, None)?.take()?;
        }
        match words.split_first() {
            Some((kind, arguments)) => health::check(kind, arguments, &self.environment.health),
            None => Err(Failure::wrong(format!("the definition of {} has no check of its health", service.name))),
        }
    }

    /// Any command, as whoever the container runs as.
    pub fn exec(&self, words: &[String]) -> Result<u8> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let program = locate(words.first().map_or(OsStr::new(""), |word| word), &self.environment.path, None)?;
        self.init()?.run(&Launch { program, words, ..Launch::default() })
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
        let launch = Launch { program, words: vec![name.into()], ..Launch::default() };
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
