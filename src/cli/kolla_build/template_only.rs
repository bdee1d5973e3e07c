//! `--template-only`: the tree with its Dockerfiles, as kolla-build leaves it.

use std::fs;

use crate::cli::App;
use crate::cli::kolla_build::Chosen;
use crate::error::{Context as _, Result};
use crate::image::archive::staging;
use crate::kolla::house;
use crate::kolla::images::Status;

/// Writes the tree with its Dockerfiles, as far as they are selected.
pub fn run(app: &App, chosen: &Chosen<'_>) -> Result<u8> {
    let Chosen { options, settings, roots, images, layers } = chosen;
    let work = super::Work::new(options)?;
    let target = work.path.join("docker");
    for root in roots {
        house::copy(root, &target)?;
    }
    super::put_apt_files(options, &target.join("base"))?;
    for image in images {
        let dir = target.join(&image.path);
        if image.status == Status::Matched {
            let path = dir.join("Dockerfile");
            fs::write(&path, &image.text).unusable(|| format!("cannot write {}", path.display()))?;
            house::patches(settings, &image.name, &dir)?;
        } else {
            // It may have been in the directory of another one.
            staging::remove(&dir).unusable(|| format!("cannot remove {}", dir.display()))?;
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
    let target = work.keep().join("docker");
    app.say(&format!("Dockerfiles are generated in {}", target.display()));
    Ok(0)
}
