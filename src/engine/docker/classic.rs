//! One node through the builder that Docker had before BuildKit, and that Podman speaks as well: a tar with a
//! Dockerfile goes in, lines come out.

use std::collections::HashMap;
use std::io::BufWriter;

use bollard::body_try_stream;
use bollard::models::BuildInfo;
use bollard::query_parameters::BuildImageOptions;

use super::lines::Steps;
use super::{DockerEngine, images, network_mode};
use crate::daemon::Daemon;
use crate::engine::embedded::output::Redactor;
use crate::engine::portable::{self, Portable};
use crate::engine::{BuildJob, Ctl, NoCache};
use crate::error::{Context as _, Result};
use crate::image::config::Platform;

/// Builds an image of this name; gives how many steps that were.
pub(super) fn build(
    engine: &DockerEngine,
    job: &BuildJob,
    daemon: &Daemon,
    name: &str,
    ctl: &Ctl<'_>,
) -> Result<usize> {
    let work = engine.local.store().work_dir()?;
    let made = engine.portable(job, daemon, work.path(), ctl)?;
    let lending = engine.local.lending();
    let mut redactor = Redactor::default();
    lending.secrets().for_each(|secret| redactor.add(secret.as_bytes()));
    let mut steps = Steps::new(&made.instructions, job.checks.len(), redactor, ctl);
    run(daemon, &made, options(engine, job, &made, name), &mut steps).map_err(|error| {
        let hint = match lending.ca_bundle.is_some() && steps.tail().is_about_certificates() {
            true => Some(engine.no_certificates()),
            false => steps.tail().hint(),
        };
        let error = steps.located(error, &job.dockerfile);
        match hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    })?;
    steps.end();
    Ok(steps.begun())
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
        buildargs: Some(arguments(engine, job, made)),
        shmsize: around.shm_size.and_then(|size| i32::try_from(size).ok()),
        labels: Some(job.labels.clone().into_iter().collect::<HashMap<_, _>>()),
        networkmode: network_mode(around.network).map(str::to_owned),
        platform,
        ..BuildImageOptions::default()
    }
}

/// The Dockerfile's, and the proxies as far as they leave no trace: one that it declares would stand in the history.
fn arguments(engine: &DockerEngine, job: &BuildJob, made: &Portable) -> HashMap<String, String> {
    let declared = portable::declared(job);
    let proxies = engine.local.lending().proxy.iter().filter(|(name, _)| !declared.contains(name.as_str()));
    proxies.cloned().chain(made.build_args.clone()).collect()
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
