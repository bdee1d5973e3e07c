//! Instructions to steps: every variable expanded against what the parent brought and what the stage has set so far.

mod config;
mod files;
mod run;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::ast::{Dockerfile, Instruction, InstructionKind, Span, Word};
use super::expand::Expander;
use super::resolve::{self, Reference};
use super::step::{Action, From, LoweredStage, StageBase, Step};
use super::{Resolved, ResolvedStage, parse, shorten};
use crate::diag::{Diagnostic, Diagnostics};
use crate::image::config::ImageConfig;

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Characters of a title.
const TITLE: usize = 100;

/// All stages, as far as they could be understood, and everything that is wrong.
pub(super) fn lower(
    resolved: &Resolved,
    base: &dyn Fn(&str) -> Option<ImageConfig>,
) -> (Vec<LoweredStage>, Diagnostics) {
    let mut problems = Diagnostics::default();
    let mut ends: BTreeMap<usize, End> = BTreeMap::new();
    let mut lowered = Vec::new();
    for stage in &resolved.stages {
        let start = match &stage.base {
            StageBase::Scratch => scratch(resolved),
            // A stage hands its arguments on, but not its ONBUILD.
            StageBase::Stage(index) => ends.get(index).cloned().unwrap_or_else(|| scratch(resolved)),
            StageBase::Image(name) => {
                let config = base(name).unwrap_or_else(|| {
                    let from = &resolved.dockerfile.stages[stage.index].from;
                    let message = format!("the configuration of `{name}` is not known");
                    let place = (&resolved.dockerfile.file, from.image.span.clone());
                    problems.push(Diagnostic::error(message).at(place.0, place.1).label("this image"));
                    ImageConfig::new(&resolved.inputs.platform)
                });
                End { config, vars: Vars::default(), args: Vec::new() }
            }
        };
        let mut lowering = Lowering::new(resolved, stage, start, &mut problems);
        lowering.run_stage();
        let End { config, vars, args } = lowering.state;
        lowered.push(LoweredStage {
            index: stage.index,
            name: resolved.dockerfile.stages[stage.index].from.name.as_ref().map(|name| name.value.clone()),
            base: stage.base.clone(),
            steps: lowering.steps,
            config: config.clone(),
        });
        ends.insert(stage.index, End { config, vars, args });
    }
    (lowered, problems)
}

fn scratch(resolved: &Resolved) -> End {
    let mut config = ImageConfig::new(&resolved.inputs.platform);
    config.config.working_dir = "/".into();
    End { config, vars: Vars::default(), args: Vec::new() }
}

/// What a stage leaves to those that begin with it.
#[derive(Clone)]
struct End {
    config: ImageConfig,
    /// ENV and ARG together, in the order in which they were set: the last one wins.
    vars: Vars,
    /// Names of ARG lines, for the history.
    args: Vec<String>,
}

#[derive(Clone, Default)]
struct Vars(Vec<(String, String)>);

impl Vars {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn set(&mut self, name: &str, value: &str) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => value.clone_into(old),
            None => self.0.push((name.into(), value.into())),
        }
    }
}

struct Lowering<'a> {
    resolved: &'a Resolved,
    dockerfile: &'a Dockerfile,
    stage: &'a ResolvedStage,
    state: End,
    /// CMD has been set in this stage, so ENTRYPOINT leaves it alone.
    cmd_is_ours: bool,
    steps: Vec<Step>,
    at: At,
    problems: &'a mut Diagnostics,
}

/// The instruction that is being looked at.
struct At {
    line: usize,
    span: Span,
    title: String,
    /// Its text isn't at that place of the file: everything is said at the place of the FROM.
    onbuild: bool,
}

impl<'a> Lowering<'a> {
    fn new(resolved: &'a Resolved, stage: &'a ResolvedStage, state: End, problems: &'a mut Diagnostics) -> Self {
        let at = At { line: 0, span: 0..0, title: String::new(), onbuild: false };
        let dockerfile = &resolved.dockerfile;
        Lowering { resolved, dockerfile, stage, state, cmd_is_ours: false, steps: Vec::new(), at, problems }
    }

    fn run_stage(&mut self) {
        let kept = std::mem::take(&mut self.state.config.config.on_build);
        let config = &mut self.state.config.config;
        if config.env_get("PATH").is_none() && self.state.config.os != "windows" {
            config.env_set("PATH", DEFAULT_PATH);
        }
        for entry in &config.env {
            if let Some((name, value)) = entry.split_once('=') {
                self.state.vars.set(name, value);
            }
        }
        if matches!(self.stage.base, StageBase::Image(_)) {
            for text in kept {
                match parse::trigger(&text) {
                    Ok(instruction) => self.instruction(&instruction, true),
                    Err(problems) => {
                        let why = problems.0.into_iter().map(|p| p.message).next().unwrap_or_default();
                        self.stand_at_from();
                        self.error(format!("the parent's ONBUILD `{}`: {why}", shorten(&text, 60)), None, None);
                    }
                }
            }
        }
        let dockerfile = self.dockerfile;
        let stage = &dockerfile.stages[self.stage.index];
        for (instruction, onbuild) in resolve::instructions(dockerfile, &self.stage.base, stage) {
            self.instruction(instruction, onbuild);
        }
    }

    fn stand_at_from(&mut self) {
        let from = &self.dockerfile.stages[self.stage.index].from;
        self.at = At { line: from.line, span: from.span.clone(), title: String::new(), onbuild: true };
    }

    fn instruction(&mut self, instruction: &Instruction, onbuild: bool) {
        let mut title = title(instruction);
        if onbuild {
            self.stand_at_from();
            title.insert_str(0, "ONBUILD ");
        } else {
            let (line, span) = (instruction.line, instruction.span.clone());
            if let Some(given) = given_title(&self.dockerfile.file.text, span.start) {
                title = given;
            }
            self.at = At { line, span, title: String::new(), onbuild };
        }
        self.at.title = shorten(&crate::fetch::address::without_logins(&title), TITLE);
        // None: what is wrong has been said.
        let _ = match &instruction.kind {
            InstructionKind::Run(run) => self.run(run),
            InstructionKind::Add(transfer) => self.transfer(transfer, true),
            InstructionKind::Copy(transfer) => self.transfer(transfer, false),
            kind => self.configure(kind),
        };
    }

    fn step(&mut self, created_by: String, action: Action) {
        // It becomes the image's history, which everybody sees who has the image.
        let created_by = crate::fetch::address::without_logins(&created_by);
        let (line, span, title) = (self.at.line, self.at.span.clone(), self.at.title.clone());
        self.steps.push(Step { line, span, title, created_by, action });
    }

    /// At `span`, or at the instruction as a whole.
    fn error(&mut self, message: impl Into<String>, span: Option<Span>, hint: Option<String>) {
        let span = span.filter(|_| !self.at.onbuild).unwrap_or_else(|| self.at.span.clone());
        let mut problem = Diagnostic::error(message).at(&self.dockerfile.file, span);
        if self.at.onbuild {
            problem.label = Some(format!("runs `{}`", self.at.title).into());
        }
        problem.hint = hint;
        self.problems.push(problem);
    }

    fn expander(&self) -> Expander {
        Expander::new(self.dockerfile.directives.escape)
    }

    fn expand_text(&self, text: &str, expander: Expander) -> Result<super::expand::Expanded, String> {
        expander.expand(text, &|name| self.state.vars.get(name).map(str::to_owned))
    }

    fn expand(&mut self, word: &Word) -> Option<String> {
        match self.expand_text(&word.value, self.expander()) {
            Ok(expanded) => Some(expanded.text),
            Err(why) => {
                self.error(why, Some(word.span.clone()), None);
                None
            }
        }
    }

    fn expand_optional(&mut self, word: Option<&Word>) -> Option<Option<String>> {
        match word {
            // `--chown=$OWNER` with no value is no flag at all.
            Some(word) => self.expand(word).map(|text| Some(text).filter(|text| !text.is_empty())),
            None => Some(None),
        }
    }

    fn working_dir(&self) -> String {
        super::source::join("/", &self.state.config.config.working_dir)
    }

    /// What `--from` means; it must be among what `resolve` has found.
    fn refer(&mut self, reference: &Reference, span: Option<Span>) -> Option<From> {
        let from = match resolve::refer(self.dockerfile, &self.resolved.inputs, self.stage.index, reference) {
            Ok(from) => from,
            Err((message, hint)) => {
                self.error(message, span, hint);
                return None;
            }
        };
        let missing = match &from {
            From::Context => None,
            From::Stage(index) => (!self.resolved.stages.iter().any(|s| s.index == *index)).then(|| {
                let name = self.dockerfile.stages[*index].from.name.as_ref();
                name.map_or_else(|| index.to_string(), |name| name.value.clone())
            }),
            From::Image(name) => Some(name.clone()).filter(|name| !self.resolved.images.contains(name)),
        };
        if let Some(name) = missing {
            let message = format!("the parent's ONBUILD takes files from `{name}`, which this Dockerfile doesn't name");
            let hint =
                format!("name it in the Dockerfile, for instance with `RUN --mount=from={name},target=/mnt true`");
            self.error(message, span, Some(hint));
            return None;
        }
        Some(from)
    }
}

/// What a comment `# title: …` right above the instruction calls it, for people.
fn given_title(text: &str, start: usize) -> Option<String> {
    let above = text.get(..start)?.strip_suffix('\n')?.rsplit('\n').next()?;
    let title = above.trim().strip_prefix('#')?.trim_start().strip_prefix("title:")?.trim();
    (!title.is_empty()).then(|| title.to_owned())
}

/// One line, without flags of RUN and without bodies of heredocs (only a hint at what the only one holds).
fn title(instruction: &Instruction) -> String {
    let text = match &instruction.kind {
        InstructionKind::Run(run) => match &run.command.form {
            super::ast::Form::Shell(text) => match run.heredocs.as_slice() {
                [only] => format!("RUN {text} ({})", first_line(&only.body)),
                _ => format!("RUN {text}"),
            },
            super::ast::Form::Exec(argv) => format!("RUN {}", argv.join(" ")),
        },
        _ => {
            let rest = instruction.text.get(instruction.keyword.len()..).unwrap_or_default();
            format!("{}{rest}", instruction.keyword)
        }
    };
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The first line that says anything: not a shebang, `set` or comment.
fn first_line(body: &str) -> String {
    let mut lines = body.lines().map(str::trim).filter(|line| !line.is_empty());
    let telling = lines.clone().find(|line| !line.starts_with('#') && !line.starts_with("set -"));
    let line = telling.or_else(|| lines.next()).unwrap_or_default();
    if body.trim().lines().count() > 1 { format!("{line} …") } else { line.to_owned() }
}
