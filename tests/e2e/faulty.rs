//! Registries that do what a registry shouldn't: what a person is told, with exit code 3, before anything is built. In
//! front of Debian's docker-registry stands a server that answers some requests itself and sends on all others.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use serde_json::{Value, json};

use crate::sandbox::{Ran, Sandbox, is_root, ran};
use crate::tools::{Registry, ready};
use kollage::image::config::Platform;
use kollage::image::digest::Digest;
use kollage::image::manifest::{OCI_INDEX, OCI_MANIFEST};

struct Answer {
    status: &'static str,
    media_type: &'static str,
    body: Vec<u8>,
}

/// By the beginning of `METHOD /v2/path`.
type Answers = Arc<Mutex<BTreeMap<String, Answer>>>;

struct Faulty {
    /// `127.0.0.1:PORT`
    host: String,
    answers: Answers,
}

impl Faulty {
    /// In front of another registry.
    fn start(behind: &str) -> Faulty {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let answers = Answers::default();
        let (known, behind) = (answers.clone(), behind.to_owned());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (known, behind) = (known.clone(), behind.clone());
                // Whoever hangs up has what it wanted.
                std::thread::spawn(move || drop(answer(stream.unwrap(), &known, &behind)));
            }
        });
        Faulty { host, answers }
    }

    fn answer(&self, request: &str, status: &'static str, media_type: &'static str, body: &[u8]) {
        let answer = Answer { status, media_type, body: body.to_vec() };
        self.answers.lock().unwrap().insert(request.to_owned(), answer);
    }

    /// A manifest or list as `team/app:1`, and by its digest; gives that.
    fn manifest(&self, media_type: &'static str, value: &Value) -> Digest {
        let bytes = value.to_string().into_bytes();
        let digest = Digest::of(&bytes);
        for id in ["1", &digest.to_string()] {
            self.answer(&format!("GET /v2/team/app/manifests/{id}"), "200 OK", media_type, &bytes);
        }
        digest
    }
}

fn answer(mut stream: TcpStream, known: &Answers, behind: &str) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? <= 2 {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    // What isn't read would reset the connection before the answer is.
    std::io::copy(&mut reader.take(length), &mut std::io::sink())?;
    let request = first.trim().trim_end_matches(" HTTP/1.1");
    let known = known.lock().unwrap();
    let found = known.iter().find(|(beginning, _)| request.starts_with(beginning.as_str()));
    let Some((_, Answer { status, media_type, body })) = found else {
        let path = request.split(' ').nth(1).unwrap_or_default();
        let location = format!("Location: http://{behind}{path}");
        return write!(
            stream,
            "HTTP/1.1 307 Temporary Redirect\r\n{location}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\n", body.len());
    stream.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes())?;
    stream.write_all(body)
}

/// Nothing of what was asked for is in the store, and a login that was used is in no message.
#[track_caller]
fn nothing_built(sandbox: &Sandbox, ran: Ran) -> Ran {
    for text in [&ran.stdout, &ran.stderr] {
        assert!(!text.contains("s3cret") && !text.contains("bWU6czNjcmV0"), "{text}");
    }
    let images = sandbox.run(&["images", "--all", "--format", "json"]).ok().json();
    assert_eq!(images["images"], json!([]));
    ran
}

/// A file with the login `me`, `s3cret`.
fn login(sandbox: &Sandbox, host: &str) -> String {
    let auth = base64::engine::general_purpose::STANDARD.encode("me:s3cret");
    let file = sandbox.path("auth.json");
    fs::write(&file, json!({ "auths": { host: { "auth": auth } } }).to_string()).unwrap();
    file.display().to_string()
}

/// `app` above a base of a registry, and `top` above that.
fn above(base: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("kollage.toml", "[build]\nbase = \"debian\"\n");
    sandbox.image("app", &format!("from = \"{base}\""), "FROM {{ parent }}\nRUN true\n");
    sandbox.image("top", "app", "FROM {{ parent }}\nRUN true\n");
    sandbox
}

fn entry(digest: &Digest, media_type: &str, platform: &str) -> Value {
    let (os, architecture) = platform.split_once('/').unwrap();
    json!({ "mediaType": media_type, "digest": digest, "size": 1,
            "platform": { "os": os, "architecture": architecture } })
}

fn list(entries: &[Value]) -> Value {
    json!({ "schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries })
}

#[test]
fn a_list_of_images_where_an_image_was_expected() {
    if !is_root() {
        return;
    }
    let faulty = Faulty::start("127.0.0.1:1");
    let base = format!("{}/team/app:1", faulty.host);
    let sandbox = above(&base);
    let login = login(&sandbox, &faulty.host);
    let build = || nothing_built(&sandbox, sandbox.run(&["build", "--retries", "0", "--authfile", &login]).exits(3));
    let (host, nothing) = (Platform::host().to_string(), Digest::of(b"nothing"));

    // None of them is for this platform, and what stands beside them is no image.
    let others = [entry(&nothing, OCI_MANIFEST, "plan9/mips"), entry(&nothing, OCI_MANIFEST, "unknown/unknown")];
    let digest = faulty.manifest(OCI_INDEX, &list(&others));
    build().says(&format!("{base} has no image for {host}")).says("hint: it has images for plan9/mips");
    faulty.manifest(OCI_INDEX, &list(&[]));
    build().says(&format!("{base} has no image for {host}")).says("none that is named");

    // By its digest, and as what the lock has.
    sandbox.write("kollage.lock", &format!("version = 2\n[bases]\n\"{base}\" = \"{digest}\"\n"));
    build().says(&format!("{base}@{digest} has no image for {host}")).says("plan9/mips");
    fs::remove_file(sandbox.catalogue().join("kollage.lock")).unwrap();

    // What it leads to isn't an image either.
    let chart = json!({ "schemaVersion": 2, "mediaType": OCI_MANIFEST, "layers": [],
        "config": { "mediaType": "application/vnd.example.chart.v1+json", "digest": nothing, "size": 1 } });
    let chart = faulty.manifest(OCI_MANIFEST, &chart);
    build().says(&format!("{base} is not a container image")).says("vnd.example.chart.v1").says("hint: ");
    let mut next = chart;
    for _ in 0..5 {
        next = faulty.manifest(OCI_INDEX, &list(&[entry(&next, OCI_INDEX, &host)]));
    }
    build().says(&format!("{base} is a list of lists of images")).says("hint: name the image itself by its digest");
    faulty.answer("GET /v2/team/app/manifests/1", "200 OK", OCI_INDEX, br#"{"manifests": 7}"#);
    build().says(&format!("the manifest of {base} cannot be understood"));
}

/// A registry that has `kollage/base`, and that image's reference by its digest.
fn with_an_image() -> (Registry, String) {
    let source = Sandbox::with_base();
    source.base("FROM {{ parent }}\nENV PATH=/bin\nRUN echo true > /word\n");
    let registry = Registry::start(false);
    source.run(&["build", "--push", "--registry", registry.address()]).ok();
    let images = source.run(&["images", "base", "--format", "json"]).ok().json();
    let digest = images["images"][0]["digest"].as_str().unwrap().to_owned();
    (registry, format!("kollage/base@{digest}"))
}

#[test]
fn a_mirror_that_lies_about_a_digest() {
    if !is_root() || !ready(&["docker-registry", "busybox"]) {
        return;
    }
    let (registry, image) = with_an_image();
    let (repository, digest) = image.split_once('@').unwrap();
    let mirror = Faulty::start(registry.address());
    let lie = json!({ "schemaVersion": 2, "layers": [], "config": {} }).to_string();
    mirror.answer(&format!("GET /v2/{repository}/manifests/{digest}"), "200 OK", OCI_MANIFEST, lie.as_bytes());
    let build = |location: &str, store: &str| {
        let sandbox = above(&format!("registry.example.org/{image}"));
        let conf = sandbox.path("registries.conf");
        let mirrored = format!(
            "[[registry]]\nprefix = \"registry.example.org\"\nlocation = \"{location}\"\ninsecure = true\n\
             [[registry.mirror]]\nlocation = \"{}\"\ninsecure = true\n",
            mirror.host
        );
        fs::write(&conf, mirrored).unwrap();
        let login = login(&sandbox, &mirror.host);
        let args = ["build", "app", "--retries", "1", "--authfile", &login, "-o"];
        let out = sandbox.path("out");
        let mut command =
            sandbox.command_on(store, &[&args[..], &[&format!("type=local,dest={}", out.display())]].concat());
        let ran = ran(command.env("CONTAINERS_REGISTRIES_CONF", &conf));
        (sandbox, ran)
    };
    // The registry has the last word, and its image is what was meant.
    let (sandbox, told) = build(registry.address(), "store");
    told.ok().says(&format!("the mirror {} is of no use", mirror.host)).says("arrived damaged").says(digest);
    assert_eq!(fs::read_to_string(sandbox.path("out/word")).unwrap(), "true\n");
    // A lie about a layer.
    mirror.answers.lock().unwrap().clear();
    let (sandbox, told) = build(registry.address(), "store");
    assert!(!told.ok().stderr.contains("of no use"));
    let blobs = |request: &str| format!("{request} /v2/{repository}/blobs/");
    let manifest = sandbox.path("store/blobs").join(digest.replace(':', "/"));
    let manifest: Value = serde_json::from_slice(&fs::read(manifest).unwrap()).unwrap();
    let layer = manifest["layers"][0]["digest"].as_str().unwrap();
    let size = manifest["layers"][0]["size"].as_u64().unwrap() as usize;
    mirror.answer(&(blobs("GET") + layer), "200 OK", "application/octet-stream", &vec![b'x'; size]);
    let (sandbox, told) = build(registry.address(), "store");
    told.ok().says(&format!("the mirror {} is of no use", mirror.host)).says(layer);
    assert_eq!(fs::read_to_string(sandbox.path("out/word")).unwrap(), "true\n");
    // Nobody else can be asked.
    let (sandbox, told) = build("127.0.0.1:1", "store");
    let told = nothing_built(&sandbox, told.exits(3));
    told.says("the mirror").says(layer).says("the registry 127.0.0.1:1 cannot be reached").says("hint: ");
    let (sandbox, told) = build(&mirror.host, "store");
    let told = nothing_built(&sandbox, told.exits(3));
    told.says(&format!("the blob {layer} is damaged"))
        .says("hint: the registry's copy is damaged, or something on the");
    mirror.answer(&format!("GET /v2/{repository}/manifests/{digest}"), "200 OK", OCI_MANIFEST, lie.as_bytes());
    let (sandbox, told) = build(&mirror.host, "store");
    let told = nothing_built(&sandbox, told.exits(3)).says("arrived damaged");
    told.says(&format!("not {digest}")).says("hint: the registry's copy is damaged, or something on the");
}

#[test]
fn a_registry_that_takes_no_push_or_moves_no_tag() {
    if !is_root() || !ready(&["docker-registry", "busybox"]) {
        return;
    }
    let registry = Registry::start(false);
    let faulty = Faulty::start(registry.address());
    let sandbox = Sandbox::with_base();
    sandbox.base("FROM {{ parent }}\nENV PATH=/bin\nRUN echo base > /base\n");
    let login = login(&sandbox, &faulty.host);
    let push = ["build", "--push", "--retries", "0", "--registry", &faulty.host, "--authfile", &login];
    // It may be read by this user, and no more.
    let denied = br#"{"errors":[{"code":"DENIED","message":"read only"}]}"#;
    faulty.answer("POST /v2/kollage/base/blobs/uploads/", "403 Forbidden", "application/json", denied);
    let refused = nothing_built(&sandbox, sandbox.run(&push).exits(3));
    refused.says(&faulty.host).says("kollage/base").says("user `me`").says("nothing was built").says("hint: ");

    // A tag that is there and stays: only an attempt to move it can tell, after the blobs are there by their digests.
    faulty.answers.lock().unwrap().clear();
    sandbox.run(&push).ok().says("pushed 1 image");
    let immutable = br#"{"errors":[{"code":"DENIED","message":"tag is immutable"}]}"#;
    faulty.answer("PUT /v2/kollage/base/manifests/debian", "412 Precondition Failed", "application/json", immutable);
    sandbox.base("FROM {{ parent }}\nENV PATH=/bin\nRUN echo changed > /base\n");
    let told = sandbox.run(&push).exits(3).says("refuses to move the tag kollage/base:debian").says("tag is immutable");
    let told = told.says("no name was moved").says("hint: tags may be immutable there").says("--tag TAG");
    assert!(!told.stderr.contains("pushed") && !told.stderr.contains("s3cret"), "{}", told.stderr);
    // Under another tag.
    sandbox.run(&[&push[..], &["--tag", "next"]].concat()).ok().says("1 name moved");
}
