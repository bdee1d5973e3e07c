//! A case: a directory with a Dockerfile, the files of its context, `case.toml` for what those cannot say, and
//! `expected.json`, which is what Docker made of it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::files::{CONTEXT, FileSpec, lay_out, set_times};
use crate::image::{ImageFacts, sha256};

const SETTINGS: &str = "case.toml";
const EXPECTED: &str = "expected.json";
/// What Kollage makes of it where that is meant to be something else.
const OWN: &str = "kollage.json";

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub target: Option<String>,
    #[serde(default)]
    pub args: BTreeMap<String, String>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub secrets: BTreeMap<String, String>,
    /// More arguments, where both command lines have the same.
    #[serde(default)]
    pub flags: Vec<String>,
    /// Named contexts: `dir:PATH` below the case's context, `image:BASE`, or an address.
    #[serde(default)]
    pub contexts: BTreeMap<String, String>,
    /// Newer than the frontend within Docker: recorded with the one that KOLLAGE_CONFORMANCE_FRONTEND names.
    #[serde(default)]
    pub newer_frontend: bool,
    /// Both must refuse it.
    #[serde(default)]
    pub error: bool,
    /// The line that Kollage's message must name.
    pub line: Option<usize>,
    /// Kollage's exit code, where it is neither 1 nor 2.
    pub code: Option<i32>,
    /// Words that Kollage's message must have in it.
    pub says: Option<String>,
    /// Why Kollage's result is meant to be another one.
    pub differs: Option<String>,
    #[serde(default)]
    pub file: Vec<FileSpec>,
}

pub struct Case {
    /// `group/name`
    pub name: String,
    pub dir: PathBuf,
    pub settings: Settings,
}

/// What a build came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Error(String),
    Image(Box<ImageFacts>),
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Recorded {
    /// Which Docker said so.
    pub docker: String,
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// All cases whose name has `filter` in it, by name.
pub fn load(root: &Path, filter: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for group in dirs(root) {
        for dir in dirs(&group) {
            let name = dir.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            if !name.contains(filter) {
                continue;
            }
            let settings = match fs::read_to_string(dir.join(SETTINGS)) {
                Ok(text) => toml::from_str(&text).unwrap_or_else(|e| panic!("{name}/{SETTINGS}: {e}")),
                Err(_) => Settings::default(),
            };
            cases.push(Case { name, dir, settings });
        }
    }
    cases
}

fn dirs(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let mut dirs: Vec<_> = entries.filter(|path| path.is_dir()).collect();
    dirs.sort();
    dirs
}

impl Case {
    /// Makes the context in an empty directory, with modes, owners and times that depend on nothing.
    pub fn lay_out(&self, to: &Path) {
        copy(&self.dir, to, true);
        lay_out(to, &self.settings.file);
        set_times(to, self.time(), &self.settings.file);
    }

    /// The time of the context's files, another one for each case: BuildKit takes a file that it knows from an earlier
    /// build, of whatever context of that name, for unchanged when size and time are equal.
    fn time(&self) -> i64 {
        let [a, b, c, ..] = sha256(self.name.as_bytes());
        CONTEXT.start() + i64::from(u32::from_be_bytes([0, a, b, c]))
    }

    pub fn dockerfile(&self) -> Vec<u8> {
        fs::read(self.dir.join("Dockerfile")).unwrap()
    }

    pub fn expected(&self) -> Option<Recorded> {
        read(&self.dir.join(EXPECTED))
    }

    /// Only where a difference is meant.
    pub fn own(&self) -> Option<Outcome> {
        read(&self.dir.join(OWN))
    }

    pub fn record(&self, recorded: &Recorded) {
        write(&self.dir.join(EXPECTED), recorded);
    }

    pub fn record_own(&self, outcome: &Outcome) {
        write(&self.dir.join(OWN), outcome);
    }
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    let text = fs::read_to_string(path).ok()?;
    Some(serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
}

fn write<T: Serialize>(path: &Path, value: &T) {
    let mut text = serde_json::to_string_pretty(value).unwrap();
    text.push('\n');
    fs::write(path, text).unwrap();
}

fn copy(from: &Path, to: &Path, top: bool) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        if top && [SETTINGS, EXPECTED, OWN].iter().any(|own| name == *own) {
            continue;
        }
        let (from, to) = (entry.path(), to.join(&name));
        let meta = entry.metadata().unwrap();
        if meta.is_dir() {
            fs::create_dir(&to).unwrap();
            copy(&from, &to, false);
        } else if meta.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&from).unwrap(), &to).unwrap();
            continue;
        } else {
            fs::write(&to, fs::read(&from).unwrap()).unwrap();
        }
        // Of a mode, git keeps whether a file may be executed.
        let mode = if meta.is_dir() || meta.permissions().mode() & 0o100 != 0 { 0o755 } else { 0o644 };
        fs::set_permissions(&to, fs::Permissions::from_mode(mode)).unwrap();
    }
}
