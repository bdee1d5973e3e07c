//! The releases, and what both programs make of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

pub const NEWEST: &str = "23.0.0";
/// The newest, and the newest of the two majors before it.
pub const RELEASES: [&str; 3] = [NEWEST, "22.2.0", "21.3.0"];

/// The variable with the virtual environment of a tree that stands for all releases.
const TREE: &str = "KOLLAGE_KOLLA_TREE";

/// What is compared where time doesn't count: all releases, or the one tree that is named.
pub fn everything() -> Vec<&'static str> {
    if std::env::var_os(TREE).is_some() { vec![TREE] } else { RELEASES.into() }
}

static INSTALLED: Mutex<BTreeMap<String, Arc<Mutex<Option<PathBuf>>>>> = Mutex::new(BTreeMap::new());

/// The virtual environment of a release.
pub fn release(version: &str) -> PathBuf {
    if version == TREE {
        return PathBuf::from(std::env::var_os(TREE).unwrap());
    }
    let slot = INSTALLED.lock().unwrap().entry(version.to_owned()).or_default().clone();
    let mut slot = slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(dir) = &*slot {
        return dir.clone();
    }
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kolla-{version}"));
    let complete = dir.join("complete");
    if !complete.is_file() {
        let _ = fs::remove_dir_all(&dir);
        succeed(Command::new("python3").args(["-m", "venv"]).arg(&dir));
        // kolla-build wants the packages of an engine and of graphviz even where it only renders.
        let kolla = format!("kolla=={version}");
        succeed(Command::new(dir.join("bin/pip")).args(["install", "--quiet", &kolla, "docker", "graphviz"]));
        fs::write(&complete, "").unwrap();
    }
    *slot = Some(dir.clone());
    dir
}

/// The directory of a release's images.
pub fn docker(release: &Path) -> PathBuf {
    let shared = release.join("share/kolla/docker");
    if shared.is_dir() { shared } else { package(release).join("docker") }
}

/// The Python package of a release.
pub fn package(release: &Path) -> PathBuf {
    let lib = fs::read_dir(release.join("lib")).unwrap().next().unwrap().unwrap().path();
    lib.join("site-packages/kolla")
}

/// The distributions that a release can be built for.
pub fn distributions(release: &Path) -> Vec<String> {
    let config = fs::read_to_string(package(release).join("common/config.py")).unwrap();
    let line = config.lines().find(|line| line.starts_with("BASE_OS_DISTRO")).unwrap();
    line.split('\'').skip(1).step_by(2).map(str::to_owned).collect()
}

pub fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, said(&output));
    output
}

pub fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// What a program is called with.
#[derive(Clone, Debug, Default)]
pub struct Call {
    pub arguments: Vec<String>,
    pub environment: Vec<(String, String)>,
}

/// A call as one writes it: words between spaces.
pub fn call(arguments: &str) -> Call {
    Call { arguments: arguments.split_whitespace().map(str::to_owned).collect(), environment: Vec::new() }
}

impl Call {
    pub fn and(mut self, argument: impl AsRef<Path>) -> Call {
        self.arguments.push(argument.as_ref().display().to_string());
        self
    }

    pub fn with(mut self, name: &str, value: &str) -> Call {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// What Kolla's own program says to each call, with no file of the machine's; all calls have to succeed.
pub fn theirs(release: &Path, calls: &[Call]) -> Vec<Vec<u8>> {
    let rooms: Vec<tempfile::TempDir> = calls.iter().map(|_| tempfile::tempdir().unwrap()).collect();
    let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kolla/driver.py");
    let mut python = Command::new(release.join("bin/python"));
    python.arg(driver).arg(compiled(release)).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = python.spawn().unwrap();
    let mut jobs = String::new();
    for (call, room) in calls.iter().zip(&rooms) {
        let mut environment: BTreeMap<&str, &str> =
            call.environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let room = room.path().to_str().unwrap();
        // Kolla leaves directories behind where it keeps what is temporary.
        environment.extend([("HOME", room), ("TMPDIR", room)]);
        let job = serde_json::json!({ "arguments": call.arguments, "environment": environment, "room": room });
        jobs.push_str(&format!("{job}\n"));
    }
    python.stdin.take().unwrap().write_all(jobs.as_bytes()).unwrap();
    let codes = python.wait_with_output().unwrap().stdout;
    let codes = String::from_utf8(codes).unwrap();
    assert_eq!(codes.lines().count(), calls.len(), "{codes}");
    let answers = codes.lines().zip(calls).zip(&rooms).map(|((code, call), room)| {
        let read = |name: &str| fs::read(room.path().join(name)).unwrap();
        assert_eq!(code, "0", "{call:?}: {}", String::from_utf8_lossy(&read("stderr")));
        read("stdout")
    });
    answers.collect()
}

/// Where a release's compiled templates are kept.
fn compiled(release: &Path) -> PathBuf {
    let dir = release.join("compiled");
    fs::create_dir_all(&dir).unwrap();
    dir
}

/// Kollage's program, with no file of the machine's.
pub fn ours(tree: &Path, home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kollage"));
    command.args(["kolla-build", "--kolla"]).arg(tree);
    command.env_clear().env("HOME", home).current_dir(home);
    command
}

/// What it says to each call; all have to succeed.
pub fn ours_all(tree: &Path, calls: &[Call]) -> Vec<Vec<u8>> {
    let answer = |call: &Call| {
        let room = tempfile::tempdir().unwrap();
        let mut command = ours(tree, room.path());
        succeed(command.args(&call.arguments).envs(call.environment.iter().cloned())).stdout
    };
    calls.iter().map(answer).collect()
}

/// What a comparison found.
#[derive(Debug, Default)]
pub struct Found {
    pub templates: usize,
    pub differing: Vec<String>,
}

/// Renders a tree by both programs with the same arguments, `tree` by Kollage.
pub fn compare(release: &Path, tree: &Path, calls: &[Call]) -> Vec<Found> {
    let room = tempfile::tempdir().unwrap();
    let into = |which: &str, number: usize| room.path().join(format!("{which}{number}"));
    let rendering = |which: &str| -> Vec<Call> {
        let calls = calls.iter().cloned().enumerate();
        calls
            .map(|(number, mut call)| {
                // Kolla deletes the directories of what it cannot build.
                call.arguments.extend(["--template-only", "--enable-unbuildable", "--work-dir"].map(str::to_owned));
                call.and(into(which, number))
            })
            .collect()
    };
    theirs(release, &rendering("theirs"));
    ours_all(tree, &rendering("ours"));
    let compared = |number: usize| {
        let [theirs, ours] = ["theirs", "ours"].map(|which| dockerfiles(&into(which, number).join("docker")));
        let names: BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
        let differing = names.into_iter().filter(|name| theirs.get(*name) != ours.get(*name)).cloned().collect();
        Found { templates: theirs.len(), differing }
    };
    (0..calls.len()).map(compared).collect()
}

/// Fails with the names of what differs.
pub fn same(release: &str, calls: &[Call]) {
    let dir = self::release(release);
    for (found, call) in compare(&dir, &dir, calls).into_iter().zip(calls) {
        let Found { templates, differing } = found;
        assert!(templates > 150, "{release} {call:?}: only {templates} templates");
        assert!(differing.is_empty(), "{release} {call:?}: {} of {templates} differ: {differing:?}", differing.len());
    }
}

pub fn dockerfiles(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.file_name().is_some_and(|name| name == "Dockerfile") {
                let name = path.strip_prefix(root).unwrap().display().to_string();
                found.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    found
}
