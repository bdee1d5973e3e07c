//! COPY and ADD: sources are selected, the destination is resolved in the image, and files are put there.

use std::collections::HashMap;
use std::io::Cursor;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, OFlags, Stat};
use rustix::thread::UnshareFlags;

use super::inroot::{Owner, Root, kind_of};
use super::overlay::Place;
use super::spec::{ContextItem, CopyItem, CopySpec, Report};
use super::tree::{Meta, Writer, not_a_directory};
use super::users::Accounts;
use super::{isolate, overlay, unpack};
use crate::context::Selected;
use crate::engine::embedded::fs_error;
use crate::error::{Context as _, Error, Result};

/// Where the tree that is copied from is mounted.
const FROM: &str = "from";

const ROOT_OWNER: Owner = Owner { uid: 0, gid: 0 };

pub fn run(spec: &CopySpec) -> Result<Report> {
    isolate::enter(UnshareFlags::empty())?;
    let place = Place::new(&spec.root.work)?;
    let from = spec.from.as_ref().map(|lower| overlay::mount_tree(&place, FROM, lower, false)).transpose()?;
    let root = overlay::mount_root(&place, &spec.root, &[])?;
    let changed = copy(spec, &place, from.as_ref(), &root)?;
    Ok(Report::Done { changed })
}

/// One thing to copy: a match of a pattern with everything selected below it, or the text of a heredoc.
enum Found<'a> {
    Files { source: &'a Root, base: PathBuf, name: PathBuf, entries: Vec<PathBuf>, local: bool },
    Inline { name: &'a str, content: &'a [u8] },
}

fn copy(spec: &CopySpec, place: &Place, from: Option<&Root>, root: &Root) -> Result<bool> {
    let owner = spec.chown.as_deref().map(|chown| Accounts::of(root).owner(chown)).transpose()?;
    let mut contexts: HashMap<&Path, Root> = HashMap::new();
    for item in &spec.items {
        if let CopyItem::Context(item) = item
            && !contexts.contains_key(&*item.context)
        {
            contexts.insert(&item.context, open_context(&item.context)?);
        }
    }
    let mut found = Vec::new();
    for item in &spec.items {
        match item {
            CopyItem::Context(item) => {
                if let Some(source) = contexts.get(&*item.context) {
                    let entries = item.entries.iter().map(|e| e.0.clone()).collect();
                    let (base, name) = (item.base.0.clone(), item.name.0.clone());
                    found.push(Found::Files { source, base, name, entries, local: true });
                }
            }
            CopyItem::Tree(pattern) => {
                let Some(source) = from else {
                    return Err(Error::failed(format!("there is no stage or image to copy `{pattern}` from")));
                };
                for selected in select(&place.in_memory(FROM), pattern, &spec.excludes)? {
                    let entries = selected.entries.into_iter().map(|e| e.path).collect();
                    let (base, name) = (selected.root, PathBuf::from(selected.name));
                    found.push(Found::Files { source, base, name, entries, local: false });
                }
            }
            CopyItem::Inline { name, content } => found.push(Found::Inline { name, content: &content.0 }),
        }
    }
    if found.is_empty() {
        // Patterns that match nothing; a name that isn't there has been refused by now.
        return Ok(false);
    }

    let dest = resolve(root, &spec.dest)?;
    let wants_directory = spec.dest.ends_with('/') || spec.parents;
    if found.len() > 1 && !wants_directory && !dest.is_directory() {
        return Err(Error::bad_input(format!("several files are copied to `{}`, which is not a directory", spec.dest))
            .hint(format!("write `{}/` to have them in a directory of that name", spec.dest)));
    }
    // Files of the context belong to nobody in the image; those of an image are its own.
    let mut local = Writer::new(root, Some(owner.unwrap_or(ROOT_OWNER)), spec.chmod.clone(), false);
    let mut foreign = Writer::new(root, owner, spec.chmod.clone(), true);
    for one in &found {
        let writer = if matches!(one, Found::Files { local: false, .. }) { &mut foreign } else { &mut local };
        put(spec, one, root, &dest, wants_directory, writer, owner)?;
    }
    Ok(local.finish()? | foreign.finish()?)
}

/// Where an instruction's destination is, all links followed.
struct Dest {
    real: PathBuf,
    stat: Option<Stat>,
}

impl Dest {
    fn is_directory(&self) -> bool {
        self.stat.as_ref().is_some_and(|s| kind_of(s) == FileType::Directory)
    }
}

fn resolve(root: &Root, dest: &str) -> Result<Dest> {
    let what = |e| fs_error(format!("cannot resolve `{dest}` in the image"), e);
    let real = root.real_path(Path::new(dest)).map_err(what)?;
    let stat = root.stat(&real).map_err(what)?;
    Ok(Dest { real, stat })
}

fn put(
    spec: &CopySpec,
    found: &Found<'_>,
    root: &Root,
    dest: &Dest,
    wants_directory: bool,
    writer: &mut Writer<'_>,
    owner: Option<Owner>,
) -> Result<()> {
    let as_directory = wants_directory || dest.is_directory();
    if as_directory && let Some(stat) = dest.stat.as_ref().filter(|s| kind_of(s) != FileType::Directory) {
        return Err(not_a_directory(root, &dest.real, stat));
    }
    let file_place = |name: &Path| if as_directory { dest.real.join(name) } else { dest.real.clone() };
    match found {
        Found::Inline { name, content } => {
            let real = file_place(Path::new(name));
            make_parent(writer, &real)?;
            let meta = Meta { owner: ROOT_OWNER, mode: 0o644, times: None, xattrs: Vec::new() };
            writer.write(&mut Cursor::new(content), &real, &meta)
        }
        Found::Files { source, base, name, entries, local } => {
            let what = |e| fs_error(format!("cannot read `{}`", base.display()), e);
            // The match itself is followed when it is a link; links below it are copied as links.
            let opened = follow(source, base).map_err(what)?;
            let stat = rustix::fs::fstat(&opened).map_err(|e| what(e.into()))?;
            if kind_of(&stat) == FileType::Directory {
                let target = if spec.parents { dest.real.join(base) } else { dest.real.clone() };
                if let Some(stat) = root.stat(&target).map_err(what)?
                    && kind_of(&stat) != FileType::Directory
                {
                    return Err(not_a_directory(root, &target, &stat));
                }
                writer.make_parents(&target)?;
                return put_entries(source, base, entries, root, &target, writer);
            }
            let archive = if *local && spec.unpack { unpack::open(&opened).map_err(what)? } else { None };
            if let Some(archive) = archive {
                // What is in the archive has its own mode, and --chmod says nothing about it.
                Writer::new(root, owner, None, false).make_parents(&dest.real)?;
                return unpack::unpack(archive, root, &dest.real, owner)
                    .map_err(|e| e.context(format!("cannot unpack `{}`", base.display())));
            }
            let real = file_place(if spec.parents { base } else { name });
            make_parent(writer, &real)?;
            writer.copy(&opened, &stat, &real)
        }
    }
}

fn put_entries(
    source: &Root,
    base: &Path,
    entries: &[PathBuf],
    root: &Root,
    target: &Path,
    writer: &mut Writer<'_>,
) -> Result<()> {
    for entry in entries {
        let Some(relative) = entry.strip_prefix(base).ok().filter(|r| !r.as_os_str().is_empty()) else {
            continue;
        };
        let what = |e| fs_error(format!("cannot read `{}`", entry.display()), e);
        let opened = source.open_at(entry, OFlags::PATH | OFlags::NOFOLLOW).map_err(what)?;
        let stat = rustix::fs::fstat(&opened).map_err(|e| what(e.into()))?;
        let real = target.join(relative);
        if kind_of(&stat) == FileType::Directory {
            writer.directory(Some(&opened), &real, &Meta { owner: writer.owner_of(&stat), ..Meta::of(&stat) })?;
        } else {
            // A selection may name a file without the directory above it.
            if let Some(parent) = real.parent().filter(|p| *p != target)
                && root.stat(parent).map_err(what)?.is_none()
            {
                writer.make_parents(parent)?;
            }
            writer.copy(&opened, &stat, &real)?;
        }
    }
    Ok(())
}

fn make_parent(writer: &mut Writer<'_>, real: &Path) -> Result<()> {
    match real.parent() {
        Some(parent) => writer.make_parents(parent).map(drop),
        None => Ok(()),
    }
}

/// Copies what was selected of the context into an empty directory: the source of a bind mount. Says whether it is a
/// single file, which then has the name of the match.
pub fn stage_context(items: &[ContextItem], into: &Path) -> Result<Option<PathBuf>> {
    std::fs::create_dir(into).unusable(|| format!("cannot make `{}`", into.display()))?;
    let root = Root::open(into).unusable(|| format!("cannot open `{}`", into.display()))?;
    let mut single = None;
    for item in items {
        let source = open_context(&item.context)?;
        let what = |e| fs_error(format!("cannot read `{}`", item.base.display()), e);
        let mut writer = Writer::new(&root, Some(ROOT_OWNER), None, false);
        let opened = follow(&source, &item.base).map_err(what)?;
        let stat = rustix::fs::fstat(&opened).map_err(|e| what(e.into()))?;
        if kind_of(&stat) == FileType::Directory {
            let entries: Vec<PathBuf> = item.entries.iter().map(|e| e.0.clone()).collect();
            put_entries(&source, &item.base, &entries, &root, Path::new(""), &mut writer)?;
        } else {
            writer.copy(&opened, &stat, &item.name)?;
            single = Some(into.join(&*item.name));
        }
        writer.finish()?;
    }
    Ok(single)
}

/// Copies a directory of a tree, mounted at `mounted`, into an empty one: what a cache mount starts with.
pub fn fill(source: &Root, mounted: &Path, path: &str, into: &Path) -> Result<()> {
    let root = Root::open(into).unusable(|| format!("cannot open `{}`", into.display()))?;
    let mut writer = Writer::new(&root, None, None, true);
    for selected in select(mounted, path, &[])? {
        let entries: Vec<PathBuf> = selected.entries.into_iter().map(|e| e.path).collect();
        put_entries(source, &selected.root, &entries, &root, Path::new(""), &mut writer)?;
    }
    writer.finish().map(drop)
}

/// Selects on a mounted tree as on a build context, but for what .dockerignore says.
fn select(mounted: &Path, pattern: &str, excludes: &[String]) -> Result<Vec<Selected>> {
    let selected = crate::context::Context::whole(mounted).select(pattern, excludes)?;
    if selected.is_empty() && !pattern.contains(['*', '?', '[']) {
        return Err(Error::bad_input(format!("there is no `{pattern}` to copy")));
    }
    Ok(selected)
}

fn open_context(path: &Path) -> Result<Root> {
    Root::open(path).bad_input(|| format!("cannot open the build context `{}`", path.display()))
}

fn follow(source: &Root, path: &Path) -> std::io::Result<OwnedFd> {
    if path.as_os_str().is_empty() {
        return source.fd().try_clone_to_owned();
    }
    source.open_at(path, OFlags::PATH)
}
