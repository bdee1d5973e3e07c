//! Registries (OCI distribution spec): images are pulled into the store, with credentials that the caller found.
//!
//! Requests that fail for a reason that may pass are tried again, a bounded number of times, each wait told as an
//! event; downloads go on where they stopped. Proxies and additional CA certificates are those that the environment
//! names (HTTPS_PROXY, NO_PROXY, SSL_CERT_FILE, …): the HTTP library looks there by itself. The one place where anything asynchronous happens: a runtime of one
//! thread that lives as long as a call.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Context as _, Error, Result};
use crate::event::{Cancel, Event, Sink};
use crate::image::archive::Imported;
use crate::image::config::Platform;
use crate::image::digest::Digest;
use crate::image::store::Store;

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

/// How often and how patiently something that failed is tried again.
#[derive(Clone, Debug)]
pub struct Retry {
    /// All of them, the first one included.
    pub attempts: u32,
    /// Doubled with each wait.
    pub first_wait: Duration,
    /// A registry that asks for a longer one is given up.
    pub longest_wait: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Retry { attempts: 5, first_wait: Duration::from_secs(1), longest_wait: Duration::from_secs(120) }
    }
}

/// Who pulls: named in events, and able to stop.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    pub node: &'a Arc<str>,
    pub sink: &'a dyn Sink,
    pub cancel: &'a Cancel,
}

impl Caller<'_> {
    fn background(&self, title: String) {
        self.sink.event(Event::Background { node: self.node.clone(), title });
    }

    fn warning(&self, message: String) {
        self.sink.event(Event::Warning { node: Some(self.node.clone()), message });
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

/// Runs a future on this thread until it is done or the run is cancelled.
fn block_on<T>(cancel: &Cancel, work: impl Future<Output = Result<T>>) -> Result<T> {
    cancel.check()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unusable(|| "cannot start the network runtime".to_owned())?;
    // Tokio has no safe way to wait for a descriptor that it does not own.
    let interrupted = async {
        while !cancel.is_cancelled() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let done = runtime.block_on(async {
        tokio::select! {
            done = work => done,
            () = interrupted => Err(Error::interrupted()),
        }
    });
    // A lookup of a name may hang in a thread of its own; nobody waits for it.
    runtime.shutdown_background();
    done
}
