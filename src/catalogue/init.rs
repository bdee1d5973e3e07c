//! `kollage init`: a small catalogue that builds as it is, to start from.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::names;
use crate::error::{Context as _, Error, Result};

/// Path below the new catalogue, and content.
const FILES: [(&str, &str); 6] = [
    ("kollage.toml", include_str!("init/kollage.toml")),
    ("images/_recipes/service.j2", include_str!("init/service.j2")),
    ("images/base/image.toml", include_str!("init/base.toml")),
    ("images/base/Dockerfile.j2", include_str!("init/base.j2")),
    ("images/hello/image.toml", include_str!("init/hello.toml")),
    ("images/hello/hello.sh", include_str!("init/hello.sh")),
];

/// In `kollage.toml`.
const NAMESPACE: &str = "namespace = \"example\"";

/// That of the directory, so that the images of two catalogues have two names; where it can't be part of the name of
/// an image, that of the template.
fn namespace(dir: &Path) -> String {
    let whole = std::path::absolute(dir).unwrap_or_default();
    let name = whole.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    // The first part of a name with a dot in it, or `localhost`, is a registry.
    let usable = names::repository(&name).is_ok() && !name.contains('.') && name != "localhost";
    if usable { name } else { "example".into() }
}

/// Writes the catalogue; what it wrote comes back. Nothing that is there is touched: if any of its files exists,
/// nothing is written at all.
pub fn init(dir: &Path) -> Result<Vec<PathBuf>> {
    let paths: Vec<PathBuf> = FILES.iter().map(|(path, _)| dir.join(path)).collect();
    // A dangling link exists as well: writing through it would end up somewhere else.
    if let Some(there) = paths.iter().find(|p| p.symlink_metadata().is_ok()) {
        return Err(Error::bad_input(format!("`{}` exists already", there.display()))
            .hint("`kollage init DIR` writes to another directory"));
    }
    for (path, (_, text)) in paths.iter().zip(FILES) {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)
                .unusable(|| format!("cannot create the directory `{}`", parent.display()))?;
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(path)
            .unusable(|| format!("cannot create `{}`", path.display()))?;
        let text = text.replace(NAMESPACE, &format!("namespace = \"{}\"", namespace(dir)));
        file.write_all(text.as_bytes()).unusable(|| format!("cannot write `{}`", path.display()))?;
    }
    Ok(paths)
}
