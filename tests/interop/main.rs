//! Layers that every other tool reads right, and theirs read by us: `docs/layers.md` is written from what is found here.
//!
//! Needs root, and Debian's umoci, skopeo, podman, buildah and docker.io. `KOLLAGE_LAYERS_TABLE=docs/layers.md` writes
//! the table.

// Clippy takes helpers of tests for production code.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod cases;
mod contents;
mod handmade;
mod mounts;
mod ours;
mod peers;
#[path = "../common/room.rs"]
mod room;
mod table;
mod theirs;
#[path = "../common/tools.rs"]
mod tools;
mod tree;

const TOOLS: [&str; 8] = ["umoci", "skopeo", "podman", "buildah", "dockerd", "docker", "setcap", "setfattr"];

/// One test, because its parts share daemons and become one document.
#[test]
fn layers_mean_the_same_everywhere() {
    if !tools::ready(&TOOLS) {
        return;
    }
    let docker = tools::Docker::start();
    let tables = [ours::table(&docker), theirs::table(&docker), handmade::table(&docker)];
    table::check(&tables);
}
