//! A run to show, and somewhere to show it.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;

use crate::error::Error;
use crate::event::{Event, Outcome, Sink, Stream};
use crate::report::clock::testing::Hand;

/// What was written, for a test to read.
#[derive(Clone, Default)]
pub(crate) struct Paper(Arc<Mutex<Vec<u8>>>);

impl Paper {
    /// What was written since the last time.
    pub(crate) fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
    }
}

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn started(node: &str, reason: &str) -> Event {
    Event::NodeStarted { node: node.into(), reason: reason.into(), worker: 0 }
}

pub(crate) fn step(node: &str, step: usize, steps: usize, title: &str) -> Event {
    Event::StepStarted { node: node.into(), step, steps, title: title.into() }
}

pub(crate) fn output(node: &str, step: usize, line: &str) -> Event {
    Event::Output { node: node.into(), step, stream: Stream::Stdout, line: line.into() }
}

pub(crate) fn step_done(node: &str, step: usize, reused: bool, millis: u64) -> Event {
    Event::StepFinished { node: node.into(), step, reused, duration: Duration::from_millis(millis) }
}

pub(crate) fn finished(node: &str, outcome: Outcome, millis: u64) -> Event {
    Event::NodeFinished { node: node.into(), outcome, duration: Duration::from_millis(millis) }
}

pub(crate) fn background(node: &str, title: &str) -> Event {
    Event::Background { node: node.into(), title: title.into() }
}

pub(crate) fn warning(node: Option<&str>, message: &str) -> Event {
    Event::Warning { node: node.map(Into::into), message: message.into() }
}

pub(crate) fn exit_code() -> Error {
    Error::failed("`apt-get install` exited with code 100")
        .cause("in images/haproxy/Dockerfile.j2, line 12")
        .hint("is the package's name right?")
}

/// The first half: three nodes are running.
pub(crate) fn begin(sink: &dyn Sink, hand: &Hand) {
    sink.event(Event::RunStarted { nodes: 6 });
    sink.event(finished("base", Outcome::Reused("nothing changed".into()), 1));
    sink.event(started("keystone", "its context file policy.yaml changed"));
    sink.event(step("keystone", 1, 3, "FROM kollage/openstack-base:1"));
    sink.event(step_done("keystone", 1, true, 0));
    hand.set(2_000);
    sink.event(started("haproxy", "new"));
    sink.event(step("haproxy", 4, 9, "Install packages: haproxy"));
    sink.event(output("haproxy", 4, "Reading package lists..."));
    sink.event(step("keystone", 2, 3, "Install keystone from PyPI into the virtual environment"));
    sink.event(output("keystone", 2, "\x1b[32mCollecting\x1b[0m keystone==29.0.0"));
    sink.event(warning(Some("keystone"), "`VOLUME` in a parent\nhides what is written there"));
    sink.event(started("memcached", "new"));
    hand.set(14_400);
}

/// The whole of it: one is built, one fails, one needs it, one is stopped.
pub(crate) fn run(sink: &dyn Sink, hand: &Hand) {
    begin(sink, hand);
    sink.event(output("haproxy", 4, "E: Unable to locate package haproxyy"));
    sink.event(finished("haproxy", Outcome::Failed(exit_code()), 12_400));
    sink.event(finished("haproxy+stats", Outcome::Skipped("haproxy".into()), 0));
    sink.event(step_done("keystone", 2, false, 12_000));
    sink.event(step("keystone", 3, 3, "USER keystone"));
    sink.event(step_done("keystone", 3, false, 10));
    hand.set(41_000);
    sink.event(finished("keystone", Outcome::Built, 41_000));
    sink.event(background("keystone", "compressing 2 layers"));
    sink.event(finished("memcached", Outcome::Cancelled, 39_000));
}

/// Events in any order, for a few nodes with odd names.
pub(crate) fn any_event() -> impl Strategy<Value = Event> {
    let node =
        || prop_oneof![Just("a"), Just("日本語日本語"), Just("docker.io/library/debian:bookworm\x1b[2J"), Just("")];
    let words = || "\\PC{0,30}|[\t\r\n\u{1b}x]{0,9}|x{0,120}";
    let outcome = prop_oneof![
        Just(Outcome::Built),
        words().prop_map(Outcome::Reused),
        words().prop_map(|w| Outcome::Failed(Error::failed(w.clone()).cause(w.clone()).hint(w))),
        node().prop_map(|n| Outcome::Skipped(n.into())),
        Just(Outcome::Cancelled),
    ];
    let millis = || any::<u64>().prop_map(Duration::from_millis);
    prop_oneof![
        any::<usize>().prop_map(|nodes| Event::RunStarted { nodes }),
        (millis(), any::<usize>()).prop_map(|(remaining, unmeasured)| Event::Forecast { remaining, unmeasured }),
        (node(), words()).prop_map(|(n, w)| started(n, &w)),
        (node(), any::<usize>(), any::<usize>(), words()).prop_map(|(n, i, of, w)| step(n, i, of, &w)),
        (node(), 0usize..3, words()).prop_map(|(n, i, w)| output(n, i, &w)),
        (node(), 0usize..3, any::<bool>(), millis()).prop_map(|(n, step, reused, duration)| Event::StepFinished {
            node: n.into(),
            step,
            reused,
            duration
        }),
        (node(), outcome, millis()).prop_map(|(n, outcome, duration)| Event::NodeFinished {
            node: n.into(),
            outcome,
            duration
        }),
        (node(), words()).prop_map(|(n, w)| background(n, &w)),
        node().prop_map(|n| Event::BackgroundFinished { node: n.into() }),
        (proptest::option::of(node()), words()).prop_map(|(n, w)| warning(n, &w)),
    ]
}
