//! A store, an engine whose helper is the real program, and a tiny base made of the host's busybox.

#![allow(dead_code)]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use kollage::context::Context;
use kollage::diag::SourceFile;
use kollage::dockerfile::step::Network;
use kollage::dockerfile::{self, Inputs};
use kollage::engine::embedded::{EmbeddedEngine, Options};
use kollage::engine::surroundings::Surroundings;
use kollage::engine::{BaseJob, BaseSource, BuildJob, Built, Check, Ctl, Engine as _, NoCache};
use kollage::error::Result;
use kollage::event::{Cancel, Event, Sink};
use kollage::image::config::Platform;
use kollage::image::digest::{Key, KeyHasher};
use kollage::image::store::Store;

pub const BASE: &str = "example.org/busybox:latest";

/// Steps mount and change owners: nothing here works for anybody but root. CI runs as root.
pub fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("{test}: skipped, as it has to run as root");
    }
    root
}

pub struct Lab {
    pub dir: tempfile::TempDir,
    pub engine: EmbeddedEngine,
    network: Network,
    pub base: Arc<Built>,
    pub cancel: Cancel,
    pub events: Arc<Recorder>,
}

/// What was told during a build.
#[derive(Default)]
pub struct Recorder {
    events: Mutex<Vec<Event>>,
}

impl Sink for Recorder {
    fn event(&self, event: Event) {
        self.events.lock().unwrap().push(event);
    }
}

impl Recorder {
    pub fn output(&self) -> Vec<String> {
        let events = self.events.lock().unwrap();
        events
            .iter()
            .filter_map(|e| match e {
                Event::Output { line, .. } => Some(line.clone()),
                _ => None,
            })
            .collect()
    }

    /// For each step that finished, whether it was taken from the store.
    pub fn reused(&self) -> Vec<bool> {
        let events = self.events.lock().unwrap();
        events
            .iter()
            .filter_map(|e| match e {
                Event::StepFinished { reused, .. } => Some(*reused),
                _ => None,
            })
            .collect()
    }

    pub fn any(&self, holds: impl FnMut(&Event) -> bool) -> bool {
        self.events.lock().unwrap().iter().any(holds)
    }

    pub fn clear(&self) {
        self.events.lock().unwrap().clear();
    }
}

/// What a build has besides its Dockerfile.
#[derive(Clone, Default)]
pub struct Setup {
    pub build_args: BTreeMap<String, String>,
    pub source_date_epoch: Option<i64>,
    pub checks: Vec<Check>,
    pub no_cache: NoCache,
    pub surroundings: Surroundings,
    pub max_layers: Option<usize>,
    pub bases: BTreeMap<String, Arc<Built>>,
}

impl Lab {
    pub fn new() -> Lab {
        Lab::with(Options::default())
    }

    pub fn with(options: Options) -> Lab {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("store");
        Lab::set_up(dir, &store, options)
    }

    /// With a store that outlives it.
    pub fn at(store: &Path) -> Lab {
        Lab::set_up(tempfile::tempdir().unwrap(), store, Options::default())
    }

    fn set_up(dir: tempfile::TempDir, store: &Path, options: Options) -> Lab {
        let store = Store::open(store).unwrap();
        let network = options.network;
        let engine = EmbeddedEngine::new(store, Options { helper: env!("CARGO_BIN_EXE_kollage").into(), ..options });
        let events = Arc::new(Recorder::default());
        let cancel = Cancel::new().unwrap();
        let tar = dir.path().join("busybox.tar");
        std::fs::write(&tar, busybox_rootfs()).unwrap();
        let job = BaseJob {
            key: key("base"),
            source: BaseSource::RootfsTar { path: tar },
            platform: Platform::host(),
            source_date_epoch: Some(1_700_000_000),
            pin: None,
            refresh: false,
        };
        let node: Arc<str> = "busybox".into();
        let base = engine.base(&job, &Ctl { node: &node, sink: &*events, cancel: &cancel }).unwrap();
        std::fs::create_dir(dir.path().join("context")).unwrap();
        Lab { dir, engine, network, base: Arc::new(base), cancel, events }
    }

    pub fn context(&self) -> PathBuf {
        self.dir.path().join("context")
    }

    /// Writes a file of the build context.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.context().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    pub fn job(&self, dockerfile: &str, setup: &Setup) -> BuildJob {
        let file = SourceFile::new("Dockerfile", dockerfile);
        let parsed = Arc::new(dockerfile::parse(&file).unwrap_or_else(|d| panic!("{d:?}")));
        let inputs = Inputs {
            target: None,
            build_args: setup.build_args.clone(),
            platform: Platform::host(),
            contexts: Default::default(),
        };
        let resolved = dockerfile::resolve(&parsed, &inputs).unwrap_or_else(|d| panic!("{d:?}"));
        let mut bases = setup.bases.clone();
        bases.insert(BASE.into(), self.base.clone());
        let configs = bases.iter().map(|(name, built)| (name.clone(), built.config.clone())).collect();
        let stages = dockerfile::lower(&resolved, &configs).unwrap_or_else(|d| panic!("{d:?}"));
        BuildJob {
            key: key(dockerfile),
            stages,
            dockerfile: parsed,
            build_args: setup.build_args.clone(),
            context: Context::open(&self.context(), None).unwrap(),
            content: BTreeMap::new(),
            pins: BTreeMap::new(),
            bases,
            platform: Platform::host(),
            source_date_epoch: setup.source_date_epoch,
            labels: BTreeMap::new(),
            checks: setup.checks.clone(),
            no_cache: setup.no_cache.clone(),
            surroundings: Surroundings { network: self.network, ..setup.surroundings.clone() },
            squash: false,
            max_layers: setup.max_layers,
        }
    }

    /// Builds instructions on the base.
    pub fn build(&self, instructions: &str) -> Result<Built> {
        self.build_with(instructions, &Setup::default())
    }

    pub fn build_with(&self, instructions: &str, setup: &Setup) -> Result<Built> {
        self.build_dockerfile(&format!("FROM {BASE}\n{instructions}\n"), setup)
    }

    pub fn build_dockerfile(&self, dockerfile: &str, setup: &Setup) -> Result<Built> {
        self.carry_out(&self.job(dockerfile, setup))
    }

    pub fn carry_out(&self, job: &BuildJob) -> Result<Built> {
        let node: Arc<str> = "node".into();
        self.engine.build(job, &Ctl { node: &node, sink: &*self.events, cancel: &self.cancel })
    }

    /// Builds instructions of which the last is a RUN, and gives what they printed.
    pub fn output(&self, instructions: &str) -> Vec<String> {
        self.events.clear();
        self.build_with(instructions, &Setup { no_cache: NoCache::Everything, ..Setup::default() }).unwrap();
        self.events.output()
    }

    /// Paths in the uppermost layer, sorted, directories with a slash at the end, deletions with a `!` before them.
    pub fn top_layer(&self, built: &Built) -> Vec<String> {
        let id = built.config.rootfs.diff_ids.last().unwrap();
        let root = self.engine.store().layer_fs(id);
        let mut out = Vec::new();
        walk(&root, &root, &mut out);
        out.sort();
        out
    }

    /// Content of a file of an image.
    pub fn read(&self, built: &Built, path: &str) -> Option<Vec<u8>> {
        let layers = built.config.rootfs.diff_ids.iter().rev();
        layers
            .map(|id| self.engine.store().layer_fs(id).join(path.trim_start_matches('/')))
            .find_map(|path| std::fs::read(path).ok())
    }

    /// What a command in the image prints.
    pub fn ask(&self, built: &Built, command: &str) -> String {
        // A step that is taken from the store prints nothing.
        let bases = BTreeMap::from([("image".into(), Arc::new(built.clone()))]);
        let setup = Setup { bases, no_cache: NoCache::Everything, ..Setup::default() };
        self.events.clear();
        self.build_dockerfile(&format!("FROM image\nSHELL [\"/bin/sh\", \"-c\"]\nUSER 0\nRUN {command}\n"), &setup)
            .unwrap();
        self.events.output().join("\n")
    }
}

fn walk(root: &Path, dir: &Path, out: &mut Vec<String>) {
    use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let meta = std::fs::symlink_metadata(&path).unwrap();
        let name = String::from_utf8_lossy(path.strip_prefix(root).unwrap().as_os_str().as_bytes()).into_owned();
        if meta.is_dir() {
            out.push(format!("{name}/"));
            walk(root, &path, out);
        } else if meta.file_type().is_char_device() && meta.rdev() == 0 {
            out.push(format!("!{name}"));
        } else {
            out.push(name);
        }
    }
}

pub fn key(text: &str) -> Key {
    KeyHasher::new("test").part("text", text).finish()
}

/// A root file system with nothing in it but busybox and two accounts.
fn busybox_rootfs() -> Vec<u8> {
    let busybox = std::fs::read("/bin/busybox").expect("these tests need the package busybox-static");
    let mut tar = tar::Builder::new(Vec::new());
    let mut add = |path: &str, kind: tar::EntryType, mode: u32, content: &[u8], link: Option<&str>| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(content.len() as u64);
        header.set_mtime(1_700_000_000);
        match link {
            Some(target) => tar.append_link(&mut header, path, target).unwrap(),
            None => tar.append_data(&mut header, path, content).unwrap(),
        }
    };
    use tar::EntryType::{Directory, Regular, Symlink};
    for dir in ["bin/", "etc/", "tmp/", "root/", "home/", "home/kim/", "var/", "usr/", "usr/lib/"] {
        add(dir, Directory, if dir == "tmp/" { 0o1777 } else { 0o755 }, b"", None);
    }
    add("bin/busybox", Regular, 0o755, &busybox, None);
    for applet in [
        "sh",
        "cat",
        "ls",
        "id",
        "pwd",
        "env",
        "echo",
        "stat",
        "mkdir",
        "rm",
        "ln",
        "touch",
        "chmod",
        "chown",
        "cp",
        "mv",
        "sleep",
        "test",
        "mount",
        "grep",
        "wc",
        "readlink",
        "true",
        "false",
        "kill",
        "mknod",
        "dd",
        "hostname",
        "tr",
        "find",
        "sort",
        "ps",
        "umask",
        "head",
        "sed",
        "tty",
        "sha256sum",
        "ip",
        "seq",
        "truncate",
        "printenv",
    ] {
        add(&format!("bin/{applet}"), Symlink, 0o777, b"", Some("busybox"));
    }
    add("lib", Symlink, 0o777, b"", Some("usr/lib"));
    add("etc/passwd", Regular, 0o644, b"root:x:0:0:root:/root:/bin/sh\nkim:x:1000:1001:Kim:/home/kim:/bin/sh\n", None);
    add("etc/group", Regular, 0o644, b"root:x:0:\nkim:x:1001:\nstaff:x:50:kim\naudio:x:29:kim,other\n", None);
    let mut bytes = tar.into_inner().unwrap();
    bytes.flush().unwrap();
    bytes
}
