//! Any edits, step by step: the upper directory that overlayfs would leave becomes a tar, the tar is unpacked over the
//! layers before it and also applied to a tree in memory, and all of them show what the edits came to.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path as FsPath, PathBuf};

use kollage::event::Cancel;
use kollage::image::layer::Limits;
use kollage::image::layer::diff::{Diff, write_layer};
use kollage::image::layer::merged::write_merged;
use kollage::image::layer::read::{EntryKind, TarReader};
use kollage::image::layer::stack::LayerStack;
use kollage::image::layer::unpack::unpack_layer;
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};

use super::Place;
use super::bytes::Bytes;
use super::model::{Inode, Kind, Path, Tree, name, parent};

/// Few names, so that edits meet; one that is no text, and one that no header holds.
const PATHS: [&[u8]; 14] = [
    b"a",
    b"b",
    b"a/a",
    b"a/b",
    b"b/a",
    b"b/b",
    b"a/a/a",
    b"a/b/a",
    b"b/a/b",
    b"c\xff",
    b"a/\xff",
    b"wh.a",
    b"a/nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn",
    b"b/a/.w",
];

const TIMES: [i64; 6] = [0, -1, -2_000_000_000, 5_000_000_000, 9_000_000_000, 1_700_000_000];

const USER: &str = "user.a";
const TRUSTED: &str = "trusted.b";
const CAPABILITY: &str = "security.capability";

/// One more than the longest run of steps.
const STEPS: usize = 5;

pub fn layer_diff(data: &[u8]) {
    let mut bytes = Bytes(data);
    let place = Place::new();
    let cancel = Cancel::new().expect("an eventfd");
    let base = place.dir("base");
    let (mut built, mut unpacked) = (vec![base.clone()], vec![base]);
    let mut tree = Tree::default();
    let mut applied = Tree::default();
    for step in 1..STEPS {
        if bytes.is_empty() {
            break;
        }
        let before = tree.clone();
        tree.step = step;
        for _ in 0..bytes.below(12) + 1 {
            edit(&mut tree, &mut bytes);
        }
        let upper = place.dir(&format!("upper{step}"));
        let noise = bytes.next();
        Overlay { before: &before, after: &tree, noise, links: BTreeMap::new() }.directory(b"", &upper, true);

        let tar = tar_of(&upper, Some(&LayerStack::new(built.clone())), &cancel);
        assert_eq!(tar_of(&upper, None, &cancel), tar, "the directory isn't what its tar says");
        let back = place.dir(&format!("back{step}"));
        let below = LayerStack::new(unpacked.clone());
        let limits = Limits::default();
        unpack_layer(&mut tar.as_slice(), &back, &below, None, &limits, &cancel).expect("our own layer");
        assert_eq!(tar_of(&back, None, &cancel), tar, "unpacked and written again it is another tar");
        built.push(upper);
        unpacked.push(back);

        let expected = tree.describe();
        assert_eq!(merged(&built, &cancel), expected, "as it was built");
        assert_eq!(merged(&unpacked, &cancel), expected, "unpacked");
        applied = apply(&applied, &tar);
        assert_eq!(applied.describe(), expected, "applied in memory");
    }
}

fn edit(tree: &mut Tree, bytes: &mut Bytes<'_>) {
    let kind = bytes.next();
    // The first names twice as often: the others are in them.
    let path = PATHS[bytes.below(PATHS.len() + 8) % PATHS.len()];
    match kind % 20 {
        0..=2 => {
            let content = [bytes.next()].repeat(bytes.below(4));
            if tree.get(path).is_some_and(|inode| matches!(inode.kind, Kind::File(_))) {
                if let Some(inode) = tree.change(path) {
                    inode.kind = Kind::File(content);
                }
            } else if !tree.is_dir(path) {
                tree.make(path, Kind::File(content), 0o644);
            }
        }
        3..=5 => drop(tree.make(path, Kind::Dir, 0o755)),
        6 | 7 => tree.remove(path),
        8 if !tree.is_dir(path) => {
            let target = bytes.pick(&PATHS).to_vec();
            tree.make(path, Kind::Link(target), 0o777);
        }
        9 => tree.hard_link(path, bytes.pick(&PATHS)),
        10 => tree.rename(path, bytes.pick(&PATHS)),
        11 => {
            let mode = u32::from(bytes.next()) << 4 | u32::from(bytes.next() & 15);
            if let Some(inode) = tree.change(path)
                && !matches!(inode.kind, Kind::Link(_))
            {
                inode.mode = mode & 0o7777;
            }
        }
        12 => {
            let owner = (u32::from(bytes.next()) * 70_000, u32::from(bytes.next()));
            if let Some(inode) = tree.change(path) {
                inode.owner = owner;
            }
        }
        13 => {
            let time = TIMES[bytes.below(TIMES.len())];
            if let Some(inode) = tree.change(path) {
                inode.mtime = time;
            }
        }
        14 => {
            let (name, value) = match bytes.below(3) {
                0 => (USER, vec![bytes.next(); bytes.below(300)]),
                1 => (TRUSTED, vec![bytes.next(); bytes.below(3)]),
                // cap_net_raw+ep
                _ => (CAPABILITY, vec![1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            };
            if let Some(inode) = tree.change(path)
                && (matches!(inode.kind, Kind::File(_)) || (inode.kind == Kind::Dir && name != CAPABILITY))
            {
                inode.xattrs.insert(name, value);
            }
        }
        // What layers are most often wrong about: a directory that is made again, and what it has then.
        16 | 17 => {
            tree.remove(path);
            if tree.make(path, Kind::Dir, 0o755) && bytes.next() & 1 == 1 {
                let child = [path, b"/a"].concat();
                tree.make(&child, if bytes.next() & 1 == 1 { Kind::Dir } else { Kind::File(Vec::new()) }, 0o755);
            }
        }
        // Many files at once, for others to delete.
        18 => {
            for path in PATHS {
                if tree.get(path).is_none() {
                    let kind = if path.len() < 4 { Kind::Dir } else { Kind::File(b"x".to_vec()) };
                    tree.make(path, kind, 0o755);
                }
            }
        }
        15 if !tree.is_dir(path) => {
            let kind = if bytes.next() & 1 == 0 { Kind::Fifo } else { Kind::Char(1, u32::from(bytes.next())) };
            tree.make(path, kind, 0o600);
        }
        _ => {}
    }
}

/// Lays out what overlayfs would have in its upper directory after a step.
struct Overlay<'a> {
    before: &'a Tree,
    after: &'a Tree,
    /// What overlayfs leaves although it means nothing: bit 0 marks all new directories as opaque, bit 1 keeps
    /// deletions of what was never below, bit 2 copies up directories in which nothing changed.
    noise: u8,
    links: BTreeMap<usize, PathBuf>,
}

impl Overlay<'_> {
    /// `merged`: what is below shows in this directory.
    fn directory(&mut self, path: &[u8], upper: &FsPath, merged: bool) {
        if merged {
            let gone = self.before.children(path).into_iter().filter(|child| self.after.get(child).is_none());
            let spurious = PATHS.iter().filter(|other| self.noise & 2 != 0 && parent(other) == path);
            let spurious = spurious
                .map(|other| other.to_vec())
                .filter(|other| self.before.get(other).is_none() && self.after.get(other).is_none());
            for child in gone.chain(spurious) {
                whiteout(&at(upper, &child));
            }
        }
        for child in self.after.children(path) {
            let index = self.after.names[&child];
            let inode = &self.after.inodes[index];
            let place = at(upper, &child);
            let new = inode.step == self.after.step;
            if inode.kind != Kind::Dir {
                if !new {
                    continue;
                }
                match self.links.get(&index) {
                    Some(first) => fs::hard_link(first, &place).expect("a hard link"),
                    None => {
                        make(&place, inode);
                        self.links.insert(index, place);
                    }
                }
                continue;
            }
            let old = self.before.get(&child).filter(|_| merged);
            let shows = old.is_some_and(|old| old.kind == Kind::Dir && old.identity == inode.identity);
            fs::create_dir(&place).expect("a directory");
            self.directory(&child, &place, shows);
            let empty = fs::read_dir(&place).expect("a directory").next().is_none();
            if shows && !new && empty && self.noise & 4 == 0 {
                fs::remove_dir(&place).expect("a directory that is empty");
                continue;
            }
            if !shows && (old.is_some_and(|old| old.kind == Kind::Dir) || self.noise & 1 != 0) {
                set_xattr(&place, "trusted.overlay.opaque", b"y");
            }
            metadata(&place, inode);
        }
    }
}

fn at(upper: &FsPath, path: &[u8]) -> PathBuf {
    upper.join(OsStr::from_bytes(name(path)))
}

fn whiteout(place: &FsPath) {
    rustix::fs::mknodat(CWD, place, FileType::CharacterDevice, Mode::empty(), 0).expect("a deletion");
}

fn set_xattr(place: &FsPath, name: &str, value: &[u8]) {
    rustix::fs::lsetxattr(place, name, value, XattrFlags::empty()).expect("an attribute");
}

fn make(place: &FsPath, inode: &Inode) {
    let node = |kind, device| rustix::fs::mknodat(CWD, place, kind, Mode::RUSR, device).expect("a node");
    match &inode.kind {
        Kind::Dir => fs::create_dir(place).expect("a directory"),
        Kind::File(content) => fs::write(place, content).expect("a file"),
        Kind::Link(target) => std::os::unix::fs::symlink(OsStr::from_bytes(target), place).expect("a link"),
        Kind::Fifo => node(FileType::Fifo, 0),
        Kind::Char(major, minor) => node(FileType::CharacterDevice, rustix::fs::makedev(*major, *minor)),
    }
    metadata(place, inode);
}

fn metadata(place: &FsPath, inode: &Inode) {
    let (uid, gid) = (Uid::from_raw(inode.owner.0), Gid::from_raw(inode.owner.1));
    rustix::fs::chownat(CWD, place, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).expect("an owner");
    if !matches!(inode.kind, Kind::Link(_)) {
        rustix::fs::chmodat(CWD, place, Mode::from_raw_mode(inode.mode), AtFlags::empty()).expect("a mode");
    }
    for (name, value) in &inode.xattrs {
        set_xattr(place, name, value);
    }
    // The fraction is not kept.
    let time = Timespec { tv_sec: inode.mtime, tv_nsec: 500 };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, place, &times, AtFlags::SYMLINK_NOFOLLOW).expect("a time");
}

fn tar_of(dir: &FsPath, below: Option<&LayerStack>, cancel: &Cancel) -> Vec<u8> {
    let limits = Limits::default();
    let (normalise, cancel) = (below.is_some(), Some(cancel));
    let diff = Diff { below, source_date_epoch: None, normalise, limits: &limits, cancel };
    let mut tar = Vec::new();
    write_layer(dir, &mut tar, &diff).expect("a layer");
    tar
}

fn merged(layers: &[PathBuf], cancel: &Cancel) -> Vec<String> {
    let mut tar = Vec::new();
    let stack = LayerStack::new(layers.iter().cloned());
    write_merged(&stack, &LayerStack::default(), &mut tar, None, &Limits::default(), cancel).expect("the merged tree");
    apply(&Tree::default(), &tar).describe()
}

/// A layer's tar put on a tree: deletions first, which mean what is below. No mark may be needless.
fn apply(below: &Tree, tar: &[u8]) -> Tree {
    let mut tree = below.clone();
    tree.step += 1;
    for entry in entries(tar) {
        let (dir, name) = (parent(&entry.path), name(&entry.path));
        if name == b".wh..wh..opq" {
            assert!(!tree.below(dir).is_empty(), "an opaque marker that hides nothing: {}", dir.escape_ascii());
            for name in tree.below(dir) {
                tree.names.remove(&name);
            }
        } else if let Some(name) = name.strip_prefix(b".wh.") {
            let path = if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() };
            assert!(tree.get(&path).is_some(), "a deletion of what is not there: {}", path.escape_ascii());
            tree.remove(&path);
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    for entry in entries(tar).into_iter().filter(|entry| !name(&entry.path).starts_with(b".wh.")) {
        let path = &entry.path;
        assert!(seen.insert(path.clone()), "twice: {}", path.escape_ascii());
        assert!(tree.is_dir(parent(path)), "in no directory: {}", path.escape_ascii());
        if let Some(target) = entry.hard_link {
            let index = tree.names[&target];
            tree.remove(path);
            tree.names.insert(path.clone(), index);
            continue;
        }
        if !(entry.inode.kind == Kind::Dir && tree.is_dir(path)) {
            tree.remove(path);
        }
        tree.inodes.push(entry.inode);
        tree.names.insert(path.clone(), tree.inodes.len() - 1);
    }
    tree
}

struct Entry {
    path: Path,
    inode: Inode,
    hard_link: Option<Path>,
}

fn entries(tar: &[u8]) -> Vec<Entry> {
    let mut reader = TarReader::new(tar, Limits::default());
    let mut out = Vec::new();
    while let Some(entry) = reader.next_entry().expect("our own tar") {
        let mut content = Vec::new();
        reader.read_to_end(&mut content).expect("the contents");
        let trimmed = |path: &[u8]| path.strip_suffix(b"/").unwrap_or(path).to_vec();
        let kind = match entry.kind {
            EntryKind::Directory => Kind::Dir,
            EntryKind::File | EntryKind::HardLink => Kind::File(content),
            EntryKind::Symlink => Kind::Link(entry.link.clone()),
            EntryKind::Fifo => Kind::Fifo,
            EntryKind::Char => Kind::Char(entry.device.0, entry.device.1),
            other => panic!("an entry of the type {other:?}"),
        };
        let xattrs = entry.xattrs.iter().map(|(name, value)| match name.as_slice() {
            b"user.a" => (USER, value.clone()),
            b"trusted.b" => (TRUSTED, value.clone()),
            b"security.capability" => (CAPABILITY, value.clone()),
            other => panic!("an attribute {}", other.escape_ascii()),
        });
        let owner = |id: u64| u32::try_from(id).expect("a number that was an owner");
        assert_eq!(entry.mtime_nanoseconds, 0);
        let inode = Inode {
            kind,
            mode: entry.mode,
            owner: (owner(entry.uid), owner(entry.gid)),
            mtime: entry.mtime,
            xattrs: xattrs.collect(),
            step: 0,
            identity: 0,
        };
        let hard_link = (entry.kind == EntryKind::HardLink).then(|| trimmed(&entry.link));
        out.push(Entry { path: trimmed(&entry.path), inode, hard_link });
    }
    out
}
