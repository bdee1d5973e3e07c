//! What both programs say about the images of a tree.

use std::process::Output;

use serde_json::Value;

use crate::place::{NEWEST, RELEASES, ours, release, said, succeed, theirs};

fn both(version: &str, arguments: &[&str]) -> [Output; 2] {
    let release = release(version);
    let room = tempfile::tempdir().unwrap();
    [theirs(&release, room.path()), ours(&release, room.path())].map(|mut command| succeed(command.args(arguments)))
}

fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // Kolla numbers what it finds in the order of the file system.
    let mut lines: Vec<String> = text.lines().map(|line| line.split_once(" : ").unwrap().1.to_owned()).collect();
    lines.sort();
    lines
}

/// Children in one order.
fn sorted(value: Value) -> Value {
    match value {
        Value::Array(items) => {
            let mut items: Vec<Value> = items.into_iter().map(sorted).collect();
            items.sort_by_key(ToString::to_string);
            Value::Array(items)
        }
        Value::Object(entries) => entries.into_iter().map(|(key, value)| (key, sorted(value))).collect(),
        other => other,
    }
}

#[test]
fn lists_of_images() {
    for version in RELEASES {
        for arguments in [
            &["-b", "rocky"][..],
            &["-b", "debian", "--base-arch", "aarch64"],
            &["-b", "debian", "--enable-unbuildable", "nova"],
            &["-b", "debian", "^cron$", "keystone"],
            &["-b", "ubuntu", "-p", "main"],
            &["-b", "ubuntu", "--profile", "default", "--profile", "aux"],
        ] {
            let [theirs, ours] = both(version, &[arguments, &["--list-images"]].concat());
            assert_eq!(lines(&theirs), lines(&ours), "{version} {arguments:?}");
            assert!(lines(&ours).len() > 1);
        }
    }
}

#[test]
fn dependencies() {
    for arguments in [&["-b", "rocky"][..], &["-b", "debian", "nova-", "^cron$"]] {
        let [theirs, ours] = both(NEWEST, &[arguments, &["--list-dependencies"]].concat());
        let read = |output: &Output| sorted(serde_json::from_slice(&output.stdout).unwrap());
        assert_eq!(read(&theirs), read(&ours));
        let lines = |output: &Output| {
            let mut lines: Vec<String> =
                String::from_utf8_lossy(&output.stdout).lines().map(|l| l.trim_end_matches(',').to_owned()).collect();
            lines.sort();
            lines
        };
        assert_eq!(lines(&theirs), lines(&ours), "{arguments:?}");
    }
    let [theirs, ours] = both(NEWEST, &["-b", "debian", "--list-dependencies", "^nothing-is-called-so$"]);
    assert_eq!(String::from_utf8_lossy(&theirs.stdout), String::from_utf8_lossy(&ours.stdout));
}

#[test]
fn dependencies_as_a_graph() {
    let texts = ["theirs", "ours"].map(|which| {
        let release = release(NEWEST);
        let room = tempfile::tempdir().unwrap();
        let file = room.path().join("graph.dot");
        let mut command = if which == "ours" { ours(&release, room.path()) } else { theirs(&release, room.path()) };
        succeed(command.args(["-b", "debian", "keystone", "--save-dependency"]).arg(&file));
        let mut lines: Vec<String> = std::fs::read_to_string(&file).unwrap().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    });
    // The order of nodes is that of the file system; the first node stands behind `rankdir=LR`.
    let names = |lines: &[String]| {
        let mut all: Vec<String> =
            lines.iter().flat_map(|l| l.split('\t').map(str::to_owned)).filter(|l| !l.is_empty()).collect();
        all.sort();
        all
    };
    assert_eq!(names(&texts[0]), names(&texts[1]));
}

/// Where a profile and patterns are given Kolla forgets the profile; here they add up.
#[test]
fn a_profile_and_patterns_add_up() {
    let release = release(NEWEST);
    let room = tempfile::tempdir().unwrap();
    let output =
        succeed(ours(&release, room.path()).args(["-b", "debian", "--list-images", "-p", "infra", "^watcher-api$"]));
    let lines = lines(&output);
    assert!(lines.contains(&"watcher-api".into()) && lines.contains(&"memcached".into()), "{lines:?}");
}

#[test]
fn mistakes_are_named() {
    let tree = release(NEWEST);
    let room = tempfile::tempdir().unwrap();
    let config = room.path().join("kolla-build.conf");
    let told = |text: &str, arguments: &[&str]| {
        std::fs::write(&config, text).unwrap();
        let mut command = ours(&tree, room.path());
        let output = command.arg("--list-images").arg("--config-file").arg(&config).args(arguments).output().unwrap();
        (output.status.code(), said(&output))
    };
    let (code, text) = told("[DEFAULT]\nbase = debain\n", &[]);
    assert_eq!(code, Some(2));
    assert!(text.contains("kolla-build.conf:2:1") && text.contains("`debian`"), "{text}");
    let (code, text) = told("[DEFAULT]\nbase = debian\nthreds = 3\n[keystone-bse]\ntype = local\n", &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("no option `threds`") && text.contains("threads"), "{text}");
    assert!(text.contains("[keystone-bse]") && text.contains("keystone-base"), "{text}");
    let (code, text) = told("[DEFAULT]\nbase = debian\nlost\n", &[]);
    assert_eq!(code, Some(2));
    assert!(text.contains("kolla-build.conf:3:1"), "{text}");
    let (code, text) = told("", &["-b", "debian", "--profile", "mian"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("no profile `mian`") && text.contains("main"), "{text}");
    let (code, text) = told("", &["-b", "debian", "--profil", "main", "nova(("]);
    assert_eq!(code, Some(2));
    assert!(text.contains("regular expression"), "{text}");
    let (code, _) = told("", &["--no-such-option"]);
    assert_eq!(code, Some(2));
}
