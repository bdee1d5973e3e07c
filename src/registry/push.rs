//! Pushing images: every blob and every manifest by its digest first, names last and all together, so that a name never
//! leads to something incomplete and a release is there as a whole or not at all.
//!
//! A blob goes to each registry once in a run, whichever images have it: from then on it is mounted.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::join_all;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use reqwest::header::{self, HeaderMap, HeaderValue};
use reqwest::{Method, StatusCode};
use tokio::sync::Mutex;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::error::{Error, Kind, Result};
use crate::event::{Cancel, Event, Sink};
use crate::image::digest::Digest;
use crate::image::manifest::Descriptor;
use crate::image::store::Store;
use crate::net::{Problem, Tries, block_on, block_on_unless, status_name};
use crate::quantity;
use crate::registry::answer::message;
use crate::registry::client::{Client, Document, Payload, Purpose, accept, content_digest};
use crate::registry::conf::Place;
use crate::registry::host::Host;
use crate::registry::release::{Release, Tag};
use crate::registry::upload::Mount;
use crate::registry::{Caller, Options, Reference, pull};

/// An image that is to be pushed; everything that its manifest names is in files.
#[derive(Clone, Debug)]
pub struct Image {
    /// What it is called in events.
    pub node: Arc<str>,
    pub name: Reference,
    pub manifest: Vec<u8>,
    pub media_type: String,
    pub blobs: Vec<Blob>,
    /// Images that its manifest names, when it is the index of one for several platforms. They get no name of their own.
    pub parts: Vec<Image>,
}

impl Image {
    pub fn digest(&self) -> Digest {
        Digest::of(&self.manifest)
    }
}

#[derive(Clone, Debug)]
pub struct Blob {
    pub digest: Digest,
    pub size: u64,
    pub path: PathBuf,
    /// For a person: `layer 3 of 7`.
    pub what: String,
    /// A repository of the same registry that may have it.
    pub near: Option<String>,
    /// Where it is when it isn't in the file yet.
    pub from: Option<Elsewhere>,
}

/// A layer of an image in a registry: mounted where that is the registry that it goes to, else brought to the store.
#[derive(Clone, Debug)]
pub struct Elsewhere {
    pub image: Reference,
    pub media_type: String,
    pub store: Store,
}

/// When names are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// When everything is there.
    Together,
    /// Each when its image is there; one that fails leaves the others alone.
    Each,
}

/// What became of the blobs of one image or several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub sent: usize,
    pub bytes: u64,
    pub mounted: usize,
    /// They were in the registry already.
    pub there: usize,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.sent += other.sent;
        self.bytes += other.bytes;
        self.mounted += other.mounted;
        self.there += other.there;
    }

    /// With what went before it, which it found there.
    pub fn after(mut self, ahead: Tally) -> Tally {
        self.there = self.there.saturating_sub(ahead.sent + ahead.mounted);
        self.add(Tally { there: 0, ..ahead });
        self
    }
}

impl std::fmt::Display for Tally {
    /// `2 blobs sent (31 MB), 1 mounted, 4 were there`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.sent, quantity::shown(self.bytes)) {
            (0, _) => f.write_str("no blob sent")?,
            (1, size) => write!(f, "1 blob sent ({size})")?,
            (n, size) => write!(f, "{n} blobs sent ({size})")?,
        }
        if self.mounted > 0 {
            write!(f, ", {} mounted", self.mounted)?;
        }
        match self.there {
            0 => Ok(()),
            1 => f.write_str(", 1 was there"),
            n => write!(f, ", {n} were there"),
        }
    }
}

/// What a push has done, up to the failure where there was one.
#[derive(Debug)]
pub struct Outcome {
    pub tally: Tally,
    /// Names that lead to what was pushed now, those included that did before.
    pub tags: Vec<Tag>,
    pub error: Option<Error>,
}

/// Whether these names may be pushed to, asked of the registries before there is anything to push. All refusals come
/// in one error.
pub fn check(names: &[Reference], options: &Options, caller: &Caller<'_>) -> Result<()> {
    block_on(caller.cancel, async {
        let push = Push::new(options);
        let repositories: BTreeMap<_, _> = names.iter().map(|n| ((n.registry(), n.repository()), n)).collect();
        let places: Vec<Place> =
            repositories.values().map(|name| options.registries.push_to(name)).collect::<Result<_>>()?;
        let checks = places.iter().map(|place| async {
            let client = push.client(place, caller).await?;
            let _permit = client.host.transfers.acquire().await;
            client.may_push().await
        });
        all_of(join_all(checks).await.into_iter().filter_map(Result::err).collect())
    })
}

/// One error for several, the same said once.
fn all_of(errors: Vec<Error>) -> Result<()> {
    let mut errors = errors.into_iter();
    let Some(first) = errors.next() else { return Ok(()) };
    let mut said = vec![first.to_string()];
    Err(errors.fold(first, |all, next| {
        if next.kind() == Kind::Interrupted || said.contains(&next.to_string()) {
            return all;
        }
        said.push(next.to_string());
        all.cause(format!("and {next}"))
    }))
}

/// Pushes images. `begun` is handed what the names led to before and will lead to, before the first one is moved.
pub fn push(
    images: &[Image],
    when: Move,
    options: &Options,
    sink: &dyn Sink,
    cancel: &Cancel,
    begun: &dyn Fn(&Release) -> Result<()>,
) -> Outcome {
    let callers: Vec<Caller<'_>> = images.iter().map(|image| Caller { node: &image.node, sink, cancel }).collect();
    let tally = Cell::new(Tally::default());
    let (tags, known) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
    let result = block_on(cancel, async {
        let push = Push::new(options);
        let places: Vec<Place> =
            images.iter().map(|image| options.registries.push_to(&image.name)).collect::<Result<_>>()?;
        let mut clients = Vec::new();
        for ((image, caller), place) in images.iter().zip(&callers).zip(&places) {
            clients.push(push.client(place, caller).await.map_err(|e| e.context(cannot_push(image)))?);
        }
        let all: Vec<(&Image, &Client<'_>)> = images.iter().zip(&clients).collect();
        let pushes = images.iter().zip(&clients).map(|(image, client)| async {
            let one = async {
                let part = push.content(image, client, &all).await?;
                let mut all = tally.get();
                all.add(part);
                tally.set(all);
                client.caller.background(format!("{}: {part}", image.name.repository()));
                if when == Move::Each {
                    let tag = client.look(image).await?;
                    known.borrow_mut().push(tag.clone());
                    begun(&Release::of(known.borrow().clone()))?;
                    client.put_tag(image).await?;
                    tags.borrow_mut().push(tag);
                }
                Ok(())
            };
            let done = one.await.map_err(|e: Error| e.context(cannot_push(image)));
            sink.event(Event::BackgroundFinished { node: image.node.clone() });
            done
        });
        all_of(join_all(pushes).await.into_iter().filter_map(Result::err).collect())
    });
    let result = match (result, when) {
        (Ok(()), Move::Together) => move_all(images, options, &callers, cancel, begun).map(|moved| {
            tags.borrow_mut().extend(moved);
        }),
        (other, _) => other,
    };
    Outcome { tally: tally.get(), tags: tags.into_inner(), error: result.err() }
}

/// Images that are sent at once while others are built.
const AT_ONCE: usize = 16;

/// Sends blobs of images that come one after the other, and neither manifests nor names: a push that follows finds them
/// there. What was done counts, whatever happened then.
pub fn ahead<T>(
    mut coming: UnboundedReceiver<T>,
    prepare: &dyn Fn(T) -> Result<Image>,
    options: &Options,
    sink: &dyn Sink,
    cancel: &Cancel,
) -> (Tally, Result<()>) {
    let tally = Cell::new(Tally::default());
    let result = block_on(cancel, async {
        let push = Push::new(options);
        let (push, tally) = (&push, &tally);
        let one = |next| async move {
            let image = prepare(next)?;
            let place = options.registries.push_to(&image.name)?;
            let caller = Caller { node: &image.node, sink, cancel };
            let client = push.client(&place, &caller).await?;
            let sent = push.blobs(&image, &client, &[(&image, &client)]).await;
            sink.event(Event::BackgroundFinished { node: image.node.clone() });
            let mut all = tally.get();
            all.add(sent?.0);
            tally.set(all);
            Ok(())
        };
        // How much goes at once is the registry's limit; one image may have nothing but one large blob.
        let coming = stream::poll_fn(|context| coming.poll_recv(context));
        coming.map(one).buffer_unordered(AT_ONCE).try_for_each(|()| async { Ok(()) }).await
    });
    (tally.get(), result)
}

fn cannot_push(image: &Image) -> String {
    format!("cannot push {}", image.name)
}

/// Names are moved in one go: only who asks to stop a second time interrupts that.
fn move_all(
    images: &[Image],
    options: &Options,
    callers: &[Caller<'_>],
    cancel: &Cancel,
    begun: &dyn Fn(&Release) -> Result<()>,
) -> Result<Vec<Tag>> {
    cancel.check()?;
    block_on_unless(|| cancel.is_forced(), async {
        let push = Push::new(options);
        let places: Vec<Place> =
            images.iter().map(|image| options.registries.push_to(&image.name)).collect::<Result<_>>()?;
        let mut clients = Vec::new();
        for (caller, place) in callers.iter().zip(&places) {
            clients.push(push.client(place, caller).await?);
        }
        let looks = join_all(images.iter().zip(&clients).map(|(image, client)| client.look(image))).await;
        let tags: Vec<Tag> = looks.into_iter().collect::<Result<_>>()?;
        begun(&Release::of(tags.clone()))?;
        let moves = images.iter().zip(&clients).zip(&tags).map(|((image, client), tag)| async move {
            match tag.old.as_ref() == Some(&tag.new) {
                true => Ok(()),
                false => client.put_tag(image).await,
            }
        });
        let moved = join_all(moves).await;
        if moved.iter().all(Result::is_ok) {
            return Ok(tags);
        }
        // Not half a release: those that were moved go back.
        let mut stay = Vec::new();
        for ((client, tag), moved) in clients.iter().zip(&tags).zip(&moved) {
            if moved.is_ok()
                && tag.old.as_ref() != Some(&tag.new)
                && let Err(error) = client.restore(tag).await
            {
                stay.push(format!("{} stays where it is now: {error}", tag.name));
            }
        }
        let back = if stay.is_empty() { "no name was moved" } else { "the other names are where they were" };
        all_of(moved.into_iter().filter_map(Result::err).collect())
            .map_err(|e| stay.into_iter().fold(e.cause(back), Error::cause))?;
        Ok(tags)
    })
}

/// Where a blob is known to be: repositories of one registry. Whoever deals with the blob holds the lock.
type Places = Rc<Mutex<Vec<String>>>;

/// What one run knows.
pub(super) struct Push<'a> {
    options: &'a Options,
    hosts: Mutex<HashMap<String, Rc<Host>>>,
    places: RefCell<HashMap<(String, Digest), Places>>,
}

enum Way {
    There,
    Mounted,
    Sent,
}

impl<'a> Push<'a> {
    pub(super) fn new(options: &'a Options) -> Push<'a> {
        Push { options, hosts: Mutex::default(), places: RefCell::default() }
    }

    pub(super) async fn client<'c>(&'c self, place: &'c Place, caller: &'c Caller<'c>) -> Result<Client<'c>> {
        let mut hosts = self.hosts.lock().await;
        let name = place.reference.registry();
        let host = match hosts.get(name) {
            Some(host) => host.clone(),
            None => {
                let host = Host::connect(place, self.options).await?;
                hosts.insert(name.to_owned(), host.clone());
                host
            }
        };
        Ok(Client::on(host, &place.reference, self.options, caller, Purpose::Push))
    }

    fn places(&self, client: &Client<'_>, digest: &Digest) -> Places {
        self.places.borrow_mut().entry((client.host.name.clone(), digest.clone())).or_default().clone()
    }

    /// All that the image's manifest names, and the manifest.
    async fn content(&self, image: &Image, client: &Client<'_>, all: &[(&Image, &Client<'_>)]) -> Result<Tally> {
        let (mut tally, there) = self.blobs(image, client, all).await?;
        if there {
            return Ok(tally);
        }
        for part in &image.parts {
            tally.add(Box::pin(self.content(part, client, all)).await?);
        }
        let _permit = client.host.transfers.acquire().await;
        client.put_manifest(&image.digest().to_string(), &image.manifest, &image.media_type).await?;
        Ok(tally)
    }

    /// Its blobs, and whether the manifest is there already.
    async fn blobs(&self, image: &Image, client: &Client<'_>, all: &[(&Image, &Client<'_>)]) -> Result<(Tally, bool)> {
        let (digest, repository) = (image.digest(), client.reference.repository());
        let path = format!("manifests/{digest}");
        let mut tally = Tally::default();
        // A registry takes no manifest before what it names is there.
        let there = {
            let _permit = client.host.transfers.acquire().await;
            client.exists(&path, &client.manifest_name(&digest.to_string())).await?
        };
        if there {
            for blob in &image.blobs {
                let places = self.places(client, &blob.digest);
                places.lock().await.push(repository.to_owned());
            }
            tally.there = image.blobs.len();
            return Ok((tally, true));
        }
        let blobs = join_all(image.blobs.iter().map(|blob| self.blob(blob, client, all))).await;
        for (blob, way) in image.blobs.iter().zip(blobs) {
            match way? {
                Way::There => tally.there += 1,
                Way::Mounted => tally.mounted += 1,
                Way::Sent => {
                    tally.sent += 1;
                    tally.bytes += blob.size;
                }
            }
        }
        Ok((tally, false))
    }

    async fn blob(&self, blob: &Blob, client: &Client<'_>, all: &[(&Image, &Client<'_>)]) -> Result<Way> {
        let repository = client.reference.repository();
        let places = self.places(client, &blob.digest);
        // Whoever wants the same blob elsewhere waits, and has it mounted then.
        let mut places = places.lock().await;
        if places.iter().any(|place| place == repository) {
            return Ok(Way::There);
        }
        let _permit = client.host.transfers.acquire().await;
        let what = format!("{} ({})", blob.what, quantity::shown(blob.size));
        let way = if client.exists(&format!("blobs/{}", blob.digest), &what).await? {
            Way::There
        } else {
            if places.is_empty() {
                // An earlier push may have brought it to where another of these images goes.
                places.extend(found_beside(blob, client, all, &what).await?);
            }
            let image = blob.from.as_ref().map(|from| &from.image).filter(|i| i.registry() == client.host.name);
            let near = image.map(|image| image.repository()).or(blob.near.as_deref());
            // A registry that doesn't have it there begins an upload instead: asking costs nothing.
            let from = places.first().map(String::as_str).or(near).filter(|from| *from != repository);
            let mount = match from {
                Some(from) => client.mount(&blob.digest, from).await?,
                None => Mount::Refused,
            };
            let session = match mount {
                Mount::Done => {
                    places.push(repository.to_owned());
                    return Ok(Way::Mounted);
                }
                Mount::Instead(session) => Some(session),
                Mount::Refused => None,
            };
            if let Some(Elsewhere { image, media_type, store }) = &blob.from {
                let (digest, media_type) = (blob.digest.clone(), media_type.clone());
                let annotations = BTreeMap::new();
                let layer = Descriptor { media_type, digest, size: blob.size, platform: None, annotations };
                pull::layer(store, image, &layer, self.options, client.caller).await?;
            }
            client.caller.background(format!("pushing {what}"));
            client.upload(&blob.digest, &blob.path, blob.size, session, &what).await?;
            Way::Sent
        };
        places.push(repository.to_owned());
        Ok(way)
    }
}

/// A repository of the same registry that has the blob, of those that are pushed to and want it too.
async fn found_beside(
    blob: &Blob,
    client: &Client<'_>,
    all: &[(&Image, &Client<'_>)],
    what: &str,
) -> Result<Option<String>> {
    let path = format!("blobs/{}", blob.digest);
    for (image, other) in all {
        let repository = other.reference.repository();
        let elsewhere = other.host.name == client.host.name && repository != client.reference.repository();
        if elsewhere && image.blobs.iter().any(|b| b.digest == blob.digest) && other.exists(&path, what).await? {
            return Ok(Some(repository.to_owned()));
        }
    }
    Ok(None)
}

impl Client<'_> {
    /// What the name leads to now.
    async fn look(&self, image: &Image) -> Result<Tag> {
        let old = self.tag_digest(image.name.tag().unwrap_or("latest")).await?;
        Ok(Tag { name: image.name.to_string(), old, new: image.digest() })
    }

    /// None where there is no such tag.
    pub(super) async fn tag_digest(&self, tag: &str) -> Result<Option<Digest>> {
        let _permit = self.host.transfers.acquire().await;
        let what = self.manifest_name(tag);
        let mut tries = Tries::default();
        loop {
            match self.try_tag_digest(tag, &what).await {
                // The header is only recommended.
                Ok(Some(None)) => return Ok(Some(self.manifest(tag).await?.digest)),
                Ok(found) => return Ok(found.flatten()),
                Err(problem) => self.wait(&mut tries, problem, &what).await?,
            }
        }
    }

    async fn try_tag_digest(&self, tag: &str, what: &str) -> Result<Option<Option<Digest>>, Problem> {
        let url = self.url(&format!("manifests/{tag}"))?;
        let response = self.exchange(Method::HEAD, url, &accept(), &Payload::Empty).await?;
        match response.status() {
            status if status.is_success() => Ok(Some(content_digest(response.headers()))),
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(self.refused(response, what).await),
        }
    }

    async fn put_tag(&self, image: &Image) -> Result<()> {
        let tag = image.name.tag().unwrap_or("latest");
        let _permit = self.host.transfers.acquire().await;
        self.put_manifest(tag, &image.manifest, &image.media_type).await?;
        self.caller.background(format!("tagged {}", image.name));
        Ok(())
    }

    /// A tag back to what it led to before.
    pub(super) async fn restore(&self, tag: &Tag) -> Result<()> {
        let name = self.reference.tag().unwrap_or("latest");
        match &tag.old {
            Some(old) => {
                let Document { bytes, .. } = self.manifest(&old.to_string()).await?;
                self.put_manifest(name, &bytes, &media_type(&bytes)).await
            }
            None => self.remove_tag(name).await,
        }
    }

    /// Many registries remove manifests only, with all the names that they have: that is not asked for.
    async fn remove_tag(&self, tag: &str) -> Result<()> {
        let url = self.url(&format!("manifests/{tag}"))?;
        let answer = self.exchange(Method::DELETE, url, &HeaderMap::new(), &Payload::Empty).await;
        match answer {
            Ok(response) if response.status().is_success() || response.status() == StatusCode::NOT_FOUND => Ok(()),
            Ok(response) => Err(Error::unusable(format!("the registry {} doesn't remove the tag {tag}", self.host()))
                .cause(status_name(response.status()))
                .hint("it is new: remove it with the registry's own means")),
            Err(Problem::Lasting(error)) => Err(error),
            Err(_) => Err(Error::unusable(format!("the registry {} doesn't answer", self.host()))),
        }
    }

    /// By digest or tag.
    pub(super) async fn put_manifest(&self, id: &str, bytes: &[u8], media_type: &str) -> Result<()> {
        let what = self.manifest_name(id);
        let mut tries = Tries::default();
        loop {
            match self.try_put_manifest(id, bytes, media_type, &what).await {
                Ok(()) => return Ok(()),
                Err(problem) => {
                    self.wait_to(&mut tries, problem, &format!("send {what}"), &format!("sending {what}")).await?;
                }
            }
        }
    }

    async fn try_put_manifest(&self, id: &str, bytes: &[u8], media_type: &str, what: &str) -> Result<(), Problem> {
        let mut headers = HeaderMap::new();
        headers.extend(HeaderValue::from_str(media_type).ok().map(|value| (header::CONTENT_TYPE, value)));
        let url = self.url(&format!("manifests/{id}"))?;
        let response = self.exchange(Method::PUT, url, &headers, &Payload::Bytes(bytes)).await?;
        let status = response.status();
        if status.is_success() {
            return match content_digest(response.headers()) {
                Some(other) if other != Digest::of(bytes) => {
                    let error = Error::unusable(format!("the registry {} keeps {what} as something else", self.host()));
                    Err(error.cause(format!("it calls it {other}")).into())
                }
                _ => Ok(()),
            };
        }
        let tag = id.parse::<Digest>().is_err();
        let lasting = status.is_client_error()
            && !matches!(
                status,
                StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT | StatusCode::UNAUTHORIZED
            );
        if tag && lasting {
            let repository = self.reference.repository();
            let error =
                Error::unusable(format!("the registry {} refuses to move the tag {repository}:{id}", self.host()))
                    .cause(status_name(status));
            let error = message(response).await.into_iter().fold(error, Error::cause);
            return Err(error.hint("tags may be immutable there: push under another, with `--tag TAG`").into());
        }
        Err(self.refused(response, what).await)
    }
}

/// What a manifest says that it is; those that say nothing are OCI's.
fn media_type(bytes: &[u8]) -> String {
    use crate::image::manifest::{OCI_INDEX, OCI_MANIFEST};
    let value: serde_json::Value = serde_json::from_slice(bytes).unwrap_or_default();
    let kind = if value.get("manifests").is_some() { OCI_INDEX } else { OCI_MANIFEST };
    value["mediaType"].as_str().unwrap_or(kind).to_owned()
}
