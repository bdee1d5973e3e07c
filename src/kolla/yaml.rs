//! Kolla's YAML, read as PyYAML reads it: plain words are YAML 1.1's (`yes` and `on` are true), the last of equal keys
//! counts, `<<` merges.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, StrInput};

use crate::diag::{Diagnostic, SourceFile};
use crate::kolla::value::{Value, set};

const DEEPEST: usize = 64;
/// Aliases make much out of little; no file of Kolla's has more values.
const MOST_VALUES: usize = 100_000;

type Result<T> = std::result::Result<T, Box<Diagnostic>>;

/// None for a file with nothing in it.
pub fn read(file: &Arc<SourceFile>) -> Result<Value> {
    let text = file.text.strip_prefix('\u{feff}').unwrap_or(&file.text);
    let events = Parser::new_from_str(text);
    let mut reader = Reader { file, events, anchors: HashMap::new(), values: 0 };
    let mut document = Value::None;
    loop {
        match reader.event()? {
            (Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing, _) => {}
            (Event::StreamEnd, _) => return Ok(document),
            (event, span) if document.is_none() => document = reader.value(event, span, 0)?,
            (_, span) => return Err(reader.problem(span.start, "more than one document in the file")),
        }
    }
}

pub fn load(path: &Path) -> Result<Value> {
    let text = crate::text::read_to_string(path)
        .map_err(|e| Box::new(Diagnostic::error(format!("cannot read `{}`: {e}", path.display()))))?;
    read(&SourceFile::new(path, text))
}

struct Reader<'a> {
    file: &'a Arc<SourceFile>,
    events: Parser<'a, StrInput<'a>>,
    anchors: HashMap<usize, Value>,
    values: usize,
}

impl<'a> Reader<'a> {
    fn event(&mut self) -> Result<(Event<'a>, Span)> {
        match self.events.next() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(self.problem(*error.marker(), &format!("not valid YAML: {}", error.info()))),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn problem(&self, at: Marker, message: &str) -> Box<Diagnostic> {
        let lines = self.file.text.split_inclusive('\n').take(at.line().saturating_sub(1));
        let start = lines.map(str::len).sum::<usize>();
        let rest = self.file.text.get(start..).unwrap_or_default();
        let line = rest.split('\n').next().unwrap_or_default();
        let column = line.chars().take(at.col()).map(char::len_utf8).sum::<usize>();
        Box::new(Diagnostic::error(message).at(self.file, start + column..start + line.len().max(column)))
    }

    fn value(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Value> {
        self.values += 1;
        if depth > DEEPEST || self.values > MOST_VALUES {
            return Err(self.problem(span.start, "too many values, or too deep"));
        }
        let (anchor, value) = match event {
            Event::Scalar(text, ScalarStyle::Plain, anchor, None) => (anchor, plain(&text)),
            Event::Scalar(text, _, anchor, _) => (anchor, Value::Text(text.into_owned())),
            Event::SequenceStart(anchor, _) => (anchor, self.list(depth)?),
            Event::MappingStart(anchor, _) => (anchor, self.dict(depth)?),
            Event::Alias(anchor) => {
                let Some(value) = self.anchors.get(&anchor).cloned() else {
                    return Err(self.problem(span.start, "an alias without its anchor before it"));
                };
                self.values += size(&value);
                return Ok(value);
            }
            _ => return Err(self.problem(span.start, "a value is missing")),
        };
        // Zero stands for no anchor.
        if anchor != 0 {
            self.anchors.insert(anchor, value.clone());
        }
        Ok(value)
    }

    fn list(&mut self, depth: usize) -> Result<Value> {
        let mut items = Vec::new();
        loop {
            match self.event()? {
                (Event::SequenceEnd, _) => return Ok(Value::List(items)),
                (event, span) => items.push(self.value(event, span, depth + 1)?),
            }
        }
    }

    fn dict(&mut self, depth: usize) -> Result<Value> {
        let (mut entries, mut merged) = (Vec::new(), Vec::new());
        loop {
            let (event, span) = self.event()?;
            if event == Event::MappingEnd {
                break;
            }
            let merges = matches!(&event, Event::Scalar(text, ScalarStyle::Plain, ..) if *text == "<<");
            let key = self.value(event, span, depth + 1)?;
            let (event, span) = self.event()?;
            let value = self.value(event, span, depth + 1)?;
            match value {
                Value::Dict(more) if merges => merged.extend(more),
                Value::List(all) if merges => merged.extend(all.iter().flat_map(|one| one.dict().to_vec())),
                value => set(&mut entries, key.printed(), value),
            }
        }
        for (key, value) in merged {
            if !entries.iter().any(|(there, _)| *there == key) {
                entries.push((key, value));
            }
        }
        Ok(Value::Dict(entries))
    }
}

fn size(value: &Value) -> usize {
    match value {
        Value::List(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Dict(entries) => 1 + entries.iter().map(|(_, value)| size(value)).sum::<usize>(),
        _ => 1,
    }
}

fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::None,
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return Value::Bool(true),
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => return Value::Bool(false),
        _ => {}
    }
    let number = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = number.replace('_', "");
    let parsed = match digits.as_str() {
        "0" => Some(0),
        d if d.starts_with("0x") => i64::from_str_radix(&d[2..], 16).ok(),
        d if d.starts_with("0b") => i64::from_str_radix(&d[2..], 2).ok(),
        d if d.starts_with('0') => i64::from_str_radix(&d[1..], 8).ok(),
        d if d.starts_with(|c: char| c.is_ascii_digit()) => d.parse().ok(),
        _ => None,
    };
    match parsed {
        Some(value) if text.starts_with('-') => Value::Int(-value),
        Some(value) => Value::Int(value),
        None => Value::Text(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value {
        read(&SourceFile::new("x.yaml", text)).unwrap_or(Value::Opaque)
    }

    #[test]
    fn words_are_those_of_pyyaml() {
        let text = "---\na: &x {yes: on, n: 010, s: '010', t: |\n  two\n  lines\n}\nb: *x\nc: {<<: *x, n: 1}\nc: [~, 3.5, 0x10]\n";
        let flow = text.replace(", t: |\n  two\n  lines\n", "");
        assert_eq!(
            value(&flow).printed(),
            "{'a': {'True': True, 'n': 8, 's': '010'}, 'b': {'True': True, 'n': 8, 's': '010'}, 'c': [None, '3.5', 16]}"
        );
        assert_eq!(value("a: |\n  two\n  lines\n").get("a").and_then(Value::text), Some("two\nlines\n"));
    }

    #[test]
    fn a_problem_has_its_place() {
        let file = SourceFile::new("repos.yaml", "deb:\n  grafana: {url: [}\n");
        let problem = read(&file).expect_err("not YAML");
        let place = problem.place.expect("a place");
        assert_eq!(file.line_column(place.span.start).0, 2);
    }
}
