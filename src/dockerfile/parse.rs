//! Logical lines to instructions. Everything that is wrong is found in one pass: a line with a problem is left out
//! and the next one is looked at.

use std::sync::Arc;

use super::ast::{Dockerfile, FromLine, Instruction, InstructionKind, Onbuild, Span, Spanned, Stage};
use super::flags::Flags;
use super::lines::{self, Logical};
use super::words;
use crate::diag::{Diagnostic, Diagnostics, SourceFile};

pub(super) const KEYWORDS: [&str; 18] = [
    "ADD",
    "ARG",
    "CMD",
    "COPY",
    "ENTRYPOINT",
    "ENV",
    "EXPOSE",
    "FROM",
    "HEALTHCHECK",
    "LABEL",
    "MAINTAINER",
    "ONBUILD",
    "RUN",
    "SHELL",
    "STOPSIGNAL",
    "USER",
    "VOLUME",
    "WORKDIR",
];

/// Collects what is wrong and what is only worth knowing.
pub(super) struct Problems<'a> {
    pub file: &'a Arc<SourceFile>,
    pub errors: Diagnostics,
    pub warnings: Diagnostics,
}

impl Problems<'_> {
    pub fn error(&mut self, message: impl Into<String>, span: Span, label: &str, hint: Option<String>) {
        let mut problem = Diagnostic::error(message).at(self.file, span).label(label);
        problem.hint = hint;
        self.errors.push(problem);
    }

    pub fn warning(&mut self, message: impl Into<String>, span: Span, label: &str, hint: &str) {
        self.warnings.push(Diagnostic::warning(message).at(self.file, span).label(label).hint(hint));
    }
}

pub(super) enum Parsed {
    From(FromLine),
    Instruction(Box<Instruction>),
}

pub(super) fn file(file: &Arc<SourceFile>) -> Result<Dockerfile, Diagnostics> {
    let mut problems = Problems { file, errors: Diagnostics::default(), warnings: Diagnostics::default() };
    let lines = lines::read(file, &mut problems.errors, &mut problems.warnings);
    let mut global_args = Vec::new();
    let mut stages: Vec<Stage> = Vec::new();
    let mut too_early = false;
    let mut unreadable_from = false;
    for line in &lines.lines {
        let parsed = line_of(line, lines.directives.escape, &mut problems);
        match (parsed, stages.last_mut()) {
            (Some(Parsed::From(from)), _) => {
                name_is_free(&from, &stages, &mut problems);
                stages.push(Stage { from, instructions: Vec::new() });
            }
            (Some(Parsed::Instruction(instruction)), Some(stage)) => stage.instructions.push(*instruction),
            (Some(Parsed::Instruction(instruction)), None) => match instruction.kind {
                InstructionKind::Arg(_) => global_args.push(*instruction),
                // One report is enough for a file that has lost its FROM.
                _ if too_early || unreadable_from => {}
                _ => {
                    too_early = true;
                    let message = format!("{} comes before the first FROM", instruction.keyword);
                    let hint = Some("begin with FROM; only ARG may stand before it".into());
                    problems.error(message, instruction.span, "belongs to no stage", hint);
                }
            },
            (None, _) => unreadable_from |= line.text.trim_start().to_ascii_uppercase().starts_with("FROM"),
        }
    }
    if stages.is_empty() && problems.errors.is_empty() {
        let what = if lines.lines.is_empty() { "is empty" } else { "has no FROM" };
        let problem = Diagnostic::error(format!("the Dockerfile {what}")).at(file, 0..0);
        problems.errors.push(problem.hint("begin with `FROM <image>`, or with `FROM scratch` for an empty one"));
    }
    if problems.errors.has_errors() {
        return Err(problems.errors);
    }
    let (directives, warnings) = (lines.directives, problems.warnings);
    Ok(Dockerfile { file: file.clone(), directives, global_args, stages, warnings })
}

/// One instruction from the configuration of a parent image, where ONBUILD keeps it as text.
pub(super) fn trigger(text: &str) -> Result<Instruction, Diagnostics> {
    let file = SourceFile::new("ONBUILD", text);
    let mut problems = Problems { file: &file, errors: Diagnostics::default(), warnings: Diagnostics::default() };
    let lines = lines::read(&file, &mut problems.errors, &mut problems.warnings);
    let mut parsed: Vec<_> =
        lines.lines.iter().filter_map(|line| line_of(line, lines.directives.escape, &mut problems)).collect();
    if problems.errors.has_errors() {
        return Err(problems.errors);
    }
    match (parsed.pop(), parsed.len()) {
        (Some(Parsed::Instruction(instruction)), 0) if !matches!(instruction.kind, InstructionKind::Onbuild(_)) => {
            Ok(*instruction)
        }
        _ => Err(Diagnostics(vec![Diagnostic::error(format!("`{text}` is not one instruction"))])),
    }
}

fn line_of(line: &Logical, escape: char, problems: &mut Problems<'_>) -> Option<Parsed> {
    let (keyword, rest) = words::keyword(&line.text, 0..line.text.len());
    let written = &line.text[keyword.clone()];
    let Some(known) = KEYWORDS.iter().find(|known| known.eq_ignore_ascii_case(written)) else {
        let hint = super::nearest(&written.to_ascii_uppercase(), KEYWORDS.iter().map(|k| (*k).to_owned()))
            .unwrap_or_else(|| "if this goes on from the line above, that line has to end in `\\`".into());
        let message = format!("unknown instruction `{}`", super::shorten(written, 40));
        problems.error(message, line.place(keyword), "not an instruction", Some(hint));
        return None;
    };
    let (raw, arguments) = words::flags(&line.text, rest.clone(), escape);
    let flags = Flags::read(known, &raw, line, problems);
    let mut arguments = Arguments { keyword: known, line, escape, range: arguments, flags, problems };
    if *known == "FROM" {
        return arguments.from().map(Parsed::From);
    }
    let kind = match *known {
        "ONBUILD" => arguments.onbuild().map(InstructionKind::Onbuild)?,
        _ => arguments.kind()?,
    };
    let text = line.text.trim().to_owned();
    let instruction = Instruction { line: line.line, span: line.span.clone(), keyword: known, text, kind };
    Some(Parsed::Instruction(Box::new(instruction)))
}

/// What is left of an instruction after its keyword and flags.
pub(super) struct Arguments<'a, 'b> {
    pub keyword: &'static str,
    pub line: &'a Logical,
    pub escape: char,
    pub range: std::ops::Range<usize>,
    pub flags: Flags,
    pub problems: &'a mut Problems<'b>,
}

impl Arguments<'_, '_> {
    pub fn text(&self) -> &str {
        &self.line.text[self.range.clone()]
    }

    pub fn place(&self) -> Span {
        if self.range.is_empty() { self.line.span.clone() } else { self.line.place(self.range.clone()) }
    }

    pub fn word(&self, range: std::ops::Range<usize>) -> Spanned<String> {
        Spanned { value: self.line.text[range.clone()].to_owned(), span: self.line.place(range) }
    }

    pub fn error(&mut self, message: impl Into<String>, span: Span, label: &str, hint: &str) {
        let hint = (!hint.is_empty()).then(|| hint.to_owned());
        self.problems.error(message, span, label, hint);
    }

    fn from(&mut self) -> Option<FromLine> {
        let words = words::split(&self.line.text, self.range.clone());
        let name = match words.as_slice() {
            [_] => None,
            [_, r#as, name] if self.line.text[r#as.clone()].eq_ignore_ascii_case("AS") => Some(self.word(name.clone())),
            [] => {
                self.error("FROM names no image", self.place(), "no image", "write `FROM <image>` or `FROM scratch`");
                return None;
            }
            [_, rest @ ..] => {
                let start = rest.first().map_or(self.range.start, |r| r.start);
                let span = self.line.place(start..self.range.end);
                self.error("FROM takes one image and a name", span, "too much", "write `FROM <image> AS <name>`");
                return None;
            }
        };
        let name = match name {
            Some(name) if is_stage_name(&name.value) => {
                Some(Spanned { value: name.value.to_ascii_lowercase(), span: name.span })
            }
            Some(name) => {
                let message = format!("`{}` cannot be the name of a stage", name.value);
                let hint = "begin with a letter; letters, digits, `-`, `_` and `.` may follow";
                self.error(message, name.span, "not a name", hint);
                return None;
            }
            None => None,
        };
        let image = self.word(words.first()?.clone());
        let platform = self.flags.word("platform");
        Some(FromLine { line: self.line.line, span: self.line.span.clone(), image, platform, name })
    }

    fn onbuild(&mut self) -> Option<Onbuild> {
        let (keyword, rest) = words::keyword(&self.line.text, self.range.clone());
        let written = self.line.text[keyword.clone()].to_ascii_uppercase();
        match written.as_str() {
            "" => {
                self.error("ONBUILD needs an instruction", self.place(), "nothing follows", "");
                return None;
            }
            "ONBUILD" | "FROM" | "MAINTAINER" => {
                let place = self.line.place(keyword);
                self.error(format!("{written} cannot be put off with ONBUILD"), place, "not in ONBUILD", "");
                return None;
            }
            _ => {}
        }
        let Some(known) = KEYWORDS.iter().find(|known| **known == written) else {
            let hint = super::nearest(&written, KEYWORDS.iter().map(|k| (*k).to_owned()));
            let message = format!("unknown instruction `{}`", super::shorten(&written, 40));
            self.problems.error(message, self.line.place(keyword), "not an instruction", hint);
            return None;
        };
        let (raw, range) = words::flags(&self.line.text, rest, self.escape);
        let flags = Flags::read(known, &raw, self.line, self.problems);
        let (line, escape) = (self.line, self.escape);
        let mut inner = Arguments { keyword: known, line, escape, range, flags, problems: &mut *self.problems };
        let kind = inner.kind()?;
        let text = line.text[self.range.clone()].to_owned();
        let mut expression = text.clone();
        for heredoc in &line.heredocs {
            expression.push('\n');
            expression.push_str(&heredoc.body);
            expression.push_str(&heredoc.name);
        }
        let trigger = Instruction { line: line.line, span: line.span.clone(), keyword: known, text, kind };
        Some(Onbuild { expression, trigger: Box::new(trigger) })
    }
}

fn is_stage_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

fn name_is_free(from: &FromLine, stages: &[Stage], problems: &mut Problems<'_>) {
    let Some(name) = &from.name else { return };
    if stages.iter().any(|stage| stage.is_named(&name.value)) {
        let message = format!("two stages are called `{}`", name.value);
        problems.warning(message, name.span.clone(), "the later one wins", "give each stage a name of its own");
    } else if matches!(name.value.as_str(), "scratch" | "context") {
        let message = format!("`{}` has a meaning of its own in Dockerfiles", name.value);
        problems.warning(message, name.span.clone(), "a reserved name", "choose another name for the stage");
    }
}
