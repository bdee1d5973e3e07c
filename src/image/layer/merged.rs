//! A whole stack of layers as one tar: what a container would see, without deletions and without mounting anything.

use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::FileType;

use super::Limits;
use super::diff::Emitter;
use super::stack::{LayerStack, StackDir};
use super::standin::Seen;
use super::sys::{self, OsContext, show};
use crate::error::{Error, Result};
use crate::event::Cancel;

/// Writes the merged tree as one deterministic tar; gives the number of entries. Hard links stay links where both
/// names come from the same layer.
pub fn write_merged(
    stack: &LayerStack,
    out: &mut dyn Write,
    source_date_epoch: Option<i64>,
    limits: &Limits,
    cancel: &Cancel,
) -> Result<u64> {
    let mut emit = Emitter::new(out, Path::new("/"), source_date_epoch, limits, Some(cancel));
    if let Some(root) = stack.root() {
        directory(&mut emit, &root, &mut Vec::new(), 0)?;
    }
    emit.finish()
}

fn directory<W: Write>(emit: &mut Emitter<'_, W>, dir: &StackDir, path: &mut Vec<u8>, depth: usize) -> Result<()> {
    emit.check_depth(path, depth)?;
    for (name, found) in dir.entries()? {
        match sys::file_type(&found.stat) {
            FileType::Socket => {}
            FileType::Directory => {
                let xattrs = sys::xattrs(&found.path)
                    .os(&found.path, || format!("cannot read `/{}{}`", show(path), show(&name)))?;
                let length = path.len();
                path.extend_from_slice(&name);
                path.push(b'/');
                emit.directory(path, &found.stat, &Seen::of(&found.stat, xattrs))?;
                if let Some(child) = dir.open(&name)? {
                    directory(emit, &child, path, depth + 1)?;
                }
                path.truncate(length);
            }
            _ => {
                let parent = found.path.parent().ok_or_else(|| Error::failed("a layer without a directory"))?;
                let parent = sys::open_dir(parent).os(parent, || format!("cannot open `{}`", parent.display()))?;
                emit.file(parent.as_fd(), path, &name, &found.stat)?;
            }
        }
    }
    Ok(())
}
