//! The store and the engine, set up from settings, flags and what the environment lends; and what of a graph they can't
//! do, said before anything starts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::catalogue::{CaBundle, EngineName, Settings};
use crate::cli::builders::{self, Asked};
use crate::cli::environment::Environment;
use crate::cli::{App, args, ssh};
use crate::daemon;
use crate::diag::{Diagnostic, Diagnostics};
use crate::dockerfile;
use crate::dockerfile::step::{Action as StepAction, Entitlement, MountKind};
use crate::engine::buildkit::BuildKitEngine;
use crate::engine::docker::{self, DockerEngine};
use crate::engine::embedded::{EmbeddedEngine, Options, lend};
use crate::engine::emulation;
use crate::engine::surroundings::Surroundings;
use crate::engine::{Built, Engine, SecretSource};
use crate::error::{Context as _, Error, Result};
use crate::event::Cancel;
use crate::fetch;
use crate::graph::node::{Graph, Spec};
use crate::graph::plan::{Action, Planned};
use crate::image::store::Store;
use crate::registry::{self, Credentials};
use crate::suggest;
use crate::userns;

/// Names of files of state in the store.
pub const HASH_TABLE: &str = "files";
pub const HISTORY: &str = "history.json";
pub const METRICS: &str = "metrics.json";

pub fn open_store(path: &Path) -> Result<Store> {
    Store::open(path).map_err(|error| match error.hint_text() {
        Some(_) => error,
        None => error.hint("name another place with `--store DIR` or KOLLAGE_STORE"),
    })
}

/// What the embedded engine doesn't carry out, and what is not `granted`, by name and line.
pub fn refuse_unsupported(graph: &Graph, granted: Option<&BTreeSet<Entitlement>>) -> Result<()> {
    let mut problems = Diagnostics::default();
    for node in &graph.nodes {
        if let Some(spec) = node.spec() {
            problems.extend(dockerfile::unsupported(&spec.resolved));
            if let Some(granted) = granted {
                problems.extend(dockerfile::not_granted(&spec.resolved, granted));
            }
        }
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Error::from_diagnostics("the embedded engine cannot build this; nothing was built", problems)),
    }
}

/// Nodes that are built at once.
pub fn jobs(flag: Option<usize>, settings: &Settings) -> usize {
    flag.or(settings.build.jobs)
        .or_else(|| std::thread::available_parallelism().ok().map(usize::from))
        .unwrap_or(1)
        .max(1)
}

/// The same with what only the bases' ONBUILD adds, and secrets and agents that a step requires and nobody gave.
pub fn refuse_planned(graph: &Graph, planned: &[Planned], flags: &EngineFlags) -> Result<()> {
    let mut problems = Diagnostics::default();
    for (node, planned) in graph.nodes.iter().zip(planned) {
        let Some(spec) = node.spec() else { continue };
        // What it fetches may be another thing by now.
        if planned.action == Action::Reuse && planned.asks.is_empty() {
            continue;
        }
        problems.extend(dockerfile::steps_not_granted(&spec.resolved, &planned.stages, &flags.entitlements));
        for step in planned.stages.iter().flat_map(|stage| &stage.steps) {
            let StepAction::Run(run) = &step.action else { continue };
            for mount in &run.mounts {
                let (what, hint) = match &mount.kind {
                    MountKind::Secret { id, required: true, .. } if !flags.secrets.contains_key(id) => {
                        (format!("the secret `{id}`"), format!("give it with `--secret id={id},src=FILE`"))
                    }
                    MountKind::Ssh { id, required: true, .. } if !flags.ssh.contains_key(id) => {
                        let hint = format!("lend one with `--ssh {id}`, or a key with `--ssh {id}=KEY`");
                        (format!("the ssh-agent `{id}`"), hint)
                    }
                    _ => continue,
                };
                let problem = Diagnostic::error(format!("{} needs {what}", node.name));
                problems.push(problem.at(&spec.resolved.dockerfile.file, step.span.clone()).hint(hint));
            }
        }
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Error::from_diagnostics("this cannot be built as it is; nothing was built", problems)),
    }
}

/// An ordinary user without a range of ids builds what can be built so, and is told what can't.
pub fn say_what_is_missing(app: &App) {
    if userns::current().is_single() {
        app.say(&format!(
            "note: this user has no range of ids: steps run as root only, and chown in them fails (docs/rootless.md); \
             to have one, as root: `{}`, and install uidmap",
            userns::RANGES
        ));
    }
}

pub type Secrets = BTreeMap<String, SecretSource>;

/// What the command line says about the engine.
#[derive(Clone, Debug, Default)]
pub struct EngineFlags {
    pub network: Option<args::Network>,
    pub disk_limit: Option<u64>,
    pub secrets: Secrets,
    pub ssh: ssh::Agents,
    pub entitlements: BTreeSet<Entitlement>,
    pub step_timeout: Option<Duration>,
    pub retries: Option<u32>,
    pub registries: args::Registries,
}

/// The engine that the command line, KOLLAGE_ENGINE or the settings choose, if the operator allows it.
pub fn chosen(flag: Option<&str>, settings: &Settings, env: &Environment) -> Result<EngineName> {
    let name = match (flag, env.engine.as_deref()) {
        (Some(text), _) => engine_name(text)?,
        (None, Some(text)) => engine_name(text).map_err(|error| error.context("KOLLAGE_ENGINE"))?,
        (None, None) => settings.engine.default,
    };
    match settings.refuse_engine(name, flag.is_none() && env.engine.is_none()) {
        None => Ok(name),
        Some(problem) => {
            let message = "this engine cannot be used; nothing was built";
            Err(Error::from_diagnostics(message, Diagnostics(vec![problem])))
        }
    }
}

/// What a build is carried out with.
pub enum Builder {
    Embedded(Box<EmbeddedEngine>),
    Docker(Box<DockerEngine>),
    Buildkit(Box<BuildKitEngine>),
}

impl Builder {
    /// `keep`: outputs are made of the results, from the store.
    pub fn open(
        name: EngineName,
        local: EmbeddedEngine,
        keep: bool,
        asked: &Asked<'_>,
        cancel: &Cancel,
    ) -> Result<Builder> {
        match name {
            EngineName::Embedded => Ok(Builder::Embedded(Box::new(local))),
            EngineName::Docker => {
                let endpoint = daemon::find(None, &asked.env.daemon())?;
                let options = docker::Options { keep, builder: asked.settings.engine.docker };
                Builder::docker(local, endpoint, options, cancel)
            }
            EngineName::Buildkit => match builders::alone(asked, cancel)? {
                Some(endpoint) => {
                    let options = docker::Options { keep, builder: docker::Builder::BuildKit };
                    Builder::docker(local, endpoint, options, cancel)
                }
                None => Ok(Builder::Buildkit(Box::new(builders::engine(local, asked, cancel)?))),
            },
        }
    }

    fn docker(
        local: EmbeddedEngine,
        endpoint: daemon::Endpoint,
        options: docker::Options,
        cancel: &Cancel,
    ) -> Result<Builder> {
        let engine = daemon::Engine::open(endpoint, cancel)?;
        Ok(Builder::Docker(Box::new(DockerEngine::new(local, engine, options, cancel)?)))
    }

    pub fn engine(&self) -> &dyn Engine {
        match self {
            Builder::Embedded(engine) => engine.as_ref(),
            Builder::Docker(engine) => engine.as_ref(),
            Builder::Buildkit(engine) => engine.as_ref(),
        }
    }

    /// Nodes that are built at once.
    pub fn jobs(&self, flag: Option<usize>, settings: &Settings) -> usize {
        match self {
            Builder::Buildkit(engine) => builders::jobs(flag, settings, engine.builders()),
            _ => jobs(flag, settings),
        }
    }

    /// What makes bases and fetches files, whatever builds.
    pub fn local(&self) -> &EmbeddedEngine {
        match self {
            Builder::Embedded(engine) => engine,
            Builder::Docker(engine) => engine.local(),
            Builder::Buildkit(engine) => engine.local(),
        }
    }

    /// The same image with its files in the store, and the configuration that it has in truth.
    pub fn in_store(&self, built: &Built, cancel: &Cancel) -> Result<Built> {
        match self {
            Builder::Embedded(_) => Ok(built.clone()),
            Builder::Docker(engine) => engine.bring(built, cancel),
            Builder::Buildkit(engine) => engine.bring(built, cancel),
        }
    }

    /// What steps lack with this engine, although it can build them.
    pub fn lacks(&self) -> Option<String> {
        match self {
            Builder::Docker(engine) => engine.lacks(),
            Builder::Embedded(_) | Builder::Buildkit(_) => None,
        }
    }

    /// What is to be built and this engine cannot do, by name and place.
    pub fn refuse(&self, graph: &Graph, planned: &[Planned], surroundings: &Surroundings) -> Result<()> {
        match self {
            Builder::Embedded(_) => {}
            Builder::Docker(engine) => engine.refuse_surroundings(surroundings)?,
            Builder::Buildkit(engine) => engine.refuse_surroundings(surroundings)?,
        }
        let mut problems = Diagnostics::default();
        for (node, planned) in graph.nodes.iter().zip(planned).filter(|(_, planned)| planned.action != Action::Reuse) {
            let Some(spec) = node.spec() else { continue };
            let file = &spec.resolved.dockerfile.file;
            let known = dockerfile::on_unknown_bases(&spec.resolved);
            let stages = if planned.stages.is_empty() { &known } else { &planned.stages };
            problems.extend(match self {
                Builder::Embedded(_) => Diagnostics::default(),
                Builder::Docker(engine) => engine.refusals(file, stages),
                Builder::Buildkit(engine) => engine.refusals(file, stages),
            });
        }
        match problems.is_empty() {
            true => Ok(()),
            false => Err(Error::from_diagnostics("this engine cannot build this; nothing was built", problems)),
        }
    }
}

/// Steps for platforms whose programs do not run on this machine; where it is this machine that builds.
pub fn refuse_platforms(graph: &Graph, planned: &[Planned]) -> Result<()> {
    for (node, planned) in graph.nodes.iter().zip(planned).filter(|(_, planned)| planned.action != Action::Reuse) {
        let Some(why) = emulation::refusal(&node.platform, Path::new(emulation::BINFMT)) else { continue };
        // A base that can't be made says so itself.
        if let Some(wants) = node.spec().and_then(|spec| first_run(spec, planned)) {
            return Err(Error::unusable(format!("cannot build {}", node.name))
                .cause(format!("{wants} runs programs for {}", node.platform))
                .cause(why)
                .hint(format!(
                    "install an emulator (Debian's qemu-user-static), or name a builder for {} with `--engine \
                     buildkit --builder ADDRESS`",
                    node.platform
                )));
        }
    }
    Ok(())
}

/// What runs in an image first while it is built, by its place: a RUN or a check.
fn first_run(spec: &Spec, planned: &Planned) -> Option<String> {
    let known = dockerfile::on_unknown_bases(&spec.resolved);
    let stages = if planned.stages.is_empty() { &known } else { &planned.stages };
    let mut steps = stages.iter().flat_map(|stage| &stage.steps);
    let file = spec.resolved.dockerfile.file.path().display();
    match steps.find(|step| matches!(step.action, StepAction::Run(_))) {
        Some(step) => Some(format!("{file}:{}: `{}`", step.line, step.title)),
        None => spec.checks.first().map(|check| format!("the check `{}`", check.run.join(" "))),
    }
}

/// The embedded engine; other engines have it make bases.
pub fn engine(store: Store, flags: EngineFlags, settings: &Settings, env: &Environment) -> Result<EmbeddedEngine> {
    let build = &settings.build;
    let ca_bundle = match &build.ca_bundle {
        CaBundle::Off => None,
        CaBundle::Path(path) => Some(path.clone()),
        CaBundle::Auto => lend::extra_authorities(&lend::TrustPaths::default())?,
    };
    let network = flags.network.map_or(build.network, args::Network::typed);
    let retries = flags.retries.unwrap_or(build.retries);
    let registry = registry_options(env, &flags.registries, retries)?;
    let fetch = fetch::Options {
        retry: registry.retry.clone(),
        path: env.path.clone().unwrap_or(fetch::Options::default().path),
        proxy: env.proxy.clone(),
        ca_bundle: ca_bundle.clone(),
        tokens: tokens(&flags.secrets)?,
        ..fetch::Options::default()
    };
    let options = Options {
        network,
        fetch,
        lending: lend::Lending { ca_bundle, proxy: env.proxy.clone(), apt_as_root: userns::current().is_single() },
        secrets: flags.secrets,
        ssh: flags.ssh,
        entitlements: flags.entitlements,
        step_timeout: flags.step_timeout.or(build.step_timeout).filter(|limit| !limit.is_zero()),
        retries,
        codec: build.compression,
        registry,
        disk_limit: flags.disk_limit.or(settings.engine.disk_limit),
        ..Options::default()
    };
    Ok(EmbeddedEngine::new(store, options))
}

/// How web addresses and repositories are asked where no build's settings say otherwise.
pub fn fetch_options(env: &Environment) -> Result<fetch::Options> {
    Ok(fetch::Options {
        path: env.path.clone().unwrap_or(fetch::Options::default().path),
        proxy: env.proxy.clone(),
        ca_bundle: lend::extra_authorities(&lend::TrustPaths::default())?,
        ..fetch::Options::default()
    })
}

/// Secrets that unlock web repositories, by the names that BuildKit gives them: `GIT_AUTH_TOKEN`, `GIT_AUTH_HEADER`,
/// either with a host behind a dot.
fn tokens(secrets: &Secrets) -> Result<Vec<fetch::Token>> {
    let mut tokens = Vec::new();
    // A whole header counts more than a token, as in BuildKit.
    for (prefix, is_header) in [("GIT_AUTH_HEADER", true), ("GIT_AUTH_TOKEN", false)] {
        for (id, source) in secrets {
            let host = match id.strip_prefix(prefix) {
                Some("") => None,
                Some(rest) => match rest.strip_prefix('.') {
                    Some(host) => Some(host.to_owned()),
                    None => continue,
                },
                None => continue,
            };
            let value = match source {
                SecretSource::Value(value) => value.clone(),
                SecretSource::File(path) => std::fs::read(path)
                    .bad_input(|| format!("cannot read the secret `{id}` from {}", path.display()))?,
            };
            let value = String::from_utf8_lossy(&value).trim().to_owned();
            let header = match is_header {
                true => value,
                false => format!("Basic {}", BASE64_STANDARD.encode(format!("x-access-token:{value}"))),
            };
            tokens.push(fetch::Token { host, header });
        }
    }
    Ok(tokens)
}

fn engine_name(text: &str) -> Result<EngineName> {
    EngineName::ALL.into_iter().find(|name| name.as_str() == text).ok_or_else(|| {
        let error = Error::bad_input(format!("there is no engine `{text}`"));
        match suggest::hint(text, EngineName::ALL.map(EngineName::as_str)) {
            Some(hint) => error.hint(hint),
            None => error,
        }
    })
}

/// Files with logins where skopeo, podman and docker look for them, in that order; those that are there.
pub fn auth_files(env: &Environment) -> Vec<PathBuf> {
    let mut files = Vec::new();
    match &env.auth_file {
        Some(file) => files.push(file.clone()),
        None => {
            files.extend(env.runtime_dir.as_ref().map(|dir| dir.join("containers/auth.json")));
            let config = env.config_home.clone().or_else(|| env.home.as_ref().map(|home| home.join(".config")));
            files.extend(config.map(|dir| dir.join("containers/auth.json")));
            let docker = env.docker_config.clone().or_else(|| env.home.as_ref().map(|home| home.join(".docker")));
            files.extend(docker.map(|dir| dir.join("config.json")));
        }
    }
    files.retain(|file| file.exists());
    files
}

/// The files that say where registries are reached, in the order in which they count: later ones more.
fn registries_conf(env: &Environment) -> Result<Vec<PathBuf>> {
    if let Some(file) = &env.registries_conf {
        return match file.exists() {
            true => Ok(vec![file.clone()]),
            false => {
                Err(Error::bad_input(format!("CONTAINERS_REGISTRIES_CONF names {}, which isn't there", file.display())))
            }
        };
    }
    let mut files = Vec::new();
    let config = env.config_home.clone().or_else(|| env.home.as_ref().map(|home| home.join(".config")));
    let own = config.map(|dir| dir.join("containers")).filter(|dir| dir.join("registries.conf").exists());
    let system = PathBuf::from("/etc/containers");
    // A user's own file is in the place of the system's; fragments add to either.
    files.push(own.as_ref().unwrap_or(&system).join("registries.conf"));
    for dir in [Some(system), own].into_iter().flatten() {
        let fragments = std::fs::read_dir(dir.join("registries.conf.d")).into_iter().flatten().flatten();
        let mut fragments: Vec<PathBuf> = fragments.map(|entry| entry.path()).collect();
        fragments.retain(|file| file.extension().is_some_and(|end| end == "conf"));
        fragments.sort();
        files.extend(fragments);
    }
    Ok(files)
}

pub fn registry_options(env: &Environment, flags: &args::Registries, retries: u32) -> Result<registry::Options> {
    let credentials = match &flags.authfile {
        Some(file) if !file.exists() => {
            return Err(Error::bad_input(format!("there is no file {}", file.display()))
                .hint("`--authfile` names a file with logins, as `podman login --authfile FILE` writes it"));
        }
        Some(file) => Credentials::load(&[file])?,
        None => Credentials::load(&auth_files(env))?,
    };
    let path = env.path.clone().unwrap_or(fetch::Options::default().path);
    let credentials = Arc::new(credentials.with_path(path));
    if let Some(dir) = flags.cert_dir.as_ref().filter(|dir| !dir.is_dir()) {
        return Err(Error::bad_input(format!("there is no directory {}", dir.display()))
            .hint("`--cert-dir` names a directory with *.crt of authorities, and *.cert with *.key of this client"));
    }
    let dirs = ["/etc/containers/certs.d", "/etc/docker/certs.d"].map(PathBuf::from);
    let certs = registry::Certs { dirs: dirs.into(), only: flags.cert_dir.clone() };
    let registries = registry::Registries::load(&registries_conf(env)?)?;
    let retry = registry::Retry { attempts: retries.saturating_add(1), ..registry::Retry::default() };
    let tls_verify = flags.tls_verify;
    Ok(registry::Options { credentials, retry, tls_verify, certs, registries, ..registry::Options::default() })
}
