//! The context, as one tar that the builder fetches from us as from a web server.

use std::io::{self, Write};
use std::sync::Arc;

use bollard_buildkit_proto::moby::upload::v1::BytesMessage;
use bollard_buildkit_proto::moby::upload::v1::upload_server;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::error::Result;

/// Writes the tar; called for every time that the builder asks for it.
pub type Archive = Arc<dyn Fn(&mut dyn Write) -> Result<()> + Send + Sync>;

pub struct Upload(pub Option<Archive>);

#[tonic::async_trait]
impl upload_server::Upload for Upload {
    type PullStream = ReceiverStream<Result<BytesMessage, Status>>;

    async fn pull(
        &self,
        _: Request<Streaming<BytesMessage>>,
    ) -> std::result::Result<Response<Self::PullStream>, Status> {
        let archive = self.0.clone().ok_or_else(|| Status::not_found("there is no context"))?;
        let (send, receive) = mpsc::channel(8);
        tokio::task::spawn_blocking(move || {
            let mut chunks = Chunks { send: send.clone(), pending: Vec::with_capacity(CHUNK) };
            let written = archive(&mut chunks).and_then(|()| {
                chunks.flush().map_err(|e| crate::error::Error::failed("the builder takes no more of it").cause(e))
            });
            if let Err(error) = written {
                // A builder that has gone doesn't want to know.
                let _ = send.blocking_send(Err(Status::aborted(format!("the context cannot be sent: {error}"))));
            }
        });
        Ok(Response::new(ReceiverStream::new(receive)))
    }
}

const CHUNK: usize = 128 << 10;

struct Chunks {
    send: mpsc::Sender<Result<BytesMessage, Status>>,
    pending: Vec<u8>,
}

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(CHUNK - self.pending.len());
        self.pending.extend_from_slice(&bytes[..taken]);
        if self.pending.len() == CHUNK {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let data = std::mem::replace(&mut self.pending, Vec::with_capacity(CHUNK));
        self.send.blocking_send(Ok(BytesMessage { data })).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
