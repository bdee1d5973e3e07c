//! What a build may write is limited, and holes cost nothing.

use std::os::unix::fs::MetadataExt as _;

use crate::lab::{Lab, is_root};
use kollage::engine::embedded::Options;
use kollage::engine::embedded::run::RunRequest;
use kollage::error::Kind;

const MB: u64 = 1 << 20;

fn limited(bytes: u64) -> Lab {
    Lab::with(Options { disk_limit: Some(bytes), ..Options::default() })
}

#[test]
fn a_step_that_writes_too_much_is_stopped() {
    if !is_root("a_step_that_writes_too_much_is_stopped") {
        return;
    }
    let lab = limited(32 * MB);
    for script in [
        "dd if=/dev/zero of=/big bs=1M",
        // It is stopped, not asked.
        "trap '' TERM; (dd if=/dev/zero of=/big bs=1M &) ; sleep 1000",
        "mkdir /d; i=0; while true; do dd if=/dev/zero of=/d/$i bs=64k count=16 2>/dev/null; i=$((i + 1)); done",
        // Quick enough to be done before anybody looks.
        "dd if=/dev/zero of=/big bs=1M count=40",
    ] {
        let error = lab.build(&format!("RUN {script}")).unwrap_err();
        assert_eq!(error.kind(), Kind::Failed, "{script}: {error}");
        let text = format!("{error} {:?} {:?}", error.causes(), error.hint_text());
        assert!(text.contains("may write 34 MB") && text.contains("--disk-limit"), "{script}: {text}");
        // Nothing is left of what it wrote.
        let work = lab.engine.store().root().join("tmp");
        let left: u64 = walk(&work);
        assert!(left < MB, "{script}: {left} bytes are left");
    }
    // What was thrown away counts no more.
    lab.build("RUN dd if=/dev/zero of=/big bs=1M count=20").unwrap();
    let error = lab.build("RUN dd if=/dev/zero of=/other bs=1M count=20").unwrap_err();
    assert!(
        format!("{:?}", error.causes()).contains("may write 34 MB") || error.message().contains("may write"),
        "{error}"
    );
}

fn walk(dir: &std::path::Path) -> u64 {
    let mut total = 0;
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let meta = std::fs::symlink_metadata(entry.path()).unwrap();
        total += meta.blocks() * 512 + if meta.is_dir() { walk(&entry.path()) } else { 0 };
    }
    total
}

#[test]
fn copies_and_commands_in_images_are_limited_too() {
    if !is_root("copies_and_commands_in_images_are_limited_too") {
        return;
    }
    let lab = limited(16 * MB);
    lab.file("big", vec![1; 20 << 20]);
    let error = lab.build("COPY big /").unwrap_err();
    assert!(format!("{error} {:?}", error.causes()).contains("may write 17 MB"), "{error}");
    let built = lab.build("RUN true").unwrap();
    let args = ["sh", "-c", "dd if=/dev/zero of=/big bs=1M 2>/dev/null"].map(str::to_owned).to_vec();
    let request = RunRequest { args, ..RunRequest::default() };
    let error = lab.engine.run(&built, &request, None, &lab.cancel).unwrap_err();
    assert!(error.message().contains("may write 17 MB"), "{error}");
}

#[test]
fn holes_cost_nothing_and_stay_holes() {
    if !is_root("holes_cost_nothing_and_stay_holes") {
        return;
    }
    let lab = limited(32 * MB);
    // As large as that on the disk of everybody who pulls it: refused in no time, and nothing was written.
    let error = lab.build("RUN mkdir /var/log && truncate -s 200G /var/log/lastlog").unwrap_err();
    let text = format!("{error} {:?} {:?}", error.causes(), error.hint_text());
    assert!(
        text.contains("`/var/log/lastlog` is larger than a layer may hold") && text.contains("truncate it"),
        "{text}"
    );
    let built = lab.build("RUN truncate -s 300M /hole && echo end >> /hole").unwrap();
    let id = built.config.rootfs.diff_ids.last().unwrap();
    let sizes = |lab: &Lab| {
        let meta = std::fs::metadata(lab.engine.store().layer_fs(id).join("hole")).unwrap();
        (meta.len(), meta.blocks() * 512 < MB)
    };
    assert_eq!(sizes(&lab), (300 * MB + 4, true));
    assert_eq!(lab.ask(&built, "/bin/busybox tail -c 4 /hole"), "end");
    // A tar has zeros there; unpacked, they are a hole again.
    let mut tar = Vec::new();
    lab.engine.store().write_layer_tar(id, &mut tar, &lab.cancel).unwrap();
    let other = Lab::new();
    other.engine.store().unpack_layer(&mut &*tar, &[], Some(id), &other.cancel).unwrap();
    assert_eq!(sizes(&other), (300 * MB + 4, true));
}
