//! A registry of a hundred lines for tests: it can refuse, stall, lie and hang up.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
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
}

#[derive(Clone, Debug, Default)]
pub(super) enum Auth {
    #[default]
    Open,
    Basic(&'static str),
    /// A token service on the same port; asks for the pair `user:password` where there is one.
    Token(Option<&'static str>),
}

#[derive(Default)]
struct State {
    /// By the end of the path: `manifests/latest`, `blobs/sha256:…`.
    content: Mutex<BTreeMap<String, (&'static str, Vec<u8>)>>,
    troubles: Mutex<Vec<(String, Trouble)>>,
    requests: Mutex<Vec<String>>,
    auth: Mutex<Auth>,
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

    /// The next request whose path contains `part` goes wrong; troubles of one part come in the order given.
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
    let mut lines = BufReader::new(connection.try_clone()?).lines();
    let request = lines.next().unwrap()?;
    let mut headers = BTreeMap::new();
    for line in lines {
        let line = line?;
        let Some((name, value)) = line.split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let mut words = request.split(' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap().to_owned());
    let range = headers.get("range").map(|r| format!(" {r}")).unwrap_or_default();
    let end = match (path.find("manifests/"), path.find("blobs/")) {
        (Some(at), _) | (_, Some(at)) => path[at..].to_owned(),
        _ => path.clone(),
    };
    state.requests.lock().unwrap().push(format!("{method} {end}{range}"));
    let trouble = {
        let mut troubles = state.troubles.lock().unwrap();
        let at = troubles.iter().position(|(part, _)| path.contains(part.as_str()));
        at.map(|at| troubles.remove(at).1)
    };
    let from = headers.get("range").and_then(|r| r.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
    let mut reply = match (&trouble, check(state, address, &path, headers.get("authorization"))) {
        (Some(Trouble::Status(status, headers)), _) => {
            reply(*status, *headers, r#"{"errors":[{"code":"X","message":"because"}]}"#)
        }
        (_, Some(refused)) => refused,
        _ => find(state, &end, from),
    };
    let (mut hang, mut cut) = (false, None);
    match trouble {
        Some(Trouble::Cut(after)) => cut = Some(after),
        Some(Trouble::Hang(after)) => (hang, cut) = (true, Some(after)),
        Some(Trouble::Lie(body)) => reply.body = body,
        Some(Trouble::WrongRange(start)) => {
            reply = find(state, &end, Some(start));
        }
        Some(Trouble::Status(..)) | None => {}
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
fn check(state: &State, address: SocketAddr, path: &str, authorization: Option<&String>) -> Option<Reply> {
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

fn find(state: &State, end: &str, from: Option<usize>) -> Reply {
    if end == "/v2/" {
        return reply(200, "", "{}");
    }
    let content = state.content.lock().unwrap();
    let Some((media_type, bytes)) = content.get(end) else {
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
