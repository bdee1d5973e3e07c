//! What we write is read by skopeo, umoci, podman and docker, and what they write is read by us.

use std::fs;

use crate::support::{Docker, Podman, Room, assert_tree, image, ready, run};
use kollage::image::store::Codec;

const NAME: &str = "kollage/app:1";

#[test]
fn a_layout_is_read_by_skopeo_and_umoci() {
    if !ready(&["skopeo", "umoci"]) {
        return;
    }
    let room = Room::new();
    let store = room.store("store");
    let (app, other) = (image(&store, "app", Codec::Gzip), image(&store, "other", Codec::Gzip));
    room.export(&store, "type=oci,dest=DIR/out", &[(NAME, &app)]);
    room.export(&store, "type=oci,dest=DIR/out", &[("kollage/app:2", &other)]);

    let digest = |from: &str| run("skopeo", &["inspect", "--format", "{{.Digest}}", from]).trim().to_owned();
    assert_eq!(digest(&room.arg("oci:", "out:1")), app.manifest.to_string());
    assert_eq!(digest(&room.arg("oci:", "out:2")), other.manifest.to_string());
    run("skopeo", &["copy", "-q", &room.arg("oci:", "out:1"), &room.arg("dir:", "copy")]);

    run("umoci", &["unpack", "--image", &room.arg("", "out:1"), &room.arg("", "bundle")]);
    assert_tree(&room.path("bundle/rootfs"), "app");
    // It goes on working with a layout that others have changed.
    run("umoci", &["config", "--image", &room.arg("", "out:1"), "--tag", "3", "--config.user", "me"]);
    run("umoci", &["gc", "--layout", &room.arg("", "out")]);
    room.export(&store, "type=oci,dest=DIR/out", &[(NAME, &other)]);
    assert_eq!(digest(&room.arg("oci:", "out:1")), other.manifest.to_string());
    assert_eq!(room.import_oci(&room.store("again"), "out", Some("3")).config.config.user, "me");

    // Several at once are named in full.
    room.export(&store, "type=oci,dest=DIR/all", &[(NAME, &app), ("r.example.org:5000/x/other:1", &other)]);
    assert_eq!(digest(&room.arg("oci:", "all:kollage/app:1")), app.manifest.to_string());
    assert_eq!(digest(&room.arg("oci:", "all:r.example.org:5000/x/other:1")), other.manifest.to_string());
    run("umoci", &["unpack", "--image", &room.arg("", "all:kollage/app:1"), &room.arg("", "bundle-all")]);

    room.export(&store, "type=oci,dest=DIR/out.tar", &[(NAME, &app)]);
    assert_eq!(digest(&room.arg("oci-archive:", "out.tar:1")), app.manifest.to_string());
}

#[test]
fn layers_in_zstd_are_read_by_skopeo_and_podman() {
    if !ready(&["skopeo", "podman"]) {
        return;
    }
    let room = Room::new();
    let store = room.store("store");
    let app = image(&store, "app", Codec::Zstd);
    room.export(&store, "type=oci,dest=DIR/out", &[(NAME, &app)]);
    run("skopeo", &["copy", "-q", &room.arg("oci:", "out:1"), &room.arg("oci:", "copy:1")]);
    let podman = Podman::new();
    let id = podman.run(&["pull", "-q", &room.arg("oci:", "out:1")]);
    assert_eq!(id.trim(), app.config.hex());
    let imported = room.import_oci(&room.store("again"), "copy", None);
    assert_eq!((imported.manifest, imported.config.rootfs.diff_ids), (Some(app.manifest), app.diff_ids));
}

#[test]
fn podman_loads_every_kind() {
    if !ready(&["podman"]) {
        return;
    }
    let room = Room::new();
    let store = room.store("store");
    let (app, other) = (image(&store, "app", Codec::Gzip), image(&store, "other", Codec::Gzip));
    room.export(&store, "type=oci,dest=DIR/out.tar", &[(NAME, &app)]);
    room.export(&store, "type=docker,dest=DIR/docker.tar", &[(NAME, &app), ("kollage/other:1", &other)]);
    let podman = Podman::new();
    podman.run(&["pull", "-q", &room.arg("oci-archive:", "out.tar")]);
    podman.run(&["load", "-q", "-i", &room.arg("", "docker.tar")]);
    let id = |name: &str| podman.run(&["image", "inspect", "--format", "{{.Id}}", name]).trim().to_owned();
    assert_eq!(id(NAME), app.config.hex());
    assert_eq!(id("kollage/other:1"), other.config.hex());

    // And back: both of its formats, and several images in one file.
    for format in ["docker-archive", "oci-archive"] {
        let file = room.arg("", &format!("{format}.tar"));
        podman.run(&["save", "-q", "--format", format, "-o", &file, NAME]);
    }
    podman.run(&["save", "-q", "-m", "-o", &room.arg("", "both.tar"), NAME, "kollage/other:1"]);
    // An image without a registry is its own and no registry's.
    let name = |name: &str| format!("localhost/{name}");
    let again = room.store("again");
    for imported in [
        room.import_docker(&again, "docker-archive.tar", None),
        room.import_oci(&again, "oci-archive.tar", None),
        room.import_docker(&again, "both.tar", Some(&name(NAME))),
    ] {
        assert_eq!(imported.config.rootfs.diff_ids, app.diff_ids);
        assert_eq!(imported.config.config.labels["content"], "app");
    }
    let imported = room.import_docker(&again, "both.tar", Some(&name("kollage/other:1")));
    assert_eq!(imported.config.rootfs.diff_ids, other.diff_ids);
}

#[test]
fn docker_loads_and_saves() {
    if !ready(&["dockerd", "docker"]) {
        return;
    }
    let room = Room::new();
    let store = room.store("store");
    let (app, other) = (image(&store, "app", Codec::Gzip), image(&store, "other", Codec::Zstd));
    room.export(&store, "type=docker,dest=DIR/x.tar", &[(NAME, &app), ("kollage/other:1", &other)]);
    let docker = Docker::start();
    docker.run(&["load", "-q", "-i", &room.arg("", "x.tar")]);
    let id = |name: &str| docker.run(&["image", "inspect", "--format", "{{.Id}}", name]).trim().to_owned();
    assert_eq!(id(NAME), app.config.to_string());
    assert_eq!(id("kollage/other:1"), other.config.to_string());

    let container = docker.run(&["create", NAME]);
    docker.run(&["export", "-o", &room.arg("", "exported.tar"), container.trim()]);
    fs::create_dir(room.path("exported")).unwrap();
    run("tar", &["-C", &room.arg("", "exported"), "-xpf", &room.arg("", "exported.tar"), "bin"]);
    let listed = run("tar", &["-tf", &room.arg("", "exported.tar"), "etc"]);
    assert!(listed.contains("etc/kept") && !listed.contains("etc/gone"), "{listed}");

    docker.run(&["save", "-o", &room.arg("", "saved.tar"), NAME, "kollage/other:1"]);
    let again = room.store("again");
    assert_eq!(room.import_docker(&again, "saved.tar", Some(NAME)).config.rootfs.diff_ids, app.diff_ids);
    let imported = room.import_docker(&again, "saved.tar", Some("kollage/other:1"));
    assert_eq!(imported.config.rootfs.diff_ids, other.diff_ids);
}

#[test]
fn skopeo_writes_archives_that_we_read() {
    if !ready(&["skopeo"]) {
        return;
    }
    let room = Room::new();
    let store = room.store("store");
    let app = image(&store, "app", Codec::Gzip);
    room.export(&store, "type=oci,dest=DIR/out", &[(NAME, &app)]);
    let from = room.arg("oci:", "out:1");
    for to in ["docker-archive:DIR/docker.tar:kollage/app:1", "oci-archive:DIR/oci.tar:1", "oci:DIR/copy:tag"] {
        run("skopeo", &["copy", "-q", &from, &to.replace("DIR", &room.dir.path().display().to_string())]);
    }
    let again = room.store("again");
    assert_eq!(room.import_docker(&again, "docker.tar", Some(NAME)).config.rootfs.diff_ids, app.diff_ids);
    for (path, reference) in [("oci.tar", None), ("copy", Some("tag"))] {
        let imported = room.import_oci(&again, path, reference);
        assert_eq!(imported.config.rootfs.diff_ids, app.diff_ids);
        assert_eq!(imported.manifest, Some(app.manifest.clone()), "{path}");
    }
}

#[test]
fn trees_are_what_others_unpack() {
    if !ready(&["umoci", "tar"]) {
        return;
    }
    let room = Room::new();
    let store = room.store("store");
    let app = image(&store, "app", Codec::Gzip);
    room.export(&store, "type=local,dest=DIR/local", &[(NAME, &app)]);
    assert_tree(&room.path("local"), "app");
    room.export(&store, "type=tar,dest=DIR/root.tar", &[(NAME, &app)]);
    fs::create_dir(room.path("root")).unwrap();
    run("tar", &["-C", &room.arg("", "root"), "-xpf", &room.arg("", "root.tar")]);
    assert_tree(&room.path("root"), "app");
}
