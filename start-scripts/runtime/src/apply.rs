//! Makes a plan so: puts back what no entry has any more, keeps what is there before it is changed, then changes what
//! differs, and only that.

use crate::check::{difference, is_current};
use crate::error::{Failure, Result, shown};
use crate::files;
use crate::log;
use crate::plan::{Node, Plan, Want};
use crate::state::{Original, Store, Unit, UnitKind};
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Puts back what units were that the plan doesn't have any more. Whether there were any.
pub fn restore_gone(plan: &Plan, store: &mut Store) -> Result<bool> {
    let gone: Vec<PathBuf> = store
        .state
        .units
        .iter()
        .filter(|(path, unit)| !is_current(plan, path, unit))
        .map(|(path, _)| path.clone())
        .collect();
    // What is in a directory before the directory.
    for path in gone.iter().rev() {
        let Some(unit) = store.state.units.get(path).cloned() else { continue };
        put_back(path, &unit, store)?;
        store.state.units.remove(path);
        store.save()?;
        if let Original::Copy(name) = &unit.original {
            files::remove(&store.copy(name))?;
        }
    }
    Ok(!gone.is_empty())
}

fn put_back(path: &Path, unit: &Unit, store: &Store) -> Result<()> {
    match (&unit.original, unit.kind) {
        (Original::Copy(name), UnitKind::Whole) => {
            log::info(format_args!("restoring {}", shown(path)));
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)
                    .map_err(|error| Failure::system(format_args!("make the directory {}", shown(parent)), error))?;
            }
            files::restore(&store.copy(name), path)
        }
        (Original::Absent, UnitKind::Whole) => {
            log::info(format_args!("removing {}", shown(path)));
            files::remove(path)
        }
        (Original::Directory { uid, gid, mode }, _) => {
            let own = crate::plan::Own { uid: *uid, gid: *gid, mode: *mode, like: None };
            if files::is_real_directory(path) { files::own_path(path, &own) } else { Ok(()) }
        }
        (original, UnitKind::Directory) => match fs::remove_dir(path) {
            Ok(()) => match original {
                Original::Copy(name) => files::restore(&store.copy(name), path),
                _ => Ok(()),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            // What the service put there is the service's.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                log::warning(format_args!("{} stays: it is not empty", shown(path)));
                Ok(())
            }
            Err(error) => Err(Failure::system(format_args!("remove {}", shown(path)), error)),
        },
    }
}

/// Keeps and records the originals of all units that are new, and what the plan has below each.
pub fn keep_originals(plan: &Plan, store: &mut Store) -> Result<()> {
    let mut units = Vec::new();
    units_of(Path::new("/"), &plan.root, &mut units);
    for (path, node) in units {
        let kind = if node.is_whole() { UnitKind::Whole } else { UnitKind::Directory };
        let mut installed = Vec::new();
        if kind == UnitKind::Whole {
            node.walk(Path::new(""), &mut |below, _| installed.push(below.to_path_buf()));
            installed.retain(|below| !below.as_os_str().is_empty());
        }
        if let Some(unit) = store.state.units.get_mut(&path) {
            unit.installed = installed;
            continue;
        }
        let original = match fs::symlink_metadata(&path) {
            Err(_) => Original::Absent,
            Ok(_) if kind == UnitKind::Directory && node.own().is_none() => continue,
            Ok(there) if kind == UnitKind::Directory && there.is_dir() => {
                Original::Directory { uid: there.uid(), gid: there.gid(), mode: there.mode() & 0o7777 }
            }
            Ok(_) => store.keep(&path).map_err(|failure| failure.of(&node.entry))?,
        };
        store.state.units.insert(path, Unit { kind, original, installed });
    }
    store.save()
}

/// The topmost nodes that are wholly the plan's, and the directories on the way to them.
fn units_of<'a>(path: &Path, node: &'a Node, units: &mut Vec<(PathBuf, &'a Node)>) {
    if node.restored {
        units.push((path.into(), node));
    }
    if !node.is_whole() {
        for (name, node) in node.names().into_iter().flatten() {
            units_of(&path.join(name), node, units);
        }
    }
}

/// Changes what differs.
pub fn change(plan: &Plan) -> Result<()> {
    make(Path::new("/"), &plan.root)
}

fn make(path: &Path, node: &Node) -> Result<()> {
    let of_entry = |failure: Failure| failure.of(&node.entry);
    match &node.want {
        Want::Directory { own, exact, names } => {
            let exact = *exact;
            make_directory(path, own.is_some()).map_err(of_entry)?;
            if exact {
                for name in names_in(path).map_err(of_entry)? {
                    if !names.contains_key(&name) {
                        files::remove(&path.join(name)).map_err(of_entry)?;
                    }
                }
            }
            for (name, node) in names {
                make(&path.join(name), node)?;
            }
            match own {
                Some(own) if difference(path, node).is_some() => files::own_path(path, own).map_err(of_entry),
                _ => Ok(()),
            }
        }
        Want::Touched { own } => {
            if path.symlink_metadata().is_err() {
                files::install(path, &crate::plan::Content::Bytes(Vec::new()), own).map_err(of_entry)?;
            }
            files::own_path(path, own).map_err(of_entry)
        }
        Want::File { .. } | Want::Link { .. } if difference(path, node).is_none() => Ok(()),
        Want::File { content, own } => {
            log::info(format_args!("writing {}", shown(path)));
            no_directory(path).and_then(|()| files::install(path, content, own)).map_err(of_entry)
        }
        Want::Link { target } => {
            log::info(format_args!("linking {}", shown(path)));
            no_directory(path).and_then(|()| files::link(path, target)).map_err(of_entry)
        }
    }
}

fn no_directory(path: &Path) -> Result<()> {
    if files::is_real_directory(path) { files::remove(path) } else { Ok(()) }
}

/// Nobody but root sees into a new directory that gets an owner, until it has that.
fn make_directory(path: &Path, owned: bool) -> Result<()> {
    if files::is_real_directory(path) {
        return Ok(());
    }
    files::remove(path)?;
    log::info(format_args!("making the directory {}", shown(path)));
    fs::DirBuilder::new()
        .mode(if owned { 0o700 } else { 0o755 })
        .create(path)
        .map_err(|error| Failure::system(format_args!("make the directory {}", shown(path)), error))
}

fn names_in(path: &Path) -> Result<Vec<std::ffi::OsString>> {
    let cannot = |error| Failure::system(format_args!("read the directory {}", shown(path)), error);
    fs::read_dir(path).map_err(cannot)?.map(|entry| Ok(entry.map_err(cannot)?.file_name())).collect()
}
