//! What a builder tells while it builds, as events of ours.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bollard_buildkit_proto::moby::buildkit::v1::{StatusResponse, Vertex};

use crate::engine::Ctl;
use crate::engine::embedded::output::{Lines, Redactor};
use crate::event::{Event, Stream};

/// Names the step behind a vertex: the number of its stage and its place in it, as BuildKit's frontend counts them (FROM
/// is 1). None: as the builder calls it.
pub type Title<'a> = &'a dyn Fn(&Place<'_>) -> Option<String>;

/// What BuildKit's frontend writes before the name of a step: `[2/5]`, `[stage-1 2/5]`, `[builder 2/5]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    pub stage: Option<&'a str>,
    pub position: usize,
}

pub struct Watch<'a> {
    ctl: &'a Ctl<'a>,
    redactor: Redactor,
    title: Title<'a>,
    /// By the digest of its vertex.
    steps: HashMap<String, Step>,
    /// Vertices that are steps, whether they were begun or not.
    known: Vec<String>,
    pub begun: usize,
    /// Of the step that failed.
    pub failed: Option<Failed>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    pub title: String,
    pub why: String,
}

struct Step {
    number: usize,
    title: String,
    since: Instant,
    lines: [Lines; 2],
    finished: bool,
}

impl<'a> Watch<'a> {
    pub fn new(ctl: &'a Ctl<'a>, redactor: Redactor, title: Title<'a>) -> Watch<'a> {
        let (steps, known) = (HashMap::new(), Vec::new());
        Watch { ctl, redactor, title, steps, known, begun: 0, failed: None }
    }

    pub fn status(&mut self, status: StatusResponse) {
        for vertex in &status.vertexes {
            if step(&vertex.name).is_some() && !self.known.contains(&vertex.digest) {
                self.known.push(vertex.digest.clone());
            }
        }
        for vertex in status.vertexes {
            self.vertex(&vertex);
        }
        for log in status.logs {
            let Some(step) = self.steps.get_mut(&log.vertex) else { continue };
            let (stream, number) = match log.stream {
                2 => (Stream::Stderr, 1),
                _ => (Stream::Stdout, 0),
            };
            let (ctl, redactor, at) = (self.ctl, &self.redactor, step.number);
            step.lines[number].push(&log.msg, |line| output(ctl, redactor, at, stream, line));
        }
    }

    fn vertex(&mut self, vertex: &Vertex) {
        let Some((place, said)) = step(&vertex.name) else {
            if vertex.started.is_some() && vertex.completed.is_none() && vertex.name.starts_with("exporting") {
                let title = vertex.name.clone();
                self.ctl.sink.event(Event::Background { node: self.ctl.node.clone(), title });
            }
            return;
        };
        let node = || self.ctl.node.clone();
        if vertex.started.is_some() && !self.steps.contains_key(&vertex.digest) {
            let title = (self.title)(&place).unwrap_or_else(|| said.to_owned());
            self.begun += 1;
            let (number, steps) = (self.begun, self.known.len());
            self.ctl.sink.event(Event::StepStarted { node: node(), step: number, steps, title: title.clone() });
            let lines = Default::default();
            self.steps
                .insert(vertex.digest.clone(), Step { number, title, since: Instant::now(), lines, finished: false });
        }
        let Some(step) = self.steps.get_mut(&vertex.digest) else { return };
        if vertex.completed.is_none() || step.finished {
            return;
        }
        step.finished = true;
        for (lines, stream) in step.lines.iter_mut().zip([Stream::Stdout, Stream::Stderr]) {
            let (ctl, redactor, at) = (self.ctl, &self.redactor, step.number);
            lines.finish(|line| output(ctl, redactor, at, stream, line));
        }
        if vertex.error.is_empty() {
            let duration = if vertex.cached { Duration::ZERO } else { step.since.elapsed() };
            let (step, reused) = (step.number, vertex.cached);
            self.ctl.sink.event(Event::StepFinished { node: node(), step, reused, duration });
        } else if self.failed.is_none() && !vertex.error.ends_with("context canceled") {
            let why = self.redactor.redact(vertex.error.clone());
            self.failed = Some(Failed { title: step.title.clone(), why });
        }
    }
}

fn output(ctl: &Ctl<'_>, redactor: &Redactor, step: usize, stream: Stream, line: String) {
    let line = redactor.redact(line);
    ctl.sink.event(Event::Output { node: ctl.node.clone(), step, stream, line });
}

/// The place and the rest of the name of a vertex that is a step of the Dockerfile; not of those that a builder has
/// beside (`[internal] load metadata`, `exporting to image`).
fn step(name: &str) -> Option<(Place<'_>, &str)> {
    let (head, rest) = name.strip_prefix('[')?.split_once("] ")?;
    let (stage, count) = match head.rsplit_once(' ') {
        Some((stage, count)) => (Some(stage.trim()), count),
        None => (None, head),
    };
    let position = count.split_once('/')?.0.parse().ok()?;
    Some((Place { stage, position }, rest))
}

/// Why a command of a step failed, from the builder's words: they repeat the command, which stands before them already.
pub fn reason(why: &str) -> &str {
    why.rfind("exit code: ").map_or(why, |at| why[at..].lines().next().unwrap_or(why))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use bollard_buildkit_proto::google::protobuf::Timestamp;
    use bollard_buildkit_proto::moby::buildkit::v1::VertexLog;

    use super::*;
    use crate::event::{Cancel, Sink};

    #[test]
    fn names_of_steps_are_read() {
        let place = |stage, position| Place { stage, position };
        assert_eq!(step("[2/5] RUN true"), Some((place(None, 2), "RUN true")));
        assert_eq!(step("[stage-1 2/5] RUN [a] b"), Some((place(Some("stage-1"), 2), "RUN [a] b")));
        assert_eq!(step("[build  1/12] FROM x"), Some((place(Some("build"), 1), "FROM x")));
        for other in ["[internal] load metadata for x", "exporting to image", "[auth] x:pull token", "[x", ""] {
            assert_eq!(step(other), None, "{other}");
        }
    }

    #[test]
    fn the_reason_is_what_the_command_ended_with() {
        let why = "executor failed running [/bin/sh -c exit 3]: exit code: 3";
        assert_eq!(reason(why), "exit code: 3");
        assert_eq!(reason("no space left on device"), "no space left on device");
    }

    #[derive(Default)]
    struct Heard(Mutex<Vec<String>>);

    impl Sink for Heard {
        fn event(&self, event: Event) {
            let text = match event {
                Event::StepStarted { step, steps, title, .. } => format!("{step}/{steps} {title}"),
                Event::Output { step, stream, line, .. } => format!("{step} {stream:?} {line}"),
                Event::StepFinished { step, reused, .. } => {
                    format!("{step} {}", if reused { "reused" } else { "done" })
                }
                other => format!("{other:?}"),
            };
            self.0.lock().unwrap().push(text);
        }
    }

    #[test]
    fn a_builders_words_become_events_and_secrets_stay_out_of_them() {
        let heard = Heard::default();
        let (node, cancel) = (Arc::from("web"), Cancel::new().unwrap());
        let ctl = Ctl { node: &node, sink: &heard, cancel: &cancel };
        let mut redactor = Redactor::default();
        redactor.add(b"hunter2");
        let title = |place: &Place<'_>| (place.position == 2).then(|| "RUN make".to_owned());
        let mut watch = Watch::new(&ctl, redactor, &title);
        let vertex =
            |digest: &str, name: &str| Vertex { digest: digest.into(), name: name.into(), ..Vertex::default() };
        let now = Some(Timestamp::default());
        let (first, second) = (vertex("a", "[1/2] FROM x"), vertex("b", "[2/2] RUN make it"));
        let log = |stream, msg: &str| VertexLog { vertex: "b".into(), stream, msg: msg.into(), timestamp: now };
        watch.status(StatusResponse {
            vertexes: vec![vertex("i", "[internal] load build definition"), first.clone(), second.clone()],
            ..StatusResponse::default()
        });
        watch.status(StatusResponse {
            vertexes: vec![
                Vertex { started: now, completed: now, cached: true, ..first },
                Vertex { started: now, ..second.clone() },
            ],
            logs: vec![log(1, "hel"), log(2, "it is hunter2\n"), log(1, "lo\nend")],
            ..StatusResponse::default()
        });
        watch.status(StatusResponse {
            vertexes: vec![Vertex {
                started: now,
                completed: now,
                error: "with hunter2: exit code: 2".into(),
                ..second
            }],
            ..StatusResponse::default()
        });
        assert_eq!(watch.failed, Some(Failed { title: "RUN make".into(), why: "with ***: exit code: 2".into() }));
        assert_eq!(
            *heard.0.lock().unwrap(),
            ["1/2 FROM x", "1 reused", "2/2 RUN make", "2 Stderr it is ***", "2 Stdout hello", "2 Stdout end"]
        );
    }
}
