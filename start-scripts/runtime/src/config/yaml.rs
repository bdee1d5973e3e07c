//! YAML, with places: events of saphyr-parser put together to values, and plain words taken for what PyYAML, which
//! Kolla reads its files with, takes them for (YAML 1.1).

use super::value::{DEEPEST, Key, Kind, Malformed, Place, Value};
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};
use std::collections::HashMap;

type Result<T> = std::result::Result<T, Malformed>;

/// Aliases make much out of little; no configuration has more values.
const MOST_VALUES: usize = 100_000;

pub fn read(text: &str) -> Result<Value> {
    let mut reader = Reader {
        events: Parser::new_from_str(text.strip_prefix('\u{feff}').unwrap_or(text)),
        anchors: HashMap::new(),
        values: 0,
    };
    let mut document = None;
    loop {
        let (event, span) = reader.event()?;
        match event {
            Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
            Event::StreamEnd => break,
            _ if document.is_some() => {
                return Err(Malformed::new(place(span.start), "more than one document in the file"));
            }
            event => document = Some(reader.value(event, span, 0)?),
        }
    }
    match document {
        Some(value) if value.kind != Kind::Null => Ok(value),
        _ => Err(Malformed::new(Place { line: 1, column: 1 }, "the file is empty")),
    }
}

struct Reader<'a> {
    events: Parser<'a, StrInput<'a>>,
    anchors: HashMap<usize, Value>,
    values: usize,
}

impl<'a> Reader<'a> {
    fn event(&mut self) -> Result<(Event<'a>, Span)> {
        match self.events.next() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(malformed(&error)),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn value(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Value> {
        let at = place(span.start);
        if depth > DEEPEST {
            return Err(Malformed::new(at, format!("more than {DEEPEST} levels")));
        }
        self.count(1, at)?;
        let (anchor, kind) = match event {
            Event::Scalar(text, style, anchor, tag) => (anchor, scalar(&text, style, tag.as_deref())),
            Event::SequenceStart(anchor, _) => (anchor, self.list(depth)?),
            Event::MappingStart(anchor, _) => (anchor, self.map(depth)?),
            Event::Alias(anchor) => {
                let Some(value) = self.anchors.get(&anchor).cloned() else {
                    return Err(Malformed::new(at, "an alias without its anchor before it"));
                };
                self.count(size(&value), at)?;
                return Ok(Value { at, kind: value.kind });
            }
            _ => return Err(Malformed::new(at, "a value is missing")),
        };
        let value = Value { at, kind };
        // Zero stands for no anchor.
        if anchor != 0 {
            self.anchors.insert(anchor, value.clone());
        }
        Ok(value)
    }

    fn count(&mut self, more: usize, at: Place) -> Result<()> {
        self.values += more;
        if self.values > MOST_VALUES {
            return Err(Malformed::new(at, format!("more than {MOST_VALUES} values")));
        }
        Ok(())
    }

    fn list(&mut self, depth: usize) -> Result<Kind> {
        let mut entries = Vec::new();
        loop {
            match self.event()? {
                (Event::SequenceEnd, _) => return Ok(Kind::List(entries)),
                (event, span) => entries.push(self.value(event, span, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Kind> {
        let mut entries: Vec<(Key, Value)> = Vec::new();
        let mut merged: Vec<(Key, Value)> = Vec::new();
        loop {
            let (event, span) = self.event()?;
            if event == Event::MappingEnd {
                break;
            }
            let plain_merge = matches!(&event, Event::Scalar(text, ScalarStyle::Plain, ..) if *text == "<<");
            let key = self.value(event, span, depth + 1)?;
            let at = key.at;
            let name = match key.kind {
                Kind::Text(text) | Kind::Number(text) => text,
                Kind::Bool(value) => value.to_string(),
                other => return Err(Malformed::new(at, format!("a key that is {}", other.name()))),
            };
            let (event, span) = self.event()?;
            let value = self.value(event, span, depth + 1)?;
            if plain_merge {
                merged.extend(entries_of(value)?);
            } else if entries.iter().any(|(key, _)| key.name == name) {
                return Err(Malformed::new(at, format!("the key `{name}` is there twice")));
            } else {
                entries.push((Key { at, name }, value));
            }
        }
        // What a mapping says itself wins over what it merges, and what it merges first over what comes later.
        for (key, value) in merged {
            if !entries.iter().any(|(there, _)| there.name == key.name) {
                entries.push((key, value));
            }
        }
        Ok(Kind::Map(entries))
    }
}

/// What `<<` merges: a mapping, or a list of them.
fn entries_of(value: Value) -> Result<Vec<(Key, Value)>> {
    match value.kind {
        Kind::Map(entries) => Ok(entries),
        Kind::List(list) => list
            .into_iter()
            .try_fold(Vec::new(), |mut all, one| entries_of(one).map(|more| all.extend(more)).map(|()| all)),
        other => Err(Malformed::new(value.at, format!("`<<` with {} instead of a mapping", other.name()))),
    }
}

fn size(value: &Value) -> usize {
    match &value.kind {
        Kind::List(entries) => entries.iter().map(size).sum::<usize>() + 1,
        Kind::Map(entries) => entries.iter().map(|(_, value)| size(value) + 1).sum::<usize>() + 1,
        _ => 1,
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Kind {
    let told = tag.is_some_and(|tag| tag.is_yaml_core_schema() && tag.suffix == "str");
    if style != ScalarStyle::Plain || told {
        return Kind::Text(text.to_string());
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Kind::Null,
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Kind::Bool(true),
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Kind::Bool(false),
        _ if is_number(text) => Kind::Number(text.to_string()),
        _ => Kind::Text(text.to_string()),
    }
}

fn is_number(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let octal = unsigned.strip_prefix("0o").is_some_and(|digits| u64::from_str_radix(digits, 8).is_ok());
    let hexadecimal = unsigned.strip_prefix("0x").is_some_and(|digits| u64::from_str_radix(digits, 16).is_ok());
    let decimal = unsigned.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        && unsigned.bytes().all(|byte| byte.is_ascii_digit() || b".eE+-_".contains(&byte))
        && unsigned.replace('_', "").parse::<f64>().is_ok();
    octal || hexadecimal || decimal
}

fn place(marker: Marker) -> Place {
    Place { line: marker.line(), column: marker.col() + 1 }
}

fn malformed(error: &ScanError) -> Malformed {
    Malformed::new(place(*error.marker()), error.info())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get<'a>(value: &'a Value, key: &str) -> &'a Kind {
        let Kind::Map(entries) = &value.kind else { panic!("no mapping: {value:?}") };
        &entries.iter().find(|(there, _)| there.name == key).unwrap().1.kind
    }

    #[test]
    fn plain_words_are_what_pyyaml_takes_them_for() {
        let value =
            read("a: yes\nb: 'yes'\nc: 0644\nd: \"0644\"\ne: 0o644\nf: ~\ng: /etc/x\nh: Off\ni: 1.5\nj: 1.2.3\n");
        let value = value.unwrap();
        assert_eq!(get(&value, "a"), &Kind::Bool(true));
        assert_eq!(get(&value, "b"), &Kind::Text("yes".into()));
        assert_eq!(get(&value, "c"), &Kind::Number("0644".into()));
        assert_eq!(get(&value, "d"), &Kind::Text("0644".into()));
        assert_eq!(get(&value, "e"), &Kind::Number("0o644".into()));
        assert_eq!(get(&value, "f"), &Kind::Null);
        assert_eq!(get(&value, "g"), &Kind::Text("/etc/x".into()));
        assert_eq!(get(&value, "h"), &Kind::Bool(false));
        assert_eq!(get(&value, "i"), &Kind::Number("1.5".into()));
        assert_eq!(get(&value, "j"), &Kind::Text("1.2.3".into()));
    }

    #[test]
    fn anchors_and_merges_are_followed() {
        let value = read("x: &x {owner: nova, perm: '0600'}\ny: {<<: *x, perm: '0640'}\nz: *x\n").unwrap();
        let Kind::Map(y) = get(&value, "y") else { panic!() };
        let y = Value { at: value.at, kind: Kind::Map(y.clone()) };
        assert_eq!(get(&y, "owner"), &Kind::Text("nova".into()));
        assert_eq!(get(&y, "perm"), &Kind::Text("0640".into()));
        assert_eq!(get(&value, "z"), get(&value, "x"));
    }

    #[test]
    fn what_is_no_configuration_is_refused_with_its_place() {
        for (text, line, why) in [
            ("", 1, "empty"),
            ("# nothing\n", 1, "empty"),
            ("a: 1\na: 2\n", 2, "twice"),
            ("a: 1\n---\nb: 2\n", 3, "more than one document"),
            ("a: {b: [}", 1, ""),
            ("a: *b\n", 1, ""),
        ] {
            let malformed = read(text).unwrap_err();
            assert_eq!(malformed.at.line, line, "{text:?}: {malformed:?}");
            assert!(malformed.why.contains(why), "{text:?}: {malformed:?}");
        }
        let bomb = format!(
            "a0: &a0 [x, x]\n{}",
            (1..40).fold(String::new(), |all, n| { format!("{all}a{n}: &a{n} [*a{m}, *a{m}]\n", m = n - 1) })
        );
        assert!(read(&bomb).unwrap_err().why.contains("values"));
        assert!(read(&"[".repeat(100_000)).is_err());
    }
}
