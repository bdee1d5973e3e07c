//! Registries (OCI distribution spec): images are pulled into the store, with credentials that the caller found.
//!
//! Requests that fail for a reason that may pass are tried again, a bounded number of times, each wait told as an
//! event; downloads go on where they stopped.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::image::archive::Imported;
use crate::image::config::Platform;
use crate::image::digest::Digest;
use crate::image::store::Store;
use crate::net::block_on;

mod answer;
mod auth;
mod challenge;
mod client;
pub mod credentials;
mod download;
mod pull;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;

pub use crate::image::reference::Reference;
pub use crate::net::{Caller, Retry};
pub use credentials::{Credentials, Login};

/// How registries are talked to.
#[derive(Clone, Debug)]
pub struct Options {
    /// `host` or `host:port` where plain HTTP or a certificate that cannot be verified will do. The machine's own
    /// addresses always are, as for Docker.
    pub insecure: Vec<String>,
    pub credentials: Arc<Credentials>,
    pub retry: Retry,
    pub connect_timeout: Duration,
    /// A connection on which nothing arrives for this long is given up.
    pub idle_timeout: Duration,
    /// Blobs of one image that are downloaded at the same time.
    pub parallel: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            insecure: Vec::new(),
            credentials: Arc::default(),
            retry: Retry::default(),
            connect_timeout: Duration::from_secs(15),
            idle_timeout: Duration::from_secs(60),
            parallel: 3,
        }
    }
}

/// Brings an image into the store: blobs in parallel, layers unpacked in their order while later ones download.
pub fn pull(
    store: &Store,
    reference: &Reference,
    platform: &Platform,
    options: &Options,
    caller: &Caller<'_>,
) -> Result<Imported> {
    pull::pull(store, reference, platform, options, caller)
        .map_err(|e| e.context(format!("cannot pull {}", reference.familiar())))
}

/// Digest of what the reference names now: an index where the image exists for several platforms. Downloads nothing.
pub fn head(reference: &Reference, options: &Options, caller: &Caller<'_>) -> Result<Digest> {
    block_on(caller.cancel, async {
        let client = client::Client::connect(reference, options, caller).await?;
        client.head_manifest().await
    })
    .map_err(|e| e.context(format!("cannot find {}", reference.familiar())))
}
