//! Deployments: a `deployment.toml` names services, their images, configuration and secrets. From it come files for
//! Compose, Podman's systemd units and Kubernetes, or a running deployment on one host's engine.

mod bundle;
mod carry;
mod compose;
mod container;
pub mod definition;
pub mod engine;
pub mod files;
mod kubernetes;
mod order;
pub mod plan;
mod quadlet;
mod read;
pub mod run;
pub mod schema;
pub mod secrets;
#[cfg(test)]
mod tests;
pub(crate) mod yaml;

pub use definition::Deployment;
pub use kubernetes::BundleBy;
pub use read::{Known, KnownImage, load};

/// What a deployment can be rendered as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Compose,
    Quadlet,
    Kubernetes(BundleBy),
}

pub fn render(deployment: &Deployment, target: Target) -> files::Rendering {
    match target {
        Target::Compose => compose::render(deployment),
        Target::Quadlet => quadlet::render(deployment),
        Target::Kubernetes(by) => kubernetes::render(deployment, by),
    }
}
