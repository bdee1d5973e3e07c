//! What can go wrong, as one line a problem. A line names the entry of the configuration and the path that it is about.

use std::fmt;
use std::io;
use std::path::Path;

pub type Result<T> = std::result::Result<T, Failure>;

/// One or more problems that end a program, and its exit code.
#[derive(Debug)]
pub struct Failure {
    pub problems: Vec<String>,
    pub code: u8,
}

/// The configuration, or what it names, is wrong; or `--check` found a difference. (Kolla's code for the same.)
pub const WRONG: u8 = 1;
/// The system refused something, or the command line is wrong.
pub const REFUSED: u8 = 2;
/// As shells have it: a command that can't be executed, and one that isn't there.
pub const NOT_EXECUTABLE: u8 = 126;
pub const NOT_FOUND: u8 = 127;

impl Failure {
    pub fn wrong(problem: impl Into<String>) -> Failure {
        Failure { problems: vec![problem.into()], code: WRONG }
    }

    pub fn refused(problem: impl Into<String>) -> Failure {
        Failure { problems: vec![problem.into()], code: REFUSED }
    }

    /// What the system said to `action`, for example `write /etc/motd`.
    pub fn system(action: impl fmt::Display, error: impl Into<io::Error>) -> Failure {
        Failure::refused(format!("cannot {action}: {}", reason(&error.into())))
    }

    /// Puts the name of the entry that a problem belongs to before it.
    pub fn of(mut self, entry: &str) -> Failure {
        for problem in &mut self.problems {
            *problem = format!("{entry}: {problem}");
        }
        self
    }
}

/// Collects problems, so that a person sees all of them at once.
#[derive(Default)]
pub struct Problems {
    found: Vec<String>,
    code: u8,
}

impl Problems {
    pub fn add(&mut self, failure: Failure) {
        self.code = self.code.max(failure.code);
        for problem in failure.problems {
            if !self.found.contains(&problem) {
                self.found.push(problem);
            }
        }
    }

    /// The value, or nothing and one more problem.
    pub fn keep<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|failure| self.add(failure)).ok()
    }

    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub fn end(self) -> Result<()> {
        if self.found.is_empty() { Ok(()) } else { Err(Failure { problems: self.found, code: self.code }) }
    }
}

/// The system's reason in words, without `(os error 2)`.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => {
            let mut text = text[..end].to_string();
            if let Some(first) = text.get(..1) {
                let first = first.to_lowercase();
                text.replace_range(..1, &first);
            }
            text
        }
        None => text,
    }
}

/// A path for messages: as it is, what isn't UTF-8 or would break the line escaped.
pub fn shown(path: &Path) -> String {
    let text = path.to_string_lossy();
    if text.chars().any(char::is_control) { text.escape_debug().to_string() } else { text.into_owned() }
}
