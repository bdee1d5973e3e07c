//! A run while it goes on, in one of four forms:
//!
//! - `tty`: one live line for each running node, a total below, finished nodes above ([`tty`])
//! - `plain`: one line for each event, with the node's name in front, for CI logs and pipes ([`plain`])
//! - `rawjson`: one JSON object a line; its schema is in the doc of [`rawjson`]
//! - `quiet`: only what failed
//!
//! All of them write to what the command line hands over (normally standard error), and show a failed node with its
//! step, its last lines of output and where its whole log is.

use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use rustix::termios::tcgetwinsize;

use crate::event::Sink;
use crate::report::clock::Clock;
use crate::report::style::Look;
use crate::report::summary::{Detail, RunSummary};

mod board;
mod live;
pub mod plain;
pub mod rawjson;
pub mod tty;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

/// What `--progress` takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Auto,
    Tty,
    Plain,
    RawJson,
    Quiet,
}

impl Mode {
    pub const NAMES: [&str; 5] = ["auto", "tty", "plain", "rawjson", "quiet"];
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Ok(match name {
            "auto" => Mode::Auto,
            "tty" => Mode::Tty,
            "plain" => Mode::Plain,
            "rawjson" => Mode::RawJson,
            "quiet" => Mode::Quiet,
            _ => return Err(format!("`{name}` is not one of {}", Mode::NAMES.join(", "))),
        })
    }
}

/// What the command line found out about where progress goes.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// It is a terminal.
    pub terminal: bool,
    /// TERM
    pub term: Option<String>,
    /// CI is set to something other than `false` or nothing.
    pub ci: bool,
    /// NO_COLOR is set to something.
    pub no_color: bool,
    /// The first of LC_ALL, LC_CTYPE and LANG that is set to something.
    pub locale: Option<String>,
}

impl Facts {
    /// The cursor can be moved.
    pub fn capable(&self) -> bool {
        self.terminal && self.term.as_deref().is_some_and(|term| !term.is_empty() && term != "dumb")
    }

    pub fn look(&self) -> Look {
        let utf8 = self.locale.as_deref().is_some_and(|locale| {
            let locale = locale.to_ascii_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        });
        // The console of the kernel has a font of a few hundred characters.
        Look { color: self.capable() && !self.no_color, unicode: utf8 && self.term.as_deref() != Some("linux") }
    }

    /// The form to show: never `Auto`, and `Tty` only where it works.
    pub fn resolve(&self, mode: Mode) -> Mode {
        match mode {
            Mode::Auto if self.capable() && !self.ci => Mode::Tty,
            Mode::Tty if self.capable() => Mode::Tty,
            Mode::Auto | Mode::Tty => Mode::Plain,
            other => other,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Options {
    pub look: Look,
    pub clock: Clock,
    /// Where [`crate::report::logs::LogDir`] writes, to be named when a node fails.
    pub logs: Option<PathBuf>,
    /// Width of the longest node name of the plan, so that columns line up from the first line on. 0: not known, they
    /// widen as names come up.
    pub name_width: usize,
    /// Plain lines begin with the time since the start.
    pub timestamps: bool,
    /// How much the summary at the end says.
    pub detail: Detail,
}

impl Options {
    pub fn new(look: Look) -> Self {
        Options { look, clock: Clock::start(), logs: None, name_width: 0, timestamps: false, detail: Detail::default() }
    }
}

/// Columns and rows of the terminal, asked for before each frame.
pub type Size = Box<dyn Fn() -> (usize, usize) + Send + Sync>;

pub type Output = Box<dyn Write + Send>;

/// Something that shows a run.
pub trait Progress: Sink {
    /// Removes what is only there while the run goes on and shows how it ended.
    fn finish(&self, summary: &RunSummary);

    /// Removes what is only there while the run goes on; later events change nothing on the terminal. For runs that
    /// end without a summary. Dropping does the same.
    fn close(&self);
}

/// The form that `mode` names. `mode` has gone through [`Facts::resolve`].
pub fn start(mode: Mode, out: Output, size: Size, options: Options) -> Arc<dyn Progress> {
    match mode {
        Mode::Tty => Arc::new(tty::Tty::new(out, size, options)),
        Mode::Auto | Mode::Plain => Arc::new(plain::Plain::new(out, options)),
        Mode::Quiet => Arc::new(plain::Plain::quiet(out, options)),
        Mode::RawJson => Arc::new(rawjson::RawJson::new(out, options.clock)),
    }
}

/// Columns and rows of a terminal; None when it is none, or doesn't say.
pub fn terminal_size(terminal: impl std::os::fd::AsFd) -> Option<(usize, usize)> {
    let size = tcgetwinsize(terminal).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((usize::from(size.ws_col), usize::from(size.ws_row)))
}
