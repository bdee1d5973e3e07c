//! Progress for programs: one JSON object a line, as docs/events.md says, which is made from the types here.

use std::sync::{Mutex, PoisonError};

use schemars::JsonSchema;
use serde::Serialize;

use crate::diag::{Diagnostic, Severity};
use crate::error::{Error, Kind};
use crate::event::{Event, Outcome, Sink, Stream};
use crate::report::clock::Clock;
use crate::report::human::seconds;
use crate::report::progress::{Output, Progress};
use crate::report::summary::{self, RunSummary};

pub const VERSION: u32 = 1;

pub struct RawJson {
    /// None once it is closed.
    out: Mutex<Option<Output>>,
    clock: Clock,
}

impl RawJson {
    pub fn new(out: Output, clock: Clock) -> Self {
        RawJson { out: Mutex::new(Some(out)), clock }
    }

    fn write(&self, body: Body<'_>) {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let object = Object { v: VERSION, body, time: seconds(self.clock.elapsed()) };
        if let (Some(out), Ok(mut line)) = (out.as_mut(), serde_json::to_vec(&object)) {
            line.push(b'\n');
            // A reader that went away must not end the build.
            let _ = out.write_all(&line).and_then(|()| out.flush());
        }
    }
}

/// The JSON Schema of a line.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Object<'static>).to_value()
}

/// A line of `--progress rawjson`.
#[derive(Serialize, JsonSchema)]
struct Object<'a> {
    /// Version of the stream. Within a version, events and fields are only ever added: a reader passes over those that
    /// it doesn't know.
    v: u32,
    #[serde(flatten)]
    body: Body<'a>,
    /// Seconds since the run began.
    time: f64,
}

#[derive(Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Body<'a> {
    /// The plan is known.
    RunStarted {
        /// Nodes to deal with: bases, images and plugins.
        nodes: usize,
    },
    /// How much longer it takes, as far as earlier runs tell. Told again when that has changed; never told where nothing
    /// is known.
    Forecast {
        /// Seconds from now on.
        remaining: f64,
        /// Nodes that were never timed and are not in it: with any of them it takes longer.
        unmeasured: usize,
    },
    /// Work on a node begins. What is reused only has an end.
    NodeStarted {
        node: &'a str,
        /// Why it is done, as the plan says.
        reason: &'a str,
        /// Which of the workers that `--jobs` allows has it, from 0.
        worker: usize,
    },
    /// A step begins, also one that turns out to be reused.
    StepStarted {
        node: &'a str,
        /// From 1.
        step: usize,
        /// How many the node has.
        steps: usize,
        /// The instruction, or what the comment `# title:` above it says.
        title: &'a str,
    },
    /// A line that a step wrote, without its line end. Values of secrets are masked.
    Output { node: &'a str, step: usize, stream: StreamName, line: &'a str },
    /// A step failed for want of the network and is tried again.
    StepRetried {
        node: &'a str,
        step: usize,
        /// The try that comes, from 1.
        attempt: u32,
        /// How many there may be.
        attempts: u32,
        /// Seconds until then.
        wait: f64,
        reason: &'a str,
    },
    /// A step ended well.
    StepFinished {
        node: &'a str,
        step: usize,
        /// Its result was in the store.
        reused: bool,
        /// Seconds.
        duration: f64,
    },
    /// A node has ended, whatever became of it.
    NodeFinished {
        node: &'a str,
        outcome: OutcomeName,
        /// Seconds.
        duration: f64,
        /// Of what is reused, why; of what is skipped, the node that failed.
        reason: Option<&'a str>,
        /// Of what failed.
        error: Option<ErrorObject<'a>>,
    },
    /// Something goes on behind a node that its children don't wait for: compressing, writing an archive.
    Background { node: &'a str, title: &'a str },
    /// Nothing goes on behind the node any more.
    BackgroundFinished { node: &'a str },
    Warning {
        /// The one that it is about, if there is one.
        node: Option<&'a str>,
        message: &'a str,
    },
    /// The last line.
    RunFinished {
        /// Seconds.
        duration: f64,
        interrupted: bool,
        /// The same as in the file of `--summary-json-file`.
        summary: summary::Json<'a>,
    },
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum StreamName {
    Stdout,
    Stderr,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum OutcomeName {
    Built,
    Reused,
    Failed,
    /// A node that it needs failed.
    Skipped,
    /// The run was interrupted, or `--fail-fast` ended it.
    Cancelled,
}

/// What went wrong.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Error")]
struct ErrorObject<'a> {
    kind: KindName,
    message: &'a str,
    /// The outermost first.
    causes: &'a [String],
    /// What to do about it.
    hint: Option<&'a str>,
    /// In definitions, each with its place.
    problems: Vec<Problem<'a>>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum KindName {
    /// Something failed to build or check: exit code 1.
    Failed,
    /// The command line or a definition is wrong: exit code 2.
    BadInput,
    /// The machine or a registry is not usable: exit code 3.
    Unusable,
    /// `--check` found a difference: exit code 4.
    Difference,
    /// Exit code 130.
    Interrupted,
}

/// A problem in a file.
#[derive(Serialize, JsonSchema)]
struct Problem<'a> {
    severity: SeverityName,
    message: &'a str,
    hint: Option<&'a str>,
    file: Option<String>,
    /// From 1.
    line: Option<usize>,
    /// From 1.
    column: Option<usize>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SeverityName {
    Error,
    Warning,
}

impl<'a> ErrorObject<'a> {
    fn of(error: &'a Error) -> Self {
        ErrorObject {
            kind: match error.kind() {
                Kind::Failed => KindName::Failed,
                Kind::BadInput => KindName::BadInput,
                Kind::Unusable => KindName::Unusable,
                Kind::Difference => KindName::Difference,
                Kind::Interrupted => KindName::Interrupted,
            },
            message: error.message(),
            causes: error.causes(),
            hint: error.hint_text(),
            problems: error.diagnostics().0.iter().map(Problem::of).collect(),
        }
    }
}

impl<'a> Problem<'a> {
    fn of(diagnostic: &'a Diagnostic) -> Self {
        let place = diagnostic.place.as_ref();
        let at = place.map(|place| place.file.line_column(place.span.start));
        Problem {
            severity: match diagnostic.severity {
                Severity::Error => SeverityName::Error,
                Severity::Warning => SeverityName::Warning,
            },
            message: &diagnostic.message,
            hint: diagnostic.hint.as_deref(),
            file: place.map(|place| place.file.path().to_string_lossy().into_owned()),
            line: at.map(|(line, _)| line),
            column: at.map(|(_, column)| column),
        }
    }
}

impl Sink for RawJson {
    fn event(&self, event: Event) {
        let body = match &event {
            Event::RunStarted { nodes } => Body::RunStarted { nodes: *nodes },
            Event::Forecast { remaining, unmeasured } => {
                Body::Forecast { remaining: seconds(*remaining), unmeasured: *unmeasured }
            }
            Event::NodeStarted { node, reason, worker } => Body::NodeStarted { node, reason, worker: *worker },
            Event::StepStarted { node, step, steps, title } => {
                Body::StepStarted { node, step: *step, steps: *steps, title }
            }
            Event::Output { node, step, stream, line } => {
                let stream = match stream {
                    Stream::Stdout => StreamName::Stdout,
                    Stream::Stderr => StreamName::Stderr,
                };
                Body::Output { node, step: *step, stream, line }
            }
            Event::StepRetried { node, step, attempt, attempts, wait, reason } => Body::StepRetried {
                node,
                step: *step,
                attempt: *attempt,
                attempts: *attempts,
                wait: seconds(*wait),
                reason,
            },
            Event::StepFinished { node, step, reused, duration } => {
                Body::StepFinished { node, step: *step, reused: *reused, duration: seconds(*duration) }
            }
            Event::NodeFinished { node, outcome, duration } => {
                let (outcome, reason, error) = match outcome {
                    Outcome::Built => (OutcomeName::Built, None, None),
                    Outcome::Reused(reason) => (OutcomeName::Reused, Some(reason.as_str()), None),
                    Outcome::Failed(error) => (OutcomeName::Failed, None, Some(ErrorObject::of(error))),
                    Outcome::Skipped(cause) => (OutcomeName::Skipped, Some(&**cause), None),
                    Outcome::Cancelled => (OutcomeName::Cancelled, None, None),
                };
                Body::NodeFinished { node, outcome, duration: seconds(*duration), reason, error }
            }
            Event::Background { node, title } => Body::Background { node, title },
            Event::BackgroundFinished { node } => Body::BackgroundFinished { node },
            Event::Warning { node, message } => Body::Warning { node: node.as_deref(), message },
        };
        self.write(body);
    }
}

impl Progress for RawJson {
    fn finish(&self, summary: &RunSummary) {
        self.write(Body::RunFinished {
            duration: seconds(summary.duration),
            interrupted: summary.interrupted,
            summary: summary::json(summary),
        });
        self.close();
    }

    fn close(&self) {
        *self.out.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests;
