//! Images of the engine: looked at, named, loaded from our store and brought into it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};

use bollard::body_try_stream;
use bollard::models::{BuildInfo, HealthConfig, ImageInspect};
use bollard::query_parameters::{ImportImageOptions, RemoveImageOptions, TagImageOptionsBuilder};
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt as _};
use tokio::sync::mpsc;

use crate::daemon::{Answer, Daemon, found};
use crate::engine::Built;
use crate::error::{Context as _, Error, Result};
use crate::image::archive::{self, docker as archives};
use crate::image::config::{Empty, Healthcheck, ImageConfig, Platform, RootFs, RuntimeConfig};
use crate::image::digest::Digest;
use crate::image::store::Store;

/// Of the pieces in which an archive goes to the engine.
const PIECE: usize = 256 << 10;

fn look(daemon: &Daemon, name: &str) -> Result<Option<ImageInspect>> {
    let what = || format!("cannot look at the image {name}");
    daemon.wait(what, async { found(daemon.docker.inspect_image(name).await) })
}

/// `sha256:…` of an image that the engine has.
pub(super) fn id(daemon: &Daemon, name: &str) -> Result<Option<String>> {
    Ok(look(daemon, name)?.and_then(|image| image.id).map(|id| match id.contains(':') {
        true => id,
        false => format!("sha256:{id}"),
    }))
}

/// Its key is its own result's.
pub(super) fn inspect(daemon: &Daemon, name: &str) -> Result<Option<Built>> {
    let Some(image) = look(daemon, name)? else { return Ok(None) };
    let size = image.size.and_then(|size| u64::try_from(size).ok()).unwrap_or(0);
    let config = config(image).map_err(|e| e.context(format!("cannot understand the image {name} of the engine")))?;
    Ok(Some(Built { key: config.result_id(), config, size }))
}

/// The history is not in the answer; it comes with the image itself.
fn config(image: ImageInspect) -> Result<ImageConfig> {
    let layers = image.root_fs.and_then(|root| root.layers).unwrap_or_default();
    let diff_ids = layers.iter().map(|text| text.parse::<Digest>());
    let diff_ids = diff_ids.collect::<std::result::Result<_, _>>().map_err(Error::failed)?;
    let of = image.config.unwrap_or_default();
    let set = |names: Option<Vec<String>>| names.into_iter().flatten().map(|name| (name, Empty {})).collect();
    let config = RuntimeConfig {
        user: of.user.unwrap_or_default(),
        exposed_ports: set(of.exposed_ports),
        env: of.env.unwrap_or_default(),
        entrypoint: of.entrypoint.filter(|words| !words.is_empty()),
        cmd: of.cmd.filter(|words| !words.is_empty()),
        healthcheck: of.healthcheck.map(healthcheck),
        volumes: set(of.volumes),
        working_dir: of.working_dir.unwrap_or_default(),
        on_build: of.on_build.unwrap_or_default(),
        labels: of.labels.unwrap_or_default().into_iter().collect(),
        stop_signal: of.stop_signal.filter(|signal| !signal.is_empty()),
        shell: of.shell.filter(|words| !words.is_empty()),
        other: BTreeMap::new(),
    };
    Ok(ImageConfig {
        created: image.created,
        author: image.author.filter(|author| !author.is_empty()),
        architecture: image.architecture.unwrap_or_default(),
        os: image.os.unwrap_or_default(),
        variant: image.variant.filter(|variant| !variant.is_empty()),
        config,
        rootfs: RootFs { diff_ids, ..RootFs::default() },
        ..ImageConfig::default()
    })
}

fn healthcheck(of: HealthConfig) -> Healthcheck {
    Healthcheck {
        test: of.test.unwrap_or_default(),
        interval: of.interval.unwrap_or(0),
        timeout: of.timeout.unwrap_or(0),
        start_period: of.start_period.unwrap_or(0),
        start_interval: of.start_interval.unwrap_or(0),
        retries: of.retries.unwrap_or(0),
    }
}

pub(super) fn tag(daemon: &Daemon, image: &str, name: &str) -> Result<()> {
    let last = name.rsplit('/').next().unwrap_or(name);
    let (repository, tag) = match last.rsplit_once(':') {
        Some((_, tag)) => (&name[..name.len() - tag.len() - 1], tag),
        None => (name, "latest"),
    };
    let options = TagImageOptionsBuilder::default().repo(repository).tag(tag).build();
    daemon.wait(|| format!("cannot name an image {name}"), daemon.docker.tag_image(image, Some(options)))
}

/// Takes a name away; the image stays as long as it has another.
pub(super) fn untag(daemon: &Daemon, name: &str) -> Result<()> {
    let options = RemoveImageOptions { noprune: true, ..RemoveImageOptions::default() };
    let removed = async { found(daemon.docker.remove_image(name, Some(options), None).await) };
    daemon.wait(|| format!("cannot remove the name {name}"), removed).map(drop)
}

/// Loads an image of the store under these names.
pub(super) fn load(daemon: &Daemon, store: &Store, built: &Built, names: Vec<String>) -> Result<()> {
    let config = serde_json::to_vec(&built.config).failed(|| "cannot write a configuration".to_owned())?;
    let diff_ids = &built.config.rootfs.diff_ids;
    let first = names.first().cloned().unwrap_or_default();
    let write = |out: Pipe| {
        let image = archives::Loadable { config: &config, diff_ids, names };
        let out = archives::stream(store, &image, BufWriter::with_capacity(PIECE, out), &daemon.cancel)?;
        out.into_inner().map(drop).failed(|| "cannot hand over an image".to_owned())
    };
    let what = || format!("the engine cannot load {first}");
    send(
        daemon,
        what,
        write,
        |pieces| daemon.docker.import_image(ImportImageOptions::default(), body_try_stream(pieces), None),
        |_| {},
    )
}

/// Brings an image into the store.
pub(super) fn save(daemon: &Daemon, store: &Store, name: &str, platform: &Platform) -> Result<Built> {
    let work = store.work_dir()?;
    let path = work.path().join("image.tar");
    let cannot = || format!("cannot write {}", path.display());
    let mut file = BufWriter::with_capacity(1 << 20, File::create(&path).unusable(cannot)?);
    daemon.work(|| format!("the engine cannot save {name}"), async {
        let mut parts = std::pin::pin!(daemon.docker.export_image(name));
        while let Some(part) = parts.next().await {
            file.write_all(&part?)?;
        }
        file.flush()?;
        Ok(())
    })?;
    let imported = archive::import_docker_archive(store, &path, None, platform, &daemon.cancel)?;
    Ok(Built { key: imported.config.result_id(), config: imported.config, size: imported.size })
}

/// The body of a call.
pub(super) type Pieces = BoxStream<'static, io::Result<Bytes>>;

/// Streams what `write` writes to a call, and hands over what the engine says meanwhile.
pub(super) fn send<S: Stream<Item = Answer<BuildInfo>>>(
    daemon: &Daemon,
    what: impl Fn() -> String,
    write: impl FnOnce(Pipe) -> Result<()> + Send,
    call: impl FnOnce(Pieces) -> S,
    mut said: impl FnMut(BuildInfo),
) -> Result<()> {
    let (out, mut pieces) = mpsc::channel::<io::Result<Bytes>>(4);
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            let broken = out.clone();
            let written = write(Pipe { out });
            if written.is_err() {
                // The engine must not take what there is for the whole.
                let _ = broken.blocking_send(Err(io::Error::other("the rest cannot be read")));
            }
            written
        });
        let body = futures_util::stream::poll_fn(move |context| pieces.poll_recv(context)).boxed();
        let answered = daemon.work(what, async {
            let mut answers = std::pin::pin!(call(body));
            while let Some(answer) = answers.next().await {
                let info = answer?;
                if let Some(error) = &info.error_detail {
                    let error = error.message.clone().unwrap_or_default();
                    return Err(bollard::errors::Error::DockerStreamError { error });
                }
                said(info);
            }
            Ok(())
        });
        // Whatever is still to be written has nobody left to read it.
        let written = writer.join().unwrap_or_else(|_| Err(Error::failed("a thread came to an end too early")));
        match (answered, written) {
            (Ok(()), _) => Ok(()),
            // What it has not taken because it had failed is no cause of the failure.
            (Err(answered), Ok(())) => Err(answered),
            (Err(answered), Err(written)) => {
                let engine_ended_it = written.causes().iter().any(|cause| cause.contains(NOBODY));
                Err(if engine_ended_it { answered } else { written })
            }
        }
    })
}

const NOBODY: &str = "the engine takes no more";

/// What is written to it goes to the engine.
pub(super) struct Pipe {
    out: mpsc::Sender<io::Result<Bytes>>,
}

impl Write for Pipe {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let piece = &data[..data.len().min(PIECE)];
        match self.out.blocking_send(Ok(Bytes::copy_from_slice(piece))) {
            Ok(()) => Ok(piece.len()),
            Err(_) => Err(io::Error::other(NOBODY)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
