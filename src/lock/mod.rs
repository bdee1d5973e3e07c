//! `kollage.lock`: what names that move (tags, branches, addresses, versions) stood for when they were looked up. One
//! line for each thing, in an order of its own, so that a diff says what moved and two branches can be merged.
//!
//! What is in it takes part in a build where a node uses it and nowhere else: a base by its digest, a remote by its
//! pin, packages as lines of the node's Dockerfile. So a line that moves builds again what uses it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::fetch::{Pin, Remote};
use crate::graph::node::Node;
use crate::image::config::Platform;
use crate::image::digest::Digest;

mod gaps;
mod read;
mod resolved;
pub mod schema;
#[cfg(test)]
mod tests;

pub use gaps::{Gap, gaps};
pub use read::{is_snapshot, load, parse};
pub use resolved::{BUILDS, REPORT, RESOLVE, Report, builds, inputs, question, report};

/// Beside kollage.toml.
pub const FILE: &str = "kollage.lock";

/// Of the format: a file of another one is refused.
pub const VERSION: i64 = 2;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    /// By reference, as FROM has it.
    pub bases: BTreeMap<String, Digest>,
    /// `20261130T000000Z`, by `debian/bookworm`: the day of the archive that a base is made from.
    pub debian: BTreeMap<String, String>,
    /// Repositories and files, by the address as it may be shown.
    pub remotes: BTreeMap<String, Pin>,
    /// What a node takes from PyPI, by [`entry`].
    pub pypi: BTreeMap<String, Resolved>,
}

/// What the lock calls a node: `keystone (linux/amd64)`. Files of another platform have other digests, and it may need
/// other packages.
pub fn entry(node: &Node) -> String {
    named(node.plain_name(), &node.platform)
}

fn named(node: &str, platform: &Platform) -> String {
    format!("{node} ({platform})")
}

/// Node and platform of an [`entry`].
pub fn parts(entry: &str) -> Option<(&str, Platform)> {
    let (node, platform) = entry.strip_suffix(')')?.rsplit_once(" (")?;
    Some((node, crate::dockerfile::platform(platform)?))
}

/// What pip found for one node, above what its parent has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// Digest of what was asked: another question has another answer.
    pub inputs: String,
    pub packages: BTreeMap<String, Package>,
    /// What pip builds those of them with that have no wheel, and sources of one's own: setuptools and the like. Each
    /// is built in an environment of its own, so that there may be several versions.
    pub builds: BTreeMap<String, Vec<Tool>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Package {
    pub version: String,
    /// Of files that it may be; at least one.
    pub hashes: Vec<Digest>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tool {
    pub package: Package,
    /// It has no wheel, and is built itself.
    pub source: bool,
}

impl Package {
    /// As `pip --require-hashes` takes it.
    fn requirement(&self, name: &str) -> String {
        let hashes = self.hashes.iter().map(|hash| format!(" --hash={hash}"));
        format!("{name}=={}{}", self.version, hashes.collect::<String>())
    }
}

impl Resolved {
    /// As `pip --require-hashes` takes them.
    pub fn requirements(&self) -> Vec<String> {
        self.packages.iter().map(|(name, package)| package.requirement(name)).collect()
    }

    /// The same for what packages are built with, for one call of pip after the other: no name is twice in one, and
    /// what has to be built itself comes after the wheels that it may need.
    pub fn build_rounds(&self) -> Vec<Vec<String>> {
        let mut rounds: Vec<Vec<String>> = Vec::new();
        let mut sources = Vec::new();
        for (name, tools) in &self.builds {
            let (own, wheels): (Vec<&Tool>, Vec<&Tool>) = tools.iter().partition(|tool| tool.source);
            for (round, tool) in wheels.into_iter().enumerate() {
                if rounds.len() == round {
                    rounds.push(Vec::new());
                }
                rounds[round].push(tool.package.requirement(name));
            }
            sources.extend(own.into_iter().map(|tool| vec![tool.package.requirement(name)]));
        }
        rounds.extend(sources);
        rounds
    }
}

impl Lock {
    pub fn pin(&self, remote: &Remote) -> Option<&Pin> {
        self.remotes.get(&remote.name())
    }

    /// What it has for one platform, with nodes by their names alone.
    pub fn on(&self, platform: &Platform) -> Lock {
        let pypi = self.pypi.iter().filter_map(|(entry, resolved)| {
            let (node, of) = parts(entry)?;
            (of == *platform).then(|| (node.to_owned(), resolved.clone()))
        });
        Lock { pypi: pypi.collect(), ..self.clone() }
    }

    /// Every line: by section and name.
    fn lines(&self) -> BTreeMap<(Section<'_>, &str), String> {
        let mut lines = BTreeMap::new();
        for (name, digest) in &self.bases {
            lines.insert((Section::Bases, name.as_str()), digest.to_string());
        }
        for (name, day) in &self.debian {
            lines.insert((Section::Debian, name.as_str()), day.clone());
        }
        for (name, pin) in &self.remotes {
            let (section, text) = match pin {
                Pin::Commit { id, name } => (Section::Git, words(id, name.as_deref())),
                Pin::File { digest, modified } => {
                    let modified = modified.map(|seconds| seconds.to_string());
                    (Section::Urls, words(&digest.to_string(), modified.as_deref()))
                }
            };
            lines.insert((section, name.as_str()), text);
        }
        for (node, resolved) in &self.pypi {
            lines.insert((Section::Pypi, node.as_str()), resolved.inputs.clone());
            for (name, package) in &resolved.packages {
                lines.insert((Section::Packages(node), name.as_str()), package.to_string());
            }
            for (name, tools) in &resolved.builds {
                let tools: Vec<String> = tools.iter().map(Tool::to_string).collect();
                lines.insert((Section::Builds(node), name.as_str()), tools.join(", "));
            }
        }
        lines
    }

    /// The file.
    pub fn text(&self) -> String {
        let mut out = format!(
            "# Made by `kollage lock`; `kollage lock --update [NAME]` moves what is in it.\nversion = {VERSION}\n"
        );
        let mut last = None;
        for ((section, name), value) in self.lines() {
            if last != Some(section) {
                let _ = writeln!(out, "\n{}", section.head());
                last = Some(section);
            }
            let _ = writeln!(out, "{} = {}", quoted(name), quoted(&value));
        }
        out
    }

    /// What is different from `earlier`, in the order of the file.
    pub fn moved(&self, earlier: &Lock) -> Vec<Moved> {
        let (old, new) = (earlier.lines(), self.lines());
        let keys = old.keys().chain(new.keys().filter(|key| !old.contains_key(*key)));
        let mut moved: Vec<((Section<'_>, &str), Moved)> = keys
            // It says that packages may have changed, and they say whether they did.
            .filter(|(section, _)| *section != Section::Pypi)
            .filter(|key| old.get(*key) != new.get(*key))
            .map(|key| {
                let what = Moved {
                    section: key.0.title(),
                    name: key.1.to_owned(),
                    old: old.get(key).cloned(),
                    new: new.get(key).cloned(),
                };
                (*key, what)
            })
            .collect();
        moved.sort_by(|a, b| a.0.cmp(&b.0));
        moved.into_iter().map(|(_, moved)| moved).collect()
    }
}

/// One line that is not what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// `base`, `git`, `keystone`, …
    pub section: String,
    pub name: String,
    pub old: Option<String>,
    pub new: Option<String>,
}

impl std::fmt::Display for Moved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Versions are what a person looks for; a digest counts where nothing else moved.
        let (old, new) = (self.old.as_deref(), self.new.as_deref());
        let first = |text: &str| text.split(' ').next().unwrap_or_default().to_owned();
        let (old, new) = match (old, new) {
            (Some(a), Some(b)) if first(a) != first(b) => (Some(first(a)), Some(first(b))),
            (Some(a), Some(b)) => (Some(a.to_owned()), Some(b.to_owned())),
            (a, b) => (a.map(first), b.map(first)),
        };
        let nothing = || "nothing".to_owned();
        let (old, new) = (old.unwrap_or_else(nothing), new.unwrap_or_else(nothing));
        write!(f, "{} {}: {old} -> {new}", self.section, self.name)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Section<'a> {
    Bases,
    Debian,
    Git,
    Urls,
    Pypi,
    Packages(&'a str),
    Builds(&'a str),
}

impl Section<'_> {
    fn head(self) -> String {
        match self {
            Section::Bases => "[bases]".into(),
            Section::Debian => "[debian]".into(),
            Section::Git => "[git]".into(),
            Section::Urls => "[urls]".into(),
            Section::Pypi => "[pypi]".into(),
            Section::Packages(node) => format!("[packages.{}]", quoted(node)),
            Section::Builds(node) => format!("[builds.{}]", quoted(node)),
        }
    }

    fn title(self) -> String {
        match self {
            Section::Bases => "base".into(),
            Section::Debian => "snapshot".into(),
            Section::Git => "git".into(),
            Section::Urls => "url".into(),
            Section::Pypi => "pypi".into(),
            Section::Packages(node) => node.to_owned(),
            Section::Builds(node) => format!("{node} build"),
        }
    }
}

/// As it stands in the file.
impl std::fmt::Display for Package {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.version)?;
        self.hashes.iter().try_for_each(|hash| write!(f, " {hash}"))
    }
}

impl std::fmt::Display for Tool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.package, if self.source { SOURCE } else { "" })
    }
}

/// After a [`Tool`] that has no wheel.
const SOURCE: &str = " source";

fn words(first: &str, second: Option<&str>) -> String {
    second.map_or_else(|| first.to_owned(), |second| format!("{first} {second}"))
}

/// As TOML takes it.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
