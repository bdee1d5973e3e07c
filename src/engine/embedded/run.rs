//! A command in a finished image: `kollage run`, and the checks of a definition. What it writes is thrown away.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;

use super::EmbeddedEngine;
use super::helper::spec::{Bytes, MountSpec, MountSpecKind, ProcessSpec, RawPath, Report, Request, RootSpec, RunSpec};
use super::request::{HOSTNAME, names, no_network};
use super::sandbox::{self, Bounds, End, Streams};
use super::terminal::Terminal;
use crate::dockerfile::step::Network;
use crate::engine::Built;
use crate::error::{Error, Result};
use crate::event::Cancel;

/// What differs from the image's own configuration.
#[derive(Clone, Debug, Default)]
pub struct RunRequest {
    /// In place of ENTRYPOINT; CMD then counts no more.
    pub entrypoint: Option<Vec<String>>,
    /// In place of CMD, unless there are none.
    pub args: Vec<String>,
    pub user: Option<String>,
    pub env: Vec<(String, String)>,
    pub cwd: Option<String>,
    pub network: Network,
    pub mounts: Vec<HostMount>,
}

/// A path of the host's that the command sees.
#[derive(Clone, Debug)]
pub struct HostMount {
    pub source: PathBuf,
    pub target: String,
    pub read_only: bool,
}

impl EmbeddedEngine {
    /// Runs a command with the caller's standard streams and gives its exit code: 126 and 127 as a shell has them, 128
    /// and the signal's number for one that was killed.
    pub fn run(
        &self,
        built: &Built,
        request: &RunRequest,
        stdin: Option<BorrowedFd<'_>>,
        cancel: &Cancel,
    ) -> Result<Finished> {
        finished(execute(self, built, request, Streams::Inherit(stdin), cancel, None)?)
    }

    /// The same on a terminal of the command's own.
    pub fn run_on_terminal(
        &self,
        built: &Built,
        request: &RunRequest,
        terminal: Terminal,
        cancel: &Cancel,
    ) -> Result<Finished> {
        finished(execute(self, built, request, Streams::Terminal(terminal), cancel, None)?)
    }
}

fn finished(end: End) -> Result<Finished> {
    let End::Reported(report) = end else {
        return Err(Error::failed("the command was ended for want of time"));
    };
    Ok(match report {
        Report::Exited(code) => Finished { code, message: None },
        Report::Signalled(signal) => Finished { code: 128 + signal, message: None },
        Report::NotExecuted { code, message, .. } => Finished { code, message: Some(message) },
        Report::Terminal | Report::Done { .. } | Report::Failure(_) => {
            return Err(Error::failed("the helper gave an answer to another question"));
        }
    })
}

/// How a command ended; the message is about one that never began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    pub code: i32,
    pub message: Option<String>,
}

pub fn execute(
    engine: &EmbeddedEngine,
    built: &Built,
    request: &RunRequest,
    streams: Streams<'_>,
    cancel: &Cancel,
    limit: Option<Duration>,
) -> Result<End> {
    let config = &built.config.config;
    let argv = argv(config.entrypoint.as_deref(), config.cmd.as_deref(), request);
    if argv.is_empty() {
        return Err(Error::bad_input("the image says no command, and none was given"));
    }
    let work = engine.store.work_dir()?;
    let no_network = no_network(request.network, engine.options.network);
    let mut env: Vec<(String, Bytes)> = Vec::new();
    let own = config.env.iter().filter_map(|e| e.split_once('='));
    for (name, value) in own.chain(request.env.iter().map(|(n, v)| (n.as_str(), v.as_str()))) {
        env.retain(|(n, _)| n != name);
        env.push((name.to_owned(), Bytes(value.as_bytes().to_vec())));
    }
    if !env.iter().any(|(name, _)| name == "PATH") {
        env.push(("PATH".into(), Bytes(DEFAULT_PATH.as_bytes().to_vec())));
    }
    let cwd = request.cwd.clone().unwrap_or_else(|| config.working_dir.clone());
    let mount = |m: &HostMount| MountSpec {
        target: m.target.clone(),
        kind: MountSpecKind::Host { path: RawPath(m.source.clone()), read_only: m.read_only },
    };
    let lent = names(no_network, "");
    let spec = RunSpec {
        root: RootSpec {
            work: RawPath::from(work.path()),
            lower: engine.lower(&built.config.rootfs.diff_ids)?,
            scaffold: Some(engine.scaffold(&lent)?),
        },
        trees: Vec::new(),
        process: ProcessSpec {
            argv,
            env,
            cwd: if cwd.is_empty() { "/".into() } else { cwd },
            user: request.user.clone().unwrap_or_else(|| config.user.clone()),
            insecure: false,
            ulimits: Vec::new(),
            terminal: match &streams {
                Streams::Terminal(terminal) => Some(terminal.size()),
                _ => None,
            },
        },
        mounts: request.mounts.iter().map(mount).collect(),
        lent,
        hostname: HOSTNAME.into(),
        no_network,
        shm_size: None,
        no_core_dump: false,
        script: None,
    };
    let mut watch = engine.disk.watch(work.path(), &work.path().join(RootSpec::UPPER));
    let bounds = Bounds { time: limit, disk: Some(&mut watch) };
    sandbox::call_within(&engine.options.helper, &Request::Run(Box::new(spec)), streams, cancel, bounds)
}

/// What Docker gives to a container whose image sets none.
pub const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

fn argv(entrypoint: Option<&[String]>, cmd: Option<&[String]>, request: &RunRequest) -> Vec<String> {
    let (entrypoint, cmd) = match &request.entrypoint {
        Some(given) => (given.as_slice(), &[][..]),
        None => (entrypoint.unwrap_or_default(), cmd.unwrap_or_default()),
    };
    let args = if request.args.is_empty() { cmd } else { &request.args };
    [entrypoint, args].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_put_together_as_docker_does() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let (entry, cmd) = (words("tini --"), words("server --port 80"));
        let joined = |entrypoint: Option<&str>, args: &str| {
            let request = RunRequest { entrypoint: entrypoint.map(words), args: words(args), ..RunRequest::default() };
            argv(Some(&entry), Some(&cmd), &request).join(" ")
        };
        assert_eq!(joined(None, ""), "tini -- server --port 80");
        assert_eq!(joined(None, "sh -c ls"), "tini -- sh -c ls");
        assert_eq!(joined(Some("bash"), ""), "bash");
        assert_eq!(joined(Some("bash"), "-l"), "bash -l");
        assert_eq!(argv(None, Some(&cmd), &RunRequest::default()), cmd);
        assert!(argv(None, None, &RunRequest::default()).is_empty());
    }
}
