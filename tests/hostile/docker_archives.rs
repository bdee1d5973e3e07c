//! What `docker save` writes, and what it doesn't.

use serde_json::json;

use crate::layouts::image;
use crate::pack::{Tar, bomb, tar};
use crate::place::{Place, Ran};
use crate::table::{Row, contained, refused};

const GROUP: &str = "Docker archives";

fn build(place: &Place, bytes: Vec<u8>) -> Ran {
    build_with(place, bytes, &["-o", "type=tar,dest=out.tar"])
}

fn build_with(place: &Place, bytes: Vec<u8>, args: &[&str]) -> Ran {
    std::fs::write(place.path("image.tar"), bytes).unwrap();
    place.file("f", "f").build_with("FROM docker-archive:image.tar\nCOPY f /added\n", args)
}

/// With names of one's own for configuration and layer.
fn archive(config: &str, layer: &str) -> Tar {
    let manifest = json!([{ "Config": config, "RepoTags": ["x:1"], "Layers": [layer] }]).to_string();
    tar().entry(b'0', "manifest.json", "", manifest.as_bytes())
}

fn content() -> Vec<u8> {
    tar().file("inside").end()
}

fn with_config(archive: Tar) -> Tar {
    archive.entry(b'0', "c.json", "", image(vec![content()]).config.to_string().as_bytes())
}

pub fn rows() -> Vec<Row> {
    vec![
        contained(
            GROUP,
            "none of the following",
            "it is built",
            |p| build(p, with_config(archive("c.json", "l.tar")).entry(b'0', "l.tar", "", &content()).end()),
            |p| p.has(&["inside", "added"]),
        ),
        refused(GROUP, "layer named `../../outside/canary`", 2, "leads out of the archive", |p| {
            build(p, with_config(archive("c.json", "../../outside/canary")).end())
        }),
        refused(GROUP, "configuration named `/etc/passwd`", 2, "there is no file", |p| {
            build(p, archive("/etc/passwd", "l.tar").end())
        }),
        refused(GROUP, "layer that is a link to a file of the host's", 2, "there is no file", |p| {
            let link = format!("{}/canary", p.outside());
            build(p, with_config(archive("c.json", "l.tar")).link("l.tar", &link).end())
        }),
        refused(GROUP, "layers that are links in a circle", 2, "leads nowhere", |p| {
            build(p, with_config(archive("c.json", "a")).link("a", "b").link("b", "a").end())
        }),
        refused(GROUP, "layer with another content than its digest says", 1, "not the one that was asked for", |p| {
            let other = tar().file("other").end();
            build(p, with_config(archive("c.json", "l.tar")).entry(b'0', "l.tar", "", &other).end())
        }),
        refused(GROUP, "layer that reaches beyond the archive's end", 1, "ends", |p| {
            build(p, with_config(archive("c.json", "l.tar")).claim(b'0', "l.tar", 1 << 40).open())
        }),
        refused(GROUP, "PAX header of 8 GB", 1, "an extended header of 8589934591 bytes", |p| {
            build(p, tar().claim(b'x', "pax", (1 << 33) - 1).end())
        }),
        refused(GROUP, "manifest.json of 17 MB", 2, "which cannot be right", |p| {
            build(p, tar().entry(b'0', "manifest.json", "", &vec![b' '; 17_000_000]).end())
        }),
        refused(GROUP, "manifest.json of a million brackets", 2, "cannot be understood", |p| {
            let nested = String::from("[{\"x\":") + &"[".repeat(1_000_000);
            build(p, tar().entry(b'0', "manifest.json", "", nested.as_bytes()).end())
        }),
        refused(GROUP, "300000 files", 2, "which cannot be right", |p| {
            let mut many = tar();
            for number in 0..300_000 {
                many = many.claim(b'0', &format!("{number}"), 0);
            }
            build(p, many.end())
        }),
        refused(GROUP, "gzip of 16 GB of zeros, with `--disk-limit 64m`", 3, "more than 67 MB", |p| {
            build_with(p, bomb(16, "gz"), &["--disk-limit", "64m"])
        }),
    ]
}
