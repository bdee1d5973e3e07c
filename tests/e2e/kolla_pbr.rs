//! A git source of a real project that asks git for its version (pbr does), installed by the real pip; both and the project
//! are PyPI's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fetch::{Daemon, git};
use crate::kolla::Tree;
use crate::kolla_layers::{add, add_python};
use crate::sandbox::is_root;
use crate::tools::{run, succeed};

const PROJECT: &str = "debtcollector";
const VERSION: &str = "3.0.0";

/// What is in a directory, by the ends of names.
fn file(dir: &Path, ends: &str) -> PathBuf {
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut files = files.filter(|path| path.to_str().unwrap().ends_with(ends));
    files.next().unwrap_or_else(|| panic!("nothing of {} ends with {ends}", dir.display()))
}

/// The project as it is developed: without what its release says of itself, tagged with that, and one commit further.
fn developed(sdist: &Path, repository: &Path) {
    fs::create_dir(repository).unwrap();
    succeed(Command::new("tar").arg("-xzf").arg(sdist).arg("--strip-components=1").arg("-C").arg(repository));
    fs::remove_file(repository.join("PKG-INFO")).unwrap();
    fs::remove_dir_all(file(repository, ".egg-info")).unwrap();
    git(repository, &["init", "-q"]);
    git(repository, &["add", "-A"]);
    git(repository, &["commit", "-q", "-m", "as it was released"]);
    git(repository, &["tag", "-a", "-m", "released", VERSION]);
    git(repository, &["commit", "-q", "--allow-empty", "-m", "and on"]);
}

#[test]
fn pbr_finds_the_version_of_a_git_source_as_in_kolla_s_clone() {
    if !is_root() {
        return;
    }
    let (tree, served) = (Tree::new(), tempfile::tempdir().unwrap());
    let wheels = tree.path("wheels");
    let [venv, sdists] = ["venv", "sdists"].map(|name| served.path().join(name));
    succeed(Command::new("python3").args(["-m", "venv"]).arg(&venv));
    let pip = |arguments: &[&str], to: &Path| {
        succeed(Command::new(venv.join("bin/pip")).args(["-q", "--disable-pip-version-check"]).args(arguments).arg(to))
    };
    let project = format!("{PROJECT}=={VERSION}");
    pip(&["download", "--no-deps", "--no-binary", PROJECT, &project, "-d"], &sdists);
    pip(&["download", "pbr", "setuptools", "wheel", "-d"], &wheels);
    developed(&file(&sdists, ".tar.gz"), &served.path().join("r.git"));
    let daemon = Daemon::start(served.path());
    let address = format!("git://{}/r.git", daemon.address);

    // What Kolla does: a clone without its origin.
    let clone = served.path().join("clone");
    git(served.path(), &["clone", "-q", &address, clone.to_str().unwrap()]);
    git(&clone, &["checkout", "-q", "main"]);
    git(&clone, &["remote", "remove", "origin"]);
    let built = served.path().join("built");
    let links = format!("--find-links={}", wheels.display());
    pip(&["wheel", "--no-deps", "--no-index", &links, clone.to_str().unwrap(), "-w"], &built);
    let wheel = file(&built, ".whl").file_name().unwrap().to_str().unwrap().to_owned();
    let version = wheel.split('-').nth(1).unwrap();
    assert_eq!(version, "3.0.1.dev1");

    let rootfs = tree.sandbox.path("base.tar");
    add_python(&rootfs);
    let program = run("which", &["git"]).trim().to_owned();
    add(&rootfs, &[&program], std::slice::from_ref(&program));
    let bin = Path::new(&program).parent().unwrap().display().to_string();
    tree.template(
        "base",
        &format!("FROM {{{{ base_image }}}}:{{{{ base_distro_tag }}}}\nENV PATH=/var/lib/kolla/venv/bin:/bin:{bin}\n"),
    );
    tree.template(
        "app/app-base",
        &format!(
            "FROM {{{{ namespace }}}}/base:{{{{ tag }}}}\nADD app-base-archive /source\nADD additions-archive /\n\
             RUN ln -s source/* /{PROJECT} && python3 -m pip install --no-index --find-links /additions/wheels --no-deps /{PROJECT}\n\
             RUN python3 -c 'import importlib.metadata as m; print(\"version is\", m.version(\"{PROJECT}\"))'\n"
        ),
    );
    let config = format!(
        "[app-base]\ntype = git\nreference = main\nlocation = {address}\n\
         [app-base-additions-wheels]\ntype = local\nlocation = {}\n",
        wheels.display()
    );
    let logs = tree.path("logs");
    tree.run(&config, &["^app-base$", "--logs-dir", logs.to_str().unwrap()]).ok();
    let log = fs::read_to_string(logs.join("app-base.log")).unwrap();
    assert!(log.contains(&format!("version is {version}\n")), "{log}");
}
