//! The text of the Dockerfile, with what has to be said otherwise to another engine in place of what stands there.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;

use super::files::{Files, literal, word};
use super::{Bring, Brought, Told};
use crate::context::Context;
use crate::dockerfile::ast::{Heredoc, Instruction, InstructionKind, MountFlag, RunLine, Stage, Transfer};
use crate::dockerfile::step::{Action, Copy, From, LoweredStage, MountKind, Run, Source, StageBase};
use crate::dockerfile::{PROXIES, platform_args};
use crate::engine::embedded::helper::mode::ModeChange;
use crate::engine::{BuildJob, Built};
use crate::error::{Error, Result};

/// Of a file that ADD fetches, as in Docker.
const FETCHED_MODE: u32 = 0o600;
const INLINE_MODE: u32 = 0o644;

type Refer<'a> = &'a dyn Fn(&str, &Built) -> Result<String>;

pub(super) struct Text<'a> {
    job: &'a BuildJob,
    refer: Refer<'a>,
    bring: &'a dyn Bring,
    files: &'a mut Files,
    /// By index, those that the target needs.
    stages: BTreeMap<usize, &'a LoweredStage>,
    /// What stands in place of parts of the file.
    edits: Vec<(Range<usize>, String)>,
    told: Vec<Told>,
}

impl<'a> Text<'a> {
    pub(super) fn new(
        job: &'a BuildJob,
        refer: Refer<'a>,
        bring: &'a dyn Bring,
        files: &'a mut Files,
    ) -> Result<Text<'a>> {
        let stages = job.stages.iter().map(|stage| (stage.index, stage)).collect();
        let mut text = Text { job, refer, bring, files, stages, edits: Vec::new(), told: Vec::new() };
        for instruction in &job.dockerfile.global_args {
            text.tell(None, instruction.line, instruction.text.clone(), false);
        }
        for (index, stage) in job.dockerfile.stages.iter().enumerate() {
            let end = job.dockerfile.end_of_stage(index);
            match text.stages.get(&index).copied() {
                Some(lowered) => text.stage(stage, lowered)?,
                None => text.edits.push((stage.from.span.start..end, String::new())),
            }
        }
        Ok(text)
    }

    fn tell(&mut self, stage: Option<usize>, line: usize, title: String, touches_files: bool) {
        self.told.push(Told { line, stage, title, touches_files });
    }

    /// Place of a stage among those that are left.
    fn number(&self, index: usize) -> usize {
        self.stages.keys().take_while(|known| **known < index).count()
    }

    fn stage(&mut self, stage: &Stage, lowered: &LoweredStage) -> Result<()> {
        let number = Some(self.number(lowered.index));
        if let StageBase::Image(name) = &lowered.base {
            let reference = self.reference(name)?;
            self.edits.push((stage.from.image.span.clone(), reference));
            if let Some(platform) = &stage.from.platform {
                // The image is of the right one; and an older builder knows no such flag.
                self.edits.push((platform.span.clone(), String::new()));
            }
        }
        self.tell(number, stage.from.line, format!("FROM {}", stage.from.image.value), false);
        for instruction in &stage.instructions {
            // Those of an ONBUILD stand at the place of the FROM.
            let Some(position) = lowered.steps.iter().position(|step| step.span == instruction.span) else {
                self.tell(number, instruction.line, instruction.text.clone(), false);
                continue;
            };
            let step = &lowered.steps[position];
            let spot = format!("{}.{position}", lowered.index);
            let is_there = match (&instruction.kind, &step.action) {
                (InstructionKind::Run(line), Action::Run(run)) => {
                    self.run(instruction, line, run, &spot)?;
                    true
                }
                (InstructionKind::Copy(transfer) | InstructionKind::Add(transfer), Action::Copy(copy)) => {
                    self.copy(instruction, transfer, copy, &spot)?
                }
                _ => true,
            };
            if is_there {
                self.tell(number, instruction.line, step.title.clone(), step.action.touches_files());
            }
        }
        Ok(())
    }

    fn run(&mut self, instruction: &Instruction, line: &RunLine, run: &Run, spot: &str) -> Result<()> {
        for (number, (flag, mount)) in line.mounts.iter().zip(&run.mounts).enumerate() {
            match &mount.kind {
                MountKind::Bind { from: From::Context, source, .. } => {
                    let selected = self.job.context.select(source, &[])?;
                    let root = self.job.context.root();
                    let places = self.files.add(&format!("{spot}.m{number}"), root, selected, None)?;
                    let place = places.first().and_then(|place| place.to_str()).unwrap_or_default();
                    self.mount(flag, None, Some(place));
                }
                MountKind::Bind { from, .. } | MountKind::Cache { from: Some(from), .. } => {
                    let from = self.origin(from)?;
                    self.mount(flag, Some(&from), None);
                }
                _ => {}
            }
        }
        if line.heredocs.is_empty() {
            return Ok(());
        }
        let mut command = serde_json::to_string(&run.argv).unwrap_or_default();
        if let (Some(script), Some(path)) = (&run.script, run.argv.first()) {
            let name = path.rsplit('/').next().unwrap_or("script");
            let place = self.files.add_bytes(&format!("{spot}.s"), name, script.clone(), 0o755);
            command = format!("--mount=type=bind,source={},target={path} {command}", place.display());
        }
        let end = after(&self.job.dockerfile.file.text, instruction, &line.heredocs);
        self.edits.push((line.command.span.start..end, command));
        Ok(())
    }

    /// Whether anything is left of it: a pattern may select nothing.
    fn copy(&mut self, instruction: &Instruction, transfer: &Transfer, copy: &Copy, spot: &str) -> Result<bool> {
        if copy.from != From::Context {
            if let Some(word) = &transfer.from {
                let from = self.origin(&copy.from)?;
                self.edits.push((word.span.clone(), format!("--from={from}")));
            }
            return Ok(true);
        }
        let (sources, adds) = self.sources(copy, spot)?;
        let end = after(&self.job.dockerfile.file.text, instruction, &transfer.heredocs);
        let text = match sources.is_empty() {
            true => String::new(),
            false => self
                .transfer(copy, &sources, adds)
                .map_err(|error| error.context(format!("line {}: cannot be handed over", instruction.line)))?,
        };
        self.edits.push((instruction.span.start..end, text));
        Ok(!sources.is_empty())
    }

    /// What `--from` has to say.
    fn origin(&self, from: &From) -> Result<String> {
        match from {
            From::Context => Ok(String::new()),
            From::Image(name) => self.reference(name),
            // Its number is another one when stages before it are left out.
            From::Stage(index) => {
                let name = self.stages.get(index).and_then(|stage| stage.name.clone());
                Ok(name.unwrap_or_else(|| self.number(*index).to_string()))
            }
        }
    }

    fn reference(&self, name: &str) -> Result<String> {
        let built = self.job.bases.get(name);
        let built = built.ok_or_else(|| Error::failed(format!("the base image `{name}` was not made available")))?;
        (self.refer)(name, built)
    }

    /// The flag with another origin or source in it.
    fn mount(&mut self, flag: &MountFlag, from: Option<&str>, source: Option<&str>) {
        let mut fields = Vec::new();
        for (key, value) in &flag.fields {
            let value = match (key.as_str(), from, source) {
                ("from", Some(from), _) => Some(from),
                ("source" | "src", _, Some(_)) => continue,
                _ => value.as_deref(),
            };
            let field = value.map_or_else(|| key.clone(), |value| format!("{key}={value}"));
            fields.push(match field.contains([',', '"']) {
                true => format!("\"{}\"", field.replace('"', "\"\"")),
                false => field,
            });
        }
        fields.extend(source.map(|source| format!("source={source}")));
        self.edits.push((flag.span.clone(), format!("--mount={}", fields.join(","))));
    }

    /// The text, with every line where it was, and its instructions.
    pub(super) fn finish(mut self) -> (String, Vec<Told>) {
        let source = &self.job.dockerfile.file.text;
        self.edits.sort_by_key(|(range, _)| range.start);
        let mut out = String::with_capacity(source.len());
        let mut at = 0;
        // Lines that an edit took away come back as empty ones where its line ends.
        let mut owed = 0;
        for (range, text) in &self.edits {
            let between = source.get(at..range.start).unwrap_or_default();
            pay(&mut out, between, &mut owed);
            out.push_str(text);
            let gone = source.get(range.clone()).unwrap_or_default();
            owed += gone.matches('\n').count();
            if gone.ends_with('\n') {
                out.extend(std::iter::repeat_n('\n', std::mem::take(&mut owed)));
            }
            at = range.end.max(at);
        }
        pay(&mut out, source.get(at..).unwrap_or_default(), &mut owed);
        (out, self.told)
    }
}

/// Appends text, and the lines that are owed after the first line that ends in it.
fn pay(out: &mut String, text: &str, owed: &mut usize) {
    match text.find('\n').filter(|_| *owed > 0) {
        Some(end) => {
            out.push_str(&text[..=end]);
            out.extend(std::iter::repeat_n('\n', std::mem::take(owed)));
            out.push_str(&text[end + 1..]);
        }
        None => out.push_str(text),
    }
}

/// The end of an instruction with the bodies of its here-documents, before its last line's end.
fn after(text: &str, instruction: &Instruction, heredocs: &[Heredoc]) -> usize {
    match heredocs.last() {
        None => instruction.span.end,
        Some(last) => {
            let rest = text.get(last.span.end..).unwrap_or_default();
            last.span.end + rest.find('\n').unwrap_or(rest.len())
        }
    }
}

impl Text<'_> {
    /// Puts what an instruction copies into the tar; whether archives among it are unpacked.
    fn sources(&mut self, copy: &Copy, spot: &str) -> Result<(Vec<PathBuf>, bool)> {
        let chmod = copy.chmod.as_deref().and_then(ModeChange::parse);
        let chmod = chmod.as_ref();
        let mode = |mode: u32| chmod.map_or(mode, |chmod| chmod.apply(mode, false));
        let (context, files) = (&self.job.context, &mut *self.files);
        let mut places = Vec::new();
        let mut adds = copy.add && copy.unpack != Some(false);
        for (number, source) in copy.sources.iter().enumerate() {
            let place = format!("{spot}.{number}");
            match source {
                Source::Path(pattern) => {
                    let selected = context.select(pattern, &copy.excludes)?;
                    places.extend(files.add(&place, context.root(), selected, chmod)?);
                }
                Source::Parents { pivot, pattern } => {
                    let selected = context.select_parents(pivot, pattern, &copy.excludes)?;
                    places.extend(files.add(&place, context.root(), selected, chmod)?);
                }
                Source::Inline { name, content } => {
                    places.push(files.add_bytes(&place, name, content.clone(), mode(INLINE_MODE)));
                }
                Source::Url(_) | Source::Git(_) => {
                    let Some(remote) = copy.remote(source) else { continue };
                    adds = copy.unpack == Some(true);
                    match self.bring.bring(copy, &remote)? {
                        Brought::File { path, name, modified } => {
                            places.push(files.add_file(&place, &name, path, mode(FETCHED_MODE), modified));
                        }
                        Brought::Tree(root) => {
                            let selected = Context::whole(&root).select(".", &copy.excludes)?;
                            places.extend(files.add(&place, &root, selected, chmod)?);
                        }
                    }
                }
            }
        }
        Ok((places, adds))
    }

    /// The instruction for these places.
    fn transfer(&self, copy: &Copy, sources: &[PathBuf], adds: bool) -> Result<String> {
        let escape = self.job.dockerfile.directives.escape;
        let mut words = Vec::with_capacity(sources.len() + 1);
        for source in sources {
            words.push(literal(source.as_os_str(), escape)?);
        }
        // Several sources go into a directory, whether it is written as one or not.
        let slash = if sources.len() > 1 && !copy.dest.ends_with('/') { "/" } else { "" };
        words.push(word(&format!("{}{slash}", copy.dest), escape));
        let mut text = if adds { "ADD" } else { "COPY" }.to_owned();
        if let Some(owner) = &copy.chown {
            text.push_str(&format!(" --chown={}", word(owner, escape)));
        }
        if copy.link {
            text.push_str(" --link");
        }
        text.push(' ');
        text.push_str(&serde_json::to_string(&words).unwrap_or_default());
        Ok(text)
    }
}

/// Arguments that the Dockerfile declares; older builders don't have those that BuildKit predefines.
pub(super) fn build_args(job: &BuildJob) -> BTreeMap<String, String> {
    let mut args = platform_args(&job.platform);
    args.extend(job.build_args.clone());
    let declared = declared(job);
    let is_proxy = |name: &str| PROXIES.iter().any(|proxy| proxy.eq_ignore_ascii_case(name));
    args.retain(|name, _| declared.contains(name.as_str()) || is_proxy(name));
    args
}

/// Names of the arguments that a Dockerfile declares.
pub fn declared(job: &BuildJob) -> BTreeSet<&str> {
    let dockerfile = &job.dockerfile;
    let own = dockerfile.stages.iter().flat_map(|stage| &stage.instructions);
    let pairs = dockerfile.global_args.iter().chain(own).filter_map(|instruction| match &instruction.kind {
        InstructionKind::Arg(pairs) => Some(pairs),
        _ => None,
    });
    pairs.flatten().map(|pair| pair.name.value.as_str()).collect()
}
