//! One blob to a registry: mounted from another repository of it, or sent in one piece or several, on from where an
//! earlier try stopped.

use std::path::Path;

use reqwest::header::{self, HeaderMap, HeaderValue};
use reqwest::{Method, Response, StatusCode, Url};

use crate::error::{Error, Result};
use crate::image::digest::Digest;
use crate::net::{self, Problem, Tries};
use crate::quantity;
use crate::registry::answer::message;
use crate::registry::client::{Client, Payload, accept, content_digest, location};

/// Bodies that are tried one after the other where longer ones get lost or are refused.
const CHUNKS: [u64; 7] = [64 << 20, 16 << 20, 4 << 20, 1 << 20, 256 << 10, 64 << 10, 16 << 10];
const MIN_LENGTH: &str = "oci-chunk-min-length";

/// An upload that a registry has begun to wait for.
pub(super) struct Session {
    url: Url,
    /// Pieces but the last one are to be no shorter.
    min: u64,
}

pub(super) enum Mount {
    Done,
    /// Not mounted; the blob can be sent there right away.
    Instead(Session),
    Refused,
}

struct Upload<'a> {
    digest: &'a Digest,
    path: &'a Path,
    size: u64,
    session: Option<Session>,
    /// What the registry has, as far as its answers tell.
    offset: u64,
    /// Something was sent and not answered: what arrived has to be asked for.
    unsure: bool,
    /// What its answers say about what arrived is believed.
    trust: bool,
    /// They didn't fit what was sent, or the blob came in several pieces: reasons to begin again when it is refused.
    pieces: bool,
    /// The length of the last piece, and how often one was lost since anything arrived.
    length: u64,
    stuck: u32,
    /// Pieces are shorter than they were in the last try.
    shortened: bool,
}

impl Client<'_> {
    /// `what` is the blob or the manifest at this path.
    pub(super) async fn exists(&self, path: &str, what: &str) -> Result<bool> {
        let mut tries = Tries::default();
        loop {
            match self.try_exists(path).await {
                Ok(there) => return Ok(there),
                Err(problem) => {
                    self.wait_to(&mut tries, problem, &format!("ask for {what}"), &format!("asking for {what}"))
                        .await?;
                }
            }
        }
    }

    async fn try_exists(&self, path: &str) -> Result<bool, Problem> {
        let response = self.exchange(Method::HEAD, self.url(path)?, &accept(), &Payload::Empty).await?;
        match response.status() {
            status if status.is_success() => Ok(true),
            // What is not to be seen has to be sent; whether it may be shows then.
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::FORBIDDEN => Ok(false),
            _ => Err(self.refused(response, "to say what it has").await),
        }
    }

    /// Whether this repository may be pushed to: begins an upload, and gives it up.
    pub(super) async fn may_push(&self) -> Result<()> {
        let mut tries = Tries::default();
        let session = loop {
            match self.begin().await {
                Ok(session) => break session,
                Err(problem) => {
                    self.wait_to(&mut tries, problem, "begin an upload", "beginning an upload").await?;
                }
            }
        };
        // One that stays is cleaned up by the registry some day.
        let _ = self.exchange(Method::DELETE, session.url, &HeaderMap::new(), &Payload::Empty).await;
        Ok(())
    }

    async fn begin(&self) -> Result<Session, Problem> {
        let url = self.url("blobs/uploads/")?;
        let response = self.exchange(Method::POST, url, &HeaderMap::new(), &Payload::Empty).await?;
        match response.status() {
            StatusCode::ACCEPTED => self.session(&response).map_err(Problem::Lasting),
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
                let repository = self.reference.repository();
                let error = Error::unusable(format!("the registry {} takes no push to {repository}", self.host()));
                let error = error.cause(net::status_name(response.status()));
                let error = message(response).await.into_iter().fold(error, Error::cause);
                Err(error.hint("some registries want a repository or project to be made there first").into())
            }
            _ => Err(self.refused(response, &format!("a push to {}", self.reference.repository())).await),
        }
    }

    fn session(&self, response: &Response) -> Result<Session> {
        let min = response.headers().get(MIN_LENGTH).and_then(|v| v.to_str().ok()?.trim().parse().ok()).unwrap_or(0);
        match location(response) {
            Some(url) => Ok(Session { url, min }),
            None => Err(Error::unusable(format!("the registry {} does not say where to send a blob", self.host()))),
        }
    }

    /// Asks the registry to take a blob from another of its repositories. A refusal is an answer: registries refuse in
    /// many ways, and all of them still take the blob itself.
    pub(super) async fn mount(&self, digest: &Digest, from: &str) -> Result<Mount> {
        let mut url = self.url("blobs/uploads/")?;
        url.query_pairs_mut().append_pair("mount", &digest.to_string()).append_pair("from", from);
        let scope = format!("repository:{from}:pull");
        self.scopes.borrow_mut().insert(scope.clone());
        let Ok(response) = self.exchange(Method::POST, url, &HeaderMap::new(), &Payload::Empty).await else {
            // A token with that in it may be refused as a whole.
            self.scopes.borrow_mut().remove(&scope);
            *self.authorization.borrow_mut() = None;
            return Ok(Mount::Refused);
        };
        match response.status() {
            StatusCode::CREATED => Ok(Mount::Done),
            StatusCode::ACCEPTED => Ok(self.session(&response).map_or(Mount::Refused, Mount::Instead)),
            _ => Ok(Mount::Refused),
        }
    }

    pub(super) async fn upload(
        &self,
        digest: &Digest,
        path: &Path,
        size: u64,
        session: Option<Session>,
        what: &str,
    ) -> Result<()> {
        let mut upload = Upload {
            digest,
            path,
            size,
            session,
            offset: 0,
            unsure: false,
            trust: true,
            pieces: false,
            length: size,
            stuck: 0,
            shortened: false,
        };
        let (act, doing) = (format!("send {what}"), format!("sending {what}"));
        let mut tries = Tries::default();
        loop {
            let before = upload.offset;
            match self.try_upload(&mut upload, what).await {
                Ok(()) => return Ok(()),
                Err(problem) => {
                    if upload.offset > before || std::mem::take(&mut upload.shortened) {
                        tries.reset();
                    }
                    self.wait_to(&mut tries, problem, &act, &doing).await?;
                }
            }
        }
    }

    async fn try_upload(&self, upload: &mut Upload<'_>, what: &str) -> Result<(), Problem> {
        if upload.unsure && self.resume(upload).await? {
            return Ok(());
        }
        loop {
            let (url, min) = match &upload.session {
                Some(session) => (session.url.clone(), session.min),
                None => {
                    upload.offset = 0;
                    let session = self.begin().await?;
                    let at = (session.url.clone(), session.min);
                    upload.session = Some(session);
                    at
                }
            };
            let left = upload.size - upload.offset;
            let most = self.host.chunk.get().map_or(u64::MAX, |chunk| chunk.max(min).max(1));
            let (last, length) = (left <= most, left.min(most));
            upload.length = length;
            // Until it is answered.
            upload.unsure = true;
            let response = self.piece(upload, url, length, last).await?;
            match response.status() {
                StatusCode::CREATED | StatusCode::OK | StatusCode::NO_CONTENT if last => {
                    return match content_digest(response.headers()) {
                        Some(other) if other != *upload.digest => {
                            Err(Error::unusable(format!("the registry {} took {what} for something else", self.host()))
                                .cause(format!("it calls it {other}"))
                                .into())
                        }
                        _ => Ok(()),
                    };
                }
                StatusCode::ACCEPTED if !last => self.advance(upload, &response, length)?,
                StatusCode::PAYLOAD_TOO_LARGE => {
                    if !self.shorten(upload, length, min) {
                        return Err(self.too_large(what, length, min));
                    }
                    // Nothing of it was taken, but whether the upload goes on is the registry's to say.
                    if self.resume(upload).await? {
                        return Ok(());
                    }
                }
                status if status.is_client_error() && self.begin_again(upload, status) => {}
                _ => return Err(self.refused(response, what).await),
            }
        }
    }

    /// Sends the next piece; the last one closes the upload.
    async fn piece(&self, upload: &mut Upload<'_>, mut url: Url, length: u64, last: bool) -> Result<Response, Problem> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        let start = upload.offset;
        if !last || start > 0 {
            upload.pieces = true;
            if length > 0 {
                let range = HeaderValue::from_str(&format!("{start}-{}", start + length - 1)).ok();
                headers.extend(range.map(|value| (header::CONTENT_RANGE, value)));
            }
        }
        if last {
            url.query_pairs_mut().append_pair("digest", &upload.digest.to_string());
        }
        let method = if last { Method::PUT } else { Method::PATCH };
        let payload = match length {
            0 => Payload::Empty,
            _ => Payload::File { path: upload.path, start, length },
        };
        let sent = self.exchange(method, url, &headers, &payload).await;
        if let Err(Problem::Silence { .. }) = &sent {
            // A proxy that takes no more than so much may just hang up.
            upload.stuck += 1;
        }
        sent
    }

    /// The registry has taken a piece.
    fn advance(&self, upload: &mut Upload<'_>, response: &Response, length: u64) -> Result<()> {
        let min = upload.session.as_ref().map_or(0, |session| session.min);
        let url = self.session(response)?.url;
        let expected = upload.offset + length;
        // It may have taken less. What it says beyond that is no reason to do anything but go on: should it be true,
        // the digest is wrong in the end.
        let said = taken(response).filter(|_| upload.trust);
        upload.offset = said.filter(|said| (upload.offset + 1..expected).contains(said)).unwrap_or(expected);
        upload.session = Some(Session { url, min });
        upload.unsure = false;
        upload.stuck = 0;
        Ok(())
    }

    /// After a piece that was not answered: finds out where to go on. True: there is nothing more to be sent.
    async fn resume(&self, upload: &mut Upload<'_>) -> Result<bool, Problem> {
        if upload.stuck > 1 {
            let min = upload.session.as_ref().map_or(0, |session| session.min);
            self.shorten(upload, upload.length, min);
        }
        let status = match &upload.session {
            Some(session) if upload.trust => {
                Some(self.exchange(Method::GET, session.url.clone(), &HeaderMap::new(), &Payload::Empty).await?)
            }
            _ => None,
        };
        let there = match status {
            Some(response) if response.status() == StatusCode::NO_CONTENT => {
                let session = upload.session.take();
                let (min, old) = session.map_or((0, None), |session| (session.min, Some(session.url)));
                let url = location(&response).or(old);
                let there = taken(&response).filter(|there| *there <= upload.size);
                upload.session = there.and(url).map(|url| Session { url, min });
                there.filter(|_| upload.session.is_some())
            }
            Some(response) if response.status().is_server_error() => {
                return Err(self.refused(response, "the state of an upload").await);
            }
            // It is gone, perhaps since it was closed; or it cannot be asked.
            _ => None,
        };
        match there {
            Some(there) => {
                if there > upload.offset {
                    upload.stuck = 0;
                }
                upload.offset = there;
            }
            None => {
                upload.session = None;
                if self.try_exists(&format!("blobs/{}", upload.digest)).await? {
                    return Ok(true);
                }
            }
        }
        upload.unsure = false;
        Ok(false)
    }

    /// Shorter bodies from here on, for all that goes to this registry. False: they can't be.
    fn shorten(&self, upload: &mut Upload<'_>, length: u64, min: u64) -> bool {
        let shorter = CHUNKS.into_iter().map(|chunk| chunk.max(min)).find(|chunk| *chunk < length);
        if let Some(chunk) = shorter {
            self.host.chunk.set(Some(self.host.chunk.get().map_or(chunk, |known| known.min(chunk)).max(1)));
            upload.stuck = 0;
            upload.shortened = true;
        }
        shorter.is_some()
    }

    /// Whether a refusal may be about how the blob came, and not about what it is: then all of it goes once more, and
    /// what the registry says about what it has isn't believed any more.
    fn begin_again(&self, upload: &mut Upload<'_>, status: StatusCode) -> bool {
        let refusal = matches!(
            status,
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::CONFLICT | StatusCode::RANGE_NOT_SATISFIABLE
        );
        // An upload that is waited for too long is forgotten.
        let doubtful = upload.pieces || status == StatusCode::NOT_FOUND;
        if !refusal || !doubtful || !std::mem::replace(&mut upload.trust, false) {
            return false;
        }
        upload.session = None;
        upload.pieces = false;
        upload.unsure = false;
        true
    }

    fn too_large(&self, what: &str, length: u64, min: u64) -> Problem {
        let error =
            Error::unusable(format!("the registry {} takes no body of {}", self.host(), quantity::shown(length)));
        let why = match min {
            0 => {
                format!("{what} cannot be sent in shorter pieces: {}", net::status_name(StatusCode::PAYLOAD_TOO_LARGE))
            }
            _ => format!("and it wants pieces of at least {}", quantity::shown(min)),
        };
        error.cause(why).hint("raise the limit of the registry or of the proxy in front of it").into()
    }
}

/// `Range: 0-99`: a hundred bytes. `0-0` is what registries say of nothing.
fn taken(response: &Response) -> Option<u64> {
    let value = response.headers().get(header::RANGE)?.to_str().ok()?;
    let (first, last) = value.trim_start_matches("bytes=").split_once('-')?;
    let last: u64 = last.trim().parse().ok()?;
    if first.trim().parse() != Ok(0u64) {
        return None;
    }
    if last == 0 { Some(0) } else { last.checked_add(1) }
}
