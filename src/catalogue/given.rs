//! Definitions that are in no file: what another tool's tree is as a catalogue, when it is only looked at.

use std::path::PathBuf;
use std::sync::Arc;

use crate::context::Parts;
use crate::diag::SourceFile;

use super::definition::Folder;

/// What a folder below `images` would hold.
#[derive(Clone, Debug)]
pub struct Given {
    pub name: String,
    /// The directory that its context is known by.
    pub dir: PathBuf,
    /// What would be `image.toml`.
    pub definition: Arc<SourceFile>,
    /// A plain Dockerfile.
    pub dockerfile: Arc<SourceFile>,
    pub parts: Parts,
}

impl Given {
    pub(super) fn folder(self: &Arc<Given>) -> Folder {
        let (name, dir) = (self.name.clone(), self.dir.clone());
        Folder { name, dir, toml: true, template: false, dockerfile: true, given: Some(self.clone()) }
    }
}
