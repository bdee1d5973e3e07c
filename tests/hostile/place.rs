//! A directory for one row: a context, a catalogue, a store, and something beside them that must stay as it is.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// For what has to end; nothing is asserted about how fast it does.
const PATIENCE: Duration = Duration::from_secs(120);
/// Kilobytes of address space that the program has.
const MEMORY: u64 = 4 << 20;
const CANARY: &str = "untouched";
/// Where something would be if it got out by an absolute name.
const ABSOLUTE: &str = "/kollage-hostile-test";

pub struct Place {
    pub dir: tempfile::TempDir,
    code: AtomicI32,
}

pub struct Ran {
    pub code: i32,
    pub stderr: String,
    pub timed_out: bool,
}

impl Place {
    pub fn new() -> Place {
        let mut builder = tempfile::Builder::new();
        builder.prefix("kollage-hostile-");
        let dir = builder.tempdir_in("/dev/shm").or_else(|_| builder.tempdir()).unwrap();
        for name in ["context", "outside", "home"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("outside/canary"), CANARY).unwrap();
        Place { dir, code: AtomicI32::new(-1) }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn context(&self, name: &str) -> PathBuf {
        self.path("context").join(name)
    }

    /// The directory that nothing may be written to, as an absolute name.
    pub fn outside(&self) -> String {
        self.path("outside").display().to_string()
    }

    /// Writes a file of the context.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.context(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    /// Builds a Dockerfile with the context.
    pub fn build(&self, dockerfile: &str) -> Ran {
        self.build_with(dockerfile, &[])
    }

    pub fn build_with(&self, dockerfile: &str, args: &[&str]) -> Ran {
        fs::write(self.path("Dockerfile"), dockerfile).unwrap();
        self.run(&[&["build", "--dockerfile", "Dockerfile", "--context", "context", "-t", "hostile:1"], args].concat())
    }

    /// The same, and the merged tree goes to `out.tar`.
    pub fn export(&self, dockerfile: &str) -> Ran {
        self.build_with(dockerfile, &["-o", "type=tar,dest=out.tar"])
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        self.wait(self.start(args))
    }

    pub fn start(&self, args: &[&str]) -> Child {
        let script = format!("ulimit -v {MEMORY}; exec \"$0\" \"$@\"");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_kollage")]).args(args);
        command.current_dir(self.dir.path()).env_clear().env("HOME", self.path("home"));
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LANG", "C.UTF-8");
        command.env("KOLLAGE_STORE", self.path("store")).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    }

    pub fn wait(&self, mut child: Child) -> Ran {
        let mut stderr = child.stderr.take().unwrap();
        // A program that fills its pipe waits for somebody to read it.
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            stderr.read_to_end(&mut bytes).unwrap();
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let begun = Instant::now();
        let mut timed_out = false;
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if begun.elapsed() > PATIENCE {
                timed_out = true;
                let group = Pid::from_raw(child.id() as i32).unwrap();
                let _ = rustix::process::kill_process_group(group, Signal::KILL);
                break child.wait().unwrap();
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let code = status.code().unwrap_or(-1);
        self.code.store(code, Ordering::Relaxed);
        Ran { code, stderr: reader.join().unwrap(), timed_out }
    }

    pub fn last_code(&self) -> i32 {
        self.code.load(Ordering::Relaxed)
    }

    /// Nothing was written outside.
    pub fn untouched(&self) -> Result<(), String> {
        let mut names: Vec<String> = Vec::new();
        for entry in fs::read_dir(self.path("outside")).unwrap() {
            names.push(entry.unwrap().file_name().to_string_lossy().into_owned());
        }
        if names != ["canary"] || fs::read_to_string(self.path("outside/canary")).ok().as_deref() != Some(CANARY) {
            return Err(format!("something was changed outside: {names:?}"));
        }
        if Path::new(ABSOLUTE).exists() {
            return Err(format!("{ABSOLUTE} was made"));
        }
        let known = ["Dockerfile", "catalogue", "context", "home", "image", "image.tar", "out.tar", "outside", "store"];
        for entry in fs::read_dir(self.dir.path()).unwrap() {
            let name = entry.unwrap().file_name().to_string_lossy().into_owned();
            if !known.contains(&name.as_str()) {
                return Err(format!("`{name}` was made beside the store"));
            }
        }
        Ok(())
    }

    /// Names and kinds in what `export` wrote: names of directories end in a slash.
    pub fn exported(&self) -> Result<BTreeMap<String, char>, String> {
        let file = fs::File::open(self.path("out.tar")).map_err(|e| format!("nothing was written: {e}"))?;
        let mut out = BTreeMap::new();
        for entry in tar::Archive::new(file).entries().unwrap() {
            let entry = entry.unwrap();
            let kind = char::from(entry.header().entry_type().as_byte());
            out.insert(String::from_utf8_lossy(&entry.path_bytes()).into_owned(), kind);
        }
        Ok(out)
    }

    /// That the image has these names in it.
    pub fn has(&self, names: &[&str]) -> Result<(), String> {
        let found = self.exported()?;
        match names.iter().find(|name| !found.contains_key(**name)) {
            None => Ok(()),
            Some(name) => Err(format!("`{name}` is not in the image: {:?}", found.keys())),
        }
    }
}
