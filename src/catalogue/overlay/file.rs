//! Reads `overlay.toml`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use globset::GlobBuilder;

use crate::diag::{Diagnostic, Diagnostics, Place, SourceFile};

use super::super::definition::read;
use super::super::names;
use super::super::pattern::Pattern;
use super::super::reader::{Out, Reader, error};
use super::super::tree::{self, Node, Value};
use super::{Block, Change, Edit, EditKind, FILE, Operation, Overlay, Patch, Target, What};
use crate::suggest;

/// `asked` is where the overlay is named, in a file; None: on the command line.
pub(in super::super) fn load(root: &Path, asked: Option<&Place>, problems: &mut Diagnostics) -> Option<Overlay> {
    let path = root.join(FILE);
    if !path.is_file() {
        let message = match root.is_dir() {
            true => format!("`{}` is no overlay: there is no `{FILE}` in it", root.display()),
            false => format!("there is no directory `{}` for an overlay", root.display()),
        };
        problems.push(match asked {
            Some(place) => error(place, message),
            None => Diagnostic::error(message).hint("`--overlay` names a directory with an overlay.toml"),
        });
        return None;
    }
    let file = read(&path, problems)?;
    Some(read_overlay(root, &file, problems))
}

pub(in super::super) fn read_overlay(root: &Path, file: &Arc<SourceFile>, problems: &mut Diagnostics) -> Overlay {
    let mut overlay = Overlay { root: root.to_owned(), changes: Vec::new() };
    let Some(Node { value: Value::Table(entries), place }) = tree::parse(file, problems) else { return overlay };
    let mut out = Out { problems: std::mem::take(problems), places: BTreeMap::new() };
    let mut reader = Reader::new(&entries, &place, &mut out);
    reader.tables("change", |reader| overlay.changes.extend(change(reader)));
    reader.tables("patch", |reader| overlay.changes.extend(patch(reader, root)));
    reader.finish();
    *problems = out.problems;
    overlay
}

/// `images = […]` or `plugins = […]`: a table `plugins` is that of an image.
fn targets(reader: &mut Reader<'_>, paths: bool) -> Option<(What, Vec<Target>)> {
    let list = |reader: &Reader<'_>, key: &str| {
        reader.has(key) && !(paths && key == "plugins" && reader.peek(key).is_some_and(|n| n.table().is_some()))
    };
    let found = match (list(reader, "images"), list(reader, "plugins")) {
        (true, false) => (What::Images, "images"),
        (false, true) => (What::Plugins, "plugins"),
        (false, false) if reader.has_like("images") || reader.has_like("plugins") => return None,
        (both, _) => {
            let message = match both {
                true => "the change is for images and for plugins at once",
                false => "the change does not say what it is for",
            };
            let hint = "`images = [\"NAME\"]` or `plugins = [\"NAME\"]`: names or globs";
            reader.out.problems.push(error(reader.place, message).hint(hint));
            reader.node("images");
            reader.node("plugins");
            return None;
        }
    };
    let (what, key) = found;
    let texts = reader.placed_forms(key, "a pattern of names", |text| Pattern::parse(text).map(|_| ()));
    let target = |(text, place): (String, Place)| Some(Target { pattern: Pattern::parse(&text).ok()?, place });
    let targets: Vec<Target> = texts.into_iter().filter_map(target).collect();
    if targets.is_empty() && matches!(reader.peek(key).map(|n| &n.value), Some(Value::Array(items)) if items.is_empty())
    {
        let place = reader.value_place(key);
        reader.out.problems.push(error(place, format!("`{key}` names nothing")));
    }
    Some((what, targets))
}

fn change(reader: &mut Reader<'_>) -> Option<Change> {
    let before = reader.out.problems.0.len();
    let found = targets(reader, true);
    let mut edits = Vec::new();
    if reader.has("blocks") {
        reader.each("blocks", |name, entry, reader| match &entry.node.value {
            Value::String(text) => {
                let (name, text, place) = (name.to_owned(), text.clone(), entry.node.place.clone());
                let block = Block { name, text, place, named: false };
                edits.push(Edit { place: entry.place.clone(), kind: EditKind::Block(block) });
            }
            _ => reader.wrong_type(&reader.name(name), &entry.node, "a string"),
        });
    }
    let selectors = match found.as_ref().map(|(what, _)| *what) {
        Some(What::Images) => &["images", "blocks"][..],
        Some(What::Plugins) => &["plugins", "blocks"],
        None => &["images", "plugins", "blocks"],
    };
    let keys: Vec<String> = reader.keys().filter(|key| !selectors.contains(key)).map(str::to_owned).collect();
    reader.any_key();
    for key in keys {
        if let Some(node) = reader.peek(&key) {
            value_edits(&mut vec![key], node, &mut edits, &mut reader.out.problems);
        }
    }
    // A table has no order; the file has.
    edits.sort_by_key(|edit: &Edit| edit.place.span.start);
    let (what, targets) = found?;
    if edits.is_empty() && reader.out.problems.0.len() == before {
        let hint = "for example `packages.deb.append = [\"tcpdump\"]`";
        reader.out.problems.push(error(reader.place, "the change changes nothing").hint(hint));
    }
    Some(Change { what, targets, edits })
}

/// Everything below a path that ends in an operation. `path` comes back as it was.
fn value_edits(path: &mut Vec<String>, node: &Node, edits: &mut Vec<Edit>, problems: &mut Diagnostics) {
    let Value::Table(table) = &node.value else {
        let name = path.join(".");
        let words = Operation::ALL.iter().map(|(word, _)| *word);
        let last = path.last().map(String::as_str).unwrap_or_default();
        let mut problem = error(&node.place, format!("`{name}` says nothing about how it is to be changed"));
        problem.hint = suggest::near(last, words)
            .or_else(|| Some(format!("write `{name}.override`, `.append`, `.remove` or `.add`")));
        problems.push(problem);
        return;
    };
    let operation = |key: &str| Operation::ALL.iter().find(|(word, _)| *word == key).map(|(_, operation)| *operation);
    let some = table.keys().any(|key| operation(key).is_some());
    for (key, entry) in table {
        match operation(key) {
            Some(operation) => {
                let form = match (operation, &entry.node.value) {
                    (Operation::Append, Value::Array(_)) | (Operation::Override | Operation::Add, _) => Ok(()),
                    (Operation::Remove, Value::Array(_) | Value::Boolean(true)) => Ok(()),
                    (Operation::Append, _) => Err("a list of what is to be appended"),
                    (Operation::Remove, _) => Err("a list of what is to be removed, or `true` for all of it"),
                };
                match form {
                    Ok(()) => edits.push(Edit {
                        place: entry.place.clone(),
                        kind: EditKind::Value { path: path.clone(), operation, node: entry.node.clone() },
                    }),
                    Err(expected) => {
                        let message =
                            format!("`{}.{key}` should be {expected}, not {}", path.join("."), entry.node.value.kind());
                        problems.push(error(&entry.node.place, message));
                    }
                }
            }
            None if some => {
                let message = format!("`{key}` stands beside a word that says how to change `{}`", path.join("."));
                let words = Operation::ALL.iter().map(|(word, _)| *word);
                let mut problem = error(&entry.place, message);
                problem.hint = suggest::hint(key, words);
                problems.push(problem);
            }
            None => {
                path.push(key.clone());
                value_edits(path, &entry.node, edits, problems);
                path.pop();
            }
        }
    }
}

fn patch(reader: &mut Reader<'_>, root: &Path) -> Option<Change> {
    let found = targets(reader, false);
    let source = reader.form("source", "a name of a source", names::component);
    let files = reader.placed_forms("files", "a path in the overlay", names::inside);
    for key in ["source", "files"] {
        if !reader.has_like(key) {
            reader.out.problems.push(error(reader.place, format!("the patch has no `{key}`")));
        }
    }
    let mut edits = Vec::new();
    for (pattern, place) in files {
        let found = matching(root, &pattern).unwrap_or_default();
        if found.is_empty() {
            let message = format!("`{pattern}` matches no file in the overlay");
            let hint = format!("patches are looked for below `{}`", root.display());
            reader.out.problems.push(error(&place, message).hint(hint));
        }
        for path in found {
            match read_patch(&path) {
                Ok(text) => {
                    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                    let patch = Patch { name, text, place: place.clone() };
                    let source = source.clone().unwrap_or_default();
                    edits.push(Edit { place: place.clone(), kind: EditKind::Patch { source, patch } });
                }
                Err(why) => {
                    let message = format!("`{}` is no patch: {why}", path.display());
                    reader.out.problems.push(error(&place, message));
                }
            }
        }
    }
    let (what, targets) = found?;
    source?;
    Some(Change { what, targets, edits })
}

/// The files of a pattern whose last part may be a glob, by name.
fn matching(root: &Path, pattern: &str) -> Option<Vec<std::path::PathBuf>> {
    let (dir, last) = pattern.rsplit_once('/').map_or(("", pattern), |(dir, last)| (dir, last));
    let glob = GlobBuilder::new(last).literal_separator(true).build().ok()?.compile_matcher();
    let entries = std::fs::read_dir(root.join(dir)).ok()?;
    let mut paths: Vec<std::path::PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    paths.retain(|path| path.file_name().is_some_and(|name| glob.is_match(name)));
    paths.sort();
    Some(paths)
}

fn read_patch(path: &Path) -> Result<String, String> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "._+-".contains(c)) {
        return Err("its name has other characters than letters, digits, `.`, `_`, `+` and `-`".into());
    }
    let mut text = crate::text::read_to_string(path).map_err(|e| e.to_string())?;
    let has = |start: &str| text.lines().any(|line| line.starts_with(start));
    if !(has("--- ") && has("+++ ") && has("@@ ")) {
        return Err("it has no `---`, `+++` and `@@` lines of a unified diff".into());
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}
