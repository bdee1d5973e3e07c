//! `extend_start.sh` of an image, with those that it takes in, as one script of a start definition.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::kolla::import::{Found, Side};
use crate::kolla::pieces::Kind;

/// What an image does before its service starts.
pub struct Start {
    pub script: String,
    /// Where it came from, below the tree's `docker`.
    pub from: Vec<PathBuf>,
    /// The mode of the file, when the whole script is one file of the image's own: the definition's takes its place.
    pub moved: Option<u32>,
}

/// What `kolla_start` takes in.
pub const MAIN: &str = "/usr/local/bin/kolla_extend_start";

/// What ends it in a recipe.
pub const DELIMITER: &str = "END_OF_SCRIPT";

impl Start {
    /// None: other images are built on it, or it has no script.
    pub fn of(name: &str, side: &Side<'_>, roots: &[PathBuf]) -> Option<Start> {
        let chain = side.chain(name);
        if chain.first().is_none_or(|found| found.has_children) {
            return None;
        }
        // The nearest image that brings a script wins.
        let mut scripts: BTreeMap<&str, PathBuf> = BTreeMap::new();
        for found in &chain {
            for (dest, path) in brought(found) {
                scripts.entry(dest).or_insert(path);
            }
        }
        let mut start = Start { script: String::new(), from: Vec::new(), moved: None };
        start.take(MAIN, &scripts, roots, 0)?;
        start.moved = start.own_file(chain[0], roots);
        Some(start)
    }

    /// The image's file that is the definition's from now on, and its mode.
    pub fn moved(&self) -> Option<(String, u32)> {
        let name = self.from.first()?.file_name()?.to_string_lossy().into_owned();
        Some((name, self.moved?))
    }

    fn own_file(&self, found: &Found, roots: &[PathBuf]) -> Option<u32> {
        let [only] = self.from.as_slice() else { return None };
        let path = file(only, roots).filter(|_| only.parent() == Some(&found.image.path))?;
        let uses = found
            .pieces
            .iter()
            .filter(|piece| only.file_name().is_some_and(|name| piece.line.contains(name.to_string_lossy().as_ref())));
        let same = crate::text::read_to_string(&path).is_ok_and(|text| text == self.script);
        let plain = !self.script.lines().any(|line| line.trim() == DELIMITER);
        let mode = std::fs::metadata(&path).ok()?.permissions().mode() & 0o7777;
        (same && plain && uses.count() == 1).then_some(mode)
    }

    fn take(&mut self, script: &str, scripts: &BTreeMap<&str, PathBuf>, roots: &[PathBuf], depth: usize) -> Option<()> {
        let path = scripts.get(script)?;
        let text = crate::text::read_to_string(&file(path, roots)?).ok()?;
        self.from.push(path.clone());
        for (number, line) in text.lines().enumerate() {
            match sourced(line) {
                Some(other) if depth < DEEPEST => {
                    // One that no image brings is empty: a base makes it with `touch`.
                    if self.take(other, scripts, roots, depth + 1).is_none() {
                        self.script.push_str(&format!("# {}: empty here\n:\n", line.trim()));
                    }
                }
                // One interpreter is enough.
                _ if depth > 0 && number == 0 && line.starts_with("#!") => {}
                _ => {
                    self.script.push_str(line);
                    self.script.push('\n');
                }
            }
        }
        Some(())
    }
}

/// A file of the tree; a later directory lies over an earlier one.
pub fn file(path: &Path, roots: &[PathBuf]) -> Option<PathBuf> {
    roots.iter().rev().map(|root| root.join(path)).find(|path| path.is_file())
}

/// Scripts take in scripts that take in scripts, and no more.
const DEEPEST: usize = 4;

/// What `. FILE` or `source FILE` takes in.
fn sourced(line: &str) -> Option<&str> {
    let line = line.trim();
    let rest = line.strip_prefix(". ").or_else(|| line.strip_prefix("source "))?.trim();
    let name = rest.strip_prefix("/usr/local/bin/kolla_")?;
    let plain =
        name.ends_with("extend_start") && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    plain.then_some(rest)
}

/// Start scripts that an image copies: where to, and its file below `docker`.
fn brought(found: &Found) -> Vec<(&str, PathBuf)> {
    let mut all = Vec::new();
    for piece in found.pieces.iter().filter(|piece| piece.keyword == "COPY") {
        let Kind::Transfer { source, dest } = &piece.kind else { continue };
        if dest.starts_with("/usr/local/bin/kolla_") && dest.ends_with("extend_start") {
            all.push((dest.as_str(), found.image.path.join(Path::new(source))));
        }
    }
    all
}
