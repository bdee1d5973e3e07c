//! Requests to one registry on behalf of one image: which scheme, which authorization, what may be tried again.

use std::cell::RefCell;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use reqwest::header::{self, HeaderMap, HeaderValue};
use reqwest::{Method, Response, StatusCode, Url};

use crate::error::{Context as _, Error, Result};
use crate::image::archive::MAX_JSON;
use crate::image::digest::Digest;
use crate::image::manifest::{DOCKER_INDEX, DOCKER_MANIFEST, OCI_INDEX, OCI_MANIFEST};
use crate::registry::answer::{innermost, seconds};
use crate::registry::credentials::Lookup;
use crate::registry::{Caller, Options, Reference};

const CONTENT_DIGEST: &str = "docker-content-digest";

pub(super) struct Client<'a> {
    pub(super) http: reqwest::Client,
    pub(super) base: Url,
    pub(super) reference: &'a Reference,
    pub(super) options: &'a Options,
    pub(super) caller: &'a Caller<'a>,
    pub(super) lookup: Lookup,
    /// Set once the registry has asked for it.
    pub(super) authorization: RefCell<Option<HeaderValue>>,
}

/// Why a try did not work.
pub(super) enum Problem {
    /// It may work later; `after` is when the registry said so.
    Passing {
        why: String,
        after: Option<Duration>,
    },
    /// Nobody answers, which may pass too.
    Silence {
        why: String,
    },
    Lasting(Error),
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Problem::Lasting(error)
    }
}

/// Counts the tries of one thing.
#[derive(Default)]
pub(super) struct Tries(u32);

impl Tries {
    /// For when something was achieved.
    pub(super) fn reset(&mut self) {
        self.0 = 0;
    }
}

/// A document that names others: a manifest or an index.
pub(super) struct Document {
    pub bytes: Vec<u8>,
    pub digest: Digest,
}

impl<'a> Client<'a> {
    /// Finds out how the registry is reached. Nothing is sent to one whose address alone says it.
    pub(super) async fn connect(
        reference: &'a Reference,
        options: &'a Options,
        caller: &'a Caller<'a>,
    ) -> Result<Client<'a>> {
        // Fails when the process has a provider already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let loopback = is_loopback(reference.host());
        let insecure = loopback || options.insecure.iter().any(|host| host == reference.registry());
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("kollage/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(options.connect_timeout)
            .read_timeout(options.idle_timeout)
            .tls_danger_accept_invalid_certs(insecure)
            .referer(false);
        // A proxy elsewhere cannot reach this machine's own address.
        if loopback {
            builder = builder.no_proxy();
        }
        let http = builder
            .build()
            .map_err(|e| Error::unusable("the certificates of this machine cannot be used").cause(innermost(&e)))?;
        let base = |scheme: &str| {
            Url::parse(&format!("{scheme}://{}/v2/", reference.host()))
                .bad_input(|| format!("`{}` is not the address of a registry", reference.registry()))
        };
        let mut client = Client {
            http,
            base: base("https")?,
            reference,
            options,
            caller,
            lookup: options.credentials.lookup(reference),
            authorization: RefCell::new(None),
        };
        if insecure && client.http.get(client.base.clone()).send().await.is_err() {
            client.base = base("http")?;
        }
        Ok(client)
    }

    pub(super) fn host(&self) -> &str {
        self.reference.registry()
    }

    /// Sends until it is answered, as often as the options say. `what` completes "cannot fetch …".
    async fn send(&self, method: Method, path: &str, what: &str, headers: &HeaderMap) -> Result<Response> {
        let mut tries = Tries::default();
        loop {
            match self.try_once(&method, path, what, headers).await {
                Ok(response) => return Ok(response),
                Err(problem) => self.wait(&mut tries, problem, what).await?,
            }
        }
    }

    /// Waits when it makes sense to try again, else gives the reason why not.
    pub(super) async fn wait(&self, tries: &mut Tries, problem: Problem, what: &str) -> Result<()> {
        let (why, after, reached) = match problem {
            Problem::Lasting(error) => return Err(error),
            Problem::Passing { why, after } => (why, after, true),
            Problem::Silence { why } => (why, None, false),
        };
        let retry = &self.options.retry;
        tries.0 += 1;
        let gave_up = |error: Error| error.cause(format!("cannot fetch {what}")).cause(&why);
        if tries.0 >= retry.attempts {
            let how = if reached { "does not answer as it should" } else { "cannot be reached" };
            let error = Error::unusable(format!("the registry {} {how}", self.host()));
            return Err(gave_up(error).hint(format!(
                "it was tried {} times; check the registry's name, the network and the proxy, or try again later",
                tries.0
            )));
        }
        let backoff = retry.first_wait.saturating_mul(1 << (tries.0 - 1).min(16)).min(retry.longest_wait);
        let wait = after.unwrap_or(backoff);
        if wait > retry.longest_wait {
            let error = Error::unusable(format!("the registry {} wants no requests for now", self.host()));
            return Err(gave_up(error).hint(format!("it asks to wait for {} s", wait.as_secs())));
        }
        self.caller.warning(format!(
            "{}: {why} (fetching {what}); trying again in {}, {} of {} tries",
            self.host(),
            seconds(wait),
            tries.0 + 1,
            retry.attempts
        ));
        tokio::time::sleep(wait).await;
        Ok(())
    }

    /// One request with the authorization that the registry wants; a fresh one when it has run out.
    pub(super) async fn try_once(
        &self,
        method: &Method,
        path: &str,
        what: &str,
        headers: &HeaderMap,
    ) -> Result<Response, Problem> {
        let url = self
            .base
            .join(&format!("{}/{path}", self.reference.repository()))
            .bad_input(|| format!("`{}` is not the name of an image", self.reference))?;
        let mut authorized = false;
        loop {
            let mut request = self.http.request(method.clone(), url.clone()).headers(headers.clone());
            if let Some(value) = self.authorization.borrow().clone() {
                request = request.header(header::AUTHORIZATION, value);
            }
            let response = request.send().await.map_err(|e| self.transport(e))?;
            let status = response.status();
            if status == StatusCode::UNAUTHORIZED && !authorized {
                authorized = true;
                self.authorize(response.headers()).await?;
                continue;
            }
            // A range that cannot be given is dealt with where ranges are asked for.
            if status.is_success() || status == StatusCode::RANGE_NOT_SATISFIABLE {
                return Ok(response);
            }
            return Err(self.refused(response, what).await);
        }
    }

    /// A small answer, whole.
    pub(super) async fn body(&self, mut response: Response) -> Result<Vec<u8>, Problem> {
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|e| self.transport(e))? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() as u64 > MAX_JSON {
                let error = Error::unusable(format!("the registry {} sends too much", self.host()));
                return Err(error.cause(format!("more than {MAX_JSON} bytes where a manifest should be")).into());
            }
        }
        Ok(bytes)
    }

    /// A manifest or index by tag or digest.
    pub(super) async fn manifest(&self, id: &str) -> Result<Document> {
        let what = self.manifest_name(id);
        let path = format!("manifests/{id}");
        let mut tries = Tries::default();
        loop {
            let fetched = async {
                let response = self.try_once(&Method::GET, &path, &what, &accept()).await?;
                let said = content_digest(response.headers());
                Ok((self.body(response).await?, said))
            };
            match fetched.await {
                Ok((bytes, said)) => {
                    let digest = Digest::of(&bytes);
                    // The digest that was asked for counts more than the one that the registry says.
                    match id.parse::<Digest>().ok().or(said) {
                        Some(expected) if expected != digest => {
                            let why = format!("{what} arrived damaged: its digest is {digest}, not {expected}");
                            self.wait(&mut tries, Problem::Passing { why, after: None }, &what).await?;
                        }
                        _ => return Ok(Document { bytes, digest }),
                    }
                }
                Err(problem) => self.wait(&mut tries, problem, &what).await?,
            }
        }
    }

    pub(super) async fn head_manifest(&self) -> Result<Digest> {
        let id = self.reference.manifest_id();
        let path = format!("manifests/{id}");
        let response = self.send(Method::HEAD, &path, &self.manifest_name(&id), &accept()).await?;
        match content_digest(response.headers()) {
            Some(digest) => Ok(digest),
            // The header is only recommended.
            None => Ok(self.manifest(&id).await?.digest),
        }
    }

    fn manifest_name(&self, id: &str) -> String {
        let separator = if id.contains(':') { '@' } else { ':' };
        format!("the manifest of {}{separator}{id}", self.reference.repository())
    }
}

fn accept() -> HeaderMap {
    let mut headers = HeaderMap::new();
    for media_type in [OCI_INDEX, DOCKER_INDEX, OCI_MANIFEST, DOCKER_MANIFEST] {
        headers.append(header::ACCEPT, HeaderValue::from_static(media_type));
    }
    headers
}

fn content_digest(headers: &HeaderMap) -> Option<Digest> {
    headers.get(CONTENT_DIGEST)?.to_str().ok()?.parse().ok()
}

/// `localhost` and the machine's own addresses, with or without a port.
fn is_loopback(host: &str) -> bool {
    if let Some(v6) = host.strip_prefix('[') {
        return v6.split(']').next().and_then(|a| a.parse::<Ipv6Addr>().ok()).is_some_and(|a| a.is_loopback());
    }
    let name = host.split(':').next().unwrap_or(host);
    name == "localhost" || name.parse::<Ipv4Addr>().is_ok_and(|a| a.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_machine_itself_is_insecure_by_itself() {
        for host in ["localhost", "localhost:5000", "127.0.0.1:5000", "127.9.9.9", "[::1]:5000"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["127.0.0.1.example.org", "localhost.example.org:1", "10.0.0.1", "[::2]", "example.org"] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
