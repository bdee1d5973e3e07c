//! What the events so far add up to: which nodes run, at which step, with which last lines of output.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::event::{Event, Outcome};
use crate::report::diagnostics;
use crate::report::human;
use crate::report::logs;
use crate::report::style::{Line, Look, Paint};
use crate::report::text;

/// Lines of output that are kept of each node, to be shown when it fails.
const TAIL: usize = 20;
/// No line of output is kept longer than this.
const LONGEST: usize = 2000;

/// Events may come in any order and for nodes that nobody announced: what isn't known isn't shown.
#[derive(Debug, Default)]
pub(super) struct Board {
    pub(super) total: Option<usize>,
    /// When it was made, what it said, and how many nodes were not in it.
    forecast: Option<(Duration, Duration, usize)>,
    pub(super) built: usize,
    pub(super) reused: usize,
    pub(super) failed: usize,
    /// Skipped or cancelled.
    pub(super) left_out: usize,
    nodes: HashMap<Arc<str>, Node>,
    /// In the order in which they started.
    running: Vec<Arc<str>>,
    /// Nodes that are done but have work going on behind, in the order in which it began.
    background: Vec<Arc<str>>,
}

#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) started: Duration,
    pub(super) reason: String,
    pub(super) step: Option<Step>,
    pub(super) background: Option<String>,
    steps_run: usize,
    steps_reused: usize,
    retries: usize,
    tail: VecDeque<String>,
}

#[derive(Debug)]
pub(super) struct Step {
    pub(super) number: usize,
    pub(super) of: usize,
    pub(super) title: String,
    finished: bool,
}

/// How a node ended, in the words of all forms.
pub(super) struct Verdict {
    pub(super) symbol: &'static str,
    pub(super) paint: Paint,
    pub(super) text: String,
}

impl Board {
    /// Takes note of an event. The end of a node is not final before [`Board::forget`]: until then its steps and
    /// output are there to be told.
    pub(super) fn apply(&mut self, event: &Event, now: Duration) {
        match event {
            Event::RunStarted { nodes } => self.total = Some(*nodes),
            Event::Forecast { remaining, unmeasured } => self.forecast = Some((now, *remaining, *unmeasured)),
            Event::NodeStarted { node, reason, .. } => {
                if !self.running.contains(node) {
                    self.running.push(node.clone());
                }
                self.background.retain(|n| n != node);
                let node = self.nodes.entry(node.clone()).or_default();
                *node = Node { started: now, reason: text::one_line(reason), ..Node::default() };
            }
            Event::StepStarted { node, step, steps, title } => {
                let title = text::one_line(title);
                self.node(node, now).step = Some(Step { number: *step, of: *steps, title, finished: false });
            }
            Event::Output { node, line, .. } => {
                let mut line = text::clean(line);
                if line.len() > LONGEST {
                    line = text::truncate(&line, LONGEST, "...");
                }
                let tail = &mut self.node(node, now).tail;
                if tail.len() == TAIL {
                    tail.pop_front();
                }
                tail.push_back(line);
            }
            Event::StepFinished { node, step, reused, .. } => {
                let node = self.node(node, now);
                if *reused {
                    node.steps_reused += 1;
                } else {
                    node.steps_run += 1;
                }
                if let Some(current) = node.step.as_mut().filter(|current| current.number == *step) {
                    current.finished = true;
                    node.tail.clear();
                }
            }
            Event::StepRetried { node, .. } => {
                let node = self.node(node, now);
                node.retries += 1;
                // What an earlier try said explains nothing any more.
                node.tail.clear();
            }
            Event::NodeFinished { node, outcome, .. } => {
                self.running.retain(|n| n != node);
                match outcome {
                    Outcome::Built => self.built += 1,
                    Outcome::Reused(_) => self.reused += 1,
                    Outcome::Failed(_) => self.failed += 1,
                    Outcome::Skipped(_) | Outcome::Cancelled => self.left_out += 1,
                }
            }
            Event::Background { node, title } => {
                if !self.running.contains(node) && !self.background.contains(node) {
                    self.background.push(node.clone());
                }
                let known = self.nodes.entry(node.clone()).or_insert_with(|| Node { started: now, ..Node::default() });
                known.background = Some(text::one_line(title));
            }
            Event::BackgroundFinished { node } => {
                self.background.retain(|n| n != node);
                if let Some(known) = self.nodes.get_mut(node) {
                    known.background = None;
                }
                if !self.running.contains(node) {
                    self.nodes.remove(node);
                }
            }
            Event::Warning { .. } => {}
        }
    }

    /// A step or output of a node that nobody announced announces it.
    fn node(&mut self, name: &Arc<str>, now: Duration) -> &mut Node {
        if !self.nodes.contains_key(name) {
            self.running.push(name.clone());
        }
        self.nodes.entry(name.clone()).or_insert_with(|| Node { started: now, ..Node::default() })
    }

    /// The node is done and told.
    pub(super) fn forget(&mut self, name: &Arc<str>) {
        self.background.retain(|n| n != name);
        self.nodes.remove(name);
    }

    pub(super) fn done(&self) -> usize {
        self.built + self.reused + self.failed + self.left_out
    }

    /// `about 2m left`; with nodes that were never timed, the least that it takes. None where nothing is known, and
    /// when everything is done.
    pub(super) fn remaining(&self, now: Duration) -> Option<String> {
        let (at, remaining, unmeasured) = self.forecast?;
        if self.total.is_some_and(|total| self.done() >= total) || (remaining.is_zero() && unmeasured > 0) {
            return None;
        }
        let left = remaining.saturating_sub(now.saturating_sub(at));
        Some(match (left.as_secs(), unmeasured) {
            // The last time it was faster.
            (0, _) if remaining.as_secs() > 0 => "longer than last time".to_owned(),
            (0, _) => "a moment left".to_owned(),
            (_, 0) => format!("about {} left", human::elapsed(left)),
            _ => format!("at least {} left", human::elapsed(left)),
        })
    }

    pub(super) fn get(&self, name: &Arc<str>) -> Option<&Node> {
        self.nodes.get(name)
    }

    pub(super) fn running(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, Option<&Node>)> {
        self.running.iter().map(|name| (name, self.nodes.get(name)))
    }

    /// Work behind nodes that are done.
    pub(super) fn background(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, &str)> {
        self.background.iter().map(|name| {
            let title = self.nodes.get(name).and_then(|node| node.background.as_deref()).unwrap_or_default();
            (name, title)
        })
    }

    pub(super) fn verdict(&self, name: &Arc<str>, outcome: &Outcome, duration: Duration, look: Look) -> Verdict {
        let node = self.nodes.get(name);
        let took = human::duration(duration);
        let (symbol, paint, text) = match outcome {
            Outcome::Built => {
                let (run, reused) = node.map_or((0, 0), |n| (n.steps_run, n.steps_reused));
                let steps = match (run, reused) {
                    (0, 0) => String::new(),
                    (run, 0) => format!(" ({} run)", human::count(run, "step")),
                    (run, reused) => format!(" ({} run, {reused} reused)", human::count(run, "step")),
                };
                let retries = match node.map_or(0, |n| n.retries) {
                    0 => String::new(),
                    1 => ", with 1 retry".to_owned(),
                    n => format!(", with {n} retries"),
                };
                (look.done(), Paint::Done, format!("built in {took}{steps}{retries}"))
            }
            Outcome::Reused(reason) if reason.trim().is_empty() => (look.reused(), Paint::Dim, "reused".to_owned()),
            Outcome::Reused(reason) => (look.reused(), Paint::Dim, format!("reused: {}", text::one_line(reason))),
            Outcome::Failed(_) => {
                let place =
                    node.and_then(Node::unfinished).map_or_else(String::new, |s| format!(" at {}", s.position()));
                (look.failed(), Paint::Failed, format!("failed{place} after {took}"))
            }
            Outcome::Skipped(cause) => {
                let cause = text::one_line(cause);
                (look.left_out(), Paint::Warning, format!("skipped: needs {cause}, which failed"))
            }
            Outcome::Cancelled => {
                let place =
                    node.and_then(Node::unfinished).map_or_else(String::new, |s| format!(" at {}", s.position()));
                (look.left_out(), Paint::Warning, format!("stopped{place}"))
            }
        };
        Verdict { symbol, paint, text }
    }

    /// What there is to say under the line that tells of a failure. Lines are as long as they have to be.
    pub(super) fn failure(&self, name: &Arc<str>, error: &Error, logs: Option<&Path>, look: Look) -> Vec<String> {
        const INDENT: &str = "    ";
        const PROBLEM_WIDTH: usize = 100;
        let node = self.nodes.get(name);
        let mut lines = Vec::new();
        let mut entry = |label: &str, paint: Paint, message: &str, deeper: &str| {
            for (i, line) in text::clean_lines(message).into_iter().filter(|l| !l.is_empty()).enumerate() {
                let label = if i == 0 { look.paint(paint, label) } else { " ".repeat(label.len()) };
                lines.push(format!("{INDENT}{deeper}{label} {line}"));
            }
        };
        if let Some(step) = node.and_then(Node::unfinished) {
            entry(&format!("{}:", step.position()), Paint::Strong, &step.title, "");
        }
        entry("error:", Paint::Failed, error.message(), "");
        for cause in error.causes() {
            entry("cause:", Paint::Dim, cause, "  ");
        }
        let problems = diagnostics::render(error.diagnostics(), look.color, PROBLEM_WIDTH);
        lines.extend(problems.lines().map(|line| format!("{INDENT}{line}").trim_end().to_owned()));
        let tail: Vec<&String> = node.iter().flat_map(|n| &n.tail).collect();
        if !tail.is_empty() {
            let heading =
                if tail.len() == TAIL { format!("last {TAIL} lines of its output:") } else { "its output:".into() };
            lines.push(format!("{INDENT}{}", look.paint(Paint::Dim, heading)));
            for line in tail {
                let bar = look.paint(Paint::Dim, if look.unicode { "│" } else { "|" });
                lines.push(format!("{INDENT}{bar} {line}").trim_end().to_owned());
            }
        }
        if let Some(hint) = error.hint_text() {
            lines.push(format!("{INDENT}{} {}", look.paint(Paint::Hint, "hint:"), text::one_line(hint)));
        }
        if let Some(dir) = logs {
            let path = dir.join(logs::file_name(name));
            lines.push(format!("{INDENT}whole log: {}", text::one_line(&path.to_string_lossy())));
        }
        lines
    }
}

impl Node {
    fn unfinished(&self) -> Option<&Step> {
        self.step.as_ref().filter(|step| !step.finished)
    }

    pub(super) fn last_line(&self) -> Option<&str> {
        self.tail.iter().rev().map(|l| l.trim()).find(|l| !l.is_empty())
    }
}

impl Step {
    fn position(&self) -> String {
        format!("step {}/{}", self.number, self.of)
    }
}

/// `✓ keystone  built in 41s`
pub(super) fn verdict_line(name: &str, name_width: usize, verdict: &Verdict) -> Line {
    let name = text::one_line(name);
    let text_paint = if verdict.paint == Paint::Done { Paint::None } else { verdict.paint };
    Line::new()
        .with(verdict.paint, verdict.symbol)
        .with(Paint::None, " ")
        .with(if verdict.paint == Paint::Dim { Paint::Dim } else { Paint::Strong }, text::pad(&name, name_width))
        .with(text_paint, format!("  {}", verdict.text))
}

/// `retrying step 3/9 in 2s (try 2 of 3): a connection timed out`
pub(super) fn retry_text(
    node: Option<&Node>,
    step: usize,
    attempts: (u32, u32),
    wait: Duration,
    reason: &str,
) -> String {
    let step = node
        .and_then(|n| n.step.as_ref())
        .filter(|s| s.number == step)
        .map_or_else(|| format!("step {step}"), Step::position);
    let (attempt, of) = attempts;
    format!("retrying {step} in {} (try {attempt} of {of}): {}", human::duration(wait), text::one_line(reason))
}

/// Lines of a warning, of which those after the first are set in.
pub(super) fn warning_lines(node: Option<&str>, message: &str, look: Look) -> Vec<String> {
    let name = node.map_or_else(String::new, |node| format!("{}: ", text::one_line(node)));
    let sign = look.paint(Paint::Warning, format!("{} warning:", look.warning()));
    text::clean_lines(message)
        .iter()
        .enumerate()
        .map(|(i, line)| if i == 0 { format!("{sign} {name}{line}") } else { format!("  {line}") })
        .collect()
}
