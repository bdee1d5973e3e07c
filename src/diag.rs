//! Problems in files that a person wrote: file, line, column, the text underlined, and a hint.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file that was read, kept for as long as something may have to point into it.
#[derive(Debug)]
pub struct SourceFile {
    /// As a person would name it: relative to the working directory where that is shorter.
    pub path: PathBuf,
    pub text: String,
}

impl SourceFile {
    pub fn new(path: impl Into<PathBuf>, text: impl Into<String>) -> Arc<Self> {
        Arc::new(SourceFile { path: path.into(), text: text.into() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// One-based line and column (in characters) of a byte offset.
    pub fn line_column(&self, offset: usize) -> (usize, usize) {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        let before = &self.text[..offset];
        let line = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |i| i + 1);
        (line, before[start..].chars().count() + 1)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Error,
    Warning,
}

/// A byte range of one file.
#[derive(Clone, Debug)]
pub struct Place {
    pub file: Arc<SourceFile>,
    pub span: Range<usize>,
}

impl Place {
    /// Whether both are the same part of the same file.
    pub fn same(&self, other: &Place) -> bool {
        (Arc::ptr_eq(&self.file, &other.file) || self.file.path == other.file.path) && self.span == other.span
    }

    /// `images/keystone/image.toml:3`, as lists of origins have it.
    pub fn line(&self) -> String {
        format!("{}:{}", self.file.path.display(), self.file.line_column(self.span.start).0)
    }

    /// With the column, as what is wrong has it.
    pub fn shown(&self) -> String {
        let (line, column) = self.file.line_column(self.span.start);
        format!("{}:{line}:{column}", self.file.path.display())
    }
}

#[derive(Clone, Debug)]
pub struct Diagnostic {
    pub severity: Severity,
    /// One sentence without a full stop: what is wrong, naming the thing.
    pub message: String,
    pub place: Option<Place>,
    /// Short text beside the underlined part.
    pub label: Option<Box<str>>,
    pub hint: Option<String>,
    /// Other places that have to do with it, each with a few words about how.
    pub related: Vec<(Place, String)>,
}

impl Diagnostic {
    pub fn error(message: impl Into<String>) -> Self {
        Diagnostic {
            severity: Severity::Error,
            message: message.into(),
            place: None,
            label: None,
            hint: None,
            related: Vec::new(),
        }
    }

    pub fn warning(message: impl Into<String>) -> Self {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(message) }
    }

    pub fn at(mut self, file: &Arc<SourceFile>, span: Range<usize>) -> Self {
        self.place = Some(Place { file: file.clone(), span });
        self
    }

    /// Shows another place below the first: where the other half of a contradiction stands.
    pub fn also(mut self, place: &Place, label: impl Into<String>) -> Self {
        self.related.push((place.clone(), label.into()));
        self
    }

    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into().into_boxed_str());
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Everything that was found, so that all problems of all files are shown at once.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl Diagnostics {
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.0.push(diagnostic);
    }

    pub fn extend(&mut self, other: Diagnostics) {
        self.0.extend(other.0);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|d| d.severity == Severity::Error)
    }
}
