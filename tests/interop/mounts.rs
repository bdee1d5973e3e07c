//! A mount namespace in which tests mount: nothing of it is seen outside, and all of it goes away with the value.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::tools::succeed;

pub struct Mounts {
    holder: Child,
    dir: tempfile::TempDir,
}

impl Mounts {
    pub fn new() -> Mounts {
        let mut command = Command::new("unshare");
        command.args(["-m", "--propagation", "private", "sh", "-c", "echo ready; exec sleep 86400"]);
        let mut holder = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Mounts { holder, dir: tempfile::tempdir().unwrap() }
    }

    /// A command that sees the namespace.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.holder.id())).arg(program);
        command
    }

    /// A path of the namespace, to be read from outside.
    pub fn outside(&self, path: &Path) -> PathBuf {
        Path::new(&format!("/proc/{}/root", self.holder.id())).join(path.strip_prefix("/").unwrap())
    }

    /// Mounts an overlay, the uppermost lower directory last; gives its path within the namespace.
    pub fn overlay(&self, lower: &[PathBuf], upper: Option<(&Path, &Path)>) -> PathBuf {
        let at = self.dir.path().join("merged");
        std::fs::create_dir_all(&at).unwrap();
        let empty = self.dir.path().join("empty");
        std::fs::create_dir_all(&empty).unwrap();
        let mut lower: Vec<String> = lower.iter().rev().map(|path| path.display().to_string()).collect();
        // The kernel wants two directories where nothing is written.
        lower.push(empty.display().to_string());
        let mut options = format!("lowerdir={},redirect_dir=off,metacopy=off", lower.join(":"));
        if let Some((upper, work)) = upper {
            options.push_str(&format!(",upperdir={},workdir={}", upper.display(), work.display()));
        }
        succeed(self.command("mount").args(["-t", "overlay", "overlay", "-o", &options]).arg(&at));
        at
    }

    pub fn unmount(&self, path: &Path) {
        succeed(self.command("umount").arg(path));
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
