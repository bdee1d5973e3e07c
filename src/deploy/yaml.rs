//! As much YAML as Compose files and manifests take, written in the order in which it was said.

use std::fmt::Write as _;

#[derive(Clone, Debug)]
pub enum Yaml {
    Text(String),
    Number(i64),
    Bool(bool),
    List(Vec<Yaml>),
    Map(Vec<(String, Yaml)>),
}

impl Yaml {
    pub fn list<T: Into<Yaml>>(items: impl IntoIterator<Item = T>) -> Yaml {
        Yaml::List(items.into_iter().map(Into::into).collect())
    }

    pub fn map<K: Into<String>, V: Into<Yaml>>(entries: impl IntoIterator<Item = (K, V)>) -> Yaml {
        Yaml::Map(entries.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }

    fn is_empty(&self) -> bool {
        match self {
            Yaml::List(items) => items.is_empty(),
            Yaml::Map(entries) => entries.is_empty(),
            _ => false,
        }
    }

    /// As a document of its own.
    pub fn document(&self) -> String {
        let mut out = String::new();
        self.block(0, &mut out);
        out
    }

    /// Behind `key:` or at the head of a line.
    fn block(&self, indent: usize, out: &mut String) {
        match self {
            Yaml::Map(entries) if !entries.is_empty() => {
                for (index, (key, value)) in entries.iter().enumerate() {
                    if index > 0 {
                        pad(indent, out);
                    }
                    out.push_str(&scalar(key));
                    out.push(':');
                    value.behind(indent, out);
                }
            }
            Yaml::List(items) if !items.is_empty() => {
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        pad(indent, out);
                    }
                    out.push_str("- ");
                    item.block(indent + 2, out);
                }
            }
            other => {
                out.push_str(&other.flow());
                out.push('\n');
            }
        }
    }

    fn behind(&self, indent: usize, out: &mut String) {
        match self {
            Yaml::Map(_) | Yaml::List(_) if !self.is_empty() => {
                out.push('\n');
                pad(indent + 2, out);
                self.block(indent + 2, out);
            }
            Yaml::Text(text) if is_block(text) => {
                out.push_str(if text.ends_with('\n') { " |\n" } else { " |-\n" });
                for line in text.lines() {
                    if !line.is_empty() {
                        pad(indent + 2, out);
                        out.push_str(line);
                    }
                    out.push('\n');
                }
            }
            other => {
                let _ = writeln!(out, " {}", other.flow());
            }
        }
    }

    fn flow(&self) -> String {
        match self {
            Yaml::Text(text) => scalar(text),
            Yaml::Number(number) => number.to_string(),
            Yaml::Bool(flag) => flag.to_string(),
            Yaml::List(_) => "[]".into(),
            Yaml::Map(_) => "{}".into(),
        }
    }
}

impl From<&str> for Yaml {
    fn from(text: &str) -> Yaml {
        Yaml::Text(text.to_owned())
    }
}

impl From<String> for Yaml {
    fn from(text: String) -> Yaml {
        Yaml::Text(text)
    }
}

impl From<bool> for Yaml {
    fn from(flag: bool) -> Yaml {
        Yaml::Bool(flag)
    }
}

impl From<u32> for Yaml {
    fn from(number: u32) -> Yaml {
        Yaml::Number(number.into())
    }
}

fn pad(indent: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', indent));
}

/// Text of several lines that a block keeps to the byte, and that is easier to read as one.
fn is_block(text: &str) -> bool {
    let fine = |c: char| c == '\n' || c == '\t' || (!c.is_control() && c != '\u{feff}' && c != '\u{85}');
    let odd = |c: char| matches!(c, '\u{2028}' | '\u{2029}');
    let body = text.strip_suffix('\n').unwrap_or(text);
    body.contains('\n')
        && text.chars().all(|c| fine(c) && !odd(c))
        && !text.starts_with([' ', '\n', '\t'])
        && !body.ends_with(['\n', ' '])
}

/// Quoted unless every reader of YAML takes it for the same text.
fn scalar(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '@');
    let word = text.to_ascii_lowercase();
    let special = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"].contains(&word.as_str());
    let safe = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/') && text.chars().all(plain);
    if safe && !special {
        return text.to_owned();
    }
    // JSON's strings are YAML's, but for what YAML doesn't take unescaped.
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
