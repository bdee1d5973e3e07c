//! Single cases: what only a registry, or a very large file, shows.

use std::process::{Command, Stdio};
use std::sync::Arc;

use kollage::event::Silent;
use kollage::image::config::Platform;
use kollage::image::layer::Limits;
use kollage::image::layer::read::TarReader;
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
    assert_eq!(imported.config.rootfs.diff_ids, image.diff_ids);
    let read = exported(&again, &image.diff_ids, &room.path("local"));
    assert_eq!(truth.differences(&read), [""; 0]);
}

/// Where the octal field of a header ends: GNU tar and Kollage read what the size is, and go on with the next file.
#[test]
fn a_file_larger_than_eight_gigabytes_is_told_by_its_size() {
    if !ready(&["tar"]) {
        return;
    }
    let (room, mounts) = (Room::new(), Mounts::new());
    let store = room.store("store");
    let step = "truncate -s 9G huge; echo 1 >small";
    let (layers, _) = build(&store, &mounts, &[], &[step.to_owned()]);
    let mut tar = Command::new("tar");
    let mut tar = tar.arg("-tvf-").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = tar.stdin.take().unwrap();
    store.write_layer_tar(&layers[0], &mut input, &room.cancel).unwrap();
    drop(input);
    let output = tar.wait_with_output().unwrap();
    let listed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && listed.contains(" 9663676416 ") && listed.contains("small"), "{listed}");

    let (mut reader, mut writer) = std::io::pipe().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Nobody reads to the end.
            let _ = store.write_layer_tar(&layers[0], &mut writer, &room.cancel);
        });
        let entry = TarReader::new(&mut reader, Limits::default()).next_entry().unwrap().unwrap();
        assert_eq!((entry.path.as_slice(), entry.size), (b"huge".as_slice(), 9 << 30));
        drop(reader);
    });
}
