//! What the targets begin with: what this repository has anyway, and small archives of every form.

use std::fs;
use std::path::{Path, PathBuf};

use tar::EntryType;

pub fn of(target: &str) -> Vec<Vec<u8>> {
    match target {
        "dockerfile" => files(&["tests/conformance/cases"], |name| name.starts_with("Dockerfile")),
        "dockerignore" => {
            let cases = files(&["tests/conformance/cases"], |name| name.ends_with(".dockerignore"));
            let cases = cases.into_iter().map(|text| [b"d/*\n".as_slice(), &text].concat());
            let own =
                ["a\n**/a\n!d/a\n", "**\n*\n!d/e/*.c\n", "d/[a-z]\n**/*.c\n!**/f.?\n\\a\n", ".\na/../b.c\n!d\nd/**\n"];
            cases.chain(own.map(|text| text.as_bytes().to_vec())).collect()
        }
        "definitions" => files(&["images", "plugins", "start-scripts", "kollage.toml"], |name| name.ends_with(".toml")),
        "template" => files(&["images", "plugins"], |name| name.ends_with(".j2")),
        "image_config" => vec![LAYOUT.as_bytes().to_vec(), b"registry.example.org:5000/a/b:tag".to_vec()],
        "layer_unpack" => archives(),
        // Each form of compression once with each archive.
        "add_archive" => archives().iter().zip((0..6).cycle()).map(|(tar, kind)| [&[kind], &**tar].concat()).collect(),
        "layer_diff" => {
            // Everything, then one thing that happens to it, and another, with every kind of noise.
            let edits = (0u8..20).flat_map(|edit| (0u8..8).map(move |path| (edit, path)));
            let all = edits.map(|(edit, path)| {
                let again = [0, edit, path, 1, path, 1, 1];
                [&[0, 18, 0, 0, 1, edit, path, 1, 0, 17, path, 1, path % 8], &again[..], &again[..]].concat()
            });
            all.chain((1..=32).map(|seed: u32| bytes(seed, 40 + 5 * seed as usize))).collect()
        }
        other => panic!("no seeds for {other}"),
    }
}

/// A whole image layout of one empty layer.
const LAYOUT: &str = r#"{"architecture":"amd64","os":"linux","config":{"Env":["PATH=/bin"],"Cmd":["sh"],"Healthcheck":{"Test":["NONE"],"Interval":5},"ExposedPorts":{"80/tcp":{}},"OnBuild":["RUN x"]},"rootfs":{"type":"layers","diff_ids":[]},"history":[{"created_by":"x","empty_layer":true}]}
---
{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"@0","size":#0},"layers":[]}
---
{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"@1","size":#1,"platform":{"os":"linux","architecture":"amd64"},"annotations":{"org.opencontainers.image.ref.name":"1"}}]}
---
{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.index.v1+json","digest":"@2","size":#2}]}"#;

fn files(below: &[&str], wanted: impl Fn(&str) -> bool + Copy) -> Vec<Vec<u8>> {
    fn walk(path: &Path, wanted: impl Fn(&str) -> bool + Copy, found: &mut Vec<PathBuf>) {
        if path.is_dir() {
            let entries = fs::read_dir(path).unwrap();
            entries.for_each(|entry| walk(&entry.unwrap().path(), wanted, found));
        } else if path.is_file() && wanted(&path.file_name().unwrap().to_string_lossy()) {
            found.push(path.to_owned());
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    below.iter().for_each(|path| walk(&root.join(path), wanted, &mut found));
    found.sort();
    found.iter().map(|path| fs::read(path).unwrap()).collect()
}

fn bytes(seed: u32, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761);
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

fn archives() -> Vec<Vec<u8>> {
    use EntryType as E;
    let long = "n".repeat(120);
    let lists: [&[(&str, EntryType, &str)]; 7] = [
        &[("d/", E::Directory, ""), ("d/f", E::Regular, "text"), ("d/h", E::Link, "d/f"), ("d/l", E::Symlink, "f")],
        &[
            ("d/.wh.e", E::Regular, ""),
            ("d/", E::Directory, ""),
            ("d/.wh..wh..opq", E::Regular, ""),
            (".wh.l", E::Regular, ""),
        ],
        &[
            ("./", E::Directory, ""),
            ("./d/e/f", E::Link, "x"),
            ("./x", E::Regular, "1"),
            ("./x", E::Directory, ""),
            ("x/y", E::Fifo, ""),
        ],
        &[("l/x", E::Regular, "out"), ("../x", E::Regular, "out"), ("/c", E::Char, ""), ("d/e/f", E::Regular, "new")],
        &[("h", E::Link, "d/e/f"), (".wh..wh..opq", E::Regular, ""), ("b", E::Block, ""), ("d/e/", E::Directory, "")],
        &[
            (&long, E::Regular, "long"),
            ("lib/a", E::Regular, "1"),
            ("lib/", E::Directory, ""),
            ("up/x", E::Regular, "2"),
        ],
        &[("f", E::Continuous, "7"), ("g", E::GNUSparse, ""), ("?", E::new(b'V'), "label")],
    ];
    let mut all = Vec::new();
    for list in lists {
        for gnu in [false, true] {
            let mut builder = tar::Builder::new(Vec::new());
            for (path, kind, text) in list {
                let mut header = if gnu { tar::Header::new_gnu() } else { tar::Header::new_ustar() };
                header.set_entry_type(*kind);
                header.set_mode(0o755);
                header.set_mtime(1_000);
                let is_link = matches!(*kind, E::Link | E::Symlink);
                if is_link {
                    header.set_link_name_literal(text).unwrap();
                }
                let data = if is_link { "" } else { text };
                header.set_size(data.len() as u64);
                if !gnu {
                    let records = [("path", path.as_bytes()), ("SCHILY.xattr.user.a", b"x"), ("mtime", b"-1.5")];
                    builder.append_pax_extensions(records).unwrap();
                } else if path.len() > 100 {
                    let mut long = tar::Header::new_gnu();
                    long.set_entry_type(E::GNULongName);
                    long.set_size(path.len() as u64 + 1);
                    long.set_cksum();
                    builder.append(&long, format!("{path}\0").as_bytes()).unwrap();
                }
                let name = header.as_old_mut();
                let length = path.len().min(100);
                name.name[..length].copy_from_slice(&path.as_bytes()[..length]);
                header.set_cksum();
                builder.append(&header, data.as_bytes()).unwrap();
            }
            all.push(builder.into_inner().unwrap());
        }
    }
    all
}
