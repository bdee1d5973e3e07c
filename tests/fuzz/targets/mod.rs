//! What is fuzzed: a function a subject, which takes any bytes and panics where Kollage is wrong. The targets in `fuzz/`
//! and the test beside this file call the same ones.

use std::path::PathBuf;

mod archives;
mod bytes;
mod documents;
mod ignore;
mod layer_diff;
mod model;

pub use archives::{add_archive, layer_unpack};
pub use documents::{definitions, dockerfile, image_config, template};
pub use ignore::dockerignore;
pub use layer_diff::layer_diff;

pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
    /// Makes devices, owners and overlayfs's attributes.
    pub needs_root: bool,
}

/// All of them.
pub const TARGETS: [Target; 8] = [
    Target { name: "dockerfile", run: dockerfile, needs_root: false },
    Target { name: "dockerignore", run: dockerignore, needs_root: false },
    Target { name: "definitions", run: definitions, needs_root: false },
    Target { name: "template", run: template, needs_root: false },
    Target { name: "image_config", run: image_config, needs_root: false },
    Target { name: "layer_unpack", run: layer_unpack, needs_root: true },
    Target { name: "add_archive", run: add_archive, needs_root: true },
    Target { name: "layer_diff", run: layer_diff, needs_root: true },
];

/// An empty directory that goes away with the value.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::Builder::new().prefix("kollage-fuzz-").tempdir().expect("a directory to work in"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn dir(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(&path).expect("a directory");
        path
    }
}
