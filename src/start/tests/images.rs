//! Images, looked at and adopted.

use std::path::Path;

use tar::EntryType;

use super::{dynamic, elf};
use crate::diag::{Diagnostics, SourceFile};
use crate::event::Cancel;
use crate::image::config::{ImageConfig, Platform};
use crate::image::digest::Digest;
use crate::image::layer::compress::Codec;
use crate::image::store::Store;
use crate::start::adopt::{Options, Source, adopt};
use crate::start::bundle::Bundle;
use crate::start::check::{Need, State, check};
use crate::start::runtime::Runtime;
use crate::start::{Definition, Definitions, read};

/// A store with one image of one layer.
struct Lab {
    _dir: tempfile::TempDir,
    store: Store,
    source: Source,
    cancel: Cancel,
}

/// Names that end in `/` are directories, contents that begin with `->` are links; the mode is of files and directories.
fn lab(entries: &[(&str, u32, impl AsRef<[u8]>)], user: &str) -> Lab {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("store")).unwrap();
    let mut tar = tar::Builder::new(Vec::new());
    for (name, mode, content) in entries {
        let mut header = tar::Header::new_ustar();
        header.set_mode(*mode);
        header.set_uid(42);
        header.set_gid(43);
        header.set_mtime(7);
        let content = content.as_ref();
        if let Some(target) = content.strip_prefix(b"->") {
            let target = std::str::from_utf8(target).unwrap();
            header.set_entry_type(EntryType::Symlink);
            header.set_size(0);
            tar.append_link(&mut header, name, target).unwrap();
            continue;
        }
        header.set_entry_type(if name.ends_with('/') { EntryType::Directory } else { EntryType::Regular });
        header.set_size(content.len() as u64);
        tar.append_data(&mut header, name, content).unwrap();
    }
    let cancel = Cancel::new().unwrap();
    let layer = store.unpack_layer(&mut &*tar.into_inner().unwrap(), &[], None, &cancel).unwrap();
    let mut config = ImageConfig::new(&Platform { os: "linux".into(), architecture: "amd64".into(), variant: None });
    config.config.env = vec!["PATH=/bin:/opt/bin".into()];
    config.config.user = user.into();
    config.rootfs.diff_ids.push(layer.diff_id.clone());
    let blob = store.compressed(&layer.diff_id, Codec::Zstd, &cancel).unwrap();
    let written = store.put_image(&config, vec![blob]).unwrap();
    Lab { _dir: dir, store, source: Source { config, manifest: Some(written.digest) }, cancel }
}

fn definition(text: &str) -> Definition {
    let mut problems = Diagnostics::default();
    let read = read::read("svc", &SourceFile::new("start.toml", text), None, &mut problems);
    assert!(problems.0.is_empty(), "{problems:?}");
    read.unwrap()
}

const SERVICE: &str = r#"
[service]
summary = "x"
command = ["served"]
health = ["listen", "served", "1"]
[user]
name = "svc"
uid = 4711
missing = "MISSING"
[needs]
programs = ["/opt/tool"]
paths = ["/etc/dir/file"]
[[task]]
name = "backup"
[[task.step]]
title = "Back up"
run = ["backup"]
user = "other"
[[task.step]]
title = "Write"
write = "/x"
text = ""
check = ["checker", "${CANDIDATE}"]
"#;

fn needs(lab: &Lab, missing: &str) -> Vec<Need> {
    let view = lab.source.view(&lab.store).unwrap();
    let mut definition = definition(&SERVICE.replace("MISSING", missing));
    definition.script = Some("svc.sh".into());
    check(&definition, &view, &lab.source.config).unwrap()
}

fn state<'a>(needs: &'a [Need], what: &str) -> (State, &'a str) {
    let need = needs.iter().find(|need| need.what == what).unwrap_or_else(|| panic!("{what}: {needs:?}"));
    (need.state, &need.note)
}

#[test]
fn what_an_image_lacks_is_named_with_what_needs_it() {
    let lab = lab(&[("bin/", 0o755, ""), ("bin/backup", 0o644, "#!/bin/sh\n")], "");
    let found = needs(&lab, "error");
    assert!(found.iter().all(|need| need.state == State::Missing), "{found:?}");
    let all: Vec<(&str, &str, String)> =
        found.iter().map(|need| (need.kind.as_str(), need.what.as_str(), need.by.join(" "))).collect();
    let wanted = [
        ("program", "/opt/tool", "the service"),
        ("program", "backup", "the task backup"),
        ("program", "checker", "the task backup"),
        ("program", "served", "the command"),
        ("user", "other", "the task backup"),
        ("user", "svc", "the service"),
        ("path", "/etc/dir/file", "the service"),
        ("shell", "bash", "extend_start.sh"),
    ];
    assert_eq!(all, wanted.map(|(kind, what, by)| (kind, what, by.to_owned())));
    assert_eq!(state(&needs(&lab, "number"), "svc"), (State::Replaced, "not in /etc/passwd; 4711:4711 is taken"));
}

#[test]
fn links_and_loaders_are_followed_within_the_image() {
    let mut program = String::from_utf8(elf(3)).unwrap();
    program.push_str("/lib/ld.so\0");
    // Where the name of the loader is, and how long.
    let at = program.len() - 11;
    let mut bytes = program.into_bytes();
    bytes[64 + 8] = u8::try_from(at).unwrap();
    bytes[64 + 32] = 11;
    let program = String::from_utf8(bytes).unwrap();
    let entries = |loader: &'static str| {
        [
            ("bin", 0, "->usr/bin"),
            ("usr/bin/", 0o755, ""),
            ("usr/bin/served", 0o755, "#! /bin/interpreter -x\n"),
            ("usr/bin/interpreter", 0, "->/opt/bin/../bin/real"),
            ("opt/bin/", 0o755, ""),
            ("opt/bin/real", 0o755, "real"),
            ("opt/bin/checker", 0o755, "#!/bin/gone\n"),
            ("opt/bin/bash", 0, "->bash"),
            (loader, 0o755, ""),
            ("etc/dir", 0, "->../../../opt"),
            ("opt/file", 0o644, ""),
            ("etc/passwd", 0o644, "root:x:0:0::/:\nsvc:x:1:1::/:\nbroken\n"),
        ]
    };
    let with = |loader| {
        let entries = entries(loader);
        let more = ("opt/tool", 0o755, program.as_str());
        let all: Vec<(&str, u32, &str)> = entries.iter().copied().chain([more]).collect();
        lab(&all, "svc")
    };
    let there = needs(&with("lib/ld.so"), "error");
    assert_eq!(state(&there, "served"), (State::Found, "/bin/served"));
    assert_eq!(state(&there, "/opt/tool").0, State::Found);
    assert_eq!(state(&there, "checker"), (State::Missing, "/opt/bin/checker takes /bin/gone, which isn't there"));
    assert_eq!(state(&there, "/etc/dir/file").0, State::Found);
    assert_eq!((state(&there, "svc").0, state(&there, "bash").0), (State::Found, State::Missing));
    let gone = needs(&with("lib/other.so"), "error");
    assert_eq!(state(&gone, "/opt/tool"), (State::Missing, "/opt/tool takes /lib/ld.so, which isn't there"));
}

#[test]
fn shared_libraries_are_looked_for_as_loaders_do() {
    let loader = "/lib64/ld-linux.so.2";
    let served =
        dynamic(Some(loader), &["libone.so.1", "libown.so", "ld-linux.so.2", "libfar.so"], Some("$ORIGIN/../own"));
    let (one, two) = (dynamic(None, &["libtwo.so", "libgone.so.3"], None), dynamic(None, &["libone.so.1"], None));
    let plain = dynamic(None, &[], None);
    let mut other = plain.clone();
    other[18] = 3;
    let tool = dynamic(Some("/lib/ld-musl-x86_64.so.1"), &["libc.so", "libone.so.1"], None);
    let mut entries: Vec<(&str, u32, &[u8])> = vec![
        ("lib64/ld-linux.so.2", 0o755, &plain[..]),
        ("lib/ld-musl-x86_64.so.1", 0o755, &plain[..]),
        ("usr/bin/served", 0o755, &served),
        ("bin/served", 0, b"->../usr/bin/served"),
        ("bin/backup", 0o755, b"#!/usr/bin/env -S served\n"),
        ("bin/checker", 0o755, b"#!/usr/bin/env served\n"),
        ("usr/bin/env", 0o755, b""),
        ("usr/own/libown.so", 0o644, &plain[..]),
        // Passed over, since it is for another architecture.
        ("lib64/libtwo.so", 0o644, &other),
        ("usr/lib/x86_64-linux-gnu/libone.so.1", 0, b"->libone.so.1.5"),
        ("usr/lib/x86_64-linux-gnu/libone.so.1.5", 0o644, &one),
        ("lib/libtwo.so", 0o644, &two),
        ("etc/ld.so.conf", 0o644, b"include /etc/ld.so.conf.d/*.conf\n"),
        ("etc/ld.so.conf.d/far.conf", 0o644, b"# far\n/far\n"),
        ("far/libfar.so", 0o644, &plain[..]),
        ("opt/tool", 0o755, &tool),
    ];
    let found = needs(&lab(&entries, ""), "image");
    let gone = "takes libgone.so.3 (for libone.so.1), which isn't there";
    assert_eq!(state(&found, "served"), (State::Missing, &*format!("/bin/served {gone}")));
    // What stands behind `env` is what is needed.
    assert_eq!(state(&found, "checker"), (State::Missing, &*format!("/bin/served {gone}")));
    assert_eq!(state(&found, "backup"), (State::Found, "/bin/backup"));
    // musl has its own names, and looks in fewer places.
    assert_eq!(state(&found, "/opt/tool"), (State::Missing, "/opt/tool takes libone.so.1, which isn't there"));
    entries.extend([("usr/lib/libgone.so.3", 0o644, &plain[..]), ("usr/lib/libone.so.1", 0o644, &plain)]);
    let found = needs(&lab(&entries, ""), "image");
    assert_eq!(state(&found, "served"), (State::Found, "/bin/served"));
    assert_eq!(state(&found, "/opt/tool"), (State::Found, "/opt/tool"));
}

fn bundle() -> Bundle {
    let platform = Platform { os: "linux".into(), architecture: "amd64".into(), variant: None };
    let runtime = Runtime { bytes: elf(1), platform };
    let text = SERVICE.replace("MISSING", "image");
    let services = [("svc".to_owned(), (Path::new("svc").to_owned(), definition(&text)))];
    Bundle::new(&Definitions { services: services.into() }, runtime).unwrap()
}

fn adopted(lab: &Lab) -> crate::error::Result<Digest> {
    let options = Options { codec: Codec::Gzip, source_date_epoch: 100, cancel: &lab.cancel };
    let definition = definition(&SERVICE.replace("MISSING", "image"));
    adopt(&lab.store, &lab.source, &definition, &bundle(), "new:tag", &options).map(|written| written.digest)
}

#[test]
fn an_adopted_image_is_the_image_and_one_layer() {
    let entries = [("var/", 0o711, ""), ("var/lib/", 0o750, ""), ("bin/", 0o755, ""), ("bin/served", 0o755, "")];
    let lab = lab(&entries, "web:adm");
    let digest = adopted(&lab).unwrap();
    assert_eq!(adopted(&lab).unwrap(), digest, "it is another one the second time");
    assert_eq!(lab.store.get_ref("new:tag").unwrap().manifest, digest);
    let manifest = lab.store.manifest(&digest).unwrap();
    let before = lab.store.manifest(lab.source.manifest.as_ref().unwrap()).unwrap();
    assert_eq!((manifest.layers.len(), &manifest.layers[0]), (2, &before.layers[0]));

    let config = lab.store.image_config(&manifest.config.digest).unwrap();
    let run = &config.config;
    let program = "/var/lib/kollage/start/kollage-start";
    assert_eq!(run.entrypoint.as_deref().unwrap(), [program, "exec", "--"]);
    assert_eq!(run.cmd.as_deref().unwrap(), ["kolla_start"]);
    assert_eq!(run.env, ["PATH=/bin:/opt/bin", "KOLLAGE_IMAGE_USER=web:adm", "KOLLAGE_SERVICE=svc"]);
    assert_eq!((run.user.as_str(), config.rootfs.diff_ids.len()), ("", 2));
    assert_eq!(run.healthcheck.as_ref().unwrap().test, ["CMD", program, "healthcheck"]);

    let mut tar = Vec::new();
    lab.store.write_layer_tar(&config.rootfs.diff_ids[1], &mut tar, &lab.cancel).unwrap();
    let mut found = std::collections::BTreeMap::new();
    for entry in tar::Archive::new(&*tar).entries().unwrap() {
        let entry = entry.unwrap();
        let header = entry.header();
        let own = (header.uid().unwrap(), header.mode().unwrap() & 0o7777);
        assert!(header.mtime().unwrap() <= 100);
        found.insert(entry.path().unwrap().to_string_lossy().into_owned(), own);
    }
    // What the image has, with its owner and mode.
    assert_eq!((found["var/"], found["var/lib/"]), ((42, 0o711), (42, 0o750)));
    assert_eq!(found["var/lib/kollage/start/kollage-start"], (0, 0o755));
    assert_eq!(found["var/lib/kollage/start/services/svc.json"], (0, 0o644));
    assert!(found.contains_key("usr/local/bin/kolla_start") && !found.contains_key("bin/"), "{found:?}");
}

#[test]
fn a_link_where_the_bundle_goes_is_not_replaced() {
    let lab = lab(&[("var", 0, "->elsewhere"), ("elsewhere/", 0o755, "")], "");
    let error = adopted(&lab).unwrap_err();
    assert!(error.message().contains("the image has a link at /var, where the bundle goes"), "{error:?}");
    assert!(error.hint_text().unwrap().contains("start pack"), "{error:?}");
}

#[test]
fn a_bundle_is_the_same_bytes_for_the_same_content() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, codec| {
        let path = dir.path().join(name);
        bundle().write_tar(&path, codec, 5).unwrap();
        std::fs::read(path).unwrap()
    };
    assert_eq!(file("a.tar.gz", Codec::Gzip), file("b.tar.gz", Codec::Gzip));
    let plain = file("a.tar", Codec::None);
    let mut names = Vec::new();
    for entry in tar::Archive::new(&*plain).entries().unwrap() {
        let entry = entry.unwrap();
        let header = entry.header();
        assert_eq!((header.uid().unwrap(), header.mtime().unwrap()), (0, 5));
        names.push(entry.path().unwrap().to_string_lossy().into_owned());
    }
    assert!(names.contains(&"bundle.json".to_owned()) && names.contains(&"services/svc.json".to_owned()), "{names:?}");
    let sorted = {
        let mut sorted = names.clone();
        sorted.sort();
        sorted
    };
    assert_eq!(names, sorted);
    // What a directory has is the same.
    let at = dir.path().join("dir");
    bundle().write_directory(&at).unwrap();
    let contents: serde_json::Value = serde_json::from_slice(&std::fs::read(at.join("bundle.json")).unwrap()).unwrap();
    let definition = std::fs::read(at.join("services/svc.json")).unwrap();
    assert_eq!(contents["services"]["svc"]["definition"], Digest::of(&definition).to_string());
    assert_eq!(contents["runtime"], Digest::of(&elf(1)).to_string());
    assert_eq!(std::fs::read_link(at.join("kolla_start")).unwrap(), Path::new("kollage-start"));
}
