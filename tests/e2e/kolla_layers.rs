//! `kollage kolla-build --plugins-as-layers`: what was one instruction in the middle of an image is a layer for each plugin, and
//! the tree is the same. Plugins are installed by the pip that this machine has.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::Command;

use crate::kolla::{Tree, names};
use crate::sandbox::{Ran, field, is_root};
use crate::tools::run;

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
fn add_python(rootfs: &Path) {
    let about = "import os, sys, sysconfig; print(os.path.realpath(sys._base_executable)); print(sys._base_executable); \
                 print(sysconfig.get_paths()['stdlib'])";
    let told = run("python3", &["-c", about]);
    let [program, called, library] = told.lines().collect::<Vec<_>>()[..] else { panic!("{told}") };
    let modules = fs::read_dir(Path::new(library).join("lib-dynload")).unwrap();
    let modules = modules.map(|entry| entry.unwrap().path().to_str().unwrap().to_owned());
    let mut files: Vec<String> = [program, called, library].map(str::to_owned).to_vec();
    for binary in modules.chain([program.to_owned()]) {
        let linked = run("ldd", &[&binary]);
        files.extend(linked.split_whitespace().filter(|word| word.starts_with('/')).map(str::to_owned));
    }
    files.retain(|file| !file.ends_with(':'));
    files.sort();
    files.dedup();
    let rootfs = rootfs.to_str().unwrap();
    let mut add = Command::new("tar");
    add.args(["-rhf", rootfs, "--owner=0", "--group=0", "-C", "/"]);
    add.args(["test", "site-packages", "dist-packages", "idlelib", "config-3*"].map(|n| format!("--exclude={n}")));
    assert!(add.args(files.iter().map(|file| &file[1..])).status().unwrap().success());
    let dir = tempfile::tempdir().unwrap();
    let venv = dir.path().join("var/lib/kolla/venv");
    run("python3", &["-m", "venv", venv.to_str().unwrap()]);
    run("tar", &["-rf", rootfs, "--owner=0", "--group=0", "-C", dir.path().to_str().unwrap(), "var/lib/kolla/venv"]);
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
