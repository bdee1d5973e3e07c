//! A file tree in memory that is edited as an overlay is: what comes from below is copied up before it is changed, a
//! directory that is made anew shows nothing of the old one, and renaming a directory from below makes copies.

use std::collections::BTreeMap;

pub type Path = Vec<u8>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Dir,
    File(Vec<u8>),
    Link(Vec<u8>),
    Fifo,
    Char(u32, u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    pub kind: Kind,
    pub mode: u32,
    pub owner: (u32, u32),
    pub mtime: i64,
    pub xattrs: BTreeMap<&'static str, Vec<u8>>,
    /// The step that made it, or copied it up.
    pub step: usize,
    /// Of directories: copied up, a directory goes on showing what is below; made anew, it doesn't.
    pub identity: usize,
}

#[derive(Clone, Default)]
pub struct Tree {
    pub names: BTreeMap<Path, usize>,
    pub inodes: Vec<Inode>,
    pub step: usize,
}

pub fn parent(path: &[u8]) -> &[u8] {
    path.iter().rposition(|b| *b == b'/').map_or(b"", |at| &path[..at])
}

pub fn name(path: &[u8]) -> &[u8] {
    path.iter().rposition(|b| *b == b'/').map_or(path, |at| &path[at + 1..])
}

impl Tree {
    pub fn get(&self, path: &[u8]) -> Option<&Inode> {
        self.names.get(path).map(|index| &self.inodes[*index])
    }

    pub fn is_dir(&self, path: &[u8]) -> bool {
        path.is_empty() || self.get(path).is_some_and(|inode| inode.kind == Kind::Dir)
    }

    /// Everything below a directory.
    pub fn below(&self, path: &[u8]) -> Vec<Path> {
        let prefix = if path.is_empty() { Vec::new() } else { [path, b"/"].concat() };
        self.names.keys().filter(|name| name.starts_with(&prefix) && !name.is_empty()).cloned().collect()
    }

    pub fn children(&self, path: &[u8]) -> Vec<Path> {
        self.names.keys().filter(|name| parent(name) == path).cloned().collect()
    }

    fn is_below(&self, path: &[u8], dir: &[u8]) -> bool {
        path.len() > dir.len() && path.starts_with(dir) && path[dir.len()] == b'/'
    }

    /// Something new, where nothing or something else was. False where it can't be.
    pub fn make(&mut self, path: &[u8], kind: Kind, mode: u32) -> bool {
        if !self.is_dir(parent(path)) || (kind == Kind::Dir && self.is_dir(path)) {
            return false;
        }
        self.remove(path);
        let index = self.inodes.len();
        let inode = Inode {
            kind,
            mode,
            owner: (0, 0),
            mtime: 1_000_000 + index as i64,
            xattrs: BTreeMap::new(),
            step: self.step,
            identity: index,
        };
        self.inodes.push(inode);
        self.names.insert(path.to_vec(), index);
        true
    }

    pub fn remove(&mut self, path: &[u8]) {
        for name in self.below(path) {
            self.names.remove(&name);
        }
        self.names.remove(path);
    }

    /// Before a change: the inode that this step may write to.
    pub fn change(&mut self, path: &[u8]) -> Option<&mut Inode> {
        let index = self.copy_up(path)?;
        self.inodes.get_mut(index)
    }

    fn copy_up(&mut self, path: &[u8]) -> Option<usize> {
        let index = *self.names.get(path)?;
        if self.inodes[index].step == self.step {
            return Some(index);
        }
        // Other names of the file stay with what is below.
        let copy = Inode { step: self.step, ..self.inodes[index].clone() };
        self.inodes.push(copy);
        let index = self.inodes.len() - 1;
        self.names.insert(path.to_vec(), index);
        Some(index)
    }

    pub fn hard_link(&mut self, from: &[u8], to: &[u8]) {
        if from == to || self.is_dir(from) || self.is_dir(to) || !self.is_dir(parent(to)) {
            return;
        }
        if let Some(index) = self.copy_up(from) {
            self.names.insert(to.to_vec(), index);
        }
    }

    pub fn rename(&mut self, from: &[u8], to: &[u8]) {
        let Some(&index) = self.names.get(from) else { return };
        let inside = self.is_below(to, from) || self.is_below(from, to);
        if from == to || inside || !self.is_dir(parent(to)) || (self.is_dir(to) && !self.is_dir(from)) {
            return;
        }
        // Two names of one file: rename does nothing.
        if self.names.get(to) == Some(&index) {
            return;
        }
        let moved: Vec<Path> = self.below(from).into_iter().chain([from.to_vec()]).collect();
        self.remove(to);
        let mut copies = BTreeMap::new();
        for old in moved {
            let Some(index) = self.names.remove(&old) else { continue };
            let index = *copies.entry(index).or_insert_with(|| {
                if self.inodes[index].step == self.step && self.inodes[index].kind != Kind::Dir {
                    return index;
                }
                let identity = self.inodes.len();
                self.inodes.push(Inode { step: self.step, identity, ..self.inodes[index].clone() });
                identity
            });
            self.names.insert([to, &old[from.len()..]].concat(), index);
        }
    }

    /// A line for each name; `others` tells which names are one file.
    pub fn describe(&self) -> Vec<String> {
        let line = |(path, index): (&Path, &usize)| {
            let inode = &self.inodes[*index];
            let first = self.names.iter().find(|(_, other)| *other == index).map_or(path, |(name, _)| name);
            describe(path, inode, first)
        };
        self.names.iter().map(line).collect()
    }
}

pub fn describe(path: &[u8], inode: &Inode, first: &[u8]) -> String {
    let (mode, (uid, gid), mtime) = (inode.mode, inode.owner, inode.mtime);
    // A link has no mode of its own.
    let mode = if matches!(inode.kind, Kind::Link(_)) { 0o777 } else { mode };
    let (path, first) = (path.escape_ascii(), first.escape_ascii());
    format!("{path} {:?} {mode:o} {uid}:{gid} {mtime} {:?} is {first}", inode.kind, inode.xattrs)
}
