//! Whether a service is well, from sockets and /proc alone: no curl, ss, lsof, pgrep or shell.

mod http;
mod sockets;
mod tls;
mod url;

use crate::environment::HealthEnvironment;
use crate::error::{Failure, Result, WRONG, shown};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Runs a check; an error says why the service isn't well. The names are ours and, after the slash, Kolla's.
pub fn check(kind: &str, arguments: &[String], environment: &HealthEnvironment) -> Result<()> {
    let result = match (kind, arguments) {
        ("http" | "curl", arguments) => http::check(arguments, environment),
        ("port", [process, ports @ ..]) if !ports.is_empty() => sockets::connected(process, &numbers(ports)?),
        ("listen", [process, ports @ ..]) if !ports.is_empty() => sockets::listening(process, &numbers(ports)?),
        ("socket", [process, socket]) => sockets::unix(process, Path::new(socket)),
        ("file-age" | "filemod", [file, seconds]) => age(Path::new(file), seconds),
        ("port" | "listen", _) => Err(usage(kind, "PROCESS PORT…")),
        ("socket", _) => Err(usage(kind, "PROCESS SOCKET")),
        ("file-age" | "filemod", _) => Err(usage(kind, "FILE SECONDS")),
        _ => Err(Failure::wrong(format!("there is no check `{kind}`; known are http, port, listen, socket, file-age"))),
    };
    // An engine knows well (0) and unwell (1) only.
    result.map_err(|failure| Failure { code: WRONG, ..failure })
}

fn usage(kind: &str, arguments: &str) -> Failure {
    Failure::wrong(format!("usage: kollage-start healthcheck {kind} {arguments}"))
}

/// Kolla's scripts take one argument with blanks as many.
fn numbers(ports: &[String]) -> Result<Vec<u16>> {
    let numbers = ports.iter().flat_map(|ports| ports.split_whitespace());
    numbers.map(|port| port.parse().map_err(|_| Failure::wrong(format!("`{port}` is no port")))).collect()
}

fn age(file: &Path, seconds: &str) -> Result<()> {
    let limit = seconds.parse().map(Duration::from_secs);
    let limit = limit.map_err(|_| Failure::wrong(format!("`{seconds}` is no number of seconds")))?;
    let there =
        std::fs::metadata(file).map_err(|error| Failure::system(format_args!("look at {}", shown(file)), error))?;
    if !there.is_file() {
        return Err(Failure::wrong(format!("{} is no file", shown(file))));
    }
    let changed = there.modified().map_err(|error| Failure::system(format_args!("look at {}", shown(file)), error))?;
    // A file from the future is new.
    let age = SystemTime::now().duration_since(changed).unwrap_or_default();
    if age.as_secs() > limit.as_secs() {
        let age = age.as_secs();
        return Err(Failure::wrong(format!("{} was changed {age} seconds ago, more than {seconds}", shown(file))));
    }
    Ok(())
}
