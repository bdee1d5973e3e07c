//! Which images of a catalogue a command line means: profiles and patterns add up.

use std::collections::BTreeSet;

use crate::catalogue::{Catalogue, Pattern};
use crate::error::{Error, Result};
use crate::suggest;

#[derive(Clone, Debug, Default)]
pub struct Selection {
    pub profiles: Vec<String>,
    pub patterns: Vec<String>,
}

/// Names of images; all of them when nothing was said. A profile that doesn't exist and a pattern that matches
/// nothing are errors: they are always a mistake, and often one in a pipeline.
pub fn select(catalogue: &Catalogue, selection: &Selection) -> Result<BTreeSet<String>> {
    if selection.profiles.is_empty() && selection.patterns.is_empty() {
        return Ok(catalogue.images.keys().cloned().collect());
    }
    let mut selected = BTreeSet::new();
    for profile in &selection.profiles {
        let images = catalogue.profile_images(profile).ok_or_else(|| {
            let names: Vec<&str> = catalogue.settings.profiles.keys().map(String::as_str).collect();
            let error = Error::bad_input(format!("there is no profile `{profile}`"));
            error.hint(known_names("profile", profile, &names))
        })?;
        selected.extend(images);
    }
    for text in &selection.patterns {
        let pattern = Pattern::parse(text)
            .map_err(|e| Error::bad_input(format!("`{text}` is not a pattern of image names")).cause(e))?;
        let mut any = false;
        for name in catalogue.images.keys().filter(|name| pattern.matches(name)) {
            any = true;
            selected.insert(name.clone());
        }
        if !any {
            let names: Vec<&str> = catalogue.images.keys().map(String::as_str).collect();
            let error = Error::bad_input(format!("no image matches `{text}`"));
            return Err(error.hint(known_names("image", text, &names)));
        }
    }
    Ok(selected)
}

fn known_names(what: &str, wrong: &str, names: &[&str]) -> String {
    suggest::hint(wrong, names.iter().copied())
        .unwrap_or_else(|| format!("`kollage list --what {what}s` shows every {what} of the catalogue"))
}
