//! Credential helpers: programs (`docker-credential-NAME`) that know logins, asked as Docker and podman ask them.

use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::registry::Login;

/// Of an answer, at most this much is read.
const MOST: u64 = 1 << 20;
/// Helpers ask other machines, and some ask a person.
const PATIENCE: Duration = Duration::from_secs(60);
/// What the protocol has for: here is no login.
const NOTHING: &str = "credentials not found";
/// The user of a login that is an identity token.
const TOKEN_USER: &str = "<token>";

pub(super) enum Answer {
    Login(Login),
    /// An OAuth refresh token.
    Token(String),
    Nothing,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Reply {
    #[serde(default)]
    username: String,
    #[serde(default)]
    secret: String,
}

/// What the helper knows about a server; the error is why it could not be asked, without what it said on standard
/// output. `path` is PATH: helpers are looked for there, and nowhere else.
pub(super) fn ask(helper: &str, server: &str, path: &OsStr) -> Result<Answer, String> {
    if helper.is_empty() || helper.contains('/') {
        return Err(format!("`{helper}` is not a name of a credential helper"));
    }
    let name = format!("docker-credential-{helper}");
    let found = std::env::split_paths(path).filter(|dir| dir.is_absolute()).map(|dir| dir.join(&name));
    let Some(program) = found.into_iter().find(|file| file.is_file()) else {
        return Err(format!("the credential helper {name} is not on this machine"));
    };
    run(&program, server).map_err(|why| format!("the credential helper {name} failed: {why}"))
}

fn run(program: &Path, server: &str) -> Result<Answer, String> {
    let mut command = Command::new(program);
    // Ctrl-C reaches the main process alone, which decides what it means.
    command.arg("get").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    let mut child = command.spawn().map_err(|e| e.to_string())?;
    if let Some(mut input) = child.stdin.take() {
        // One that doesn't read it says why itself.
        let _ = input.write_all(server.as_bytes()).and_then(|()| input.write_all(b"\n"));
    }
    let output = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What could not be read was not said.
        let _ = output.map(|pipe| pipe.take(MOST).read_to_end(&mut bytes));
        bytes
    });
    let start = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if start.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(5)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it didn't answer within {} s", PATIENCE.as_secs()));
            }
            Err(e) => return Err(e.to_string()),
        }
    };
    let said = reader.join().unwrap_or_default();
    if !status.success() {
        // By convention that is where messages go, and no secret is in them; but only this one is known to be harmless.
        let nothing = String::from_utf8_lossy(&said).contains(NOTHING);
        return if nothing { Ok(Answer::Nothing) } else { Err(status.to_string()) };
    }
    let Ok(reply) = serde_json::from_slice::<Reply>(&said) else { return Err("it didn't answer with JSON".into()) };
    Ok(match (reply.username.as_str(), reply.secret) {
        (_, secret) if secret.is_empty() => Answer::Nothing,
        (TOKEN_USER, token) => Answer::Token(token),
        (_, password) => Answer::Login(Login { username: reply.username, password }),
    })
}
