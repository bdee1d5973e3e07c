//! What became of all changes: those that found nothing, and the other place of a problem that a change led to.

use std::collections::BTreeSet;

use crate::diag::{Diagnostic, Diagnostics, Place};

use super::super::reader::error;
use super::edit::{Done, Missing, Tried};
use super::{Change, Overlay, Target};
use crate::suggest;

/// What changed what, for problems that are found later.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Touched(Vec<Touch>);

#[derive(Clone, Debug)]
struct Touch {
    /// "image `keystone`"
    owner: String,
    /// The whole edit in the overlay: its key and, where it has one, its value.
    edit: Place,
    value: Place,
    done: Done,
}

/// `names` are those of all images or plugins, of the ones that could not be read as well.
pub(in super::super) fn judge(
    overlays: &[Overlay],
    tried: Vec<Tried>,
    names: [&BTreeSet<String>; 2],
    problems: &mut Diagnostics,
) -> Touched {
    for overlay in overlays {
        for change in &overlay.changes {
            let names = names[usize::from(change.what == super::What::Plugins)];
            for target in &change.targets {
                if !names.iter().any(|name| target.pattern.matches(name)) {
                    problems.push(matches_nothing(change, target, names));
                }
            }
        }
    }
    let mut touched = Touched::default();
    let mut made: BTreeSet<[usize; 3]> = BTreeSet::new();
    let mut missing: Vec<(Tried, Missing)> = Vec::new();
    for one in tried {
        let [overlay, change, edit] = one.at;
        let edit = &overlays[overlay].changes[change].edits[edit];
        match &one.result {
            Ok(done) => {
                made.insert(one.at);
                let value = match &edit.kind {
                    super::EditKind::Value { node, .. } => node.place.clone(),
                    super::EditKind::Block(block) => block.place.clone(),
                    super::EditKind::Patch { patch, .. } => patch.place.clone(),
                };
                touched.0.push(Touch { owner: one.owner, edit: edit.place.clone(), value, done: done.clone() });
            }
            Err(why) => {
                let why = why.clone();
                missing.push((one, why));
            }
        }
    }
    // Of a glob, one definition that has what is to be changed is enough; a name means that one.
    let mut told: BTreeSet<[usize; 3]> = BTreeSet::new();
    for (one, why) in missing {
        let [overlay, change, edit] = one.at;
        let change = &overlays[overlay].changes[change];
        if change.names(&one.name) || (!made.contains(&one.at) && told.insert(one.at)) {
            let at = why.at.as_ref().unwrap_or(&change.edits[edit].place);
            let mut problem = error(at, format!("{} {}", one.owner, why.message)).also(&why.place, "the definition");
            problem.hint = why.hint;
            problems.push(problem);
        }
    }
    touched
}

fn matches_nothing(change: &Change, target: &Target, names: &BTreeSet<String>) -> Diagnostic {
    let noun = change.what.noun();
    match target.pattern.literal() {
        Some(name) => {
            let mut problem = error(&target.place, format!("unknown {noun} `{name}`"));
            problem.hint = suggest::hint(name, names.iter().map(String::as_str));
            problem
        }
        None => error(&target.place, format!("`{}` matches no {noun}", target.pattern)),
    }
}

impl Touched {
    /// Shows what was changed beside a problem of the change, and the change beside a problem of what it left.
    pub fn with_both_places(&self, mut problems: Diagnostics) -> Diagnostics {
        for problem in &mut problems.0 {
            let Some(place) = problem.place.clone() else { continue };
            // One change may be made to many; a problem that names one of them is about that one.
            let named = |touch: &Touch| problem.message.contains(&touch.owner);
            let some_named = self.0.iter().any(named);
            let touches: Vec<&Touch> = self.0.iter().filter(|touch| !some_named || named(touch)).collect();
            for touch in touches {
                let other = if within(&place, &touch.value) || within(&place, &touch.edit) {
                    Some((&touch.done.place, format!("{} as it is defined", touch.owner)))
                } else if place.same(&touch.done.table) {
                    Some((&touch.edit, "changed here".to_owned()))
                } else {
                    None
                };
                let Some((other, label)) = other else { continue };
                if !other.same(&place) && !problem.related.iter().any(|(known, _)| known.same(other)) {
                    problem.related.push((other.clone(), label));
                }
            }
        }
        problems
    }
}

fn within(inner: &Place, outer: &Place) -> bool {
    inner.file.path == outer.file.path && outer.span.start <= inner.span.start && inner.span.end <= outer.span.end
}
