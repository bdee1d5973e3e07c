//! Definitions of services: steps before the command, and tasks instead of it.

use crate::lab::Lab;
use std::os::unix::fs::PermissionsExt;
use std::process::Output;

/// A bundle with one service; `@` at the start of a string stands for the lab's directory.
fn lab(definition: &str) -> Option<Lab> {
    let mut lab = Lab::new()?;
    let head = r#""schema": 1, "name": "svc", "summary": "x""#;
    let text = format!("{{{head}, {definition}}}").replace("\"@", &format!("\"{}", lab.path("").display()));
    lab.write("bundle/services/svc.json", text);
    let bundle = lab.path("bundle").display().to_string();
    lab.variables.insert("KOLLAGE_START_DIR".into(), bundle);
    lab.variables.insert("KOLLAGE_SERVICE".into(), "svc".into());
    lab.write("config/config.json", r#"{"command": "echo served"}"#);
    Some(lab)
}

fn output(lab: &Lab, arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = lab.command(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

#[test]
fn steps_are_done_in_order_by_their_titles_before_the_command() {
    let Some(lab) = lab(r#""variables": {"WHO": {"summary": "x", "default": "you"}},
        "prepare": [{"title": "Make it", "make": {"path": "@made/deep", "directory": true, "owner": "7:8", "mode": "2750"}}],
        "steps": [
            {"title": "Write", "write": {"path": "@made/f", "text": "for ${WHO}, $${WHO}\n", "owner": "9:9", "mode": "0640"}},
            {"title": "Say", "run": {"command": ["cat", "@made/f"]}},
            {"title": "Link", "link": {"path": "@made/l", "to": "f"}},
            {"title": "Give", "own": {"path": "@made/deep", "owner": "1:2", "recurse": true}}
        ]"#)
    else {
        return;
    };
    let (code, out, err) = output(&lab, &["start"]);
    assert_eq!((code, &*out), (0, "for you, ${WHO}\nserved\n"), "{err}");
    let said: Vec<&str> = err.lines().filter_map(|line| line.split_once("svc").map(|(_, rest)| rest)).collect();
    assert_eq!(said, [": preparation 1/1: Make it", " 1/4: Write", " 2/4: Say", " 3/4: Link", " 4/4: Give"]);
    assert_eq!((lab.own("made/deep"), lab.own("made/f")), ((1, 2, 0o2750), (9, 9, 0o640)));
    assert_eq!(std::fs::read_link(lab.path("made/l")).unwrap(), std::path::Path::new("f"));
    // What is right already isn't touched, and owners that a step says are put right.
    let before = std::fs::metadata(lab.path("made/f")).unwrap().modified().unwrap();
    assert_eq!(output(&lab, &["start"]).0, 0);
    assert_eq!(std::fs::metadata(lab.path("made/f")).unwrap().modified().unwrap(), before);
    assert_eq!(lab.own("made/deep"), (1, 2, 0o2750));
}

const TASKS: &str = r#""steps": [{"title": "Step", "run": {"command": ["echo", "step"]}}],
    "tasks": [
        {"name": "bootstrap", "variable": "KOLLA_BOOTSTRAP", "then": "end", "steps": [
            {"title": "Run", "run": {"command": ["echo", "bootstrapped"]}}]},
        {"name": "upgrade", "variable": "KOLLA_UPGRADE", "then": "start", "steps": [
            {"title": "Run", "run": {"command": ["echo", "upgraded"]}}]}]"#;

#[test]
fn a_task_is_done_instead_of_the_command_when_its_variable_is_set_to_anything() {
    for value in ["", "0", "yes"] {
        let Some(mut lab) = lab(TASKS) else { return };
        lab.variables.insert("KOLLA_BOOTSTRAP".into(), value.into());
        assert_eq!(output(&lab, &["start"]).1, "bootstrapped\n");
        lab.variables.remove("KOLLA_BOOTSTRAP");
        lab.variables.insert("KOLLA_UPGRADE".into(), value.into());
        assert_eq!(output(&lab, &["start"]).1, "upgraded\nstep\nserved\n");
        lab.variables.insert("KOLLA_SKIP_EXTEND_START".into(), value.into());
        assert_eq!(output(&lab, &["start"]).1, "served\n");
        lab.variables.remove("KOLLA_SKIP_EXTEND_START");
        lab.variables.insert("KOLLA_BOOTSTRAP".into(), value.into());
        lab.run(&["start"]).says(1, &["KOLLA_BOOTSTRAP and KOLLA_UPGRADE are all set"]);
    }
}

#[test]
fn a_task_is_done_by_name() {
    let Some(mut lab) = lab(TASKS) else { return };
    assert_eq!(output(&lab, &["task", "bootstrap"]).1, "bootstrapped\n");
    lab.run(&["task", "bootsrap"]).says(1, &["svc has no task `bootsrap`", "did you mean `bootstrap`?"]);
    lab.variables.remove("KOLLAGE_SERVICE");
    assert_eq!(output(&lab, &["task", "--service", "svc", "upgrade"]).1, "upgraded\nstep\nserved\n");
    lab.run(&["task", "upgrade"]).says(1, &["`upgrade` is a service's", "KOLLAGE_SERVICE"]);
    lab.run(&["start", "--service", "scv"]).says(1, &["no definition of a service `scv`", "did you mean `svc`?"]);
    assert_eq!(output(&lab, &["start"]).1, "served\n");
}

#[test]
fn a_step_that_fails_ends_the_start_with_its_code() {
    let Some(lab) = lab(r#""steps": [{"title": "Break", "run": {"command": ["sh", "-c", "exit 42"]}},
        {"title": "Never", "run": {"command": ["echo", "never"]}}]"#)
    else {
        return;
    };
    let (code, out, err) = output(&lab, &["start"]);
    assert_eq!((code, &*out), (42, ""));
    assert!(err.contains("error: svc: Break: `sh` ended with 42"), "{err}");
    let Some(lab) = self::lab(r#""steps": [{"title": "Find", "run": {"command": ["no-such-program"]}}]"#) else {
        return;
    };
    lab.run(&["start"]).says(127, &["svc: Find: ", "there is no `no-such-program`"]);
}

#[test]
fn conditions_are_about_paths_and_variables() {
    let say = |what: &str, when: &str| {
        format!(r#"{{"title": "{what}", "when": {{{when}}}, "run": {{"command": ["echo", "{what}"]}}}}"#)
    };
    let steps = [
        say("exists", r#""exists": ["@config/*.json"]"#),
        say("exists not", r#""exists": ["@config/*.yaml"]"#),
        say("missing", r#""missing": ["@config/*.yaml"]"#),
        say("set", r#""set": ["A"]"#),
        say("empty", r#""set": ["B"]"#),
        say("unset", r#""unset": ["B"]"#),
        say("both", r#""unset": ["B"], "set": ["C"]"#),
        say("flag", r#""set": ["F"]"#),
        say("no flag", r#""set": ["G"]"#),
    ];
    let flags = r#"{"F": {"summary": "x", "flag": true}, "G": {"summary": "x", "flag": true}}"#;
    let Some(mut lab) = lab(&format!("\"variables\": {flags}, \"steps\": [{}]", steps.join(", "))) else { return };
    lab.variables.insert("F".into(), String::new());
    lab.variables.extend([("A".to_owned(), "x".to_owned()), ("B".into(), String::new())]);
    assert_eq!(output(&lab, &["start"]).1, "exists\nmissing\nset\nunset\nflag\nserved\n");
}

#[test]
fn a_secret_reaches_only_the_step_that_asks_for_it() {
    let Some(mut lab) = lab(r#""variables": {"KEY": {"summary": "x", "secret": true}},
        "command": ["env"],
        "steps": [
            {"title": "Without", "run": {"command": ["env"]}},
            {"title": "With", "run": {"command": ["sh", "-c", "cat; echo \"$GIVEN\""],
                "environment": {"GIVEN": "${KEY}"}, "input": "say '${KEY}'\n", "escape": "sql"}}
        ]"#)
    else {
        return;
    };
    lab.write("config/config.json", "{}");
    lab.variables.insert("KEY".into(), "it's".into());
    let (code, out, err) = output(&lab, &["start"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("say 'it''s'\nit's\n"), "{out}");
    assert_eq!((out.matches("it").count(), err.contains("it's")), (2, false), "{out}{err}");
    // From a file, and missing: said before anything is done.
    lab.variables.remove("KEY");
    lab.variables.insert("KEY_FILE".into(), lab.write("secret", "of a file\n").display().to_string());
    assert!(output(&lab, &["start"]).1.contains("say 'of a file'\nof a file\n"));
    lab.variables.remove("KEY_FILE");
    let (code, out, err) = output(&lab, &["start"]);
    assert_eq!((code, &*out), (1, ""));
    assert!(err.contains("svc: With: KEY is not set (nor KEY_FILE"), "{err}");
}

#[test]
fn a_definition_alone_is_enough_to_start() {
    let Some(mut lab) = lab(r#""command": ["echo", "${WORD}"], "environment": {"A": "1", "B": "2"},
        "variables": {"WORD": {"summary": "x", "default": "alone"}}"#)
    else {
        return;
    };
    std::fs::remove_file(lab.path("config/config.json")).unwrap();
    lab.variables.remove("KOLLA_CONFIG_STRATEGY");
    let before = std::fs::read_dir(lab.path("state")).unwrap().count();
    // The lab's strategy comes back with every command, and is no matter either.
    let mut command = lab.command(&["start"]);
    command.env_remove("KOLLA_CONFIG_STRATEGY");
    assert_eq!(String::from_utf8(command.output().unwrap().stdout).unwrap(), "alone\n");
    assert_eq!(std::fs::read_dir(lab.path("state")).unwrap().count(), before);
    lab.write("config/config.json", r#"{"command": "env"}"#);
    lab.variables.insert("A".into(), "operator's".into());
    let out = output(&lab, &["start"]).1;
    assert!(out.contains("A=operator's\n") && out.contains("B=2\n"), "{out}");
}

#[test]
fn arguments_come_behind_any_command() {
    let variables = r#""variables": {"MORE": {"summary": "x", "default": ""}}"#;
    let Some(mut lab) = lab(&format!(r#""command": ["echo", "own"], "arguments": ["${{MORE}}"], {variables}"#)) else {
        return;
    };
    assert_eq!(output(&lab, &["start"]).1, "served\n");
    lab.variables.insert("MORE".into(), "--and  more".into());
    assert_eq!(output(&lab, &["start"]).1, "served --and more\n");
    lab.write("config/config.json", "{}");
    assert_eq!(output(&lab, &["start"]).1, "own --and more\n");
}

#[test]
fn a_file_is_put_together_in_the_order_of_names_and_looked_at_before_it_counts() {
    let Some(lab) = lab(r#""steps": [{"title": "Put together", "write": {"path": "@etc/all.cfg",
            "fragments": ["@etc/services.d/*.cfg", "@etc/operator.d/*.cfg"],
            "check": {"command": ["grep", "-q", "good", "${CANDIDATE}"]}}}]"#)
    else {
        return;
    };
    lab.run(&["start"]).says(1, &["svc: Put together: there is no fragment at"]);
    lab.write("etc/services.d/20-b.cfg", "b");
    lab.write("etc/services.d/10-a.cfg", "a\n");
    lab.write("etc/services.d/ignored", "x\n");
    lab.write("etc/operator.d/00-mine.cfg", "good\n");
    lab.run(&["start"]).is(0);
    lab.has("etc/all.cfg", "a\nb\ngood\n");
    lab.write("etc/operator.d/00-mine.cfg", "bad\n");
    lab.run(&["start"]).says(1, &["all.cfg stays as it was: `grep` ended with 1"]);
    lab.has("etc/all.cfg", "a\nb\ngood\n");
    lab.has_not("etc/.all.cfg.candidate");
}

#[test]
fn a_link_that_a_service_made_is_not_followed() {
    for step in [
        r#"{"title": "S", "make": {"path": "@home/l/x", "directory": true}}"#,
        r#"{"title": "S", "make": {"path": "@home/l", "directory": true, "owner": "5:5"}}"#,
        r#"{"title": "S", "write": {"path": "@home/l/x", "text": "x"}}"#,
        r#"{"title": "S", "own": {"path": "@home/l", "owner": "5:5"}}"#,
        r#"{"title": "S", "remove": {"path": "@home/l/*"}}"#,
    ] {
        let Some(lab) = lab(&format!("\"steps\": [{step}]")) else { return };
        lab.write("root-only/there", "x");
        lab.link("home/l", lab.path("root-only"));
        std::os::unix::fs::lchown(lab.path("home/l"), Some(77), Some(77)).unwrap();
        lab.run(&["start"]).says(2, &["svc: S: ", "is a link that user 77 made, and isn't followed"]);
        lab.has("root-only/there", "x");
        assert_eq!(lab.own("root-only").0, 0, "{step}");
    }
    // Below a path, a link alone gets the owner.
    let Some(lab) = lab(r#""steps": [{"title": "S", "own": {"path": "@home", "owner": "5:5", "recurse": true}}]"#)
    else {
        return;
    };
    lab.write("root-only/there", "x");
    lab.link("home/deep/l", lab.path("root-only"));
    lab.run(&["start"]).is(0);
    assert_eq!((lab.own("root-only").0, lab.own("home/deep").0, lab.own("home/deep/l").0), (0, 5, 5));
}

#[test]
fn a_step_can_refuse_or_keep_or_remove() {
    let Some(lab) = lab(r#""steps": [
        {"title": "Look", "when": {"exists": ["@bad"]}, "refuse": {"reason": "there is something bad"}},
        {"title": "Write", "write": {"path": "@kept", "text": "new", "keep": true}},
        {"title": "Remove", "remove": {"path": "@old/*"}}]"#)
    else {
        return;
    };
    lab.write("kept", "mine");
    lab.write("old/deep/x", "");
    lab.run(&["start"]).is(0);
    lab.has("kept", "mine");
    lab.has_not("old/deep");
    lab.write("bad", "");
    lab.run(&["start"]).says(1, &["svc: Look: there is something bad"]);
}

#[test]
fn the_script_of_a_definition_is_sourced_instead_of_the_images() {
    let Some(mut lab) =
        lab(r#""script": "svc.sh", "steps": [{"title": "Step", "run": {"command": ["echo", "step"]}}]"#)
    else {
        return;
    };
    lab.write("bundle/services/svc.sh", "echo script\nARGS=\"and more\"\n");
    let image = lab.write("image/kolla_extend_start", "echo the image's\n");
    std::fs::set_permissions(&image, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", image.parent().unwrap().display(), std::env::var("PATH").unwrap());
    lab.variables.insert("PATH".into(), path);
    let out = output(&lab, &["start"]).1;
    assert_eq!(out, "step\nscript\nRunning command: 'echo served and more'\nserved and more\n");
}

const USER: &str = r#""user": {"name": "svc", "uid": 4711, "gid": 4712, "missing": "MISSING"},
    "prepare": [{"title": "Make", "make": {"path": "@home/svc", "directory": true}}],
    "steps": [{"title": "Who", "run": {"command": ["id", "-u"]}},
        {"title": "Root", "run": {"command": ["id", "-u"], "user": "root"}}]"#;

#[test]
fn a_user_that_the_image_lacks_is_the_images_or_a_number() {
    let numbers = |lab: &Lab| {
        let (code, out, err) = output(lab, &["start"]);
        assert_eq!(code, 0, "{err}");
        (out.replace('\n', " "), lab.own("home/svc").0)
    };
    for missing in ["image", "number"] {
        let Some(mut lab) = lab(&USER.replace("MISSING", missing)) else { return };
        lab.write("config/config.json", r#"{"command": "id -u"}"#);
        assert_eq!(numbers(&lab), ("4711 0 4711 ".into(), 4711));
        lab.variables.insert("KOLLAGE_IMAGE_USER".into(), "42424:42425".into());
        let wanted = if missing == "image" { 42424 } else { 4711 };
        std::fs::remove_dir(lab.path("home/svc")).unwrap();
        assert_eq!(numbers(&lab), (format!("{wanted} 0 {wanted} "), wanted));
        // An operator's word counts most.
        lab.variables.insert("KOLLAGE_USER".into(), "13:13".into());
        std::fs::remove_dir(lab.path("home/svc")).unwrap();
        assert_eq!(numbers(&lab), ("13 0 13 ".into(), 13));
    }
    let Some(mut lab) = lab(&USER.replace("MISSING", "error")) else { return };
    lab.run(&["start"]).says(1, &["svc runs as the user `svc`, whom the image hasn't", "KOLLAGE_USERS=svc=UID:GID"]);
    lab.variables.insert("KOLLAGE_USERS".into(), "svc=21:22".into());
    assert_eq!(numbers(&lab).1, 21);
}

#[test]
fn an_ordinary_user_is_the_services_and_what_takes_root_is_said_beforehand() {
    let Some(lab) = lab(&USER.replace("MISSING", "image")) else { return };
    std::fs::set_permissions(lab.path(""), std::fs::Permissions::from_mode(0o777)).unwrap();
    std::fs::set_permissions(lab.path("state"), std::fs::Permissions::from_mode(0o777)).unwrap();
    let around = ["setpriv", "--reuid", "1234", "--regid", "1234", "--clear-groups"];
    lab.within(&around, &["start"]).says(2, &["svc: Root: root: user 1234 can't become 0:0"]);
    lab.has_not("home/svc");
}

#[test]
fn a_definition_of_another_kind_is_refused_by_its_place() {
    for (definition, parts) in [
        (r#""odd": 1"#, &["svc.json:1:", "unknown key `odd`"][..]),
        (r#""steps": [{"title": "x", "dance": {}}]"#, &["`dance` is nothing that a step does"]),
        (r#""steps": [{"title": "x", "run": {"command": ["x"], "mode": "7"}}]"#, &["unknown key `mode`"]),
        (r#""steps": [{"title": "x"}]"#, &["a step that does nothing"]),
        (r#""stop": 3"#, &["expected a mapping"]),
    ] {
        let Some(lab) = lab(definition) else { return };
        lab.run(&["start"]).says(1, parts);
        lab.write("bundle/services/svc.json", r#"{"schema": 2}"#);
        lab.run(&["start"]).says(1, &["svc.json:1:12: another schema than 1"]);
    }
}

#[test]
fn health_is_asked_as_the_definition_has_it() {
    let Some(lab) = lab(r#""health": ["file-age", "@config/config.json", "1000"]"#) else { return };
    lab.run(&["healthcheck"]).is(0);
    let Some(lab) = self::lab(
        r#""health": ["file-age", "@none", "${AGE}"],
        "variables": {"AGE": {"summary": "x", "default": "1"}}"#,
    ) else {
        return;
    };
    lab.run(&["healthcheck"]).says(1, &["none"]);
    let Some(lab) = self::lab(r#""command": ["x"]"#) else { return };
    lab.run(&["healthcheck"]).says(1, &["the definition of svc has no check of its health"]);
}

#[test]
fn any_command_can_be_run_and_kollas_names_are_this_program() {
    let Some(lab) = lab(r#""steps": [{"title": "Step", "run": {"command": ["echo", "step"]}}]"#) else { return };
    assert_eq!(output(&lab, &["exec", "--", "echo", "--mine"]).1, "--mine\n");
    assert_eq!(output(&lab, &["exec", "--", "kolla_start"]).1, "step\nserved\n");
    assert_eq!(output(&lab, &["exec", "--", "kolla_set_configs", "--check"]).0, 0);
    lab.run(&["exec", "--", "no-such-program"]).says(127, &["there is no `no-such-program`"]);
    lab.run(&["exec", "--"]).says(2, &["don't know what `exec --` is"]);
}

#[test]
fn a_bundle_copies_itself_and_nothing_beside_it() {
    let Some(lab) = lab(r#""command": ["x"]"#) else { return };
    lab.write("bundle/kollage-start", "program");
    lab.mode("bundle/kollage-start", 0o755);
    lab.write("bundle/bundle.json", "{}");
    lab.link("bundle/kolla_start", "kollage-start");
    lab.link("bundle/other", "elsewhere");
    lab.write("bundle/etc/passwd", "");
    lab.write("to/services/old.json", "of an earlier bundle");
    let to = lab.path("to").display().to_string();
    lab.run(&["install", &to]).is(0);
    lab.has("to/kollage-start", "program");
    assert_eq!(lab.own("to/kollage-start").2, 0o755);
    assert_eq!(std::fs::read_link(lab.path("to/kolla_start")).unwrap(), std::path::Path::new("kollage-start"));
    assert!(lab.path("to/services/svc.json").is_file());
    for name in ["to/etc", "to/other", "to/services/old.json"] {
        lab.has_not(name);
    }
    lab.run(&["install", &to]).is(0);
}
