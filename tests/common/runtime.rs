//! The start runtime as it is shipped.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The static program; built once for all tests. `top` is the repository.
pub fn shipped(top: &Path) -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let mut build = Command::new(top.join("tools/build-start"));
        // What this test's own cargo told it would make that one build anew.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO") && !["CARGO_HOME", "CARGO_TARGET_DIR"].contains(&&*text) {
                build.env_remove(&name);
            }
        }
        let built = build.output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| top.join("target"), PathBuf::from);
        target.join("start/kollage-start").canonicalize().unwrap()
    })
}
