//! Every kind of bad definition, and what a person is told.

use insta::assert_snapshot;

use super::Tree;

/// A catalogue with these files over a sound one, and what is wrong with it.
fn bad(files: &[(&str, &str)]) -> String {
    Tree::with(files).problems()
}

/// As `bad`, with the beginning of a keystone that is fine so far.
fn bad_image(rest: &str) -> String {
    let text = format!("[image]\nparent = \"base\"\nrecipe = \"service\"\n{rest}");
    bad(&[("images/keystone/image.toml", &text)])
}

fn bad_settings(text: &str) -> String {
    bad(&[("kollage.toml", text)])
}

#[test]
fn syntax_errors_of_all_files() {
    assert_snapshot!(bad(&[
        ("kollage.toml", "[build\nbase = \"debian\"\n"),
        ("images/base/image.toml", "[image]\nkind = base\n\nfrom = \"debian\nrecipe = \"service\"\n"),
        ("images/keystone/image.toml", "[image]\nkind = \"service\"\nkind = \"base\"\nparent = \"base\"\n"),
    ]), @r##"
error: this is not valid TOML: string values must be quoted, expected literal string
  at images/base/image.toml:2:8: base
error: this is not valid TOML: invalid basic string, expected `"`
  at images/base/image.toml:4:15: 
error: this is not valid TOML: duplicate key
  at images/keystone/image.toml:3:1: kind
error: this is not valid TOML: unclosed table, expected `]`
  at kollage.toml:1:7:
"##);
}

#[test]
fn unknown_keys_at_any_depth() {
    assert_snapshot!(bad(&[
        ("kollage.toml", "[biuld]\nbase = \"debian\"\n[images.keystone]\nplugin = []\n"),
        (
            "images/keystone/image.toml",
            "[image]\nparnet = \"base\"\nrecipe = \"service\"\n[user]\nname = \"keystone\"\nuid = 1\nuuid = 1\n\
             [sources.x]\npypi = \"x\"\nrev = \"main\"\n[[check]]\nrun = [\"true\"]\nexpect = 0\n",
        ),
        ("images/base/image.toml", "[image]\nrecipe = \"service\"\nfrom = { bootstrap = \"debian\", suit = \"bookworm\" }\n"),
    ]), @r##"
error: unknown key `suit` in [image.from]
  at images/base/image.toml:3:32: suit
  hint: did you mean `suite`?
error: unknown key `parnet` in [image]
  at images/keystone/image.toml:2:1: parnet
  hint: did you mean `parent`?
error: unknown key `uuid` in [user]
  at images/keystone/image.toml:7:1: uuid
  hint: did you mean `uid`?
error: unknown key `rev` in [sources.x]
  at images/keystone/image.toml:10:1: rev
  hint: there are `pypi`, `git`, `url`, `local`
error: unknown key `expect` in [[check]]
  at images/keystone/image.toml:13:1: expect
  hint: there are `run`, `user`
error: unknown key `biuld`
  at kollage.toml:1:2: biuld
  hint: did you mean `build`?
error: unknown key `plugin` in [images.keystone]
  at kollage.toml:4:1: plugin
  hint: did you mean `plugins`?
"##);
}

#[test]
fn wrong_types() {
    assert_snapshot!(bad(&[
        ("kollage.toml", "engine = \"docker\"\n[build]\nrelease = 2026.1\njobs = \"4\"\nbuild_args = [\"A=b\"]\n[profiles]\nmain = \"keystone\"\n"),
        (
            "images/keystone/image.toml",
            "[image]\nparent = [\"base\"]\nrecipe = true\nports = [5000]\n[user]\nname = \"keystone\"\nuid = \"42425\"\n\
             [packages]\ndeb = \"libldap2\"\n[env]\nA = 1\n[check]\nrun = [\"true\"]\n",
        ),
        ("images/base/image.toml", "image = 1\n"),
    ]), @r##"
error: `image` should be a table, not an integer
  at images/base/image.toml:1:9: 1
error: `image.parent` should be a string, not a list
  at images/keystone/image.toml:2:10: ["base"]
error: `image.recipe` should be a string, not a boolean
  at images/keystone/image.toml:3:10: true
  hint: write it in quotes: "true"
error: `image.ports[0]` should be a string, not an integer
  at images/keystone/image.toml:4:10: 5000
  hint: write it in quotes: "5000"
error: `user.uid` should be an integer, not a string
  at images/keystone/image.toml:7:7: "42425"
error: `packages.deb` should be a list of strings, not a string
  at images/keystone/image.toml:9:7: "libldap2"
  hint: write it as a list: ["libldap2"]
error: `env.A` should be a string, not an integer
  at images/keystone/image.toml:11:5: 1
  hint: write it in quotes: "1"
error: `check` should be a list of tables (`[[check]]`), not a table
  at images/keystone/image.toml:12:1: [check]
error: `engine` should be a table, not a string
  at kollage.toml:1:10: "docker"
error: `build.release` should be a string, not a float
  at kollage.toml:3:11: 2026.1
  hint: write it in quotes: "2026.1"
error: `build.jobs` should be an integer, not a string
  at kollage.toml:4:8: "4"
error: `build.build_args` should be a table, not a list
  at kollage.toml:5:14: ["A=b"]
error: `profiles.main` should be a list of strings, not a string
  at kollage.toml:7:8: "keystone"
  hint: write it as a list: ["keystone"]
"##);
}

#[test]
fn bad_names() {
    assert_snapshot!(bad(&[
        ("kollage.toml", "[build]\nnamespace = \"Kolla\"\nregistry = \"https://registry.example.org\"\ntag = \"{relase}-{base}\"\n[build.build_args]\n\"A-B\" = \"\"\n"),
        ("images/Neutron/image.toml", "[image]\nfrom = \"debian\"\nrecipe = \"service\"\n"),
        ("images/a..b/Dockerfile", "FROM scratch\n"),
        (
            "images/keystone/image.toml",
            "[image]\nparent = \"base\"\nrecipe = \"service\"\nports = [\"0\", \"53/icmp\"]\nvolumes = [\"var\"]\n\
             [user]\nname = \"Keystone\"\nuid = -1\ngid = 4294967295\nhome = \"home\"\n\
             [packages]\ndeb = [\"libldap2\", \"lib ldap\", \"libldap2\", \"x\"]\nrpm = [\"a;b\"]\n\
             [sources.keystone]\npypi = \"keystone[\"\n[sources.up]\nlocal = \"../x\"\n[sources.gone]\nlocal = \"gone\"\n",
        ),
    ]), @r##"
error: `Neutron` is not a name of an image: it has a capital letter, `N`
  hint: rename the folder `images/Neutron`
error: `a..b` is not a name of an image: `..` cannot stand between two words of a name
  hint: rename the folder `images/a..b`
error: `0` is not a port: a port is a number from 1 to 65535, or a range of them
  at images/keystone/image.toml:4:10: "0"
error: `53/icmp` is not a port: its protocol is `icmp`, not tcp, udp or sctp
  at images/keystone/image.toml:4:15: "53/icmp"
error: `var` is not a path in the image: it has to begin with `/`
  at images/keystone/image.toml:5:12: "var"
error: `Keystone` is not a user name: it begins with 'K'; a-z or `_` is allowed there
  at images/keystone/image.toml:7:8: "Keystone"
error: `user.uid` should be a number from 0 to 4294967294, not -1
  at images/keystone/image.toml:8:7: -1
error: `user.gid` should be a number from 0 to 4294967294, not 4294967295
  at images/keystone/image.toml:9:7: 4294967295
error: `home` is not a path in the image: it has to begin with `/`
  at images/keystone/image.toml:10:8: "home"
error: `lib ldap` is not a Debian package: it contains ' '; a Debian package has a-z, 0-9, `+`, `-` and `.`
  at images/keystone/image.toml:12:20: "lib ldap"
error: `libldap2` is twice in `packages.deb`
  at images/keystone/image.toml:12:32: "libldap2"
error: `x` is not a Debian package: a package name has at least two characters
  at images/keystone/image.toml:12:44: "x"
error: `a;b` is not an RPM package: it contains ';', which no package name has
  at images/keystone/image.toml:13:8: "a;b"
error: `keystone[` is not a requirement: `[` is never closed
  at images/keystone/image.toml:15:8: "keystone["
error: `../x` is not a path in the definition's folder: it leads out of the definition's own folder
  at images/keystone/image.toml:17:9: "../x"
error: there is no `images/keystone/gone`
  at images/keystone/image.toml:19:9: "gone"
  hint: a local source is relative to the definition's folder
error: `Kolla` is not a namespace of images: it has a capital letter, `K`
  at kollage.toml:2:13: "Kolla"
error: `https://registry.example.org` is not a registry: it is a host name without `https://` in front
  at kollage.toml:3:12: "https://registry.example.org"
error: unknown `{relase}` in tag `{relase}-{base}`
  at kollage.toml:4:7: "{relase}-{base}"
  hint: did you mean `release`?
error: `A-B` is not a name of a build argument: it contains '-'; only letters, digits and `_` are allowed
  at kollage.toml:6:1: "A-B"
"##);
}

#[test]
fn tags() {
    assert_snapshot!(bad_settings("[build]\ntag = \"{release}-x\"\n"), @r##"
error: tag `{release}-x` names the release, and none is set
  at kollage.toml:2:7: "{release}-x"
  hint: add `release = "2026.1"` to [build]
"##);
    assert_snapshot!(bad_settings("[build]\ntag = \"{base\"\n"), @r##"
error: `{` in tag `{base` is never closed
  at kollage.toml:2:7: "{base"
"##);
    assert_snapshot!(bad_settings("[build]\ntag = \"a/{base}\"\n"), @r##"
error: `a/debian` is not a tag: it contains '/'; only letters, digits, `_`, `.` and `-` are allowed
  at kollage.toml:2:7: "a/{base}"
"##);
}

#[test]
fn a_start_that_there_is_no_definition_of() {
    assert_snapshot!(bad(&[
        ("images/base/image.toml", "[image]\nparent = \"x\"\nrecipe = \"service\"\nstart = \"memcache\"\n"),
        ("images/x/image.toml", "[image]\nfrom = \"debian\"\nrecipe = \"service\"\nstart = \"memcached\"\n"),
        ("start-scripts/memcached/start.toml", ""),
        ("start-scripts/memcache/readme", ""),
    ]), @r##"
error: there is no start definition `memcache`
  at images/base/image.toml:4:9: "memcache"
  hint: did you mean `memcached`?
"##);
}

#[test]
fn parents() {
    assert_snapshot!(bad(&[
        ("images/keystone/image.toml", "[image]\nparent = \"bsae\"\nrecipe = \"service\"\n"),
        ("images/both/image.toml", "[image]\nparent = \"base\"\nfrom = \"debian\"\nrecipe = \"service\"\n"),
        ("images/neither/image.toml", "[image]\nrecipe = \"service\"\n"),
        ("images/outside/image.toml", "[image]\nparent = \"debian:bookworm\"\nrecipe = \"service\"\n"),
        ("images/self/image.toml", "[image]\nparent = \"self\"\nrecipe = \"service\"\n"),
        ("images/a/image.toml", "[image]\nparent = \"c\"\nrecipe = \"service\"\n"),
        ("images/b/image.toml", "[image]\nparent = \"a\"\nrecipe = \"service\"\n"),
        ("images/c/image.toml", "[image]\nparent = \"b\"\nrecipe = \"service\"\n"),
        ("images/below/image.toml", "[image]\nparent = \"b\"\nrecipe = \"service\"\n"),
        ("images/with-dockerfile/image.toml", "[image]\nparent = \"base\"\n"),
        ("images/with-dockerfile/Dockerfile", "FROM x\n"),
    ]), @r##"
error: images are built on each other in a circle: a -> c -> b -> a
  at images/a/image.toml:2:10: "c"
  and images/c/image.toml:2:10: "b" (the parent of `c`)
  and images/b/image.toml:2:10: "a" (the parent of `b`)
  hint: one of them needs another parent, or `from`
error: the image has both `parent` and `from`
  at images/both/image.toml:3:1: from
  hint: keep the one that it is built on
error: unknown parent `bsae`
  at images/keystone/image.toml:2:10: "bsae"
  hint: did you mean `base`?
error: the image has neither `parent` nor `from`
  at images/neither/image.toml:1:1: [image]
  hint: `parent = "NAME"` is an image of this catalogue, `from = "debian:bookworm"` one from elsewhere
error: `debian:bookworm` is not an image of this catalogue: one from elsewhere is named with `from`
  at images/outside/image.toml:2:10: "debian:bookworm"
error: image `self` is its own parent
  at images/self/image.toml:2:10: "self"
  hint: one of them needs another parent, or `from`
error: `parent` stands beside a plain Dockerfile, whose FROM names the parent
  at images/with-dockerfile/image.toml:2:1: parent
  hint: leave out `parent`, or rename the Dockerfile to `Dockerfile.j2` and write `FROM {{ parent }}`
"##);
}

#[test]
fn a_broken_file_gives_no_follow_up_errors() {
    assert_snapshot!(bad(&[
        ("kollage.toml", "[profiles]\nmain = [\"base\"]\n"),
        ("images/base/image.toml", "[image\n"),
        ("plugins/keystone-x/plugin.toml", "[plugin\n"),
        (
            "images/keystone/image.toml",
            "[image]\nparent = \"base\"\nrecipe = \"service\"\n[plugins]\naccept = [\"*\"]\ndefault = [\"keystone-x\"]\n",
        ),
    ]), @r##"
error: this is not valid TOML: unclosed table, expected `]`
  at images/base/image.toml:1:7: 
error: this is not valid TOML: unclosed table, expected `]`
  at plugins/keystone-x/plugin.toml:1:8:
"##);
}

#[test]
fn recipes() {
    assert_snapshot!(bad(&[
        ("images/keystone/image.toml", "[image]\nparent = \"base\"\nrecipe = \"servcie\"\n"),
        ("images/none/image.toml", "[image]\nparent = \"base\"\n"),
        ("images/two/image.toml", "[image]\nparent = \"base\"\nrecipe = \"service\"\n"),
        ("images/two/Dockerfile.j2", ""),
        ("images/plain-too/image.toml", "[image]\nparent = \"base\"\nrecipe = \"service\"\n"),
        ("images/plain-too/Dockerfile", ""),
        ("images/no-toml/Dockerfile.j2", ""),
    ]), @r##"
error: `images/no-toml` has no image.toml
  hint: write `images/no-toml/image.toml`
error: unknown recipe `servcie`: there is no `images/_recipes/servcie.j2`
  at images/keystone/image.toml:3:10: "servcie"
  hint: did you mean `service`?
error: the image has no recipe
  at images/none/image.toml:1:1: [image]
  hint: write `images/none/Dockerfile.j2`, or name a shared one with `recipe`: `service`
error: `recipe` stands beside `images/plain-too/Dockerfile`
  at images/plain-too/image.toml:3:10: "service"
  hint: keep one of them
error: `recipe` stands beside `images/two/Dockerfile.j2`, which could be meant as well
  at images/two/image.toml:3:10: "service"
  hint: leave out `recipe`, and begin the template with `{% extends "_recipes/service.j2" %}`
"##);
}

#[test]
fn bases() {
    assert_snapshot!(bad(&[
        ("images/a/image.toml", "[image]\nrecipe = \"service\"\nfrom = {}\n"),
        ("images/b/image.toml", "[image]\nrecipe = \"service\"\nfrom = { oci = \"x\", rootfs = \"y\" }\n"),
        ("images/c/image.toml", "[image]\nrecipe = \"service\"\nfrom = { bootstrap = \"debain\" }\n"),
        ("images/d/image.toml", "[image]\nrecipe = \"service\"\nfrom = \"Debian:bookworm\"\n"),
        ("images/e/image.toml", "[image]\nrecipe = \"service\"\nfrom = \"bootstrap:debian\"\n"),
        (
            "images/f/image.toml",
            "[image]\nrecipe = \"service\"\nfrom = { bootstrap = \"debian\", suite = \"bookworm\", variant = \"minbas\", mirror = \"deb.example\", packages = [\"A\"] }\n",
        ),
        ("images/g/image.toml", "[image]\nrecipe = \"service\"\nfrom = 1\n"),
        ("images/h/image.toml", "[image]\nrecipe = \"service\"\nfrom = \"debian@sha256:12\"\n"),
    ]), @r##"
error: `from` says no kind of base
  at images/a/image.toml:3:8: {}
  hint: one of `bootstrap`, `oci`, `docker-archive`, `rootfs`; an image of a registry is a string
error: `from` says two kinds of base, `oci` and `rootfs`
  at images/b/image.toml:3:21: rootfs
  hint: keep one of them
error: a bootstrapped base needs a `suite`
  at images/c/image.toml:3:8: { bootstrap = "debain" }
  hint: for example `suite = "bookworm"`
error: `debain` is not a value of `image.from.bootstrap`
  at images/c/image.toml:3:22: "debain"
  hint: did you mean `debian`?
error: `Debian:bookworm` is not a base image: it has a capital letter, `D`
  at images/d/image.toml:3:8: "Debian:bookworm"
  hint: for example `docker.io/library/debian:bookworm` or `bootstrap:debian/bookworm`
error: `bootstrap:debian` is not a base image: it has the form `bootstrap:debian/bookworm`
  at images/e/image.toml:3:8: "bootstrap:debian"
  hint: for example `docker.io/library/debian:bookworm` or `bootstrap:debian/bookworm`
error: `minbas` is not a variant of mmdebstrap: did you mean `minbase`?
  at images/f/image.toml:3:62: "minbas"
error: `deb.example` is not the address of a mirror: it begins with http://, https:// or file:/ and has no blanks
  at images/f/image.toml:3:81: "deb.example"
error: `A` is not a Debian package: a package name has at least two characters
  at images/f/image.toml:3:108: "A"
error: `image.from` should be a string or a table, not an integer
  at images/g/image.toml:3:8: 1
error: `debian@sha256:12` is not a base image: its digest is wrong: a sha256 has 64 digits, not 2
  at images/h/image.toml:3:8: "debian@sha256:12"
  hint: for example `docker.io/library/debian:bookworm` or `bootstrap:debian/bookworm`
"##);
}

#[test]
fn sources() {
    let sha = "0".repeat(63);
    assert_snapshot!(bad_image(&format!(
        "[sources.none]\nref = \"x\"\n[sources.two]\npypi = \"x\"\ngit = \"https://example.org/x\"\n\
         [sources.what]\nsvn = \"https://example.org/x\"\n[sources.sha]\nurl = \"https://example.org/x.tar\"\nsha256 = \"{sha}\"\n\
         [sources.ftp]\nurl = \"ftp://example.org/x\"\n[sources.git]\ngit = \"example.org/x\"\nref = \"a..b\"\n\
         [sources.Up]\npypi = \"x\"\n"
    )), @r##"
error: the source says no kind
  at images/keystone/image.toml:4:1: [sources.none]
  hint: one of `pypi`, `git`, `url`, `local`
error: the source says two kinds, `pypi` and `git`
  at images/keystone/image.toml:8:1: git
  hint: keep one of them
error: the source says no kind
  at images/keystone/image.toml:9:1: [sources.what]
  hint: one of `pypi`, `git`, `url`, `local`
error: unknown key `svn` in [sources.what]
  at images/keystone/image.toml:10:1: svn
  hint: there are `pypi`, `git`, `url`, `local`, `ref`, `subdir`, `version`, `sha256`
error: `000000000000000000000000000000000000000000000000000000000000000` is not a sha256: a sha256 has 64 digits, not 63
  at images/keystone/image.toml:13:10: "000000000000000000000000000000000000000000000000000000000000000"
error: `ftp://example.org/x` is not an address: it begins with https:// or http://
  at images/keystone/image.toml:15:7: "ftp://example.org/x"
error: `example.org/x` is not an address of a git repository: it begins with https://, ssh:// or git://
  at images/keystone/image.toml:17:7: "example.org/x"
error: `a..b` is not a name or commit in git: git takes no such name
  at images/keystone/image.toml:18:7: "a..b"
error: `Up` is not a name of a source: it has a capital letter, `U`
  at images/keystone/image.toml:19:10: Up
"##);
}

#[test]
fn credentials_in_an_address_are_refused_and_never_shown() {
    let problems = bad_image(
        "[sources.a]\ngit = \"https://user:s3cret@example.org/x\"\n[sources.b]\nurl = \"https://s3cret@example.org/x\"\n\
         [sources.c]\ngit = \"ssh://git@example.org/x\"\n",
    );
    assert!(!problems.contains("s3cret"), "{problems}");
    assert_snapshot!(problems, @r##"
error: `sources.a.git` in images/keystone/image.toml, line 5, holds a password or token
  hint: leave it out of the address: it would end up in logs and images; use a credential helper of git
error: `sources.b.url` in images/keystone/image.toml, line 7, holds a password or token
  hint: leave it out of the address: it would end up in logs and images; use a credential helper of git
"##);
}

#[test]
fn git_sources_have_an_address_for_add() {
    let tree = Tree::with(&[(
        "images/keystone/image.toml",
        "[image]\nparent = \"base\"\nrecipe = \"service\"\n\
         [sources.keystone]\ngit = \"https://example.org/keystone/\"\nref = \"master\"\n\
         [sources.part]\ngit = \"git@example.org:all\"\nsubdir = \"a/part\"\nversion = \"1.0\"\n\
         [sources.plain]\ngit = \"https://example.org/plain.git\"\n",
    )]);
    let catalogue = tree.load().unwrap();
    let addresses: Vec<String> =
        catalogue.images["keystone"].sources.values().filter_map(|source| source.address()).collect();
    assert_eq!(
        addresses,
        ["https://example.org/keystone.git#master", "git@example.org:all#:a/part", "https://example.org/plain.git"]
    );
}

#[test]
fn users_and_checks() {
    let image = |name: &str, uid: u32| {
        format!("[image]\nparent = \"base\"\nrecipe = \"service\"\n[user]\nname = \"{name}\"\nuid = {uid}\n")
    };
    assert_snapshot!(bad(&[
        ("images/nova-api/image.toml", &image("nova", 42436)),
        ("images/nova-compute/image.toml", &image("nova", 42463)),
        ("images/nova-ssh/image.toml", &image("nova", 42436)),
    ]), @r##"
error: user `nova` has uid 42463 here and 42436 in image `nova-api`
  at images/nova-compute/image.toml:6:7: 42463
  hint: the other one is at images/nova-api/image.toml:6:7
"##);
    assert_snapshot!(bad_image("[user]\nuid = 1\n[[check]]\n[[check]]\nrun = []\n[[check]]\nrun = [\" \", \"x\"]\n[[check]]\nrun = [\"true\"]\nuser = \"a b\"\n"), @r##"
error: [user] has no `name`
  at images/keystone/image.toml:4:1: [user]
error: the check has no `run`
  at images/keystone/image.toml:6:1: [[check]]
  hint: for example `run = ["keystone-manage", "--version"]`
error: the check's command is empty
  at images/keystone/image.toml:8:7: []
  hint: for example `run = ["keystone-manage", "--version"]`
error: the check's command is empty
  at images/keystone/image.toml:10:7: [" ", "x"]
  hint: for example `run = ["keystone-manage", "--version"]`
error: `a b` is not a user: it is a name or number, perhaps with `:` and a group
  at images/keystone/image.toml:13:8: "a b"
"##);
}

#[test]
fn plugins_that_fit_nothing() {
    let plugin = |images: &str| format!("[plugin]\nimages = {images}\nrecipe = \"service\"\n");
    assert_snapshot!(bad(&[
        ("plugins/keystone-ok/plugin.toml", &plugin("[\"keystone\"]")),
        ("plugins/keystone-typo/plugin.toml", &plugin("[\"keystnoe\"]")),
        ("plugins/glob/plugin.toml", &plugin("[\"neutron-*\"]")),
        ("plugins/bad-glob/plugin.toml", &plugin("[\"neutron-[\", \"re:(\"]")),
        ("plugins/unaccepted/plugin.toml", &plugin("[\"keystone\"]")),
        ("plugins/on-base/plugin.toml", &plugin("[\"base\"]")),
        ("plugins/silent/plugin.toml", "[plugin]\nrecipe = \"service\"\n"),
        ("plugins/keystone-no-recipe/plugin.toml", "[plugin]\nimages = [\"keystone\"]\n"),
        ("plugins/keystone-friends/plugin.toml", "[plugin]\nimages = [\"keystone\"]\nrecipe = \"service\"\nrequires = [\"keystone-okay\", \"keystone-friends\"]\nconflicts = [\"nothing-like-it\"]\n"),
    ]), @r##"
error: `neutron-[` is not a pattern of images: unclosed character class; missing ']'
  at plugins/bad-glob/plugin.toml:2:11: "neutron-["
error: `re:(` is not a pattern of images: unclosed group
  at plugins/bad-glob/plugin.toml:2:24: "re:("
error: `neutron-*` matches no image
  at plugins/glob/plugin.toml:2:11: "neutron-*"
error: unknown plugin `keystone-okay`
  at plugins/keystone-friends/plugin.toml:4:13: "keystone-okay"
  hint: did you mean `keystone-ok`?
error: plugin `keystone-friends` requires itself
  at plugins/keystone-friends/plugin.toml:4:30: "keystone-friends"
error: unknown plugin `nothing-like-it`
  at plugins/keystone-friends/plugin.toml:5:14: "nothing-like-it"
  hint: there are `bad-glob`, `glob`, `keystone-friends`, `keystone-ok`, `keystone-typo`, `on-base`, `silent`, `unaccepted`, `keystone-no-recipe`
error: the plugin has no recipe
  at plugins/keystone-no-recipe/plugin.toml:1:1: [plugin]
  hint: write `plugins/keystone-no-recipe/Dockerfile.j2`, or `images/_recipes/plugin.j2` for all plugins
error: unknown image `keystnoe`
  at plugins/keystone-typo/plugin.toml:2:11: "keystnoe"
  hint: did you mean `keystone`?
error: no image accepts plugin `on-base`
  at plugins/on-base/plugin.toml:2:10: ["base"]
  hint: what it matches are base images; plugins go on service images
error: the plugin does not say what it may be put on
  at plugins/silent/plugin.toml:1:1: [plugin]
  hint: add `images = ["…"]` to [plugin]: names or globs of service images
error: no image accepts plugin `unaccepted`
  at plugins/unaccepted/plugin.toml:2:10: ["keystone"]
  hint: add `accept = ["unaccepted"]` to [plugins] of `images/keystone/image.toml`
"##);
}

#[test]
fn plugins_that_require_each_other() {
    let plugin = |requires: &str| {
        format!("[plugin]\nimages = [\"keystone\"]\nrecipe = \"service\"\nrequires = [\"{requires}\"]\n")
    };
    assert_snapshot!(bad(&[
        ("plugins/keystone-a/plugin.toml", &plugin("keystone-b")),
        ("plugins/keystone-b/plugin.toml", &plugin("keystone-c")),
        ("plugins/keystone-c/plugin.toml", &plugin("keystone-a")),
    ]), @r##"
error: plugins require each other in a circle: keystone-a -> keystone-b -> keystone-c -> keystone-a
  at plugins/keystone-a/plugin.toml:4:12: ["keystone-b"]
  hint: a plugin comes above those that it requires
"##);
}

#[test]
fn chosen_plugins() {
    let keystone = |default: &str| {
        format!(
            "[image]\nparent = \"base\"\nrecipe = \"service\"\n[plugins]\naccept = [\"keystone-*\"]\ndefault = {default}\n"
        )
    };
    let plugin = |rest: &str| format!("[plugin]\nimages = [\"keystone\"]\nrecipe = \"service\"\n{rest}");
    assert_snapshot!(bad(&[
        ("kollage.toml", "[images.keystone]\nplugins = [\"keystone-b\", \"keystone-c\"]\n[images.base]\nplugins = [\"keystone-a\"]\n"),
        ("images/keystone/image.toml", &keystone("[\"keystone-aa\", \"other\"]")),
        ("images/base2/image.toml", "[image]\nkind = \"base\"\nparent = \"base\"\nrecipe = \"service\"\n[plugins]\naccept = [\"x\"]\n"),
        ("images/glance/image.toml", "[image]\nparent = \"base\"\nrecipe = \"service\"\n[plugins]\naccept = [\"*\"]\ndefault = [\"keystone-a\"]\n"),
        ("plugins/keystone-a/plugin.toml", &plugin("")),
        ("plugins/keystone-b/plugin.toml", &plugin("requires = [\"keystone-a\"]\n")),
        ("plugins/keystone-c/plugin.toml", &plugin("conflicts = [\"keystone-b\"]\n")),
        ("plugins/other/plugin.toml", &plugin("")),
    ]), @r##"
error: image `base2` is of kind `base`, and plugins go on service images only
  at images/base2/image.toml:5:1: [plugins]
  hint: leave out [plugins], make it `kind = "service"`, or add `inherited = true` for what is built on it
error: plugin `keystone-a` is not made for image `glance`
  at images/glance/image.toml:6:12: "keystone-a"
  hint: its `images` in `plugins/keystone-a/plugin.toml` says what it is for
error: unknown plugin `keystone-aa`
  at images/keystone/image.toml:6:12: "keystone-aa"
  hint: did you mean `keystone-a`?
error: image `keystone` does not accept plugin `other`
  at images/keystone/image.toml:6:27: "other"
  hint: its `accept` in [plugins] of `images/keystone/image.toml` says which it does
error: plugin `keystone-b` requires `keystone-a`, which is not chosen for `keystone`
  at kollage.toml:2:12: "keystone-b"
  hint: choose `keystone-a` as well
error: plugins `keystone-c` and `keystone-b` cannot both be on `keystone`
  at kollage.toml:2:26: "keystone-c"
  hint: choose one of them
error: plugin `keystone-a` cannot be put on `base`, which is of kind `base`
  at kollage.toml:4:12: "keystone-a"
  hint: plugins go on service images only
error: no image accepts plugin `other`
  at plugins/other/plugin.toml:2:10: ["keystone"]
  hint: add `accept = ["other"]` to [plugins] of `images/keystone/image.toml`
"##);
}

/// An image section never matches by a part of the name.
#[test]
fn image_sections_are_whole_names() {
    assert_snapshot!(bad_settings("[images.neutron-base]\nplugins = []\n[images.bas]\nplugins = []\n"), @r##"
error: unknown image `neutron-base`
  at kollage.toml:1:9: neutron-base
  hint: there are `base`, `keystone`
error: unknown image `bas`
  at kollage.toml:3:9: bas
  hint: did you mean `base`?
"##);
}

#[test]
fn profiles() {
    assert_snapshot!(bad_settings(
        "[profiles]\nmain = [\"keystone\", \"nova-*\", \"keystnoe\", \"@mian\", \"identity\", \"a b\"]\nidentity = [\"keystone\"]\nempty = []\n\
         round = [\"@trip\"]\ntrip = [\"@round\"]\n"
    ), @r##"
error: `nova-*` matches no image
  at kollage.toml:2:21: "nova-*"
error: unknown image `keystnoe`
  at kollage.toml:2:31: "keystnoe"
  hint: did you mean `keystone`?
error: unknown profile `mian`
  at kollage.toml:2:43: "@mian"
  hint: did you mean `main`?
error: unknown image `identity`
  at kollage.toml:2:52: "identity"
  hint: write `@identity` for the profile of that name
error: `a b` is not a pattern: it contains ' ', which no name does
  at kollage.toml:2:64: "a b"
error: profile `empty` selects nothing
  at kollage.toml:4:9: []
error: profiles name each other in a circle: round -> trip -> round
  at kollage.toml:5:9: ["@trip"]
"##);
}

#[test]
fn distributions() {
    assert_snapshot!(bad_settings("[build]\nbase = \"debain\"\nbase_tag = \"x\"\n"), @r##"
error: `debain` is not a distribution whose package type is known
  at kollage.toml:2:8: "debain"
  hint: did you mean `debian`? If not, say `base_package_type = "deb"` or `"rpm"`
"##);
    assert_snapshot!(bad_settings("[build]\nbase = \"ubuntu\"\n"), @r##"
error: `build.base` is ubuntu, so it needs a `base_tag`
  at kollage.toml:2:8: "ubuntu"
  hint: name the version of ubuntu, for example `base_tag = "24.04"`
"##);
    assert_snapshot!(bad_settings("[build]\ncompression = \"gzp\"\nca_bundle = \"on\"\nnetwork = \"bridge\"\nsource_date_epoch = -1\njobs = 0\n"), @r##"
error: `gzp` is not a value of `build.compression`
  at kollage.toml:2:15: "gzp"
  hint: did you mean `gzip`?
error: `on` is not a value of `build.ca_bundle`
  at kollage.toml:3:13: "on"
  hint: it is "auto", "off" or the path of a PEM file
error: `bridge` is not a value of `build.network`
  at kollage.toml:4:11: "bridge"
  hint: there are `default`, `none`, `host`
error: `build.source_date_epoch` should be a number from 0 to 253402300799, not -1
  at kollage.toml:5:21: -1
error: `build.jobs` should be a number from 1 to 1024, not 0
  at kollage.toml:6:8: 0
"##);
}

#[test]
fn missing_files() {
    assert_snapshot!(Tree::new(&[]).problems(), @r##"
error: there is no `kollage.toml`
  hint: `kollage init` writes a small catalogue to start from; `-C DIR` names another directory
error: there is no directory `images`
  hint: each image is a folder in it: `images/NAME/image.toml`
"##);
    let tree = Tree::with(&[("images/empty/README", ""), ("plugins/x/Dockerfile.j2", "")]);
    assert_snapshot!(tree.problems(), @r##"
error: `plugins/x` has no plugin.toml
  hint: write `plugins/x/plugin.toml`
warning: `images/empty` holds no definition and is left out
  hint: a definition is a folder with `image.toml` or a `Dockerfile`
"##);
}
