//! What parses but is not carried out by the embedded engine yet. Found before anything is built.

use std::collections::BTreeSet;

use super::ast::InstructionKind;
use super::step::{Action, Entitlement, LoweredStage};
use super::{Resolved, platform, resolve};
use crate::diag::{Diagnostic, Diagnostics};

pub(super) fn check(resolved: &Resolved) -> Diagnostics {
    let mut problems = Diagnostics::default();
    let dockerfile = &resolved.dockerfile;
    let file = &dockerfile.file;
    let target = platform::normalised(&resolved.inputs.platform);
    for stage in &resolved.stages {
        let written = &dockerfile.stages[stage.index];
        if let (Some(wanted), Some(word)) = (&stage.platform, &written.from.platform)
            && platform::normalised(wanted) != target
        {
            let message = format!("FROM --platform={wanted} is not the platform that is built for ({target})");
            let problem = Diagnostic::error(message).at(file, word.span.clone()).label("another platform");
            problems.push(problem.hint("the embedded engine builds for one platform: leave `--platform` out"));
        }
        for (instruction, _) in resolve::instructions(dockerfile, &stage.base, written) {
            if let InstructionKind::Run(run) = &instruction.kind
                && let Some(device) = run.devices.first()
            {
                let message = format!("RUN --device={} is not supported yet", device.value);
                let problem = Diagnostic::error(message).at(file, device.span.clone()).label("a device");
                problems.push(problem.hint("leave the flag out, or build with another engine"));
            }
        }
    }
    problems
}

/// Whether a RUN instruction has a flag that may ask for more than every step gets.
pub(super) fn may_ask(resolved: &Resolved) -> bool {
    resolved.stages.iter().any(|stage| {
        let written = &resolved.dockerfile.stages[stage.index];
        resolve::instructions(&resolved.dockerfile, &stage.base, written).any(|(instruction, _)| {
            matches!(&instruction.kind, InstructionKind::Run(run) if run.network.is_some() || run.security.is_some())
        })
    })
}

/// RUN instructions that ask for what is not granted.
pub(super) fn not_granted(
    resolved: &Resolved,
    stages: &[LoweredStage],
    granted: &BTreeSet<Entitlement>,
) -> Diagnostics {
    let mut problems = Diagnostics::default();
    for step in stages.iter().flat_map(|stage| &stage.steps) {
        let Action::Run(run) = &step.action else { continue };
        for entitlement in run.asks_for().filter(|asked| !granted.contains(asked)) {
            let message = format!("RUN {} is not allowed", entitlement.flag());
            problems.push(
                Diagnostic::error(message)
                    .at(&resolved.dockerfile.file, step.span.clone())
                    .label("asks for more than other steps get")
                    .hint(format!("allow it with `--allow {}`", entitlement.as_str())),
            );
        }
    }
    problems
}
