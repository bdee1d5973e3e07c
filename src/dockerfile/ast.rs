//! The instructions of a Dockerfile as they were written, with their places; nothing is expanded yet.

use std::ops::Range;
use std::sync::Arc;

use crate::diag::{Diagnostics, SourceFile};

/// A byte range of the file.
pub type Span = Range<usize>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spanned<T> {
    pub value: T,
    pub span: Span,
}

/// A piece of text as it was written: quotes, escapes and `$` are still in it.
pub type Word = Spanned<String>;

#[derive(Clone, Debug)]
pub struct Dockerfile {
    pub file: Arc<SourceFile>,
    pub directives: Directives,
    /// ARG lines before the first FROM.
    pub global_args: Vec<Instruction>,
    /// At least one.
    pub stages: Vec<Stage>,
    /// What was understood, but that its writer may want to know of.
    pub warnings: Diagnostics,
}

impl Dockerfile {
    /// Where the text of a stage ends: at the next one, or with the file.
    pub fn end_of_stage(&self, index: usize) -> usize {
        self.stages.get(index + 1).map_or(self.file.text.len(), |next| next.from.span.start)
    }
}

/// `# syntax=`, `# escape=` and `# check=` at the head of the file.
#[derive(Clone, Debug)]
pub struct Directives {
    pub syntax: Option<Word>,
    /// `\` or a backquote.
    pub escape: char,
    pub check: Option<Word>,
}

#[derive(Clone, Debug)]
pub struct Stage {
    pub from: FromLine,
    pub instructions: Vec<Instruction>,
}

impl Stage {
    /// Stage names are compared without regard to case.
    pub fn is_named(&self, name: &str) -> bool {
        self.from.name.as_ref().is_some_and(|n| n.value.eq_ignore_ascii_case(name))
    }
}

#[derive(Clone, Debug)]
pub struct FromLine {
    pub line: usize,
    pub span: Span,
    pub image: Word,
    pub platform: Option<Word>,
    /// In lower case, as Docker keeps it.
    pub name: Option<Word>,
}

#[derive(Clone, Debug)]
pub struct Instruction {
    /// One-based, of the keyword.
    pub line: usize,
    /// From the keyword to the end of its last line; bodies of heredocs are not in it.
    pub span: Span,
    /// In upper case.
    pub keyword: &'static str,
    /// The whole instruction with its continuation lines joined, without bodies of heredocs.
    pub text: String,
    pub kind: InstructionKind,
}

#[derive(Clone, Debug)]
pub enum InstructionKind {
    Add(Transfer),
    Arg(Vec<ArgPair>),
    Cmd(CommandLine),
    Copy(Transfer),
    Entrypoint(CommandLine),
    Env(Vec<Pair>),
    Expose(Vec<Word>),
    Healthcheck(HealthcheckLine),
    Label(Vec<Pair>),
    Maintainer(Word),
    Onbuild(Onbuild),
    Run(RunLine),
    Shell(Vec<String>),
    Stopsignal(Word),
    User(Word),
    Volume(Vec<Word>),
    Workdir(Word),
}

#[derive(Clone, Debug)]
pub struct ArgPair {
    pub name: Word,
    pub value: Option<Word>,
}

#[derive(Clone, Debug)]
pub struct Pair {
    pub name: Word,
    pub value: Word,
}

/// COPY and ADD.
#[derive(Clone, Debug)]
pub struct Transfer {
    pub sources: Vec<Word>,
    pub heredocs: Vec<Heredoc>,
    pub dest: Word,
    pub from: Option<Word>,
    pub chown: Option<Word>,
    pub chmod: Option<Word>,
    pub link: bool,
    pub parents: bool,
    pub excludes: Vec<Word>,
    pub checksum: Option<Word>,
    pub keep_git_dir: Option<bool>,
    pub unpack: Option<bool>,
}

#[derive(Clone, Debug)]
pub struct Heredoc {
    /// The delimiter without its quotes; for COPY and ADD the name of the file as well.
    pub name: String,
    /// False when the delimiter was quoted.
    pub expand: bool,
    /// `<<-`: leading tabs are not part of the content.
    pub chomp: bool,
    /// As it was written: the tabs are still there.
    pub body: String,
    pub span: Span,
}

impl Heredoc {
    /// The body, without leading tabs where `<<-` asks for that.
    pub fn content(&self) -> String {
        if self.chomp {
            self.body.split_inclusive('\n').map(|line| line.trim_start_matches('\t')).collect()
        } else {
            self.body.clone()
        }
    }
}

#[derive(Clone, Debug)]
pub struct CommandLine {
    pub form: Form,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// `["a", "b"]`
    Exec(Vec<String>),
    /// Anything else; the shell takes it apart.
    Shell(String),
}

#[derive(Clone, Debug)]
pub struct RunLine {
    pub command: CommandLine,
    pub heredocs: Vec<Heredoc>,
    pub mounts: Vec<MountFlag>,
    pub network: Option<Word>,
    pub security: Option<Word>,
    pub devices: Vec<Word>,
}

/// `--mount=`; its values may hold variables, except for `from`, which decides about the graph.
#[derive(Clone, Debug)]
pub struct MountFlag {
    /// Key, and value when there is an equals sign; keys in lower case.
    pub fields: Vec<(String, Option<String>)>,
    pub span: Span,
}

impl MountFlag {
    pub fn from(&self) -> Option<&str> {
        let from = self.fields.iter().rev().find(|(key, _)| key == "from");
        from.and_then(|(_, value)| value.as_deref()).filter(|value| !value.is_empty())
    }
}

#[derive(Clone, Debug)]
pub enum HealthcheckLine {
    None,
    Cmd {
        command: CommandLine,
        /// Nanoseconds; zero means inherited.
        interval: i64,
        timeout: i64,
        start_period: i64,
        start_interval: i64,
        retries: i64,
    },
}

#[derive(Clone, Debug)]
pub struct Onbuild {
    /// The trigger as the image's configuration keeps it, heredocs included.
    pub expression: String,
    pub trigger: Box<Instruction>,
}
