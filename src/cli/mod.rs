//! The command line: arguments in, exit code out. Each command has a file; raw arguments become typed options there and
//! go no further. This is the only room that reads the environment or writes to the standard streams.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;

use crate::cli::args::{Cli, Color, Command};
use crate::cli::environment::Environment;
use crate::error::{Context as _, Error, Kind, Result};
use crate::report::diagnostics::render_error;
use crate::report::progress::{Facts, terminal_size};
use crate::report::style::Look;

mod args;
mod build;
mod builders;
mod completions;
mod context;
mod deploy;
mod doctor;
mod entitlements;
mod environment;
mod export;
mod graph;
mod images;
mod import_kolla;
mod init;
mod kolla_build;
mod list;
mod load;
mod lock;
mod machine;
mod man;
mod no_cache;
mod outcome;
mod plan;
mod plugin;
mod publish;
mod publishing;
mod push;
mod record;
mod reference;
mod render;
mod report;
mod run;
mod schema;
mod secret;
mod shell;
mod signals;
mod ssh;
mod start;
mod store;
mod surroundings;
mod terminal;
mod verify;
mod workspace;

/// What every command gets besides its own arguments.
pub(crate) struct App {
    pub global: args::Global,
    pub env: Environment,
    /// Of standard error, where progress and messages go.
    pub facts: Facts,
    pub look: Look,
}

pub fn main() -> ExitCode {
    let env = Environment::read();
    if let Some(shell) = &env.complete {
        return completions::answer(shell, &env);
    }
    let cli = match Cli::try_parse_from(kolla_build::called(std::env::args_os())) {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { Kind::BadInput.exit_code() } else { 0 };
            // Nothing can be done about a closed stream.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let facts = Facts {
        terminal: io::stderr().is_terminal(),
        term: env.term.clone(),
        ci: env.ci,
        no_color: env.no_color,
        locale: env.locale.clone(),
    };
    let mut look = facts.look();
    match cli.global.color {
        Color::Auto => {}
        Color::Always => look.color = true,
        Color::Never => look.color = false,
    }
    let app = App { global: cli.global, env, facts, look };
    match app.run(cli.command) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            app.show_error(&error);
            ExitCode::from(error.kind().exit_code())
        }
    }
}

impl App {
    fn run(&self, command: Command) -> Result<u8> {
        if command.uses_store() && !rustix::process::geteuid().is_root() {
            // Nothing has started a thread so far. From here on it goes once more, as root of a user namespace.
            crate::userns::enter()?;
        }
        match command {
            Command::Doctor(args) => doctor::run(self, &args),
            Command::Schema(args) => schema::run(self, &args),
            Command::Completions(args) => completions::run(self, &args),
            Command::Man(args) => man::run(self, &args),
            Command::Reference => reference::run(self),
            Command::Init(args) => init::run(self, &args),
            Command::Build(args) => build::run(self, &args),
            Command::Plan(args) => plan::run(self, &args),
            Command::Push(args) => push::run(self, &args),
            Command::List(args) => list::run(self, &args),
            Command::Plugin(args) => plugin::run(self, &args.command),
            Command::Images(args) => images::run(self, &args),
            Command::Graph(args) => graph::run(self, &args),
            Command::Render(args) => render::run(self, &args),
            Command::Lock(args) => lock::run(self, &args),
            Command::Export(args) => export::run(self, &args),
            Command::Run(args) => run::run(self, &args),
            Command::Shell(args) => shell::run(self, &args),
            Command::KollaBuild(args) => kolla_build::run(self, &args),
            Command::ImportKolla(args) => import_kolla::run(self, &args),
            Command::Report(args) => report::run(self, &args),
            Command::Start(args) => start::run(self, &args.command),
            Command::Deploy(args) => deploy::run(self, &args.command),
            Command::Store(args) => store::run(self, &args.command),
        }
    }

    pub fn show_error(&self, error: &Error) {
        let mut text = render_error(error, self.look.color, self.width());
        if !text.ends_with('\n') {
            text.push('\n');
        }
        let _ = io::stderr().write_all(text.as_bytes());
    }

    pub fn show_warnings(&self, warnings: &crate::diag::Diagnostics) {
        if !warnings.is_empty() {
            let text = crate::report::diagnostics::render(warnings, self.look.color, self.width());
            let _ = io::stderr().write_all(text.as_bytes());
        }
    }

    /// A line about what was done, for a person.
    pub fn say(&self, line: &str) {
        let _ = writeln!(io::stderr(), "{line}");
    }

    /// A result: the only thing that goes to standard output.
    pub fn print(&self, text: &str) -> Result<()> {
        let mut out = io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            // `kollage list | head`: the reader has seen enough.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other.unusable(|| "cannot write to standard output".into()),
        }
    }

    pub fn print_json(&self, value: &serde_json::Value) -> Result<()> {
        let text = serde_json::to_string_pretty(value).failed(|| "cannot write JSON".into())?;
        self.print(&format!("{text}\n"))
    }

    /// How a table on standard output looks, and how wide it may be.
    pub fn table_look(&self) -> (Look, Option<usize>) {
        let terminal = io::stdout().is_terminal();
        let color = match self.global.color {
            Color::Auto => terminal && !self.env.no_color && self.facts.term.as_deref() != Some("dumb"),
            Color::Always => true,
            Color::Never => false,
        };
        let width = if terminal { terminal_size(io::stdout()).map(|(columns, _)| columns) } else { None };
        (Look { color, ..self.look }, width)
    }

    pub fn width(&self) -> usize {
        terminal_size(io::stderr()).map_or(100, |(columns, _)| columns)
    }

    pub fn size() -> crate::report::progress::Size {
        Box::new(|| terminal_size(io::stderr()).unwrap_or((100, 24)))
    }
}
