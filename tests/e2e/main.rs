//! The program from outside: the main job on small images and on the demo's real packages, bad input, and the tools that
//! people have beside it (skopeo, umoci, podman, docker, docker-registry), each from Debian and run for real. One
//! program, so that all of it is linked once.

// Clippy takes helpers of tests for production code.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod archives;
mod around;
mod bad_dockerfile;
mod bad_input;
mod build;
mod buildkit;
mod cases;
mod demo;
mod deploy;
mod docker;
mod export;
mod faulty;
mod fetch;
mod images;
mod import_kolla;
mod interrupt;
mod kolla;
mod kolla_conf;
mod kolla_layers;
mod kolla_mistakes;
mod kolla_pbr;
mod little;
mod lock;
mod options;
mod overlay;
mod peers;
mod platforms;
mod plugins;
mod policy;
mod push;
mod python;
mod registry;
mod report;
mod reuse;
#[path = "../common/room.rs"]
mod room;
mod rootless;
#[path = "../common/runtime.rs"]
mod runtime;
mod sandbox;
mod secrets;
mod shipped;
mod start;
mod support;
mod terminal;
#[path = "../common/tools.rs"]
mod tools;
#[path = "../user/mod.rs"]
mod user;
