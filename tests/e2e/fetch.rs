//! What ADD takes from elsewhere: asked when it is built, built again when it changed and only then, and nothing that
//! unlocks it kept anywhere.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::sandbox::{Sandbox, field, is_root};

/// A web server with one file on it, which knows its tag.
pub struct Web {
    pub host: String,
    pub content: Arc<Mutex<String>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Web {
    pub fn start(content: &str) -> Web {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let (content, requests) = (Arc::new(Mutex::new(content.to_owned())), Arc::new(Mutex::new(Vec::new())));
        let (now, heard) = (content.clone(), requests.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = String::new();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                while reader.read_line(&mut request).is_ok_and(|n| n > 2) {}
                let content = now.lock().unwrap().clone();
                let known = request.contains(&format!("\"{content}\""));
                heard.lock().unwrap().push(if known { "unchanged" } else { "sent" }.to_owned());
                let (status, body) = match request.starts_with("GET /missing") {
                    true => ("404 Not Found", ""),
                    false if known => ("304 Not Modified", ""),
                    false => ("200 OK", content.as_str()),
                };
                let head = format!("HTTP/1.1 {status}\r\nETag: \"{content}\"\r\nContent-Length: {}\r\n", body.len());
                // Whoever hangs up has what it wanted.
                let _ = write!(stream, "{head}Connection: close\r\n\r\n{body}");
            }
        });
        Web { host, content, requests }
    }

    pub fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }
}

fn add(source: &str) -> Sandbox {
    let sandbox = Sandbox::with_base();
    sandbox.base("FROM {{ parent }}\nENV PATH=/bin\n");
    sandbox.image("web", "base", &format!("FROM {{{{ parent }}}}\nADD {source} /got\nRUN ls /got > /seen\n"));
    sandbox
}

#[test]
fn a_file_is_asked_for_and_counts_by_its_content() {
    if !is_root() {
        return;
    }
    let web = Web::start("one");
    let sandbox = add(&format!("http://{}/f", web.host));
    assert!(sandbox.plan(&[]).contains(&("web".into(), "build".into())));
    assert!(web.requests().is_empty(), "a plan asks nobody");
    assert_eq!(field(&sandbox.build(&[]), "web", "status"), "built");
    assert_eq!(web.requests(), ["sent"]);
    assert!(sandbox.plan(&[]).contains(&("web".into(), "reuse".into())));
    assert!(web.requests().is_empty());
    assert_eq!(field(&sandbox.build(&[]), "web", "status"), "reused");
    assert_eq!(web.requests(), ["unchanged"]);
    *web.content.lock().unwrap() = "two".into();
    assert_eq!(field(&sandbox.build(&[]), "web", "status"), "built");
    assert_eq!(web.requests(), ["sent"]);
    // What was there before is known by its content, although it has to be sent again.
    *web.content.lock().unwrap() = "one".into();
    assert_eq!(field(&sandbox.build(&[]), "web", "status"), "reused");
}

#[test]
fn what_cannot_be_had_is_said_by_line() {
    if !is_root() {
        return;
    }
    let sandbox = add("http://user:hidden@127.0.0.1:1/f");
    for once in [["--set", "build.retries=0"], ["--retries", "0"]] {
        let ran = sandbox.run(&[&["build"], &once[..]].concat()).exits(3).says(":2: `ADD http://127.0.0.1:1/f");
        assert!(!ran.stderr.contains("hidden"), "{}", ran.stderr);
        assert!(!ran.stderr.contains("trying again"), "{}", ran.stderr);
    }
}

/// A repository behind `git daemon`, on this machine's own address.
pub struct Daemon {
    child: Child,
    pub address: String,
}

impl Daemon {
    pub fn start(dir: &Path) -> Daemon {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let programs = Command::new("git").arg("--exec-path").output().unwrap().stdout;
        let programs = String::from_utf8(programs).unwrap();
        // Not `git daemon`, which would leave this one behind when it is killed.
        let child = Command::new(Path::new(programs.trim()).join("git-daemon"))
            .args(["--export-all", "--listen=127.0.0.1", "--reuseaddr", &format!("--port={port}")])
            .arg(format!("--base-path={}", dir.display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let address = format!("127.0.0.1:{port}");
        let begun = Instant::now();
        while std::net::TcpStream::connect(&address).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(60), "git daemon does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        Daemon { child, address }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A repository `r.git` in the directory, and what commits content to its file `f`.
pub fn repository(dir: &Path) -> impl Fn(&str) + use<> {
    let repo = dir.join("r.git");
    fs::create_dir(&repo).unwrap();
    git(&repo, &["init", "-q"]);
    move |content| {
        fs::write(repo.join("f"), content).unwrap();
        git(&repo, &["add", "f"]);
        git(&repo, &["commit", "-q", "-m", content]);
    }
}

pub fn git(dir: &Path, args: &[&str]) {
    let output = Command::new("git")
        .args(["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "init.defaultBranch=main"])
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_branch_that_moved_is_built_again_and_one_that_did_not_is_not() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let commit = repository(dir.path());
    commit("one");
    let daemon = Daemon::start(dir.path());
    let sandbox = add(&format!("git://{}/r.git#main", daemon.address));
    let first = sandbox.build(&[]);
    assert_eq!(field(&first, "web", "status"), "built");
    assert_eq!(field(&sandbox.build(&[]), "web", "status"), "reused");
    // Another store comes to the same bytes: no time of a checkout is in it.
    assert_eq!(field(&sandbox.build_on("other", &[]), "web", "digest"), field(&first, "web", "digest"));
    git(&dir.path().join("r.git"), &["tag", "elsewhere"]);
    assert_eq!(field(&sandbox.build(&[]), "web", "status"), "reused");
    commit("two");
    assert_eq!(field(&sandbox.build(&[]), "web", "status"), "built");
    drop(daemon);
    // The plan asks nobody, and a build cannot do without.
    assert!(sandbox.plan(&[]).contains(&("web".into(), "reuse".into())));
    sandbox.run(&["build", "--set", "build.retries=0"]).exits(3).says("r.git");
}

#[test]
fn a_login_in_an_address_stays_nowhere() {
    if !is_root() {
        return;
    }
    let web = Web::start("content");
    let sandbox = add(&format!("http://user:hidden-word@{}/f", web.host));
    let ran = sandbox.run(&["build", "-o", &format!("type=oci,dest={}", sandbox.path("out").display())]).ok();
    assert!(!ran.stderr.contains("hidden-word") && !ran.stdout.contains("hidden-word"), "{}", ran.stderr);
    for place in ["store", "out"] {
        let found = Command::new("grep").args(["-rlF", "hidden-word"]).arg(sandbox.path(place)).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&found.stdout), "");
    }
}

#[test]
fn a_dockerfile_from_standard_input_and_a_named_context() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::with_base();
    let base = sandbox.path("base.tar");
    fs::create_dir_all(sandbox.path("more/left")).unwrap();
    fs::write(sandbox.path("more/f"), "f").unwrap();
    fs::write(sandbox.path("more/left/out"), "out").unwrap();
    fs::write(sandbox.path("more/.dockerignore"), "left").unwrap();
    let more = format!("more={}", sandbox.path("more").display());
    let dest = format!("type=local,dest={}", sandbox.path("out").display());
    let args = ["build", "--dockerfile", "-", "-t", "x", "--build-context", &more, "-o", &dest];
    let mut command = sandbox.command(&args);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let text = format!("FROM rootfs:{}\nCOPY --from=more . /to/\n", base.display());
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read_to_string(sandbox.path("out/to/f")).unwrap(), "f");
    assert!(!sandbox.path("out/to/left").exists());
    let remote = ["build", "--dockerfile", "-", "--context", "https://user:hidden@h/x.git"];
    let ran = sandbox.run(&remote).exits(2).says("the context has to be a directory");
    assert!(!ran.stderr.contains("hidden"));
}
