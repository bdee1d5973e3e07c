//! Pulling from Debian's docker-registry what skopeo pushed to it.

use std::fs;
use std::sync::Arc;

use crate::support::{Image, Registry, Room, image, ready, run};
use base64::Engine as _;
use kollage::error::{Kind, Result};
use kollage::event::Silent;
use kollage::image::archive::Imported;
use kollage::image::config::Platform;
use kollage::image::store::{Codec, Store};
use kollage::registry::{self as client, Caller, Credentials, Options, Reference};
use serde_json::json;

struct Pushed {
    room: Room,
    registry: Registry,
    app: Image,
}

/// An image that was pushed as `team/app:1`.
fn pushed(login: bool, format: &str, codec: Codec) -> Pushed {
    let room = Room::new();
    let registry = Registry::start(login);
    let store = room.store("store");
    let app = image(&store, "app", codec);
    room.export(&store, "type=oci,dest=DIR/out", &[("team/app:1", &app)]);
    let to = format!("docker://{}/team/app:1", registry.address());
    let from = room.arg("oci:", "out:1");
    run("skopeo", &["copy", "-q", "--format", format, "--dest-tls-verify=false", "--dest-creds=me:s3cret", &from, &to]);
    Pushed { room, registry, app }
}

impl Pushed {
    fn reference(&self) -> Reference {
        format!("{}/team/app:1", self.registry.address()).parse().unwrap()
    }

    fn caller<T>(&self, f: impl FnOnce(&Caller<'_>) -> T) -> T {
        let node: Arc<str> = Arc::from("app");
        f(&Caller { node: &node, sink: &Silent, cancel: &self.room.cancel })
    }

    fn pull(&self, store: &Store, options: &Options) -> Result<Imported> {
        self.caller(|caller| client::pull(store, &self.reference(), &Platform::host(), options, caller))
    }
}

#[test]
fn an_image_comes_as_it_was_pushed() {
    if !ready(&["docker-registry", "skopeo"]) {
        return;
    }
    for codec in [Codec::Gzip, Codec::Zstd] {
        let pushed = pushed(false, "oci", codec);
        let options = Options::default();
        let store = pushed.room.store("again");
        let imported = pushed.pull(&store, &options).unwrap();
        assert_eq!(imported.manifest, Some(pushed.app.manifest.clone()));
        assert_eq!(imported.config.rootfs.diff_ids, pushed.app.diff_ids);
        for diff_id in &pushed.app.diff_ids {
            let kept = store.compressed(diff_id, codec, &pushed.room.cancel).unwrap();
            assert_eq!(kept, pushed.room.store("store").compressed(diff_id, codec, &pushed.room.cancel).unwrap());
        }
        let digest = pushed.caller(|caller| client::head(&pushed.reference(), &options, caller)).unwrap();
        assert_eq!(digest, pushed.app.manifest);
        // By its digest, and again from the store.
        let pinned: Reference = format!("{}/team/app@{digest}", pushed.registry.address()).parse().unwrap();
        let again = pushed.caller(|caller| client::pull(&store, &pinned, &Platform::host(), &options, caller));
        assert_eq!(again.unwrap(), imported);
    }
}

#[test]
fn dockers_own_format_is_read() {
    if !ready(&["docker-registry", "skopeo"]) {
        return;
    }
    let pushed = pushed(false, "v2s2", Codec::Gzip);
    let imported = pushed.pull(&pushed.room.store("again"), &Options::default()).unwrap();
    assert_eq!(imported.config.rootfs.diff_ids, pushed.app.diff_ids);
}

#[test]
fn a_login_is_used_and_needed() {
    if !ready(&["docker-registry", "skopeo"]) {
        return;
    }
    let pushed = pushed(true, "oci", Codec::Gzip);
    let store = pushed.room.store("again");
    let error = pushed.pull(&store, &Options::default()).unwrap_err();
    assert_eq!(error.kind(), Kind::Unusable);
    assert!(error.to_string().contains("wants a login"), "{error}");

    let with = |login: &str| {
        let auth = base64::engine::general_purpose::STANDARD.encode(login);
        let path = pushed.room.path("auth.json");
        // For this repository only, as `podman login HOST/PATH` writes it.
        let name = format!("{}/team", pushed.registry.address());
        fs::write(&path, json!({ "auths": { name: { "auth": auth } } }).to_string()).unwrap();
        Options { credentials: Arc::new(Credentials::load(&[path]).unwrap()), ..Options::default() }
    };
    let error = pushed.pull(&store, &with("me:wr0ng")).unwrap_err();
    assert!(error.to_string().contains("user `me`") && !format!("{error:?}").contains("wr0ng"), "{error:?}");
    assert_eq!(pushed.pull(&store, &with("me:s3cret")).unwrap().manifest, Some(pushed.app.manifest.clone()));
}

#[test]
fn what_is_not_there_is_named() {
    if !ready(&["docker-registry", "skopeo"]) {
        return;
    }
    let pushed = pushed(false, "oci", Codec::Gzip);
    let missing: Reference = format!("{}/team/app:2", pushed.registry.address()).parse().unwrap();
    let error = pushed.caller(|caller| client::head(&missing, &Options::default(), caller)).unwrap_err();
    assert!(error.to_string().contains("does not have the manifest of team/app:2"), "{error}");
    let other = Platform { os: "linux".into(), architecture: "s390x".into(), variant: None };
    let store = pushed.room.store("again");
    let result = pushed.caller(|caller| client::pull(&store, &pushed.reference(), &other, &Options::default(), caller));
    assert!(result.unwrap_err().to_string().contains("not for linux/s390x"));
}
