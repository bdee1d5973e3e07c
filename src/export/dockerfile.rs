//! What of a Dockerfile an export has to know or change: names that only Kollage understands, and what a build has to
//! be given.

use std::collections::{BTreeMap, BTreeSet};

use crate::context::is_pattern;
use crate::diag::{Diagnostic, Diagnostics};
use crate::dockerfile::ast::{Dockerfile, Instruction, InstructionKind, MountFlag, Span, Transfer};

/// What stands in place of parts of a text; no two of them overlap.
#[derive(Default)]
pub struct Edits(Vec<(Span, String)>);

impl Edits {
    pub fn replace(&mut self, span: Span, text: impl Into<String>) {
        self.0.push((span, text.into()));
    }

    pub fn insert(&mut self, at: usize, text: impl Into<String>) {
        self.replace(at..at, text);
    }

    pub fn text(mut self, dockerfile: &Dockerfile) -> String {
        let mut text = dockerfile.file.text.clone();
        self.0.sort_by_key(|(span, _)| span.start);
        // From the end, so that places before stay what they are.
        for (span, new) in self.0.iter().rev() {
            text.replace_range(span.clone(), new);
        }
        text
    }
}

/// Other names for images, each by the old name.
pub fn rename(dockerfile: &Dockerfile, names: &BTreeMap<&str, &str>, edits: &mut Edits) -> Result<(), Diagnostics> {
    let mut found = BTreeSet::new();
    for span in places(dockerfile) {
        for (old, new) in names {
            if let Some(at) = find(&dockerfile.file.text[span.clone()], old) {
                edits.replace(span.start + at..span.start + at + old.len(), *new);
                found.insert(*old);
                break;
            }
        }
    }
    let missing = names.keys().filter(|name| !found.contains(**name));
    let problem = |name: &&str| {
        let message = format!("`{name}` is a name that only Kollage understands, and it is the value of an ARG");
        Diagnostic::error(message)
            .at(&dockerfile.file, 0..0)
            .hint("write it out in FROM, or give the base another form")
    };
    let problems: Vec<Diagnostic> = missing.map(problem).collect();
    if problems.is_empty() { Ok(()) } else { Err(Diagnostics(problems)) }
}

/// Where names of images stand, in the order of the file.
fn places(dockerfile: &Dockerfile) -> Vec<Span> {
    let mut places = Vec::new();
    for stage in &dockerfile.stages {
        places.push(stage.from.image.span.clone());
        for instruction in &stage.instructions {
            match &instruction.kind {
                InstructionKind::Add(transfer) | InstructionKind::Copy(transfer) => {
                    places.extend(transfer.from.as_ref().map(|from| from.span.clone()));
                }
                InstructionKind::Run(run) => places.extend(run.mounts.iter().map(|mount| mount.span.clone())),
                _ => {}
            }
        }
    }
    places
}

/// Where a name stands by itself.
fn find(text: &str, name: &str) -> Option<usize> {
    let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '/' | '@' | '.' | '_' | '-');
    text.match_indices(name)
        .map(|(at, _)| at)
        .find(|at| !text[..*at].ends_with(part) && !text[at + name.len()..].starts_with(part))
}

/// What a build of it needs besides the text.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Needs {
    pub context: bool,
    /// It takes files without naming them.
    pub everything: bool,
    pub secrets: BTreeSet<String>,
    pub ssh: BTreeSet<String>,
}

pub fn needs(dockerfile: &Dockerfile) -> Needs {
    let mut needs = Needs::default();
    for instruction in dockerfile.stages.iter().flat_map(|stage| &stage.instructions) {
        add(&mut needs, instruction);
    }
    needs
}

fn add(needs: &mut Needs, instruction: &Instruction) {
    match &instruction.kind {
        InstructionKind::Add(transfer) | InstructionKind::Copy(transfer) if from_context(transfer) => {
            needs.context = true;
            let broad = |source: &str| source.trim_matches(['.', '/']).is_empty() || is_pattern(source);
            needs.everything |= transfer.sources.iter().any(|source| broad(&source.value));
        }
        InstructionKind::Run(run) => run.mounts.iter().for_each(|mount| add_mount(needs, mount)),
        _ => {}
    }
}

fn from_context(transfer: &Transfer) -> bool {
    transfer.from.is_none() && !transfer.sources.is_empty()
}

fn add_mount(needs: &mut Needs, mount: &MountFlag) {
    let field = |names: &[&str]| {
        let mut found = mount.fields.iter().rev().filter(|(name, _)| names.contains(&name.as_str()));
        found.find_map(|(_, value)| value.clone())
    };
    let target = || field(&["target", "dst", "destination"]);
    match field(&["type"]).as_deref().unwrap_or("bind") {
        "secret" => {
            let named = || Some(target()?.rsplit('/').next()?.to_owned());
            needs.secrets.extend(field(&["id"]).or_else(named));
        }
        "ssh" => drop(needs.ssh.insert(field(&["id"]).unwrap_or_else(|| "default".into()))),
        "bind" if mount.from().is_none() => {
            needs.context = true;
            needs.everything |= field(&["source", "src"]).is_none();
        }
        _ => {}
    }
}
