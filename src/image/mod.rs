//! The OCI image model: digests, configuration, manifests, layers, archives and the store. Knows nothing above it.

pub mod archive;
pub mod config;
pub mod digest;
pub mod layer;
pub mod manifest;
pub mod reference;
pub mod space;
pub mod store;
