//! Takes down, while a run goes on, what its record needs of the events.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::event::{Event, Outcome, Sink};
use crate::report::clock::Clock;
use crate::report::human::seconds;
use crate::report::record::{Behind, StepRecord, Turn};
use crate::report::text;

/// Lines of output that are kept of a step, for the case that it fails.
const LINES: usize = 500;
/// No line is kept longer, and no title.
const LONGEST: usize = 1000;
/// More warnings are not kept.
const WARNINGS: usize = 100;
/// More stretches of work behind the nodes are not kept.
const BEHIND: usize = 5000;
/// More steps of one node are not kept.
const STEPS: usize = 1000;

pub struct Recorder {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    nodes: HashMap<Arc<str>, Node>,
    forecast: Option<(f64, usize)>,
    /// Whatever is told of the time from now on is not what was expected in the beginning.
    begun: bool,
    behind: Vec<Behind>,
    warnings: Vec<String>,
}

#[derive(Default)]
struct Node {
    turn: Turn,
    reason: String,
    lines: VecDeque<String>,
    left_out: usize,
}

impl Recorder {
    pub fn new(clock: Clock) -> Recorder {
        Recorder { clock, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was told first of how long it takes.
    pub fn forecast(&self) -> Option<(f64, usize)> {
        self.lock().forecast
    }

    pub fn warnings(&self) -> Vec<String> {
        self.lock().warnings.clone()
    }

    pub fn turn(&self, node: &str) -> Option<Turn> {
        self.lock().nodes.get(node).map(|node| node.turn.clone())
    }

    /// Why it was to be done.
    pub fn reason(&self, node: &str) -> Option<String> {
        self.lock().nodes.get(node).map(|node| node.reason.clone()).filter(|reason| !reason.is_empty())
    }

    pub fn behind(&self) -> Vec<Behind> {
        self.lock().behind.clone()
    }

    /// The last lines of the step that ran last, and how many came before them.
    pub fn output(&self, node: &str) -> (Vec<String>, usize) {
        let state = self.lock();
        state.nodes.get(node).map_or((Vec::new(), 0), |node| (node.lines.iter().cloned().collect(), node.left_out))
    }
}

impl Sink for Recorder {
    fn event(&self, event: Event) {
        let now = seconds(self.clock.elapsed());
        let mut state = self.lock();
        let state = &mut *state;
        state.begun |= !matches!(event, Event::RunStarted { .. } | Event::Forecast { .. });
        match event {
            Event::Forecast { remaining, unmeasured } if !state.begun => {
                state.forecast = Some((seconds(remaining), unmeasured));
            }
            Event::NodeStarted { node, worker, reason } => {
                let turn = Turn { worker, start: now, end: now, steps: Vec::new() };
                state.nodes.insert(node, Node { turn, reason, ..Node::default() });
            }
            Event::Background { node, .. } => {
                let open = state.behind.iter().any(|known| *known.node == *node && known.end.is_none());
                if !open && state.behind.len() < BEHIND {
                    state.behind.push(Behind { node: node.to_string(), start: now, end: None });
                }
            }
            Event::BackgroundFinished { node } => {
                let open = state.behind.iter_mut().find(|known| *known.node == *node && known.end.is_none());
                if let Some(open) = open {
                    open.end = Some(now);
                }
            }
            Event::StepStarted { node, step, title, .. } => {
                let Some(node) = state.nodes.get_mut(&node) else { return };
                (node.lines, node.left_out) = (VecDeque::new(), 0);
                if node.turn.steps.len() < STEPS {
                    let title = text::truncate(&text::one_line(&title), LONGEST, "...");
                    node.turn.steps.push(StepRecord { number: step, title, start: now, end: None, reused: false });
                }
            }
            Event::Output { node, line, .. } => {
                let Some(node) = state.nodes.get_mut(&node) else { return };
                if node.lines.len() == LINES {
                    node.lines.pop_front();
                    node.left_out += 1;
                }
                node.lines.push_back(text::truncate(&text::clean(&line), LONGEST, "..."));
            }
            Event::StepFinished { node, step, reused, .. } => {
                let Some(node) = state.nodes.get_mut(&node) else { return };
                let known = node.turn.steps.iter_mut().rev().find(|known| known.number == step);
                if let Some(known) = known {
                    (known.end, known.reused) = (Some(now), reused);
                }
            }
            Event::NodeFinished { node, outcome, .. } => {
                let Some(node) = state.nodes.get_mut(&node) else { return };
                node.turn.end = now;
                if !matches!(outcome, Outcome::Failed(_)) {
                    node.lines = VecDeque::new();
                }
            }
            Event::Warning { node, message } if state.warnings.len() < WARNINGS => {
                let name = node.map_or_else(String::new, |node| format!("{node}: "));
                state.warnings.push(text::truncate(&text::one_line(&format!("{name}{message}")), LONGEST, "..."));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::report::clock::testing::Hand;
    use crate::report::progress::testing::{output, run, started};

    #[test]
    fn a_run_is_taken_down_with_its_times() {
        let hand = Hand::default();
        let recorder = Recorder::new(hand.clock());
        run(&recorder, &hand);
        let turn = recorder.turn("keystone").unwrap();
        assert_eq!((turn.start, turn.end), (0.0, 41.0));
        let steps: Vec<_> = turn.steps.iter().map(|s| (s.number, s.start, s.end, s.reused)).collect();
        assert_eq!(steps, [(1, 0.0, Some(0.0), true), (2, 2.0, Some(14.4), false), (3, 14.4, Some(14.4), false)]);
        assert_eq!(recorder.turn("haproxy").unwrap().steps[0].end, None);
        assert_eq!(recorder.output("haproxy").0, ["Reading package lists...", "E: Unable to locate package haproxyy"]);
        assert_eq!(recorder.turn("base"), None);
        assert_eq!(recorder.reason("haproxy").as_deref(), Some("new"));
        recorder.event(Event::BackgroundFinished { node: "keystone".into() });
        let behind = recorder.behind();
        assert_eq!((behind[0].node.as_str(), behind[0].start, behind[0].end), ("keystone", 41.0, Some(41.0)));
        assert_eq!(recorder.warnings(), ["keystone: `VOLUME` in a parent hides what is written there"]);
    }

    #[test]
    fn only_what_was_expected_before_anything_began_is_kept() {
        let recorder = Recorder::new(Hand::default().clock());
        let forecast = |seconds, unmeasured| {
            recorder.event(Event::Forecast { remaining: Duration::from_secs(seconds), unmeasured });
        };
        recorder.event(Event::RunStarted { nodes: 2 });
        forecast(9, 1);
        recorder.event(started("a", "new"));
        forecast(4, 0);
        assert_eq!(recorder.forecast(), Some((9.0, 1)));
    }

    #[test]
    fn no_build_makes_a_record_large() {
        let recorder = Recorder::new(Hand::default().clock());
        run(&recorder, &Hand::default());
        for i in 0..2000 {
            recorder.event(output("haproxy", 4, &format!("{i} {}", "x".repeat(10_000))));
        }
        let (lines, left_out) = recorder.output("haproxy");
        assert_eq!((lines.len(), left_out), (500, 1502));
        assert!(lines[499].starts_with("1999 ") && lines.iter().all(|line| line.len() <= LONGEST));
    }
}
