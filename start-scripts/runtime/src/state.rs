//! What was there before. For each path that a plan took over (a *unit*) the record says what to put back when the
//! plan no longer names it. It is written before the path is changed, so that a start that was cut short at any
//! moment is put right by the next.

use crate::config::json::{self, quoted};
use crate::config::value::{Kind, Value};
use crate::error::{Failure, Result, reason, shown};
use crate::files;
use rustix::fs::FlockOperation;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

#[derive(Debug, Default, PartialEq)]
pub struct State {
    pub units: BTreeMap<PathBuf, Unit>,
    /// The entries that leave no other trace (`Config::fixed_sections`).
    pub sections: Vec<String>,
    next_copy: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Unit {
    pub kind: UnitKind,
    pub original: Original,
    /// What the plan has below, relative to the unit.
    pub installed: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum UnitKind {
    /// All that is at the path.
    Whole,
    /// A directory of which the plan has only its owner and mode; what is in it are units of their own.
    Directory,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Original {
    Absent,
    /// A copy of this name in the store.
    Copy(String),
    Directory {
        uid: u32,
        gid: u32,
        mode: u32,
    },
}

/// The directory that holds a record and the copies of originals.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    record: PathBuf,
    /// Held as long as the store is open for changes.
    _lock: Option<File>,
    /// The record as it is on disk.
    saved: String,
    pub state: State,
}

impl Store {
    /// Opens a store for changes, and waits for another that changes it.
    pub fn open(directory: &Path) -> Result<Store> {
        let hint = |error: io::Error| {
            Failure::refused(format!(
                "cannot keep the state in {}: {}; KOLLAGE_STATE_DIR names another place, which can be a tmpfs",
                shown(directory),
                reason(&error)
            ))
        };
        fs::create_dir_all(directory).map_err(hint)?;
        rustix::fs::accessat(rustix::fs::CWD, directory, rustix::fs::Access::WRITE_OK, rustix::fs::AtFlags::EACCESS)
            .map_err(|error| hint(error.into()))?;
        let lock = File::open(directory).map_err(hint)?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive).map_err(|error| hint(error.into()))?;
        let mut store = Store::look(directory)?.unwrap_or_else(|| Store::empty(directory));
        store._lock = Some(lock);
        store.sweep()?;
        Ok(store)
    }

    /// Opens a store to read it. None: nothing was ever recorded.
    pub fn look(directory: &Path) -> Result<Option<Store>> {
        let mut store = Store::empty(directory);
        let bytes = match fs::read(&store.record) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Failure::system(format_args!("read {}", shown(&store.record)), error)),
        };
        let text = String::from_utf8(bytes).unwrap_or_default();
        let state = json::read(&text).ok().and_then(decode);
        store.state = state.ok_or_else(|| {
            Failure::refused(format!("{} is no record of a start; it was changed or cut off", shown(&store.record)))
        })?;
        store.saved = text;
        Ok(Some(store))
    }

    fn empty(directory: &Path) -> Store {
        let record = directory.join("record.json");
        Store { directory: directory.into(), record, _lock: None, saved: String::new(), state: State::default() }
    }

    /// Removes copies that no record names: a start was cut short before it recorded them, or after it put them back.
    fn sweep(&self) -> Result<()> {
        let known = |name: &str| {
            self.state.units.values().any(|unit| matches!(&unit.original, Original::Copy(copy) if copy == name))
        };
        for entry in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let copy = name.to_str().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
            if copy.is_some_and(|copy| !known(copy)) {
                files::remove(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Copies what is at a path into the store. Counts once `save` has recorded it.
    pub fn keep(&mut self, path: &Path) -> Result<Original> {
        let copy = self.state.next_copy.to_string();
        self.state.next_copy += 1;
        files::clone(path, &self.copy(&copy))?;
        Ok(Original::Copy(copy))
    }

    pub fn copy(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Writes the record, if it isn't on disk already.
    pub fn save(&mut self) -> Result<()> {
        let text = encode(&self.state);
        if text != self.saved {
            files::write(&self.record, text.as_bytes(), 0o644)?;
            self.saved = text;
        }
        Ok(())
    }
}

fn encode(state: &State) -> String {
    let list = |entries: Vec<String>| entries.join(", ");
    let units: Vec<String> = state
        .units
        .iter()
        .map(|(path, unit)| {
            let kind = match unit.kind {
                UnitKind::Whole => "whole",
                UnitKind::Directory => "directory",
            };
            let original = match &unit.original {
                Original::Absent => "null".into(),
                Original::Copy(name) => quoted(name),
                Original::Directory { uid, gid, mode } => format!("[{uid}, {gid}, {mode}]"),
            };
            let installed = list(unit.installed.iter().map(|path| escaped(path)).collect());
            format!(
                "\n    {{\"path\": {}, \"kind\": \"{kind}\", \"original\": {original}, \"installed\": [{installed}]}}",
                escaped(path)
            )
        })
        .collect();
    let sections = list(state.sections.iter().map(|section| format!("\n    {}", quoted(section))).collect());
    format!(
        "{{\n  \"version\": 1,\n  \"next_copy\": {},\n  \"sections\": [{sections}],\n  \"units\": [{}]\n}}\n",
        state.next_copy,
        list(units)
    )
}

fn decode(value: Value) -> Option<State> {
    let mut state = State::default();
    let Kind::Map(keys) = value.kind else { return None };
    for (key, value) in keys {
        match (key.name.as_str(), value.kind) {
            ("version", Kind::Number(version)) if version == "1" => {}
            ("next_copy", Kind::Number(number)) => state.next_copy = number.parse().ok()?,
            ("sections", Kind::List(entries)) => {
                state.sections = entries.into_iter().map(text).collect::<Option<_>>()?;
            }
            ("units", Kind::List(entries)) => {
                state.units = entries.into_iter().map(unit).collect::<Option<_>>()?;
            }
            _ => return None,
        }
    }
    Some(state)
}

fn unit(value: Value) -> Option<(PathBuf, Unit)> {
    let Kind::Map(keys) = value.kind else { return None };
    let (mut path, mut unit) =
        (None, Unit { kind: UnitKind::Whole, original: Original::Absent, installed: Vec::new() });
    for (key, value) in keys {
        match (key.name.as_str(), value.kind) {
            ("path", Kind::Text(text)) => path = Some(unescaped(&text)?),
            ("kind", Kind::Text(kind)) if kind == "whole" => unit.kind = UnitKind::Whole,
            ("kind", Kind::Text(kind)) if kind == "directory" => unit.kind = UnitKind::Directory,
            ("original", Kind::Null) => unit.original = Original::Absent,
            ("original", Kind::Text(name)) if !name.contains('/') => unit.original = Original::Copy(name),
            ("original", Kind::List(numbers)) => {
                let numbers: Vec<u32> = numbers.into_iter().map(number).collect::<Option<_>>()?;
                let [uid, gid, mode] = numbers[..] else { return None };
                unit.original = Original::Directory { uid, gid, mode };
            }
            ("installed", Kind::List(paths)) => {
                unit.installed = paths.into_iter().map(|path| unescaped(&text(path)?)).collect::<Option<_>>()?;
            }
            _ => return None,
        }
    }
    Some((path?, unit))
}

fn text(value: Value) -> Option<String> {
    match value.kind {
        Kind::Text(text) => Some(text),
        _ => None,
    }
}

fn number(value: Value) -> Option<u32> {
    match value.kind {
        Kind::Number(number) => number.parse().ok(),
        _ => None,
    }
}

/// Names aren't always UTF-8, but JSON is: bytes that aren't plain ASCII become `%XX`.
fn escaped(path: &Path) -> String {
    let mut text = String::from("\"");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'%' | b'"' | b'\\' => text.push_str(&format!("%{byte:02x}")),
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => text.push_str(&format!("%{byte:02x}")),
        }
    }
    text.push('"');
    text
}

fn unescaped(text: &str) -> Option<PathBuf> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first == b'%' {
            let digits = std::str::from_utf8(after.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(*first);
        }
    }
    Some(PathBuf::from(OsString::from_vec(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path() -> impl Strategy<Value = PathBuf> {
        prop::collection::vec(any::<u8>(), 1..8).prop_map(|bytes| PathBuf::from(OsString::from_vec(bytes)))
    }

    fn unit() -> impl Strategy<Value = Unit> {
        let original = prop_oneof![
            Just(Original::Absent),
            (0..9u32).prop_map(|name| Original::Copy(name.to_string())),
            any::<(u32, u32, u32)>().prop_map(|(uid, gid, mode)| Original::Directory { uid, gid, mode }),
        ];
        let kind = prop_oneof![Just(UnitKind::Whole), Just(UnitKind::Directory)];
        (kind, original, prop::collection::vec(path(), 0..3)).prop_map(|(kind, original, installed)| Unit {
            kind,
            original,
            installed,
        })
    }

    proptest! {
        #[test]
        fn a_record_is_read_as_it_was_written(
            units in prop::collection::btree_map(path(), unit(), 0..4),
            sections in prop::collection::vec(any::<String>(), 0..3),
            next_copy in any::<u64>(),
        ) {
            let state = State { units, sections, next_copy };
            prop_assert_eq!(decode(json::read(&encode(&state)).unwrap()), Some(state));
        }
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Store::look(dir.path()).unwrap().is_none());
        for text in ["", "{\"version\": 2}", "{\"version\": 1, \"units\": [{}]}", "\u{0}", "[]"] {
            fs::write(dir.path().join("record.json"), text).unwrap();
            let failure = Store::look(dir.path()).unwrap_err();
            assert!(failure.problems[0].contains("is no record of a start"), "{text}: {failure:?}");
        }
    }
}
