//! Registries that lie.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use serde_json::json;

use crate::layouts::{digest, image};
use crate::pack::tar;
use crate::place::{Place, Ran};
use crate::table::{Row, refused};

const GROUP: &str = "Registries";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

enum Body {
    Bytes(Vec<u8>),
    /// Spaces, for as long as somebody reads them.
    Endless,
    /// Another place.
    Redirect(&'static str),
}

/// Answers by the end of the path, until the program that asks is done. The thread ends with the test.
fn serve(answers: BTreeMap<String, Body>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answers = Arc::new(answers);
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let answers = answers.clone();
            // Whoever hangs up has seen enough.
            std::thread::spawn(move || answer(connection, &answers).ok());
        }
    });
    address
}

fn answer(mut connection: TcpStream, answers: &BTreeMap<String, Body>) -> std::io::Result<()> {
    let mut first = [0];
    if connection.peek(&mut first)? == 0 || first[0] == 0x16 {
        return Ok(());
    }
    let mut request = String::new();
    for line in BufReader::new(connection.try_clone()?).lines() {
        let line = line?;
        if line.is_empty() {
            break;
        }
        if request.is_empty() {
            request = line;
        }
    }
    let path = request.split(' ').nth(1).unwrap_or_default();
    let found = answers.iter().find(|(end, _)| path.ends_with(end.as_str()));
    match found.map(|(_, body)| body) {
        Some(Body::Bytes(bytes)) => {
            write!(connection, "HTTP/1.1 200 OK\r\nContent-Type: {MANIFEST}\r\nContent-Length: {}\r\n", bytes.len())?;
            connection.write_all(b"Connection: close\r\n\r\n")?;
            connection.write_all(bytes)
        }
        Some(Body::Endless) => {
            write!(connection, "HTTP/1.1 200 OK\r\nContent-Type: {MANIFEST}\r\nConnection: close\r\n\r\n")?;
            loop {
                connection.write_all(&[b' '; 65536])?;
            }
        }
        Some(Body::Redirect(to)) => {
            write!(
                connection,
                "HTTP/1.1 307 Temporary Redirect\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )
        }
        None => {
            let status = if path == "/v2/" { "200 OK" } else { "404 Not Found" };
            write!(connection, "HTTP/1.1 {status}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}")
        }
    }
}

fn build(place: &Place, answers: BTreeMap<String, Body>, reference: &str) -> Ran {
    let address = serve(answers);
    place
        .file("f", "f")
        .build_with(&format!("FROM {address}/x{reference}\nCOPY f /added\n"), &["--set", "build.retries=0"])
}

/// An image with something wrong about one of its blobs.
fn with(wrong: impl Fn(&str, Vec<u8>) -> Body) -> BTreeMap<String, Body> {
    let image = image(vec![tar().file("inside").end()]);
    let (blobs, manifest) = image.blobs();
    let mut answers = BTreeMap::new();
    for (kind, blob) in ["layer", "config", "manifest"].into_iter().zip(blobs) {
        answers.insert(format!("blobs/{}", digest(&blob)), wrong(kind, blob));
    }
    answers.insert("manifests/1".to_owned(), wrong("manifest", manifest));
    answers
}

pub fn rows() -> Vec<Row> {
    vec![
        refused(GROUP, "manifest without an end", 3, "manifest", |p| {
            build(p, BTreeMap::from([("manifests/1".to_owned(), Body::Endless)]), ":1")
        }),
        refused(GROUP, "manifest with another digest than the one asked for", 3, "digest", |p| {
            let asked = format!("@{}", digest(b"other"));
            let image = image(vec![tar().file("inside").end()]);
            let answers = BTreeMap::from([(format!("manifests/{}", &asked[1..]), Body::Bytes(image.blobs().1))]);
            build(p, answers, &asked)
        }),
        refused(GROUP, "manifest of a million brackets", 3, "recursion limit exceeded", |p| {
            let nested = (String::from("{\"x\":") + &"[".repeat(1_000_000)).into_bytes();
            build(p, BTreeMap::from([("manifests/1".to_owned(), Body::Bytes(nested))]), ":1")
        }),
        refused(GROUP, "layer without an end", 3, "it is longer than", |p| {
            build(p, with(|kind, blob| if kind == "layer" { Body::Endless } else { Body::Bytes(blob) }), ":1")
        }),
        refused(GROUP, "configuration without an end", 3, "it is longer than", |p| {
            build(p, with(|kind, blob| if kind == "config" { Body::Endless } else { Body::Bytes(blob) }), ":1")
        }),
        refused(GROUP, "layer with another content", 3, "is damaged", |p| {
            let wrong = |kind: &str, mut blob: Vec<u8>| {
                if kind == "layer" {
                    blob[600] ^= 1;
                }
                Body::Bytes(blob)
            };
            build(p, with(wrong), ":1")
        }),
        refused(GROUP, "layer digest `sha256:../../../etc/passwd`", 3, "cannot be understood", |p| {
            let mut image = image(vec![tar().file("inside").end()]);
            image.manifest = |m| m["layers"][0]["digest"] = json!("sha256:../../../etc/passwd");
            build(p, BTreeMap::from([("manifests/1".to_owned(), Body::Bytes(image.blobs().1))]), ":1")
        }),
        refused(GROUP, "layer that is sent on to file:///etc/passwd", 3, "layer", |p| {
            let wrong = |kind: &str, blob| match kind {
                "layer" => Body::Redirect("file:///etc/passwd"),
                _ => Body::Bytes(blob),
            };
            build(p, with(wrong), ":1")
        }),
    ]
}
