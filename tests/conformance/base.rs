//! The two base images of all cases, made here so that Docker and Kollage stand on the same bytes:
//! `conformance-base`, a small root file system with every kind of file in it, and `conformance-rich`, the same with one
//! more layer and a configuration with every field set.
//!
//! Docker gets them by `docker load`. Kollage, which has no daemon that could know a name, gets them as OCI layouts:
//! the harness writes `oci:DIR` for `conformance-base` wherever a Dockerfile has that word. Nothing else differs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::files::{FileSpec, tar_of};
use crate::image::{Base, ImageFacts, hex, sha256};

pub const BASE: &str = "conformance-base";
pub const RICH: &str = "conformance-rich";

/// Busybox's names that steps use.
const APPLETS: &str = "ash basename cat chgrp chmod chown cmp cp cut dd dirname du echo env expr false find grep \
    head hostname id ln ls mkdir mkfifo mknod mktemp mount mv od printf ps pwd readlink realpath rm rmdir sed seq sh \
    sleep sort stat sync tail tar tee test touch tr true truncate umount uname uniq wc whoami xargs";

#[derive(Deserialize)]
struct List {
    file: Vec<FileSpec>,
}

struct Image {
    name: &'static str,
    layers: Vec<Vec<u8>>,
    config: Value,
}

pub struct Bases {
    /// What `docker load` reads.
    pub archive: PathBuf,
    layer: Vec<u8>,
    layouts: BTreeMap<&'static str, PathBuf>,
}

impl Bases {
    /// Makes both below `dir`.
    pub fn make(dir: &Path) -> Bases {
        let images = images();
        let archive = dir.join("bases.tar");
        fs::write(&archive, docker_archive(&images)).unwrap();
        let mut layouts = BTreeMap::new();
        for image in &images {
            let path = dir.join(image.name);
            write_layout(&path, image);
            layouts.insert(image.name, path);
        }
        let [base, _] = images;
        let layer = base.layers.into_iter().next().unwrap();
        Bases { archive, layer, layouts }
    }

    /// What results are told against.
    pub fn compared(&self) -> Base {
        Base::new(&self.layer, &busybox())
    }

    /// Where a base is for Kollage.
    pub fn layout(&self, name: &str) -> &Path {
        &self.layouts[name]
    }

    /// A Dockerfile as Kollage reads it.
    pub fn mapped(&self, dockerfile: &[u8]) -> Vec<u8> {
        let mut text = dockerfile.to_vec();
        for (name, layout) in &self.layouts {
            let with = format!("oci:{}", layout.display());
            text = replace(&text, name.as_bytes(), with.as_bytes());
        }
        text
    }

    /// Kollage's result with the bases named as the case does.
    pub fn mapped_back(&self, facts: ImageFacts) -> ImageFacts {
        let mut text = serde_json::to_string(&facts).unwrap();
        for (name, layout) in &self.layouts {
            text = text.replace(&format!("oci:{}", layout.display()), name);
        }
        serde_json::from_str(&text).unwrap()
    }
}

fn replace(text: &[u8], what: &[u8], with: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.windows(what.len()).position(|w| w == what) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(with);
        rest = &rest[at + what.len()..];
    }
    out.extend_from_slice(rest);
    out
}

pub fn busybox() -> Vec<u8> {
    let places = ["/bin/busybox", "/usr/bin/busybox"].map(Path::new);
    let found = places.into_iter().find(|p| p.exists());
    fs::read(found.expect("these cases need Debian's busybox-static (tools/install-deps test)")).unwrap()
}

fn images() -> [Image; 2] {
    let list: List = toml::from_str(include_str!("base.toml")).unwrap();
    let mut files = list.file;
    let applet =
        |name: &str| FileSpec { path: format!("usr/bin/{name}"), link: Some("busybox".into()), ..FileSpec::default() };
    files.extend(APPLETS.split_whitespace().map(applet));
    let base_layer = with_file(tar_of(&files), "usr/bin/busybox", &busybox());
    let list: List = toml::from_str(include_str!("rich.toml")).unwrap();
    let rich_layer = tar_of(&list.file);

    let base = Image {
        name: BASE,
        layers: vec![base_layer.clone()],
        config: json!({
            "architecture": "amd64", "os": "linux", "created": "2001-09-09T01:46:40Z",
            "config": { "Env": ["PATH=/usr/bin:/bin"], "Cmd": ["sh"] },
            "history": [{ "created": "2001-09-09T01:46:40Z", "created_by": "base" }],
        }),
    };
    let rich = Image {
        name: RICH,
        layers: vec![base_layer, rich_layer],
        config: json!({
            "architecture": "amd64", "os": "linux", "created": "2001-09-09T01:46:40Z",
            "config": {
                "Env": ["PATH=/usr/bin:/bin", "RICH=yes", "EMPTY="],
                "Entrypoint": ["/bin/sh", "-c"], "Cmd": ["echo rich"],
                "User": "app", "WorkingDir": "/srv/dir",
                "Labels": { "rich": "yes", "kept": "base" },
                "ExposedPorts": { "80/tcp": {} }, "Volumes": { "/data": {} },
                "OnBuild": ["RUN echo triggered > /tmp/triggered", "ENV TRIGGERED=yes"],
                "StopSignal": "SIGINT",
                "Healthcheck": { "Test": ["CMD", "true"], "Interval": 5_000_000_000_u64, "Retries": 2 },
                "Shell": ["/bin/ash", "-c"],
            },
            "history": [
                { "created": "2001-09-09T01:46:40Z", "created_by": "base" },
                { "created": "2001-09-09T01:46:40Z", "created_by": "rich" },
                { "created": "2001-09-09T01:46:40Z", "created_by": "rich configuration", "empty_layer": true },
            ],
        }),
    };
    [base, rich].map(|mut image| {
        let ids: Vec<_> = image.layers.iter().map(|l| format!("sha256:{}", hex(&sha256(l)))).collect();
        image.config["rootfs"] = json!({ "type": "layers", "diff_ids": ids });
        image
    })
}

/// One more executable at the end of a tar.
fn with_file(mut tar: Vec<u8>, path: &str, content: &[u8]) -> Vec<u8> {
    // The two empty blocks at the end.
    tar.truncate(tar.len() - 1024);
    let mut builder = tar::Builder::new(tar);
    let mut header = tar::Header::new_ustar();
    header.set_path(path).unwrap();
    header.set_mode(0o755);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(crate::files::OLD as u64);
    header.set_size(content.len() as u64);
    header.set_cksum();
    builder.append(&header, content).unwrap();
    builder.into_inner().unwrap()
}

fn docker_archive(images: &[Image]) -> Vec<u8> {
    let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut manifest = Vec::new();
    for image in images {
        let config = serde_json::to_vec(&image.config).unwrap();
        let name = format!("{}.json", hex(&sha256(&config)));
        let mut layers = Vec::new();
        for layer in &image.layers {
            let path = format!("{}/layer.tar", hex(&sha256(layer)));
            files.insert(path.clone(), layer.clone());
            layers.push(path);
        }
        manifest.push(json!({ "Config": name, "RepoTags": [format!("{}:latest", image.name)], "Layers": layers }));
        files.insert(name, config);
    }
    files.insert("manifest.json".into(), serde_json::to_vec(&manifest).unwrap());
    let mut builder = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_ustar();
        header.set_path(path).unwrap();
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        header.set_cksum();
        builder.append(&header, content.as_slice()).unwrap();
    }
    builder.into_inner().unwrap()
}

fn write_layout(dir: &Path, image: &Image) {
    let blobs = dir.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let blob = |media_type: &str, content: &[u8]| {
        let digest = hex(&sha256(content));
        fs::write(blobs.join(&digest), content).unwrap();
        json!({ "mediaType": media_type, "digest": format!("sha256:{digest}"), "size": content.len() })
    };
    let layers: Vec<_> =
        image.layers.iter().map(|layer| blob("application/vnd.oci.image.layer.v1.tar", layer)).collect();
    let config = serde_json::to_vec(&image.config).unwrap();
    let config = blob("application/vnd.oci.image.config.v1+json", &config);
    let manifest_type = "application/vnd.oci.image.manifest.v1+json";
    let manifest = json!({
        "schemaVersion": 2, "mediaType": manifest_type, "config": config, "layers": layers,
    });
    let mut manifest = blob(manifest_type, &serde_json::to_vec(&manifest).unwrap());
    manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": "latest" });
    let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
    fs::write(dir.join("index.json"), serde_json::to_vec(&index).unwrap()).unwrap();
    fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
}
