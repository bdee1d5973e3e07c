//! What other tools make of an image: each unpacks it in its own way, and the tree is read.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::mounts::Mounts;
use crate::room::Room;
use crate::tools::{Docker, run};
use crate::tree::Tree;

/// Of a program that may refuse; the last lines of what it said are the reason.
fn attempt(command: &mut Command) -> Result<String, String> {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let last: Vec<&str> = text.lines().rev().take(3).collect();
    let last = last.into_iter().rev().collect::<Vec<_>>().join(" ");
    // The end says what went wrong; before it, a script may be repeated.
    Err(last.chars().skip(last.chars().count().saturating_sub(600)).collect())
}

/// `image` is `LAYOUT:TAG`.
pub fn umoci(room: &Room, image: &str) -> Result<Tree, String> {
    let bundle = room.path("umoci-bundle");
    let _ = std::fs::remove_dir_all(&bundle);
    attempt(Command::new("umoci").args(["unpack", "--image", &room.arg("", image)]).arg(&bundle))?;
    let tree = Tree::read(&bundle.join("rootfs"));
    std::fs::remove_dir_all(&bundle).unwrap();
    Ok(tree)
}

/// Podman's and buildah's storage, with overlays, in a mount namespace of its own.
pub struct Storage<'a> {
    mounts: &'a Mounts,
    dir: PathBuf,
}

impl<'a> Storage<'a> {
    pub fn new(room: &Room, mounts: &'a Mounts, name: &str) -> Storage<'a> {
        Storage { mounts, dir: room.path(name) }
    }

    fn options(&self) -> [String; 5] {
        let dir = self.dir.display();
        [
            "--root".into(),
            format!("{dir}/root"),
            "--runroot".into(),
            format!("{dir}/run"),
            "--storage-driver=overlay".into(),
        ]
    }

    pub fn podman(&self, args: &[&str]) -> Result<String, String> {
        let mut command = self.mounts.command("podman");
        command.args(self.options()).args(["--cgroup-manager=cgroupfs", "--events-backend=none"]);
        command.arg("--tmpdir").arg(self.dir.join("tmp"));
        attempt(command.args(args))
    }

    pub fn buildah(&self, args: &[&str]) -> Result<String, String> {
        attempt(self.mounts.command("buildah").args(self.options()).args(args))
    }

    /// `skopeo copy` into the storage, and podman's mount of it. `from` with its transport.
    pub fn skopeo_and_podman(&self, from: &str, name: &str) -> Result<Tree, String> {
        let to = format!("containers-storage:[overlay@{0}/root+{0}/run]{name}", self.dir.display());
        attempt(self.mounts.command("skopeo").args(["copy", "-q", from, &to]))?;
        let at = self.podman(&["image", "mount", name])?;
        Ok(Tree::read(&self.mounts.outside(Path::new(&at))))
    }

    /// A working container of an image, by its name, and its root within the namespace.
    pub fn container(&self, from: &str) -> Result<(String, PathBuf), String> {
        let container = self.buildah(&["from", "--pull=never", from]).or_else(|_| self.buildah(&["from", from]))?;
        let at = self.buildah(&["mount", &container])?;
        Ok((container, at.into()))
    }

    pub fn buildah_tree(&self, from: &str) -> Result<Tree, String> {
        let (_, at) = self.container(from)?;
        Ok(Tree::read(&self.mounts.outside(&at)))
    }
}

/// The layers that Docker unpacked, mounted as Docker mounts them.
pub fn docker_tree(docker: &Docker, mounts: &Mounts, image: &str) -> Tree {
    let data = docker.run(&["image", "inspect", "--format", "{{json .GraphDriver.Data}}", image]);
    let data: Value = serde_json::from_str(&data).unwrap();
    let text = |key: &str| data[key].as_str().unwrap_or_default().to_owned();
    // Topmost first.
    let dirs = format!("{}:{}", text("UpperDir"), text("LowerDir"));
    let lower: Vec<PathBuf> = dirs.split(':').filter(|dir| !dir.is_empty()).map(PathBuf::from).rev().collect();
    let at = mounts.overlay(&lower, None);
    let tree = Tree::read(&mounts.outside(&at));
    mounts.unmount(&at);
    tree
}

pub fn docker_loads(docker: &Docker, mounts: &Mounts, archive: &str, image: &str) -> Result<Tree, String> {
    attempt(docker.command().args(["load", "-q", "-i", archive]))?;
    let tree = docker_tree(docker, mounts, image);
    docker.run(&["image", "rm", "-f", image]);
    Ok(tree)
}

/// Runs `docker build` on a context with a Dockerfile in it.
pub fn docker_build(docker: &Docker, buildkit: bool, context: &Path, tag: &str) {
    let mut command = docker.command();
    command.env("DOCKER_BUILDKIT", if buildkit { "1" } else { "0" });
    command.args(["build", "-q", "--network=none", "-t", tag]).arg(context);
    attempt(&mut command).unwrap_or_else(|e| panic!("docker build, BuildKit {buildkit}: {e}"));
}

pub fn umoci_repack(room: &Room, image: &str, tag: &str, script: &str) {
    let bundle = room.arg("", "repack-bundle");
    run("umoci", &["unpack", "--image", &room.arg("", image), &bundle]);
    run("bash", &["-c", &format!("cd {bundle}/rootfs; {script}")]);
    let layout = image.split(':').next().unwrap();
    run("umoci", &["repack", "--image", &room.arg("", &format!("{layout}:{tag}")), &bundle]);
    std::fs::remove_dir_all(&bundle).unwrap();
}
