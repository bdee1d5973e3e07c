//! The embedded engine on its own, in busybox root file systems: RUN, COPY, processes. Needs root.

// Clippy takes helpers of tests for production code.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod bootstrap;
mod copy;
mod disk;
mod isolation;
mod lab;
mod limits;
mod process;
mod run;
mod ssh;
mod surroundings;
