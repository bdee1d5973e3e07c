//! Layers that others made, read by Kollage; and children that Kollage builds on them, read by others again.

use std::path::Path;

use kollage::image::archive::Imported;
use kollage::image::digest::Digest;
use kollage::image::store::{Codec, Store};
use serde_json::json;

use crate::contents::{CHILD, CONTENTS, LAYERS, build, exported, script};
use crate::mounts::Mounts;
use crate::peers::{Storage, docker_build, docker_loads, docker_tree, umoci, umoci_repack};
use crate::room::{Room, put_image};
use crate::table::{Known, SINCE_1970, Table, known};
use crate::tools::Docker;
use crate::tree::Tree;

const COLUMNS: [&str; 8] = [
    "docker build",
    "its child, docker load",
    "BuildKit",
    "its child, umoci",
    "buildah",
    "its child, skopeo and podman",
    "umoci repack",
    "its child, umoci ",
];

const KNOWN: [Known; 4] = [
    known("times", COLUMNS[0], SINCE_1970),
    known("times", COLUMNS[1], SINCE_1970),
    known("times", COLUMNS[4], SINCE_1970),
    known("times", COLUMNS[5], SINCE_1970),
];

const BASE: &str = "localhost/kollage/busybox:1";

const BUSYBOX: &str = "set -e; umask 022; mkdir -p bin tmp; cp /bin/busybox bin/; \
    for name in $(/bin/busybox --list); do [ $name = busybox ] || ln -s busybox bin/$name; done";

/// What a tool says of an image that it built, and what Kollage read.
struct Made {
    own: Tree,
    imported: Imported,
}

struct Matrix<'a> {
    room: Room,
    store: Store,
    mounts: Mounts,
    docker: &'a Docker,
    base: Vec<Digest>,
    scripts: Vec<String>,
}

pub fn table(docker: &Docker) -> Table {
    let about = "The same steps carried out by other builders. Kollage reads the image and is compared with what the \
                 builder itself shows; then Kollage builds a child that changes something in each directory, and what \
                 another tool unpacks of that is compared with what the child's last step saw.";
    let mut table = Table::new("Layers of others, read by Kollage", about, &COLUMNS);
    let (room, mounts) = (Room::new(), Mounts::new());
    let store = room.store("store");
    let scripts = (0..LAYERS).map(|step| script(step, |content| !content.host)).collect();
    let (base, _) = build(&store, &mounts, &[], &[BUSYBOX.to_owned()]);
    let matrix = Matrix { room, store, mounts, docker, base, scripts };
    matrix.lay_out();

    let storage = Storage::new(&matrix.room, &matrix.mounts, "storage");
    let mut trees: Vec<(Tree, Tree)> = Vec::new();
    for (number, made) in
        [matrix.docker(false), matrix.docker(true), matrix.buildah(&storage), matrix.umoci()].into_iter().enumerate()
    {
        let layers = &made.imported.config.rootfs.diff_ids;
        let read = exported(&matrix.store, layers, &matrix.room.path(&format!("local-{number}")));
        trees.push((made.own, read));
        let (layers, truth) = build(&matrix.store, &matrix.mounts, layers, &[CHILD.to_owned()]);
        let child = put_image(&matrix.store, layers, Codec::Gzip, json!({ "Cmd": ["x"] }));
        let tag = format!("child:{number}");
        matrix.room.export(&matrix.store, "type=oci,dest=DIR/children", &[(&tag, &child)]);
        let layout = format!("children:{number}");
        let read = match number {
            0 => {
                let name = format!("kollage/{tag}");
                matrix.room.export(&matrix.store, "type=docker,dest=DIR/child.tar", &[(&name, &child)]);
                docker_loads(docker, &matrix.mounts, &matrix.room.arg("", "child.tar"), &name)
            }
            2 => storage.skopeo_and_podman(&matrix.room.arg("oci:", &layout), "localhost/child:2"),
            _ => umoci(&matrix.room, &layout),
        };
        trees.push((truth, read.unwrap()));
    }
    for content in CONTENTS.iter().filter(|content| !content.host) {
        let part = |(own, read): &(Tree, Tree)| own.part(content.name).differences(&read.part(content.name));
        table.row(content.name, content.title, trees.iter().map(part).collect(), &KNOWN);
    }
    table
}

impl Matrix<'_> {
    fn lay_out(&self) {
        let image = put_image(&self.store, self.base.clone(), Codec::Gzip, json!({ "Env": ["PATH=/bin"] }));
        self.room.export(&self.store, "type=docker,dest=DIR/base.tar", &[(BASE, &image)]);
        self.room.export(&self.store, "type=oci,dest=DIR/umoci", &[("base:0", &image)]);
        let mut dockerfile = format!("FROM {BASE}\n");
        for script in &self.scripts {
            dockerfile.push_str(&format!("RUN {script}\n"));
        }
        std::fs::create_dir(self.room.path("context")).unwrap();
        std::fs::write(self.room.path("context/Dockerfile"), dockerfile).unwrap();
    }

    fn docker(&self, buildkit: bool) -> Made {
        self.docker.run(&["load", "-q", "-i", &self.room.arg("", "base.tar")]);
        let tag = if buildkit { "theirs:buildkit" } else { "theirs:classic" };
        docker_build(self.docker, buildkit, &self.room.path("context"), tag);
        let own = docker_tree(self.docker, &self.mounts, tag);
        let archive = format!("{buildkit}.tar");
        self.docker.run(&["save", "-o", &self.room.arg("", &archive), tag]);
        Made { own, imported: self.room.import_docker(&self.store, &archive, Some(tag)) }
    }

    fn buildah(&self, storage: &Storage<'_>) -> Made {
        let archive = self.room.arg("docker-archive:", "base.tar");
        storage.skopeo_and_podman(&archive, BASE).unwrap();
        let context = self.room.arg("", "context");
        let tag = "localhost/theirs:buildah";
        let args =
            ["bud", "--layers", "--isolation=chroot", "--cap-add=CAP_MKNOD", "--pull-never", "-t", tag, &context];
        storage.buildah(&args).unwrap();
        storage.buildah(&["push", "-q", tag, &self.room.arg("oci:", "buildah:1")]).unwrap();
        let (_, at) = storage.container(tag).unwrap();
        let own = Tree::read(&self.mounts.outside(Path::new(&at)));
        Made { own, imported: self.room.import_oci(&self.store, "buildah", Some("1")) }
    }

    fn umoci(&self) -> Made {
        for (step, script) in self.scripts.iter().enumerate() {
            umoci_repack(&self.room, &format!("umoci:{step}"), &(step + 1).to_string(), script);
        }
        let last = self.scripts.len().to_string();
        let own = umoci(&self.room, &format!("umoci:{last}")).unwrap();
        Made { own, imported: self.room.import_oci(&self.store, "umoci", Some(&last)) }
    }
}
