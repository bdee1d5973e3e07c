//! A directory told a line a path: type, mode, owner, contents or target, device, attributes, time, and which other names
//! are the same file.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, SeekFrom, Stat, major, minor};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree(BTreeMap<Vec<u8>, String>);

/// Contents are looked at in pieces of this size: one that holds nothing but zeros is as good as a hole.
const PIECE: usize = 64 * 1024;

/// Longer contents are told by their digest.
const SHOWN: usize = 40;

impl Tree {
    pub fn read(root: &Path) -> Tree {
        let mut lines = BTreeMap::new();
        let mut files: HashMap<(u64, u64), Vec<Vec<u8>>> = HashMap::new();
        walk(root, &mut Vec::new(), &mut lines, &mut files);
        for names in files.values_mut().filter(|names| names.len() > 1) {
            names.sort();
            for name in names.iter() {
                let others: Vec<String> =
                    names.iter().filter(|n| *n != name).map(|n| n.escape_ascii().to_string()).collect();
                lines.get_mut(name).unwrap().push_str(&format!(" same as {}", others.join(" ")));
            }
        }
        Tree(lines)
    }

    /// What is in the directory of this name, below the directory of all contents.
    pub fn part(&self, name: &str) -> Tree {
        let (dir, inside) = (format!("c/{name}").into_bytes(), format!("c/{name}/").into_bytes());
        let wanted = |path: &Vec<u8>| *path == dir || path.starts_with(&inside);
        Tree(self.0.iter().filter(|(path, _)| wanted(path)).map(|(path, line)| (path.clone(), line.clone())).collect())
    }

    /// Lines that differ, as a patch tells them.
    pub fn differences(&self, found: &Tree) -> Vec<String> {
        let mut out = Vec::new();
        let names: std::collections::BTreeSet<&Vec<u8>> = self.0.keys().chain(found.0.keys()).collect();
        for name in names {
            let (wanted, found) = (self.0.get(name), found.0.get(name));
            if wanted != found {
                let name = name.escape_ascii();
                out.extend(wanted.map(|line| format!("-{name}: {line}")));
                out.extend(found.map(|line| format!("+{name}: {line}")));
            }
        }
        out
    }
}

fn walk(
    dir: &Path,
    path: &mut Vec<u8>,
    lines: &mut BTreeMap<Vec<u8>, String>,
    files: &mut HashMap<(u64, u64), Vec<Vec<u8>>>,
) {
    for entry in std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
        let name = entry.unwrap().file_name();
        let place = dir.join(&name);
        // An overlay lists deletions in directories that only one layer has; there is nothing behind the name.
        let Ok(stat) = rustix::fs::lstat(&place) else { continue };
        let length = path.len();
        if length > 0 {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
        lines.insert(path.clone(), line(&place, &stat));
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            walk(&place, path, lines, files);
        } else {
            files.entry((stat.st_dev, stat.st_ino)).or_default().push(path.clone());
        }
        path.truncate(length);
    }
}

fn line(place: &Path, stat: &Stat) -> String {
    let kind = FileType::from_raw_mode(stat.st_mode);
    let device = || format!("{}:{}", major(stat.st_rdev), minor(stat.st_rdev));
    let mut line = match kind {
        FileType::Directory => "dir".to_owned(),
        FileType::RegularFile => format!("file {}", contents(place, stat)),
        FileType::Symlink => {
            format!("link to {}", std::fs::read_link(place).unwrap().as_os_str().as_bytes().escape_ascii())
        }
        FileType::Fifo => "pipe".to_owned(),
        FileType::CharacterDevice => format!("char {}", device()),
        FileType::BlockDevice => format!("block {}", device()),
        other => format!("{other:?}"),
    };
    if kind != FileType::Symlink {
        line.push_str(&format!(" {:04o}", stat.st_mode & 0o7777));
    }
    line.push_str(&format!(" {}:{}", stat.st_uid, stat.st_gid));
    // A directory's time changes with what tools do in it.
    if kind != FileType::Directory {
        line.push_str(&format!(" at {}", stat.st_mtime));
    }
    for (name, value) in xattrs(place) {
        line.push_str(&format!(" {name}={}", value.escape_ascii()));
    }
    line
}

fn contents(place: &Path, stat: &Stat) -> String {
    let file = rustix::fs::open(place, OFlags::RDONLY | OFlags::NOFOLLOW, Mode::empty()).unwrap();
    let size = stat.st_size as u64;
    if size <= SHOWN as u64 {
        let mut text = Vec::new();
        std::fs::File::from(file).read_to_end(&mut text).unwrap();
        return format!("\"{}\"", text.escape_ascii());
    }
    let mut hash = Sha256::new();
    let mut buffer = vec![0u8; PIECE];
    let mut at = 0;
    while at < size {
        match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Ok(data) => at = data / PIECE as u64 * PIECE as u64,
            Err(Errno::NXIO) => break,
            Err(e) => panic!("{}: {e}", place.display()),
        }
        let mut filled = 0;
        while filled < PIECE {
            match rustix::io::pread(&file, &mut buffer[filled..], at + filled as u64).unwrap() {
                0 => break,
                n => filled += n,
            }
        }
        let piece = &buffer[..filled];
        if piece.iter().any(|byte| *byte != 0) {
            hash.update(at.to_le_bytes());
            hash.update(piece);
        }
        at += PIECE as u64;
    }
    let digest: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("of {size} bytes, {digest}")
}

/// Without what belongs to the machine or to an overlay.
fn xattrs(place: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut list = vec![0u8; 64 * 1024];
    let length = rustix::fs::llistxattr(place, list.as_mut_slice()).unwrap_or(0);
    let mut found = BTreeMap::new();
    for name in list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let text = String::from_utf8_lossy(name).into_owned();
        if text == "security.selinux" || text.starts_with("trusted.overlay.") {
            continue;
        }
        let mut value = vec![0u8; 64 * 1024];
        let length = rustix::fs::lgetxattr(place, OsStr::from_bytes(name), value.as_mut_slice()).unwrap();
        value.truncate(length);
        found.insert(text, value);
    }
    found
}
