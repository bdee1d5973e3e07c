//! The store as a whole: what is committed comes back, what dies is swept, what is damaged is found.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::AtFlags;
use serde_json::{Value, json};

use super::*;
use crate::error::Kind;
use crate::event::Cancel;
use crate::image::config::{ImageConfig, Platform};
use crate::image::digest::{Key, KeyHasher};
use crate::image::layer::decompress::decompress;
use crate::image::manifest::{Descriptor, Manifest, OCI_CONFIG};

fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        let _ = std::io::Write::write_all(&mut std::io::stderr(), b"needs root: skipped\n");
    }
    root
}

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("store")).unwrap();
    (dir, store)
}

fn cancel() -> Cancel {
    Cancel::new().unwrap()
}

fn key(text: &str) -> Key {
    KeyHasher::new(text).finish()
}

fn upper(work: &WorkDir, files: &[(&str, &str)]) -> PathBuf {
    let upper = work.path().join(format!("upper-{}", tmp::unique()));
    std::fs::create_dir(&upper).unwrap();
    for (name, text) in files {
        let path = upper.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        rustix::fs::utimensat(CWD, &path, &sys::modified(1000, 5), AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
    for (name, _) in files {
        for dir in Path::new(name).ancestors().skip(1).filter(|p| !p.as_os_str().is_empty()) {
            rustix::fs::utimensat(CWD, upper.join(dir), &sys::modified(1000, 0), AtFlags::SYMLINK_NOFOLLOW).unwrap();
        }
    }
    upper
}

fn commit(store: &Store, files: &[(&str, &str)], below: &[Digest]) -> Layer {
    let work = store.work_dir().unwrap();
    store.commit_upper(&upper(&work, files), below, None).unwrap()
}

fn tar_of(store: &Store, diff_id: &Digest) -> Vec<u8> {
    let mut tar = Vec::new();
    store.write_layer_tar(diff_id, &mut tar, &cancel()).unwrap();
    tar
}

/// A whole image under a name, as a build leaves it.
fn image(store: &Store, name: &str, layers: &[&Layer]) -> Digest {
    let mut config = ImageConfig::new(&Platform::host());
    config.rootfs.diff_ids = layers.iter().map(|l| l.diff_id.clone()).collect();
    let bytes = serde_json::to_vec(&config).unwrap();
    let digest = store.put_blob(&bytes).unwrap();
    let descriptor = |media_type: &str, digest: Digest, size: u64| Descriptor {
        media_type: media_type.into(),
        digest,
        size,
        platform: None,
        annotations: BTreeMap::new(),
    };
    let manifest = Manifest {
        schema_version: 2,
        media_type: None,
        config: descriptor(OCI_CONFIG, digest, bytes.len() as u64),
        layers: layers.iter().map(|l| store.compressed(&l.diff_id, Codec::Gzip, &cancel()).unwrap()).collect(),
        annotations: BTreeMap::new(),
    };
    let manifest = store.put_blob(&serde_json::to_vec(&manifest).unwrap()).unwrap();
    store.set_ref(name, &manifest).unwrap();
    manifest
}

/// A tar without an entry for `d`, and with a second name for a file that it doesn't have.
fn incomplete() -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(3);
    header.set_mode(0o644);
    builder.append_data(&mut header, "d/new", &b"new"[..]).unwrap();
    header.set_size(0);
    header.set_entry_type(tar::EntryType::Link);
    builder.append_link(&mut header, "second", "first").unwrap();
    builder.into_inner().unwrap()
}

#[test]
fn a_layer_that_borrows_from_below_borrows_from_what_is_below() {
    if !root() {
        return;
    }
    let (_dir, store) = store();
    let parents = [(0o700, "one"), (0o755, "two")].map(|(mode, text)| {
        let work = store.work_dir().unwrap();
        let upper = upper(&work, &[("d/old", "old"), ("first", text)]);
        rustix::fs::chmodat(CWD, upper.join("d"), rustix::fs::Mode::from_raw_mode(mode), AtFlags::empty()).unwrap();
        store.commit_upper(&upper, &[], None).unwrap()
    });
    let tar = incomplete();
    let diff_id = Digest::of(&tar);
    let mut layers = Vec::new();
    for parent in &parents {
        let below = [parent.diff_id.clone()];
        assert_eq!(store.layer_over(&diff_id, &below), None);
        layers.push(store.unpack_layer(&mut tar.as_slice(), &below, Some(&diff_id), &cancel()).unwrap());
        // Again, and nothing is unpacked.
        store.unpack_layer(&mut &b""[..], &below, Some(&diff_id), &cancel()).unwrap();
    }
    assert_eq!(layers[0], layers[1]);
    assert!(store.layers(&[parents[0].diff_id.clone(), parents[1].diff_id.clone(), diff_id.clone()]).is_none());
    for (parent, (mode, text)) in parents.iter().zip([(0o700, "one"), (0o755, "two")]) {
        let stack = store.stack(&[parent.diff_id.clone(), diff_id.clone()]).unwrap();
        let found = stack.lookup(Path::new("d")).unwrap().unwrap();
        assert_eq!(found.stat.st_mode & 0o7777, mode);
        let found = stack.lookup(Path::new("second")).unwrap().unwrap();
        assert_eq!(std::fs::read_to_string(found.path).unwrap(), text);
    }
    assert_eq!(tar_of(&store, &diff_id), tar);
    assert_eq!(store.verify(false, &cancel()).unwrap(), []);

    // What is damaged over one is made again, and the other stays.
    let (_, fs) = store.layer_over(&diff_id, &[parents[1].diff_id.clone()]).unwrap();
    std::fs::write(fs.join("second"), "damaged").unwrap();
    assert_eq!(store.verify(true, &cancel()).unwrap().len(), 1);
    assert!(store.layer_over(&diff_id, &[parents[0].diff_id.clone()]).is_some());
    let below = [parents[1].diff_id.clone()];
    assert_eq!(store.layer_over(&diff_id, &below), None);
    store.unpack_layer(&mut tar.as_slice(), &below, Some(&diff_id), &cancel()).unwrap();
    assert!(store.layer_over(&diff_id, &below).is_some());
    // Both go together.
    store.prune(&PruneOptions { all: true, ..PruneOptions::default() }, &cancel()).unwrap();
    assert_eq!(store.layer(&diff_id), None);
}

#[test]
fn an_upper_directory_becomes_a_layer_once() {
    let (_dir, store) = store();
    let first = commit(&store, &[("etc/a", "1"), ("b", "2")], &[]);
    let inode = std::fs::metadata(store.layer_fs(&first.diff_id).join("b")).unwrap().ino();
    let second = commit(&store, &[("b", "2"), ("etc/a", "1")], &[]);
    assert_eq!(first, second);
    assert_eq!(std::fs::metadata(store.layer_fs(&first.diff_id).join("b")).unwrap().ino(), inode);
    assert_eq!(first.entries, 3);
    assert_eq!(Digest::of(&tar_of(&store, &first.diff_id)), first.diff_id);
    assert_eq!(tar_of(&store, &first.diff_id).len() as u64, first.size);
    // Nothing but the end of an archive.
    let empty = commit(&store, &[], &[]);
    assert_eq!((empty.size, empty.entries), (1024, 0));
    assert_eq!(empty.diff_id.hex(), "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef");
    let gone = store.work_dir().unwrap();
    let missing = Digest::of(b"no such layer");
    assert!(store.commit_upper(&upper(&gone, &[]), &[missing], None).is_err());
}

#[test]
fn a_layer_is_the_same_whether_it_was_built_or_unpacked() {
    if !root() {
        return;
    }
    let (_dir, built) = store();
    let (_dir2, pulled) = store();
    let layer = commit(&built, &[("d/x", "text"), ("y", "z")], &[]);
    for codec in [Codec::Gzip, Codec::Zstd, Codec::None] {
        let blob = built.compressed(&layer.diff_id, codec, &cancel()).unwrap();
        assert_eq!(built.compressed(&layer.diff_id, codec, &cancel()).unwrap(), blob);
        assert_eq!(blob.media_type, codec.media_type());
        let bytes = built.read_blob(&blob.digest).unwrap();
        assert_eq!(bytes.len() as u64, blob.size);
        let mut tar = Vec::new();
        std::io::Read::read_to_end(&mut decompress(bytes.as_slice()).unwrap().1, &mut tar).unwrap();
        assert_eq!(Digest::of(&tar), layer.diff_id);
        let back = pulled.unpack_layer(&mut bytes.as_slice(), &[], Some(&layer.diff_id), &cancel()).unwrap();
        assert_eq!(back, layer);
    }
    // It came as gzip first, and needs no compressing.
    let blob = built.compressed(&layer.diff_id, Codec::Gzip, &cancel()).unwrap();
    assert!(pulled.has_blob(&blob.digest));
    for name in ["d", "d/x", "y", ""] {
        let of = |store: &Store| {
            let m = std::fs::metadata(store.layer_fs(&layer.diff_id).join(name)).unwrap();
            (m.mode(), m.uid(), m.mtime(), m.mtime_nsec())
        };
        assert_eq!(of(&built), of(&pulled), "{name}");
    }
    assert_eq!(pulled.verify(false, &cancel()).unwrap(), []);
}

#[test]
fn a_foreign_tar_is_given_back_byte_by_byte() {
    if !root() {
        return;
    }
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(4);
    header.set_mode(0o644);
    header.set_mtime(7);
    header.set_username("somebody").unwrap();
    builder.append_data(&mut header, "late/zz", &b"text"[..]).unwrap();
    builder.append_data(&mut header, "early", &b"text"[..]).unwrap();
    let foreign = builder.into_inner().unwrap();
    let (_dir, store) = store();
    let layer = store.unpack_layer(&mut foreign.as_slice(), &[], None, &cancel()).unwrap();
    assert_eq!(layer.diff_id, Digest::of(&foreign));
    assert_eq!(tar_of(&store, &layer.diff_id), foreign);
    let gzip = store.compressed(&layer.diff_id, Codec::Gzip, &cancel()).unwrap();
    let mut tar = Vec::new();
    let bytes = store.read_blob(&gzip.digest).unwrap();
    std::io::Read::read_to_end(&mut decompress(bytes.as_slice()).unwrap().1, &mut tar).unwrap();
    assert_eq!(tar, foreign);
    // Its blob is needed as long as the layer is, although no manifest names it.
    image(&store, "a:1", &[&layer]);
    store.prune(&PruneOptions::default(), &cancel()).unwrap();
    assert_eq!(tar_of(&store, &layer.diff_id), foreign);
    // The same files as a root file system are a layer in our own form.
    let own = store.import_rootfs(&mut foreign.as_slice(), Some(5), &cancel()).unwrap();
    assert_ne!(own.diff_id, layer.diff_id);
    assert_eq!(Digest::of(&tar_of(&store, &own.diff_id)), own.diff_id);
    assert_eq!(std::fs::metadata(store.layer_fs(&own.diff_id).join("early")).unwrap().mtime(), 5);
    let wrong = store.unpack_layer(&mut foreign.as_slice(), &[], Some(&Digest::of(b"other")), &cancel());
    assert!(wrong.unwrap_err().to_string().contains(&layer.diff_id.to_string()));
    assert_eq!(store.verify(false, &cancel()).unwrap(), []);
}

#[test]
fn a_blob_that_is_there_becomes_a_layer_and_its_compressed_form() {
    if !root() {
        return;
    }
    let (_dir, one) = store();
    let (_dir2, two) = store();
    let layer = commit(&one, &[("f", "text")], &[]);
    let blob = one.compressed(&layer.diff_id, Codec::Gzip, &cancel()).unwrap();
    let work = two.work_dir().unwrap();
    let file = work.path().join("download");
    std::fs::copy(one.blob_path(&blob.digest), &file).unwrap();
    two.adopt_blob(&file, &blob.digest).unwrap();
    let docker = Descriptor { media_type: crate::image::manifest::DOCKER_LAYER_GZIP.into(), ..blob.clone() };
    assert_eq!(two.unpack_blob(&docker, &[], Some(&layer.diff_id), &cancel()).unwrap(), layer);
    assert_eq!(two.compressed(&layer.diff_id, Codec::Gzip, &cancel()).unwrap(), blob);
    let mut bad = two.blob_writer().unwrap();
    std::io::Write::write_all(&mut bad, b"x").unwrap();
    assert!(bad.finish(Some(&blob.digest)).is_err());
}

#[test]
fn builders_at_the_same_time_end_with_one_layer_and_share_the_compressing() {
    let (dir, store) = store();
    let other = Store::open(&dir.path().join("store")).unwrap();
    let text = "line\n".repeat(100_000);
    let results: Vec<(Layer, Descriptor)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6)
            .map(|i| {
                let store = if i % 2 == 0 { store.clone() } else { other.clone() };
                let text = &text;
                scope.spawn(move || {
                    let layer = commit(&store, &[("f", text)], &[]);
                    let blob = store.compressed(&layer.diff_id, Codec::Gzip, &cancel()).unwrap();
                    (layer, blob)
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(results.iter().all(|r| *r == results[0]));
    assert_eq!(std::fs::read_dir(dir.path().join("store/layers")).unwrap().count(), 1);
    assert_eq!(std::fs::read_dir(dir.path().join("store/blobs/sha256")).unwrap().count(), 1);
    assert_eq!(store.verify(false, &cancel()).unwrap(), []);
}

#[test]
fn a_key_is_locked_until_its_lock_is_dropped() {
    let (dir, store) = store();
    let other = Store::open(&dir.path().join("store")).unwrap();
    let lock = store.lock_key(&key("a"), &cancel()).unwrap();
    let _different = other.lock_key(&key("b"), &cancel()).unwrap();
    let stop = cancel();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| other.lock_key(&key("a"), &stop).map(drop));
        std::thread::sleep(Duration::from_millis(30));
        assert!(!waiting.is_finished());
        stop.cancel();
        assert_eq!(waiting.join().unwrap().unwrap_err().kind(), Kind::Interrupted);
    });
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| other.lock_key(&key("a"), &cancel()).map(drop));
        drop(lock);
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn steps_and_results_are_believed_as_long_as_their_layers_are_there() {
    let (_dir, store) = store();
    let layer = commit(&store, &[("f", "1")], &[]);
    let step = StepRecord { layer: Some(layer.diff_id.clone()) };
    store.put_step(&key("s"), &step).unwrap();
    store.put_step(&key("none"), &StepRecord { layer: None }).unwrap();
    let result = json!({ "config": { "rootfs": { "type": "layers", "diff_ids": [layer.diff_id] } }, "size": 1 });
    store.put_result(&key("r"), &result).unwrap();
    assert_eq!(store.step(&key("s")), Some(step));
    assert_eq!(store.step(&key("none")), Some(StepRecord { layer: None }));
    assert_eq!(store.step(&key("unknown")), None);
    assert_eq!(store.result::<Value>(&key("r")), Some(result));
    assert_eq!(store.result::<Vec<u8>>(&key("r")), None);
    std::fs::remove_dir_all(store.layer_dir(&layer.diff_id)).unwrap();
    assert_eq!(store.step(&key("s")), None);
    assert_eq!(store.result::<Value>(&key("r")), None);
}

/// Makes a store look as if the machine had been started again since.
fn reboot(store: Store) -> Store {
    let path = store.root().to_path_buf();
    drop(store);
    let mut pending = vec![path.clone()];
    while let Some(dir) = pending.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap().path();
            if entry.is_dir() && !entry.ends_with("fs") {
                pending.push(entry);
            } else if entry.extension().is_some_and(|e| e == "json") {
                let mut value: Value = serde_json::from_slice(&std::fs::read(&entry).unwrap()).unwrap_or_default();
                if value.get("boot").is_some() {
                    value["boot"] = "another".into();
                    std::fs::write(&entry, value.to_string()).unwrap();
                }
            }
        }
    }
    Store::open(&path).unwrap()
}

#[test]
fn after_a_crash_of_the_machine_only_what_was_settled_is_believed() {
    let (_dir, store) = store();
    let settled = commit(&store, &[("f", "1")], &[]);
    store.put_step(&key("settled"), &StepRecord { layer: Some(settled.diff_id.clone()) }).unwrap();
    store.settle().unwrap();
    store.settle().unwrap();
    let lost = commit(&store, &[("f", "2")], &[]);
    store.put_step(&key("lost"), &StepRecord { layer: Some(lost.diff_id.clone()) }).unwrap();
    // An empty file is what a crash leaves of a new one.
    std::fs::write(store.step_path(&key("empty")), "").unwrap();
    let store = reboot(store);
    assert!(store.step(&key("settled")).is_some());
    assert_eq!(store.layer(&settled.diff_id), Some(settled));
    assert!(store.step(&key("lost")).is_none());
    assert!(store.layer(&lost.diff_id).is_none());
    assert!(store.step(&key("empty")).is_none());
    let found = store.verify(false, &cancel()).unwrap();
    assert_eq!(found.iter().filter(|f| f.damage == Damage::Unfinished).count(), 2, "{found:?}");
    // It is made again in the place of what is not believed.
    assert_eq!(commit(&store, &[("f", "2")], &[]), lost);
    assert_eq!(store.layer(&lost.diff_id), Some(lost));
}

#[test]
fn what_a_dead_owner_left_is_swept_and_what_a_living_one_has_is_not() {
    let (dir, store) = store();
    let tmp = dir.path().join("store/tmp");
    let boot = tmp::boot_id();
    // Gone with a boot, gone with its process, and one whose lock nobody holds.
    for name in ["12-34-0-00000000".to_owned(), format!("4194999-1-0-{}", &boot[..8]), "odd".to_owned()] {
        std::fs::create_dir_all(tmp.join(&name).join("work-1/upper")).unwrap();
        symlink("/", tmp.join(&name).join("work-1/root")).unwrap();
    }
    std::fs::create_dir_all(tmp.join("dead/work-2")).unwrap();
    File::create(tmp.join("dead.lock")).unwrap();
    let work = store.work_dir().unwrap();
    std::fs::write(work.path().join("kept"), "").unwrap();
    let other = Store::open(&dir.path().join("store")).unwrap();
    let names: Vec<String> =
        std::fs::read_dir(&tmp).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(names.len(), 4, "{names:?}");
    assert!(work.path().join("kept").exists());
    drop((work, store, other));
    assert_eq!(std::fs::read_dir(&tmp).unwrap().count(), 0);
}

#[test]
fn names_of_images_are_safe_file_names() {
    let (dir, store) = store();
    let manifest = store.put_blob(b"{}").unwrap();
    let names = ["kollage/base:1", "../../../etc/x", "a/b", "a%2Fb", ".", "..", "", "ä", &"long/".repeat(100)];
    for name in names {
        store.set_ref(name, &manifest).unwrap();
        assert_eq!(store.get_ref(name).unwrap().name, name);
    }
    assert_eq!(store.refs().unwrap().len(), names.len());
    assert_eq!(std::fs::read_dir(dir.path().join("store/refs")).unwrap().count(), names.len());
    assert!(store.remove_ref("a/b").unwrap() && !store.remove_ref("a/b").unwrap());
    assert!(store.get_ref("a/b").is_none() && store.get_ref("a%2Fb").is_some());
    assert!(store.set_ref("x", &Digest::of(b"nothing")).is_err());
    let one = store.cache_dir("/root/.cache/pip").unwrap();
    assert_eq!(one, store.cache_dir("/root/.cache/pip").unwrap());
    assert_ne!(one, store.cache_dir("root/.cache/pip").unwrap());
    assert!(one.parent().unwrap().ends_with("cache"));
    // RFC 3339 in UTC.
    let updated = store.refs().unwrap()[0].updated.clone();
    assert!(updated.ends_with('Z') && !updated.contains('.'), "{updated}");
}

#[test]
fn damage_is_named_and_repaired() {
    let (_dir, store) = store();
    let good = commit(&store, &[("good", "1")], &[]);
    let bad = commit(&store, &[("bad", "1")], &[]);
    let gone = commit(&store, &[("gone", "1")], &[]);
    image(&store, "kollage/good:1", &[&good]);
    image(&store, "kollage/bad:1", &[&good, &bad]);
    store.put_step(&key("good"), &StepRecord { layer: Some(good.diff_id.clone()) }).unwrap();
    store.put_step(&key("bad"), &StepRecord { layer: Some(bad.diff_id.clone()) }).unwrap();
    store.put_step(&key("gone"), &StepRecord { layer: Some(gone.diff_id.clone()) }).unwrap();
    assert_eq!(store.verify(false, &cancel()).unwrap(), []);
    let blob = store.compressed(&bad.diff_id, Codec::Gzip, &cancel()).unwrap();
    std::fs::write(store.layer_fs(&bad.diff_id).join("bad"), "2").unwrap();
    std::fs::write(store.blob_path(&blob.digest), "junk").unwrap();
    std::fs::remove_dir_all(store.layer_dir(&gone.diff_id)).unwrap();
    std::fs::write(store.root().join("blobs/sha256/notes.txt"), "").unwrap();
    std::fs::write(store.root().join("results/half.json"), "{").unwrap();
    let found = store.verify(false, &cancel()).unwrap();
    let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
    for (damage, what) in [
        (Damage::Changed, format!("layer {}", bad.diff_id)),
        (Damage::Changed, format!("blob {}", blob.digest)),
        (Damage::Stray, "`notes.txt` in blobs".into()),
        (Damage::Dangling, format!("step {}", key("gone"))),
        (Damage::Unreadable, "result half".into()),
    ] {
        assert!(found.iter().any(|f| f.damage == damage && f.what == what), "{what}: {texts:#?}");
    }
    assert_eq!(found.len(), 5, "{texts:#?}");
    // A damaged layer is never given out.
    assert!(store.write_layer_tar(&bad.diff_id, &mut std::io::sink(), &cancel()).is_err());
    let repaired = store.verify(true, &cancel()).unwrap();
    assert!(repaired.iter().all(|f| f.repaired), "{repaired:#?}");
    assert!(repaired.iter().any(|f| f.what == "image kollage/bad:1"));
    assert_eq!(store.verify(false, &cancel()).unwrap(), []);
    assert_eq!(store.refs().unwrap().len(), 1);
    assert!(store.step(&key("good")).is_some() && store.layer(&good.diff_id).is_some());
    assert!(store.layer(&bad.diff_id).is_none());
}

#[test]
fn prune_removes_what_no_image_needs() {
    let (dir, store) = store();
    let kept = commit(&store, &[("kept", "1")], &[]);
    let unused = commit(&store, &[("unused", &"x".repeat(100_000))], &[]);
    image(&store, "kollage/kept:1", &[&kept]);
    store.compressed(&unused.diff_id, Codec::Gzip, &cancel()).unwrap();
    for (name, layer) in [("kept", &kept), ("unused", &unused)] {
        store.put_step(&key(name), &StepRecord { layer: Some(layer.diff_id.clone()) }).unwrap();
        store.put_result(&key(name), &json!({ "diff_ids": [layer.diff_id] })).unwrap();
    }
    std::fs::write(store.cache_dir("pip").unwrap().join("wheel"), "").unwrap();

    // A build, here or elsewhere.
    let work = store.work_dir().unwrap();
    assert!(store.prune(&PruneOptions::default(), &cancel()).unwrap_err().message().contains("a build is running"));
    drop(work);
    let other = Store::open(&dir.path().join("store")).unwrap();
    let error = store.prune(&PruneOptions::default(), &cancel()).unwrap_err();
    assert_eq!(error.kind(), Kind::Unusable);
    let dry = store.prune(&PruneOptions { dry_run: true, ..Default::default() }, &cancel()).unwrap();
    drop(other);

    let recent = PruneOptions { unused_for: Some(Duration::from_secs(3600)), ..Default::default() };
    assert_eq!(store.prune(&recent, &cancel()).unwrap(), PruneReport::default());
    let report = store.prune(&PruneOptions::default(), &cancel()).unwrap();
    assert_eq!(report, dry);
    assert_eq!((report.layers, report.blobs, report.steps, report.results, report.caches), (1, 1, 1, 1, 0));
    assert!(report.freed > 100_000);
    assert!(store.layer(&kept.diff_id).is_some() && store.layer(&unused.diff_id).is_none());
    assert!(store.step(&key("kept")).is_some() && store.result::<Value>(&key("kept")).is_some());
    assert_eq!(store.verify(false, &cancel()).unwrap(), []);
    assert_eq!(store.prune(&PruneOptions::default(), &cancel()).unwrap(), PruneReport::default());

    let all = PruneOptions { all: true, caches: true, ..Default::default() };
    let report = store.prune(&all, &cancel()).unwrap();
    assert_eq!((report.images, report.layers, report.caches), (vec!["kollage/kept:1".to_owned()], 1, 1));
    for directory in ["layers", "blobs/sha256", "steps", "results", "refs", "cache", "locks"] {
        assert_eq!(store.files(directory).unwrap(), Vec::<PathBuf>::new());
    }
}

#[test]
fn images_are_listed_with_their_sizes_also_damaged_ones() {
    let (_dir, store) = store();
    let layer = commit(&store, &[("f", "1")], &[]);
    image(&store, "a:1", &[&layer]);
    let broken = store.put_blob(b"not a manifest").unwrap();
    store.set_ref("b:1", &broken).unwrap();
    let images = store.images().unwrap();
    assert_eq!((images[0].name.as_str(), images[0].layers.len(), images[0].size), ("a:1", 1, layer.size));
    assert_eq!((&images[0].layers[0].diff_id, images[0].layers[0].size), (&layer.diff_id, Some(layer.size)));
    assert!(images[0].layers[0].compressed_size > 0);
    assert_eq!(images[0].platform, Some(Platform::host()));
    assert!(images[0].compressed_size > 0 && images[0].problem.is_none());
    assert!(images[1].problem.as_ref().unwrap().contains("no manifest"));
    let usage = store.disk_use().unwrap();
    assert!(usage.layers > 0 && usage.blobs > 0 && usage.caches == 0 && usage.total() > usage.layers + usage.blobs);
}

#[test]
fn a_store_that_cannot_be_used_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let newer = dir.path().join("newer");
    Store::open(&newer).unwrap();
    std::fs::write(newer.join("version"), "2\n").unwrap();
    let error = Store::open(&newer).unwrap_err();
    assert_eq!(error.kind(), Kind::Unusable);
    assert!(error.to_string().contains("`2`"), "{error}");

    let home = dir.path().join("home");
    std::fs::create_dir(&home).unwrap();
    std::fs::write(home.join("thesis.tex"), "").unwrap();
    let error = Store::open(&home).unwrap_err();
    assert!(error.to_string().contains("thesis.tex"), "{error}");
    assert_eq!(std::fs::read_dir(&home).unwrap().count(), 1);

    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert_eq!(Store::open(&file.join("store")).unwrap_err().kind(), Kind::Unusable);
    let error = Store::open(Path::new("/proc/kollage")).unwrap_err();
    assert_eq!(error.kind(), Kind::Unusable);
    assert!(error.message().contains("/proc/kollage"), "{error}");
}

#[test]
fn many_open_a_new_store_at_the_same_time() {
    for _ in 0..6 {
        let dir = tempfile::tempdir().unwrap();
        let path = Arc::new(dir.path().join("store"));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let path = path.clone();
                std::thread::spawn(move || Store::open(&path).map(|s| s.put_blob(b"x")))
            })
            .collect();
        for thread in threads {
            thread.join().unwrap().unwrap().unwrap();
        }
        assert!(std::fs::read_dir(&*path).unwrap().all(|e| !e.unwrap().file_name().to_string_lossy().starts_with('.')));
    }
}

#[test]
fn the_file_system_is_looked_at_before_a_build() {
    if root() {
        let (_dir, store) = store();
        store.check_filesystem().unwrap();
    }
}

#[test]
fn only_the_latest_runs_are_kept() {
    let (_dir, store) = store();
    for i in 0..103 {
        let name = format!("20260101T000000Z-{i:03}");
        std::fs::create_dir(store.logs_dir().join(&name)).unwrap();
        std::fs::write(store.logs_dir().join(&name).join("a.log"), "log").unwrap();
        store.put_run(&name, b"{}").unwrap();
    }
    let runs = store.runs().unwrap();
    assert_eq!(
        (runs.len(), runs[0].as_str(), runs[99].as_str()),
        (100, "20260101T000000Z-003", "20260101T000000Z-102")
    );
    assert_eq!(store.files("logs").unwrap().len(), 100);
    // Of a run that was killed there are only logs.
    std::fs::create_dir(store.logs_dir().join("20250101T000000Z-9")).unwrap();
    let recent = PruneOptions { unused_for: Some(Duration::from_secs(3600)), ..Default::default() };
    assert_eq!(store.prune(&recent, &cancel()).unwrap().runs, 0);
    let report = store.prune(&PruneOptions::default(), &cancel()).unwrap();
    assert!(report.runs == 91 && report.freed > 0, "{report:?}");
    assert_eq!((store.runs().unwrap().len(), store.files("logs").unwrap().len()), (10, 10));
    assert_eq!(store.read_run("20260101T000000Z-102").unwrap(), b"{}");
    assert_eq!(store.prune(&PruneOptions { all: true, ..Default::default() }, &cancel()).unwrap().runs, 10);
    assert!(store.all_runs().unwrap().is_empty());
}
