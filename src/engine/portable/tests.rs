use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::context::Context;
use crate::diag::SourceFile;
use crate::dockerfile::{self, Inputs};
use crate::engine::NoCache;
use crate::engine::surroundings::Surroundings;
use crate::event::Cancel;
use crate::image::config::{ImageConfig, Platform};
use crate::image::digest::KeyHasher;

struct Nothing;

impl Bring for Nothing {
    fn bring(&self, _: &Copy, _: &Remote) -> Result<Brought> {
        Ok(Brought::File { path: "/proc/self/stat".into(), name: "it.tgz".into(), modified: 77 })
    }
}

fn platform() -> Platform {
    Platform { os: "linux".into(), architecture: "amd64".into(), variant: None }
}

fn job(text: &str, context: &Path, args: &[(&str, &str)]) -> BuildJob {
    let parsed = Arc::new(dockerfile::parse(&SourceFile::new("Dockerfile", text)).unwrap());
    let build_args: BTreeMap<String, String> = args.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
    let inputs =
        Inputs { target: None, build_args: build_args.clone(), platform: platform(), contexts: BTreeSet::new() };
    let resolved = dockerfile::resolve(&parsed, &inputs).unwrap();
    let config = ImageConfig::new(&platform());
    let configs = resolved.images.iter().map(|name| (name.clone(), config.clone())).collect();
    let key = KeyHasher::new("test").finish();
    let built = Arc::new(Built { key: key.clone(), config, size: 0 });
    BuildJob {
        key,
        stages: dockerfile::lower(&resolved, &configs).unwrap(),
        dockerfile: parsed,
        build_args,
        context: Context::open(context, None).unwrap(),
        content: BTreeMap::new(),
        pins: BTreeMap::new(),
        bases: resolved.images.iter().map(|name| (name.clone(), built.clone())).collect(),
        platform: platform(),
        source_date_epoch: None,
        labels: BTreeMap::new(),
        checks: Vec::new(),
        no_cache: NoCache::Nothing,
        surroundings: Surroundings::default(),
        squash: false,
        max_layers: None,
    }
}

fn made(job: &BuildJob) -> Portable {
    portable(job, &|name, _| Ok(format!("local/{}", name.replace(':', "-"))), &Nothing).unwrap()
}

/// Name, kind, mode, and content or target.
fn listing(portable: &Portable) -> Vec<String> {
    let bytes = portable.files.write(Vec::new(), &portable.dockerfile, &Cancel::new().unwrap()).unwrap();
    let mut archive = tar::Archive::new(bytes.as_slice());
    let entries = archive.entries().unwrap().skip(1).map(|entry| {
        let mut entry = entry.unwrap();
        let mut content = String::new();
        entry.read_to_string(&mut content).unwrap();
        if let Some(target) = entry.link_name().unwrap() {
            content = format!("-> {}", target.display());
        }
        let mode = entry.header().mode().unwrap();
        format!("{} {mode:o} {content}", entry.path().unwrap().display()).trim_end().to_owned()
    });
    entries.collect()
}

fn context(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    }
    dir
}

#[test]
fn images_are_named_as_the_other_engine_has_them() {
    let dir = context(&[]);
    let text = "ARG V=12\nFROM debian:$V AS unused\nRUN false\n\nFROM --platform=$BUILDPLATFORM debian:$V AS one\n\
                RUN \\\n  make\nFROM alpine\nCOPY --from=one /a /a\nCOPY --from=1 /b /b\nCOPY --from=busybox:1 /c /c\n\
                RUN --mount=type=bind,from=busybox:1,target=/m,\"source=/x\" --mount=type=cache,target=/c ls\n";
    let out = made(&job(text, dir.path(), &[("V", "13")]));
    assert_eq!(
        out.dockerfile,
        "ARG V=12\n\n\n\nFROM  local/debian-13 AS one\nRUN \\\n  make\nFROM local/alpine\nCOPY --from=one /a /a\n\
         COPY --from=one /b /b\nCOPY --from=local/busybox-1 /c /c\n\
         RUN --mount=type=bind,from=local/busybox-1,target=/m,source=/x --mount=type=cache,target=/c ls\n"
    );
    assert!(out.files.is_empty());
    let told: Vec<_> = out.instructions.iter().map(|t| (t.line, t.stage, t.title.as_str(), t.touches_files)).collect();
    assert_eq!(
        told[..4],
        [
            (1, None, "ARG V=12", false),
            (5, Some(0), "FROM debian:$V", false),
            (6, Some(0), "RUN make", true),
            (8, Some(1), "FROM alpine", false)
        ]
    );
    assert_eq!(told.len(), 8);
}

#[test]
fn only_what_is_copied_goes_along_and_as_it_was_selected() {
    let dir = context(&[
        (".dockerignore", "**/*.log\n"),
        ("app/a.py", "a"),
        ("app/b.log", "b"),
        ("app/c.txt", "c"),
        ("other", "o"),
        ("real/$odd [name]*", "w"),
    ]);
    symlink("app", dir.path().join("link")).unwrap();
    symlink("a.py", dir.path().join("app/inner")).unwrap();
    let text = "FROM scratch\nCOPY --chmod=u+x --chown=1:2 --exclude=*.txt link /app\nCOPY real/* nothing* /$HOME/\n\
                ADD [\"other\", \"app/c.txt\", \"/to\"]\nCOPY nothing* /\nLABEL a=b\n";
    let out = made(&job(text, dir.path(), &[]));
    assert_eq!(
        out.dockerfile,
        "FROM scratch\nCOPY --chown=1:2 [\"0.0.0.0\",\"/app\"]\n\
         COPY [\"0.1.0.0/\\\\$odd \\\\\\\\[name]\\\\\\\\*\",\"//\"]\n\
         ADD [\"0.2.0.0/other\",\"0.2.1.0/c.txt\",\"/to/\"]\n\nLABEL a=b\n"
            .replace("\"//\"", "\"/\"")
    );
    let mut found = listing(&out);
    // The mode of directories is whatever the umask left.
    found.retain(|line| !line.starts_with("0.0.0.0/ "));
    assert_eq!(
        found,
        [
            "0.0.0.0/a.py 740 a",
            "0.0.0.0/inner 777 -> a.py",
            "0.1.0.0/$odd [name]* 640 w",
            "0.2.0.0/other 640 o",
            "0.2.1.0/c.txt 640 c"
        ]
    );
    assert_eq!(out.instructions.iter().filter(|told| told.touches_files).count(), 3);
}

#[test]
fn here_documents_are_files_and_commands() {
    let dir = context(&[("conf", "x")]);
    let text = "FROM x\nARG N=7\nCOPY <<EOF <<\"RAW\" /etc/\nn=$N\nEOF\nn=$N\nRAW\nRUN <<EOF\necho \"one\"\necho two\nEOF\n\
                RUN --mount=type=bind,source=conf,target=/c <<PY\n#!/usr/bin/python3\nprint()\nPY\nUSER a\n";
    let job = job(text, dir.path(), &[]);
    let out = made(&job);
    assert_eq!(
        out.dockerfile,
        "FROM local/x\nARG N=7\nCOPY [\"0.1.0/EOF\",\"0.1.1/RAW\",\"/etc/\"]\n\n\n\n\n\
         RUN [\"/bin/sh\",\"-c\",\"echo \\\"one\\\"\\necho two\\n\"]\n\n\n\n\
         RUN --mount=type=bind,target=/c,source=0.3.m0.0/conf \
         --mount=type=bind,source=0.3.s/PY,target=/dev/pipes/PY [\"/dev/pipes/PY\"]\n\n\n\nUSER a\n"
    );
    assert_eq!(out.dockerfile.lines().count(), text.lines().count());
    assert_eq!(
        listing(&out),
        ["0.1.0/EOF 644 n=7", "0.1.1/RAW 644 n=$N", "0.3.m0.0/conf 640 x", "0.3.s/PY 755 #!/usr/bin/python3\nprint()"]
    );
    let used: Vec<Feature> = uses(&job.stages).into_iter().map(|used| used.feature).collect();
    assert_eq!(used, [Feature::Script, Feature::BindMount]);
}

#[test]
fn what_add_fetches_is_a_file_of_the_tar() {
    let dir = context(&[("here", "x")]);
    let text = "FROM x\nADD https://h.example/it.tgz /a\nADD --unpack=true https://h.example/it.tgz /b/\n\
                ADD here https://h.example/it.tgz /c/\n";
    let job = job(text, dir.path(), &[]);
    let out = made(&job);
    assert!(out.dockerfile.contains("COPY [\"0.0.0/it.tgz\",\"/a\"]\nADD [\"0.1.0/it.tgz\",\"/b/\"]"));
    assert!(listing(&out).iter().any(|line| line.starts_with("0.0.0/it.tgz 600")));
    assert_eq!(uses(&job.stages).last().map(|used| used.feature), Some(Feature::MixedAdd));
}

#[test]
fn only_declared_arguments_are_handed_over() {
    let dir = context(&[]);
    let text = "ARG BASE=x\nFROM $BASE\nARG TARGETARCH\nARG mine\n";
    let args = [("mine", "1"), ("theirs", "2"), ("http_proxy", "p"), ("BASE", "y")];
    let out = made(&job(text, dir.path(), &args));
    let names: Vec<_> = out.build_args.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(names, ["BASE=y", "TARGETARCH=amd64", "http_proxy=p", "mine=1"]);
}

#[test]
fn the_same_files_give_the_same_bytes() {
    let dir = context(&[("a", "1"), ("b/c", "2")]);
    let bytes = || {
        let mut job = job("FROM x\nCOPY . /\n", dir.path(), &[]);
        job.source_date_epoch = Some(5);
        let out = made(&job);
        out.files.write(Vec::new(), &out.dockerfile, &Cancel::new().unwrap()).unwrap()
    };
    let first = bytes();
    assert_eq!(first, bytes());
    let mut archive = tar::Archive::new(first.as_slice());
    assert!(archive.entries().unwrap().all(|entry| entry.unwrap().header().mtime().unwrap() <= 5));
}
