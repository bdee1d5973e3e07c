//! The releases, and what both programs make of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

pub const NEWEST: &str = "23.0.0";
/// The newest, and the newest of the two majors before it.
pub const RELEASES: [&str; 3] = [NEWEST, "22.2.0", "21.3.0"];

static INSTALLED: Mutex<BTreeMap<String, Arc<Mutex<Option<PathBuf>>>>> = Mutex::new(BTreeMap::new());

/// The virtual environment of a release.
pub fn release(version: &str) -> PathBuf {
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

pub fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, said(&output));
    output
}

pub fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Kolla's program, with no file of the machine's.
pub fn theirs(release: &Path, home: &Path) -> Command {
    let mut command = Command::new(release.join("bin/kolla-build"));
    clean(&mut command, home);
    command
}

/// Kollage's.
pub fn ours(tree: &Path, home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kollage"));
    command.args(["kolla-build", "--kolla"]).arg(tree);
    clean(&mut command, home);
    command
}

fn clean(command: &mut Command, home: &Path) {
    let path = std::env::var_os("PATH").unwrap();
    command.env_clear().env("PATH", path).env("HOME", home).current_dir(home);
}

/// What a comparison found.
#[derive(Debug, Default)]
pub struct Found {
    pub templates: usize,
    pub differing: Vec<String>,
}

/// Renders a tree by both programs with the same arguments, `tree` by Kollage.
pub fn compare(release: &Path, tree: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Found {
    let room = tempfile::tempdir().unwrap();
    let dirs = [room.path().join("theirs"), room.path().join("ours")];
    let commands = [theirs(release, room.path()), ours(tree, room.path())];
    for (mut command, dir) in commands.into_iter().zip(&dirs) {
        // Kolla deletes the directories of what it cannot build.
        command.args(["--template-only", "--enable-unbuildable", "--work-dir"]).arg(dir).args(arguments);
        succeed(command.envs(environment.iter().copied()));
    }
    let [theirs, ours] = dirs.map(|dir| dockerfiles(&dir.join("docker")));
    let mut found = Found { templates: theirs.len(), differing: Vec::new() };
    let names = theirs.keys().chain(ours.keys()).collect::<std::collections::BTreeSet<_>>();
    found.differing.extend(names.into_iter().filter(|name| theirs.get(*name) != ours.get(*name)).cloned());
    found
}

/// Fails with the names of what differs.
pub fn same(release: &str, arguments: &[&str], environment: &[(&str, &str)]) -> usize {
    let dir = self::release(release);
    let found = compare(&dir, &dir, arguments, environment);
    assert!(found.templates > 150, "{release} {arguments:?}: only {} templates", found.templates);
    assert!(
        found.differing.is_empty(),
        "{release} {arguments:?}: {} of {} differ: {:?}",
        found.differing.len(),
        found.templates,
        found.differing
    );
    found.templates
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
