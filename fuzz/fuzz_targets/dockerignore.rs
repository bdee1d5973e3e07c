//! Any .dockerignore over a small tree: the first line is a pattern of COPY, the rest is the file.
#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use kollage::context::Context;
use libfuzzer_sys::fuzz_target;

static TREE: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let dir = tempfile::tempdir().expect("a directory for the tree");
    for path in ["a", "b.c", "d/a", "d/e/f.c", "d/e/[x]"] {
        let full = dir.path().join("tree").join(path);
        fs::create_dir_all(full.parent().unwrap_or(&full)).expect("a directory");
        fs::write(full, path).expect("a file");
    }
    dir
});

fuzz_target!(|text: &str| {
    let (pattern, ignore) = text.split_once('\n').unwrap_or((text, ""));
    // The system, not Kollage, refuses these.
    if pattern.contains('\0') || pattern.len() > 4000 {
        return;
    }
    let root = TREE.path().join("tree");
    let dockerfile: PathBuf = TREE.path().join("Dockerfile");
    fs::write(TREE.path().join("Dockerfile.dockerignore"), ignore).expect("the file of patterns");
    let Ok(context) = Context::open(&root, Some(&dockerfile)) else { return };
    let Ok(selected) = context.select(pattern, &[]) else { return };
    for entry in selected.iter().flat_map(|selected| &selected.entries) {
        assert!(entry.path.is_relative() && root.join(&entry.path).exists(), "{:?}", entry.path);
    }
});
