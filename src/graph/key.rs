//! Keys: what a node or a step depends on, and nothing else.
//!
//! | input | node key | step key | how it is taken |
//! | --- | --- | --- | --- |
//! | version of this table | yes | yes | `SCHEMA` |
//! | the parent | result id: layers and configuration, without dates and history | chain id: layers below the step; nothing for COPY and ADD `--link`, which don't look at them | never the parent's definition, so that a parent rebuilt to equal bytes stops the cascade |
//! | other images and stages (COPY --from, RUN --mount=from) | result id | chain id | the stage's own steps stand in the node key as well |
//! | instructions | all stages that the target needs | the step's own | after template, ARG and ENV expansion, without comments and layout |
//! | environment of RUN | yes | yes | ENV, and the ARGs in scope that have a value |
//! | configuration (ENV, LABEL, CMD, MAINTAINER, …) | yes | no | the stage's configuration at its end, and what the history says of the way to it |
//! | what the command line puts around RUN: no network, hosts, limits, size of /dev/shm | yes | RUN | only where it isn't as always |
//! | files of the context | yes | yes | names, kinds, permission bits, contents; no times; only what COPY, ADD and bind mounts select |
//! | web addresses and repositories (ADD) | yes | yes | what they gave when the build asked: a digest and a time, a commit; never a login |
//! | secrets, ssh | id and target | id and target | never a value |
//! | cache mounts | id and options | id and options | never their content |
//! | platform | yes | yes | |
//! | `--squash` | yes | no | only where it is given |
//! | SOURCE_DATE_EPOCH | yes | yes | it clamps the times in a layer |
//! | labels that the definition adds, checks | yes | no | |
//! | kollage.lock | no | no | what it pins counts where it is used: a base's digest, a remote's pin, lines of the Dockerfile |
//! | layer format | yes | yes | `SCHEMA`; the codec only names another form of the same layer |
//!
//! Deliberately outside: the host's CA bundle and proxy (lent, never kept), names and tags, build dates, the engine,
//! the number of jobs, and everything that only changes what is shown.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::dockerfile::step::{Action, Copy, From, LoweredStage, Mount, MountKind, Run, Source, StageBase, Step};
use crate::engine::surroundings::Surroundings;
use crate::engine::{BaseSource, Check};
use crate::fetch::{Remote, address};
use crate::image::config::Platform;
use crate::image::digest::{Key, KeyHasher};

/// Raised whenever the same inputs would give other bytes than before.
const SCHEMA: &str = "kollage 2";

/// Digests of the files that one step reads: of the context by the pattern that selects them, from elsewhere by their
/// address.
pub type Content = BTreeMap<String, Key>;

/// Where a step finds files besides those below it: chain ids of stages and images.
pub struct Elsewhere<'a> {
    pub stage: &'a dyn Fn(usize) -> Option<Key>,
    pub image: &'a dyn Fn(&str) -> Option<Key>,
}

/// Key of one step: `chain` is the file tree that it starts from.
pub fn step_key(
    chain: &Key,
    action: &Action,
    content: &Content,
    elsewhere: &Elsewhere<'_>,
    surroundings: &Surroundings,
    platform: &Platform,
    source_date_epoch: Option<i64>,
) -> Key {
    let mut hasher = KeyHasher::new(SCHEMA);
    hasher.part("kind", "step");
    match action {
        Action::Copy(copy) if copy.stands_alone() => hasher.part("alone", ""),
        _ => hasher.part("chain", chain.as_str()),
    };
    environment(&mut hasher, platform, source_date_epoch);
    canonical(&mut hasher, action, content, &|from| match from {
        From::Context => None,
        From::Stage(index) => (elsewhere.stage)(*index),
        From::Image(name) => (elsewhere.image)(name),
    });
    around(&mut hasher, action, surroundings);
    hasher.finish()
}

/// The parts of a node key, by what a person would call them; two of them side by side say why a node is built again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    pub parts: Vec<(String, Key)>,
}

impl Fingerprint {
    fn add(&mut self, kind: &str, label: impl Into<String>, fill: impl FnOnce(&mut KeyHasher)) {
        let mut hasher = KeyHasher::new(SCHEMA);
        hasher.part("kind", kind);
        fill(&mut hasher);
        self.parts.push((label.into(), hasher.finish()));
    }

    /// Labels are for people: a comment that moves every line down changes none of the parts.
    pub fn key(&self) -> Key {
        let mut hasher = KeyHasher::new(SCHEMA);
        hasher.part("kind", "node").part("parts", self.parts.len().to_string());
        for (_, key) in &self.parts {
            hasher.part("part", key.as_str());
        }
        hasher.finish()
    }

    /// What is different from `earlier`, in words, in the order of the file; None when nothing is.
    pub fn difference(&self, earlier: &Fingerprint) -> Option<String> {
        let keys = |print: &Fingerprint| print.parts.iter().map(|(_, k)| k.clone()).collect::<BTreeSet<_>>();
        let labels = |print: &Fingerprint| print.parts.iter().map(|(l, _)| l.clone()).collect::<BTreeSet<_>>();
        let (old_keys, old_labels) = (keys(earlier), labels(earlier));
        let (new_keys, new_labels) = (keys(self), labels(self));
        let mut found: Vec<String> = Vec::new();
        for (label, _) in self.parts.iter().filter(|(_, key)| !old_keys.contains(key)) {
            found.push(format!("{label} {}", if old_labels.contains(label) { "changed" } else { "is new" }));
        }
        for (label, _) in earlier.parts.iter().filter(|(_, key)| !new_keys.contains(key)) {
            if !new_labels.contains(label) {
                found.push(format!("{label} is gone"));
            }
        }
        if found.is_empty() && self.key() != earlier.key() {
            return Some("the order of its instructions changed".into());
        }
        let more = found.len().saturating_sub(1);
        let first = found.into_iter().next()?;
        Some(if more == 0 { first } else { format!("{first} (and {more} more)") })
    }
}

/// What of a node, besides its stages, goes into its key.
pub struct NodeInputs<'a> {
    pub platform: &'a Platform,
    pub source_date_epoch: Option<i64>,
    pub surroundings: &'a Surroundings,
    pub squash: bool,
    pub labels: &'a BTreeMap<String, String>,
    pub checks: &'a [Check],
    /// Result ids of the images that the Dockerfile names, with what a person calls them.
    pub bases: &'a BTreeMap<String, (String, Key)>,
    /// By stage index and step position.
    pub content: &'a dyn Fn(usize, usize) -> Content,
}

pub fn node_fingerprint(stages: &[LoweredStage], inputs: &NodeInputs<'_>) -> Fingerprint {
    let mut print = Fingerprint::default();
    let mut seen = BTreeMap::new();
    // Counted among those that are needed: what else the Dockerfile has is no input.
    let place = |index: usize| {
        let position = stages.iter().position(|stage| stage.index == index)?;
        Some(KeyHasher::new(SCHEMA).part("stage", position.to_string()).finish())
    };
    for stage in stages {
        match &stage.base {
            StageBase::Image(reference) => {
                if let Some((name, key)) = inputs.bases.get(reference)
                    && seen.insert(reference.clone(), ()).is_none()
                {
                    print.add("parent", format!("parent {name}"), |h| {
                        h.part("result", key.as_str());
                    });
                }
            }
            StageBase::Stage(index) => print.add("stage", format!("base of stage {}", stage.index), |h| {
                optional(h, "stage", place(*index).map(|k| k.to_string()));
            }),
            StageBase::Scratch => {}
        }
        for (position, step) in stage.steps.iter().enumerate() {
            let content = (inputs.content)(stage.index, position);
            for (pattern, key) in &content {
                let place = if pattern.contains("://") || pattern.contains('@') { "" } else { " in the context" };
                print.add("content", format!("`{pattern}`{place}"), |h| {
                    h.part("content", key.as_str());
                });
            }
            if step.action.touches_files() {
                print.add("step", format!("`{}`", step.title), |h| {
                    // Two addresses may give the same: the history still says which one it was.
                    if let Action::Copy(copy) = &step.action
                        && copy.sources.iter().any(|source| copy.remote(source).is_some())
                    {
                        h.part("said", &step.created_by);
                    }
                    canonical(h, &step.action, &Content::new(), &|from| match from {
                        From::Image(name) => inputs.bases.get(name).map(|(_, key)| key.clone()),
                        // The steps of the stage stand in this fingerprint themselves.
                        From::Stage(index) => place(*index),
                        From::Context => None,
                    });
                    around(h, &step.action, inputs.surroundings);
                });
            }
        }
    }
    if let Some(target) = stages.last() {
        print.add("configuration", "its configuration", |h| {
            h.part("config", serde_json::to_vec(&target.config.config).unwrap_or_default());
            optional(h, "author", target.config.author.as_deref());
            // Two ways to one configuration are two histories.
            for step in history(stages, target).filter(|step| !step.action.touches_files()) {
                h.part("said", &step.created_by);
            }
        });
    }
    print.add("labels", "its labels", |h| {
        for (name, value) in inputs.labels {
            h.part(name, value);
        }
    });
    print.add("checks", "its checks", |h| {
        for check in inputs.checks {
            h.part("check", serde_json::to_vec(check).unwrap_or_default());
        }
    });
    if inputs.squash {
        print.add("squash", "`--squash`", |h| {
            h.part("squash", "");
        });
    }
    print.add("environment", "the platform or SOURCE_DATE_EPOCH", |h| {
        environment(h, inputs.platform, inputs.source_date_epoch)
    });
    print
}

/// The steps that the history of the target tells of, its own first.
fn history<'a>(stages: &'a [LoweredStage], target: &'a LoweredStage) -> impl Iterator<Item = &'a Step> {
    let below = |stage: &&'a LoweredStage| match stage.base {
        StageBase::Stage(index) => stages.iter().find(|s| s.index == index),
        _ => None,
    };
    std::iter::successors(Some(target), below).flat_map(|stage| &stage.steps)
}

/// Key of a base image. `content` is the digest of the file for sources that are files.
pub fn base_key(
    source: &BaseSource,
    content: Option<&Key>,
    platform: &Platform,
    source_date_epoch: Option<i64>,
) -> Key {
    let mut hasher = KeyHasher::new(SCHEMA);
    hasher.part("kind", "base");
    environment(&mut hasher, platform, source_date_epoch);
    match source {
        BaseSource::Bootstrap(b) => {
            hasher.part("bootstrap", &b.distribution).part("suite", &b.suite).part("variant", &b.variant);
            optional(&mut hasher, "mirror", b.mirror.as_deref());
            optional(&mut hasher, "keyring", b.keyring.as_deref().map(|p| p.as_os_str().as_encoded_bytes()));
            list(&mut hasher, "components", &b.components);
            let mut packages = b.packages.clone();
            packages.sort();
            packages.dedup();
            list(&mut hasher, "packages", &packages);
            if let Some(snapshot) = &b.snapshot {
                // Its address stays in the base.
                hasher.part("archive", &snapshot.archive).part("snapshot", &snapshot.moment);
            }
        }
        BaseSource::OciLayout { path, reference } | BaseSource::DockerArchive { path, reference } => {
            hasher.part("archive", "");
            optional(&mut hasher, "reference", reference.as_deref());
            content_or_path(&mut hasher, content, path);
        }
        BaseSource::RootfsTar { path } => {
            hasher.part("rootfs", "");
            content_or_path(&mut hasher, content, path);
        }
        BaseSource::Registry { reference } => {
            hasher.part("registry", reference);
        }
        BaseSource::Directory { path } => {
            hasher.part("directory", "");
            content_or_path(&mut hasher, content, path);
        }
        BaseSource::Remote(remote) => {
            match remote {
                Remote::File(_) => hasher.part("file", ""),
                Remote::Git(git) => hasher.part("git", &git.subdir).part("submodules", [u8::from(git.submodules)]),
            };
            optional(&mut hasher, "remote", content.map(Key::as_str));
        }
    }
    hasher.finish()
}

fn content_or_path(hasher: &mut KeyHasher, content: Option<&Key>, path: &std::path::Path) {
    match content {
        Some(key) => hasher.part("content", key.as_str()),
        None => hasher.part("path", path.as_os_str().as_encoded_bytes()),
    };
}

fn environment(hasher: &mut KeyHasher, platform: &Platform, source_date_epoch: Option<i64>) {
    hasher.part("platform", platform.to_string());
    optional(hasher, "source-date-epoch", source_date_epoch.map(|e| e.to_string()));
}

fn optional<'h, T: AsRef<[u8]>>(hasher: &'h mut KeyHasher, label: &str, value: Option<T>) -> &'h mut KeyHasher {
    match value {
        Some(value) => hasher.part(label, value),
        None => hasher.part("none", label),
    }
}

fn list(hasher: &mut KeyHasher, label: &str, values: &[impl AsRef<[u8]>]) {
    hasher.part(label, values.len().to_string());
    for value in values {
        hasher.part("", value);
    }
}

fn around(hasher: &mut KeyHasher, action: &Action, surroundings: &Surroundings) {
    if let Action::Run(run) = action {
        surroundings.add_to(hasher, run.network);
    }
}

type FromKey<'a> = dyn Fn(&From) -> Option<Key> + 'a;

fn canonical(hasher: &mut KeyHasher, action: &Action, content: &Content, elsewhere: &FromKey<'_>) {
    match action {
        Action::Run(run) => canonical_run(hasher, run, elsewhere),
        Action::Copy(copy) => canonical_copy(hasher, copy, elsewhere),
        Action::Workdir { path, user } => {
            hasher.part("workdir", path).part("user", user);
        }
        Action::Config => {}
    }
    for (pattern, key) in content {
        hasher.part("content", pattern).part("digest", key.as_str());
    }
}

fn canonical_run(hasher: &mut KeyHasher, run: &Run, elsewhere: &FromKey<'_>) {
    list(hasher, "run", &run.argv);
    optional(hasher, "script", run.script.as_deref());
    hasher.part("env", run.env.len().to_string());
    for (name, value) in &run.env {
        hasher.part(name, value);
    }
    hasher.part("cwd", &run.cwd).part("user", &run.user);
    hasher.part("network", format!("{:?}", run.network)).part("security", format!("{:?}", run.security));
    for Mount { target, kind } in &run.mounts {
        hasher.part("mount", target);
        match kind {
            MountKind::Bind { from, source, writable } => {
                hasher.part("bind", source).part("writable", [u8::from(*writable)]);
                canonical_from(hasher, from, elsewhere);
            }
            MountKind::Cache { id, sharing, from, source, read_only, mode, uid, gid } => {
                hasher.part("cache", id).part("source", source).part("read-only", [u8::from(*read_only)]);
                hasher.part("options", format!("{sharing:?} {mode:o} {uid} {gid}"));
                if let Some(from) = from {
                    canonical_from(hasher, from, elsewhere);
                }
            }
            MountKind::Tmpfs { size } => {
                hasher.part("tmpfs", format!("{size:?}"));
            }
            MountKind::Secret { id, env, required, mode, uid, gid } => {
                hasher.part("secret", id).part("options", format!("{required} {mode:o} {uid} {gid}"));
                optional(hasher, "env", env.as_deref());
            }
            MountKind::Ssh { id, required, mode, uid, gid } => {
                hasher.part("ssh", id).part("options", format!("{required} {mode:o} {uid} {gid}"));
            }
        }
    }
}

fn canonical_copy(hasher: &mut KeyHasher, copy: &Copy, elsewhere: &FromKey<'_>) {
    hasher.part("copy", if copy.add { "add" } else { "copy" });
    canonical_from(hasher, &copy.from, elsewhere);
    hasher.part("sources", copy.sources.len().to_string());
    for source in &copy.sources {
        match source {
            Source::Path(pattern) => hasher.part("path", pattern),
            Source::Parents { pivot, pattern } => hasher.part("pivot", pivot).part("path", pattern),
            Source::Url(url) => hasher.part("url", address::file_name(url)),
            Source::Git(address) => {
                hasher.part("git", &address.subdir).part("submodules", [u8::from(address.submodules)]);
                // Only what keeps `.git` says where it came from.
                let origin = copy.keep_git_dir.then(|| address.shown());
                optional(hasher, "origin", origin)
            }
            Source::Inline { name, content } => hasher.part("inline", name).part("content", content),
        };
    }
    hasher.part("dest", &copy.dest);
    optional(hasher, "chown", copy.chown.as_deref());
    optional(hasher, "chmod", copy.chmod.as_deref());
    list(hasher, "excludes", &copy.excludes);
    hasher.part("flags", format!("{} {} {:?}", copy.link, copy.keep_git_dir, copy.unpack));
}

fn canonical_from(hasher: &mut KeyHasher, from: &From, elsewhere: &FromKey<'_>) {
    match from {
        From::Context => hasher.part("from", "context"),
        // Its name and number are no input: what is in it is.
        From::Stage(_) => hasher.part("from", "stage"),
        From::Image(_) => hasher.part("from", "image"),
    };
    optional(hasher, "tree", elsewhere(from).map(|k| k.to_string()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::config::ImageConfig;

    fn run(script: &str) -> Run {
        Run {
            argv: vec!["/bin/sh".into(), "-c".into(), script.into()],
            script: None,
            env: vec![("A".into(), "1".into())],
            proxy_env: Vec::new(),
            cwd: "/".into(),
            user: String::new(),
            mounts: Vec::new(),
            network: Default::default(),
            security: Default::default(),
        }
    }

    fn key_of(action: &Action, content: &Content, epoch: Option<i64>, chain: &str) -> Key {
        let nowhere = Elsewhere { stage: &|_| None, image: &|_| None };
        let chain = KeyHasher::new(chain).finish();
        step_key(&chain, action, content, &nowhere, &Surroundings::default(), &Platform::host(), epoch)
    }

    fn run_key(run: &Run) -> Key {
        key_of(&Action::Run(run.clone()), &Content::new(), None, "a")
    }

    #[test]
    fn every_input_of_a_run_step_counts() {
        let base = run("true");
        let secret = |id: &str| Mount {
            target: "/run/secrets/x".into(),
            kind: MountKind::Secret { id: id.into(), env: None, required: false, mode: 0o400, uid: 0, gid: 0 },
        };
        let changed = [
            run("false"),
            Run { env: vec![("A".into(), "2".into())], ..base.clone() },
            Run { env: Vec::new(), ..base.clone() },
            Run { cwd: "/tmp".into(), ..base.clone() },
            Run { user: "nobody".into(), ..base.clone() },
            Run { script: Some(b"x".to_vec()), ..base.clone() },
            Run { network: crate::dockerfile::step::Network::None, ..base.clone() },
            Run { mounts: vec![secret("a")], ..base.clone() },
            Run { mounts: vec![secret("b")], ..base.clone() },
        ];
        let mut keys: Vec<Key> = changed.iter().map(run_key).collect();
        keys.push(run_key(&base));
        keys.push(key_of(&Action::Run(base.clone()), &Content::new(), Some(1), "a"));
        keys.push(key_of(&Action::Run(base.clone()), &Content::new(), None, "b"));
        let count = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), count);
        assert_eq!(run_key(&base), run_key(&base.clone()));
    }

    #[test]
    fn what_is_put_around_a_run_step_counts_for_it_alone() {
        use crate::engine::surroundings::{Resource, Ulimit};
        let host = |name: &str, address: [u8; 4]| (name.to_owned(), std::net::IpAddr::from(address));
        let limit = |soft, hard| Ulimit { resource: Resource::Nofile, soft, hard };
        let all = [
            Surroundings::default(),
            Surroundings { hosts: vec![host("a", [1, 1, 1, 1])], ..Surroundings::default() },
            Surroundings { hosts: vec![host("a", [1, 1, 1, 2])], ..Surroundings::default() },
            Surroundings { hosts: vec![host("b", [1, 1, 1, 1])], ..Surroundings::default() },
            Surroundings { ulimits: vec![limit(Some(5), Some(5))], ..Surroundings::default() },
            Surroundings { ulimits: vec![limit(Some(5), None)], ..Surroundings::default() },
            Surroundings { shm_size: Some(1 << 20), ..Surroundings::default() },
        ];
        let keys = |action: &Action| {
            let nowhere = Elsewhere { stage: &|_| None, image: &|_| None };
            let chain = KeyHasher::new("chain").finish();
            let key =
                |s: &Surroundings| step_key(&chain, action, &Content::new(), &nowhere, s, &Platform::host(), None);
            all.iter().map(key).collect::<BTreeSet<_>>().len()
        };
        assert_eq!(keys(&Action::Run(run("true"))), all.len());
        assert_eq!(keys(&Action::Workdir { path: "/x".into(), user: String::new() }), 1);
    }

    #[test]
    fn what_is_put_on_nothing_does_not_look_below() {
        let copy = |link: bool, chmod: Option<&str>| {
            Action::Copy(Copy {
                add: false,
                from: From::Context,
                sources: vec![Source::Path("a".into())],
                dest: "/a".into(),
                chown: None,
                chmod: chmod.map(str::to_owned),
                link,
                excludes: Vec::new(),
                checksum: None,
                keep_git_dir: false,
                unpack: None,
            })
        };
        let same = |action: &Action| {
            let key = |chain| key_of(action, &Content::new(), None, chain);
            key("one parent") == key("another")
        };
        assert!(same(&copy(true, None)));
        assert!(!same(&copy(false, None)));
        assert!(!same(&copy(true, Some("600"))));
    }

    #[test]
    fn the_author_counts_although_it_stands_beside_the_configuration() {
        let key = |author: Option<&str>| {
            let config = ImageConfig { author: author.map(str::to_owned), ..ImageConfig::default() };
            let stage = LoweredStage { index: 0, name: None, base: StageBase::Scratch, steps: Vec::new(), config };
            let inputs = NodeInputs {
                platform: &Platform::host(),
                source_date_epoch: None,
                surroundings: &Surroundings::default(),
                squash: false,
                labels: &BTreeMap::new(),
                checks: &[],
                bases: &BTreeMap::new(),
                content: &|_, _| Content::new(),
            };
            node_fingerprint(&[stage], &inputs).key()
        };
        assert_ne!(key(None), key(Some("somebody")));
        assert_ne!(key(Some("")), key(None));
        assert_eq!(key(Some("somebody")), key(Some("somebody")));
    }

    #[test]
    fn the_way_to_a_configuration_counts_as_the_history_tells_it() {
        let step = |text: &str| Step {
            line: 1,
            span: 0..0,
            title: text.into(),
            created_by: text.into(),
            action: Action::Config,
        };
        let stage = |index, base, said: &[&str]| LoweredStage {
            index,
            name: None,
            base,
            steps: said.iter().map(|text| step(text)).collect(),
            config: ImageConfig::default(),
        };
        let key = |stages: &[LoweredStage]| {
            let inputs = NodeInputs {
                platform: &Platform::host(),
                source_date_epoch: None,
                surroundings: &Surroundings::default(),
                squash: false,
                labels: &BTreeMap::new(),
                checks: &[],
                bases: &BTreeMap::new(),
                content: &|_, _| Content::new(),
            };
            node_fingerprint(stages, &inputs).key()
        };
        let one = |said: &[&str]| key(&[stage(0, StageBase::Scratch, said)]);
        assert_ne!(one(&[]), one(&["USER "]));
        assert_ne!(one(&["LABEL a=2"]), one(&["LABEL a=1", "LABEL a=2"]));
        assert_eq!(one(&["LABEL a=2"]), one(&["LABEL a=2"]));
        // Below it counts as well; beside it doesn't.
        let two = |base, said: &[&str]| key(&[stage(0, StageBase::Scratch, said), stage(1, base, &["CMD x"])]);
        assert_ne!(two(StageBase::Stage(0), &["USER "]), two(StageBase::Stage(0), &[]));
        assert_eq!(two(StageBase::Scratch, &["USER "]), two(StageBase::Scratch, &[]));
    }

    #[test]
    fn parts_cannot_run_into_each_other() {
        let one = Run { argv: vec!["a".into(), "bc".into()], ..run("") };
        let two = Run { argv: vec!["ab".into(), "c".into()], ..run("") };
        assert_ne!(run_key(&one), run_key(&two));
    }

    #[test]
    fn the_difference_names_what_changed() {
        let mut old = Fingerprint::default();
        old.add("step", "line 3", |h| {
            h.part("x", "1");
        });
        old.add("step", "labels", |_| {});
        let mut new = Fingerprint::default();
        new.add("step", "line 3", |h| {
            h.part("x", "2");
        });
        new.add("step", "labels", |_| {});
        assert_eq!(new.difference(&old).as_deref(), Some("line 3 changed"));
        assert_eq!(new.difference(&new), None);
        new.add("step", "line 4", |h| {
            h.part("y", "");
        });
        assert_eq!(new.difference(&old).as_deref(), Some("line 3 changed (and 1 more)"));
    }
}
