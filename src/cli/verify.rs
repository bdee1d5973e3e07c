//! `kollage build --verify-engine NAME`: what was built is built once more on another engine, on the same parents, and
//! the two results are laid side by side.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;

use crate::cli::machine::Builder;
use crate::cli::shell::job;
use crate::engine::{Built, Ctl};
use crate::error::{Error, Result};
use crate::event::{Cancel, Sink};
use crate::graph::node::NodeId;
use crate::graph::plan::{Known, Planned, Planner};
use crate::image::config::ImageConfig;
use crate::image::layer::compare::{What, compare};
use crate::image::store::Store;
use crate::report::human;
use crate::schedule::NodeResult;

/// Lines of a report for one image.
const LONGEST: usize = 50;

pub struct Verify<'a> {
    pub planner: &'a Planner<'a>,
    pub first: &'a Builder,
    pub second: &'a Builder,
    pub sink: &'a dyn Sink,
    pub cancel: &'a Cancel,
}

/// What was found, for a person; and whether anything was.
#[derive(Debug, Default)]
pub struct Report {
    pub text: String,
    pub differs: bool,
}

impl Verify<'_> {
    pub fn run(&self, results: &[NodeResult]) -> Result<Report> {
        let graph = self.planner.graph;
        let known = |id: NodeId| match results.get(id.0).and_then(|result| result.built.clone()) {
            Some(built) => Known::Built(built),
            None => Known::Nothing,
        };
        let mut plan: Vec<Planned> = Vec::with_capacity(graph.nodes.len());
        for id in graph.ids() {
            let node = graph.node(id);
            let wrong = |found| Error::from_diagnostics(format!("cannot build {}", node.name), found);
            let mut planned = self.planner.node(id, &known).map_err(wrong)?;
            planned.built = results.get(id.0).and_then(|result| result.built.clone());
            plan.push(planned);
        }
        let mut report = Report::default();
        for id in graph.ids() {
            let node = graph.node(id);
            let (Some(_), Some(first), true) = (node.spec(), plan[id.0].built.clone(), node.selected) else { continue };
            let name: Arc<str> = format!("{} on {}", node.name, self.second.engine().name()).into();
            let ctl = Ctl { node: &name, sink: self.sink, cancel: self.cancel };
            let second = self.again(&plan, id, &ctl)?;
            let first = self.first.in_store(&first, self.cancel)?;
            let second = self.second.in_store(&second, self.cancel)?;
            self.compare(&node.name, &first, &second, &mut report)?;
        }
        Ok(report)
    }

    fn again(&self, plan: &[Planned], id: NodeId, ctl: &Ctl<'_>) -> Result<Built> {
        let mut job = job(self.planner, plan, id)?;
        for base in job.bases.values_mut() {
            if self.second.local().store().layers(&base.config.rootfs.diff_ids).is_none() {
                *base = Arc::new(self.first.in_store(base, self.cancel)?);
            }
        }
        job.pins = self.planner.pins(&job.stages);
        self.second.engine().build(&job, ctl)
    }

    fn compare(&self, name: &str, first: &Built, second: &Built, report: &mut Report) -> Result<()> {
        let store = self.first.local().store();
        let (one, other) = (self.first.engine().name(), self.second.engine().name());
        let found = differences(store, &first.config, &second.config, [one, other])?;
        let lines: Vec<String> = found.into_iter().map(|difference| difference.line).collect();
        report.tell(&lines, &format!("{name}: {one} and {other} give the same"), &|count| {
            format!("{name}: {one} and {other} differ in {}", human::count(count, "place"))
        });
        Ok(())
    }
}

impl Report {
    /// Adds what was found of one image.
    pub fn tell(&mut self, lines: &[String], same: &str, differing: &dyn Fn(usize) -> String) {
        let text = &mut self.text;
        // Writing to a String cannot fail.
        let _ = match lines.len() {
            0 => writeln!(text, "{same}"),
            count => writeln!(text, "{}", differing(count)),
        };
        self.differs |= !lines.is_empty();
        for line in lines.iter().take(LONGEST) {
            let _ = writeln!(text, "  {line}");
        }
        if lines.len() > LONGEST {
            let _ = writeln!(text, "  and {} more", lines.len() - LONGEST);
        }
    }
}

/// One thing in which two images differ.
pub struct Difference {
    /// The file; none for the configuration.
    pub path: Option<PathBuf>,
    /// It is compiled code that does the same.
    pub is_only_for_debuggers: bool,
    pub line: String,
}

/// What two images differ in; `names` are where they came from.
pub fn differences(
    store: &Store,
    first: &ImageConfig,
    second: &ImageConfig,
    names: [&str; 2],
) -> Result<Vec<Difference>> {
    let stacks = (store.stack(&first.rootfs.diff_ids)?, store.stack(&second.rootfs.diff_ids)?);
    let files = compare(&stacks.0, &stacks.1)?;
    let configured = configuration(first, second).into_iter().map(|line| Difference {
        path: None,
        is_only_for_debuggers: false,
        line,
    });
    let [one, other] = names;
    let of_files = files.into_iter().map(|difference| {
        let path = difference.path.display();
        let is_only_for_debuggers = difference.what.is_only_for_debuggers();
        let line = match difference.what {
            What::OnlyInFirst => format!("{path}: only with {one}"),
            What::OnlyInSecond => format!("{path}: only with {other}"),
            What::Differs(what) => format!("{path}: {}", what.join("; ")),
        };
        Difference { line, is_only_for_debuggers, path: Some(difference.path) }
    });
    Ok(configured.chain(of_files).collect())
}

/// What of the configuration counts for whoever runs the image.
fn configuration(first: &ImageConfig, second: &ImageConfig) -> Vec<String> {
    let fields = |config: &ImageConfig| -> BTreeMap<String, Value> {
        let mut fields: BTreeMap<String, Value> = match serde_json::to_value(&config.config) {
            Ok(Value::Object(fields)) => fields.into_iter().collect(),
            _ => BTreeMap::new(),
        };
        // What the older of Docker's builders writes beside: of the container that it was made from, all empty.
        fields.retain(|name, _| !LEFT_OVER.contains(&name.as_str()));
        fields.insert("platform".into(), config.platform().to_string().into());
        fields.insert("author".into(), config.author.clone().unwrap_or_default().into());
        fields
    };
    let (ours, theirs) = (fields(first), fields(second));
    let mut names: Vec<&String> = ours.keys().chain(theirs.keys()).collect();
    names.sort();
    names.dedup();
    let shown = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), Value::to_string);
    let differing = names.into_iter().filter(|name| ours.get(*name) != theirs.get(*name));
    differing.map(|name| format!("{name}: {} and {}", shown(ours.get(name)), shown(theirs.get(name)))).collect()
}

const LEFT_OVER: [&str; 10] = [
    "Hostname",
    "Domainname",
    "AttachStdin",
    "AttachStdout",
    "AttachStderr",
    "Tty",
    "OpenStdin",
    "StdinOnce",
    "Image",
    "ArgsEscaped",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::config::Platform;

    #[test]
    fn what_counts_of_a_configuration_is_compared() {
        let mut first = ImageConfig::new(&Platform::host());
        first.config.env = vec!["A=1".into()];
        let mut second = first.clone();
        second.config.other.insert("Hostname".into(), "".into());
        second.created = Some("2026-01-01T00:00:00Z".into());
        assert!(configuration(&first, &second).is_empty());
        second.config.user = "app".into();
        second.config.env = Vec::new();
        assert_eq!(configuration(&first, &second), [r#"Env: ["A=1"] and nothing"#, r#"User: nothing and "app""#]);
    }
}
