//! Several template overrides, which Kolla makes one template of.

use std::path::Path;
use std::sync::Arc;

use crate::diag::{Diagnostic, Diagnostics, SourceFile};
use crate::error::{Error, Result};

#[derive(Debug)]
pub struct Merged {
    /// The first file whole, the others behind it without their `extends`.
    pub file: Arc<SourceFile>,
    /// Where each line begins there, and in the file that has it.
    lines: Vec<(usize, Arc<SourceFile>, usize)>,
}

impl Merged {
    /// None where there are no overrides.
    pub fn read(paths: &[String]) -> Result<Option<Merged>> {
        let (mut text, mut lines) = (String::new(), Vec::new());
        for (index, path) in paths.iter().enumerate() {
            let more = crate::text::read_to_string(Path::new(path))
                .map_err(|e| Error::bad_input(format!("cannot read the template override {path}")).cause(e))?;
            let file = SourceFile::new(path, more);
            let extends = |line: &str| line.find("{%").is_some_and(|at| line[at..].contains("extends"));
            let mut at = 0;
            for line in file.text.split_inclusive('\n') {
                if index == 0 || !(line.ends_with('\n') && extends(line)) {
                    lines.push((text.len(), file.clone(), at));
                    text.push_str(line);
                }
                at += line.len();
            }
        }
        let Some(first) = paths.first() else { return Ok(None) };
        let file = SourceFile::new(first, text);
        if !extends_something(&file.text) {
            let problem =
                Diagnostic::error("the template override extends nothing, so that every image would be the same")
                    .at(&file, 0..file.text.find('\n').unwrap_or(file.text.len()))
                    .hint("it begins with `{% extends parent_template %}`");
            return Err(Error::from_diagnostics("a template override cannot be used", Diagnostics(vec![problem])));
        }
        Ok(Some(Merged { file, lines }))
    }

    /// Gives a problem the place where somebody has written it.
    pub fn put(&self, problem: &mut Diagnostic) {
        let Some(place) = problem.place.as_mut().filter(|place| Arc::ptr_eq(&place.file, &self.file)) else { return };
        let line = self.lines.partition_point(|(start, ..)| *start <= place.span.start).saturating_sub(1);
        let Some((start, file, at)) = self.lines.get(line) else { return };
        let moved = |offset: usize| (offset - start + at).min(file.text.len());
        place.span = moved(place.span.start)..moved(place.span.end);
        place.file = file.clone();
    }
}

fn extends_something(text: &str) -> bool {
    let mut rest = text;
    while let Some(at) = rest.find("{%") {
        rest = &rest[at + 2..];
        if rest.trim_start_matches(['-', '+']).trim_start().starts_with("extends") {
            return true;
        }
    }
    false
}
