//! What the tests with real peers share: a small image in a store.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use crate::room::{Image, Room};
pub use crate::tools::{Docker, Registry, ready, run};

use crate::room::put_image;
use crate::tools::{Daemon, succeed};
use kollage::event::Cancel;
use kollage::image::digest::Digest;
use kollage::image::store::{Codec, Store};
use serde_json::json;

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
    let config = json!({ "Cmd": ["/bin/tool"], "Env": ["PATH=/bin"], "Labels": { "content": content } });
    put_image(store, diff_ids, codec, config)
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

/// Podman with everything that it keeps below a directory of its own.
pub struct Podman {
    dir: tempfile::TempDir,
}

impl Podman {
    pub fn new() -> Podman {
        Podman { dir: tempfile::tempdir().unwrap() }
    }

    fn command(&self) -> Command {
        let path = |name: &str| self.dir.path().join(name);
        let mut command = Command::new("podman");
        command.arg("--root").arg(path("root")).arg("--runroot").arg(path("run")).arg("--tmpdir").arg(path("tmp"));
        command.args(["--storage-driver=vfs", "--cgroup-manager=cgroupfs", "--events-backend=file"]);
        // crun takes no mixture of cgroups, and limits can't be raised where root may not.
        fs::write(
            path("containers.conf"),
            "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n",
        )
        .unwrap();
        command.arg("--runtime=runc").env("CONTAINERS_CONF", path("containers.conf"));
        // Steps of builds run without a container runtime.
        command.env("BUILDAH_ISOLATION", "chroot");
        command
    }

    pub fn run(&self, args: &[&str]) -> String {
        succeed(self.command().args(args))
    }

    /// Answers on a socket, as `systemctl start podman.socket` has it.
    pub fn serve(&self) -> PodmanService {
        // Sockets have short names.
        let dir = tempfile::Builder::new().prefix("pod").tempdir_in("/tmp").unwrap();
        let socket = dir.path().join("sock");
        let mut command = self.command();
        command.args(["system", "service", "--time=0"]).arg(format!("unix://{}", socket.display()));
        let mut daemon = Daemon::start(&mut command, dir.path().join("log"));
        daemon.wait_until("podman", || UnixStream::connect(&socket).is_ok());
        PodmanService { _daemon: daemon, dir }
    }
}

pub struct PodmanService {
    // Ends before its directory goes away.
    _daemon: Daemon,
    dir: tempfile::TempDir,
}

impl PodmanService {
    /// For DOCKER_HOST.
    pub fn host(&self) -> String {
        format!("unix://{}", self.dir.path().join("sock").display())
    }
}

/// Ends a Docker as when its machine loses power.
pub fn kill(docker: &Docker) {
    let host = docker.host();
    let dir = Path::new(host.strip_prefix("unix://").unwrap()).parent().unwrap();
    let pid: i32 = fs::read_to_string(dir.join("pid")).unwrap().trim().parse().unwrap();
    let group = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
    // The machine would have taken its mounts with it.
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    for at in mounts.lines().rev().filter_map(|line| line.split(' ').nth(1)).filter(|at| Path::new(at).starts_with(dir))
    {
        let _ = Command::new("umount").args(["-l", at]).output();
    }
}

/// Debian 13's dockerd, unpacked below the directory that comes with it.
pub fn newer_docker(more: &[String]) -> (Docker, PathBuf) {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("newer-docker");
    run(concat!(env!("CARGO_MANIFEST_DIR"), "/tools/newer-docker"), &[dir.to_str().unwrap()]);
    (Docker::start_from(&dir.join("usr/sbin/dockerd"), more), dir)
}
