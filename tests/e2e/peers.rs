//! Engines and builders that are somewhere else: Debian's dockerd behind TLS with an authority of its own, and behind
//! Debian's sshd.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::push::certificates;
use crate::sandbox::{Ran, Sandbox, ran};
use crate::tools::{Daemon, Docker, Registry, ready, run};

fn free() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn catalogue() -> Sandbox {
    let sandbox = Sandbox::with_base();
    // The Docker of tests has no bridge.
    sandbox.write("kollage.toml", "[build]\nbase = \"debian\"\nnetwork = \"none\"\n");
    sandbox.base("FROM {{ parent }}\nENV PATH=/bin\nRUN echo base > /base\n");
    sandbox.image("app", "base", "FROM {{ parent }}\nCOPY word /word\nCMD [\"cat\", \"/base\", \"/word\"]\n");
    sandbox.write("images/app/word", "word\n");
    sandbox
}

/// Debian's sshd, which lets in whoever has the key, and an `ssh` that has it.
struct Ssh {
    _daemon: Daemon,
    dir: tempfile::TempDir,
    address: String,
}

impl Ssh {
    fn start() -> Ssh {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        for name in ["host", "user"] {
            run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", &path(name)]);
        }
        let address = free();
        let (host, port) = address.split_once(':').unwrap();
        let config = format!(
            "Port {port}\nListenAddress {host}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\n\
             PidFile none\nPermitRootLogin yes\nPasswordAuthentication no\n",
            path("host"),
            path("user.pub")
        );
        fs::write(path("sshd_config"), config).unwrap();
        let key = fs::read_to_string(path("host.pub")).unwrap();
        fs::write(path("known_hosts"), format!("[{host}]:{port} {key}")).unwrap();
        let config = format!(
            "IdentityFile {}\nIdentitiesOnly yes\nUserKnownHostsFile {}\nBatchMode yes\n",
            path("user"),
            path("known_hosts")
        );
        fs::write(path("ssh_config"), config).unwrap();
        // OpenSSH asks the system for the home directory, and not the environment.
        fs::create_dir(path("bin")).unwrap();
        fs::write(path("bin/ssh"), format!("#!/bin/sh\nexec /usr/bin/ssh -F {} \"$@\"\n", path("ssh_config"))).unwrap();
        fs::set_permissions(path("bin/ssh"), fs::Permissions::from_mode(0o755)).unwrap();
        // Where it puts itself when it is no service.
        fs::create_dir_all("/run/sshd").unwrap();
        let mut command = Command::new("/usr/sbin/sshd");
        command.args(["-D", "-e", "-f", &path("sshd_config")]);
        let mut daemon = Daemon::start(&mut command, dir.path().join("log"));
        daemon.wait_until("sshd", || TcpStream::connect(&address).is_ok());
        Ssh { _daemon: daemon, dir, address }
    }

    /// For PATH.
    fn path(&self) -> String {
        format!(
            "{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            self.dir.path().join("bin").display()
        )
    }
}

/// What Docker's clients want in DOCKER_CERT_PATH, from a directory of [`certificates`].
fn client(authority: &Path, own: Option<&Path>) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::copy(authority.join("ca.crt"), dir.path().join("ca.pem")).unwrap();
    for (from, to) in
        own.into_iter().flat_map(|own| [(own.join("client.crt"), "cert.pem"), (own.join("client.key"), "key.pem")])
    {
        fs::copy(from, dir.path().join(to)).unwrap();
    }
    dir
}

#[test]
fn docker_is_reached_over_tls_and_over_ssh() {
    if !ready(&["dockerd", "docker", "docker-registry", "busybox", "openssl", "sshd", "ssh", "ssh-keygen"]) {
        return;
    }
    let (ours, others) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    certificates(ours.path());
    certificates(others.path());
    let address = free();
    let flag = |name: &str, file: &str| format!("--{name}={}", ours.path().join(file).display());
    let docker = Docker::start_from(
        Path::new("dockerd"),
        &[
            format!("--host=tcp://{address}"),
            "--tlsverify".into(),
            flag("tlscacert", "ca.crt"),
            flag("tlscert", "server.crt"),
            flag("tlskey", "server.key"),
        ],
    );
    let sandbox = catalogue();
    let build = |env: &[(&str, &str)], args: &[&str]| -> Ran {
        ran(sandbox.command(&[&["build"], args].concat()).envs(env.iter().copied()))
    };
    let works = || {
        let said = docker.run(&["run", "--rm", "--network=none", "kollage/app:debian-bookworm"]);
        assert_eq!(said, "base\nword\n");
        docker.run(&["rmi", "--force", "kollage/app:debian-bookworm"]);
    };

    let host = format!("tcp://{address}");
    let tls = |certificates: &Path, args: &[&str]| {
        let path = certificates.display().to_string();
        build(&[("DOCKER_HOST", &host), ("DOCKER_TLS_VERIFY", "1"), ("DOCKER_CERT_PATH", &path)], args)
    };
    let engine = ["--engine", "docker"];
    let known = client(ours.path(), Some(ours.path()));
    tls(known.path(), &engine).ok();
    works();
    // One that it doesn't know, none at all, a server that isn't known, and no TLS.
    for stranger in
        [client(ours.path(), Some(others.path())), client(ours.path(), None), client(others.path(), Some(ours.path()))]
    {
        tls(stranger.path(), &engine).exits(3).says(&host).says("DOCKER_HOST").says("hint:");
    }
    build(&[("DOCKER_HOST", &host)], &engine).exits(3).says("DOCKER_HOST").says("hint:");
    let nowhere = tempfile::tempdir().unwrap();
    tls(nowhere.path(), &engine).exits(3).says("there is no ca.pem in").says("DOCKER_CERT_PATH");

    // The same as a builder.
    let registry = Registry::start(false);
    let repository = format!("{}/kollage/work", registry.address());
    let builder = format!("tls://{address}");
    let args = ["--engine", "buildkit", "--builder", &builder, "--builder-repository", &repository];
    let as_builder = |certificates: &Path| build(&[("DOCKER_CERT_PATH", &certificates.display().to_string())], &args);
    as_builder(known.path()).ok().says("app");
    assert!(docker.run(&["images", "--format", "{{.Repository}}"]).contains(&repository));
    let stranger = client(ours.path(), Some(others.path()));
    as_builder(stranger.path()).exits(3).says(&builder).says("hint:");
    as_builder(client(others.path(), Some(ours.path())).path()).exits(3).says(&builder).says("hint:");

    let ssh = Ssh::start();
    let path = ssh.path();
    let socket = docker.host();
    let socket = socket.strip_prefix("unix://").unwrap();
    let over = |user: &str, path: &str, socket: &str| {
        let host = format!("ssh://{user}@{}{socket}", ssh.address);
        build(&[("DOCKER_HOST", &host), ("PATH", path)], &engine)
    };
    over("root", &path, socket).ok();
    works();
    // Nobody listens there; nobody is let in; nobody is there.
    over("root", &path, "/nowhere/sock").exits(3).says("ssh://root@").says("hint:");
    over("nobody-here", &path, socket).exits(3).says("Permission denied").says("hint:");
    let host = format!("ssh://root@{}", free());
    build(&[("DOCKER_HOST", &host), ("PATH", &path)], &engine).exits(3).says(&host).says("hint:");
    build(&[("DOCKER_HOST", "ssh://root:s3cret@h")], &engine).exits(2).says("ssh://…@h");
}
