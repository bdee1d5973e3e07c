//! What ADD takes from elsewhere, brought to where a step can copy it from: exactly what was pinned.

use std::path::Path;

use super::helper::spec::{CopyItem, RawPath};
use super::{EmbeddedEngine, caller, request};
use crate::context::Context;
use crate::dockerfile::step::{Copy, Source};
use crate::engine::portable::{Bring, Brought};
use crate::engine::{BuildJob, Ctl};
use crate::error::{Error, Result};
use crate::fetch::{self, Pin, Remote, address};

/// Of one source; `work` is a directory of the step's own.
pub fn items(
    engine: &EmbeddedEngine,
    job: &BuildJob,
    step: &Copy,
    source: &Source,
    work: &Path,
    ctl: &Ctl<'_>,
) -> Result<Vec<CopyItem>> {
    let Some(remote) = step.remote(source) else { return Ok(Vec::new()) };
    let pin = job.pins.get(&remote);
    let how = How { keep_git_dir: step.keep_git_dir, unpack: step.unpack == Some(true), excludes: &step.excludes };
    let items = bring(engine, &remote, pin, &how, None, &free_name(work), ctl)?;
    ctl.sink.event(crate::event::Event::BackgroundFinished { node: ctl.node.clone() });
    Ok(items)
}

/// For an engine that copies it itself.
pub struct Elsewhere<'a> {
    pub own: &'a EmbeddedEngine,
    pub job: &'a BuildJob,
    /// A directory of the node's own.
    pub work: &'a Path,
    pub ctl: &'a Ctl<'a>,
}

impl Bring for Elsewhere<'_> {
    fn bring(&self, step: &Copy, remote: &Remote) -> Result<Brought> {
        let Elsewhere { own, job, work, ctl } = self;
        let brought = match (remote, job.pins.get(remote)) {
            (Remote::File(file), Some(Pin::File { digest, .. })) => {
                let fetched = own.fetcher.file(file, digest, &caller(ctl))?;
                let name = address::file_name(&file.url);
                Brought::File { path: fetched.path, name, modified: fetched.modified.unwrap_or(0) }
            }
            (Remote::Git(git), Some(pin @ Pin::Commit { .. })) => {
                let into = free_name(work);
                own.fetcher_for(remote)?.checkout(git, pin, step.keep_git_dir.into(), &into, &caller(ctl))?;
                Brought::Tree(fetch::tree(&into))
            }
            _ => return Err(Error::failed(format!("{} was not asked for before it is needed", remote.shown()))),
        };
        ctl.sink.event(crate::event::Event::BackgroundFinished { node: ctl.node.clone() });
        Ok(brought)
    }
}

/// Of a named context; Docker calls what a web address gives `context`.
pub fn context(
    engine: &EmbeddedEngine,
    remote: &Remote,
    pin: Option<&Pin>,
    work: &Path,
    ctl: &Ctl<'_>,
) -> Result<Vec<CopyItem>> {
    let keep_git_dir = matches!(remote, Remote::Git(git) if git.keep_git_dir == Some(true));
    let how = How { keep_git_dir, unpack: false, excludes: &[] };
    bring(engine, remote, pin, &how, Some("context"), &free_name(work), ctl)
}

struct How<'a> {
    keep_git_dir: bool,
    unpack: bool,
    excludes: &'a [String],
}

fn bring(
    engine: &EmbeddedEngine,
    remote: &Remote,
    pin: Option<&Pin>,
    how: &How<'_>,
    name: Option<&str>,
    into: &Path,
    ctl: &Ctl<'_>,
) -> Result<Vec<CopyItem>> {
    Ok(match (remote, pin) {
        (Remote::File(file), Some(Pin::File { digest, .. })) => {
            let fetched = engine.fetcher.file(file, digest, &caller(ctl))?;
            vec![CopyItem::File {
                path: RawPath(fetched.path),
                name: name.map_or_else(|| address::file_name(&file.url), str::to_owned),
                // Docker's choice where a server doesn't say.
                modified: fetched.modified.unwrap_or(0),
                unpack: how.unpack,
            }]
        }
        (Remote::Git(git), Some(pin @ Pin::Commit { .. })) => {
            engine.fetcher_for(remote)?.checkout(git, pin, how.keep_git_dir.into(), into, &caller(ctl))?;
            let tree = fetch::tree(into);
            let selected = Context::whole(&tree).select(".", how.excludes)?;
            request::items_of(&tree, selected).map(CopyItem::Context).collect()
        }
        _ => return Err(Error::failed(format!("{} was not asked for before it is needed", remote.shown()))),
    })
}

/// Several repositories may go into one instruction.
fn free_name(work: &Path) -> std::path::PathBuf {
    let name = |n: usize| work.join(format!("repository-{n}"));
    (0..).map(name).find(|path| !path.exists()).unwrap_or_else(|| name(0))
}
