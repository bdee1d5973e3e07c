//! One change to the tree of one definition.

use crate::diag::Place;

use super::super::tree::{self, Entry, Node, Table, Value};
use super::{Additions, Block, Edit, EditKind, Operation};
use crate::suggest;

/// What became of one edit on one definition.
pub(in super::super) struct Tried {
    /// Overlay, change and edit.
    pub at: [usize; 3],
    /// "image `keystone`"
    pub owner: String,
    pub name: String,
    pub result: Result<Done, Missing>,
}

/// Where in the definition something was changed.
#[derive(Clone, Debug)]
pub(in super::super) struct Done {
    /// The value that was there, or the table that now has more.
    pub place: Place,
    /// The table around it.
    pub table: Place,
}

/// What should have been there.
#[derive(Clone, Debug)]
pub(in super::super) struct Missing {
    /// Completes "image `x` …".
    pub message: String,
    /// In the definition, where it was looked for.
    pub place: Place,
    /// In the overlay; None: the edit itself.
    pub at: Option<Place>,
    pub hint: Option<String>,
}

impl Edit {
    /// `head` is the definition's own place; `named` is whether it is meant by its name.
    pub(super) fn apply(
        &self,
        table: &mut Table,
        head: &Place,
        named: bool,
        additions: &mut Additions,
    ) -> Result<Done, Missing> {
        match &self.kind {
            EditKind::Value { path, operation, node } => {
                let edit = ValueEdit { path, operation: *operation, at: &self.place, node };
                match operation {
                    Operation::Append => edit.append(table, head),
                    Operation::Remove => edit.remove(table, head),
                    Operation::Override => edit.replace(table, head),
                    Operation::Add => edit.add(table, head),
                }
            }
            EditKind::Block(block) => {
                additions.blocks.push(Block { named, ..block.clone() });
                Ok(Done { place: head.clone(), table: head.clone() })
            }
            EditKind::Patch { source, patch } => {
                let sources = tree::get(table, &["sources"]);
                let Some(node) = sources.and_then(Node::table).and_then(|sources| sources.get(source)) else {
                    let known = sources.and_then(Node::table).into_iter().flat_map(|sources| sources.keys());
                    return Err(Missing {
                        message: format!("has no source `{source}` to be patched"),
                        place: sources.map_or(head, |node| &node.place).clone(),
                        at: None,
                        hint: suggest::hint(source, known.map(String::as_str)),
                    });
                };
                additions.patches.push((source.clone(), patch.clone()));
                Ok(Done { place: node.place.clone(), table: head.clone() })
            }
        }
    }
}

struct ValueEdit<'a> {
    path: &'a [String],
    operation: Operation,
    at: &'a Place,
    node: &'a Node,
}

impl ValueEdit<'_> {
    fn name(&self) -> String {
        self.path.join(".")
    }

    /// The table that holds the last key, and that key.
    fn table<'t>(&self, table: &'t mut Table, head: &Place) -> Result<(&'t mut Table, Place, &str), Missing> {
        let (last, way) = self.path.split_last().map_or(("", self.path), |(last, way)| (last.as_str(), way));
        let mut here = (table, head.clone());
        for key in way {
            let (table, place) = here;
            if table.get(key).is_none_or(|entry| entry.node.table().is_none()) {
                return Err(self.missing(table, key, place));
            }
            let node = table.get_mut(key).map(|entry| &mut entry.node);
            let Some(Node { place, value: Value::Table(next) }) = node else { return Err(self.lost(head)) };
            here = (next, place.clone());
        }
        Ok((here.0, here.1, last))
    }

    /// As `table`, with tables made where there are none; the place is that of the last one that was there.
    fn make_tables<'t>(&self, table: &'t mut Table, head: &Place) -> Result<(&'t mut Table, Place, &str), Missing> {
        let (last, way) = self.path.split_last().map_or(("", self.path), |(last, way)| (last.as_str(), way));
        let mut here = (table, head.clone());
        for (depth, key) in way.iter().enumerate() {
            let there = here.0.contains_key(key);
            let entry = here.0.entry(key.clone()).or_insert_with(|| Entry {
                place: self.at.clone(),
                node: Node { place: self.at.clone(), value: Value::Table(Table::new()) },
            });
            let Node { place, value } = &mut entry.node;
            match value {
                Value::Table(next) => here = (next, if there { place.clone() } else { here.1 }),
                other => {
                    let message = format!("has {} for `{}`, not a table", other.kind(), self.path[..=depth].join("."));
                    return Err(Missing { message, place: place.clone(), at: None, hint: None });
                }
            }
        }
        Ok((here.0, here.1, last))
    }

    /// `table` is where `key` was looked for.
    fn missing(&self, table: &Table, key: &str, place: Place) -> Missing {
        let hint = match suggest::near(key, table.keys().map(String::as_str)) {
            None if self.operation != Operation::Remove => Some("`add` gives a key that isn't there a value".into()),
            near => near,
        };
        Missing { hint, ..self.lost(&place) }
    }

    fn lost(&self, place: &Place) -> Missing {
        Missing { message: format!("has no `{}`", self.name()), place: place.clone(), at: None, hint: None }
    }

    fn replace(&self, table: &mut Table, head: &Place) -> Result<Done, Missing> {
        let (table, place, last) = self.table(table, head)?;
        let Some(entry) = table.get_mut(last) else { return Err(self.missing(table, last, place)) };
        let old = std::mem::replace(&mut entry.node, self.node.clone());
        Ok(Done { place: old.place, table: place })
    }

    fn add(&self, table: &mut Table, head: &Place) -> Result<Done, Missing> {
        let (table, place, last) = self.make_tables(table, head)?;
        if let Some(entry) = table.get(last) {
            return Err(Missing {
                message: format!("has `{}` already", self.name()),
                place: entry.node.place.clone(),
                at: None,
                hint: Some("`override` gives it another value, `append` makes a list longer".into()),
            });
        }
        table.insert(last.to_owned(), Entry { place: self.at.clone(), node: self.node.clone() });
        Ok(Done { place: place.clone(), table: place })
    }

    fn append(&self, table: &mut Table, head: &Place) -> Result<Done, Missing> {
        let Value::Array(items) = &self.node.value else { return Err(self.lost(head)) };
        // Only recipes know which variables there are: a list that is nowhere would go nowhere.
        if self.path.first().is_some_and(|first| first == "vars") {
            let (table, place, last) = self.table(table, head)?;
            if !table.contains_key(last) {
                return Err(self.missing(table, last, place));
            }
        }
        let (table, place, last) = self.make_tables(table, head)?;
        let Some(entry) = table.get_mut(last) else {
            table.insert(last.to_owned(), Entry { place: self.at.clone(), node: self.node.clone() });
            return Ok(Done { place: place.clone(), table: place });
        };
        let there = entry.node.place.clone();
        let Value::Array(list) = &mut entry.node.value else { return Err(self.no_list(&entry.node)) };
        list.extend(items.iter().cloned());
        Ok(Done { place: there, table: place })
    }

    fn remove(&self, table: &mut Table, head: &Place) -> Result<Done, Missing> {
        let (table, place, last) = self.table(table, head)?;
        let Some(entry) = table.get_mut(last) else { return Err(self.missing(table, last, place)) };
        let there = entry.node.place.clone();
        let Value::Array(items) = &self.node.value else {
            table.remove(last);
            return Ok(Done { place: there, table: place });
        };
        let Value::Array(list) = &mut entry.node.value else { return Err(self.no_list(&entry.node)) };
        for item in items {
            let wanted = item.value.to_toml();
            let before = list.len();
            list.retain(|found| found.value.to_toml() != wanted);
            if list.len() == before {
                let words = list.iter().filter_map(|node| match &node.value {
                    Value::String(text) => Some(text.as_str()),
                    _ => None,
                });
                let hint = match &item.value {
                    Value::String(text) => suggest::near(text, words),
                    _ => None,
                };
                return Err(Missing {
                    message: format!("has no `{}` in `{}`", shown(item), self.name()),
                    place: there,
                    at: Some(item.place.clone()),
                    hint,
                });
            }
        }
        Ok(Done { place: there, table: place })
    }

    fn no_list(&self, node: &Node) -> Missing {
        Missing {
            message: format!("has {} for `{}`, not a list", node.value.kind(), self.name()),
            place: node.place.clone(),
            at: None,
            hint: Some("`override` gives it another value".into()),
        }
    }
}

fn shown(node: &Node) -> String {
    match &node.value {
        Value::String(text) => text.clone(),
        other => other.to_toml().to_string(),
    }
}
