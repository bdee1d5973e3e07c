//! What of a Dockerfile not every builder can do, and where it stands.

use crate::dockerfile::ast::Span;
use crate::dockerfile::step::{Action, From, LoweredStage, MountKind, Network, Security, Source, Step};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    BindMount,
    CacheMount,
    TmpfsMount,
    Secret,
    Ssh,
    /// `RUN --network=`
    Network,
    /// `RUN --security=insecure`
    Insecure,
    /// A here-document that begins with `#!`.
    Script,
    Link,
    /// `--chmod` of files of a stage or image; those of the context have it in the tar.
    Chmod,
    /// `--parents` and `--exclude` of files of a stage or image.
    Selection,
    /// The base's ONBUILD takes files from the context.
    OnbuildCopy,
    /// One ADD takes files of the context and from elsewhere.
    MixedAdd,
}

impl Feature {
    /// As a person would find it in a Dockerfile.
    pub fn shown(self) -> &'static str {
        match self {
            Feature::BindMount => "RUN --mount=type=bind",
            Feature::CacheMount => "RUN --mount=type=cache",
            Feature::TmpfsMount => "RUN --mount=type=tmpfs",
            Feature::Secret => "RUN --mount=type=secret",
            Feature::Ssh => "RUN --mount=type=ssh",
            Feature::Network => "RUN --network",
            Feature::Insecure => "RUN --security=insecure",
            Feature::Script => "a script in a here-document",
            Feature::Link => "COPY --link",
            Feature::Chmod => "COPY --chmod with --from",
            Feature::Selection => "COPY --parents or --exclude with --from",
            Feature::OnbuildCopy => "ONBUILD COPY of the base image",
            Feature::MixedAdd => "ADD of files and addresses at once",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    pub feature: Feature,
    /// Of the instruction.
    pub span: Span,
}

/// Each feature once for every instruction that has it.
pub fn uses(stages: &[LoweredStage]) -> Vec<Use> {
    let mut found: Vec<Use> = Vec::new();
    for step in stages.iter().flat_map(|stage| &stage.steps) {
        for feature in of_step(step) {
            let one = Use { feature, span: step.span.clone() };
            if !found.contains(&one) {
                found.push(one);
            }
        }
    }
    found
}

fn of_step(step: &Step) -> Vec<Feature> {
    let mut found = Vec::new();
    let mut has = |feature: Feature, is: bool| {
        if is {
            found.push(feature);
        }
    };
    match &step.action {
        Action::Run(run) => {
            has(Feature::Network, run.network != Network::Default);
            has(Feature::Insecure, run.security == Security::Insecure);
            has(Feature::Script, run.script.is_some());
            for mount in &run.mounts {
                let feature = match &mount.kind {
                    MountKind::Bind { .. } => Feature::BindMount,
                    MountKind::Cache { .. } => Feature::CacheMount,
                    MountKind::Tmpfs { .. } => Feature::TmpfsMount,
                    MountKind::Secret { .. } => Feature::Secret,
                    MountKind::Ssh { .. } => Feature::Ssh,
                };
                has(feature, true);
            }
        }
        Action::Copy(copy) => {
            let elsewhere = copy.sources.iter().filter(|source| copy.remote(source).is_some()).count();
            has(Feature::Link, copy.link);
            has(Feature::MixedAdd, elsewhere != 0 && elsewhere != copy.sources.len());
            if copy.from == From::Context {
                // Such steps stand at the place of the FROM, and say what they are.
                has(Feature::OnbuildCopy, step.title.starts_with("ONBUILD "));
            } else {
                has(Feature::Chmod, copy.chmod.is_some());
                let parents = copy.sources.iter().any(|source| matches!(source, Source::Parents { .. }));
                has(Feature::Selection, parents || !copy.excludes.is_empty());
            }
        }
        Action::Workdir { .. } | Action::Config => {}
    }
    found
}
