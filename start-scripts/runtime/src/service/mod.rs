//! What a bundle says about one service: how it is started, and the tasks that it has. A definition is read from the
//! JSON that `kollage start pack` makes of a `start.toml`; an image needs to know nothing of it.

mod carry;
mod files;
mod read;
mod select;
mod variables;

use crate::error::{Failure, Result, shown};
use crate::users::{Numbers, Users};
use std::path::{Path, PathBuf};

pub use carry::Stage;
pub use select::Wanted;
pub use variables::Variables;

#[derive(Debug, PartialEq)]
pub struct Service {
    pub name: String,
    /// What runs when the configuration names no command.
    pub command: Vec<String>,
    /// What comes behind any command.
    pub arguments: Vec<String>,
    pub user: Option<ServiceUser>,
    /// What it needs besides what a container has.
    pub capabilities: Vec<String>,
    /// What the command and the steps find in their environment, unless the container has it.
    pub environment: Vec<(String, String)>,
    pub variables: Vec<Variable>,
    pub stop_signal: Option<String>,
    pub stop_timeout: Option<String>,
    /// The arguments of `kollage-start healthcheck`.
    pub health: Vec<String>,
    /// Directories and files that are made before anything else.
    pub prepare: Vec<Step>,
    /// Before the command.
    pub steps: Vec<Step>,
    pub tasks: Vec<Task>,
    /// A script for bash beside the definition, that is sourced before the command.
    pub script: Option<PathBuf>,
}

#[derive(Debug, PartialEq)]
pub struct ServiceUser {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub missing: Missing,
}

/// Who runs the service when the image has no such user.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Missing {
    /// Whom the image runs as (KOLLAGE_IMAGE_USER), and when that isn't known, the number.
    Image,
    Number,
    /// It isn't started.
    Error,
}

/// A variable of the environment that steps have in their texts.
#[derive(Debug, PartialEq)]
pub struct Variable {
    pub name: String,
    pub default: Option<String>,
    pub secret: bool,
    /// It counts in conditions when it is set, even to nothing.
    pub flag: bool,
}

#[derive(Debug, PartialEq)]
pub struct Task {
    pub name: String,
    /// The task runs when this one is set, even to nothing.
    pub variable: Option<String>,
    /// Whether the service is started afterwards.
    pub then_start: bool,
    pub steps: Vec<Step>,
}

#[derive(Debug, PartialEq)]
pub struct Step {
    pub title: String,
    pub when: When,
    pub action: Action,
}

/// All of it must hold.
#[derive(Debug, Default, PartialEq)]
pub struct When {
    /// Paths or patterns of which there is something.
    pub exists: Vec<String>,
    pub missing: Vec<String>,
    /// Variables that have a value.
    pub set: Vec<String>,
    pub unset: Vec<String>,
}

#[derive(Debug, PartialEq)]
pub enum Action {
    Make { path: String, directory: bool, owner: Option<String>, mode: Option<u32> },
    Own { path: String, owner: Option<String>, mode: Option<u32>, recurse: bool },
    Link { path: String, to: String },
    Remove { path: String },
    Write(Write),
    Run(Run),
    Refuse { reason: String },
}

/// A file whose content is known when the service starts.
#[derive(Debug, PartialEq)]
pub struct Write {
    pub path: String,
    pub content: Content,
    pub owner: Option<String>,
    pub mode: Option<u32>,
    /// A program that looks at the new file, `${CANDIDATE}`, before it takes the place of the old one.
    pub check: Option<Run>,
    /// What is there stays.
    pub keep: bool,
}

#[derive(Debug, PartialEq)]
pub enum Content {
    Text {
        text: String,
        escape: Escape,
    },
    /// Patterns; the files of each in the order of their names, one after the other.
    Fragments(Vec<String>),
}

#[derive(Debug, Default, PartialEq)]
pub struct Run {
    pub command: Vec<String>,
    /// Without one, the service's.
    pub user: Option<String>,
    pub environment: Vec<(String, String)>,
    pub input: Option<String>,
    pub escape: Escape,
    pub directory: Option<String>,
}

/// What becomes of the values of variables in a text.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub enum Escape {
    #[default]
    None,
    /// Inside of a string in single quotes.
    Sql,
}

impl Service {
    /// The definition of a service that the bundle has.
    pub fn load(bundle: &Path, name: &str) -> Result<Service> {
        let services = bundle.join("services");
        let file = services.join(format!("{name}.json"));
        if name.contains('/') || !file.is_file() {
            return Err(unknown(name, &services));
        }
        let text = std::fs::read_to_string(&file)
            .map_err(|error| Failure::system(format_args!("read the service's definition {}", shown(&file)), error))?;
        read::service(&text, &file)
    }

    pub fn task(&self, name: &str) -> Result<&Task> {
        self.tasks.iter().find(|task| task.name == name).ok_or_else(|| {
            let known: Vec<&str> = self.tasks.iter().map(|task| &*task.name).collect();
            let hint = match (crate::config::nearest(name, &known), known.is_empty()) {
                (Some(near), _) => format!("; did you mean `{near}`?"),
                (None, true) => "; it has none".into(),
                (None, false) => format!("; it has {}", known.join(", ")),
            };
            Failure::wrong(format!("{} has no task `{name}`{hint}", self.name))
        })
    }

    /// The users that this service can be run with: the image's, and one in place of its own where that is missing.
    /// Whoever isn't root can only be who he is.
    pub fn users(&self, users: Users, present: Option<Numbers>, image: Option<&str>) -> Result<Users> {
        let Some(user) = &self.user else { return Ok(users) };
        if let Some(present) = present {
            return Ok(users.where_always(&user.name, present));
        }
        if users.knows(&user.name) {
            return Ok(users);
        }
        let numbers = match (user.missing, image) {
            (Missing::Error, _) => return Err(self.user_missing(user)),
            (Missing::Image, Some(image)) => {
                let identity = users.identity(image).map_err(|failure| failure.of("KOLLAGE_IMAGE_USER"))?;
                Numbers { uid: identity.uid, gid: identity.gid }
            }
            (Missing::Image, None) | (Missing::Number, _) => Numbers { uid: user.uid, gid: user.gid },
        };
        Ok(users.where_missing(&user.name, numbers))
    }

    fn user_missing(&self, user: &ServiceUser) -> Failure {
        Failure::wrong(format!(
            "{} runs as the user `{}`, whom the image hasn't (KOLLAGE_USERS={}=UID:GID says whom to take)",
            self.name, user.name, user.name
        ))
    }
}

/// Where the bundle is: where it is said to be, else where this program is, else where images have it.
pub fn bundle(said: Option<&Path>) -> PathBuf {
    let own = || std::env::current_exe().ok()?.parent().map(Path::to_path_buf);
    let beside = || own().filter(|directory| directory.join("services").is_dir());
    said.map(Path::to_path_buf).or_else(beside).unwrap_or_else(|| "/var/lib/kollage/start".into())
}

/// Copies a bundle, and nothing else that is where it is: in an image of its own that is the root. A bundle that is
/// there already is replaced, file by file.
pub fn install(bundle: &Path, to: &Path) -> Result<()> {
    let cannot = |error| Failure::system(format_args!("read the bundle {}", shown(bundle)), error);
    if !bundle.join("services").is_dir() {
        return Err(Failure::wrong(format!(
            "there is no bundle in {} (KOLLAGE_START_DIR says where one is)",
            shown(bundle)
        )));
    }
    std::fs::create_dir_all(to).map_err(|error| Failure::system(format_args!("make {}", shown(to)), error))?;
    for entry in std::fs::read_dir(bundle).map_err(cannot)? {
        let entry = entry.map_err(cannot)?;
        let name = entry.file_name();
        let known = ["kollage-start", "services", "bundle.json"].iter().any(|known| name == *known);
        let link = std::fs::read_link(entry.path()).is_ok_and(|target| target == Path::new("kollage-start"));
        if known || link {
            crate::files::restore(&entry.path(), &to.join(&name))?;
        }
    }
    Ok(())
}

fn unknown(name: &str, services: &Path) -> Failure {
    let entries = std::fs::read_dir(services).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let names: Vec<String> = names.filter_map(|name| Some(name.strip_suffix(".json")?.to_owned())).collect();
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    let hint = match (crate::config::nearest(name, &known), known.is_empty()) {
        (Some(near), _) => format!("; did you mean `{near}`?"),
        (None, true) => " (KOLLAGE_START_DIR says where a bundle is)".into(),
        (None, false) => String::new(),
    };
    Failure::wrong(format!("there is no definition of a service `{name}` in {}{hint}", shown(services)))
}
