//! Docker's and Podman's API: where an engine is ([`find`]), and a connection to it. Async stays below this room and
//! those that hold a [`Daemon`]: every call waits for its answer.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bollard::auth::DockerCredentials;
use bollard::{API_DEFAULT_VERSION, ClientVersion, Docker};
use tokio::runtime::Runtime;

use crate::error::{Context as _, Error, Result};
use crate::event::Cancel;
use crate::registry::credentials::Lookup;

pub mod find;
pub mod relay;

pub use find::{Address, Endpoint, Hints, find};
use relay::Relay;

/// What is known about a registry, as the API takes it; none where there is nothing that can be used.
pub fn credentials(known: &Lookup) -> Option<DockerCredentials> {
    match known {
        Lookup::Login(login) => Some(DockerCredentials {
            username: Some(login.username.clone()),
            password: Some(login.password.clone()),
            ..DockerCredentials::default()
        }),
        Lookup::Token(token) => {
            Some(DockerCredentials { identitytoken: Some(token.0.clone()), ..DockerCredentials::default() })
        }
        Lookup::Nothing | Lookup::Unusable(_) => None,
    }
}

pub type Answer<T> = std::result::Result<T, bollard::errors::Error>;

/// Docker 19.03's; all that is asked for here is in it.
const OLDEST_API: (u64, u64) = (1, 40);
/// Until an answer begins. Calls that take long are ended by whoever waits for them.
const PATIENCE: u64 = 60 * 60;
/// Of an engine that takes a connection and says nothing.
const SILENCE: Duration = Duration::from_secs(60);

/// Where a relay has its directory: paths of sockets are short.
const SOCKETS: &str = "/tmp";

/// An engine that answered. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Engine {
    endpoint: Endpoint,
    relay: Option<Arc<Relay>>,
    /// Of the API that both speak. Asked for once: Podman takes seconds to say what it is.
    version: ClientVersion,
    pub facts: Facts,
}

/// What the engine says about itself.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// As a person would call it: `Docker 20.10.24`, `Podman 4.3.1`.
    pub name: String,
    pub is_podman: bool,
    /// Of Docker; Podman has numbers of its own.
    pub version: (u64, u64),
    /// What `docker build` would take, as the engine has it: BuildKit.
    pub buildkit: bool,
}

impl Engine {
    /// Connects once, to say in seconds what is wrong.
    pub fn open(endpoint: Endpoint, cancel: &Cancel) -> Result<Engine> {
        let relay = Relay::start(&endpoint.address, Path::new(SOCKETS))?.map(Arc::new);
        let mut engine = Engine { endpoint, relay, version: *API_DEFAULT_VERSION, facts: Facts::default() };
        let daemon = engine.connect(cancel)?;
        let negotiate = daemon.docker.clone().negotiate_version();
        let limited = daemon.runtime.block_on(async { tokio::time::timeout(SILENCE, negotiate).await });
        let docker = match limited {
            Ok(answer) => answer.map_err(|error| engine.unreachable(&error))?,
            Err(_) => return Err(engine.unreachable(&bollard::errors::Error::RequestTimeoutError)),
        };
        engine.version = docker.client_version();
        engine.facts = Daemon { docker, ..daemon }.facts()?;
        Ok(engine)
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The socket or the host and port behind which the engine is.
    pub fn plain(&self) -> Address {
        match &self.relay {
            Some(relay) => Address::Unix(relay.socket()),
            None => self.endpoint.address.clone(),
        }
    }

    /// A connection for one thread's calls.
    pub fn connect(&self, cancel: &Cancel) -> Result<Daemon> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unusable(|| "cannot make what waits for the engine".into())?;
        let address = self.plain().to_string();
        let docker = match self.plain() {
            Address::Unix(_) => Docker::connect_with_unix(&address, PATIENCE, &self.version),
            _ => Docker::connect_with_http(&address, PATIENCE, &self.version),
        };
        let docker = docker.map_err(|error| self.unreachable(&error))?;
        Ok(Daemon { docker, runtime, cancel: cancel.clone(), relay: self.relay.clone() })
    }

    fn unreachable(&self, error: &bollard::errors::Error) -> Error {
        let Endpoint { address, said_by } = &self.endpoint;
        Error::unusable(format!("no engine answers at `{address}`")).cause(format!("{said_by}: {}", why(error))).hint(
            "start Docker, or `podman system service`; DOCKER_HOST, DOCKER_CONTEXT and --host say where it is: \
             unix:///PATH, tcp://HOST:PORT or ssh://HOST",
        )
    }
}

/// A connection to an engine.
pub struct Daemon {
    pub docker: Docker,
    pub runtime: Runtime,
    pub cancel: Cancel,
    /// As long as there is a connection through it.
    pub relay: Option<Arc<Relay>>,
}

impl Daemon {
    /// An answer can be long in coming; an interruption doesn't wait for it.
    pub fn wait<T>(&self, what: impl Fn() -> String, call: impl Future<Output = Answer<T>>) -> Result<T> {
        self.unless(|| self.cancel.is_forced(), what, call)
    }

    /// The same for what the first interruption ends.
    pub fn work<T>(&self, what: impl Fn() -> String, call: impl Future<Output = Answer<T>>) -> Result<T> {
        self.unless(|| self.cancel.is_cancelled(), what, call)
    }

    fn unless<T>(
        &self,
        given_up: impl Fn() -> bool,
        what: impl Fn() -> String,
        call: impl Future<Output = Answer<T>>,
    ) -> Result<T> {
        let answer = self.runtime.block_on(async {
            let mut call = std::pin::pin!(call);
            loop {
                tokio::select! {
                    answer = &mut call => break Some(answer),
                    () = tokio::time::sleep(Duration::from_millis(200)) => {
                        if given_up() {
                            break None;
                        }
                    }
                }
            }
        });
        let answer = answer.ok_or_else(Error::interrupted)?;
        answer.map_err(|error| Error::failed(what()).cause(why(&error)))
    }

    /// Whether it is still there.
    pub fn ping(&self) -> Result<()> {
        self.wait(|| "the engine does not answer any more".into(), self.docker.ping()).map(drop)
    }

    fn facts(&self) -> Result<Facts> {
        let version = self.wait(|| "the engine does not say what it is".into(), self.docker.version())?;
        let parts = version.components.unwrap_or_default();
        let podman = parts.iter().find(|part| part.name.contains("Podman"));
        let number = podman.map(|part| part.version.clone()).or(version.version).unwrap_or_default();
        let facts = Facts {
            name: format!("{} {number}", if podman.is_some() { "Podman" } else { "Docker" }),
            is_podman: podman.is_some(),
            version: two(&number),
            buildkit: podman.is_none(),
        };
        let api = version.api_version.unwrap_or_default();
        if two(&api) < OLDEST_API {
            let oldest = format!("{}.{}", OLDEST_API.0, OLDEST_API.1);
            return Err(Error::unusable(format!("{} is too old", facts.name))
                .cause(format!("it speaks version {api} of the API, and {oldest} is wanted"))
                .hint("Docker 19.03 or Podman 3 or later is needed; `--engine embedded` needs none"));
        }
        Ok(facts)
    }
}

fn two(text: &str) -> (u64, u64) {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// None where the engine has no such thing.
pub fn found<T>(answer: Answer<T>) -> Answer<Option<T>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(bollard::errors::Error::DockerResponseServerError { status_code: 404, .. }) => Ok(None),
        Err(why) => Err(why),
    }
}

/// The engine's own words, without how they came.
pub fn why(error: &bollard::errors::Error) -> String {
    match error {
        bollard::errors::Error::DockerResponseServerError { message, .. } => message.trim().to_owned(),
        bollard::errors::Error::DockerStreamError { error } => error.trim().to_owned(),
        other => {
            // The outer ones name the library's own parts.
            let mut inner: &dyn std::error::Error = other;
            while let Some(source) = inner.source() {
                inner = source;
            }
            inner.to_string()
        }
    }
}
