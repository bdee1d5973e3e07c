//! A rendered tree as a catalogue of Kollage's: for each image that is built a folder with its Dockerfile, what that
//! copies, and the labels that Kolla gives it. From there on there is one graph, one plan and one engine interface.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use crate::error::{Context as _, Error, Result};
use crate::kolla::images::{Image, Status};
use crate::kolla::layers::Layers;
use crate::kolla::render::TEMPLATE;
use crate::kolla::settings::Settings;

/// Where Kolla's own images are told to come from.
const HOME: &str = "https://opendev.org/openstack/kolla";

const PROJECT: &str = "kollage.toml";

/// How a project begins that was written here.
const MARK: &str = "# Written by `kollage kolla-build`, which replaces it.";

/// What all images of a catalogue have in common.
pub struct House<'a> {
    pub settings: &'a Settings,
    /// The tree's directories, later ones over earlier ones.
    pub roots: &'a [PathBuf],
    pub layers: &'a Layers,
}

/// Writes the catalogue into `to`, where an earlier one may be. Gives the folder of each image.
pub fn write(house: &House<'_>, to: &Path, images: &[Image]) -> Result<BTreeMap<String, PathBuf>> {
    let all = to.join("images");
    refuse_another_s(to)?;
    write_project(house, to)?;
    fs::create_dir_all(&all).unusable(|| format!("cannot make {}", all.display()))?;
    let matched: Vec<&Image> = images.iter().filter(|image| image.status == Status::Matched).collect();
    let folders: BTreeMap<String, PathBuf> =
        matched.par_iter().map(|image| Ok((image.name.clone(), folder(house, &all, image)?))).collect::<Result<_>>()?;
    let kept: BTreeSet<&PathBuf> = folders.values().collect();
    for entry in fs::read_dir(&all).unusable(|| format!("cannot read {}", all.display()))?.flatten() {
        if !kept.contains(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(folders)
}

/// What is written here replaces what is there; somebody's own catalogue is not to be lost by that.
fn refuse_another_s(to: &Path) -> Result<()> {
    let ours = || fs::read_to_string(to.join(PROJECT)).is_ok_and(|text| text.starts_with(MARK));
    if !["images", "plugins"].iter().any(|name| to.join(name).exists()) || ours() {
        return Ok(());
    }
    Err(Error::bad_input(format!("{} has images or plugins that are not of an earlier run", to.display()))
        .hint("name another directory with `--work-dir`: what is there would be replaced"))
}

/// One image's folder below `all`.
pub(super) fn folder(house: &House<'_>, all: &Path, image: &Image) -> Result<PathBuf> {
    let dir = all.join(name(image, house.settings));
    let _ = fs::remove_dir_all(&dir);
    for from in house.roots.iter().map(|root| root.join(&image.path)).filter(|from| from.is_dir()) {
        copy(&from, &dir)?;
    }
    definition(house, image, &dir)?;
    Ok(dir)
}

/// What an image is called in the catalogue.
pub fn name(image: &Image, settings: &Settings) -> String {
    format!("{}{}", settings.image_name_prefix, image.name)
}

/// Without arguments of the build, which may have logins in them.
pub(super) fn write_project(house: &House<'_>, to: &Path) -> Result<()> {
    fs::create_dir_all(to).unusable(|| format!("cannot make {}", to.display()))?;
    let path = to.join(PROJECT);
    let text = format!("{MARK}\n{}", project(house));
    fs::write(&path, text).unusable(|| format!("cannot write {}", path.display()))
}

fn project(house: &House<'_>) -> String {
    let House { settings, layers, .. } = house;
    let mut build = toml::Table::new();
    build.insert("namespace".into(), settings.namespace.clone().into());
    build.insert("tag".into(), settings.tag.clone().into());
    let mut project = toml::Table::new();
    project.insert("build".into(), build.into());
    // What Kolla takes is taken: upgraded dependencies are told and nothing else.
    let allowed: Vec<&str> = layers.all_names().into_iter().collect();
    if !allowed.is_empty() {
        project.insert("plugins".into(), toml::Table::from_iter([("allow".to_owned(), allowed.into())]).into());
    }
    toml::to_string(&project).unwrap_or_default()
}

fn definition(house: &House<'_>, image: &Image, dir: &Path) -> Result<()> {
    let say = || format!("cannot write the definition of {}", image.name);
    // Dockerfiles have no word for it.
    if own_base(&image.parent_name).is_some() {
        let text = image.text.replacen(&image.parent_name, "{% endraw %}{{ parent }}{% raw %}", 1);
        let path = dir.join(TEMPLATE);
        fs::write(path, format!("{{% raw %}}{text}{{% endraw %}}")).unusable(say)?;
    } else {
        let _ = fs::remove_file(dir.join(TEMPLATE));
        fs::write(dir.join("Dockerfile"), &image.text).unusable(say)?;
    }
    fs::write(dir.join("image.toml"), described(house, image)?).unusable(say)
}

/// What `image.toml` says.
pub(super) fn described(house: &House<'_>, image: &Image) -> Result<String> {
    let mut about = toml::Table::new();
    about.insert("kind".into(), if image.children.is_empty() { "service" } else { "base" }.into());
    about.insert("summary".into(), summary(&image.name).into());
    if let Some(from) = own_base(&image.parent_name) {
        about.insert("from".into(), from.into());
    }
    let mut definition = toml::Table::new();
    definition.insert("image".into(), about.into());
    definition.insert("labels".into(), labels(&image.name, house.settings).into());
    let plugins: Vec<String> = house.layers.names(&image.name).into_iter().map(str::to_owned).collect();
    if !plugins.is_empty() {
        let mut rules = toml::Table::new();
        rules.insert("accept".into(), plugins.clone().into());
        rules.insert("default".into(), plugins.into());
        // As in Kolla, where they are in the middle of what others are built on.
        rules.insert("inherited".into(), true.into());
        definition.insert("plugins".into(), rules.into());
    }
    toml::to_string(&definition).failed(|| format!("cannot write down what {} is", image.name))
}

/// A base that no registry has to be asked for, without the tag that Kolla puts behind every base.
pub fn own_base(parent: &str) -> Option<&str> {
    let own = ["bootstrap:", "rootfs:", "oci:", "docker-archive:"].iter().any(|scheme| parent.starts_with(scheme));
    own.then(|| parent.rsplit_once(':').map_or(parent, |(from, _tag)| from))
}

/// What an image is about, in one line.
pub fn summary(image: &str) -> String {
    format!("OpenStack Kolla {image} image")
}

/// What Kolla labels an image with when it builds it.
pub fn labels(image: &str, settings: &Settings) -> toml::Table {
    let labels = [
        ("title", image.to_owned()),
        ("description", summary(image)),
        ("version", settings.tag.clone()),
        ("authors", settings.maintainer.clone()),
        ("url", HOME.to_owned()),
        ("licenses", "Apache-2.0".to_owned()),
    ];
    labels.into_iter().map(|(key, value)| (format!("org.opencontainers.image.{key}"), value.into())).collect()
}

/// Copies a directory over another, with modes; links become what they lead to, as in Kolla.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).unusable(|| format!("cannot make {}", to.display()))?;
    let entries =
        fs::read_dir(from).map_err(|e| Error::bad_input(format!("cannot read {}", from.display())).cause(e))?;
    for entry in entries {
        let entry = entry.unusable(|| format!("cannot read {}", from.display()))?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &target)?;
        } else {
            fs::copy(&path, &target).unusable(|| format!("cannot copy {}", path.display()))?;
        }
    }
    // At the end: it may be one that nothing may be written into.
    let mode = fs::metadata(from).map(|metadata| metadata.permissions().mode() & 0o7777 | 0o700);
    let given = mode.and_then(|mode| fs::set_permissions(to, Permissions::from_mode(mode)));
    given.unusable(|| format!("cannot set the mode of {}", to.display()))
}

/// Where an image's patches are, and the file that says their order.
pub fn series(settings: &Settings, image: &str) -> Option<(PathBuf, PathBuf)> {
    let from = settings.patches_path.as_ref().map(|path| Path::new(path).join(image))?;
    let series = from.join("series");
    series.is_file().then_some((from, series))
}

/// The patches of an image, and their order, as `kolla_patch` finds them.
pub fn patches(settings: &Settings, image: &str, dir: &Path) -> Result<()> {
    let to = dir.join("patches");
    fs::create_dir_all(&to).unusable(|| format!("cannot make {}", to.display()))?;
    let Some((from, series)) = series(settings, image) else { return Ok(()) };
    let text = crate::text::read_to_string(&series)
        .map_err(|e| Error::bad_input(format!("cannot read {}", series.display())).cause(e))?;
    let copied = |name: &str| {
        let path = from.join(name);
        fs::copy(&path, to.join(name)).map(drop).bad_input(|| format!("cannot copy the patch {}", path.display()))
    };
    copied("series")?;
    let names = text.lines().filter(|line| !line.starts_with('#')).map(str::trim).filter(|name| !name.is_empty());
    for name in names.filter(|name| from.join(name).is_file()) {
        copied(name)?;
    }
    Ok(())
}
