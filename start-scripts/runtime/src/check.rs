//! Whether what is on disk is what a plan wants. A start uses it to leave alone what is right already, and `--check` to
//! say what isn't.

use crate::error::{Failure, reason, shown};
use crate::files;
use crate::plan::{Node, Own, Plan, Want};
use crate::state::{Original, State, Unit, UnitKind};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// How a node differs from what is at its path, itself alone.
pub fn difference(path: &Path, node: &Node) -> Option<String> {
    let there = match fs::symlink_metadata(path) {
        Ok(there) => there,
        Err(error) => return Some(format!("cannot be looked at ({})", reason(&error))),
    };
    let kind = there.file_type();
    match &node.want {
        // A parent may be a link, but is never planned as one.
        Want::Directory { .. } if !kind.is_dir() => return Some("is not a directory".into()),
        Want::File { .. } | Want::Touched { .. } if !kind.is_file() => return Some("is not a regular file".into()),
        Want::File { content, .. } => match files::same_content(path, content) {
            Ok(true) => {}
            Ok(false) => return Some("has other content than its source".into()),
            Err(error) => return Some(format!("cannot be compared with its source ({})", reason(&error))),
        },
        Want::Link { target } if fs::read_link(path).ok().as_ref() != Some(target) => {
            return Some(format!("is not a link to {}", shown(target)));
        }
        _ => {}
    }
    let Own { uid, gid, mode, .. } = node.own()?;
    if (there.uid(), there.gid()) != (*uid, *gid) {
        return Some(format!("belongs to {}:{}, not to {uid}:{gid}", there.uid(), there.gid()));
    }
    let bits = there.mode() & 0o7777;
    (bits != *mode).then(|| format!("has the permissions {bits:04o}, not {mode:04o}"))
}

/// Every difference between a plan and the disk, and between a plan and the last start.
pub fn plan(plan: &Plan, state: &State) -> Vec<Failure> {
    let mut found = Vec::new();
    plan.root.walk(Path::new("/"), &mut |path, node| {
        if let Some(how) = difference(path, node) {
            found.push(Failure::wrong(format!("{} {how}", shown(path))).of(&node.entry));
        }
        let recorded = state.units.get(path);
        if node.restored && node.is_whole() && recorded.is_none() && !below_whole(state, path) {
            found.push(Failure::wrong(format!("{} is not from the last start", shown(path))).of(&node.entry));
        }
    });
    for (path, unit) in &state.units {
        if !is_current(plan, path, unit) {
            let why = format!("{} is from the last start, but no entry has it now", shown(path));
            found.push(Failure::wrong(why));
            continue;
        }
        for name in &unit.installed {
            let path = path.join(name);
            if plan.at(&path).is_none() {
                found
                    .push(Failure::wrong(format!("{} is from the last start, but no source has it now", shown(&path))));
            }
        }
    }
    found
}

fn below_whole(state: &State, path: &Path) -> bool {
    path.ancestors().skip(1).any(|above| state.units.get(above).is_some_and(|unit| unit.kind == UnitKind::Whole))
}

/// Whether a plan still has a unit, and has it in the same way.
pub fn is_current(plan: &Plan, path: &Path, unit: &Unit) -> bool {
    let above_whole =
        || path.ancestors().skip(1).any(|above| above.parent().is_some() && plan.at(above).is_some_and(Node::is_whole));
    // A directory that entries only pass through now has its own owner back.
    let owned = |node: &Node| node.own().is_some() || !matches!(unit.original, Original::Directory { .. });
    let same = |node: &Node| match unit.kind {
        UnitKind::Whole => node.is_whole(),
        UnitKind::Directory => !node.is_whole() && owned(node),
    };
    plan.at(path).is_some_and(|node| node.restored && same(node)) && !above_whole()
}
