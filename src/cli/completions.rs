//! `kollage completions`: a few lines for the shell, which then asks this program how a command line goes on. So images
//! and profiles are those of the catalogue that the person is in.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{EnvCompleter, Shells};

use crate::catalogue::Catalogue;
use crate::cli::App;
use crate::cli::args::{Cli, Completions, Global, Select, Settings, Shell};
use crate::cli::environment::{COMPLETE, Environment};
use crate::cli::workspace::{catalogue_root, config_files, overrides};
use crate::error::{Context as _, Error, Result};

pub fn run(app: &App, args: &Completions) -> Result<u8> {
    let name = match args.shell {
        Shell::Bash => "bash",
        Shell::Zsh => "zsh",
        Shell::Fish => "fish",
    };
    let mut text = Vec::new();
    completer(name)?
        .write_registration(COMPLETE, "kollage", "kollage", "kollage", &mut text)
        .failed(|| format!("cannot write completions for {name}"))?;
    app.print(&String::from_utf8_lossy(&text))?;
    Ok(0)
}

/// The answer to a shell. A problem is no reason to write over what somebody is typing.
pub fn answer(shell: &str, env: &Environment) -> ExitCode {
    // What the person has typed stands behind `--`.
    let typed: Vec<OsString> = std::env::args_os().skip_while(|word| word != "--").skip(1).collect();
    let mut command = with_names(catalogue(&typed, env));
    let here = std::env::current_dir().ok();
    let written =
        completer(shell).map(|shell| shell.write_complete(&mut command, typed, here.as_deref(), &mut io::stdout()));
    match written {
        Ok(Ok(())) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn completer(name: &str) -> Result<&'static dyn EnvCompleter> {
    let known = Shells::builtins().0.iter().copied().find(|shell| shell.is(name));
    known.ok_or_else(|| Error::bad_input(format!("there are no completions for `{name}`")))
}

/// The one that the command line is about, where it has no problems.
fn catalogue(typed: &[OsString], env: &Environment) -> Option<Catalogue> {
    let named = |flag: &str| typed.iter().position(|word| word == flag).and_then(|at| typed.get(at + 1));
    let directory = named("-C").or_else(|| named("--directory")).map(PathBuf::from);
    let root = catalogue_root(&Global { directory, ..Global::default() }).ok()?;
    let overrides = overrides(env, &Select::default(), &Settings::default()).ok()?;
    Catalogue::load(&root, &overrides, &config_files(env)).ok()
}

/// The command line, in which arguments that are names of the catalogue know them.
fn with_names(catalogue: Option<Catalogue>) -> clap::Command {
    let names = |names: Vec<(String, String)>| {
        ArgValueCandidates::new(move || {
            let candidate = |(name, about): &(String, String)| {
                let help = (!about.is_empty()).then(|| about.clone().into());
                CompletionCandidate::new(name.clone()).help(help)
            };
            names.iter().map(candidate).collect()
        })
    };
    let (mut images, mut profiles) = (Vec::new(), Vec::new());
    if let Some(catalogue) = &catalogue {
        images.extend(catalogue.images.values().map(|image| (image.name.clone(), image.summary.clone())));
        profiles.extend(catalogue.settings.profiles.keys().map(|name| (name.clone(), String::new())));
    }
    let mut command = Cli::command();
    let subcommands: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    for name in subcommands {
        command = command.mut_subcommand(name, |sub| {
            sub.mut_args(|arg| match arg.get_id().as_str() {
                "patterns" | "image" => arg.add(names(images.clone())),
                "profiles" => arg.add(names(profiles.clone())),
                _ => arg,
            })
        });
    }
    command
}
