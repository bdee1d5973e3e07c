//! Pushing, as `kollage push`, `kollage build --push` and `kollage start push` do it: where names go, what is asked before
//! anything is done, the release file, and what is told in the end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;

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
use crate::registry::push::{self, Image, Move, Outcome, Tally};
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
        self.push_after(Tally::default(), store, targets, sink, cancel)
    }

    /// The same after blobs of the images were sent.
    pub fn push_after(
        &self,
        ahead: Tally,
        store: &Store,
        targets: &[Target],
        sink: &dyn Sink,
        cancel: &Cancel,
    ) -> (Vec<String>, Option<Error>) {
        let prepared = kin(store).and_then(|kin| {
            let images = targets.iter().map(|target| self.prepare(store, &kin, target, cancel));
            self.form.together(store, images.collect::<Result<_>>()?)
        });
        match prepared {
            Ok(images) => {
                let outcome = self.send(&images, sink, cancel);
                self.told(&Outcome { tally: outcome.tally.after(ahead), ..outcome })
            }
            Err(error) => (Vec::new(), Some(error)),
        }
    }

    /// Sends blobs of images as they are built.
    pub fn ahead(
        &self,
        store: &Store,
        coming: UnboundedReceiver<Target>,
        sink: &dyn Sink,
        cancel: &Cancel,
    ) -> (Tally, Result<()>) {
        match kin(store) {
            Ok(kin) => {
                let prepare = |target: Target| self.prepare(store, &kin, &target, cancel);
                push::ahead(coming, &prepare, &self.options, sink, cancel)
            }
            Err(error) => (Tally::default(), Err(error)),
        }
    }

    fn prepare(
        &self,
        store: &Store,
        kin: &BTreeMap<Digest, String>,
        target: &Target,
        cancel: &Cancel,
    ) -> Result<Image> {
        let mut image = self.form.prepare(store, &target.node, &target.name, &target.manifest, cancel)?;
        for blob in &mut image.blobs {
            blob.near = kin.get(&blob.digest).and_then(|name| beside(&target.name, name));
        }
        Ok(image)
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
        } else if outcome.error.is_some() {
            lines.push(format!("no name was moved: {}", outcome.tally));
        }
        if moved > 0 {
            lines.push(format!("`kollage push --rollback {}` takes that back", self.release_file.display()));
        }
        (lines, outcome.error.clone())
    }
}

/// The smallest image of the store that has a layer, by the layer's blob: where that image was pushed to before, the
/// blob is.
fn kin(store: &Store) -> Result<BTreeMap<Digest, String>> {
    let mut images = Vec::new();
    for known in store.refs()? {
        // One that is damaged is of no help, and no harm.
        let Ok(manifest) = store.manifest(&known.manifest) else { continue };
        images.push((manifest.layers, known.name));
    }
    images.sort_by_key(|(layers, _)| layers.len());
    let mut kin = BTreeMap::new();
    for (layers, name) in images {
        for layer in layers {
            kin.entry(layer.digest).or_insert_with(|| name.clone());
        }
    }
    Ok(kin)
}

/// The repository of an image of the store beside another that is pushed: what comes before the name is the same.
fn beside(pushed: &Reference, name: &str) -> Option<String> {
    let kin: Reference = name.parse().ok()?;
    if Reference::names_registry(name) {
        return (kin.registry() == pushed.registry()).then(|| kin.repository().to_owned());
    }
    let (namespace, last) = name.rsplit_once('/')?;
    let last = last.split(':').next()?;
    let (before, _) = pushed.repository().rsplit_once('/')?;
    before.ends_with(namespace).then(|| format!("{before}/{last}"))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn names_go_where_they_are_told_to_and_nowhere_else() {
        let to = |name: &str, registry: Option<&str>| target(name, registry).map(|name| name.to_string());
        for (name, registry, wanted) in [
            ("kollage/a:1", Some("r.org:5000"), "r.org:5000/kollage/a:1"),
            ("kollage/a", Some("r.org/team/"), "r.org/team/kollage/a:latest"),
            ("kollage/a:1", Some("docker.io"), "docker.io/kollage/a:1"),
            ("own.org/a:1", Some("r.org"), "own.org/a:1"),
            ("localhost/a:1", None, "localhost/a:1"),
        ] {
            assert_eq!(to(name, registry).unwrap(), wanted);
        }
        let error = to("kollage/a:1", None).unwrap_err();
        assert_eq!(error.kind(), Kind::BadInput);
        assert!(error.hint_text().unwrap().contains("--registry"));
    }

    #[test]
    fn the_operators_registries_and_no_others() {
        let mut settings = Settings::default();
        settings.policy.registries = Some(vec!["r.org".to_owned()]);
        let name = |text: &str| -> Vec<Reference> { vec![text.parse().unwrap()] };
        allowed(&settings, &name("r.org/a")).unwrap();
        let error = allowed(&settings, &name("r.org:5000/a")).unwrap_err();
        assert_eq!(
            (error.kind(), error.message()),
            (Kind::BadInput, "the registry r.org:5000 is not allowed on this machine")
        );
        assert!(error.hint_text().unwrap().contains("/etc/kollage/kollage.toml"));
    }

    #[test]
    fn images_beside_each_other() {
        let beside = |pushed: &str, name: &str| beside(&pushed.parse().unwrap(), name);
        for (pushed, name, wanted) in [
            ("r.org/kollage/a:1", "kollage/base:1", Some("kollage/base")),
            ("r.org/team/kollage/a:1", "kollage/base:1", Some("team/kollage/base")),
            ("r.org/other/a:1", "kollage/base:1", None),
            ("r.org/kollage/a:1", "r.org/team/b:1", Some("team/b")),
            ("r.org/kollage/a:1", "o.org/team/b:1", None),
            ("r.org/a:1", "one:latest", None),
        ] {
            assert_eq!(beside(pushed, name).as_deref(), wanted, "{pushed} {name}");
        }
    }
}
