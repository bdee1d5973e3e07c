//! The engine of builders elsewhere: BuildKit, alone or inside a dockerd, as many of them as there are.
//!
//! - [`address`], [`dial`]: where a builder is, and connections to it
//! - [`client`]: its Control service: one build, from request to result
//! - [`session`]: what it may ask of us meanwhile
//! - [`progress`]: what it tells meanwhile, as events

pub mod address;
pub mod client;
pub mod dial;
pub mod progress;
pub mod session;
