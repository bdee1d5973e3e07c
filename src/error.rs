//! The one error type of the library: what went wrong, why, and what a person can do about it.

use std::fmt;

use crate::diag::Diagnostics;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of failure this is; decides the exit code and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Something failed to build, check or push.
    Failed,
    /// The command line or a definition is wrong.
    BadInput,
    /// The machine, an engine or a registry is not usable.
    Unusable,
    /// `--check` found a difference.
    Difference,
    /// The user interrupted the run.
    Interrupted,
}

impl Kind {
    pub fn exit_code(self) -> u8 {
        match self {
            Kind::Failed => 1,
            Kind::BadInput => 2,
            Kind::Unusable => 3,
            Kind::Difference => 4,
            Kind::Interrupted => 130,
        }
    }
}

/// One sentence that names the thing, the causes under it, and a hint where there is something to do.
#[derive(Debug, Clone)]
pub struct Error {
    kind: Kind,
    message: String,
    causes: Vec<String>,
    hint: Option<String>,
    diagnostics: Diagnostics,
}

impl Error {
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Error { kind, message: message.into(), causes: Vec::new(), hint: None, diagnostics: Diagnostics::default() }
    }

    pub fn failed(message: impl Into<String>) -> Self {
        Error::new(Kind::Failed, message)
    }

    pub fn bad_input(message: impl Into<String>) -> Self {
        Error::new(Kind::BadInput, message)
    }

    pub fn unusable(message: impl Into<String>) -> Self {
        Error::new(Kind::Unusable, message)
    }

    pub fn interrupted() -> Self {
        Error::new(Kind::Interrupted, "interrupted")
    }

    /// Definitions with problems, each of which has a place of its own.
    pub fn from_diagnostics(message: impl Into<String>, diagnostics: Diagnostics) -> Self {
        Error { diagnostics, ..Error::new(Kind::BadInput, message) }
    }

    /// Adds a cause under those that are there already, outermost first.
    pub fn cause(mut self, cause: impl fmt::Display) -> Self {
        self.causes.push(cause.to_string());
        self
    }

    /// Puts a wider sentence in front; what was the message becomes the first cause.
    pub fn context(mut self, message: impl Into<String>) -> Self {
        let inner = std::mem::replace(&mut self.message, message.into());
        self.causes.insert(0, inner);
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    pub fn causes(&self) -> &[String] {
        &self.causes
    }

    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    pub fn diagnostics(&self) -> &Diagnostics {
        &self.diagnostics
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        for cause in &self.causes {
            write!(f, ": {cause}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// Turns an I/O error (or anything that can be shown) into one of ours, with the sentence in front.
pub trait Context<T> {
    fn failed(self, message: impl FnOnce() -> String) -> Result<T>;
    fn bad_input(self, message: impl FnOnce() -> String) -> Result<T>;
    /// The machine is in the way: no space, no rights, no kernel support.
    fn unusable(self, message: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn failed(self, message: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| Error::failed(message()).cause(e))
    }

    fn bad_input(self, message: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| Error::bad_input(message()).cause(e))
    }

    fn unusable(self, message: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| Error::unusable(message()).cause(e))
    }
}
