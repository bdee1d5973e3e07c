//! Programs that people have beside Kollage, each started for a test with everything that it keeps in a directory of
//! its own, and ended with it.

use std::fs;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

/// How long a daemon may take to answer on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(90);

#[path = "ready.rs"]
mod ready;

pub use ready::ready;

/// Runs a program that has to succeed; gives its standard output.
pub fn run(program: &str, args: &[&str]) -> String {
    succeed(Command::new(program).args(args))
}

pub fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// A program in a process group of its own that ends with the value.
pub struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    pub fn start(command: &mut Command, log: PathBuf) -> Daemon {
        let out = fs::File::create(&log).unwrap();
        command.stdin(Stdio::null()).stdout(out.try_clone().unwrap()).stderr(out).process_group(0);
        Daemon { child: command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}")), log }
    }

    pub fn wait_until(&mut self, what: &str, mut ready: impl FnMut() -> bool) {
        let start = Instant::now();
        while !ready() {
            let ended = self.child.try_wait().unwrap();
            assert!(
                ended.is_none() && start.elapsed() < PATIENCE,
                "{what} did not start ({ended:?}):\n{}",
                fs::read_to_string(&self.log).unwrap_or_default()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let start = Instant::now();
            while matches!(self.child.try_wait(), Ok(None)) && start.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// Debian's dockerd with everything that it keeps below a directory of its own.
pub struct Docker {
    // Ends before its directory goes away.
    daemon: Daemon,
    _mounts: Mounts,
    dir: tempfile::TempDir,
}

/// What a dockerd that ended leaves mounted below its directory, which could not be removed otherwise.
struct Mounts(PathBuf);

impl Drop for Mounts {
    fn drop(&mut self) {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        // What was mounted last goes first.
        let places = mounts.lines().rev().filter_map(|line| line.split(' ').nth(1)).map(Path::new);
        for place in places.filter(|place| place.starts_with(&self.0)) {
            let _ = rustix::mount::unmount(place, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

impl Docker {
    pub fn start() -> Docker {
        Docker::start_from(Path::new("dockerd"), &[])
    }

    /// `program` may be another dockerd, and flags may say otherwise than what is usual here.
    pub fn start_from(program: &Path, more: &[String]) -> Docker {
        // Sockets have short names.
        let dir = tempfile::Builder::new().prefix("dkr").tempdir_in("/tmp").unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("daemon.json"), "{}").unwrap();
        let mut command = Command::new(program);
        command.arg("--config-file").arg(path("daemon.json"));
        command.arg("--data-root").arg(path("data")).arg("--exec-root").arg(path("exec"));
        command.arg("--pidfile").arg(path("pid")).arg("--host").arg(format!("unix://{}", path("sock").display()));
        command.args([
            "--bridge=none",
            "--iptables=false",
            "--ip6tables=false",
            "--ip-forward=false",
            "--ip-masq=false",
        ]);
        command.args(["--storage-driver=overlay2", "--log-level=warn"]).args(more);
        let daemon = Daemon::start(&mut command, path("log"));
        let mut docker = Docker { daemon, _mounts: Mounts(dir.path().into()), dir };
        let host = docker.host();
        docker.daemon.wait_until("dockerd", || {
            let mut info = Command::new(client());
            info.args(["-H", &host, "info"]).output().is_ok_and(|output| output.status.success())
        });
        docker
    }

    /// For DOCKER_HOST.
    pub fn host(&self) -> String {
        format!("unix://{}", self.dir.path().join("sock").display())
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(client());
        command.arg("-H").arg(self.host()).env("DOCKER_CONFIG", self.dir.path());
        command
    }

    pub fn run(&self, args: &[&str]) -> String {
        succeed(self.command().args(args))
    }
}

/// Debian's client where there are several: it is the one that fits the daemon.
fn client() -> &'static str {
    if Path::new("/usr/bin/docker").exists() { "/usr/bin/docker" } else { "docker" }
}

/// Debian's docker-registry on a free port of the loopback interface.
pub struct Registry {
    _daemon: Daemon,
    _dir: Option<tempfile::TempDir>,
    address: String,
}

/// User `me`, password `s3cret`: what `htpasswd -B` makes of them.
const HTPASSWD: &str = "me:$2y$05$abcdefghijklmnopqrstuuLK7U1u6pVRmL7L1BBM2aS35PSZnDXlK\n";

impl Registry {
    pub fn start(login: bool) -> Registry {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry::start_in(dir.path(), login, None);
        Registry { _dir: Some(dir), ..registry }
    }

    /// With its data and its `log` in a directory of the caller's; `tls` are a certificate and its key.
    pub fn start_in(dir: &Path, login: bool, tls: Option<(&Path, &Path)>) -> Registry {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let path = |name: &str| dir.join(name).display().to_string();
        let mut config = json!({
            "version": "0.1",
            "storage": { "filesystem": { "rootdirectory": path("data") }, "delete": { "enabled": true } },
            "http": { "addr": address },
        });
        if login {
            fs::write(path("htpasswd"), HTPASSWD).unwrap();
            config["auth"] = json!({ "htpasswd": { "realm": "test", "path": path("htpasswd") } });
        }
        if let Some((certificate, key)) = tls {
            config["http"]["tls"] = json!({ "certificate": certificate, "key": key });
        }
        // JSON is YAML.
        fs::File::create(path("config.yml")).unwrap().write_all(config.to_string().as_bytes()).unwrap();
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(path("config.yml"));
        let mut daemon = Daemon::start(&mut command, dir.join("log"));
        daemon.wait_until("docker-registry", || TcpStream::connect(&address).is_ok());
        Registry { _daemon: daemon, _dir: None, address }
    }

    /// `127.0.0.1:PORT`
    pub fn address(&self) -> &str {
        &self.address
    }
}
