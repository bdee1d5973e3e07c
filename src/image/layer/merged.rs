//! A stack of layers as one tar, without mounting anything: all of them, which is what a container would see, or those
//! above others, which is one layer in place of several.

use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::FileType;

use super::diff::Emitter;
use super::stack::{LayerStack, StackDir};
use super::standin::Seen;
use super::sys::{self, OsContext, show};
use super::{Limits, OPAQUE_MARKER, WHITEOUT_PREFIX};
use crate::error::{Error, Result};
use crate::event::Cancel;

/// Writes the merged tree as one deterministic tar; gives the number of entries. What it deletes or hides of the layers
/// `below` it is marked. Hard links stay links where both names come from the same layer.
pub fn write_merged(
    stack: &LayerStack,
    below: &LayerStack,
    out: &mut dyn Write,
    source_date_epoch: Option<i64>,
    limits: &Limits,
    cancel: &Cancel,
) -> Result<u64> {
    let mut emit = Emitter::new(out, Path::new("/"), source_date_epoch, limits, Some(cancel));
    if let Some(root) = stack.root() {
        directory(&mut emit, &root, below.root().as_ref(), &mut Vec::new(), 0)?;
    }
    emit.finish()
}

/// `below` is what shines through here.
fn directory<W: Write>(
    emit: &mut Emitter<'_, W>,
    dir: &StackDir,
    below: Option<&StackDir>,
    path: &mut Vec<u8>,
    depth: usize,
) -> Result<()> {
    emit.check_depth(path, depth)?;
    let all = dir.names_and_deletions()?;
    for name in all.iter().filter(|(_, found)| found.is_none()).map(|(name, _)| name) {
        if below.map(|below| below.lookup(name)).transpose()?.flatten().is_some() {
            emit.marker(&[path.as_slice(), WHITEOUT_PREFIX, name].concat())?;
        }
    }
    for (name, found) in all.into_iter().filter_map(|(name, found)| Some((name, found?))) {
        match sys::file_type(&found.stat) {
            FileType::Socket => {}
            FileType::Directory => {
                let xattrs = sys::xattrs(&found.path)
                    .os(&found.path, || format!("cannot read `/{}{}`", show(path), show(&name)))?;
                let lower = below.map(|below| below.open(&name)).transpose()?.flatten();
                let (child, hides) = dir.open_and_hide(&name)?;
                let length = path.len();
                path.extend_from_slice(&name);
                path.push(b'/');
                emit.directory(path, &found.stat, &Seen::of(&found.stat, xattrs))?;
                if let Some(lower) = lower.as_ref().filter(|_| hides)
                    && lower.has_visible()?
                {
                    emit.marker(&[path.as_slice(), OPAQUE_MARKER].concat())?;
                }
                if let Some(child) = child {
                    directory(emit, &child, lower.as_ref().filter(|_| !hides), path, depth + 1)?;
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
