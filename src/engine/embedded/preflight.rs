//! What must hold before anything starts: found in milliseconds, rather than after forty minutes.

use std::path::Path;
use std::sync::Arc;

use super::helper::spec::{RawPath, Request, RootSpec};
use super::sandbox::{self, Streams};
use super::{EmbeddedEngine, Options, bootstrap};
use crate::engine::BaseSource;
use crate::error::{Context as _, Error, Result};
use crate::event::{Cancel, Silent};
use crate::fetch::Remote;
use crate::image::config::Platform;
use crate::image::reference::Reference;
use crate::image::store::Store;
use crate::net::Caller;
use crate::registry;
use crate::userns;

/// openat2 came with 5.6, volatile overlays with 5.10.
const OLDEST_KERNEL: (u32, u32) = (5, 10);
/// Overlays that an ordinary user may mount came with 5.11.
const OLDEST_KERNEL_FOR_USERS: (u32, u32) = (5, 11);

pub fn check(store: &Store, options: &Options) -> Vec<Error> {
    let mut problems = Vec::new();
    let root = rustix::process::geteuid().is_root();
    if !root {
        problems.push(
            Error::unusable("the embedded engine has to run as root, if only of a user namespace")
                .hint("the program does so, in a user namespace at least; a library's caller has to see to it"),
        );
    }
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let (oldest, whom) = match userns::current().is_initial() {
        true => (OLDEST_KERNEL, ""),
        false => (OLDEST_KERNEL_FOR_USERS, " as an ordinary user"),
    };
    if let Some(version) = kernel_version(&release).filter(|v| *v < oldest) {
        problems.push(
            Error::unusable(format!("Linux {}.{} is too old for the embedded engine{whom}", version.0, version.1))
                .hint(format!("it needs Linux {}.{} or later", oldest.0, oldest.1)),
        );
    }
    problems.extend(free_space(store.root(), options.min_free));
    // Whoever isn't root cannot mount anything, and need not be told twice.
    if root {
        problems.extend(store.check_filesystem().err().or_else(|| overlay(store, options)));
    }
    problems
}

fn overlay(store: &Store, options: &Options) -> Option<Error> {
    let attempt = || -> Result<()> {
        let work = store.work_dir()?;
        let lower = work.path().join("lower");
        std::fs::create_dir(&lower).map_err(|e| super::fs_error(format!("cannot make `{}`", lower.display()), e))?;
        let spec = RootSpec { work: RawPath::from(work.path()), lower: vec![RawPath(lower)], scaffold: None };
        let cancel = Cancel::new()?;
        sandbox::call(&options.helper, &Request::Probe(spec), Streams::Capture(&mut |_, _| {}), &cancel).map(drop)
    };
    attempt().err()
}

fn free_space(root: &Path, min_free: u64) -> Option<Error> {
    let stat = match rustix::fs::statvfs(root) {
        Ok(stat) => stat,
        Err(e) => return Some(Error::unusable(format!("cannot look at the store `{}`", root.display())).cause(e)),
    };
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    if free >= min_free {
        return None;
    }
    let mib = |bytes: u64| bytes >> 20;
    Some(
        Error::unusable(format!(
            "the file system of the store `{}` has {} MiB free, and {} MiB are wanted",
            root.display(),
            mib(free),
            mib(min_free)
        ))
        .hint("`kollage store prune` frees space; `--store DIR` takes another file system"),
    )
}

fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// The same without a store: what a base of this machine needs.
pub fn base_preflight(source: &BaseSource) -> Result<()> {
    match source {
        BaseSource::Bootstrap(wanted) => bootstrap::preflight(wanted),
        BaseSource::OciLayout { path, .. }
        | BaseSource::DockerArchive { path, .. }
        | BaseSource::RootfsTar { path } => {
            std::fs::metadata(path).map(drop).bad_input(|| format!("cannot read the base `{}`", path.display()))
        }
        BaseSource::Directory { path } => std::fs::read_dir(path)
            .map(drop)
            .bad_input(|| format!("cannot read the build context `{}`", path.display())),
        BaseSource::Remote(_) | BaseSource::Registry { .. } => Ok(()),
    }
}

impl EmbeddedEngine {
    /// What fetching needs: its tools.
    pub fn fetch_preflight(&self, remote: &Remote) -> Result<()> {
        self.fetcher.preflight(remote)
    }

    /// What a base needs besides: its tools, its keys, its files; of a registry, that it has the image.
    pub fn base_preflight(&self, source: &BaseSource, platform: &Platform) -> Result<()> {
        match source {
            BaseSource::Remote(remote) => self.fetcher.preflight(remote),
            BaseSource::Registry { reference } => {
                let name: Reference =
                    reference.parse().bad_input(|| format!("`{reference}` does not name an image"))?;
                let (node, cancel) = (Arc::from(reference.as_str()), Cancel::new()?);
                let caller = Caller { node: &node, sink: &Silent, cancel: &cancel };
                registry::inspect(&self.store, &name, platform, &self.options.registry, &caller).map(drop)
            }
            source => base_preflight(source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_told_by_their_numbers() {
        assert_eq!(kernel_version("6.18.44-fc-v782"), Some((6, 18)));
        assert_eq!(kernel_version("5.10.0"), Some((5, 10)));
        assert_eq!(kernel_version("5.4"), Some((5, 4)));
        assert_eq!(kernel_version("plan9"), None);
        assert!(kernel_version("4.19.1").is_some_and(|v| v < OLDEST_KERNEL));
    }

    #[test]
    fn a_full_disk_is_said() {
        let dir = tempfile::tempdir().unwrap();
        assert!(free_space(dir.path(), 0).is_none());
        let error = free_space(dir.path(), u64::MAX).unwrap();
        assert!(error.message().contains("MiB free") && error.hint_text().is_some());
        assert!(free_space(&dir.path().join("missing"), 0).is_some());
    }
}
