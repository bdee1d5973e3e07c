//! Checks: a command in a finished image, as a container without a network that goes away with its end.

use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{
    CreateContainerOptions, DownloadFromContainerOptionsBuilder, LogsOptionsBuilder, RemoveContainerOptionsBuilder,
    WaitContainerOptions,
};
use futures_util::StreamExt as _;

use super::lines::Steps;
use crate::daemon::{Answer, Daemon};
use crate::engine::embedded::output::Lines;
use crate::engine::embedded::run::DEFAULT_PATH;
use crate::engine::{Check, Ctl};
use crate::error::{Error, Result};
use crate::event::Stream;

pub(super) fn run(daemon: &Daemon, check: &Check, image: &str, ctl: &Ctl<'_>, steps: &mut Steps<'_>) -> Result<()> {
    let container = Container::create(daemon, check, image)?;
    if let (true, Some(program)) = (check.when_there, check.run.first())
        && !container.has_program(program)?
    {
        // It is counted among the steps.
        return steps.own(format!("Check: there is no {program} in the image"), |_| Ok(()));
    }
    let command = check.run.join(" ");
    let ended = |code: i64| match code {
        0 => Ok(()),
        code => Err(Error::failed(format!("exit status {code}"))),
    };
    steps
        .own(format!("Check: {command}"), |steps| {
            let code = container.run(|stream, line| steps.show(stream, line))?;
            ended(code)
        })
        .map_err(|error| error.context(format!("the check `{command}` failed in the finished image of {}", ctl.node)))
}

struct Container<'a> {
    daemon: &'a Daemon,
    id: String,
    path: String,
}

impl<'a> Container<'a> {
    fn create(daemon: &'a Daemon, check: &Check, image: &str) -> Result<Container<'a>> {
        let body = ContainerCreateBody {
            image: Some(image.to_owned()),
            entrypoint: Some(check.run.clone()),
            cmd: Some(Vec::new()),
            user: check.user.clone(),
            host_config: Some(HostConfig { network_mode: Some("none".into()), ..HostConfig::default() }),
            ..ContainerCreateBody::default()
        };
        let what = || "cannot make a container for a check".to_owned();
        let made = daemon.work(what, daemon.docker.create_container(None::<CreateContainerOptions>, body))?;
        let mut container = Container { daemon, id: made.id, path: DEFAULT_PATH.to_owned() };
        let found = daemon.work(what, daemon.docker.inspect_container(&container.id, None))?;
        let env = found.config.and_then(|config| config.env).unwrap_or_default();
        if let Some(path) = env.iter().rev().find_map(|line| line.strip_prefix("PATH=")) {
            path.clone_into(&mut container.path);
        }
        Ok(container)
    }

    /// Whether the image has a program of this name where its PATH looks.
    fn has_program(&self, name: &str) -> Result<bool> {
        for dir in self.path.split(':') {
            let options = DownloadFromContainerOptionsBuilder::default().path(&format!("{dir}/{name}")).build();
            let first = async {
                let mut parts = std::pin::pin!(self.daemon.docker.download_from_container(&self.id, Some(options)));
                crate::daemon::found(parts.next().await.transpose()).map(Option::flatten)
            };
            if self.daemon.work(|| "cannot look into an image".into(), first)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Its exit code.
    fn run(&self, mut show: impl FnMut(Stream, String)) -> Result<i64> {
        let docker = &self.daemon.docker;
        let what = || "cannot run a check".to_owned();
        self.daemon.work(what, docker.start_container(&self.id, None))?;
        let code = self.daemon.work(what, async {
            let mut ends = std::pin::pin!(docker.wait_container(&self.id, None::<WaitContainerOptions>));
            match ends.next().await {
                Some(Ok(end)) => Ok(end.status_code),
                Some(Err(bollard::errors::Error::DockerContainerWaitError { code, .. })) => Ok(code),
                Some(Err(error)) => Err(error),
                None => Ok(0),
            }
        })?;
        let options = LogsOptionsBuilder::default().stdout(true).stderr(true).build();
        let mut lines = Lines::default();
        self.daemon.work(what, async {
            let mut parts = std::pin::pin!(docker.logs(&self.id, Some(options)));
            while let Some(part) = parts.next().await {
                lines.push(&part?.into_bytes(), |line| show(Stream::Stdout, line));
            }
            Answer::Ok(())
        })?;
        lines.finish(|line| show(Stream::Stdout, line));
        Ok(code)
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        let removal = self.daemon.docker.remove_container(&self.id, Some(options));
        // An engine that is gone keeps it, and nothing can be done about that from here.
        let _ = self.daemon.wait(|| "cannot remove a container".into(), removal);
    }
}
