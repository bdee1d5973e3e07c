//! Docker archives: one tar with a `manifest.json` that names configurations and layers, as `docker save` and
//! `docker load` speak it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufWriter, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Context as _, Error, Result};
use crate::event::Cancel;
use crate::image::archive::files::{Files, TarWriter};
use crate::image::archive::layers;
use crate::image::archive::oci::finish_file;
use crate::image::archive::staging::Staged;
use crate::image::archive::{Cancellable, Imported, Prepared};
use crate::image::config::Platform;
use crate::image::digest::Digest;
use crate::image::reference::Reference;
use crate::image::store::Store;

/// An entry of manifest.json.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Item {
    config: String,
    /// `null` for an image without a name.
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// Each layer once, uncompressed, whatever number of images has it.
pub(super) fn write(store: &Store, images: &[Prepared], dest: &Path, cancel: &Cancel) -> Result<()> {
    let mut items: Vec<Item> = Vec::new();
    let mut configs: BTreeMap<String, &[u8]> = BTreeMap::new();
    for image in images {
        let config = format!("{}.json", image.manifest.config.digest.hex());
        configs.insert(config.clone(), &image.config_bytes);
        // One image under two names is one entry with two names.
        let same = items.iter().position(|item| item.config == config);
        let at = same.unwrap_or_else(|| {
            let layers = image.config.rootfs.diff_ids.iter().map(layer_name).collect();
            items.push(Item { config, repo_tags: Some(Vec::new()), layers });
            items.len() - 1
        });
        if let (Some(tags), Some(tag)) = (&mut items[at].repo_tags, image.repo_tag())
            && !tags.contains(&tag)
        {
            tags.push(tag);
        }
    }
    let staged = Staged::beside(dest)?;
    let mut tar = TarWriter::new(BufWriter::with_capacity(1 << 20, staged.create_file()?), cancel);
    let manifest = serde_json::to_vec(&items).failed(|| "cannot write manifest.json".to_owned())?;
    tar.file("manifest.json", manifest.len() as u64, &*manifest)?;
    for (name, bytes) in configs {
        tar.file(&name, bytes.len() as u64, bytes)?;
    }
    let mut written = BTreeSet::new();
    for image in images {
        for diff_id in &image.config.rootfs.diff_ids {
            if written.insert(diff_id) {
                write_layer(store, diff_id, &mut tar, cancel)?;
            }
        }
    }
    finish_file(tar, staged)
}

/// One image whose layers are unpacked in the store, for an engine that loads it. It needs no manifest, and so nothing
/// has been compressed for it.
pub(crate) struct Loadable<'a> {
    pub config: &'a [u8],
    pub diff_ids: &'a [Digest],
    pub names: Vec<String>,
}

pub(crate) fn stream<W: Write>(store: &Store, image: &Loadable<'_>, out: W, cancel: &Cancel) -> Result<W> {
    let config = format!("{}.json", Digest::of(image.config).hex());
    let layers = image.diff_ids.iter().map(layer_name).collect();
    let items = [Item { config: config.clone(), repo_tags: Some(image.names.clone()), layers }];
    let mut tar = TarWriter::new(out, cancel);
    let manifest = serde_json::to_vec(&items).failed(|| "cannot write manifest.json".to_owned())?;
    tar.file("manifest.json", manifest.len() as u64, &*manifest)?;
    tar.file(&config, image.config.len() as u64, image.config)?;
    let mut written = BTreeSet::new();
    for diff_id in image.diff_ids {
        if written.insert(diff_id) {
            write_layer(store, diff_id, &mut tar, cancel)?;
        }
    }
    tar.finish()
}

fn layer_name(diff_id: &Digest) -> String {
    format!("{}.tar", diff_id.hex())
}

fn write_layer<W: Write>(store: &Store, diff_id: &Digest, tar: &mut TarWriter<'_, W>, cancel: &Cancel) -> Result<()> {
    let layer = store.layer(diff_id).ok_or_else(|| {
        Error::unusable(format!("the layer {diff_id} is not unpacked in the store"))
            .hint("build the image again: layers that are missing are made anew")
    })?;
    tar.file_with(&layer_name(diff_id), layer.size, |out| store.write_layer_tar(diff_id, out, cancel))
}

pub(super) fn read(
    store: &Store,
    path: &Path,
    reference: Option<&str>,
    platform: &Platform,
    cancel: &Cancel,
) -> Result<Imported> {
    let files = Files::open(store, path, cancel)?;
    let bytes = files.read("manifest.json").map_err(|e| {
        if files.contains("oci-layout") {
            Error::bad_input("it is an OCI image layout").hint("name it as `oci:PATH`")
        } else {
            e.context("it is not a Docker archive")
        }
    })?;
    let items: Vec<Item> =
        serde_json::from_slice(&bytes).bad_input(|| "its manifest.json cannot be understood".to_owned())?;
    let item = choose(&items, reference)?;
    let config_bytes = files.read(&item.config)?;
    check_name(&item.config, &config_bytes)?;
    let what = match item.repo_tags.as_deref() {
        Some([name, ..]) => format!("`{name}`"),
        _ => "the image".to_owned(),
    };
    let config = layers::read_config(&config_bytes, None, item.layers.len(), platform, &what)?;
    let diff_ids = &config.rootfs.diff_ids;
    let mut size = 0;
    for (i, (name, diff_id)) in item.layers.iter().zip(diff_ids).enumerate() {
        cancel.check()?;
        let layer = match store.layer_over(diff_id, &diff_ids[..i]) {
            Some((layer, _)) => layer,
            None => {
                let mut tar = Cancellable { inner: files.open_file(name)?.0, cancel };
                store.unpack_layer(&mut tar, &diff_ids[..i], Some(diff_id), cancel)?
            }
        };
        size += layer.size;
    }
    Ok(Imported { config, size, manifest: None })
}

fn choose<'a>(items: &'a [Item], reference: Option<&str>) -> Result<&'a Item> {
    let names = || {
        let names: Vec<&str> =
            items.iter().filter_map(|i| i.repo_tags.as_ref()).flatten().map(String::as_str).collect();
        if names.is_empty() { "it names none".to_owned() } else { format!("it has {}", names.join(", ")) }
    };
    let Some(reference) = reference else {
        return match items {
            [] => Err(Error::bad_input("it holds no image")),
            [only] => Ok(only),
            _ => Err(Error::bad_input("it holds several images")
                .hint(format!("name one as `docker-archive:PATH:NAME`; {}", names()))),
        };
    };
    let wanted = reference.parse::<Reference>()?.with_default_tag();
    let fits = |tag: &String| tag.parse::<Reference>().is_ok_and(|tag| tag.with_default_tag() == wanted);
    items
        .iter()
        .find(|item| item.repo_tags.iter().flatten().any(fits))
        .ok_or_else(|| Error::bad_input(format!("it has no image `{reference}`")).hint(names()))
}

/// A configuration that is named by its digest has to be what its name says.
fn check_name(name: &str, bytes: &[u8]) -> Result<()> {
    let file = name.rsplit('/').next().unwrap_or(name);
    let stem = file.strip_suffix(".json").unwrap_or(file);
    match format!("sha256:{stem}").parse::<Digest>() {
        Ok(named) if named != Digest::of(bytes) => {
            Err(Error::unusable(format!("`{name}` in it is damaged")).cause("its content has another digest"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_chosen_by_any_of_its_names() {
        let item = |config: &str, tags: Option<&[&str]>| Item {
            config: config.into(),
            repo_tags: tags.map(|t| t.iter().map(|t| (*t).to_owned()).collect()),
            layers: Vec::new(),
        };
        let items =
            [item("a", Some(&["a:1", "r.org/a:2"])), item("b", Some(&["docker.io/library/b:latest"])), item("c", None)];
        for (reference, config) in [("a:1", "a"), ("r.org/a:2", "a"), ("b", "b"), ("library/b:latest", "b")] {
            assert_eq!(choose(&items, Some(reference)).unwrap().config, config);
        }
        assert_eq!(choose(&items[2..], None).unwrap().config, "c");
        let error = choose(&items, Some("c")).unwrap_err();
        assert_eq!(error.hint_text(), Some("it has a:1, r.org/a:2, docker.io/library/b:latest"));
        assert!(choose(&items, None).is_err());
        assert!(choose(&[], None).is_err());
    }

    #[test]
    fn a_config_is_checked_against_its_name() {
        let hex = Digest::of(b"{}").hex().to_owned();
        for name in [format!("{hex}.json"), format!("blobs/sha256/{hex}"), "config.json".to_owned()] {
            assert!(check_name(&name, b"{}").is_ok());
        }
        assert!(check_name(&format!("{hex}.json"), b"{ }").is_err());
    }
}
