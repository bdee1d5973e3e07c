//! The program from outside: real files, real owners, so as root. As another user a test passes over itself.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

mod bad_input;
mod copies;
mod defaults;
mod lab;
mod property;
