//! Kolla's own program against Kollage, on the trees of three Kolla releases: every template, every distribution, every
//! list and every block, byte for byte.
//!
//!     cargo test --test kolla
//!     cargo test --test kolla -- --include-ignored        every distribution of every release
//!     KOLLAGE_KOLLA_TREE=DIR cargo test --test kolla -- --ignored
//!
//! The last does so for a tree that is not on PyPI: DIR is the virtual environment that it is installed in; docs/kolla.md
//! says how. The releases are installed from PyPI into virtual environments below target/, once; nothing of them is kept here.

// Clippy takes helpers of tests for production code.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod dialect;
mod lists;
mod options;
mod overrides;
mod place;
mod probe;
mod summary;
mod templates;
