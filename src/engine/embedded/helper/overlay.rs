//! Overlays: the root of a step over its layers, and read-only views of other stages.
//!
//! Always called in a mount namespace of the helper's own. Layers are reached by short links in a directory that is
//! the current one meanwhile: the option string is limited to a page, and thus takes hundreds of
//! layers; and no path of the user's, with its commas and colons, ever gets into it.

use std::ffi::CString;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, mount};

use super::inroot::{Owner, Root, chown, set_times, times_of};
use super::spec::{RawPath, RootSpec};
use crate::error::{Context as _, Error, Result};
use crate::image::layer::standin;
use crate::userns;

/// overlayfs takes no more lower directories than this.
const MAX_LOWER: usize = 500;

/// Nothing is written through these, so that what a module parameter turned on elsewhere does not get into a layer.
const FEATURES: &str = "index=off,redirect_dir=nofollow,metacopy=off";

/// A mount point that the root needs although the image may not have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// Absolute, as it was written.
    pub path: PathBuf,
    pub directory: bool,
}

/// Where a helper makes what it needs. Directories and links that only it uses are in memory: on a disk they would be
/// most of what a small step costs.
pub struct Place {
    /// On the store's file system.
    work: PathBuf,
    /// A file system in memory that nobody else has mounted.
    private: PathBuf,
}

impl Place {
    pub fn new(work: &Path) -> Result<Place> {
        let private = work.join("private");
        make_dir(&private)
            .and_then(|()| {
                let flags = MountFlags::NOSUID | MountFlags::NODEV;
                Ok(mount("kollage", &private, "tmpfs", flags, c"mode=700")?)
            })
            .unusable(|| format!("cannot make a private place in `{}`", work.display()))?;
        Ok(Place { work: work.to_path_buf(), private })
    }

    /// On the store's file system, for what may be large.
    pub fn on_disk(&self, name: impl AsRef<Path>) -> PathBuf {
        self.work.join(name)
    }

    pub fn in_memory(&self, name: impl AsRef<Path>) -> PathBuf {
        self.private.join(name)
    }

    /// Where the root of the step is mounted.
    pub fn root(&self) -> PathBuf {
        self.in_memory(ROOT)
    }
}

const ROOT: &str = "root";

/// Mounts the root of a step. The `points` come from a directory below all layers: they are there to mount upon, and
/// as nobody made them, nothing of them gets into the upper directory.
pub fn mount_root(place: &Place, spec: &RootSpec, points: &[Point]) -> Result<Root> {
    let upper = place.on_disk(RootSpec::UPPER);
    let mut lower = Vec::with_capacity(spec.lower.len() + 2);
    let prepare = |lower: &mut Vec<RawPath>| -> io::Result<()> {
        make_dir(&upper)?;
        // Even where it is empty: overlayfs wants one lower directory, and all of them on one file system.
        if !points.is_empty() || (spec.lower.is_empty() && spec.scaffold.is_none()) {
            let scaffold = place.on_disk("scaffold");
            build_scaffold(&scaffold, points)?;
            lower.push(RawPath(scaffold));
        }
        // The root directory of the merged tree is the upper one: it has to look like the image's.
        if let Some(top) = spec.lower.last() {
            let from = rustix::fs::stat(&**top)?;
            let upper = rustix::fs::open(&upper, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
            let (uid, gid) = standin::owner_of(top, &from)?;
            chown(upper.as_fd(), Owner { uid, gid })?;
            rustix::fs::fchmod(&upper, Mode::from_raw_mode(from.st_mode & 0o7777))?;
            set_times(upper.as_fd(), &times_of(&from))?;
        }
        Ok(())
    };
    prepare(&mut lower).unusable(|| format!("cannot prepare `{}`", place.work.display()))?;
    lower.extend(spec.scaffold.clone());
    lower.extend(spec.lower.iter().cloned());
    mount_at(place, ROOT, &lower, Some(&upper), MountFlags::NODEV)
}

/// Mounts a read-only view of some layers, or one in which what is written is thrown away.
pub fn mount_tree(place: &Place, name: &str, lower: &[RawPath], writable: bool) -> Result<Root> {
    let mut all = Vec::with_capacity(lower.len() + 2);
    let upper = place.on_disk(format!("{name}.upper"));
    let prepare = |all: &mut Vec<RawPath>| -> io::Result<()> {
        // overlayfs wants two lower directories where there is no upper one.
        for number in lower.len()..2 {
            let empty = place.in_memory(format!("{name}.empty{number}"));
            make_dir(&empty)?;
            all.push(RawPath(empty));
        }
        if writable { make_dir(&upper) } else { Ok(()) }
    };
    prepare(&mut all).unusable(|| format!("cannot prepare `{}`", place.work.display()))?;
    all.extend(lower.iter().cloned());
    match writable {
        true => mount_at(place, name, &all, Some(&upper), MountFlags::NODEV),
        false => mount_at(place, name, &all, None, MountFlags::NODEV | MountFlags::RDONLY),
    }
}

fn mount_at(place: &Place, name: &str, lower: &[RawPath], upper: Option<&Path>, flags: MountFlags) -> Result<Root> {
    if lower.len() > MAX_LOWER {
        return Err(Error::failed(format!("an image of {} layers cannot be mounted", lower.len()))
            .hint(format!("overlayfs takes at most {MAX_LOWER} layers; put several RUN instructions into one")));
    }
    let what = || format!("cannot mount an overlay in `{}`", place.work.display());
    let links = format!("{name}.l");
    let link = |target: &Path, name: String| -> io::Result<String> {
        symlink(target, place.in_memory(&name))?;
        Ok(name)
    };
    let prepare = || -> io::Result<Vec<String>> {
        make_dir(&place.in_memory(name))?;
        make_dir(&place.in_memory(&links))?;
        let mut names = Vec::with_capacity(lower.len());
        for (i, path) in lower.iter().enumerate() {
            names.push(link(path, format!("{links}/{i}"))?);
        }
        names.reverse();
        // A user's overlay keeps its records in attributes that a user may set.
        let userxattr = if userns::current().is_initial() { "" } else { "userxattr," };
        let options = format!("{userxattr}lowerdir={}", names.join(":"));
        let Some(upper) = upper else {
            return Ok(vec![format!("{options},{FEATURES}"), options]);
        };
        let records = upper.with_extension("ovl");
        make_dir(&records)?;
        let upper = link(upper, format!("{links}/upper"))?;
        let records = link(&records, format!("{links}/work"))?;
        let options = format!("{options},upperdir={upper},workdir={records}");
        // `volatile`: unmounting must not sync the whole file system; what the store believes it syncs itself.
        Ok(vec![format!("{options},{FEATURES},volatile"), format!("{options},{FEATURES}"), options])
    };
    let tries = prepare().unusable(what)?;
    rustix::process::chdir(&place.private).unusable(what)?;
    let mut result = Ok(());
    for data in tries {
        let data = CString::new(data).unusable(what)?;
        result = mount("overlay", name, "overlay", flags, data.as_c_str());
        // An old kernel does not know one of the options.
        if result != Err(rustix::io::Errno::INVAL) {
            break;
        }
    }
    rustix::process::chdir("/").unusable(what)?;
    result.map_err(|e| {
        Error::unusable(what()).cause(e).hint("`kollage doctor` says what this machine lacks; the store must lie on a file system that overlayfs can write to (ext4, xfs, btrfs; not another overlay)")
    })?;
    Root::open(&place.in_memory(name)).unusable(what)
}

/// Directories and empty files to mount upon.
pub fn build_scaffold(scaffold: &Path, points: &[Point]) -> io::Result<()> {
    make_dir(scaffold)?;
    for point in points {
        let Ok(relative) = point.path.strip_prefix("/") else { continue };
        if relative.components().any(|c| !matches!(c, std::path::Component::Normal(_))) {
            continue;
        }
        let mut path = scaffold.to_path_buf();
        for name in relative {
            path.push(name);
            match std::fs::symlink_metadata(&path) {
                Ok(_) => {}
                Err(_) if point.directory || path != scaffold.join(relative) => make_dir(&path)?,
                Err(_) => {
                    std::fs::write(&path, "")?;
                    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644))?;
                }
            }
        }
    }
    Ok(())
}

/// The mode is what it is whatever the umask says: this is also called where there is one.
fn make_dir(path: &Path) -> io::Result<()> {
    std::fs::create_dir(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
}
