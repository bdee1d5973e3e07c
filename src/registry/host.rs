//! One registry: where it answers, and what all requests to it have in common.

use std::cell::Cell;
use std::rc::Rc;

use reqwest::Url;
use reqwest::redirect::Policy;
use tokio::sync::Semaphore;

use crate::error::{Context as _, Result};
use crate::net::{self, is_loopback};
use crate::registry::Options;
use crate::registry::conf::Place;

pub(super) struct Host {
    /// As a person names it: `docker.io`.
    pub name: String,
    pub http: reqwest::Client,
    /// Follows nothing by itself, so that data and credentials go only where we decide; and waits for an answer for as
    /// long as data goes out.
    pub upload: reqwest::Client,
    pub base: Url,
    /// Transfers at the same time.
    pub transfers: Semaphore,
    /// The longest body that it takes, as far as that is known.
    pub chunk: Cell<Option<u64>>,
}

impl Host {
    /// Finds out how the registry is reached. Nothing is sent to one whose address alone says it.
    pub async fn connect(place: &Place, options: &Options) -> Result<Rc<Host>> {
        let reference = &place.reference;
        let loopback = is_loopback(reference.host());
        let named = options.insecure.iter().any(|host| host == reference.registry());
        let insecure = options.tls_verify.map_or(loopback || named || place.insecure, |verify| !verify);
        let builder =
            || options.certs.add(reference.registry(), net::builder(options.connect_timeout, loopback, insecure));
        let base = |scheme: &str| {
            Url::parse(&format!("{scheme}://{}/v2/", reference.host()))
                .bad_input(|| format!("`{}` is not the address of a registry", reference.registry()))
        };
        let mut host = Host {
            name: reference.registry().to_owned(),
            http: net::build(builder()?.read_timeout(options.idle_timeout))?,
            upload: net::build(builder()?.redirect(Policy::none()))?,
            base: base("https")?,
            transfers: Semaphore::new(options.parallel_uploads.max(1)),
            chunk: Cell::new(options.chunk),
        };
        if insecure && host.http.get(host.base.clone()).send().await.is_err() {
            host.base = base("http")?;
        }
        Ok(Rc::new(host))
    }

    /// Whether credentials for this registry may go there.
    pub fn is_own(&self, url: &Url) -> bool {
        url.origin() == self.base.origin()
    }
}
