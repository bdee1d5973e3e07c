//! One option, as a Kolla release declares it, and what can be said of it.

use crate::kolla::layers::OPTION;
use crate::kolla::tree::Tree;
use crate::kolla::value::Value;
use crate::suggest;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    Flag,
    Number,
    /// Separated by commas.
    List,
    /// `key:value`, separated by commas.
    Dict,
    /// Given again for each value.
    Many,
}

/// One option, as the release declares it.
#[derive(Clone, Debug)]
pub struct Opt {
    /// As the command line has it.
    pub name: String,
    pub kind: Kind,
    pub short: Option<char>,
    pub default: Value,
    pub choices: Vec<String>,
    pub least: Option<i64>,
    pub help: String,
    pub positional: bool,
}

impl Opt {
    /// As a file has it.
    pub fn key(&self) -> String {
        self.name.replace('-', "_")
    }

    fn read(value: &Value) -> Option<Opt> {
        let Value::Call(call) = value else { return None };
        let kind = match call.name.as_str() {
            "cfg.StrOpt" => Kind::Text,
            "cfg.BoolOpt" => Kind::Flag,
            "cfg.IntOpt" => Kind::Number,
            "cfg.ListOpt" => Kind::List,
            "cfg.DictOpt" => Kind::Dict,
            "cfg.MultiOpt" | "cfg.MultiStrOpt" => Kind::Many,
            _ => return None,
        };
        let named = |key: &str| call.named.iter().find(|(k, _)| k == key).map(|(_, value)| value);
        Some(Opt {
            name: call.arguments.first()?.text()?.to_owned(),
            kind,
            short: named("short").and_then(Value::text).and_then(|s| s.chars().next()),
            default: named("default").cloned().unwrap_or(Value::None),
            choices: named("choices").into_iter().flat_map(Value::texts).map(str::to_owned).collect(),
            least: named("min").and_then(|v| if let Value::Int(n) = v { Some(*n) } else { None }),
            help: named("help").and_then(Value::text).unwrap_or_default().to_owned(),
            positional: named("positional").is_some_and(Value::is_true),
        })
    }

    pub fn plain(name: &str, kind: Kind, default: Value) -> Opt {
        Opt {
            name: name.to_owned(),
            kind,
            short: None,
            default,
            choices: Vec::new(),
            least: None,
            help: String::new(),
            positional: false,
        }
    }
}

/// The options of one list of the release's `common/config.py`.
pub fn declared(tree: &Tree, list: &str) -> Vec<Opt> {
    tree.config.get(list).map(|list| list.list().iter().filter_map(Opt::read).collect()).unwrap_or_default()
}

/// What oslo.config adds to the options of every program: where else than in files there are any.
pub const ELSEWHERE: &str = "config_source";

/// Options that Kolla has not.
pub fn own() -> Vec<Opt> {
    let help = "Put each plugin of an image above it as a layer of its own, where its recipe only installs them [Kollage's own]";
    vec![Opt { help: help.to_owned(), ..Opt::plain(OPTION, Kind::Flag, Value::Bool(false)) }]
}

/// A value of the option's kind; or what is wrong with it, and what there is.
pub fn typed(option: &Opt, values: &[String]) -> Result<Value, (String, Option<String>)> {
    let last = values.last().map(String::as_str).unwrap_or_default();
    let value = match option.kind {
        Kind::Text => Value::Text(last.to_owned()),
        Kind::Flag => match last.to_ascii_lowercase().as_str() {
            "true" | "1" | "on" | "yes" => Value::Bool(true),
            "false" | "0" | "off" | "no" => Value::Bool(false),
            _ => return Err((format!("is `{last}`, which is neither true nor false"), None)),
        },
        Kind::Number => match last.trim().parse::<i64>() {
            Ok(number) if option.least.is_none_or(|least| number >= least) => Value::Int(number),
            Ok(number) => {
                let least = option.least.unwrap_or_default();
                return Err((format!("is {number}, and {least} is the least that makes sense"), None));
            }
            Err(_) => return Err((format!("is `{last}`, which is no number"), None)),
        },
        Kind::List => {
            let text = last.trim().trim_end_matches(',');
            let items = text.split(',').map(|item| Value::Text(item.trim().to_owned()));
            Value::List(if text.is_empty() { Vec::new() } else { items.collect() })
        }
        Kind::Dict => Value::Dict(pairs(last.trim()).map_err(|why| (why, None))?),
        Kind::Many => Value::List(values.iter().map(|v| Value::Text(v.clone())).collect()),
    };
    match value.text() {
        Some(text) if !option.choices.is_empty() && !option.choices.iter().any(|c| c == text) => {
            let near = suggest::hint(text, option.choices.iter().map(String::as_str));
            Err((format!("is `{text}`, which this Kolla release doesn't know"), near))
        }
        _ => Ok(value),
    }
}

/// `key:value`, separated by commas. As in oslo.config a part without a colon goes on with the next one.
fn pairs(text: &str) -> Result<Vec<(String, Value)>, String> {
    let mut entries: Vec<(String, Value)> = Vec::new();
    let mut parts = text.split(',').filter(|_| !text.is_empty());
    while let Some(part) = parts.next() {
        let mut pair = part.to_owned();
        while !pair.contains(':') {
            match parts.next() {
                Some(more) => pair.extend([",", more]),
                None => return Err(format!("has `{pair}`, which is not of the form KEY:VALUE")),
            }
        }
        let (key, value) = pair.split_once(':').unwrap_or_default();
        match key.trim() {
            "" => return Err(format!("has `{pair}`, which has no key")),
            key if entries.iter().any(|(there, _)| there == key) => return Err(format!("has `{key}` twice")),
            key => entries.push((key.to_owned(), Value::Text(value.trim().to_owned()))),
        }
    }
    Ok(entries)
}

/// The options of a source.
pub fn source(table: &Value) -> Vec<Opt> {
    let value = |key: &str| table.get(key).cloned().unwrap_or(Value::None);
    let mut kind = Opt::plain("type", Kind::Text, value("type"));
    kind.choices = ["local", "git", "url"].map(str::to_owned).to_vec();
    let enabled = table.get("enabled").cloned().unwrap_or(Value::Bool(true));
    vec![
        kind,
        Opt::plain("location", Kind::Text, value("location")),
        Opt::plain("reference", Kind::Text, value("reference")),
        Opt::plain("enabled", Kind::Flag, enabled),
        Opt::plain("version", Kind::Text, value("version")),
        Opt::plain("sha256", Kind::Dict, value("sha256")),
    ]
}

/// The options of a user: `NAME-user`.
pub fn user(section: &str, table: &Value) -> Vec<Opt> {
    let value = |key: &str| table.get(key).cloned().unwrap_or(Value::None);
    let name = section.strip_suffix("-user").unwrap_or(section);
    let group = table.get("group").cloned().unwrap_or_else(|| Value::Text(name.to_owned()));
    vec![
        Opt::plain("uid", Kind::Number, value("uid")),
        Opt::plain("gid", Kind::Number, value("gid")),
        Opt::plain("group", Kind::Text, group),
    ]
}
