//! FROM lines expanded, and what the target needs: stages of the file and images from outside.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::ast::{Dockerfile, FromLine, Instruction, InstructionKind, Span, Stage, Word};
use super::expand::{Expanded, Expander};
use super::step::{From, StageBase};
use super::{Inputs, Resolved, ResolvedStage, platform};
use crate::diag::{Diagnostic, Diagnostics};
use crate::image::config::Platform;

/// Build arguments that mean something without being declared.
pub const PROXIES: [&str; 5] = ["HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY"];

pub(super) fn resolve(dockerfile: &Arc<Dockerfile>, inputs: &Inputs) -> Result<Resolved, Diagnostics> {
    let mut problems = Diagnostics::default();
    let globals = globals(dockerfile, inputs, &mut problems);
    let mut stages = Vec::new();
    for index in 0..dockerfile.stages.len() {
        stages.push(stage(dockerfile, index, inputs, &globals, &mut problems));
    }
    let target = target(dockerfile, inputs, &mut problems);
    // A reference that cannot work is wrong in a stage that the target needs, as in Docker.
    let (needs, mut wrong): (Vec<Vec<From>>, Vec<Diagnostics>) = (0..stages.len())
        .map(|index| {
            let mut found = Diagnostics::default();
            (needs(dockerfile, inputs, &stages, index, &mut found), found)
        })
        .unzip();
    let Some(target) = target else {
        wrong.into_iter().for_each(|found| problems.extend(found));
        return Err(problems);
    };

    let mut needed = BTreeSet::from([target]);
    // References only ever lead back, so one pass from the end finds everything.
    for index in (0..=target).rev().filter(|index| *index < needs.len()) {
        if needed.contains(&index) {
            needed.extend(needs[index].iter().filter_map(|from| match from {
                From::Stage(stage) => Some(*stage),
                _ => None,
            }));
        }
    }
    for index in &needed {
        problems.extend(wrong.get_mut(*index).map(std::mem::take).unwrap_or_default());
    }
    if problems.has_errors() {
        return Err(problems);
    }
    let mut images: Vec<String> = Vec::new();
    for from in needed.iter().flat_map(|index| &needs[*index]) {
        if let From::Image(name) = from
            && !images.contains(name)
        {
            images.push(name.clone());
        }
    }
    let unused_build_args = unused(dockerfile, inputs);
    let stages = stages.into_iter().filter(|stage| needed.contains(&stage.index)).collect();
    let (dockerfile, inputs) = (dockerfile.clone(), inputs.clone());
    Ok(Resolved { dockerfile, inputs, stages, images, globals, unused_build_args })
}

/// The arguments that say for which platform is built, and on which.
pub fn platform_args(target: &Platform) -> BTreeMap<String, String> {
    let mut args = BTreeMap::new();
    for (prefix, platform) in [("BUILD", &Platform::host()), ("TARGET", target)] {
        args.insert(format!("{prefix}PLATFORM"), platform.to_string());
        args.insert(format!("{prefix}OS"), platform.os.clone());
        args.insert(format!("{prefix}ARCH"), platform.architecture.clone());
        args.insert(format!("{prefix}VARIANT"), platform.variant.clone().unwrap_or_default());
    }
    args
}

/// The predefined arguments about platforms, and the ARG lines before the first FROM.
fn globals(dockerfile: &Dockerfile, inputs: &Inputs, problems: &mut Diagnostics) -> BTreeMap<String, String> {
    let target = inputs.target.clone().filter(|t| !t.is_empty());
    let stage = target.or_else(|| dockerfile.stages.last()?.from.name.as_ref().map(|name| name.value.clone()));
    let mut globals = BTreeMap::new();
    globals.extend(platform_args(&inputs.platform));
    for name in ["BUILDOSVERSION", "TARGETOSVERSION"] {
        globals.insert(name.to_owned(), String::new());
    }
    globals.insert("TARGETSTAGE".into(), stage.unwrap_or_else(|| "default".into()));
    for (name, value) in &mut globals {
        if let Some(given) = inputs.build_args.get(name) {
            value.clone_from(given);
        }
    }
    for instruction in &dockerfile.global_args {
        let InstructionKind::Arg(pairs) = &instruction.kind else { continue };
        for pair in pairs {
            let value = match (inputs.build_args.get(&pair.name.value), &pair.value) {
                (Some(given), _) => Some(given.clone()),
                (None, Some(word)) => expand(dockerfile, word, &globals, problems).map(|e| e.text),
                (None, None) => None,
            };
            if let Some(value) = value {
                globals.insert(pair.name.value.clone(), value);
            }
        }
    }
    globals
}

fn expand(
    dockerfile: &Dockerfile,
    word: &Word,
    globals: &BTreeMap<String, String>,
    problems: &mut Diagnostics,
) -> Option<Expanded> {
    match Expander::new(dockerfile.directives.escape).expand(&word.value, &|name| globals.get(name).cloned()) {
        Ok(expanded) => Some(expanded),
        Err(why) => {
            problems.push(Diagnostic::error(why).at(&dockerfile.file, word.span.clone()).label("cannot be expanded"));
            None
        }
    }
}

fn stage(
    dockerfile: &Dockerfile,
    index: usize,
    inputs: &Inputs,
    globals: &BTreeMap<String, String>,
    problems: &mut Diagnostics,
) -> ResolvedStage {
    let from = &dockerfile.stages[index].from;
    let base = match expand(dockerfile, &from.image, globals, problems) {
        // What is wrong has been said; the stage is only kept for the sake of the others.
        None => StageBase::Scratch,
        Some(expanded) => {
            complete(dockerfile, from, &expanded, problems);
            match (inputs.context(&expanded.text), named_by_from(dockerfile, index, &expanded.text, problems)) {
                (Some(context), _) => StageBase::Image(context.to_owned()),
                (None, Some(stage)) => StageBase::Stage(stage),
                (None, None) if expanded.text == "scratch" => StageBase::Scratch,
                (None, None) => StageBase::Image(expanded.text),
            }
        }
    };
    let wanted = from.platform.as_ref().and_then(|word| {
        let expanded = expand(dockerfile, word, globals, problems)?;
        let platform = platform::parse(&expanded.text, &inputs.platform);
        if platform.is_none() {
            let message = format!("`{}` is not a platform", expanded.text);
            let problem = Diagnostic::error(message).at(&dockerfile.file, word.span.clone()).label("not a platform");
            let hint = unset_hint(&expanded, globals).unwrap_or_else(|| "write it as `linux/amd64`".into());
            problems.push(problem.hint(hint));
        }
        platform
    });
    ResolvedStage { index, base, platform: wanted }
}

/// A variable without a value must not leave half a name.
fn complete(dockerfile: &Dockerfile, from: &FromLine, expanded: &Expanded, problems: &mut Diagnostics) {
    let text = &expanded.text;
    let message = if text.is_empty() {
        "FROM names no image once its variables are expanded".to_owned()
    } else if text.chars().any(char::is_whitespace) {
        format!("`{text}` cannot be the name of an image")
    } else if text.ends_with([':', '@', '/']) || text.starts_with([':', '@']) {
        format!("`{text}` is only part of the name of an image")
    } else {
        return;
    };
    let mut problem = Diagnostic::error(message).at(&dockerfile.file, from.image.span.clone());
    problem.label = Some(format!("this becomes `{text}`").into());
    problem.hint =
        expanded.unset.iter().next().map(|name| {
            format!("give `{name}` a value: `ARG {name}=…` before the first FROM, or `--build-arg {name}=…`")
        });
    problems.push(problem);
}

fn unset_hint(expanded: &Expanded, globals: &BTreeMap<String, String>) -> Option<String> {
    let name = expanded.unset.iter().next()?;
    Some(
        super::nearest(name, globals.keys().cloned())
            .unwrap_or_else(|| format!("`{name}` has no value here: only ARG before the first FROM counts")),
    )
}

/// FROM finds a stage by its name in lower case alone, unlike COPY --from; and no image has a name with capitals.
fn named_by_from(dockerfile: &Dockerfile, index: usize, name: &str, problems: &mut Diagnostics) -> Option<usize> {
    let found = earlier(dockerfile, index, name)?;
    let lower = name.to_ascii_lowercase();
    if lower != name {
        let span = dockerfile.stages[index].from.image.span.clone();
        let message = format!("FROM takes the name of a stage in lower case, not `{name}`");
        problems.push(Diagnostic::error(message).at(&dockerfile.file, span).hint(format!("write `FROM {lower}`")));
    }
    Some(found)
}

/// The last one with that name before `index`.
fn earlier(dockerfile: &Dockerfile, index: usize, name: &str) -> Option<usize> {
    dockerfile.stages[..index].iter().rposition(|stage| stage.is_named(name))
}

fn target(dockerfile: &Dockerfile, inputs: &Inputs, problems: &mut Diagnostics) -> Option<usize> {
    let count = dockerfile.stages.len();
    let Some(name) = inputs.target.as_deref().filter(|name| !name.is_empty()) else { return count.checked_sub(1) };
    // By name only, as in Docker: a number would mean another stage as soon as one is put in front.
    let found = earlier(dockerfile, count, name);
    if found.is_none() {
        let names: Vec<_> =
            dockerfile.stages.iter().filter_map(|stage| stage.from.name.as_ref().map(|n| n.value.clone())).collect();
        let known = match names.as_slice() {
            [] => "no stage of this file has a name".to_owned(),
            names => format!("its stages are {}", names.join(", ")),
        };
        let hint = super::nearest(&name.to_ascii_lowercase(), names.into_iter()).unwrap_or(known);
        let message = format!("there is no stage `{name}` in {}", dockerfile.file.path.display());
        problems.push(Diagnostic::error(message).hint(hint));
    }
    found
}

/// A stage's instructions, led by those that its parent in the same file put off with ONBUILD.
pub(super) fn instructions<'a>(
    dockerfile: &'a Dockerfile,
    base: &StageBase,
    stage: &'a Stage,
) -> impl Iterator<Item = (&'a Instruction, bool)> {
    let parent = match base {
        StageBase::Stage(index) => dockerfile.stages.get(*index),
        _ => None,
    };
    let triggers = parent.into_iter().flat_map(|parent| &parent.instructions).filter_map(|i| match &i.kind {
        InstructionKind::Onbuild(onbuild) => Some((&*onbuild.trigger, true)),
        _ => None,
    });
    triggers.chain(stage.instructions.iter().map(|i| (i, false)))
}

fn needs(
    dockerfile: &Dockerfile,
    inputs: &Inputs,
    stages: &[ResolvedStage],
    index: usize,
    problems: &mut Diagnostics,
) -> Vec<From> {
    let mut needs = match &stages[index].base {
        StageBase::Scratch => Vec::new(),
        StageBase::Stage(stage) => vec![From::Stage(*stage)],
        StageBase::Image(name) => vec![From::Image(name.clone())],
    };
    let stage = &dockerfile.stages[index];
    for (instruction, onbuild) in instructions(dockerfile, &stages[index].base, stage) {
        let place = |span: &Span| if onbuild { stage.from.image.span.clone() } else { span.clone() };
        for (reference, span) in references(instruction) {
            match refer(dockerfile, inputs, index, &reference) {
                Ok(from) => needs.push(from),
                Err((message, hint)) => {
                    let mut problem = Diagnostic::error(message).at(&dockerfile.file, place(&span));
                    problem.label = Some("not usable here".into());
                    problem.hint = hint;
                    problems.push(problem);
                }
            }
        }
    }
    needs
}

/// Where an instruction takes files from, when that is not the context.
pub(super) enum Reference {
    /// COPY: a number means a stage.
    Copy(String),
    Mount(String),
}

pub(super) fn references(instruction: &Instruction) -> Vec<(Reference, Span)> {
    match &instruction.kind {
        InstructionKind::Copy(copy) => {
            let from = copy.from.iter().filter(|from| !from.value.is_empty());
            from.map(|from| (Reference::Copy(from.value.clone()), from.span.clone())).collect()
        }
        InstructionKind::Run(run) => {
            let mounts = run.mounts.iter().filter_map(|mount| Some((mount.from()?, &mount.span)));
            // Nothing is in scratch: a cache or tmpfs from it is an ordinary one.
            let mounts = mounts.filter(|(from, _)| *from != "scratch");
            mounts.map(|(from, span)| (Reference::Mount(from.to_owned()), span.clone())).collect()
        }
        _ => Vec::new(),
    }
}

/// What `reference` means in stage `index`, or what is wrong with it.
pub(super) fn refer(
    dockerfile: &Dockerfile,
    inputs: &Inputs,
    index: usize,
    reference: &Reference,
) -> Result<From, (String, Option<String>)> {
    let (name, number, flag) = match reference {
        Reference::Copy(name) => (name.as_str(), name.parse::<i64>().ok(), "--from"),
        Reference::Mount(name) => (name.as_str(), None, "from"),
    };
    let literal = Expander::new(dockerfile.directives.escape).expand(name, &|_| None);
    if literal.is_ok_and(|expanded| expanded.text != name) {
        let hint = "name the image in a stage of its own with FROM, where variables work, and use the stage's name";
        return Err((format!("variables are not expanded in `{flag}`"), Some(hint.into())));
    }
    let backwards = || Some("a stage can only take files from stages above it".to_owned());
    if let Some(context) = inputs.context(name) {
        return Ok(From::Image(context.to_owned()));
    }
    if let Some(number) = number {
        return match usize::try_from(number) {
            // A context stands for the stage of its name, whatever that is called here.
            Ok(number) if number < index => {
                let own = dockerfile.stages[number].from.name.as_ref().and_then(|name| inputs.context(&name.value));
                Ok(own.map_or(From::Stage(number), |context| From::Image(context.to_owned())))
            }
            Ok(number) if number == index => Err((format!("stage {number} takes files from itself"), backwards())),
            Ok(number) if number < dockerfile.stages.len() => {
                Err((format!("stage {number} comes after the one that takes files from it"), backwards()))
            }
            _ => {
                let hint = format!("the file has {} stages, and they are counted from 0", dockerfile.stages.len());
                Err((format!("there is no stage {number}"), Some(hint)))
            }
        };
    }
    if let Some(stage) = earlier(dockerfile, index, name) {
        return Ok(From::Stage(stage));
    }
    if dockerfile.stages[index].is_named(name) {
        return Err((format!("the stage `{name}` takes files from itself"), backwards()));
    }
    if dockerfile.stages[index..].iter().any(|stage| stage.is_named(name)) {
        return Err((format!("the stage `{name}` comes after the one that takes files from it"), backwards()));
    }
    match reference {
        Reference::Copy(_) if name == "scratch" => Err(("there is nothing in scratch to copy".into(), None)),
        Reference::Mount(_) if name.bytes().all(|b| b.is_ascii_digit()) => {
            let hint = "give the stage a name with `FROM … AS <name>` and use that";
            Err(("a mount takes the name of a stage, not its number".into(), Some(hint.into())))
        }
        _ => Ok(From::Image(name.to_owned())),
    }
}

/// Build arguments that no ARG of the file asks for.
fn unused(dockerfile: &Dockerfile, inputs: &Inputs) -> Vec<String> {
    let all = dockerfile.stages.iter().flat_map(|stage| &stage.instructions).chain(&dockerfile.global_args);
    let mut declared = BTreeSet::new();
    for instruction in all {
        let kind = match &instruction.kind {
            InstructionKind::Onbuild(onbuild) => &onbuild.trigger.kind,
            kind => kind,
        };
        if let InstructionKind::Arg(pairs) = kind {
            declared.extend(pairs.iter().map(|pair| pair.name.value.as_str()));
        }
    }
    let meant = |name: &str| {
        declared.contains(name)
            || PROXIES.iter().any(|proxy| proxy.eq_ignore_ascii_case(name))
            || name == "SOURCE_DATE_EPOCH"
            || name.starts_with("BUILDKIT_")
            || matches!(
                name.strip_prefix("BUILD").or_else(|| name.strip_prefix("TARGET")),
                Some("PLATFORM" | "OS" | "OSVERSION" | "ARCH" | "VARIANT")
            )
    };
    inputs.build_args.keys().filter(|name| !meant(name)).cloned().collect()
}
