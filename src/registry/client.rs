//! Requests to one registry on behalf of one image: which scheme, which authorization, what may be tried again.

use std::cell::RefCell;

use reqwest::header::{self, HeaderMap, HeaderValue};
use reqwest::{Method, Response, StatusCode, Url};

use crate::error::{Context as _, Error, Result};
use crate::image::archive::MAX_JSON;
use crate::image::digest::Digest;
use crate::image::manifest::{DOCKER_INDEX, DOCKER_MANIFEST, OCI_INDEX, OCI_MANIFEST};
use crate::net::{self, Problem, Tries, is_loopback};
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
        let loopback = is_loopback(reference.host());
        let insecure = loopback || options.insecure.iter().any(|host| host == reference.registry());
        let http = net::client(options.connect_timeout, options.idle_timeout, loopback, insecure)?;
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
        let retry = &self.options.retry;
        let (wait, why) = tries.next(retry, problem, &format!("the registry {}", self.host()), what)?;
        self.caller.warning(net::trying_again(self.host(), &why, what, wait, tries, retry));
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
