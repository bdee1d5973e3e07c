//! One builder's Control service: what it is, and one build on it, from request to result.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::time::Duration;

use bollard_buildkit_proto::moby::buildkit::v1::control_client::ControlClient;
use bollard_buildkit_proto::moby::buildkit::v1::{
    CacheOptions, CacheOptionsEntry, ListWorkersRequest, SolveRequest, StatusRequest, StatusResponse,
};
use futures_util::StreamExt as _;
use hyper_util::rt::TokioIo;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::dial::{self, Dial, Kind};
use super::lend;
use super::session::{self, Lent};
use crate::engine::embedded::lend::Lending;
use crate::error::{Error, Result};

/// Of one message from the builder; a context's digest list or a log can be large.
pub(super) const LARGEST: usize = 32 << 20;

/// Of Dockerfiles; every builder has it.
pub(super) const FRONTEND: &str = "dockerfile.v0";

/// The kind of cache that is kept in a registry.
pub(super) const CACHE: &str = "registry";

/// A builder has it when it keeps images as containerd does; dockerd's older way of keeping them can't push.
const SNAPSHOTTER: &str = "org.mobyproject.buildkit.worker.snapshotter";

#[derive(Clone, Debug)]
pub struct Connection {
    channel: Channel,
    control: ControlClient<Channel>,
    pub kind: Kind,
}

/// What a builder says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// As in `linux/amd64`.
    pub platforms: BTreeSet<String>,
    /// Whether a build can end with a push.
    pub pushes: bool,
    /// Where it says.
    pub version: Option<String>,
}

impl Facts {
    /// Before BuildKit 0.11, which is the first one that says its version.
    pub fn is_old(&self) -> bool {
        self.version.is_none()
    }
}

/// What is built, in words of BuildKit's Dockerfile frontend.
#[derive(Clone, Debug, Default)]
pub struct Build {
    pub attributes: BTreeMap<String, String>,
    /// None: only the cache is filled.
    pub exporter: Option<Exporter>,
    /// `REPOSITORY:TAG` of a registry where what steps gave is kept and looked for.
    pub cache: Option<String>,
    pub entitlements: Vec<String>,
    /// For steps, with whether the builder is an old one.
    pub lending: Option<(Lending, bool)>,
}

#[derive(Clone, Debug)]
pub struct Exporter {
    pub name: String,
    pub attributes: BTreeMap<String, String>,
}

impl Exporter {
    /// Into the images of the dockerd that builds it.
    pub fn kept(name: &str) -> Exporter {
        Exporter { name: "moby".into(), attributes: BTreeMap::from([("name".to_owned(), name.to_owned())]) }
    }

    /// To the registry that the name says.
    pub fn pushed(name: &str) -> Exporter {
        let attributes = [("name", name), ("push", "true"), ("oci-mediatypes", "true")];
        let attributes = attributes.map(|(key, value)| (key.to_owned(), value.to_owned()));
        Exporter { name: "image".into(), attributes: attributes.into() }
    }
}

#[derive(Debug)]
pub enum Problem {
    /// The builder is not there any more, or not as it was: another one can do the work.
    Gone(String),
    /// The build failed, wherever it is done.
    Failed(String),
}

impl Connection {
    pub async fn open(dial: &Dial) -> io::Result<Connection> {
        let kind = dial::kind(dial).await?;
        let dial = dial.clone();
        let connector = tower::service_fn(move |_| {
            let dial = dial.clone();
            async move { dial::grpc(&dial, kind).await.map(TokioIo::new) }
        });
        // The address is the connector's business; gRPC wants one in its headers.
        let endpoint = Endpoint::from_static("http://builder").connect_timeout(dial::PATIENCE);
        let channel = endpoint.connect_with_connector(connector).await.map_err(io::Error::other)?;
        let control =
            ControlClient::new(channel.clone()).max_decoding_message_size(LARGEST).max_encoding_message_size(LARGEST);
        Ok(Connection { channel, control, kind })
    }

    pub async fn facts(&self) -> Result<Facts, Problem> {
        let mut request = tonic::Request::new(ListWorkersRequest::default());
        request.set_timeout(dial::PATIENCE);
        let workers = self.control.clone().list_workers(request).await.map_err(problem)?.into_inner().record;
        // The first one is what builds go to when they don't ask for another.
        let Some(worker) = workers.into_iter().next() else {
            return Err(Problem::Gone("it has no worker".into()));
        };
        let platforms = worker.platforms.iter().map(|p| match p.variant.as_str() {
            "" => format!("{}/{}", p.os, p.architecture),
            variant => format!("{}/{}/{variant}", p.os, p.architecture),
        });
        Ok(Facts {
            platforms: platforms.collect(),
            pushes: worker.labels.contains_key(SNAPSHOTTER),
            version: worker.buildkit_version.map(|version| version.version),
        })
    }

    /// Builds; what the builder tells meanwhile goes to `watch`. Gives what the exporter has to say.
    pub async fn build(
        &self,
        build: &Build,
        lent: Lent,
        watch: &mut dyn FnMut(StatusResponse),
    ) -> Result<HashMap<String, String>, Problem> {
        let (session, id) = (session::unique(), session::unique());
        let mut attributes: HashMap<String, String> = build.attributes.clone().into_iter().collect();
        if lent.context.is_some() {
            attributes.insert("context".into(), format!("http://buildkit-session/{}", session::unique()));
        }
        if let Some(place) = &build.cache {
            let imports = serde_json::json!([{ "Type": CACHE, "Attrs": { "ref": place } }]);
            attributes.insert("cache-imports".into(), imports.to_string());
        }
        // Of all steps, not only of the last; a registry that doesn't take it is no reason to fail.
        let kept = |place: &String| CacheOptionsEntry {
            r#type: CACHE.into(),
            attrs: [("ref", place.as_str()), ("mode", "max"), ("ignore-error", "true")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        };
        let exporter = build.exporter.clone();
        // With something to lend, frontend and operations come by the bridge.
        let (frontend, asked, bridged) = match &build.lending {
            None => (FRONTEND.to_owned(), attributes, None),
            Some(lending) => (String::new(), HashMap::new(), Some((lending, attributes))),
        };
        let request = SolveRequest {
            r#ref: id.clone(),
            session: session.clone(),
            frontend,
            frontend_attrs: asked,
            // Builders of all versions understand the older of the two ways to say it.
            exporter_deprecated: exporter.as_ref().map(|e| e.name.clone()).unwrap_or_default(),
            exporter_attrs_deprecated: exporter.map(|e| e.attributes.into_iter().collect()).unwrap_or_default(),
            cache: Some(CacheOptions { exports: build.cache.iter().map(kept).collect(), ..CacheOptions::default() }),
            entitlements: build.entitlements.clone(),
            ..SolveRequest::default()
        };
        let (mut solving, mut telling) = (self.control.clone(), self.control.clone());
        let mut serving = std::pin::pin!(session::serve(self.control.clone(), session, lent));
        let mut solved = std::pin::pin!(solving.solve(request));
        let (channel, build_id, cache) = (self.channel.clone(), id.clone(), build.cache.as_deref());
        let lent = async move {
            match bridged {
                Some(((lending, is_old), attributes)) => {
                    lend::through(channel, &build_id, attributes, cache, lending, *is_old).await
                }
                None => Ok(()),
            }
        };
        let mut lent = std::pin::pin!(lent);
        let mut is_lent = false;
        let told = async {
            let mut stream = telling.status(StatusRequest { r#ref: id }).await?.into_inner();
            while let Some(status) = stream.next().await {
                watch(status?);
            }
            Ok::<(), Status>(())
        };
        let mut told = std::pin::pin!(told);
        let mut all_told = false;
        let answer = loop {
            tokio::select! {
                answer = &mut solved => break answer,
                ended = &mut serving => {
                    // Nothing that it is lent comes any more. Whether it had everything, its answer says.
                    let answer = tokio::time::timeout(dial::PATIENCE, &mut solved).await;
                    let why = ended.err().map_or_else(|| "it ended the session".to_owned(), |e| e.message().to_owned());
                    match answer {
                        Ok(answer) => break answer,
                        Err(_) => return Err(Problem::Gone(why)),
                    }
                }
                // Had it a cause, the build's own answer says it; a build that nobody carries out would have no end.
                done = &mut lent, if !is_lent => match done {
                    Ok(()) => is_lent = true,
                    Err(status) => match tokio::time::timeout(dial::PATIENCE, &mut solved).await {
                        Ok(answer) => break answer,
                        Err(_) => return Err(problem(status)),
                    }
                },
                // The build's own answer says why, should this have ended early.
                _ = &mut told, if !all_told => all_told = true,
            }
        };
        if !all_told {
            // The last lines of a step that failed; they come before the stream ends.
            let _ = tokio::time::timeout(Duration::from_secs(2), told).await;
        }
        answer.map(|answer| answer.into_inner().exporter_response).map_err(problem)
    }
}

/// Whether a connection failed or the builder is going down, or the build itself failed.
fn problem(status: Status) -> Problem {
    let message = status.message().to_owned();
    let broken = std::error::Error::source(&status).is_some();
    match status.code() {
        _ if broken => Problem::Gone(innermost(&status)),
        // Nobody but the builder itself ends a build: it does when it is told to stop.
        Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded => Problem::Gone(message),
        _ if message.ends_with("context canceled") => Problem::Gone("it is being stopped".into()),
        _ => Problem::Failed(message),
    }
}

fn innermost(status: &Status) -> String {
    let mut error: &dyn std::error::Error = status;
    while let Some(inner) = error.source() {
        error = inner;
    }
    error.to_string()
}

impl Problem {
    /// For a caller with one builder only.
    pub fn error(self, who: &str) -> Error {
        match self {
            Problem::Gone(why) => Error::unusable(format!("{who} went away")).cause(why),
            Problem::Failed(why) => Error::failed(why),
        }
    }
}
