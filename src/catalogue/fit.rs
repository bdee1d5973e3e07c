//! Versions that a plugin needs of what is on the image, as far as definitions and the release tell.

use std::str::FromStr as _;

use pep440_rs::{Version, VersionSpecifiers};

use crate::diag::{Diagnostic, Place};

use super::check::Checker;
use super::names;
use super::reader::error;
use super::types::{Catalogue, ImageDef, Parent, PluginDef};

/// The version of a distribution on an image, and where that is said.
fn version_on<'a>(catalogue: &'a Catalogue, image: &'a ImageDef, distribution: &str) -> Option<(String, Place)> {
    let wanted = names::normalised(distribution);
    let mut here = Some(image);
    // Circles of parents are a problem of their own.
    for _ in 0..catalogue.images.len() {
        let Some(image) = here else { break };
        for (name, source) in &image.sources {
            let found = source.requirement().filter(|found| names::normalised(found.name) == wanted);
            if let Some(version) = found.and_then(|found| found.exact()) {
                return Some((version.to_owned(), image.places.place(&format!("sources.{name}.pypi"), &image.file)));
            }
        }
        here = match &image.parent {
            Parent::Image(parent) => catalogue.images.get(parent).map(AsRef::as_ref),
            _ => None,
        };
    }
    let release = catalogue.settings.release.as_ref()?;
    release.version_of(distribution).map(|(version, place)| (version.to_owned(), place.clone()))
}

impl Checker<'_> {
    /// The versions that the chosen plugins of all images need, and plugins that are allowed by name.
    pub(super) fn versions(&mut self) {
        let catalogue = self.catalogue;
        for (name, place) in &catalogue.settings.allowed_plugins {
            if !self.knows_plugin(name) {
                let problem = self.unknown_plugin(place, name);
                self.problems.push(problem);
            }
        }
        for image in catalogue.images.values() {
            for plugin in catalogue.plugins_of(image) {
                for (distribution, range) in &plugin.needs {
                    self.problems.0.extend(misfit(catalogue, image, &plugin, distribution, range));
                }
            }
        }
    }
}

fn misfit(
    catalogue: &Catalogue,
    image: &ImageDef,
    plugin: &PluginDef,
    distribution: &str,
    range: &str,
) -> Option<Diagnostic> {
    let ranges = VersionSpecifiers::from_str(range).ok()?;
    let place = plugin.places.place(&format!("plugin.needs.{distribution}"), &plugin.file);
    let needs = format!("plugin `{}` needs {distribution} {range}", plugin.name);
    let Some((version, said)) = version_on(catalogue, image, distribution) else {
        let message = format!("{needs}, and nothing says which version `{}` has", image.name);
        let hint = "a release (`releases/NAME.toml`) or a source with `==` says it; until then it is not checked";
        return Some(Diagnostic::warning(message).at(&place.file, place.span).hint(hint));
    };
    if version.parse::<Version>().is_ok_and(|version| ranges.contains(&version)) {
        return None;
    }
    let message = format!("{needs}, and `{}` has {version}", image.name);
    let problem = match catalogue.settings.allows_misfit(&plugin.name) {
        true => Diagnostic::warning(message).at(&place.file, place.span),
        false => error(&place, message).hint(format!(
            "choose another version of one of them, or allow it: `allow = [\"{}\"]` in [plugins] of kollage.toml",
            plugin.name
        )),
    };
    Some(problem.also(&said, "the version"))
}
