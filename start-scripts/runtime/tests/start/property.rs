//! Any valid configuration passes its own check, and one change to anything that it manages makes the check fail.

use crate::lab::Lab;
use proptest::prelude::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;

#[derive(Debug, Clone)]
struct Entry {
    source: String,
    dest: String,
    perm: String,
    owner: u32,
    merge: bool,
    preserve: bool,
}

#[derive(Debug, Clone)]
enum Source {
    File(Vec<u8>, u32),
    Directory(Vec<(String, Vec<u8>, u32)>),
}

#[derive(Debug, Clone, Copy)]
enum Change {
    Content,
    Mode,
    Owner,
    Group,
    Removed,
    OtherKind,
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c]", "[a-b]\\.conf", "[ a-c\u{e9}*]{1,3}"].prop_filter("a name", |name| name.trim() == name)
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..20)
}

fn mode() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0o644), Just(0o600), Just(0o2755), Just(0o4711), 0..0o7777u32]
}

fn source() -> impl Strategy<Value = Source> {
    let below = prop_oneof![name(), (name(), name()).prop_map(|(one, two)| format!("{one}.d/{two}"))];
    prop_oneof![
        (content(), mode()).prop_map(|(content, mode)| Source::File(content, mode)),
        prop::collection::vec((below, content(), mode()), 0..4).prop_map(Source::Directory),
    ]
}

fn entry() -> impl Strategy<Value = Entry> {
    let source = prop_oneof!["s[0-2]", Just("s*".to_string()), Just("s[01]".to_string())];
    let dest = prop_oneof!["[xyz]", "[xyz]/", "x/[yz]", "x/y/", "[xyz]/s[0-2]", "new/[xy]/"];
    let perm = prop_oneof!["[0-7]{3}", "[0-7]{4}", "0o[0-7]{3}", "0o[0-7]{4}", Just("0640".to_string())];
    (source, dest, perm, 0..3u32, any::<bool>(), any::<bool>())
        .prop_map(|(source, dest, perm, owner, merge, preserve)| Entry { source, dest, perm, owner, merge, preserve })
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        Just(Change::Content),
        Just(Change::Mode),
        Just(Change::Owner),
        Just(Change::Group),
        Just(Change::Removed),
        Just(Change::OtherKind),
    ]
}

fn configuration(entries: &[Entry], rules: &[(String, u32, bool)]) -> String {
    let copies: Vec<String> = entries
        .iter()
        .map(|entry| {
            let own = if entry.preserve {
                "\"preserve_properties\": true".to_string()
            } else {
                format!("\"owner\": \"{}\", \"perm\": \"{}\"", entry.owner, entry.perm)
            };
            format!(
                "{{\"source\": \"@config/{}\", \"dest\": \"@etc/{}\", \"optional\": true, \"merge\": {}, {own}}}",
                entry.source, entry.dest, entry.merge
            )
        })
        .collect();
    let rules: Vec<String> = rules
        .iter()
        .map(|(path, owner, recurse)| {
            format!(
                "{{\"path\": \"@etc/{path}\", \"owner\": \"{owner}\", \"perm\": \"0o751\", \"recurse\": {recurse}, \
                 \"exclude\": [\"conf$\", \"/c\"]}}"
            )
        })
        .collect();
    format!("\"config_files\": [{}], \"permissions\": [{}]", copies.join(", "), rules.join(", "))
}

/// Every file and directory that comes from a source: all that was not there before, but for parents.
fn managed(lab: &Lab, before: &[PathBuf]) -> Vec<PathBuf> {
    let record = fs::read_to_string(lab.path("state/defaults/record.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    let mut all = Vec::new();
    for unit in record["units"].as_array().unwrap() {
        let decoded = |value: &serde_json::Value| {
            let mut bytes = Vec::new();
            let mut rest = value.as_str().unwrap().bytes();
            while let Some(byte) = rest.next() {
                let digit = |byte: Option<u8>| char::from(byte.unwrap()).to_digit(16).unwrap() as u8;
                bytes.push(if byte == b'%' { digit(rest.next()) << 4 | digit(rest.next()) } else { byte });
            }
            String::from_utf8(bytes).unwrap()
        };
        let path = PathBuf::from(decoded(&unit["path"]));
        if unit["kind"] == "whole" {
            all.extend(unit["installed"].as_array().unwrap().iter().map(|name| path.join(decoded(name))));
            all.push(path);
        }
    }
    all.retain(|path| !before.contains(path) || path.is_file());
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 200, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_start_passes_its_check_and_any_change_fails_it(
        sources in prop::collection::vec(source(), 1..4),
        entries in prop::collection::vec(entry(), 1..4),
        rules in prop::collection::vec(("[xyz]|x/y|\\*", 0..3u32, any::<bool>()), 0..3),
        originals in prop::collection::vec(("[xyz]/(y/)?[a-c]", content()), 0..4),
        which in any::<prop::sample::Index>(),
        change in change(),
        restarts in 1..3,
    ) {
        let Some(lab) = Lab::new() else { return Ok(()) };
        for (number, source) in sources.iter().enumerate() {
            match source {
                Source::File(content, mode) => {
                    lab.write(&format!("config/s{number}"), content);
                    lab.mode(&format!("config/s{number}"), *mode);
                }
                Source::Directory(files) => {
                    fs::create_dir(lab.path(&format!("config/s{number}"))).unwrap();
                    for (name, content, mode) in files {
                        // The generator may give a name twice, once as a directory.
                        let path = lab.path(&format!("config/s{number}/{name}"));
                        if path.parent().unwrap().is_file() || path.is_dir() {
                            continue;
                        }
                        lab.write(&format!("config/s{number}/{name}"), content);
                        lab.mode(&format!("config/s{number}/{name}"), *mode);
                    }
                }
            }
        }
        for (name, content) in &originals {
            let path = lab.path(&format!("etc/{name}"));
            if !path.exists() && !path.ancestors().any(|above| above.is_file()) {
                lab.write(&format!("etc/{name}"), content);
            }
        }
        let before = lab.tree("etc");
        let there: Vec<PathBuf> = before.keys().cloned().collect();
        lab.config(&configuration(&entries, &rules));
        let first = lab.set();
        if first.code != 0 {
            // Entries that contradict each other, or what is there: nothing may have been changed.
            prop_assert_eq!(first.code, 1, "{}", first.said);
            prop_assert_eq!(lab.tree("etc"), before);
            return Ok(());
        }
        for _ in 0..restarts {
            let check = lab.check();
            prop_assert_eq!(check.code, 0, "{}", check.said);
            let after = lab.tree("etc");
            let again = lab.set();
            prop_assert_eq!(again.code, 0, "{}", again.said);
            prop_assert_eq!(lab.tree("etc"), after, "a second start changed something");
        }

        let managed = managed(&lab, &there);
        if !managed.is_empty() {
            let path = &managed[which.index(managed.len())];
            let metadata = fs::symlink_metadata(path).unwrap();
            match change {
                Change::Content if metadata.is_file() => {
                    let mut content = fs::read(path).unwrap();
                    content.push(b'x');
                    fs::write(path, content).unwrap();
                    fs::set_permissions(path, metadata.permissions()).unwrap();
                }
                Change::Owner => {
                    chown(path, Some(99), None).unwrap();
                    fs::set_permissions(path, metadata.permissions()).unwrap();
                }
                Change::Group => {
                    chown(path, None, Some(99)).unwrap();
                    fs::set_permissions(path, metadata.permissions()).unwrap();
                }
                Change::Removed if metadata.is_file() => fs::remove_file(path).unwrap(),
                Change::OtherKind if metadata.is_file() => {
                    fs::rename(path, lab.path("aside")).unwrap();
                    std::os::unix::fs::symlink(lab.path("aside"), path).unwrap();
                }
                _ => {
                    let mode = (metadata.permissions().mode() & 0o7777) ^ 0o001;
                    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
                }
            }
            let check = lab.check();
            prop_assert_eq!(check.code, 1, "{:?} of {} is not seen: {}", change, path.display(), check.said);
            prop_assert!(check.said.contains(&*path.to_string_lossy()), "{}", check.said);
            prop_assert_eq!(lab.set().code, 0);
            prop_assert_eq!(lab.check().code, 0);
        }

        lab.config("\"config_files\": []");
        prop_assert_eq!(lab.set().code, 0);
        let mut after = lab.tree("etc");
        if !rules.is_empty() {
            // Owners that `permissions` gave to what is the image's are not taken back, as in Kolla.
            let names = |tree: &std::collections::BTreeMap<PathBuf, String>| tree.keys().cloned().collect::<Vec<_>>();
            prop_assert_eq!(names(&after), names(&before));
            after.clone_from(&before);
        }
        prop_assert_eq!(after, before, "the defaults did not come back");
        prop_assert_eq!(lab.check().code, 0);
    }
}
