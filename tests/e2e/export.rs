//! `kollage export`: what is written, compared and refused; and what `docker buildx bake` of Debian 13 builds of it.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::fetch::{Daemon, Web, repository};
use crate::sandbox::{Sandbox, is_root};
use crate::support::newer_docker;
use crate::tools::{ready, succeed};

fn catalogue() -> Sandbox {
    let sandbox = Sandbox::with_base();
    sandbox.base("FROM {{ parent }}\nCOPY conf /conf\n");
    sandbox.write("images/base/conf", "one");
    sandbox.image("web", "base", "FROM {{ parent }}\nRUN echo web > /web\n");
    sandbox
}

#[test]
fn a_bake_file_is_written_whole_and_compared() {
    if !is_root() {
        return;
    }
    let sandbox = catalogue();
    let export = ["export", "--format", "bake", "-o", "bake"];
    let check = [&export[..], &["--check"]].concat();
    sandbox.run(&["export", "--format", "bake"]).exits(2).says("name a directory with `-o DIR`");
    sandbox.run(&export).exits(3).says("is not in the store").says("kollage build base");
    sandbox.run(&["build", "base"]).ok();
    let differs = sandbox.run(&check).exits(4).says("files would change");
    assert!(differs.stdout.contains("rootfs.tar"), "{}", differs.stdout);
    sandbox.run(&export).ok().says("docker buildx bake");
    sandbox.run(&check).ok();

    let read = |name: &str| fs::read_to_string(sandbox.catalogue().join("bake").join(name)).unwrap();
    let bake: Value = serde_json::from_str(&read("docker-bake.json")).unwrap();
    let base = bake["target"].as_object().unwrap().keys().find(|name| name.starts_with("base-rootfs")).unwrap();
    assert_eq!(bake["target"]["base"]["contexts"][base], format!("target:{base}"));
    assert!(read("base/Dockerfile").starts_with(&format!("FROM {base}\n")));
    let tar = sandbox.catalogue().join(format!("bake/{base}/rootfs.tar"));
    let mut archive = tar::Archive::new(fs::File::open(&tar).unwrap());
    let mut paths = archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string());
    assert!(paths.any(|path| path.ends_with("bin/busybox")));

    sandbox.write("images/base/conf", "two");
    assert_eq!(sandbox.run(&check).exits(4).stdout, "base/context/conf\n");
    sandbox.run(&export).ok().says("wrote bake/base/context/conf");
    fs::remove_file(&tar).unwrap();
    assert_eq!(sandbox.run(&check).exits(4).stdout, format!("{base}/rootfs.tar\n"));
    fs::write(sandbox.catalogue().join("bake/web/Dockerfile"), "FROM scratch\n").unwrap();
    sandbox.run(&export).ok();
    sandbox.run(&check).ok();
}

#[test]
fn bake_builds_what_is_exported() {
    if !is_root() || !ready(&["dockerd", "docker", "busybox", "git"]) {
        return;
    }
    let web = Web::start("fetched");
    let repo = tempfile::tempdir().unwrap();
    let commit = repository(repo.path());
    commit("first");
    let daemon = Daemon::start(repo.path());
    let sandbox = catalogue();
    let config = "[build]\nbase = \"debian\"\nsource_date_epoch = 1700000000\nca_bundle = \"ca.pem\"\n\
                  [profiles]\nfront = [\"web\"]\n[images.web]\nplugins = [\"theme\"]\n";
    sandbox.write("kollage.toml", config);
    sandbox.write("ca.pem", "a certificate\n");
    sandbox.write(
        "images/web/image.toml",
        "[image]\nparent = \"base\"\n[plugins]\naccept = [\"*\"]\n[[check]]\nrun = [\"grep\", \"first\", \"/r/f\"]\n",
    );
    // The Docker of tests has no bridge, so that nothing can use its network.
    let recipe = format!(
        "FROM {{{{ parent }}}}\nADD http://{}/f /f\nADD git://{}/r.git#main /r\n\
         RUN --network=none cat $SSL_CERT_FILE > /lent && grep CaInfo $APT_CONFIG && cat /f /r/f > /both\n\
         COPY --from=base /conf /copied\nUSER app\nCMD [\"cat\", \"/both\"]\n",
        web.host, daemon.address
    );
    sandbox.write("images/web/Dockerfile.j2", &recipe);
    sandbox.write("plugins/theme/plugin.toml", "[plugin]\nimages = [\"web\"]\n");
    sandbox.write("plugins/theme/Dockerfile.j2", "FROM {{ parent }}\nRUN --network=none echo theme > /tmp/theme\n");
    sandbox.run(&["build", "base"]).ok();
    sandbox.run(&["export", "-p", "front", "--format", "bake", "-o", "loose"]).ok().says("web fetches git://");
    sandbox.run(&["lock"]).ok();
    sandbox.run(&["export", "-p", "front", "--format", "bake", "-o", "bake"]).ok();
    // Whatever they are now, the lock says what they were.
    commit("second");

    let (docker, dir) = newer_docker(&[]);
    let buildx = dir.join("usr/libexec/docker/cli-plugins/docker-buildx");
    let command = |args: &[&str]| {
        let mut command = Command::new(&buildx);
        command.env("DOCKER_HOST", docker.host()).env("DOCKER_CONFIG", sandbox.path("home"));
        command.arg("bake").args(args).current_dir(sandbox.catalogue().join("bake"));
        command
    };
    let bake = |args: &[&str]| succeed(&mut command(args));
    let printed: Value = serde_json::from_str(&bake(&["--print", "front"])).unwrap();
    assert_eq!(printed["group"]["default"]["targets"], json!(["front"]));
    for target in ["base", "web", "web_theme"] {
        assert!(printed["target"][target]["context"].is_string(), "{printed}");
    }
    bake(&["front", "checks"]);
    let name = "kollage/web:debian-bookworm";
    let shown = |args: &[&str]| docker.run(&[&["run", "--rm", "--network=none", name], args].concat());
    assert_eq!(shown(&[]), "fetchedfirst");
    assert_eq!(shown(&["cat", "/copied", "/tmp/theme", "/lent"]), "onetheme\na certificate\n");
    shown(&["test", "!", "-e", "/run/kollage"]);
    assert!(!docker.run(&["inspect", "-f", "{{.Config.Env}}", name]).contains("SSL"), "nor in the configuration");

    // A check that fails is no image that fails.
    let toml = fs::read_to_string(sandbox.catalogue().join("images/web/image.toml")).unwrap();
    sandbox.write("images/web/image.toml", &toml.replace("first", "other"));
    sandbox.run(&["export", "-p", "front", "--format", "bake", "-o", "bake"]).ok();
    bake(&["front"]);
    let failed = command(&["checks"]).output().unwrap();
    assert!(!failed.status.success() && String::from_utf8_lossy(&failed.stderr).contains("grep other /r/f"));
}

#[test]
fn a_pipeline_is_one_file_and_replaces_nothing_else() {
    let sandbox = catalogue();
    let shown = sandbox.run(&["export", "web", "--format", "gitlab", "--tag", "2"]).ok().stdout;
    assert!(
        shown.contains("kollage build web --push --tag=2") && shown.contains("kollage build base --tag=2"),
        "{shown}"
    );
    let export = ["export", "--format", "github", "-o", "ci/images.yml"];
    let check = [&export[..], &["--check"]].concat();
    sandbox.run(&check).exits(4).says("is not there");
    sandbox.run(&export).ok().says("wrote ci/images.yml");
    sandbox.run(&check).ok();
    sandbox.image("more", "web", "FROM {{ parent }}\n");
    assert!(sandbox.run(&check).exits(4).stdout.contains("+  more:"));
    sandbox.write("ci/images.yml", "name: mine\n");
    sandbox.run(&export).exits(2).says("no export wrote it");
    sandbox.run(&[&export[..], &["--platform", "arm"]].concat()).exits(2).says("is not a platform");
}
