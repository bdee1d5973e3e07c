//! Names and arguments. Called by one of Kolla's names, the program is that one; its own are `kollage-start COMMAND`.

use crate::environment::Environment;
use crate::error::{Failure, Result};
use crate::health;
use crate::service::{self, Wanted};
use crate::set_configs;
use crate::start::Start;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;

const HELP: &str = "\
Starts a service in a container: puts its configuration in place, gives up root, and runs it.

Usage: kollage-start COMMAND

  start [--service NAME]   what kolla_start does, with the steps that a bundle has for a service
  task [--service NAME] TASK
                           one of the service's tasks, after what comes before every start
  exec -- COMMAND …        any command, with what process 1 has to do; kolla_start and the like are this program
  install DIR              copies the bundle that this program is in, for containers that share DIR
  set-configs [--check]    what kolla_set_configs does
  extend-start             what kolla_extend_start does
  copy-cacerts             what kolla_copy_cacerts does
  healthcheck              whether the service is well, as its definition has it
  healthcheck KIND …       whether a service is well:
    http [OPTIONS] URL       answers with a status below 400; options are those of curl, --ca FILE verifies
    port PROCESS PORT…       has a connection with one of the ports at either end
    listen PROCESS PORT…     listens on one of the ports
    socket PROCESS PATH      has the Unix socket open
    file-age FILE SECONDS    the file was changed within that time
  --version, --help

By another name (a link) it is that program: kolla_start, kolla_set_configs, kolla_extend_start, kolla_copy_cacerts,
healthcheck_curl, healthcheck_port, healthcheck_listen, healthcheck_socket, healthcheck_filemod.
Variables and files: docs/start-runtime.md.
";

/// Runs what was asked for. The exit code.
pub fn run(mut arguments: impl Iterator<Item = OsString>, environment: &Environment) -> Result<u8> {
    let name = arguments.next().unwrap_or_default();
    let name = Path::new(&name).file_name().and_then(OsStr::to_str).unwrap_or_default().to_string();
    let mut arguments: Vec<String> = arguments.map(|argument| argument.to_string_lossy().into_owned()).collect();
    if let Some(kind) = name.strip_prefix("healthcheck_") {
        arguments.insert(0, kind.into());
    }
    let command = match name.strip_prefix("kolla_") {
        Some(command @ ("start" | "set_configs" | "extend_start" | "copy_cacerts")) => command.replace('_', "-"),
        None if name.starts_with("healthcheck_") => "healthcheck".into(),
        _ if arguments.is_empty() => "--help".into(),
        _ => arguments.remove(0),
    };
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match (command.as_str(), &words[..]) {
        ("start", arguments @ ([] | ["--service", _])) => {
            Start::new(environment, arguments.get(1).copied())?.run(Wanted::Start)
        }
        ("task", ["--service", service, task] | [task, "--service", service]) => {
            Start::new(environment, Some(service))?.run(Wanted::Task(task))
        }
        ("task", [task]) => Start::new(environment, None)?.run(Wanted::Task(task)),
        ("install", [directory]) => {
            service::install(&service::bundle(environment.start_dir.as_deref()), Path::new(directory)).map(|()| 0)
        }
        ("exec", ["--", program, ..]) => {
            let own = program.starts_with("kolla_") || program.starts_with("healthcheck_");
            if own {
                return run(arguments.into_iter().skip(1).map(OsString::from), environment);
            }
            Start::new(environment, None)?.exec(&arguments[1..])
        }
        ("set-configs", [] | ["--check"]) => {
            let start = Start::new(environment, None)?;
            let Some(config) = start.config()? else { return Ok(0) };
            if arguments.is_empty() {
                set_configs::configure(&config, &start.places, &start.users, start.strategy()?)?;
            } else {
                set_configs::check(&config, &start.places, &start.users)?;
            }
            Ok(0)
        }
        ("extend-start", []) => Start::new(environment, None)?.extend(),
        ("copy-cacerts", []) => Start::new(environment, None)?.certificates().map(|_| 0),
        ("healthcheck", []) => Start::new(environment, None)?.healthcheck().map(|()| 0),
        ("healthcheck", [kind, ..]) => health::check(kind, &arguments[1..], &environment.health).map(|()| 0),
        ("--help" | "-h" | "help", []) => print(HELP),
        ("--version" | "-V", []) => print(concat!("kollage-start ", env!("CARGO_PKG_VERSION"), "\n")),
        (command, words) => {
            let all = [&[command], words].concat().join(" ");
            Err(Failure::refused(format!("don't know what `{all}` is; `kollage-start --help` lists the commands")))
        }
    }
}

fn print(text: &str) -> Result<u8> {
    std::io::stdout().write_all(text.as_bytes()).map_err(|error| Failure::system("write", error))?;
    Ok(0)
}
