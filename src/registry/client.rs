//! Requests to one registry on behalf of one image: which scheme, which authorization, what may be tried again.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use reqwest::header::{self, HeaderMap, HeaderValue};
use reqwest::{Method, Response, StatusCode, Url};

use crate::error::{Context as _, Error, Result};
use crate::image::archive::MAX_JSON;
use crate::image::digest::Digest;
use crate::image::manifest::{DOCKER_INDEX, DOCKER_MANIFEST, OCI_INDEX, OCI_MANIFEST};
use crate::net::{self, Problem, Tries};
use crate::registry::body::Part;
use crate::registry::conf::Place;
use crate::registry::credentials::Lookup;
use crate::registry::host::Host;
use crate::registry::{Caller, Options, Reference};

const CONTENT_DIGEST: &str = "docker-content-digest";
/// Answers that send on are followed so many times.
const REDIRECTS: usize = 5;

pub(super) struct Client<'a> {
    pub(super) host: Rc<Host>,
    pub(super) reference: &'a Reference,
    pub(super) options: &'a Options,
    pub(super) caller: &'a Caller<'a>,
    pub(super) lookup: Lookup,
    pub(super) purpose: Purpose,
    /// What a token is asked for besides what the registry says: repositories that blobs are mounted from.
    pub(super) scopes: RefCell<BTreeSet<String>>,
    /// Set once the registry has asked for it.
    pub(super) authorization: RefCell<Option<HeaderValue>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Pull,
    Push,
}

/// A document that names others: a manifest or an index.
pub(super) struct Document {
    pub bytes: Vec<u8>,
    pub digest: Digest,
}

/// What a request carries.
pub(super) enum Payload<'a> {
    Empty,
    Bytes(&'a [u8]),
    /// A part of a file.
    File {
        path: &'a Path,
        start: u64,
        length: u64,
    },
}

/// A hint for what is wrong the second time too.
pub(super) const WRONG_THERE: &str = "the registry's copy is damaged, or something on the way changes it";

impl<'a> Client<'a> {
    pub(super) async fn connect(place: &'a Place, options: &'a Options, caller: &'a Caller<'a>) -> Result<Client<'a>> {
        let host = Host::connect(place, options).await?;
        Ok(Client::on(host, &place.reference, options, caller, Purpose::Pull))
    }

    pub(super) fn on(
        host: Rc<Host>,
        reference: &'a Reference,
        options: &'a Options,
        caller: &'a Caller<'a>,
        purpose: Purpose,
    ) -> Client<'a> {
        Client {
            host,
            reference,
            options,
            caller,
            lookup: options.credentials.lookup(reference),
            purpose,
            scopes: RefCell::default(),
            authorization: RefCell::new(None),
        }
    }

    pub(super) fn host(&self) -> &str {
        &self.host.name
    }

    /// `manifests/latest`, within the repository.
    pub(super) fn url(&self, path: &str) -> Result<Url> {
        self.host
            .base
            .join(&format!("{}/{path}", self.reference.repository()))
            .bad_input(|| format!("`{}` is not the name of an image", self.reference))
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

    /// Waits when it makes sense to try again to fetch something, else gives the reason why not.
    pub(super) async fn wait(&self, tries: &mut Tries, problem: Problem, what: &str) -> Result<()> {
        self.wait_to(tries, problem, &format!("fetch {what}"), &format!("fetching {what}")).await
    }

    /// The same for anything: `send x`, `sending x`.
    pub(super) async fn wait_to(&self, tries: &mut Tries, problem: Problem, act: &str, doing: &str) -> Result<()> {
        let retry = &self.options.retry;
        let (wait, why) = tries.next(retry, problem, &format!("the registry {}", self.host()), act)?;
        self.caller.warning(net::trying_again(self.host(), &why, doing, wait, tries, retry));
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
        let url = self.url(path)?;
        let mut authorized = false;
        loop {
            let mut request = self.host.http.request(method.clone(), url.clone()).headers(headers.clone());
            if let Some(value) = self.authorization.borrow().clone() {
                request = request.header(header::AUTHORIZATION, value);
            }
            let response = request.send().await.map_err(|e| self.transport(&e))?;
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

    /// One request that may carry data, and its answer whatever that says. Where an answer sends on, the data follows;
    /// the registry's credentials stay with the registry.
    pub(super) async fn exchange(
        &self,
        method: Method,
        mut url: Url,
        headers: &HeaderMap,
        payload: &Payload<'_>,
    ) -> Result<Response, Problem> {
        let mut authorized = false;
        let mut redirects = 0;
        loop {
            self.check_safe(&url)?;
            let own = self.host.is_own(&url);
            let sent = Arc::new(AtomicU64::new(0));
            let mut request = self.host.upload.request(method.clone(), url.clone()).headers(headers.clone());
            if let Some(value) = self.authorization.borrow().clone().filter(|_| own) {
                request = request.header(header::AUTHORIZATION, value);
            }
            request = match payload {
                Payload::Empty => match method {
                    // Some servers insist on a length.
                    Method::POST | Method::PUT | Method::PATCH => request.header(header::CONTENT_LENGTH, 0),
                    _ => request,
                },
                Payload::Bytes(bytes) => request.body(bytes.to_vec()),
                Payload::File { path, start, length } => {
                    let part = Part::open(path, *start, *length, sent.clone())
                        .unusable(|| format!("cannot read {}", path.display()))?;
                    request.body(reqwest::Body::wrap(part))
                }
            };
            let response = tokio::select! {
                response = request.send() => response.map_err(|e| self.transport(&e))?,
                () = self.stands_still(&sent) => {
                    let why = format!("nothing moved for {}", net::seconds(self.options.idle_timeout));
                    return Err(Problem::Silence { why });
                }
            };
            let status = response.status();
            if status == StatusCode::UNAUTHORIZED && own && !authorized {
                authorized = true;
                self.authorize(response.headers()).await?;
                continue;
            }
            if matches!(status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT)
                && let Some(next) = location(&response)
            {
                redirects += 1;
                if redirects > REDIRECTS {
                    let error = Error::unusable(format!("the registry {} sends on and on", self.host()));
                    return Err(error.cause("too many redirects").into());
                }
                url = next;
                continue;
            }
            return Ok(response);
        }
    }

    /// What goes to a registry by TLS goes nowhere without.
    fn check_safe(&self, url: &Url) -> Result<()> {
        let safe = url.scheme() == "https" || (url.scheme() == "http" && self.host.base.scheme() == "http");
        if safe {
            return Ok(());
        }
        let place = url.host_str().unwrap_or_default();
        Err(Error::unusable(format!("the registry {} wants data to be sent in the clear, to {place}", self.host()))
            .hint(
                "behind a proxy that speaks TLS, a registry has to be told its address (X-Forwarded-Proto, or `host`)",
            ))
    }

    async fn stands_still(&self, sent: &AtomicU64) {
        let mut before = sent.load(Ordering::Relaxed);
        loop {
            tokio::time::sleep(self.options.idle_timeout).await;
            let now = sent.load(Ordering::Relaxed);
            if now == before {
                return;
            }
            before = now;
        }
    }

    /// A small answer, whole.
    pub(super) async fn body(&self, mut response: Response) -> Result<Vec<u8>, Problem> {
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|e| self.transport(&e))? {
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
        let mut spoiled = false;
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
                            let error = Error::unusable(format!("{what} arrived damaged"))
                                .cause(format!("its digest is {digest}, not {expected}"));
                            let problem = match std::mem::replace(&mut spoiled, true) {
                                true => Problem::Lasting(error.hint(WRONG_THERE)),
                                false => Problem::passing(error.to_string()),
                            };
                            self.wait(&mut tries, problem, &what).await?;
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

    pub(super) fn manifest_name(&self, id: &str) -> String {
        let separator = if id.contains(':') { '@' } else { ':' };
        format!("the manifest of {}{separator}{id}", self.reference.repository())
    }
}

pub(super) fn accept() -> HeaderMap {
    let mut headers = HeaderMap::new();
    for media_type in [OCI_INDEX, DOCKER_INDEX, OCI_MANIFEST, DOCKER_MANIFEST] {
        headers.append(header::ACCEPT, HeaderValue::from_static(media_type));
    }
    headers
}

pub(super) fn content_digest(headers: &HeaderMap) -> Option<Digest> {
    headers.get(CONTENT_DIGEST)?.to_str().ok()?.parse().ok()
}

/// Where an answer sends on, or where an upload goes on.
pub(super) fn location(response: &Response) -> Option<Url> {
    let value = response.headers().get(header::LOCATION)?.to_str().ok()?;
    response.url().join(value).ok()
}
