//! What an entry copies: a file or a directory, read into nodes. Links are followed, so that a volume of Kubernetes
//! (`nova.conf -> ..data/nova.conf`) gives files; only with merge and preserve_properties are links to files kept.

use super::{Content, Node, Own, Want};
use crate::error::{Failure, Result, reason, shown};
use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// How an entry's sources become nodes.
pub(super) struct Reader<'a> {
    pub entry: &'a str,
    /// None: each has its source's (`preserve_properties`). Without a mode, the source's.
    pub given: Option<(u32, u32, Option<u32>)>,
    pub keep_links: bool,
    /// Whether directories are merged into what is there, instead of replacing it.
    pub merge: bool,
}

impl Reader<'_> {
    pub fn read(&self, source: &Path) -> Result<Node> {
        self.node(source, &mut Vec::new())
    }

    fn node(&self, source: &Path, above: &mut Vec<(u64, u64)>) -> Result<Node> {
        let metadata = match fs::metadata(source) {
            Ok(metadata) => metadata,
            Err(_) if self.keep_links && source.is_symlink() => return self.link(source),
            Err(error) if source.is_symlink() => {
                let why = if error.kind() == std::io::ErrorKind::NotFound { "dangling" } else { "useless" };
                let target = fs::read_link(source).unwrap_or_default();
                return Err(Failure::wrong(format!(
                    "the source {} is a {why} link to {} ({})",
                    shown(source),
                    shown(&target),
                    reason(&error)
                )));
            }
            Err(error) => return Err(Failure::system(format_args!("read the source {}", shown(source)), error)),
        };
        let kind = metadata.file_type();
        if kind.is_dir() {
            return self.directory(source, &metadata, above);
        }
        if self.keep_links && source.is_symlink() {
            return self.link(source);
        }
        if !kind.is_file() {
            let what = match () {
                () if kind.is_fifo() => "a named pipe",
                () if kind.is_socket() => "a socket",
                () => "a device",
            };
            return Err(Failure::wrong(format!("the source {} is {what}, which can't be copied", shown(source))));
        }
        let own = self.own(source, &metadata, false);
        Ok(self.planned(Want::File { content: Content::Of(source.into()), own }))
    }

    fn directory(&self, source: &Path, metadata: &Metadata, above: &mut Vec<(u64, u64)>) -> Result<Node> {
        let id = (metadata.dev(), metadata.ino());
        if above.contains(&id) {
            return Err(Failure::wrong(format!("the source {} is a link to a directory above itself", shown(source))));
        }
        above.push(id);
        let cannot = |error| Failure::system(format_args!("read the source {}", shown(source)), error);
        // Where a volume of Kubernetes keeps what its links lead to: followed links have brought all of it.
        let volume = !self.keep_links && source.join("..data").is_symlink();
        let mut names = BTreeMap::new();
        for entry in fs::read_dir(source).map_err(cannot)? {
            let name = entry.map_err(cannot)?.file_name();
            if volume && name.as_encoded_bytes().starts_with(b"..") {
                continue;
            }
            let node = self.node(&source.join(&name), above)?;
            names.insert(name, node);
        }
        above.pop();
        let own = Some(self.own(source, metadata, true));
        Ok(self.planned(Want::Directory { own, exact: !self.merge, names }))
    }

    fn link(&self, source: &Path) -> Result<Node> {
        let target = fs::read_link(source)
            .map_err(|error| Failure::system(format_args!("read the link {}", shown(source)), error))?;
        Ok(self.planned(Want::Link { target }))
    }

    fn planned(&self, want: Want) -> Node {
        Node { entry: self.entry.into(), want, restored: true }
    }

    fn own(&self, source: &Path, metadata: &Metadata, directory: bool) -> Own {
        let mode = metadata.mode() & 0o7777;
        match self.given {
            None => Own { uid: metadata.uid(), gid: metadata.gid(), mode, like: Some(PathBuf::from(source)) },
            Some((uid, gid, given)) => {
                let mode = match given {
                    Some(given) if directory => searchable(given),
                    Some(given) => given,
                    None => mode,
                };
                Own { uid, gid, mode, like: None }
            }
        }
    }
}

/// Whoever may read a directory may also search it.
pub fn searchable(mode: u32) -> u32 {
    mode | (mode & 0o444) >> 2
}
