//! A part of a file as the body of a request: read as it is sent, and counted, so that a connection that stands still
//! can be told from one that is slow.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

const PIECE: u64 = 256 << 10;

pub(super) struct Part {
    file: File,
    left: u64,
    sent: Arc<AtomicU64>,
}

impl Part {
    pub fn open(path: &Path, start: u64, length: u64, sent: Arc<AtomicU64>) -> io::Result<Part> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(start))?;
        Ok(Part { file, left: length, sent })
    }
}

impl Body for Part {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        // Blobs were written or read a moment ago: they come from the page cache.
        let mut piece = Vec::new();
        let wanted = self.left.min(PIECE);
        let read = (&self.file).take(wanted).read_to_end(&mut piece);
        Poll::Ready(Some(match read {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                self.left -= n as u64;
                self.sent.fetch_add(n as u64, Ordering::Relaxed);
                Ok(Frame::data(piece.into()))
            }
            Err(e) => Err(e),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
