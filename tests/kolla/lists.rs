//! What both programs say about the images of a tree.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::place::{Call, NEWEST, RELEASES, call, ours, ours_all, release, said, succeed, theirs};

/// What both say to each call.
fn both(version: &str, calls: &[Call]) -> Vec<[Vec<u8>; 2]> {
    let release = release(version);
    theirs(&release, calls).into_iter().zip(ours_all(&release, calls)).map(|(theirs, ours)| [theirs, ours]).collect()
}

fn lines(output: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(output);
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
    let calls = [
        "-b rocky",
        "-b debian --base-arch aarch64",
        "-b debian --enable-unbuildable nova",
        "-b debian ^cron$ keystone",
        "-b ubuntu -p main",
        "-b ubuntu --profile default --profile aux",
    ]
    .map(|arguments| call(arguments).and("--list-images"));
    for (version, calls) in RELEASES.into_iter().zip([&calls[..], &calls[4..], &calls[4..]]) {
        for ([theirs, ours], call) in both(version, calls).iter().zip(calls) {
            assert_eq!(lines(theirs), lines(ours), "{version} {call:?}");
            assert!(lines(ours).len() > 1);
        }
    }
}

#[test]
fn dependencies() {
    let calls = ["-b rocky", "-b debian nova- ^cron$", "-b debian ^nothing-is-called-so$"]
        .map(|arguments| call(arguments).and("--list-dependencies"));
    let answers = both(NEWEST, &calls);
    for ([theirs, ours], call) in answers.iter().zip(&calls).take(2) {
        let read = |output: &[u8]| sorted(serde_json::from_slice(output).unwrap());
        assert_eq!(read(theirs), read(ours));
        let lines = |output: &[u8]| {
            let mut lines: Vec<String> =
                String::from_utf8_lossy(output).lines().map(|l| l.trim_end_matches(',').to_owned()).collect();
            lines.sort();
            lines
        };
        assert_eq!(lines(theirs), lines(ours), "{call:?}");
    }
    let [theirs, ours] = &answers[2];
    assert_eq!(String::from_utf8_lossy(theirs), String::from_utf8_lossy(ours));
}

#[test]
fn dependencies_as_a_graph() {
    let release = release(NEWEST);
    let room = tempfile::tempdir().unwrap();
    let files = ["theirs", "ours"].map(|which| room.path().join(which));
    let [to_theirs, to_ours] = files.each_ref().map(|file| call("-b debian keystone --save-dependency").and(file));
    theirs(&release, &[to_theirs]);
    ours_all(&release, &[to_ours]);
    // The order of nodes is that of the file system; the first node stands behind `rankdir=LR`.
    let [theirs, ours] = files.map(|file| {
        let text = std::fs::read_to_string(&file).unwrap();
        let mut all: Vec<String> = text.split(['\n', '\t']).filter(|l| !l.is_empty()).map(str::to_owned).collect();
        all.sort();
        all
    });
    assert_eq!(theirs, ours);
}

/// Profiles of the file are those of the release, with other images.
#[test]
fn profiles_of_a_file() {
    let room = tempfile::tempdir().unwrap();
    let config = room.path().join("kolla-build.conf");
    std::fs::write(
        &config,
        "[DEFAULT]\nbase = debian\nprofile = main\nprofile = infra\n[profiles]\nmain = ^cron$,\n  ^watcher-\n",
    )
    .unwrap();
    let calls =
        ["", "-p aux", "^memcached$"].map(|more| call(more).and("--list-images").and("--config-file").and(&config));
    for ([theirs, ours], call) in both(NEWEST, &calls).iter().zip(&calls).take(2) {
        assert_eq!(lines(theirs), lines(ours), "{call:?}");
        assert!(lines(ours).contains(&"watcher-api".into()) && !lines(ours).contains(&"keystone".into()), "{call:?}");
    }
}

/// All options that the release's own help has.
#[test]
fn every_option_of_the_release_is_there() {
    let option = regex::Regex::new(r"--[a-z][\w-]*|(?m:^ +-\w\b)|, -\w\b").unwrap();
    for version in RELEASES {
        let [theirs, ours] = &both(version, &[call("--help")])[0];
        let options = |text: &[u8]| -> BTreeSet<String> {
            let text = String::from_utf8_lossy(text);
            let all = option.find_iter(&text).map(|found| found.as_str().trim_matches([',', ' ']).to_owned());
            all.collect()
        };
        let missing: Vec<String> = options(theirs).difference(&options(ours)).cloned().collect();
        assert!(options(theirs).len() > 80, "{version}: {:?}", options(theirs));
        assert!(missing.is_empty(), "{version}: {missing:?}");
        // oslo.config's own lacks a file in a virtual environment.
        let script = &ours_all(&release(version), &[call("--shell_completion bash")])[0];
        assert!(String::from_utf8_lossy(script).contains("--template-override"));
    }
}

/// Where a profile and patterns are given Kolla forgets the profile; here they add up.
#[test]
fn a_profile_and_patterns_add_up() {
    let release = release(NEWEST);
    let room = tempfile::tempdir().unwrap();
    let output =
        succeed(ours(&release, room.path()).args(["-b", "debian", "--list-images", "-p", "infra", "^watcher-api$"]));
    let lines = lines(&output.stdout);
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
