//! What Kolla's own files hold, whichever language they are written in: Python's literals, or YAML.

/// A value that can be told without running anything.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    None,
    Bool(bool),
    Int(i64),
    Text(String),
    /// Lists, tuples and sets.
    List(Vec<Value>),
    /// In the order of the file; Python and PyYAML keep it, and the last of equal keys.
    Dict(Vec<(String, Value)>),
    /// A name that no assignment before it gives a value to, with dots.
    Name(String),
    Call(Box<Call>),
    /// An expression that only Python can evaluate.
    Opaque,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub name: String,
    pub arguments: Vec<Value>,
    pub named: Vec<(String, Value)>,
}

impl Value {
    pub fn text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn list(&self) -> &[Value] {
        match self {
            Value::List(list) => list,
            _ => &[],
        }
    }

    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.list().iter().filter_map(Value::text)
    }

    pub fn dict(&self) -> &[(String, Value)] {
        match self {
            Value::Dict(entries) => entries,
            _ => &[],
        }
    }

    pub fn get(&self, key: &str) -> Option<&Value> {
        self.dict().iter().find(|(k, _)| k == key).map(|(_, value)| value)
    }

    pub fn is_none(&self) -> bool {
        matches!(self, Value::None)
    }

    /// What `if value` is in Python.
    pub fn is_true(&self) -> bool {
        match self {
            Value::None | Value::Opaque => false,
            Value::Bool(value) => *value,
            Value::Int(value) => *value != 0,
            Value::Text(text) => !text.is_empty(),
            Value::List(list) => !list.is_empty(),
            Value::Dict(entries) => !entries.is_empty(),
            Value::Name(_) | Value::Call(_) => true,
        }
    }

    /// What `str(value)` is in Python, which is also what a template prints.
    pub fn printed(&self) -> String {
        match self {
            Value::Text(text) => text.clone(),
            Value::None => "None".into(),
            Value::Bool(true) => "True".into(),
            Value::Bool(false) => "False".into(),
            Value::Int(value) => value.to_string(),
            Value::List(list) => {
                let items: Vec<String> = list.iter().map(Value::represented).collect();
                format!("[{}]", items.join(", "))
            }
            Value::Dict(entries) => {
                let item = |(key, value): &(String, Value)| format!("{}: {}", represented(key), value.represented());
                format!("{{{}}}", entries.iter().map(item).collect::<Vec<_>>().join(", "))
            }
            Value::Name(name) => name.clone(),
            Value::Call(call) => call.name.clone(),
            Value::Opaque => "...".into(),
        }
    }

    /// What `json.dump(value, indent=…)` writes; without an indent it is one line.
    pub fn json(&self, indent: Option<usize>) -> String {
        let mut out = String::new();
        self.write_json(indent, 0, &mut out);
        out
    }

    fn write_json(&self, indent: Option<usize>, depth: usize, out: &mut String) {
        let line = |out: &mut String, depth: usize| {
            if let Some(indent) = indent {
                out.push('\n');
                out.extend(std::iter::repeat_n(' ', indent * depth));
            }
        };
        let comma = if indent.is_some() { "," } else { ", " };
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        match self {
            Value::List(items) if !items.is_empty() => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    out.push_str(if index == 0 { "" } else { comma });
                    line(out, depth + 1);
                    item.write_json(indent, depth + 1, out);
                }
                line(out, depth);
                out.push(']');
            }
            Value::Dict(entries) if !entries.is_empty() => {
                out.push('{');
                for (index, (key, value)) in entries.iter().enumerate() {
                    out.push_str(if index == 0 { "" } else { comma });
                    line(out, depth + 1);
                    out.push_str(&format!("{}: ", quoted(key)));
                    value.write_json(indent, depth + 1, out);
                }
                line(out, depth);
                out.push('}');
            }
            Value::List(_) => out.push_str("[]"),
            Value::Dict(_) => out.push_str("{}"),
            Value::None | Value::Opaque => out.push_str("null"),
            Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Value::Int(value) => out.push_str(&value.to_string()),
            other => out.push_str(&quoted(&other.printed())),
        }
    }

    fn represented(&self) -> String {
        match self {
            Value::Text(text) => represented(text),
            other => other.printed(),
        }
    }
}

/// Sets `key`, as a Python dictionary does: in its old place when it is there.
pub fn set(entries: &mut Vec<(String, Value)>, key: String, value: Value) {
    match entries.iter_mut().find(|(k, _)| *k == key) {
        Some((_, old)) => *old = value,
        None => entries.push((key, value)),
    }
}

/// `repr` of a Python string.
pub fn represented(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::with_capacity(text.len() + 2);
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if (c as u32) < 0x20 || c == '\x7f' => out.push_str(&format!("\\x{:02x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push(quote);
    out
}
