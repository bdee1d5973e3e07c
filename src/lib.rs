//! Kollage builds families of interdependent container images from a typed catalogue. The rooms of the house:
//!
//! - [`catalogue`]: TOML definitions to checked types; [`template`]: recipes to Dockerfiles
//! - [`dockerfile`]: Dockerfile text to typed instructions and steps; [`context`]: the files a build may read
//! - [`graph`]: nodes, edges, selection, keys, plan; [`schedule`]: carries a plan out;
//!   [`fit`]: whether plugins fit what is below them
//! - [`engine`]: what a plan is carried out with; [`image`]: layers, configurations, archives, the store;
//!   [`registry`]: pull; [`fetch`]: files from web addresses and git repositories; [`net`]: what these two share
//! - [`lock`]: what names that move stood for; [`export`]: the graph for engines and CIs that are there already
//! - [`start`]: how services are started, apart from their images; [`deploy`]: services that run together;
//!   [`daemon`]: Docker and Podman, for it and for an engine
//! - [`report`]: events to what a person or a machine reads; [`cli`]: the command line
//! - [`diag`], [`error`], [`event`], [`quantity`], [`suggest`]: what every room speaks; [`userns`]:
//!   which ids there are
//!
//! The library never prints, never reads the environment and never exits; `cli` does.

pub mod catalogue;
pub mod cli;
pub mod context;
pub mod daemon;
pub mod deploy;
pub mod diag;
pub mod dockerfile;
pub mod engine;
pub mod error;
pub mod event;
pub mod export;
pub mod fetch;
pub mod fit;
pub mod graph;
pub mod image;
pub mod kolla;
pub mod lock;
pub mod net;
pub mod quantity;
pub mod registry;
pub mod report;
pub mod schedule;
pub mod start;
pub mod suggest;
pub mod template;
mod text;
pub mod userns;
