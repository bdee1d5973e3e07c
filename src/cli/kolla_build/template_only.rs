//! `--template-only`: the tree with its Dockerfiles, as kolla-build leaves it.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::cli::App;
use crate::error::{Context as _, Error, Result};
use crate::kolla::house;
use crate::kolla::images::{Image, Status};
use crate::kolla::layers::Layers;
use crate::kolla::options::Options;
use crate::kolla::render::Rendered;
use crate::kolla::settings::Settings;

/// Writes the tree with its Dockerfiles, as far as they are selected.
pub fn run(
    app: &App,
    options: &Options<'_>,
    settings: &Settings,
    roots: &[PathBuf],
    rendered: &[Rendered],
    images: &[Image],
    layers: &Layers,
) -> Result<u8> {
    let target = super::work_dir(options)?.join("docker");
    for root in roots {
        house::copy(root, &target)?;
    }
    super::apt_files(options, &target.join("base"))?;
    let status: BTreeMap<&Path, Status> = images.iter().map(|image| (image.path.as_path(), image.status)).collect();
    for image in rendered {
        let dir = target.join(&image.path);
        if status.get(image.path.as_path()) == Some(&Status::Matched) {
            let path = dir.join("Dockerfile");
            fs::write(&path, &image.text).unusable(|| format!("cannot write {}", path.display()))?;
            house::patches(settings, &image.name, &dir)?;
        } else {
            // It may have been in the directory of another one.
            match fs::remove_dir_all(&dir) {
                Err(e) if e.kind() != ErrorKind::NotFound => {
                    return Err(Error::unusable(format!("cannot remove {}", dir.display())).cause(e));
                }
                _ => {}
            }
        }
    }
    for image in images {
        for (plugin, text) in layers.dockerfiles(image) {
            let dir = target.join(&image.path).join("plugins").join(plugin);
            let say = || format!("cannot write a Dockerfile into {}", dir.display());
            fs::create_dir_all(&dir).unusable(say)?;
            fs::write(dir.join("Dockerfile"), text).unusable(say)?;
        }
    }
    app.say(&format!("Dockerfiles are generated in {}", target.display()));
    Ok(0)
}
