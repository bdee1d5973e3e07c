//! What the tests with real peers share: a small image in a store, and programs that are started for a test and end
//! with it.

use std::fs;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kollage::event::Cancel;
use kollage::image::archive::{self, ExportImage, Imported};
use kollage::image::config::Platform;
use kollage::image::digest::Digest;
use kollage::image::store::{Codec, Store};
use serde_json::{Value, json};

/// How long a daemon may take to answer on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(90);

/// Whether this machine can run the test. Where it has to, a missing tool fails.
pub fn ready(tools: &[&str]) -> bool {
    let missing: Vec<&str> = tools.iter().copied().filter(|tool| find(tool).is_none()).collect();
    let root = rustix::process::geteuid().is_root();
    if root && missing.is_empty() {
        return true;
    }
    assert!(std::env::var_os("CI").is_none(), "CI has to have root rights ({root}) and {missing:?}");
    eprintln!("skipped: needs root and {tools:?}; missing are {missing:?}");
    false
}

fn find(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(tool)).find(|file| file.is_file())
}

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

/// A directory with a store that goes away at the end.
pub struct Room {
    pub dir: tempfile::TempDir,
    pub cancel: Cancel,
}

impl Room {
    pub fn new() -> Room {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        // Podman makes names of paths, and names are lower case.
        let name = format!("kollage-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let dir = tempfile::Builder::new().prefix(&name).rand_bytes(0).tempdir().unwrap();
        Room { dir, cancel: Cancel::new().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// As an argument.
    pub fn arg(&self, prefix: &str, name: &str) -> String {
        format!("{prefix}{}", self.path(name).display())
    }

    pub fn store(&self, name: &str) -> Store {
        Store::open(&self.path(name)).unwrap()
    }

    pub fn export(&self, store: &Store, output: &str, images: &[(&str, &Image)]) {
        let images: Vec<ExportImage> = images
            .iter()
            .map(|(name, image)| ExportImage { name: name.parse().unwrap(), manifest: image.manifest.clone() })
            .collect();
        let output = output.replace("DIR", &self.dir.path().display().to_string()).parse().unwrap();
        archive::export(store, &images, &output, None, &self.cancel).unwrap();
    }

    pub fn import_oci(&self, store: &Store, name: &str, reference: Option<&str>) -> Imported {
        archive::import_oci(store, &self.path(name), reference, &Platform::host(), &self.cancel).unwrap()
    }

    pub fn import_docker(&self, store: &Store, name: &str, reference: Option<&str>) -> Imported {
        archive::import_docker_archive(store, &self.path(name), reference, &Platform::host(), &self.cancel).unwrap()
    }
}

/// An image in a store, as a build leaves it behind.
pub struct Image {
    pub manifest: Digest,
    pub config: Digest,
    pub diff_ids: Vec<Digest>,
}

/// Two layers with what layers can have: owners, a set-uid program, hard and symbolic links, a deletion.
pub fn image(store: &Store, content: &str, codec: Codec) -> Image {
    let cancel = Cancel::new().unwrap();
    let mut below = tar::Builder::new(Vec::new());
    entry(&mut below, "etc/", 0o755, "");
    entry(&mut below, "etc/kept", 0o640, content);
    entry(&mut below, "etc/gone", 0o644, "x");
    entry(&mut below, "bin/", 0o755, "");
    entry(&mut below, "bin/tool", 0o4755, "#!/bin/sh\n");
    link(&mut below, "bin/hard", tar::EntryType::Link, "bin/tool");
    link(&mut below, "bin/soft", tar::EntryType::Symlink, "tool");
    let mut above = tar::Builder::new(Vec::new());
    entry(&mut above, "etc/.wh.gone", 0o600, "");
    entry(&mut above, "etc/new", 0o644, "two");
    let mut diff_ids: Vec<Digest> = Vec::new();
    for tar in [below, above] {
        let layer = store.unpack_layer(&mut &*tar.into_inner().unwrap(), &diff_ids, None, &cancel).unwrap();
        diff_ids.push(layer.diff_id);
    }
    let platform = Platform::host();
    let config = json!({
        "architecture": platform.architecture,
        "os": platform.os,
        "config": { "Cmd": ["/bin/tool"], "Env": ["PATH=/bin"], "Labels": { "content": content } },
        "rootfs": { "type": "layers", "diff_ids": diff_ids },
        "history": [{ "created_by": "below" }, { "created_by": "above" }],
    })
    .to_string();
    let layers: Vec<Value> = diff_ids
        .iter()
        .map(|diff_id| serde_json::to_value(store.compressed(diff_id, codec, &cancel).unwrap()).unwrap())
        .collect();
    let config_digest = store.put_blob(config.as_bytes()).unwrap();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": config_digest,
            "size": config.len(),
        },
        "layers": layers,
    });
    let manifest = store.put_blob(manifest.to_string().as_bytes()).unwrap();
    Image { manifest, config: config_digest, diff_ids }
}

fn header(kind: tar::EntryType, mode: u32, size: usize) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(42);
    header.set_gid(43);
    header.set_mtime(1_000_000_000);
    header.set_size(size as u64);
    header
}

fn entry(tar: &mut tar::Builder<Vec<u8>>, name: &str, mode: u32, content: &str) {
    let kind = if name.ends_with('/') { tar::EntryType::Directory } else { tar::EntryType::Regular };
    tar.append_data(&mut header(kind, mode, content.len()), name, content.as_bytes()).unwrap();
}

fn link(tar: &mut tar::Builder<Vec<u8>>, name: &str, kind: tar::EntryType, target: &str) {
    tar.append_link(&mut header(kind, 0o777, 0), name, target).unwrap();
}

/// Checks that a directory holds the merged tree of [`image`].
pub fn assert_tree(root: &Path, content: &str) {
    use std::os::unix::fs::MetadataExt as _;
    let names = |dir: &str| {
        let mut names: Vec<String> = fs::read_dir(root.join(dir))
            .unwrap_or_else(|e| panic!("{}/{dir}: {e}", root.display()))
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    assert_eq!((names("etc"), names("bin")), (own(&["kept", "new"]), own(&["hard", "soft", "tool"])));
    assert_eq!(fs::read_to_string(root.join("etc/kept")).unwrap(), content);
    let tool = fs::metadata(root.join("bin/tool")).unwrap();
    assert_eq!((tool.uid(), tool.gid(), tool.mode() & 0o7777, tool.mtime()), (42, 43, 0o4755, 1_000_000_000));
    assert_eq!(fs::metadata(root.join("bin/hard")).unwrap().ino(), tool.ino());
    assert_eq!(fs::read_link(root.join("bin/soft")).unwrap(), Path::new("tool"));
}

fn own(names: &[&str]) -> Vec<String> {
    names.iter().map(|n| (*n).to_owned()).collect()
}

/// A program in a process group of its own that ends with the value.
struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    fn start(command: &mut Command, log: PathBuf) -> Daemon {
        let out = fs::File::create(&log).unwrap();
        command.stdin(Stdio::null()).stdout(out.try_clone().unwrap()).stderr(out).process_group(0);
        Daemon { child: command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}")), log }
    }

    fn wait_until(&mut self, what: &str, mut ready: impl FnMut() -> bool) {
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
    dir: tempfile::TempDir,
}

impl Docker {
    pub fn start() -> Docker {
        // Sockets have short names.
        let dir = tempfile::Builder::new().prefix("dkr").tempdir_in("/tmp").unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("daemon.json"), "{}").unwrap();
        let mut command = Command::new("dockerd");
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
        command.args(["--storage-driver=vfs", "--log-level=warn"]);
        let daemon = Daemon::start(&mut command, path("log"));
        let mut docker = Docker { daemon, dir };
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

    pub fn run(&self, args: &[&str]) -> String {
        succeed(Command::new(client()).arg("-H").arg(self.host()).env("DOCKER_CONFIG", self.dir.path()).args(args))
    }
}

/// Debian's client where there are several: it is the one that fits the daemon.
fn client() -> &'static str {
    if Path::new("/usr/bin/docker").exists() { "/usr/bin/docker" } else { "docker" }
}

/// Podman with everything that it keeps below a directory of its own.
pub struct Podman {
    dir: tempfile::TempDir,
}

impl Podman {
    pub fn new() -> Podman {
        Podman { dir: tempfile::tempdir().unwrap() }
    }

    pub fn run(&self, args: &[&str]) -> String {
        let path = |name: &str| self.dir.path().join(name);
        let mut command = Command::new("podman");
        command.arg("--root").arg(path("root")).arg("--runroot").arg(path("run")).arg("--tmpdir").arg(path("tmp"));
        command.args(["--storage-driver=vfs", "--cgroup-manager=cgroupfs", "--events-backend=none"]);
        succeed(command.args(args))
    }
}

/// Debian's docker-registry on a free port of the loopback interface.
pub struct Registry {
    _daemon: Daemon,
    _dir: tempfile::TempDir,
    address: String,
}

/// User `me`, password `s3cret`: what `htpasswd -B` makes of them.
const HTPASSWD: &str = "me:$2y$05$abcdefghijklmnopqrstuuLK7U1u6pVRmL7L1BBM2aS35PSZnDXlK\n";

impl Registry {
    pub fn start(login: bool) -> Registry {
        let dir = tempfile::tempdir().unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let mut config = json!({
            "version": "0.1",
            "storage": { "filesystem": { "rootdirectory": path("data") }, "delete": { "enabled": true } },
            "http": { "addr": address },
        });
        if login {
            fs::write(path("htpasswd"), HTPASSWD).unwrap();
            config["auth"] = json!({ "htpasswd": { "realm": "test", "path": path("htpasswd") } });
        }
        // JSON is YAML.
        fs::File::create(path("config.yml")).unwrap().write_all(config.to_string().as_bytes()).unwrap();
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(path("config.yml"));
        let mut daemon = Daemon::start(&mut command, dir.path().join("log"));
        daemon.wait_until("docker-registry", || TcpStream::connect(&address).is_ok());
        Registry { _daemon: daemon, _dir: dir, address }
    }

    /// `127.0.0.1:PORT`
    pub fn address(&self) -> &str {
        &self.address
    }
}
