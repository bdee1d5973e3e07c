//! The start runtime: everything between an engine that starts a container and the service in it.
//!
//! A `config` is read and checked; a `plan` says what every path will be; `preflight` asks whether that can be done;
//! `apply` does it, having noted in `state` what was there before; `check` compares. A `service` has steps and tasks of
//! its own, from a bundle.

pub mod apply;
pub mod cacerts;
pub mod check;
pub mod cli;
pub mod command;
pub mod config;
pub mod environment;
pub mod error;
pub mod files;
pub mod glob;
pub mod health;
pub mod init;
pub mod log;
pub mod permissions;
pub mod places;
pub mod plan;
pub mod preflight;
pub mod privileges;
pub mod service;
pub mod set_configs;
pub mod start;
pub mod state;
pub mod users;
