//! A small registry for tests: it can refuse, stall, lie and hang up. What is pushed to it belongs to a repository; what
//! a test puts there is in all of them.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;

use crate::image::archive::fixture::Image;
use crate::image::digest::Digest;
use crate::image::manifest::OCI_MANIFEST;

/// What goes wrong with one request.
#[derive(Clone, Debug)]
pub(super) enum Trouble {
    /// Status and header lines.
    Status(u16, &'static str),
    /// The connection ends after so many bytes of the body.
    Cut(usize),
    /// Nothing more comes after so many bytes of the body.
    Hang(usize),
    /// The body is this.
    Lie(Vec<u8>),
    /// A range is answered with the part from this byte on, and called so.
    WrongRange(usize),
    /// Of what is sent, so many bytes are taken, and nothing is answered.
    Drop(usize),
    /// Everything is taken, and nothing is ever answered.
    Mute,
    /// All that is sent is taken, and called this range.
    Took(&'static str),
}

/// What becomes of mounts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Mounts {
    #[default]
    Done,
    Refused(u16),
}

#[derive(Clone, Debug, Default)]
pub(super) enum Auth {
    #[default]
    Open,
    Basic(&'static str),
    /// A token service on the same port; asks for the pair `user:password` where there is one.
    Token(Option<&'static str>),
    /// A token service that takes this refresh token.
    Refresh(&'static str),
}

#[derive(Default)]
struct State {
    /// By the end of the path: `manifests/latest`, `blobs/sha256:…`.
    content: Mutex<BTreeMap<String, (&'static str, Vec<u8>)>>,
    troubles: Mutex<Vec<(String, Trouble)>>,
    requests: Mutex<Vec<String>>,
    auth: Mutex<Auth>,
    mounts: Mutex<Mounts>,
    uploads: Mutex<BTreeMap<String, Vec<u8>>>,
    /// Longer bodies are not taken; and whether that is said.
    limit: Mutex<Option<(usize, bool)>>,
    /// Headers of an answer that begins an upload, and the host that takes its data.
    upload_headers: Mutex<(&'static str, Option<String>)>,
    begun: AtomicUsize,
    /// The status with which a tag that is there refuses to be moved; 0: it doesn't.
    tags_stay: AtomicUsize,
    /// The registry whose data comes here.
    of: Mutex<Option<Arc<State>>>,
    /// Requests that had credentials.
    authorized: Mutex<Vec<String>>,
    stop: AtomicBool,
}

pub(super) struct Fake {
    address: SocketAddr,
    state: Arc<State>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Fake {
    pub(super) fn start() -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let accepting = state.clone();
        let thread = std::thread::spawn(move || {
            for connection in listener.incoming() {
                if accepting.stop.load(Ordering::SeqCst) {
                    return;
                }
                let state = accepting.clone();
                std::thread::spawn(move || {
                    let _ = answer(&state, address, &mut connection.unwrap());
                });
            }
        });
        Fake { address, state, thread: Some(thread) }
    }

    pub(super) fn host(&self) -> String {
        self.address.to_string()
    }

    pub(super) fn auth(&self, auth: Auth) {
        *self.state.auth.lock().unwrap() = auth;
    }

    pub(super) fn put(&self, end: &str, media_type: &'static str, bytes: &[u8]) {
        self.state.content.lock().unwrap().insert(end.to_owned(), (media_type, bytes.to_vec()));
    }

    pub(super) fn put_image(&self, tag: &str, image: &Image) {
        for (digest, bytes) in image.blobs() {
            self.put(&format!("blobs/{digest}"), "application/octet-stream", bytes);
        }
        self.put(&format!("manifests/{tag}"), OCI_MANIFEST, &image.manifest);
        self.put(&format!("manifests/{}", image.digest()), OCI_MANIFEST, &image.manifest);
    }

    pub(super) fn mounts(&self, mounts: Mounts) {
        *self.state.mounts.lock().unwrap() = mounts;
    }

    /// Bodies that are longer get 413, or the connection just ends.
    pub(super) fn limit(&self, bytes: usize, said: bool) {
        *self.state.limit.lock().unwrap() = Some((bytes, said));
    }

    pub(super) fn upload_headers(&self, headers: &'static str) {
        self.state.upload_headers.lock().unwrap().0 = headers;
    }

    /// The data of uploads goes to another registry.
    pub(super) fn uploads_go_to(&self, other: &Fake) {
        self.state.upload_headers.lock().unwrap().1 = Some(other.host());
        *other.state.of.lock().unwrap() = Some(self.state.clone());
    }

    /// Tags that are there are never moved.
    pub(super) fn tags_stay(&self, status: u16) {
        self.state.tags_stay.store(status.into(), Ordering::SeqCst);
    }

    /// What is at a path: `team/app/manifests/1`.
    pub(super) fn at(&self, path: &str) -> Option<Vec<u8>> {
        self.state.content.lock().unwrap().get(path).map(|(_, bytes)| bytes.clone())
    }

    pub(super) fn authorized(&self) -> Vec<String> {
        self.state.authorized.lock().unwrap().clone()
    }

    /// The next request that contains `part` (`PUT /v2/team/…`) goes wrong; troubles of one part come in the order given.
    pub(super) fn trouble(&self, part: &str, trouble: Trouble) {
        self.state.troubles.lock().unwrap().push((part.to_owned(), trouble));
    }

    /// `METHOD end-of-path [range]`, in order.
    pub(super) fn requests(&self) -> Vec<String> {
        self.state.requests.lock().unwrap().clone()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Reply {
    status: u16,
    headers: String,
    body: Vec<u8>,
}

fn reply(status: u16, headers: impl Into<String>, body: impl Into<Vec<u8>>) -> Reply {
    Reply { status, headers: headers.into(), body: body.into() }
}

fn answer(state: &State, address: SocketAddr, connection: &mut TcpStream) -> std::io::Result<()> {
    let mut first = [0];
    // A TLS greeting: this registry speaks plain HTTP.
    if connection.peek(&mut first)? == 0 || first[0] == 0x16 {
        return Ok(());
    }
    let mut input = BufReader::new(connection.try_clone()?);
    let mut line = String::new();
    input.read_line(&mut line)?;
    let request = line.trim_end().to_owned();
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        input.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let mut words = request.split(' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap().to_owned());
    let range = headers.get("range").or(headers.get("content-range")).map(|r| format!(" {r}")).unwrap_or_default();
    let end = match (path.find("manifests/"), path.find("blobs/")) {
        (Some(at), _) | (_, Some(at)) => path[at..].to_owned(),
        _ => path.clone(),
    };
    state.requests.lock().unwrap().push(format!("{method} {end}{range}"));
    if headers.contains_key("authorization") {
        state.authorized.lock().unwrap().push(format!("{method} {end}"));
    }
    let trouble = {
        let mut troubles = state.troubles.lock().unwrap();
        let whole = format!("{method} {path}");
        let at = troubles.iter().position(|(part, _)| whole.contains(part.as_str()));
        at.map(|at| troubles.remove(at).1)
    };
    let length: usize = headers.get("content-length").and_then(|l| l.parse().ok()).unwrap_or(0);
    let limit = state.limit.lock().unwrap().filter(|(most, _)| length > *most);
    if let Some((_, false)) = limit {
        return Ok(());
    }
    let taken = match trouble {
        Some(Trouble::Drop(bytes)) => bytes.min(length),
        _ => length,
    };
    let mut sent = vec![0; taken];
    input.read_exact(&mut sent)?;
    if let Some(Trouble::Drop(_)) = trouble {
        if let Some(upload) = state.uploads.lock().unwrap().get_mut(upload_of(&path)) {
            upload.extend(sent);
        }
        return Ok(());
    }
    let from = headers.get("range").and_then(|r| r.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
    while matches!(trouble, Some(Trouble::Mute)) && !state.stop.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut reply = match (&trouble, check(state, address, &path, headers.get("authorization"), &sent)) {
        (Some(Trouble::Status(status, headers)), _) => {
            reply(*status, *headers, r#"{"errors":[{"code":"X","message":"because"}]}"#)
        }
        (_, Some(refused)) => refused,
        _ if limit.is_some() => reply(413, "", "<html>"),
        _ => match method {
            "GET" | "HEAD" if !end.starts_with("blobs/uploads/") => find(state, &path, &end, from),
            _ => write(state, address, method, &path, &headers, sent),
        },
    };
    let (mut hang, mut cut) = (false, None);
    match trouble {
        Some(Trouble::Cut(after)) => cut = Some(after),
        Some(Trouble::Hang(after)) => (hang, cut) = (true, Some(after)),
        Some(Trouble::Lie(body)) => reply.body = body,
        Some(Trouble::WrongRange(start)) => {
            reply = find(state, &path, &end, Some(start));
        }
        Some(Trouble::Took(range)) => {
            let kept = reply.headers.lines().filter(|line| !line.starts_with("Range:"));
            reply.headers = kept.map(|line| format!("{line}\r\n")).collect::<String>() + range;
        }
        Some(Trouble::Status(..) | Trouble::Drop(_) | Trouble::Mute) | None => {}
    }
    let Reply { status, headers, body } = reply;
    let length = body.len();
    write!(connection, "HTTP/1.1 {status} X\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n")?;
    if method != "HEAD" {
        connection.write_all(&body[..cut.unwrap_or(length).min(length)])?;
    }
    while hang && !state.stop.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(10));
    }
    connection.shutdown(std::net::Shutdown::Write)?;
    // Closing with unread data would reset the connection before the answer is read.
    let _ = connection.read(&mut first);
    Ok(())
}

/// What an unauthorised request gets; also the token service.
fn check(state: &State, address: SocketAddr, path: &str, authorization: Option<&String>, sent: &[u8]) -> Option<Reply> {
    let basic = |pair: &str| format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair));
    let is = |wanted: &str| authorization.map(String::as_str) == Some(wanted);
    let refused = |challenge: String| Some(reply(401, format!("WWW-Authenticate: {challenge}\r\n"), "{}"));
    match &*state.auth.lock().unwrap() {
        Auth::Open => None,
        Auth::Basic(pair) => {
            if is(&basic(pair)) {
                None
            } else {
                refused("Basic realm=\"x\"".into())
            }
        }
        Auth::Refresh(token) => {
            if path == "/token" {
                let form = String::from_utf8_lossy(sent).into_owned();
                let whole = ["grant_type=refresh_token", "service=fake", "scope=repository%3A"];
                let good = form.ends_with(&format!("refresh_token={token}")) && whole.iter().all(|p| form.contains(p));
                return Some(if good { reply(200, "", r#"{"access_token":"abc"}"#) } else { reply(401, "", "{}") });
            }
            match is("Bearer abc") {
                true => None,
                false => refused(format!("Bearer realm=\"http://{address}/token\",service=\"fake\"")),
            }
        }
        Auth::Token(pair) => {
            if let Some(query) = path.strip_prefix("/token?") {
                assert!(query.contains("scope=repository%3A") && query.contains("service=fake"), "{query}");
                return match pair {
                    Some(pair) if !is(&basic(pair)) => Some(reply(401, "", "{}")),
                    _ => Some(reply(200, "", r#"{"token":"abc"}"#)),
                };
            }
            if is("Bearer abc") {
                None
            } else {
                refused(format!("Bearer realm=\"http://{address}/token\",service=\"fake\""))
            }
        }
    }
}

/// `/v2/team/app/blobs/uploads/7?digest=…`: 7
fn upload_of(path: &str) -> &str {
    let id = path.rsplit('/').next().unwrap_or(path);
    id.split('?').next().unwrap_or(id)
}

/// Uploads, manifests and removals.
fn write(
    state: &State,
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &BTreeMap<String, String>,
    sent: Vec<u8>,
) -> Reply {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let value = |name: &str| {
        let found = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        found.map(|value| value.replace("%3A", ":").replace("%2F", "/"))
    };
    let path = path.strip_prefix("/v2/").unwrap();
    let Some((repository, id)) = path.split_once("/blobs/uploads/") else {
        return manifest(state, method, path, headers, sent);
    };
    let of = state.of.lock().unwrap().clone();
    let state = of.as_deref().unwrap_or(state);
    let mut uploads = state.uploads.lock().unwrap();
    let (extra, elsewhere) = state.upload_headers.lock().unwrap().clone();
    let at = |id: &str| {
        let host = elsewhere.clone().unwrap_or_else(|| address.to_string());
        format!("Location: http://{host}/v2/{repository}/blobs/uploads/{id}\r\n{extra}")
    };
    match method {
        "POST" => {
            let mounted = value("mount").zip(value("from"));
            match (mounted, *state.mounts.lock().unwrap()) {
                (Some((digest, from)), Mounts::Done) => {
                    let mut content = state.content.lock().unwrap();
                    if let Some(blob) = content.get(&format!("{from}/blobs/{digest}")).cloned() {
                        content.insert(format!("{repository}/blobs/{digest}"), blob);
                        return reply(201, "", "");
                    }
                }
                (Some(_), Mounts::Refused(status)) if status != 202 => return reply(status, "", "{}"),
                _ => {}
            }
            let id = state.begun.fetch_add(1, Ordering::SeqCst).to_string();
            uploads.insert(id.clone(), Vec::new());
            reply(202, at(&id), "")
        }
        _ => {
            let Some(upload) = uploads.get_mut(id) else {
                return reply(404, "", r#"{"errors":[{"code":"BLOB_UPLOAD_UNKNOWN","message":"no such upload"}]}"#);
            };
            let range = |upload: &[u8]| format!("Range: 0-{}\r\n", upload.len().saturating_sub(1));
            match method {
                "GET" => reply(204, at(id) + &range(upload), ""),
                "DELETE" => {
                    uploads.remove(id);
                    reply(204, "", "")
                }
                "PATCH" => {
                    upload.extend(sent);
                    reply(202, at(id) + &range(upload), "")
                }
                "PUT" => {
                    upload.extend(sent);
                    let (digest, blob) = (value("digest").unwrap(), uploads.remove(id).unwrap());
                    if digest != Digest::of(&blob).to_string() {
                        return reply(400, "", r#"{"errors":[{"code":"DIGEST_INVALID","message":"wrong digest"}]}"#);
                    }
                    let blob = ("application/octet-stream", blob);
                    state.content.lock().unwrap().insert(format!("{repository}/blobs/{digest}"), blob);
                    reply(201, "", "")
                }
                _ => reply(405, "", ""),
            }
        }
    }
}

fn manifest(state: &State, method: &str, path: &str, headers: &BTreeMap<String, String>, sent: Vec<u8>) -> Reply {
    let (repository, id) = path.split_once("/manifests/").unwrap();
    let mut content = state.content.lock().unwrap();
    match method {
        "PUT" => {
            let stays = state.tags_stay.load(Ordering::SeqCst);
            if stays != 0 && content.contains_key(path) && !id.contains(':') {
                let why = r#"{"errors":[{"code":"DENIED","message":"tag is immutable"}]}"#;
                return reply(stays as u16, "", why);
            }
            let value: serde_json::Value = serde_json::from_slice(&sent).unwrap();
            let layers = value["layers"].as_array().cloned().unwrap_or_default();
            for blob in layers.iter().chain([&value["config"]]).filter_map(|blob| blob["digest"].as_str()) {
                if !content.contains_key(&format!("{repository}/blobs/{blob}")) {
                    return reply(400, "", r#"{"errors":[{"code":"MANIFEST_BLOB_UNKNOWN","message":"blob unknown"}]}"#);
                }
            }
            let digest = Digest::of(&sent);
            let media_type: &'static str = Box::leak(headers["content-type"].clone().into_boxed_str());
            content.insert(format!("{repository}/manifests/{digest}"), (media_type, sent.clone()));
            content.insert(path.to_owned(), (media_type, sent));
            reply(201, format!("Docker-Content-Digest: {digest}\r\n"), "")
        }
        "DELETE" if !id.contains(':') => match content.remove(path) {
            Some(_) => reply(202, "", ""),
            None => reply(404, "", ""),
        },
        _ => reply(405, "", ""),
    }
}

fn find(state: &State, path: &str, end: &str, from: Option<usize>) -> Reply {
    if end == "/v2/" {
        return reply(200, "", "{}");
    }
    let content = state.content.lock().unwrap();
    let own = path.strip_prefix("/v2/").unwrap_or(path);
    let Some((media_type, bytes)) = content.get(own).or_else(|| content.get(end)) else {
        return reply(404, "", r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#);
    };
    let headers = format!("Content-Type: {media_type}\r\nDocker-Content-Digest: {}\r\n", Digest::of(bytes));
    match from {
        Some(from) if from < bytes.len() => {
            let range = format!("Content-Range: bytes {from}-{}/{}\r\n", bytes.len() - 1, bytes.len());
            reply(206, headers + &range, &bytes[from..])
        }
        Some(_) => reply(416, "", ""),
        None => reply(200, headers, bytes.clone()),
    }
}
