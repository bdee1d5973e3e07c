//! What layers can hold and what can happen between them: each content is a list of scripts, one a layer, which run in a
//! directory of its own.

use std::path::{Path, PathBuf};

use kollage::event::Cancel;
use kollage::image::archive::{ExportImage, Output, export};
use kollage::image::digest::Digest;
use kollage::image::store::{Codec, Store};
use serde_json::json;

use crate::mounts::Mounts;
use crate::room::put_image;
use crate::tools::succeed;
use crate::tree::Tree;

pub struct Content {
    pub name: &'static str,
    /// What the table says.
    pub title: &'static str,
    /// In busybox's shell, but where `host` says that they need the host's tools.
    pub steps: &'static [&'static str],
    pub host: bool,
}

const fn content(name: &'static str, title: &'static str, steps: &'static [&'static str]) -> Content {
    Content { name, title, steps, host: false }
}

const fn on_host(name: &'static str, title: &'static str, steps: &'static [&'static str]) -> Content {
    Content { name, title, steps, host: true }
}

/// As many as the longest list of steps.
pub const LAYERS: usize = 4;

pub const CONTENTS: [Content; 29] = [
    content("file", "a file is deleted", &["echo 1 >f; echo 1 >kept", "rm f"]),
    content("dir", "a directory is deleted", &["mkdir -p d/e; echo 1 >d/e/f; echo 2 >kept", "rm -r d"]),
    content(
        "dir-next",
        "a directory is made again in the next step",
        &["mkdir d; echo 1 >d/a", "rm -r d", "mkdir d; echo 2 >d/b"],
    ),
    content(
        "dir-same",
        "a directory is made again in the same step",
        &["mkdir d; echo 1 >d/a", "rm -r d; mkdir d; echo 2 >d/b"],
    ),
    content("dir-empty", "a directory is made again empty", &["mkdir -p d/e; echo 1 >d/e/a", "rm -r d; mkdir d"]),
    content(
        "dir-twice",
        "a directory is made again twice",
        &["mkdir d; echo 1 >d/a", "rm -r d; mkdir d; echo 2 >d/b", "rm -r d; mkdir d; echo 3 >d/c", "echo 4 >d/a"],
    ),
    content(
        "dir-partly",
        "a directory is made again with some of the old names",
        &["mkdir -p d/e/f; echo 1 >d/e/f/a; echo 1 >d/b", "rm -r d; mkdir -p d/e; echo 2 >d/b", "echo 3 >d/e/f"],
    ),
    content("file-dir", "a file becomes a directory", &["echo 1 >x", "rm x; mkdir x; echo 2 >x/y"]),
    content("dir-file", "a directory becomes a file", &["mkdir x; echo 1 >x/y", "rm -r x; echo 2 >x"]),
    content(
        "dir-link",
        "a directory becomes a link (case 7)",
        &["mkdir foo baz; echo 1 >foo/bar; echo 2 >baz/b", "rm -r foo; ln -s baz foo"],
    ),
    content(
        "link-dir",
        "a link becomes a directory",
        &["mkdir t; echo 1 >t/a; ln -s t l", "rm l; mkdir l; echo 2 >l/b"],
    ),
    content(
        "link-through",
        "files are written through a link to a directory",
        &["mkdir t; ln -s t l", "echo 1 >l/a", "rm l/a; echo 2 >l/b"],
    ),
    content(
        "nested",
        "deletions within deletions",
        &[
            "mkdir -p a/b/c/d; echo 1 >a/b/c/d/f; echo 1 >a/b/g; echo 1 >a/h",
            "rm -r a/b/c",
            "mkdir -p a/b/c; echo 2 >a/b/c/new; rm a/b/g",
            "rm -r a/b; mkdir a/b",
        ],
    ),
    content(
        "again",
        "added, removed and added again (case 12)",
        &["mkdir d; echo 1 >d/a; echo 1 >f", "rm -r d f", "mkdir d; echo 2 >d/b; echo 2 >f", "rm d/b; echo 3 >d/a"],
    ),
    content(
        "renamed",
        "a directory is renamed, and another takes its name",
        &["mkdir a b; echo 1 >a/x; echo 2 >b/y", "mv a c; mv b a"],
    ),
    content(
        "metadata",
        "only mode and owner change",
        &["mkdir d; echo 1 >d/f; echo 1 >g", "chmod 700 d; chown 5:6 d/f; chmod 600 g"],
    ),
    content(
        "links",
        "hard links across directories (case 11)",
        &["mkdir a b; echo 1 >a/f; ln a/f b/g; ln a/f h; mkfifo a/p; ln a/p b/p"],
    ),
    content(
        "links-below",
        "hard links to files of the layers below",
        &["mkdir a b; echo 1 >a/f; echo 2 >z", "ln a/f b/g; ln z a/y"],
    ),
    content(
        "links-parted",
        "one of two names of a file is written to",
        &["mkdir a; echo 1 >a/f; ln a/f g", "echo 2 >>g", "rm a/f"],
    ),
    content(
        "names",
        "names: 200 bytes, a path of 500, spaces, line breaks, not UTF-8",
        &[
            "n=nnnnnnnnnnnnnnnnnnnn; n=$n$n$n$n$n$n$n$n$n$n; echo 1 >$n; mkdir -p $n.d/$n; echo 2 >$n.d/$n/f; ln -s $n.d/$n/f l; ln $n.d/$n/f h; echo 3 >'a b'; echo 4 >\"$(printf 'x\\ny')\"; echo 5 >\"$(printf 'a\\377b')\"; echo 6 >wh.a; echo 7 >.w; echo 8 >./-rf",
            "rm \"$(printf 'a\\377b')\"; echo 9 >\"$(printf '\\303\\244')\"",
        ],
    ),
    content(
        "modes",
        "setuid, setgid, sticky, and no mode at all",
        &[
            "echo 1 >s; chmod 4755 s; echo 1 >g; chmod 2755 g; mkdir t; chmod 1777 t; echo 1 >n; chmod 0 n; mkdir d; chmod 2750 d",
        ],
    ),
    content(
        "owners",
        "large owners, and setuid files that have one",
        &["echo 1 >f; chown 70000:3000000 f; chmod 6755 f; mkdir d; chown 2000000000:0 d"],
    ),
    content(
        "nodes",
        "devices and pipes",
        &["mknod null c 1 3; mknod loop b 7 200; mknod far c 240 70000; mkfifo -m 640 p", "rm null; mknod null c 1 5"],
    ),
    content(
        "times",
        "times before 1970 and after 2038",
        &["echo 1 >old; touch -d @-1000000 old; echo 1 >new; touch -d @5000000000 new; echo 1 >zero; touch -d @0 zero"],
    ),
    content(
        "sparse",
        "sparse files",
        &["truncate -s 3M empty; truncate -s 5M some; echo middle | dd of=some bs=1M seek=2 conv=notrunc 2>/dev/null"],
    ),
    content("nothing", "empty files and directories", &["mkdir d; >f", "mkdir d/e; >d/f"]),
    on_host(
        "capability",
        "capabilities (case 8)",
        &[
            "cp /bin/true ping; chown 3:4 ping; setcap cap_net_raw+ep ping",
            "chmod 700 ping; setcap cap_net_raw,cap_chown+ep ping",
        ],
    ),
    on_host(
        "attributes",
        "user attributes of files and directories",
        &[
            "echo 1 >f; mkdir d; setfattr -n user.text -v hello f; setfattr -n user.bytes -v 0x00ff0a3d00 f; setfattr -n user.on.dir -v x d",
            "setfattr -n user.more -v 1 f",
        ],
    ),
    on_host(
        "fractions",
        "fractions of seconds",
        &["echo 1 >f; touch -d '2001-02-03 04:05:06.789' f; ln -s f l; touch -h -d '1960-01-01 00:00:00.5 UTC' l"],
    ),
];

/// One step of all contents as a script for the root directory.
pub fn script(step: usize, wanted: impl Fn(&Content) -> bool) -> String {
    let mut out = String::from("set -e; umask 022; mkdir -p c; ");
    for content in CONTENTS.iter().filter(|content| wanted(content)) {
        if let Some(script) = content.steps.get(step) {
            out.push_str(&format!("mkdir -p c/{0}; (cd c/{0}; {script}); ", content.name));
        }
    }
    out
}

/// What a child does to everything that its parent has.
pub const CHILD: &str = "set -e; umask 022; for c in c/*; do ( cd $c; set -- ./*; echo child >new-in-child; \
    mkdir -p d; echo child >d/in-child; rm -rf \"$1\"; mkdir \"$1\"; echo child >\"$1/in-child\" ); done";

/// Runs scripts on a real overlay over layers of the store, a layer each, and commits them as a build does. Gives all
/// layers, and what the overlay showed in the end.
pub fn build(store: &Store, mounts: &Mounts, below: &[Digest], scripts: &[String]) -> (Vec<Digest>, Tree) {
    let mut layers = below.to_vec();
    let mut seen = None;
    for script in scripts {
        let work = store.work_dir().unwrap();
        let [upper, scratch] = ["upper", "scratch"].map(|name| work.path().join(name));
        std::fs::create_dir(&upper).unwrap();
        std::fs::create_dir(&scratch).unwrap();
        let lower: Vec<PathBuf> = store.layers(&layers).unwrap().into_iter().map(|(_, fs)| fs).collect();
        let merged = mounts.overlay(&lower, Some((&upper, &scratch)));
        let script = format!("cd {}; {script}", merged.display());
        succeed(mounts.command("bash").args(["-c", &script]));
        seen = Some(Tree::read(&mounts.outside(&merged)));
        mounts.unmount(&merged);
        layers.push(store.commit_upper(&upper, &layers, None).unwrap().diff_id);
    }
    (layers, seen.unwrap())
}

/// The tree as Kollage gives it out.
pub fn exported(store: &Store, layers: &[Digest], into: &Path) -> Tree {
    let image = put_image(store, layers.to_vec(), Codec::None, json!({}));
    let image = ExportImage { name: "local".parse().unwrap(), manifest: image.manifest };
    let output: Output = format!("type=local,dest={}", into.display()).parse().unwrap();
    export(store, &[image], &output, None, &Cancel::new().unwrap()).unwrap();
    Tree::read(into)
}
