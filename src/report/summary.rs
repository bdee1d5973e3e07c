//! How a run ended: for people, and as the files of `--summary-json-file` and `--metadata-file`.
//!
//! The summary file has Kolla's groups, each a list of objects in the order of the run:
//!
//! ```json
//! { "v": 1, "duration": 63.2, "interrupted": false,
//!   "built": [ { "name": "keystone", "kind": "image", "status": "built", "reference": "kollage/keystone:1",
//!                "digest": "sha256:…", "config_digest": "sha256:…", "size": 212400000, "duration": 41.0,
//!                "retries": 0, "reason": "new" } ],
//!   "failed": [], "not_matched": [], "skipped": [], "unbuildable": [] }
//! ```
//!
//! `built` is everything that is there after the run: `status` tells `built` from `reused`. `skipped` is what was left
//! out on purpose or because a parent failed, and with the status `cancelled` what an interrupt stopped. All fields are
//! always there, null where there is nothing to say; durations are seconds, sizes bytes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::image::digest::Digest;
use crate::report::files;
use crate::report::human::{self, seconds};
use crate::report::style::{Look, Paint};
use crate::report::text;

/// Of more images than this only the largest are named.
const NAMES: usize = 8;
/// Rows for the reasons of one group, and for failures.
const REASONS: usize = 5;
const FAILED: usize = 6;
/// Where lines may have any length, names are still folded to lines that a person reads.
const FOLD_TO: usize = 110;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NodeKind {
    Base,
    Image,
    Plugin,
    Bundle,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    Built,
    Reused,
    Failed,
    /// Left out on purpose, or because a node that it needs failed.
    Skipped,
    /// Not finished, or not begun, when the run was interrupted.
    Cancelled,
    /// Cannot be built with these settings.
    Unbuildable,
    NotMatched,
}

impl Group {
    /// What may have become of a node that a run took on.
    pub const OF_A_RUN: [Group; 5] = [Group::Built, Group::Reused, Group::Failed, Group::Skipped, Group::Cancelled];

    /// As in the summary file.
    pub fn as_str(self) -> &'static str {
        match self {
            Group::Built => "built",
            Group::Reused => "reused",
            Group::Failed => "failed",
            Group::Skipped => "skipped",
            Group::Cancelled => "cancelled",
            Group::Unbuildable => "unbuildable",
            Group::NotMatched => "not_matched",
        }
    }
}

#[derive(Clone, Debug)]
pub struct NodeSummary {
    pub name: String,
    pub kind: NodeKind,
    pub group: Group,
    /// `kollage/keystone:2026.1-debian-bookworm`
    pub reference: Option<String>,
    /// Of the manifest.
    pub digest: Option<Digest>,
    pub config_digest: Option<Digest>,
    /// Compressed size of all layers.
    pub size: Option<u64>,
    pub duration: Duration,
    /// Why it was built, reused or left out.
    pub reason: Option<String>,
    pub error: Option<Error>,
    /// Steps that were tried again because the network was in their way.
    pub retries: usize,
}

impl NodeSummary {
    pub fn new(name: impl Into<String>, kind: NodeKind, group: Group) -> Self {
        NodeSummary {
            name: name.into(),
            kind,
            group,
            reference: None,
            digest: None,
            config_digest: None,
            size: None,
            duration: Duration::ZERO,
            reason: None,
            error: None,
            retries: 0,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct RunSummary {
    pub nodes: Vec<NodeSummary>,
    pub duration: Duration,
    pub interrupted: bool,
    /// Everything was built, and could not be written where it was to go.
    pub not_written: bool,
    /// Where the results are, or what to do with them: a line each.
    pub results: Vec<String>,
    pub logs: Option<PathBuf>,
}

impl RunSummary {
    pub fn group(&self, group: Group) -> impl Iterator<Item = &NodeSummary> {
        self.nodes.iter().filter(move |node| node.group == group)
    }

    pub fn count(&self, group: Group) -> usize {
        self.group(group).count()
    }
}

/// How much of it is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// What fits a screen, however many images there are: names are folded, and what is left out is counted.
    #[default]
    Short,
    /// A line for each node.
    Full,
}

/// For people. `width` is the terminal's; None where lines may have any length.
pub fn render(summary: &RunSummary, look: Look, width: Option<usize>, detail: Detail) -> String {
    let mut rows = Rows { look, width, out: format!("{}\n", headline(summary, look)) };
    for (group, label, paint) in [
        (Group::Built, "built", Paint::Done),
        (Group::Reused, "reused", Paint::Dim),
        (Group::Failed, "failed", Paint::Failed),
        (Group::Skipped, "skipped", Paint::Warning),
        (Group::Cancelled, "stopped", Paint::Warning),
        (Group::Unbuildable, "unbuildable", Paint::Warning),
    ] {
        let nodes: Vec<&NodeSummary> = summary.group(group).collect();
        match (group, detail) {
            _ if nodes.is_empty() => {}
            (Group::Failed, _) => rows.failed(label, paint, &nodes, detail),
            (_, Detail::Full) => rows.each(label, paint, &nodes),
            (_, Detail::Short) => rows.reasons(label, paint, &nodes),
        }
    }
    retried(summary, &mut rows);
    slowest(summary, &mut rows);
    if detail == Detail::Short {
        sizes(summary, &mut rows);
    }
    for (i, line) in summary.results.iter().enumerate() {
        rows.text(if i == 0 { "results" } else { "" }, line);
    }
    if let Some(logs) = &summary.logs {
        rows.text("logs", &logs.to_string_lossy());
    }
    rows.out
}

fn headline(summary: &RunSummary, look: Look) -> String {
    let took = human::duration(summary.duration);
    let failed = summary.count(Group::Failed);
    let planned = summary.nodes.iter().filter(|n| n.group != Group::NotMatched).count();
    if summary.interrupted {
        look.paint(Paint::Warning, format!("Interrupted after {took}"))
    } else if failed > 0 {
        look.paint(Paint::Failed, format!("{failed} of {planned} failed, in {took}"))
    } else if summary.count(Group::Built) > 0 || summary.count(Group::Reused) == 0 {
        look.paint(Paint::Done, format!("Done in {took}"))
    } else {
        look.paint(Paint::Done, format!("Nothing to build, done in {took}"))
    }
}

fn retried(summary: &RunSummary, rows: &mut Rows) {
    let nodes: Vec<&NodeSummary> = summary.nodes.iter().filter(|node| node.retries > 0).collect();
    if !nodes.is_empty() {
        let times = |node: &&NodeSummary| match node.retries {
            1 => text::one_line(&node.name),
            n => format!("{} ({n} times)", text::one_line(&node.name)),
        };
        let names: Vec<String> = nodes.iter().map(times).collect();
        rows.names("retried", Paint::Warning, "", &names, &nodes.len().to_string());
    }
}

fn slowest(summary: &RunSummary, rows: &mut Rows) {
    let mut built: Vec<&NodeSummary> = summary.group(Group::Built).collect();
    built.sort_by_key(|node| std::cmp::Reverse(node.duration));
    if built.len() > 1 && summary.duration >= Duration::from_secs(5) {
        let all: Vec<String> = built
            .iter()
            .take(3)
            .map(|n| format!("{} {}", text::one_line(&n.name), human::duration(n.duration)))
            .collect();
        rows.text("slowest", &all.join(", "));
    }
}

fn sizes(summary: &RunSummary, rows: &mut Rows) {
    let mut sized: Vec<(&NodeSummary, u64)> = summary
        .group(Group::Built)
        .filter(|node| node.kind != NodeKind::Base)
        .filter_map(|node| node.size.map(|size| (node, size)))
        .collect();
    if sized.is_empty() {
        return;
    }
    let label = if sized.len() > NAMES { "largest" } else { "sizes" };
    let shown = if sized.len() > NAMES { 3 } else { NAMES };
    sized.sort_by_key(|(_, size)| std::cmp::Reverse(*size));
    let all: Vec<String> = sized
        .iter()
        .take(shown)
        .map(|(node, size)| format!("{} {}", text::one_line(&node.name), human::size(*size)))
        .collect();
    rows.text(label, &all.join(", "));
}

/// `  label   12  text`
struct Rows {
    look: Look,
    width: Option<usize>,
    out: String,
}

const LABEL: usize = 11;
const COUNT: usize = 4;

impl Rows {
    fn row(&mut self, label: &str, paint: Paint, count: &str, text: &str) {
        let label = self.look.paint(paint, text::pad(label, LABEL));
        let line = format!("  {label}{}  {text}", text::pad_left(count, COUNT));
        self.out.push_str(line.trim_end());
        self.out.push('\n');
    }

    /// Something to copy is never cut.
    fn text(&mut self, label: &str, text: &str) {
        self.row(label, Paint::Dim, "", &text::one_line(text));
    }

    fn room(&self) -> usize {
        self.width.map_or(FOLD_TO, |width| width.saturating_sub(2 + LABEL + COUNT + 2).max(20))
    }

    /// Nodes that share a reason share a row; the reasons of most nodes come first.
    fn reasons(&mut self, label: &str, paint: Paint, nodes: &[&NodeSummary]) {
        let mut reasons: Vec<(&str, Vec<&NodeSummary>)> = Vec::new();
        for node in nodes {
            let reason = node.reason.as_deref().unwrap_or_default();
            match reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, nodes)) => nodes.push(node),
                None => reasons.push((reason, vec![node])),
            }
        }
        reasons.sort_by_key(|(_, nodes)| std::cmp::Reverse(nodes.len()));
        let shown = if reasons.len() > REASONS { REASONS - 1 } else { reasons.len() };
        let several = reasons.len() > 1;
        let name = |node: &&NodeSummary| text::one_line(&node.name);
        for (i, (reason, alike)) in reasons.iter().take(shown).enumerate() {
            let names: Vec<String> = alike.iter().map(name).collect();
            let reason = match several {
                true if reason.is_empty() => format!("no reason known ({})", alike.len()),
                true => format!("{reason} ({})", alike.len()),
                false => (*reason).to_owned(),
            };
            let count = if i == 0 { nodes.len().to_string() } else { String::new() };
            self.names(if i == 0 { label } else { "" }, paint, &reason, &names, &count);
        }
        let others: Vec<&NodeSummary> = reasons[shown..].iter().flat_map(|(_, nodes)| nodes).copied().collect();
        if !others.is_empty() {
            let reason = format!("{} ({})", human::count(reasons.len() - shown, "more reason"), others.len());
            let names: Vec<String> = others.iter().map(name).collect();
            self.names("", paint, &reason, &names, "");
        }
    }

    /// `nothing changed: neutron-* (9), nova-* (7), keystone and 4 more`
    fn names(&mut self, label: &str, paint: Paint, reason: &str, names: &[String], count: &str) {
        let reason = text::one_line(reason);
        let room = self.room();
        // A long reason leaves the names half of the line. How it ends says most: `… changed`.
        let whole = names.iter().map(|name| text::width(name) + 2).sum::<usize>();
        let reason = text::shorten(&reason, (room / 2).max(room.saturating_sub(whole)), self.look.ellipsis());
        let before = if reason.is_empty() { String::new() } else { format!("{reason}: ") };
        let names = fold(names, room.saturating_sub(text::width(&before)));
        self.row(label, paint, count, &self.cut(format!("{before}{names}")));
    }

    /// To the width of the terminal; where lines may have any length, nothing is cut.
    fn cut(&self, line: String) -> String {
        match self.width {
            Some(_) => text::truncate(&line, self.room(), self.look.ellipsis()),
            None => line,
        }
    }

    /// One line a node: its time and size, and why.
    fn each(&mut self, label: &str, paint: Paint, nodes: &[&NodeSummary]) {
        let widest = nodes.iter().map(|node| text::width(&text::one_line(&node.name))).max().unwrap_or(0);
        for (i, node) in nodes.iter().enumerate() {
            let name = text::pad(&text::one_line(&node.name), widest);
            let time = if node.group == Group::Built { human::duration(node.duration) } else { String::new() };
            let size = node.size.map_or_else(String::new, human::size);
            let reason = text::one_line(node.reason.as_deref().unwrap_or_default());
            let line = format!("{name}  {}  {}  {reason}", text::pad_left(&time, 6), text::pad_left(&size, 7));
            let count = if i == 0 { nodes.len().to_string() } else { String::new() };
            self.row(if i == 0 { label } else { "" }, paint, &count, &self.cut(line));
        }
    }

    /// Each with its error; these are what the reader is here for.
    fn failed(&mut self, label: &str, paint: Paint, nodes: &[&NodeSummary], detail: Detail) {
        let shown = if detail == Detail::Short && nodes.len() > FAILED { FAILED - 1 } else { nodes.len() };
        for (i, node) in nodes.iter().take(shown).enumerate() {
            let mut text = self.look.paint(Paint::Strong, text::one_line(&node.name));
            if let Some(error) = &node.error {
                text = format!("{text}: {}", text::one_line(error.message()));
            }
            let count = if i == 0 { nodes.len().to_string() } else { String::new() };
            self.row(if i == 0 { label } else { "" }, paint, &count, &text);
        }
        if shown < nodes.len() {
            let names: Vec<String> = nodes[shown..].iter().map(|node| text::one_line(&node.name)).collect();
            let room = self.room();
            let text = format!("and {}", fold(&names, room.saturating_sub(4)));
            self.row("", paint, "", &text);
        }
    }
}

/// As many names as fit: all of them, or those that begin alike as one (`nova-* (7)`), and the rest as a number.
fn fold(names: &[String], room: usize) -> String {
    let all = names.join(", ");
    if text::width(&all) <= room {
        return all;
    }
    let mut folded: Vec<(String, usize)> = Vec::new();
    for name in names {
        let family = name.split_once('-').map_or(name.as_str(), |(family, _)| family);
        let alike = |other: &&String| other.split_once('-').map_or(other.as_str(), |(family, _)| family) == family;
        let count = names.iter().filter(alike).count();
        let (shown, count) = if count > 2 { (format!("{family}-*"), count) } else { (name.clone(), 1) };
        if !folded.iter().any(|(known, _)| *known == shown) {
            folded.push((shown, count));
        }
    }
    folded.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let mut out = String::new();
    let mut told = 0;
    for (name, count) in folded {
        let next = if count > 1 { format!("{name} ({count})") } else { name };
        let separator = if out.is_empty() { "" } else { ", " };
        let left = names.len() - told - count;
        let rest = if left == 0 { String::new() } else { format!(" and {left} more") };
        if !out.is_empty() && text::width(&format!("{out}{separator}{next}{rest}")) > room {
            break;
        }
        out = format!("{out}{separator}{next}");
        told += count;
    }
    match names.len() - told {
        0 => out,
        n => format!("{out} and {n} more"),
    }
}

/// How a run ended.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Summary")]
pub struct Json<'a> {
    v: u32,
    /// Seconds.
    duration: f64,
    interrupted: bool,
    /// Everything that is there after the run; `status` tells what was built from what was reused.
    built: Vec<JsonNode<'a>>,
    failed: Vec<JsonNode<'a>>,
    /// Images of the catalogue that nobody asked for.
    not_matched: Vec<JsonNode<'a>>,
    /// Left out on purpose, or because a parent failed, or what an interrupt stopped.
    skipped: Vec<JsonNode<'a>>,
    /// Cannot be built with these settings.
    unbuildable: Vec<JsonNode<'a>>,
}

/// A base, image or plugin.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Node")]
struct JsonNode<'a> {
    name: &'a str,
    kind: NodeKind,
    status: Group,
    /// `registry/namespace/name:tag`
    reference: Option<&'a str>,
    /// Of the manifest.
    #[schemars(with = "Option<String>")]
    digest: Option<&'a Digest>,
    #[schemars(with = "Option<String>")]
    config_digest: Option<&'a Digest>,
    /// Bytes of all layers, compressed.
    size: Option<u64>,
    /// Seconds.
    duration: f64,
    /// Steps that were tried again.
    retries: usize,
    /// Why it was built, reused or left out, or how it failed.
    reason: Option<String>,
}

/// What the summary file holds.
pub fn json(summary: &RunSummary) -> Json<'_> {
    let nodes = |groups: &[Group]| {
        let nodes = summary.nodes.iter().filter(|node| groups.contains(&node.group));
        nodes
            .map(|node| JsonNode {
                name: &node.name,
                kind: node.kind,
                status: node.group,
                reference: node.reference.as_deref(),
                digest: node.digest.as_ref(),
                config_digest: node.config_digest.as_ref(),
                size: node.size,
                duration: seconds(node.duration),
                retries: node.retries,
                // Why it failed says more than why it was to be built.
                reason: node.error.as_ref().map(ToString::to_string).or_else(|| node.reason.clone()),
            })
            .collect()
    };
    Json {
        v: 1,
        duration: seconds(summary.duration),
        interrupted: summary.interrupted,
        built: nodes(&[Group::Built, Group::Reused]),
        failed: nodes(&[Group::Failed]),
        not_matched: nodes(&[Group::NotMatched]),
        skipped: nodes(&[Group::Skipped, Group::Cancelled]),
        unbuildable: nodes(&[Group::Unbuildable]),
    }
}

/// `--summary-json-file`
pub fn write_json(summary: &RunSummary, path: &Path) -> Result<()> {
    files::write(path, &pretty(&json(summary))?)
}

#[derive(Serialize)]
struct Metadata<'a> {
    #[serde(rename = "containerimage.config.digest", skip_serializing_if = "Option::is_none")]
    config_digest: Option<&'a Digest>,
    #[serde(rename = "containerimage.digest")]
    digest: &'a Digest,
    #[serde(rename = "image.name")]
    name: &'a str,
}

/// `--metadata-file`: the images that are there after the run, by node, with the keys that `docker buildx bake` gives.
pub fn write_metadata(summary: &RunSummary, path: &Path) -> Result<()> {
    let targets: BTreeMap<&str, Metadata<'_>> = summary
        .nodes
        .iter()
        .filter(|node| matches!(node.group, Group::Built | Group::Reused))
        .filter_map(|node| {
            let (digest, name) = (node.digest.as_ref()?, node.reference.as_deref()?);
            Some((node.name.as_str(), Metadata { config_digest: node.config_digest.as_ref(), digest, name }))
        })
        .collect();
    files::write(path, &pretty(&targets)?)
}

fn pretty(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(value)
        .map_err(|e| Error::failed("cannot turn the summary of the run into JSON").cause(e))?;
    bytes.push(b'\n');
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    fn node(name: &str, kind: NodeKind, group: Group, seconds: u64) -> NodeSummary {
        NodeSummary { duration: Duration::from_secs(seconds), ..NodeSummary::new(name, kind, group) }
    }

    fn keystone() -> NodeSummary {
        NodeSummary {
            reference: Some("kollage/keystone:1".into()),
            digest: Some(Digest::of(b"manifest")),
            config_digest: Some(Digest::of(b"config")),
            size: Some(212_400_000),
            reason: Some("its context file policy.yaml changed".into()),
            ..node("keystone", NodeKind::Image, Group::Built, 41)
        }
    }

    fn mixed() -> RunSummary {
        let failed = NodeSummary {
            error: Some(Error::failed("step 4/9 exited with code 100").cause("apt-get").hint("look")),
            ..node("haproxy", NodeKind::Image, Group::Failed, 12)
        };
        let skipped = |name| NodeSummary {
            reason: Some("needs haproxy, which failed".into()),
            ..node(name, NodeKind::Plugin, Group::Skipped, 0)
        };
        RunSummary {
            nodes: vec![
                node("debian:bookworm", NodeKind::Base, Group::Reused, 0),
                node("base", NodeKind::Image, Group::Built, 9),
                keystone(),
                failed,
                skipped("haproxy+a"),
                skipped("haproxy+b"),
                NodeSummary {
                    reason: Some("--skip-parents".into()),
                    ..node("openstack-base", NodeKind::Image, Group::Skipped, 0)
                },
                node("nova-api", NodeKind::Image, Group::NotMatched, 0),
            ],
            duration: Duration::from_millis(63_200),
            interrupted: false,
            not_written: false,
            results: vec!["kollage store ls shows them".into(), "oci:./out".into()],
            logs: Some("/var/lib/kollage/logs/7".into()),
        }
    }

    #[test]
    fn people_read_what_failed_and_where_things_are() {
        assert_snapshot!(render(&mixed(), Look::PLAIN, Some(80), Detail::Short), @r#"
        1 of 7 failed, in 1m03s
          built         2  no reason known (1): base
                           its context file policy.yaml changed (1): keystone
          reused        1  debian:bookworm
          failed        1  haproxy: step 4/9 exited with code 100
          skipped       3  needs haproxy, which failed (2): haproxy+a, haproxy+b
                           --skip-parents (1): openstack-base
          slowest          keystone 41s, base 9.0s
          sizes            keystone 212 MB
          results          kollage store ls shows them
                           oci:./out
          logs             /var/lib/kollage/logs/7
        "#);
        assert_snapshot!(render(&mixed(), Look { color: true, unicode: true }, Some(48), Detail::Short).replace('\x1b', "^"), @r#"
        ^[1;31m1 of 7 failed, in 1m03s^[0m
          ^[32mbuilt      ^[0m   2  no reason known (1): base
          ^[32m           ^[0m      its context…ed (1): keystone
          ^[2mreused     ^[0m   1  debian:bookworm
          ^[1;31mfailed     ^[0m   1  ^[1mhaproxy^[0m: step 4/9 exited with code 100
          ^[1;33mskipped    ^[0m   3  needs hap… (2): haproxy+a an…
          ^[1;33m           ^[0m      --skip-pa… (1): openstack-ba…
          ^[2mslowest    ^[0m      keystone 41s, base 9.0s
          ^[2msizes      ^[0m      keystone 212 MB
          ^[2mresults    ^[0m      kollage store ls shows them
          ^[2m           ^[0m      oci:./out
          ^[2mlogs       ^[0m      /var/lib/kollage/logs/7
        "#);
    }

    #[test]
    fn a_run_that_had_nothing_to_do_says_so() {
        let summary = RunSummary {
            nodes: (0..9).map(|i| node(&format!("image-{i}"), NodeKind::Image, Group::Reused, 0)).collect(),
            duration: Duration::from_millis(340),
            ..RunSummary::default()
        };
        assert_snapshot!(render(&summary, Look::PLAIN, None, Detail::Short), @r#"
        Nothing to build, done in 0.3s
          reused        9  image-0, image-1, image-2, image-3, image-4, image-5, image-6, image-7, image-8
        "#);
        let summary = RunSummary { interrupted: true, ..summary };
        assert_snapshot!(render(&summary, Look::PLAIN, None, Detail::Short), @r#"
        Interrupted after 0.3s
          reused        9  image-0, image-1, image-2, image-3, image-4, image-5, image-6, image-7, image-8
        "#);
        assert_snapshot!(render(&RunSummary::default(), Look::PLAIN, None, Detail::Short), @r#"Done in 0ms"#);
    }

    /// As many as Kolla has.
    fn large() -> RunSummary {
        let families = ["nova", "neutron", "cinder", "prometheus", "octavia", "ironic", "glance", "heat"];
        let mut nodes: Vec<NodeSummary> = Vec::new();
        for i in 0..190 {
            let name =
                if i % 5 == 0 { format!("single{i:03}") } else { format!("{}-{i:03}", families[i % families.len()]) };
            let (group, reason) = match i {
                0..120 => (Group::Reused, "nothing changed".to_owned()),
                120..160 => (Group::Built, "parent openstack-base changed".to_owned()),
                160..170 => (Group::Built, format!("`file{i}` in the context changed")),
                170..180 => (Group::Failed, "not built before".to_owned()),
                _ => (Group::Skipped, "nova-170 failed".to_owned()),
            };
            let error = (group == Group::Failed).then(|| Error::failed(format!("step {i}/200 exited with code 100")));
            let size = (group != Group::Failed).then_some(1_000_000 * (i as u64 + 1));
            nodes.push(NodeSummary {
                reason: Some(reason),
                size,
                error,
                ..node(&name, NodeKind::Image, group, i as u64)
            });
        }
        RunSummary { nodes, duration: Duration::from_secs(734), ..RunSummary::default() }
    }

    #[test]
    fn a_run_of_190_images_fits_a_screen() {
        let text = render(&large(), Look::PLAIN, Some(100), Detail::Short);
        assert!(text.lines().count() <= 24 && text.lines().all(|line| text::width(line) <= 100), "{text}");
        assert_snapshot!(text, @r#"
        10 of 190 failed, in 12m14s
          built        50  parent openstack-base changed (40): neutron-* (4), cinder-* (4) and 32 more
                           `file160` in the context changed (1): single160
                           `file161` in the context changed (1): neutron-161
                           `file162` in the context changed (1): cinder-162
                           7 more reasons (7): prometheus-163, octavia-164, single165, glance-166 and 3 more
          reused      120  nothing changed: neutron-* (12), cinder-* (12), prometheus-* (12) and 84 more
          failed       10  single170: step 170/200 exited with code 100
                           prometheus-171: step 171/200 exited with code 100
                           octavia-172: step 172/200 exited with code 100
                           ironic-173: step 173/200 exited with code 100
                           glance-174: step 174/200 exited with code 100
                           and single175, nova-176, neutron-177, cinder-178, prometheus-179
          skipped      10  nova-170 failed: single180, ironic-181, glance-182, heat-183, nova-184 and 5 more
          slowest          neutron-169 2m49s, nova-168 2m48s, heat-167 2m47s
          largest          neutron-169 170 MB, nova-168 169 MB, heat-167 168 MB
        "#);
        let full = render(&large(), Look::PLAIN, Some(100), Detail::Full);
        let (list, _) = full.split_once("slowest").unwrap();
        for i in 0..190 {
            let name = &large().nodes[i].name;
            assert_eq!(list.lines().filter(|line| line.contains(name.as_str())).count(), 1, "{name} in\n{full}");
        }
        assert!(full.contains("nova-128         2m08s   129 MB  parent openstack-base changed"), "{full}");
    }

    proptest::proptest! {
        #[test]
        fn folded_names_count_each_once(
            names in proptest::collection::btree_set("[ab]{1,2}(-[cd]{1,3})?", 1..30), room in 20usize..80,
        ) {
            let names: Vec<String> = names.into_iter().collect();
            let text = fold(&names, room);
            let more = text.rsplit_once(" and ").and_then(|(_, n)| n.strip_suffix(" more")?.parse::<usize>().ok());
            let listed = text.rsplit_once(" and ").filter(|_| more.is_some()).map_or(text.as_str(), |(before, _)| before);
            let count = |item: &str| match item.rsplit_once(" (") {
                Some((_, n)) => n.trim_end_matches(')').parse::<usize>().unwrap(),
                None => 1,
            };
            let told: usize = listed.split(", ").map(count).sum();
            proptest::prop_assert_eq!(told + more.unwrap_or(0), names.len(), "{}", text);
        }
    }

    #[test]
    fn the_summary_file_has_kollas_groups() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("summary.json");
        write_json(&mixed(), &path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let names = |group: &str| -> Vec<&str> {
            value[group].as_array().unwrap().iter().map(|n| n["name"].as_str().unwrap()).collect()
        };
        assert_eq!(names("built"), ["debian:bookworm", "base", "keystone"]);
        assert_eq!(names("failed"), ["haproxy"]);
        assert_eq!(names("skipped"), ["haproxy+a", "haproxy+b", "openstack-base"]);
        assert_eq!(names("not_matched"), ["nova-api"]);
        assert_eq!(names("unbuildable"), [""; 0]);
        let only = RunSummary { nodes: vec![keystone()], ..mixed() };
        write_json(&only, &path).unwrap();
        assert_snapshot!(std::fs::read_to_string(&path).unwrap(), @r#"
        {
          "v": 1,
          "duration": 63.2,
          "interrupted": false,
          "built": [
            {
              "name": "keystone",
              "kind": "image",
              "status": "built",
              "reference": "kollage/keystone:1",
              "digest": "sha256:05b3abf2579a5eb66403cd78be557fd860633a1fe2103c7642030defe32c657f",
              "config_digest": "sha256:b79606fb3afea5bd1609ed40b622142f1c98125abcfe89a76a661b0e8e343910",
              "size": 212400000,
              "duration": 41.0,
              "retries": 0,
              "reason": "its context file policy.yaml changed"
            }
          ],
          "failed": [],
          "not_matched": [],
          "skipped": [],
          "unbuildable": []
        }
        "#);
        assert_eq!(value["failed"][0]["reason"], "step 4/9 exited with code 100: apt-get");
    }

    #[test]
    fn the_metadata_file_has_bakes_keys() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metadata.json");
        write_metadata(&mixed(), &path).unwrap();
        assert_snapshot!(std::fs::read_to_string(&path).unwrap(), @r#"
        {
          "keystone": {
            "containerimage.config.digest": "sha256:b79606fb3afea5bd1609ed40b622142f1c98125abcfe89a76a661b0e8e343910",
            "containerimage.digest": "sha256:05b3abf2579a5eb66403cd78be557fd860633a1fe2103c7642030defe32c657f",
            "image.name": "kollage/keystone:1"
          }
        }
        "#);
    }
}
