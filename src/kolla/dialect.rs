//! Jinja2 as Kolla's templates were written for, said in minijinja's terms: line ends and string literals before a
//! template is compiled, Python's words when a value is printed.

use std::ops::Range;

use minijinja::value::ValueKind;
use minijinja::{Error, Output, State, Value};

use crate::kolla::python::unescaped;
use crate::kolla::value::represented;

/// Line ends become `\n`, and literals get the escapes that give here what they give in Python. Lines stay lines, so that
/// errors keep their places.
pub fn source(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    if !text.contains('\\') {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(tag) = tag_after(&text, at) {
        out.push_str(&text[at..tag.start]);
        out.push_str(&literals(&text[tag.clone()]));
        at = tag.end;
    }
    out.push_str(&text[at..]);
    out
}

/// The next tag that is an expression or a statement, past comments and what is raw.
pub(super) fn tag_after(text: &str, from: usize) -> Option<Range<usize>> {
    let mut at = from;
    while let Some(more) = text[at..].find('{') {
        at += more;
        let tag = &text[at..];
        at += match tag.as_bytes().get(1) {
            Some(b'#') => tag.find("#}").map_or(tag.len(), |end| end + 2),
            Some(b'{' | b'%') if is_raw(tag) => tag.find("endraw").map_or(tag.len(), |end| end + 6),
            Some(b'{' | b'%') => return Some(at..at + tag_length(tag)),
            _ => 1,
        };
    }
    None
}

fn is_raw(tag: &str) -> bool {
    tag.strip_prefix("{%").is_some_and(|inside| inside.trim_start_matches(['-', '+']).trim_start().starts_with("raw"))
}

/// To the end of a tag, past strings and braces inside it.
fn tag_length(tag: &str) -> usize {
    let end = if tag.starts_with("{{") { "}}" } else { "%}" };
    let (mut at, mut open) = (2, 0_usize);
    while let Some(c) = tag[at..].chars().next() {
        if open == 0 && tag[at..].starts_with(end) {
            return at + 2;
        }
        match c {
            '"' | '\'' => at += literal_length(&tag[at..], c) - 1,
            '{' | '(' | '[' => open += 1,
            '}' | ')' | ']' => open = open.saturating_sub(1),
            _ => {}
        }
        at += c.len_utf8();
    }
    tag.len()
}

/// Of a literal with its quotes.
pub(super) fn literal_length(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn literals(tag: &str) -> String {
    let mut out = String::with_capacity(tag.len());
    let mut rest = tag;
    while let Some(at) = rest.find(['"', '\'']) {
        let (before, literal) = rest.split_at(at);
        out.push_str(before);
        let quote = if literal.starts_with('"') { '"' } else { '\'' };
        let length = literal_length(literal, quote);
        match literal.get(1..length.saturating_sub(1)).filter(|inside| inside.contains('\\')) {
            Some(inside) => {
                out.push(quote);
                escape(&unescaped(inside), quote, &mut out);
                out.push(quote);
                // A line break that Python leaves out is still the end of a line.
                out.extend(std::iter::repeat_n('\n', inside.matches("\\\n").count()));
            }
            None => out.push_str(&literal[..length]),
        }
        rest = &literal[length..];
    }
    out.push_str(rest);
    out
}

fn escape(text: &str, quote: char, out: &mut String) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            c if c == quote => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
}

/// Writes a value as Python's `str` has it.
pub fn print(out: &mut Output<'_>, _: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    out.write_str(&printed(value))?;
    Ok(())
}

pub fn printed(value: &Value) -> String {
    match value.kind() {
        ValueKind::Undefined => String::new(),
        ValueKind::None => "None".into(),
        ValueKind::Bool if value.is_true() => "True".into(),
        ValueKind::Bool => "False".into(),
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<String> = value.try_iter().into_iter().flatten().map(|item| shown(&item)).collect();
            format!("[{}]", items.join(", "))
        }
        ValueKind::Map => {
            let entry = |key: Value| {
                let value = value.get_item(&key).unwrap_or_default();
                format!("{}: {}", shown(&key), shown(&value))
            };
            let entries: Vec<String> = value.try_iter().into_iter().flatten().map(entry).collect();
            format!("{{{}}}", entries.join(", "))
        }
        _ => value.to_string(),
    }
}

fn shown(value: &Value) -> String {
    match value.as_str() {
        Some(text) => represented(text),
        None => printed(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_mean_what_they_mean_in_python() {
        assert_eq!(source("a\\n {{ 'a\\/b' }}\r\n"), "a\\n {{ 'a\\\\/b' }}\n");
        assert_eq!(source("{# '\\/' #}{{ x }} '\\/'"), "{# '\\/' #}{{ x }} '\\/'");
        assert_eq!(source("{% raw %}{{ '\\/' }}{% endraw %}"), "{% raw %}{{ '\\/' }}{% endraw %}");
        assert_eq!(source("{{ \"a\\\nb\" }}"), "{{ \"ab\"\n }}");
        assert_eq!(source("{{ f({'a': {}}, '}}\\d') }}'\\d'"), "{{ f({'a': {}}, '}}\\\\d') }}'\\d'");
        assert_eq!(source("{% set x = '\\'' %}"), "{% set x = '\\'' %}");
    }

    proptest::proptest! {
        #[test]
        fn never_loses_a_line(text in "[{}%#'\"\\\\a \n-]{0,80}") {
            proptest::prop_assert!(source(&text).lines().count() >= text.lines().count().min(1));
        }
    }
}
