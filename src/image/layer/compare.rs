//! Two file trees side by side: what a container could see to be different. Times are left out, since two builds never
//! have the same.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::changes::same_bytes;
use super::compiled::same_code;
use super::stack::{Found, LayerStack, StackDir};
use super::standin::Seen;
use super::sys::{self, OsContext};
use crate::error::Result;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// From the root, with a slash in front.
    pub path: PathBuf,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    OnlyInFirst,
    OnlyInSecond,
    /// In the words of a person: `mode 644 and 600`, `content`.
    Differs(Vec<String>),
}

/// Of compiled files that differ in nothing that runs.
const SAME_CODE: &str = "content, but only what debuggers read; the code is the same";

impl What {
    pub fn is_only_for_debuggers(&self) -> bool {
        matches!(self, What::Differs(words) if words == &[SAME_CODE])
    }
}

/// Sorted by path. What is below a directory that only one of them has is not listed.
pub fn compare(first: &LayerStack, second: &LayerStack) -> Result<Vec<Difference>> {
    let mut found = Vec::new();
    if let (Some(first), Some(second)) = (first.root(), second.root()) {
        directories(Path::new("/"), first, second, &mut found)?;
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

fn directories(path: &Path, first: StackDir, second: StackDir, found: &mut Vec<Difference>) -> Result<()> {
    let mut pending = vec![(path.to_owned(), first, second)];
    while let Some((path, first, second)) = pending.pop() {
        let (ours, theirs) = (first.entries()?, second.entries()?);
        let names: BTreeSet<&Vec<u8>> = ours.keys().chain(theirs.keys()).collect();
        for name in names {
            let inner = path.join(sys::os(name));
            let what = match (ours.get(name), theirs.get(name)) {
                (Some(one), Some(other)) => {
                    let differing = entry(one, other)?;
                    if one.is_dir()
                        && other.is_dir()
                        && let (Some(one), Some(other)) = (first.open(name)?, second.open(name)?)
                    {
                        pending.push((inner.clone(), one, other));
                    }
                    if differing.is_empty() {
                        continue;
                    }
                    What::Differs(differing)
                }
                (Some(_), None) => What::OnlyInFirst,
                (None, _) => What::OnlyInSecond,
            };
            found.push(Difference { path: inner, what });
        }
    }
    Ok(())
}

fn entry(one: &Found, other: &Found) -> Result<Vec<String>> {
    let seen = |found: &Found| -> Result<Seen> {
        let xattrs = sys::xattrs(&found.path).os(&found.path, || format!("cannot read `{}`", found.path.display()))?;
        Ok(Seen::of(&found.stat, xattrs))
    };
    let (left, right) = (seen(one)?, seen(other)?);
    let mut differing = Vec::new();
    if left.kind != right.kind {
        return Ok(vec![format!("it is {} and {}", kind(left.kind), kind(right.kind))]);
    }
    let modes = (one.stat.st_mode & 0o7777, other.stat.st_mode & 0o7777);
    if left.kind != FileType::Symlink && modes.0 != modes.1 {
        differing.push(format!("mode {:o} and {:o}", modes.0, modes.1));
    }
    if (left.uid, left.gid) != (right.uid, right.gid) {
        differing.push(format!("owner {}:{} and {}:{}", left.uid, left.gid, right.uid, right.gid));
    }
    if left.xattrs != right.xattrs {
        let names: BTreeSet<String> =
            (left.xattrs.iter().filter(|(name, value)| right.xattrs.get(*name) != Some(value)))
                .chain(right.xattrs.iter().filter(|(name, value)| left.xattrs.get(*name) != Some(value)))
                .map(|(name, _)| sys::show(name))
                .collect();
        differing.push(format!("attributes {}", names.into_iter().collect::<Vec<_>>().join(", ")));
    }
    let unreadable = || format!("cannot read `{}`", one.path.display());
    match left.kind {
        FileType::RegularFile if one.stat.st_size != other.stat.st_size => {
            differing.push(format!("size {} and {}", one.stat.st_size, other.stat.st_size));
        }
        FileType::RegularFile if !same_bytes(&one.path, &other.path).os(&one.path, unreadable)? => {
            let code = same_code(&one.path, &other.path).os(&one.path, unreadable)?;
            differing.push(if code { SAME_CODE.into() } else { "content".into() });
        }
        FileType::Symlink => {
            let target = |path: &Path| std::fs::read_link(path).os(path, unreadable);
            let (one, other) = (target(&one.path)?, target(&other.path)?);
            if one != other {
                differing.push(format!("target {} and {}", one.display(), other.display()));
            }
        }
        FileType::CharacterDevice | FileType::BlockDevice if left.device != right.device => {
            differing.push("device".into());
        }
        _ => {}
    }
    Ok(differing)
}

fn kind(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a link",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Fifo => "a pipe",
        _ => "something else",
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn tree(fill: impl FnOnce(&Path)) -> (tempfile::TempDir, LayerStack) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [("same", "x"), ("content", "one"), ("mode", "m"), ("size", "s")] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        fs::create_dir(dir.path().join("dir")).unwrap();
        symlink("same", dir.path().join("link")).unwrap();
        fill(dir.path());
        let stack = LayerStack::new([dir.path().to_owned()]);
        (dir, stack)
    }

    #[test]
    fn everything_that_can_be_seen_is_compared() {
        let (_one, first) = tree(|dir| fs::write(dir.join("dir/ours"), "").unwrap());
        let (_other, second) = tree(|dir| {
            fs::write(dir.join("content"), "two").unwrap();
            fs::write(dir.join("size"), "ss").unwrap();
            fs::set_permissions(dir.join("mode"), fs::Permissions::from_mode(0o600)).unwrap();
            fs::remove_file(dir.join("link")).unwrap();
            symlink("mode", dir.join("link")).unwrap();
            fs::write(dir.join("dir/theirs"), "").unwrap();
            fs::remove_file(dir.join("same")).unwrap();
            fs::create_dir(dir.join("same")).unwrap();
        });
        assert_eq!(compare(&first, &first).unwrap(), []);
        let shown: Vec<String> = compare(&first, &second)
            .unwrap()
            .into_iter()
            .map(|one| match one.what {
                What::OnlyInFirst => format!("{} first", one.path.display()),
                What::OnlyInSecond => format!("{} second", one.path.display()),
                What::Differs(what) => format!("{} {}", one.path.display(), what.join("; ")),
            })
            .collect();
        let mode = fs::metadata(_one.path().join("mode")).unwrap().permissions().mode() & 0o7777;
        assert_eq!(
            shown,
            [
                "/content content".to_owned(),
                "/dir/ours first".into(),
                "/dir/theirs second".into(),
                "/link target same and mode".into(),
                format!("/mode mode {mode:o} and 600"),
                "/same it is a file and a directory".into(),
                "/size size 1 and 2".into(),
            ]
        );
    }
}
