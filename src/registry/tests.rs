//! Pulling from a registry that misbehaves.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;

use super::credentials::Credentials;
use super::fake::{Auth, Fake, Trouble};
use super::*;
use crate::error::{Error, Kind};
use crate::event::{Cancel, Event, Sink};
use crate::image::archive::fixture::{self, Image};
use crate::image::config::Platform;
use crate::image::manifest::{OCI_INDEX, OCI_MANIFEST};
use crate::image::store::Codec;

#[derive(Default)]
pub(super) struct Heard(Mutex<Vec<String>>);

impl Sink for Heard {
    fn event(&self, event: Event) {
        self.0.lock().unwrap().push(match event {
            Event::Warning { message, .. } => message,
            Event::Background { title, .. } => title,
            other => format!("{other:?}"),
        });
    }
}

pub(super) struct Case {
    pub registry: Fake,
    pub heard: Heard,
    pub store: Store,
    pub cancel: Cancel,
    pub options: Options,
    pub dir: tempfile::TempDir,
}

impl Case {
    pub(super) fn new() -> Option<Case> {
        if !fixture::is_root() {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        Some(Case {
            registry: Fake::start(),
            heard: Heard::default(),
            store: Store::open(&dir.path().join("store")).unwrap(),
            cancel: Cancel::new().unwrap(),
            options: Options {
                retry: Retry {
                    attempts: 4,
                    first_wait: Duration::from_millis(1),
                    longest_wait: Duration::from_secs(30),
                    jitter: 0,
                },
                // Long enough for a machine that does much else; shorter where a test waits for it.
                idle_timeout: Duration::from_secs(60),
                ..Options::default()
            },
            dir,
        })
    }

    fn reference(&self) -> Reference {
        format!("{}/team/app:1", self.registry.host()).parse().unwrap()
    }

    pub(super) fn with<T>(&self, f: impl FnOnce(&Caller<'_>) -> T) -> T {
        let node: Arc<str> = Arc::from("app");
        f(&Caller { node: &node, sink: &self.heard, cancel: &self.cancel })
    }

    fn pull(&self) -> Result<Imported> {
        self.with(|caller| pull(&self.store, &self.reference(), &Platform::host(), &self.options, caller))
    }

    pub(super) fn login(&mut self, user: &str, password: &str) {
        use base64::Engine as _;
        let auth = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
        let path = self.dir.path().join("auth.json");
        let host = self.registry.host();
        std::fs::write(&path, json!({ "auths": { host: { "auth": auth } } }).to_string()).unwrap();
        self.options.credentials = Arc::new(Credentials::load(&[path]).unwrap());
    }

    /// With the registry's port taken out, which differs from run to run.
    pub(super) fn heard(&self) -> String {
        let heard = self.heard.0.lock().unwrap().join("\n");
        self.stable(&heard)
    }

    pub(super) fn stable(&self, text: &str) -> String {
        text.replace(&self.registry.host(), "HOST").replace(&self.dir.path().display().to_string(), "DIR")
    }

    pub(super) fn error(&self, error: &Error) -> String {
        self.stable(&format!("{error}\nhint: {}", error.hint_text().unwrap_or_default()))
    }

    fn downloads(&self, blob: &Digest) -> Vec<String> {
        let wanted = format!("blobs/{blob}");
        let requests = self.registry.requests().into_iter().filter(|r| r.contains(&wanted));
        requests.map(|r| r.replace(&wanted, "BLOB")).collect()
    }
}

pub(super) fn image() -> Image {
    fixture::image(&[&[("etc/", ""), ("etc/a", "one")], &[("etc/b", "two")]])
}

/// Large enough that an answer can break in the middle.
pub(super) fn large() -> Image {
    fixture::image(&[&[("large", &"0123456789abcdef".repeat(20_000))]])
}

#[test]
fn an_image_comes_whole_and_keeps_its_blobs() {
    let Some(case) = Case::new() else { return };
    let image = image();
    case.registry.put_image("1", &image);
    let imported = case.pull().unwrap();
    assert_eq!(imported.manifest, Some(image.digest()));
    assert_eq!(imported.config.rootfs.diff_ids, image.diff_ids());
    assert_eq!(imported.size, image.layers.iter().map(|l| l.plain.len() as u64).sum::<u64>());
    let top = image.diff_ids().pop().unwrap();
    assert_eq!(std::fs::read(case.store.layer_fs(&top).join("etc/b")).unwrap(), b"two");
    for layer in &image.layers {
        let again = case.store.compressed(&layer.diff_id(), Codec::Gzip, &case.cancel).unwrap();
        assert_eq!(again.digest, layer.digest(), "the parent's blob is what is pushed again");
    }
    // What is there is not fetched again.
    let before = case.registry.requests().len();
    assert_eq!(case.pull().unwrap(), imported);
    let again = case.registry.requests().split_off(before);
    assert!(!again.iter().any(|r| r.contains("blobs/")), "{again:?}");
}

#[test]
fn the_digest_is_known_without_a_download() {
    let Some(case) = Case::new() else { return };
    case.registry.put_image("1", &image());
    let head = |case: &Case| case.with(|caller| head(&case.reference(), &case.options, caller));
    assert_eq!(head(&case).unwrap(), image().digest());
    assert_eq!(case.registry.requests(), ["HEAD manifests/1"]);
    case.registry.trouble("manifests", Trouble::Status(404, ""));
    assert_eq!(head(&case).unwrap_err().kind(), Kind::Unusable);
}

#[test]
fn an_index_leads_to_the_platform() {
    let Some(case) = Case::new() else { return };
    let image = image();
    case.registry.put_image("other", &image);
    let entry = |digest: &Digest, os: &str, architecture: &str| json!({ "mediaType": OCI_MANIFEST, "digest": digest, "size": 1, "platform": { "os": os, "architecture": architecture } });
    let host = Platform::host();
    let index = |entries: Vec<serde_json::Value>| {
        json!({ "schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries }).to_string()
    };
    let nothing = Digest::of(b"");
    let both = index(vec![entry(&nothing, "plan9", "mips"), entry(&image.digest(), &host.os, &host.architecture)]);
    case.registry.put("manifests/1", OCI_INDEX, both.as_bytes());
    assert_eq!(case.pull().unwrap().manifest, Some(image.digest()));

    case.registry.put("manifests/1", OCI_INDEX, index(vec![entry(&nothing, "plan9", "mips"); 2]).as_bytes());
    let error = case.error(&case.pull().unwrap_err()).replace(&host.to_string(), "PLATFORM");
    insta::assert_snapshot!(error, @"
    cannot pull HOST/team/app:1: HOST/team/app:1 has no image for PLATFORM
    hint: it has images for plan9/mips
    ");
    let foreign = Platform { os: "plan9".into(), architecture: "mips".into(), variant: None };
    case.registry.put_image("1", &fixture::image_for(&foreign, &[]));
    assert!(case.pull().unwrap_err().to_string().contains("is an image for plan9/mips, not for"));
}

#[test]
fn logins() {
    let Some(mut case) = Case::new() else { return };
    case.registry.put_image("1", &image());
    case.registry.auth(Auth::Token(None));
    case.pull().unwrap();

    case.registry.auth(Auth::Basic("me:s3cret"));
    insta::assert_snapshot!(case.error(&case.pull().unwrap_err()), @"
    cannot pull HOST/team/app:1: the registry HOST wants a login for HOST/team/app:1
    hint: log in with `podman login HOST`, or check whether the image exists
    ");
    for auth in [Auth::Basic("me:s3cret"), Auth::Token(Some("me:s3cret"))] {
        case.registry.auth(auth);
        case.login("me", "s3cret");
        case.pull().unwrap();
        case.login("me", "wr0ng");
        let error = case.pull().unwrap_err();
        insta::allow_duplicates! {
            insta::assert_snapshot!(case.error(&error), @"
            cannot pull HOST/team/app:1: the registry HOST refuses HOST/team/app:1 to user `me`
            hint: check the login and whether the image exists
            ");
        }
        assert!(!format!("{error:?} {}", case.heard()).contains("wr0ng"));
    }
}

#[test]
fn a_token_that_runs_out_is_renewed() {
    let Some(case) = Case::new() else { return };
    let image = image();
    case.registry.put_image("1", &image);
    case.registry.auth(Auth::Token(None));
    let challenge = Box::leak(
        format!("WWW-Authenticate: Bearer realm=\"http://{}/token\",service=\"fake\"\r\n", case.registry.host())
            .into_boxed_str(),
    );
    case.registry.trouble(&image.layers[1].digest().to_string(), Trouble::Status(401, challenge));
    case.pull().unwrap();
    let tokens = case.registry.requests().iter().filter(|r| r.contains("/token")).count();
    assert_eq!(tokens, 2);
}

#[test]
fn what_may_pass_is_tried_again_and_every_wait_is_told() {
    let Some(case) = Case::new() else { return };
    let image = image();
    case.registry.put_image("1", &image);
    case.registry.auth(Auth::Token(None));
    case.registry.trouble("/token", Trouble::Status(503, ""));
    case.registry.trouble("manifests/1", Trouble::Status(429, "Retry-After: 1\r\n"));
    case.registry.trouble("manifests/1", Trouble::Status(429, ""));
    case.registry.trouble(&format!("blobs/{}", Digest::of(&image.config)), Trouble::Cut(0));
    case.registry.trouble(&format!("blobs/{}", image.layers[0].digest()), Trouble::Status(500, ""));
    case.pull().unwrap();
    insta::assert_snapshot!(case.heard().replace(&image.layers[0].digest().to_string(), "LAYER"));
}

#[test]
fn it_ends_after_so_many_tries() {
    let Some(case) = Case::new() else { return };
    case.registry.put_image("1", &image());
    for _ in 0..4 {
        case.registry.trouble("manifests/1", Trouble::Status(502, ""));
    }
    let error = case.pull().unwrap_err();
    assert_eq!(error.kind(), Kind::Unusable);
    insta::assert_snapshot!(case.error(&error), @"
    cannot pull HOST/team/app:1: the registry HOST does not answer as it should: cannot fetch the manifest of team/app:1: 502 Bad Gateway
    hint: it was tried 4 times; check the name, the network and the proxy, or try again later
    ");
    assert_eq!(case.registry.requests().iter().filter(|r| r.contains("manifests")).count(), 4);

    case.registry.trouble("manifests/1", Trouble::Status(429, "Retry-After: 3600\r\n"));
    insta::assert_snapshot!(case.error(&case.pull().unwrap_err()), @"
    cannot pull HOST/team/app:1: the registry HOST wants no requests for now: cannot fetch the manifest of team/app:1: 429 Too Many Requests
    hint: it asks to wait for 3600 s
    ");
}

#[test]
fn what_will_not_pass_is_not_tried_again() {
    let Some(case) = Case::new() else { return };
    insta::assert_snapshot!(case.error(&case.pull().unwrap_err()), @"
    cannot pull HOST/team/app:1: the registry HOST does not have the manifest of team/app:1: manifest unknown
    hint: check the name and the tag
    ");
    case.registry.put_image("1", &image());
    case.registry.trouble("manifests/1", Trouble::Status(403, ""));
    insta::assert_snapshot!(case.error(&case.pull().unwrap_err()), @"
    cannot pull HOST/team/app:1: the registry HOST wants a login for HOST/team/app:1: because
    hint: log in with `podman login HOST`, or check whether the image exists
    ");
    case.registry.trouble("manifests/1", Trouble::Status(400, ""));
    insta::assert_snapshot!(case.error(&case.pull().unwrap_err()), @"
    cannot pull HOST/team/app:1: the registry HOST refuses the manifest of team/app:1: 400 Bad Request: because
    hint:
    ");
    case.registry.put("manifests/1", OCI_MANIFEST, br#"{"schemaVersion": 1, "fsLayers": []}"#);
    insta::assert_snapshot!(case.error(&case.pull().unwrap_err()), @"
    cannot pull HOST/team/app:1: the manifest of HOST/team/app:1 is in Docker's first format
    hint: push the image again with a Docker of this decade
    ");
    assert_eq!(case.heard(), "");
}

#[test]
fn nobody_there() {
    let Some(mut case) = Case::new() else { return };
    case.options.retry.attempts = 2;
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let reference: Reference = format!("{free}/a").parse().unwrap();
    let error =
        case.with(|caller| pull(&case.store, &reference, &Platform::host(), &case.options, caller)).unwrap_err();
    insta::assert_snapshot!(case.error(&error).replace(&free, "FREE"), @"
    cannot pull FREE/a: the registry FREE cannot be reached: cannot fetch the manifest of a:latest: Connection refused (os error 111)
    hint: it was tried 2 times; check the name, the network and the proxy, or try again later
    ");
}

#[test]
fn a_broken_download_goes_on_where_it_stopped() {
    let Some(mut case) = Case::new() else { return };
    case.options.idle_timeout = Duration::from_secs(1);
    let image = large();
    let blob = image.layers[0].digest();
    case.registry.put_image("1", &image);
    case.registry.trouble(&blob.to_string(), Trouble::Cut(100_000));
    // Case 27: one that hangs is cut off.
    case.registry.trouble(&blob.to_string(), Trouble::Hang(100_000));
    case.pull().unwrap();
    assert_eq!(case.downloads(&blob), ["GET BLOB", "GET BLOB bytes=100000-", "GET BLOB bytes=200000-"]);
    assert!(case.heard().contains("nothing arrived for 1 s"), "{}", case.heard());
}

#[test]
fn ranges_that_cannot_be_trusted_are_not_used_again() {
    let Some(case) = Case::new() else { return };
    let image = large();
    let blob = image.layers[0].digest();
    case.registry.put_image("1", &image);
    let wrong_part = vec![b'x'; image.layers[0].gzip.len() - 100_000];
    // Said to be another part; and said to be the right one.
    case.registry.trouble(&blob.to_string(), Trouble::Cut(100_000));
    case.registry.trouble(&blob.to_string(), Trouble::WrongRange(7));
    case.pull().unwrap();
    assert_eq!(case.downloads(&blob), ["GET BLOB", "GET BLOB bytes=100000-", "GET BLOB"]);

    let Some(case) = Case::new() else { return };
    case.registry.put_image("1", &large());
    case.registry.trouble(&blob.to_string(), Trouble::Cut(100_000));
    case.registry.trouble(&blob.to_string(), Trouble::Lie(wrong_part));
    case.pull().unwrap();
    assert_eq!(case.downloads(&blob), ["GET BLOB", "GET BLOB bytes=100000-", "GET BLOB"]);
}

#[test]
fn damaged_content_is_never_kept() {
    let Some(case) = Case::new() else { return };
    let image = image();
    let blob = image.layers[1].digest();
    case.registry.put_image("1", &image);
    let length = image.layers[1].gzip.len();
    for _ in 0..2 {
        case.registry.trouble(&blob.to_string(), Trouble::Lie(vec![0; length]));
    }
    let error = case.pull().unwrap_err();
    assert!(error.to_string().contains(&format!("the blob {blob} is damaged")), "{error}");
    assert!(!case.store.has_blob(&blob));
    // Once may have been the network.
    case.registry.trouble(&blob.to_string(), Trouble::Lie(vec![0; length + 1]));
    case.pull().unwrap();

    case.registry.put("manifests/1", OCI_MANIFEST, &fixture::image(&[]).manifest);
    let mut pinned = case.reference().to_string().replace(":1", "");
    pinned.push_str(&format!("@{}", Digest::of(b"pinned")));
    case.registry.put(&format!("manifests/{}", Digest::of(b"pinned")), OCI_MANIFEST, &image.manifest);
    let pinned: Reference = pinned.parse().unwrap();
    let result = case.with(|caller| pull(&case.store, &pinned, &Platform::host(), &case.options, caller));
    assert!(result.unwrap_err().to_string().contains("arrived damaged"));
}

#[test]
fn a_layer_that_is_not_what_the_configuration_says_is_refused() {
    let Some(case) = Case::new() else { return };
    let (mut image, other) = (image(), fixture::image(&[&[("x", "y")]]));
    // The manifest names a blob that is intact and unpacks to another layer.
    let manifest = String::from_utf8(image.manifest.clone()).unwrap();
    let (old, new) = (&image.layers[1], &other.layers[0]);
    image.manifest = manifest
        .replace(&old.digest().to_string(), &new.digest().to_string())
        .replace(&format!("\"size\":{}", old.gzip.len()), &format!("\"size\":{}", new.gzip.len()))
        .into_bytes();
    case.registry.put_image("x", &other);
    case.registry.put_image("1", &image);
    assert!(case.pull().is_err());
    assert!(case.store.layer(&image.layers[1].diff_id()).is_none());
}

#[test]
fn an_interruption_ends_a_download_that_hangs() {
    let Some(mut case) = Case::new() else { return };
    case.options.idle_timeout = Duration::from_secs(600);
    let image = large();
    case.registry.put_image("1", &image);
    case.registry.trouble(&image.layers[0].digest().to_string(), Trouble::Hang(10));
    std::thread::scope(|scope| {
        let pulling = scope.spawn(|| case.pull());
        while case.downloads(&image.layers[0].digest()).is_empty() {
            std::thread::sleep(Duration::from_millis(5));
        }
        case.cancel.cancel();
        assert_eq!(pulling.join().unwrap().unwrap_err().kind(), Kind::Interrupted);
    });
}

#[test]
fn a_mirror_is_checked_and_the_registry_has_the_last_word() {
    let image = large();
    let blob = image.layers[0].digest();
    let other = fixture::image(&[&[("other", "other")]]);
    let mirrored = || {
        let mut case = Case::new()?;
        case.options.retry.attempts = 2;
        let mirror = Fake::start();
        case.registry.put_image("1", &image);
        let conf = case.dir.path().join("registries.conf");
        let (host, other) = (case.registry.host(), mirror.host());
        let text = format!("[[registry]]\nlocation = \"{host}\"\n[[registry.mirror]]\nlocation = \"{other}\"\n");
        std::fs::write(&conf, text).unwrap();
        case.options.registries = Registries::load(&[conf]).unwrap();
        Some((case, mirror))
    };
    let Some((case, mirror)) = mirrored() else { return };
    mirror.put_image("1", &image);
    case.pull().unwrap();
    assert_eq!(case.registry.requests(), Vec::<String>::new());
    // One that has nothing, one whose layer is another, one that gives something else for a digest.
    let Some((case, mirror)) = mirrored() else { return };
    case.pull().unwrap();
    assert!(case.heard().contains(&format!("the mirror {} is of no use", mirror.host())), "{}", case.heard());
    let Some((case, mirror)) = mirrored() else { return };
    mirror.put_image("1", &image);
    mirror.put(&format!("blobs/{blob}"), "application/octet-stream", &vec![0; image.layers[0].gzip.len()]);
    assert_eq!(case.pull().unwrap().manifest, Some(image.digest()));
    assert_eq!(case.downloads(&blob), ["GET BLOB"]);
    let Some((case, mirror)) = mirrored() else { return };
    mirror.put(&format!("manifests/{}", image.digest()), OCI_MANIFEST, &other.manifest);
    let pinned: Reference = format!("{}/team/app@{}", case.registry.host(), image.digest()).parse().unwrap();
    let pulled = case.with(|caller| pull(&case.store, &pinned, &Platform::host(), &case.options, caller)).unwrap();
    assert_eq!(pulled.manifest, Some(image.digest()));
    assert!(case.heard().contains("arrived damaged"), "{}", case.heard());
}

/// Case 20.
#[test]
fn an_identity_token_becomes_a_token_and_stays_out_of_addresses() {
    let Some(mut case) = Case::new() else { return };
    case.registry.put_image("1", &image());
    case.registry.auth(Auth::Refresh("refr3sh"));
    let path = case.dir.path().join("auth.json");
    let host = case.registry.host();
    let write = |token: &str| {
        let auths = json!({ "auths": { &host: { "auth": "dTo=", "identitytoken": token } } });
        std::fs::write(&path, auths.to_string()).unwrap();
        Arc::new(Credentials::load(&[&path]).unwrap())
    };
    case.options.credentials = write("refr3sh");
    case.pull().unwrap();
    assert!(!case.registry.requests().join(" ").contains("refr3sh"));
    case.options.credentials = write("wr0ng");
    let error = case.with(|caller| head(&case.reference(), &case.options, caller)).unwrap_err();
    assert!(
        error.to_string().contains("to its identity token") && !format!("{error:?}").contains("wr0ng"),
        "{error:?}"
    );
}
