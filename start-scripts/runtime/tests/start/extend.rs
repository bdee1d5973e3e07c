//! Start scripts for Kolla: sourced by a shell, with the options and variables that they are written for.

use crate::lab::Lab;

fn lab(script: &str) -> Option<Lab> {
    let mut lab = Lab::new()?;
    let place = lab.write("image/kolla_extend_start", script);
    // Sourced, so it needn't be executable.
    lab.mode("image/kolla_extend_start", 0o644);
    let path = std::env::var("PATH").unwrap();
    lab.variables.insert("PATH".into(), format!("{}:{path}", place.parent().unwrap().display()));
    lab.write("config/config.json", r#"{"command": "echo from the   command"}"#);
    Some(lab)
}

fn output(lab: &Lab) -> (i32, String, String) {
    let output = lab.command(&["start"]).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_script_changes_the_command_its_arguments_and_its_environment() {
    let Some(lab) = lab("ARGS=\"with more\"\nexport GREETING=hello\necho \"script of $# arguments: $CMD\"\n") else {
        return;
    };
    let (code, out, err) = output(&lab);
    assert_eq!(code, 0, "{err}");
    assert_eq!(
        out,
        "script of 0 arguments: echo from the   command\nRunning command: 'echo from the   command with more'\n\
         from the command with more\n"
    );
    // xtrace
    assert!(err.contains("+ export GREETING=hello"), "{err}");
}

#[test]
fn a_script_can_end_the_start() {
    let Some(lab) = lab("if [[ \"${!KOLLA_BOOTSTRAP[@]}\" ]]; then echo bootstrapped; exit 0; fi\n") else { return };
    assert!(output(&lab).1.contains("from the command"));
    let Some(mut lab) = self::lab("if [[ \"${!KOLLA_BOOTSTRAP[@]}\" ]]; then echo bootstrapped; exit 0; fi\n") else {
        return;
    };
    lab.variables.insert("KOLLA_BOOTSTRAP".into(), String::new());
    let (code, out, _) = output(&lab);
    assert_eq!((code, &*out), (0, "bootstrapped\n"));
}

#[test]
fn a_script_runs_under_the_options_of_today() {
    for (script, wanted) in [("false\n", 1), ("false | true\n", 1), ("echo $NEVER_SET\n", 1), ("exit 42\n", 42)] {
        let Some(lab) = lab(script) else { return };
        let (code, out, err) = output(&lab);
        assert_eq!(code, wanted, "{script}: {err}");
        assert!(!out.contains("from the command"), "{script}");
    }
}

#[test]
fn a_script_is_left_out_when_the_variable_is_set_to_anything() {
    for value in ["", "0", "yes"] {
        let Some(mut lab) = lab("exit 42\n") else { return };
        lab.variables.insert("KOLLA_SKIP_EXTEND_START".into(), value.into());
        let (code, out, err) = output(&lab);
        assert_eq!((code, &*out), (0, "from the command\n"), "{err}");
    }
}

#[test]
fn an_empty_script_needs_no_shell() {
    let Some(mut lab) = lab("") else { return };
    lab.write("image/service", "#!/bin/sh\necho served\n");
    lab.mode("image/service", 0o755);
    lab.write("config/config.json", r#"{"command": "service"}"#);
    lab.variables.insert("PATH".into(), lab.path("image").display().to_string());
    assert_eq!(output(&lab).1, "served\n");
    lab.write("image/kolla_extend_start", "true\n");
    lab.run(&["start"]).says(127, &["kolla_extend_start is to be sourced", "bash"]);
}

#[test]
fn by_itself_the_script_is_all_that_runs() {
    let Some(lab) = lab("echo only the script\n") else { return };
    let output = lab.command(&["extend-start"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "only the script\n");
}
