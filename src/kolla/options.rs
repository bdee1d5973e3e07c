//! The options that a Kolla release has, from its own table, and what they were set to: by the command line, by
//! `OS_GROUP__NAME` variables, by files, or by the release.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::Arc;

use crate::diag::{Diagnostic, Diagnostics, Place, SourceFile};
use crate::error::{Error, Result};
use crate::fetch::address::without_logins;
use crate::kolla::ini::{self, DEFAULT};
pub use crate::kolla::opt::{ELSEWHERE, Kind, Opt, declared, own};
use crate::kolla::opt::{source, typed, user};
use crate::kolla::tree::Tree;
use crate::kolla::value::Value;
use crate::suggest;

/// What stands between an image and the name of what is put into it, in names of sections.
const KINDS: [&str; 2] = ["-plugin-", "-additions-"];

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
    /// Of each value.
    origins: Vec<Origin>,
}

impl Given {
    fn one(value: String, origin: Origin) -> Given {
        Given { values: vec![value], origins: vec![origin] }
    }

    /// Of what was said last.
    fn origin(&self) -> Option<&Origin> {
        self.origins.last()
    }
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
        main.push(Opt::plain(ELSEWHERE, Kind::List, Value::List(Vec::new())));
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
            let section = self.section(assignment.section);
            self.sections.insert(section.clone());
            let origin = Origin::File(Place { file: file.clone(), span: assignment.span });
            self.say(section, assignment.key, assignment.value, origin);
        }
        Ok(())
    }

    /// What a section of a file stands for. To oslo.config capital letters in names of groups are small ones, but for
    /// `DEFAULT`; what Kolla itself looks for among names of sections (plugins, additions and users of one's own) has
    /// to be written as it is.
    fn section(&self, written: String) -> String {
        let small = written.to_ascii_lowercase();
        if self.known.contains_key(&written) || small == "default" {
            return written;
        }
        let own = KINDS.iter().any(|kind| small.contains(kind)) || small.ends_with("-user");
        if own && !self.known.contains_key(&small) { written } else { small }
    }

    fn say(&mut self, section: String, key: String, value: String, origin: Origin) {
        let many = self.option(&section, &key).is_some_and(|option| option.kind == Kind::Many);
        match self.given.entry((section, key)) {
            Entry::Occupied(mut there) if many => {
                there.get_mut().values.push(value);
                there.get_mut().origins.push(origin);
            }
            Entry::Occupied(mut there) => drop(there.insert(Given::one(value, origin))),
            Entry::Vacant(free) => drop(free.insert(Given::one(value, origin))),
        }
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
            let by_hand =
                self.given.get(&slot).is_some_and(|given| matches!(given.origin(), Some(Origin::CommandLine)));
            if !by_hand {
                self.given.insert(slot, Given::one(value.clone(), Origin::Environment(name.clone())));
            }
        }
    }

    pub fn command_line(&mut self, key: &str, value: String) {
        self.say(DEFAULT.into(), key.into(), value, Origin::CommandLine);
    }

    /// What an option is when nobody sets it.
    pub fn default(&mut self, key: &str, value: String) {
        let main = self.known.get_mut(DEFAULT).into_iter().flatten();
        for option in main.filter(|option| option.key() == key) {
            option.default = Value::Text(value.clone());
        }
    }

    /// Whether nobody set it, and the release doesn't say what it is then.
    pub fn is_unset(&self, key: &str) -> bool {
        !self.is_given(key) && self.option(DEFAULT, key).is_none_or(|option| option.default.is_none())
    }

    /// Sections that the release or a file has.
    pub fn sections(&self) -> BTreeSet<&str> {
        self.known.keys().chain(&self.sections).map(String::as_str).collect()
    }

    /// What nothing of this release reads, with the nearest thing that it would.
    pub fn unknown(&mut self, images: &BTreeSet<String>) {
        let mut warnings = Vec::new();
        for ((section, key), given) in &self.given {
            let Some(Origin::File(place)) = given.origin() else { continue };
            let is_source = self.is_source(section, images);
            let keys: Vec<String> = match self.known.get(section) {
                Some(options) => options.iter().map(Opt::key).collect(),
                None if section.ends_with("-user") => user(section, &Value::None).iter().map(Opt::key).collect(),
                None if is_source => source(&Value::None).iter().map(Opt::key).collect(),
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
            || KINDS.iter().any(|kind| {
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
        let origin = given.origin().unwrap_or(&Origin::CommandLine);
        typed(&option, &values).map_err(|(why, hint)| self.wrong(section, key, origin, &why, hint))
    }

    fn wrong(&self, section: &str, key: &str, origin: &Origin, why: &str, hint: Option<String>) -> Error {
        let why = without_logins(why);
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
        let given = self.given.get(&(section.to_owned(), key.to_owned()));
        self.refused_at(given.and_then(Given::origin), problem, Some(hint.into()))
    }

    /// The same with one of the values of an option of `[DEFAULT]` that can be given again.
    pub fn refused_value(&self, key: &str, value: usize, problem: String, hint: Option<String>) -> Error {
        let given = self.given.get(&(DEFAULT.to_owned(), key.to_owned()));
        self.refused_at(given.and_then(|given| given.origins.get(value)), problem, hint)
    }

    fn refused_at(&self, origin: Option<&Origin>, problem: String, hint: Option<String>) -> Error {
        let problem = without_logins(&problem);
        let error = match origin {
            Some(Origin::File(place)) => {
                let problem = Diagnostic::error(problem).at(&place.file, place.span.clone());
                let problems = Diagnostics(vec![with_hint(problem, hint)]);
                return Error::from_diagnostics(format!("{} cannot be used", place.file.path().display()), problems);
            }
            Some(Origin::Environment(name)) => Error::bad_input(problem).cause(format!("it was set by `{name}`")),
            Some(Origin::CommandLine) => Error::bad_input(problem),
            None => {
                Error::bad_input(problem).cause(format!("it stands so in the sources of Kolla {}", self.tree.version))
            }
        };
        match hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }

    /// Where a section's value was written in a file.
    pub fn place(&self, section: &str, key: &str) -> Option<Place> {
        match self.given.get(&(section.to_owned(), key.to_owned())).and_then(Given::origin) {
            Some(Origin::File(place)) => Some(place.clone()),
            _ => None,
        }
    }

    /// Where a section's value was written, in a few words.
    pub fn origin(&self, section: &str, key: &str) -> String {
        match self.given.get(&(section.to_owned(), key.to_owned())).and_then(Given::origin) {
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

    /// A text that says something: where Kolla asks whether there is one, an empty one is none.
    pub fn filled(&self, key: &str) -> Result<Option<String>> {
        Ok(self.text(key)?.filter(|text| !text.is_empty()))
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

    /// An option of `[DEFAULT]` as the release spells it.
    pub fn spelled(&self, key: &str) -> String {
        self.option(DEFAULT, key).map_or_else(|| key.to_owned(), |option| option.name)
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
