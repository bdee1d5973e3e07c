//! From values to the types of a configuration. Goes on after a problem, to name all of them.

use super::value::{Kind, Place, Value};
use super::{Config, Copy, Made, Owner, Pattern, Permission, Properties, perm};
use crate::error::{Failure, Problems, Result, shown};
use crate::glob;
use std::path::{Component, Path, PathBuf};

pub(super) fn config(value: Value, file: &Path, command: Option<&str>) -> Result<Config> {
    let mut problems = Problems::default();
    let mut reader = Reader { file, command, problems: &mut problems };
    let config = reader.config(value);
    problems.end()?;
    config.ok_or_else(|| Failure::wrong(format!("{}: no configuration", shown(file))))
}

struct Reader<'a> {
    file: &'a Path,
    /// Of the service, for a configuration without one.
    command: Option<&'a str>,
    problems: &'a mut Problems,
}

/// A mapping whose keys are taken one after the other; what is left over is unknown.
struct Entry {
    name: String,
    at: Place,
    keys: Vec<(super::value::Key, Value)>,
}

impl Entry {
    fn take(&mut self, key: &str) -> Option<Value> {
        let found = self.keys.iter().position(|(there, _)| there.name == key)?;
        let (_, value) = self.keys.swap_remove(found);
        (value.kind != Kind::Null).then_some(value)
    }
}

impl Reader<'_> {
    fn problem(&mut self, at: Place, what: &str, why: impl std::fmt::Display) {
        let what = if what.is_empty() { String::new() } else { format!("{what}: ") };
        self.problems.add(Failure::wrong(format!("{}:{at}: {what}{why}", shown(self.file))));
    }

    fn config(&mut self, value: Value) -> Option<Config> {
        let at = value.at;
        let mut top = self.entry(value, String::new(), &KNOWN_AT_TOP)?;
        let command = match top.take("command") {
            Some(value) => self.text(value, "command"),
            None if self.command.is_some() => self.command.map(Into::into),
            None => {
                self.problem(at, "", "the key `command` is missing");
                None
            }
        };
        if command.as_deref().is_some_and(|command| command.trim().is_empty()) {
            self.problem(at, "command", "is empty");
        }
        let copies = self.section(&mut top, "config_files", &KNOWN_OF_COPY, Self::copy);
        let directories = self.section(&mut top, "directories", &KNOWN_OF_MADE, Self::made);
        let files = self.section(&mut top, "files", &KNOWN_OF_MADE, Self::made);
        let permissions = self.section(&mut top, "permissions", &KNOWN_OF_PERMISSION, Self::permission);
        Some(Config { file: self.file.to_path_buf(), command: command?, directories, files, copies, permissions })
    }

    /// The entries of a section, each read by `read`. A section may be null or `{}` when it has none, as in Kolla.
    fn section<T>(
        &mut self,
        top: &mut Entry,
        section: &str,
        known: &[&str],
        read: impl Fn(&mut Self, Entry) -> Option<T>,
    ) -> Vec<T> {
        let Some(value) = top.take(section) else { return Vec::new() };
        let entries = match value.kind {
            Kind::List(entries) => entries,
            Kind::Map(keys) if keys.is_empty() => Vec::new(),
            other => {
                self.problem(value.at, section, format_args!("must be a list, not {}", other.name()));
                Vec::new()
            }
        };
        let mut all = Vec::new();
        for (index, value) in entries.into_iter().enumerate() {
            let entry = self.entry(value, format!("{section}[{index}]"), known);
            all.extend(entry.and_then(|entry| read(self, entry)));
        }
        all
    }

    fn entry(&mut self, value: Value, name: String, known: &[&str]) -> Option<Entry> {
        let at = value.at;
        let Kind::Map(keys) = value.kind else {
            let what = if name.is_empty() { "the configuration" } else { &name };
            self.problem(at, what, format_args!("must be a mapping, not {}", value.kind.name()));
            return None;
        };
        for (key, _) in &keys {
            if !known.contains(&key.name.as_str()) {
                let hint = match nearest(&key.name, known) {
                    Some(near) => format!("; did you mean `{near}`?"),
                    None => format!("; known are {}", known.join(", ")),
                };
                self.problem(key.at, &name, format_args!("unknown key `{}`{hint}", key.name.escape_debug()));
            }
        }
        Some(Entry { name, at, keys })
    }

    fn copy(&mut self, mut entry: Entry) -> Option<Copy> {
        let source = self.path(&mut entry, "source");
        let dest = self.path(&mut entry, "dest");
        let preserve = self.flag(&mut entry, "preserve_properties");
        let owner = self.owner(&mut entry, false);
        let has_perm = entry.keys.iter().any(|(key, _)| key.name == "perm");
        let perm = self.perm(&mut entry, false);
        let properties = if preserve {
            Some(Properties::Preserved)
        } else {
            if owner.is_none() || !has_perm {
                let missing = if owner.is_none() { "owner" } else { "perm" };
                let why = format!("`{missing}` is missing (or `preserve_properties: true` instead of owner and perm)");
                self.missing(&entry, &why);
            }
            owner.flatten().map(|owner| Properties::Given { owner, perm: perm.flatten() })
        };
        let optional = self.flag(&mut entry, "optional");
        let merge = self.flag(&mut entry, "merge");
        let (source, dest) = (source?, dest?);
        if dest.trim_end_matches('/').is_empty() && !merge && !dest_into(&source, &dest) {
            self.problem(entry.at, &entry.name, "dest `/` would replace the whole root");
        }
        Some(Copy { name: entry.name, source, dest, properties: properties?, optional, merge })
    }

    fn made(&mut self, mut entry: Entry) -> Option<Made> {
        let path = self.path(&mut entry, "path");
        let owner = self.owner(&mut entry, true);
        let perm = self.perm(&mut entry, true);
        let path = path?;
        if glob::has_magic(&path) {
            self.problem(entry.at, &entry.name, format_args!("path `{path}` is a pattern, which makes nothing"));
        }
        Some(Made { name: entry.name, path: PathBuf::from(path), owner: owner??, perm: perm?? })
    }

    fn permission(&mut self, mut entry: Entry) -> Option<Permission> {
        let path = self.path(&mut entry, "path");
        let owner = self.owner(&mut entry, true);
        let perm = self.perm(&mut entry, false);
        let recurse = self.flag(&mut entry, "recurse");
        let mut exclude = Vec::new();
        if let Some(value) = entry.take("exclude") {
            let what = format!("{}.exclude", entry.name);
            match value.kind {
                Kind::List(patterns) => {
                    for (index, pattern) in patterns.into_iter().enumerate() {
                        let what = format!("{what}[{index}]");
                        let at = pattern.at;
                        let Some(text) = self.text(pattern, &what) else { continue };
                        match Pattern::new(&text) {
                            Ok(pattern) => exclude.push(pattern),
                            Err(why) => {
                                self.problem(at, &what, format_args!("`{text}` is no regular expression: {why}"));
                            }
                        }
                    }
                }
                other => self.problem(
                    value.at,
                    &what,
                    format_args!("must be a list of regular expressions, not {}", other.name()),
                ),
            }
        }
        Some(Permission { name: entry.name, path: path?, owner: owner??, perm: perm.flatten(), recurse, exclude })
    }

    fn missing(&mut self, entry: &Entry, why: &str) {
        self.problem(entry.at, &entry.name, why);
    }

    fn text(&mut self, value: Value, what: &str) -> Option<String> {
        match value.kind {
            Kind::Text(text) => Some(text),
            other => {
                self.problem(value.at, what, format_args!("must be a string, not {}", other.name()));
                None
            }
        }
    }

    fn flag(&mut self, entry: &mut Entry, key: &str) -> bool {
        let Some(value) = entry.take(key) else { return false };
        match value.kind {
            Kind::Bool(flag) => flag,
            other => {
                let what = format!("{}.{key}", entry.name);
                self.problem(value.at, &what, format_args!("must be true or false, not {}", other.name()));
                false
            }
        }
    }

    fn path(&mut self, entry: &mut Entry, key: &str) -> Option<String> {
        let Some(value) = entry.take(key) else {
            self.missing(entry, &format!("`{key}` is missing"));
            return None;
        };
        let at = value.at;
        let what = format!("{}.{key}", entry.name);
        let text = self.text(value, &what)?;
        if !text.starts_with('/') || text.contains('\0') {
            self.problem(at, &what, format_args!("`{}` is no absolute path", text.escape_debug()));
            return None;
        }
        if key != "source" && Path::new(&text).components().any(|part| part == Component::ParentDir) {
            self.problem(at, &what, format_args!("`{text}` goes up with `..`; write the path that is meant"));
            return None;
        }
        Some(text)
    }

    /// Outer: whether there is one; inner: whether it is right.
    fn owner(&mut self, entry: &mut Entry, needed: bool) -> Option<Option<Owner>> {
        let Some(value) = entry.take("owner") else {
            if needed {
                self.missing(entry, "`owner` is missing");
            }
            return None;
        };
        let at = value.at;
        let what = format!("{}.owner", entry.name);
        let text = match value.kind {
            Kind::Number(number) => number,
            kind => match self.text(Value { at, kind }, &what) {
                Some(text) => text,
                None => return Some(None),
            },
        };
        let (user, group) = text.split_once(':').unwrap_or((&text, ""));
        if user.is_empty() || group.contains(':') {
            self.problem(at, &what, format_args!("`{}` is not USER or USER:GROUP", text.escape_debug()));
            return Some(None);
        }
        let group = if group.is_empty() { user } else { group };
        Some(Some(Owner { user: user.into(), group: group.into() }))
    }

    /// Outer: whether there is one; inner: whether it is right.
    fn perm(&mut self, entry: &mut Entry, needed: bool) -> Option<Option<u32>> {
        let Some(value) = entry.take("perm") else {
            if needed {
                self.missing(entry, "`perm` is missing");
            }
            return None;
        };
        let what = format!("{}.perm", entry.name);
        let bits = match &value.kind {
            Kind::Text(text) => perm(text),
            // 420 is what other programs make of 0644; only what says that it is octal is taken for it.
            Kind::Number(number) if number.starts_with('0') => perm(number),
            Kind::Number(number) => {
                let why = format!("`{number}` is a number, and may be decimal; write it as a string, like \"0644\"");
                self.problem(value.at, &what, why);
                return Some(None);
            }
            _ => None,
        };
        if bits.is_none() {
            let shown = match &value.kind {
                Kind::Text(text) | Kind::Number(text) => format!("`{}`", text.escape_debug()),
                other => other.name().to_string(),
            };
            let why = format!("{shown} is no permission; write three or four octal digits, like 0644, 2775 or 0o640");
            self.problem(value.at, &what, why);
        }
        Some(bits)
    }
}

const KNOWN_AT_TOP: [&str; 5] = ["command", "config_files", "directories", "files", "permissions"];
const KNOWN_OF_COPY: [&str; 7] = ["source", "dest", "owner", "perm", "optional", "merge", "preserve_properties"];
const KNOWN_OF_MADE: [&str; 3] = ["path", "owner", "perm"];
const KNOWN_OF_PERMISSION: [&str; 5] = ["path", "owner", "perm", "recurse", "exclude"];

/// Whether something is copied into `dest`, and not over it.
fn dest_into(source: &str, dest: &str) -> bool {
    dest.ends_with('/') && !source.ends_with('/')
}

pub(crate) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let near = known.iter().map(|known| (strsim::damerau_levenshtein(name, known), *known)).min()?;
    (near.0 <= 1 + name.len() / 4).then_some(near.1)
}
