//! The only place that writes for a person: one line a message, to standard error, where an engine's log takes it.

use std::io::Write;

pub fn info(message: impl std::fmt::Display) {
    line("", &message);
}

pub fn warning(message: impl std::fmt::Display) {
    line("warning: ", &message);
}

pub fn error(message: impl std::fmt::Display) {
    line("error: ", &message);
}

fn line(kind: &str, message: &dyn std::fmt::Display) {
    // A closed standard error must not keep a service from starting.
    let _ = writeln!(std::io::stderr(), "kollage-start: {kind}{message}");
}
