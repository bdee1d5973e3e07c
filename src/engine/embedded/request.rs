//! Steps to requests: what an instruction says, joined with what the engine knows, as the helper takes it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FlockOperation;

use super::agent::{Forward, KeyAgent};
use super::helper::mode::ModeChange;
use super::helper::spec::{
    Bytes, ContextItem, CopyItem, CopySpec, LentFile, LentSource, MountSpec, MountSpecKind, ProcessSpec, RawPath,
    RootSpec, RunSpec, Script,
};
use super::lend;
use super::output::Redactor;
use super::{EmbeddedEngine, fetched};
use crate::context::Selected;
use crate::dockerfile::step::{Copy, From, Mount, MountKind, Network, Run, Security, Sharing, Source};
use crate::engine::{BuildJob, Ctl, SecretSource};
use crate::error::{Context as _, Error, Result};
use crate::event::Cancel;
use crate::image::digest::{Digest, KeyHasher};
use crate::image::store::KeyLock;

/// What every step calls the machine that it runs on.
pub const HOSTNAME: &str = "kollage";

/// The host's name tables, and where a step sees them.
const RESOLV_CONF: &str = "/etc/resolv.conf";
const HOSTS: &str = "/etc/hosts";

/// Where ssh looks for its agent.
const SSH_AUTH_SOCK: &str = "SSH_AUTH_SOCK";

/// Finds the layers of stages and images that a step takes files from.
pub trait Trees {
    fn stage(&self, index: usize) -> Option<&[Digest]>;
    fn image(&self, name: &str) -> Option<&[Digest]>;
}

/// A request for a RUN step, and what has to be kept as long as it runs.
pub struct Prepared {
    pub spec: RunSpec,
    pub redactor: Redactor,
    /// Caches that nobody else may use meanwhile.
    _locks: Locks,
    /// Its ways to ssh-agents.
    _forwards: Vec<(Forward, Option<Arc<KeyAgent>>)>,
}

#[derive(Default)]
struct Locks {
    held: Vec<KeyLock>,
    files: Vec<File>,
}

/// Prepares a RUN instruction. `line` is for errors.
pub fn run(
    engine: &EmbeddedEngine,
    job: &BuildJob,
    step: &Run,
    line: usize,
    trees: &dyn Trees,
    root: RootSpec,
    cancel: &Cancel,
) -> Result<Prepared> {
    // Said before the build where that was possible; an ONBUILD of a base that was not there yet comes to light here.
    if let Some(asked) = step.asks_for().find(|asked| !engine.options.entitlements.contains(asked)) {
        return Err(Error::bad_input(format!("line {line}: RUN {} is not allowed", asked.flag()))
            .hint(format!("allow it with `--allow {}`", asked.as_str())));
    }
    let insecure = step.security == Security::Insecure;
    let no_network = no_network(step.network, job.surroundings.network);
    let mut builder = Mounts {
        engine,
        job,
        trees,
        line,
        cancel,
        lower: Vec::new(),
        redactor: Redactor::default(),
        locks: Locks::default(),
        env: Vec::new(),
        work: &root.work,
        forwards: Vec::new(),
    };
    let mounts = builder.all(&step.mounts)?;
    let has_secrets = step.mounts.iter().any(|m| matches!(m.kind, MountKind::Secret { .. }));
    let Mounts { lower, mut redactor, locks, env: secret_env, forwards, .. } = builder;

    let mut variables = [step.env.clone(), step.proxy_env.clone()].concat();
    let mut lending = engine.options.lending.clone();
    // Nobody else is to see the variable.
    lending.apt_as_root &= root.lower.iter().any(|layer| layer.join("etc/apt").is_dir());
    variables.extend(lending.variables(&variables, &lend::PLACES));
    let ssh = step.mounts.iter().find(|mount| matches!(mount.kind, MountKind::Ssh { .. }));
    if let Some(mount) = ssh.filter(|_| !variables.iter().any(|(name, _)| name == SSH_AUTH_SOCK)) {
        // As in BuildKit: whether there is an agent or not.
        variables.push((SSH_AUTH_SOCK.into(), mount.target.clone()));
    }
    let mut env: Vec<(String, Bytes)> =
        variables.into_iter().map(|(name, value)| (name, Bytes(value.into_bytes()))).collect();
    env.extend(secret_env);
    lending.secrets().for_each(|secret| redactor.add(secret.as_bytes()));

    let mut lent = names(no_network, &job.surroundings.host_lines());
    if let Some(bundle) = &lending.ca_bundle {
        let source = LentSource::Host(RawPath::from(bundle.as_path()));
        lent.push(LentFile { target: lend::PLACES.bundle.into(), source });
    }
    if let Some(config) = lending.apt_config(&lend::PLACES) {
        lent.push(text(lend::PLACES.apt_config, config.into_bytes()));
    }
    let root = RootSpec { scaffold: Some(engine.scaffold(&lent)?), ..root };
    let script = step.script.as_ref().map(|content| {
        let name = step.argv.first().and_then(|a| Path::new(a).file_name()).unwrap_or_default();
        Script { name: name.to_string_lossy().into_owned(), content: Bytes(content.clone()) }
    });
    let spec = RunSpec {
        root,
        trees: lower,
        process: ProcessSpec {
            argv: step.argv.clone(),
            env,
            cwd: step.cwd.clone(),
            user: step.user.clone(),
            insecure,
            ulimits: job.surroundings.ulimits.clone(),
            terminal: None,
        },
        mounts,
        lent,
        hostname: HOSTNAME.into(),
        no_network,
        shm_size: job.surroundings.shm_size,
        no_core_dump: has_secrets,
        script,
    };
    Ok(Prepared { spec, redactor, _locks: locks, _forwards: forwards })
}

/// `otherwise` is what counts for whoever does not say.
pub fn no_network(network: Network, otherwise: Network) -> bool {
    match network {
        Network::Default => otherwise == Network::None,
        Network::None => true,
        Network::Host => false,
    }
}

/// Copies of the host's name tables. They are copies because the host may replace its files at any time. `hosts` are
/// lines that come before the host's own, as the first one that fits is taken.
pub fn names(no_network: bool, hosts: &str) -> Vec<LentFile> {
    let own =
        format!("127.0.0.1\tlocalhost {HOSTNAME}\n::1\tlocalhost ip6-localhost ip6-loopback\n{hosts}").into_bytes();
    let (resolv, hosts) = match no_network {
        true => (Vec::new(), own),
        // A host without one of them looks nothing up in it.
        false => {
            let host = std::fs::read(HOSTS).unwrap_or_default();
            (std::fs::read(RESOLV_CONF).unwrap_or_default(), [own, host].concat())
        }
    };
    vec![text(RESOLV_CONF, resolv), text(HOSTS, hosts)]
}

fn text(target: &str, content: Vec<u8>) -> LentFile {
    LentFile { target: target.into(), source: LentSource::Text(Bytes(content)) }
}

struct Mounts<'a> {
    engine: &'a EmbeddedEngine,
    job: &'a BuildJob,
    trees: &'a dyn Trees,
    line: usize,
    cancel: &'a Cancel,
    lower: Vec<Vec<RawPath>>,
    redactor: Redactor,
    locks: Locks,
    env: Vec<(String, Bytes)>,
    /// The step's own directory.
    work: &'a Path,
    forwards: Vec<(Forward, Option<Arc<KeyAgent>>)>,
}

impl Mounts<'_> {
    fn all(&mut self, mounts: &[Mount]) -> Result<Vec<MountSpec>> {
        // Always in the order of their names: two steps that want the same two caches cannot wait for each other.
        let mut locked: Vec<&str> = mounts
            .iter()
            .filter_map(|m| match &m.kind {
                MountKind::Cache { id, sharing: Sharing::Locked, .. } => Some(id.as_str()),
                _ => None,
            })
            .collect();
        locked.sort_unstable();
        locked.dedup();
        for id in locked {
            let key = KeyHasher::new("kollage cache lock 1").part("id", id).finish();
            self.locks.held.push(self.engine.store.lock_key(&key, self.cancel)?);
        }
        let mut out = Vec::with_capacity(mounts.len());
        for mount in mounts {
            if let Some(kind) = self.one(&mount.kind)? {
                out.push(MountSpec { target: mount.target.clone(), kind });
            }
        }
        // A secret can be a file and a variable; one that is only a variable has nowhere to be mounted.
        out.retain(|m| !m.target.is_empty());
        Ok(out)
    }

    fn one(&mut self, kind: &MountKind) -> Result<Option<MountSpecKind>> {
        Ok(Some(match kind {
            MountKind::Bind { from: From::Context, source, writable } => {
                MountSpecKind::Context { items: select(self.job, source, &[], self.line)?, writable: *writable }
            }
            MountKind::Bind { from, source, writable } => {
                MountSpecKind::Tree { tree: self.tree(from)?, path: source.clone(), writable: *writable }
            }
            MountKind::Cache { id, sharing, from, source, read_only, mode, uid, gid } => {
                let fill = match from {
                    None => None,
                    Some(From::Context) => {
                        return Err(Error::bad_input(format!(
                            "line {}: a cache cannot begin with files of the build context",
                            self.line
                        ))
                        .hint("name a stage or an image in `from=`"));
                    }
                    Some(from) => Some((self.tree(from)?, source.clone())),
                };
                let dir = match sharing {
                    Sharing::Shared | Sharing::Locked => self.engine.store.cache_dir(id)?,
                    Sharing::Private => self.private_cache(id)?,
                };
                MountSpecKind::Cache {
                    dir: RawPath(dir),
                    fill,
                    read_only: *read_only,
                    mode: *mode,
                    uid: *uid,
                    gid: *gid,
                }
            }
            MountKind::Tmpfs { size } => MountSpecKind::Tmpfs { size: *size },
            MountKind::Secret { id, env, required, mode, uid, gid } => {
                let Some(value) = self.secret(id, *required)? else { return Ok(None) };
                self.redactor.add(&value);
                if let Some(name) = env {
                    self.env.push((name.clone(), Bytes(value.clone())));
                }
                MountSpecKind::Secret { value: Bytes(value), mode: *mode, uid: *uid, gid: *gid }
            }
            MountKind::Ssh { id, required, mode, uid, gid } => {
                let Some(socket) = self.agent(id, *required)? else { return Ok(None) };
                MountSpecKind::Agent { socket, mode: *mode, uid: *uid, gid: *gid }
            }
        }))
    }

    /// A socket for this step alone, behind which the agent is.
    fn agent(&mut self, id: &str, required: bool) -> Result<Option<RawPath>> {
        let Some((agent, owner)) = self.engine.ssh_agent(id)? else {
            return match required {
                true => Err(Error::bad_input(format!("line {}: there is no ssh-agent `{id}`", self.line))
                    .hint(format!("lend one with `--ssh {id}`, or a key with `--ssh {id}=KEY`"))),
                false => Ok(None),
            };
        };
        let name = format!("ssh{}", self.forwards.len());
        let forward = Forward::start(self.work, &name, agent)
            .unusable(|| format!("line {}: cannot make a socket for the ssh-agent `{id}`", self.line))?;
        let socket = RawPath::from(forward.socket());
        self.forwards.push((forward, owner));
        Ok(Some(socket))
    }

    fn secret(&self, id: &str, required: bool) -> Result<Option<Vec<u8>>> {
        match self.engine.options.secrets.get(id) {
            Some(SecretSource::Value(value)) => Ok(Some(value.clone())),
            Some(SecretSource::File(path)) => std::fs::read(path)
                .map(Some)
                .bad_input(|| format!("line {}: cannot read the secret `{id}` from `{}`", self.line, path.display())),
            None if required => Err(Error::bad_input(format!("line {}: there is no secret `{id}`", self.line))
                .hint(format!("give it with `--secret id={id},src=FILE` or `--secret id={id},env=NAME`"))),
            None => Ok(None),
        }
    }

    fn tree(&mut self, from: &From) -> Result<usize> {
        let lower = self.engine.lower(layers(self.trees, from, self.line)?)?;
        self.lower.push(lower);
        Ok(self.lower.len() - 1)
    }

    /// The first of this id's directories that nobody uses.
    fn private_cache(&mut self, id: &str) -> Result<PathBuf> {
        for number in 0.. {
            let name = if number == 0 { id.to_owned() } else { format!("{id}#{number}") };
            let dir = self.engine.store.cache_dir(&name)?;
            let path = dir.join("private.lock");
            let what = || format!("cannot lock the cache `{id}`");
            let file = File::options().create(true).truncate(false).write(true).open(&path).unusable(what)?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    self.locks.files.push(file);
                    return Ok(dir);
                }
                Err(rustix::io::Errno::WOULDBLOCK) => self.cancel.check()?,
                Err(e) => return Err(e).unusable(what),
            }
        }
        Err(Error::unusable(format!("cannot lock the cache `{id}`")))
    }
}

fn layers<'t>(trees: &'t dyn Trees, from: &From, line: usize) -> Result<&'t [Digest]> {
    let missing = |what: String| Error::failed(format!("line {line}: {what} was not built before it is needed"));
    match from {
        From::Context => Err(Error::failed(format!("line {line}: the build context has no layers"))),
        From::Stage(index) => trees.stage(*index).ok_or_else(|| missing(format!("stage {index}"))),
        From::Image(name) => trees.image(name).ok_or_else(|| missing(format!("the image `{name}`"))),
    }
}

/// Prepares a COPY or ADD instruction.
pub fn copy(
    engine: &EmbeddedEngine,
    job: &BuildJob,
    step: &Copy,
    line: usize,
    trees: &dyn Trees,
    root: RootSpec,
    ctl: &Ctl<'_>,
) -> Result<CopySpec> {
    let from = match &step.from {
        From::Context => None,
        from => Some(engine.lower(layers(trees, from, line)?)?),
    };
    let mut items = Vec::new();
    for source in &step.sources {
        match source {
            Source::Path(pattern) if from.is_some() => items.push(CopyItem::Tree(pattern.clone())),
            Source::Path(pattern) => {
                items.extend(select(job, pattern, &step.excludes, line)?.into_iter().map(CopyItem::Context));
            }
            Source::Parents { pivot, pattern } if from.is_some() => {
                items.push(CopyItem::TreeParents { pivot: pivot.clone(), pattern: pattern.clone() });
            }
            Source::Parents { pivot, pattern } => {
                let selected = job.context.select_parents(pivot, pattern, &step.excludes)?;
                items.extend(context_items(job, selected).map(CopyItem::Context));
            }
            Source::Inline { name, content } => {
                items.push(CopyItem::Inline { name: name.clone(), content: Bytes(content.clone()) });
            }
            Source::Url(_) | Source::Git(_) => {
                items.extend(fetched::items(engine, job, step, source, &root.work.0, ctl)?);
            }
        }
    }
    let chmod = step.chmod.as_deref().map(|mode| ModeChange::parse(mode).ok_or(mode)).transpose().map_err(|mode| {
        Error::bad_input(format!("line {line}: `{mode}` is not a mode"))
            .hint("write it as an octal number, such as 0644, or in letters, such as u=rwX,go=rX")
    })?;
    Ok(CopySpec {
        root,
        from,
        items,
        dest: step.dest.clone(),
        chown: step.chown.clone(),
        chmod,
        unpack: step.add && step.unpack != Some(false),
        excludes: step.excludes.clone(),
    })
}

/// What a pattern selects of the context. One without wildcards has to select something.
fn select(job: &BuildJob, pattern: &str, excludes: &[String], line: usize) -> Result<Vec<ContextItem>> {
    let selected = job.context.select(pattern, excludes)?;
    if selected.is_empty() && !pattern.contains(['*', '?', '[']) {
        let error = Error::bad_input(format!("line {line}: there is no `{pattern}` in the build context"))
            .cause(format!("the build context is `{}`", job.context.root().display()));
        return Err(match job.context.ignore_file().filter(|_| job.context.is_ignored(Path::new(pattern))) {
            Some(file) => error.hint(format!("`{}` leaves it out", file.display())),
            None => error,
        });
    }
    Ok(context_items(job, selected).collect())
}

fn context_items(job: &BuildJob, selected: Vec<Selected>) -> impl Iterator<Item = ContextItem> {
    items_of(job.context.root(), selected)
}

pub(super) fn items_of(root: &Path, selected: Vec<Selected>) -> impl Iterator<Item = ContextItem> {
    let context = RawPath::from(root);
    selected.into_iter().map(move |one| ContextItem {
        context: context.clone(),
        base: RawPath(one.root),
        name: RawPath(one.name.into()),
        entries: one.entries.into_iter().map(Into::into).collect(),
    })
}
