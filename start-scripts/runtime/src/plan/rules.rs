//! The section `permissions`, as far as it is about planned paths. Kolla changes owners a second time after it copied,
//! and finds then in `--check` that a file isn't what its entry says.

use super::{Node, Plan, source::searchable};
use crate::config::Permission;
use crate::glob;
use std::path::{Path, PathBuf};

/// A rule, its owner resolved.
pub(super) struct Rule<'a> {
    pub rule: &'a Permission,
    pub uid: u32,
    pub gid: u32,
}

impl Plan {
    pub(super) fn rule(&mut self, rule: &Rule<'_>) {
        let place = Place::of(&rule.rule.path, self);
        apply(rule, &place, Path::new("/"), &mut self.root);
    }
}

/// The paths that a rule names, links in the way to them followed.
enum Place {
    /// A path without patterns: as it is written, and as it is.
    Path {
        written: PathBuf,
        real: PathBuf,
    },
    Pattern(PathBuf),
}

impl Place {
    fn of(text: &str, plan: &Plan) -> Place {
        if !glob::has_magic(text) {
            let written = PathBuf::from(text);
            return Place::Path { real: plan.real(&written), written };
        }
        let plain = text.split('/').take_while(|part| !glob::has_magic(part)).collect::<Vec<_>>().join("/");
        let rest = text[plain.len()..].trim_start_matches('/');
        Place::Pattern(plan.real(Path::new(if plain.is_empty() { "/" } else { &plain })).join(rest))
    }

    /// How the rule calls a path that it is about: itself named, or below one that is.
    fn covers(&self, path: &Path) -> Option<Covered> {
        match self {
            Place::Path { written, real } => {
                let below = path.strip_prefix(real).ok()?;
                let itself = below.as_os_str().is_empty();
                Some(Covered { itself, called: if itself { written.clone() } else { written.join(below) } })
            }
            Place::Pattern(pattern) => {
                let depth = pattern.components().count();
                let top: PathBuf = path.components().take(depth).collect();
                let itself = path.components().count() == depth;
                glob::matches(pattern, &top).then(|| Covered { itself, called: path.to_path_buf() })
            }
        }
    }
}

struct Covered {
    itself: bool,
    called: PathBuf,
}

fn apply(rule: &Rule<'_>, place: &Place, path: &Path, node: &mut Node) {
    let named = place.covers(path).is_some_and(|covered| {
        covered.itself || rule.rule.recurse && !rule.rule.exclude.iter().any(|pattern| pattern.finds(&covered.called))
    });
    let directory = node.is_directory();
    if named && let Some(own) = node.own_mut() {
        (own.uid, own.gid) = (rule.uid, rule.gid);
        if let Some(perm) = rule.rule.perm {
            own.mode = if directory { searchable(perm) } else { perm };
        }
    }
    if let super::Want::Directory { names, .. } = &mut node.want {
        for (name, node) in names {
            apply(rule, place, &path.join(name), node);
        }
    }
}
