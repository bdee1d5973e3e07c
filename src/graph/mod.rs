//! The typed build graph.

pub mod key;
