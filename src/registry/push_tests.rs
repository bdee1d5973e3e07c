//! Pushing to a registry that misbehaves.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use super::fake::{Auth, Fake, Mounts, Trouble};
use super::form::{Form, Types};
use super::push::{self, Image, Move, Outcome, Tally};
use super::release::{Release, Undone, roll_back};
use super::tests::{Case, image, large};
use super::*;
use crate::error::{Error, Kind};
use crate::image::archive::fixture;
use crate::image::manifest::{DOCKER_MANIFEST, Manifest};
use crate::image::store::Codec;

impl Case {
    fn prepared(&self, repository: &str, image: &fixture::Image, form: &Form) -> Image {
        let name: Reference = format!("{}/{repository}", self.registry.host()).parse().unwrap();
        let digest = image.put(&self.store);
        form.prepare(&self.store, &Arc::from(repository), &name, &digest, &self.cancel).unwrap()
    }

    fn image(&self, repository: &str, image: &fixture::Image) -> Image {
        self.prepared(repository, image, &Form::default())
    }

    fn push_as(&self, images: &[Image], when: Move) -> (Outcome, Option<Release>) {
        let kept = RefCell::new(None);
        let keep = |release: &Release| {
            *kept.borrow_mut() = Some(release.clone());
            Ok(())
        };
        let outcome = push::push(images, when, &self.options, &self.heard, &self.cancel, &keep);
        (outcome, kept.into_inner())
    }

    fn push(&self, images: &[Image]) -> Outcome {
        self.push_as(images, Move::Together).0
    }

    fn sends(&self) -> Vec<String> {
        let sends = |r: &String| ["POST", "PATCH", "PUT"].iter().any(|method| r.starts_with(method));
        self.registry.requests().into_iter().filter(sends).collect()
    }

    fn count(&self, part: &str) -> usize {
        self.registry.requests().iter().filter(|r| r.contains(part)).count()
    }
}

fn done(outcome: &Outcome) -> Tally {
    assert!(outcome.error.is_none(), "{:?}", outcome.error);
    outcome.tally
}

/// Two images that share a layer.
fn family() -> [fixture::Image; 2] {
    let shared: &[(&str, &str)] = &[("etc/", ""), ("etc/shared", "shared")];
    [fixture::image(&[shared, &[("a", "a")]]), fixture::image(&[shared, &[("b", "b")]])]
}

#[test]
fn everything_is_there_before_a_name_is_and_shared_blobs_go_once() {
    let Some(case) = Case::new() else { return };
    let [a, b] = family();
    let images = [case.image("team/a:1", &a), case.image("team/b:1", &b)];
    let tally = done(&case.push(&images));
    let bytes: usize = [&a.layers[0].gzip, &a.layers[1].gzip, &b.layers[1].gzip, &a.config, &b.config]
        .iter()
        .map(|blob| blob.len())
        .sum();
    assert_eq!(tally, Tally { sent: 5, bytes: bytes as u64, mounted: 1, there: 0 });
    assert_eq!(case.registry.at("team/a/manifests/1").unwrap(), a.manifest);
    assert_eq!(case.registry.at("team/b/manifests/1").unwrap(), b.manifest);
    let manifests: Vec<String> = case.sends().into_iter().filter(|r| r.contains("manifests")).collect();
    assert!(manifests[..2].iter().all(|r| r.contains("sha256:")), "{manifests:?}");
    assert_eq!(manifests[2..], ["PUT manifests/1", "PUT manifests/1"]);

    // Again: nothing is sent at all.
    let before = case.sends().len();
    assert_eq!(done(&case.push(&images)), Tally { there: 6, ..Tally::default() });
    assert_eq!(case.sends().len(), before);
}

/// Case 16.
#[test]
fn a_mount_that_is_refused_becomes_an_upload() {
    for status in [202, 401, 403, 404, 405, 500] {
        let Some(case) = Case::new() else { return };
        case.registry.mounts(Mounts::Refused(status));
        let [a, b] = family();
        let tally = done(&case.push(&[case.image("team/a:1", &a), case.image("team/b:1", &b)]));
        assert_eq!((tally.sent, tally.mounted), (6, 0), "{status}");
        assert_eq!(case.count("mount="), 1, "{status}");
        assert!(case.registry.at(&format!("team/b/blobs/{}", a.layers[0].digest())).is_some());
    }
}

/// Case 16: what another registry has is not mounted.
#[test]
fn mounts_stay_within_a_registry() {
    let Some(case) = Case::new() else { return };
    let other = Fake::start();
    let [a, b] = family();
    let mut elsewhere = case.image("team/b:1", &b);
    elsewhere.name = format!("{}/team/b:1", other.host()).parse().unwrap();
    assert_eq!(done(&case.push(&[case.image("team/a:1", &a), elsewhere])).sent, 6);
    assert_eq!(case.count("mount=") + other.requests().iter().filter(|r| r.contains("mount=")).count(), 0);
    assert_eq!(other.at("team/b/manifests/1").unwrap(), b.manifest);
}

/// Case 17.
#[test]
fn a_manifest_is_sent_again_as_the_registry_says() {
    let Some(case) = Case::new() else { return };
    case.registry.trouble("PUT /v2/team/app/manifests/1", Trouble::Status(429, "Retry-After: 1\r\n"));
    case.registry.trouble("PUT /v2/team/app/manifests/1", Trouble::Status(429, ""));
    done(&case.push(&[case.image("team/app:1", &image())]));
    let waits: Vec<String> = case.heard().lines().filter(|l| l.contains("trying again")).map(str::to_owned).collect();
    insta::assert_snapshot!(waits.join("\n"), @"
    HOST: 429 Too Many Requests (sending the manifest of team/app:1); trying again in 1 s, 2 of 4 tries
    HOST: 429 Too Many Requests (sending the manifest of team/app:1); trying again in 2.0ms, 3 of 4 tries
    ");
    // And not for ever.
    for _ in 0..4 {
        case.registry.trouble("PUT /v2/team/other/manifests/", Trouble::Status(429, ""));
    }
    let outcome = case.push(&[case.image("team/other:1", &image())]);
    let error = outcome.error.unwrap();
    assert_eq!(error.kind(), Kind::Unusable);
    assert!(error.to_string().contains("does not answer as it should"), "{error}");
    // Case 18: a failed push never says otherwise, and one that is tried again can succeed.
    assert!(outcome.tags.is_empty() && !case.heard().contains("tagged HOST/team/other"), "{}", case.heard());
    assert_eq!(case.registry.at("team/other/manifests/1"), None);
    assert_eq!(done(&case.push(&[case.image("team/other:1", &image())])).sent, 0);
}

#[test]
fn an_upload_goes_on_where_the_connection_broke() {
    let Some(case) = Case::new() else { return };
    let image = large();
    let size = image.layers[0].gzip.len();
    let close = format!("?digest=sha256%3A{}", image.layers[0].digest().hex());
    case.registry.trouble(&close, Trouble::Drop(100_000));
    done(&case.push(&[case.image("team/app:1", &image)]));
    let sends = case.sends().join("\n");
    assert!(sends.contains(&format!(" 100000-{}", size - 1)), "{sends}");
    // An error in the middle of pieces.
    let Some(mut case) = Case::new() else { return };
    case.options.chunk = Some(100_000);
    case.registry.trouble("PATCH", Trouble::Took("Range: 0-99999\r\n"));
    case.registry.trouble("PATCH", Trouble::Status(503, ""));
    case.registry.trouble("PATCH", Trouble::Drop(50_000));
    done(&case.push(&[case.image("team/app:1", &image)]));
    let ranges: Vec<String> =
        case.sends().iter().filter_map(|r| Some(r.strip_prefix("PATCH ")?.split_once(' ')?.1.to_owned())).collect();
    assert_eq!(ranges, ["0-99999", "100000-199999", "100000-199999", "150000-249999"]);
}

/// Case 19.
#[test]
fn long_bodies_that_are_refused_become_short_ones() {
    for said in [true, false] {
        let Some(mut case) = Case::new() else { return };
        case.options.retry.attempts = 3;
        case.registry.limit(70_000, said);
        let image = large();
        done(&case.push(&[case.image("team/app:1", &image)]));
        assert!(case.count("PATCH") > 3);
        assert_eq!(case.registry.at("team/app/manifests/1").unwrap(), image.manifest);
    }
    // One that wants longer pieces than it takes.
    let Some(case) = Case::new() else { return };
    case.registry.limit(70_000, true);
    case.registry.upload_headers("OCI-Chunk-Min-Length: 100000\r\n");
    let error = case.push(&[case.image("team/app:1", &large())]).error.unwrap();
    assert!(error.to_string().contains("wants pieces of at least"), "{error}");
    // The least length is kept to.
    let Some(mut case) = Case::new() else { return };
    case.options.chunk = Some(10_000);
    case.registry.upload_headers("OCI-Chunk-Min-Length: 100000\r\n");
    done(&case.push(&[case.image("team/app:1", &large())]));
    assert!(case.count(" 0-99999") == 1, "{:?}", case.sends());
}

/// Case 19: less than was sent, more than was sent, something else, and nothing.
#[test]
fn ranges_that_are_wrong_do_no_harm() {
    for range in ["Range: 0-7\r\n", "Range: 0-0\r\n", "Range: 0-999999999\r\n", "Range: bytes 5\r\n", ""] {
        let Some(mut case) = Case::new() else { return };
        case.options.chunk = Some(100_000);
        for _ in 0..3 {
            case.registry.trouble("PATCH", Trouble::Took(range));
        }
        let image = large();
        done(&case.push(&[case.image("team/app:1", &image)]));
        assert_eq!(case.registry.at("team/app/manifests/1").unwrap(), image.manifest, "{range}");
    }
    // Asked after a break, it claims to have everything; and to know nothing.
    for trouble in [Trouble::Took("Range: 0-300000\r\n"), Trouble::Status(404, "")] {
        let Some(mut case) = Case::new() else { return };
        case.options.chunk = Some(100_000);
        case.registry.trouble("PATCH", Trouble::Drop(60_000));
        case.registry.trouble("GET /v2/team/app/blobs/uploads/", trouble);
        done(&case.push(&[case.image("team/app:1", &large())]));
    }
}

#[test]
fn credentials_stay_with_the_registry_that_they_are_for() {
    let Some(mut case) = Case::new() else { return };
    let other = Fake::start();
    case.registry.auth(Auth::Basic("me:s3cret"));
    case.login("me", "s3cret");
    case.registry.uploads_go_to(&other);
    let image = image();
    done(&case.push(&[case.image("team/app:1", &image)]));
    assert!(other.requests().iter().any(|r| r.starts_with("PUT")), "{:?}", other.requests());
    assert_eq!(other.authorized(), Vec::<String>::new());
    assert!(!case.registry.authorized().is_empty());
    // Sent on in the middle.
    let Some(mut case) = Case::new() else { return };
    case.registry.auth(Auth::Basic("me:s3cret"));
    case.login("me", "s3cret");
    let third = Fake::start();
    let location = format!("Location: http://{}/v2/team/app/blobs/uploads/1?x=y\r\n", third.host());
    case.registry
        .trouble("PUT /v2/team/app/blobs/uploads/", Trouble::Status(307, Box::leak(location.into_boxed_str())));
    // The third doesn't know the upload, so all of it goes to the registry itself in the end, or fails.
    let _ = case.push(&[case.image("team/app:1", &image)]);
    assert!(third.requests().iter().any(|r| r.starts_with("PUT")), "{:?}", third.requests());
    assert_eq!(third.authorized(), Vec::<String>::new());
    assert!(!case.heard().contains("s3cret"));
}

/// Case 20.
#[test]
fn logins_for_pushes() {
    let Some(mut case) = Case::new() else { return };
    for auth in [Auth::Open, Auth::Basic("me:s3cret"), Auth::Token(Some("me:s3cret"))] {
        case.registry.auth(auth);
        case.login("me", "s3cret");
        let name = format!("team/app:{}", case.registry.requests().len());
        done(&case.push(&[case.image(&name, &image())]));
        let name: Reference = format!("{}/team/app:1", case.registry.host()).parse().unwrap();
        case.with(|caller| push::check(std::slice::from_ref(&name), &case.options, caller)).unwrap();
    }
    case.login("me", "wr0ng");
    let check = |case: &Case| {
        let name: Reference = format!("{}/team/app:1", case.registry.host()).parse().unwrap();
        case.with(|caller| push::check(&[name], &case.options, caller)).unwrap_err()
    };
    let error = check(&case);
    assert_eq!(error.kind(), Kind::Unusable);
    insta::assert_snapshot!(case.error(&error), @"
    the registry HOST refuses a push to team/app to user `me`
    hint: check the login and whether that user may push there
    ");
    assert!(!format!("{error:?}").contains("wr0ng"));
    case.options.credentials = Arc::default();
    insta::assert_snapshot!(case.error(&check(&case)), @"
    the registry HOST wants a login for a push to team/app
    hint: log in with `podman login HOST`
    ");
    // A user who may read.
    case.registry.auth(Auth::Open);
    case.registry.trouble("POST", Trouble::Status(403, ""));
    insta::assert_snapshot!(case.error(&check(&case)), @"
    the registry HOST wants a login for a push to team/app: because
    hint: log in with `podman login HOST`
    ");
    case.registry.trouble("POST", Trouble::Status(404, ""));
    insta::assert_snapshot!(case.error(&check(&case)), @"
    the registry HOST takes no push to team/app: 404 Not Found: because
    hint: some registries want a repository or project to be made there first
    ");
    // Nothing is left behind by asking.
    case.with(|caller| {
        let name: Reference = format!("{}/team/app:1", case.registry.host()).parse().unwrap();
        push::check(&[name], &case.options, caller).unwrap();
    });
    assert!(case.registry.requests().last().unwrap().starts_with("DELETE blobs/uploads/"));
}

#[test]
fn a_release_is_there_as_a_whole_or_not_at_all() {
    let Some(case) = Case::new() else { return };
    let [a, b] = family();
    done(&case.push(&[case.image("team/a:1", &a), case.image("team/b:1", &a)]));
    // One that can't be sent: no name is moved.
    case.registry.trouble("PUT /v2/team/b/manifests/sha256", Trouble::Status(400, ""));
    let images = [case.image("team/a:1", &b), case.image("team/b:1", &b)];
    let outcome = case.push(&images);
    assert!(outcome.tags.is_empty(), "{outcome:?}");
    insta::assert_snapshot!(case.error(&outcome.error.unwrap()).replace(&b.digest().to_string(), "DIGEST"), @"
    cannot push HOST/team/b:1: the registry HOST refuses the manifest of team/b@DIGEST: 400 Bad Request: because
    hint:
    ");
    assert_eq!(case.registry.at("team/a/manifests/1").unwrap(), a.manifest);
    // A name that can't be moved: the others go back, a new one is removed.
    case.registry.trouble("PUT /v2/team/b/manifests/1", Trouble::Status(409, ""));
    let images = [images[0].clone(), images[1].clone(), case.image("team/new:1", &b)];
    let outcome = case.push(&images);
    insta::assert_snapshot!(case.error(&outcome.error.unwrap()), @"
    the registry HOST refuses to move the tag team/b:1: 409 Conflict: because: no name was moved
    hint: tags may be immutable there: push under another, with `--tag TAG`
    ");
    for name in ["a", "b"] {
        assert_eq!(case.registry.at(&format!("team/{name}/manifests/1")).unwrap(), a.manifest);
    }
    assert_eq!(case.registry.at("team/new/manifests/1"), None);
    // Each for itself, the others are moved.
    case.registry.trouble("PUT /v2/team/b/manifests/1", Trouble::Status(409, ""));
    let (outcome, release) = case.push_as(&images, Move::Each);
    assert_eq!((outcome.tags.len(), outcome.error.is_some()), (2, true));
    assert_eq!(release.unwrap().tags.len(), 3);
    assert_eq!(case.registry.at("team/a/manifests/1").unwrap(), b.manifest);
}

#[test]
fn immutable_tags_are_told() {
    let Some(case) = Case::new() else { return };
    done(&case.push(&[case.image("team/app:1", &image())]));
    // Each registry has a status of its own for it.
    for status in [400, 403, 409, 412] {
        case.registry.tags_stay(status);
        // It leads there already.
        done(&case.push(&[case.image("team/app:1", &image())]));
        let error = case.push(&[case.image("team/app:1", &large())]).error.unwrap();
        assert_eq!(error.kind(), Kind::Unusable);
        let said = format!("refuses to move the tag team/app:1: {status} ");
        assert!(error.to_string().contains(&said) && error.hint_text().unwrap().contains("--tag"), "{error}");
    }
    let error = case.push(&[case.image("team/app:1", &large())]).error.unwrap();
    insta::assert_snapshot!(case.error(&error), @"
    the registry HOST refuses to move the tag team/app:1: 412 Precondition Failed: tag is immutable: no name was moved
    hint: tags may be immutable there: push under another, with `--tag TAG`
    ");
}

#[test]
fn a_release_is_taken_back() {
    let Some(case) = Case::new() else { return };
    let (old, new) = (image(), large());
    done(&case.push(&[case.image("team/a:1", &old)]));
    let (outcome, release) =
        case.push_as(&[case.image("team/a:1", &new), case.image("team/b:1", &new)], Move::Together);
    done(&outcome);
    let release = Release::parse(&release.unwrap().to_bytes().unwrap()).unwrap();
    let undo = |force| roll_back(&release, force, &case.options, &case.heard, &case.cancel);
    let words = |done: Vec<(super::release::Tag, Undone)>| {
        let word = |undone: &Undone| format!("{undone:?}").split('(').next().unwrap().to_owned();
        done.iter().map(|(_, undone)| word(undone)).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(words(undo(false).unwrap()), "Restored Removed");
    assert_eq!(case.registry.at("team/a/manifests/1").unwrap(), old.manifest);
    assert_eq!(case.registry.at("team/b/manifests/1"), None);
    assert_eq!(words(undo(false).unwrap()), "Already Already");
    // Moved again since.
    let third = fixture::image(&[&[("third", "3")]]);
    done(&case.push(&[case.image("team/a:1", &third), case.image("team/b:1", &new)]));
    let error = undo(false).unwrap_err();
    insta::assert_snapshot!(case.error(&error).replace(&third.digest().to_string(), "THIRD"), @"
    names were moved since this release; nothing was done: HOST/team/a:1 leads to THIRD by now
    hint: `--force` takes it back all the same
    ");
    assert!(case.registry.at("team/b/manifests/1").is_some());
    // A registry that removes no tags.
    case.registry.trouble("DELETE", Trouble::Status(405, ""));
    let undone = undo(true).unwrap();
    let Undone::Stays(error) = &undone[1].1 else { panic!("{undone:?}") };
    insta::assert_snapshot!(case.error(error), @"
    the registry HOST doesn't remove the tag 1: 405 Method Not Allowed
    hint: it is new: remove it with the registry's own means
    ");
    assert_eq!(case.registry.at("team/a/manifests/1").unwrap(), old.manifest);
}

#[test]
fn files_of_releases_are_checked() {
    let why = |text: &str| {
        let error = Release::parse(text.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), Kind::BadInput);
        error.to_string()
    };
    insta::assert_snapshot!(why(r#"{"version": 2}"#), @"its version is 2, and this program knows 1");
    insta::assert_snapshot!(why("{}"), @"this is not a file that a push wrote: it has no `version`");
    assert!(why("x").contains("not a file that a push wrote"));
    assert!(why(r#"{"version": 1, "made": "", "tags": [{}]}"#).contains("missing field"));
}

#[test]
fn images_go_in_the_form_that_is_asked_for() {
    let Some(case) = Case::new() else { return };
    let image = image();
    let manifest = |image: &Image| serde_json::from_slice::<Manifest>(&image.manifest).unwrap();
    let docker = case.prepared("a:1", &image, &Form { types: Types::Docker, ..Form::default() });
    let parsed = manifest(&docker);
    assert_eq!((docker.media_type.as_str(), parsed.media_type.as_deref()), (DOCKER_MANIFEST, Some(DOCKER_MANIFEST)));
    assert!(parsed.layers.iter().all(|layer| layer.media_type.contains("docker")), "{parsed:?}");
    assert_eq!(parsed.layers[0].digest, image.layers[0].digest());
    let zstd = manifest(&case.prepared("a:1", &image, &Form { codec: Some(Codec::Zstd), ..Form::default() }));
    assert!(zstd.layers.iter().all(|layer| layer.media_type.ends_with("tar+zstd")), "{zstd:?}");
    let pair =
        |value: &str| std::collections::BTreeMap::from([("org.opencontainers.image.revision".into(), value.into())]);
    let noted = Form { annotations: pair("1"), labels: pair("2"), ..Form::default() };
    let noted = case.prepared("a:1", &image, &noted);
    assert_eq!(manifest(&noted).annotations, pair("1"));
    let config = case.store.image_config(&manifest(&noted).config.digest).unwrap();
    assert_eq!(config.config.labels, pair("2"));
    assert_eq!(config.rootfs.diff_ids, image.diff_ids());
    done(&case.push(&[docker, noted]));
    for form in [
        Form { types: Types::Docker, codec: Some(Codec::Zstd), ..Form::default() },
        Form { types: Types::Docker, annotations: pair("1"), ..Form::default() },
    ] {
        assert_eq!(form.check().unwrap_err().kind(), Kind::BadInput);
    }
}

#[test]
fn a_store_that_lacks_a_blob_is_said_before_anything_is_sent() {
    let Some(case) = Case::new() else { return };
    let image = image();
    let digest = image.put(&case.store);
    std::fs::remove_file(case.store.blob_path(&image.layers[1].digest())).unwrap();
    let name: Reference = format!("{}/a:1", case.registry.host()).parse().unwrap();
    let error = Form::default().prepare(&case.store, &Arc::from("a"), &name, &digest, &case.cancel).unwrap_err();
    assert!(error.to_string().contains("layer 2 of 2"), "{error}");
    assert_eq!(case.registry.requests(), Vec::<String>::new());
}

#[test]
fn an_upload_that_stands_still_is_given_up_and_an_interruption_ends_it() {
    let Some(mut case) = Case::new() else { return };
    case.options.retry.attempts = 1;
    case.options.idle_timeout = Duration::from_millis(300);
    case.registry.trouble("PUT /v2/team/app/blobs", Trouble::Mute);
    let error: Error = case.push(&[case.image("team/app:1", &image())]).error.unwrap();
    assert!(error.to_string().contains("nothing moved for"), "{error}");
}
