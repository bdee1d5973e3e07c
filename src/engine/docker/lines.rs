//! What a builder says, line by line, as steps with the names that Kollage gives them.

use std::cell::{Ref, RefCell};
use std::time::Instant;

use crate::dockerfile::ast::Dockerfile;
use crate::engine::Ctl;
use crate::engine::embedded::output::{Lines, Redactor};
use crate::engine::embedded::transient::Tail;
use crate::engine::portable::Told;
use crate::error::{Error, Kind, Result};
use crate::event::{Event, Stream};

pub(super) struct Steps<'a> {
    told: &'a [Told],
    ctl: &'a Ctl<'a>,
    lines: Lines,
    /// How many there are, checks included.
    count: usize,
    /// Started, counted from 1.
    number: usize,
    running: Option<Running>,
    /// Position in `told` of the instruction that is being carried out.
    at: Option<usize>,
    redactor: Redactor,
    /// Of what the builder said.
    tail: RefCell<Tail>,
}

struct Running {
    since: Instant,
    reused: bool,
}

impl<'a> Steps<'a> {
    pub(super) fn new(told: &'a [Told], checks: usize, redactor: Redactor, ctl: &'a Ctl<'a>) -> Steps<'a> {
        let count = told.iter().filter(|told| told.touches_files).count() + checks;
        let (lines, tail) = (Lines::default(), RefCell::default());
        Steps { told, ctl, lines, count, number: 0, running: None, at: None, redactor, tail }
    }

    /// Steps of our own behind those of a builder.
    pub(super) fn after(begun: usize, count: usize, ctl: &'a Ctl<'a>) -> Steps<'a> {
        Steps { count: begun + count, number: begun, ..Steps::new(&[], 0, Redactor::default(), ctl) }
    }

    pub(super) fn begun(&self) -> usize {
        self.number
    }

    /// A piece of the stream; it need not end where a line does.
    pub(super) fn said(&mut self, text: &str) {
        let mut lines = std::mem::take(&mut self.lines);
        lines.push(text.as_bytes(), |line| self.line(&line));
        self.lines = lines;
    }

    pub(super) fn end(&mut self) {
        let mut lines = std::mem::take(&mut self.lines);
        lines.finish(|line| self.line(&line));
        self.finish();
        self.at = None;
    }

    fn line(&mut self, line: &str) {
        match understood(line) {
            Line::Step { stage, number } => {
                self.finish();
                self.at = self.position(stage, number);
                let Some(told) = self.at.and_then(|at| self.told.get(at)).filter(|told| told.touches_files) else {
                    return;
                };
                self.start(told.title.clone());
            }
            Line::Reused => {
                if let Some(running) = &mut self.running {
                    running.reused = true;
                }
            }
            Line::Own => {}
            Line::Output => self.show(Stream::Stdout, line.to_owned()),
        }
    }

    /// Docker counts all instructions, Podman those of each stage.
    fn position(&self, stage: Option<usize>, number: usize) -> Option<usize> {
        let number = number.checked_sub(1)?;
        match stage {
            None => Some(number),
            Some(stage) => {
                let stage = stage.checked_sub(1)?;
                let mut own = self.told.iter().enumerate().filter(|(_, told)| told.stage == Some(stage));
                own.nth(number).map(|(at, _)| at)
            }
        }
    }

    fn start(&mut self, title: String) {
        self.number += 1;
        self.running = Some(Running { since: Instant::now(), reused: false });
        let (node, step, steps) = (self.ctl.node.clone(), self.number, self.count.max(self.number));
        self.ctl.sink.event(Event::StepStarted { node, step, steps, title });
    }

    fn finish(&mut self) {
        if let Some(Running { since, reused }) = self.running.take() {
            let (node, step) = (self.ctl.node.clone(), self.number);
            self.ctl.sink.event(Event::StepFinished { node, step, reused, duration: since.elapsed() });
        }
    }

    pub(super) fn tail(&self) -> Ref<'_, Tail> {
        self.tail.borrow()
    }

    pub(super) fn show(&self, stream: Stream, line: String) {
        let line = self.redactor.redact(line);
        self.tail.borrow_mut().push(&line);
        if self.running.is_some() {
            self.ctl.sink.event(Event::Output { node: self.ctl.node.clone(), step: self.number, stream, line });
        }
    }

    /// A step that is ours: a check.
    pub(super) fn own<T>(&mut self, title: String, work: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        self.start(title);
        let value = work(self)?;
        self.finish();
        Ok(value)
    }

    /// Puts the instruction and its line in front of what went wrong with it.
    pub(super) fn located(&mut self, error: Error, dockerfile: &Dockerfile) -> Error {
        let mut lines = std::mem::take(&mut self.lines);
        lines.finish(|line| self.line(&line));
        let file = dockerfile.file.path().display();
        match self.at.and_then(|at| self.told.get(at)) {
            Some(told) if error.kind() != Kind::Interrupted => {
                error.context(format!("{file}:{}: `{}` failed", told.line, told.title))
            }
            _ => error,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Line {
    /// Counted from 1.
    Step {
        stage: Option<usize>,
        number: usize,
    },
    Reused,
    /// The builder's own, which says nothing to a person.
    Own,
    Output,
}

fn understood(line: &str) -> Line {
    let plain = line.trim();
    if let Some(step) = step(plain) {
        return step;
    }
    // Docker's ` ---> Using cache`, Podman's `--> Using cache 5e…`.
    if plain.trim_start_matches('-').starts_with("> Using cache") {
        return Line::Reused;
    }
    let own = line.starts_with(" ---> ")
        || line.starts_with("--> ")
        || plain.starts_with("COMMIT ")
        || plain.split_once("] ").is_some_and(|(stage, rest)| stage.starts_with('[') && rest.starts_with("COMMIT "))
        || line.starts_with("Removing intermediate container ")
        || line.starts_with("Successfully built ")
        || line.starts_with("Successfully tagged ")
        || is_id(plain)
        || plain.is_empty();
    if own { Line::Own } else { Line::Output }
}

/// Podman ends a stage with the whole id of what it has.
fn is_id(line: &str) -> bool {
    line.len() == 64 && line.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// `Step 3/7 : RUN make`, `STEP 3/7: RUN make`, `[1/2] STEP 3/7: RUN make`. Podman leaves the stage out where there is
/// only one; its numbers are then those of the stage as well.
fn step(line: &str) -> Option<Line> {
    if let Some(rest) = line.strip_prefix("Step ") {
        let (number, rest) = rest.split_once('/')?;
        let (_, rest) = rest.split_once(' ')?;
        return rest.starts_with(": ").then_some(Line::Step { stage: None, number: number.parse().ok()? });
    }
    let (stage, rest) = match line.strip_prefix('[') {
        None => (1, line),
        Some(rest) => {
            let (place, rest) = rest.split_once("] ")?;
            (place.split_once('/')?.0.parse().ok()?, rest)
        }
    };
    let (number, rest) = rest.strip_prefix("STEP ")?.split_once('/')?;
    rest.split_once(": ")?.0.parse::<usize>().ok()?;
    Some(Line::Step { stage: Some(stage), number: number.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::event::{Cancel, Sink};

    #[derive(Default)]
    struct Seen(Mutex<Vec<String>>);

    impl Sink for Seen {
        fn event(&self, event: Event) {
            let line = match event {
                Event::StepStarted { step, steps, title, .. } => format!("{step}/{steps} {title}"),
                Event::StepFinished { step, reused, .. } => format!("{step} done {reused}"),
                Event::Output { step, line, .. } => format!("{step}: {line}"),
                other => format!("{other:?}"),
            };
            self.0.lock().unwrap().push(line);
        }
    }

    fn seen(text: &str) -> Vec<String> {
        let told = |stage, title: &str, touches_files| Told { line: 1, stage, title: title.into(), touches_files };
        let told = [
            told(None, "ARG A", false),
            told(Some(0), "FROM a", false),
            told(Some(0), "Make it", true),
            told(Some(1), "FROM b", false),
            told(Some(1), "ENV x", false),
            told(Some(1), "Take it", true),
        ];
        let (sink, cancel, node) = (Seen::default(), Cancel::new().unwrap(), Arc::from("n"));
        let ctl = Ctl { node: &node, sink: &sink, cancel: &cancel };
        let mut steps = Steps::new(&told, 1, Redactor::default(), &ctl);
        // As it comes: not cut where lines end.
        for piece in text.as_bytes().chunks(7) {
            steps.said(std::str::from_utf8(piece).unwrap());
        }
        steps.end();
        sink.0.into_inner().unwrap()
    }

    #[test]
    fn dockers_lines_are_steps() {
        let text = "Step 1/6 : ARG A\nStep 2/6 : FROM a\n ---> 5f2\nStep 3/6 : RUN make\n ---> Running in 8\nSTEPS: 1/2\n\
                    Step 9 of it\n ---> 77\nStep 4/6 : FROM b\n ---> 1\nStep 5/6 : ENV x\n ---> Using cache\n\
                    Step 6/6 : COPY x y\n ---> Using cache\n ---> 9\nSuccessfully built 9\n";
        let expected =
            ["1/3 Make it", "1: STEPS: 1/2", "1: Step 9 of it", "1 done false", "2/3 Take it", "2 done true"];
        assert_eq!(seen(text), expected);
    }

    #[test]
    fn podmans_lines_are_steps() {
        let text = "[1/2] STEP 1/2: FROM a\n[1/2] STEP 2/2: RUN make\nhello\n--> 5f2\n[2/2] STEP 1/3: FROM b\n\
                    [2/2] STEP 2/3: ENV x\n--> Using cache 5\n[2/2] STEP 3/3: COPY x y\n--> Using cache 6\n\
                    [2/2] COMMIT t\n--> 9\nSuccessfully tagged t\n";
        let expected = ["1/3 Make it", "1: hello", "1 done false", "2/3 Take it", "2 done true"];
        assert_eq!(seen(text), expected);
    }
}
