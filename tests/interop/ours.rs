//! Layers that Kollage made, read by others.

use std::collections::BTreeMap;

use kollage::image::store::Codec;
use serde_json::json;

use crate::contents::{CONTENTS, LAYERS, build, exported, script};
use crate::mounts::Mounts;
use crate::peers::{Storage, docker_loads, umoci};
use crate::room::{Room, put_image};
use crate::table::{Known, SINCE_1970, Table, known};
use crate::tools::Docker;
use crate::tree::Tree;

const COLUMNS: [&str; 6] = [
    "`-o type=local`",
    "umoci, gzip",
    "umoci, uncompressed",
    "skopeo and podman, zstd",
    "buildah, gzip",
    "docker load",
];

const KNOWN: [Known; 3] = [
    known("times", COLUMNS[3], SINCE_1970),
    known("times", COLUMNS[4], SINCE_1970),
    known("times", COLUMNS[5], SINCE_1970),
];

pub fn table(docker: &Docker) -> Table {
    let about = "Built step by step on a real overlay, committed as a build commits. What each tool unpacked is compared \
                 with what the overlay showed when the last step had run.";
    let mut table = Table::new("Kollage's layers, read by others", about, &COLUMNS);
    let (room, mounts) = (Room::new(), Mounts::new());
    let store = room.store("store");
    let mut scripts: Vec<String> = (0..LAYERS).map(|step| script(step, |_| true)).collect();
    // An empty layer in the middle.
    scripts.insert(2, "true".into());
    let (layers, truth) = build(&store, &mounts, &[], &scripts);

    let mut trees: BTreeMap<&str, Tree> = BTreeMap::new();
    trees.insert(COLUMNS[0], exported(&store, &layers, &room.path("local")));
    for (tag, codec) in [("gzip", Codec::Gzip), ("none", Codec::None), ("zstd", Codec::Zstd)] {
        let image = put_image(&store, layers.clone(), codec, json!({ "Cmd": ["x"] }));
        room.export(&store, "type=oci,dest=DIR/out", &[(&format!("matrix:{tag}"), &image)]);
        if codec == Codec::Gzip {
            room.export(&store, "type=docker,dest=DIR/docker.tar", &[("kollage/matrix:1", &image)]);
        }
    }
    trees.insert(COLUMNS[1], umoci(&room, "out:gzip").unwrap());
    trees.insert(COLUMNS[2], umoci(&room, "out:none").unwrap());
    let storage = Storage::new(&room, &mounts, "storage");
    let tree = storage.skopeo_and_podman(&room.arg("oci:", "out:zstd"), "localhost/matrix:zstd");
    trees.insert(COLUMNS[3], tree.unwrap());
    trees.insert(COLUMNS[4], storage.buildah_tree(&room.arg("oci:", "out:gzip")).unwrap());
    trees.insert(COLUMNS[5], docker_loads(docker, &mounts, &room.arg("", "docker.tar"), "kollage/matrix:1").unwrap());

    for content in &CONTENTS {
        let expected = truth.part(content.name);
        let found = COLUMNS.iter().map(|column| expected.differences(&trees[column].part(content.name))).collect();
        table.row(content.name, content.title, found, &KNOWN);
    }
    table
}
