//! The host's `git`, in an environment of its own: no configuration of the user or the machine, no questions, no
//! hooks, and no protocol but those that a Dockerfile may name.

use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;

use super::Options;
use super::address::{self, GitAddress};
use crate::error::{Context as _, Error, Result};
use crate::net::{Caller, Problem, Tries, trying_again};

/// What a repository may be reached by.
const PROTOCOLS: &str = "http:https:git:ssh";
/// Of what git says, at most this much is read.
const MOST: usize = 16 << 20;
/// How often a running git is looked at.
const GLANCE: Duration = Duration::from_millis(20);

/// A program as PATH finds it.
pub(super) fn find(path: &OsStr, name: &str) -> Result<PathBuf> {
    let is_program =
        |p: &PathBuf| std::fs::metadata(p).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    std::env::split_paths(path).filter(|dir| dir.is_absolute()).map(|dir| dir.join(name)).find(is_program).ok_or_else(
        || {
            Error::unusable(format!("the program `{name}` is not on this machine"))
                .hint(format!("install {name}: repositories of git are fetched with it"))
        },
    )
}

/// How git is called for one repository.
pub(super) struct Git<'a> {
    options: &'a Options,
    caller: &'a Caller<'a>,
    program: PathBuf,
    /// The bare repository in the store.
    pub dir: PathBuf,
    /// `http.<address>.extraHeader`, with its value: never an argument, which everybody on the machine could read.
    header: Option<(String, String)>,
}

impl<'a> Git<'a> {
    pub fn new(options: &'a Options, address: &GitAddress, dir: PathBuf, caller: &'a Caller<'a>) -> Result<Git<'a>> {
        let program = find(&options.path, "git")?;
        Ok(Git { options, caller, program, dir, header: header(options, address) })
    }

    fn command(&self, args: &[&OsStr]) -> Command {
        let mut command = Command::new(&self.program);
        let idle = self.options.idle_timeout.as_secs().max(1);
        for (name, value) in [
            ("core.hooksPath", "/dev/null".to_owned()),
            ("core.autocrlf", "false".into()),
            ("core.fsmonitor", "false".into()),
            ("credential.helper", String::new()),
            ("gc.auto", "0".into()),
            ("maintenance.auto", "false".into()),
            ("pack.threads", "1".into()),
            ("init.defaultBranch", "master".into()),
            ("safe.directory", "*".into()),
            ("advice.detachedHead", "false".into()),
            ("http.lowSpeedLimit", "1".into()),
            ("http.lowSpeedTime", idle.to_string()),
            ("submodule.recurse", "false".into()),
        ] {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        command.args(args).env_clear().current_dir("/").stdin(Stdio::null());
        // Ctrl-C reaches the main process alone, which decides what it means.
        command.process_group(0);
        command
            .env("PATH", &self.options.path)
            .env("LC_ALL", "C")
            .env("HOME", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_ATTR_NOSYSTEM", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_ASKPASS", "")
            .env("SSH_ASKPASS", "")
            .env("GIT_ALLOW_PROTOCOL", PROTOCOLS)
            .env("GIT_SSH_COMMAND", ssh(self.options));
        command.envs(self.options.proxy.iter().map(|(name, value)| (name, value)));
        if let Some(bundle) = &self.options.ca_bundle {
            command.env("GIT_SSL_CAINFO", bundle);
        }
        if let Some(agent) = &self.options.ssh_agent {
            command.env("SSH_AUTH_SOCK", agent);
        }
        if let Some((name, value)) = &self.header {
            command.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_KEY_0", name).env("GIT_CONFIG_VALUE_0", value);
        }
        command
    }

    /// Within the bare repository, on this machine.
    pub fn local<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<String> {
        self.local_with(args, &[])
    }

    pub fn local_with<S: AsRef<OsStr>>(&self, args: &[S], env: &[(&str, &OsStr)]) -> Result<String> {
        self.here(args, env, Stdio::null())
    }

    /// It reads a file.
    pub fn local_from<S: AsRef<OsStr>>(&self, args: &[S], file: std::fs::File) -> Result<String> {
        self.here(args, &[], file.into())
    }

    fn here<S: AsRef<OsStr>>(&self, args: &[S], env: &[(&str, &OsStr)], stdin: Stdio) -> Result<String> {
        let mut all: Vec<OsString> = vec!["--git-dir".into(), self.dir.clone().into()];
        all.extend(args.iter().map(|a| a.as_ref().to_owned()));
        let args: Vec<&OsStr> = all.iter().map(OsString::as_os_str).collect();
        let mut command = self.command(&args);
        command.envs(env.iter().copied()).stdin(stdin);
        let (success, out, said) = self.run(command)?;
        if success { Ok(out) } else { Err(Error::failed("git failed").cause(self.reason(&said))) }
    }

    /// As `local`, where no is an answer.
    pub fn asks<S: AsRef<OsStr>>(&self, args: &[S]) -> bool {
        self.local(args).is_ok()
    }

    /// Something that others have to answer: tried again where that may help.
    pub fn remote<S: AsRef<OsStr>>(&self, args: &[S], what: &str) -> Result<String> {
        let mut tries = Tries::default();
        let host = what.split_once("://").map_or(what, |(_, rest)| rest).split(['/', ':']).next().unwrap_or(what);
        loop {
            let mut all: Vec<OsString> = vec!["--git-dir".into(), self.dir.clone().into()];
            all.extend(args.iter().map(|a| a.as_ref().to_owned()));
            let args: Vec<&OsStr> = all.iter().map(OsString::as_os_str).collect();
            let (success, out, said) = self.run(self.command(&args))?;
            if success {
                return Ok(out);
            }
            let retry = &self.options.retry;
            let (wait, why) = tries.next(retry, self.problem(&said), host, "")?;
            let doing = format!("fetching {what}");
            self.caller.warning(trying_again(host, &why, &doing, wait, &tries, retry));
            let until = std::time::Instant::now() + wait;
            while std::time::Instant::now() < until {
                self.caller.cancel.check()?;
                std::thread::sleep(GLANCE);
            }
        }
    }

    /// Whether it succeeded, what it printed, and what it said about it.
    fn run(&self, mut command: Command) -> Result<(bool, String, String)> {
        let what = || "cannot run git".to_owned();
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unusable(what)?;
        let read = |pipe: Option<Box<dyn std::io::Read + Send>>| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                if let Some(pipe) = pipe {
                    // What could not be read was not said.
                    let _ = pipe.take(MOST as u64).read_to_end(&mut bytes);
                }
                String::from_utf8_lossy(&bytes).into_owned()
            })
        };
        let out = read(child.stdout.take().map(|p| Box::new(p) as _));
        let said = read(child.stderr.take().map(|p| Box::new(p) as _));
        let status = loop {
            if let Some(status) = child.try_wait().unusable(what)? {
                break status;
            }
            if self.caller.cancel.is_cancelled() {
                end(&mut child);
                return Err(Error::interrupted());
            }
            std::thread::sleep(GLANCE);
        };
        let join = |thread: std::thread::JoinHandle<String>| thread.join().unwrap_or_default();
        Ok((status.success(), join(out), join(said)))
    }

    /// What git said, without what nobody may see.
    fn reason(&self, said: &str) -> String {
        let lines: Vec<&str> =
            said.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with("hint:")).collect();
        let first = lines.iter().find(|l| l.starts_with("fatal:") || l.starts_with("error:")).or(lines.last());
        let mut text = address::without_logins(first.copied().unwrap_or("it said nothing"));
        if let Some((_, value)) = &self.header {
            text = text.replace(value.as_str(), "…");
        }
        let text = text.trim_start_matches("fatal: ").trim_start_matches("error: ");
        text.chars().filter(|c| !c.is_control()).take(300).collect()
    }

    fn problem(&self, said: &str) -> Problem {
        const PASSING: [&str; 12] = [
            "Could not resolve host",
            "Connection refused",
            "Connection reset",
            "Connection timed out",
            "Failed to connect",
            "timed out",
            "early EOF",
            "RPC failed",
            "Operation too slow",
            "unexpected disconnect",
            "the remote end hung up",
            "Empty reply from server",
        ];
        let why = self.reason(said);
        let server_error = (500..600).any(|code| said.contains(&format!("returned error: {code}")));
        let refused = [
            "Authentication failed",
            "could not read Username",
            "Permission denied",
            "returned error: 401",
            "returned error: 403",
        ];
        if refused.iter().any(|text| said.contains(text)) {
            let error = Error::unusable("the server of the repository wants a login").cause(why);
            return Problem::Lasting(
                error.hint("give a token with `--secret id=GIT_AUTH_TOKEN,…`, or keys with `--ssh default`"),
            );
        }
        if said.contains("Host key verification failed") {
            let error = Error::unusable("the server of the repository is not known to this machine").cause(why);
            return Problem::Lasting(error.hint("add its key to ~/.ssh/known_hosts, with `ssh-keyscan` for instance"));
        }
        let missing = ["repository not exported", "does not appear to be a git repository"];
        if missing.iter().any(|text| said.contains(text))
            || (said.contains("repository '") && said.contains("' not found"))
        {
            return Problem::Lasting(
                Error::bad_input("there is no such repository").cause(why).hint("check the address"),
            );
        }
        if server_error || PASSING.iter().any(|text| said.contains(text)) {
            return Problem::Passing { why, after: None };
        }
        Problem::Lasting(Error::unusable("git cannot fetch it").cause(why))
    }
}

/// The process group goes, and with it whatever git started.
fn end(child: &mut Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        // Gone already is as good.
        let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
    }
    let _ = child.wait();
}

fn ssh(options: &Options) -> String {
    let connect = options.connect_timeout.as_secs().max(1);
    let idle = options.idle_timeout.as_secs().max(3) / 3;
    let keys = match &options.ssh_agent {
        Some(_) => "-o IdentityFile=none",
        None => "-o IdentityFile=none -o IdentityAgent=none -o IdentitiesOnly=yes",
    };
    format!(
        "ssh -F /dev/null -o BatchMode=yes -o ConnectTimeout={connect} -o ServerAliveInterval={idle} \
         -o ServerAliveCountMax=3 {keys}"
    )
}

fn header(options: &Options, address: &GitAddress) -> Option<(String, String)> {
    let rest = address.remote.strip_prefix("https://").or_else(|| address.remote.strip_prefix("http://"))?;
    let host = rest.split('/').next().unwrap_or(rest);
    let scope = &address.remote[..address.remote.len() - rest.len() + host.len()];
    let value = match &address.login {
        Some((user, password)) => {
            format!("Basic {}", base64::prelude::BASE64_STANDARD.encode(format!("{user}:{password}")))
        }
        None => {
            let for_host = |token: &&super::Token| token.host.as_deref() == Some(host);
            let token = options.tokens.iter().find(for_host).or(options.tokens.iter().find(|t| t.host.is_none()))?;
            token.header.clone()
        }
    };
    Some((format!("http.{scope}/.extraHeader"), format!("Authorization: {value}")))
}

/// Whether a file of the bare repository is there.
pub(super) fn is_repository(dir: &Path) -> bool {
    dir.join("HEAD").exists() && dir.join("objects").exists()
}
