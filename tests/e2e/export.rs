//! `kollage export`: what is written, compared and refused. That BuildKit builds it was tried by hand
//! (docs/howto/export.md): Debian 12 has no docker-buildx.

use std::fs;

use serde_json::Value;

use crate::sandbox::{Sandbox, is_root};

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
