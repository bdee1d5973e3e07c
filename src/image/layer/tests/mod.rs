//! Layers written and unpacked together: what goes out comes back, whiteouts mean the same on both sides, hostile
//! tars stay inside.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{AtFlags, CWD, FileType, Mode, mknodat};
use tar::EntryType;

use super::diff::{Diff, write_layer};
use super::read::{EntryKind, TarReader};
use super::stack::LayerStack;
use super::sys;
use super::unpack::{unpack_layer, unpack_plain};
use super::write::{Entry, TarWriter};
use super::{Limits, merged};
use crate::event::Cancel;
use crate::image::digest::Digest;

mod any;

/// Devices, owners and overlayfs's attributes need root; CI runs as root.
fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        let _ = std::io::Write::write_all(&mut std::io::stderr(), b"needs root: skipped\n");
    }
    root
}

fn whiteout(path: &Path) {
    mknodat(CWD, path, FileType::CharacterDevice, Mode::empty(), 0).unwrap();
}

fn set_time(path: &Path, seconds: i64, nanoseconds: u32) {
    rustix::fs::utimensat(CWD, path, &sys::modified(seconds, nanoseconds), AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// As it is, nothing decided against layers below.
fn tar_of(dir: &Path) -> Vec<u8> {
    let limits = Limits::default();
    let diff = Diff { below: None, source_date_epoch: None, normalise: false, limits: &limits, cancel: None };
    let mut out = Vec::new();
    write_layer(dir, &mut out, &diff).unwrap();
    out
}

fn commit(dir: &Path, below: &[PathBuf], epoch: Option<i64>) -> Vec<u8> {
    let limits = Limits::default();
    let stack = LayerStack::new(below.iter().cloned());
    let diff = Diff { below: Some(&stack), source_date_epoch: epoch, normalise: true, limits: &limits, cancel: None };
    let mut out = Vec::new();
    write_layer(dir, &mut out, &diff).unwrap();
    out
}

fn unpack(tar: &[u8], into: &Path, below: &[PathBuf]) -> crate::error::Result<super::unpack::Unpacked> {
    std::fs::create_dir_all(into).unwrap();
    let stack = LayerStack::new(below.iter().cloned());
    unpack_layer(&mut &*tar, into, &stack, None, &Limits::default(), &Cancel::new().unwrap())
}

fn listing(tar: &[u8]) -> Vec<String> {
    let mut reader = TarReader::new(tar, Limits::default());
    let mut names = Vec::new();
    while let Some(entry) = reader.next_entry().unwrap() {
        let mut name = String::from_utf8_lossy(&entry.path).into_owned();
        if !entry.link.is_empty() {
            let arrow = if entry.kind == EntryKind::HardLink { "==" } else { "->" };
            name.push_str(&format!(" {arrow} {}", String::from_utf8_lossy(&entry.link)));
        }
        names.push(name);
    }
    names
}

/// A tar by hand: path, type, contents or link.
fn archive(entries: &[(&str, EntryType, &str)]) -> Vec<u8> {
    let none = BTreeMap::new();
    let mut tar = TarWriter::new(Vec::new());
    for (path, kind, text) in entries {
        let file = *kind == EntryType::Regular;
        let entry = Entry {
            path: path.as_bytes(),
            kind: *kind,
            mode: if *kind == EntryType::Directory { 0o755 } else { 0o644 },
            uid: 0,
            gid: 0,
            mtime: 1_000,
            size: if file { text.len() as u64 } else { 0 },
            link: if file { b"" } else { text.as_bytes() },
            device: (1, 3),
            xattrs: &none,
        };
        tar.entry(&entry).unwrap();
        if file {
            tar.data(text.as_bytes()).unwrap();
        }
    }
    tar.finish().unwrap()
}

const FILE: EntryType = EntryType::Regular;
const DIR: EntryType = EntryType::Directory;
const LINK: EntryType = EntryType::Symlink;
const HARD: EntryType = EntryType::Link;

/// What a container would see: the merged tree as text.
fn merged_tree(layers: &[PathBuf]) -> Vec<String> {
    let stack = LayerStack::new(layers.iter().cloned());
    let mut out = Vec::new();
    merged::write_merged(&stack, &LayerStack::default(), &mut out, None, &Limits::default(), &Cancel::new().unwrap())
        .unwrap();
    describe(&out)
}

fn describe(tar: &[u8]) -> Vec<String> {
    let mut reader = TarReader::new(tar, Limits::default());
    let mut lines = Vec::new();
    while let Some(entry) = reader.next_entry().unwrap() {
        let mut contents = Vec::new();
        std::io::Read::read_to_end(&mut reader, &mut contents).unwrap();
        lines.push(format!(
            "{} {:?} {:o} {}:{} {} {} {}",
            String::from_utf8_lossy(&entry.path),
            entry.kind,
            entry.mode,
            entry.uid,
            entry.gid,
            String::from_utf8_lossy(&entry.link),
            String::from_utf8_lossy(&contents),
            entry.xattrs.len(),
        ));
    }
    lines
}

#[test]
fn everything_that_a_file_can_be_comes_back() {
    if !root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let upper = dir.path().join("upper");
    std::fs::create_dir_all(upper.join("usr/bin")).unwrap();
    std::fs::write(upper.join("usr/bin/sudo"), "#!").unwrap();
    std::fs::set_permissions(upper.join("usr/bin/sudo"), PermissionsExt::from_mode(0o4755)).unwrap();
    std::fs::create_dir(upper.join("tmp")).unwrap();
    std::fs::set_permissions(upper.join("tmp"), PermissionsExt::from_mode(0o1777)).unwrap();
    std::fs::write(upper.join("usr/a"), "contents").unwrap();
    std::fs::hard_link(upper.join("usr/a"), upper.join("tmp/b")).unwrap();
    symlink("../usr/a", upper.join("tmp/link")).unwrap();
    std::fs::hard_link(upper.join("tmp/link"), upper.join("tmp/link2")).unwrap();
    mknodat(CWD, upper.join("null"), FileType::CharacterDevice, Mode::from_raw_mode(0o666), rustix::fs::makedev(1, 3))
        .unwrap();
    mknodat(CWD, upper.join("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let strange = upper.join(sys::os(b"na\xffme\n\xc3\xa4"));
    std::fs::write(&strange, "").unwrap();
    let long = upper.join("d".repeat(200)).join("e".repeat(200));
    std::fs::create_dir_all(&long).unwrap();
    std::os::unix::fs::lchown(upper.join("usr/bin/sudo"), Some(70_000), Some(3_000_000)).unwrap();
    std::fs::set_permissions(upper.join("usr/bin/sudo"), PermissionsExt::from_mode(0o4755)).unwrap();
    // cap_net_raw+ep, as setcap writes it (case 8).
    let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    sys::set_xattr(&upper.join("usr/bin/sudo"), b"security.capability", &capability).unwrap();
    sys::set_xattr(&upper.join("tmp"), b"user.note", b"with\0zero\n and = line\n").unwrap();
    sys::set_xattr(&upper.join("tmp"), b"trusted.overlay.origin", b"x").unwrap();
    set_time(&upper.join("usr/a"), -12_345, 0);
    set_time(&upper.join("pipe"), 5_000_000_000, 0);
    set_time(&upper.join("tmp"), 42, 0);

    let tar = tar_of(&upper);
    assert!(listing(&tar).iter().all(|n| n != "./" && !n.starts_with('/')));
    assert!(listing(&tar).contains(&"usr/a == tmp/b".to_owned()), "{:?}", listing(&tar));
    let back = dir.path().join("back");
    let unpacked = unpack(&tar, &back, &[]).unwrap();
    assert_eq!(unpacked.diff_id, Digest::of(&tar));
    assert_eq!(unpacked.size, tar.len() as u64);
    assert!(tar_of(&back) == tar);
    let sudo = std::fs::metadata(back.join("usr/bin/sudo")).unwrap();
    assert_eq!((sudo.uid(), sudo.gid(), sudo.mode() & 0o7777), (70_000, 3_000_000, 0o4755));
    assert_eq!(sys::xattr(&back.join("usr/bin/sudo"), b"security.capability").unwrap().unwrap(), capability);
    assert_eq!(sys::xattr(&back.join("tmp"), b"trusted.overlay.origin").unwrap(), None);
    assert_eq!(std::fs::metadata(back.join("usr/a")).unwrap().mtime(), -12_345);
    assert_eq!(std::fs::symlink_metadata(back.join("pipe")).unwrap().mtime(), 5_000_000_000);
    assert_eq!(std::fs::metadata(back.join("tmp")).unwrap().mtime(), 42);
    assert_eq!(
        std::fs::metadata(back.join("usr/a")).unwrap().ino(),
        std::fs::metadata(back.join("tmp/b")).unwrap().ino()
    );
    assert_eq!(std::fs::metadata(back.join("null")).unwrap().rdev(), rustix::fs::makedev(1, 3));
}

#[test]
fn gnu_tar_reads_what_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let upper = dir.path().join("upper");
    std::fs::create_dir_all(upper.join("x".repeat(150))).unwrap();
    std::fs::write(upper.join("x".repeat(150)).join("file"), "text").unwrap();
    let archive = dir.path().join("layer.tar");
    std::fs::write(&archive, tar_of(&upper)).unwrap();
    let Ok(out) = Command::new("tar").arg("-tf").arg(&archive).output() else { return };
    assert!(out.status.success() && out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
    let names = String::from_utf8(out.stdout).unwrap();
    assert_eq!(
        names.lines().collect::<Vec<_>>(),
        [format!("{}/", "x".repeat(150)), format!("{}/file", "x".repeat(150))]
    );
}

#[test]
fn times_are_clamped_and_whole_in_the_tar_and_in_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let upper = dir.path().join("upper");
    std::fs::create_dir_all(upper.join("d")).unwrap();
    std::fs::write(upper.join("d/old"), "").unwrap();
    std::fs::write(upper.join("d/new"), "").unwrap();
    set_time(&upper.join("d/old"), 500, 7);
    set_time(&upper.join("d/new"), 5_000, 7);
    let tar = commit(&upper, &[], Some(1_000));
    let mut reader = TarReader::new(tar.as_slice(), Limits::default());
    let mut times = Vec::new();
    while let Some(entry) = reader.next_entry().unwrap() {
        times.push((String::from_utf8(entry.path).unwrap(), entry.mtime));
    }
    assert_eq!(times, [("d/".into(), 1_000), ("d/new".into(), 1_000), ("d/old".into(), 500)]);
    for (name, time) in times {
        let metadata = std::fs::metadata(upper.join(name)).unwrap();
        assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (time, 0));
    }
    assert!(tar_of(&upper) == tar);
}

#[test]
fn marks_are_written_only_where_they_mean_something() {
    if !root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let lower = dir.path().join("lower");
    std::fs::create_dir_all(lower.join("full")).unwrap();
    std::fs::create_dir_all(lower.join("empty")).unwrap();
    std::fs::write(lower.join("full/x"), "").unwrap();
    std::fs::write(lower.join("gone"), "").unwrap();
    std::fs::write(lower.join("was-a-file"), "").unwrap();
    let upper = dir.path().join("upper");
    for name in ["full", "empty", "new", "was-a-file"] {
        std::fs::create_dir_all(upper.join(name)).unwrap();
        sys::mark_opaque(&upper.join(name)).unwrap();
    }
    whiteout(&upper.join("gone"));
    whiteout(&upper.join("never-was"));
    whiteout(&upper.join("new/inside"));
    whiteout(&upper.join("full/x"));
    let _socket = std::os::unix::net::UnixListener::bind(upper.join("socket")).unwrap();
    let tar = commit(&upper, std::slice::from_ref(&lower), None);
    assert_eq!(listing(&tar), [".wh.gone", "empty/", "full/", "full/.wh..wh..opq", "new/", "was-a-file/"]);
    // The directory now says the same by itself.
    assert!(tar_of(&upper) == tar);
    assert!(!upper.join("never-was").exists() && !upper.join("socket").exists());
    let back = dir.path().join("back");
    unpack(&tar, &back, std::slice::from_ref(&lower)).unwrap();
    assert!(tar_of(&back) == tar);
    assert_eq!(merged_tree(&[lower.clone(), upper]), merged_tree(&[lower, back]));
}

#[test]
fn a_directory_that_became_a_link_has_no_deletions_in_it() {
    if !root() {
        return;
    }
    // Case 7, as overlayfs leaves it: the link alone.
    let dir = tempfile::tempdir().unwrap();
    let lower = dir.path().join("lower");
    std::fs::create_dir_all(lower.join("foo")).unwrap();
    std::fs::write(lower.join("foo/bar"), "").unwrap();
    std::fs::write(lower.join("baz"), "").unwrap();
    let upper = dir.path().join("upper");
    std::fs::create_dir_all(&upper).unwrap();
    symlink("baz", upper.join("foo")).unwrap();
    let tar = commit(&upper, std::slice::from_ref(&lower), None);
    assert_eq!(listing(&tar), ["foo -> baz"]);
    // And as other tools wrote it, in both orders.
    for tar in [
        archive(&[("foo", LINK, "baz"), ("foo/.wh.bar", FILE, "")]),
        archive(&[("foo/.wh.bar", FILE, ""), ("foo", LINK, "baz")]),
    ] {
        let back = tempfile::tempdir().unwrap();
        unpack(&tar, back.path(), std::slice::from_ref(&lower)).unwrap();
        assert_eq!(std::fs::read_link(back.path().join("foo")).unwrap(), Path::new("baz"));
        assert!(lower.join("foo/bar").exists());
    }
}

#[test]
fn a_deletion_never_takes_what_the_layer_itself_brings() {
    if !root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let lower = dir.path().join("lower");
    std::fs::create_dir_all(lower.join("d")).unwrap();
    std::fs::write(lower.join("d/old"), "old").unwrap();
    std::fs::write(lower.join("f"), "old").unwrap();
    for (i, tar) in [
        archive(&[
            ("d/", DIR, ""),
            ("d/new", FILE, "new"),
            (".wh.d", FILE, ""),
            ("f", FILE, "new"),
            (".wh.f", FILE, ""),
        ]),
        archive(&[
            (".wh.d", FILE, ""),
            ("d/", DIR, ""),
            ("d/new", FILE, "new"),
            (".wh.f", FILE, ""),
            ("f", FILE, "new"),
        ]),
        archive(&[(".wh.d", FILE, ""), ("d/new", FILE, "new"), ("f", FILE, "new")]),
        archive(&[("d/new", FILE, "new"), ("d/.wh..wh..opq", FILE, ""), ("f", FILE, "new")]),
        archive(&[(".wh..wh..opq", FILE, ""), ("d/new", FILE, "new"), ("f", FILE, "new")]),
    ]
    .iter()
    .enumerate()
    {
        let upper = dir.path().join(format!("upper{i}"));
        unpack(tar, &upper, std::slice::from_ref(&lower)).unwrap();
        let tree = merged_tree(&[lower.clone(), upper]);
        assert_eq!(tree.len(), 3, "{i}: {tree:?}");
        assert!(tree[1].starts_with("d/new File") && tree[1].contains("new"), "{i}: {tree:?}");
        assert!(tree[2].contains(" new "), "{i}: {tree:?}");
    }
}

#[test]
fn removed_and_made_again_across_layers() {
    if !root() {
        return;
    }
    // Case 12: no stale content comes back, whichever layer it was in.
    let dir = tempfile::tempdir().unwrap();
    let layers: Vec<PathBuf> = [
        archive(&[("d/", DIR, ""), ("d/one", FILE, "1"), ("f", FILE, "1")]),
        archive(&[(".wh.d", FILE, ""), (".wh.f", FILE, "")]),
        archive(&[("d/", DIR, ""), ("d/two", FILE, "2"), ("f", FILE, "3")]),
        archive(&[("d/", DIR, ""), ("d/.wh.two", FILE, "")]),
    ]
    .iter()
    .enumerate()
    .map(|(i, tar)| {
        let path = dir.path().join(i.to_string());
        unpack(tar, &path, &[]).unwrap();
        path
    })
    .collect();
    assert_eq!(merged_tree(&layers[..2]), Vec::<String>::new());
    assert_eq!(merged_tree(&layers[..3]).len(), 3);
    let tree = merged_tree(&layers);
    assert_eq!(tree.len(), 2, "{tree:?}");
    assert!(tree[0].starts_with("d/ Directory") && tree[1].contains(" 3 "));
    let stack = LayerStack::new(layers);
    assert!(stack.lookup(Path::new("/d/one")).unwrap().is_none());
    assert!(stack.lookup(Path::new("/d/two")).unwrap().is_none());
    assert!(stack.lookup(Path::new("d")).unwrap().unwrap().is_dir());
    assert!(stack.lookup(Path::new("f/below-a-file")).unwrap().is_none());
}

#[test]
fn hard_links_find_their_file_in_the_layers_below() {
    if !root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let lower = dir.path().join("lower");
    unpack(&archive(&[("a/", DIR, ""), ("a/f", FILE, "below")]), &lower, &[]).unwrap();
    set_time(&lower.join("a"), 77, 0);
    let upper = dir.path().join("upper");
    unpack(&archive(&[("b/g", HARD, "/a/f")]), &upper, std::slice::from_ref(&lower)).unwrap();
    let (f, g) = (std::fs::metadata(upper.join("a/f")).unwrap(), std::fs::metadata(upper.join("b/g")).unwrap());
    assert_eq!(f.ino(), g.ino());
    assert_eq!(std::fs::read(upper.join("b/g")).unwrap(), b"below");
    // A parent that the tar leaves out is as the layer below has it.
    assert_eq!(std::fs::metadata(upper.join("a")).unwrap().mtime(), 77);
    for hidden in [
        archive(&[("a/.wh.f", FILE, ""), ("g", HARD, "a/f")]),
        archive(&[("a/.wh..wh..opq", FILE, ""), ("g", HARD, "a/f")]),
        archive(&[("g", HARD, "nowhere")]),
        archive(&[("g", HARD, "a")]),
        archive(&[("g", HARD, "g")]),
    ] {
        let upper = tempfile::tempdir().unwrap();
        let error = unpack(&hidden, upper.path(), std::slice::from_ref(&lower)).unwrap_err();
        assert!(error.message().contains("entry `g`"), "{error}");
    }
}

#[test]
fn hostile_entries_are_refused_by_name_and_nothing_is_written_outside() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("victim"), "safe").unwrap();
    let target = outside.path().display().to_string();
    let victim = outside.path().join("victim").display().to_string();
    for (tar, named) in [
        (archive(&[("../up", FILE, "x")]), "../up"),
        (archive(&[("a/../../up", FILE, "x")]), "a/../../up"),
        (archive(&[("l", LINK, &target), ("l/victim", FILE, "x")]), "l/victim"),
        (archive(&[("l", LINK, &target), ("l/sub/", DIR, "")]), "l/sub/"),
        (archive(&[("l", LINK, &target), ("l/.wh.victim", FILE, ""), ("l/new", FILE, "x")]), "l/new"),
        (archive(&[("h", HARD, "../../etc/passwd")]), "h"),
        (archive(&[("h", HARD, &victim)]), "h"),
        (archive(&[("l", LINK, &target), ("h", HARD, "l/victim")]), "h"),
        (archive(&[(".wh...", FILE, "")]), ".wh..."),
        (archive(&[(".wh..", FILE, "")]), ".wh.."),
        (archive(&[(".wh.", FILE, "")]), ".wh."),
        (archive(&[(".wh.d/x", FILE, "")]), ".wh.d/x"),
        (archive(&[("f", FILE, ""), ("f/x", FILE, "")]), "f/x"),
        (archive(&[("", FILE, "")]), "``"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let into = dir.path().join("into");
        let error = unpack(&tar, &into, &[]).unwrap_err();
        assert!(error.message().contains(named), "{named}: {error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(std::fs::read(outside.path().join("victim")).unwrap(), b"safe");
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
    }
}

#[test]
fn writing_to_a_link_replaces_the_link() {
    if !root() {
        return;
    }
    let outside = tempfile::tempdir().unwrap();
    let victim = outside.path().join("victim");
    std::fs::write(&victim, "safe").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let tar = archive(&[("/l", LINK, victim.to_str().unwrap()), ("l", FILE, "new"), ("d", LINK, "/"), ("d/", DIR, "")]);
    unpack(&tar, dir.path(), &[]).unwrap();
    assert_eq!(std::fs::read(&victim).unwrap(), b"safe");
    assert_eq!(std::fs::read(dir.path().join("l")).unwrap(), b"new");
    assert!(std::fs::symlink_metadata(dir.path().join("d")).unwrap().is_dir());
}

#[test]
fn the_last_of_several_entries_wins() {
    if !root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let tar = archive(&[
        ("x", FILE, "1"),
        ("x", FILE, "22"),
        ("d/deep/f", FILE, ""),
        ("d", FILE, "file now"),
        ("e", FILE, ""),
        ("e/", DIR, ""),
        ("e/f", FILE, ""),
    ]);
    unpack(&tar, dir.path(), &[]).unwrap();
    assert_eq!(std::fs::read(dir.path().join("x")).unwrap(), b"22");
    assert_eq!(std::fs::read(dir.path().join("d")).unwrap(), b"file now");
    assert!(dir.path().join("e/f").exists());
}

#[test]
fn bombs_are_stopped() {
    let limits = Limits { max_entries: 3, max_file_size: 10, max_total_size: 15, ..Limits::default() };
    let cancel = Cancel::new().unwrap();
    for (tar, named) in [
        (archive(&[("a/", DIR, ""), ("b/", DIR, ""), ("c/", DIR, ""), ("d/", DIR, "")]), "`d/`"),
        (archive(&[("a", FILE, "12345678901")]), "`a`"),
        (archive(&[("a", FILE, "1234567890"), ("b", FILE, "1234567890")]), "`b`"),
        (archive(&[(&"x/".repeat(300), DIR, "")]), "nested"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let error = unpack_plain(&mut tar.as_slice(), dir.path(), &limits, &cancel).unwrap_err();
        assert!(error.to_string().contains(named), "{error}");
    }
}

#[test]
fn a_huge_sparse_file_is_named_at_once() {
    // Case 9.
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("var/log")).unwrap();
    let file = std::fs::File::create(dir.path().join("var/log/lastlog")).unwrap();
    file.set_len(200 << 30).unwrap();
    let limits = Limits::default();
    let diff = Diff { below: None, source_date_epoch: None, normalise: false, limits: &limits, cancel: None };
    let error = write_layer(dir.path(), std::io::sink(), &diff).unwrap_err();
    assert!(error.message().contains("/var/log/lastlog"), "{error}");
    assert!(error.hint_text().is_some());
    // Below the limit a hole is as good as zeros.
    file.set_len(1 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"data", 500_000).unwrap();
    let tar = tar_of(dir.path());
    let contents = &tar[3 * 512..3 * 512 + (1 << 20)];
    assert!(contents == std::fs::read(dir.path().join("var/log/lastlog")).unwrap());
}

#[test]
fn names_that_mark_deletions_and_redirects_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(".wh.x"), "").unwrap();
    let limits = Limits::default();
    let diff = Diff { below: None, source_date_epoch: None, normalise: false, limits: &limits, cancel: None };
    let error = write_layer(dir.path(), std::io::sink(), &diff).unwrap_err();
    assert!(error.message().contains("/.wh.x"), "{error}");
    if root() {
        std::fs::remove_file(dir.path().join(".wh.x")).unwrap();
        std::fs::create_dir(dir.path().join("moved")).unwrap();
        sys::set_xattr(&dir.path().join("moved"), b"trusted.overlay.redirect", b"/etc").unwrap();
        let error = write_layer(dir.path(), std::io::sink(), &diff).unwrap_err();
        assert!(error.to_string().contains("redirect"), "{error}");
        // And one that comes in a tar is dropped.
        let xattrs = BTreeMap::from([(b"trusted.overlay.redirect".to_vec(), b"/etc".to_vec())]);
        let mut tar = TarWriter::new(Vec::new());
        let entry = Entry {
            path: b"d/",
            kind: DIR,
            mode: 0o755,
            uid: 0,
            gid: 0,
            mtime: 0,
            size: 0,
            link: b"",
            device: (0, 0),
            xattrs: &xattrs,
        };
        tar.entry(&entry).unwrap();
        let tar = tar.finish().unwrap();
        let back = tempfile::tempdir().unwrap();
        unpack(&tar, back.path(), &[]).unwrap();
        assert!(sys::xattrs(&back.path().join("d")).unwrap().is_empty());
    }
}

#[test]
fn every_compression_is_told_by_content_and_damage_is_noticed() {
    let plain = archive(&[("dir/", DIR, ""), ("dir/file", FILE, "some text")]);
    let mut gzip = Vec::new();
    // Two members, cut anywhere.
    for part in [&plain[..700], &plain[700..]] {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(part).unwrap();
        gzip.extend(encoder.finish().unwrap());
    }
    let zstd = zstd::encode_all(plain.as_slice(), 3).unwrap();
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 6);
    xz.write_all(&plain).unwrap();
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::best());
    bzip2.write_all(&plain).unwrap();
    let forms = [plain.clone(), gzip, zstd, xz.finish().unwrap(), bzip2.finish().unwrap()];
    let (limits, cancel) = (Limits::default(), Cancel::new().unwrap());
    for bytes in &forms {
        let dir = tempfile::tempdir().unwrap();
        if root() {
            let unpacked = unpack_plain(&mut bytes.as_slice(), dir.path(), &limits, &cancel).unwrap();
            assert_eq!(unpacked.diff_id, Digest::of(&plain));
            assert_eq!(std::fs::read(dir.path().join("dir/file")).unwrap(), b"some text");
        }
        let dir = tempfile::tempdir().unwrap();
        let cut = &bytes[..bytes.len() * 3 / 5];
        let stack = LayerStack::default();
        let expected = Digest::of(&plain);
        assert!(unpack_layer(&mut &*cut, dir.path(), &stack, Some(&expected), &limits, &cancel).is_err());
    }
    let dir = tempfile::tempdir().unwrap();
    let error = unpack_layer(
        &mut plain.as_slice(),
        dir.path(),
        &LayerStack::default(),
        Some(&Digest::of(b"")),
        &limits,
        &cancel,
    );
    if root() {
        assert!(error.unwrap_err().to_string().contains(&Digest::of(&plain).to_string()));
    }
}

#[test]
fn a_plain_tar_may_have_names_that_mark_deletions_in_layers() {
    if !root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let tar = archive(&[(".wh.x", FILE, "text"), ("./y", FILE, "")]);
    unpack_plain(&mut tar.as_slice(), dir.path(), &Limits::default(), &Cancel::new().unwrap()).unwrap();
    assert_eq!(std::fs::read(dir.path().join(".wh.x")).unwrap(), b"text");
    assert!(dir.path().join("y").exists());
}

#[test]
fn odd_trees_are_removed_whole_and_links_are_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let outside = dir.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("kept"), "").unwrap();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    symlink(&outside, tree.join("link")).unwrap();
    std::fs::create_dir_all(tree.join("locked/in")).unwrap();
    std::fs::set_permissions(tree.join("locked"), PermissionsExt::from_mode(0o000)).unwrap();
    // Deeper than a path can name.
    let mut fd = sys::open_dir(&tree).unwrap();
    for _ in 0..3000 {
        rustix::fs::mkdirat(&fd, "deep", Mode::RWXU).unwrap();
        fd = sys::open_dir_at(&fd, b"deep").unwrap();
    }
    drop(fd);
    sys::remove_tree(&tree).unwrap();
    assert!(!tree.exists());
    assert!(outside.join("kept").exists());
    sys::remove_tree(&tree).unwrap();
}

#[test]
fn device_names_and_order_are_bytes() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["b", "a.txt", "a", "B", "\u{e4}"] {
        std::fs::write(dir.path().join(name), "").unwrap();
    }
    let names: Vec<Vec<u8>> = listing(&tar_of(dir.path())).iter().map(|n| n.as_bytes().to_vec()).collect();
    let mut sorted = names.clone();
    sorted.sort();
    assert_eq!(names, sorted);
    assert!(std::fs::symlink_metadata("/dev/null").unwrap().file_type().is_char_device());
    assert_eq!(Path::new("x").as_os_str().as_bytes(), b"x");
}
