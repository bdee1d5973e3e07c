//! What kollage.lock has of Python's packages, with the real pip in the shipped recipes: sources of every kind, what they
//! need, and what each is built with. The base has Debian's Python; PyPI is a server on this machine, but for pip itself.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fetch::{self, git};
use crate::sandbox::{Sandbox, is_root};
use crate::tools::{self, ready, run, succeed};
use kollage::image::config::Platform;
use kollage::image::digest::Digest;

/// A build backend (PEP 517): what it builds says by whom it was built.
const BACKEND: &str = r#"
import os, zipfile

BY = "@BY@"

def get_requires_for_build_wheel(settings=None):
    return ["stamp-extra"] if os.path.exists("EXTRA") else []

def build_wheel(to, settings=None, metadata=None):
    name, version, *needs = open("NAME").read().split()
    by = BY
    if os.path.exists("EXTRA"):
        import stamp_extra
        by += ", " + stamp_extra.BY
    module = open("MODULE").read() if os.path.exists("MODULE") else f"BY = {by!r}\n"
    about = "".join([f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"] + [f"Requires-Dist: {n}\n" for n in needs])
    wheel = f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(to, wheel), "w") as out:
        info = f"{name}-{version}.dist-info/"
        out.writestr(name + ".py", module)
        out.writestr(info + "METADATA", about)
        out.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        out.writestr(info + "RECORD", "")
    return wheel
"#;

fn backend(by: &str) -> String {
    BACKEND.replace("@BY@", by)
}

/// Files of a project that `stamp` builds: `name` is followed by its version and what it needs.
fn project(dir: &Path, name: &str) {
    fs::create_dir_all(dir).unwrap();
    fs::write(dir.join("NAME"), name).unwrap();
    let toml = "[build-system]\nrequires = [\"stamp\"]\nbuild-backend = \"stamp\"\n";
    fs::write(dir.join("pyproject.toml"), toml).unwrap();
}

/// What PyPI is for pip.
struct Index {
    _daemon: tools::Daemon,
    dir: tempfile::TempDir,
    address: String,
}

impl Index {
    fn start() -> Index {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("files")).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut command = Command::new("busybox");
        command.args(["httpd", "-f", "-p", &address, "-h"]).arg(dir.path());
        let mut daemon = tools::Daemon::start(&mut command, dir.path().join("log"));
        daemon.wait_until("httpd", || TcpStream::connect(&address).is_ok());
        Index { _daemon: daemon, dir, address }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join("files").join(name)
    }

    /// The page of a project, with all files that begin with its name.
    fn list(&self, project: &str) {
        let page = self.dir.path().join("simple").join(project);
        fs::create_dir_all(&page).unwrap();
        let files = fs::read_dir(self.file("")).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let own = format!("{}-", project.replace('-', "_"));
        let links =
            files.filter(|name| name.starts_with(&own)).map(|name| format!("<a href=\"/files/{name}\">{name}</a>\n"));
        fs::write(page.join("index.html"), links.collect::<String>()).unwrap();
    }

    /// A release that has no wheel.
    fn source(&self, name: &str, version: &str, fill: impl Fn(&Path)) -> PathBuf {
        let dir = tempfile::tempdir().unwrap();
        let top = format!("{name}-{version}");
        fill(&dir.path().join(&top));
        let file = self.file(&format!("{top}.tar.gz"));
        succeed(Command::new("tar").arg("-czf").arg(&file).arg("-C").arg(dir.path()).arg(&top));
        file
    }

    /// A release of all that is there, built by nobody else's means.
    fn release(&self, version: &str) {
        let stamp = tempfile::tempdir().unwrap();
        fs::write(stamp.path().join("NAME"), format!("stamp {version}")).unwrap();
        fs::write(stamp.path().join("MODULE"), backend(&format!("stamp {version}"))).unwrap();
        fs::write(stamp.path().join("own.py"), backend("")).unwrap();
        let build = format!("import own; own.build_wheel({:?})", self.file(""));
        succeed(Command::new("/usr/bin/python3").args(["-c", &build]).current_dir(stamp.path()));
        self.source("stamp_extra", version, |dir| {
            project(dir, &format!("stamp_extra {version}"));
            fs::write(dir.join("own.py"), backend(&format!("extra {version}"))).unwrap();
            let toml = "[build-system]\nrequires = []\nbuild-backend = \"own\"\nbackend-path = [\".\"]\n";
            fs::write(dir.join("pyproject.toml"), toml).unwrap();
        });
        self.source("lib", version, |dir| project(dir, &format!("lib {version}")));
        for name in ["stamp", "stamp-extra", "lib"] {
            self.list(name);
        }
    }
}

/// Debian's Python with the libraries that it needs, as a tar.
fn python(tar: &Path) {
    let script = r#"
        program=$(readlink -f /usr/bin/python3)
        library=$("$program" -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
        needs=$(ldd "$program" "$library"/lib-dynload/*.so | grep -o '/[^ :)]*[.]so[.0-9]*' | grep -v lib-dynload | sort -u)
        exec tar -chf "$1" -C / --exclude test --exclude __pycache__ --transform 's|usr/bin/python3[.].*|usr/bin/python3|' \
            $(printf '%s\n' "$program" "$library" $needs | sed 's|^/||')"#;
    succeed(Command::new("sh").args(["-euc", script, "sh"]).arg(tar));
}

/// The wheel of the pip that the newest release of the shipped catalogue has, from PyPI.
fn pip(to: &Path) -> String {
    let constraints = Path::new(env!("CARGO_MANIFEST_DIR")).join("releases/2026.2-constraints.txt");
    let constraints = fs::read_to_string(constraints).unwrap();
    let pip = constraints.lines().find(|line| line.starts_with("pip==")).unwrap();
    let venv = tempfile::tempdir().unwrap();
    succeed(Command::new("/usr/bin/python3").args(["-m", "venv"]).arg(venv.path()));
    succeed(Command::new(venv.path().join("bin/pip")).args(["download", "-q", "--no-deps", "-d"]).arg(to).arg(pip));
    format!("{}-py3-none-any.whl", pip.replace("==", "-"))
}

/// `app` has a source of each kind, on an image with a Python that asks the index.
fn catalogue(index: &Index, repository: &str) -> Sandbox {
    let sandbox = Sandbox::with_base();
    sandbox.base("FROM {{ parent }}\nENV PATH=/bin:/usr/bin\nRUN ln -s busybox /bin/mkfifo\n");
    let recipes = concat!(env!("CARGO_MANIFEST_DIR"), "/images/_recipes");
    fs::create_dir_all(sandbox.catalogue().join("images/python")).unwrap();
    run("cp", &["-r", recipes, &sandbox.catalogue().join("images").display().to_string()]);
    python(&sandbox.catalogue().join("images/python/python.tar"));
    let pip = pip(&sandbox.catalogue().join("images/python"));
    let recipe = format!(
        "FROM {{{{ parent }}}}\nADD python.tar /\nCOPY {pip} /\n\
         RUN python3 -m venv --without-pip /var/lib/kolla/venv \\\n    \
         && PYTHONPATH=/{pip} /var/lib/kolla/venv/bin/python3 -m pip install --no-index /{pip}\n\
         RUN mkdir /requirements && touch /requirements/upper-constraints.txt\n\
         ENV PATH=/var/lib/kolla/venv/bin:/bin:/usr/bin PIP_INDEX_URL=http://{}/simple HOME=/root\n",
        index.address
    );
    sandbox.image("python", "base", &recipe);
    let sdist = index.source("ownurl", "1.0", |dir| project(dir, "ownurl 1.0"));
    let sum = Digest::of(&fs::read(&sdist).unwrap());
    let definition = format!(
        "[image]\nparent = \"python\"\nsummary = \"app\"\nrecipe = \"openstack-service\"\n\
         [sources.owngit]\ngit = \"{repository}\"\nref = \"main\"\n\
         [sources.ownurl]\nurl = \"http://{}/files/ownurl-1.0.tar.gz\"\nsha256 = \"{}\"\n\
         [sources.ownlocal]\nlocal = \"own\"\n",
        index.address,
        sum.hex()
    );
    sandbox.write("images/app/image.toml", &definition);
    project(&sandbox.catalogue().join("images/app/own"), "ownlocal 1.0");
    sandbox
}

#[test]
fn what_python_packages_are_built_with_is_locked_too() {
    if !is_root() || !ready(&["busybox", "git", "tar", "ldd"]) {
        return;
    }
    let index = Index::start();
    index.release("1.0");
    let repositories = tempfile::tempdir().unwrap();
    let repository = repositories.path().join("r.git");
    project(&repository, "owngit 1.0 lib");
    // It needs another package for its build, of which only its backend knows.
    fs::write(repository.join("EXTRA"), "").unwrap();
    let commit = || {
        git(&repository, &["add", "-A"]);
        git(&repository, &["commit", "-q", "-m", "x"]);
    };
    git(&repository, &["init", "-q"]);
    commit();
    let daemon = fetch::Daemon::start(repositories.path());
    let sandbox = catalogue(&index, &format!("git://{}/r.git", daemon.address));
    let on = Platform::host();
    let moved = sandbox.run(&["lock"]).ok().stdout;
    for line in ["lib: nothing -> 1.0", "build stamp: nothing -> 1.0", "build stamp-extra: nothing -> 1.0"] {
        assert!(moved.contains(&format!("app ({on}) {line}\n")), "{moved}");
    }
    let sum = |file: &str| Digest::of(&fs::read(index.file(file)).unwrap());
    let (stamp, extra) = (sum("stamp-1.0-py3-none-any.whl"), sum("stamp_extra-1.0.tar.gz"));
    let builds =
        format!("\n[builds.\"app ({on})\"]\n\"stamp\" = \"1.0 {stamp}\"\n\"stamp-extra\" = \"1.0 {extra} source\"\n");
    let path = sandbox.catalogue().join("kollage.lock");
    let locked = fs::read_to_string(&path).unwrap();
    assert!(locked.ends_with(&builds), "{locked}");

    // Everything moves on, and the build doesn't.
    index.release("1.1");
    fs::write(repository.join("NAME"), "owngit 1.1 lib").unwrap();
    commit();
    sandbox.run(&["build", "app", "--locked"]).ok();
    let packages = sandbox
        .run(&[
            "run",
            "app",
            "--",
            "sh",
            "-c",
            "cd /var/lib/kolla/venv/lib/python3*/site-packages; \
        grep BY *.py; ls -d *.dist-info",
        ])
        .ok()
        .stdout;
    let expected = "lib.py:BY = 'stamp 1.0'\nowngit.py:BY = 'stamp 1.0, extra 1.0'\nownlocal.py:BY = 'stamp 1.0'\n\
                    ownurl.py:BY = 'stamp 1.0'\nlib-1.0.dist-info\nowngit-1.0.dist-info\nownlocal-1.0.dist-info\n";
    assert!(packages.starts_with(expected), "{packages}");

    // What the lock doesn't have isn't taken, and neither is another file of the same name and version.
    fs::write(&path, locked.replace(&format!("\"stamp\" = \"1.0 {stamp}\"\n"), "")).unwrap();
    sandbox.run(&["build", "app", "--locked"]).exits(1).says("No matching distribution found for stamp");
    fs::write(&path, locked.replace(stamp.hex(), extra.hex())).unwrap();
    sandbox.run(&["build", "app", "--locked"]).exits(1).says("THESE PACKAGES DO NOT MATCH THE HASHES");
}
