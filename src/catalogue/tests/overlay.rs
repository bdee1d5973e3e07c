//! Overlays: what they change, and what is wrong with them.

use insta::assert_snapshot;

use super::super::*;
use super::Tree;

const CHANGE: &str = r#"
[[change]]
images = ["key*"]
packages.deb.append = ["tcpdump"]
packages.deb.remove = ["curl"]
image.summary.override = "Ours"
vars.command.override = ["ours", "--fast"]
vars.colour.add = "blue"
sources.keystone.override = { pypi = "keystone==30.0.1" }
env.DEBUG.add = "1"
plugins.accept.append = ["ours-*"]
check.append = [{ run = ["ours", "--version"] }]
"#;
const KEYSTONE: &str = "[image]\nparent = \"base\"\nsummary = \"Theirs\"\n[packages]\ndeb = [\"libldap2\", \"curl\"]\n\
     [sources.keystone]\npypi = \"keystone\"\n[vars]\ncommand = [\"theirs\"]\n[plugins]\naccept = [\"keystone-*\"]\n\
     [[check]]\nrun = [\"true\"]\n";
const RECIPE: &str = "FROM {{ parent }}\n{# {% block commented %} #}{% block packages %}RUN install {{ image.packages | join(' ') }}\n\
     {% endblock %}{% block after %}{% endblock %}";

/// A sound catalogue, an overlay `mine` with this overlay.toml, and more files.
fn with(overlay: &str, files: &[(&str, &str)]) -> Tree {
    let sound = [
        ("kollage.toml", "overlays = [\"mine\"]\n"),
        ("mine/overlay.toml", overlay),
        ("images/keystone/image.toml", KEYSTONE),
        ("images/keystone/Dockerfile.j2", RECIPE),
        ("images/plain/Dockerfile", "FROM kollage/base:debian-bookworm\n"),
    ];
    Tree::with(&[&sound, files].concat())
}

fn wrong(overlay: &str) -> String {
    with(overlay, &[]).problems()
}

fn rendered(tree: &Tree, image: &str) -> String {
    let catalogue = tree.load().unwrap_or_else(|e| panic!("{}", tree.show(&e)));
    match crate::template::render_image(&catalogue, &catalogue.images[image]) {
        Ok(rendered) => rendered.dockerfile.text.clone(),
        Err(problems) => tree.show(&problems),
    }
}

#[test]
fn values_are_added_removed_appended_and_overridden() {
    let tree = with(CHANGE, &[]);
    let catalogue = tree.load().unwrap_or_else(|e| panic!("{}", tree.show(&e)));
    let keystone = &catalogue.images["keystone"];
    assert_eq!(keystone.packages.deb, ["libldap2", "tcpdump"]);
    assert_eq!((keystone.summary.as_str(), keystone.env["DEBUG"].as_str()), ("Ours", "1"));
    assert_eq!(keystone.sources["keystone"], SourceDef::Pypi { requirement: "keystone==30.0.1".into() });
    assert_eq!((keystone.checks.len(), keystone.plugins.accept.len()), (2, 2));
    assert_snapshot!(tree.shown(&catalogue.explain("keystone").unwrap()), @r##"
# image keystone: images/keystone/image.toml, recipe images/keystone/Dockerfile.j2

[image]
parent = "base"                                           # images/keystone/image.toml:2
summary = "Ours"                                          # mine/overlay.toml:6

[packages]
deb = [
    "libldap2",                                           # images/keystone/image.toml:5
    "tcpdump",                                            # mine/overlay.toml:4
]

[sources.keystone]
pypi = "keystone==30.0.1"                                 # mine/overlay.toml:9

[vars]
command = ["ours", "--fast"]                              # mine/overlay.toml:7
colour = "blue"                                           # mine/overlay.toml:8

[plugins]
accept = [
    "keystone-*",                                         # images/keystone/image.toml:11
    "ours-*",                                             # mine/overlay.toml:11
]

[[check]]
run = ["true"]                                            # images/keystone/image.toml:13

[[check]]
run = ["ours", "--version"]                               # mine/overlay.toml:12

[env]
DEBUG = "1"                                               # mine/overlay.toml:10

[build]
base = "debian"                                           # default
base_tag = "bookworm"                                     # default
namespace = "kollage"                                     # default
tag = "debian-bookworm"                                   # default
"##);
}

#[test]
fn the_release_and_the_command_line_are_origins_too() {
    let tree = with(
        "[[change]]\nimages = [\"keystone\"]\nimage.summary.override = \"Ours\"\n",
        &[
            ("kollage.toml", "overlays = [\"mine\"]\n[build]\nrelease = \"r\"\n[images.keystone]\nplugins = []\n"),
            ("releases/r.toml", "[release]\nname = \"r\"\nsource_date_epoch = 7\n[sources]\nkeystone = \"30.0.0\"\n"),
        ],
    );
    let mut overrides = Overrides::new();
    overrides.string("--namespace", "build.namespace", "acme");
    let catalogue = tree.load_with(&overrides).unwrap_or_else(|e| panic!("{}", tree.show(&e)));
    assert_snapshot!(tree.shown(&catalogue.explain("keystone").unwrap()), @r##"
# image keystone: images/keystone/image.toml, recipe images/keystone/Dockerfile.j2

[image]
parent = "base"                                           # images/keystone/image.toml:2
summary = "Ours"                                          # mine/overlay.toml:3

[packages]
deb = ["libldap2", "curl"]                                # images/keystone/image.toml:5

[sources.keystone]
pypi = "keystone==30.0.0"                                 # releases/r.toml:5

[vars]
command = ["theirs"]                                      # images/keystone/image.toml:9

[plugins]
accept = ["keystone-*"]                                   # images/keystone/image.toml:11

[[check]]
run = ["true"]                                            # images/keystone/image.toml:13

[images.keystone]
plugins = []                                              # kollage.toml:5

[build]
base = "debian"                                           # default
base_tag = "bookworm"                                     # default
release = "r"                                             # kollage.toml:3
namespace = "acme"                                        # --namespace
tag = "r-debian-bookworm"                                 # default
source_date_epoch = 7                                     # releases/r.toml:3
"##);
}

#[test]
fn overlays_come_one_over_the_other() {
    let tree = with(
        CHANGE,
        &[(
            "second/overlay.toml",
            "[[change]]\nimages = [\"keystone\"]\npackages.deb.remove = [\"tcpdump\"]\nvars.colour.override = \"red\"\n",
        )],
    );
    let mut overrides = Overrides::new();
    overrides.overlay(&tree.path().join("second"));
    let catalogue = tree.load_with(&overrides).unwrap_or_else(|e| panic!("{}", tree.show(&e)));
    let keystone = &catalogue.images["keystone"];
    assert_eq!(keystone.packages.deb, ["libldap2"]);
    assert_eq!(keystone.vars["colour"].as_str(), Some("red"));
}

#[test]
fn an_overlay_adds_images_plugins_and_recipes() {
    let tree = with(
        "[[change]]\nplugins = [\"keystone-x\"]\nplugin.order.add = 7\n",
        &[
            ("mine/images/_recipes/ours.j2", "FROM {{ parent }}\nCOPY file /\n"),
            ("mine/images/ours/image.toml", "[image]\nparent = \"keystone\"\nrecipe = \"ours\"\n"),
            ("mine/images/ours/file", ""),
            ("mine/images/own/image.toml", "[image]\nfrom = { rootfs = \"x.tar\" }\n"),
            ("mine/images/own/Dockerfile.j2", "FROM {{ parent }}\n"),
            ("mine/plugins/keystone-x/plugin.toml", "[plugin]\nimages = [\"keystone\"]\nrecipe = \"service\"\n"),
        ],
    );
    let catalogue = tree.load().unwrap_or_else(|e| panic!("{}", tree.show(&e)));
    assert_eq!(catalogue.images.keys().collect::<Vec<_>>(), ["base", "keystone", "ours", "own", "plain"]);
    assert_eq!(catalogue.plugins["keystone-x"].order, 7);
    let ours = crate::template::render_image(&catalogue, &catalogue.images["ours"]).unwrap();
    assert_eq!(ours.context, tree.path().join("mine/images/ours"));
    assert_snapshot!(ours.dockerfile.text, @r##"
FROM kollage/keystone:debian-bookworm
COPY file /
"##);
    let Parent::External { reference, .. } = &catalogue.images["own"].parent else { panic!() };
    assert_eq!(*reference, format!("rootfs:{}", tree.path().join("mine/x.tar").display()));

    let twice = with(
        "",
        &[
            ("mine/images/base/Dockerfile", "FROM scratch\n"),
            ("mine/images/_recipes/service.j2", ""),
            ("mine/images/_recipes/other.j2", ""),
        ],
    );
    assert_snapshot!(twice.problems(), @r##"
error: recipe `service` is in an overlay and in the catalogue: `mine/images/_recipes/service.j2`, `images/_recipes/service.j2`
  hint: an overlay changes what is there with `[[change]]`, and adds under other names
error: image `base` is in an overlay and in the catalogue: `mine/images/base`, `images/base`
  hint: an overlay changes what is there with `[[change]]`, and adds under other names
"##);
}

#[test]
fn blocks_take_the_place_of_the_recipes() {
    let tree = with(
        "[[change]]\nimages = [\"keystone\"]\nblocks.after = \"RUN one {{ image.name }}\"\n\
         [[change]]\nimages = [\"key*\"]\nblocks.after = '''\n{{ super() }}\nRUN two\n'''\nblocks.packages = \"\"\n",
        &[],
    );
    assert_snapshot!(rendered(&tree, "keystone"), @r##"
FROM kollage/base:debian-bookworm
RUN one keystone
RUN two
"##);
    let wrong =
        with("[[change]]\nimages = [\"keystone\"]\nblocks.after = '''\nRUN one\n  {{ image.nmae }}\n'''\n", &[]);
    assert_snapshot!(rendered(&wrong, "keystone"), @r##"
error: the recipe of image `keystone` cannot be rendered: `image.nmae` is undefined
  at mine/overlay.toml:5:6: image.nmae
  hint: did you mean `image.name`?
"##);
    let wrong = with("[[change]]\nimages = [\"keystone\"]\nblocks.after = \"RUN \\\"{{ image.nmae }}\\\"\"\n", &[]);
    assert_snapshot!(rendered(&wrong, "keystone"), @r##"
error: the recipe of image `keystone` cannot be rendered: `image.nmae` is undefined
  at mine/overlay.toml:3:16: "RUN \"{{ image.nmae }}\""
  hint: did you mean `image.name`?
"##);
}

#[test]
fn a_block_that_the_recipe_has_not() {
    assert_snapshot!(
        wrong("[[change]]\nimages = [\"*\"]\nblocks.aftr = \"\"\n[[change]]\nimages = [\"keystone\"]\nblocks.commented = \"\"\n"),
        @r##"
error: the recipe of image `base` has no block `aftr`
  at mine/overlay.toml:3:15: ""
  and images/_recipes/service.j2:1:1: FROM {{ parent }} (the recipe)
  and images/base/image.toml:1:1: [image] (image `base` as it is defined)
  hint: it has no blocks at all
error: the recipe of image `keystone` has no block `commented`
  at mine/overlay.toml:6:20: ""
  and images/keystone/Dockerfile.j2:1:1: FROM {{ parent }} (the recipe)
  and images/keystone/image.toml:1:1: [image] (image `keystone` as it is defined)
  hint: there are `after`, `packages`
"##
    );
}

#[test]
fn changes_that_find_nothing() {
    assert_snapshot!(wrong(
        "[[change]]\nimages = [\"keystnoe\", \"nova-*\"]\nimage.summary.override = \"\"\n\
         [[change]]\nplugins = [\"x\"]\nplugin.order.override = 1\n\
         [[change]]\nimages = [\"keystone\"]\npackages.deb.remove = [\"culr\"]\npackages.rpm.remove = [\"x\"]\n\
         pakages.deb.override = []\nvars.comand.append = [\"x\"]\nimage.parent.add = \"x\"\nimage.summary.append = [\"x\"]\n\
         user.name.override = \"x\"\nimage.summary.x.add = 1\n\
         [[change]]\nimages = [\"*\"]\nuser.uid.override = 1\nimage.sumary.override = \"\"\n\
         [[change]]\nimages = [\"plain\"]\nimage.summary.add = \"x\"\n"
    ), @r##"
error: unknown image `keystnoe`
  at mine/overlay.toml:2:11: "keystnoe"
  hint: did you mean `keystone`?
error: `nova-*` matches no image
  at mine/overlay.toml:2:23: "nova-*"
error: unknown plugin `x`
  at mine/overlay.toml:5:12: "x"
error: image `keystone` has no `culr` in `packages.deb`
  at mine/overlay.toml:9:24: "culr"
  and images/keystone/image.toml:5:7: ["libldap2", "curl"] (the definition)
  hint: did you mean `curl`?
error: image `keystone` has no `packages.rpm`
  at mine/overlay.toml:10:14: remove
  and images/keystone/image.toml:4:1: [packages] (the definition)
error: image `keystone` has no `pakages.deb`
  at mine/overlay.toml:11:13: override
  and images/keystone/image.toml:1:1: [image] (the definition)
  hint: did you mean `packages`?
error: image `keystone` has no `vars.comand`
  at mine/overlay.toml:12:13: append
  and images/keystone/image.toml:8:1: [vars] (the definition)
  hint: did you mean `command`?
error: image `keystone` has `image.parent` already
  at mine/overlay.toml:13:14: add
  and images/keystone/image.toml:2:10: "base" (the definition)
  hint: `override` gives it another value, `append` makes a list longer
error: image `keystone` has a string for `image.summary`, not a list
  at mine/overlay.toml:14:15: append
  and images/keystone/image.toml:3:11: "Theirs" (the definition)
  hint: `override` gives it another value
error: image `keystone` has no `user.name`
  at mine/overlay.toml:15:11: override
  and images/keystone/image.toml:1:1: [image] (the definition)
  hint: `add` gives a key that isn't there a value
error: `x` stands beside a word that says how to change `image.summary`
  at mine/overlay.toml:16:15: x
  hint: there are `append`, `remove`, `override`, `add`
error: image `base` has no `user.uid`
  at mine/overlay.toml:19:10: override
  and images/base/image.toml:1:1: [image] (the definition)
  hint: `add` gives a key that isn't there a value
error: image `base` has no `image.sumary`
  at mine/overlay.toml:20:14: override
  and images/base/image.toml:1:1: [image] (the definition)
  hint: `add` gives a key that isn't there a value
error: image `plain` is a plain Dockerfile, in which an overlay can change nothing
  at mine/overlay.toml:23:15: add
  and images/plain/Dockerfile:1:1: FROM kollage/base:debian-bookworm (the definition)
  hint: build on it with an image of your own, or copy it
"##);
}

#[test]
fn of_a_glob_one_that_has_it_is_enough() {
    let tree = with("[[change]]\nimages = [\"*\"]\npackages.deb.remove = [\"curl\"]\n", &[]);
    assert_eq!(tree.problems(), "nothing is wrong");
}

#[test]
fn a_change_that_leaves_an_image_unbuildable_has_both_places() {
    assert_snapshot!(wrong(
        "[[change]]\nimages = [\"keystone\"]\nimage.parent.override = \"opensatck-base\"\npackages.deb.append = [\"curl\", \"a b\"]\n\
         sources.keystone.override = { pipy = \"x\" }\nplugins.accept.override = \"x\"\nenviron.A.add = \"x\"\n"
    ), @r##"
error: unknown parent `opensatck-base`
  at mine/overlay.toml:3:25: "opensatck-base"
  and images/keystone/image.toml:2:10: "base" (image `keystone` as it is defined)
  hint: there are `base`, `plain`
error: `curl` is twice in `packages.deb`
  at mine/overlay.toml:4:24: "curl"
  and images/keystone/image.toml:5:7: ["libldap2", "curl"] (image `keystone` as it is defined)
error: `a b` is not a Debian package: it contains ' '; a Debian package has a-z, 0-9, `+`, `-` and `.`
  at mine/overlay.toml:4:32: "a b"
  and images/keystone/image.toml:5:7: ["libldap2", "curl"] (image `keystone` as it is defined)
error: the source says no kind
  at mine/overlay.toml:5:29: { pipy = "x" }
  and images/keystone/image.toml:6:1: [sources.keystone] (image `keystone` as it is defined)
  hint: one of `pypi`, `git`, `url`, `local`
error: unknown key `pipy` in [sources.keystone]
  at mine/overlay.toml:5:31: pipy
  and images/keystone/image.toml:6:1: [sources.keystone] (image `keystone` as it is defined)
  hint: there are `pypi`, `git`, `url`, `local`, `ref`, `subdir`, `version`, `sha256`
error: `plugins.accept` should be a list of strings, not a string
  at mine/overlay.toml:6:27: "x"
  and images/keystone/image.toml:11:10: ["keystone-*"] (image `keystone` as it is defined)
  hint: write it as a list: ["x"]
error: unknown key `environ`
  at mine/overlay.toml:7:11: add
  and images/keystone/image.toml:1:1: [image] (image `keystone` as it is defined)
  hint: there are `image`, `packages`, `sources`, `check`, `env`, `labels`, `vars`, `user`, `plugins`
"##);
    assert_snapshot!(
        wrong("[[change]]\nimages = [\"keystone\"]\nimage.parent.remove = true\nsources.keystone.pypi.remove = true\n"),
        @r##"
error: the image has neither `parent` nor `from`
  at images/keystone/image.toml:1:1: [image]
  and mine/overlay.toml:3:14: remove (changed here)
  hint: `parent = "NAME"` is an image of this catalogue, `from = "debian:bookworm"` one from elsewhere
error: the source says no kind
  at images/keystone/image.toml:6:1: [sources.keystone]
  and mine/overlay.toml:4:23: remove (changed here)
  hint: one of `pypi`, `git`, `url`, `local`
"##
    );
    assert_snapshot!(wrong("[[change]]\nimages = [\"base\"]\nimage.from.remove = true\nimage.parent.add = \"keystone\"\n"), @r##"
error: images are built on each other in a circle: base -> keystone -> base
  at mine/overlay.toml:4:20: "keystone"
  and images/keystone/image.toml:2:10: "base" (the parent of `keystone`)
  and images/base/image.toml:1:1: [image] (image `base` as it is defined)
  hint: one of them needs another parent, or `from`
"##);
}

#[test]
fn patches_are_for_sources_that_are_there() {
    let patch = "--- a/keystone/x.py\n+++ b/keystone/x.py\n@@ -1 +1 @@\n-a\n+b";
    let overlay = "[[patch]]\nimages = [\"keystone\"]\nsource = \"keystone\"\nfiles = [\"patches/*.patch\"]\n";
    let recipe = "FROM {{ parent }}\n{% for patch in image.sources.keystone.patches %}COPY <<\"{{ patch.delimiter }}\" /patches/{{ patch.name }}\n\
         {{ patch.text }}{{ patch.delimiter }}\n{% endfor %}";
    let tree = with(
        overlay,
        &[
            ("mine/patches/2.patch", patch),
            ("mine/patches/1.patch", &format!("END_OF_PATCH\n{patch}\n")),
            ("mine/patches/notes", ""),
            ("images/keystone/Dockerfile.j2", recipe),
        ],
    );
    assert_snapshot!(rendered(&tree, "keystone"), @r##"
FROM kollage/base:debian-bookworm
COPY <<"END_OF_PATCH_" /patches/1.patch
END_OF_PATCH
--- a/keystone/x.py
+++ b/keystone/x.py
@@ -1 +1 @@
-a
+b
END_OF_PATCH_
COPY <<"END_OF_PATCH" /patches/2.patch
--- a/keystone/x.py
+++ b/keystone/x.py
@@ -1 +1 @@
-a
+b
END_OF_PATCH
"##);
    let ignored = with(overlay, &[("mine/patches/1.patch", patch)]);
    assert_snapshot!(rendered(&ignored, "keystone"), @r##"
error: the recipe of image `keystone` does not apply `1.patch` to source `keystone`
  at mine/overlay.toml:4:10: "patches/*.patch"
  hint: a recipe finds patches in `sources.NAME.patches`; see the README, "Changing a catalogue"
"##);
    let bad = with(
        "[[patch]]\nimages = [\"keystone\"]\nsource = \"keystnoe\"\nfiles = [\"1.patch\"]\n\
         [[patch]]\nimages = [\"keystone\"]\nsource = \"keystone\"\nfiles = [\"gone/*.patch\", \"text\", \"../x\"]\n\
         [[patch]]\nimages = []\nfile = [\"1.patch\"]\n",
        &[("mine/1.patch", patch), ("mine/text", "hello\n")],
    );
    assert_snapshot!(bad.problems(), @r##"
error: image `keystone` has no source `keystnoe` to be patched
  at mine/overlay.toml:4:10: "1.patch"
  and images/keystone/image.toml:6:2: sources (the definition)
  hint: did you mean `keystone`?
error: `gone/*.patch` matches no file in the overlay
  at mine/overlay.toml:8:10: "gone/*.patch"
  hint: patches are looked for below `mine`
error: `mine/text` is no patch: it has no `---`, `+++` and `@@` lines of a unified diff
  at mine/overlay.toml:8:26: "text"
error: `../x` is not a path in the overlay: it leads out of the definition's own folder
  at mine/overlay.toml:8:34: "../x"
error: the patch has no `source`
  at mine/overlay.toml:9:1: [[patch]]
error: `images` names nothing
  at mine/overlay.toml:10:10: []
error: unknown key `file` in [[patch]]
  at mine/overlay.toml:11:1: file
  hint: did you mean `files`?
"##);
}

#[test]
fn what_an_overlay_may_not_look_like() {
    assert_snapshot!(wrong(
        "[[change]]\nimage = [\"keystone\"]\nimages = \"keystone\"\n[[change]]\npackages.deb.append = \"x\"\n\
         [[change]]\nimages = [\"keystone\"]\n\
         [[change]]\nimages = [\"keystone\"]\npackages.deb = [\"x\"]\npackages.rpm.apend = []\npackages.deb_build.append = [\"x\"]\npackages.deb_build.remov = []\n\
         vars.command.remove = \"x\"\nblocks.after = 1\n[changes]\n[[change]]\nimages = [\"a\"]\nplugins = [\"b\"]\n"
    ), @r##"
error: `image` says nothing about how it is to be changed
  at mine/overlay.toml:2:9: ["keystone"]
  hint: write `image.override`, `.append`, `.remove` or `.add`
error: `change.0.images` should be a list of strings, not a string
  at mine/overlay.toml:3:10: "keystone"
  hint: write it as a list: ["keystone"]
error: the change does not say what it is for
  at mine/overlay.toml:4:1: [[change]]
  hint: `images = ["NAME"]` or `plugins = ["NAME"]`: names or globs
error: `packages.deb.append` should be a list of what is to be appended, not a string
  at mine/overlay.toml:5:23: "x"
error: the change changes nothing
  at mine/overlay.toml:6:1: [[change]]
  hint: for example `packages.deb.append = ["tcpdump"]`
error: `packages.deb` says nothing about how it is to be changed
  at mine/overlay.toml:10:16: ["x"]
  hint: write `packages.deb.override`, `.append`, `.remove` or `.add`
error: `packages.rpm.apend` says nothing about how it is to be changed
  at mine/overlay.toml:11:22: []
  hint: did you mean `append`?
error: `x` is not a Debian package: a package name has at least two characters
  at mine/overlay.toml:12:30: "x"
  and images/keystone/image.toml:4:1: [packages] (image `keystone` as it is defined)
error: `remov` stands beside a word that says how to change `packages.deb_build`
  at mine/overlay.toml:13:20: remov
  hint: did you mean `remove`?
error: `vars.command.remove` should be a list of what is to be removed, or `true` for all of it, not a string
  at mine/overlay.toml:14:23: "x"
error: `change.3.blocks.after` should be a string, not an integer
  at mine/overlay.toml:15:16: 1
  hint: write it in quotes: "1"
error: unknown key `changes`
  at mine/overlay.toml:16:2: changes
  hint: did you mean `change`?
error: the change is for images and for plugins at once
  at mine/overlay.toml:17:1: [[change]]
  hint: `images = ["NAME"]` or `plugins = ["NAME"]`: names or globs
"##);
    let tree = with("", &[("kollage.toml", "overlays = [\"gone\", \"images\", \"\"]\n")]);
    assert_snapshot!(tree.problems(), @r##"
error: there is no directory `gone` for an overlay
  at kollage.toml:1:13: "gone"
error: `images` is no overlay: there is no `overlay.toml` in it
  at kollage.toml:1:21: "images"
error: `` is not a directory of an overlay: it is no path
  at kollage.toml:1:31: ""
"##);
}
