//! `--template-only`: the tree with its Dockerfiles, as kolla-build leaves it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::cli::App;
use crate::error::{Context as _, Result};
use crate::kolla::house;
use crate::kolla::images::{Image, Status};
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
            fs::remove_dir_all(&dir).unusable(|| format!("cannot remove {}", dir.display()))?;
        }
    }
    app.say(&format!("Dockerfiles are generated in {}", target.display()));
    Ok(0)
}
