//! A directory with a configuration, its sources, and the places that it copies to.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Lab {
    directory: tempfile::TempDir,
    pub variables: BTreeMap<String, String>,
}

#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub said: String,
    /// The lines that name problems.
    pub errors: Vec<String>,
}

const PROGRAM: &str = env!("CARGO_BIN_EXE_kollage-start");

impl Ran {
    pub fn of(mut command: Command) -> Ran {
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let errors = said.lines().filter_map(|line| line.strip_prefix("kollage-start: error: "));
        Ran { code: output.status.code().unwrap_or(-1), errors: errors.map(Into::into).collect(), said }
    }

    #[track_caller]
    pub fn is(self, code: i32) -> Ran {
        assert_eq!(self.code, code, "{}", self.said);
        self
    }

    /// Failed with exactly one problem, whose line has all of these in it.
    #[track_caller]
    pub fn says(self, code: i32, parts: &[&str]) {
        assert_eq!((self.code, self.errors.len()), (code, 1), "{}", self.said);
        for part in parts {
            assert!(self.errors[0].contains(part), "no {part:?} in {:?}", self.errors[0]);
        }
    }
}

impl Lab {
    /// None for an ordinary user, who can't give files away.
    pub fn new() -> Option<Lab> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("passed over: this test needs root");
            return None;
        }
        let lab = Lab { directory: tempfile::tempdir().unwrap(), variables: BTreeMap::new() };
        for name in ["config", "state", "etc"] {
            fs::create_dir(lab.path(name)).unwrap();
        }
        Some(lab)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    pub fn mode(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    pub fn link(&self, name: &str, target: impl AsRef<Path>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, path).unwrap();
    }

    /// The rest of a configuration as JSON; `@` at the start of a string stands for the lab's directory.
    pub fn config(&self, rest: &str) {
        let text =
            format!("{{\"command\": \"true\", {rest}}}").replace("\"@", &format!("\"{}", self.path("").display()));
        fs::write(self.path("config/config.json"), text).unwrap();
    }

    pub fn command(&self, arguments: &[impl AsRef<OsStr>]) -> Command {
        self.prepared(Command::new(PROGRAM), arguments)
    }

    fn prepared(&self, mut command: Command, arguments: &[impl AsRef<OsStr>]) -> Command {
        command.env("KOLLAGE_CONFIG_DIR", self.path("config"));
        command.env("KOLLAGE_STATE_DIR", self.path("state"));
        command.env("KOLLA_CONFIG_STRATEGY", "COPY_ALWAYS");
        command.envs(&self.variables).args(arguments);
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.command(arguments))
    }

    /// Runs `around` with the program's path after it, and then the arguments.
    pub fn within(&self, around: &[&str], arguments: &[impl AsRef<OsStr>]) -> Ran {
        let mut command = Command::new(around[0]);
        command.args(&around[1..]).arg(PROGRAM);
        Ran::of(self.prepared(command, arguments))
    }

    pub fn set(&self) -> Ran {
        self.run(&["set-configs"])
    }

    pub fn check(&self) -> Ran {
        self.run(&["set-configs", "--check"])
    }

    /// Configures, and `--check` agrees.
    #[track_caller]
    pub fn configured(&self) {
        self.set().is(0);
        self.check().is(0);
    }

    #[track_caller]
    pub fn has(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        assert!(fs::symlink_metadata(&path).is_ok_and(|there| there.is_file()), "{name} is no regular file");
        assert_eq!(fs::read(&path).unwrap(), content.as_ref(), "{name}");
    }

    #[track_caller]
    pub fn has_not(&self, name: &str) {
        assert!(fs::symlink_metadata(self.path(name)).is_err(), "{name} is there");
    }

    /// Owner, group and mode.
    pub fn own(&self, name: &str) -> (u32, u32, u32) {
        let there = fs::symlink_metadata(self.path(name)).unwrap();
        (there.uid(), there.gid(), there.mode() & 0o7777)
    }

    /// All that is below a directory, with content, owner and mode.
    pub fn tree(&self, name: &str) -> BTreeMap<PathBuf, String> {
        fn walk(path: &Path, all: &mut BTreeMap<PathBuf, String>) {
            let there = fs::symlink_metadata(path).unwrap();
            let what = if there.is_dir() {
                "directory".to_string()
            } else if there.file_type().is_symlink() {
                format!("link to {}", fs::read_link(path).unwrap().display())
            } else {
                format!("file {:?}", fs::read(path).unwrap())
            };
            all.insert(path.into(), format!("{what} {}:{} {:o}", there.uid(), there.gid(), there.mode() & 0o7777));
            if there.is_dir() {
                for entry in fs::read_dir(path).unwrap() {
                    walk(&entry.unwrap().path(), all);
                }
            }
        }
        let mut all = BTreeMap::new();
        walk(&self.path(name), &mut all);
        all
    }
}
