//! What is wrong with a Kolla tree, with its options or with what they name, as `kollage kolla-build` says it; and what it
//! never says.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::fetch::{Daemon, Web, repository};
use crate::kolla::Tree;
use crate::sandbox::{is_root, ran};

/// Where Kolla asks whether an option says something, an empty one says nothing. The directory that one is in stays as it is.
#[test]
fn what_is_empty_is_as_if_nobody_had_said_it() {
    let tree = Tree::new();
    let here = tree.sandbox.catalogue().join("images/kept/file");
    tree.sandbox.write("images/kept/file", "");
    let texts = [
        "work_dir",
        "logs_dir",
        "save_dependency",
        "summary_json_file",
        "platform",
        "patches_path",
        "network_mode",
        "registry",
        "apt_sources_list",
        "apt_preferences",
        "repos_yaml",
        "base_package_type",
        "template_override",
        "docker_dir",
    ];
    let config: String = texts[..12].iter().map(|key| format!("{key} =\n")).collect();
    let listed = tree.run(&config, &["--list-images"]).ok();
    assert!(listed.stdout.contains("app-base"), "{}", listed.stdout);
    ran(tree.command(&config, "kolla-build", &["--template-only"]).env("TMPDIR", tree.path(""))).ok();
    assert!(!tree.sandbox.catalogue().join("docker").exists());
    for key in &texts[12..] {
        tree.run(&format!("{key} =\n"), &["--list-images"]).exits(2);
    }
    if !is_root() {
        return;
    }
    let ran = tree.run(&config, &["^base$"]).ok();
    assert!(ran.stdout.starts_with("{\"built\": [{\"name\": \"base\"}]"), "{}", ran.stdout);
    assert!(!ran.stderr.contains("no meaning"), "{}", ran.stderr);
    assert!(here.exists() && !tree.sandbox.catalogue().join("images/base").exists());
}

#[test]
fn a_profile_that_selects_nothing_has_a_place() {
    let tree = Tree::new();
    let profile =
        |name: &str, text: &str| format!("profile = some\nprofile = {name}\n[profiles]\nother = ^app-api$\n{text}\n");
    for (config, place, says) in [
        (profile("sme", ""), 4, "no profile `sme`"),
        (profile("mine", "mine ="), 7, "`mine` selects no image"),
        (profile("mine", "mine = ^nothing$, ^nobody$"), 7, "`mine` selects no image"),
        (profile("mine", "mine = app((\n"), 7, "no regular expression"),
    ] {
        for list in [&["--list-images"][..], &["--template-only"], &[], &["^app-base$"]] {
            let ran = tree.run(&config, list).exits(2);
            ran.says(&format!("kolla-build.conf:{place}:1")).says(says);
        }
    }
    tree.run(&profile("sme", ""), &["--list-images"]).exits(2).says("did you mean `some`?");
    tree.run("", &["-p", "sme", "--list-images"]).exits(2).says("no profile `sme`").says("did you mean `some`?");
    tree.run(&profile("other", ""), &["--list-images"]).ok();
}

/// Template, line, image, and the override where it is the cause.
#[test]
fn a_template_error_says_where_it_is() {
    let tree = Tree::new();
    tree.write("fine.j2", "{% extends parent_template %}\n{% block nowhere %}{% endblock %}\n");
    let fine = tree.path("fine.j2").display().to_string();
    // In a template, with an override and without.
    tree.template("app/app-api", "FROM {{ namespace }}/app-base:{{ tag }}\n\nRUN {{ 1 + none }}\n");
    for more in [&[][..], &["--template-override", &fine]] {
        let ran = tree.run("", &[&["--list-images"], more].concat()).exits(2);
        ran.says("app/app-api/Dockerfile.j2:3:").says("image `app-api`");
    }
    tree.template("app/app-api", "FROM {{ namespace }}/app-base:{{ tag }}\n{% if %}\n");
    tree.run("", &["--list-images"]).exits(2).says("app/app-api/Dockerfile.j2:2:").says("image `app-api`");
    tree.template("app/app-api", "FROM {{ namespace }}/app-base:{{ tag }}\n");

    // In the one of the overrides that it stands in, first and last.
    let wrong = "{% extends parent_template %}\n\n{% block app_header %}\nRUN {{ 1 + none }}\n{% endblock %}\n";
    tree.write("wrong.j2", wrong);
    let wrong = tree.path("wrong.j2").display().to_string();
    tree.write("more.j2", "{% extends parent_template %}\n{% set more = 1 %}\n");
    let more = tree.path("more.j2").display().to_string();
    for (files, line) in
        [(vec![&wrong], 4), (vec![&wrong, &fine], 4), (vec![&fine, &wrong], 4), (vec![&fine, &more, &wrong], 4)]
    {
        let mut arguments = vec!["--list-images"];
        arguments.extend(files.iter().flat_map(|file| ["--template-override", file.as_str()]));
        let ran = tree.run("", &arguments).exits(2);
        let place = format!("{wrong}:{line}:");
        assert!(ran.stderr.contains(&place) && ran.stderr.contains("image `app-base`"), "{files:?}: {}", ran.stderr);
        assert!(!ran.stderr.contains("image `app-api`"), "{}", ran.stderr);
    }
    tree.write("open.j2", "{% extends parent_template %}\n{% block app_header %}\n");
    let open = tree.path("open.j2").display().to_string();
    let ran = tree.run("", &["--list-images", "--template-override", &open]).exits(2);
    ran.says("open.j2:");
    tree.write("bare.j2", "{% block app_header %}{% endblock %}\n");
    let bare = tree.path("bare.j2").display().to_string();
    tree.run("", &["--list-images", "--template-override", &bare]).exits(2).says("bare.j2:1:1").says("extends");
}

#[test]
fn what_is_no_file_of_its_kind_is_named() {
    let tree = Tree::new();
    fs::create_dir(tree.path("dir")).unwrap();
    fs::write(tree.path("latin"), b"base = \xe9\n").unwrap();
    tree.write("words", "words\n");
    for (option, names) in [
        ("--config-file", &["dir", "latin", "not-there", "words"][..]),
        ("--config-dir", &["latin", "not-there"]),
        ("--template-override", &["dir", "latin", "not-there", "words"]),
        ("--docker-dir", &["latin", "not-there"]),
        ("--repos-yaml", &["dir", "latin", "not-there", "words"]),
        ("--kolla", &["dir", "latin", "not-there"]),
    ] {
        for name in names {
            let path = tree.path(name).display().to_string();
            let ran = match option {
                "--kolla" => tree.sandbox.run(&["kolla-build", option, &path, "--list-images"]),
                _ => tree.run("", &["--list-images", option, &path]),
            };
            assert_eq!(ran.code, 2, "{option} {name}: {}", ran.stderr);
            assert!(ran.stderr.contains(name), "{option} {name}: {}", ran.stderr);
        }
    }
    for file in ["apt_sources_list", "apt_preferences"] {
        let ran = tree.run(&format!("{file} = {}\n", tree.path("not-there").display()), &["--template-only"]).exits(2);
        ran.says("not-there").says(file);
    }
    for (option, name) in [("--save-dependency", "dir"), ("--save-dependency", "not-there/x")] {
        let path = tree.path(name).display().to_string();
        tree.run("", &[option, &path]).exits(3).says(name);
    }
}

#[test]
fn called_as_kolla_build_it_is_kolla_build() {
    let tree = Tree::new();
    let link = tree.path("bin/kolla-build");
    fs::create_dir(tree.path("bin")).unwrap();
    symlink(env!("CARGO_BIN_EXE_kollage"), &link).unwrap();
    let called = |arguments: &[&str]| {
        let mut command = Command::new(&link);
        command.args(arguments).env_clear().env("HOME", tree.path("home")).env("KOLLAGE_KOLLA", tree.path(""));
        ran(&mut command)
    };
    let listed = called(&["--list-images", "^app-api$"]).ok();
    assert_eq!(listed.stdout, "1 : app-api\n2 : app-base\n3 : base\n");
    assert_eq!(listed.stdout, tree.run("", &["--list-images", "^app-api$"]).ok().stdout);
    assert_eq!(called(&["--version"]).ok().stdout, "unknown\n");
    // Kollage's own commands are patterns here.
    assert_eq!(called(&["--list-images", "build"]).ok().stdout, "");
    called(&["--list-imagse"]).exits(2).says("did you mean `--list-images`?");
}

/// A word that stands in an address is nowhere but in the address: not in what is said, nor in what is kept.
#[test]
fn what_stands_in_addresses_is_never_shown() {
    if !is_root() {
        return;
    }
    let tree = Tree::new();
    const WORD: &str = "hidden-word";
    let (web, dir) = (Web::start("content"), tempfile::tempdir().unwrap());
    repository(dir.path())("one");
    let daemon = Daemon::start(dir.path());
    tree.write("local/f", "content");
    let url = format!("http://me:{WORD}@{}", web.host);
    let sources = format!(
        "[app-base]\ntype = url\nlocation = {url}/a.tar\n\
         [app-api]\ntype = git\nreference = main\nlocation = git://{}/r.git\n",
        daemon.address
    );
    let config = format!(
        "pip_index_url = {url}/simple\npip_extra_index_url = {url}/extra\nbuild_args = PROXY:{url}/proxy\n{sources}"
    );
    let config = &config;
    let options = fs::read_to_string(tree.path("kolla/common/config.py")).unwrap();
    let pip = "_BASE_OPTS = [\n    cfg.StrOpt('pip_index_url'),\n    cfg.StrOpt('pip_trusted_host'),\n    cfg.StrOpt('pip_extra_index_url'),";
    tree.write("kolla/common/config.py", &options.replace("_BASE_OPTS = [", pip));
    let [work, logs] = ["work", "logs"].map(|name| tree.path(name).display().to_string());
    let kept = ["--logs-dir", &logs];
    let hidden = |what: &str, text: &str| assert!(!text.contains(WORD), "{what}: {text}");
    let mut said = Vec::new();
    for arguments in [
        &["--list-images"][..],
        &["--list-dependencies"],
        &["^app-api$"],
        &["^app-api$", "--nocache"],
        &["^app-api$", "--debug", "--skip-existing"],
    ] {
        said.push(tree.run(config, &[arguments, &kept].concat()).ok());
    }
    // Arguments of a build stand in what is kept to build again, and sources nowhere.
    said.push(tree.run(&sources, &["^app-api$", "--nocache", "--work-dir", &work]).ok());
    for format in ["rawjson", "plain"] {
        let mut command = tree.command(config, "kolla-build", &["^app-api$", "--nocache"]);
        said.push(ran(command.env("KOLLAGE_PROGRESS", format)).ok());
    }
    for command in ["plan", "list", "graph"] {
        said.push(tree.told(config, command, &[]).ok());
        said.push(tree.told(config, command, &["--format", "json"]));
    }
    for command in [&["store", "ls"][..], &["images", "--format", "json"], &["store", "du"]] {
        said.push(tree.sandbox.run(command));
    }
    for ran in &said {
        hidden("output", &format!("{}{}", ran.stdout, ran.stderr));
    }
    let everywhere = [Path::new(&work), Path::new(&logs), &tree.sandbox.path("store")];
    let found = Command::new("grep").args(["-rlaF", WORD]).args(everywhere).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
    assert!(web.requests().contains(&"sent".to_owned()));

    // The same when it goes wrong.
    for (section, code) in [
        (format!("[app-base]\ntype = url\nlocation = {url}/missing\n"), 2),
        (format!("[app-base]\ntype = url\nlocation = {url}/a.tar\nsha256 = amd64:{0},arm64:{0}\n", "0".repeat(64)), 2),
        (format!("[app-base]\ntype = git\nreference = main\nlocation = {url}/r.git\n"), 2),
        (format!("[app-base]\ntype = git\nreference = main\nlocation = {url}/missing/r.git\n"), 2),
        (format!("[app-base]\ntype = git\nreference = main\nlocation = file://me:{WORD}@h/srv\n"), 2),
        (format!("[app-base]\ntype = url\nlocation = ftp://me:{WORD}@127.0.0.1/x\n"), 2),
        (format!("[app-base]\ntype = url\nlocation = http://me:{WORD}@127.0.0.1:9/x\n"), 3),
        (format!("[app-base]\ntype = url\nlocation = http://127.0.0.1:9/x?token={WORD}\n"), 3),
        (format!("[app-base]\ntype = local\nlocation = http://me:{WORD}@127.0.0.1:9/x\n"), 2),
        (format!("[app-base]\ntype = urll\nlocation = {url}\n"), 2),
        (format!("[app-base]\ntype = url\nlocatoin = {url}\n"), 2),
        (format!("[app-base-plugin-p]\ntype = url\nlocation = {url}/a.tar\n"), 2),
        (format!("threads = {url}\n"), 2),
        (format!("lost {url}\n"), 2),
    ] {
        let ran = tree.run(&section, &["^app-base$"]);
        hidden(&section, &ran.stderr);
        assert_eq!(ran.code, code, "{section}: {}", ran.stderr);
    }
}

/// Where no directory is named, a run has one that others cannot look into, and leaves nothing of it: not when it goes wrong,
/// and not when it is ended.
#[test]
fn nothing_is_left_of_a_run_s_own_directory() {
    if !is_root() {
        return;
    }
    let tree = Tree::new();
    let tmp = tree.path("tmp");
    fs::create_dir(&tmp).unwrap();
    let left = || fs::read_dir(&tmp).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let run =
        |config: &str, arguments: &[&str]| ran(tree.command(config, "kolla-build", arguments).env("TMPDIR", &tmp));
    let gone = "[app-base]\ntype = url\nlocation = http://127.0.0.1:9/x\n";
    run(gone, &["^app-base$", "--retries", "0"]).exits(3);
    run("[app-base]\ntype = local\nlocation = /not/there\n", &["^app-base$"]).exits(2);
    run("", &["^base$", "--platform", "nonsense"]).exits(2);
    run("", &["^broken$"]).exits(1);
    run("", &["^base$"]).ok();
    assert_eq!(left(), Vec::<std::path::PathBuf>::new());

    tree.template("app/app-api", "FROM {{ namespace }}/base:{{ tag }}\nRUN sleep 60\n");
    let mut command = tree.command("", "kolla-build", &["^app-api$"]);
    let mut child = command.env("TMPDIR", &tmp).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut seen = String::new();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    while !seen.contains("step 1/1: RUN sleep 60") {
        assert!(lines.read_line(&mut seen).unwrap() > 0, "{seen}");
    }
    let kept = left();
    assert_eq!(kept.len(), 1);
    assert_eq!(fs::metadata(&kept[0]).unwrap().permissions().mode() & 0o777, 0o700);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("\"failed\": [{\"name\": \"app-api\", \"status\": \"matched\"}]"), "{said}");
    assert_eq!(left(), Vec::<std::path::PathBuf>::new());
    // Dockerfiles that are asked for are what is to be left.
    run("", &["--template-only"]).ok();
    assert_eq!(left().len(), 1);
}

/// A directory to work in is written over; one with somebody's own catalogue is not.
#[test]
fn a_work_directory_that_is_somebody_s_catalogue_is_left_alone() {
    if !is_root() {
        return;
    }
    let tree = Tree::new();
    let own = tree.sandbox.path("own");
    fs::create_dir_all(own.join("images/mine")).unwrap();
    fs::write(own.join("kollage.toml"), "").unwrap();
    let dir = own.display().to_string();
    tree.run("", &["--work-dir", &dir, "^base$"]).exits(2).says("are not of an earlier run").says("--work-dir");
    assert!(own.join("images/mine").is_dir() && !own.join("images/base").exists());
    let work = tree.sandbox.path("work").display().to_string();
    let config = "build_args = WORD:hidden-word\n";
    for _ in 0..2 {
        tree.run(config, &["--work-dir", &work, "^base$"]).ok();
    }
    let kept = fs::read_to_string(tree.sandbox.path("work/kollage.toml")).unwrap();
    assert!(!kept.contains("hidden-word"), "{kept}");
}
