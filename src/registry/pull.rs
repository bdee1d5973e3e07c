//! Pulling: one thread talks to the registry, the caller's unpacks what has arrived.

use std::cell::Cell;
use std::future::poll_fn;
use std::path::Path;
use std::pin::Pin;
use std::task::Poll;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::error::{Error, Kind, Result};
use crate::image::archive::{Imported, layers, platform};
use crate::image::config::{ImageConfig, Platform};
use crate::image::digest::Digest;
use crate::image::manifest::{DOCKER_CONFIG, Descriptor, Index, Manifest, OCI_CONFIG};
use crate::image::store::Store;
use crate::net::{Caller, block_on};
use crate::quantity;
use crate::registry::client::{Client, Document};
use crate::registry::conf::Place;
use crate::registry::{Options, Reference, download};

/// Indexes within indexes end somewhere.
const MAX_DEPTH: usize = 4;

enum Arrived {
    Image(Box<Image>),
    /// A layer's blob is in the store.
    Layer(usize),
}

struct Image {
    manifest: Manifest,
    digest: Digest,
    config: ImageConfig,
}

pub(super) fn pull(
    store: &Store,
    reference: &Reference,
    platform: &Platform,
    options: &Options,
    caller: &Caller<'_>,
) -> Result<Imported> {
    std::thread::scope(|scope| {
        let (arrived, mut arrivals) = mpsc::unbounded_channel();
        // Dropped when unpacking fails: then nothing more needs to be fetched.
        let (wanted, unwanted) = oneshot::channel::<()>();
        let fetching = scope.spawn(move || {
            block_on(caller.cancel, async {
                tokio::select! {
                    done = fetch(store, reference, platform, options, caller, &arrived) => done,
                    _ = unwanted => Ok(()),
                }
            })
        });
        let unpacked = unpack(store, &mut arrivals, caller);
        drop(wanted);
        let fetched = fetching.join().unwrap_or_else(|_| Err(Error::failed("the network thread died")));
        match (fetched, unpacked) {
            // What ended the arrivals is the better reason.
            (Err(e), Ok(None)) => Err(e),
            (_, Err(e)) => Err(e),
            (_, Ok(Some(imported))) => Ok(imported),
            (Ok(()), Ok(None)) => Err(Error::failed("the image did not arrive")),
        }
    })
}

/// Unpacks layers in their order as they arrive. None when they stop arriving.
fn unpack(
    store: &Store,
    arrivals: &mut mpsc::UnboundedReceiver<Arrived>,
    caller: &Caller<'_>,
) -> Result<Option<Imported>> {
    let Some(Arrived::Image(image)) = arrivals.blocking_recv() else {
        return Ok(None);
    };
    let Image { manifest, digest, config } = *image;
    let diff_ids = &config.rootfs.diff_ids;
    let mut there = vec![false; diff_ids.len()];
    let mut size = 0;
    for (i, (blob, diff_id)) in manifest.layers.iter().zip(diff_ids).enumerate() {
        while !there[i] {
            match arrivals.blocking_recv() {
                Some(Arrived::Layer(n)) => there[n] = true,
                Some(Arrived::Image(_)) => {}
                None => return Ok(None),
            }
        }
        caller.cancel.check()?;
        size += store.unpack_blob(blob, &diff_ids[..i], Some(diff_id), caller.cancel)?.size;
    }
    Ok(Some(Imported { config, size, manifest: Some(digest) }))
}

async fn fetch(
    store: &Store,
    reference: &Reference,
    platform: &Platform,
    options: &Options,
    caller: &Caller<'_>,
    arrived: &mpsc::UnboundedSender<Arrived>,
) -> Result<()> {
    let work = store.work_dir()?;
    let places = options.registries.pull_from(reference)?;
    let ask = async |place| {
        let client = Client::connect(place, options, caller).await?;
        let image = resolve(&client, store, platform, work.path()).await?;
        Ok((client, image))
    };
    let (answered, (client, image)) = first_of(&places, caller, ask).await?;
    let others = &places[answered + 1..];
    let layers = image.manifest.layers.clone();
    // The receiver is gone only when the result no longer matters.
    let _ = arrived.send(Arrived::Image(Box::new(image)));

    // The same layer may be in an image twice, and is fetched once.
    let next = Cell::new(0);
    let first = |i: usize| layers.iter().position(|l| l.digest == layers[i].digest) == Some(i);
    let worker = || async {
        while let Some(layer) = layers.get(next.get()) {
            let i = next.replace(next.get() + 1);
            if first(i) {
                if !store.has_blob(&layer.digest) {
                    let size = quantity::shown(layer.size);
                    caller.background(format!("downloading layer {} of {} ({size})", i + 1, layers.len()));
                    let what = format!("the layer {} ({size})", layer.digest);
                    match fetch_blob(&client, store, layer, &what, work.path()).await {
                        Err(error) if !others.is_empty() && error.kind() != Kind::Interrupted => {
                            useless(caller, client.host(), &error);
                            let fetch = async |place| {
                                let client = Client::connect(place, options, caller).await?;
                                fetch_blob(&client, store, layer, &what, work.path()).await
                            };
                            first_of(others, caller, fetch).await?;
                        }
                        done => done?,
                    }
                }
                for (same, _) in layers.iter().enumerate().filter(|(_, l)| l.digest == layer.digest) {
                    let _ = arrived.send(Arrived::Layer(same));
                }
            }
        }
        Ok(())
    };
    let workers = (0..options.parallel.max(1)).map(|_| worker());
    all(workers).await
}

pub(super) async fn inspect(
    store: &Store,
    reference: &Reference,
    platform: &Platform,
    options: &Options,
    caller: &Caller<'_>,
) -> Result<(Manifest, ImageConfig)> {
    let work = store.work_dir()?;
    let places = options.registries.pull_from(reference)?;
    let ask = async |place| {
        let client = Client::connect(place, options, caller).await?;
        resolve(&client, store, platform, work.path()).await
    };
    let (_, image) = first_of(&places, caller, ask).await?;
    Ok((image.manifest, image.config))
}

/// One layer's blob into the store, for an image that goes on to another registry.
pub(super) async fn layer(
    store: &Store,
    reference: &Reference,
    blob: &Descriptor,
    options: &Options,
    caller: &Caller<'_>,
) -> Result<()> {
    let work = store.work_dir()?;
    let places = options.registries.pull_from(reference)?;
    let what = format!("the layer {} ({})", blob.digest, quantity::shown(blob.size));
    let fetch = async |place| {
        let client = Client::connect(place, options, caller).await?;
        fetch_blob(&client, store, blob, &what, work.path()).await
    };
    first_of(&places, caller, fetch).await.map(|_| ())
}

/// What the first place gives that gives anything, and which one it is. Why a mirror didn't is told; the last word has
/// the registry itself.
pub(super) async fn first_of<'p, T>(
    places: &'p [Place],
    caller: &Caller<'_>,
    ask: impl AsyncFn(&'p Place) -> Result<T>,
) -> Result<(usize, T)> {
    for (i, place) in places.iter().enumerate() {
        match ask(place).await {
            Ok(found) => return Ok((i, found)),
            Err(error) if place.mirror && error.kind() != Kind::Interrupted && i + 1 < places.len() => {
                useless(caller, place.reference.registry(), &error);
            }
            Err(error) => return Err(error),
        }
    }
    Err(Error::failed("there is no place to pull from"))
}

fn useless(caller: &Caller<'_>, mirror: &str, error: &Error) {
    caller.warning(format!("the mirror {mirror} is of no use: {error}"));
}

/// From the reference to the manifest of the platform, and its configuration.
async fn resolve(client: &Client<'_>, store: &Store, platform: &Platform, work: &Path) -> Result<Image> {
    let what = client.reference.familiar();
    let mut id = client.reference.manifest_id();
    for _ in 0..MAX_DEPTH {
        let Document { bytes, digest } = client.manifest(&id).await?;
        let broken =
            |e: serde_json::Error| Error::unusable(format!("the manifest of {what} cannot be understood")).cause(e);
        let value: Value = serde_json::from_slice(&bytes).map_err(broken)?;
        if value.get("manifests").is_some() {
            let index: Index = serde_json::from_value(value).map_err(broken)?;
            id = platform::select(&index, platform, &what)?.digest.to_string();
            continue;
        }
        if value["schemaVersion"] == 1 {
            return Err(Error::unusable(format!("the manifest of {what} is in Docker's first format"))
                .hint("push the image again with a Docker of this decade"));
        }
        let manifest: Manifest = serde_json::from_value(value).map_err(broken)?;
        let media_type = &*manifest.config.media_type;
        if media_type != OCI_CONFIG && media_type != DOCKER_CONFIG {
            return Err(Error::unusable(format!("{what} is not a container image"))
                .cause(format!("its configuration has the media type {media_type}"))
                .hint("it is an artifact of another kind: check the name and the tag"));
        }
        download::check_layers(&manifest.layers)?;
        fetch_blob(client, store, &manifest.config, &format!("the configuration of {what}"), work).await?;
        let config_bytes = store.read_blob(&manifest.config.digest)?;
        let config = layers::read_config(&config_bytes, Some(media_type), manifest.layers.len(), platform, &what)?;
        store.put_blob(&bytes)?;
        return Ok(Image { manifest, digest, config });
    }
    Err(Error::unusable(format!("{what} is a list of lists of images, and no image is found in {MAX_DEPTH} of them"))
        .hint("name the image itself by its digest: `NAME@sha256:…`"))
}

async fn fetch_blob(client: &Client<'_>, store: &Store, blob: &Descriptor, what: &str, work: &Path) -> Result<()> {
    if store.has_blob(&blob.digest) {
        return Ok(());
    }
    let path = work.join(blob.digest.hex());
    if let Err(error) = client.download(blob, what, &path).await {
        // Another place may be asked for the same.
        let _ = std::fs::remove_file(&path);
        return Err(error);
    }
    store.adopt_blob(&path, &blob.digest)
}

/// Runs futures side by side on this thread; the first error ends them all.
async fn all<F: Future<Output = Result<()>>>(futures: impl Iterator<Item = F>) -> Result<()> {
    let mut running: Vec<Pin<Box<F>>> = futures.map(Box::pin).collect();
    poll_fn(|context| {
        let mut failed = None;
        running.retain_mut(|future| match future.as_mut().poll(context) {
            Poll::Pending => true,
            Poll::Ready(Ok(())) => false,
            Poll::Ready(Err(e)) => {
                failed.get_or_insert(e);
                false
            }
        });
        match failed {
            Some(e) => Poll::Ready(Err(e)),
            None if running.is_empty() => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    })
    .await
}
