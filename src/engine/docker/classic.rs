//! One node through the builder that Docker had before BuildKit, and that Podman speaks as well: a tar with a
//! Dockerfile goes in, lines come out.

use std::collections::HashMap;
use std::io::BufWriter;
use std::path::Path;

use bollard::body_try_stream;
use bollard::models::BuildInfo;
use bollard::query_parameters::BuildImageOptions;

use super::lines::Steps;
use super::{DockerEngine, UNCHECKED, check, images, network_mode};
use crate::daemon::Daemon;
use crate::dockerfile::step::Copy;
use crate::engine::embedded::fetched;
use crate::engine::portable::{self, Bring, Brought, Portable, portable};
use crate::engine::{BuildJob, Built, Ctl, NoCache};
use crate::error::{Context as _, Error, Result};
use crate::fetch::Remote;
use crate::image::config::Platform;

pub(super) fn build(engine: &DockerEngine, job: &BuildJob, ctl: &Ctl<'_>) -> Result<Built> {
    let daemon = engine.connect(ctl.cancel)?;
    let work = engine.local.store().work_dir()?;
    let bring = Elsewhere { engine, job, ctl, work: work.path() };
    let refer = |_: &str, built: &Built| engine.reference(&daemon, built);
    let made = portable(job, &refer, &bring)?;
    let name = format!("{UNCHECKED}:{}", job.key);
    let mut steps = Steps::new(&made.instructions, job.checks.len(), ctl);
    run(&daemon, &made, options(engine, job, &made, &name), &mut steps)
        .map_err(|error| steps.located(error, &job.dockerfile))?;
    steps.end();
    let checked = finished(&daemon, job, &name, ctl, &mut steps);
    if checked.is_ok() {
        images::tag(&daemon, &name, &DockerEngine::result_name(&job.key))?;
    }
    // Nothing is left of an image whose checks failed but the engine's own cache.
    let untagged = images::untag(&daemon, &name);
    checked.and_then(|built| untagged.map(|()| built))
}

fn finished(daemon: &Daemon, job: &BuildJob, name: &str, ctl: &Ctl<'_>, steps: &mut Steps<'_>) -> Result<Built> {
    let built = images::inspect(daemon, name)?
        .ok_or_else(|| Error::failed(format!("the engine says that it built {}, and has no such image", ctl.node)))?;
    let built = Built { key: job.key.clone(), ..built };
    job.check_layers(built.config.rootfs.diff_ids.len(), ctl.node)?;
    for check in &job.checks {
        check::run(daemon, check, name, ctl, steps)?;
    }
    Ok(built)
}

fn options(engine: &DockerEngine, job: &BuildJob, made: &Portable, name: &str) -> BuildImageOptions {
    let around = &job.surroundings;
    let platform = match job.platform == Platform::host() {
        true => String::new(),
        false => job.platform.to_string(),
    };
    let layered = !engine.engine.facts.is_podman;
    BuildImageOptions {
        dockerfile: portable::DOCKERFILE.to_owned(),
        t: Some(name.to_owned()),
        extrahosts: around.hosts.first().map(|(host, address)| format!("{host}:{address}")),
        nocache: job.no_cache != NoCache::Nothing,
        rm: layered,
        forcerm: true,
        buildargs: Some(made.build_args.clone().into_iter().collect::<HashMap<_, _>>()),
        shmsize: around.shm_size.and_then(|size| i32::try_from(size).ok()),
        labels: Some(job.labels.clone().into_iter().collect::<HashMap<_, _>>()),
        networkmode: network_mode(around.network).map(str::to_owned),
        platform,
        ..BuildImageOptions::default()
    }
}

fn run(daemon: &Daemon, made: &Portable, options: BuildImageOptions, steps: &mut Steps<'_>) -> Result<()> {
    let cancel = &daemon.cancel;
    let write = |out: images::Pipe| {
        let out = made.files.write(BufWriter::with_capacity(256 << 10, out), &made.dockerfile, cancel)?;
        out.into_inner().map(drop).failed(|| "cannot hand over the files of the build".to_owned())
    };
    let said = |info: BuildInfo| {
        if let Some(text) = info.stream {
            steps.said(&text);
        }
    };
    let call = |pieces| daemon.docker.build_image(options, None, Some(body_try_stream(pieces)));
    images::send(daemon, || "the engine's build failed".into(), write, call, said)
}

/// What ADD takes from elsewhere, by our own hands.
struct Elsewhere<'a> {
    engine: &'a DockerEngine,
    job: &'a BuildJob,
    ctl: &'a Ctl<'a>,
    work: &'a Path,
}

impl Bring for Elsewhere<'_> {
    fn bring(&self, copy: &Copy, remote: &Remote) -> Result<Brought> {
        fetched::brought(&self.engine.local, self.job, copy, remote, self.work, self.ctl)
    }
}
