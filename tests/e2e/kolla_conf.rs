//! What kolla-build.conf and its like say to `kollage kolla-build`: sections of images, plugins, profiles and sources, and where
//! files are found.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::fetch::Web;
use crate::kolla::{Tree, names};
use crate::sandbox::{is_root, ran};

fn told(tree: &Tree, image: &str) -> String {
    fs::read_to_string(tree.path("logs").join(format!("{image}.log"))).unwrap()
}

/// A virtual environment that is entered, and what stands beside a kolla-build on PATH.
#[test]
fn the_tree_of_an_installed_kolla_is_found() {
    let tree = Tree::new();
    tree.write("bin/kolla-build", "");
    let listed = |variable: &str, value: &str| {
        let mut command = tree.sandbox.command(&["kolla-build", "--list-images", "^app-base$"]);
        ran(command.env(variable, value))
    };
    let path = format!("/usr/bin:{}:/bin", tree.path("bin").display());
    for (variable, value) in [("PATH", path), ("VIRTUAL_ENV", tree.path("").display().to_string())] {
        assert_eq!(listed(variable, &value).ok().stdout, "1 : app-base\n2 : base\n", "{variable}");
    }
    listed("PATH", "/nowhere").exits(2).says("no Kolla tree is named, and none is installed").says("--kolla DIR");
}

#[test]
fn options_without_meaning_are_accepted_with_a_line() {
    if !is_root() {
        return;
    }
    let tree = Tree::new();
    let config = fs::read_to_string(tree.path("kolla/common/config.py")).unwrap();
    let more = "_CLI_OPTS = [\n    cfg.BoolOpt('buildkit', default=False),\n    cfg.StrOpt('buildkit-builder'),\n    \
                cfg.StrOpt('podman_base_url'),\n    cfg.BoolOpt('squash-cleanup', default=True),\n    \
                cfg.StrOpt('squash-tmp-dir'),\n";
    tree.write("kolla/common/config.py", &config.replace("_CLI_OPTS = [\n", more));
    let of_file = "debug = yes\nbuildkit = yes\nbuildkit_builder = b\nsquash_cleanup = no\nsquash_tmp_dir = /x\n";
    let ran = tree.run(of_file, &["--keep", "--podman_base_url", "http://p", "^base$"]).ok();
    let told = ran.stderr.lines().filter_map(|line| line.strip_prefix("note: `")?.split_once("` has no meaning here"));
    let mut told: Vec<&str> = told.map(|(option, _)| option).collect();
    told.sort_unstable();
    let all = ["buildkit", "buildkit-builder", "debug", "keep", "podman_base_url", "squash-cleanup", "squash-tmp-dir"];
    assert_eq!(told, all, "{}", ran.stderr);
    let ran = tree.run("", &["^base$"]).ok();
    assert!(!ran.stderr.contains("no meaning"), "{}", ran.stderr);
}

/// In a mount namespace where nothing else is in /etc.
#[test]
fn the_file_in_etc_counts_where_none_is_named() {
    if !is_root() {
        return;
    }
    let tree = Tree::new();
    let config = tree.path("of-etc.conf");
    tree.write("of-etc.conf", "[DEFAULT]\nimage_name_prefix = of-etc-\n");
    tree.write("more.conf", "[DEFAULT]\ntag = of-more\n");
    let script = "mount -t tmpfs none /etc && mkdir -p /etc/kolla/kolla-build.conf.d && cp $1 /etc/kolla/kolla-build.conf && \
                  cp $2 /etc/kolla/kolla-build.conf.d && shift 2 && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-ec", script, "sh"]).arg(config).arg(tree.path("more.conf"));
    command.arg(env!("CARGO_BIN_EXE_kollage")).args(["kolla-build", "--template-only", "--kolla"]).arg(tree.path(""));
    let work = tree.path("work");
    ran(command.arg("--work-dir").arg(&work).env("HOME", tree.sandbox.path("home"))).ok();
    let text = fs::read_to_string(work.join("docker/app/app-api/Dockerfile")).unwrap();
    assert!(text.starts_with("from kolla/of-etc-app-base:of-more\n"), "{text}");
}

#[test]
fn sections_of_plugins_override_those_of_the_release() {
    if !is_root() {
        return;
    }
    let tree = Tree::new();
    for name in ["of-release", "of-ours", "unwanted", "of-api"] {
        tree.write(&format!("{name}/x"), "x");
    }
    let at = |name: &str| tree.path(name).display().to_string();
    let source = |section: &str, name: &str| format!("'{section}': {{'type': 'local', 'location': '{}'}},\n", at(name));
    let sources = [
        source("app-base-plugin-one", "of-release"),
        source("app-base-plugin-two", "of-release"),
        source("app-base-plugin-three", "unwanted"),
        source("app-api-plugin-one", "of-api"),
    ];
    tree.write("kolla/common/sources.py", &format!("SOURCES = {{\n{}}}\n", sources.concat()));
    tree.write("f/f", "content");
    let config = format!(
        "[app-base]\ntype = local\nlocation = {}\n[app-base-plugin-two]\nlocation = {}\n[app-base-plugin-three]\nenabled = no\n",
        at("f"),
        at("of-ours"),
    );
    let logs = at("logs");
    tree.run(&config, &["--logs-dir", &logs, "^app-base$"]).ok();
    let log = told(&tree, "app-base");
    assert!(log.contains("plugins: of-ours of-release additions"), "{log}");
}

#[test]
fn profiles_of_the_file_are_the_release_s_or_more() {
    let tree = Tree::new();
    let listed = |profiles: &str, arguments: &[&str]| {
        tree.run(&format!("[profiles]\n{profiles}"), &[&["--list-images"], arguments].concat())
    };
    let both = listed("some = ^broken$\nown = ^app-base$,\n  ^nothing$\n", &["-p", "some", "--profile", "own"]).ok();
    assert_eq!(both.stdout, "1 : app-base\n2 : base\n3 : broken\n");
    let default = listed("own = ^broken$\n", &["-p", "some"]).ok();
    assert_eq!(default.stdout, "1 : app-api\n2 : app-base\n3 : base\n");
    listed("own =\n", &["-p", "own"]).exits(2).says("kolla-build.conf:4:1").says("`own` selects no image");
    tree.run("[profiles]\nown = ^nothing$\n", &["-p", "own"]).exits(2).says("`own` selects no image");
}

/// Answers only when all that are asked for are asked for at once.
fn together(count: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let streams: Vec<TcpStream> = listener.incoming().take(count).map(|stream| stream.unwrap()).collect();
        for mut stream in streams {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut request = String::new();
            while reader.read_line(&mut request).is_ok_and(|n| n > 2) {}
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nfile");
        }
        // Whoever asks once more waits.
        let _silent: Vec<TcpStream> = listener.incoming().map(|stream| stream.unwrap()).collect();
    });
    host
}

#[test]
fn sources_are_fetched_side_by_side_and_nobody_is_waited_for_longer_than_is_said() {
    if !is_root() {
        return;
    }
    let tree = Tree::new();
    tree.template("app/app-api", "from {{ namespace }}/app-base:{{ tag }}\nADD app-api-archive /api\n");
    let host = together(2);
    let section = |image: &str, name: &str| format!("[{image}]\ntype = url\nlocation = http://{host}/{name}\n");
    let config = section("app-base", "a.tar") + &section("app-api", "b.tar");
    tree.run(&config, &["--timeout", "60", "^app-api$"]).ok();
    // The third is left without an answer.
    let start = Instant::now();
    let config = format!("timeout = 1\n{}", section("app-base", "c.tar"));
    tree.run(&config, &["^app-base$"]).exits(3).says("[app-base]").says("/c.tar");
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}

#[test]
fn what_one_tree_has_fetched_another_has_as_well() {
    if !is_root() {
        return;
    }
    let (first, second, web) = (Tree::new(), Tree::new(), Web::start("content"));
    let sum = "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73";
    let url = |more: &str| format!("[app-base]\ntype = url\nlocation = http://{}/a.tar\n{more}", web.host);
    first.run(&url(""), &["^app-base$"]).ok();
    assert_eq!(web.requests(), ["sent"]);
    let of_second = |config: &str| {
        let mut command = second.command(config, "kolla-build", &["--retries", "0", "^app-base$"]);
        ran(command.env("KOLLAGE_STORE", first.sandbox.path("store"))).ok()
    };
    of_second(&url(""));
    assert_eq!(web.requests(), ["unchanged"]);
    // What has a checksum needs no asking.
    of_second(&url(&format!("sha256 = amd64:{sum},arm64:{sum}\n")));
    assert_eq!(web.requests(), [""; 0]);
}

#[test]
fn a_changed_patch_builds_its_image_again() {
    if !is_root() {
        return;
    }
    let tree = Tree::new();
    tree.write("f/f", "content");
    let [patches, source] = ["patches", "f"].map(|name| tree.path(name).display().to_string());
    let config = format!("patches_path = {patches}\n[app-base]\ntype = local\nlocation = {source}\n");
    tree.write("patches/app-base/series", "\n# in this order\ntwo.patch\n  one.patch  \n");
    let built = || names(&tree.run(&config, &["--skip-existing", "^app-base$"]).ok(), "built");
    for patch in ["one", "two", "not-in-the-series"] {
        tree.write(&format!("patches/app-base/{patch}.patch"), patch);
    }
    assert_eq!(built(), ["app-base", "base"]);
    tree.write("patches/app-base/not-in-the-series.patch", "another");
    assert_eq!(built(), [""; 0]);
    tree.write("patches/app-base/one.patch", "another");
    assert_eq!(built(), ["app-base"]);
}

/// As to oslo.config, which knows groups by small letters.
#[test]
fn a_section_may_have_capital_letters() {
    let tree = Tree::new();
    let place = tree.run("[App-Base]\ntype = local\nlocation = /nowhere\n", &["^app-base$"]).exits(2);
    place.says("[app-base] names /nowhere, which is not there").says("kolla-build.conf:");
}
