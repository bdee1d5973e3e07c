//! What the command line says about RUN steps: rights, agents, limits, retries.

use std::fs;

use crate::sandbox::{Sandbox, is_root};

/// A Dockerfile on a busybox base, and the arguments that build it.
fn one(instructions: &str) -> (Sandbox, [&'static str; 5]) {
    let sandbox = Sandbox::with_base();
    sandbox.write(
        "Dockerfile",
        &format!("FROM rootfs:{}\nENV PATH=/bin\n{instructions}\n", sandbox.path("base.tar").display()),
    );
    (sandbox, ["build", "--dockerfile", "Dockerfile", "-t", "x"])
}

#[test]
fn more_rights_are_refused_before_anything_is_built() {
    let (sandbox, build) = one("RUN true\nRUN --security=insecure true\nRUN --network=host true");
    let ran = sandbox.run(&build).exits(2);
    let ran =
        ran.says("Dockerfile:4:1").says("RUN --security=insecure is not allowed").says("--allow security.insecure");
    ran.says("Dockerfile:5:1").says("--allow network.host");
    let with = |more: &[&str]| sandbox.run(&[&build[..], more].concat());
    with(&["--allow", "security.insecure"]).exits(2).says("network.host");
    with(&["--allow", "security.insecur"]).exits(2).says("did you mean `security.insecure`?");
    if is_root() {
        with(&["--allow", "security.insecure", "--allow", "network.host"]).ok();
        with(&["--allow", "security.insecure", "--network", "host", "--no-cache"]).ok();
    }
}

#[test]
fn wrong_values_are_refused_with_what_was_expected() {
    let (sandbox, build) = one("RUN true");
    for (flags, says) in [
        (&["--step-timeout", "1"][..], "write it as `30m`"),
        (&["--step-timeout", "10ms"], "less than a second"),
        (&["--retries", "many"], "--retries"),
        (&["--ssh", "default"], "SSH_AUTH_SOCK is not set"),
        (&["--ssh", "x=/nowhere"], "/nowhere"),
        (&["--ulimit", "nofil=3"], "did you mean `nofile`?"),
        (&["--add-host", "here"], "there is no address"),
        (&["--shm-size", "big"], "is not a size"),
        (&["--set", "build.step_timeout=1d"], "write it as `30m`"),
        (&["--set", "build.step_timout=1h"], "did you mean `step_timeout`?"),
    ] {
        sandbox.run(&[&build[..], flags].concat()).exits(2).says(says);
    }
}

#[test]
fn an_agent_that_is_required_is_missed_before_the_build() {
    let (sandbox, build) = one("RUN --mount=type=ssh,id=deploy,required true");
    sandbox.run(&build).exits(2).says("Dockerfile:3:1").says("needs the ssh-agent `deploy`").says("--ssh deploy=KEY");
}

#[test]
fn a_step_that_takes_too_long_is_named() {
    if !is_root() {
        return;
    }
    let (sandbox, build) = one("RUN true\nRUN sleep 1000");
    let ran = sandbox.run(&[&build[..], &["--step-timeout", "2s"]].concat()).exits(1);
    ran.says("Dockerfile:4: `RUN sleep 1000` failed").says("longer than 2s").says("--step-timeout");
    let ran = sandbox.run(&[&build[..], &["--set", "build.step_timeout=1s"]].concat()).exits(1);
    ran.says("longer than 1s");
}

#[test]
fn retries_are_shown_in_every_form() {
    if !is_root() {
        return;
    }
    let step = "RUN --mount=type=cache,target=/c echo x >> /c/n; test $(wc -l < /c/n) -gt 1 || { echo 'curl: (56) reset' >&2; exit 56; }";
    let (sandbox, build) = one(step);
    let summary = sandbox.path("summary.json");
    let logs = sandbox.path("logs");
    let flags = ["--logs-dir", logs.to_str().unwrap(), "--summary-json-file", summary.to_str().unwrap()];
    let ran = sandbox.run(&[&build[..], &flags, &["--progress", "plain"]].concat()).ok();
    let ran = ran.says("==> retrying step 1/1 in ").says("(try 2 of 3): a connection was cut off").says("with 1 retry");
    ran.says("  retried       1  x:latest");
    let log = fs::read_dir(&logs).unwrap().map(|e| fs::read_to_string(e.unwrap().path()).unwrap()).collect::<String>();
    assert!(log.contains("retrying step 1 in "), "{log}");
    let written: serde_json::Value = serde_json::from_slice(&fs::read(&summary).unwrap()).unwrap();
    let node = written["built"].as_array().unwrap().iter().find(|n| n["name"] == "x:latest").unwrap();
    assert_eq!(node["retries"], 1);

    let (sandbox, build) = one(step);
    let ran = sandbox.run(&[&build[..], &["--progress", "rawjson"]].concat()).ok();
    let events: Vec<serde_json::Value> = ran.stderr.lines().filter_map(|l| serde_json::from_str(l).ok()).collect();
    let retried = events.iter().find(|e| e["event"] == "step_retried").unwrap();
    assert_eq!((&retried["step"], &retried["attempt"], &retried["attempts"]), (&1.into(), &2.into(), &3.into()));
    assert_eq!(retried["reason"], "a connection was cut off");

    let (sandbox, build) = one("RUN echo 'curl: (56) reset' >&2; exit 56");
    sandbox.run(&[&build[..], &["--retries", "0"]].concat()).exits(1).says("exit status 56");
    let ran = sandbox.run(&[&build[..], &["--retries", "1"]].concat()).exits(1);
    ran.says("it was tried 2 times");
}
