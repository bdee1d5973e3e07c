//! Round trips between stores through every format, and archives that are not as they should be.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::fixture::{self, Image, is_root};
use super::*;
use crate::error::Kind;
use crate::image::manifest::{OCI_INDEX, OCI_MANIFEST};
use crate::image::store::Codec;

struct Case {
    dir: tempfile::TempDir,
    cancel: Cancel,
}

impl Case {
    fn new() -> Option<Case> {
        is_root().then(|| Case { dir: tempfile::tempdir().unwrap(), cancel: Cancel::new().unwrap() })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn store(&self, name: &str) -> Store {
        Store::open(&self.path(name)).unwrap()
    }

    fn export(&self, store: &Store, output: &str, images: &[(&str, &Image)]) -> Result<()> {
        let output = output.replace("DIR", &self.dir.path().display().to_string()).parse().unwrap();
        let images: Vec<ExportImage> = images
            .iter()
            .map(|(name, image)| ExportImage { name: name.parse().unwrap(), manifest: image.put(store) })
            .collect();
        export(store, &images, &output, None, &self.cancel).map(drop)
    }

    fn oci(&self, store: &Store, name: &str, reference: Option<&str>) -> Result<Imported> {
        import_oci(store, &self.path(name), reference, &Platform::host(), &self.cancel)
    }

    fn docker(&self, store: &Store, name: &str, reference: Option<&str>) -> Result<Imported> {
        import_docker_archive(store, &self.path(name), reference, &Platform::host(), &self.cancel)
    }

    fn shown(&self, error: &Error) -> String {
        let text = format!("{error}\nhint: {}", error.hint_text().unwrap_or_default());
        text.replace(&self.dir.path().display().to_string(), "DIR")
    }

    fn refs(&self, layout: &str) -> Vec<String> {
        let index: Value = serde_json::from_slice(&fs::read(self.path(layout).join("index.json")).unwrap()).unwrap();
        let entries = index["manifests"].as_array().unwrap().iter();
        entries.map(|e| e["annotations"]["org.opencontainers.image.ref.name"].as_str().unwrap().to_owned()).collect()
    }
}

fn image() -> Image {
    fixture::image(&[&[("etc/", ""), ("etc/a", "one"), ("etc/gone", "x")], &[("etc/b", "two"), ("etc/.wh.gone", "")]])
}

fn other() -> Image {
    fixture::image(&[&[("etc/", ""), ("etc/a", "one"), ("etc/gone", "x")], &[("etc/c", "three")]])
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_layout_comes_back_as_it_was() {
    let Some(case) = Case::new() else { return };
    let image = image();
    for output in ["type=oci,dest=DIR/out", "type=oci,dest=DIR/out.tar"] {
        case.export(&case.store("a"), output, &[("team/app:1", &image)]).unwrap();
        let name = output.rsplit('/').next().unwrap();
        let store = case.store(&format!("{name}.store"));
        for reference in [None, Some("1"), Some("docker.io/team/app:1"), Some(&*image.digest().to_string())] {
            let imported = case.oci(&store, name, reference).unwrap();
            assert_eq!(imported.manifest, Some(image.digest()));
            assert_eq!(imported.config.rootfs.diff_ids, image.diff_ids());
            assert_eq!(imported.size, image.layers.iter().map(|l| l.plain.len() as u64).sum::<u64>());
        }
        for (digest, bytes) in image.blobs() {
            assert_eq!(store.read_blob(&digest).unwrap(), bytes);
        }
        for layer in &image.layers {
            let blob = store.compressed(&layer.diff_id(), Codec::Gzip, &case.cancel).unwrap();
            assert_eq!(blob.digest, layer.digest(), "the blob is kept as it came");
        }
    }
    assert_eq!(names(&case.path("out")), ["blobs", "index.json", "oci-layout"]);
}

#[test]
fn archives_depend_on_the_images_alone() {
    let Some(case) = Case::new() else { return };
    let (image, other) = (image(), other());
    for kind in ["oci", "docker"] {
        let images = [("team/app:1", &image), ("team/other:1", &other)];
        case.export(&case.store("a"), &format!("type={kind},dest=DIR/1.tar"), &images).unwrap();
        case.export(&case.store("b"), &format!("type={kind},dest=DIR/2.tar"), &images).unwrap();
        assert!(fs::read(case.path("1.tar")).unwrap() == fs::read(case.path("2.tar")).unwrap(), "{kind}");
    }
    case.export(&case.store("a"), "type=tar,dest=DIR/1.tar", &[("x", &image)]).unwrap();
    case.export(&case.store("b"), "type=tar,dest=DIR/2.tar", &[("x", &image)]).unwrap();
    assert!(fs::read(case.path("1.tar")).unwrap() == fs::read(case.path("2.tar")).unwrap());
    assert_eq!(names(case.dir.path()), ["1.tar", "2.tar", "a", "b"], "nothing else is left");
}

#[test]
fn images_are_added_to_a_layout_and_replaced_in_it() {
    let Some(case) = Case::new() else { return };
    let (store, image, other) = (case.store("a"), image(), other());
    case.export(&store, "type=oci,dest=DIR/out", &[("app:1", &image)]).unwrap();
    case.export(&store, "type=oci,dest=DIR/out", &[("app:2", &other)]).unwrap();
    assert_eq!(case.refs("out"), ["1", "2"]);
    let blobs = names(&case.path("out/blobs/sha256"));
    assert_eq!(blobs.len(), 7, "the layer that both have is there once: {blobs:?}");
    case.export(&store, "type=oci,dest=DIR/out", &[("app:1", &other)]).unwrap();
    assert_eq!(case.oci(&store, "out", Some("1")).unwrap().manifest, Some(other.digest()));
    assert_eq!(case.refs("out"), ["1", "2"]);

    let error = case.export(&store, "type=oci,dest=DIR/out", &[("else/where:1", &image)]).unwrap_err();
    insta::assert_snapshot!(case.shown(&error), @"
    cannot write DIR/out: `1` in it is another image already: docker.io/library/app:1
    hint: choose another destination, or write both images at once: each is then named in full
    ");
    // Several at once keep their whole names, for their tags are mostly the same.
    case.export(&store, "type=oci,dest=DIR/all", &[("app:1", &image), ("r.example.org/else/where:1", &other)]).unwrap();
    assert_eq!(case.refs("all"), ["app:1", "r.example.org/else/where:1"]);
    insta::assert_snapshot!(case.shown(&case.oci(&store, "all", None).unwrap_err()), @"
    cannot read the OCI image layout DIR/all: it holds several images
    hint: name one as `oci:PATH:NAME`; it has app:1, r.example.org/else/where:1
    ");
    insta::assert_snapshot!(case.shown(&case.oci(&store, "all", Some("app")).unwrap_err()), @"
    cannot read the OCI image layout DIR/all: it has no image `app`
    hint: it has app:1, r.example.org/else/where:1
    ");
}

#[test]
fn what_another_tool_wrote_into_a_layout_stays() {
    let Some(case) = Case::new() else { return };
    let store = case.store("a");
    case.export(&store, "type=oci,dest=DIR/out", &[("app:1", &image())]).unwrap();
    let path = case.path("out/index.json");
    let mut index: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    index["manifests"].as_array_mut().unwrap().push(json!({ "mediaType": "x/y", "digest": "sha512:0", "new": [1] }));
    fs::write(&path, index.to_string()).unwrap();
    case.export(&store, "type=oci,dest=DIR/out", &[("app:2", &other())]).unwrap();
    let index: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(index["manifests"][0], json!({ "mediaType": "x/y", "digest": "sha512:0", "new": [1] }));
}

#[test]
fn destinations_that_are_in_use_are_left_alone() {
    let Some(case) = Case::new() else { return };
    let store = case.store("a");
    fs::create_dir(case.path("full")).unwrap();
    fs::write(case.path("full/file"), "mine").unwrap();
    fs::write(case.path("file"), "mine").unwrap();
    for output in
        ["type=oci,dest=DIR/full", "type=local,dest=DIR/full", "type=oci,dest=DIR/file", "type=local,dest=DIR/file"]
    {
        let error = case.export(&store, output, &[("app:1", &image())]).unwrap_err();
        assert_eq!(error.kind(), Kind::BadInput, "{error}");
    }
    assert_eq!(fs::read(case.path("full/file")).unwrap(), b"mine");
    assert_eq!(fs::read(case.path("file")).unwrap(), b"mine");
    assert_eq!(names(case.dir.path()), ["a", "file", "full"]);
}

#[test]
fn only_some_formats_hold_several_images() {
    let Some(case) = Case::new() else { return };
    let (store, image) = (case.store("a"), image());
    let two = [("a:1", &image), ("b:1", &image)];
    insta::assert_snapshot!(case.shown(&case.export(&store, "type=tar,dest=DIR/x", &two).unwrap_err()), @"
    type `tar` holds one image, not 2
    hint: select one image, or write type=oci
    ");
    insta::assert_snapshot!(case.shown(&case.export(&store, "type=docker,dest=DIR/x,name=c", &two).unwrap_err()), @"
    `name` can name one image, not 2
    hint: leave `name` out: each image keeps its own
    ");
    assert!(case.export(&store, "type=oci,dest=DIR/x", &[]).is_err());
}

#[test]
fn a_name_given_for_the_output_counts() {
    let Some(case) = Case::new() else { return };
    let store = case.store("a");
    case.export(&store, "type=docker,dest=DIR/x.tar,name=new/name:2", &[("app:1", &image())]).unwrap();
    assert!(case.docker(&store, "x.tar", Some("new/name:2")).is_ok());
    assert!(case.docker(&store, "x.tar", Some("app:1")).is_err());
}

#[test]
fn a_docker_archive_comes_back_as_it_was() {
    let Some(case) = Case::new() else { return };
    let (store, image, other) = (case.store("a"), image(), other());
    let images = [("app:1", &image), ("app:same", &image), ("r.example.org/b:2", &other)];
    case.export(&store, "type=docker,dest=DIR/x.tar", &images).unwrap();
    let again = case.store("b");
    for (name, image) in images {
        let imported = case.docker(&again, "x.tar", Some(name)).unwrap();
        assert_eq!(imported.config.rootfs.diff_ids, image.diff_ids());
        assert_eq!(imported.manifest, None);
    }
    let entries = tar_names(&case.path("x.tar"));
    assert_eq!(entries.len(), 1 + 2 + 3, "two configurations, three layers: {entries:?}");
    insta::assert_snapshot!(case.shown(&case.docker(&again, "x.tar", None).unwrap_err()), @"
    cannot read the Docker archive DIR/x.tar: it holds several images
    hint: name one as `docker-archive:PATH:NAME`; it has app:1, app:same, r.example.org/b:2
    ");

    // Older and other writers: compressed as a whole, layers compressed, layers that are links.
    let names = ["config.json", "a/layer.tar", "b/layer.tar"];
    let manifest = json!([{ "Config": names[0], "RepoTags": null, "Layers": names[1..] }]).to_string();
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    let mut file = |name: &str, bytes: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        tar.append_data(&mut header, name, bytes).unwrap();
    };
    file("manifest.json", manifest.as_bytes());
    file(names[0], &image.config);
    file("real/0", &image.layers[0].plain);
    file(names[2], &image.layers[1].gzip);
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    tar.append_link(&mut header, names[1], "../real/0").unwrap();
    let bytes = tar.into_inner().unwrap().finish().unwrap();
    fs::write(case.path("old.tar.gz"), bytes).unwrap();
    let imported = case.docker(&case.store("c"), "old.tar.gz", None).unwrap();
    assert_eq!(imported.config.rootfs.diff_ids, image.diff_ids());
}

fn tar_names(path: &Path) -> Vec<String> {
    let mut archive = tar::Archive::new(fs::File::open(path).unwrap());
    let entries = archive.entries().unwrap();
    entries.map(|e| e.unwrap().path().unwrap().display().to_string()).collect()
}

#[test]
fn the_tree_is_merged() {
    let Some(case) = Case::new() else { return };
    let (store, image) = (case.store("a"), image());
    case.export(&store, "type=tar,dest=DIR/x.tar", &[("app:1", &image)]).unwrap();
    assert_eq!(tar_names(&case.path("x.tar")), ["etc/", "etc/a", "etc/b"]);
    fs::create_dir(case.path("empty")).unwrap();
    for dest in ["new/tree", "empty"] {
        case.export(&store, &format!("type=local,dest=DIR/{dest}"), &[("app:1", &image)]).unwrap();
        let root = case.path(dest);
        assert_eq!(names(&root), ["etc"]);
        assert_eq!(names(&root.join("etc")), ["a", "b"]);
        let meta = fs::metadata(root.join("etc/a")).unwrap();
        assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o7777, meta.mtime()), (7, 8, 0o644, 1_000_000_000));
        assert_eq!(fs::read(root.join("etc/b")).unwrap(), b"two");
    }
}

#[test]
fn an_interrupted_export_leaves_nothing() {
    let Some(case) = Case::new() else { return };
    let store = case.store("a");
    let image = image();
    image.put(&store);
    case.cancel.cancel();
    for kind in
        ["oci,dest=DIR/x", "oci,dest=DIR/x.tar", "docker,dest=DIR/x.tar", "tar,dest=DIR/x.tar", "local,dest=DIR/x"]
    {
        let error = case.export(&store, &format!("type={kind}"), &[("app:1", &image)]).unwrap_err();
        assert_eq!(error.kind(), Kind::Interrupted, "{kind}: {error}");
        assert_eq!(names(case.dir.path()), ["a"], "{kind}");
    }
}

/// A layout in a directory with an index of our making.
fn layout(case: &Case, name: &str, entries: Vec<Value>, blobs: &[(Digest, &[u8])]) {
    let root = case.path(name);
    fs::create_dir_all(root.join("blobs/sha256")).unwrap();
    fs::write(root.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    fs::write(root.join("index.json"), json!({ "schemaVersion": 2, "manifests": entries }).to_string()).unwrap();
    for (digest, bytes) in blobs {
        fs::write(root.join("blobs/sha256").join(digest.hex()), bytes).unwrap();
    }
}

#[test]
fn nested_indexes_lead_to_the_platform() {
    let Some(case) = Case::new() else { return };
    let image = image();
    let platform = |p: &Platform| json!({ "os": p.os, "architecture": p.architecture });
    let index = json!({ "schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [
        { "mediaType": OCI_MANIFEST, "digest": Digest::of(b""), "size": 0, "platform": { "os": "plan9", "architecture": "mips" } },
        { "mediaType": OCI_MANIFEST, "digest": image.digest(), "size": image.manifest.len(), "platform": platform(&Platform::host()) },
    ]})
    .to_string();
    let digest = Digest::of(index.as_bytes());
    let mut blobs = image.blobs();
    blobs.push((digest.clone(), index.as_bytes()));
    let entry = json!({ "mediaType": OCI_INDEX, "digest": digest, "size": index.len() });
    layout(&case, "x", vec![entry], &blobs);
    assert_eq!(case.oci(&case.store("a"), "x", None).unwrap().manifest, Some(image.digest()));

    // An index that names itself ends.
    let endless = json!({ "schemaVersion": 2, "manifests": [] }).to_string();
    let digest = Digest::of(endless.as_bytes());
    layout(
        &case,
        "y",
        vec![json!({ "mediaType": OCI_INDEX, "digest": digest, "size": endless.len() })],
        &[(digest, endless.as_bytes())],
    );
    assert!(case.oci(&case.store("a"), "y", None).is_err());
}

#[test]
fn damage_is_found_and_named() {
    let Some(case) = Case::new() else { return };
    let image = image();
    case.export(&case.store("a"), "type=oci,dest=DIR/x", &[("app:1", &image)]).unwrap();
    for (i, (digest, bytes)) in image.blobs().into_iter().enumerate() {
        let path = case.path("x/blobs/sha256").join(digest.hex());
        let mut damaged = bytes.to_vec();
        *damaged.last_mut().unwrap() ^= 1;
        for wrong in [damaged, [bytes, b" "].concat(), bytes[1..].to_vec()] {
            // Not in place: it may be the store's own file.
            fs::remove_file(&path).unwrap();
            fs::write(&path, wrong).unwrap();
            let store = case.store(&format!("store{i}"));
            let error = case.oci(&store, "x", None).unwrap_err();
            assert!(error.to_string().contains(&format!("the blob {digest} is damaged")), "{error}");
            assert!(!store.has_blob(&digest));
        }
        fs::write(&path, bytes).unwrap();
    }
    fs::remove_file(case.path("x/blobs/sha256").join(image.layers[0].digest().hex())).unwrap();
    let error = case.oci(&case.store("last"), "x", None).unwrap_err();
    assert_eq!(error.kind(), Kind::BadInput);
}

#[test]
fn the_other_kind_of_archive_is_recognised() {
    let Some(case) = Case::new() else { return };
    let store = case.store("a");
    case.export(&store, "type=oci,dest=DIR/oci.tar", &[("app:1", &image())]).unwrap();
    case.export(&store, "type=docker,dest=DIR/docker.tar", &[("app:1", &image())]).unwrap();
    insta::assert_snapshot!(case.shown(&case.oci(&store, "docker.tar", None).unwrap_err()), @"
    cannot read the OCI image layout DIR/docker.tar: it is a Docker archive
    hint: name it as `docker-archive:PATH`
    ");
    insta::assert_snapshot!(case.shown(&case.docker(&store, "oci.tar", None).unwrap_err()), @"
    cannot read the Docker archive DIR/oci.tar: it is an OCI image layout
    hint: name it as `oci:PATH`
    ");
    insta::assert_snapshot!(case.shown(&case.docker(&store, "none.tar", None).unwrap_err()), @"
    cannot read the Docker archive DIR/none.tar: it cannot be opened: No such file or directory (os error 2)
    hint:
    ");
    fs::File::create(case.path("text")).unwrap().write_all(b"no tar").unwrap();
    assert!(case.oci(&store, "text", None).is_err());
    assert!(case.docker(&store, "text", None).is_err());
}

/// Docker since version 25 writes archives that are an OCI image layout as well.
#[test]
fn an_archive_of_both_kinds_is_read_as_either() {
    let Some(case) = Case::new() else { return };
    let image = image();
    let entry = json!({ "mediaType": OCI_MANIFEST, "digest": image.digest(), "size": image.manifest.len() });
    layout(&case, "both", vec![entry], &image.blobs());
    let blob = |digest: &Digest| format!("blobs/sha256/{}", digest.hex());
    let layers: Vec<String> = image.layers.iter().map(|layer| blob(&layer.digest())).collect();
    let items = json!([{ "Config": blob(&Digest::of(&image.config)), "RepoTags": ["app:1"], "Layers": layers }]);
    fs::write(case.path("both/manifest.json"), items.to_string()).unwrap();
    let mut tar = tar::Builder::new(fs::File::create(case.path("both.tar")).unwrap());
    tar.append_dir_all(".", case.path("both")).unwrap();
    tar.finish().unwrap();
    let oci = case.oci(&case.store("a"), "both.tar", None).unwrap();
    let docker = case.docker(&case.store("b"), "both.tar", Some("app:1")).unwrap();
    assert_eq!(oci.config, docker.config);
    assert_eq!(oci.size, docker.size);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Bytes that are changed anywhere in an archive give an error or, where they do not matter, the same image.
    #[test]
    fn no_damage_goes_unnoticed(changes in proptest::collection::vec(any::<(prop::sample::Index, u8)>(), 1..8), docker in any::<bool>()) {
        let Some(case) = Case::new() else { return Ok(()) };
        let image = fixture::image(&[&[("etc/", ""), ("etc/a", "one")]]);
        let kind = if docker { "docker" } else { "oci" };
        case.export(&case.store("a"), &format!("type={kind},dest=DIR/x.tar"), &[("app:1", &image)]).unwrap();
        let mut bytes = fs::read(case.path("x.tar")).unwrap();
        let length = bytes.len();
        for (at, byte) in changes {
            bytes[at.index(length)] = byte;
        }
        fs::write(case.path("x.tar"), bytes).unwrap();
        let store = case.store("b");
        let read = if docker { case.docker(&store, "x.tar", None) } else { case.oci(&store, "x.tar", None) };
        if let Ok(imported) = read {
            prop_assert_eq!(imported.config.rootfs.diff_ids, image.diff_ids());
        }
    }
}
