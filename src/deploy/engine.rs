//! Docker's or Podman's API, as much of it as deployments take. Async stays in here: every call waits for its answer.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::Duration;

use bollard::auth::DockerCredentials;
use bollard::container::LogOutput;
use bollard::errors::Error::RequestTimeoutError as TimedOut;
use bollard::exec::StartExecResults;
use bollard::models::{
    ContainerCreateBody, ContainerInspectResponse, ContainerStateStatusEnum, ExecConfig, NetworkCreateRequest, Volume,
    VolumeCreateRequest,
};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, CreateImageOptionsBuilder, ImportImageOptionsBuilder, ListContainersOptionsBuilder,
    ListVolumesOptionsBuilder, LogsOptionsBuilder, RemoveContainerOptionsBuilder, RemoveVolumeOptions,
    RenameContainerOptionsBuilder, StopContainerOptionsBuilder,
};
use futures_util::StreamExt as _;

use crate::daemon::{self, Answer, Daemon, Endpoint, found, why};
use crate::engine::embedded::output::Lines;
use crate::error::{Context as _, Error, Result};
use crate::event::Cancel;

pub struct Engine {
    daemon: Daemon,
}

/// What an image of the engine says about itself.
#[derive(Clone, Debug)]
pub struct Image {
    pub id: String,
    /// Whom it runs as.
    pub user: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Container {
    pub id: String,
    pub image: String,
    pub labels: HashMap<String, String>,
    pub running: bool,
    /// The engine starts it again.
    pub restarting: bool,
    pub restarts: i64,
    pub exit_code: i64,
    /// As the engine's own probe has it.
    pub health: Option<String>,
}

/// What a command in a container may take; engines have lost the end of one.
const ANSWER: Duration = Duration::from_secs(60);

/// After how many times 200 ms without a word it is asked whether a container still runs.
const QUIET: u32 = 5;

/// Podman has a state `stopped`, which Docker's types don't know.
fn readable<T: serde::de::DeserializeOwned>(answer: Answer<T>) -> Answer<T> {
    let Err(bollard::errors::Error::JsonDataError { contents, .. }) = &answer else { return answer };
    let Ok(mut value) = serde_json::from_str::<serde_json::Value>(contents) else { return answer };
    match value.pointer_mut("/State/Status") {
        Some(status) if status == "stopped" => *status = "exited".into(),
        _ => return answer,
    }
    serde_json::from_value(value).or(answer)
}

impl Engine {
    pub fn connect(endpoint: Endpoint, cancel: &Cancel) -> Result<Engine> {
        Ok(Engine { daemon: daemon::Engine::open(endpoint, cancel)?.connect(cancel)? })
    }

    fn wait<T>(&self, what: impl Fn() -> String, call: impl Future<Output = Answer<T>>) -> Result<T> {
        self.daemon.wait(what, call)
    }

    pub fn image(&self, reference: &str) -> Result<Option<Image>> {
        let what = || format!("cannot look at the image {reference}");
        let image = self.wait(what, async { found(self.daemon.docker.inspect_image(reference).await) })?;
        Ok(image.map(|image| Image {
            id: image.id.unwrap_or_default(),
            user: image.config.and_then(|config| config.user).filter(|user| !user.is_empty()),
        }))
    }

    /// Takes the images of a small Docker archive.
    pub fn load(&self, archive: &Path) -> Result<()> {
        let what = || "the engine doesn't take the image".to_owned();
        let bytes = std::fs::read(archive).unusable(|| format!("cannot read {}", archive.display()))?;
        self.wait(what, async {
            let options = ImportImageOptionsBuilder::default().quiet(true).build();
            let mut stream = self.daemon.docker.import_image(options, bollard::body_full(bytes.into()), None);
            while let Some(line) = stream.next().await {
                line?;
            }
            Ok(())
        })
    }

    pub fn pull(&self, reference: &str, login: Option<DockerCredentials>) -> Result<()> {
        let options = CreateImageOptionsBuilder::default().from_image(reference).build();
        let pulled = self.wait(|| format!("cannot get the image {reference}"), async {
            let mut stream = self.daemon.docker.create_image(Some(options), None, login);
            while let Some(line) = stream.next().await {
                line?;
            }
            Ok(())
        });
        let hint = "bring it to the engine: `kollage build IMAGE -o type=docker,dest=FILE`, then `docker load -i FILE`";
        pulled.map_err(|error| if error.hint_text().is_none() { error.hint(hint) } else { error })
    }

    pub fn container(&self, name: &str) -> Result<Option<Container>> {
        let what = || format!("cannot look at the container {name}");
        let answer =
            self.wait(what, async { found(readable(self.daemon.docker.inspect_container(name, None).await)) })?;
        Ok(answer.map(Container::from))
    }

    /// Names of the containers that have this label.
    pub fn containers(&self, label: &str, value: &str) -> Result<Vec<String>> {
        let filters = HashMap::from([("label", vec![format!("{label}={value}")])]);
        let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
        let found = self.wait(|| "cannot list containers".into(), self.daemon.docker.list_containers(Some(options)))?;
        let names = found.into_iter().filter_map(|container| container.names?.into_iter().next());
        let mut names: Vec<String> = names.map(|name| name.trim_start_matches('/').to_owned()).collect();
        names.sort();
        Ok(names)
    }

    pub fn create(&self, name: &str, body: ContainerCreateBody) -> Result<()> {
        let options = CreateContainerOptionsBuilder::default().name(name).build();
        let what = || format!("cannot make the container {name}");
        self.wait(what, self.daemon.docker.create_container(Some(options), body)).map(drop)
    }

    pub fn start(&self, name: &str) -> Result<()> {
        self.wait(|| format!("cannot start the container {name}"), self.daemon.docker.start_container(name, None))
    }

    /// Stopped within the time that the container was made with.
    pub fn stop(&self, name: &str, seconds: u32) -> Result<()> {
        let seconds = i32::try_from(seconds).unwrap_or(i32::MAX);
        let options = StopContainerOptionsBuilder::default().t(seconds).build();
        let what = || format!("cannot stop the container {name}");
        self.wait(what, async { found(self.daemon.docker.stop_container(name, Some(options)).await) }).map(drop)
    }

    pub fn rename(&self, name: &str, to: &str) -> Result<()> {
        let options = RenameContainerOptionsBuilder::default().name(to).build();
        self.wait(|| format!("cannot rename the container {name}"), self.daemon.docker.rename_container(name, options))
    }

    /// Whether it runs or not; its volumes stay.
    pub fn remove(&self, name: &str) -> Result<()> {
        let options = RemoveContainerOptionsBuilder::default().force(true).build();
        let what = || format!("cannot remove the container {name}");
        self.wait(what, async { found(self.daemon.docker.remove_container(name, Some(options)).await) }).map(drop)
    }

    /// Hands every line over until the container ends, and gives its exit code.
    ///
    /// The end of what is followed is not waited for: Podman loses it when a container ends at the wrong moment. Then
    /// all that the container said is asked for once more, and what was not handed over yet is.
    pub fn follow(&self, name: &str, line: &mut dyn FnMut(String)) -> Result<i64> {
        let options = LogsOptionsBuilder::default().follow(true).stdout(true).stderr(true).build();
        let mut logs = std::pin::pin!(self.daemon.docker.logs(name, Some(options)));
        let (mut lines, mut count) = (Lines::default(), 0);
        let mut counted = |text| {
            count += 1;
            line(text);
        };
        let mut quiet = 0;
        loop {
            let next = self.daemon.runtime.block_on(async {
                tokio::select! {
                    part = logs.next() => Some(part),
                    () = tokio::time::sleep(Duration::from_millis(200)) => None,
                }
            });
            self.daemon.cancel.check()?;
            match next {
                None if quiet == QUIET => {
                    quiet = 0;
                    if self.ended(name)?.is_some() {
                        self.tail(name, None)?.into_iter().skip(count).for_each(line);
                        break;
                    }
                }
                None => quiet += 1,
                Some(Some(Ok(part))) => {
                    quiet = 0;
                    lines.push(bytes(&part), &mut counted);
                }
                Some(Some(Err(error))) => {
                    return Err(Error::failed(format!("cannot read what {name} says")).cause(why(&error)));
                }
                Some(None) => {
                    lines.finish(&mut counted);
                    break;
                }
            }
        }
        loop {
            match self.ended(name)? {
                Some(code) => return Ok(code),
                None => self.daemon.cancel.sleep(Duration::from_millis(100))?,
            }
        }
    }

    /// The exit code of a container that doesn't run any more.
    fn ended(&self, name: &str) -> Result<Option<i64>> {
        let container = self.container(name)?;
        let container = container.ok_or_else(|| Error::failed(format!("the container {name} went away")))?;
        Ok((!container.running).then_some(container.exit_code))
    }

    /// The last lines of what a container said, or all.
    pub fn tail(&self, name: &str, count: Option<usize>) -> Result<Vec<String>> {
        let count = count.map_or_else(|| "all".to_owned(), |count| count.to_string());
        let options = LogsOptionsBuilder::default().stdout(true).stderr(true).tail(&count).build();
        let mut lines = Vec::new();
        self.wait(|| format!("cannot read what {name} says"), async {
            let mut logs = std::pin::pin!(self.daemon.docker.logs(name, Some(options.clone())));
            let mut cut = Lines::default();
            while let Some(part) = logs.next().await {
                cut.push(bytes(&part?), |line| lines.push(line));
            }
            cut.finish(|line| lines.push(line));
            Ok(())
        })?;
        Ok(lines)
    }

    /// Runs a command in a container: its exit code and what it said.
    pub fn exec(&self, name: &str, command: &[&str]) -> Result<(i64, String)> {
        let config = ExecConfig {
            cmd: Some(command.iter().map(|word| (*word).to_owned()).collect()),
            user: Some("0:0".into()),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            ..ExecConfig::default()
        };
        let run = async {
            let exec = self.daemon.docker.create_exec(name, config.clone()).await?;
            let mut said = String::new();
            if let StartExecResults::Attached { mut output, .. } = self.daemon.docker.start_exec(&exec.id, None).await?
            {
                while let Some(part) = output.next().await {
                    said.push_str(&String::from_utf8_lossy(bytes(&part?)));
                }
            }
            let code = self.daemon.docker.inspect_exec(&exec.id).await?.exit_code;
            Ok((code.unwrap_or(-1), said))
        };
        let what = || format!("cannot run a command in the container {name}");
        self.wait(what, async { tokio::time::timeout(ANSWER, run).await.unwrap_or(Err(TimedOut)) })
    }

    pub fn volume(&self, name: &str) -> Result<Option<Volume>> {
        let what = || format!("cannot look at the volume {name}");
        self.wait(what, async { found(self.daemon.docker.inspect_volume(name).await) })
    }

    /// Those with a label, by name.
    pub fn volumes(&self, label: &str, value: &str) -> Result<BTreeMap<String, HashMap<String, String>>> {
        let filters = HashMap::from([("label", vec![format!("{label}={value}")])]);
        let options = ListVolumesOptionsBuilder::default().filters(&filters).build();
        let found = self.wait(|| "cannot list volumes".into(), self.daemon.docker.list_volumes(Some(options)))?;
        Ok(found.volumes.unwrap_or_default().into_iter().map(|volume| (volume.name, volume.labels)).collect())
    }

    /// Those whose names begin so.
    pub fn volumes_called(&self, begin: &str) -> Result<Vec<String>> {
        let filters = HashMap::from([("name", vec![begin.to_owned()])]);
        let options = ListVolumesOptionsBuilder::default().filters(&filters).build();
        let found = self.wait(|| "cannot list volumes".into(), self.daemon.docker.list_volumes(Some(options)))?;
        let names = found.volumes.unwrap_or_default().into_iter().map(|volume| volume.name);
        Ok(names.filter(|name| name.starts_with(begin)).collect())
    }

    pub fn make_volume(&self, name: &str, labels: HashMap<String, String>) -> Result<()> {
        let request =
            VolumeCreateRequest { name: Some(name.into()), labels: Some(labels), ..VolumeCreateRequest::default() };
        self.wait(|| format!("cannot make the volume {name}"), self.daemon.docker.create_volume(request)).map(drop)
    }

    pub fn remove_volume(&self, name: &str) -> Result<()> {
        let what = || format!("cannot remove the volume {name}");
        self.wait(what, async { found(self.daemon.docker.remove_volume(name, None::<RemoveVolumeOptions>).await) })
            .map(drop)
    }

    pub fn has_network(&self, name: &str) -> Result<bool> {
        let what = || format!("cannot look at the network {name}");
        let found = self.wait(what, async { found(self.daemon.docker.inspect_network(name, None).await) })?;
        Ok(found.is_some())
    }

    pub fn make_network(&self, name: &str, labels: HashMap<String, String>) -> Result<()> {
        let request = NetworkCreateRequest {
            name: name.into(),
            driver: Some("bridge".into()),
            labels: Some(labels),
            ..NetworkCreateRequest::default()
        };
        self.wait(|| format!("cannot make the network {name}"), self.daemon.docker.create_network(request)).map(drop)
    }

    pub fn remove_network(&self, name: &str) -> Result<()> {
        let what = || format!("cannot remove the network {name}");
        self.wait(what, async { found(self.daemon.docker.remove_network(name).await) }).map(drop)
    }
}

impl From<ContainerInspectResponse> for Container {
    fn from(answer: ContainerInspectResponse) -> Container {
        let state = answer.state.unwrap_or_default();
        Container {
            id: answer.id.unwrap_or_default(),
            image: answer.image.unwrap_or_default(),
            labels: answer.config.and_then(|config| config.labels).unwrap_or_default(),
            running: state.running.unwrap_or(false),
            restarting: state.status == Some(ContainerStateStatusEnum::RESTARTING),
            restarts: answer.restart_count.unwrap_or(0),
            exit_code: state.exit_code.unwrap_or(0),
            health: state.health.and_then(|health| health.status).map(|status| status.to_string()),
        }
    }
}

fn bytes(part: &LogOutput) -> &[u8] {
    match part {
        LogOutput::StdErr { message }
        | LogOutput::StdOut { message }
        | LogOutput::StdIn { message }
        | LogOutput::Console { message } => message,
    }
}
