//! What a `start.toml` says, once it has been read and checked. Its JSON is what a bundle has and the runtime reads;
//! `start-scripts/schema` has an example of all of it, which the tests of both sides hold on to.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

/// The version of the schema. The runtime reads no other.
pub const SCHEMA: u32 = 1;

#[derive(Clone, Debug, Serialize)]
pub struct Definition {
    pub schema: u32,
    pub name: String,
    pub summary: String,
    /// What runs when the configuration names no command.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// What comes behind any command; what is empty is left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<User>,
    /// What it needs besides what a container has: `NET_ADMIN`, …
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, Variable>,
    #[serde(skip_serializing_if = "Stop::is_usual")]
    pub stop: Stop,
    /// The arguments of `kollage-start healthcheck`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub health: Vec<String>,
    #[serde(skip_serializing_if = "Needs::is_nothing")]
    pub needs: Needs,
    /// `[[directory]]` and `[[file]]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prepare: Vec<Step>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<Task>,
    /// The name that its `extend_start.sh` has in the bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct User {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub missing: Missing,
}

/// Who runs the service where the image has no such user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Missing {
    #[default]
    Image,
    Number,
    Error,
}

#[derive(Clone, Debug, Serialize)]
pub struct Variable {
    pub summary: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    #[serde(skip_serializing_if = "is_false")]
    pub secret: bool,
    /// It counts in conditions when it is set, even to nothing.
    #[serde(skip_serializing_if = "is_false")]
    pub flag: bool,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Stop {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// In seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
}

impl Stop {
    fn is_usual(&self) -> bool {
        self.signal.is_none() && self.timeout.is_none()
    }
}

/// What an image must have besides the programs that the command and the steps name.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Needs {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
}

impl Needs {
    fn is_nothing(&self) -> bool {
        self.programs.is_empty() && self.paths.is_empty()
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Task {
    pub name: String,
    pub summary: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variable: Option<String>,
    pub then: Then,
    /// Whoever deploys the service sees to that; in its own container, a task can't know.
    #[serde(skip)]
    pub takes: Takes,
    pub steps: Vec<Step>,
}

/// How the service has to be while a task is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Takes {
    #[default]
    Any,
    Running,
    Stopped,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Then {
    #[default]
    End,
    Start,
}

#[derive(Clone, Debug, Serialize)]
pub struct Step {
    pub title: String,
    #[serde(skip_serializing_if = "When::is_always")]
    pub when: When,
    #[serde(flatten)]
    pub action: Action,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct When {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exists: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unset: Vec<String>,
}

impl When {
    fn is_always(&self) -> bool {
        self.exists.is_empty() && self.missing.is_empty() && self.set.is_empty() && self.unset.is_empty()
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    Make(Make),
    Own(Own),
    Link { path: String, to: String },
    Remove { path: String },
    Write(Write),
    Run(Run),
    Refuse { reason: String },
}

#[derive(Clone, Debug, Serialize)]
pub struct Make {
    pub path: String,
    pub directory: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Own {
    pub path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    #[serde(skip_serializing_if = "is_false")]
    pub recurse: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct Write {
    pub path: String,
    #[serde(flatten)]
    pub content: Content,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<Run>,
    #[serde(skip_serializing_if = "is_false")]
    pub keep: bool,
}

#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Content {
    Text {
        text: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        escape: Option<Escape>,
    },
    Fragments {
        fragments: Vec<String>,
    },
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Run {
    pub command: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub escape: Option<Escape>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Escape {
    Sql,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode(pub u32);

impl Serialize for Mode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:04o}", self.0))
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Definition {
    /// The JSON that stands in a bundle: the same bytes for the same definition.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }

    pub fn task(&self, name: &str) -> Option<&Task> {
        self.tasks.iter().find(|task| task.name == name)
    }

    /// All steps, with the task that they belong to.
    pub fn all_steps(&self) -> impl Iterator<Item = (Option<&Task>, &Step)> {
        let own = self.prepare.iter().chain(&self.steps).map(|step| (None, step));
        own.chain(self.tasks.iter().flat_map(|task| task.steps.iter().map(move |step| (Some(task), step))))
    }
}

impl Step {
    /// The programs that it runs.
    pub fn runs(&self) -> Option<&Run> {
        match &self.action {
            Action::Run(run) => Some(run),
            Action::Write(write) => write.check.as_ref(),
            _ => None,
        }
    }
}
