//! Plugins of kolla-build.conf: a layer of their own where the recipe installs them by pip and nothing behind that depends on
//! it, otherwise a part of the image as in Kolla.

use std::collections::{BTreeMap, BTreeSet};

use crate::kolla::import::source::Carried;
use crate::kolla::import::{Found, Side, name_of};
use crate::kolla::install::{Around, Install};
use crate::kolla::layers;

#[derive(Debug, Default)]
pub struct Plugins {
    /// By the catalogue's name: the source, and the tree's names of the images.
    pub all: BTreeMap<String, (Carried, BTreeSet<String>)>,
    layered: BTreeSet<String>,
}

impl Plugins {
    pub fn new(sides: &[Side<'_>], wanted: &BTreeSet<String>) -> Plugins {
        let mut plugins = Plugins::default();
        let side = &sides[0];
        for name in wanted {
            let Some(found) = side.images.get(name) else { continue };
            let each = || sides.iter().filter_map(|side| Some((side.images.get(name)?, side)));
            let sources: Option<Vec<Carried>> =
                found.sources.plugins.iter().map(|source| Carried::of(source).ok()).collect();
            let Some(sources) = sources.filter(|sources| !sources.is_empty()) else { continue };
            if each().any(|(found, _)| found.has_children)
                || !each().all(|(found, side)| installs_at_its_end(found, side))
            {
                continue;
            }
            plugins.layered.insert(name.clone());
            for source in sources {
                let whole = source.name.clone();
                let short = layers::plugin(&whole, name).to_owned();
                let taken = plugins.all.get(&short).is_some_and(|(other, _)| other.keys != source.keys);
                let plugin = if taken { whole } else { short };
                plugins.all.entry(plugin).or_insert_with(|| (source, BTreeSet::new())).1.insert(name.clone());
            }
        }
        plugins
    }

    pub fn is_layered(&self, image: &str) -> bool {
        self.layered.contains(image)
    }

    /// The plugins of an image, by the catalogue's names.
    pub fn of(&self, image: &str) -> Vec<String> {
        let of = |(_, (_, images)): &(&String, &(Carried, BTreeSet<String>))| images.contains(image);
        self.all.iter().filter(of).map(|(name, _)| name.clone()).collect()
    }

    /// The images of a plugin, by the catalogue's names.
    pub fn images(&self, plugin: &str, side: &Side<'_>) -> Vec<String> {
        let images = self.all.get(plugin).map(|(_, images)| images);
        images.into_iter().flatten().map(|image| name_of(image, side)).collect()
    }
}

/// Whether all that the recipe does with its plugins is to install them by pip.
fn installs_at_its_end(found: &Found, side: &Side<'_>) -> bool {
    let around = Around { patched: side.settings.patches_path.is_some(), ..Around::default() };
    Install::find(&found.pieces, &found.image.text, &around).is_ok_and(|install| install.only_pip)
}
