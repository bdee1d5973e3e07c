//! Progress as lines, for CI logs and pipes: each line whole, with the node's name in front.
//!
//! ```text
//! keystone  | ==> step 3/9: Install packages: libldap2
//! keystone  | Reading package lists...
//! keystone  | ==> step 3/9 done in 12s
//! base      | ==> reused: nothing changed
//! ```

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::event::{Event, Outcome, Sink};
use crate::report::human;
use crate::report::progress::board::{self, Board};
use crate::report::progress::{Options, Output, Progress};
use crate::report::style::Paint;
use crate::report::summary::{self, RunSummary};
use crate::report::text;

/// A column of names is not widened further by a single long one.
const WIDEST_NAME: usize = 40;

pub struct Plain {
    state: Mutex<State>,
    options: Options,
    /// Only what failed.
    quiet: bool,
}

struct State {
    out: Output,
    board: Board,
    name_width: usize,
    closed: bool,
}

impl Plain {
    pub fn new(out: Output, options: Options) -> Self {
        let name_width = options.name_width.min(WIDEST_NAME);
        let state = State { out, board: Board::default(), name_width, closed: false };
        Plain { state: Mutex::new(state), options, quiet: false }
    }

    /// Says nothing of what goes well.
    pub fn quiet(out: Output, options: Options) -> Self {
        Plain { quiet: true, ..Plain::new(out, options) }
    }

    /// Lines of an event, without what stands in front of each.
    fn lines(&self, board: &Board, event: &Event) -> Vec<String> {
        let look = self.options.look;
        let happens = |paint: Paint, text: String| vec![format!("{} {}", look.paint(paint, "==>"), text)];
        match event {
            Event::NodeFinished { node, outcome, duration } => {
                let verdict = board.verdict(node, outcome, *duration, look);
                let text =
                    look.paint(if verdict.paint == Paint::Dim { Paint::None } else { verdict.paint }, verdict.text);
                let mut lines = happens(verdict.paint, text);
                if let Outcome::Failed(error) = outcome {
                    lines.extend(board.failure(node, error, self.options.logs.as_deref(), look));
                }
                lines
            }
            Event::Warning { message, .. } => board::warning_lines(None, message, look),
            Event::RunStarted { .. } | Event::Forecast { .. } | Event::BackgroundFinished { .. } => Vec::new(),
            Event::NodeStarted { reason, .. } if reason.trim().is_empty() => happens(Paint::Running, "started".into()),
            Event::NodeStarted { reason, .. } => {
                happens(Paint::Running, format!("started: {}", text::one_line(reason)))
            }
            Event::StepStarted { step, steps, title, .. } => {
                let title = look.paint(Paint::Strong, text::one_line(title));
                happens(Paint::Running, format!("step {step}/{steps}: {title}"))
            }
            Event::Output { line, .. } => vec![text::clean(line)],
            Event::StepFinished { node, step, reused, duration } => {
                let of = board.get(node).and_then(|n| n.step.as_ref()).filter(|s| s.number == *step);
                let position = of.map_or_else(|| format!("{step}"), |s| format!("{step}/{}", s.of));
                let how = if *reused { "reused".to_owned() } else { format!("done in {}", human::duration(*duration)) };
                happens(Paint::Dim, look.paint(Paint::Dim, format!("step {position} {how}")))
            }
            Event::StepRetried { node, step, attempt, attempts, wait, reason } => {
                let text = board::retry_text(board.get(node), *step, (*attempt, *attempts), *wait, reason);
                happens(Paint::Warning, look.paint(Paint::Warning, text))
            }
            Event::Background { title, .. } => happens(Paint::Dim, look.paint(Paint::Dim, text::one_line(title))),
        }
    }

    fn before(&self, node: Option<&str>, width: usize, now: Duration) -> String {
        let look = self.options.look;
        let mut before = String::new();
        if self.options.timestamps {
            let time = format!("[{:>8.1}s] ", now.as_secs_f64());
            before.push_str(&look.paint(Paint::Dim, time));
        }
        if let Some(node) = node {
            let name = text::pad(&text::one_line(node), width);
            before.push_str(&look.paint(Paint::Dim, format!("{name}  |")));
            before.push(' ');
        }
        before
    }
}

fn node_of(event: &Event) -> Option<&str> {
    match event {
        Event::RunStarted { .. } | Event::Forecast { .. } => None,
        Event::Warning { node, .. } => node.as_deref(),
        Event::NodeStarted { node, .. }
        | Event::StepStarted { node, .. }
        | Event::Output { node, .. }
        | Event::StepFinished { node, .. }
        | Event::StepRetried { node, .. }
        | Event::NodeFinished { node, .. }
        | Event::Background { node, .. }
        | Event::BackgroundFinished { node } => Some(node),
    }
}

impl Sink for Plain {
    fn event(&self, event: Event) {
        let now = self.options.clock.elapsed();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return;
        }
        // The same title twice in a row (a counter that went on) is told once.
        let repeated = match &event {
            Event::Background { node, title } => {
                state.board.get(node).and_then(|n| n.background.as_deref()) == Some(text::one_line(title).as_str())
            }
            _ => false,
        };
        state.board.apply(&event, now);
        let told = !self.quiet || matches!(event, Event::NodeFinished { outcome: Outcome::Failed(_), .. });
        let lines = if told && !repeated { self.lines(&state.board, &event) } else { Vec::new() };
        if let Event::NodeFinished { node, .. } = &event {
            state.board.forget(node);
        }
        let node = node_of(&event);
        if let Some(node) = node {
            state.name_width = state.name_width.max(text::width(node)).min(WIDEST_NAME);
        }
        let before = self.before(node, state.name_width, now);
        let mut bytes = String::new();
        for line in lines {
            bytes.push_str(format!("{before}{line}").trim_end());
            bytes.push('\n');
        }
        if !bytes.is_empty() {
            // A reader that went away must not end the build.
            let _ = state.out.write_all(bytes.as_bytes()).and_then(|()| state.out.flush());
        }
    }
}

impl Progress for Plain {
    fn finish(&self, summary: &RunSummary) {
        {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if !state.closed && !self.quiet {
                let text = format!("\n{}", summary::render(summary, self.options.look, None, self.options.detail));
                let _ = state.out.write_all(text.as_bytes()).and_then(|()| state.out.flush());
            }
        }
        self.close();
    }

    fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
    }
}
