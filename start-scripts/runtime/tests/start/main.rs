//! The program from outside: real files, real owners, so as root. As another user a test passes over itself.

// Clippy takes helpers of tests for production code.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

mod bad_input;
mod certificates;
mod container;
mod copies;
mod defaults;
mod extend;
mod health;
mod lab;
mod property;
#[path = "../../../../tests/common/runtime.rs"]
mod runtime;
mod service;
