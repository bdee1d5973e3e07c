//! Layers that no tool would write any more, or ever: old headers, orders that surprise, things left out. Each lies on
//! the same small layer.

use std::path::Path;

use kollage::event::Cancel;
use kollage::image::archive::import_oci;
use kollage::image::config::Platform;
use kollage::image::digest::Digest;
use kollage::image::store::Codec;
use serde_json::{Value, json};
use tar::EntryType as Type;

use crate::contents::{build, exported};
use crate::mounts::Mounts;
use crate::peers::{Storage, docker_loads, umoci};
use crate::room::{Room, put_image};
use crate::table::{BOTH_REFUSE, Known, NOTHING, SINCE_1970, Table, known};
use crate::tools::{Docker, succeed};
use crate::tree::Tree;

const COLUMNS: [&str; 4] = ["umoci", "docker load", "skopeo and podman", "a child of it, docker load"];

const UMOCI: &str = COLUMNS[0];
const DOCKER: &str = COLUMNS[1];
const PODMAN: &str = COLUMNS[2];

const TWICE: &str = "refused there: a name comes twice";
const PLAIN_PARENTS: &str = "a directory that the layer leaves out becomes root's with mode 755 there, and stays as the \
                             layer below has it here";
const UNKNOWN_TYPE: &str = "refused there: it does not know the type";
const OUTSIDE: &str = "refused here, and put inside of the root there";
const LINK_BELOW: &str = "refused there: a link to what the layer itself doesn't have";
const OWN_DELETED: &str =
    "refused there; here a layer deletes nothing that it brings itself, as the specification says";
const STALE: &str = "there the old contents show again; here they are deleted, as the specification says";

const KNOWN: [Known; 37] = [
    known("duplicate-file", DOCKER, TWICE),
    known("duplicate-file", PODMAN, TWICE),
    known("duplicate-kind", DOCKER, TWICE),
    known("duplicate-kind", PODMAN, TWICE),
    known("duplicate-back", DOCKER, TWICE),
    known("duplicate-back", PODMAN, TWICE),
    known("duplicate-dir", DOCKER, TWICE),
    known("duplicate-dir", PODMAN, TWICE),
    known("no-parents", DOCKER, PLAIN_PARENTS),
    known("no-parents", PODMAN, PLAIN_PARENTS),
    known("absolute", DOCKER, PLAIN_PARENTS),
    known("absolute", PODMAN, PLAIN_PARENTS),
    known("opaque-alone", DOCKER, PLAIN_PARENTS),
    known("opaque-alone", PODMAN, PLAIN_PARENTS),
    known("link-below", DOCKER, LINK_BELOW),
    known("link-below", PODMAN, LINK_BELOW),
    known("whiteout-nothing", UMOCI, "no directory is made there for a deletion in it"),
    known("whiteout-own", DOCKER, OWN_DELETED),
    known("whiteout-own", PODMAN, OWN_DELETED),
    known("whiteout-dir", DOCKER, STALE),
    known("whiteout-dir", PODMAN, STALE),
    known("opaque-root", DOCKER, STALE),
    known("opaque-root", PODMAN, STALE),
    known("through-link", UMOCI, "the link is followed there, and replaced by a directory here and by the others"),
    known("contiguous", UMOCI, UNKNOWN_TYPE),
    known("contiguous", DOCKER, UNKNOWN_TYPE),
    known("contiguous", PODMAN, UNKNOWN_TYPE),
    known("climbs", UMOCI, OUTSIDE),
    known("climbs", DOCKER, OUTSIDE),
    known("climbs", PODMAN, OUTSIDE),
    known("gnu-numbers", DOCKER, SINCE_1970),
    known("gnu-numbers", PODMAN, SINCE_1970),
    known("pax-numbers", DOCKER, SINCE_1970),
    known("pax-numbers", PODMAN, SINCE_1970),
    known("gnu-sparse", UMOCI, UNKNOWN_TYPE),
    known("gnu-sparse", DOCKER, UNKNOWN_TYPE),
    known("gnu-sparse", PODMAN, UNKNOWN_TYPE),
];

/// What lies below.
const BELOW: &str = "set -e; umask 022; mkdir -p d/sub e t; echo old >d/f; echo old >d/sub/g; chmod 700 d; chown 5:6 d; \
    ln -s t l; echo base >first; echo x >t/a; echo y >e/b";

const CHILD: &str =
    "set -e; umask 022; rm -rf d first; mkdir d; echo child >d/child; echo child >>new || true; rm -f x";

struct Layer {
    name: &'static str,
    title: &'static str,
    tar: Vec<u8>,
}

/// Entries as they are told: path, type, contents or target.
type Entries<'a> = &'a [(&'a str, Type, &'a str)];

fn entries(list: Entries<'_>) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, kind, text) in list {
        let mut header = tar::Header::new_ustar();
        let link = matches!(*kind, Type::Link | Type::Symlink);
        header.set_entry_type(*kind);
        header.set_mode(if *kind == Type::Directory { 0o755 } else { 0o640 });
        header.set_uid(7);
        header.set_gid(8);
        header.set_mtime(1_000_000_000);
        header.set_size(if link { 0 } else { text.len() as u64 });
        if link {
            header.set_link_name_literal(text).unwrap();
        }
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_cksum();
        builder.append(&header, if link { &[] } else { text.as_bytes() }).unwrap();
    }
    builder.into_inner().unwrap()
}

/// What GNU tar writes of a small tree.
fn gnu_tar(room: &Room, options: &[&str], script: &str) -> Vec<u8> {
    let dir = room.path("packed");
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir(&dir).unwrap();
    succeed(std::process::Command::new("bash").args(["-ec", script]).current_dir(&dir));
    let mut command = std::process::Command::new("tar");
    let output = command.args(["--sort=name", "-cf-"]).args(options).arg("-C").arg(&dir).arg("new").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn layers(room: &Room) -> Vec<Layer> {
    const F: Type = Type::Regular;
    const D: Type = Type::Directory;
    const H: Type = Type::Link;
    const S: Type = Type::Symlink;
    let made = |name, title, list: Entries<'_>| Layer { name, title, tar: entries(list) };
    let mut layers = vec![
        made("duplicate-file", "a file twice: the last one counts", &[("x", F, "1"), ("x", F, "22")]),
        made(
            "duplicate-kind",
            "a file, then a directory of its name",
            &[("x", F, "1"), ("x/", D, ""), ("x/y", F, "2")],
        ),
        made(
            "duplicate-back",
            "a directory, then a file of its name",
            &[("x/", D, ""), ("x/y", F, "2"), ("x", F, "1")],
        ),
        made(
            "duplicate-dir",
            "a directory twice, with its files between",
            &[("x/", D, ""), ("x/y", F, "2"), ("x/", D, "")],
        ),
        made("no-parents", "entries without their directories", &[("d/new", F, "1"), ("n/e/w", F, "2")]),
        made(
            "dot-prefix",
            "`./` before every name, and an entry for the root",
            &[("./", D, ""), ("./d/", D, ""), ("./d/new", F, "1"), ("./.wh.first", F, "")],
        ),
        made("absolute", "absolute names", &[("/x", F, "1"), ("/d/new", F, "1")]),
        made("no-slash", "directories whose name has no slash at its end", &[("n", D, ""), ("n/x", F, "1")]),
        made("link-after", "a hard link after its file", &[("x", F, "1"), ("y", H, "x")]),
        made("link-before", "a hard link before its file", &[("y", H, "x"), ("x", F, "1")]),
        made("link-below", "a hard link to a file of the layer below", &[("y", H, "first"), ("e/z", H, "d/f")]),
        made("link-to-link", "a hard link to a symbolic link", &[("s", S, "nowhere"), ("h", H, "s")]),
        made(
            "whiteout-first",
            "a deletion before its siblings",
            &[("d/", D, ""), ("d/.wh.f", F, ""), ("d/new", F, "1")],
        ),
        made("whiteout-last", "a deletion after its siblings", &[("d/", D, ""), ("d/new", F, "1"), ("d/.wh.f", F, "")]),
        made(
            "whiteout-nothing",
            "a deletion of what is not there",
            &[("d/", D, ""), ("d/.wh.nothing", F, ""), ("n/.wh.x", F, "")],
        ),
        made(
            "whiteout-replaced",
            "a deletion, then a file of that name",
            &[("d/", D, ""), ("d/.wh.f", F, ""), ("d/f", F, "new")],
        ),
        made(
            "whiteout-own",
            "a file, then a deletion of that name",
            &[("d/", D, ""), ("d/f", F, "new"), ("d/.wh.f", F, "")],
        ),
        made(
            "whiteout-dir",
            "a directory deleted and made again",
            &[(".wh.d", F, ""), ("d/", D, ""), ("d/new", F, "1")],
        ),
        made(
            "opaque-first",
            "an opaque directory, marked first",
            &[("d/", D, ""), ("d/.wh..wh..opq", F, ""), ("d/new", F, "1")],
        ),
        made(
            "opaque-last",
            "an opaque directory, marked after its files",
            &[("d/", D, ""), ("d/new", F, "1"), ("d/.wh..wh..opq", F, "")],
        ),
        made(
            "opaque-nested",
            "an opaque directory with a directory of the old name",
            &[("d/", D, ""), ("d/.wh..wh..opq", F, ""), ("d/sub/", D, ""), ("d/sub/new", F, "1")],
        ),
        made("opaque-alone", "an opaque marker without its directory", &[("d/.wh..wh..opq", F, "")]),
        made("opaque-root", "an opaque root", &[(".wh..wh..opq", F, ""), ("x", F, "1")]),
        made("aufs", "AUFS's own records", &[(".wh..wh.plnk/", D, ""), (".wh..wh.aufs", F, ""), ("x", F, "1")]),
        made("through-link", "an entry below a link of the layer below", &[("l/x", F, "1")]),
        made("dir-on-link", "a directory where the layer below has a link", &[("l/", D, ""), ("l/x", F, "1")]),
        made("contiguous", "a contiguous file (type 7)", &[("x", Type::Continuous, "1")]),
        made("climbs", "a name that climbs out", &[("../x", F, "1")]),
        made("empty", "no entries", &[]),
    ];
    let small = "mkdir new; echo 1 >new/f; ln new/f new/h; ln -s f new/l; mkfifo new/p; mknod new/c c 1 3; chown 70:80 new/f; \
                 touch -d @1000000000.5 new/f; touch -h -d @1000000000 new/l new/p new/c";
    let long = "n=$(printf 'n%.0s' {1..180}); mkdir -p new/$n; echo 1 >new/$n/$n; ln -s $n/$n/$n new/l; \
                ln new/$n/$n new/h; echo 2 >new/$'a\\377b'; touch -d @1000000000 new/$n/$n new/$'a\\377b'; touch -h -d @1 new/l";
    let sparse = "mkdir new; truncate -s 5M new/s; for i in 0 1 2 4; do echo $i | dd of=new/s bs=1M seek=$i conv=notrunc 2>/dev/null; \
                  done; truncate -s 2M new/e; touch -d @1000000000 new/s new/e";
    let far = "mkdir new; echo 1 >new/f; chown 3000000:4000000 new/f; touch -d @-5.5 new/f; setfattr -n user.a -v b new/f; \
               echo 1 >new/g; touch -d @9000000000 new/g";
    for (name, title, options, script) in [
        ("v7", "v7 headers", &["--format=v7", "--exclude=p", "--exclude=c"][..], small),
        ("ustar", "ustar headers", &["--format=ustar"], small),
        ("oldgnu", "old GNU headers", &["--format=oldgnu"], small),
        ("gnu-long", "GNU long names", &["--format=gnu"], long),
        ("pax-long", "PAX names", &["--format=pax"], long),
        ("gnu-numbers", "GNU binary numbers", &["--format=gnu"], far),
        ("pax-numbers", "PAX numbers, times and attributes", &["--format=pax", "--xattrs"], far),
        ("gnu-sparse", "sparse files in GNU's old format", &["--format=gnu", "-S"], sparse),
        ("pax-sparse-0.0", "PAX sparse 0.0", &["--format=pax", "-S", "--sparse-version=0.0"], sparse),
        ("pax-sparse-0.1", "PAX sparse 0.1", &["--format=pax", "-S", "--sparse-version=0.1"], sparse),
        ("pax-sparse-1.0", "PAX sparse 1.0", &["--format=pax", "-S"], sparse),
    ] {
        layers.push(Layer { name, title, tar: gnu_tar(room, options, script) });
    }
    let mut cut = entries(&[("x", F, "1")]);
    cut.truncate(cut.len() - 1024);
    layers.push(Layer { name: "no-end", title: "no blocks of zeros at the end", tar: cut });
    let mut more = entries(&[("x", F, "1")]);
    more.extend_from_slice(&[1; 700]);
    layers.push(Layer { name: "trailing", title: "something after the end", tar: more });
    layers
}

fn sha256(bytes: &[u8]) -> String {
    Digest::of(bytes).to_string()
}

/// The two layers as an image, in both forms, uncompressed.
fn write(room: &Room, below: &[u8], layer: &[u8]) {
    let tars = [below, layer];
    let config = json!({
        "architecture": Platform::host().architecture, "os": "linux", "config": { "Cmd": ["x"] },
        "rootfs": { "type": "layers", "diff_ids": tars.map(sha256) },
        "history": [{ "created_by": "below" }, { "created_by": "layer" }],
    });
    let config = config.to_string().into_bytes();
    let describe = |kind: &str, bytes: &[u8]| -> Value {
        let media = format!("application/vnd.oci.image.{kind}");
        json!({ "mediaType": media, "digest": sha256(bytes), "size": bytes.len() })
    };
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": describe("config.v1+json", &config),
        "layers": tars.map(|tar| describe("layer.v1.tar", tar)),
    });
    let manifest = manifest.to_string().into_bytes();
    let mut top = describe("manifest.v1+json", &manifest);
    top["annotations"] = json!({ "org.opencontainers.image.ref.name": "1" });
    let layout = room.path("layout");
    let _ = std::fs::remove_dir_all(&layout);
    std::fs::create_dir_all(layout.join("blobs/sha256")).unwrap();
    std::fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    let index = json!({ "schemaVersion": 2, "manifests": [top] });
    std::fs::write(layout.join("index.json"), index.to_string()).unwrap();
    for blob in [below, layer, &config, &manifest] {
        let name = sha256(blob);
        std::fs::write(layout.join("blobs/sha256").join(name.trim_start_matches("sha256:")), blob).unwrap();
    }

    let mut archive = tar::Builder::new(Vec::new());
    let list = json!([{ "Config": "config.json", "RepoTags": ["kollage/handmade:1"], "Layers": ["0/layer.tar", "1/layer.tar"] }]);
    for (name, bytes) in [
        ("config.json", config.as_slice()),
        ("0/layer.tar", below),
        ("1/layer.tar", layer),
        ("manifest.json", list.to_string().as_bytes()),
    ] {
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o644);
        header.set_size(bytes.len() as u64);
        archive.append_data(&mut header, name, bytes).unwrap();
    }
    std::fs::write(room.path("docker.tar"), archive.into_inner().unwrap()).unwrap();
}

fn compare(ours: &Result<Tree, String>, theirs: Result<Tree, String>) -> Vec<String> {
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => theirs.differences(ours),
        (Err(_), Err(_)) => vec![BOTH_REFUSE.into()],
        (Ok(_), Err(why)) => vec![format!("they refuse it: {why}")],
        (Err(why), Ok(_)) => vec![format!("we refuse it: {why}")],
    }
}

pub fn table(docker: &Docker) -> Table {
    let about = "Each of these layers lies on a small one with directories, files and links. What Kollage makes of it is \
                 compared with what others make of it; and what Docker makes of a child that Kollage built on it with \
                 what the child's last step saw.";
    let mut table = Table::new("Layers made by hand", about, &COLUMNS);
    let (room, mounts) = (Room::new(), Mounts::new());
    let cancel = Cancel::new().unwrap();
    let (below, _) = build(&room.store("made"), &mounts, &[], &[BELOW.to_owned()]);
    let mut below_tar = Vec::new();
    room.store("made").write_layer_tar(&below[0], &mut below_tar, &cancel).unwrap();
    for layer in layers(&room) {
        write(&room, &below_tar, &layer.tar);
        let store = room.store("store");
        let imported = import_oci(&store, &room.path("layout"), None, &Platform::host(), &cancel);
        let ours = imported.as_ref().map_err(ToString::to_string).map(|imported| {
            exported(&store, &imported.config.rootfs.diff_ids, &room.path(&format!("local-{}", layer.name)))
        });
        // A storage for each: what podman refuses it leaves half done.
        let storage = Storage::new(&room, &mounts, layer.name);
        let archive = room.arg("", "docker.tar");
        let by_docker = docker_loads(docker, &mounts, &archive, "kollage/handmade:1");
        let same_as_docker = matches!((&ours, &by_docker), (Ok(ours), Ok(theirs)) if ours == theirs);
        let mut found = vec![
            compare(&ours, umoci(&room, "layout:1")),
            compare(&ours, by_docker),
            compare(&ours, storage.skopeo_and_podman(&room.arg("oci:", "layout:1"), "localhost/handmade:1")),
        ];
        let child = imported.ok().filter(|_| same_as_docker).map(|imported| {
            let (layers, truth) = build(&store, &mounts, &imported.config.rootfs.diff_ids, &[CHILD.to_owned()]);
            let image = put_image(&store, layers, Codec::Gzip, json!({ "Cmd": ["x"] }));
            room.export(&store, "type=docker,dest=DIR/child.tar", &[("kollage/handmade-child:1", &image)]);
            compare(&Ok(truth), docker_loads(docker, &mounts, &room.arg("", "child.tar"), "kollage/handmade-child:1"))
        });
        found.push(child.unwrap_or_else(|| vec![NOTHING.into()]));
        table.row(layer.name, layer.title, found, &KNOWN);
        remove(&room.path(&format!("local-{}", layer.name)));
    }
    table
}

fn remove(path: &Path) {
    let _ = std::fs::remove_dir_all(path);
}
