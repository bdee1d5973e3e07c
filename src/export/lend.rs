//! A CA bundle of the machine that builds, lent to steps as the embedded engine lends its own: the files are secrets of
//! the build, and where they are is said by arguments, so that no layer and no environment of an image has any of it.

use std::path::Path;

use super::dockerfile::Edits;
use crate::dockerfile::ast::{Dockerfile, InstructionKind, Stage};
use crate::engine::embedded::lend::{Lending, PLACES};

/// Beside the bake file, for apt.
pub const APT_FILE: &str = "lent/apt.conf";

const BUNDLE_ID: &str = "kollage-ca-bundle";
const APT_ID: &str = "kollage-apt-conf";

/// What is lent of `bundle`.
pub struct Lent {
    lending: Lending,
    bundle: String,
}

impl Lent {
    pub fn new(bundle: &Path) -> Lent {
        let lending = Lending { ca_bundle: Some(bundle.to_owned()), ..Lending::default() };
        Lent { lending, bundle: bundle.display().to_string() }
    }

    /// The text of [`APT_FILE`].
    pub fn apt_config(&self) -> String {
        self.lending.apt_config(&PLACES).unwrap_or_default()
    }

    /// For the target of a Dockerfile that runs anything.
    pub fn secrets(&self) -> [String; 2] {
        [format!("id={BUNDLE_ID},src={}", self.bundle), format!("id={APT_ID},src={APT_FILE}")]
    }

    /// Whether there is a step that it is lent to.
    pub fn write(&self, dockerfile: &Dockerfile, edits: &mut Edits) -> bool {
        let mut any = false;
        let mount = |id: &str, target: &str| format!(" --mount=type=secret,id={id},target={target},mode=0444");
        for stage in dockerfile.stages.iter().filter(|stage| runs(stage)) {
            any = true;
            let variables = self.lending.variables(&[], &PLACES);
            let args: String = variables.iter().map(|(name, value)| format!(" {name}={value}")).collect();
            edits.insert(stage.from.span.end, format!("\nARG{args}"));
            for instruction in &stage.instructions {
                if matches!(instruction.kind, InstructionKind::Run(_)) {
                    let flags = mount(BUNDLE_ID, PLACES.bundle) + &mount(APT_ID, PLACES.apt_config);
                    edits.insert(instruction.span.start + "RUN".len(), flags);
                }
            }
        }
        any
    }
}

fn runs(stage: &Stage) -> bool {
    stage.instructions.iter().any(|instruction| matches!(instruction.kind, InstructionKind::Run(_)))
}
