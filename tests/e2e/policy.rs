//! Which engine builds: the operator's, the project's and the user's choice, and what the operator's policy refuses.

use std::fs;
use std::process::Command;

use crate::sandbox::{Ran, Sandbox, ran};
use crate::tools::ready;

/// A catalogue on a machine whose /etc/kollage/kollage.toml says `operator`; None where this one can't play it.
fn machine(operator: &str) -> Option<Sandbox> {
    if !ready(&["unshare", "mount", "sh", "busybox"]) {
        return None;
    }
    let sandbox = Sandbox::with_base();
    sandbox.base("FROM {{ parent }}\nENV a=b\n");
    fs::create_dir_all(sandbox.path("etc/kollage")).unwrap();
    fs::write(sandbox.path("etc/kollage/kollage.toml"), operator).unwrap();
    fs::create_dir_all(sandbox.path("home/.config/kollage")).unwrap();
    Some(sandbox)
}

/// The program in a mount namespace of its own, where /etc has the operator's file too.
fn on(sandbox: &Sandbox, env: &[(&str, &str)], args: &[&str]) -> Ran {
    let plain = sandbox.command(args);
    let mut command = Command::new("unshare");
    let overlay = format!("mount -t overlay overlay -o lowerdir={}:/etc /etc", sandbox.path("etc").display());
    command.args(["--mount", "--propagation=private", "sh", "-c", &format!("{overlay} && exec \"$@\""), "sh"]);
    command.arg(plain.get_program()).args(plain.get_args()).current_dir(sandbox.catalogue()).env_clear();
    for (name, value) in plain.get_envs() {
        command.env(name, value.unwrap());
    }
    command.env("DOCKER_HOST", "unix:///nowhere/docker.sock").envs(env.iter().copied());
    ran(&mut command)
}

#[track_caller]
fn refused(ran: Ran, engine: &str) {
    let ran = ran.exits(2).says(&format!("the operator's policy does not allow the engine `{engine}`"));
    ran.says("[policy] in /etc/kollage/kollage.toml allows `embedded`").says("nothing was built");
}

#[test]
fn an_engine_that_the_operator_does_not_allow_is_refused_whoever_chose_it() {
    let Some(sandbox) = machine("[policy]\nengines = [\"embedded\"]\n") else { return };
    refused(on(&sandbox, &[], &["build", "--engine", "docker"]), "docker");
    refused(on(&sandbox, &[("KOLLAGE_ENGINE", "buildkit")], &["build"]), "buildkit");
    refused(on(&sandbox, &[], &["build", "--verify-engine", "docker"]), "docker");
    let user = sandbox.path("home/.config/kollage/kollage.toml");
    fs::write(&user, "[engine]\ndefault = \"docker\"\n").unwrap();
    refused(on(&sandbox, &[], &["build"]), "docker");
    let project = fs::read_to_string(sandbox.catalogue().join("kollage.toml")).unwrap();
    sandbox.write("kollage.toml", &format!("{project}[engine]\ndefault = \"buildkit\"\n"));
    refused(on(&sandbox, &[], &["build"]), "buildkit");
    // What is asked for otherwise, and what chooses nothing, isn't in the way.
    on(&sandbox, &[], &["list"]).ok();
    // Each choice wins over the one before: the command line over the environment over the project over the user.
    on(&sandbox, &[("KOLLAGE_ENGINE", "docker")], &["build", "--engine", "embedded"]).ok();
    // Nobody but the operator makes rules.
    fs::write(&user, "[policy]\nengines = [\"docker\"]\n").unwrap();
    on(&sandbox, &[], &["build"]).exits(2).says("/etc/kollage/kollage.toml` only");
    fs::remove_file(&user).unwrap();
    sandbox.write("kollage.toml", &format!("{project}[policy]\nengines = [\"docker\"]\n"));
    on(&sandbox, &[], &["build"]).exits(2).says("/etc/kollage/kollage.toml` only");
}

#[test]
fn the_operators_default_counts_where_nobody_chooses() {
    let operator = "[engine]\ndefault = \"docker\"\n[policy]\nengines = [\"docker\", \"embedded\"]\n";
    let Some(sandbox) = machine(operator) else { return };
    let dead = |ran: Ran| ran.exits(3).says("no engine answers").says("DOCKER_HOST").says("hint");
    dead(on(&sandbox, &[], &["build"]));
    on(&sandbox, &[("KOLLAGE_ENGINE", "embedded")], &["build"]).ok();
    let user = sandbox.path("home/.config/kollage/kollage.toml");
    fs::write(&user, "[engine]\ndefault = \"embedded\"\n").unwrap();
    on(&sandbox, &[], &["build"]).ok();
    let project = fs::read_to_string(sandbox.catalogue().join("kollage.toml")).unwrap();
    sandbox.write("kollage.toml", &format!("{project}[engine]\ndefault = \"docker\"\n"));
    dead(on(&sandbox, &[], &["build", "--no-cache"]));
    on(&sandbox, &[], &["build", "--engine", "dokcer"]).exits(2).says("did you mean `docker`");
}

#[test]
fn a_registry_that_the_operator_does_not_allow_gets_nothing() {
    let Some(sandbox) = machine("[policy]\nregistries = [\"registry.example.org\"]\n") else { return };
    on(&sandbox, &[], &["build"]).ok();
    for args in [&["push", "base", "--registry", "other.example.org"][..], &["build", "--push", "--registry", "r:5000"]]
    {
        let ran = on(&sandbox, &[], args).exits(2).says("the operator's policy does not allow the registry");
        ran.says("[policy] in /etc/kollage/kollage.toml allows `registry.example.org`");
    }
}
