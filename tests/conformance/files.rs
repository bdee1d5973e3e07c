//! Files that git cannot hold, declared in TOML, and written to a directory or to a tar.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::ops::RangeInclusive;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};
use serde::Deserialize;

/// The modification time of everything that does not say another one: 2001-09-09.
pub const OLD: i64 = 1_000_000_000;

/// Those of the files in a context are in here.
pub const CONTEXT: RangeInclusive<i64> = OLD + 1..=OLD + (1 << 24);

/// One file. What is not said is that of a plain empty file of root's.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSpec {
    pub path: String,
    /// A file with this text.
    pub text: Option<String>,
    /// A file of this many bytes, all of them zero and none of them on the disk.
    pub hole: Option<u64>,
    /// A symbolic link to there.
    pub link: Option<String>,
    /// A hard link to the file of that path, which stands before this one.
    pub hard: Option<String>,
    /// `dir`, `fifo`, `socket`, `char MAJOR:MINOR`, `block MAJOR:MINOR`.
    pub kind: Option<String>,
    /// An archive of `entry`, or the text in the same compression: `tar`, `gz`, `bz2`, `xz`, `zst`.
    pub archive: Option<String>,
    /// Octal, 0644 for files and 0755 for directories when it is not said.
    pub mode: Option<String>,
    /// `UID:GID`.
    pub owner: Option<String>,
    pub mtime: Option<i64>,
    /// security.capability, in hexadecimal.
    pub capability: Option<String>,
    #[serde(default)]
    pub xattr: BTreeMap<String, String>,
    #[serde(default)]
    pub entry: Vec<FileSpec>,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind<'a> {
    File,
    Dir,
    Link(&'a str),
    Hard(&'a str),
    Fifo,
    Socket,
    Char(u32, u32),
    Block(u32, u32),
}

impl FileSpec {
    fn kind(&self) -> Kind<'_> {
        if let Some(target) = &self.link {
            return Kind::Link(target);
        }
        if let Some(target) = &self.hard {
            return Kind::Hard(target);
        }
        let text = self.kind.as_deref().unwrap_or("file");
        let device = |numbers: &str| {
            let (major, minor) = numbers.split_once(':').unwrap();
            (major.parse().unwrap(), minor.parse().unwrap())
        };
        match text.split_once(' ').unwrap_or((text, "")) {
            ("file", _) => Kind::File,
            ("dir", _) => Kind::Dir,
            ("fifo", _) => Kind::Fifo,
            ("socket", _) => Kind::Socket,
            ("char", numbers) => Kind::Char(device(numbers).0, device(numbers).1),
            ("block", numbers) => Kind::Block(device(numbers).0, device(numbers).1),
            _ => panic!("{}: unknown kind `{text}`", self.path),
        }
    }

    fn mode(&self) -> u32 {
        match &self.mode {
            Some(text) => u32::from_str_radix(text, 8).unwrap(),
            None => match self.kind() {
                Kind::Dir => 0o755,
                Kind::Link(_) => 0o777,
                _ => 0o644,
            },
        }
    }

    fn owner(&self) -> (u32, u32) {
        let Some(text) = &self.owner else { return (0, 0) };
        let (uid, gid) = text.split_once(':').unwrap();
        (uid.parse().unwrap(), gid.parse().unwrap())
    }

    fn content(&self) -> Vec<u8> {
        match (&self.archive, &self.text) {
            (Some(format), None) => compress(&tar_of(&self.entry), format),
            (Some(format), Some(text)) => compress(text.as_bytes(), format),
            (None, Some(text)) => text.clone().into_bytes(),
            (None, None) => Vec::new(),
        }
    }

    fn xattrs(&self) -> Vec<(String, Vec<u8>)> {
        let mut all: Vec<_> = self.xattr.iter().map(|(k, v)| (k.clone(), v.clone().into_bytes())).collect();
        all.extend(self.capability.iter().map(|hex| ("security.capability".to_owned(), from_hex(hex))));
        all
    }
}

pub fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

fn compress(tar: &[u8], format: &str) -> Vec<u8> {
    let out = Vec::new();
    match format {
        "tar" => tar.to_vec(),
        "gz" => {
            let mut writer = flate2::write::GzEncoder::new(out, flate2::Compression::fast());
            writer.write_all(tar).unwrap();
            writer.finish().unwrap()
        }
        "bz2" => {
            let mut writer = bzip2::write::BzEncoder::new(out, bzip2::Compression::fast());
            writer.write_all(tar).unwrap();
            writer.finish().unwrap()
        }
        "xz" => {
            let mut writer = liblzma::write::XzEncoder::new(out, 1);
            writer.write_all(tar).unwrap();
            writer.finish().unwrap()
        }
        "zst" => zstd::encode_all(tar, 1).unwrap(),
        _ => panic!("unknown form of archive `{format}`"),
    }
}

/// A tar of these files, in their order, with the directories that are above them and not in the list.
pub fn tar_of(files: &[FileSpec]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let listed: BTreeSet<&str> = files.iter().map(|f| f.path.trim_end_matches('/')).collect();
    let mut made = BTreeSet::new();
    for file in files {
        let above = file.path.match_indices('/').map(|(at, _)| &file.path[..at]);
        for dir in above.filter(|dir| !dir.is_empty() && !dir.starts_with("..") && !listed.contains(dir)) {
            if made.insert(dir) {
                let dir = FileSpec { path: dir.into(), kind: Some("dir".into()), ..FileSpec::default() };
                append(&mut builder, &dir);
            }
        }
        append(&mut builder, file);
    }
    builder.into_inner().unwrap()
}

fn append(builder: &mut tar::Builder<Vec<u8>>, file: &FileSpec) {
    let xattrs = file.xattrs();
    let keys: Vec<_> = xattrs.iter().map(|(name, value)| (format!("SCHILY.xattr.{name}"), value)).collect();
    if !keys.is_empty() {
        builder.append_pax_extensions(keys.iter().map(|(name, value)| (name.as_str(), value.as_slice()))).unwrap();
    }
    let mut header = tar::Header::new_ustar();
    header.set_mode(file.mode());
    header.set_uid(file.owner().0.into());
    header.set_gid(file.owner().1.into());
    header.set_mtime(file.mtime.unwrap_or(OLD).try_into().unwrap());
    let (kind, data) = match file.kind() {
        Kind::File => (tar::EntryType::Regular, file.content()),
        Kind::Dir => (tar::EntryType::Directory, Vec::new()),
        Kind::Link(target) => {
            header.set_link_name(target).unwrap();
            (tar::EntryType::Symlink, Vec::new())
        }
        Kind::Hard(target) => {
            header.set_link_name(target).unwrap();
            (tar::EntryType::Link, Vec::new())
        }
        Kind::Fifo => (tar::EntryType::Fifo, Vec::new()),
        Kind::Char(major, minor) => {
            header.set_device_major(major).unwrap();
            header.set_device_minor(minor).unwrap();
            (tar::EntryType::Char, Vec::new())
        }
        Kind::Block(major, minor) => {
            header.set_device_major(major).unwrap();
            header.set_device_minor(minor).unwrap();
            (tar::EntryType::Block, Vec::new())
        }
        Kind::Socket => panic!("{}: a tar holds no sockets", file.path),
    };
    header.set_entry_type(kind);
    header.set_size(data.len() as u64);
    // Written as it is: names that climb out are what some cases are about.
    let name = header.as_old_mut();
    name.name[..file.path.len()].copy_from_slice(file.path.as_bytes());
    header.set_cksum();
    builder.append(&header, data.as_slice()).unwrap();
}

/// Writes these files below a directory.
pub fn lay_out(root: &Path, files: &[FileSpec]) {
    for file in files {
        let path = root.join(&file.path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mode = Mode::from_raw_mode(file.mode());
        let node = |kind, device| rustix::fs::mknodat(CWD, &path, kind, mode, device).unwrap();
        match file.kind() {
            Kind::File => match file.hole {
                Some(size) => std::fs::File::create(&path).unwrap().set_len(size).unwrap(),
                None if file.text.is_none() && file.archive.is_none() && path.exists() => {}
                None => std::fs::write(&path, file.content()).unwrap(),
            },
            Kind::Dir => std::fs::create_dir_all(&path).unwrap(),
            Kind::Link(target) => symlink(target, &path).unwrap(),
            Kind::Hard(target) => std::fs::hard_link(root.join(target), &path).unwrap(),
            Kind::Fifo => node(FileType::Fifo, 0),
            Kind::Socket => node(FileType::Socket, 0),
            Kind::Char(major, minor) => node(FileType::CharacterDevice, rustix::fs::makedev(major, minor)),
            Kind::Block(major, minor) => node(FileType::BlockDevice, rustix::fs::makedev(major, minor)),
        }
        if matches!(file.kind(), Kind::Hard(_)) {
            continue;
        }
        let (uid, gid) = file.owner();
        let uid = Some(rustix::fs::Uid::from_raw(uid));
        let gid = Some(rustix::fs::Gid::from_raw(gid));
        rustix::fs::chownat(CWD, &path, uid, gid, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        if !matches!(file.kind(), Kind::Link(_)) {
            rustix::fs::chmodat(CWD, &path, mode, AtFlags::empty()).unwrap();
        }
        for (name, value) in file.xattrs() {
            rustix::fs::lsetxattr(&path, name, &value, XattrFlags::empty()).unwrap();
        }
    }
}

/// Gives everything below a directory the same old time, but what says its own.
pub fn set_times(root: &Path, time: i64, files: &[FileSpec]) {
    fn walk(path: &Path, root: &Path, time: i64, own: &BTreeMap<&str, i64>) {
        if path.symlink_metadata().unwrap().is_dir() {
            for entry in std::fs::read_dir(path).unwrap() {
                walk(&entry.unwrap().path(), root, time, own);
            }
        }
        let name = path.strip_prefix(root).unwrap().to_str().unwrap_or_default();
        let time = Timespec { tv_sec: own.get(name).copied().unwrap_or(time), tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
    let own = files.iter().filter_map(|f| Some((f.path.as_str(), f.mtime?))).collect();
    walk(root, root, time, &own);
}
