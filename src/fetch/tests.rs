//! Fetching from a server that misbehaves, and from repositories behind git's own program.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::error::Kind;
use crate::event::{Cancel, Event, Sink};

/// Answers in order, the last one again and again; requests are kept as they came.
struct Web {
    host: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Web {
    fn start(answers: Vec<Answer>) -> Web {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let heard = requests.clone();
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let answer = answers[number.min(answers.len() - 1)].clone();
                let heard = heard.clone();
                // One that hangs must not hold up the next.
                std::thread::spawn(move || answer.give(stream.unwrap(), &heard));
            }
        });
        Web { host, requests }
    }

    fn url(&self, path: &str) -> WebFile {
        WebFile { url: format!("http://{}{path}", self.host), checksum: None }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

#[derive(Clone)]
struct Answer {
    status: &'static str,
    headers: &'static str,
    body: &'static str,
    /// The connection stays open and silent after so many bytes.
    hang: Option<usize>,
}

impl Answer {
    fn ok(body: &'static str) -> Answer {
        Answer { status: "200 OK", headers: "", body, hang: None }
    }

    fn status(status: &'static str) -> Answer {
        Answer { status, headers: "", body: "", hang: None }
    }

    fn give(&self, mut stream: TcpStream, heard: &Mutex<Vec<String>>) {
        let mut request = String::new();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while reader.read_line(&mut request).is_ok_and(|n| n > 2) {}
        heard.lock().unwrap().push(request);
        let head = format!(
            "HTTP/1.1 {}\r\n{}Content-Length: {}\r\nConnection: close\r\n\r\n",
            self.status,
            self.headers,
            self.body.len()
        );
        // The other side may have gone away.
        let _ = stream.write_all(head.as_bytes());
        let _ = stream.write_all(&self.body.as_bytes()[..self.hang.unwrap_or(self.body.len())]);
        if self.hang.is_some() {
            std::thread::sleep(Duration::from_secs(30));
        }
    }
}

#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Sink for Heard {
    fn event(&self, event: Event) {
        if let Event::Warning { message, .. } | Event::Background { title: message, .. } = event {
            self.0.lock().unwrap().push(message);
        }
    }
}

struct Case {
    fetcher: Fetcher,
    heard: Heard,
    cancel: Cancel,
    dir: tempfile::TempDir,
}

impl Case {
    fn new() -> Case {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("store")).unwrap();
        let millis = Duration::from_millis;
        let retry = Retry { attempts: 3, first_wait: millis(1), longest_wait: millis(5), jitter: 0 };
        let path = std::env::var_os("PATH").unwrap();
        let options = Options { retry, path, idle_timeout: millis(200), ..Options::default() };
        Case { fetcher: Fetcher::new(store, options), heard: Heard::default(), cancel: Cancel::new().unwrap(), dir }
    }

    fn with<T>(&self, f: impl FnOnce(&Fetcher, &Caller<'_>) -> T) -> T {
        let node: Arc<str> = "node".into();
        f(&self.fetcher, &Caller { node: &node, sink: &self.heard, cancel: &self.cancel })
    }

    fn pin(&self, remote: Remote) -> Result<Pin> {
        self.with(|fetcher, caller| fetcher.pin(&remote, caller))
    }

    /// The content of a file and its time.
    fn file(&self, file: &WebFile) -> Result<(String, Option<i64>)> {
        self.with(|fetcher, caller| {
            let Pin::File { digest, .. } = fetcher.pin(&Remote::File(file.clone()), caller)? else { unreachable!() };
            let fetched = fetcher.file(file, &digest, caller)?;
            Ok((std::fs::read_to_string(fetched.path).unwrap(), fetched.modified))
        })
    }
}

#[test]
fn what_did_not_change_is_not_downloaded_again() {
    let first =
        Answer { headers: "ETag: \"e\"\r\nLast-Modified: Fri, 01 Jan 2010 00:00:00 GMT\r\n", ..Answer::ok("content") };
    let web = Web::start(vec![first, Answer::status("304 Not Modified"), Answer::ok("other")]);
    let (case, file) = (Case::new(), web.url("/f"));
    assert_eq!(case.fetcher.known(&Remote::File(file.clone())), None);
    for _ in 0..2 {
        assert_eq!(case.file(&file).unwrap(), ("content".into(), Some(1_262_304_000)));
    }
    let requests = web.requests();
    assert_eq!(requests.len(), 2);
    assert!(!requests[0].contains("if-none-match"));
    assert!(requests[1].to_lowercase().contains("if-none-match: \"e\""));
    assert!(requests[1].to_lowercase().contains("if-modified-since: fri, 01 jan 2010"));
    let before = case.fetcher.known(&Remote::File(file.clone())).unwrap();
    assert_eq!(case.file(&file).unwrap(), ("other".into(), None));
    let after = case.fetcher.known(&Remote::File(file)).unwrap();
    assert_ne!(before.key(), after.key());
}

#[test]
fn a_digest_that_is_given_needs_no_asking_and_has_to_be_met() {
    let web = Web::start(vec![Answer::ok("content")]);
    let case = Case::new();
    let right = WebFile { checksum: Some(Digest::of(b"content")), ..web.url("/f") };
    assert!(matches!(case.pin(Remote::File(right.clone())).unwrap(), Pin::File { modified: None, .. }));
    assert!(web.requests().is_empty());
    assert_eq!(case.file(&right).unwrap().0, "content");
    assert_eq!(case.file(&right).unwrap().0, "content");
    assert_eq!(web.requests().len(), 1);
    let wrong = Digest::of(b"other");
    let error = case.file(&WebFile { checksum: Some(wrong.clone()), ..web.url("/g") }).unwrap_err().to_string();
    assert!(error.contains(&wrong.to_string()) && error.contains(&Digest::of(b"content").to_string()), "{error}");
}

#[test]
fn failures_that_may_pass_are_tried_again_and_told() {
    let hangs = Answer { hang: Some(3), ..Answer::ok("content") };
    let web = Web::start(vec![Answer::status("503 Service Unavailable"), hangs, Answer::ok("content")]);
    let case = Case::new();
    assert_eq!(case.file(&web.url("/f")).unwrap().0, "content");
    let heard = case.heard.0.lock().unwrap().join("\n");
    assert!(heard.contains("503 Service Unavailable") && heard.contains("3 of 3 tries"), "{heard}");
}

#[test]
fn what_lasts_is_said_at_once_and_without_what_is_secret() {
    let web = Web::start(vec![Answer::status("404 Not Found")]);
    let case = Case::new();
    let file = WebFile { url: format!("http://user:hidden@{}/f?token=hidden", web.host), checksum: None };
    let error = case.pin(Remote::File(file)).unwrap_err();
    // The address is wrong, and not the server.
    assert_eq!(error.kind(), Kind::BadInput);
    assert!(error.to_string().contains("404 Not Found") && !error.to_string().contains("hidden"), "{error}");
    let requests = web.requests();
    assert_eq!(requests.len(), 1);
    // The login goes where it belongs.
    assert!(requests[0].to_lowercase().contains("authorization: basic dxnlcjpoawrkzw4="));
    let broken = Web::start(vec![Answer::status("500 Internal Server Error")]);
    let error = case.pin(Remote::File(broken.url("/f"))).unwrap_err();
    assert_eq!(error.kind(), Kind::Unusable);
    assert!(error.to_string().contains("500 Internal Server Error"), "{error}");
    assert_eq!(broken.requests().len(), 3);
    for path in walk(case.dir.path()) {
        assert!(!std::fs::read_to_string(&path).is_ok_and(|text| text.contains("hidden")), "{}", path.display());
    }
}

fn walk(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

#[test]
fn git_that_is_not_there_is_said() {
    let mut case = Case::new();
    case.fetcher.options.path = case.dir.path().as_os_str().to_owned();
    let remote = Remote::Git(GitAddress::parse("https://h/x.git").unwrap().unwrap());
    let error = case.fetcher.preflight(&remote).unwrap_err();
    assert!(error.message().contains("`git` is not on this machine") && error.hint_text().is_some());
}

/// A `git` that tells how it was called.
#[test]
fn git_is_called_without_secrets_in_its_arguments() {
    let mut case = Case::new();
    let bin = case.dir.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let told = case.dir.path().join("told");
    let commit = "a".repeat(40);
    let script = format!(
        "#!/bin/sh\n(echo \"args $*\"; env) >> {}\ncase \"$*\" in *symref*) printf 'ref: refs/heads/m\\tHEAD\\n';; *) \
         printf '{commit}\\trefs/heads/m\\n';; esac\n",
        told.display()
    );
    std::fs::write(bin.join("git"), script).unwrap();
    std::fs::set_permissions(bin.join("git"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    case.fetcher.options.path = format!("{}:/usr/bin:/bin", bin.display()).into();
    let remote = Remote::Git(GitAddress::parse("https://user:hidden@h/x.git").unwrap().unwrap());
    assert_eq!(case.pin(remote.clone()).unwrap(), Pin::Commit { id: commit, name: Some("refs/heads/m".into()) });
    let told = std::fs::read_to_string(told).unwrap();
    let args: Vec<&str> = told.lines().filter(|line| line.starts_with("args")).collect();
    assert_eq!(args.len(), 2);
    assert!(args.iter().all(|line| line.contains("https://h/x.git") && !line.contains("hidden")), "{args:?}");
    for wanted in [
        "GIT_CONFIG_NOSYSTEM=1",
        "GIT_CONFIG_GLOBAL=/dev/null",
        "GIT_TERMINAL_PROMPT=0",
        "GIT_ALLOW_PROTOCOL=http:https:git:ssh",
    ] {
        assert!(told.lines().any(|line| line == wanted), "{wanted}");
    }
    assert!(told.contains("GIT_CONFIG_VALUE_0=Authorization: Basic"));
    assert!(case.fetcher.known(&remote).is_some());
}
