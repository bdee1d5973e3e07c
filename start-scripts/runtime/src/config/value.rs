//! A configuration as it was read, JSON or YAML, every value with its place.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.line, self.column)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    pub at: Place,
    pub kind: Kind,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    Null,
    Bool(bool),
    /// As it was written: what `0644` means depends on who asks.
    Number(String),
    Text(String),
    List(Vec<Value>),
    Map(Vec<(Key, Value)>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    pub at: Place,
    pub name: String,
}

impl Kind {
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Null => "null",
            Kind::Bool(_) => "a boolean",
            Kind::Number(_) => "a number",
            Kind::Text(_) => "a string",
            Kind::List(_) => "a list",
            Kind::Map(_) => "a mapping",
        }
    }
}

/// Why a file couldn't be read as JSON or YAML.
#[derive(Debug, PartialEq)]
pub struct Malformed {
    pub at: Place,
    pub why: String,
}

impl Malformed {
    pub fn new(at: Place, why: impl Into<String>) -> Malformed {
        Malformed { at, why: why.into() }
    }
}

/// No configuration is deeper; nothing deeper can exhaust the stack.
pub const DEEPEST: usize = 64;
