//! Bad input: one line a problem, an exit code, and everything as it was.

use crate::lab::Lab;
use std::fs;

/// Runs a configuration that is wrong, and sees that nothing changed by it.
#[track_caller]
fn refused(lab: &Lab, rest: &str, code: i32, parts: &[&str]) {
    let before = lab.tree("etc");
    lab.config(rest);
    lab.set().says(code, parts);
    assert_eq!(lab.tree("etc"), before, "something was changed");
    lab.has_not("state/run_command");
}

/// An entry that is right, before the one that is wrong.
const RIGHT: &str = r#"{"source": "@config/f", "dest": "@etc/right", "owner": "0", "perm": "0644"}"#;

fn lab() -> Option<Lab> {
    let lab = Lab::new()?;
    lab.write("config/f", "ours");
    lab.write("etc/right", "default");
    Some(lab)
}

#[test]
fn files_that_are_no_configuration() {
    let Some(lab) = lab() else { return };
    lab.set().says(1, &["config.json", "no such file"]);
    for (text, part) in
        [("", "the file is empty"), ("{\"command\": }", "config.json:1:13"), ("{}", "`command` is missing")]
    {
        lab.write("config/config.json", text);
        lab.set().says(1, &["config.json", part]);
        lab.check().says(1, &["config.json", part]);
    }
    lab.write("config/config.json", b"{\n\"command\": \"\xff\"}");
    lab.set().says(1, &["config.json:2: not UTF-8"]);
    lab.write("config/config.yaml", "command: [");
    lab.set().says(1, &["config.yaml", "not valid YAML"]);
}

#[test]
fn entries_that_are_wrong() {
    let Some(lab) = lab() else { return };
    let with = |entry: &str| format!(r#""config_files": [{RIGHT}, {entry}]"#);
    for (entry, parts) in [
        (
            r#"{"source": "@config/none", "dest": "@etc/x", "owner": "0", "perm": "0644"}"#,
            &["config_files[1]", "etc/x", "there is no source", "config/none"][..],
        ),
        (
            r#"{"source": "@config/n*", "dest": "@etc/x", "owner": "0", "perm": "0644"}"#,
            &["config_files[1]", "etc/x", "nothing matches", "config/n*"],
        ),
        (
            r#"{"source": "@config/f", "dest": "@etc/x", "owner": "nobody-here", "perm": "0644"}"#,
            &["config_files[1]", "etc/x", "the user `nobody-here` is not in /etc/passwd"],
        ),
        (
            r#"{"source": "@config/f", "dest": "@etc/x", "owner": "0", "perm": "rw-"}"#,
            &["config.json:1:", "config_files[1].perm", "`rw-` is no permission"],
        ),
        (
            r#"{"source": "@config/f", "destt": "@etc/x", "dest": "@etc/x", "owner": "0", "perm": "0644"}"#,
            &["config_files[1]", "unknown key `destt`; did you mean `dest`?"],
        ),
        (
            r#"{"source": "@config/f", "dest": "@etc/right/x", "owner": "0", "perm": "0644"}"#,
            &["config_files[1]", "etc/right", "is no directory", "config_files[0]"],
        ),
    ] {
        refused(&lab, &with(entry), 1, parts);
    }
}

#[test]
fn sources_that_can_not_be_copied() {
    let Some(lab) = lab() else { return };
    let entry = format!(
        r#""config_files": [{RIGHT}, {{"source": "@config/d", "dest": "@etc/d", "owner": "0", "perm": "0644"}}]"#
    );
    lab.link("config/d/gone", "nowhere");
    refused(&lab, &entry, 1, &["config_files[1]", "config/d/gone", "dangling link to nowhere"]);
    fs::remove_file(lab.path("config/d/gone")).unwrap();
    lab.link("config/d/up", "..");
    refused(&lab, &entry, 1, &["config_files[1]", "config/d/up/d", "directory above itself"]);
    fs::remove_file(lab.path("config/d/up")).unwrap();
    lab.link("config/d/self", "self");
    refused(&lab, &entry, 1, &["config_files[1]", "config/d/self", "useless link"]);
    fs::remove_file(lab.path("config/d/self")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        lab.path("config/d/pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    refused(&lab, &entry, 1, &["config_files[1]", "config/d/pipe", "a named pipe"]);
}

#[test]
fn dests_that_can_not_be_written() {
    let Some(lab) = lab() else { return };
    fs::create_dir(lab.path("etc/real")).unwrap();
    lab.link("etc/link", "real");
    let to = |dest: &str| {
        format!(
            r#""config_files": [{RIGHT}, {{"source": "@config/f", "dest": "{dest}", "owner": "0", "perm": "0644"}}]"#
        )
    };
    refused(&lab, &to("@etc/link"), 1, &["config_files[1]", "etc/link", "symbolic link to a directory"]);
    refused(&lab, &to("/proc"), 1, &["config_files[1]", "/proc is a mount point"]);
    let files = |section: &str, path: &str| {
        format!(r#""config_files": [{RIGHT}], "{section}": [{{"path": "{path}", "owner": "0", "perm": "0644"}}]"#)
    };
    refused(&lab, &files("files", "@etc/link"), 1, &["files[0]", "etc/link", "is a symbolic link"]);
    refused(&lab, &files("files", "@etc/real"), 1, &["files[0]", "etc/real", "not a regular file"]);
    refused(&lab, &files("files", "@etc/none/x"), 1, &["files[0]", "etc/none", "does not exist"]);
    refused(
        &lab,
        &files("directories", "@etc/right/x"),
        1,
        &["config_files[0]", "etc/right", "directories[0] makes a directory"],
    );
    lab.link("etc/nowhere", "none");
    refused(&lab, &files("directories", "@etc/nowhere"), 1, &["directories[0]", "etc/nowhere", "leads nowhere"]);
}

#[test]
fn a_dest_on_a_read_only_file_system() {
    let Some(lab) = lab() else { return };
    fs::create_dir(lab.path("etc/ro")).unwrap();
    let mount = "mount -t tmpfs none \"$1\" && mount -o remount,ro \"$1\" && exec \"$0\" set-configs";
    for dest in ["@etc/ro/x", "@etc/ro/deep/er/x"] {
        lab.config(&format!(
            r#""config_files": [{RIGHT}, {{"source": "@config/f", "dest": "{dest}", "owner": "0", "perm": "0644"}}]"#
        ));
        let ran = lab.within(&["unshare", "--mount", "sh", "-c", mount], &[lab.path("etc/ro")]);
        ran.says(2, &["config_files[1]", "etc/ro", "read-only file system"]);
        lab.has("etc/right", "default");
    }
}

#[test]
fn all_problems_are_named_at_once() {
    let Some(lab) = lab() else { return };
    lab.config(&format!(
        r#""config_files": [{RIGHT}, {{"source": "@config/1", "dest": "@etc/1", "owner": "0", "perm": "0644"}},
            {{"source": "@config/f", "dest": "@etc/2", "owner": "who", "perm": "0644"}}],
           "permissions": [{{"path": "@etc/3", "owner": "0:whose"}}]"#
    ));
    let ran = lab.set().is(1);
    assert_eq!(ran.errors.len(), 3, "{}", ran.said);
    assert!(ran.errors[2].starts_with("permissions[0]") && ran.errors[2].contains("the group `whose`"), "{}", ran.said);
    lab.has("etc/right", "default");
}

#[test]
fn a_strategy_that_is_missing_or_wrong() {
    let Some(mut lab) = lab() else { return };
    lab.config("\"files\": []");
    for wrong in ["", "COPY"] {
        lab.variables.insert("KOLLA_CONFIG_STRATEGY".into(), wrong.into());
        lab.set().says(1, &["KOLLA_CONFIG_STRATEGY", "COPY_ONCE or COPY_ALWAYS"]);
    }
    let unset = lab.command(&["set-configs"]).env_remove("KOLLA_CONFIG_STRATEGY").output().unwrap();
    assert!(String::from_utf8_lossy(&unset.stderr).contains("KOLLA_CONFIG_STRATEGY is not set"));
}

#[test]
fn commands_that_can_not_be_run() {
    let Some(lab) = lab() else { return };
    let plain = lab.write("plain", "#!/bin/sh\n");
    let orphan = lab.write("orphan", "#!/none/interpreter\n");
    lab.mode("orphan", 0o755);
    let text = |command: &str| {
        format!(
            r#"{{"command": "{command}", "config_files": [{{"source": "{0}config/f", "dest": "{0}etc/right", "owner": "0", "perm": "0644"}}]}}"#,
            lab.path("").display()
        )
    };
    for (command, code, part) in [
        ("none-such --x", 127, "there is no `none-such`"),
        ("/none/such", 127, "there is no `/none/such`"),
        (plain.to_str().unwrap(), 126, "is not executable"),
        ("/etc", 126, "/etc is not executable"),
    ] {
        lab.write("config/config.json", text(command));
        lab.run(&["start"]).says(code, &["command", part]);
        lab.has("etc/right", "default");
    }
    // What only the system can tell.
    lab.write("config/config.json", text(orphan.to_str().unwrap()));
    lab.run(&["start"]).says(127, &["command", "orphan", "interpreter or loader"]);
}
