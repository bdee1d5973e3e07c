//! Dockerfile text to typed instructions with spans, and from there to steps: expanded, checked, ready to be keyed.
//!
//! Three calls, each of which needs more to be known than the one before:
//! [`parse`] needs the text alone; [`resolve`] the build arguments (it expands the FROM lines and finds out which
//! stages and which other images the target needs: the edges of the graph); [`lower`] the configuration of each base.
//!
//! Semantics are those of BuildKit's frontend, where they differ from the older builder's; in particular, of an ENV
//! and an ARG with the same name the later one wins.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::diag::{Diagnostics, SourceFile};
use crate::image::config::{ImageConfig, Platform};
use crate::suggest;

mod arguments;
pub mod ast;
pub(crate) mod duration;
mod expand;
mod flags;
mod history;
mod lines;
mod lower;
mod mount;
mod parse;
mod pattern;
mod platform;
mod resolve;
mod source;
pub mod step;
#[cfg(test)]
mod tests;
mod unsupported;
mod words;

use ast::Dockerfile;
pub use resolve::{PROXIES, platform_args};
use step::{Entitlement, LoweredStage, StageBase};

/// What the command line and the definition say about a build; everything that expansion may look at.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// Name or number of a stage; the last one when there is none.
    pub target: Option<String>,
    pub build_args: BTreeMap<String, String>,
    pub platform: Platform,
    /// Names that mean something that was given from outside (`--build-context`), whatever stage or image has them too.
    pub contexts: BTreeSet<String>,
}

/// A name of a context or an image as the two are compared: Docker Hub's short forms are one name.
pub fn context_name(name: &str) -> &str {
    let name = name.strip_prefix("docker.io/").unwrap_or(name);
    let name = name.strip_prefix("library/").unwrap_or(name);
    name.strip_suffix(":latest").unwrap_or(name)
}

impl Inputs {
    /// The context that a name in the Dockerfile means.
    fn context(&self, name: &str) -> Option<&str> {
        let bare = context_name(name);
        // Names of stages are compared without regard to case.
        let same = |known: &&String| known.as_str() == bare || known.eq_ignore_ascii_case(name);
        self.contexts.iter().find(same).map(String::as_str)
    }
}

/// A Dockerfile with its FROM lines expanded, reduced to what the target needs.
#[derive(Clone, Debug)]
pub struct Resolved {
    pub dockerfile: Arc<Dockerfile>,
    pub inputs: Inputs,
    /// In an order in which each stage comes after those it needs; the last one is the target.
    pub stages: Vec<ResolvedStage>,
    /// Names of images outside the file: in FROM, COPY --from and RUN --mount=from=, each once, in order.
    pub images: Vec<String>,
    /// Values that `ARG <name>` without a default takes over within a stage: the predefined ones about platforms, and
    /// the ARG lines before the first FROM.
    pub globals: BTreeMap<String, String>,
    /// Build arguments that no ARG of the file declares: most likely misspelt.
    pub unused_build_args: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct ResolvedStage {
    pub index: usize,
    pub base: StageBase,
    /// As `FROM --platform` asks for it, expanded; None is the target's.
    pub platform: Option<Platform>,
}

/// All problems of the text at once.
pub fn parse(file: &Arc<SourceFile>) -> Result<Dockerfile, Diagnostics> {
    parse::file(file)
}

pub fn resolve(dockerfile: &Arc<Dockerfile>, inputs: &Inputs) -> Result<Resolved, Diagnostics> {
    resolve::resolve(dockerfile, inputs)
}

/// `bases` has the configuration of every name in `resolved.images` that is used as a FROM.
pub fn lower(resolved: &Resolved, bases: &BTreeMap<String, ImageConfig>) -> Result<Vec<LoweredStage>, Diagnostics> {
    let (stages, problems) = lower::lower(resolved, &|name| bases.get(name).cloned());
    if problems.has_errors() { Err(problems) } else { Ok(stages) }
}

/// `os/architecture/variant` as people write it, of an architecture that there is; what is missing is this machine's.
pub fn platform(text: &str) -> Option<Platform> {
    platform::parse(text, &Platform::host()).filter(|found| platform::is_architecture(&found.architecture))
}

/// One that images are built for, or how it should be written.
pub fn built_for(text: &str) -> Result<Platform, &'static str> {
    let found = platform(text.trim()).filter(|platform| platform.os == "linux");
    found.ok_or("write it as linux/amd64, linux/arm64 or linux/arm/v7")
}

/// Flags that parse but that the embedded engine does not carry out yet, by name and line.
pub fn unsupported(resolved: &Resolved) -> Diagnostics {
    unsupported::check(resolved)
}

/// RUN instructions that ask for what is not granted, by line. Bases need not be known: variables that only they set
/// count as empty.
pub fn not_granted(resolved: &Resolved, granted: &BTreeSet<Entitlement>) -> Diagnostics {
    // Hardly any Dockerfile asks for anything: the others need not be expanded to know it.
    match unsupported::may_ask(resolved) {
        true => unsupported::not_granted(resolved, &on_unknown_bases(resolved), granted),
        false => Diagnostics::default(),
    }
}

/// The same once the bases are known: this sees what their ONBUILD adds.
pub fn steps_not_granted(resolved: &Resolved, stages: &[LoweredStage], granted: &BTreeSet<Entitlement>) -> Diagnostics {
    unsupported::not_granted(resolved, stages, granted)
}

pub fn on_unknown_bases(resolved: &Resolved) -> Vec<LoweredStage> {
    let unknown = ImageConfig::new(&resolved.inputs.platform);
    lower::lower(resolved, &|_| Some(unknown.clone())).0
}

/// A hint that names what was probably meant.
fn nearest(written: &str, known: impl Iterator<Item = String>) -> Option<String> {
    let known: Vec<String> = known.collect();
    suggest::near(written, known.iter().map(String::as_str))
}

/// At most `longest` characters.
fn shorten(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some(_) => text.chars().take(longest.saturating_sub(1)).chain(['…']).collect(),
        None => text.to_owned(),
    }
}
