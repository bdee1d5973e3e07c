//! Single cases: what only a registry, or a very large file, shows.

use std::process::Command;
use std::sync::Arc;

use kollage::event::{Cancel, Silent};
use kollage::image::config::Platform;
use kollage::image::store::Codec;
use kollage::registry::{Caller, Options, pull};
use serde_json::json;

use crate::contents::{build, exported};
use crate::mounts::Mounts;
use crate::room::{Room, put_image};
use crate::tools::{Registry, ready, run};

#[test]
fn case_8_a_capability_is_there_after_push_and_pull() {
    if !ready(&["docker-registry", "skopeo", "setcap"]) {
        return;
    }
    let (room, mounts, registry) = (Room::new(), Mounts::new(), Registry::start(false));
    let store = room.store("store");
    let steps = ["mkdir p; cp /bin/true p/p; setcap cap_net_raw+ep p/p", "chmod 710 p/p; setcap cap_net_raw+ep p/p"];
    let (layers, truth) = build(&store, &mounts, &[], &steps.map(String::from));
    let text = format!("{truth:?}");
    assert!(text.contains("security.capability="), "{text}");
    let image = put_image(&store, layers, Codec::Gzip, json!({}));
    room.export(&store, "type=oci,dest=DIR/out", &[("team/app:1", &image)]);
    let to = format!("docker://{}/team/app:1", registry.address());
    run("skopeo", &["copy", "-q", "--dest-tls-verify=false", &room.arg("oci:", "out:1"), &to]);

    let manifest = run("skopeo", &["inspect", "--raw", "--tls-verify=false", &to]);
    assert!(manifest.contains(image.config.hex()), "{manifest}");

    let reference = format!("{}/team/app:1", registry.address()).parse().unwrap();
    let caller = Caller { node: &Arc::from("app"), sink: &Silent, cancel: &room.cancel };
    let again = room.store("again");
    let imported = pull(&again, &reference, &Platform::host(), &Options::default(), &caller).unwrap();
    let read = exported(&again, &imported.config.rootfs.diff_ids, &room.path("local"));
    assert_eq!(truth.differences(&read), [""; 0]);
}

/// Where the octal field of a header ends. GNU tar says what it reads; Kollage reads it back with its hole.
#[test]
fn a_file_larger_than_eight_gigabytes_is_told_by_its_size() {
    if !ready(&["tar", "gzip"]) {
        return;
    }
    let (room, mounts) = (Room::new(), Mounts::new());
    let store = room.store("store");
    let step = "truncate -s 9G huge; echo end | dd of=huge bs=1M seek=9000 conv=notrunc 2>/dev/null; echo 1 >small";
    let (layers, truth) = build(&store, &mounts, &[], &[step.to_owned()]);
    let blob = store.compressed(&layers[0], Codec::Gzip, &Cancel::new().unwrap()).unwrap();
    let path = store.blob_path(&blob.digest);
    let listed = run("tar", &["-tvzf", path.to_str().unwrap()]);
    assert!(listed.contains(" 9663676416 ") && listed.contains("small"), "{listed}");

    let image = put_image(&store, layers.clone(), Codec::Gzip, json!({}));
    room.export(&store, "type=oci,dest=DIR/out", &[("huge:1", &image)]);
    let again = room.store("again");
    let imported = room.import_oci(&again, "out", Some("1"));
    assert_eq!(imported.config.rootfs.diff_ids, image.diff_ids);
    let read = exported(&again, &imported.config.rootfs.diff_ids, &room.path("local"));
    assert_eq!(truth.differences(&read), [""; 0]);
    let used = Command::new("du").args(["-sk"]).arg(room.path("again/layers")).output().unwrap();
    let used = String::from_utf8(used.stdout).unwrap();
    let used: u64 = used.split_whitespace().next().unwrap().parse().unwrap();
    assert!(used < 100 << 10, "what was a hole takes {used} KiB");
}
