//! What a builder may ask of us while it builds: a gRPC server of ours, in a stream of a gRPC call to the builder.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use bollard_buildkit_proto::health::health_server::HealthServer;
use bollard_buildkit_proto::moby::buildkit::secrets::v1::secrets_server::SecretsServer;
use bollard_buildkit_proto::moby::buildkit::v1::BytesMessage;
use bollard_buildkit_proto::moby::buildkit::v1::control_client::ControlClient;
use bollard_buildkit_proto::moby::filesync::v1::auth_server::AuthServer;
use bollard_buildkit_proto::moby::sshforward::v1::ssh_server::SshServer;
use bollard_buildkit_proto::moby::upload::v1::upload_server::UploadServer;
use futures_util::StreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::engine::SecretSource;
use crate::registry::Credentials;

mod auth;
mod health;
mod secrets;
mod ssh;
pub mod upload;

use upload::Archive;

/// Everything that one build is lent, and nothing that it doesn't need.
#[derive(Clone, Default)]
pub struct Lent {
    /// The context, as a tar.
    pub context: Option<Archive>,
    pub secrets: BTreeMap<String, SecretSource>,
    /// Sockets of agents.
    pub ssh: BTreeMap<String, PathBuf>,
    pub credentials: Arc<Credentials>,
    /// Images that the build has to do with: a login is given for their registries only. A builder that asks for
    /// another one is told that there is none.
    pub images: BTreeSet<String>,
}

/// A name that no other session has, for this one and what is uploaded in it.
pub fn unique() -> String {
    use std::hash::{BuildHasher as _, Hasher as _, RandomState};
    // Each state has keys of its own, from the system's random numbers.
    let part = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", part(), part())
}

/// Serves until the builder or the caller ends it.
pub(super) async fn serve(mut control: ControlClient<Channel>, id: String, lent: Lent) -> Result<(), Status> {
    let (ours, theirs) = tokio::io::duplex(256 << 10);
    let (mut read, mut write) = tokio::io::split(theirs);
    let (send, receive) = mpsc::channel(16);
    let mut request = Request::new(tokio_stream::wrappers::ReceiverStream::new(receive));
    let text = |text: &str| text.parse::<MetadataValue<Ascii>>().map_err(|_| Status::internal("no header"));
    let metadata = request.metadata_mut();
    metadata.insert("x-docker-expose-session-uuid", text(&id)?);
    metadata.insert("x-docker-expose-session-name", text("kollage")?);
    metadata.insert("x-docker-expose-session-sharedkey", text("")?);
    for method in methods(&lent) {
        metadata.append("x-docker-expose-session-grpc-method", text(method)?);
    }
    // The server ends with its last connection; nothing but the connection's end has to end this one.
    let incoming = tokio_stream::once(Ok::<_, std::io::Error>(ours)).chain(tokio_stream::pending());
    let server = tonic::transport::Server::builder()
        .add_service(HealthServer::new(health::Health))
        .add_service(AuthServer::new(auth::Auth::new(lent.credentials, lent.images)))
        .add_service(SecretsServer::new(secrets::Secrets(lent.secrets)))
        .add_service(SshServer::new(ssh::Ssh(lent.ssh)))
        .add_service(UploadServer::new(upload::Upload(lent.context)))
        .serve_with_incoming(incoming);
    let outwards = async {
        loop {
            let mut data = vec![0; 64 << 10];
            match read.read(&mut data).await {
                Ok(0) | Err(_) => return Ok(()),
                Ok(n) => data.truncate(n),
            }
            if send.send(BytesMessage { data }).await.is_err() {
                return Ok(());
            }
        }
    };
    let inwards = async {
        let mut answers = control.session(request).await?.into_inner();
        while let Some(message) = answers.next().await {
            if write.write_all(&message?.data).await.is_err() {
                break;
            }
        }
        Ok(())
    };
    tokio::select! {
        done = outwards => done,
        done = inwards => done,
        done = server => done.map_err(|e| Status::new(Code::Internal, e.to_string())),
    }
}

/// A builder asks for what is announced only.
fn methods(lent: &Lent) -> Vec<&'static str> {
    let mut methods = vec!["/grpc.health.v1.Health/Check", "/moby.filesync.v1.Auth/Credentials"];
    if lent.context.is_some() {
        methods.push("/moby.upload.v1.Upload/Pull");
    }
    if !lent.secrets.is_empty() {
        methods.push("/moby.buildkit.secrets.v1.Secrets/GetSecret");
    }
    if !lent.ssh.is_empty() {
        methods.extend(["/moby.sshforward.v1.SSH/CheckAgent", "/moby.sshforward.v1.SSH/ForwardAgent"]);
    }
    methods
}
