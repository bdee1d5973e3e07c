//! Pushing, as `kollage push`, `kollage build --push` and `kollage start push` do it: where names go, what is asked before
//! anything is done, the release file, and what is told in the end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::catalogue::Settings;
use crate::cli::App;
use crate::cli::args::{Compression, GitInfo, ImageFormat, Pushing, Registries};
use crate::cli::machine;
use crate::error::{Context as _, Error, Result};
use crate::event::{Cancel, Sink};
use crate::fetch;
use crate::image::digest::Digest;
use crate::image::store::{Codec, Store};
use crate::registry::form::{Form, Types};
use crate::registry::push::{self, Image, Move, Outcome};
use crate::registry::release::Release;
use crate::registry::{self, Caller, Reference};
use crate::report::{files, human};

/// What is settled before there is anything to push.
pub struct Publisher {
    pub options: registry::Options,
    form: Form,
    when: Move,
    release_file: PathBuf,
}

/// An image that the store has.
pub struct Target {
    /// What it is called while it goes.
    pub node: Arc<str>,
    pub name: Reference,
    pub manifest: Digest,
}

impl Publisher {
    /// `root`: of the catalogue, whose repository is written on images.
    pub fn new(
        app: &App,
        args: &Pushing,
        registries: &Registries,
        settings: &Settings,
        store: &Store,
        root: Option<&Path>,
    ) -> Result<Publisher> {
        let mut options = machine::registry_options(&app.env, registries, settings.build.retries)?;
        options.parallel_uploads = args.push_jobs.unwrap_or(options.parallel_uploads);
        options.chunk = args.push_chunk;
        let release_file = match &args.release_file {
            Some(file) => file.clone(),
            None => {
                let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
                store.root().join("releases").join(format!("{now}-{}.json", std::process::id()))
            }
        };
        let mut form = Form {
            types: match args.format {
                ImageFormat::Oci => Types::Oci,
                ImageFormat::Docker => Types::Docker,
            },
            codec: args.compression.map(|compression| match compression {
                Compression::Gzip => Codec::Gzip,
                Compression::Zstd => Codec::Zstd,
            }),
            ..Form::default()
        };
        if let Some(place) = args.git_info {
            let info = git_info(app, root)?;
            if place != GitInfo::Labels {
                form.annotations.extend(info.clone());
            }
            if place != GitInfo::Annotations {
                form.labels.extend(info);
            }
        }
        for text in &args.annotations {
            match text.split_once('=') {
                Some((name, value)) if !name.is_empty() => {
                    form.annotations.insert(name.to_owned(), value.to_owned());
                }
                _ => {
                    return Err(Error::bad_input(format!("`--annotation {text}` is not of the form NAME=VALUE")));
                }
            }
        }
        form.check()?;
        let when = if args.push_each { Move::Each } else { Move::Together };
        Ok(Publisher { options, form, when, release_file })
    }

    /// Of the manifests that it writes.
    pub fn annotations(&self) -> &BTreeMap<String, String> {
        &self.form.annotations
    }

    /// Whether all of them may be pushed, by the operator's policy and by the registries.
    pub fn check(&self, settings: &Settings, names: &[Reference], sink: &dyn Sink, cancel: &Cancel) -> Result<()> {
        allowed(settings, names)?;
        let node: Arc<str> = Arc::from("push");
        push::check(names, &self.options, &Caller { node: &node, sink, cancel })
    }

    /// Lines for a person about what was pushed, and why not all of it was.
    pub fn push(
        &self,
        store: &Store,
        targets: &[Target],
        sink: &dyn Sink,
        cancel: &Cancel,
    ) -> (Vec<String>, Option<Error>) {
        let images: Result<Vec<Image>> = targets
            .iter()
            .map(|target| self.form.prepare(store, &target.node, &target.name, &target.manifest, cancel))
            .collect();
        match images {
            Ok(images) => self.told(&self.send(&images, sink, cancel)),
            Err(error) => (Vec::new(), Some(error)),
        }
    }

    pub fn send(&self, images: &[Image], sink: &dyn Sink, cancel: &Cancel) -> Outcome {
        let keep = |release: &Release| {
            if let Some(dir) = self.release_file.parent().filter(|dir| !dir.as_os_str().is_empty()) {
                std::fs::create_dir_all(dir).failed(|| format!("cannot make {}", dir.display()))?;
            }
            files::write(&self.release_file, &release.to_bytes()?)
        };
        push::push(images, self.when, &self.options, sink, cancel, &keep)
    }

    pub fn told(&self, outcome: &Outcome) -> (Vec<String>, Option<Error>) {
        let moved = outcome.tags.iter().filter(|tag| tag.old.as_ref() != Some(&tag.new)).count();
        let mut lines = Vec::new();
        if !outcome.tags.is_empty() {
            let images = human::count(outcome.tags.len(), "image");
            let names = match moved {
                0 => "all names led there already".to_owned(),
                n => format!("{} moved", human::count(n, "name")),
            };
            lines.push(format!("pushed {images}: {}; {names}", outcome.tally));
        } else if outcome.tally.sent + outcome.tally.mounted > 0 {
            lines.push(format!("not pushed, no name was moved: {}", outcome.tally));
        }
        if moved > 0 {
            lines.push(format!("`kollage push --rollback {}` takes that back", self.release_file.display()));
        }
        (lines, outcome.error.clone())
    }
}

/// Where a name of the store is pushed to. A name without a registry would be Docker Hub's, which is not guessed.
pub fn target(name: &str, registry: Option<&str>) -> Result<Reference> {
    if Reference::names_registry(name) {
        return Ok(name.parse::<Reference>()?.with_default_tag());
    }
    let Some(registry) = registry else {
        return Err(Error::bad_input(format!("{name} names no registry to push it to"))
            .hint("name one with `--registry HOST[:PORT]`, or in front of the name; Docker Hub is docker.io"));
    };
    Ok(format!("{}/{name}", registry.trim_end_matches('/')).parse::<Reference>()?.with_default_tag())
}

/// By the operator's policy.
pub fn allowed(settings: &Settings, names: &[Reference]) -> Result<()> {
    match names.iter().find(|name| !settings.policy.allows_registry(name.registry())) {
        None => Ok(()),
        Some(name) => Err(Error::bad_input(format!("the registry {} is not allowed on this machine", name.registry()))
            .hint(format!("[policy] in {} says which are", settings.policy_file("registries")))),
    }
}

/// The repository and commit of the catalogue, by OCI's names for them.
fn git_info(app: &App, root: Option<&Path>) -> Result<BTreeMap<String, String>> {
    let Some(root) = root else {
        return Err(
            Error::bad_input("`--git-info` is about a catalogue, and there is none here").hint("name it with `-C DIR`")
        );
    };
    let path = app.env.path.clone().unwrap_or(fetch::Options::default().path);
    let about = fetch::about(root, &path)?;
    let mut info = BTreeMap::new();
    info.insert("org.opencontainers.image.revision".to_owned(), about.revision);
    if let Some(source) = about.source {
        info.insert("org.opencontainers.image.source".to_owned(), source);
    }
    Ok(info)
}
