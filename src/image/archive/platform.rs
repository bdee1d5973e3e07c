//! Which manifest of an index is the one for a platform.

use crate::error::{Error, Result};
use crate::image::config::{ImageConfig, Platform};
use crate::image::manifest::{Descriptor, Index};

/// The entry for `wanted`: the same variant first, then one whose variant means the same or is not said. An entry
/// without a platform is taken when it is the only one.
pub(crate) fn select<'a>(index: &'a Index, wanted: &Platform, what: &str) -> Result<&'a Descriptor> {
    if let [only] = index.manifests.as_slice()
        && only.platform.is_none()
    {
        return Ok(only);
    }
    let fits = |d: &&Descriptor| d.platform.as_ref().is_some_and(|p| rank(p, wanted).is_some());
    let best = index.manifests.iter().filter(fits).min_by_key(|d| d.platform.as_ref().and_then(|p| rank(p, wanted)));
    best.ok_or_else(|| {
        let mut there: Vec<String> = index
            .manifests
            .iter()
            .filter_map(|d| d.platform.as_ref())
            // Attestations stand in an index under this name.
            .filter(|p| p.os != "unknown")
            .map(Platform::to_string)
            .collect();
        there.sort();
        there.dedup();
        let there = if there.is_empty() { "none that is named".to_owned() } else { there.join(", ") };
        Error::unusable(format!("{what} has no image for {wanted}")).hint(format!("it has images for {there}"))
    })
}

/// A single image says in its configuration what it is for.
pub(crate) fn check(config: &ImageConfig, wanted: &Platform, what: &str) -> Result<()> {
    let is = config.platform();
    if rank(&is, wanted).is_some() {
        Ok(())
    } else {
        Err(Error::unusable(format!("{what} is an image for {is}, not for {wanted}"))
            .hint(format!("choose an image for {wanted}, or build with `--platform {is}`")))
    }
}

/// None when it does not fit; lower is better.
fn rank(is: &Platform, wanted: &Platform) -> Option<u8> {
    if is.os != wanted.os || is.architecture != wanted.architecture {
        return None;
    }
    let plain = |p: &Platform| match (&*p.architecture, p.variant.as_deref()) {
        // What these architectures mean when nothing is said.
        ("arm64", None) => Some("v8".to_owned()),
        ("arm", None) => Some("v7".to_owned()),
        ("amd64", None) => Some("v1".to_owned()),
        (_, variant) => variant.map(str::to_owned),
    };
    match (plain(is), plain(wanted)) {
        (a, b) if a == b => Some(0),
        (None, _) | (_, None) => Some(1),
        // Later variants of these two run what was made for earlier ones.
        (Some(a), Some(b)) if matches!(&*is.architecture, "arm" | "amd64") && a < b => {
            let newest = b'9';
            Some(2 + newest.saturating_sub(*a.as_bytes().last()?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::digest::Digest;
    use crate::image::manifest::OCI_MANIFEST;

    fn platform(text: &str) -> Platform {
        let mut parts = text.split('/').map(str::to_owned);
        Platform { os: parts.next().unwrap(), architecture: parts.next().unwrap(), variant: parts.next() }
    }

    fn chosen(there: &[&str], wanted: &str) -> Result<usize> {
        let manifests: Vec<Descriptor> = there
            .iter()
            .enumerate()
            .map(|(i, text)| Descriptor {
                media_type: OCI_MANIFEST.into(),
                digest: Digest::of(&[i as u8]),
                size: 1,
                platform: (!text.is_empty()).then(|| platform(text)),
                annotations: Default::default(),
            })
            .collect();
        let index = Index { schema_version: 2, media_type: None, manifests, annotations: Default::default() };
        let chosen = select(&index, &platform(wanted), "x")?.digest.clone();
        Ok(index.manifests.iter().position(|d| d.digest == chosen).unwrap())
    }

    #[test]
    fn the_best_entry_is_chosen() {
        assert_eq!(chosen(&["linux/arm64", "linux/amd64"], "linux/amd64").unwrap(), 1);
        assert_eq!(chosen(&["linux/arm64/v8"], "linux/arm64").unwrap(), 0);
        assert_eq!(chosen(&["linux/arm/v5", "linux/arm/v7", "linux/arm/v6"], "linux/arm/v7").unwrap(), 1);
        assert_eq!(chosen(&["linux/arm/v5", "linux/arm/v6"], "linux/arm/v7").unwrap(), 1);
        assert_eq!(chosen(&["linux/amd64/v3", "linux/amd64"], "linux/amd64").unwrap(), 1);
        assert_eq!(chosen(&[""], "linux/amd64").unwrap(), 0);
    }

    #[test]
    fn what_there_is_is_named() {
        assert!(chosen(&["linux/arm/v8"], "linux/arm/v7").is_err());
        assert!(chosen(&["", ""], "linux/amd64").is_err());
        let error = chosen(&["unknown/unknown", "linux/s390x", "linux/arm64/v8"], "linux/amd64").unwrap_err();
        assert_eq!(error.to_string(), "x has no image for linux/amd64");
        assert_eq!(error.hint_text(), Some("it has images for linux/arm64/v8, linux/s390x"));
    }
}
