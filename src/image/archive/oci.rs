//! OCI image layouts (image-layout.md), as a directory or as a tar of one.
//!
//! Blobs in a directory may be hard links to the store's own: both are named by their content, and no tool writes to
//! such a file in place.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::{Context as _, Error, Result};
use crate::event::Cancel;
use crate::image::archive::files::{Files, TarWriter};
use crate::image::archive::staging::{Staged, sync_directory, write_file};
use crate::image::archive::{Cancellable, Imported, Prepared, io_error, layers, platform};
use crate::image::config::Platform;
use crate::image::digest::Digest;
use crate::image::manifest::{DOCKER_INDEX, Descriptor, Index, Manifest, OCI_INDEX, OCI_MANIFEST};
use crate::image::store::Store;

const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// The whole name, where containerd and Docker look for it; the ref name is only a tag.
const FULL_NAME: &str = "io.containerd.image.name";
/// Indexes within indexes end somewhere.
const MAX_DEPTH: usize = 4;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LayoutFile {
    image_layout_version: String,
}

/// Writes a new layout, or adds to the one that is there: an image of the same ref name is replaced, blobs are shared.
pub(super) fn write_directory(store: &Store, images: &[Prepared], dest: &Path, cancel: &Cancel) -> Result<()> {
    match fs::read_dir(dest) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let staged = Staged::beside(dest)?;
            staged.create_dir()?;
            fill(store, images, staged.path(), Vec::new(), cancel)?;
            staged.put_in_place()
        }
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
            Err(Error::bad_input("there is a file of that name").hint("choose another destination, or add tar=true"))
        }
        Err(e) => Err(Error::unusable("the directory cannot be read").cause(e)),
        Ok(mut there) => {
            // Two builds may add to one layout at the same time.
            let lock = File::open(dest).unusable(|| "the directory cannot be opened".to_owned())?;
            rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)
                .unusable(|| "the directory cannot be locked".to_owned())?;
            let entries = if dest.join("oci-layout").exists() {
                entries(&Files::Directory(dest.to_path_buf()))?
            } else if there.next().is_none() {
                Vec::new()
            } else {
                return Err(Error::bad_input("the directory holds something else than an OCI image layout")
                    .hint("choose a destination that does not exist, is empty, or is a layout"));
            };
            fill(store, images, dest, entries, cancel)
        }
    }
}

fn fill(store: &Store, images: &[Prepared], root: &Path, entries: Vec<Value>, cancel: &Cancel) -> Result<()> {
    let entries = merge(entries, images)?;
    let blobs = root.join("blobs/sha256");
    fs::create_dir_all(&blobs).unusable(|| format!("cannot create the directory {}", blobs.display()))?;
    for (digest, size) in all_blobs(images) {
        cancel.check()?;
        place_blob(&store.blob_path(&digest), &blobs.join(digest.hex()), size, cancel)?;
    }
    for index in indexes(images) {
        write_file(&blobs.join(Digest::of(&index).hex()), &index)?;
    }
    sync_directory(&blobs)?;
    write_file(&root.join("oci-layout"), &layout_file())?;
    // Last: it is what makes the rest an image.
    write_file(&root.join("index.json"), &index_json(entries))
}

/// As a clone or a link where the file system can, else as a copy.
fn place_blob(from: &Path, to: &Path, size: u64, cancel: &Cancel) -> Result<()> {
    if fs::metadata(to).is_ok_and(|meta| meta.is_file() && meta.len() == size) {
        return Ok(());
    }
    let source = File::open(from).unusable(|| format!("cannot open the blob {}", from.display()))?;
    let staged = Staged::beside(to)?;
    let mut file = staged.create_file()?;
    if rustix::fs::ioctl_ficlone(&file, &source).is_err() {
        let linked = fs::remove_file(staged.path()).and_then(|()| fs::hard_link(from, staged.path()));
        if linked.is_err() {
            // Another file system, too many links, or one that has none.
            file = staged.create_file()?;
            io::copy(&mut Cancellable { inner: source, cancel }, &mut file)
                .and_then(|_| file.sync_all())
                .map_err(|e| io_error(cancel, format!("cannot write {}", to.display()), &e))?;
        }
    }
    staged.put_in_place()
}

pub(super) fn write_tar(store: &Store, images: &[Prepared], dest: &Path, cancel: &Cancel) -> Result<()> {
    let entries = merge(Vec::new(), images)?;
    let staged = Staged::beside(dest)?;
    let mut tar = TarWriter::new(BufWriter::with_capacity(1 << 20, staged.create_file()?), cancel);
    let mut small = |name: &str, bytes: &[u8]| tar.file(name, bytes.len() as u64, bytes);
    small("oci-layout", &layout_file())?;
    small("index.json", &index_json(entries))?;
    tar.directory("blobs/")?;
    tar.directory("blobs/sha256/")?;
    for index in indexes(images) {
        tar.file(&blob_name(&Digest::of(&index)), index.len() as u64, index.as_slice())?;
    }
    for (digest, size) in all_blobs(images) {
        let path = store.blob_path(&digest);
        let blob = File::open(&path).unusable(|| format!("cannot open the blob {}", path.display()))?;
        tar.file(&blob_name(&digest), size, blob)?;
    }
    finish_file(tar, staged)
}

/// Flushes and syncs the file behind the tar, and gives it its name.
pub(super) fn finish_file(tar: TarWriter<'_, BufWriter<File>>, staged: Staged) -> Result<()> {
    let mut out = tar.finish()?;
    out.flush().and_then(|()| out.get_ref().sync_all()).unusable(|| "cannot finish the file".to_owned())?;
    staged.put_in_place()
}

fn blob_name(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

/// Every blob once, in the order of its digest.
fn all_blobs(images: &[Prepared]) -> BTreeMap<Digest, u64> {
    let mut blobs = BTreeMap::new();
    for image in images {
        blobs.insert(image.digest.clone(), image.manifest_bytes.len() as u64);
        blobs.insert(image.manifest.config.digest.clone(), image.config_bytes.len() as u64);
        blobs.extend(image.manifest.layers.iter().map(|layer| (layer.digest.clone(), layer.size)));
    }
    blobs
}

/// The tag alone for a single image, as `skopeo` and `umoci` expect it (`oci:DIR:TAG`); the whole name where several
/// images go together and mostly have the same tag.
fn ref_name(image: &Prepared, alone: bool) -> String {
    match (alone, image.repo_tag()) {
        (false, Some(name)) => name,
        _ => image.name.tag().unwrap_or("latest").to_owned(),
    }
}

/// Entries of the index: those that are there, with the new ones added or put in the place of their ref name.
fn merge(mut entries: Vec<Value>, images: &[Prepared]) -> Result<Vec<Value>> {
    let annotation = |entry: &Value, key: &str| entry["annotations"][key].as_str().map(str::to_owned);
    for same in by_name(images) {
        let image = same[0];
        let ref_name = ref_name(image, same.len() == images.len());
        let full_name = image.name.to_string();
        let same_ref = |e: &Value| annotation(e, REF_NAME).as_deref() == Some(&ref_name);
        if let Some(other) =
            entries.iter().filter(|e| same_ref(e)).filter_map(|e| annotation(e, FULL_NAME)).find(|n| *n != full_name)
        {
            return Err(Error::bad_input(format!("`{ref_name}` in it is another image already: {other}"))
                .hint("choose another destination, or write both images at once: each is then named in full"));
        }
        entries.retain(|e| !same_ref(e));
        let (media_type, digest, size) = match index_of(&same) {
            Some(index) => (OCI_INDEX, Digest::of(&index), index.len()),
            None => {
                let media_type = image.manifest.media_type.as_deref().unwrap_or(OCI_MANIFEST);
                (media_type, image.digest.clone(), image.manifest_bytes.len())
            }
        };
        entries.push(json!({
            "mediaType": media_type,
            "digest": digest,
            "size": size,
            "annotations": { FULL_NAME: full_name, REF_NAME: ref_name },
        }));
    }
    // The order in which images were added must not show.
    entries.sort_by_key(|e| (annotation(e, REF_NAME), e["digest"].as_str().map(str::to_owned)));
    Ok(entries)
}

/// Images of one name are one image for several platforms.
fn by_name(images: &[Prepared]) -> Vec<Vec<&Prepared>> {
    let mut groups: Vec<Vec<&Prepared>> = Vec::new();
    for image in images {
        match groups.iter_mut().find(|group| group[0].name == image.name) {
            Some(group) => group.push(image),
            None => groups.push(vec![image]),
        }
    }
    groups
}

/// What names the images of several platforms; None for one alone.
fn index_of(same: &[&Prepared]) -> Option<Vec<u8>> {
    if same.len() < 2 {
        return None;
    }
    let descriptors = same.iter().map(|image| Descriptor {
        media_type: image.manifest.media_type.clone().unwrap_or_else(|| OCI_MANIFEST.into()),
        digest: image.digest.clone(),
        size: image.manifest_bytes.len() as u64,
        platform: Some(image.config.platform()),
        annotations: BTreeMap::new(),
    });
    Some(Index::new(descriptors.collect()).to_bytes())
}

/// Indexes of images for several platforms. Nothing keeps them in the store: they are made again when they are wanted.
fn indexes(images: &[Prepared]) -> Vec<Vec<u8>> {
    by_name(images).iter().filter_map(|same| index_of(same)).collect()
}

fn layout_file() -> Vec<u8> {
    json!({ "imageLayoutVersion": "1.0.0" }).to_string().into_bytes()
}

fn index_json(entries: Vec<Value>) -> Vec<u8> {
    json!({ "schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries }).to_string().into_bytes()
}

/// What the index of a layout says, with whatever other tools put there.
fn entries(files: &Files) -> Result<Vec<Value>> {
    let mut index: Value = parse(&files.read("index.json")?, "index.json")?;
    match index["manifests"].take() {
        Value::Array(entries) => Ok(entries),
        _ => Err(Error::bad_input("its index.json has no list of manifests")),
    }
}

fn parse<T: serde::de::DeserializeOwned>(bytes: &[u8], what: &str) -> Result<T> {
    serde_json::from_slice(bytes).bad_input(|| format!("its {what} cannot be understood"))
}

pub(super) fn read(
    store: &Store,
    path: &Path,
    reference: Option<&str>,
    platform: &Platform,
    cancel: &Cancel,
) -> Result<Imported> {
    let files = Files::open(store, path, cancel)?;
    let layout: LayoutFile = match files.read("oci-layout") {
        Ok(bytes) => parse(&bytes, "oci-layout")?,
        Err(_) if files.contains("manifest.json") => {
            return Err(Error::bad_input("it is a Docker archive").hint("name it as `docker-archive:PATH`"));
        }
        Err(e) => return Err(e.context("it is not an OCI image layout")),
    };
    if !layout.image_layout_version.starts_with("1.") {
        return Err(Error::bad_input(format!("its layout version {} is unknown", layout.image_layout_version)));
    }
    let index: Index = parse(&files.read("index.json")?, "index.json")?;
    let what = match reference {
        Some(reference) => format!("`{reference}`"),
        None => "the image".to_owned(),
    };
    let mut blob = choose(&index, reference, platform, &what)?;
    for _ in 0..MAX_DEPTH {
        if blob.media_type != OCI_INDEX && blob.media_type != DOCKER_INDEX {
            let bytes = read_blob(&files, &blob)?;
            let manifest: Manifest = parse(&bytes, "manifest")?;
            let config_bytes = read_blob(&files, &manifest.config)?;
            let media_type = Some(&*manifest.config.media_type);
            let config = layers::read_config(&config_bytes, media_type, manifest.layers.len(), platform, &what)?;
            store.put_blob(&bytes)?;
            store.put_blob(&config_bytes)?;
            for layer in &manifest.layers {
                layers::keep_blob(store, files.open_file(&blob_name(&layer.digest))?.0, layer, cancel)?;
            }
            return layers::unpack_all(store, &manifest, blob.digest, config, cancel);
        }
        let nested: Index = parse(&read_blob(&files, &blob)?, "index")?;
        blob = platform::select(&nested, platform, &what)?.clone();
    }
    Err(Error::bad_input("its indexes name each other too many times"))
}

/// The entry that is asked for, or the only one.
fn choose(index: &Index, reference: Option<&str>, platform: &Platform, what: &str) -> Result<Descriptor> {
    let named = |d: &Descriptor, key: &str| d.annotations.get(key).cloned();
    let list = |entries: Vec<Descriptor>| Index { manifests: entries, ..index.clone() };
    let names = || {
        let mut names: Vec<String> = index.manifests.iter().filter_map(|d| named(d, REF_NAME)).collect();
        names.dedup();
        if names.is_empty() { "it names none".to_owned() } else { format!("it has {}", names.join(", ")) }
    };
    if let Some(reference) = reference {
        let fits = |d: &&Descriptor| {
            [named(d, REF_NAME), named(d, FULL_NAME), Some(d.digest.to_string())]
                .iter()
                .flatten()
                .any(|n| n == reference)
        };
        let found: Vec<Descriptor> = index.manifests.iter().filter(fits).cloned().collect();
        return match found.as_slice() {
            [] => Err(Error::bad_input(format!("it has no image {what}")).hint(names())),
            [only] => Ok(only.clone()),
            _ => platform::select(&list(found), platform, what).cloned(),
        };
    }
    match index.manifests.as_slice() {
        [] => Err(Error::bad_input("it holds no image")),
        [only] => Ok(only.clone()),
        // One image for several platforms has one name or none.
        [first, rest @ ..] if rest.iter().all(|d| named(d, REF_NAME) == named(first, REF_NAME)) => {
            platform::select(index, platform, what).cloned()
        }
        _ => Err(Error::bad_input("it holds several images").hint(format!("name one as `oci:PATH:NAME`; {}", names()))),
    }
}

/// A small blob, checked against what names it.
fn read_blob(files: &Files, blob: &Descriptor) -> Result<Vec<u8>> {
    let bytes = files.read(&blob_name(&blob.digest))?;
    let digest = Digest::of(&bytes);
    if digest != blob.digest || bytes.len() as u64 != blob.size {
        return Err(layers::damaged(blob, bytes.len() as u64, &digest));
    }
    Ok(bytes)
}
