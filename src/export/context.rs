//! The files of a context, to be written beside what is built from them.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use crate::context::{Context, EntryKind};
use crate::deploy::files::{LINK, Rendered, Rendering};
use crate::error::{Context as _, Error, Result};

/// What a Dockerfile is made from; it takes part in a build only where everything does.
const DEFINITION: [&str; 3] = ["Dockerfile.j2", "image.toml", "plugin.toml"];

/// What says that a directory is there, and that nothing is in it.
const EMPTY: (&str, &str) = (".dockerignore", "*\n");

/// Puts what .dockerignore leaves of a context below `dir`.
pub fn write(context: &Context, everything: bool, dir: &str, rendering: &mut Rendering) -> Result<()> {
    let before = rendering.files.len();
    for entry in context.select(".", &[])?.into_iter().flat_map(|selected| selected.entries) {
        if !everything && DEFINITION.iter().any(|name| entry.path.as_os_str() == *name) {
            continue;
        }
        let from = context.place(&entry.path);
        let (bytes, mode) = match &entry.kind {
            // They are there with what is in them.
            EntryKind::Directory => continue,
            EntryKind::File => (fs::read(&from).bad_input(|| format!("cannot read `{}`", from.display()))?, entry.mode),
            EntryKind::Symlink(target) => (target.as_os_str().as_bytes().to_vec(), LINK),
            EntryKind::Other => {
                let message = format!("`{}` is neither a file, a directory nor a link", from.display());
                return Err(Error::bad_input(message).hint("leave it out with .dockerignore"));
            }
        };
        let path = entry.path.to_str().ok_or_else(|| {
            Error::bad_input(format!("the name of `{}` is not UTF-8", from.display())).hint("name it otherwise")
        })?;
        rendering.files.insert(format!("{dir}/{path}"), Rendered { bytes, mode, secret: false });
    }
    if rendering.files.len() == before {
        rendering.text(format!("{dir}/{}", EMPTY.0), EMPTY.1.into());
    }
    Ok(())
}
