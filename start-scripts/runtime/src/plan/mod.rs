//! What every path that a configuration names will be, before anything is touched: the entries in their order, each
//! laid over those before it, and the owners and permissions that the section `permissions` gives them in the end.
//!
//! A plan is a tree of names from the root. Directories in it are either *exact* (a copy that replaces: what isn't
//! planned goes away) or not (a merge, or a parent: what else is in them stays).

mod build;
mod rules;
mod source;

pub use source::searchable;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub struct Plan {
    pub root: Node,
    /// What earlier starts put in its place. A link there now is somebody's who wants to lead this start elsewhere.
    recorded: BTreeSet<PathBuf>,
}

#[derive(Debug)]
pub struct Node {
    /// The entry that wants it, for messages.
    pub entry: String,
    pub want: Want,
    /// Whether what was there before comes back when the entry goes away.
    pub restored: bool,
}

#[derive(Debug)]
pub enum Want {
    Directory {
        /// None: a parent, which is made when it isn't there, and left alone when it is.
        own: Option<Own>,
        exact: bool,
        names: BTreeMap<OsString, Node>,
    },
    File {
        content: Content,
        own: Own,
    },
    Link {
        target: PathBuf,
    },
    /// A file whose content is somebody else's; made empty when it isn't there.
    Touched {
        own: Own,
    },
}

#[derive(Debug)]
pub enum Content {
    Of(PathBuf),
    Bytes(Vec<u8>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Own {
    pub uid: u32,
    pub gid: u32,
    pub mode: u32,
    /// Whose times and extended attributes are taken as well (`preserve_properties`).
    pub like: Option<PathBuf>,
}

impl Node {
    fn parent(entry: &str, restored: bool) -> Node {
        let want = Want::Directory { own: None, exact: false, names: BTreeMap::new() };
        Node { entry: entry.into(), want, restored }
    }

    pub fn own(&self) -> Option<&Own> {
        match &self.want {
            Want::Directory { own, .. } => own.as_ref(),
            Want::File { own, .. } | Want::Touched { own } => Some(own),
            Want::Link { .. } => None,
        }
    }

    fn own_mut(&mut self) -> Option<&mut Own> {
        match &mut self.want {
            Want::Directory { own, .. } => own.as_mut(),
            Want::File { own, .. } | Want::Touched { own } => Some(own),
            Want::Link { .. } => None,
        }
    }

    pub fn names(&self) -> Option<&BTreeMap<OsString, Node>> {
        match &self.want {
            Want::Directory { names, .. } => Some(names),
            _ => None,
        }
    }

    /// Whether the whole of what is at its path is the plan's.
    pub fn is_whole(&self) -> bool {
        !matches!(&self.want, Want::Directory { exact: false, .. })
    }

    pub fn is_directory(&self) -> bool {
        matches!(&self.want, Want::Directory { .. })
    }

    /// Calls `each` with every node below, and this, parents first.
    pub fn walk<'a>(&'a self, path: &Path, each: &mut impl FnMut(&Path, &'a Node)) {
        each(path, self);
        for (name, node) in self.names().into_iter().flatten() {
            node.walk(&path.join(name), each);
        }
    }
}

impl Plan {
    pub fn empty() -> Plan {
        Plan { root: Node::parent("", false), recorded: BTreeSet::new() }
    }

    /// What is planned for a path.
    pub fn at(&self, path: &Path) -> Option<&Node> {
        path.components().skip(1).try_fold(&self.root, |node, name| node.names()?.get(name.as_os_str()))
    }

    pub fn is_recorded(&self, path: &Path) -> bool {
        self.recorded.contains(path)
    }

    /// A path with the links on it followed, as far as it exists, so that one place has one path in a plan.
    fn real(&self, path: &Path) -> PathBuf {
        let mut real = PathBuf::from("/");
        for name in path.components().skip(1) {
            real.push(name);
            if !self.is_recorded(&real)
                && let Ok(there) = std::fs::canonicalize(&real)
            {
                real = there;
            }
        }
        real
    }

    /// As `real`, but for the last name, which itself is meant.
    fn through_links(&self, path: &Path) -> PathBuf {
        match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => self.real(parent).join(name),
            _ => path.into(),
        }
    }

    /// Whether a path lies in a directory that is replaced, so that what is on disk there now doesn't count.
    fn is_replaced(&self, path: &Path) -> bool {
        path.ancestors()
            .skip(1)
            .any(|above| self.at(above).is_some_and(|node| matches!(&node.want, Want::Directory { exact: true, .. })))
    }

    /// The directory at a path, with the parents that it needs. The error is what is in the way.
    fn directory(
        &mut self,
        path: &Path,
        entry: &str,
        restored: bool,
    ) -> Result<&mut BTreeMap<OsString, Node>, (PathBuf, String)> {
        let mut node = &mut self.root;
        let mut at = PathBuf::from("/");
        for name in path.components().skip(1) {
            let Want::Directory { names, .. } = &mut node.want else { return Err((at, node.entry.clone())) };
            at.push(name);
            node = names.entry(name.as_os_str().into()).or_insert_with(|| Node::parent(entry, restored));
        }
        match &mut node.want {
            Want::Directory { names, .. } => Ok(names),
            _ => Err((at, node.entry.clone())),
        }
    }
}
