//! `RUN --mount=type=ssh`: bytes between a socket in the builder and an agent here.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bollard_buildkit_proto::moby::sshforward::v1::ssh_server;
use bollard_buildkit_proto::moby::sshforward::v1::{BytesMessage, CheckAgentRequest, CheckAgentResponse};
use futures_util::StreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

/// What the agent is called when the mount gives it no name.
const DEFAULT: &str = "default";

pub struct Ssh(pub BTreeMap<String, PathBuf>);

impl Ssh {
    fn socket(&self, id: &str) -> Result<&PathBuf, Status> {
        let id = if id.is_empty() { DEFAULT } else { id };
        self.0.get(id).ok_or_else(|| Status::not_found(format!("there is no ssh-agent `{id}`")))
    }
}

#[tonic::async_trait]
impl ssh_server::Ssh for Ssh {
    type ForwardAgentStream = ReceiverStream<Result<BytesMessage, Status>>;

    async fn check_agent(&self, request: Request<CheckAgentRequest>) -> Result<Response<CheckAgentResponse>, Status> {
        self.socket(&request.into_inner().id)?;
        Ok(Response::new(CheckAgentResponse {}))
    }

    async fn forward_agent(
        &self,
        request: Request<Streaming<BytesMessage>>,
    ) -> Result<Response<Self::ForwardAgentStream>, Status> {
        let id = request.metadata().get("buildkit.ssh.id").and_then(|id| id.to_str().ok()).unwrap_or(DEFAULT);
        let socket = self.socket(id)?;
        let agent =
            UnixStream::connect(socket).await.map_err(|e| Status::unavailable(format!("the ssh-agent: {e}")))?;
        let (mut read, mut write) = agent.into_split();
        let mut asked = request.into_inner();
        let (send, receive) = mpsc::channel(4);
        tokio::spawn(async move {
            while let Some(Ok(message)) = asked.next().await {
                if write.write_all(&message.data).await.is_err() {
                    break;
                }
            }
        });
        tokio::spawn(async move {
            loop {
                let mut data = vec![0; 16 << 10];
                match read.read(&mut data).await {
                    Ok(0) | Err(_) => break,
                    Ok(n) => data.truncate(n),
                }
                if send.send(Ok(BytesMessage { data })).await.is_err() {
                    break;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receive)))
    }
}
