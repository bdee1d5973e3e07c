//! Reads typed values out of a table: remembers which keys exist, notes every problem and goes on.

use std::collections::{BTreeMap, BTreeSet};

use crate::diag::{Diagnostic, Diagnostics, Place};

use super::tree::{Entry, Node, Table, Value, to_toml};
use crate::suggest;

/// What reading a file leaves besides the values.
#[derive(Default)]
pub(crate) struct Out {
    pub problems: Diagnostics,
    pub places: BTreeMap<String, Place>,
}

pub(crate) fn error(place: &Place, message: impl Into<String>) -> Diagnostic {
    Diagnostic::error(message).at(&place.file, place.span.clone())
}

/// A check of a text's form; the error says what is wrong without repeating the text.
pub(crate) type Form = fn(&str) -> Result<(), String>;

pub(crate) struct Reader<'a> {
    table: &'a Table,
    /// Of the table itself.
    pub place: &'a Place,
    path: String,
    /// As a person would write its head: `[user]`, `[[check]]`.
    title: String,
    known: Vec<&'static str>,
    /// Its keys are not ours to name.
    open: bool,
    pub out: &'a mut Out,
}

impl<'a> Reader<'a> {
    pub fn new(table: &'a Table, place: &'a Place, out: &'a mut Out) -> Self {
        Reader { table, place, path: String::new(), title: String::new(), known: Vec::new(), open: false, out }
    }

    fn below(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// How a person names a key of this table.
    pub fn name(&self, key: &str) -> String {
        self.below(key)
    }

    fn entry(&mut self, key: &'static str) -> Option<&'a Entry> {
        self.known.push(key);
        #[cfg(test)]
        known::note(self.below(key));
        let entry = self.table.get(key)?;
        self.out.places.insert(self.below(key), entry.node.place.clone());
        Some(entry)
    }

    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Whether something that isn't known (yet) looks like this key: then that is what is wrong, and nothing else.
    pub fn has_like(&self, key: &str) -> bool {
        let mut unknown = self.table.keys().filter(|k| !self.known.contains(&k.as_str()));
        self.has(key) || unknown.any(|k| suggest::nearest(k, [key]).is_some())
    }

    /// The keys of this table, known or not.
    pub fn keys(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.table.keys().map(String::as_str)
    }

    /// A value without a place among those that were read, whatever its key is.
    pub fn peek(&self, key: &str) -> Option<&'a Node> {
        self.table.get(key).map(|e| &e.node)
    }

    /// Of the key as it is written.
    pub fn key_place(&self, key: &str) -> Option<&'a Place> {
        self.table.get(key).map(|e| &e.place)
    }

    pub fn value_place(&self, key: &str) -> &'a Place {
        self.table.get(key).map_or(self.place, |e| &e.node.place)
    }

    /// The value as it stands, for keys that may have several types.
    pub fn node(&mut self, key: &'static str) -> Option<&'a Node> {
        self.entry(key).map(|e| &e.node)
    }

    pub fn wrong_type(&mut self, name: &str, node: &Node, expected: &str) {
        let found = node.value.kind();
        let mut problem = error(&node.place, format!("`{name}` should be {expected}, not {found}"))
            .label(format!("expected {expected}"));
        if expected == "a string"
            && matches!(node.value, Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_))
        {
            let text = node.place.file.text.get(node.place.span.clone()).unwrap_or_default();
            problem = problem.hint(format!("write it in quotes: \"{text}\""));
        } else if let (true, Value::String(text)) = (expected.starts_with("a list"), &node.value) {
            // A command that was written as for a shell.
            let words: Vec<String> = match name.rsplit('.').next() {
                Some("run" | "command" | "cmd" | "entrypoint") => {
                    text.split_whitespace().map(|w| format!("{w:?}")).collect()
                }
                _ => vec![format!("{text:?}")],
            };
            problem = problem.hint(format!("write it as a list: [{}]", words.join(", ")));
        }
        self.out.problems.push(problem);
    }

    pub fn string(&mut self, key: &'static str) -> Option<String> {
        let node = self.node(key)?;
        match &node.value {
            Value::String(text) => Some(text.clone()),
            _ => {
                self.wrong_type(&self.below(key), node, "a string");
                None
            }
        }
    }

    /// A string of a certain form: `what` completes "`x` is not …".
    pub fn form(&mut self, key: &'static str, what: &str, check: Form) -> Option<String> {
        let text = self.string(key)?;
        match check(&text) {
            Ok(()) => Some(text),
            Err(why) => {
                let place = self.value_place(key);
                self.out.problems.push(error(place, format!("`{text}` is not {what}: {why}")));
                None
            }
        }
    }

    /// Absent is false.
    pub fn boolean(&mut self, key: &'static str) -> bool {
        let Some(node) = self.node(key) else { return false };
        if let Value::Boolean(flag) = node.value {
            return flag;
        }
        self.wrong_type(&self.below(key), node, "true or false");
        false
    }

    pub fn integer(&mut self, key: &'static str) -> Option<i64> {
        let node = self.node(key)?;
        match &node.value {
            Value::Integer(i) => Some(*i),
            _ => {
                self.wrong_type(&self.below(key), node, "an integer");
                None
            }
        }
    }

    /// An integer within bounds.
    pub fn number<T: TryFrom<i64>>(&mut self, key: &'static str, range: std::ops::RangeInclusive<i64>) -> Option<T> {
        let number = self.integer(key)?;
        match T::try_from(number) {
            Ok(value) if range.contains(&number) => Some(value),
            _ => {
                let (low, high) = (range.start(), range.end());
                let message = format!("`{}` should be a number from {low} to {high}, not {number}", self.below(key));
                self.out.problems.push(error(self.value_place(key), message));
                None
            }
        }
    }

    /// One of a few words.
    pub fn choice<T: Copy>(&mut self, key: &'static str, choices: &[(&str, T)]) -> Option<T> {
        let text = self.string(key)?;
        let found = choices.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let mut problem = error(self.value_place(key), format!("`{text}` is not a value of `{}`", self.below(key)));
            problem.hint = suggest::hint(&text, choices.iter().map(|(word, _)| *word));
            self.out.problems.push(problem);
        }
        found
    }

    /// A list of some of a few words, in the order of those; `what` completes "`x` is not …". None without the key.
    pub fn some_of<T: Copy>(&mut self, key: &'static str, what: &str, choices: &[(&str, T)]) -> Option<Vec<T>> {
        let known = |text: &str| match choices.iter().any(|(word, _)| *word == text) {
            true => Ok(()),
            false => Err(suggest::hint(text, choices.iter().map(|(word, _)| *word)).unwrap_or_default()),
        };
        let said = self.forms(key, what, known);
        let chosen = choices.iter().filter(|(word, _)| said.iter().any(|s| s == word));
        self.has(key).then(|| chosen.map(|(_, value)| *value).collect())
    }

    /// A list of strings; items of other types and forms are reported and left out.
    pub fn forms(&mut self, key: &'static str, what: &str, check: impl Fn(&str) -> Result<(), String>) -> Vec<String> {
        let Some(node) = self.node(key) else { return Vec::new() };
        self.list_of(&self.below(key), node, what, check, true)
    }

    /// As `forms`, each with its place.
    pub fn placed_forms(
        &mut self,
        key: &'static str,
        what: &str,
        check: impl Fn(&str) -> Result<(), String>,
    ) -> Vec<(String, Place)> {
        let name = self.below(key);
        let texts = self.forms(key, what, check).into_iter().enumerate();
        texts.filter_map(|(i, text)| Some((text, self.out.places.get(&format!("{name}.{i}"))?.clone()))).collect()
    }

    /// As `forms`; items may be anything and may be there several times.
    pub fn strings(&mut self, key: &'static str) -> Vec<String> {
        let Some(node) = self.node(key) else { return Vec::new() };
        self.list_of(&self.below(key), node, "", |_| Ok(()), false)
    }

    pub fn list_of(
        &mut self,
        name: &str,
        node: &Node,
        what: &str,
        check: impl Fn(&str) -> Result<(), String>,
        unique: bool,
    ) -> Vec<String> {
        let Value::Array(items) = &node.value else {
            self.wrong_type(name, node, "a list of strings");
            return Vec::new();
        };
        let mut list = Vec::with_capacity(items.len());
        let mut seen = BTreeSet::new();
        for item in items {
            let Value::String(text) = &item.value else {
                self.wrong_type(&format!("{name}[{}]", list.len()), item, "a string");
                continue;
            };
            if let Err(why) = check(text) {
                self.out.problems.push(error(&item.place, format!("`{text}` is not {what}: {why}")));
            } else if unique && !seen.insert(text) {
                self.out.problems.push(error(&item.place, format!("`{text}` is twice in `{name}`")));
            } else {
                self.out.places.insert(format!("{name}.{}", list.len()), item.place.clone());
                list.push(text.clone());
            }
        }
        list
    }

    /// A table of strings whose keys are free within a form.
    pub fn string_map(&mut self, key: &'static str, what: &str, check: Form) -> BTreeMap<String, String> {
        let mut map = BTreeMap::new();
        self.each(key, |name, entry, reader| {
            if let Err(why) = check(name) {
                reader.out.problems.push(error(&entry.place, format!("`{name}` is not {what}: {why}")));
                return;
            }
            match &entry.node.value {
                Value::String(text) => {
                    map.insert(name.to_owned(), text.clone());
                }
                _ => reader.wrong_type(&reader.below(name), &entry.node, "a string"),
            }
        });
        map
    }

    /// A table that only recipes read.
    pub fn free(&mut self, key: &'static str) -> toml::Table {
        let Some(node) = self.node(key) else { return toml::Table::new() };
        match &node.value {
            Value::Table(table) => to_toml(table),
            _ => {
                self.wrong_type(&self.below(key), node, "a table");
                toml::Table::new()
            }
        }
    }

    /// A table with known keys; ones that nothing asked for are reported.
    pub fn table<T>(&mut self, key: &'static str, read: impl FnOnce(&mut Reader<'_>) -> T) -> Option<T> {
        let node = self.node(key)?;
        self.table_of(&self.below(key), node, read)
    }

    pub fn table_of<T>(&mut self, name: &str, node: &Node, read: impl FnOnce(&mut Reader<'_>) -> T) -> Option<T> {
        self.titled(name, format!("[{name}]"), node, read)
    }

    fn titled<T>(
        &mut self,
        name: &str,
        title: String,
        node: &Node,
        read: impl FnOnce(&mut Reader<'_>) -> T,
    ) -> Option<T> {
        let Value::Table(table) = &node.value else {
            self.wrong_type(name, node, "a table");
            return None;
        };
        let path = name.to_owned();
        let mut reader =
            Reader { table, place: &node.place, path, title, known: Vec::new(), open: false, out: &mut *self.out };
        let value = read(&mut reader);
        reader.finish();
        Some(value)
    }

    /// `[[key]]`
    pub fn tables(&mut self, key: &'static str, mut read: impl FnMut(&mut Reader<'_>)) {
        let Some(node) = self.node(key) else { return };
        let name = self.below(key);
        let Value::Array(items) = &node.value else {
            self.wrong_type(&name, node, &format!("a list of tables (`[[{name}]]`)"));
            return;
        };
        let title = format!("[[{name}]]");
        for (i, item) in items.iter().enumerate() {
            let name = format!("{name}.{i}");
            self.out.places.insert(name.clone(), item.place.clone());
            self.titled(&name, title.clone(), item, &mut read);
        }
    }

    /// Every entry of a table whose keys are names; the reader is that of the table.
    pub fn each(&mut self, key: &'static str, mut visit: impl FnMut(&str, &Entry, &mut Reader<'_>)) {
        let Some(node) = self.node(key) else { return };
        let name = self.below(key);
        let Value::Table(table) = &node.value else {
            self.wrong_type(&name, node, "a table");
            return;
        };
        let title = format!("[{name}]");
        let place = &node.place;
        let mut reader =
            Reader { table, place, path: name, title, known: Vec::new(), open: false, out: &mut *self.out };
        for (key, entry) in table {
            reader.out.places.insert(reader.below(key), entry.node.place.clone());
            visit(key, entry, &mut reader);
        }
    }

    /// Whoever reads this table looks at all of its keys.
    pub fn any_key(&mut self) {
        self.open = true;
    }

    /// Reports the keys that nothing asked for.
    pub fn finish(self) {
        if self.open {
            return;
        }
        for (key, entry) in self.table {
            if self.known.contains(&key.as_str()) {
                continue;
            }
            let table = if self.title.is_empty() { String::new() } else { format!(" in {}", self.title) };
            let mut problem = error(&entry.place, format!("unknown key `{key}`{table}")).label("unknown key");
            problem.hint = suggest::hint(key, self.known.iter().copied());
            self.out.problems.push(problem);
        }
    }
}

/// Every key that was asked for, with its table, so that a test can hold them against the schemas.
#[cfg(test)]
pub(crate) mod known {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use serde_json::Value;

    thread_local!(static KNOWN: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) });

    pub fn note(key: String) {
        KNOWN.with_borrow_mut(|known| known.insert(key));
    }

    pub fn take() -> BTreeSet<String> {
        KNOWN.take()
    }

    /// Every key of a schema, to hold those against; `x` stands for a free name, `0` for a place in a list.
    pub fn described(schema: &Value) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        keys(schema, "", &mut found);
        found
    }

    fn keys(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
        let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        for (key, value) in schema["properties"].as_object().into_iter().flatten() {
            found.insert(below(key));
            keys(value, &below(key), found);
        }
        for (part, name) in [("additionalProperties", "x"), ("items", "0")] {
            if schema[part].is_object() {
                keys(&schema[part], &below(name), found);
            }
        }
        for choice in schema["anyOf"].as_array().into_iter().flatten() {
            keys(choice, path, found);
        }
    }
}
