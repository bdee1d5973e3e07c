//! Registries (OCI distribution spec): images are pulled into the store and pushed from it, with credentials that the
//! caller found.
//!
//! Requests that fail for a reason that may pass are tried again, a bounded number of times, each wait told as an
//! event; downloads and uploads go on where they stopped.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::image::archive::Imported;
use crate::image::config::{ImageConfig, Platform};
use crate::image::digest::Digest;
use crate::image::manifest::Manifest;
use crate::image::store::Store;
use crate::net::block_on;

mod answer;
mod auth;
mod body;
mod certs;
mod challenge;
mod client;
mod conf;
pub mod credentials;
mod download;
pub mod form;
mod helper;
mod host;
mod pull;
pub mod push;
pub mod release;
mod upload;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod push_tests;
#[cfg(test)]
mod tests;

pub use crate::image::reference::Reference;
pub use crate::net::{Caller, Retry};
pub use certs::Certs;
pub use conf::Registries;
pub use credentials::{Credentials, Login};

/// How registries are talked to.
#[derive(Clone, Debug)]
pub struct Options {
    /// `host` or `host:port` where plain HTTP or a certificate that cannot be verified will do. The machine's own
    /// addresses always are, as for Docker.
    pub insecure: Vec<String>,
    /// Said for all registries: certificates are verified, or they are not and plain HTTP will do.
    pub tls_verify: Option<bool>,
    pub certs: Certs,
    /// Where registries are really reached.
    pub registries: Registries,
    pub credentials: Arc<Credentials>,
    pub retry: Retry,
    pub connect_timeout: Duration,
    /// A connection on which nothing arrives for this long is given up.
    pub idle_timeout: Duration,
    /// Blobs of one image that are downloaded at the same time.
    pub parallel: usize,
    /// Blobs and manifests that go to one registry at the same time.
    pub parallel_uploads: usize,
    /// The longest body of a request, for registries and proxies that take no more; found out where nobody says it.
    pub chunk: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            insecure: Vec::new(),
            tls_verify: None,
            certs: Certs::default(),
            registries: Registries::default(),
            credentials: Arc::default(),
            retry: Retry::default(),
            connect_timeout: Duration::from_secs(15),
            idle_timeout: Duration::from_secs(60),
            parallel: 3,
            parallel_uploads: 4,
            chunk: None,
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

/// What a registry says about an image, none of its layers fetched.
pub fn inspect(
    store: &Store,
    reference: &Reference,
    platform: &Platform,
    options: &Options,
    caller: &Caller<'_>,
) -> Result<(Manifest, ImageConfig)> {
    block_on(caller.cancel, pull::inspect(store, reference, platform, options, caller))
        .map_err(|e| e.context(format!("cannot look at {}", reference.familiar())))
}

/// Digest of what the reference names now: an index where the image exists for several platforms. Downloads nothing.
pub fn head(reference: &Reference, options: &Options, caller: &Caller<'_>) -> Result<Digest> {
    block_on(caller.cancel, async {
        let places = options.registries.pull_from(reference)?;
        let ask = async |place: &conf::Place| {
            let client = client::Client::connect(place, options, caller).await?;
            client.head_manifest().await
        };
        pull::first_of(&places, caller, ask).await.map(|(_, digest)| digest)
    })
    .map_err(|e| e.context(format!("cannot find {}", reference.familiar())))
}
