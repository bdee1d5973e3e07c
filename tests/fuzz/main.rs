//! The fuzz targets without a fuzzer: every seed, every find of earlier runs (`corpus/`), and a fixed number of random
//! changes to them. `tools/fuzz` runs the same targets for longer, guided by coverage.
//!
//! `KOLLAGE_FUZZ_SEEDS=DIR` writes the seeds of each target into a directory of its name instead.

// Clippy takes helpers of tests for production code.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

mod mutate;
mod seeds;
mod targets;

use mutate::Mutator;
use targets::{TARGETS, Target};

fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(target.name);
    let mut files: Vec<PathBuf> = match fs::read_dir(dir) {
        Ok(entries) => entries.map(|entry| entry.unwrap().path()).collect(),
        Err(_) => Vec::new(),
    };
    files.sort();
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

/// What made it panic is kept.
fn run(target: &Target, input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.run)(input))) {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{}", target.name));
        fs::write(&file, input).unwrap();
        eprintln!("the target {} fails on {}", target.name, file.display());
        resume_unwind(panic);
    }
}

fn exercise(name: &str, changes: u64) {
    let target = TARGETS.iter().find(|target| target.name == name).unwrap();
    let seeds = seeds::of(name);
    if let Some(dir) = std::env::var_os("KOLLAGE_FUZZ_SEEDS") {
        let dir = PathBuf::from(dir).join(name);
        fs::create_dir_all(&dir).unwrap();
        for (number, seed) in seeds.iter().chain(&corpus(target)).enumerate() {
            fs::write(dir.join(format!("seed-{number}")), seed).unwrap();
        }
        return;
    }
    if target.needs_root && !rustix::process::geteuid().is_root() {
        eprintln!("needs root: skipped");
        return;
    }
    let inputs: Vec<Vec<u8>> = corpus(target).into_iter().chain(seeds).collect();
    assert!(!inputs.is_empty());
    for input in &inputs {
        run(target, input);
    }
    let mut mutator = Mutator::new(name);
    for _ in 0..changes {
        let input = mutator.change(&inputs);
        run(target, &input);
    }
}

#[test]
fn dockerfile() {
    exercise("dockerfile", 4000);
}

#[test]
fn dockerignore() {
    exercise("dockerignore", 2000);
}

#[test]
fn definitions() {
    exercise("definitions", 2000);
}

#[test]
fn template() {
    exercise("template", 500);
}

#[test]
fn image_config() {
    exercise("image_config", 1000);
}

#[test]
fn layer_unpack() {
    exercise("layer_unpack", 500);
}

#[test]
fn add_archive() {
    exercise("add_archive", 500);
}

#[test]
fn layer_diff() {
    exercise("layer_diff", 400);
}
