//! `kollage start`: from a definition to an image that starts by it, with the runtime as it is shipped.

use std::path::Path;
use std::process::Command;

use crate::sandbox::{Sandbox, is_root};

pub fn shipped() -> &'static Path {
    crate::runtime::shipped(Path::new(env!("CARGO_MANIFEST_DIR")))
}

pub const SERVICE: &str = r#"
[service]
summary = "Says what it is given"
command = ["cat", "/run/svc/said"]

[user]
name = "svc"
uid = 4711

[variables]
WORD = { summary = "What it says", default = "hello" }
KEY = { summary = "What nobody sees", secret = true }

[[directory]]
path = "/run/svc"
owner = "svc"

[[step]]
title = "Write it down"
write = "/run/svc/said"
text = "${WORD}, by "

[[step]]
title = "Sign it"
run = ["sh", "-c", "id -u >> /run/svc/said"]

[[task]]
name = "bootstrap"
variable = "KOLLA_BOOTSTRAP"

[[task.step]]
title = "Use the key"
run = ["cat"]
input = "key ${KEY}\n"
"#;

#[test]
fn an_image_of_anybodys_is_checked_adopted_and_started() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::with_base();
    sandbox.base("FROM {{ parent }}\nENV PATH=/bin\n");
    sandbox.build(&["base"]);
    sandbox.write("start-scripts/svc/start.toml", &SERVICE.replace("\"cat\", \"/run", "\"catt\", \"/run"));
    sandbox.write("start-scripts/svc/ignored", "");
    let ls = sandbox.run(&["start", "ls", "--format", "json"]).ok().json();
    assert_eq!((&ls[0]["name"], &ls[0]["tasks"][0]["name"]), (&"svc".into(), &"bootstrap".into()));

    let runtime = shipped().display().to_string();
    let adopt = ["start", "adopt", "base", "--service", "svc", "-t", "adopted", "--runtime", &runtime];
    let check = ["start", "check", "base", "--service", "svc", "--format", "json"];
    let report = sandbox.run(&check).exits(4).json();
    let catt = report["needs"].as_array().unwrap().iter().find(|need| need["what"] == "catt").unwrap();
    assert_eq!((&report["missing"], &catt["state"]), (&1.into(), &"missing".into()), "{report}");
    sandbox.run(&adopt).exits(4).says("lacks what svc needs: catt");
    sandbox.write("start-scripts/svc/start.toml", SERVICE);
    assert_eq!(sandbox.run(&check).ok().json()["missing"], 0);

    let first = sandbox.run(&adopt).ok().stdout;
    assert_eq!(sandbox.run(&adopt).ok().stdout, first);
    assert_eq!(sandbox.run(&["run", "adopted"]).ok().says("svc 2/2: Sign it").stdout, "hello, by 4711\n");
    let task = ["run", "-e", "KOLLA_BOOTSTRAP=", "-e", "KEY=secret", "adopted"];
    assert_eq!(sandbox.run(&task).ok().says("svc: bootstrap is done").stdout, "key secret\n");
    sandbox.run(&["run", "-e", "KOLLA_BOOTSTRAP=", "adopted"]).exits(1).says("KEY is not set (nor KEY_FILE");
    // Whoever gives a command of his own gets that, and Kolla's names are this program's.
    assert_eq!(sandbox.run(&["run", "adopted", "--", "echo", "mine"]).ok().stdout, "mine\n");
    assert_eq!(sandbox.run(&["run", "adopted", "--", "kolla_start"]).ok().stdout, "hello, by 4711\n");
    sandbox.run(&["store", "verify"]).ok();
}

#[test]
fn a_bundle_is_packed_with_a_runtime_that_starts_anywhere() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::with_base();
    sandbox.base("FROM {{ parent }}\n");
    sandbox.write("start-scripts/svc/start.toml", SERVICE);
    sandbox.run(&["start", "pack", "-o", "x.tar.gz", "--runtime", "/bin/sh"]).exits(2).says("isn't a static program");
    sandbox.run(&["start", "pack", "-o", "docker://start"]).exits(2).says("kollage start push");
    sandbox.run(&["start", "pack", "-o", "x.zip"]).exits(2).says("FILE.tar.gz");
    let runtime = shipped().display().to_string();
    let layout = sandbox.path("layout").display().to_string();
    let output = format!("oci:{layout}:bundle");
    sandbox.run(&["start", "pack", "-o", &output, "--runtime", &runtime]).ok().says("wrote ");
    // As an image it has the bundle in its root, and its program runs alone.
    let single = sandbox.path("Dockerfile").display().to_string();
    std::fs::write(&single, format!("FROM oci:{layout}:latest\n")).unwrap();
    sandbox.run(&["build", "--dockerfile", &single, "-t", "bundle"]).ok();
    assert!(sandbox.run(&["run", "bundle", "--", "--version"]).ok().stdout.starts_with("kollage-start "));
}

#[test]
fn what_is_wrong_with_definitions_comes_at_once() {
    let sandbox = Sandbox::new();
    sandbox.write("kollage.toml", "");
    sandbox.run(&["start", "ls"]).exits(2).says("start-scripts");
    sandbox.write("start-scripts/a/start.toml", "[service]\nsumary = \"x\"\n");
    sandbox.write("start-scripts/b/start.toml", "[service]\ncommand = [\"${NONE}\"]\n");
    let ran = sandbox.run(&["start", "ls"]).exits(2);
    ran.says("start-scripts/a/start.toml:2:1").says("did you mean `summary`?").says("start-scripts/b/start.toml:2:12");
}

/// The runtime shares no code with what wrote them: each is read to its end before the task isn't found.
#[test]
fn every_definition_of_the_catalogue_is_understood_by_the_runtime() {
    let sandbox = Sandbox::new();
    let bundle = sandbox.path("bundle").display().to_string();
    let top = env!("CARGO_MANIFEST_DIR");
    let (output, runtime) = (format!("dir:{bundle}"), shipped().display().to_string());
    sandbox.run(&["-C", top, "start", "pack", "-o", &output, "--runtime", &runtime]).ok();
    let services = sandbox.run(&["-C", top, "start", "ls", "--format", "json"]).ok().json();
    assert!(services.as_array().unwrap().len() > 30);
    for service in services.as_array().unwrap() {
        let name = service["name"].as_str().unwrap();
        let mut command = Command::new(format!("{bundle}/kollage-start"));
        let output = command.args(["task", "--service", name, "none"]).env_clear().output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(&format!("error: {name} has no task `none`")), "{said}");
    }
}

/// haproxy's fragments are put together, but where Kolla's deployment brings a script that reads them by itself.
#[test]
fn haproxy_starts_with_the_configuration_that_kolla_s_deployment_gives() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::with_base();
    let definition = Path::new(env!("CARGO_MANIFEST_DIR")).join("start-scripts/haproxy");
    for name in ["start.toml", "main.cfg"] {
        let text = std::fs::read_to_string(definition.join(name)).unwrap();
        sandbox.write(&format!("start-scripts/haproxy/{name}"), &text);
    }
    let runtime = shipped().display().to_string();
    let started = |name: &str, more: &str| {
        let program = "#!/bin/sh\\n[ $1 = -c ] && exec echo looked at $#\\nexec cat /etc/haproxy/haproxy.cfg\\n";
        let files = "cd /etc/haproxy && echo of kolla >haproxy.cfg && echo frontend one >services.d/one.cfg";
        sandbox.base(&format!(
            "FROM {{{{ parent }}}}\nENV PATH=/bin\nRUN mkdir -p /etc/haproxy/services.d && {files}\n\
             RUN printf '{program}' >/bin/haproxy && chmod 755 /bin/haproxy{more}\n"
        ));
        sandbox.build(&["base"]);
        let adopt = ["start", "adopt", "base", "--service", "haproxy", "-t", name, "--runtime", &runtime];
        sandbox.run(&adopt).ok();
        sandbox.run(&["run", name]).ok().stdout
    };
    let own = started("own", "");
    assert!(own.contains("frontend monitor") && own.contains("frontend one") && !own.contains("of kolla"), "{own}");
    assert_eq!(started("kolla", " && touch /etc/haproxy/haproxy_run.sh"), "of kolla\n");
    let task = ["run", "kolla", "--", "/var/lib/kollage/start/kollage-start", "task", "check"];
    assert!(sandbox.run(&task).ok().stdout.contains("looked at 5"));
}

#[test]
fn a_bundle_goes_to_an_engine() {
    if !crate::support::ready(&["dockerd", "docker"]) {
        return;
    }
    let docker = crate::support::Docker::start();
    let sandbox = Sandbox::new();
    sandbox.write("kollage.toml", "");
    sandbox.write("start-scripts/svc/start.toml", SERVICE);
    let (runtime, host) = (shipped().display().to_string(), docker.host());
    let pack =
        |output: &str, host: &str| sandbox.run(&["start", "pack", "-o", output, "--runtime", &runtime, "--host", host]);
    pack("docker", &host).ok().says("loaded kollage-start:latest");
    pack("docker:team/start:1", &host).ok().says("loaded team/start:1");
    let entrypoint = docker.run(&["image", "inspect", "--format", "{{.Config.Entrypoint}}", "team/start:1"]);
    assert_eq!(entrypoint.trim(), "[/kollage-start]");
    pack("docker", "unix:///nowhere").exits(3).says("no engine answers at");
    pack("docker://team/start", &host).exits(2).says("kollage start push");
}
