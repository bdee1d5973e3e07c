//! Progress for programs: one JSON object a line. Fields are only ever added within a version; readers ignore events
//! and fields that they don't know.
//!
//! Every object has `v` (1), `event`, and `time`, seconds since the start. All durations are seconds with up to three
//! decimals. `node` is a node's name.
//!
//! | event | fields |
//! | --- | --- |
//! | `run_started` | `nodes`: how many there are to deal with |
//! | `forecast` | `remaining`: how much longer it takes; `unmeasured`: nodes that are not in that, never timed |
//! | `node_started` | `node`, `reason`, `worker` (from 0) |
//! | `step_started` | `node`, `step` (from 1), `steps`, `title` |
//! | `output` | `node`, `step`, `stream` (`stdout`, `stderr`), `line` (as the step wrote it) |
//! | `step_retried` | `node`, `step`, `attempt` (the one that comes, from 1) of `attempts`, `wait`, `reason` |
//! | `step_finished` | `node`, `step`, `reused`, `duration` |
//! | `node_finished` | `node`, `outcome`, `duration`, `reason` or null, `error` or null |
//! | `background`, `background_finished` | `node`; `title` of what goes on behind the critical path |
//! | `warning` | `node` or null, `message` |
//! | `run_finished` | `duration`, `interrupted`, `summary`: see [`crate::report::summary`] |
//!
//! An `outcome` is `built`, `reused` (`reason` says why), `failed` (`error`), `skipped` (`reason` is the node that
//! failed) or `cancelled`.
//!
//! An `error` has `kind` (`failed`, `bad_input`, `unusable`, `difference`, `interrupted`), `message`, `causes`
//! (outermost first), `hint` or null, and `problems`, each with `severity`, `message`, `hint`, and `file`, `line`,
//! `column` or null.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;

use crate::diag::{Diagnostic, Severity};
use crate::error::{Error, Kind};
use crate::event::{Event, Outcome, Sink, Stream};
use crate::report::clock::Clock;
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

#[derive(Serialize)]
struct Object<'a> {
    v: u32,
    #[serde(flatten)]
    body: Body<'a>,
    time: f64,
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Body<'a> {
    RunStarted {
        nodes: usize,
    },
    Forecast {
        remaining: f64,
        unmeasured: usize,
    },
    NodeStarted {
        node: &'a str,
        reason: &'a str,
        worker: usize,
    },
    StepStarted {
        node: &'a str,
        step: usize,
        steps: usize,
        title: &'a str,
    },
    Output {
        node: &'a str,
        step: usize,
        stream: &'static str,
        line: &'a str,
    },
    StepRetried {
        node: &'a str,
        step: usize,
        attempt: u32,
        attempts: u32,
        wait: f64,
        reason: &'a str,
    },
    StepFinished {
        node: &'a str,
        step: usize,
        reused: bool,
        duration: f64,
    },
    NodeFinished {
        node: &'a str,
        outcome: &'static str,
        duration: f64,
        reason: Option<&'a str>,
        error: Option<ErrorObject<'a>>,
    },
    Background {
        node: &'a str,
        title: &'a str,
    },
    BackgroundFinished {
        node: &'a str,
    },
    Warning {
        node: Option<&'a str>,
        message: &'a str,
    },
    RunFinished {
        duration: f64,
        interrupted: bool,
        summary: summary::Json<'a>,
    },
}

#[derive(Serialize)]
struct ErrorObject<'a> {
    kind: &'static str,
    message: &'a str,
    causes: &'a [String],
    hint: Option<&'a str>,
    problems: Vec<Problem<'a>>,
}

#[derive(Serialize)]
struct Problem<'a> {
    severity: &'static str,
    message: &'a str,
    hint: Option<&'a str>,
    file: Option<String>,
    line: Option<usize>,
    column: Option<usize>,
}

impl<'a> ErrorObject<'a> {
    fn of(error: &'a Error) -> Self {
        ErrorObject {
            kind: match error.kind() {
                Kind::Failed => "failed",
                Kind::BadInput => "bad_input",
                Kind::Unusable => "unusable",
                Kind::Difference => "difference",
                Kind::Interrupted => "interrupted",
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
                Severity::Error => "error",
                Severity::Warning => "warning",
            },
            message: &diagnostic.message,
            hint: diagnostic.hint.as_deref(),
            file: place.map(|place| place.file.path().to_string_lossy().into_owned()),
            line: at.map(|(line, _)| line),
            column: at.map(|(_, column)| column),
        }
    }
}

/// Seconds with three decimals.
pub(crate) fn seconds(time: Duration) -> f64 {
    time.as_millis() as f64 / 1000.0
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
                    Stream::Stdout => "stdout",
                    Stream::Stderr => "stderr",
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
                    Outcome::Built => ("built", None, None),
                    Outcome::Reused(reason) => ("reused", Some(reason.as_str()), None),
                    Outcome::Failed(error) => ("failed", None, Some(ErrorObject::of(error))),
                    Outcome::Skipped(cause) => ("skipped", Some(&**cause), None),
                    Outcome::Cancelled => ("cancelled", None, None),
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
