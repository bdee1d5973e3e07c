//! Whether a plugin fits the image that it is on and the plugins below it, judged by what its layer did to their files.
//!
//! What a definition can be judged by alone (which images, what it requires, version ranges) is judged when the
//! catalogue is loaded. This is the other half: it takes layers, so it comes right after a plugin is built or found in
//! the store, and for `kollage plugin check`. It is no input of a key: every run judges again.

use std::path::Path;
use std::sync::Arc;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::engine::{Built, Engine};
use crate::error::{Error, Result};
use crate::graph::node::{EdgeKind, Graph, NodeId, NodeKind};
use crate::image::layer::changes::{Change, ChangeKind};

#[cfg(test)]
mod tests;

/// What changes with nearly every installation and harms nobody: records of package managers, byte code of Python, and
/// caches that are made again.
pub const HARMLESS: [&str; 8] = [
    "/**/*.dist-info/RECORD",
    "/**/__pycache__/**",
    "/etc/ld.so.cache",
    "/var/cache/{debconf,ldconfig}/**",
    "/var/lib/apt/extended_states",
    "/var/lib/dpkg/{status,available,lock,lock-frontend,diversions,statoverride}",
    "/var/lib/dpkg/{info,alternatives,triggers,updates}/**",
    "/{tmp,var/tmp,root/.cache}/**",
];

/// [`HARMLESS`], to be matched with.
pub fn harmless() -> Result<GlobSet> {
    set(HARMLESS)
}

/// What a plugin's definition says about its fit.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Files of its parent that it changes, by declaration.
    pub changes: Vec<String>,
    /// Plugins whose files it may change where it declares so.
    pub requires: Vec<String>,
    /// What is wrong is only told.
    pub allowed: bool,
}

/// One thing that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// Whose files they are: a plugin, or the image.
    pub whose: Whose,
    /// With what was done to them, in order.
    pub files: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whose {
    Image,
    Plugin(String),
}

/// What was found about one plugin on one image.
#[derive(Clone, Debug)]
pub struct Verdict {
    pub image: Arc<str>,
    pub plugin: Arc<str>,
    pub allowed: bool,
    pub misfits: Vec<Misfit>,
}

/// The error says what is wrong with a pattern of `changes`, without repeating it.
pub fn check_pattern(pattern: &str) -> Result<(), String> {
    if !pattern.starts_with('/') {
        return Err("it is a path in the image and begins with `/`".into());
    }
    glob(pattern).map(drop)
}

fn glob(pattern: &str) -> Result<globset::Glob, String> {
    GlobBuilder::new(pattern).literal_separator(true).build().map_err(|e| e.kind().to_string())
}

fn set<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<GlobSet> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(glob(pattern).map_err(|why| Error::bad_input(format!("`{pattern}` is not a pattern: {why}")))?);
    }
    set.build().map_err(|e| Error::bad_input("the patterns of changed files cannot be used").cause(e))
}

/// Judges the changes of one plugin, given those of the plugins below it, the lowest first.
pub fn judge(rules: &Rules, own: &[Change], below: &[(&str, Vec<Change>)]) -> Result<Vec<Misfit>> {
    let declared = set(rules.changes.iter().map(String::as_str))?;
    let harmless = set(HARMLESS)?;
    let mut found: std::collections::BTreeMap<Whose, Vec<String>> = std::collections::BTreeMap::new();
    for change in own.iter().filter(|change| change.kind != ChangeKind::Added && !harmless.is_match(&change.path)) {
        // The topmost plugin that wrote it has made it what it was.
        let writer = below.iter().rev().find(|(_, theirs)| theirs.iter().any(|other| wrote(other, &change.path)));
        let by_right = writer.is_none_or(|(name, _)| rules.requires.iter().any(|required| required == name));
        if by_right && declared.is_match(&change.path) {
            continue;
        }
        let done = if change.kind == ChangeKind::Removed { "removed" } else { "changed" };
        let whose = writer.map_or(Whose::Image, |(name, _)| Whose::Plugin((*name).to_owned()));
        found.entry(whose).or_default().push(format!("{done} {}", change.path.display()));
    }
    let misfit = |(whose, mut files): (Whose, Vec<String>)| {
        files.sort();
        Misfit { whose, files }
    };
    Ok(found.into_iter().map(misfit).collect())
}

/// Whether a change is of this file, or of something within this directory.
fn wrote(change: &Change, path: &Path) -> bool {
    change.kind != ChangeKind::Removed && (change.path == path || change.path.starts_with(path))
}

/// Judges a plugin's node; None: it is none, or something that it takes is not built. `built` knows results.
pub fn of_node(
    graph: &Graph,
    id: NodeId,
    engine: &dyn Engine,
    built: &dyn Fn(NodeId) -> Option<Arc<Built>>,
) -> Result<Option<Verdict>> {
    let NodeKind::Plugin { image, plugin, rules, .. } = &graph.node(id).kind else { return Ok(None) };
    let mut chain: Vec<(&str, Arc<Built>)> = Vec::new();
    let mut next = Some(id);
    let mut count = 0;
    while let Some(here) = next {
        let Some(result) = built(here) else { return Ok(None) };
        let node = graph.node(here);
        let NodeKind::Plugin { plugin, .. } = &node.kind else {
            count = result.config.rootfs.diff_ids.len();
            break;
        };
        chain.push((plugin, result));
        next = node.needs.iter().find(|edge| edge.kind == EdgeKind::PluginOf).map(|edge| edge.to);
    }
    let mut below: Vec<(&str, Vec<Change>)> = Vec::new();
    for (name, result) in chain.iter().rev() {
        let changes = engine.changes(result, count)?;
        count = result.config.rootfs.diff_ids.len();
        below.push((name, changes));
    }
    let (_, own) = below.pop().unwrap_or_default();
    let misfits = judge(rules, &own, &below)?;
    let (image, plugin) = (image.clone(), plugin.clone());
    Ok(Some(Verdict { image, plugin, allowed: rules.allowed, misfits }))
}

/// So many files are named; a plugin that rewrites half an image is found with a few of them.
const NAMED: usize = 5;

impl Verdict {
    /// What does not fit, a line for each.
    pub fn lines(&self) -> Vec<String> {
        let line = |misfit: &Misfit| {
            let files = misfit.files.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
            let more = match misfit.files.len().saturating_sub(NAMED) {
                0 => String::new(),
                more => format!(", and {more} more"),
            };
            match &misfit.whose {
                Whose::Image => format!("files of `{}`, undeclared: {files}{more}", self.image),
                Whose::Plugin(other) => format!("files of plugin `{other}`: {files}{more}"),
            }
        };
        self.misfits.iter().map(line).collect()
    }

    /// None: it fits.
    pub fn error(&self) -> Option<Error> {
        if self.misfits.is_empty() {
            return None;
        }
        let (plugin, image) = (&self.plugin, &self.image);
        let mut error = Error::failed(format!("plugin `{plugin}` does not fit on `{image}`"));
        for line in self.lines() {
            error = error.cause(line);
        }
        let undeclared = self.misfits.iter().any(|misfit| misfit.whose == Whose::Image);
        Some(error.hint(match undeclared {
            true => format!(
                "declare what it may change: `changes = [\"/PATH\"]` in [plugin] of `plugins/{plugin}/plugin.toml`; \
                 or allow it: `allow = [\"{plugin}\"]` in [plugins] of kollage.toml"
            ),
            false => format!("choose one of them; or allow it: `allow = [\"{plugin}\"]` in [plugins] of kollage.toml"),
        }))
    }
}
