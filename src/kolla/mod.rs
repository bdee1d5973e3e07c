//! A Kolla tree and kolla-build.conf, read as they stand.
//!
//! `tree` finds the templates and the tables of a release (`version` which one it is), which `python` and `yaml` read as data; `options` are what the
//! release can be told (`opt` one of them), `ini` how a file tells it; `settings` is what follows from them, `render` what Kolla's templates
//! give then (`images` which of them are built; `merged` are their overrides), with `dialect` for what Jinja2 does otherwise than minijinja, `refused`
//! for what cannot be made equal, and `repos` for the functions of templates. `sources` fetches what images are made from,
//! `house` writes it all down as a catalogue of Kollage's, which is built like any other, and `view` is the same without the
//! writing, for what only looks at it; `layers`
//! puts plugins above their images there, where `install` finds that it can be done. `import` writes a catalogue that needs Kolla
//! no more; `pieces` are the instructions of a Dockerfile as both read them.

pub mod dialect;
pub mod house;
pub mod images;
pub mod import;
pub mod ini;
pub mod install;
pub mod layers;
mod merged;
mod opt;
pub mod options;
pub mod pieces;
mod python;
mod refused;
pub mod render;
mod repos;
pub mod settings;
pub mod sources;
pub mod tree;
pub mod value;
mod version;
pub mod view;
mod yaml;
