//! From a configuration to its plan. What is wrong with an entry (a source that isn't there, an unknown user) is found
//! here for all entries, before anything is touched.

use super::rules::Rule;
use super::source::{Reader, searchable};
use super::{Content, Node, Own, Plan, Want};
use crate::config::{Config, Copy, Made, Properties};
use crate::error::{Failure, Problems, Result, shown};
use crate::glob;
use crate::state::State;
use crate::users::Users;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

impl Plan {
    pub fn of(config: &Config, users: &Users, state: &State) -> Result<Plan> {
        let mut plan = Plan::empty();
        plan.recorded = state.units.keys().cloned().collect();
        let mut problems = Problems::default();
        for made in &config.directories {
            problems.keep(plan.make_directory(made, users).map_err(|failure| failure.of(&made.name)));
        }
        for made in &config.files {
            problems.keep(plan.touch(made, users).map_err(|failure| failure.of(&made.name)));
        }
        for copy in &config.copies {
            problems.keep(plan.copy(copy, users).map_err(|failure| failure.of(&copy.name)));
        }
        for rule in &config.permissions {
            match users.owner(&rule.owner) {
                Ok((uid, gid)) => plan.rule(&Rule { rule, uid, gid }),
                Err(failure) => problems.add(failure.of(&format!("{} ({})", rule.name, rule.path))),
            }
        }
        problems.end()?;
        Ok(plan)
    }

    /// Plans a file with content of our own, which goes away as an entry's would.
    pub fn put_file(&mut self, path: &Path, content: Vec<u8>, own: Own, entry: &str) -> Result<()> {
        let want = Want::File { content: Content::Bytes(content), own };
        self.put(path, Node { entry: entry.into(), want, restored: true })
    }

    pub fn put_link(&mut self, path: &Path, target: PathBuf, entry: &str) -> Result<()> {
        self.put(path, Node { entry: entry.into(), want: Want::Link { target }, restored: true })
    }

    fn make_directory(&mut self, made: &Made, users: &Users) -> Result<()> {
        let own = own(made, users, searchable(made.perm))?;
        let path = self.real(&made.path);
        let names = self.directory(&parent(&path), &made.name, false).map_err(in_the_way)?;
        let want = Want::Directory { own: Some(own.clone()), exact: false, names: BTreeMap::new() };
        let Some(name) = path.file_name() else { return Ok(()) };
        let planned = || Node { entry: made.name.clone(), want, restored: false };
        let node = names.entry(name.into()).or_insert_with(planned);
        if let Want::Directory { own: there, .. } = &mut node.want {
            *there = Some(own);
            node.entry.clone_from(&made.name);
        }
        Ok(())
    }

    fn touch(&mut self, made: &Made, users: &Users) -> Result<()> {
        let own = own(made, users, made.perm)?;
        let path = self.through_links(&made.path);
        let above = parent(&path);
        if !above.is_dir() && !self.at(&above).is_some_and(Node::is_directory) {
            let why = format!("the directory {} of {} does not exist", shown(&above), shown(&made.path));
            return Err(Failure::wrong(why));
        }
        self.put(&path, Node { entry: made.name.clone(), want: Want::Touched { own }, restored: false })
    }

    fn copy(&mut self, copy: &Copy, users: &Users) -> Result<()> {
        let given = match &copy.properties {
            Properties::Preserved => None,
            Properties::Given { owner, perm } => {
                let named = |failure: Failure| failure.of(&copy.dest);
                let (uid, gid) = users.owner(owner).map_err(named)?;
                Some((uid, gid, *perm))
            }
        };
        let reader = Reader { entry: &copy.name, given, keep_links: copy.merge && given.is_none(), merge: copy.merge };
        let mut sources = glob::expand(&copy.source);
        if copy.optional {
            // A link to nothing is a file that isn't there.
            sources.retain(|source| source.exists());
        } else if sources.is_empty() {
            let what = if glob::has_magic(&copy.source) { "nothing matches the source" } else { "there is no source" };
            return Err(Failure::wrong(format!("{what} {} for {}", copy.source, copy.dest)));
        }
        for source in sources {
            let node = reader.read(&source).map_err(|failure| failure.of(&copy.dest))?;
            let dest = self.through_links(&destination(&copy.dest, &source));
            if copy.merge {
                self.merge(dest, node)?;
            } else {
                self.put(&dest, node)?;
            }
        }
        Ok(())
    }

    /// Lays a node over what is at its path: directories are united, all else is replaced.
    fn merge(&mut self, path: PathBuf, node: Node) -> Result<()> {
        let Want::Directory { own, names, .. } = node.want else { return self.put(&path, node) };
        let replaced = self.is_replaced(&path);
        // A link to a directory is merged into, where it leads to.
        let path = if !replaced && path.is_dir() { self.real(&path) } else { path };
        if path.parent().is_some() {
            let there = self.directory(&parent(&path), &node.entry, true).map_err(in_the_way)?;
            let name = path.file_name().unwrap_or_default();
            let mut old = match there.remove(name).map(|node| node.want) {
                Some(Want::Directory { exact, names, .. }) => (exact, names),
                _ => (replaced, BTreeMap::new()),
            };
            let names = std::mem::take(&mut old.1);
            let want = Want::Directory { own, exact: old.0, names };
            there.insert(name.into(), Node { entry: node.entry, want, restored: true });
        }
        for (name, child) in names {
            self.merge(path.join(name), child)?;
        }
        Ok(())
    }

    fn put(&mut self, path: &Path, mut node: Node) -> Result<()> {
        let Some(name) = path.file_name() else {
            return Err(Failure::wrong(format!("{} can't be replaced", shown(path))));
        };
        let names = self.directory(&parent(path), &node.entry, node.restored).map_err(in_the_way)?;
        if let Some(old) = names.remove(name) {
            keep_made(old, &mut node).map_err(|entry| {
                Failure::wrong(format!("{} can't be a file: {entry} makes a directory of it", shown(path)))
            })?;
        }
        names.insert(name.into(), node);
        Ok(())
    }
}

/// What `directories` and `files` make in a directory stays in what replaces that. The error is the entry that needs a
/// directory where there will be none.
fn keep_made(old: Node, new: &mut Node) -> std::result::Result<(), String> {
    let (restored, entry) = (old.restored, old.entry);
    let Want::Directory { own, names: made, .. } = old.want else { return Ok(()) };
    let Want::Directory { names, .. } = &mut new.want else {
        return if restored || own.is_none() && made.is_empty() { Ok(()) } else { Err(entry) };
    };
    for (name, child) in made.into_iter().filter(|(_, child)| !child.restored) {
        match names.get_mut(&name) {
            Some(there) => keep_made(child, there)?,
            None => drop(names.insert(name, child)),
        }
    }
    Ok(())
}

fn own(made: &Made, users: &Users, mode: u32) -> Result<Own> {
    let (uid, gid) = users.owner(&made.owner).map_err(|failure| failure.of(&shown(&made.path)))?;
    Ok(Own { uid, gid, mode, like: None })
}

/// With a slash at its end, `dest` is the directory to copy into; a source with one means what is in it.
fn destination(dest: &str, source: &Path) -> PathBuf {
    let contents = source.as_os_str().as_encoded_bytes().ends_with(b"/");
    match source.file_name() {
        Some(name) if dest.ends_with('/') && !contents => Path::new(dest).join(name),
        _ => PathBuf::from(dest),
    }
}

fn parent(path: &Path) -> PathBuf {
    path.parent().unwrap_or(path).into()
}

fn in_the_way((path, entry): (PathBuf, String)) -> Failure {
    Failure::wrong(format!("{} is no directory, but what {entry} puts there", shown(&path)))
}
