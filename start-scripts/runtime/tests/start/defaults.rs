//! What was there before an entry, and that it comes back.

use crate::lab::Lab;
use std::fs;
use std::os::unix::fs::chown;

#[test]
fn defaults_come_back_after_many_starts() {
    let Some(lab) = Lab::new() else { return };
    lab.write("etc/a.conf", "default");
    chown(lab.path("etc/a.conf"), Some(11), Some(12)).unwrap();
    lab.mode("etc/a.conf", 0o4711);
    lab.write("etc/d/inner", "default");
    lab.link("etc/d/link", "inner");
    lab.mode("etc/d", 0o1730);
    let before = lab.tree("etc");
    lab.write("config/f", "ours");
    let all = r#""config_files": [
        {"source": "@config/f", "dest": "@etc/a.conf", "owner": "1", "perm": "0600"},
        {"source": "@config", "dest": "@etc/d", "owner": "1", "perm": "0600"},
        {"source": "@config/f", "dest": "@etc/new/deep/b.conf", "owner": "1", "perm": "0600"}]"#;
    for round in 0..5 {
        lab.write("config/f", format!("ours {round}"));
        lab.config(all);
        for _ in 0..3 {
            lab.configured();
            lab.has("etc/a.conf", format!("ours {round}"));
            lab.has("etc/d/f", format!("ours {round}"));
        }
        if round % 2 == 1 {
            lab.config("\"config_files\": []");
            lab.check().is(1);
            for _ in 0..2 {
                lab.configured();
                assert_eq!(lab.tree("etc"), before);
            }
        }
    }
    // Nothing is kept for what has come back.
    lab.config("\"config_files\": []");
    lab.configured();
    let kept: Vec<_> =
        fs::read_dir(lab.path("state/defaults")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(kept, ["record.json"]);
}

#[test]
fn one_entry_of_two_goes_away() {
    let Some(lab) = Lab::new() else { return };
    lab.write("etc/a", "default a");
    lab.write("etc/b", "default b");
    lab.write("config/f", "ours");
    let entry =
        |name: &str| format!(r#"{{"source": "@config/f", "dest": "@etc/{name}", "owner": "0", "perm": "0644"}}"#);
    lab.config(&format!(r#""config_files": [{}, {}]"#, entry("a"), entry("b")));
    lab.configured();
    lab.config(&format!(r#""config_files": [{}]"#, entry("b")));
    lab.check().says(1, &["etc/a", "no entry has it now"]);
    lab.configured();
    lab.has("etc/a", "default a");
    lab.has("etc/b", "ours");
}

#[test]
fn an_optional_source_that_goes_away_gives_the_default_back() {
    let Some(lab) = Lab::new() else { return };
    lab.write("etc/a", "default");
    lab.write("config/f", "ours");
    lab.config(
        r#""config_files": [{"source": "@config/f", "dest": "@etc/a", "owner": "0", "perm": "0644", "optional": true}]"#,
    );
    lab.configured();
    fs::remove_file(lab.path("config/f")).unwrap();
    lab.check().is(1);
    lab.configured();
    lab.has("etc/a", "default");
}

#[test]
fn a_merged_directory_is_undone_name_by_name() {
    let Some(lab) = Lab::new() else { return };
    lab.write("etc/d/both", "default");
    lab.mode("etc/d", 0o711);
    lab.write("etc/file-or-directory", "default");
    let before = lab.tree("etc");
    lab.write("config/s/d/both", "ours");
    lab.write("config/s/d/sub/new", "ours");
    lab.write("config/s/file-or-directory/x", "ours");
    lab.config(
        r#""config_files": [{"source": "@config/s/*", "dest": "@etc/", "owner": "4", "perm": "0600", "merge": true}]"#,
    );
    lab.configured();
    lab.has("etc/file-or-directory/x", "ours");
    assert_eq!(lab.own("etc/d"), (4, 4, 0o700));
    // The service's own file outlives its directory's entry.
    lab.write("etc/d/sub/data", "service");
    lab.config("\"config_files\": []");
    lab.configured();
    lab.has("etc/d/sub/data", "service");
    fs::remove_dir_all(lab.path("etc/d/sub")).unwrap();
    assert_eq!(lab.tree("etc"), before);
}

#[test]
fn a_directory_has_its_owner_back_though_another_entry_is_in_it() {
    let Some(lab) = Lab::new() else { return };
    lab.write("etc/d/of-image", "");
    lab.write("config/d/x", "");
    let file = r#"{"source": "@config/d/x", "dest": "@etc/d/y", "owner": "1", "perm": "0644"}"#;
    lab.config(&format!(
        r#""config_files": [{{"source": "@config/d", "dest": "@etc/d", "owner": "5", "perm": "0700", "merge": true}}, {file}]"#
    ));
    lab.configured();
    assert_eq!(lab.own("etc/d"), (5, 5, 0o700));
    lab.config(&format!("\"config_files\": [{file}]"));
    lab.check().is(1);
    lab.configured();
    assert_eq!(lab.own("etc/d"), (0, 0, 0o755));
    lab.has("etc/d/y", "");
    lab.has_not("etc/d/x");
}

#[test]
fn replaced_becomes_merged_and_back() {
    let Some(lab) = Lab::new() else { return };
    lab.write("etc/d/of-image", "default");
    let before = lab.tree("etc");
    lab.write("config/d/ours", "ours");
    for merge in ["true", "false", "true"] {
        lab.config(&format!(
            r#""config_files": [{{"source": "@config/d", "dest": "@etc/d", "owner": "0", "perm": "0755", "merge": {merge}}}]"#
        ));
        lab.check().is(1);
        lab.configured();
        lab.has("etc/d/ours", "ours");
        assert_eq!(lab.path("etc/d/of-image").exists(), merge == "true");
    }
    lab.config("\"config_files\": []");
    lab.configured();
    assert_eq!(lab.tree("etc"), before);
}

#[test]
fn a_start_that_was_cut_short_is_put_right_by_the_next() {
    let Some(lab) = Lab::new() else { return };
    lab.write("etc/a", "default");
    lab.write("config/f", "ours");
    lab.config(r#""config_files": [{"source": "@config/f", "dest": "@etc/a", "owner": "0", "perm": "0644"}]"#);
    lab.configured();
    // Between the record and the change: the file is still the default, and the record has it already.
    lab.write("etc/a", "default");
    // Between the copy and the record, and in the middle of writing a file.
    lab.write("state/defaults/77", "left over");
    lab.write("etc/.kollage-start.tmp", "half");
    lab.configured();
    lab.has("etc/a", "ours");
    lab.has_not("state/defaults/77");
    lab.has_not("etc/.kollage-start.tmp");
    lab.config("\"config_files\": []");
    lab.configured();
    lab.has("etc/a", "default");
}

#[test]
fn a_link_in_place_of_a_managed_directory_leads_nowhere() {
    let Some(lab) = Lab::new() else { return };
    lab.write("config/d/x", "ours");
    lab.config(
        r#""config_files": [
            {"source": "@config/d", "dest": "@etc/d", "owner": "1", "perm": "0644"},
            {"source": "@config/d/x", "dest": "@etc/d/y", "owner": "1", "perm": "0644"}]"#,
    );
    lab.configured();
    fs::create_dir(lab.path("trap")).unwrap();
    fs::remove_dir_all(lab.path("etc/d")).unwrap();
    lab.link("etc/d", lab.path("trap"));
    lab.check().is(1);
    lab.configured();
    lab.has("etc/d/y", "ours");
    assert_eq!(fs::read_dir(lab.path("trap")).unwrap().count(), 0);
}

#[test]
fn a_record_that_was_tampered_with_stops_the_start() {
    let Some(lab) = Lab::new() else { return };
    lab.config("\"files\": []");
    lab.configured();
    lab.write("state/defaults/record.json", "{");
    lab.set().says(2, &["state/defaults/record.json", "is no record of a start"]);
    lab.check().says(2, &["record.json"]);
}
