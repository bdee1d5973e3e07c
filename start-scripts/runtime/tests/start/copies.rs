//! Copies, and `--check` after them. Numbers in names are those of the cases from the field.

use crate::lab::Lab;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, chown};

#[test]
fn case_30_a_directory_as_source_and_a_configuration_without_files() {
    let Some(lab) = Lab::new() else { return };
    lab.config(r#""config_files": []"#);
    lab.configured();
    fs::write(lab.path("config/config.json"), r#"{"command": "true"}"#).unwrap();
    lab.configured();

    lab.write("config/d/deep/er/x.conf", "one");
    lab.config(r#""config_files": [{"source": "@config/d", "dest": "@etc/d", "owner": "5:6", "perm": "0640"}]"#);
    lab.configured();
    lab.has("etc/d/deep/er/x.conf", "one");
    assert_eq!(lab.own("etc/d/deep/er"), (5, 6, 0o750));
    assert_eq!(lab.own("etc/d/deep/er/x.conf"), (5, 6, 0o640));

    lab.write("etc/d/deep/er/x.conf", "two");
    lab.check().says(1, &["config_files[0]", "etc/d/deep/er/x.conf", "other content"]);
    lab.configured();
    lab.has("etc/d/deep/er/x.conf", "one");

    lab.write("config/d/deep/new", "");
    lab.check().is(1);
    lab.configured();
    fs::remove_file(lab.path("config/d/deep/er/x.conf")).unwrap();
    lab.check().says(1, &["etc/d/deep/er/x.conf", "no source has it now"]);
    lab.configured();
    lab.has_not("etc/d/deep/er/x.conf");
}

#[test]
fn case_31_a_volume_of_kubernetes_gives_files_and_links_only_when_asked_for() {
    let Some(lab) = Lab::new() else { return };
    lab.write("config/v/..2026_11_30/foo.conf", "content");
    lab.link("config/v/..data", "..2026_11_30");
    lab.link("config/v/foo.conf", "..data/foo.conf");
    let entry = |dest: &str, how: &str| format!(r#""config_files": [{{"source": "@config/v{dest}, {how}}}]"#);
    let given = r#""owner": "1", "perm": "0600""#;

    lab.config(&entry(r#"/foo.conf", "dest": "@etc/foo.conf""#, given));
    lab.configured();
    lab.has("etc/foo.conf", "content");

    for how in [given, r#""preserve_properties": true"#, r#""owner": "1", "perm": "0600", "merge": true"#] {
        lab.config(&entry(r#"", "dest": "@etc/v""#, how));
        lab.configured();
        lab.has("etc/v/foo.conf", "content");
        lab.has_not("etc/v/..data");
        // As the kubelet does it: the next version beside, and one rename.
        lab.write("config/v/..2026_12_01/foo.conf", "content");
        lab.link("config/v/..data_tmp", "..2026_12_01");
        fs::rename(lab.path("config/v/..data_tmp"), lab.path("config/v/..data")).unwrap();
        lab.check().is(0);
    }

    lab.config(&entry(r#"", "dest": "@etc/v""#, r#""merge": true, "preserve_properties": true"#));
    lab.configured();
    assert_eq!(fs::read_link(lab.path("etc/v/foo.conf")).unwrap(), OsStr::new("..data/foo.conf"));
    assert_eq!(fs::read(lab.path("etc/v/foo.conf")).unwrap(), b"content");
}

#[test]
fn case_32_another_command_is_a_difference() {
    let Some(lab) = Lab::new() else { return };
    lab.config(r#""files": []"#);
    lab.configured();
    fs::write(lab.path("config/config.json"), r#"{"command": "true --now"}"#).unwrap();
    lab.check().says(1, &["command", "`true --now`", "`true`"]);
    lab.configured();
    assert_eq!(fs::read(lab.path("state/run_command")).unwrap(), b"true --now");
}

#[test]
fn case_33_every_notation_of_a_permission_passes_its_own_check() {
    let Some(lab) = Lab::new() else { return };
    lab.write("config/f", "f");
    lab.write("config/d/sub/f", "f");
    for (perm, file, directory) in [
        ("2775", 0o2775, 0o2775),
        ("1777", 0o1777, 0o1777),
        ("640", 0o640, 0o750),
        ("0o640", 0o640, 0o750),
        ("0600", 0o600, 0o700),
        ("4755", 0o4755, 0o4755),
        ("0000", 0, 0),
        ("0222", 0o222, 0o222),
    ] {
        lab.config(&format!(
            r#""config_files": [
                {{"source": "@config/f", "dest": "@etc/f", "owner": "7:8", "perm": "{perm}"}},
                {{"source": "@config/d", "dest": "@etc/d", "owner": "7:8", "perm": "{perm}"}}]"#
        ));
        lab.configured();
        assert_eq!(lab.own("etc/f"), (7, 8, file), "{perm}");
        assert_eq!(lab.own("etc/d/sub"), (7, 8, directory), "{perm}");
        assert_eq!(lab.own("etc/d/sub/f"), (7, 8, file), "{perm}");
    }
    for (name, mode, owner) in [("d", 0o2711, 3), ("d/sub", 0o700, 4), ("d/sub/f", 0o6751, 5)] {
        chown(lab.path("config").join(name), Some(owner), Some(owner + 1)).unwrap();
        lab.mode(&format!("config/{name}"), mode);
    }
    lab.config(r#""config_files": [{"source": "@config/d", "dest": "@etc/d", "preserve_properties": true}]"#);
    lab.configured();
    for name in ["d", "d/sub", "d/sub/f"] {
        assert_eq!(lab.own(&format!("etc/{name}")), lab.own(&format!("config/{name}")), "{name}");
        let time = |place: &str| fs::metadata(lab.path(place).join(name)).unwrap().mtime();
        assert_eq!(time("etc"), time("config"));
    }
}

#[test]
fn case_34_neither_contents_nor_names_need_be_utf_8() {
    let Some(lab) = Lab::new() else { return };
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    lab.write("config/d/latin", &bytes);
    let name = OsStr::from_bytes(b"caf\xe9\n.conf");
    fs::write(lab.path("config/d").join(name), &bytes).unwrap();
    lab.config(
        r#""config_files": [{"source": "@config/d", "dest": "@etc/d", "owner": "0", "perm": "0644"},
                            {"source": "@config/d/*", "dest": "@etc/e/", "owner": "0", "perm": "0644"}]"#,
    );
    lab.configured();
    lab.has("etc/d/latin", &bytes);
    for place in ["etc/d", "etc/e"] {
        assert_eq!(fs::read(lab.path(place).join(name)).unwrap(), bytes);
    }
    lab.config("\"config_files\": []");
    lab.configured();
    assert!(!lab.path("etc/e").exists());
}

#[test]
fn a_slash_at_the_end_copies_into_and_a_pattern_gives_many() {
    let Some(lab) = Lab::new() else { return };
    for name in ["a.conf", "b.conf", "c.txt", ".d.conf"] {
        lab.write(&format!("config/s/{name}"), name);
    }
    lab.config(
        r#""config_files": [
            {"source": "@config/s/*.conf", "dest": "@etc/new/deep/", "owner": "1", "perm": "0644"},
            {"source": "@config/s/c.txt", "dest": "@etc/new/", "owner": "1", "perm": "0644"},
            {"source": "@config/s", "dest": "@etc/into/", "owner": "1", "perm": "0600"},
            {"source": "@config/s/", "dest": "@etc/contents/", "owner": "1", "perm": "0600"},
            {"source": "@config/none*", "dest": "@etc/none/", "owner": "1", "perm": "0600", "optional": true}]"#,
    );
    lab.configured();
    for (name, content) in [
        ("new/deep/a.conf", "a.conf"),
        ("new/deep/b.conf", "b.conf"),
        ("new/c.txt", "c.txt"),
        ("into/s/.d.conf", ".d.conf"),
        ("contents/c.txt", "c.txt"),
    ] {
        lab.has(&format!("etc/{name}"), content);
    }
    lab.has_not("etc/new/deep/c.txt");
    lab.has_not("etc/new/deep/.d.conf");
    lab.has_not("etc/none");
}

#[test]
fn a_directory_is_replaced_and_a_merge_keeps_what_is_there() {
    let Some(lab) = Lab::new() else { return };
    for place in ["replaced", "merged"] {
        lab.write(&format!("etc/{place}/of-image"), "image");
        lab.write(&format!("etc/{place}/both"), "image");
        lab.write(&format!("etc/{place}/sub/of-image"), "image");
    }
    lab.write("config/d/both", "ours");
    lab.write("config/d/sub/ours", "ours");
    lab.config(
        r#""config_files": [
            {"source": "@config/d", "dest": "@etc/replaced", "owner": "1", "perm": "0644"},
            {"source": "@config/d", "dest": "@etc/merged", "owner": "1", "perm": "0644", "merge": true}]"#,
    );
    lab.configured();
    lab.has_not("etc/replaced/of-image");
    lab.has_not("etc/replaced/sub/of-image");
    lab.has("etc/merged/of-image", "image");
    lab.has("etc/merged/sub/of-image", "image");
    for place in ["replaced", "merged"] {
        lab.has(&format!("etc/{place}/both"), "ours");
        lab.has(&format!("etc/{place}/sub/ours"), "ours");
    }
    // What the service makes itself is its own in both, as far as the check goes; a merge never takes it away.
    lab.write("etc/merged/cache", "service");
    lab.write("etc/replaced/cache", "service");
    lab.check().is(0);
    lab.configured();
    lab.has("etc/merged/cache", "service");
    lab.has_not("etc/replaced/cache");
}

#[test]
fn entries_are_laid_over_each_other_in_their_order() {
    let Some(lab) = Lab::new() else { return };
    lab.write("etc/nova/of-image", "");
    lab.write("config/dir/nova.conf", "dir");
    lab.write("config/dir/policy", "dir");
    lab.write("config/nova.conf", "file");
    lab.config(
        r#""config_files": [
            {"source": "@config/dir", "dest": "@etc/nova", "owner": "1", "perm": "0644"},
            {"source": "@config/nova.conf", "dest": "@etc/nova/nova.conf", "owner": "2", "perm": "0600"}]"#,
    );
    lab.configured();
    lab.has("etc/nova/nova.conf", "file");
    assert_eq!(lab.own("etc/nova/nova.conf"), (2, 2, 0o600));
    lab.has("etc/nova/policy", "dir");
    lab.has_not("etc/nova/of-image");
    // The directory goes: what was there comes back, with the file that stays on top.
    lab.config(
        r#""config_files": [{"source": "@config/nova.conf", "dest": "@etc/nova/nova.conf", "owner": "2", "perm": "0600"}]"#,
    );
    lab.check().is(1);
    lab.configured();
    lab.has("etc/nova/nova.conf", "file");
    lab.has("etc/nova/of-image", "");
    lab.has_not("etc/nova/policy");
    lab.config(r#""files": []"#);
    lab.configured();
    lab.has_not("etc/nova/nova.conf");
    lab.has("etc/nova/of-image", "");
}

#[test]
fn permissions_come_last_and_the_check_knows_it() {
    let Some(lab) = Lab::new() else { return };
    lab.write("config/d/keep/secret", "x");
    lab.write("config/d/other", "x");
    lab.write("config/d/b.tmp", "x");
    lab.write("etc/log/old.log", "x");
    lab.config(
        r#""config_files": [{"source": "@config/d", "dest": "@etc/d", "owner": "1", "perm": "0600"}],
           "permissions": [
             {"path": "@etc/d", "owner": "5:6", "perm": "0640", "recurse": true, "exclude": ["/keep", "\\.tmp$"]},
             {"path": "@etc/log/*", "owner": "9"},
             {"path": "@etc/none", "owner": "9", "perm": "0600"}]"#,
    );
    lab.configured();
    assert_eq!(lab.own("etc/d"), (5, 6, 0o750));
    assert_eq!(lab.own("etc/d/other"), (5, 6, 0o640));
    assert_eq!(lab.own("etc/d/keep"), (1, 1, 0o700));
    assert_eq!(lab.own("etc/d/keep/secret"), (1, 1, 0o600));
    assert_eq!(lab.own("etc/d/b.tmp"), (1, 1, 0o600));
    assert_eq!(lab.own("etc/log/old.log"), (9, 9, 0o644));
    // A second start has nothing to write.
    let again = lab.set().is(0);
    assert!(!again.said.contains("writing"), "{}", again.said);
    lab.config(
        r#""config_files": [{"source": "@config/d", "dest": "@etc/d", "owner": "1", "perm": "0600"}],
           "permissions": [{"path": "@etc/log/*", "owner": "9"}]"#,
    );
    lab.check().is(1);
    lab.configured();
    assert_eq!(lab.own("etc/d/other"), (1, 1, 0o600));
}

#[test]
fn a_link_below_a_recursive_permission_is_not_followed() {
    let Some(lab) = Lab::new() else { return };
    lab.write("shadow", "root's");
    lab.link("etc/log/trap", lab.path("shadow"));
    lab.config(r#""permissions": [{"path": "@etc/log", "owner": "42", "perm": "0777", "recurse": true}]"#);
    lab.configured();
    assert_eq!(lab.own("shadow"), (0, 0, 0o644));
    assert_eq!(lab.own("etc/log/trap").0, 42);
}

#[test]
fn directories_and_files_are_made_and_owned_and_checked() {
    let Some(lab) = Lab::new() else { return };
    lab.write("etc/full.log", "there before");
    fs::create_dir(lab.path("real")).unwrap();
    lab.link("etc/linked", lab.path("real"));
    lab.config(
        r#""directories": [{"path": "@etc/a/b", "owner": "3:4", "perm": "2770"},
                           {"path": "@etc/linked/", "owner": "3", "perm": "0700"}],
           "files": [{"path": "@etc/a/b/x.log", "owner": "3:4", "perm": "0640"},
                     {"path": "@etc/full.log", "owner": "3:4", "perm": "0600"}]"#,
    );
    lab.configured();
    assert_eq!(lab.own("etc/a/b"), (3, 4, 0o2770));
    assert_eq!(lab.own("etc/a"), (0, 0, 0o755));
    assert_eq!(lab.own("real"), (3, 3, 0o700));
    lab.has("etc/a/b/x.log", "");
    assert_eq!(lab.own("etc/a/b/x.log"), (3, 4, 0o640));
    lab.has("etc/full.log", "there before");
    assert_eq!(lab.own("etc/full.log"), (3, 4, 0o600));
    // What is written to them is nobody's concern, but what they are is.
    lab.write("etc/a/b/x.log", "line\n");
    lab.check().is(0);
    lab.mode("etc/a/b", 0o777);
    lab.check().says(1, &["directories[0]", "etc/a/b", "0777, not 2770"]);
    lab.configured();
    // They stay when their entries go.
    lab.config("\"files\": []");
    lab.check().is(1);
    lab.configured();
    lab.has("etc/a/b/x.log", "line\n");
}

#[test]
fn a_directory_that_is_made_stays_in_one_that_is_replaced() {
    let Some(lab) = Lab::new() else { return };
    lab.write("config/d/sub/f", "");
    lab.write("etc/d/of-image", "");
    lab.config(
        r#""directories": [{"path": "@etc/d/sub/run", "owner": "3", "perm": "0700"}],
           "config_files": [{"source": "@config/d", "dest": "@etc/d", "owner": "1", "perm": "0644"}]"#,
    );
    lab.configured();
    assert_eq!(lab.own("etc/d/sub/run"), (3, 3, 0o700));
    lab.has("etc/d/sub/f", "");
    lab.has_not("etc/d/of-image");
    lab.configured();
}

#[test]
fn a_link_as_dest_is_replaced_and_comes_back() {
    let Some(lab) = Lab::new() else { return };
    lab.write("etc/alternative.cnf", "alternative");
    lab.link("etc/my.cnf", "alternative.cnf");
    lab.link("etc/dangling", "nowhere");
    lab.write("config/f", "ours");
    lab.config(
        r#""config_files": [
            {"source": "@config/f", "dest": "@etc/my.cnf", "owner": "1", "perm": "0644"},
            {"source": "@config/f", "dest": "@etc/dangling", "owner": "1", "perm": "0644"}]"#,
    );
    lab.configured();
    lab.has("etc/my.cnf", "ours");
    lab.has("etc/alternative.cnf", "alternative");
    lab.configured();
    lab.config("\"config_files\": []");
    lab.configured();
    assert_eq!(fs::read_link(lab.path("etc/my.cnf")).unwrap(), OsStr::new("alternative.cnf"));
    assert_eq!(fs::read_link(lab.path("etc/dangling")).unwrap(), OsStr::new("nowhere"));
}

#[test]
fn a_merge_goes_through_a_link_to_a_directory() {
    let Some(lab) = Lab::new() else { return };
    lab.write("real/there", "image");
    lab.link("etc/linked", lab.path("real"));
    lab.write("config/d/new", "ours");
    lab.config(
        r#""config_files": [
            {"source": "@config/d", "dest": "@etc/linked", "owner": "0", "perm": "0644", "merge": true},
            {"source": "@config/d/new", "dest": "@etc/linked/", "owner": "0", "perm": "0644"}]"#,
    );
    lab.configured();
    lab.has("real/new", "ours");
    lab.has("real/there", "image");
    assert!(lab.path("etc/linked").is_symlink());
}

#[test]
fn copy_once_copies_once() {
    let Some(mut lab) = Lab::new() else { return };
    lab.variables.insert("KOLLA_CONFIG_STRATEGY".into(), "COPY_ONCE".into());
    lab.write("config/f", "one");
    lab.config(r#""config_files": [{"source": "@config/f", "dest": "@etc/f", "owner": "0", "perm": "0644"}]"#);
    lab.configured();
    lab.write("config/f", "two");
    lab.check().is(1);
    lab.set().is(0);
    lab.has("etc/f", "one");
}

#[test]
fn yaml_goes_before_json() {
    let Some(lab) = Lab::new() else { return };
    lab.config("\"files\": []");
    lab.write("config/f", "yaml");
    let yaml = format!(
        "command: sleep 1\nconfig_files:\n  - source: {0}config/f\n    dest: {0}etc/f\n    owner: '5'\n    perm: 0640\n",
        lab.path("").display()
    );
    lab.write("config/config.yaml", yaml);
    lab.configured();
    lab.has("etc/f", "yaml");
    assert_eq!(lab.own("etc/f"), (5, 5, 0o640));
}
