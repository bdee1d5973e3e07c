//! docs/layers.md: what was compared, and where and why it differs.

use std::path::Path;

/// A difference that is known, with its reason.
pub struct Known {
    pub row: &'static str,
    pub column: &'static str,
    pub why: &'static str,
}

pub const BOTH_REFUSE: &str = "both refuse it";

/// There is nothing to compare.
pub const NOTHING: &str = "—";

/// Docker, and the storage of podman and buildah, set no time before this.
pub const SINCE_1970: &str = "times before 1970 become 1970-01-01 there";

pub const fn known(row: &'static str, column: &'static str, why: &'static str) -> Known {
    Known { row, column, why }
}

pub struct Table {
    pub title: &'static str,
    pub about: &'static str,
    pub columns: &'static [&'static str],
    pub rows: Vec<(&'static str, Vec<String>)>,
    pub faults: Vec<String>,
}

impl Table {
    pub fn new(title: &'static str, about: &'static str, columns: &'static [&'static str]) -> Table {
        Table { title, about, columns, rows: Vec::new(), faults: Vec::new() }
    }

    /// A row of what differs in each column; nothing where nothing does, or one of the words above.
    pub fn row(&mut self, name: &'static str, title: &'static str, found: Vec<Vec<String>>, known: &[Known]) {
        let mut cells = Vec::new();
        for (column, differences) in self.columns.iter().zip(found) {
            let known = known.iter().find(|k| k.row == name && k.column == *column);
            cells.push(match (known, differences.is_empty()) {
                (None, true) => "equal".to_owned(),
                (None, false) if differences == [BOTH_REFUSE] || differences == [NOTHING] => differences.concat(),
                (Some(known), false) => known.why.to_owned(),
                (Some(known), true) => {
                    self.faults.push(format!("{name}, {column}: equal, and not: {}", known.why));
                    "equal".to_owned()
                }
                (None, false) => {
                    self.faults.push(format!("{name}, {column}:\n    {}", differences.join("\n    ")));
                    "differs".to_owned()
                }
            });
        }
        self.rows.push((title, cells));
    }

    fn markdown(&self) -> String {
        let mut out = format!("\n## {}\n\n{}\n\n| |", self.title, self.about);
        self.columns.iter().for_each(|column| out.push_str(&format!(" {column} |")));
        out.push_str(&format!("\n|{}\n", " --- |".repeat(self.columns.len() + 1)));
        for (title, cells) in &self.rows {
            out.push_str(&format!("| {title} | {} |\n", cells.join(" | ")));
        }
        out
    }
}

const HEAD: &str = "# Layers between Kollage and other tools\n
Written by `KOLLAGE_LAYERS_TABLE=docs/layers.md cargo test --test interop`, and checked by every run of it. Whole trees
are compared: type, contents, mode, owner, size, link target, which names are one file, extended attributes, devices, and
times but for those of directories.\n";

/// Everything that was found is known, and the document says it.
pub fn check(tables: &[Table]) {
    let text: String = [HEAD.to_owned()].into_iter().chain(tables.iter().map(Table::markdown)).collect();
    if let Some(path) = std::env::var_os("KOLLAGE_LAYERS_TABLE") {
        std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(path), &text).unwrap();
    }
    let faults: Vec<&str> = tables.iter().flat_map(|table| &table.faults).map(String::as_str).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let written = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/layers.md"));
    assert_eq!(written.unwrap_or_default(), text, "docs/layers.md is not current");
}
