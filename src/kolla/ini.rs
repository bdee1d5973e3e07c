//! The INI dialect of oslo.config: `key = value` or `key: value`, indented lines go on, comments begin a line, a key that
//! comes again adds a value.

use std::ops::Range;
use std::sync::Arc;

use crate::diag::{Diagnostic, Diagnostics, SourceFile};

/// One assignment, in the order of the file.
#[derive(Debug, PartialEq)]
pub struct Assignment {
    pub section: String,
    pub key: String,
    /// Lines that were continued are joined by line breaks.
    pub value: String,
    /// Of the key.
    pub span: Range<usize>,
}

/// Where nothing else is said.
pub const DEFAULT: &str = "DEFAULT";

pub fn read(file: &Arc<SourceFile>) -> Result<Vec<Assignment>, Diagnostics> {
    let mut problems = Diagnostics::default();
    let mut found: Vec<Assignment> = Vec::new();
    let mut section: Option<String> = None;
    // Whether an indented line goes on with the last assignment.
    let mut open = false;
    let mut offset = 0;
    for whole in file.text.split_inclusive('\n') {
        let start = offset;
        offset += whole.len();
        let line = whole.trim_end();
        let span = start..start + line.len();
        let mut wrong = |message: &str, hint: &str| {
            problems.push(Diagnostic::error(message).at(file, span.clone()).hint(hint));
        };
        if line.is_empty() {
            open = false;
        } else if line.starts_with([' ', '\t']) {
            match found.last_mut().filter(|_| open) {
                Some(last) => last.value = format!("{}\n{}", last.value, line.trim_start()),
                None => {
                    wrong("the line goes on with nothing", "a line that begins with blanks continues the one above")
                }
            }
        } else if line.starts_with(['#', ';']) {
            open = false;
        } else if let Some(name) = line.strip_prefix('[') {
            open = false;
            match name.strip_suffix(']').filter(|name| !name.is_empty()) {
                Some(name) => section = Some(name.to_owned()),
                None => wrong("not the head of a section", "it is `[name]`, alone on its line"),
            }
        } else {
            open = false;
            let Some(at) = line.find(['=', ':']) else {
                wrong("neither `=` nor `:` stands in the line", "an assignment is `key = value`");
                continue;
            };
            let key = line[..at].trim();
            if key.is_empty() {
                wrong("no key stands before the sign", "an assignment is `key = value`");
                continue;
            }
            let value = unquoted(line[at + 1..].trim());
            let Some(section) = section.clone() else {
                wrong("no section has begun", "`[DEFAULT]` stands above what is in no other one");
                continue;
            };
            let span = start..start + key.len();
            found.push(Assignment { section, key: key.to_owned(), value: value.to_owned(), span });
            open = true;
        }
    }
    if problems.is_empty() { Ok(found) } else { Err(problems) }
}

/// One quote alone is both of them.
fn unquoted(text: &str) -> &str {
    let quoted = |q: &str| if text == q { Some("") } else { text.strip_prefix(q)?.strip_suffix(q) };
    ["\"", "'"].into_iter().find_map(quoted).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<(String, String, String)> {
        let found = read(&SourceFile::new("x.conf", text)).expect("a file");
        found.into_iter().map(|a| (a.section, a.key, a.value)).collect()
    }

    #[test]
    fn dialect() {
        let text = "# c\n[DEFAULT]\nbase = debian\n[a]\nkey: a=b\n  more\n\t# and this\n\nempty =\nq = \"x y\"\n; c\nk=v # no comment\n";
        let all: Vec<String> = values(text).iter().map(|(s, k, v)| format!("{s}.{k}={v:?}")).collect();
        assert_eq!(
            all,
            [
                "DEFAULT.base=\"debian\"",
                "a.key=\"a=b\\nmore\\n# and this\"",
                "a.empty=\"\"",
                "a.q=\"x y\"",
                "a.k=\"v # no comment\""
            ]
        );
    }

    #[test]
    fn problems_come_together_with_their_lines() {
        let file = SourceFile::new("x.conf", "  lost\n[open\nwords\n= v\na = 1\n[b]\na = 1\n");
        let problems = read(&file).expect_err("problems");
        let lines: Vec<usize> = problems
            .0
            .iter()
            .filter_map(|p| p.place.as_ref().map(|place| file.line_column(place.span.start).0))
            .collect();
        assert_eq!(lines, [1, 2, 3, 4, 5]);
    }
}
