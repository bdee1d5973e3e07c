//! OCI image layouts, and what they name.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::pack::tar;
use crate::place::{Place, Ran};
use crate::table::{Row, contained, refused};

const GROUP: &str = "Image layouts";

pub fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect::<String>())
}

fn descriptor(kind: &str, bytes: &[u8]) -> Value {
    json!({ "mediaType": format!("application/vnd.oci.image.{kind}+json"), "digest": digest(bytes), "size": bytes.len() })
}

/// What of an image can be made wrong.
pub struct Image {
    pub layers: Vec<Vec<u8>>,
    pub config: Value,
    pub manifest: fn(&mut Value),
    pub index: fn(&mut Value),
}

pub fn image(layers: Vec<Vec<u8>>) -> Image {
    let diff_ids: Vec<String> = layers.iter().map(|l| digest(l)).collect();
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let config = json!({
        "architecture": architecture,
        "os": "linux",
        "config": {},
        "rootfs": { "type": "layers", "diff_ids": diff_ids },
    });
    Image { layers, config, manifest: |_| {}, index: |_| {} }
}

impl Image {
    /// Blobs by digest, and the bytes of config and manifest.
    pub fn blobs(&self) -> (Vec<Vec<u8>>, Vec<u8>) {
        let config = self.config.to_string().into_bytes();
        let layers: Vec<Value> = self
            .layers
            .iter()
            .map(|l| json!({ "mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest(l), "size": l.len() }))
            .collect();
        let mut manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": descriptor("config.v1", &config),
            "layers": layers,
        });
        (self.manifest)(&mut manifest);
        let manifest = manifest.to_string().into_bytes();
        let mut blobs = self.layers.clone();
        blobs.push(config);
        blobs.push(manifest.clone());
        (blobs, manifest)
    }

    pub fn write(&self, place: &Place) {
        let (blobs, manifest) = self.blobs();
        let dir = place.path("image/blobs/sha256");
        fs::create_dir_all(&dir).unwrap();
        for blob in blobs {
            fs::write(dir.join(digest(&blob).trim_start_matches("sha256:")), blob).unwrap();
        }
        let mut index = json!({ "schemaVersion": 2, "manifests": [descriptor("manifest.v1", &manifest)] });
        (self.index)(&mut index);
        fs::write(place.path("image/index.json"), index.to_string()).unwrap();
        fs::write(place.path("image/oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    }

    pub fn build(&self, place: &Place) -> Ran {
        self.write(place);
        build(place)
    }
}

/// Builds on what lies there.
pub fn build(place: &Place) -> Ran {
    place.file("f", "f").export("FROM oci:image\nCOPY f /added\n")
}

fn good() -> Image {
    image(vec![tar().directory("etc").file("etc/f").end()])
}

/// Where the first layer's blob is.
fn blob(place: &Place) -> std::path::PathBuf {
    place.path("image/blobs/sha256").join(digest(&good().layers[0]).trim_start_matches("sha256:"))
}

pub fn rows() -> Vec<Row> {
    vec![
        contained(GROUP, "none of the following", "it is built", |p| good().build(p), |p| p.has(&["etc/f", "added"])),
        refused(GROUP, "layer blob with another content", 3, "is damaged", |p| {
            good().write(p);
            let mut bytes = fs::read(blob(p)).unwrap();
            bytes[600] ^= 1;
            fs::write(blob(p), bytes).unwrap();
            build(p)
        }),
        refused(GROUP, "layer blob that is longer than the manifest says", 3, "it is longer than", |p| {
            good().write(p);
            let mut bytes = fs::read(blob(p)).unwrap();
            bytes.extend([0; 512]);
            fs::write(blob(p), bytes).unwrap();
            build(p)
        }),
        refused(GROUP, "layer blob that is shorter than the manifest says", 3, "the manifest says", |p| {
            good().write(p);
            let bytes = fs::read(blob(p)).unwrap();
            fs::write(blob(p), &bytes[..700]).unwrap();
            build(p)
        }),
        refused(GROUP, "layer blob that is a link to another file of the host's", 3, "is damaged", |p| {
            good().write(p);
            fs::remove_file(blob(p)).unwrap();
            symlink(p.path("outside/canary"), blob(p)).unwrap();
            build(p)
        }),
        refused(GROUP, "layer blob that is a link to /dev/zero", 2, "is not a file", |p| {
            good().write(p);
            fs::remove_file(blob(p)).unwrap();
            symlink("/dev/zero", blob(p)).unwrap();
            build(p)
        }),
        refused(GROUP, "layer blob that is a FIFO", 2, "is not a file", |p| {
            good().write(p);
            fs::remove_file(blob(p)).unwrap();
            fifo(&blob(p));
            build(p)
        }),
        refused(GROUP, "index.json that is a FIFO", 2, "is not a regular file", |p| {
            good().write(p);
            fs::remove_file(p.path("image/index.json")).unwrap();
            fifo(&p.path("image/index.json"));
            build(p)
        }),
        refused(GROUP, "index.json of 17 MB", 2, "which cannot be right", |p| {
            good().write(p);
            fs::write(p.path("image/index.json"), vec![b' '; 17_000_000]).unwrap();
            build(p)
        }),
        refused(GROUP, "index.json of a million brackets", 2, "cannot be understood", |p| {
            good().write(p);
            let nested = String::from("{\"x\":") + &"[".repeat(1_000_000);
            fs::write(p.path("image/index.json"), nested).unwrap();
            build(p)
        }),
        refused(GROUP, "layer digest `sha256:../../../outside/canary`", 2, "cannot be understood", |p| {
            let manifest = |m: &mut Value| m["layers"][0]["digest"] = json!("sha256:../../../outside/canary");
            Image { manifest, ..good() }.build(p)
        }),
        refused(GROUP, "manifest digest with an absolute path", 2, "cannot be understood", |p| {
            let index = |i: &mut Value| i["manifests"][0]["digest"] = json!("sha256:/etc/passwd");
            Image { index, ..good() }.build(p)
        }),
        refused(GROUP, "size of -1", 2, "cannot be understood", |p| {
            let manifest = |m: &mut Value| m["layers"][0]["size"] = json!(-1);
            Image { manifest, ..good() }.build(p)
        }),
        refused(GROUP, "size of 2^63", 3, "the manifest says", |p| {
            let manifest = |m: &mut Value| m["layers"][0]["size"] = json!(1u64 << 63);
            Image { manifest, ..good() }.build(p)
        }),
        refused(GROUP, "manifest of 100000 layers", 3, "has 100000 layers", |p| {
            let mut many = good();
            many.config["rootfs"]["diff_ids"] = json!(vec![digest(&many.layers[0]); 100_000]);
            many.manifest = |m| {
                let layer = m["layers"][0].clone();
                m["layers"] = json!(vec![layer; 100_000]);
            };
            many.build(p)
        }),
        refused(GROUP, "fewer diff ids than layers", 3, "contradicts itself", |p| {
            let mut image = good();
            image.config["rootfs"]["diff_ids"] = json!([]);
            image.build(p)
        }),
        refused(GROUP, "diff id of another layer", 1, "not the one that was asked for", |p| {
            let mut image = good();
            image.config["rootfs"]["diff_ids"] = json!([digest(b"other")]);
            image.build(p)
        }),
        refused(GROUP, "indexes in indexes, twelve deep", 2, "too many times", |p| {
            let image = good();
            image.write(p);
            let (_, mut bytes) = image.blobs();
            let mut kind = "manifest.v1";
            for _ in 0..12 {
                bytes = json!({ "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
                    "manifests": [descriptor(kind, &bytes)] })
                .to_string()
                .into_bytes();
                kind = "index.v1";
                let name = digest(&bytes);
                fs::write(p.path("image/blobs/sha256").join(name.trim_start_matches("sha256:")), &bytes).unwrap();
            }
            let index = json!({ "schemaVersion": 2, "manifests": [descriptor(kind, &bytes)] });
            fs::write(p.path("image/index.json"), index.to_string()).unwrap();
            build(p)
        }),
        refused(GROUP, "configuration that is no image's", 3, "is not a container image", |p| {
            let manifest = |m: &mut Value| m["config"]["mediaType"] = json!("application/vnd.example+json");
            Image { manifest, ..good() }.build(p)
        }),
        refused(GROUP, "configuration for another system", 3, "is an image for", |p| {
            let mut image = good();
            image.config["os"] = json!("windows");
            image.build(p)
        }),
        refused(GROUP, "variable with a NUL in the configuration, and a RUN", 1, "nul byte", |p| {
            let mut image = good();
            image.config["config"]["Env"] = json!(["A=b\0c", "PATH=/bin"]);
            image.write(p);
            p.build("FROM oci:image\nRUN [\"/bin/true\"]\n")
        }),
        refused(GROUP, "user `../../etc/passwd` in the configuration, and a RUN", 1, "user", |p| {
            let mut image = good();
            image.config["config"]["User"] = json!("../../etc/passwd");
            image.write(p);
            p.build("FROM oci:image\nRUN [\"/bin/true\"]\n")
        }),
        contained(
            GROUP,
            "working directory `../../../..` in the configuration, and a COPY",
            "it is the image's root",
            |p| {
                let mut image = good();
                image.config["config"]["WorkingDir"] = json!("../../../..");
                image.write(p);
                p.file("f", "f").export("FROM oci:image\nCOPY f added\n")
            },
            |p| p.has(&["added"]),
        ),
        refused(GROUP, "ONBUILD of a FROM in the configuration", 2, "ONBUILD", |p| {
            let mut image = good();
            image.config["config"]["OnBuild"] = json!(["FROM oci:image"]);
            image.build(p)
        }),
        refused(GROUP, "ONBUILD of an ONBUILD in the configuration", 2, "ONBUILD", |p| {
            let mut image = good();
            image.config["config"]["OnBuild"] = json!(["ONBUILD COPY f /x"]);
            image.build(p)
        }),
    ]
}

pub fn fifo(path: &std::path::Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
}
