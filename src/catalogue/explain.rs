//! A definition as it is after overlays, release and settings, each value with where it comes from.

use std::fmt::Write as _;
use std::path::Path;

use crate::diag::Place;

use super::overlay::Additions;
use super::tree::{Entry, Node, Table, Value};
use super::types::{Catalogue, Recipe};

/// Where a comment begins, when the value before it leaves room.
const COLUMN: usize = 56;

impl Catalogue {
    /// The merged definition of an image, or of a plugin of this name, as TOML with an origin behind each value; None:
    /// there is neither.
    pub fn explain(&self, name: &str) -> Option<String> {
        let mut text = Text { file: None, out: String::new() };
        if let Some(image) = self.images.get(name) {
            text.head("image", name, &image.file.path, &image.recipe);
            text.file = Some(image.file.path.as_path());
            text.table(&mut Vec::new(), &image.tree);
            text.additions(&image.additions);
            self.chosen(name, &mut text);
        } else {
            let plugin = self.plugins.get(name)?;
            text.head("plugin", name, &plugin.file.path, &plugin.recipe);
            text.file = Some(plugin.file.path.as_path());
            text.table(&mut Vec::new(), &plugin.tree);
            text.additions(&plugin.additions);
        }
        self.settings(&mut text);
        Some(text.out)
    }

    fn chosen(&self, image: &str, text: &mut Text<'_>) {
        let Some(plugins) = self.settings.image_plugins.get(image) else { return };
        text.section(&format!("[images.{}]", key(image)));
        let place = self.settings.places.get(&format!("images.{image}.plugins"));
        let list = toml::Value::Array(plugins.iter().cloned().map(toml::Value::String).collect());
        text.line(&format!("plugins = {list}"), &origin(place));
    }

    fn settings(&self, text: &mut Text<'_>) {
        let build = &self.settings.build;
        let string = |text: &str| toml::Value::String(text.to_owned());
        let said = [
            ("base", Some(string(&build.base))),
            ("base_tag", Some(string(&build.base_tag))),
            ("release", (!build.release.is_empty()).then(|| string(&build.release))),
            ("namespace", Some(string(&build.namespace))),
            ("registry", build.registry.as_deref().map(string)),
            ("tag", Some(string(&build.tag))),
            ("source_date_epoch", build.source_date_epoch.map(toml::Value::Integer)),
        ];
        text.section("[build]");
        for (name, value) in said {
            if let Some(value) = value {
                let place = self.settings.places.0.get(&format!("build.{name}"));
                text.line(&format!("{name} = {value}"), &origin(place));
            }
        }
    }
}

/// The file and line; of the command line and the environment, the flag or variable.
fn origin(place: Option<&Place>) -> String {
    match place {
        None => "default".into(),
        Some(place) if place.file.path.starts_with("--set") || !place.file.path.to_string_lossy().contains('.') => {
            place.file.path.display().to_string()
        }
        Some(place) => place.line(),
    }
}

struct Text<'a> {
    /// The definition's own, whose values come first.
    file: Option<&'a Path>,
    out: String,
}

impl Text<'_> {
    fn head(&mut self, what: &str, name: &str, file: &Path, recipe: &Recipe) {
        let recipe = match recipe {
            Recipe::Shared(name) => format!("images/_recipes/{name}.j2"),
            Recipe::Own(path) | Recipe::Dockerfile(path) => path.display().to_string(),
        };
        let _ = writeln!(self.out, "# {what} {name}: {}, recipe {recipe}", file.display());
    }

    fn section(&mut self, title: &str) {
        let _ = writeln!(self.out, "\n{title}");
    }

    fn line(&mut self, value: &str, origin: &str) {
        let _ = writeln!(self.out, "{value:<COLUMN$}  # {origin}");
    }

    /// What a person wrote first comes first.
    fn order<'t>(&self, table: &'t Table) -> Vec<(&'t String, &'t Entry)> {
        let mut entries: Vec<(&String, &Entry)> = table.iter().collect();
        entries.sort_by_key(|(_, entry)| (Some(entry.place.file.path.as_path()) != self.file, entry.place.span.start));
        entries
    }

    fn table(&mut self, path: &mut Vec<String>, table: &Table) {
        let entries = self.order(table);
        let plain: Vec<_> = entries.iter().filter(|(_, entry)| !is_table(&entry.node)).collect();
        if !plain.is_empty() && !path.is_empty() {
            self.section(&format!("[{}]", path.join(".")));
        }
        for (name, entry) in plain {
            self.value(&key(name), &entry.node);
        }
        for (name, entry) in entries.iter().filter(|(_, entry)| is_table(&entry.node)) {
            path.push(key(name));
            match &entry.node.value {
                Value::Table(below) => self.table(path, below),
                Value::Array(items) => {
                    for item in items.iter().filter_map(Node::table) {
                        self.section(&format!("[[{}]]", path.join(".")));
                        for (name, entry) in self.order(item) {
                            self.value(&key(name), &entry.node);
                        }
                    }
                }
                _ => {}
            }
            path.pop();
        }
    }

    fn value(&mut self, name: &str, node: &Node) {
        match &node.value {
            // One origin for all of a list, unless parts of it come from elsewhere.
            Value::Array(items) if items.iter().any(|item| item.place.file.path != node.place.file.path) => {
                let _ = writeln!(self.out, "{name} = [");
                for item in items {
                    self.line(&format!("    {},", item.value.to_toml()), &origin(Some(&item.place)));
                }
                let _ = writeln!(self.out, "]");
            }
            value => self.line(&format!("{name} = {}", value.to_toml()), &origin(Some(&node.place))),
        }
    }

    fn additions(&mut self, additions: &Additions) {
        if !additions.blocks.is_empty() {
            self.section("[blocks]");
        }
        for block in &additions.blocks {
            let text = toml::Value::String(block.text.clone());
            self.line(&format!("{} = {text}", key(&block.name)), &origin(Some(&block.place)));
        }
        for (source, patch) in &additions.patches {
            self.section("[[patch]]");
            self.line(&format!("source = {}", toml::Value::String(source.clone())), &origin(Some(&patch.place)));
            self.line(&format!("file = {}", toml::Value::String(patch.name.clone())), &origin(Some(&patch.place)));
        }
    }
}

/// Whether it is written with a head of its own.
fn is_table(node: &Node) -> bool {
    match &node.value {
        Value::Table(_) => true,
        Value::Array(items) => !items.is_empty() && items.iter().all(|item| item.table().is_some()),
        _ => false,
    }
}

fn key(name: &str) -> String {
    let bare = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if bare { name.to_owned() } else { toml::Value::String(name.to_owned()).to_string() }
}
