//! Layers: what an overlay's upper directory says as a tar, and a tar as an overlay's lower directory.
//!
//! In a directory a deletion is a character device 0:0 and a replaced directory carries `trusted.overlay.opaque`, or
//! `user.overlay.opaque` where a user wrote it (overlayfs); in a tar they are the entries `.wh.NAME` and `.wh..wh..opq` (OCI image spec, layer.md).
//!
//! - [`stack`]: the merged view of a list of lower directories, without mounting anything
//! - [`diff`]: an upper directory to a deterministic tar; [`write`]: the tar format going out
//! - [`unpack`]: a tar to a lower directory; [`read`]: the tar format coming in, [`decompress`] before it
//! - [`changes`]: what a layer does to the files below it
//! - [`merged`]: a whole stack as one tar
//! - [`standin`]: what an ordinary user cannot make on a disk, kept otherwise
//! - [`compare`]: two merged views side by side; `compiled`: what counts of programs there
//! - [`compress`]: gzip and zstd in parallel, the same bytes whatever the number of threads

use crate::event::Cancel;

pub mod changes;
pub mod compare;
mod compiled;
pub mod compress;
pub mod decompress;
pub mod diff;
pub mod hash;
pub mod merged;
pub mod read;
pub mod stack;
pub(crate) mod standin;
pub(crate) mod sys;
#[cfg(test)]
mod tests;
pub mod unpack;
pub mod write;

/// Prefix of an entry that says: this name of the layers below is deleted.
pub const WHITEOUT_PREFIX: &[u8] = b".wh.";
/// Entry that says: nothing of the layers below is visible in this directory.
pub const OPAQUE_MARKER: &[u8] = b".wh..wh..opq";
/// Other names of this kind belong to AUFS's own records and mean nothing elsewhere.
pub const AUFS_PREFIX: &[u8] = b".wh..wh.";

/// What the names of overlayfs's own records begin with: those of root's overlays, and those of a user's. The others
/// are attributes as any of the image's own.
pub(crate) fn overlay_prefix() -> &'static [u8] {
    if crate::userns::current().is_initial() { b"trusted.overlay." } else { b"user.overlay." }
}

/// Mark of an opaque directory.
pub(crate) fn opaque_xattr() -> &'static [u8] {
    if crate::userns::current().is_initial() { b"trusted.overlay.opaque" } else { b"user.overlay.opaque" }
}

/// Attributes that belong to the machine and not to the files: overlayfs's records, stand-ins, SELinux labels.
pub(crate) fn is_private_xattr(name: &[u8]) -> bool {
    let of_ours: [&[u8]; 3] = [b"trusted.overlay.", b"user.overlay.", b"user.kollage."];
    of_ours.iter().any(|prefix| name.starts_with(prefix)) || name == b"security.selinux"
}

/// For threads that walk trees: directories are walked one within the other, as deep as [`Limits::max_depth`].
pub const WALKING_STACK: usize = 32 << 20;

/// What a layer may hold, so that a small file can't fill the machine. Generous: no honest image comes near.
#[derive(Clone, Debug)]
pub struct Limits {
    pub max_entries: u64,
    /// Apparent size of one file.
    pub max_file_size: u64,
    /// Apparent size of all files together.
    pub max_total_size: u64,
    /// Of one extended header: long names, attributes.
    pub max_header_size: u64,
    /// Directories within directories.
    pub max_depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_entries: 8_000_000,
            max_file_size: 64 << 30,
            max_total_size: 512 << 30,
            max_header_size: 2 << 20,
            max_depth: 256,
        }
    }
}

/// `None` never stops.
pub(crate) fn check(cancel: Option<&Cancel>) -> crate::error::Result<()> {
    cancel.map_or(Ok(()), Cancel::check)
}
