//! Where containers on an engine have the bundle from. An image is copied to a volume, whatever the engine can mount:
//! few mount images, and whoever looks at a container sees the same everywhere.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use bollard::models::{ContainerCreateBody, HostConfig, Mount as EngineMount, MountType, MountVolumeOptions};
use serde::Deserialize;

use super::container::{DEPLOYMENT, mount};
use super::definition::{BUNDLE, Bundle, Deployment, Service};
use super::engine::Engine;
use crate::error::{Context as _, Error, Result};
use crate::start::bundle::PROGRAM;

/// A bundle as containers mount it.
#[derive(Clone, Debug)]
pub struct Mounted {
    pub mount: EngineMount,
    /// What is in it, unless a directory says so itself.
    version: String,
}

impl Mounted {
    /// None: its image isn't there yet.
    pub fn new(deployment: &Deployment, engine: &Engine) -> Result<Option<Mounted>> {
        let (kind, source, version) = match &deployment.bundle {
            Bundle::Directory(dir) => (MountType::BIND, dir.display().to_string(), String::new()),
            Bundle::Volume(name) => (MountType::VOLUME, name.clone(), format!("volume {name}")),
            Bundle::Image(reference) => match engine.image(reference)? {
                Some(image) => (MountType::VOLUME, copy(deployment, &image.id), format!("image {}", digits(&image.id))),
                None => return Ok(None),
            },
        };
        Ok(Some(Mounted { mount: mount(kind, &source, BUNDLE, true), version }))
    }

    /// What says whether a service would be started in the same way.
    pub fn parts(&self, bundle: &Bundle, service: &Service) -> Result<Vec<String>> {
        match bundle {
            Bundle::Directory(dir) => of_directory(dir, service),
            Bundle::Volume(_) | Bundle::Image(_) => Ok(vec![self.version.clone()]),
        }
    }
}

fn digits(id: &str) -> &str {
    let id = id.strip_prefix("sha256:").unwrap_or(id);
    id.get(..12).unwrap_or(id)
}

/// The volume for the bundle of an image; another image has another, so that what runs keeps what it was started with.
fn copy(deployment: &Deployment, id: &str) -> String {
    format!("{}.{}", filler(deployment), digits(id))
}

/// The container that fills the volume. As long as there is one, the volume isn't whole.
fn filler(deployment: &Deployment) -> String {
    format!("{}..bundle", deployment.name)
}

/// Whether the bundle of the deployment's image has still to be copied.
pub fn is_due(deployment: &Deployment, engine: &Engine) -> Result<bool> {
    let Bundle::Image(reference) = &deployment.bundle else { return Ok(false) };
    let Some(image) = engine.image(reference)? else { return Ok(true) };
    let there = engine.volume(&copy(deployment, &image.id))?.is_some();
    Ok(!there || engine.container(&filler(deployment))?.is_some())
}

/// Copies that nothing is started with any more.
pub fn stale(deployment: &Deployment, engine: &Engine) -> Result<Vec<String>> {
    let present = match &deployment.bundle {
        Bundle::Image(reference) => engine.image(reference)?.map(|image| copy(deployment, &image.id)),
        _ => None,
    };
    Ok(all(deployment, engine)?.into_iter().filter(|name| Some(name) != present.as_ref()).collect())
}

/// All copies that there are.
pub fn all(deployment: &Deployment, engine: &Engine) -> Result<Vec<String>> {
    // By name: Podman doesn't label a volume that it makes with a container.
    engine.volumes_called(&format!("{}.", filler(deployment)))
}

/// Fills a volume with the bundle of an image, by the image's own program.
pub fn install(deployment: &Deployment, engine: &Engine) -> Result<()> {
    let Bundle::Image(reference) = &deployment.bundle else { return Ok(()) };
    let image = engine
        .image(reference)?
        .ok_or_else(|| Error::failed(format!("the engine has no image {reference} any more")))?;
    let (name, volume) = (filler(deployment), copy(deployment, &image.id));
    engine.remove(&name)?;
    engine.remove_volume(&volume)?;
    let labels = HashMap::from([(DEPLOYMENT.to_owned(), deployment.name.clone())]);
    let of_volume = Some(labels.clone());
    let options = MountVolumeOptions { labels: of_volume, no_copy: Some(true), ..MountVolumeOptions::default() };
    let target = EngineMount { volume_options: Some(options), ..mount(MountType::VOLUME, &volume, "/bundle", false) };
    let body = ContainerCreateBody {
        image: Some(reference.clone()),
        user: Some("0:0".into()),
        entrypoint: Some(vec![format!("/{PROGRAM}")]),
        cmd: Some(vec!["install".into(), "/bundle".into()]),
        labels: Some(labels),
        host_config: Some(HostConfig {
            mounts: Some(vec![target]),
            network_mode: Some("none".into()),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    };
    // The engine makes the volume with the container, and not before it.
    engine.create(&name, body)?;
    let mut said = Vec::new();
    let code = engine.start(&name).and_then(|()| engine.follow(&name, &mut |line| said.push(line)))?;
    if code != 0 {
        let error = Error::failed(format!("the bundle of {reference} could not be copied to a volume"));
        let error = said.into_iter().fold(error, Error::cause);
        return Err(error.hint("an image with a bundle is what `kollage start pack -o oci:DIR` writes"));
    }
    engine.remove(&name)
}

/// `bundle.json`, as far as it says whether a service would be started in the same way.
#[derive(Deserialize)]
struct BundleJson {
    runtime: String,
    services: BTreeMap<String, BundleService>,
}

#[derive(Deserialize)]
struct BundleService {
    definition: String,
    script: Option<String>,
}

fn of_directory(dir: &Path, service: &Service) -> Result<Vec<String>> {
    let json = bundle_json(dir)?;
    let name = &service.start.name;
    let own = json.services.get(name).ok_or_else(|| {
        Error::bad_input(format!("the bundle in `{}` has no service `{name}`", dir.display()))
            .hint("pack it again: `kollage start pack -o dir:DIR`")
    })?;
    let script = own.script.clone().unwrap_or_default();
    Ok(vec![dir.display().to_string(), json.runtime, own.definition.clone(), script])
}

fn bundle_json(dir: &Path) -> Result<BundleJson> {
    let path = dir.join("bundle.json");
    let what = || format!("cannot read the bundle's `{}`", path.display());
    let text = crate::text::read_to_string(&path)
        .bad_input(what)
        .map_err(|error| error.hint("`kollage start pack -o dir:DIR` makes a bundle"))?;
    serde_json::from_str(&text).bad_input(what)
}
