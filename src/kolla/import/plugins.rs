//! Plugins of kolla-build.conf: a layer of their own where the recipe does nothing but install them at its end, otherwise a
//! part of the image as in Kolla.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;

use crate::kolla::import::source::Carried;
use crate::kolla::import::{Found, Side, name_of};

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
            let each = || sides.iter().filter_map(|side| side.images.get(name));
            let sources: Option<Vec<Carried>> =
                found.sources.plugins.iter().map(|source| Carried::of(source).ok()).collect();
            let Some(sources) = sources.filter(|sources| !sources.is_empty()) else { continue };
            if each().any(|found| found.has_children) || !each().all(installs_at_its_end) {
                continue;
            }
            plugins.layered.insert(name.clone());
            for source in sources {
                let whole = source.name.clone();
                let short = whole.split_once("-plugin-").map_or(whole.as_str(), |(_, short)| short).to_owned();
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

/// Whether all that the recipe does with its plugins is to install them, with nothing but modes of files behind it.
fn installs_at_its_end(found: &Found) -> bool {
    static INSTALL: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r#"if \[ "\$\(ls /plugins\)" \]; then python3 -m pip [^;&|]*/plugins/\* ?; fi"#).ok()
    });
    let Some(install) = INSTALL.as_ref() else { return false };
    let mut installed = false;
    for piece in &found.pieces {
        let rest = match install.find(&piece.line) {
            Some(place) if !installed => {
                installed = true;
                if piece.line[..place.start()].contains(" /plugins") {
                    return false;
                }
                &piece.line[place.end()..]
            }
            _ if piece.keyword == "RUN" && installed => piece.line.trim_start_matches("RUN"),
            _ if piece.keyword == "RUN" && piece.line.contains(" /plugins") => return false,
            _ => continue,
        };
        let harmless = |command: &str| ["", "chmod", "touch"].contains(&command.split(' ').next().unwrap_or_default());
        if !rest.split("&&").map(str::trim).all(harmless) {
            return false;
        }
    }
    installed
}
