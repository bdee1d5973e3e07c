//! `kollage kolla-build --plugins-as-layers`: what was one instruction in the middle of an image is a layer for each plugin, and
//! the tree is the same. Plugins are installed by the pip that this machine has.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::kolla::{Tree, names};
use crate::sandbox::{Ran, field, is_root, ran};
use crate::support::{Docker, Podman};
use crate::tools::{ready, run};

const HEAD: &str = "FROM {{ namespace }}/{{ image_prefix }}@PARENT@:{{ tag }}\n";

const INSTALL: &str = r#"ADD plugins-archive /
RUN mkdir /etc/app-@NAME@ \
    && if [ "$(ls /plugins)" ]; then \
           python3 -m pip --no-cache-dir install --no-compile --no-index --upgrade /plugins/* \
           && for app_plugins in $(ls /plugins); do \
               if [ -d "/plugins/$app_plugins/etc/app" ]; then \
                   cp /plugins/$app_plugins/etc/app/* /etc/app-@NAME@; \
               fi; \
           done; \
       fi \
    && chmod 750 /etc/group
"#;

fn tree() -> Tree {
    let tree = Tree::new();
    let env = "ENV PATH=/var/lib/kolla/venv/bin:/bin PYTHONDONTWRITEBYTECODE=1\n";
    tree.template("base", &format!("FROM {{{{ base_image }}}}:{{{{ base_distro_tag }}}}\n{env}"));
    let head = |parent: &str| HEAD.replace("@PARENT@", parent);
    let install = |name: &str| INSTALL.replace("@NAME@", name);
    tree.template("app/app-base", &(head("base") + &install("base") + "CMD [\"app\"]\n"));
    let uses = "RUN python3 -c 'import one; print(one.text)' > /seen\n";
    tree.template("app/app-api", &(head("app-base") + uses + &install("api") + "USER 1000\n"));
    tree.template("app/app-odd", &(head("base") + &install("odd") + "RUN compile /var/lib/kolla/venv/*\n"));
    tree
}

/// A project of one module, with a file for its service and a backend of its own, so that pip needs no network.
fn plugin(tree: &Tree, name: &str, text: &str) {
    let backend = "\
import os, zipfile
def build_wheel(directory, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(os.path.join(directory, '@-1-py3-none-any.whl'), 'w') as wheel:
        wheel.writestr('@.py', 'text = \"TEXT\"\\n')
        wheel.writestr('@-1.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: @\\nVersion: 1\\n')
        wheel.writestr('@-1.dist-info/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
        wheel.writestr('@-1.dist-info/RECORD', '')
    open('left-by-the-build', 'w').close()
    return '@-1-py3-none-any.whl'
";
    let dir = format!("{name}-1.0");
    tree.write(&format!("{dir}/backend.py"), &backend.replace('@', name).replace("TEXT", text));
    let project = "[build-system]\nrequires = []\nbuild-backend = \"backend\"\nbackend-path = [\".\"]\n";
    tree.write(&format!("{dir}/pyproject.toml"), project);
    tree.write(&format!("{dir}/etc/app/{name}.conf"), name);
}

fn sections(tree: &Tree, plugins: &[(&str, &str)]) -> String {
    let section = |(image, name): &(&str, &str)| {
        format!("[{image}-plugin-{name}]\ntype = local\nlocation = {}\n", tree.path(&format!("{name}-1.0")).display())
    };
    plugins.iter().map(section).collect()
}

/// This machine's Python beside busybox, and a virtual environment with pip where Kolla has its own.
pub fn add_python(rootfs: &Path) {
    let about = "import os, sys, sysconfig; print(os.path.realpath(sys._base_executable)); print(sys._base_executable); \
                 print(sysconfig.get_paths()['stdlib'])";
    let told = run("python3", &["-c", about]);
    let [program, called, library] = told.lines().collect::<Vec<_>>()[..] else { panic!("{told}") };
    let modules = fs::read_dir(Path::new(library).join("lib-dynload")).unwrap();
    let modules = modules.map(|entry| entry.unwrap().path().to_str().unwrap().to_owned());
    let binaries: Vec<String> = modules.chain([program.to_owned()]).collect();
    add(rootfs, &[program, called, library], &binaries);
    let dir = tempfile::tempdir().unwrap();
    let venv = dir.path().join("var/lib/kolla/venv");
    run("python3", &["-m", "venv", venv.to_str().unwrap()]);
    let rootfs = rootfs.to_str().unwrap();
    run("tar", &["-rf", rootfs, "--owner=0", "--group=0", "-C", dir.path().to_str().unwrap(), "var/lib/kolla/venv"]);
}

/// This machine's files, with what the programs among them are linked to.
pub fn add(rootfs: &Path, files: &[&str], binaries: &[String]) {
    let mut files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
    for binary in binaries {
        let linked = run("ldd", &[binary]);
        files.extend(linked.split_whitespace().filter(|word| word.starts_with('/')).map(str::to_owned));
    }
    files.retain(|file| !file.ends_with(':'));
    files.sort();
    files.dedup();
    let rootfs = rootfs.to_str().unwrap();
    let mut add = Command::new("tar");
    add.args(["-rhf", rootfs, "--owner=0", "--group=0", "-C", "/"]);
    let unused = [
        "test",
        "site-packages",
        "dist-packages",
        "idlelib",
        "lib2to3",
        "tkinter",
        "ensurepip",
        "config-3*",
        "*.opt-?.pyc",
    ];
    add.args(unused.map(|name| format!("--exclude={name}")));
    assert!(add.args(files.iter().map(|file| &file[1..])).status().unwrap().success());
}

/// All that is in an image, without times.
fn content(tree: &Tree, work: &Path, image: &str) -> BTreeMap<String, String> {
    let dest = tree.path("image.tar");
    let output = format!("type=tar,dest={}", dest.display());
    tree.sandbox.run(&["-C", work.to_str().unwrap(), "build", image, "-o", &output]).ok();
    let mut archive = tar::Archive::new(fs::File::open(&dest).unwrap());
    let mut all = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        let (header, link) = (entry.header(), entry.link_name().unwrap().map(|link| link.into_owned()));
        let owner = (header.uid().unwrap(), header.gid().unwrap(), header.mode().unwrap());
        let about = format!("{:?} {owner:?} {link:?} {}", header.entry_type(), String::from_utf8_lossy(&bytes));
        all.insert(entry.path().unwrap().display().to_string(), about);
    }
    all
}

#[test]
fn plugins_are_layers_and_the_tree_is_the_same() {
    if !is_root() {
        return;
    }
    let tree = tree();
    add_python(&tree.sandbox.path("base.tar"));
    for name in ["one", "two", "three"] {
        plugin(&tree, name, name);
    }
    let all = [("app-base", "one"), ("app-base", "two"), ("app-api", "three")];
    let config = sections(&tree, &all);
    let [work, plain] = ["work", "plain"].map(|name| tree.path(name));
    let build = |config: &str, work: &Path, more: &[&str]| -> Ran {
        tree.run(config, &[&["--work-dir", work.to_str().unwrap(), "^app-api$"], more].concat())
    };
    let layered = |config: &str| build(config, &work, &["--plugins-as-layers"]);
    let ran = layered(&config).ok();
    assert_eq!(names(&ran, "built"), ["app-api", "app-base", "base"]);
    assert_eq!(ran.json()["built"][1]["plugins"], serde_json::json!(["one", "two"]));
    let labelled = tree.sandbox.run(&["images", "--format", "json"]).ok().stdout;
    assert!(labelled.contains("app-api"), "{labelled}");
    let layers = content(&tree, &work, "app-api");
    assert!(layers.contains_key("plugins/one-1.0/left-by-the-build"), "{:?}", layers.keys());

    let ran = build(&format!("plugins_as_layers = no\n{config}"), &plain, &[]).ok();
    assert_eq!(ran.json()["built"][1]["plugins"], serde_json::Value::Null);
    let one_image = content(&tree, &plain, "app-api");
    for (path, about) in &one_image {
        assert_eq!(layers.get(path), Some(about), "{path}");
    }
    assert_eq!(layers.len(), one_image.len());

    // What is built again when one plugin is another one, or one less.
    let status = |name: &str| {
        let text = fs::read_to_string(work.join("summary.json")).unwrap();
        field(&serde_json::from_str(&text).unwrap(), name, "status")
    };
    plugin(&tree, "two", "another two");
    layered(&config).ok();
    let found = ["app-base", "app-base+one", "app-base+one+two", "app-api", "app-api+three"].map(status);
    assert_eq!(found, ["reused", "reused", "built", "built", "built"]);
    plugin(&tree, "three", "another three");
    layered(&config).ok();
    assert_eq!(["app-base+one+two", "app-api", "app-api+three"].map(status), ["reused", "reused", "built"]);
    layered(&sections(&tree, &[("app-base", "one")])).ok();
    assert_eq!(["app-base", "app-base+one", "app-api"].map(status), ["reused", "reused", "built"]);

    // An image has failed when one of its layers has.
    tree.write("two-1.0/backend.py", "raise SystemExit('no wheel today')\n");
    let failed = &layered(&config).exits(1).says("no wheel today").json()["failed"];
    assert_eq!(failed[0]["name"], "app-api");
    assert_eq!((&failed[0]["status"], &failed[1]["status"]), (&"parent_error".into(), &"error".into()));
}

/// What every base has, and daemons make where it isn't there: places of mounts, and files that are lent.
fn add_places(rootfs: &Path) {
    let dir = tempfile::tempdir().unwrap();
    for name in ["dev", "etc", "proc", "run", "sys"] {
        fs::create_dir_all(dir.path().join(name)).unwrap();
    }
    for name in ["hostname", "hosts", "resolv.conf"] {
        fs::write(dir.path().join("etc").join(name), "").unwrap();
    }
    let [rootfs, dir] = [rootfs, dir.path()].map(|path| path.to_str().unwrap());
    run("tar", &["-rf", rootfs, "--owner=0", "--group=0", "-C", dir, "dev", "etc", "proc", "run", "sys"]);
}

/// A tree with a layer on a parent and one on its child, for engines that are daemons.
struct Elsewhere {
    tree: Tree,
    config: String,
    work: PathBuf,
}

impl Elsewhere {
    fn new() -> Elsewhere {
        let tree = tree();
        add_python(&tree.sandbox.path("base.tar"));
        add_places(&tree.sandbox.path("base.tar"));
        let all = [("app-base", "one"), ("app-api", "two")];
        for (_, name) in all {
            plugin(&tree, name, name);
        }
        let config = sections(&tree, &all);
        Elsewhere { work: tree.path("work"), tree, config }
    }

    /// `[engine.docker] builder`, where somebody with a kolla-build.conf can say it.
    fn builder(&self, builder: &str) {
        let dir = self.tree.sandbox.path("home/.config/kollage");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("kollage.toml"), format!("[engine.docker]\nbuilder = \"{builder}\"\n")).unwrap();
    }

    fn build(&self, environment: &[(&str, &str)], more: &[&str]) -> Ran {
        let fixed = ["--plugins-as-layers", "--work-dir", self.work.to_str().unwrap(), "^app-api$"];
        let mut command = self.tree.command(&self.config, "kolla-build", &[&fixed, more].concat());
        ran(command.envs(environment.iter().copied()))
    }

    /// These images are what Kollage's own engine makes of them, but for lines of what differs that begin with one of `own`.
    fn is_the_same(&self, environment: (&str, &str), images: &[&str], own: &[&str]) {
        let named: Vec<&str> = images.iter().copied().filter(|image| !image.contains('+')).collect();
        let arguments = ["build", "--network", "host", "--engine", "embedded", "--verify-engine", "docker"];
        let work = ["-C", self.work.to_str().unwrap()];
        let mut command = self.tree.sandbox.command(&[&work[..], &arguments, &named].concat());
        let ran = ran(command.env(environment.0, environment.1));
        let lines = ran.stdout.lines();
        let compared =
            lines.clone().filter(|line| !line.starts_with(' ')).filter_map(|line| Some(line.split_once(':')?.0));
        assert_eq!(compared.collect::<Vec<_>>(), images, "{}", ran.stderr);
        let others =
            lines.filter(|line| line.starts_with(' ')).filter(|line| !own.iter().any(|own| line.starts_with(own)));
        assert_eq!(others.collect::<Vec<_>>(), [""; 0]);
        ran.exits(if own.is_empty() { 0 } else { 4 });
    }
}

#[test]
fn dockers_buildkit_makes_the_same_layers_and_its_older_builder_says_that_it_cannot() {
    if !is_root() || !ready(&["dockerd", "docker"]) {
        return;
    }
    let (elsewhere, docker) = (Elsewhere::new(), Docker::start());
    let host = docker.host();
    let at = ("DOCKER_HOST", host.as_str());
    elsewhere.builder("classic");
    let refused = elsewhere.build(&[at], &["--engine", "docker"]).exits(2);
    let refused = refused.says("nothing was built").says("RUN --mount=type=bind").says("plugins/one/Dockerfile");
    let refused = refused.says("hint: build without `--plugins-as-layers`, or without `engine`");
    assert_eq!(docker.run(&["images", "-q"]), "", "{}", refused.stderr);

    elsewhere.builder("auto");
    let built = elsewhere.build(&[at], &["--engine", "docker"]).ok();
    assert_eq!(names(&built, "built"), ["app-api", "app-base", "base"]);
    assert_eq!(built.json()["built"][0]["plugins"], serde_json::json!(["two"]));
    let label = "{{index .Config.Labels \"org.kollage.plugins\"}}";
    let said = docker.run(&["image", "inspect", "-f", label, "kolla/app-api:1.0-debian-small"]);
    assert!(said.contains("two"), "{said}");
    elsewhere.is_the_same(at, &["base", "app-base", "app-base+one", "app-api", "app-api+two"], &[]);

    // Kollage's own variables say what `--engine` has no word for.
    plugin(&elsewhere.tree, "two", "another two");
    elsewhere.build(&[("KOLLAGE_ENGINE", "buildkit"), ("BUILDKIT_HOST", &host)], &[]).ok();
    let text = fs::read_to_string(elsewhere.work.join("summary.json")).unwrap();
    let status = |name: &str| field(&serde_json::from_str(&text).unwrap(), name, "status");
    assert_eq!(["app-base+one", "app-api", "app-api+two"].map(status), ["reused", "reused", "built"]);
}

#[test]
fn podman_makes_the_same_layers() {
    if !is_root() || !ready(&["podman", "runc"]) {
        return;
    }
    let elsewhere = Elsewhere::new();
    let podman = Podman::new();
    let service = podman.serve();
    let host = service.host();
    let at = ("CONTAINER_HOST", host.as_str());
    let built = elsewhere.build(&[at], &["--engine", "podman"]).ok();
    assert_eq!(names(&built, "built"), ["app-api", "app-base", "base"]);
    // It writes its version among the labels, and an entry point of no words.
    elsewhere.is_the_same(at, &["app-api", "app-api+two"], &["  Entrypoint: nothing and []", "  Labels: {"]);
}

#[test]
fn what_becomes_a_layer_is_listed_and_what_does_not_is_told() {
    let tree = tree();
    for name in ["one", "two", "three"] {
        plugin(&tree, name, name);
    }
    let all = [("app-base", "two"), ("app-base", "one"), ("app-api", "one"), ("app-odd", "three")];
    let config = format!("plugins_as_layers = true\n{}", sections(&tree, &all));
    let ran = tree.run(&config, &["--list-images", "^app"]).ok();
    assert_eq!(ran.stdout, "1 : app-api (layers: one)\n2 : app-base (layers: one, two)\n3 : app-odd\n4 : base\n");
    let ran =
        ran.says("the plugins of `app-odd` stay in the image: `compile /var/lib/kolla/venv/*` behind the plugins");
    ran.says("app/app-odd/Dockerfile:13:");
    let ran = tree.run(&config, &["--list-images", "--noplugins-as-layers", "^app-odd"]).ok();
    assert!(!ran.stderr.contains("stay in the image"), "{}", ran.stderr);

    let work = tree.path("work");
    tree.run(&config, &["--template-only", "--work-dir", work.to_str().unwrap(), "^app"]).ok();
    let docker = work.join("docker/app");
    let text = fs::read_to_string(docker.join("app-api/plugins/one/Dockerfile")).unwrap();
    assert!(text.contains("FROM kolla/app-api:1.0-debian-small\nUSER root\n"), "{text}");
    assert!(text.ends_with("\nUSER 1000\n"), "{text}");
    assert!(!docker.join("app-odd/plugins").exists());
}
