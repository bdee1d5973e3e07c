//! What parses but is not carried out by the embedded engine yet. Found before anything is built.

use super::ast::InstructionKind;
use super::step::{Action, LoweredStage, MountKind, Run, Security, Step};
use super::{Resolved, platform, resolve};
use crate::diag::{Diagnostic, Diagnostics};

pub(super) fn check(resolved: &Resolved, stages: &[LoweredStage]) -> Diagnostics {
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
    for step in stages.iter().flat_map(|stage| &stage.steps) {
        let found = match &step.action {
            Action::Run(run) => in_run(run),
            Action::Copy(_) | Action::Workdir { .. } | Action::Config => Vec::new(),
        };
        for (what, hint) in found {
            problems.push(problem(resolved, step, &what, hint));
        }
    }
    problems
}

fn problem(resolved: &Resolved, step: &Step, what: &str, hint: &str) -> Diagnostic {
    Diagnostic::error(format!("{what} is not supported yet"))
        .at(&resolved.dockerfile.file, step.span.clone())
        .label("cannot be carried out")
        .hint(hint)
}

fn in_run(run: &Run) -> Vec<(String, &'static str)> {
    let mut found = Vec::new();
    if run.security == Security::Insecure {
        found
            .push(("RUN --security=insecure".to_owned(), "leave the flag out: steps run with Docker's default rights"));
    }
    if run.mounts.iter().any(|mount| matches!(mount.kind, MountKind::Ssh { .. })) {
        let hint = "lend a key with `--mount=type=secret`, or take the source as a git source of the definition";
        found.push(("RUN --mount=type=ssh".to_owned(), hint));
    }
    found
}
