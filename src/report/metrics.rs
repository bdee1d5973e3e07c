//! Figures of a run in the OpenMetrics text format, in a form that the textfile collector of Prometheus' node exporter
//! takes as well: no types that only OpenMetrics has, no time stamps of samples.
//!
//! Gauges are of the run that wrote the file; counters (`_total`) are of all runs of the store.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::error::{Context as _, Result};
use crate::report::files;
use crate::report::human::seconds;
use crate::report::summary::{Group, NodeKind, NodeSummary, RunSummary};

/// What adds up over runs. A damaged or lost file makes the counters begin again, which Prometheus knows how to take.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    done: u64,
    failed: u64,
    interrupted: u64,
    retries: u64,
    bytes: u64,
    images: BTreeMap<String, Image>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Image {
    builds: u64,
    failures: u64,
}

impl Counters {
    /// Adds a run to what the file says. Two runs that end at the same time are both counted.
    pub fn update(path: &Path, run: &RunSummary) -> Result<Counters> {
        let say = || format!("cannot count the run in {}", path.display());
        let lock = path.with_extension("lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(lock).unusable(say)?;
        flock(&lock, FlockOperation::LockExclusive).unusable(say)?;
        let old = std::fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let mut counters: Counters = old.unwrap_or_default();
        counters.add(run);
        files::write(path, &serde_json::to_vec(&counters).failed(say)?)?;
        Ok(counters)
    }

    fn add(&mut self, run: &RunSummary) {
        *match outcome(run) {
            "done" => &mut self.done,
            "failed" => &mut self.failed,
            _ => &mut self.interrupted,
        } += 1;
        for node in &run.nodes {
            self.retries += node.retries as u64;
            match node.group {
                Group::Built => {
                    self.bytes += node.size.unwrap_or(0);
                    self.images.entry(node.name.clone()).or_default().builds += 1;
                }
                Group::Failed => self.images.entry(node.name.clone()).or_default().failures += 1,
                _ => {}
            }
        }
    }
}

fn outcome(run: &RunSummary) -> &'static str {
    match (run.interrupted, run.count(Group::Failed)) {
        (true, _) => "interrupted",
        (false, 0) if !run.not_written => "done",
        (false, _) => "failed",
    }
}

pub fn render(run: &RunSummary, counters: &Counters, now: SystemTime) -> String {
    let mut out = Exposition(String::new());
    let planned = |node: &&NodeSummary| node.group != Group::NotMatched && node.group != Group::Unbuildable;
    let nodes: Vec<&NodeSummary> = run.nodes.iter().filter(planned).collect();
    let gauge = Family { kind: "gauge", ..Family::default() };
    let counter = Family { kind: "counter", ..Family::default() };

    let build = Family { name: "kollage_version", help: "The version of Kollage that wrote this.", ..gauge };
    out.family(&build, [(vec![("version", env!("CARGO_PKG_VERSION"))], 1.0)]);
    let ended = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let help = "When the last run ended, since 1970.";
    out.family(&Family { name: "kollage_run_end_time_seconds", unit: "seconds", help, ..gauge }, one(seconds(ended)));
    let help = "How long the last run took.";
    out.family(
        &Family { name: "kollage_run_duration_seconds", unit: "seconds", help, ..gauge },
        one(seconds(run.duration)),
    );
    let help = "1 when nothing failed in the last run and it was not interrupted.";
    let success = if outcome(run) == "done" { 1.0 } else { 0.0 };
    out.family(&Family { name: "kollage_run_success", help, ..gauge }, one(success));
    let help = "Images of the last run by what became of them, bases and plugins included.";
    let counts = Group::OF_A_RUN.map(|group| (vec![("status", group.as_str())], run.count(group) as f64));
    out.family(&Family { name: "kollage_run_images", help, ..gauge }, counts);
    let there = run.count(Group::Built) + run.count(Group::Reused);
    if there > 0 {
        let help = "Share of what is there after the last run that it did not have to build.";
        let ratio = run.count(Group::Reused) as f64 / there as f64;
        out.family(&Family { name: "kollage_run_reuse_ratio", unit: "ratio", help, ..gauge }, one(ratio));
    }
    let worked = |node: &&&NodeSummary| matches!(node.group, Group::Built | Group::Failed);
    let help = "How long an image took in the last run, of those that were worked on.";
    let durations = nodes.iter().filter(worked).map(|node| (of(node), seconds(node.duration)));
    out.family(&Family { name: "kollage_image_duration_seconds", unit: "seconds", help, ..gauge }, durations);
    let help = "Compressed size of an image of the last run.";
    let sizes = nodes.iter().filter_map(|node| Some((of(node), node.size? as f64)));
    out.family(&Family { name: "kollage_image_size_bytes", unit: "bytes", help, ..gauge }, sizes);
    let help = "1 for what failed in the last run.";
    let failed = nodes.iter().map(|node| (of(node), if node.group == Group::Failed { 1.0 } else { 0.0 }));
    out.family(&Family { name: "kollage_image_failed", help, ..gauge }, failed);

    let help = "Runs by how they ended.";
    let runs = [("done", counters.done), ("failed", counters.failed), ("interrupted", counters.interrupted)];
    let runs = runs.map(|(outcome, count)| (vec![("outcome", outcome)], count as f64));
    out.family(&Family { name: "kollage_runs", help, ..counter }, runs);
    let help = "How often an image was built.";
    let images = counters.images.iter();
    let builds = images.clone().map(|(name, image)| (vec![("image", name.as_str())], image.builds as f64));
    out.family(&Family { name: "kollage_image_builds", help, ..counter }, builds);
    let help = "How often an image failed.";
    let failures = images.map(|(name, image)| (vec![("image", name.as_str())], image.failures as f64));
    out.family(&Family { name: "kollage_image_failures", help, ..counter }, failures);
    let help = "Steps that were tried again since the network was in their way.";
    out.family(&Family { name: "kollage_step_retries", help, ..counter }, one(counters.retries as f64));
    let help = "Compressed size of all images that were built.";
    out.family(&Family { name: "kollage_built_bytes", unit: "bytes", help, ..counter }, one(counters.bytes as f64));
    out.0.push_str("# EOF\n");
    out.0
}

type Labels<'a> = Vec<(&'static str, &'a str)>;

fn one(value: f64) -> [(Labels<'static>, f64); 1] {
    [(Vec::new(), value)]
}

fn of(node: &NodeSummary) -> Labels<'_> {
    let kind = match node.kind {
        NodeKind::Base => "base",
        NodeKind::Image => "image",
        NodeKind::Plugin => "plugin",
        NodeKind::Bundle => "bundle",
    };
    vec![("image", &node.name), ("kind", kind)]
}

#[derive(Clone, Copy, Default)]
struct Family {
    /// Without the `_total` of counters.
    name: &'static str,
    kind: &'static str,
    /// The end of the name, where it has one.
    unit: &'static str,
    help: &'static str,
}

struct Exposition(String);

impl Exposition {
    fn family<'a>(&mut self, family: &Family, samples: impl IntoIterator<Item = (Labels<'a>, f64)>) {
        let Family { name, kind, unit, help } = family;
        let out = &mut self.0;
        let _ = writeln!(out, "# TYPE {name} {kind}");
        if !unit.is_empty() {
            let _ = writeln!(out, "# UNIT {name} {unit}");
        }
        let _ = writeln!(out, "# HELP {name} {help}");
        let total = if *kind == "counter" { "_total" } else { "" };
        for (labels, value) in samples {
            let labels: Vec<String> =
                labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
            let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            let _ = writeln!(out, "{name}{total}{labels} {value}");
        }
    }
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use std::time::Duration;

    use super::*;

    fn run() -> RunSummary {
        let node = |name: &str, group, seconds| NodeSummary {
            duration: Duration::from_millis(seconds),
            ..NodeSummary::new(name, NodeKind::Image, group)
        };
        RunSummary {
            nodes: vec![
                NodeSummary { size: Some(30_000_000), retries: 2, ..node("base", Group::Built, 9_500) },
                node("odd \"name\"\\\n", Group::Failed, 1_000),
                NodeSummary { size: Some(50_000_000), ..node("web", Group::Reused, 1) },
                node("other", Group::NotMatched, 0),
            ],
            duration: Duration::from_millis(10_700),
            ..RunSummary::default()
        }
    }

    #[test]
    fn the_dashboard_asks_only_for_what_is_there() {
        let dashboard: serde_json::Value = serde_json::from_str(include_str!("../../docs/dashboard.json")).unwrap();
        let text = render(&run(), &Counters::default(), SystemTime::UNIX_EPOCH);
        let declared = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).map(|line| {
            let (name, kind) = line.split_once(' ').unwrap();
            format!("{name}{}", if kind == "counter" { "_total" } else { "" })
        });
        let declared: std::collections::BTreeSet<String> = declared.collect();
        let panels = dashboard["panels"].as_array().unwrap().iter();
        let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
        let queries: Vec<&str> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
        assert!(queries.len() >= 12);
        for query in queries.into_iter().chain(dashboard["templating"]["list"][1]["query"]["query"].as_str()) {
            let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let names: Vec<&str> = words.filter(|word| word.starts_with("kollage_")).collect();
            assert!(!names.is_empty() && names.iter().all(|name| declared.contains(*name)), "{query}");
        }
    }

    #[test]
    fn a_run_in_figures() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.json");
        Counters::update(&path, &run()).unwrap();
        let counters = Counters::update(&path, &RunSummary { interrupted: true, ..run() }).unwrap();
        let text = render(&run(), &counters, SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000));
        assert_snapshot!(text.replace(env!("CARGO_PKG_VERSION"), "VERSION"), @r#"
        # TYPE kollage_version gauge
        # HELP kollage_version The version of Kollage that wrote this.
        kollage_version{version="VERSION"} 1
        # TYPE kollage_run_end_time_seconds gauge
        # UNIT kollage_run_end_time_seconds seconds
        # HELP kollage_run_end_time_seconds When the last run ended, since 1970.
        kollage_run_end_time_seconds 1800000000
        # TYPE kollage_run_duration_seconds gauge
        # UNIT kollage_run_duration_seconds seconds
        # HELP kollage_run_duration_seconds How long the last run took.
        kollage_run_duration_seconds 10.7
        # TYPE kollage_run_success gauge
        # HELP kollage_run_success 1 when nothing failed in the last run and it was not interrupted.
        kollage_run_success 0
        # TYPE kollage_run_images gauge
        # HELP kollage_run_images Images of the last run by what became of them, bases and plugins included.
        kollage_run_images{status="built"} 1
        kollage_run_images{status="reused"} 1
        kollage_run_images{status="failed"} 1
        kollage_run_images{status="skipped"} 0
        kollage_run_images{status="cancelled"} 0
        # TYPE kollage_run_reuse_ratio gauge
        # UNIT kollage_run_reuse_ratio ratio
        # HELP kollage_run_reuse_ratio Share of what is there after the last run that it did not have to build.
        kollage_run_reuse_ratio 0.5
        # TYPE kollage_image_duration_seconds gauge
        # UNIT kollage_image_duration_seconds seconds
        # HELP kollage_image_duration_seconds How long an image took in the last run, of those that were worked on.
        kollage_image_duration_seconds{image="base",kind="image"} 9.5
        kollage_image_duration_seconds{image="odd \"name\"\\\n",kind="image"} 1
        # TYPE kollage_image_size_bytes gauge
        # UNIT kollage_image_size_bytes bytes
        # HELP kollage_image_size_bytes Compressed size of an image of the last run.
        kollage_image_size_bytes{image="base",kind="image"} 30000000
        kollage_image_size_bytes{image="web",kind="image"} 50000000
        # TYPE kollage_image_failed gauge
        # HELP kollage_image_failed 1 for what failed in the last run.
        kollage_image_failed{image="base",kind="image"} 0
        kollage_image_failed{image="odd \"name\"\\\n",kind="image"} 1
        kollage_image_failed{image="web",kind="image"} 0
        # TYPE kollage_runs counter
        # HELP kollage_runs Runs by how they ended.
        kollage_runs_total{outcome="done"} 0
        kollage_runs_total{outcome="failed"} 1
        kollage_runs_total{outcome="interrupted"} 1
        # TYPE kollage_image_builds counter
        # HELP kollage_image_builds How often an image was built.
        kollage_image_builds_total{image="base"} 2
        kollage_image_builds_total{image="odd \"name\"\\\n"} 0
        # TYPE kollage_image_failures counter
        # HELP kollage_image_failures How often an image failed.
        kollage_image_failures_total{image="base"} 0
        kollage_image_failures_total{image="odd \"name\"\\\n"} 2
        # TYPE kollage_step_retries counter
        # HELP kollage_step_retries Steps that were tried again since the network was in their way.
        kollage_step_retries_total 4
        # TYPE kollage_built_bytes counter
        # UNIT kollage_built_bytes bytes
        # HELP kollage_built_bytes Compressed size of all images that were built.
        kollage_built_bytes_total 60000000
        # EOF
        "#);
        let lost = RunSummary { not_written: true, ..RunSummary::default() };
        assert!(render(&lost, &counters, SystemTime::UNIX_EPOCH).contains("kollage_run_success 0\n"));
        // Counters begin again where the file makes no sense.
        std::fs::write(&path, "{").unwrap();
        assert_eq!(Counters::update(&path, &run()).unwrap().failed, 1);
    }
}
