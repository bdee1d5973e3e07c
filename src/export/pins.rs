//! What ADD fetches, in a text that says which file or commit is meant.

use std::collections::BTreeMap;

use super::dockerfile::Edits;
use crate::dockerfile::ast::{Dockerfile, Instruction, InstructionKind, Stage, Transfer};
use crate::dockerfile::step::{Action, Copy, LoweredStage, Source};
use crate::dockerfile::{Resolved, on_unknown_bases};
use crate::fetch::Pin;

/// Writes what `locked` knows to where it is fetched; gives what may be another thing tomorrow.
pub fn pin(resolved: &Resolved, locked: &BTreeMap<String, Pin>, edits: &mut Edits) -> Vec<String> {
    let mut open = Vec::new();
    for lowered in on_unknown_bases(resolved) {
        let Some(stage) = resolved.dockerfile.stages.get(lowered.index) else { continue };
        for (instruction, transfer, copy) in transfers(stage, &lowered) {
            for remote in copy.sources.iter().filter_map(|source| copy.remote(source)) {
                let pin = locked.get(&remote.name()).filter(|_| !remote.is_fixed());
                let pinned =
                    pin.is_some_and(|pin| write(&resolved.dockerfile, instruction, transfer, copy, pin, edits));
                if !pinned && !remote.is_fixed() {
                    open.push(remote.name());
                }
            }
        }
    }
    open
}

fn transfers<'a>(
    stage: &'a Stage,
    lowered: &'a LoweredStage,
) -> impl Iterator<Item = (&'a Instruction, &'a Transfer, &'a Copy)> {
    stage.instructions.iter().filter_map(|instruction| {
        let step = lowered.steps.iter().find(|step| step.span == instruction.span)?;
        match (&instruction.kind, &step.action) {
            (InstructionKind::Add(transfer), Action::Copy(copy)) => Some((instruction, transfer, copy)),
            _ => None,
        }
    })
}

/// Whether there is a way to write it that every BuildKit understands.
fn write(
    dockerfile: &Dockerfile,
    instruction: &Instruction,
    transfer: &Transfer,
    copy: &Copy,
    pin: &Pin,
    edits: &mut Edits,
) -> bool {
    let ([source], [word]) = (&copy.sources[..], &transfer.sources[..]) else { return false };
    match (source, pin) {
        (Source::Url(_), Pin::File { digest, .. }) => {
            edits.insert(instruction.span.start + "ADD".len(), format!(" --checksum={digest}"));
        }
        (Source::Git(address), Pin::Commit { id, .. }) => {
            let plain = address.login.is_none() && address.keep_git_dir.is_none() && address.submodules;
            if !plain || address.checksum.is_some() {
                return false;
            }
            let subdir = if address.subdir.is_empty() { String::new() } else { format!(":{}", address.subdir) };
            // Words of the JSON form have the place of the whole list.
            let Some(at) = dockerfile.file.text[word.span.clone()].find(&word.value) else { return false };
            let start = word.span.start + at;
            edits.replace(start..start + word.value.len(), format!("{}#{id}{subdir}", address.remote));
        }
        _ => return false,
    }
    true
}
