//! An ssh-agent with private keys from files (`--ssh ID=KEY[,KEY]`): OpenSSH's own program, started for this run alone.
//! It lives in a pid namespace below a helper, so that it ends with this process, however that ends.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::engine::embedded::helper::spec::{Bytes, Report, Request, ToolSpec};
use crate::engine::embedded::run::DEFAULT_PATH;
use crate::engine::embedded::sandbox::{self, Streams};
use crate::error::{Context as _, Error, Result};
use crate::event::Cancel;
use crate::image::store::{Store, WorkDir};

/// Of the socket, in the agent's own directory.
const SOCKET: &str = "agent";
/// Until the agent listens.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub struct KeyAgent {
    dir: WorkDir,
    /// Keeps the short path of the socket good.
    opened: File,
    cancel: Cancel,
    thread: Option<JoinHandle<Result<Report>>>,
}

impl KeyAgent {
    pub fn start(store: &Store, helper: &Path, id: &str, keys: &[PathBuf]) -> Result<KeyAgent> {
        let (program, add) = (program("ssh-agent", id)?, program("ssh-add", id)?);
        let dir = store.work_dir()?;
        let what = || format!("cannot start an ssh-agent for `{id}`");
        let opened = File::open(dir.path()).unusable(what)?;
        // Its socket is named from where it stands, as a path of a socket has to be short.
        let script = format!("cd \"$0\" && exec \"$1\" -D -a {SOCKET}");
        let place = dir.path().to_str().ok_or_else(|| Error::unusable(what()).cause("the store's path is no text"))?;
        let argv = ["/bin/sh", "-c", script.as_str(), place, program].map(str::to_owned).to_vec();
        let env = vec![("PATH".to_owned(), Bytes(DEFAULT_PATH.as_bytes().to_vec()))];
        let cancel = Cancel::new()?;
        let (helper, watched) = (helper.to_owned(), cancel.clone());
        let thread = std::thread::Builder::new()
            .name("ssh-agent".into())
            .spawn(move || {
                let request = Request::Tool(ToolSpec { argv, env, seen_at: None });
                // It says where its socket is, which is known.
                sandbox::call(&helper, &request, Streams::Capture(&mut |_, _| {}), &watched)
            })
            .unusable(what)?;
        let mut agent = KeyAgent { dir, opened, cancel, thread: Some(thread) };
        agent.wait().map_err(|e| e.context(what()))?;
        for key in keys {
            agent.add(add, key)?;
        }
        Ok(agent)
    }

    pub fn socket(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.opened.as_raw_fd())).join(SOCKET)
    }

    fn wait(&mut self) -> Result<()> {
        let begun = Instant::now();
        while std::os::unix::net::UnixStream::connect(self.socket()).is_err() {
            if self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
                let ended = self.thread.take().map(JoinHandle::join);
                return Err(match ended {
                    Some(Ok(Err(error))) => error,
                    Some(Ok(Ok(report))) => super::super::build::ended_badly(&report),
                    Some(Err(_)) | None => Error::failed("it ended"),
                });
            }
            if begun.elapsed() > PATIENCE {
                return Err(Error::unusable("it does not listen"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// The key goes through a pipe: ssh-add would be particular about the rights of the file.
    fn add(&self, program: &str, key: &Path) -> Result<()> {
        let what = || format!("cannot use the key `{}`", key.display());
        let content = std::fs::read(key).bad_input(what)?;
        let mut child = Command::new(program)
            .arg("-")
            .env_clear()
            .env("SSH_AUTH_SOCK", SOCKET)
            // Nobody is asked for a passphrase, neither on the terminal nor in a window.
            .env("SSH_ASKPASS", "/bin/false")
            .env("SSH_ASKPASS_REQUIRE", "force")
            .current_dir(self.dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unusable(what)?;
        if let Some(mut stdin) = child.stdin.take() {
            // When it doesn't want to read, it says why.
            let _ = stdin.write_all(&content);
        }
        let output = child.wait_with_output().unusable(what)?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("ssh-add gives no reason");
        Err(Error::bad_input(what())
            .cause(said.to_owned())
            .hint("a key with a passphrase can be lent by an agent of your own: `ssh-add KEY`, then `--ssh default`"))
    }
}

impl Drop for KeyAgent {
    fn drop(&mut self) {
        self.cancel.cancel();
        if let Some(thread) = self.thread.take() {
            // How it ended is nobody's concern any more.
            let _ = thread.join();
        }
    }
}

fn program(name: &'static str, id: &str) -> Result<&'static str> {
    let found = match name {
        "ssh-agent" => ["/usr/bin/ssh-agent", "/usr/local/bin/ssh-agent", "/bin/ssh-agent"],
        _ => ["/usr/bin/ssh-add", "/usr/local/bin/ssh-add", "/bin/ssh-add"],
    };
    found.into_iter().find(|path| Path::new(path).is_file()).ok_or_else(|| {
        Error::unusable(format!("the keys of `--ssh {id}=…` need OpenSSH's {name}, which is not installed"))
            .hint("apt-get install openssh-client; or lend an agent of your own with `--ssh default`")
    })
}
