//! A hermetic place to run the program in: its own HOME, store and catalogue, and an environment that says nothing
//! about the machine. Bases are root file systems with busybox in them: no network is needed.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub struct Sandbox {
    dir: tempfile::TempDir,
}

/// What a call of the program came to.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    #[track_caller]
    pub fn ok(self) -> Self {
        self.exits(0)
    }

    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    #[track_caller]
    pub fn says(self, text: &str) -> Self {
        assert!(self.stderr.contains(text), "`{text}` is not in stderr:\n{}", self.stderr);
        self
    }

    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e} in stdout:\n{}", self.stdout))
    }
}

/// Tests that mount or make owners say that they pass over themselves where they can't; CI runs as root.
pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("not root: this test passes over itself");
    }
    root
}

impl Sandbox {
    pub fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("kollage-test-").tempdir().unwrap();
        for name in ["home", "catalogue"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Sandbox { dir }
    }

    /// With a catalogue whose images can be built on `rootfs:../base.tar`.
    pub fn with_base() -> Self {
        let sandbox = Sandbox::new();
        busybox_rootfs(&sandbox.path("base.tar"));
        sandbox.write("kollage.toml", "[build]\nbase = \"debian\"\nsource_date_epoch = 1700000000\n");
        sandbox
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn catalogue(&self) -> PathBuf {
        self.path("catalogue")
    }

    /// Writes a file of the catalogue.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.catalogue().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// An image with a recipe of its own; `head` is what stands in `[image]` besides the parent.
    pub fn image(&self, name: &str, parent: &str, recipe: &str) {
        let parent = if parent.contains('=') { parent.to_owned() } else { format!("parent = \"{parent}\"") };
        self.write(&format!("images/{name}/image.toml"), &format!("[image]\n{parent}\nsummary = \"{name}\"\n"));
        self.write(&format!("images/{name}/Dockerfile.j2"), recipe);
    }

    /// `base` on the busybox root file system, which is `base.tar` beside the catalogue.
    pub fn base(&self, recipe: &str) {
        let from = format!("kind = \"base\"\nfrom = {{ rootfs = \"{}\" }}", self.path("base.tar").display());
        self.image("base", &from, recipe);
    }

    pub fn command(&self, args: &[&str]) -> Command {
        self.command_on("store", args)
    }

    pub fn command_on(&self, store: &str, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kollage"));
        command.args(args).current_dir(self.catalogue()).env_clear().stdin(Stdio::null());
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("HOME", self.path("home")).env("LANG", "C.UTF-8").env("KOLLAGE_STORE", self.path(store));
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        ran(&mut self.command(args))
    }

    pub fn run_on(&self, store: &str, args: &[&str]) -> Ran {
        ran(&mut self.command_on(store, args))
    }

    /// Started and not waited for, with its output thrown away.
    pub fn start(&self, args: &[&str]) -> Child {
        self.command(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// `kollage plan --format json` as `name: action`.
    pub fn plan(&self, args: &[&str]) -> Vec<(String, String)> {
        let ran = self.run(&[&["plan", "--format", "json"], args].concat()).ok();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        ran.json().as_array().unwrap().iter().map(|n| (text(&n["name"]), text(&n["action"]))).collect()
    }

    /// Builds, and gives the summary file.
    pub fn build(&self, args: &[&str]) -> serde_json::Value {
        self.build_on("store", args)
    }

    pub fn build_on(&self, store: &str, args: &[&str]) -> serde_json::Value {
        let file = self.path("summary.json");
        let file = file.to_str().unwrap();
        self.run_on(store, &[&["build", "--summary-json-file", file], args].concat()).ok();
        serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
    }
}

pub fn ran(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// One field of each node in a group of a summary file, by node name.
pub fn field(summary: &serde_json::Value, name: &str, field: &str) -> String {
    let groups = ["built", "failed", "skipped"];
    let nodes = groups.iter().flat_map(|group| summary[group].as_array().unwrap());
    let node = nodes.into_iter().find(|n| n["name"] == name).unwrap_or_else(|| panic!("{name} is not in {summary}"));
    node[field].as_str().unwrap_or_default().to_owned()
}

/// A root file system of a few directories and busybox, as a tar.
pub fn busybox_rootfs(tar: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    for name in ["bin", "etc", "tmp", "root", "usr/bin", "var/lib"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    fs::set_permissions(root.join("tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
    let busybox = ["/bin/busybox", "/usr/bin/busybox"].iter().map(Path::new).find(|p| p.exists());
    let busybox = busybox.expect("these tests need Debian's busybox-static (tools/install-deps test)");
    fs::copy(busybox, root.join("bin/busybox")).unwrap();
    for name in "sh cat ls echo mkdir rm ln cp mv touch chmod chown id env test true false sleep stat head find grep mount dd sed tr wc sort kill ps hostname".split(' ') {
        symlink("busybox", root.join("bin").join(name)).unwrap();
    }
    fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1001:app:/home/app:/bin/sh\n")
        .unwrap();
    fs::write(root.join("etc/group"), "root:x:0:\napp:x:1001:\nextra:x:2000:app\n").unwrap();
    let status = Command::new("tar")
        .args(["--numeric-owner", "--owner=0", "--group=0", "--sort=name", "--mtime=@1600000000", "-cf"])
        .arg(tar)
        .arg("-C")
        .arg(root)
        .arg(".")
        .status()
        .unwrap();
    assert!(status.success());
}
