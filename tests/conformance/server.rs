//! What cases fetch: a web server on this machine's own address, with a few files and with repositories behind git's
//! own program for that. Both Docker and Kollage ask it; `@HOST@` in a Dockerfile is its address.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use base64::Engine as _;

use crate::files::{FileSpec, tar_of};

const LOGIN: &str = "user:token";
/// The time of all commits: later than what is told apart from the time of a build.
const COMMITTED: &str = "1800000000 +0000";

pub struct Server {
    address: SocketAddr,
    /// Names that stand for commits in Dockerfiles.
    commits: BTreeMap<&'static str, String>,
}

struct State {
    repositories: PathBuf,
    files: BTreeMap<&'static str, (&'static str, Vec<u8>)>,
}

impl Server {
    pub fn start(dir: &Path) -> Server {
        let repositories = dir.join("repositories");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let commits = repositories_at(&repositories);
        let state = Arc::new(State { repositories, files: files() });
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let state = state.clone();
                std::thread::spawn(move || {
                    // Whoever hangs up has what it wanted.
                    let _ = answer(&state, connection.unwrap());
                });
            }
        });
        Server { address, commits }
    }

    /// A Dockerfile as both sides read it.
    pub fn mapped(&self, text: &[u8]) -> Vec<u8> {
        let mut text = String::from_utf8_lossy(text).replace("@HOST@", &self.address.to_string());
        for (name, commit) in &self.commits {
            text = text.replace(&format!("@{name}@"), commit);
        }
        text.into_bytes()
    }

    pub fn is_named(&self, text: &[u8]) -> bool {
        text.windows(6).any(|w| w == b"@HOST@")
    }

    /// What they say about it, for all times.
    pub fn mapped_back(&self, text: &str) -> String {
        let mut text = text.replace(&self.address.to_string(), "@HOST@");
        for (name, commit) in &self.commits {
            text = text.replace(commit.as_str(), &format!("@{name}@"));
        }
        text
    }
}

/// By path: headers, and the content.
fn files() -> BTreeMap<&'static str, (&'static str, Vec<u8>)> {
    const DATED: &str = "Last-Modified: Fri, 01 Jan 2010 00:00:00 GMT\r\nETag: \"one\"\r\n";
    let archive = tar_of(&[
        FileSpec { path: "top/in".into(), text: Some("in\n".into()), owner: Some("7:8".into()), ..FileSpec::default() },
        FileSpec {
            path: "top/run".into(),
            text: Some("run\n".into()),
            mode: Some("0755".into()),
            ..FileSpec::default()
        },
    ]);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&archive).unwrap();
    let gzip = gzip.finish().unwrap();
    let text = |text: &str| text.as_bytes().to_vec();
    BTreeMap::from([
        ("/hello.txt", (DATED, text("hello\n"))),
        ("/undated.txt", ("", text("undated\n"))),
        ("/bad-date.txt", ("Last-Modified: yesterday\r\n", text("bad\n"))),
        ("/named", ("Content-Disposition: attachment; filename=\"other.txt\"\r\n", text("named\n"))),
        ("/with%20space.txt", (DATED, text("space\n"))),
        ("/dir/", (DATED, text("dir\n"))),
        ("/", (DATED, text("root\n"))),
        ("/empty", (DATED, Vec::new())),
        ("/archive.tar", (DATED, archive)),
        ("/archive.tar.gz", (DATED, gzip)),
        ("/large", (DATED, vec![b'x'; 3 << 20])),
    ])
}

fn answer(state: &State, mut stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default().to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        match line.trim().split_once(':') {
            Some((name, value)) => headers.insert(name.to_ascii_lowercase(), value.trim().to_owned()),
            None => break,
        };
    }
    let mut body = Vec::new();
    if let Some(size) = headers.get("content-length").and_then(|s| s.parse::<u64>().ok()) {
        reader.take(size).read_to_end(&mut body)?;
    } else if headers.get("transfer-encoding").is_some_and(|v| v == "chunked") {
        body = chunked(&mut reader)?;
    }
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let (status, head, content) = if path.contains(".git/") {
        if path.starts_with("/private") && !logged_in(&headers) {
            ("401 Unauthorized".to_owned(), "WWW-Authenticate: Basic realm=\"r\"\r\n".to_owned(), Vec::new())
        } else {
            git(state, &method, path, query, &headers, &body)
        }
    } else {
        web(state, path, &headers)
    };
    let length = content.len();
    write!(stream, "HTTP/1.1 {status}\r\n{head}Content-Length: {length}\r\nConnection: close\r\n\r\n")?;
    if method != "HEAD" && !status.starts_with("304") {
        stream.write_all(&content)?;
    }
    stream.flush()
}

fn chunked(reader: &mut impl BufRead) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let size = u64::from_str_radix(line.trim(), 16).unwrap_or(0);
        reader.by_ref().take(size).read_to_end(&mut body)?;
        reader.read_line(&mut line)?;
        if size == 0 {
            return Ok(body);
        }
    }
}

fn logged_in(headers: &BTreeMap<String, String>) -> bool {
    let wanted = format!("Basic {}", base64::prelude::BASE64_STANDARD.encode(LOGIN));
    headers.get("authorization").is_some_and(|value| *value == wanted)
}

fn web(state: &State, path: &str, headers: &BTreeMap<String, String>) -> (String, String, Vec<u8>) {
    let moved = |to: &str| ("302 Found".to_owned(), format!("Location: {to}\r\n"), Vec::new());
    match path {
        "/moved/name.txt" => return moved("/hello.txt"),
        "/circle" => return moved("/circle"),
        "/broken" => return ("500 Internal Server Error".into(), String::new(), Vec::new()),
        "/locked.txt" if !logged_in(headers) => return ("401 Unauthorized".into(), String::new(), Vec::new()),
        "/locked.txt" => return ("200 OK".into(), String::new(), b"locked\n".to_vec()),
        _ => {}
    }
    match state.files.get(path) {
        Some((head, content)) => ("200 OK".into(), (*head).to_owned(), content.clone()),
        None => ("404 Not Found".into(), String::new(), b"no such thing\n".to_vec()),
    }
}

/// Asks git's own program for web servers.
fn git(
    state: &State,
    method: &str,
    path: &str,
    query: &str,
    headers: &BTreeMap<String, String>,
    body: &[u8],
) -> (String, String, Vec<u8>) {
    let header = |name: &str| headers.get(name).cloned().unwrap_or_default();
    let mut child = Command::new("git")
        .arg("http-backend")
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("HOME", "/dev/null")
        .env("GIT_PROJECT_ROOT", &state.repositories)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("PATH_INFO", path)
        .env("QUERY_STRING", query)
        .env("REQUEST_METHOD", method)
        .env("CONTENT_TYPE", header("content-type"))
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("GIT_PROTOCOL", header("git-protocol"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let body = body.to_vec();
    let writing = std::thread::spawn(move || stdin.write_all(&body));
    let mut out = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut out).unwrap();
    let _ = writing.join();
    let _ = child.wait();
    let end = out.windows(4).position(|w| w == b"\r\n\r\n").unwrap_or(0);
    let head = String::from_utf8_lossy(&out[..end]).into_owned();
    let content = out.get(end + 4..).unwrap_or_default().to_vec();
    let mut status = "200 OK".to_owned();
    let mut lines = String::new();
    for line in head.lines() {
        match line.strip_prefix("Status: ") {
            Some(told) => told.clone_into(&mut status),
            None => lines.push_str(&format!("{line}\r\n")),
        }
    }
    (status, lines, content)
}

/// `repo.git` with two commits, tags and branches; `other.git`, which is its submodule on one branch; `private.git`,
/// which wants a login.
fn repositories_at(dir: &Path) -> BTreeMap<&'static str, String> {
    let other = Repository::new(dir, "other");
    other.write("inside", "inside\n", false);
    let inside = other.commit("other");
    other.publish(dir, "other");

    let repo = Repository::new(dir, "repo");
    repo.write("README", "readme\n", false);
    repo.write("bin/run", "#!/bin/sh\n", true);
    repo.write("dir/a", "a\n", false);
    repo.write("dir/sub/b", "b\n", false);
    std::os::unix::fs::symlink("README", repo.path.join("link")).unwrap();
    let first = repo.commit("first");
    repo.git(&["tag", "-a", "-m", "one", "v1"]);
    repo.git(&["tag", "light"]);
    let tag = repo.git(&["rev-parse", "v1"]);
    repo.git(&["checkout", "-q", "-b", "dev/x"]);
    repo.write("dev", "dev\n", false);
    let dev = repo.commit("dev");
    repo.git(&["checkout", "-q", "-b", "with-submodule", "main"]);
    repo.write(".gitmodules", "[submodule \"o\"]\n\tpath = mods/other\n\turl = ../other.git\n", false);
    repo.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{inside},mods/other")]);
    fs::create_dir_all(repo.path.join("mods/other")).unwrap();
    let submodule = repo.commit("submodule");
    repo.git(&["checkout", "-q", "-b", "bad-submodule"]);
    repo.write(".gitmodules", "[submodule \"bad\"]\n\tpath = mods/bad\n\turl = file:///etc/other.git\n", false);
    repo.git(&["update-index", "--force-remove", "mods/other"]);
    repo.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{inside},mods/bad")]);
    repo.commit("bad submodule");
    repo.git(&["checkout", "-q", "--force", "main"]);
    repo.write("README", "readme 2\n", false);
    let second = repo.commit("second");
    repo.publish(dir, "repo");
    repo.publish(dir, "private");
    BTreeMap::from([
        ("FIRST", first),
        ("SECOND", second),
        ("TAG", tag),
        ("DEV", dev),
        ("SUBMODULE", submodule),
        ("INSIDE", inside),
    ])
}

struct Repository {
    path: PathBuf,
}

impl Repository {
    fn new(dir: &Path, name: &str) -> Repository {
        let path = dir.join("work").join(name);
        fs::create_dir_all(&path).unwrap();
        let repository = Repository { path };
        repository.git(&["init", "-q", "-b", "main"]);
        repository
    }

    fn write(&self, name: &str, content: &str, executable: bool) {
        let path = self.path.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        let mode = if executable { 0o755 } else { 0o644 };
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        self.git(&["add", name]);
    }

    fn commit(&self, message: &str) -> String {
        self.git(&["add", "--all", "--", ":!mods"]);
        self.git(&["commit", "-q", "-m", message]);
        self.git(&["rev-parse", "HEAD"])
    }

    fn publish(&self, dir: &Path, name: &str) {
        let bare = dir.join(format!("{name}.git"));
        self.git(&["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
    }

    fn git(&self, args: &[&str]) -> String {
        let output = Command::new("git")
            .args(args)
            .current_dir(&self.path)
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("HOME", "/dev/null")
            .envs(["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"].map(|name| (name, "somebody")))
            .envs(["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"].map(|name| (name, "somebody@example.org")))
            .envs(["GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"].map(|name| (name, COMMITTED)))
            .output()
            .unwrap();
        assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}
