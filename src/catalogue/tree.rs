//! TOML values that know where they stand, from several files at once: what is read is the merged tree.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::diag::{Diagnostic, Diagnostics, Place, SourceFile};

use super::types::{Form, Override};

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub place: Place,
    pub value: Value,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    String(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    Datetime(toml::value::Datetime),
    Array(Vec<Node>),
    Table(Table),
}

pub(crate) type Table = BTreeMap<String, Entry>;

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Of the key.
    pub place: Place,
    pub node: Node,
}

impl Node {
    pub fn table(&self) -> Option<&Table> {
        match &self.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    pub fn table_mut(&mut self) -> Option<&mut Table> {
        match &mut self.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }
}

/// What stands at the end of a path of keys.
pub(super) fn get<'a>(table: &'a Table, path: &[&str]) -> Option<&'a Node> {
    let (first, rest) = path.split_first()?;
    let node = &table.get(*first)?.node;
    if rest.is_empty() { Some(node) } else { get(node.table()?, rest) }
}

pub(super) fn get_mut<'a>(table: &'a mut Table, path: &[&str]) -> Option<&'a mut Node> {
    let (first, rest) = path.split_first()?;
    let node = &mut table.get_mut(*first)?.node;
    if rest.is_empty() { Some(node) } else { get_mut(node.table_mut()?, rest) }
}

impl Value {
    /// For "should be a string, not …".
    pub fn kind(&self) -> &'static str {
        match self {
            Value::String(_) => "a string",
            Value::Integer(_) => "an integer",
            Value::Float(_) => "a float",
            Value::Boolean(_) => "a boolean",
            Value::Datetime(_) => "a date",
            Value::Array(_) => "a list",
            Value::Table(_) => "a table",
        }
    }

    pub fn to_toml(&self) -> toml::Value {
        match self {
            Value::String(s) => toml::Value::String(s.clone()),
            Value::Integer(i) => toml::Value::Integer(*i),
            Value::Float(f) => toml::Value::Float(*f),
            Value::Boolean(b) => toml::Value::Boolean(*b),
            Value::Datetime(d) => toml::Value::Datetime(*d),
            Value::Array(items) => toml::Value::Array(items.iter().map(|n| n.value.to_toml()).collect()),
            Value::Table(table) => toml::Value::Table(to_toml(table)),
        }
    }
}

pub(crate) fn to_toml(table: &Table) -> toml::Table {
    table.iter().map(|(k, e)| (k.clone(), e.node.value.to_toml())).collect()
}

/// The tree of a file. None when its syntax is wrong: what can be recovered would only give follow-up errors.
pub(crate) fn parse(file: &Arc<SourceFile>, problems: &mut Diagnostics) -> Option<Node> {
    let (table, errors) = DeTable::parse_recoverable(&file.text);
    if errors.is_empty() {
        return Some(from_table(table.span(), table.get_ref(), file, 0, problems));
    }
    for error in errors {
        problems.push(syntax(&error, file));
    }
    None
}

fn syntax(error: &toml::de::Error, file: &Arc<SourceFile>) -> Diagnostic {
    let mut span = error.span().unwrap_or(0..0);
    span.end = span.end.min(file.text.len());
    span.start = span.start.min(span.end);
    // A span of the size of a line end shows nothing; the end of the line before it does.
    let message = error.message().lines().next().unwrap_or("syntax error").to_owned();
    Diagnostic::error(format!("this is not valid TOML: {message}")).at(file, span)
}

/// `offset` is where the parsed text begins in the file.
fn from_value(value: &Spanned<DeValue<'_>>, file: &Arc<SourceFile>, offset: usize, problems: &mut Diagnostics) -> Node {
    let place = place(file, value.span(), offset);
    let value = match value.get_ref() {
        DeValue::String(s) => Value::String(s.to_string()),
        DeValue::Integer(i) => match i64::from_str_radix(i.as_str(), i.radix()) {
            Ok(i) => Value::Integer(i),
            Err(_) => {
                problems
                    .push(Diagnostic::error(format!("{i} is too large a number")).at(&place.file, place.span.clone()));
                Value::Integer(0)
            }
        },
        DeValue::Float(f) => Value::Float(f.as_str().replace('_', "").parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(b) => Value::Boolean(*b),
        DeValue::Datetime(d) => Value::Datetime(*d),
        DeValue::Array(items) => Value::Array(items.iter().map(|v| from_value(v, file, offset, problems)).collect()),
        DeValue::Table(table) => from_table(value.span(), table, file, offset, problems).value,
    };
    Node { place, value }
}

fn from_table(
    span: Range<usize>,
    table: &DeTable<'_>,
    file: &Arc<SourceFile>,
    offset: usize,
    problems: &mut Diagnostics,
) -> Node {
    let entries = table.iter().map(|(key, value)| {
        let entry = Entry { place: place(file, key.span(), offset), node: from_value(value, file, offset, problems) };
        (key.get_ref().to_string(), entry)
    });
    let value = Value::Table(entries.collect());
    Node { place: place(file, span, offset), value }
}

fn place(file: &Arc<SourceFile>, span: Range<usize>, offset: usize) -> Place {
    Place { file: file.clone(), span: span.start + offset..span.end + offset }
}

/// A setting from the command line or the environment as a tree of its own. Its file is named after its origin.
pub(super) fn from_override(over: &Override, problems: &mut Diagnostics) -> Table {
    let file = SourceFile::new(&over.origin, over.written.clone());
    let at = |start: usize, end: usize| Place { file: file.clone(), span: start..end };
    let whole = at(0, over.written.len());
    let text = over.written.get(over.value_at..).unwrap_or_default();
    let value_place = at(over.value_at, over.written.len());
    let mut node = match over.form {
        Form::Literal => Node { place: value_place, value: Value::String(text.to_owned()) },
        Form::List => {
            let mut items = Vec::new();
            let mut start = over.value_at;
            for item in text.split(',') {
                let end = start + item.len();
                if !item.is_empty() {
                    items.push(Node { place: at(start, end), value: Value::String(item.to_owned()) });
                }
                start = end + 1;
            }
            Node { place: value_place, value: Value::Array(items) }
        }
        Form::Toml => match DeValue::parse(text) {
            Ok(value) => from_value(&value, &file, over.value_at, problems),
            Err(error) => {
                problems.push(syntax(&error, &file));
                return Table::new();
            }
        },
    };
    let mut keys = over.path.iter().rev();
    let (Some(last), rest) = (keys.next(), keys) else { return Table::new() };
    let mut table = Table::from([(last.clone(), Entry { place: whole.clone(), node })]);
    for key in rest {
        node = Node { place: whole.clone(), value: Value::Table(table) };
        table = Table::from([(key.clone(), Entry { place: whole.clone(), node })]);
    }
    table
}

/// Puts `higher` over `lower`: tables are merged, everything else is replaced.
pub(super) fn merge(lower: &mut Table, higher: Table) {
    for (key, entry) in higher {
        match lower.get_mut(&key) {
            Some(Entry { node: Node { value: Value::Table(old), .. }, .. })
                if matches!(entry.node.value, Value::Table(_)) =>
            {
                if let Value::Table(new) = entry.node.value {
                    merge(old, new);
                }
            }
            _ => {
                lower.insert(key, entry);
            }
        }
    }
}
