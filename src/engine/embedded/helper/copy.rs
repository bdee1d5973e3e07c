//! COPY and ADD: sources are selected, the destination is resolved in the image, and files are put there.

use std::collections::HashMap;
use std::io::Cursor;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, OFlags, Stat, Timespec, Timestamps};
use rustix::thread::UnshareFlags;

use super::inroot::{Owner, Root, kind_of};
use super::overlay::Place;
use super::spec::{ContextItem, CopyItem, CopySpec, EntrySpec, Report};
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
    Files { source: &'a Root, base: PathBuf, name: PathBuf, entries: Vec<EntrySpec>, local: bool },
    Inline { name: &'a str, content: &'a [u8] },
    Fetched { path: &'a Path, name: &'a str, modified: i64, unpack: bool },
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
                    let entries = item.entries.clone();
                    let (base, name) = (item.base.0.clone(), item.name.0.clone());
                    found.push(Found::Files { source, base, name, entries, local: true });
                }
            }
            CopyItem::Tree(pattern) => {
                let Some(source) = from else {
                    return Err(Error::failed(format!("there is no stage or image to copy `{pattern}` from")));
                };
                for selected in select(&place.in_memory(FROM), pattern, &spec.excludes)? {
                    found.push(foreign_files(source, selected));
                }
            }
            CopyItem::TreeParents { pivot, pattern } => {
                let Some(source) = from else {
                    return Err(Error::failed(format!("there is no stage or image to copy `{pattern}` from")));
                };
                let tree = crate::context::Context::whole(&place.in_memory(FROM));
                let selected = tree.select_parents(pivot, pattern, &spec.excludes)?;
                if selected.is_empty() && ![pivot, pattern].iter().any(|p| crate::context::is_pattern(p)) {
                    return Err(Error::bad_input(format!("there is no `{pivot}/{pattern}` to copy")));
                }
                found.extend(selected.into_iter().map(|selected| foreign_files(source, selected)));
            }
            CopyItem::File { path, name, modified, unpack } => {
                found.push(Found::Fetched { path, name, modified: *modified, unpack: *unpack });
            }
            CopyItem::Inline { name, content } => found.push(Found::Inline { name, content: &content.0 }),
        }
    }
    if found.is_empty() {
        // Patterns that match nothing; a name that isn't there has been refused by now.
        return Ok(false);
    }

    let dest = resolve(root, &spec.dest)?;
    let wants_directory = spec.dest.ends_with('/');
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

fn foreign_files(source: &Root, selected: Selected) -> Found<'_> {
    let entries = selected.entries.into_iter().map(Into::into).collect();
    Found::Files { source, base: selected.root, name: PathBuf::from(selected.name), entries, local: false }
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
        Found::Fetched { path, name, modified, unpack } => {
            let what = |e| fs_error(format!("cannot read `{}`", path.display()), e);
            let mut file = std::fs::File::open(path).map_err(what)?;
            if *unpack
                && let Some(archive) = unpack::open(&file.as_fd().try_clone_to_owned().map_err(what)?).map_err(what)?
            {
                return unpack_into(archive, root, dest, owner)
                    .map_err(|e| e.context(format!("cannot unpack `{name}`")));
            }
            let real = file_place(Path::new(name));
            make_parent(writer, &real)?;
            let time = Timespec { tv_sec: *modified, tv_nsec: 0 };
            let times = Some(Timestamps { last_access: time, last_modification: time });
            writer.write(&mut file, &real, &Meta { owner: ROOT_OWNER, mode: 0o600, times, xattrs: Vec::new() })
        }
        Found::Files { source, base, name, entries, local } => {
            let what = |e| fs_error(format!("cannot read `{}`", base.display()), e);
            // The match itself is followed when it is a link; links below it are copied as links.
            let opened = follow(source, base).map_err(what)?;
            let stat = rustix::fs::fstat(&opened).map_err(|e| what(e.into()))?;
            if kind_of(&stat) == FileType::Directory {
                if let Some(stat) = dest.stat.as_ref().filter(|s| kind_of(s) != FileType::Directory) {
                    return Err(not_a_directory(root, &dest.real, stat));
                }
                writer.make_parents(&dest.real)?;
                return put_entries(source, base, entries, root, &dest.real, writer);
            }
            let archive = if *local && spec.unpack { unpack::open(&opened).map_err(what)? } else { None };
            if let Some(archive) = archive {
                return unpack_into(archive, root, dest, owner)
                    .map_err(|e| e.context(format!("cannot unpack `{}`", base.display())));
            }
            let real = file_place(name);
            make_parent(writer, &real)?;
            writer.copy(&opened, &stat, &real)
        }
    }
}

/// What is in an archive has its own mode, and --chmod says nothing about it.
fn unpack_into(archive: std::fs::File, root: &Root, dest: &Dest, owner: Option<Owner>) -> Result<()> {
    Writer::new(root, owner, None, false).make_parents(&dest.real)?;
    unpack::unpack(archive, root, &dest.real, owner)
}

fn put_entries(
    source: &Root,
    base: &Path,
    entries: &[EntrySpec],
    root: &Root,
    target: &Path,
    writer: &mut Writer<'_>,
) -> Result<()> {
    for EntrySpec { path: entry, on_the_way } in entries {
        let Some(relative) = entry.strip_prefix(base).ok().filter(|r| !r.as_os_str().is_empty()) else {
            continue;
        };
        let what = |e| fs_error(format!("cannot read `{}`", entry.display()), e);
        let opened = source.open_at(entry, OFlags::PATH | OFlags::NOFOLLOW).map_err(what)?;
        let stat = rustix::fs::fstat(&opened).map_err(|e| what(e.into()))?;
        let real = target.join(relative);
        if kind_of(&stat) == FileType::Directory && *on_the_way {
            writer.pass(&opened, &stat, &real)?;
        } else if kind_of(&stat) == FileType::Directory {
            let owner = writer.owner_of(&opened, &stat).map_err(what)?;
            writer.directory(Some(&opened), &real, &Meta { owner, ..Meta::of(&stat) })?;
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
            put_entries(&source, &item.base, &item.entries, &root, Path::new(""), &mut writer)?;
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
        let entries: Vec<EntrySpec> = selected.entries.into_iter().map(Into::into).collect();
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
