//! Whether a plan can be carried out, asked before the first change: what is in the way, what can't be written, owners
//! that can't be given. So that a start that fails leaves everything as it was.

use crate::check::difference;
use crate::error::{Failure, Problems, Result, reason, shown};
use crate::files;
use crate::plan::{Content, Node, Plan, Want};
use rustix::fs::{Access, AtFlags, CWD};
use std::fs::{self, File, Metadata};
use std::io;
use std::path::Path;

pub fn look(plan: &Plan) -> Result<()> {
    let mut looking = Looking { plan, problems: Problems::default(), who: Who::now() };
    looking.node(Path::new("/"), &plan.root, Above { new: false, exact: false });
    looking.problems.end()
}

/// As whom this runs, and which owners it can therefore give.
pub struct Who {
    uid: u32,
    groups: Vec<u32>,
    /// CAP_CHOWN.
    any: bool,
}

impl Who {
    pub fn now() -> Who {
        let mut groups: Vec<u32> =
            rustix::process::getgroups().unwrap_or_default().into_iter().map(|gid| gid.as_raw()).collect();
        groups.push(rustix::process::getegid().as_raw());
        let any = rustix::thread::capabilities(None)
            .is_ok_and(|sets| sets.effective.contains(rustix::thread::CapabilitySet::CHOWN));
        Who { uid: rustix::process::geteuid().as_raw(), groups, any }
    }

    /// Why something that belongs to `from` (nobody yet: a new file) can't be given to `uid` and `gid`.
    pub fn cannot_give(&self, from: Option<(u32, u32)>, uid: u32, gid: u32) -> Option<String> {
        let mine = from.is_none_or(|(owner, _)| owner == self.uid);
        if self.any || from == Some((uid, gid)) || mine && uid == self.uid && self.groups.contains(&gid) {
            return None;
        }
        Some(format!("user {} can't give it to {uid}:{gid}; that takes root (CAP_CHOWN)", self.uid))
    }
}

/// What is known of the directory that a path is in.
#[derive(Clone, Copy)]
struct Above {
    /// It isn't there yet, so that nothing can be in the way.
    new: bool,
    /// All of it is replaced.
    exact: bool,
}

struct Looking<'a> {
    plan: &'a Plan,
    problems: Problems,
    who: Who,
}

impl Looking<'_> {
    fn node(&mut self, path: &Path, node: &Node, above: Above) {
        let there = if above.new { None } else { self.there(path, node) };
        if let Err(failure) = self.itself(path, node, above, there.as_ref()) {
            self.problems.add(failure.of(&node.entry));
            return;
        }
        let Want::Directory { exact, names, .. } = &node.want else { return };
        let is_directory = there.as_ref().is_some_and(Metadata::is_dir);
        if *exact && is_directory {
            self.surplus(path, node);
        }
        for (name, node) in names {
            self.node(&path.join(name), node, Above { new: !is_directory, exact: above.exact || *exact });
        }
    }

    fn there(&mut self, path: &Path, node: &Node) -> Option<Metadata> {
        match fs::symlink_metadata(path) {
            Ok(there) => Some(there),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                self.problems.add(Failure::system(format_args!("look at {}", shown(path)), error).of(&node.entry));
                None
            }
        }
    }

    fn itself(&self, path: &Path, node: &Node, above: Above, there: Option<&Metadata>) -> Result<()> {
        let link = there.is_some_and(|there| there.file_type().is_symlink());
        match (&node.want, there) {
            (Want::Directory { own: None, .. }, Some(there)) => {
                return if there.is_dir() { Ok(()) } else { Err(wrong(path, "is not a directory")) };
            }
            (Want::Directory { .. }, Some(there)) if !node.restored && !there.is_dir() => {
                let what =
                    if link { "is a symbolic link that leads nowhere" } else { "exists, and is not a directory" };
                return Err(wrong(path, what));
            }
            (Want::Touched { .. }, Some(_)) if link => {
                return Err(wrong(path, "is a symbolic link; `files` makes regular files only"));
            }
            (Want::Touched { .. }, Some(there)) if !there.is_file() => {
                return Err(wrong(path, "exists, and is not a regular file"));
            }
            (Want::Touched { .. } | Want::Directory { .. }, Some(there)) if there.is_file() || there.is_dir() => {
                // Stays, and gets an owner.
                return self.owner(path, node, Some(there));
            }
            // Others may know what is behind it by this name as well.
            (_, Some(_)) if link && !above.exact && path.is_dir() && !self.plan.is_recorded(path) => {
                return Err(wrong(
                    path,
                    "is a symbolic link to a directory, which is not replaced; write a slash after \
                    it to copy into it, or merge into it",
                ));
            }
            _ => {}
        }
        if !above.new && there.is_some() && difference(path, node).is_none() {
            return Ok(());
        }
        if let Want::File { content: Content::Of(source), .. } = &node.want {
            File::open(source)
                .map_err(|error| Failure::system(format_args!("read the source {}", shown(source)), error))?;
        }
        if there.is_some()
            && let Some(mounted) = files::mount_point_below(path)
        {
            return Err(wrong(&mounted, "is a mount point, and can't be replaced"));
        }
        if !above.new {
            can_write(path)?;
        }
        self.owner(path, node, None)
    }

    fn owner(&self, path: &Path, node: &Node, there: Option<&Metadata>) -> Result<()> {
        use std::os::unix::fs::MetadataExt;
        let Some(own) = node.own() else { return Ok(()) };
        let from = there.map(|there| (there.uid(), there.gid()));
        if let Some(why) = self.who.cannot_give(from, own.uid, own.gid) {
            return Err(Failure::refused(format!("{}: {why}", shown(path))));
        }
        let changes_mode = there.is_some_and(|there| there.mode() & 0o7777 != own.mode);
        match from {
            Some((owner, _)) if changes_mode && owner != self.who.uid && !self.who.any => {
                Err(Failure::refused(format!("{}: user {} can't change its permissions", shown(path), self.who.uid)))
            }
            _ => Ok(()),
        }
    }

    /// What an exact directory would lose.
    fn surplus(&mut self, path: &Path, node: &Node) {
        let names = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let surplus: Vec<_> =
            names.filter(|name| node.names().is_some_and(|names| !names.contains_key(name))).collect();
        let mut failures = Vec::new();
        for name in surplus {
            let path = path.join(name);
            if let Some(mounted) = files::mount_point_below(&path) {
                failures
                    .push(wrong(&mounted, "is a mount point in a directory that is replaced; merge into it instead"));
            } else if let Err(failure) = can_write(&path) {
                failures.push(failure);
            }
        }
        for failure in failures {
            self.problems.add(failure.of(&node.entry));
        }
    }
}

fn wrong(path: &Path, what: &str) -> Failure {
    Failure::wrong(format!("{} {what}", shown(path)))
}

/// Whether names in the parent of a path can be changed.
fn can_write(path: &Path) -> Result<()> {
    let Some(parent) = path.parent() else { return Ok(()) };
    rustix::fs::accessat(CWD, parent, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS).map_err(|error| {
        let why = reason(&error.into());
        Failure::refused(format!(
            "cannot write {}: the directory {} can't be changed: {why}",
            shown(path),
            shown(parent)
        ))
    })
}
