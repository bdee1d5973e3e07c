//! JSON (RFC 8259), with places. serde_json knows the place of an error only, not that of a value.

use super::value::{DEEPEST, Key, Kind, Malformed, Place, Value};

type Result<T> = std::result::Result<T, Malformed>;

pub fn read(text: &str) -> Result<Value> {
    let mut reader = Reader { rest: text.strip_prefix('\u{feff}').unwrap_or(text), at: Place { line: 1, column: 1 } };
    reader.blank();
    if reader.rest.is_empty() {
        return Err(Malformed::new(reader.at, "the file is empty"));
    }
    let value = reader.value(0)?;
    reader.blank();
    if !reader.rest.is_empty() {
        return Err(reader.unexpected("the end of the file"));
    }
    Ok(value)
}

struct Reader<'a> {
    rest: &'a str,
    at: Place,
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.rest = &self.rest[next.len_utf8()..];
        if next == '\n' {
            self.at = Place { line: self.at.line + 1, column: 1 };
        } else {
            self.at.column += 1;
        }
        Some(next)
    }

    fn blank(&mut self) {
        while matches!(self.peek(), Some(' ' | '\t' | '\n' | '\r')) {
            self.next();
        }
    }

    fn unexpected(&self, wanted: &str) -> Malformed {
        let found = match self.peek() {
            Some(found) => format!("`{}`", found.escape_debug()),
            None => "the end of the file".into(),
        };
        Malformed::new(self.at, format!("expected {wanted}, found {found}"))
    }

    fn expect(&mut self, wanted: char) -> Result<()> {
        if self.peek() != Some(wanted) {
            return Err(self.unexpected(&format!("`{wanted}`")));
        }
        self.next();
        Ok(())
    }

    fn value(&mut self, depth: usize) -> Result<Value> {
        let at = self.at;
        if depth > DEEPEST {
            return Err(Malformed::new(at, format!("more than {DEEPEST} levels")));
        }
        let kind = match self.peek() {
            Some('{') => self.map(depth)?,
            Some('[') => self.list(depth)?,
            Some('"') => Kind::Text(self.string()?),
            Some('-' | '0'..='9') => self.number()?,
            Some('a'..='z') => self.word()?,
            _ => return Err(self.unexpected("a value")),
        };
        Ok(Value { at, kind })
    }

    fn map(&mut self, depth: usize) -> Result<Kind> {
        self.next();
        let mut entries: Vec<(Key, Value)> = Vec::new();
        self.blank();
        if self.peek() == Some('}') {
            self.next();
            return Ok(Kind::Map(entries));
        }
        loop {
            self.blank();
            let at = self.at;
            if self.peek() != Some('"') {
                return Err(self.unexpected("a key in double quotes"));
            }
            let name = self.string()?;
            if entries.iter().any(|(key, _)| key.name == name) {
                return Err(Malformed::new(at, format!("the key `{name}` is there twice")));
            }
            self.blank();
            self.expect(':')?;
            self.blank();
            let value = self.value(depth + 1)?;
            entries.push((Key { at, name }, value));
            self.blank();
            match self.peek() {
                Some(',') => self.next(),
                Some('}') => break,
                _ => return Err(self.unexpected("`,` or `}`")),
            };
        }
        self.next();
        Ok(Kind::Map(entries))
    }

    fn list(&mut self, depth: usize) -> Result<Kind> {
        self.next();
        let mut entries = Vec::new();
        self.blank();
        if self.peek() == Some(']') {
            self.next();
            return Ok(Kind::List(entries));
        }
        loop {
            self.blank();
            entries.push(self.value(depth + 1)?);
            self.blank();
            match self.peek() {
                Some(',') => self.next(),
                Some(']') => break,
                _ => return Err(self.unexpected("`,` or `]`")),
            };
        }
        self.next();
        Ok(Kind::List(entries))
    }

    fn string(&mut self) -> Result<String> {
        self.next();
        let mut text = String::new();
        loop {
            let at = self.at;
            match self.next() {
                Some('"') => return Ok(text),
                Some('\\') => text.push(self.escape(at)?),
                Some(control) if control < ' ' => {
                    let why = format!("a string with an unescaped `{}`", control.escape_debug());
                    return Err(Malformed::new(at, why));
                }
                Some(other) => text.push(other),
                None => return Err(Malformed::new(at, "a string that doesn't end")),
            }
        }
    }

    fn escape(&mut self, at: Place) -> Result<char> {
        Ok(match self.next() {
            Some(same @ ('"' | '\\' | '/')) => same,
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('u') => {
                let first = self.four_digits(at)?;
                let code = if (0xd800..0xdc00).contains(&first) && self.rest.starts_with("\\u") {
                    self.next();
                    self.next();
                    let second = self.four_digits(at)?;
                    0x10000 + ((first - 0xd800) << 10) + second.wrapping_sub(0xdc00)
                } else {
                    first
                };
                char::from_u32(code).ok_or_else(|| Malformed::new(at, "half of a pair of surrogates"))?
            }
            _ => return Err(Malformed::new(at, "an unknown escape in a string")),
        })
    }

    fn four_digits(&mut self, at: Place) -> Result<u32> {
        let digits = self.rest.get(..4).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let code = code.ok_or_else(|| Malformed::new(at, "`\\u` without four hexadecimal digits"))?;
        for _ in 0..4 {
            self.next();
        }
        Ok(code)
    }

    fn number(&mut self) -> Result<Kind> {
        let at = self.at;
        let mut text = String::new();
        while let Some(next @ ('-' | '+' | '.' | '0'..='9' | 'e' | 'E')) = self.peek() {
            text.push(next);
            self.next();
        }
        if is_number(&text) {
            Ok(Kind::Number(text))
        } else {
            Err(Malformed::new(at, format!("`{text}` is no number in JSON")))
        }
    }

    fn word(&mut self) -> Result<Kind> {
        for (word, kind) in [("true", Kind::Bool(true)), ("false", Kind::Bool(false)), ("null", Kind::Null)] {
            if let Some(rest) = self.rest.strip_prefix(word)
                && !rest.starts_with(|next: char| next.is_ascii_alphanumeric())
            {
                self.rest = rest;
                self.at.column += word.len();
                return Ok(kind);
            }
        }
        Err(self.unexpected("a value"))
    }
}

fn is_number(text: &str) -> bool {
    fn digits(text: &str) -> Option<&str> {
        let rest = text.trim_start_matches(|digit: char| digit.is_ascii_digit());
        (rest.len() < text.len()).then_some(rest)
    }
    let text = text.strip_prefix('-').unwrap_or(text);
    let Some(mut rest) = text.strip_prefix('0').or_else(|| digits(text)) else { return false };
    if let Some(fraction) = rest.strip_prefix('.') {
        let Some(after) = digits(fraction) else { return false };
        rest = after;
    }
    if let Some(exponent) = rest.strip_prefix(['e', 'E']) {
        let Some(after) = digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)) else { return false };
        rest = after;
    }
    rest.is_empty()
}

/// A string as JSON.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for next in text.chars() {
        match next {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            control if control < ' ' => quoted.push_str(&format!("\\u{:04x}", control as u32)),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plain(value: &Value) -> serde_json::Value {
        match &value.kind {
            Kind::Null => serde_json::Value::Null,
            Kind::Bool(value) => (*value).into(),
            Kind::Number(text) => serde_json::from_str(text).unwrap(),
            Kind::Text(text) => text.clone().into(),
            Kind::List(entries) => entries.iter().map(plain).collect(),
            Kind::Map(entries) => entries.iter().map(|(key, value)| (key.name.clone(), plain(value))).collect(),
        }
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<String>().prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
                prop::collection::btree_map(any::<String>(), inner, 0..4)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_serde_json_writes_is_read_the_same(value in json()) {
            prop_assert_eq!(plain(&read(&value.to_string()).unwrap()), value.clone());
            prop_assert_eq!(plain(&read(&serde_json::to_string_pretty(&value).unwrap()).unwrap()), value);
        }

        #[test]
        fn what_serde_json_refuses_is_refused(text in r#"[\[\]{}:,"a0.e\\u\-+ tn1]{0,12}"#) {
            let theirs = serde_json::from_str::<serde_json::Value>(&text);
            match read(&text) {
                Ok(value) => prop_assert_eq!(plain(&value), theirs.unwrap()),
                // Keys that are there twice, and numbers that don't fit into serde_json's, are for us to refuse alone.
                Err(malformed) => prop_assert!(theirs.is_err() || malformed.why.contains("twice"), "{}", text),
            }
        }

        #[test]
        fn a_string_is_quoted_so_that_it_can_be_read(text in any::<String>()) {
            prop_assert_eq!(read(&quoted(&text)).unwrap().kind, Kind::Text(text));
        }
    }

    #[test]
    fn errors_have_a_place() {
        let malformed = read("{\n  \"command\": \"x\",\n  \"files\": [1 2]\n}").unwrap_err();
        assert_eq!((malformed.at.line, malformed.at.column), (3, 15));
        assert_eq!(malformed.why, "expected `,` or `]`, found `2`");
        assert_eq!(read("").unwrap_err().why, "the file is empty");
        assert!(read(&"[".repeat(100_000)).unwrap_err().why.contains("levels"));
    }
}
