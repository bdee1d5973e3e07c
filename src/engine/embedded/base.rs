//! Images that others begin with, from wherever they come.

use std::fs::File;

use super::helper::spec::{CopyItem, CopySpec, RawPath, Report, Request, RootSpec};
use super::run::DEFAULT_PATH;
use super::sandbox::{self, Streams};
use super::{EmbeddedEngine, bootstrap, fetched, request};
use crate::context::Context;
use crate::engine::{BaseJob, BaseSource, Built, Ctl, Engine as _};
use crate::error::{Context as _, Error, Result};
use crate::image::archive::{Imported, import_docker_archive, import_oci};
use crate::image::config::{History, ImageConfig, Platform};
use crate::image::store::Layer;
use crate::registry::{self, Reference};

pub fn base(engine: &EmbeddedEngine, job: &BaseJob, ctl: &Ctl<'_>) -> Result<Built> {
    if !job.refresh
        && let Some(built) = engine.recall(&job.key)?
    {
        return Ok(built);
    }
    let _lock = engine.store.lock_key(&job.key, ctl.cancel)?;
    // Whoever held the lock may have made it.
    if !job.refresh
        && let Some(built) = engine.recall(&job.key)?
    {
        return Ok(built);
    }
    let store = &engine.store;
    let imported = |i: Imported| (i.config, i.size);
    let (config, size) = match &job.source {
        BaseSource::Bootstrap(wanted) if job.platform != Platform::host() => {
            let (what, host) = (format!("{} {}", wanted.distribution, wanted.suite), Platform::host());
            return Err(Error::unusable(format!("cannot bootstrap {what} for {}", job.platform))
                .cause(format!("this machine is {host}, and makes bases of packages for itself only"))
                .hint("take the base from a registry, or from files that were made on such a machine"));
        }
        BaseSource::Bootstrap(wanted) => {
            let layer = bootstrap::bootstrap(engine, wanted, job.source_date_epoch, ctl)?;
            (first_layer(job, &layer, &format!("bootstrap {} {}", wanted.distribution, wanted.suite))?, layer.size)
        }
        BaseSource::RootfsTar { path } => {
            let mut file =
                File::open(path).bad_input(|| format!("cannot read the root file system `{}`", path.display()))?;
            let layer = store
                .import_rootfs(&mut file, job.source_date_epoch, ctl.cancel)
                .map_err(|e| e.context(format!("cannot unpack the root file system `{}`", path.display())))?;
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (first_layer(job, &layer, &format!("root file system {name}"))?, layer.size)
        }
        BaseSource::OciLayout { path, reference } => {
            imported(import_oci(store, path, reference.as_deref(), &job.platform, ctl.cancel)?)
        }
        BaseSource::DockerArchive { path, reference } => {
            imported(import_docker_archive(store, path, reference.as_deref(), &job.platform, ctl.cancel)?)
        }
        BaseSource::Directory { path } => {
            let context = Context::open(path, None)?;
            let items = request::items_of(path, context.select(".", &[])?).map(CopyItem::Context).collect();
            whole(engine, job, items, ctl)?
        }
        BaseSource::Remote(remote) => {
            let work = store.work_dir()?;
            let items = fetched::context(engine, remote, job.pin.as_ref(), work.path(), ctl)?;
            whole(engine, job, items, ctl)?
        }
        BaseSource::Registry { reference } => {
            let name = reference
                .parse::<Reference>()
                .map_err(|e| Error::bad_input(format!("`{reference}` does not name an image")).cause(e))?;
            let caller = super::caller(ctl);
            imported(registry::pull(store, &name, &job.platform, &engine.options.registry, &caller)?)
        }
    };
    let built = Built { key: job.key.clone(), config, size };
    store.put_result(&job.key, &built)?;
    Ok(built)
}

/// In the history: a path of this machine says nothing to those who get the image.
const CONTEXT: &str = "build context";

/// An image of one layer with these files in its root.
fn whole(engine: &EmbeddedEngine, job: &BaseJob, items: Vec<CopyItem>, ctl: &Ctl<'_>) -> Result<(ImageConfig, u64)> {
    let work = engine.store.work_dir()?;
    let root = RootSpec { work: RawPath::from(work.path()), lower: Vec::new(), scaffold: None };
    let spec = CopySpec { root, items, dest: "/".into(), ..CopySpec::default() };
    let streams = Streams::Capture(&mut |_, _| {});
    match sandbox::call(&engine.options.helper, &Request::Copy(Box::new(spec)), streams, ctl.cancel)? {
        Report::Done { .. } => {}
        other => return Err(super::build::ended_badly(&other)),
    }
    let layer = engine.store.commit_upper(&work.path().join(RootSpec::UPPER), &[], job.source_date_epoch)?;
    Ok((first_layer(job, &layer, CONTEXT)?, layer.size))
}

/// The configuration of a base that Kollage itself makes one for.
pub fn foresee(source: &BaseSource, platform: &Platform) -> Option<ImageConfig> {
    // As the official images of either kind have it.
    let cmd = match source {
        BaseSource::Bootstrap(_) => "bash",
        BaseSource::RootfsTar { .. } => "/bin/sh",
        BaseSource::OciLayout { .. } | BaseSource::DockerArchive { .. } | BaseSource::Registry { .. } => return None,
        // As `FROM scratch`.
        BaseSource::Directory { .. } | BaseSource::Remote(_) => {
            let mut config = ImageConfig::new(platform);
            config.config.working_dir = "/".into();
            return Some(config);
        }
    };
    let mut config = ImageConfig::new(platform);
    config.config.env_set("PATH", DEFAULT_PATH);
    config.config.cmd = Some(vec![cmd.to_owned()]);
    Some(config)
}

fn first_layer(job: &BaseJob, layer: &Layer, created_by: &str) -> Result<ImageConfig> {
    let created = super::build::timestamp(job.source_date_epoch)?;
    let mut config = foresee(&job.source, &job.platform).unwrap_or_else(|| ImageConfig::new(&job.platform));
    config.rootfs.diff_ids.push(layer.diff_id.clone());
    config.history.push(History {
        created: Some(created.clone()),
        created_by: Some(created_by.to_owned()),
        ..History::default()
    });
    config.created = Some(created);
    Ok(config)
}
