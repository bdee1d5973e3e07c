//! A secret reaches the step that names it, and nobody and nothing else.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::time::Duration;

use crate::sandbox::{Sandbox, is_root};

/// In parts, so that this program's own command line does not have it.
fn value() -> String {
    ["hunter2", "is", "secret"].join("-")
}

fn sandbox(instructions: &str) -> Sandbox {
    let sandbox = Sandbox::with_base();
    sandbox.base(&format!("FROM {{{{ parent }}}}\nENV PATH=/bin\n{instructions}\n"));
    fs::write(sandbox.path("token"), value()).unwrap();
    sandbox
}

fn given(sandbox: &Sandbox) -> String {
    format!("id=token,src={}", sandbox.path("token").display())
}

/// Files below the sandbox that have the value in them, besides the one that it comes from.
fn kept(sandbox: &Sandbox) -> Vec<String> {
    let root = sandbox.path("");
    let found = std::process::Command::new("grep").args(["-rlaF", &value()]).arg(&root).output().unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    found.lines().filter(|l| !l.ends_with("/token")).map(str::to_owned).collect()
}

#[test]
fn steps_that_do_not_name_a_secret_do_not_have_it() {
    if !is_root() {
        return;
    }
    let look = "{ env; ls -a /run/secrets /dev/shm /tmp; cat /proc/mounts /proc/*/environ /proc/*/cmdline; } 2>/dev/null | grep -c -e 'hunter[2]' -e 'secrets/to[k]en'";
    let sandbox = sandbox(&format!(
        "RUN {look} > /before; true\n\
         RUN --mount=type=secret,id=token --mount=type=secret,id=token,env=TOKEN,target=/other --mount=type=cache,target=/c \
         cat /run/secrets/token /other | wc -c > /length; echo -n $TOKEN | wc -c >> /length; touch /c/used\n\
         RUN --mount=type=cache,target=/c {look} > /after; ls /c > /cache; ls /other /run/secrets 2>/dev/null > /left; true"
    ));
    sandbox.run(&["build", "--secret", &given(&sandbox)]).ok();
    let length = value().len();
    let said =
        sandbox.run(&["run", "base", "--", "cat", "/before", "/length", "/after", "/cache", "/left"]).ok().stdout;
    assert_eq!(said, format!("0\n{}\n{length}\n0\nused\n", 2 * length));
    assert_eq!(kept(&sandbox), Vec::<String>::new());
}

#[test]
fn what_fails_with_a_secret_does_not_tell_it() {
    if !is_root() {
        return;
    }
    for (step, args) in [
        ("cat /run/secrets/token; cat /run/secrets/token >&2; exit 3", &["--progress", "plain"][..]),
        ("cat /run/secrets/token; exit 3", &["--progress", "rawjson"]),
        ("$(cat /run/secrets/token)", &[]),
        ("ls /$(cat /run/secrets/token)", &["--progress", "quiet"]),
        ("kill -SEGV $$", &[]),
    ] {
        let sandbox = sandbox(&format!("RUN --mount=type=secret,id=token {step}"));
        let summary = sandbox.path("summary.json");
        let secret = given(&sandbox);
        let common = ["build", "--secret", &secret, "--summary-json-file", summary.to_str().unwrap()];
        let ran = sandbox.run(&[&common, args].concat()).exits(1);
        assert!(
            !ran.stdout.contains(&value()) && !ran.stderr.contains(&value()),
            "{step}:\n{}{}",
            ran.stdout,
            ran.stderr
        );
        assert_eq!(kept(&sandbox), Vec::<String>::new(), "{step}");
    }
}

#[test]
fn a_crash_leaves_no_dump_in_the_layer() {
    if !is_root() {
        return;
    }
    let sandbox =
        sandbox("RUN --mount=type=secret,id=token,env=TOKEN ulimit -c > /limit; cd /tmp; sh -c 'kill -SEGV $$'; true");
    sandbox.run(&["build", "--secret", &given(&sandbox)]).ok();
    assert_eq!(sandbox.run(&["run", "base", "--", "cat", "/limit"]).ok().stdout, "0\n");
    assert_eq!(sandbox.run(&["run", "base", "--", "ls", "/tmp"]).ok().stdout, "");
    assert_eq!(kept(&sandbox), Vec::<String>::new());
}

/// Processes of the host that have the value among their arguments or variables, by what they are called.
fn processes_with_it() -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(command) = fs::read(entry.path().join("cmdline")) else { continue };
        let variables = fs::read(entry.path().join("environ")).unwrap_or_default();
        for (what, bytes) in [("argument", &command), ("variable", &variables)] {
            if String::from_utf8_lossy(bytes).contains(&value()) {
                let command = String::from_utf8_lossy(&command).replace('\0', " ");
                found.push(format!("{what} of {}", command.trim()));
            }
        }
    }
    found
}

#[test]
fn no_other_process_has_it_while_the_step_runs() {
    if !is_root() {
        return;
    }
    for (mount, seconds, expected) in [
        // A file: nobody at all.
        ("type=secret,id=token", "987650", &[][..]),
        // A variable: the step's own.
        ("type=secret,id=token,env=TOKEN", "987651", &["variable of sleep 987651"]),
    ] {
        let sandbox = sandbox(&format!("RUN --mount={mount} [\"sleep\", \"{seconds}\"]"));
        let mut command = sandbox.command(&["build", "--secret", &given(&sandbox)]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn().unwrap();
        let sleeping = format!("sleep {seconds}");
        let runs = || {
            fs::read_dir("/proc").unwrap().flatten().any(|entry| {
                let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
                String::from_utf8_lossy(&command).replace('\0', " ").trim() == sleeping
            })
        };
        for _ in 0..600 {
            if runs() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(runs(), "the step did not start");
        let found = processes_with_it();
        let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert_eq!(found, expected, "{mount}");
    }
}
