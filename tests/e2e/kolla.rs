//! `kollage kolla-build` on a small tree of our own, from its sources to the summary; what Kolla's own program makes of its
//! own tree is compared in tests/kolla.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use crate::fetch::{Daemon, Web, git, repository};
use crate::sandbox::{Ran, Sandbox, busybox_rootfs, is_root, ran};
use crate::support::{Docker, Registry, ready, run};

/// The options of a release that a build reads.
const CONFIG: &str = "\
OPENSTACK_RELEASE = '1.0'
DEFAULT_BASE_TAGS = {'debian': {'name': 'debian', 'tag': 'small'}}
DISTRO_PRETTY_NAME = {'debian': 'Small'}
_PROFILE_OPTS = [
    cfg.ListOpt('some', default=['^app-api$']),
]
_CLI_OPTS = [
    cfg.StrOpt('base', short='b', default='debian', choices=['debian']),
    cfg.StrOpt('base-tag', default='latest'),
    cfg.StrOpt('base-image'),
    cfg.StrOpt('base-arch', default=hostarch, choices=['x86_64', 'aarch64']),
    cfg.BoolOpt('use-dumb-init', default=True),
    cfg.BoolOpt('debug', short='d', default=False),
    cfg.BoolOpt('skip-parents', default=False),
    cfg.BoolOpt('skip-existing', default=False),
    cfg.DictOpt('build-args'),
    cfg.BoolOpt('keep', default=False),
    cfg.BoolOpt('list-dependencies', short='l'),
    cfg.BoolOpt('list-images'),
    cfg.StrOpt('namespace', short='n', default='kolla'),
    cfg.StrOpt('network_mode', default='host'),
    cfg.BoolOpt('cache', default=True),
    cfg.StrOpt('patches-path', default=None),
    cfg.StrOpt('platform', default=None),
    cfg.MultiOpt('profile', types.String(), short='p'),
    cfg.BoolOpt('push', default=False),
    cfg.IntOpt('push-threads', default=1, min=1),
    cfg.IntOpt('retries', short='r', default=3, min=0),
    cfg.MultiOpt('regex', types.String(), positional=True, required=False),
    cfg.StrOpt('registry'),
    cfg.StrOpt('save-dependency'),
    cfg.StrOpt('format', short='f', default='json', choices=['json', 'none']),
    cfg.StrOpt('summary-json-file'),
    cfg.IntOpt('threads', short='T', default=8, min=1),
    cfg.StrOpt('tag'),
    cfg.BoolOpt('template-only', default=False),
    cfg.IntOpt('timeout', default=120),
    cfg.MultiOpt('template-override', types.String()),
    cfg.MultiOpt('docker-dir', types.String(), short='D'),
    cfg.StrOpt('logs-dir'),
    cfg.BoolOpt('pull', default=True),
    cfg.StrOpt('work-dir'),
    cfg.BoolOpt('squash', default=False),
    cfg.StrOpt('openstack-release', default=OPENSTACK_RELEASE),
    cfg.StrOpt('openstack-release-codename', default='small'),
    cfg.StrOpt('openstack-branch'),
    cfg.StrOpt('openstack-branch-slashed'),
    cfg.BoolOpt('docker-healthchecks', default=True),
    cfg.BoolOpt('quiet', short='q', default=False),
    cfg.BoolOpt('enable-unbuildable', default=False),
    cfg.BoolOpt('summary', default=True),
    cfg.StrOpt('image-name-prefix', default=''),
    cfg.StrOpt('repos-yaml', default=''),
    cfg.StrOpt('engine', default='docker', choices=['docker', 'podman']),
]
_BASE_OPTS = [
    cfg.StrOpt('maintainer', default='Nobody'),
    cfg.StrOpt('distro_package_manager', default=None),
    cfg.StrOpt('base_package_type', default=None),
    cfg.ListOpt('rpm_setup_config', default=[]),
    cfg.StrOpt('apt_sources_list'),
    cfg.StrOpt('apt_preferences'),
    cfg.BoolOpt('clean_package_cache', default=True),
    cfg.ListOpt('allowed-to-fail', default=[]),
    cfg.StrOpt('debian_arch'),
]
";

const APP: &str = "\
FROM {{ namespace }}/{{ image_prefix }}base:{{ tag }}
{% block app_header %}{% endblock %}
ADD app-base-archive /source
ADD plugins-archive /
ADD additions-archive /
COPY patches /patches
RUN echo source: $(cat /source/*/f) plugins: $(ls /plugins) additions: $(ls /additions) patches: $(ls /patches)
";

pub struct Tree {
    pub sandbox: Sandbox,
    environment: Vec<(&'static str, &'static str)>,
}

impl Tree {
    pub fn new() -> Tree {
        let tree = Tree { sandbox: Sandbox::new(), environment: Vec::new() };
        busybox_rootfs(&tree.sandbox.path("base.tar"));
        tree.write("kolla/common/config.py", CONFIG);
        tree.write("kolla/common/sources.py", "SOURCES = {}\n");
        tree.write("kolla/common/users.py", "USERS = {'app-user': {'uid': 42, 'gid': 42}}\n");
        tree.write("kolla/image/unbuildable.py", "UNBUILDABLE_IMAGES = {'debian': {'never'}}\n");
        tree.write("kolla/template/methods.py", "");
        tree.write("kolla/template/repos.yaml", "deb: {}\n");
        tree.write("docker/macros.j2", "");
        tree.template(
            "base",
            "FROM {{ base_image }}:{{ base_distro_tag }}\nENV PATH=/bin\nRUN echo {{ image_name }}\n",
        );
        tree.template("app/app-base", APP);
        let on = |parent: &str, line: &str| {
            format!("from {{{{ namespace }}}}/{{{{ image_prefix }}}}{parent}:{{{{ tag }}}}\n{line}\n")
        };
        tree.template("app/app-api", &on("app-base", "RUN echo api"));
        tree.template("broken", &on("base", "RUN echo about to fail; exit 7"));
        tree.template("broken/broken-child", &on("broken", "RUN true"));
        tree.template("never", &on("base", "RUN true"));
        tree
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn template(&self, image: &str, text: &str) {
        self.write(&format!("docker/{image}/Dockerfile.j2"), text);
    }

    pub fn path(&self, name: &str) -> std::path::PathBuf {
        self.sandbox.path("tree").join(name)
    }

    /// With `[app-base]` as given and all else of the file.
    pub fn run(&self, config: &str, arguments: &[&str]) -> Ran {
        self.told(config, "kolla-build", &[&["--retries", "0"], arguments].concat())
    }

    /// The same to any command that takes a tree.
    pub fn told(&self, config: &str, command: &str, arguments: &[&str]) -> Ran {
        ran(&mut self.command(config, command, arguments))
    }

    pub fn command(&self, config: &str, command: &str, arguments: &[&str]) -> Command {
        let base = format!("rootfs:{}", self.sandbox.path("base.tar").display());
        self.write("kolla-build.conf", &format!("[DEFAULT]\nbase_image = {base}\n{config}"));
        let [tree, config] = ["", "kolla-build.conf"].map(|name| self.path(name).display().to_string());
        let all = [&[command, "--kolla", &tree, "--config-file", &config], arguments].concat();
        let mut command = self.sandbox.command(&all);
        command.envs(self.environment.iter().copied());
        command
    }

    fn local(&self) -> String {
        self.write("local/f", "content");
        format!("[app-base]\ntype = local\nlocation = {}\n", self.path("local").display())
    }
}

pub fn names(ran: &Ran, group: &str) -> Vec<String> {
    let summary = ran.json();
    summary[group].as_array().unwrap().iter().map(|image| image["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_tree_is_built_and_its_summary_is_kolla_s() {
    if !is_root() {
        return;
    }
    let tree = Tree::new();
    let [plugin, addition] = ["plugin-one", "addition-one"].map(|name| {
        tree.write(&format!("{name}/x"), "x");
        tree.path(name).display().to_string()
    });
    tree.write("patches/app-base/series", "# first\none.patch\n");
    tree.write("patches/app-base/one.patch", "");
    tree.write("patches/app-base/other.patch", "");
    let config = format!(
        "patches_path = {}\n{}[app-base-plugin-p]\ntype = local\nlocation = {plugin}\n\
         [app-base-additions-a]\ntype = local\nlocation = {addition}\n",
        tree.path("patches").display(),
        tree.local()
    );
    let logs = tree.path("logs");
    let arguments = ["--logs-dir", logs.to_str().unwrap(), "--infra-rename"];
    tree.run(&config, &arguments).exits(2).says("--infra-rename");
    let ran = tree.run(&config, &[&arguments[..2], &["app", "never"]].concat()).ok();
    assert_eq!(names(&ran, "built"), ["app-api", "app-base", "base"]);
    assert_eq!(names(&ran, "not_matched"), ["broken", "broken-child"]);
    assert_eq!(names(&ran, "unbuildable"), ["never"]);
    let line =
        "{\"built\": [{\"name\": \"app-api\"}, {\"name\": \"app-base\"}, {\"name\": \"base\"}], \"failed\": [], ";
    assert!(ran.stdout.starts_with(line), "{}", ran.stdout);
    let log = fs::read_to_string(logs.join("app-base.log")).unwrap();
    let expected = "source: content plugins: plugin-one additions: addition-one patches: one.patch series";
    assert!(log.contains(expected), "{log}");
    let kept = tree.sandbox.run(&["store", "ls"]).ok();
    assert!(kept.stdout.contains("kolla/app-api:1.0-debian-small"), "{}", kept.stdout);

    // What is there counts as skipped where Kolla would skip it.
    let file = tree.path("summary.json");
    let ran = tree
        .run(
            &config,
            &["-p", "some", "--skip-parents", "--skip-existing", "--summary-json-file", file.to_str().unwrap()],
        )
        .ok();
    assert_eq!(ran.stdout, "");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("    \"skipped\": [\n        {\n            \"name\": \"app-api\"\n        },"), "{text}");
    let ran = tree.run(&config, &["app", "--format", "none", "--keep", "--network_mode", "bridge"]).ok();
    assert_eq!(ran.stdout, "");
    ran.says("`keep` has no meaning here").says("the network mode `bridge` has no meaning here");
}

/// The registry is the first part of every name, in FROM and in the store as well.
#[test]
fn images_are_pushed_by_kolla_s_names() {
    if !is_root() || !ready(&["docker-registry", "skopeo"]) {
        return;
    }
    let (tree, registry) = (Tree::new(), Registry::start(false));
    let names = ["--registry", registry.address(), "--namespace", "of/ours", "--tag", "7"];
    tree.run(&tree.local(), &[&names[..], &["--push", "^app-api$"]].concat()).ok();
    let kept = tree.sandbox.run(&["store", "ls"]).ok();
    for image in ["base", "app-base", "app-api"] {
        let name = format!("{}/of/ours/{image}", registry.address());
        let tags = run("skopeo", &["list-tags", "--tls-verify=false", &format!("docker://{name}")]);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&tags).unwrap()["Tags"], serde_json::json!(["7"]));
        assert!(kept.stdout.contains(&format!("{name}:7")), "{}", kept.stdout);
    }
}

#[test]
fn on_docker_steps_have_the_network_that_kolla_gives_them() {
    if !is_root() || !ready(&["dockerd"]) {
        return;
    }
    let (tree, docker) = (Tree::new(), Docker::start());
    let own = fs::read_link("/proc/self/ns/net").unwrap().display().to_string();
    let line = format!("ENV PATH=/bin\nRUN test \"$(readlink /proc/self/ns/net)\" = '{own}'\n");
    tree.template("base", &format!("FROM {{{{ base_image }}}}:{{{{ base_distro_tag }}}}\n{line}"));
    let built = |mode: &[&str]| {
        let arguments = [&["--engine", "docker", "^base$"], mode].concat();
        ran(tree.command("", "kolla-build", &arguments).env("DOCKER_HOST", docker.host()))
    };
    built(&["--network_mode", "none"]).exits(1);
    built(&[]).ok();
    docker.run(&["image", "inspect", "kolla/base:1.0-debian-small"]);
}

#[test]
fn failures_are_told_as_kolla_tells_them() {
    if !is_root() {
        return;
    }
    let tree = Tree::new();
    let logs = tree.path("logs");
    let arguments = ["--logs-dir", logs.to_str().unwrap(), "broken"];
    let ran = tree.run("", &arguments).exits(1);
    let failed = &ran.json()["failed"];
    assert_eq!(failed[0], serde_json::json!({"name": "broken", "status": "error"}));
    assert_eq!(failed[1], serde_json::json!({"name": "broken-child", "status": "parent_error"}));
    let link = fs::read_link(logs.join("000_FAILED_broken.log")).unwrap();
    assert_eq!(link, Path::new("broken.log"));
    assert!(fs::read_to_string(logs.join("broken.log")).unwrap().contains("about to fail"));
    tree.run("allowed_to_fail = broken\n", &arguments).exits(1);
    tree.run("allowed_to_fail = broken,broken-child\n", &arguments).ok();
}

#[test]
fn a_summary_that_cannot_be_written_is_an_error() {
    if !is_root() {
        return;
    }
    let tree = Tree::new();
    tree.run("", &["--summary-json-file", "/not/there/summary", "^base$"]).exits(1).says("/not/there/summary");
}

#[test]
fn a_run_that_fails_leaves_nothing_where_no_work_dir_is_named() {
    let (tree, config) = (Tree::new(), "[app-base]\ntype = local\nlocation = /not/there\n");
    let tmp = tree.path("tmp");
    fs::create_dir(&tmp).unwrap();
    ran(tree.command(config, "kolla-build", &["^app-base$"]).env("TMPDIR", &tmp)).exits(2).says("/not/there");
    assert_eq!(fs::read_dir(&tmp).unwrap().count(), 0);
}

#[test]
fn build_args_and_proxies_reach_the_steps() {
    if !is_root() {
        return;
    }
    let mut tree = Tree::new();
    tree.environment.push(("http_proxy", "http://from-env:8080"));
    let echo = "RUN echo proxy: $http_proxy colour: $COLOUR";
    let from = "FROM {{ base_image }}:{{ base_distro_tag }}\nENV PATH=/bin\nARG COLOUR\n";
    tree.template("base", &format!("{from}{echo}\n"));
    let logs = tree.path("logs");
    let said = |config: &str| {
        tree.run(config, &["--logs-dir", logs.to_str().unwrap(), "--nocache", "^base$"]).ok();
        fs::read_to_string(logs.join("base.log")).unwrap()
    };
    let log = said("");
    assert!(log.contains("proxy: http://from-env:8080 colour:"), "{log}");
    let log = said("build_args = http_proxy:http://own:1,COLOUR:blue\n");
    assert!(log.contains("proxy: http://own:1 colour: blue"), "{log}");
}

#[test]
fn addresses_of_sources_follow_the_architecture() {
    let tree = Tree::new();
    let address = "location = http://127.0.0.1:9/a-${version}-linux-${debian_arch}.tar\nversion = 5\n";
    for (arch, debian) in [("aarch64", "arm64"), ("x86_64", "amd64")] {
        let config = format!("base_arch = {arch}\n[app-base]\ntype = url\n{address}");
        let plan = tree.told(&config, "plan", &["--format", "json", "app-base"]).ok();
        assert!(plan.stdout.contains(&format!("/a-5-linux-{debian}.tar is unknown")), "{}", plan.stdout);
    }
    // What is set goes before what follows from others, for checksums as well.
    let config = format!("base_arch = x86_64\ndebian_arch = arm64\n[app-base]\ntype = url\n{address}");
    let sum = |arch: &str| format!("{config}sha256 = {arch}:{}\n", "0".repeat(64));
    let plan = tree.told(&sum("arm64"), "plan", &["--format", "json", "app-base"]).ok();
    assert!(plan.stdout.contains("/a-5-linux-arm64.tar is unknown"), "{}", plan.stdout);
    tree.told(&sum("amd64"), "plan", &["app-base"]).exits(2).says("no checksum for arm64");
}

#[test]
fn what_templates_cannot_do_here_is_refused() {
    let tree = Tree::new();
    tree.template(
        "base",
        "FROM {{ base_image }}:{{ base_distro_tag }}\n{% set l = [] %}\n{% set x = l.append('a') %}\n",
    );
    let ran = tree.run("", &["--list-images"]).exits(2);
    ran.says("docker/base/Dockerfile.j2:3:").says("`append` changes a value in place");
    tree.template("base", "FROM {{ base_image }}:{{ base_distro_tag }}\n");
    tree.template(
        "app/app-base",
        &format!("{APP}{{% block a %}}{{% set x = 1 %}}{{% block b %}}{{% endblock %}}{{% endblock %}}\n"),
    );
    tree.write("over.j2", "{% extends parent_template %}\n{% block b %}\n{{ x }}\n{% endblock %}\n");
    let over = tree.path("over.j2").display().to_string();
    let ran = tree.run("", &["--list-images", "--template-override", &over]).exits(2);
    ran.says("over.j2:3:").says("block `b` uses `x`");
    tree.write("macro.j2", "{% extends parent_template %}\n{% macro m(a) %}\n{{ varargs }}{% endmacro %}\n");
    let over = tree.path("macro.j2").display().to_string();
    tree.run("", &["--list-images", "--template-override", &over]).exits(2).says("macro.j2:3:").says("`varargs`");
}

#[test]
fn help_needs_no_tree_and_has_the_options_of_one_that_is_named() {
    let tree = Tree::new();
    for help in ["--help", "-h"] {
        let ran = tree.sandbox.run(&["kolla-build", help]).exits(0);
        assert!(ran.stdout.contains("--kolla <DIR>"), "{}", ran.stdout);
        assert!(ran.stdout.contains("--plugins-as-layers"), "{}", ran.stdout);
        assert!(ran.stdout.contains("the tree's release"), "{}", ran.stdout);
    }
    let ran = tree.run("", &["--help"]).exits(0);
    assert!(ran.stdout.contains("--plugins-as-layers"), "{}", ran.stdout);
    assert!(ran.stdout.contains("--list-dependencies"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("the tree's release"), "{}", ran.stdout);
}

#[test]
fn options_that_nothing_asks_for_are_checked_as_well() {
    let tree = Tree::new();
    let ran = tree.run("engine = dokcer\n", &["--list-images"]).exits(2);
    ran.says("kolla-build.conf:3:1").says("`engine` is `dokcer`").says("`docker`");
    tree.run("", &["--list-images", "--engine", "dokcer"]).exits(2).says("`--engine` is `dokcer`").says("`docker`");
    tree.run("", &["--list-images", "--push-threads", "0"]).exits(2).says("`--push-threads` is 0");
}

#[test]
fn sources_are_part_of_what_an_image_is() {
    if !is_root() {
        return;
    }
    let tree = Tree::new();
    let dir = tempfile::tempdir().unwrap();
    let commit = repository(dir.path());
    commit("one");
    let daemon = Daemon::start(dir.path());
    let git = format!("[app-base]\ntype = git\nreference = main\nlocation = git://{}/r.git\n", daemon.address);
    let built = |config: &str| {
        let ran = tree.run(config, &["--skip-existing", "^app-base$"]).ok();
        let built = names(&ran, "built").contains(&"app-base".to_owned());
        assert_eq!(built, !names(&ran, "skipped").contains(&"app-base".to_owned()));
        built
    };
    assert!(built(&git));
    assert!(!built(&git));
    commit("two");
    assert!(built(&git));
    assert!(!built(&git));

    let web = Web::start("content");
    let url = format!("[app-base]\ntype = url\nlocation = http://me:hidden-word@{}/a.tar\n", web.host);
    assert!(built(&url));
    assert!(!built(&url));
    *web.content.lock().unwrap() = "other content".into();
    assert!(built(&url));
    let found = Command::new("grep").args(["-rlF", "hidden-word"]).arg(tree.sandbox.path("store")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
}

/// What tells a version from tags and commits (pbr) finds them, and the archive depends on them alone.
#[test]
fn a_git_source_brings_its_history() {
    if !is_root() {
        return;
    }
    let (tree, dir) = (Tree::new(), tempfile::tempdir().unwrap());
    let commit = repository(dir.path());
    let repo = dir.path().join("r.git");
    for (content, tag) in [("one", Some("1.0")), ("two", None), ("three", None)] {
        commit(content);
        if let Some(tag) = tag {
            git(&repo, &["tag", "-a", "-m", "released", tag]);
        }
    }
    git(&repo, &["tag", "light", "HEAD~1"]);
    git(&repo, &["checkout", "-q", "-b", "other", "HEAD~2"]);
    commit("elsewhere");
    git(&repo, &["tag", "9.9"]);
    let daemon = Daemon::start(dir.path());
    let config = format!("[app-base]\ntype = git\nreference = main\nlocation = git://{}/r.git\n", daemon.address);
    let archive = |work: &str| {
        let work = tree.path(work);
        tree.run(&config, &["--work-dir", work.to_str().unwrap(), "^app-base$"]).ok();
        work.join("images/app-base/app-base-archive")
    };
    let first = archive("one");
    let into = tree.path("unpacked");
    fs::create_dir(&into).unwrap();
    assert!(Command::new("tar").arg("-xf").arg(&first).arg("-C").arg(&into).status().unwrap().success());
    let asked = |args: &[&str]| {
        let mut command = Command::new("git");
        command.arg("-c").arg("safe.directory=*").arg("-C").arg(into.join("app-base-archive-main")).args(args);
        let output = command.env("GIT_CONFIG_GLOBAL", "/dev/null").output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert!(asked(&["describe"]).starts_with("1.0-2-g"));
    assert_eq!(asked(&["tag"]), "1.0\nlight");
    assert_eq!(asked(&["log", "--format=%s"]), "three\ntwo\none");
    assert_eq!(asked(&["status", "--porcelain"]), "");
    // What the branch was is assumed, by an image's own source and by one of several.
    let branch = format!("git://{}/r.git", daemon.address);
    let planned = |config: &str| tree.told(config, "plan", &["app-base"]).ok().stdout;
    assert!(planned(&config).contains(&format!("nothing changed, if {branch}")), "{}", planned(&config));
    let plugin = format!("{config}[app-base-plugin-p]\ntype = git\nreference = main\nlocation = {branch}\n");
    assert!(planned(&plugin).contains("is unknown until it is fetched"), "{}", planned(&plugin));
    tree.run(&plugin, &["^app-base$"]).ok();
    assert!(planned(&plugin).contains(&format!("nothing changed, if {branch}")), "{}", planned(&plugin));
    // Nothing is checked out a second time.
    fs::rename(dir.path().join("r.git/.git/objects"), dir.path().join("objects")).unwrap();
    fs::remove_dir_all(tree.sandbox.path("store/sources/git")).unwrap();
    assert!(planned(&config).contains("nothing changed"));
    fs::rename(dir.path().join("objects"), dir.path().join("r.git/.git/objects")).unwrap();
    // Another store comes to the same bytes.
    fs::rename(tree.sandbox.path("store"), tree.path("away")).unwrap();
    assert!(fs::read(first).unwrap() == fs::read(archive("two")).unwrap());
}

#[test]
fn what_is_wrong_with_a_source_is_said_with_its_place() {
    let tree = Tree::new();
    let web = Web::start("content");
    let wrong = |source: &str, code: i32, says: &[&str]| {
        let ran = tree.run(&format!("[app-base]\n{source}"), &["^app-base$"]).exits(code);
        assert!(!ran.stderr.contains("hidden-word"), "{}", ran.stderr);
        let all = says.iter().all(|text| ran.stderr.contains(text));
        assert!(all, "{says:?} in {}", ran.stderr);
    };
    wrong("type = local\nlocation = /not/there\n", 2, &["kolla-build.conf:5:1", "/not/there", "[app-base]"]);
    fs::create_dir_all(tree.path("odd")).unwrap();
    let pipe = tree.path("odd/pipe").display().to_string();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for odd in [&pipe, "/dev/null"] {
        let says = ["kolla-build.conf:5:1", odd, "neither a directory nor a file"];
        wrong(&format!("type = local\nlocation = {odd}\n"), 2, &says);
    }
    tree.write("odd/empty", "");
    tree.write("odd/text", "text");
    for odd in ["odd/empty", "odd/text"] {
        let plugin = format!("[app-base-plugin-p]\ntype = local\nlocation = {}\n", tree.path(odd).display());
        tree.run(&plugin, &["^app-base$"]).exits(2).says("[app-base-plugin-p]").says("kolla-build.conf:5:1");
    }
    wrong("type = git\nlocation = https://example.org/x\n", 2, &["kolla-build.conf:4:1", "`reference`"]);
    wrong("type = git\nreference = main\nlocation = /srv/x\n", 2, &["kolla-build.conf:6:1", "names no git repository"]);
    wrong("type = url\nlocation = /srv/x\n", 2, &["kolla-build.conf:5:1", "no address of the web"]);
    wrong("type = loacl\n", 2, &["kolla-build.conf:4:1", "`local`"]);
    let sum = "0".repeat(64);
    let url = format!("type = url\nlocation = http://me:hidden-word@{}/f\n", web.host);
    wrong(&format!("{url}sha256 = arm64:{sum},amd64:1\n"), 2, &["kolla-build.conf:6:1", "checksum for"]);
    wrong(&format!("{url}sha256 = arm64:{sum},amd64:{sum}\n"), 2, &["[app-base]", "kolla-build.conf:5:1", "`sha256`"]);
    let missing = format!("type = url\nlocation = http://me:hidden-word@{}/missing\n", web.host);
    wrong(&missing, 2, &["[app-base]", "kolla-build.conf:5:1", "404 Not Found"]);
    let dir = tempfile::tempdir().unwrap();
    repository(dir.path())("one");
    let daemon = Daemon::start(dir.path());
    let branch = format!("type = git\nreference = nowhere\nlocation = git://{}/r.git\n", daemon.address);
    wrong(&branch, 2, &["[app-base]", "kolla-build.conf:6:1", "`nowhere`"]);
    let none = branch.replace("r.git", "none.git");
    wrong(&none, 2, &["[app-base]", "kolla-build.conf:6:1", "no such repository"]);
    // Nobody listens there.
    let nobody = "type = git\nreference = main\nlocation = http://me:hidden-word@127.0.0.1:9/x.git\n";
    wrong(nobody, 3, &["[app-base]", "kolla-build.conf:6:1"]);
    let ran = tree.run(&format!("[app-base]\n{nobody}"), &["^app-base$"]).exits(3);
    assert!(!ran.stderr.contains("trying again"), "{}", ran.stderr);
    tree.run(&format!("[app-base]\n{nobody}"), &["--retries", "1", "^app-base$"]).exits(3).says("of 2 tries");

    // An archive that leads out of where it is unpacked.
    let archive = tree.path("climbing.tar");
    fs::create_dir_all(tree.path("a/b")).unwrap();
    fs::write(tree.path("a/f"), "f").unwrap();
    let tar = Command::new("tar").args(["-P", "-cf"]).arg(&archive).arg("../f").current_dir(tree.path("a/b")).status();
    assert!(tar.unwrap().success());
    let plugin = format!("{}[app-base-plugin-bad]\ntype = local\nlocation = {}\n", tree.local(), archive.display());
    let ran = tree.run(&plugin, &["^app-base$"]).exits(2);
    ran.says("leads out of the archive").says("[app-base-plugin-bad]").says("kolla-build.conf:8:1");
    assert!(Command::new("gzip").arg(&archive).status().unwrap().success());
    let plugin = plugin.replace("climbing.tar", "climbing.tar.gz");
    tree.run(&plugin, &["^app-base$"]).exits(2).says("leads out of the archive");
}

#[test]
fn a_tree_is_planned_before_its_sources_are_there() {
    let tree = Tree::new();
    let web = Web::start("content");
    let config = format!("[app-base]\ntype = url\nlocation = http://{}/a.tar\n", web.host);
    let planned = |image: &str| {
        let plan = tree.told(&config, "plan", &["--format", "json"]).ok().json();
        let node = plan.as_array().unwrap().iter().find(|node| node["name"] == image).cloned();
        node.unwrap_or_else(|| panic!("no {image} in {plan}"))
    };
    let reason = |image: &str| planned(image)["reason"].as_str().unwrap().to_owned();
    let app = planned("app-base");
    assert!(app["reason"].as_str().unwrap().ends_with("/a.tar is unknown until it is fetched"), "{app}");
    assert_eq!((&app["action"], app["key"].is_null()), (&"build".into(), true));
    assert_eq!(app["references"], serde_json::json!(["kolla/app-base:1.0-debian-small"]));
    assert!(planned("base")["key"].is_null() && reason("app-api").contains("app-base"));
    assert!(web.requests().is_empty());
    let listed = tree.told(&config, "list", &["app-*"]).ok();
    assert!(listed.stdout.contains("app-api") && !listed.stdout.contains("broken"), "{}", listed.stdout);
    assert!(tree.told(&config, "graph", &[]).ok().stdout.contains("app-api"));
    assert!(tree.told(&config, "render", &["app-base"]).ok().stdout.contains("ADD app-base-archive /source"));
    tree.told("bas = debian\n", "list", &[]).ok().says("kolla-build.conf:3:1").says("`bas`");
    tree.sandbox.run(&["plan", "--base", "debian"]).exits(2).says("--kolla");
    if !is_root() {
        return;
    }
    tree.run(&config, &["^app-base$"]).ok();
    let _ = web.requests();
    let app = planned("app-base");
    assert_eq!(app["action"], "reuse", "{app}");
    assert!(reason("app-base").contains("if http://") && web.requests().is_empty());
    // There is nothing to ask where the section says what it is.
    let sum = "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73";
    let fixed = format!("{config}sha256 = amd64:{sum},arm64:{sum}\n");
    let plan = tree.told(&fixed, "plan", &["app-base"]).ok();
    assert!(plan.stdout.contains("app-base") && !plan.stdout.contains(&web.host), "{}", plan.stdout);
}

/// A plan looks at the tree where it is, and a build at what was written of it.
#[test]
fn what_a_build_of_a_tree_has_made_is_known_to_a_plan() {
    if !is_root() {
        return;
    }
    let tree = Tree::new();
    let on_base = |lines: &str| format!("FROM {{{{ namespace }}}}/{{{{ image_prefix }}}}base:{{{{ tag }}}}\n{lines}\n");
    tree.template("app/whole", &on_base("COPY . /all"));
    tree.template("app/parts", &on_base("COPY conf linked /conf/\nCOPY --chmod=600 link conf/* /files/"));
    for (name, text) in [("conf/a", "a"), ("conf/sub/x", "x"), (".dockerignore", "conf/sub/left-out")] {
        tree.write(&format!("docker/app/parts/{name}"), text);
    }
    let own = tree.path("docker/app/parts");
    fs::set_permissions(own.join("conf/sub"), fs::Permissions::from_mode(0o750)).unwrap();
    symlink("conf/a", own.join("link")).unwrap();
    symlink("conf", own.join("linked")).unwrap();
    tree.write("over/app/parts/conf/a", "another a");
    tree.write("over/app/parts/conf/sub/left-out", "text");
    tree.write("patches/app-base/series", "one\n");
    tree.write("patches/app-base/one", "a patch");
    tree.write("apt", "deb");
    let dirs = ["over", "patches", "local", "apt"].map(|name| tree.path(name).display().to_string());
    let [over, patches, local, apt] = dirs;
    let source = tree.local();
    let config = format!(
        "docker_dir = {over}\npatches_path = {patches}\napt_preferences = {apt}\n{source}
[app-base-plugin-p]\ntype = local\nlocation = {local}\n[app-base-additions-a]\ntype = local\nlocation = {local}\n"
    );
    let images = ["base", "app-base", "app-api", "whole", "parts"];
    let patterns = images.map(|name| format!("^{name}$"));
    tree.run(&config, &patterns.each_ref().map(String::as_str)).ok();
    let planned = || {
        let plan = tree.told(&config, "plan", &[&["--format", "json"], &images[..]].concat()).ok().json();
        let nodes: Vec<_> = plan.as_array().unwrap().iter().filter(|node| node["kind"] == "image").cloned().collect();
        assert_eq!(nodes.len(), images.len(), "{plan}");
        let built = nodes.iter().filter(|node| node["action"] != "reuse");
        built.map(|node| format!("{}: {}", node["name"], node["reason"])).collect::<Vec<_>>()
    };
    assert_eq!(planned(), [""; 0]);
    tree.write("over/app/parts/conf/sub/left-out", "other text");
    assert_eq!(planned(), [""; 0]);
    tree.write("over/app/parts/conf/a", "yet another a");
    let changed = planned();
    assert!(changed.len() == 1 && changed[0].contains("parts") && changed[0].contains("`conf"), "{changed:?}");
    tree.write("patches/app-base/one", "another patch");
    assert!(planned().iter().any(|reason| reason.contains("app-base") && reason.contains("`patches`")));
}
