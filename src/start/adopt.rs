//! An image of anybody's that is started by the bundle: one layer more, and a configuration that says so. Nothing of
//! the image is built again or changed.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::bundle::{Bundle, NAMES, PROGRAM};
use super::definition::Definition;
use super::view::View;
use crate::error::{Context as _, Error, Result};
use crate::event::Cancel;
use crate::image::config::{Healthcheck, History, ImageConfig};
use crate::image::digest::Digest;
use crate::image::layer::compress::{Codec, Encoder};
use crate::image::layer::{standin, sys};
use crate::image::manifest::{DOCKER_CONFIG, DOCKER_LAYER_GZIP, Descriptor, Manifest};
use crate::image::store::{Store, Written};

/// Where an image has the bundle.
pub const PLACE: &str = "/var/lib/kollage/start";
/// Where it has links to the runtime by its names, so that deployments for Kolla find them.
const PROGRAMS: &str = "/usr/local/bin";

/// An image in the store, by its configuration and, where it came with one, its manifest.
pub struct Source {
    pub config: ImageConfig,
    pub manifest: Option<Digest>,
}

impl Source {
    pub fn view(&self, store: &Store) -> Result<View> {
        store.stack(&self.config.rootfs.diff_ids).map(View::new)
    }

    /// Its compressed layers as they came, or as this store makes them.
    fn layers(&self, store: &Store, codec: Codec, cancel: &Cancel) -> Result<Vec<Descriptor>> {
        let ids = &self.config.rootfs.diff_ids;
        let came = self.manifest.as_ref().map(|digest| store.manifest(digest)).transpose()?;
        let came = came.map(|manifest| manifest.layers).unwrap_or_default();
        let mut layers = Vec::with_capacity(ids.len());
        for (index, id) in ids.iter().enumerate() {
            let blob = came.get(index).filter(|_| came.len() == ids.len()).filter(|blob| store.has_blob(&blob.digest));
            match blob.and_then(|blob| Some((blob, Codec::of_media_type(&blob.media_type)?))) {
                // An OCI manifest names layers by OCI's media types.
                Some((blob, codec)) => {
                    layers.push(Descriptor { media_type: codec.media_type().into(), ..blob.clone() })
                }
                None => layers.push(store.compressed(id, codec, cancel)?),
            }
        }
        Ok(layers)
    }
}

/// Writes the new image to the store, and names it.
pub fn adopt(
    store: &Store,
    source: &Source,
    definition: &Definition,
    bundle: &Bundle,
    name: &str,
    options: &Options<'_>,
) -> Result<Written> {
    let below = &source.config.rootfs.diff_ids;
    let view = source.view(store)?;
    let work = store.work_dir()?;
    let upper = work.path().join("upper");
    let tree = Tree { view: &view, upper: &upper };
    tree.directory(Path::new("/"))?;
    tree.directory(Path::new(PLACE))?;
    tree.directory(Path::new(PROGRAMS))?;
    bundle.write_directory(&tree.place(PLACE))?;
    for name in NAMES.iter().chain(&[PROGRAM]) {
        let link = tree.place(PROGRAMS).join(name);
        symlink(Path::new(PLACE).join(PROGRAM), &link).unusable(|| format!("cannot make {}", link.display()))?;
    }
    let mut layers = source.layers(store, options.codec, options.cancel)?;
    let layer = store.commit_upper(&upper, below, Some(options.source_date_epoch))?;
    layers.push(store.compressed(&layer.diff_id, options.codec, options.cancel)?);
    let config = configured(source.config.clone(), definition, layer.diff_id);
    let written = store.put_image(&config, layers)?;
    store.set_ref(name, &written.digest)?;
    store.settle()?;
    Ok(written)
}

/// The same for an image whose layers stay where they are: what is new is in the store, and the manifest that names
/// both is given. Nothing of the image's files is looked at.
pub fn rewrite(
    store: &Store,
    config: ImageConfig,
    manifest: Manifest,
    definition: &Definition,
    bundle: &Bundle,
    options: &Options<'_>,
) -> Result<Manifest> {
    let cannot = || "cannot make the layer with the bundle".to_owned();
    let tar = bundle.layer(PLACE, PROGRAMS, options.source_date_epoch).failed(cannot)?;
    let mut encoder = Encoder::new(options.codec, Vec::new()).failed(cannot)?;
    encoder.write_all(&tar).failed(cannot)?;
    let blob = encoder.finish().failed(cannot)?;
    let config = configured(config, definition, Digest::of(&tar));
    let config = serde_json::to_vec(&config).failed(|| "cannot write the image's configuration".into())?;
    let docker = manifest.config.media_type == DOCKER_CONFIG;
    let layer = Descriptor {
        media_type: if docker { DOCKER_LAYER_GZIP } else { options.codec.media_type() }.to_owned(),
        digest: store.put_blob(&blob)?,
        size: blob.len() as u64,
        platform: None,
        annotations: BTreeMap::new(),
    };
    let config = Descriptor { digest: store.put_blob(&config)?, size: config.len() as u64, ..manifest.config };
    let layers = manifest.layers.into_iter().chain([layer]).collect();
    Ok(Manifest { config, layers, ..manifest })
}

pub struct Options<'a> {
    pub codec: Codec,
    /// Of the files of the bundle.
    pub source_date_epoch: i64,
    pub cancel: &'a Cancel,
}

/// Whom the image ran as is told to the runtime, which starts as root and becomes the service's user.
fn configured(mut config: ImageConfig, definition: &Definition, layer: Digest) -> ImageConfig {
    let run = &mut config.config;
    if !run.user.is_empty() {
        let user = std::mem::take(&mut run.user);
        run.env_set("KOLLAGE_IMAGE_USER", &user);
    }
    run.env_set("KOLLAGE_SERVICE", &definition.name);
    let program = format!("{PLACE}/{PROGRAM}");
    run.entrypoint = Some(vec![program.clone(), "exec".into(), "--".into()]);
    run.cmd = Some(vec!["kolla_start".into()]);
    if !definition.health.is_empty() && run.healthcheck.is_none() {
        let test = vec!["CMD".into(), program, "healthcheck".into()];
        run.healthcheck = Some(Healthcheck { test, ..Healthcheck::default() });
    }
    run.labels.insert("org.kollage.start".into(), definition.name.clone());
    config.rootfs.diff_ids.push(layer);
    config.history.push(History {
        created_by: Some(format!("kollage start adopt --service {}", definition.name)),
        ..History::default()
    });
    config
}

/// What becomes the layer.
struct Tree<'a> {
    view: &'a View,
    upper: &'a Path,
}

impl Tree<'_> {
    fn place(&self, path: &str) -> PathBuf {
        self.upper.join(path.trim_start_matches('/'))
    }

    /// Makes a directory and those above it, with the owners and modes that the image has them with.
    fn directory(&self, path: &Path) -> Result<()> {
        let above: Vec<&Path> = path.ancestors().collect();
        for path in above.into_iter().rev() {
            let place = self.upper.join(path.strip_prefix("/").unwrap_or(path));
            if place.is_dir() {
                continue;
            }
            let cannot = || format!("cannot make {}", place.display());
            let there = self.view.entry(path)?;
            if there.as_ref().is_some_and(|there| !there.is_dir()) {
                let link = there.is_some_and(|there| sys::file_type(&there.stat) == FileType::Symlink);
                let what = if link { "a link" } else { "no directory" };
                return Err(Error::failed(format!(
                    "the image has {what} at {}, where the bundle goes",
                    path.display()
                ))
                .hint("mount the bundle in a container instead: `kollage start pack -o dir:DIR`"));
            }
            fs::create_dir(&place).unusable(cannot)?;
            let (mut mode, mut owner) = (0o755, (0, 0));
            if let Some(there) = there {
                mode = there.stat.st_mode & 0o7777;
                owner = standin::owner_of(&there.path, &there.stat).unusable(cannot)?;
            }
            standin::chown_path(&place, owner.0, owner.1).unusable(cannot)?;
            fs::set_permissions(&place, fs::Permissions::from_mode(mode)).unusable(cannot)?;
        }
        Ok(())
    }
}
