//! The options that a Kolla release has, from its own table, and what they were set to: by the command line, by
//! `OS_GROUP__NAME` variables, by files, or by the release.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::diag::{Diagnostic, Diagnostics, Place, SourceFile};
use crate::error::{Error, Result};
use crate::kolla::ini::{self, DEFAULT};
use crate::kolla::layers::OPTION;
use crate::kolla::tree::Tree;
use crate::kolla::value::{Value, set};
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

    fn plain(name: &str, kind: Kind, default: Value) -> Opt {
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

/// Options that Kolla has not.
pub fn own() -> Vec<Opt> {
    let help = "Put each plugin of an image above it as a layer of its own, where its recipe only installs them [Kollage's own]";
    vec![Opt { help: help.to_owned(), ..Opt::plain(OPTION, Kind::Flag, Value::Bool(false)) }]
}

/// Where a value came from.
#[derive(Clone, Debug)]
pub enum Origin {
    CommandLine,
    Environment(String),
    File(Place),
}

#[derive(Debug)]
struct Given {
    values: Vec<String>,
    origin: Origin,
}

#[derive(Debug)]
pub struct Options<'a> {
    pub tree: &'a Tree,
    /// By section and key.
    known: BTreeMap<String, Vec<Opt>>,
    given: BTreeMap<(String, String), Given>,
    /// All sections that files have.
    sections: BTreeSet<String>,
    pub warnings: Diagnostics,
}

impl<'a> Options<'a> {
    /// `machine` is what `uname -m` says.
    pub fn new(tree: &'a Tree, machine: &str) -> Options<'a> {
        let mut known: BTreeMap<String, Vec<Opt>> = BTreeMap::new();
        let mut main = declared(tree, "_CLI_OPTS");
        main.extend(declared(tree, "_BASE_OPTS"));
        main.extend(own());
        for option in &mut main {
            match option.key().as_str() {
                "base_arch" => option.default = Value::Text(machine.into()),
                "debian_arch" => option.default = Value::None,
                // Older releases name images after Kolla's own version.
                "tag" if !option.default.is_none() => option.default = Value::Text(tree.version.clone()),
                _ => {}
            }
        }
        known.insert(DEFAULT.into(), main);
        known.insert("profiles".into(), declared(tree, "_PROFILE_OPTS"));
        for (name, table) in &tree.sources {
            known.insert(name.clone(), source(table));
        }
        for (name, table) in &tree.users {
            known.insert(name.clone(), user(name, table));
        }
        Options { tree, known, given: BTreeMap::new(), sections: BTreeSet::new(), warnings: Diagnostics::default() }
    }

    /// What is said later wins.
    pub fn file(&mut self, file: &Arc<SourceFile>) -> Result<()> {
        let found = ini::read(file).map_err(|problems| {
            Error::from_diagnostics(format!("{} cannot be used", file.path().display()), problems)
        })?;
        for assignment in found {
            self.sections.insert(assignment.section.clone());
            let origin = Origin::File(Place { file: file.clone(), span: assignment.span });
            self.say(assignment.section, assignment.key, assignment.value, origin);
        }
        Ok(())
    }

    fn say(&mut self, section: String, key: String, value: String, origin: Origin) {
        let many = self.option(&section, &key).is_some_and(|option| option.kind == Kind::Many);
        let slot = (section, key);
        let mut values = self.given.remove(&slot).filter(|_| many).map(|given| given.values).unwrap_or_default();
        values.push(value);
        self.given.insert(slot, Given { values, origin });
    }

    /// `OS_DEFAULT__BASE` and the like, which win over files and not over the command line.
    pub fn environment(&mut self, variables: &BTreeMap<String, String>) {
        for (name, value) in variables {
            let Some((group, key)) = name.strip_prefix("OS_").and_then(|rest| rest.split_once("__")) else { continue };
            let same = |a: &str, b: &str| a.replace('-', "_").eq_ignore_ascii_case(b);
            let Some((section, options)) = self.known.iter().find(|(section, _)| same(section, group)) else {
                continue;
            };
            let Some(option) = options.iter().find(|option| same(&option.name, key)) else { continue };
            let slot = (section.clone(), option.key());
            if self.given.get(&slot).is_none_or(|given| !matches!(given.origin, Origin::CommandLine)) {
                let origin = Origin::Environment(name.clone());
                self.given.insert(slot, Given { values: vec![value.clone()], origin });
            }
        }
    }

    pub fn command_line(&mut self, key: &str, value: String) {
        self.say(DEFAULT.into(), key.into(), value, Origin::CommandLine);
    }

    /// What an option is when nobody sets it: it follows from others, and addresses of sources refer to it.
    pub fn default(&mut self, key: &str, value: String) {
        let main = self.known.get_mut(DEFAULT).into_iter().flatten();
        for option in main.filter(|option| option.key() == key) {
            option.default = Value::Text(value.clone());
        }
    }

    /// Sections that the release or a file has.
    pub fn sections(&self) -> BTreeSet<&str> {
        self.known.keys().chain(&self.sections).map(String::as_str).collect()
    }

    /// What nothing of this release reads, with the nearest thing that it would.
    pub fn unknown(&mut self, images: &BTreeSet<String>) {
        let mut warnings = Vec::new();
        for ((section, key), given) in &self.given {
            let Origin::File(place) = &given.origin else { continue };
            let source = self.is_source(section, images);
            let keys: Vec<String> = match self.known.get(section) {
                Some(options) => options.iter().map(Opt::key).collect(),
                None if section.ends_with("-user") => user(section, &Value::None).iter().map(Opt::key).collect(),
                None if source => crate::kolla::options::source(&Value::None).iter().map(Opt::key).collect(),
                None => {
                    let sections = self.known.keys().map(String::as_str).chain(images.iter().map(String::as_str));
                    let warning = Diagnostic::warning(format!("nothing reads the section [{section}]"));
                    warnings
                        .push(with_hint(warning.at(&place.file, place.span.clone()), suggest::near(section, sections)));
                    continue;
                }
            };
            // A profile of one's own.
            if section == "profiles" || keys.contains(key) {
                continue;
            }
            let warning =
                Diagnostic::warning(format!("Kolla {} has no option `{key}` in [{section}]", self.tree.version));
            let near = suggest::near(key, keys.iter().map(String::as_str));
            warnings.push(with_hint(warning.at(&place.file, place.span.clone()), near));
        }
        self.warnings.0.extend(warnings);
    }

    fn is_source(&self, section: &str, images: &BTreeSet<String>) -> bool {
        images.contains(section)
            || ["-plugin-", "-additions-"].iter().any(|kind| {
                section.split_once(kind).is_some_and(|(image, name)| images.contains(image) && !name.is_empty())
            })
    }

    fn option(&self, section: &str, key: &str) -> Option<Opt> {
        if let Some(option) = self.known.get(section).and_then(|all| all.iter().find(|o| o.key() == key)) {
            return Some(option.clone());
        }
        if section == "profiles" {
            return Some(Opt::plain(key, Kind::List, Value::List(Vec::new())));
        }
        let all = if section.ends_with("-user") { user(section, &Value::None) } else { source(&Value::None) };
        if section == DEFAULT { None } else { all.into_iter().find(|o| o.key() == key) }
    }

    /// Every option that is given has to be one that can be meant, also where nothing asks for it.
    pub fn check(&self) -> Result<()> {
        let mut given =
            self.given.keys().filter(|(section, key)| section == DEFAULT && self.option(section, key).is_some());
        given.try_for_each(|(section, key)| self.get(section, key).map(drop))
    }

    /// The value of an option, with what it refers to put in.
    pub fn get(&self, section: &str, key: &str) -> Result<Value> {
        self.resolved(section, key, 0)
    }

    fn resolved(&self, section: &str, key: &str, depth: usize) -> Result<Value> {
        let Some(option) = self.option(section, key) else {
            return Err(Error::bad_input(format!("Kolla {} has no option `{key}` in [{section}]", self.tree.version)));
        };
        let Some(given) = self.given.get(&(section.to_owned(), key.to_owned())) else {
            return self.substituted(&option.default, section, key, depth);
        };
        let mut values = Vec::new();
        for value in &given.values {
            values.push(self.substitute(value, section, key, depth)?);
        }
        typed(&option, &values).map_err(|(why, hint)| self.wrong(section, key, &given.origin, &why, hint))
    }

    fn wrong(&self, section: &str, key: &str, origin: &Origin, why: &str, hint: Option<String>) -> Error {
        match origin {
            Origin::File(place) => {
                let problem = Diagnostic::error(format!("`{key}` {why}")).at(&place.file, place.span.clone());
                let problems = Diagnostics(vec![with_hint(problem, hint)]);
                Error::from_diagnostics(format!("{} cannot be used", place.file.path().display()), problems)
            }
            origin => {
                let name = match origin {
                    Origin::Environment(name) => name.clone(),
                    _ if section == DEFAULT => format!("--{}", key.replace('_', "-")),
                    _ => format!("[{section}] {key}"),
                };
                let error = Error::bad_input(format!("`{name}` {why}"));
                match hint {
                    Some(hint) => error.hint(hint),
                    None => error,
                }
            }
        }
    }

    /// Something is wrong with what a section says: with its place in a file, else it is the release's own.
    pub fn refused(&self, section: &str, key: &str, problem: String, hint: impl Into<String>) -> Error {
        let error = match self.given.get(&(section.to_owned(), key.to_owned())).map(|given| &given.origin) {
            Some(Origin::File(place)) => {
                let problem = Diagnostic::error(problem).at(&place.file, place.span.clone()).hint(hint);
                let problems = Diagnostics(vec![problem]);
                return Error::from_diagnostics(format!("{} cannot be used", place.file.path().display()), problems);
            }
            Some(Origin::Environment(name)) => Error::bad_input(problem).cause(format!("it was set by `{name}`")),
            _ => Error::bad_input(problem).cause(format!("it stands so in the sources of Kolla {}", self.tree.version)),
        };
        error.hint(hint)
    }

    /// Where a section's value was written in a file.
    pub fn place(&self, section: &str, key: &str) -> Option<Place> {
        match self.given.get(&(section.to_owned(), key.to_owned())).map(|given| &given.origin) {
            Some(Origin::File(place)) => Some(place.clone()),
            _ => None,
        }
    }

    /// Where a section's value was written, in a few words.
    pub fn origin(&self, section: &str, key: &str) -> String {
        match self.given.get(&(section.to_owned(), key.to_owned())).map(|given| &given.origin) {
            Some(Origin::File(place)) => place.shown(),
            Some(Origin::Environment(name)) => name.clone(),
            _ => format!("the sources of Kolla {}", self.tree.version),
        }
    }

    fn substituted(&self, value: &Value, section: &str, key: &str, depth: usize) -> Result<Value> {
        Ok(match value {
            Value::Text(text) => Value::Text(self.substitute(text, section, key, depth)?),
            Value::List(list) => {
                Value::List(list.iter().map(|item| self.substituted(item, section, key, depth)).collect::<Result<_>>()?)
            }
            other => other.clone(),
        })
    }

    /// `$name`, `${name}` and `${group.name}`; `$$` and `\$` are a dollar sign.
    fn substitute(&self, text: &str, section: &str, key: &str, depth: usize) -> Result<String> {
        if !text.contains('$') {
            return Ok(text.to_owned());
        }
        if depth > 16 {
            return Err(Error::bad_input(format!("`{key}` in [{section}] refers to itself")));
        }
        let text = text.replace("\\$", "$$");
        let mut out = String::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find('$') {
            out.push_str(&rest[..at]);
            let after = &rest[at + 1..];
            if let Some(after) = after.strip_prefix('$') {
                out.push('$');
                rest = after;
                continue;
            }
            let (inside, braces) = match after.strip_prefix('{') {
                Some(inside) => (inside, true),
                None => (after, false),
            };
            let starts = inside.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            let end = inside.find(|c: char| !(c.is_ascii_alphanumeric() || "_.".contains(c))).unwrap_or(inside.len());
            if !starts || (braces && !inside[end..].starts_with('}')) {
                out.push('$');
                rest = after;
                continue;
            }
            let name = &inside[..end];
            let (group, option) = name.split_once('.').unwrap_or((section, name));
            let value = match self.option(group, option) {
                Some(_) => self.resolved(group, option, depth + 1)?,
                None => self
                    .resolved(DEFAULT, name, depth + 1)
                    .map_err(|e| e.context(format!("`{key}` in [{section}] refers to `${name}`")))?,
            };
            if !value.is_none() {
                out.push_str(&value.printed());
            }
            rest = &inside[end + usize::from(braces)..];
        }
        out.push_str(rest);
        Ok(out)
    }

    pub fn text(&self, key: &str) -> Result<Option<String>> {
        Ok(match self.get(DEFAULT, key)? {
            Value::None => None,
            value => Some(value.printed()),
        })
    }

    pub fn flag(&self, key: &str) -> Result<bool> {
        Ok(self.get(DEFAULT, key)?.is_true())
    }

    pub fn texts(&self, key: &str) -> Result<Vec<String>> {
        Ok(self.get(DEFAULT, key)?.texts().map(str::to_owned).collect())
    }

    /// Whether somebody set it.
    pub fn is_given(&self, key: &str) -> bool {
        self.given.contains_key(&(DEFAULT.to_owned(), key.to_owned()))
    }

    /// What can be set in a section: by the release's table, and what files have there.
    pub fn keys(&self, section: &str) -> Vec<String> {
        let declared = self.known.get(section).into_iter().flatten().map(Opt::key);
        let mut keys: Vec<String> = declared.collect();
        let given = self.given.keys().filter(|(s, _)| s == section).map(|(_, key)| key);
        let more: Vec<String> = given.filter(|key| !keys.contains(key)).cloned().collect();
        keys.extend(more);
        keys
    }

    pub fn has(&self, key: &str) -> bool {
        self.option(DEFAULT, key).is_some()
    }
}

fn with_hint(diagnostic: Diagnostic, hint: Option<String>) -> Diagnostic {
    match hint {
        Some(hint) => diagnostic.hint(hint),
        None => diagnostic,
    }
}

/// A value of the option's kind; or what is wrong with it, and what there is.
fn typed(option: &Opt, values: &[String]) -> Result<Value, (String, Option<String>)> {
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
        Kind::Dict => {
            let mut entries = Vec::new();
            for pair in last.split(',').map(str::trim).filter(|p| !p.is_empty()) {
                let Some((key, value)) = pair.split_once(':') else {
                    return Err((format!("has `{pair}`, which is not of the form KEY:VALUE"), None));
                };
                set(&mut entries, key.trim().to_owned(), Value::Text(value.trim().to_owned()));
            }
            Value::Dict(entries)
        }
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

/// The options of a source.
fn source(table: &Value) -> Vec<Opt> {
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
fn user(section: &str, table: &Value) -> Vec<Opt> {
    let value = |key: &str| table.get(key).cloned().unwrap_or(Value::None);
    let name = section.strip_suffix("-user").unwrap_or(section);
    let group = table.get("group").cloned().unwrap_or_else(|| Value::Text(name.to_owned()));
    vec![
        Opt::plain("uid", Kind::Number, value("uid")),
        Opt::plain("gid", Kind::Number, value("gid")),
        Opt::plain("group", Kind::Text, group),
    ]
}
