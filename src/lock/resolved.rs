//! What nodes ask PyPI for, and what pip answered.
//!
//! A recipe says how its packages are found in a stage of its own, which ordinary builds don't need: pip itself, in the
//! very image in which it will install them, with Python and platform as they are there.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Package, Tool};
use crate::catalogue::names;
use crate::dockerfile::{self, Inputs, Resolved};
use crate::error::{Context as _, Error, Result};
use crate::graph::node::{Graph, NodeId, Spec};
use crate::image::digest::{Digest, Key, KeyHasher};

/// The stage.
pub const RESOLVE: &str = "resolve";

/// Where its report is: what `pip install --dry-run --report FILE` writes.
pub const REPORT: &str = "/lock/report.json";

/// Where pip's reports of what it built packages with are, one behind the other: each of its environments for a build
/// is made by a pip of its own, which writes one where `PIP_REPORT` says.
pub const BUILDS: &str = "/lock/builds.json";

/// The Dockerfile of a node as far as that stage needs it; None where there is none.
pub fn question(spec: &Spec) -> Option<Resolved> {
    let dockerfile = &spec.resolved.dockerfile;
    dockerfile.stages.iter().find(|stage| stage.is_named(RESOLVE))?;
    let inputs = Inputs { target: Some(RESOLVE.into()), ..spec.resolved.inputs.clone() };
    dockerfile::resolve(dockerfile, &inputs).ok()
}

/// A digest of what each node asks, of those that ask: its own stage, and what the nodes below it ask, since it only
/// takes what they have not. Results don't count: they would have to be built to know.
pub fn inputs(graph: &Graph) -> BTreeMap<NodeId, String> {
    let mut all: BTreeMap<NodeId, Key> = BTreeMap::new();
    let mut asking = BTreeMap::new();
    for id in graph.ids() {
        let node = graph.node(id);
        let mut hasher = KeyHasher::new("kollage lock inputs 1");
        let mut counts = false;
        for below in node.needs.iter().filter_map(|edge| all.get(&edge.to)) {
            hasher.part("below", below.as_str());
            counts = true;
        }
        let question = node.spec().and_then(question);
        if let Some(question) = &question {
            for text in texts(question) {
                hasher.part("stage", text);
            }
        }
        if counts || question.is_some() {
            let key = hasher.finish();
            if question.is_some() {
                asking.insert(id, key.as_str()[..16].to_owned());
            }
            all.insert(id, key);
        }
    }
    asking
}

/// Of its stages, without their FROM: what that names has a tag, which is no question.
fn texts(question: &Resolved) -> impl Iterator<Item = &str> {
    let dockerfile = &question.dockerfile;
    question.stages.iter().filter_map(move |stage| {
        let from = &dockerfile.stages.get(stage.index)?.from;
        dockerfile.file.text.get(from.span.end..dockerfile.end_of_stage(stage.index)).map(str::trim)
    })
}

#[derive(Deserialize)]
struct Wire {
    install: Vec<Installed>,
}

#[derive(Deserialize)]
struct Installed {
    metadata: Metadata,
    download_info: Download,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    version: String,
}

#[derive(Deserialize)]
struct Download {
    url: String,
    archive_info: Option<Archive>,
}

#[derive(Deserialize)]
struct Archive {
    #[serde(default)]
    hashes: BTreeMap<String, String>,
}

impl Installed {
    fn is_wheel(&self) -> bool {
        let path = self.download_info.url.split(['?', '#']).next().unwrap_or_default();
        path.ends_with(".whl")
    }

    fn package(self) -> Result<(String, Package)> {
        let Installed { metadata: Metadata { name, version }, download_info } = self;
        let sum = download_info.archive_info.and_then(|archive| archive.hashes.get("sha256").cloned());
        let digest = sum.and_then(|sum| format!("sha256:{sum}").parse::<Digest>().ok());
        let digest = digest.ok_or_else(|| {
            Error::failed(format!("pip's report gives no sha256 of {name} {version}"))
                .hint("only files of an index can be locked: take it as a git or url source otherwise")
        })?;
        Ok((names::normalised(&name), Package { version, hashes: vec![digest] }))
    }
}

/// What pip would install.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub packages: BTreeMap<String, Package>,
    /// One that has no wheel, so that something else is needed to build it.
    pub source: Option<String>,
}

/// From pip's report. What it takes from a directory of the build is pinned by other means.
pub fn report(bytes: &[u8]) -> Result<Report> {
    let wire: Wire = serde_json::from_slice(bytes).failed(|| "pip's report cannot be understood".into())?;
    let mut report = Report::default();
    for installed in wire.install {
        if !installed.is_wheel() {
            report.source.get_or_insert_with(|| installed.metadata.name.clone());
        }
        if !installed.download_info.url.starts_with("file:") {
            let (name, package) = installed.package()?;
            report.packages.insert(name, package);
        }
    }
    Ok(report)
}

/// From the reports on environments for builds.
pub fn builds(bytes: &[u8]) -> Result<BTreeMap<String, Vec<Tool>>> {
    let mut builds: BTreeMap<String, Vec<Tool>> = BTreeMap::new();
    for wire in serde_json::Deserializer::from_slice(bytes).into_iter::<Wire>() {
        let wire = wire.failed(|| "pip's reports on its builds cannot be understood".into())?;
        for installed in wire.install {
            let source = !installed.is_wheel();
            let (name, package) = installed.package()?;
            builds.entry(name).or_default().push(Tool { package, source });
        }
    }
    for tools in builds.values_mut() {
        tools.sort();
        tools.dedup();
    }
    Ok(builds)
}
