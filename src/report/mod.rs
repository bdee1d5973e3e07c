//! Everything that a person sees: events and results to what a terminal, a CI log or a machine reads.
//!
//! - [`diagnostics`]: problems in files, and errors
//! - [`progress`]: a run while it goes on, on a terminal, line by line, or as JSON lines
//! - [`logs`]: one file for each image; [`summary`]: the end of a run, for people and for machines
//! - [`metrics`]: figures of a run for Prometheus
//! - [`record`]: what is kept of a run; [`html`]: that as a page
//! - [`plan`], [`table`]: what commands that only tell show
//! - [`svg`]: graphs as drawings
//! - [`style`], [`text`], [`human`]: colours and symbols, display width, sizes and times
//!
//! Nothing here opens a standard stream: the command line hands over something to write to, and says whether it takes
//! colour. What comes from outside (output of steps, names, messages) is stripped of control characters before it is
//! shown, so that no build can draw over what a person reads. Nothing here hides secrets: none get here.

pub mod clock;
pub mod diagnostics;
pub mod files;
pub mod html;
pub mod human;
pub mod logs;
pub mod markdown;
pub mod metrics;
pub mod plan;
pub mod progress;
pub mod record;
pub mod style;
pub mod summary;
pub mod svg;
pub mod table;
pub mod tee;
pub mod text;

pub use clock::Clock;
pub use style::Look;
