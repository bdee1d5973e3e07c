//! A job in the form that engines other than our own take: the text of a Dockerfile, a tar of the files that it
//! copies, and arguments.
//!
//! The text is the definition's own, line for line, but for what would mean something else there:
//!
//! - FROM, COPY `--from` and mounts name images as the other engine knows them, by its local references
//! - COPY and ADD of files of the context name a place in the tar where exactly the selected files are: patterns,
//!   .dockerignore, links, `--exclude`, `--parents` and `--chmod` have been applied when it is made. Here-documents and
//!   what ADD takes from elsewhere (as it was pinned) are files of the tar as well.
//! - RUN with a here-document becomes the command that it stands for
//! - stages that the target doesn't need are left out
//!
//! So an old engine builds what only a newer frontend understands, and an engine sees nothing but what a key is made of.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::dockerfile::step::Copy;
use crate::engine::{BuildJob, Built};
use crate::error::Result;
use crate::fetch::Remote;

mod features;
mod files;
#[cfg(test)]
mod tests;
mod text;

pub use features::{Feature, Use, uses};
pub use files::Files;
pub use text::declared;

/// The Dockerfile's name in the tar. No file of the context has it: those are all in directories of their own.
pub const DOCKERFILE: &str = "Dockerfile";

#[derive(Debug)]
pub struct Portable {
    pub dockerfile: String,
    pub files: Files,
    /// Those that the Dockerfile declares, the predefined ones of BuildKit included, and proxies.
    pub build_args: BTreeMap<String, String>,
    /// The instructions of the text, in its order.
    pub instructions: Vec<Told>,
}

/// What a person calls an instruction that another engine carries out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// One-based line, in the text and in the definition.
    pub line: usize,
    /// Place among the stages of the text; None before the first FROM.
    pub stage: Option<usize>,
    pub title: String,
    /// RUN, COPY, ADD and WORKDIR.
    pub touches_files: bool,
}

/// What comes from elsewhere, for a step that wants it as it was pinned.
pub trait Bring {
    fn bring(&self, copy: &Copy, remote: &Remote) -> Result<Brought>;
}

pub enum Brought {
    File {
        path: PathBuf,
        name: String,
        /// Seconds since 1970.
        modified: i64,
    },
    /// A directory with the files of a repository.
    Tree(PathBuf),
}

/// `refer` gives the engine's own reference of an image that the Dockerfile names.
pub fn portable(job: &BuildJob, refer: &dyn Fn(&str, &Built) -> Result<String>, bring: &dyn Bring) -> Result<Portable> {
    let mut files = Files::new(job);
    let (dockerfile, instructions) = text::Text::new(job, refer, bring, &mut files)?.finish();
    Ok(Portable { dockerfile, files, build_args: text::build_args(job), instructions })
}
