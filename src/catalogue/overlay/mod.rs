//! Overlays: a maintainer's own changes to a catalogue that is somebody else's.
//!
//! An overlay is a directory with an `overlay.toml`, and with `images/` and `plugins/` of its own where it adds some.
//! Its changes are made to the *trees* of definitions, before anything is read out of them: what a change leads to is
//! judged like what a definition says, and each value keeps its own place. Changes are made in the order of overlays
//! and of the file. One that finds nothing to change is an error, as is one that only looks as if it did something.
//!
//! - [`file`]: reads `overlay.toml`
//! - [`edit`]: makes one change to one tree
//! - [`judge`]: which changes found nothing, and both places of what went wrong because of one

use std::path::PathBuf;

use crate::diag::Place;

use super::pattern::Pattern;
use super::tree::{Node, Table};

mod edit;
mod file;
mod judge;

pub(super) use edit::Tried;
pub(super) use file::{load, read_overlay};
pub(super) use judge::{Touched, judge};

pub(super) const FILE: &str = "overlay.toml";

#[derive(Debug)]
pub(super) struct Overlay {
    /// As it was named.
    pub root: PathBuf,
    pub changes: Vec<Change>,
}

/// One `[[change]]` or `[[patch]]`.
#[derive(Debug)]
pub(super) struct Change {
    pub what: What,
    pub targets: Vec<Target>,
    pub edits: Vec<Edit>,
}

impl Change {
    /// Whether a definition is meant, by its name or by a glob.
    fn is_for(&self, name: &str) -> bool {
        self.targets.iter().any(|target| target.pattern.matches(name))
    }

    /// Whether it is meant by its name.
    fn names(&self, name: &str) -> bool {
        self.targets.iter().any(|target| target.pattern.literal() == Some(name))
    }
}

/// Definitions by name or glob, with the place of the pattern.
#[derive(Debug)]
pub(super) struct Target {
    pub pattern: Pattern,
    pub place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Images,
    Plugins,
}

impl What {
    pub fn noun(self) -> &'static str {
        match self {
            What::Images => "image",
            What::Plugins => "plugin",
        }
    }
}

#[derive(Debug)]
pub(super) struct Edit {
    /// Where it stands, for whoever looks for what changed a value.
    pub place: Place,
    pub kind: EditKind,
}

#[derive(Debug)]
pub(super) enum EditKind {
    /// `a.b.append = …`: the keys, the operation, its value.
    Value { path: Vec<String>, operation: Operation, node: Node },
    /// `blocks.NAME = "…"`
    Block(Block),
    /// A file of `[[patch]]`.
    Patch { source: String, patch: Patch },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// Puts items at the end of a list.
    Append,
    /// Takes items out of a list, or with `true` the whole key away.
    Remove,
    /// Gives a key that is there another value.
    Override,
    /// Gives a key that isn't there a value.
    Add,
}

impl Operation {
    pub const ALL: [(&str, Operation); 4] = [
        ("append", Operation::Append),
        ("remove", Operation::Remove),
        ("override", Operation::Override),
        ("add", Operation::Add),
    ];
}

/// A `{% block %}` that takes the place of the recipe's.
#[derive(Clone, Debug)]
pub struct Block {
    pub name: String,
    pub text: String,
    /// Of the text in `overlay.toml`.
    pub place: Place,
    /// The definition is meant by its name and not by a glob.
    pub named: bool,
}

/// A patch for an installed source.
#[derive(Clone, Debug)]
pub struct Patch {
    /// The file's own name.
    pub name: String,
    pub text: String,
    /// Of the entry in `files`.
    pub place: Place,
}

/// What overlays did to a definition besides changing values, in their order.
#[derive(Clone, Debug, Default)]
pub struct Additions {
    pub blocks: Vec<Block>,
    /// With the name of the source.
    pub patches: Vec<(String, Patch)>,
}

impl Overlay {
    /// Makes every change that is meant for this definition.
    pub(super) fn apply(
        &self,
        number: usize,
        what: What,
        name: &str,
        definition: (&mut Table, &Place),
        additions: &mut Additions,
        tried: &mut Vec<Tried>,
    ) {
        let (table, head) = definition;
        for (position, change) in self.meant(what, name) {
            let named = change.names(name);
            for (edit, made) in change.edits.iter().enumerate() {
                let result = made.apply(table, head, named, additions);
                let at = [number, position, edit];
                tried.push(Tried { at, owner: format!("{} `{name}`", what.noun()), name: name.to_owned(), result });
            }
        }
    }

    /// The changes that are meant for a definition, with their positions.
    fn meant(&self, what: What, name: &str) -> impl Iterator<Item = (usize, &Change)> {
        self.changes.iter().enumerate().filter(move |(_, change)| change.what == what && change.is_for(name))
    }

    /// For an image that is nothing but a Dockerfile: what is meant for it finds nothing.
    pub(super) fn refuse(&self, number: usize, name: &str, head: &Place) -> Vec<Tried> {
        let why = edit::Missing {
            message: "is a plain Dockerfile, in which an overlay can change nothing".into(),
            place: head.clone(),
            at: None,
            hint: Some("build on it with an image of your own, or copy it".into()),
        };
        let tried = |at: [usize; 3]| Tried {
            at,
            owner: format!("image `{name}`"),
            name: name.to_owned(),
            result: Err(why.clone()),
        };
        let meant = self.meant(What::Images, name);
        meant.flat_map(|(i, change)| (0..change.edits.len()).map(move |edit| [number, i, edit])).map(tried).collect()
    }
}
