//! What a stack of layer tars comes to, told a line a path. Written from the OCI image specification and apart from
//! Kollage's own reader, so that one does not hide the other's faults.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Read;

use crate::files::{CONTEXT, OLD};
use crate::image::{hex, sha256};

/// Contents that are told by a name: by their SHA-256.
pub type Known = HashMap<String, &'static str>;

/// Later times than this are those of the build and differ each time. 2020-01-01.
const NOW: i64 = 1_577_836_800;

/// Longer contents are told by their length and digest.
const SHOWN: usize = 400;

#[derive(Default)]
pub struct Tree {
    names: BTreeMap<Vec<u8>, usize>,
    inodes: Vec<Inode>,
    pub faults: Vec<String>,
}

struct Inode {
    kind: Kind,
    mode: u32,
    owner: (u64, u64),
    mtime: i64,
    xattrs: BTreeMap<String, Vec<u8>>,
}

enum Kind {
    Dir,
    File(Vec<u8>),
    Link(Vec<u8>),
    Char(u32, u32),
    Block(u32, u32),
    Fifo,
}

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

impl Tree {
    pub fn new() -> Tree {
        let root = Inode { kind: Kind::Dir, mode: 0o755, owner: (0, 0), mtime: OLD, xattrs: BTreeMap::new() };
        Tree { names: BTreeMap::from([(Vec::new(), 0)]), inodes: vec![root], faults: Vec::new() }
    }

    /// Puts one layer on top. Whiteouts speak of the layers below only, wherever in the tar they stand.
    pub fn apply(&mut self, layer: &[u8]) {
        let mut removed = Vec::new();
        for entry in tar::Archive::new(layer).entries().unwrap() {
            let path = clean(&entry.unwrap().path_bytes());
            let (dir, name) = split(&path);
            if name == OPAQUE {
                removed.push((dir.to_vec(), true));
            } else if let Some(name) = name.strip_prefix(WHITEOUT) {
                removed.push((join(dir, name), false));
            }
        }
        for (path, only_below) in removed {
            if !only_below && !self.names.contains_key(&path) {
                self.fault("a whiteout of what is not there", &path);
            }
            self.remove(&path, only_below);
        }
        let mut seen = BTreeSet::new();
        for entry in tar::Archive::new(layer).entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = clean(&entry.path_bytes());
            if !seen.insert(path.clone()) {
                self.fault("twice in one layer", &path);
            }
            let (dir, name) = split(&path);
            match self.names.get(dir).map(|i| &self.inodes[*i].kind) {
                Some(Kind::Dir) => {}
                Some(_) => self.fault("below what is no directory", &path),
                None => self.fault("below a directory that no layer has", &path),
            }
            if name.starts_with(WHITEOUT) {
                continue;
            }
            self.add(&mut entry, path);
        }
    }

    fn add(&mut self, entry: &mut tar::Entry<'_, &[u8]>, path: Vec<u8>) {
        let header = entry.header().clone();
        let target = entry.link_name_bytes().map(|t| t.into_owned()).unwrap_or_default();
        let device = || {
            let number = |n: std::io::Result<Option<u32>>| n.ok().flatten().unwrap_or_default();
            (number(header.device_major()), number(header.device_minor()))
        };
        let kind = match header.entry_type() {
            tar::EntryType::Directory => Kind::Dir,
            tar::EntryType::Symlink => Kind::Link(target),
            tar::EntryType::Fifo => Kind::Fifo,
            tar::EntryType::Char => Kind::Char(device().0, device().1),
            tar::EntryType::Block => Kind::Block(device().0, device().1),
            tar::EntryType::Link => {
                match self.names.get(&clean(&target)).copied() {
                    Some(inode) => {
                        self.remove(&path, false);
                        self.names.insert(path, inode);
                    }
                    None => self.fault("a hard link to what is not there", &path),
                }
                return;
            }
            tar::EntryType::Regular | tar::EntryType::Continuous | tar::EntryType::GNUSparse => {
                let mut content = Vec::new();
                entry.read_to_end(&mut content).unwrap();
                Kind::File(content)
            }
            other => {
                self.fault(&format!("an entry of type {other:?}"), &path);
                return;
            }
        };
        let mut xattrs = BTreeMap::new();
        let (mut uid, mut gid) = (header.uid().unwrap(), header.gid().unwrap());
        let mut mtime = header.mtime().map_or(0, |time| time as i64);
        for extension in entry.pax_extensions().unwrap().into_iter().flatten() {
            let extension = extension.unwrap();
            let (key, value) = (extension.key().unwrap(), extension.value_bytes());
            let number =
                || std::str::from_utf8(value).ok().and_then(|text| text.split('.').next()?.parse::<i64>().ok());
            match key {
                "uid" => uid = number().unwrap().try_into().unwrap(),
                "gid" => gid = number().unwrap().try_into().unwrap(),
                "mtime" => mtime = number().unwrap(),
                _ => {
                    if let Some(name) = key.strip_prefix("SCHILY.xattr.") {
                        xattrs.insert(name.to_owned(), value.to_vec());
                    }
                }
            }
        }
        // A directory on a directory keeps what is in it.
        let stays = matches!(kind, Kind::Dir)
            && self.names.get(&path).is_some_and(|i| matches!(self.inodes[*i].kind, Kind::Dir));
        if !stays {
            self.remove(&path, false);
        }
        let mode = header.mode().unwrap() & 0o7777;
        self.inodes.push(Inode { kind, mode, owner: (uid, gid), mtime, xattrs });
        self.names.insert(path, self.inodes.len() - 1);
    }

    fn remove(&mut self, path: &[u8], only_below: bool) {
        if !only_below && !path.is_empty() {
            self.names.remove(path);
        }
        let below = join(path, b"");
        let there = self.names.range(below.clone()..).map(|(name, _)| name).take_while(|name| name.starts_with(&below));
        let gone: Vec<_> = there.filter(|name| !name.is_empty()).cloned().collect();
        for name in gone {
            self.names.remove(&name);
        }
    }

    fn fault(&mut self, what: &str, path: &[u8]) {
        self.faults.push(format!("{}: {what}", shown(path)));
    }

    /// A line for each path.
    pub fn describe(&self, known: &Known) -> BTreeMap<String, String> {
        let mut links: HashMap<usize, Vec<&[u8]>> = HashMap::new();
        for (name, inode) in &self.names {
            links.entry(*inode).or_default().push(name);
        }
        let line = |name: &[u8], index: usize| {
            let inode = &self.inodes[index];
            let mut line = match &inode.kind {
                Kind::Dir => "dir".to_owned(),
                Kind::File(_) => "file".to_owned(),
                Kind::Link(target) => format!("link {:?}", String::from_utf8_lossy(target)),
                Kind::Char(major, minor) => format!("char {major}:{minor}"),
                Kind::Block(major, minor) => format!("block {major}:{minor}"),
                Kind::Fifo => "fifo".to_owned(),
            };
            // The mode of a link means nothing.
            if !matches!(inode.kind, Kind::Link(_)) {
                line.push_str(&format!(" {:04o}", inode.mode));
            }
            line.push_str(&format!(" {}:{}", inode.owner.0, inode.owner.1));
            if let Kind::File(content) = &inode.kind {
                line.push_str(&told(content, known));
            }
            // A directory's time is that of its last change, which is the build's more often than not.
            match inode.mtime {
                _ if matches!(inode.kind, Kind::Dir) => {}
                time if CONTEXT.contains(&time) => line.push_str(" mtime of context"),
                time if time < NOW => line.push_str(&format!(" mtime {time}")),
                _ => {}
            }
            for (key, value) in &inode.xattrs {
                line.push_str(&format!(" {key}={}", hex(value)));
            }
            let others: Vec<_> = links[&index].iter().filter(|n| **n != name).map(|n| shown(n)).collect();
            if !others.is_empty() {
                line.push_str(&format!(" same as {}", others.join(" ")));
            }
            line
        };
        self.names.iter().map(|(name, inode)| (shown(name), line(name, *inode))).collect()
    }
}

fn told(content: &[u8], known: &Known) -> String {
    let digest = hex(&sha256(content));
    match (known.get(&digest), std::str::from_utf8(content)) {
        (Some(name), _) => format!(" {name}"),
        (None, Ok(text)) if text.len() <= SHOWN && !text.contains('\0') => format!(" {text:?}"),
        _ => format!(" {} bytes sha256:{}", content.len(), &digest[..16]),
    }
}

fn clean(path: &[u8]) -> Vec<u8> {
    let parts = path.split(|b| *b == b'/').filter(|part| !part.is_empty() && *part != b".");
    parts.collect::<Vec<_>>().join(&b'/')
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}

fn shown(path: &[u8]) -> String {
    match std::str::from_utf8(path) {
        Ok(text) if !text.contains(char::is_control) => format!("/{text}"),
        _ => format!("/{}", path.escape_ascii()),
    }
}
