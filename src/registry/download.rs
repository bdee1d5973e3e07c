//! One blob into one file: what has arrived is kept when the connection breaks, and thrown away when it turns out to
//! be wrong.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::path::Path;

use reqwest::header::{self, HeaderMap, HeaderValue};
use reqwest::{Method, Response, StatusCode};
use sha2::Digest as _;

use crate::error::{Context as _, Error, Result};
use crate::image::archive::layers::damaged;
use crate::image::digest::Digest;
use crate::image::manifest::Descriptor;
use crate::net::{Problem, Tries};
use crate::registry::client::{Client, WRONG_THERE};

/// Progress after which an earlier failure no longer counts.
const PROGRESS: u64 = 1 << 20;

struct Download<'a> {
    blob: &'a Descriptor,
    /// Writes go to the page cache: waiting for them on the runtime's thread holds nothing up that matters.
    file: File,
    hash: sha2::Sha256,
    written: u64,
    /// Whether what arrived came from more than one answer.
    resumed: bool,
    /// A registry whose ranges were wrong is not asked for one again.
    ranges: bool,
    spoiled: bool,
}

impl Client<'_> {
    pub(super) async fn download(&self, blob: &Descriptor, what: &str, path: &Path) -> Result<()> {
        let file = File::create_new(path).unusable(|| format!("cannot create {}", path.display()))?;
        let mut download = Download {
            blob,
            file,
            hash: sha2::Sha256::new(),
            written: 0,
            resumed: false,
            ranges: true,
            spoiled: false,
        };
        let mut tries = Tries::default();
        loop {
            let before = download.written;
            match self.try_download(&mut download, what).await {
                Ok(()) => return Ok(()),
                Err(problem) => {
                    if download.written >= before + PROGRESS {
                        tries.reset();
                    }
                    self.wait(&mut tries, problem, what).await?;
                }
            }
        }
    }

    async fn try_download(&self, download: &mut Download<'_>, what: &str) -> Result<(), Problem> {
        let have = download.written;
        let mut headers = HeaderMap::new();
        // Content that is compressed on the way would have another digest.
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if have > 0 && download.ranges {
            let range = HeaderValue::from_str(&format!("bytes={have}-")).ok();
            headers.extend(range.map(|value| (header::RANGE, value)));
        }
        let path = format!("blobs/{}", download.blob.digest);
        let mut response = self.try_once(&Method::GET, &path, what, &headers).await?;
        match response.status() {
            StatusCode::PARTIAL_CONTENT if starts_at(&response) == Some(have) => download.resumed = have > 0,
            StatusCode::OK => download.restart()?,
            _ => {
                download.ranges = false;
                download.restart()?;
                return Err(Problem::passing("it gave another part than was asked for"));
            }
        }
        while let Some(chunk) = response.chunk().await.map_err(|e| self.transport(&e))? {
            if download.written + chunk.len() as u64 > download.blob.size {
                // For the message; what was too much is not written.
                download.written += chunk.len() as u64;
                return Err(download.spoil());
            }
            download.file.write_all(&chunk).unusable(|| format!("cannot write {what} to disk"))?;
            download.hash.update(&chunk);
            download.written += chunk.len() as u64;
        }
        if download.written < download.blob.size {
            return Err(Problem::passing(format!(
                "the connection ended after {} of {} bytes",
                download.written, download.blob.size
            )));
        }
        if download.digest() != download.blob.digest {
            return Err(download.spoil());
        }
        Ok(())
    }
}

impl Download<'_> {
    /// Of what has arrived so far.
    fn digest(&self) -> Digest {
        Digest::from_sha256(&self.hash.clone().finalize())
    }

    fn restart(&mut self) -> Result<()> {
        self.file.set_len(0).and_then(|()| self.file.rewind()).unusable(|| "cannot empty a file".to_owned())?;
        self.hash = sha2::Sha256::new();
        self.written = 0;
        self.resumed = false;
        Ok(())
    }

    /// All of it has arrived, and it is wrong: the second time that it comes so in one piece, it is wrong there.
    fn spoil(&mut self) -> Problem {
        let error = damaged(self.blob, self.written, &self.digest());
        if self.resumed {
            self.ranges = false;
        } else if std::mem::replace(&mut self.spoiled, true) {
            return Problem::Lasting(error.hint(WRONG_THERE));
        }
        match self.restart() {
            Ok(()) => Problem::passing(error.to_string()),
            Err(e) => Problem::Lasting(e),
        }
    }
}

/// `Content-Range: bytes 100-199/200`
fn starts_at(response: &Response) -> Option<u64> {
    let value = response.headers().get(header::CONTENT_RANGE)?.to_str().ok()?;
    value.strip_prefix("bytes ")?.split_once('-')?.0.trim().parse().ok()
}

/// Layers that are not in the registry itself.
pub(super) fn check_layers(layers: &[Descriptor]) -> Result<()> {
    match layers.iter().find(|l| l.media_type.contains("foreign") || l.media_type.contains("nondistributable")) {
        Some(layer) => Err(Error::unusable(format!("the layer {} is not to be had from the registry", layer.digest))
            .cause(format!("its media type is {}", layer.media_type))),
        None => Ok(()),
    }
}
