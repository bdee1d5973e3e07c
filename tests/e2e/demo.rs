//! The README's main job on real packages: Debian's and Python's, once all the way through. Takes minutes, needs root
//! and the network that apt and pip use; CI runs it.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::sandbox::{Sandbox, field};
use crate::support::{Docker, Podman, ready, run};

const IMAGES: [&str; 5] = ["base", "openstack-base", "keystone", "memcached", "haproxy"];

/// The catalogue of this repository, in a copy that can be changed.
fn catalogue(sandbox: &Sandbox) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let to = sandbox.catalogue();
    for name in ["kollage.toml", "images", "plugins", "releases"] {
        let status = Command::new("cp").arg("-a").arg(root.join(name)).arg(&to).status().unwrap();
        assert!(status.success());
    }
}

/// `2026.2-debian-bookworm`
fn tag(sandbox: &Sandbox) -> String {
    let list = sandbox.run(&["list", "--format", "json", "keystone"]).ok().json();
    list[0]["reference"].as_str().unwrap().rsplit_once(':').unwrap().1.to_owned()
}

fn planned(sandbox: &Sandbox, args: &[&str]) -> Vec<String> {
    let plan = sandbox.plan(args).into_iter();
    plan.filter(|(_, action)| action != "reuse").map(|(name, _)| name).collect()
}

#[test]
fn the_demo_profile_builds_and_its_images_work_everywhere() {
    if !ready(&["mmdebstrap", "skopeo", "umoci", "podman", "dockerd"]) {
        return;
    }
    let sandbox = Sandbox::new();
    catalogue(&sandbox);
    let layout = sandbox.path("demo");
    let output = format!("type=oci,dest={}", layout.display());
    let args = ["--profile", "demo", "-o", &output];
    let first = sandbox.build(&args);
    for name in IMAGES {
        assert_eq!(field(&first, name, "status"), "built");
    }
    let plugin = "keystone+keystone-keycloak-backend";
    let reference = field(&first, plugin, "reference");
    let tag = tag(&sandbox);
    assert_eq!(reference, format!("kollage/keystone:{tag}"));

    // Once more: nothing is built.
    assert!(planned(&sandbox, &["--profile", "demo"]).is_empty());
    let second = sandbox.build(&args);
    assert_eq!(field(&second, plugin, "digest"), field(&first, plugin, "digest"));

    // It works, has no compiler, and no start scripts.
    let version = sandbox.run(&["run", "keystone", "--", "keystone-manage", "--version"]).ok().stdout;
    assert!(version.trim().starts_with(|c: char| c.is_ascii_digit()), "{version}");
    sandbox.run(&["run", "keystone", "--", "sh", "-c", "command -v gcc cc g++ make"]).exits(127);
    let headers = "dpkg-query -W -f '${Package}\\n' | grep -E '(-dev|^gcc)$' || true";
    assert_eq!(sandbox.run(&["run", "keystone", "--", "sh", "-c", headers]).ok().stdout, "");
    for (image, id) in [("keystone", "42425"), ("memcached", "42457"), ("haproxy", "42454")] {
        assert_eq!(sandbox.run(&["run", image, "--", "id", "-u", image]).ok().stdout.trim(), id);
    }
    sandbox.run(&["run", "keystone", "--", "test", "!", "-e", "/wheels"]).ok();
    nothing_of_the_host(&sandbox);

    // Without its plugin, the image is the one that is below it.
    assert!(planned(&sandbox, &["keystone", "--plugin", "keystone="]).is_empty());
    let without = sandbox.build(&["keystone", "--plugin", "keystone="]);
    assert_eq!(field(&without, "keystone", "digest"), field(&first, "keystone", "digest"));
    sandbox.build(&["keystone"]);

    // What only keystone uses rebuilds keystone, and `base` rebuilt to the same bytes rebuilds nothing.
    let definition = sandbox.catalogue().join("images/keystone/image.toml");
    let text = fs::read_to_string(&definition).unwrap();
    fs::write(&definition, text.replace("OpenStack identity service", "Identity service of OpenStack")).unwrap();
    assert_eq!(planned(&sandbox, &["--profile", "demo"]), ["keystone", plugin]);
    fs::write(&definition, text).unwrap();
    let again = sandbox.build(&["--no-cache", "base"]);
    assert_eq!(field(&again, "base", "digest"), field(&first, "base", "digest"));
    assert!(planned(&sandbox, &["--profile", "demo"]).is_empty());

    read_by_others(&sandbox, &layout, &tag, &field(&first, plugin, "digest"));
    sandbox.run(&["store", "verify"]).ok();
}

/// The machine's certificates and names are lent to steps, and must have stayed out of every layer.
fn nothing_of_the_host(sandbox: &Sandbox) {
    let layers = sandbox.path("store/layers");
    for entry in fs::read_dir(&layers).unwrap() {
        let root = entry.unwrap().path().join("fs");
        for name in ["etc/resolv.conf", "etc/hosts", "run/kollage", "run/secrets", "root/.cache"] {
            assert!(!exists(&root.join(name)), "{} is in {}", name, root.display());
        }
    }
}

fn exists(path: &Path) -> bool {
    // A whiteout is no file.
    fs::symlink_metadata(path).is_ok_and(|m| !std::os::unix::fs::FileTypeExt::is_char_device(&m.file_type()))
}

fn read_by_others(sandbox: &Sandbox, layout: &Path, tag: &str, digest: &str) {
    let name = format!("kollage/keystone:{tag}");
    let source = format!("oci:{}:{name}", layout.display());
    assert_eq!(run("skopeo", &["inspect", "--format", "{{.Digest}}", &source]).trim(), digest);

    let bundle = sandbox.path("bundle");
    let image = format!("{}:{name}", layout.display());
    run("umoci", &["unpack", "--image", &image, bundle.to_str().unwrap()]);
    assert!(bundle.join("rootfs/var/lib/kolla/venv/bin/keystone-manage").exists());

    let archive = sandbox.path("keystone.tar");
    let output = format!("type=docker,dest={}", archive.display());
    sandbox.run(&["build", "keystone", "-o", &output]).ok();
    let archive = archive.to_str().unwrap();
    let loaded = Podman::new().run(&["load", "-i", archive]);
    assert!(loaded.contains("keystone"), "{loaded}");
    let docker = Docker::start();
    docker.run(&["load", "-i", archive]);
    let version = docker.run(&["run", "--rm", "--network", "none", &name, "keystone-manage", "--version"]);
    assert!(version.trim().starts_with(|c: char| c.is_ascii_digit()), "{version}");
}
