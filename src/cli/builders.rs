//! Builders of the engine `buildkit`: from the command line, else the settings, else BUILDKIT_HOST.

use crate::catalogue::Settings;
use crate::cli::args::Builders;
use crate::cli::environment::Environment;
use crate::daemon::Endpoint;
use crate::engine::buildkit::address::Address;
use crate::engine::buildkit::dial::Certificates;
use crate::engine::buildkit::{self, BuildKitEngine, Named, Options};
use crate::engine::embedded::EmbeddedEngine;
use crate::error::{Error, Result};
use crate::event::Cancel;
use crate::image::config::Platform;
use crate::image::reference::Reference;

/// What a command knows about the builders that it wants.
pub struct Asked<'a> {
    pub flags: &'a Builders,
    pub settings: &'a Settings,
    pub env: &'a Environment,
    pub platforms: Vec<Platform>,
    /// `--jobs`
    pub jobs: Option<usize>,
}

/// The one builder that needs no registry, since what it builds stays with it: a dockerd, when nothing else is named.
pub fn alone(asked: &Asked<'_>, cancel: &Cancel) -> Result<Option<Endpoint>> {
    match (named(asked)?.as_slice(), repository_name(asked)) {
        ([builder], None) => buildkit::docker_alone(builder, cancel),
        _ => Ok(None),
    }
}

pub fn engine(own: EmbeddedEngine, asked: &Asked<'_>, cancel: &Cancel) -> Result<BuildKitEngine> {
    let builders = named(asked)?;
    let jobs = jobs(asked.jobs, asked.settings, builders.len());
    let platforms = asked.platforms.clone();
    BuildKitEngine::connect(own, Options { builders, repository: repository(asked)?, platforms, jobs }, cancel)
}

/// Nodes that are built at once: two on each builder, unless somebody says otherwise. This machine's own processors have
/// nothing to do with it.
pub fn jobs(flag: Option<usize>, settings: &Settings, builders: usize) -> usize {
    flag.or(settings.build.jobs).unwrap_or(2 * builders).max(1)
}

fn named(asked: &Asked<'_>) -> Result<Vec<Named>> {
    let known = &asked.settings.engine.buildkit.builders;
    let host = asked.env.buildkit_host.as_ref();
    let texts: Vec<(&str, &String)> = match asked.flags.builders.as_slice() {
        [] if !known.is_empty() => return Ok(known.clone()),
        [] => host.map(|host| ("BUILDKIT_HOST", host)).into_iter().collect(),
        flags => flags.iter().map(|flag| ("--builder", flag)).collect(),
    };
    let mut builders: Vec<Named> = Vec::new();
    for (source, text) in texts {
        let address: Address = text.parse().map_err(|error: Error| error.context(source))?;
        if builders.iter().any(|builder| builder.address == address) {
            return Err(Error::bad_input(format!("the builder {address} is named twice")));
        }
        // Its platform and weight are what the settings say.
        let builder = known.iter().find(|known| known.address == address).cloned();
        builders.push(builder.unwrap_or_else(|| Named {
            address,
            certificates: Certificates(certificates(asked)),
            platform: None,
            weight: 1,
        }));
    }
    if builders.is_empty() {
        return Err(Error::bad_input("there is no builder for the engine `buildkit`")
            .hint("name one with `--builder ADDRESS`, in BUILDKIT_HOST, or in [engine.buildkit] of kollage.toml"));
    }
    Ok(builders)
}

fn certificates(asked: &Asked<'_>) -> Option<std::path::PathBuf> {
    let own = asked.settings.engine.buildkit.certificates.clone();
    own.or_else(|| asked.env.docker_cert_path.clone())
}

fn repository_name(asked: &Asked<'_>) -> Option<String> {
    let Settings { build, engine, .. } = asked.settings;
    let own = asked.flags.builder_repository.clone().or_else(|| engine.buildkit.repository.clone());
    own.or_else(|| match Reference::names_registry(&build.namespace) {
        true => Some(format!("{}/work", build.namespace)),
        false => build.registry.as_ref().map(|registry| format!("{registry}/{}/work", build.namespace)),
    })
}

/// Where results meet.
fn repository(asked: &Asked<'_>) -> Result<String> {
    let name = repository_name(asked).ok_or_else(|| {
        Error::unusable("the builders have no registry where their results can meet").hint(
            "name a repository that all of them reach with `--builder-repository REGISTRY/NAME`, or \
             `repository` in [engine.buildkit]; a dockerd alone needs none",
        )
    })?;
    let reference: Reference =
        name.parse().map_err(|e: Error| e.context(format!("`{name}` is no repository for the results of builders")))?;
    if reference.tag().is_some() || reference.digest().is_some() {
        return Err(Error::bad_input(format!("`{name}` is no repository for the results of builders"))
            .cause("it has a tag or a digest")
            .hint("every result gets a tag of its own: give the name alone"));
    }
    if !asked.settings.policy.allows_registry(reference.registry()) {
        let file = asked.settings.policy_file("registries");
        return Err(Error::bad_input(format!("the registry {} is not allowed on this machine", reference.registry()))
            .hint(format!("[policy] in {file} says which are")));
    }
    Ok(name)
}
