//! Releases: what they add to definitions, and what is wrong with them.

use insta::assert_snapshot;

use super::super::*;
use super::Tree;
use crate::dockerfile::Inputs;
use crate::graph::assemble::assemble;
use crate::image::config::Platform;

const SETTINGS: &str = "[build]\nrelease = \"2026.2\"\n";
const RELEASE: &str = "[release]\nname = \"2026.2\"\nsource_date_epoch = 1790812800\nconstraints = \"2026.2-constraints.txt\"\n\
     [sources]\nkeystone = \"30.0.0\"\n\"oslo.db\" = \"18.1.0\"\n[packages.deb]\nhaproxy = \"2.6.12-1\"\n[bases.debian]\nsuite = \"trixie\"\n";
const CONSTRAINTS: &str = "# made by hand\nsix==1.17.0\noslo-db===18.1.0 # as in [sources]\n\
     typing-extensions==4.15.0;python_version<'3.13'\nkeystone-plugin==1.0\n";
const KEYSTONE: &str = "[image]\nparent = \"base\"\n\
     [packages]\ndeb = [\"haproxy\", \"curl\"]\ndeb_build = [\"haproxy=1\"]\n\
     [sources.keystone]\npypi = \"Keystone[ldap]\"\n[sources.fixed]\npypi = \"oslo_db>=3\"\n";

fn with(files: &[(&str, &str)]) -> Tree {
    let sound = [
        ("kollage.toml", SETTINGS),
        ("releases/2026.2.toml", RELEASE),
        ("releases/2026.2-constraints.txt", CONSTRAINTS),
        ("images/keystone/image.toml", KEYSTONE),
        (
            "images/keystone/Dockerfile.j2",
            "FROM {{ parent }}\n# {{ release.name }}: {{ release.constraints | join(' ') }}\n",
        ),
    ];
    Tree::with(&[&sound, files].concat())
}

/// What is wrong with building keystone.
fn building(tree: &Tree) -> String {
    let catalogue = match tree.load() {
        Ok(catalogue) => catalogue,
        Err(problems) => return tree.show(&problems),
    };
    let inputs =
        Inputs { target: None, build_args: BTreeMap::new(), platform: Platform::host(), contexts: BTreeSet::new() };
    match assemble(&catalogue, &BTreeSet::from(["keystone".to_owned()]), &inputs) {
        Ok(_) => "nothing is wrong".into(),
        Err(problems) => tree.show(&problems),
    }
}

#[test]
fn a_release_says_what_definitions_leave_open() {
    let tree = with(&[(
        "images/base/image.toml",
        "[image]\nkind = \"base\"\nfrom = { bootstrap = \"debian\" }\nrecipe = \"service\"\n",
    )]);
    let catalogue = tree.load().unwrap_or_else(|e| panic!("{}", tree.show(&e)));
    let build = &catalogue.settings.build;
    assert_eq!((build.base_tag.as_str(), build.source_date_epoch), ("trixie", Some(1_790_812_800)));
    assert_eq!(build.tag, "2026.2-debian-trixie");
    let keystone = &catalogue.images["keystone"];
    assert_eq!(keystone.packages.deb, ["haproxy=2.6.12-1", "curl"]);
    assert_eq!(keystone.packages.deb_build, ["haproxy=1"], "what a definition says stays");
    let requirement = |name: &str| match &keystone.sources[name] {
        SourceDef::Pypi { requirement } => requirement.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        (requirement("keystone").as_str(), requirement("fixed").as_str()),
        ("Keystone[ldap]==30.0.0", "oslo_db>=3")
    );
    assert_eq!(
        keystone.places.get("sources.keystone.pypi").unwrap().line(),
        tree.path().join("releases/2026.2.toml:6").display().to_string()
    );
    let Parent::External { reference, .. } = &catalogue.images["base"].parent else { panic!() };
    assert_eq!(reference, "bootstrap:debian/trixie");
    let rendered = crate::template::render_image(&catalogue, keystone).unwrap();
    assert_snapshot!(rendered.dockerfile.text, @r##"
FROM kollage/base:2026.2-debian-trixie
# 2026.2: keystone-plugin==1.0 oslo-db==18.1.0 six==1.17.0 typing-extensions==4.15.0; python_version<'3.13'
"##);
    assert_eq!(building(&tree), "nothing is wrong");
}

#[test]
fn settings_come_before_the_release() {
    let tree = with(&[(
        "kollage.toml",
        "[build]\nrelease = \"2026.2\"\nbase_tag = \"bookworm\"\nsource_date_epoch = 5\ntag = \"x\"\n",
    )]);
    let build = tree.load().unwrap().settings.build;
    assert_eq!((build.base_tag.as_str(), build.source_date_epoch), ("bookworm", Some(5)));
}

#[test]
fn without_releases_a_release_is_a_word() {
    let tree = Tree::with(&[
        ("kollage.toml", SETTINGS),
        ("images/keystone/image.toml", KEYSTONE),
        ("images/keystone/Dockerfile.j2", "FROM {{ parent }}\n{% if release %}# {{ release.name }}{% endif %}\n"),
    ]);
    assert_eq!(building(&tree), "nothing is wrong");
}

#[test]
fn another_release_is_chosen_on_the_command_line() {
    let tree = with(&[
        (
            "releases/2026.1.toml",
            "[release]\nname = \"2026.1\"\nconstraints = \"c.txt\"\n[sources]\nkeystone = \"29.0.0\"\n",
        ),
        ("releases/c.txt", "six==1.16.0\n"),
    ]);
    let mut overrides = Overrides::new();
    overrides.set("--set", "build.release=2026.1").unwrap();
    let catalogue = tree.load_with(&overrides).unwrap();
    let source = &catalogue.images["keystone"].sources["keystone"];
    assert_eq!(*source, SourceDef::Pypi { requirement: "Keystone[ldap]==29.0.0".into() });

    let mut overrides = Overrides::new();
    overrides.set("--set", "build.release=\"2026.3\"").unwrap();
    assert_snapshot!(tree.show(&tree.load_with(&overrides).unwrap_err()), @r##"
error: there is no release `2026.3`: no `releases/2026.3.toml`
  at --set:1:15: "2026.3"
  hint: did you mean `2026.1`?
"##);
}

#[test]
fn a_release_without_constraints_builds_nothing_from_pypi() {
    let tree = with(&[("releases/2026.2.toml", "[release]\nname = \"2026.2\"\n[sources]\nkeystone = \"30.0.0\"\n")]);
    assert_snapshot!(building(&tree), @r##"
error: release `2026.2` has no constraints, and image `keystone` comes from PyPI
  at kollage.toml:2:11: "2026.2"
  and images/keystone/image.toml:9:8: "oslo_db>=3" (taken from PyPI)
  and releases/2026.2.toml:1:1: [release] (the release)
  hint: add `constraints = "FILE"` to [release]: a file with a line `name==version` for each
"##);
    let tree = with(&[("releases/2026.2-constraints.txt", "# nothing yet\n")]);
    assert_snapshot!(building(&tree), @r##"
error: release `2026.2` has no constraints, and image `keystone` comes from PyPI
  at kollage.toml:2:11: "2026.2"
  and images/keystone/image.toml:9:8: "oslo_db>=3" (taken from PyPI)
  and releases/2026.2.toml:4:15: "2026.2-constraints.txt" (the release)
  hint: add `constraints = "FILE"` to [release]: a file with a line `name==version` for each
"##);
    let nothing_from_pypi = "[image]\nparent = \"base\"\n[packages]\ndeb = [\"curl\"]\n";
    let tree = with(&[
        ("releases/2026.2.toml", "[release]\nname = \"2026.2\"\n"),
        ("images/keystone/image.toml", nothing_from_pypi),
    ]);
    assert_eq!(building(&tree), "nothing is wrong");
}

#[test]
fn what_a_release_has_no_version_of_is_not_the_newest_one() {
    let tree = with(&[("releases/2026.2.toml", &RELEASE.replace("keystone =", "keystnoe ="))]);
    assert_snapshot!(building(&tree), @r##"
error: release `2026.2` has no version of `Keystone`, which image `keystone` takes
  at images/keystone/image.toml:7:8: "Keystone[ldap]"
  and releases/2026.2.toml:1:1: [release] (the release)
  hint: add `Keystone = "VERSION"` to its [sources]
"##);
    assert_snapshot!(tree.show(&tree.load().unwrap().warnings), @r##"
warning: no definition takes `keystnoe` from PyPI
  at releases/2026.2.toml:6:12: "30.0.0"
  hint: did you mean `keystone`?
"##);
}

#[test]
fn everything_wrong_with_a_release_is_told() {
    let tree = with(&[
        (
            "releases/2026.2.toml",
            "[release]\nname = \"2026.1\"\nsource_date_epoch = \"today\"\nconstraints = \"2026.2-constraints.txt\"\nepoch = 1\n\
             [sources]\nkeystone = \"30.*\"\n\"oslo.db\" = \"17.0\"\n\"a b\" = \"1\"\nsix = 1\n\
             [packages.deb]\n\"haproxy=2\" = \"1\"\ncurl = \"1 2\"\n[packages.rpm]\nx = \"1\"\n\
             [bases.debian]\nsuit = \"trixie\"\n",
        ),
        (
            "releases/2026.2-constraints.txt",
            "six==1.17.0\nSix==1.17.0\noslo.db==18.1.0\nfoo>=1\n-r other.txt\nbar==\n  baz==1.0;\nq==1.*\n",
        ),
    ]);
    assert_snapshot!(building(&tree), @r##"
error: `Six` is twice in the constraints
  at releases/2026.2-constraints.txt:2:1: Six==1.17.0
  and releases/2026.2-constraints.txt:1:1: six==1.17.0 (here it is as well)
error: `foo>=1` is not a constraint: it names no exact version
  at releases/2026.2-constraints.txt:4:1: foo>=1
  hint: a line is `name==version`
error: `-r other.txt` is not a constraint: it has to begin with the name of a distribution on PyPI
  at releases/2026.2-constraints.txt:5:1: -r other.txt
  hint: a line is `name==version`
error: `bar==` is not a constraint: `` isn't a version
  at releases/2026.2-constraints.txt:6:1: bar==
  hint: a line is `name==version`
error: `baz==1.0;` is not a constraint: nothing stands after `;`
  at releases/2026.2-constraints.txt:7:3: baz==1.0;
  hint: a line is `name==version`
error: `q==1.*` is not a constraint: `1.*` is not a version
  at releases/2026.2-constraints.txt:8:1: q==1.*
  hint: a line is `name==version`
error: the file of release `2026.2` says that its name is `2026.1`
  at releases/2026.2.toml:2:8: "2026.1"
  hint: a release is in the file of its name: `2026.1.toml`
error: `release.source_date_epoch` should be an integer, not a string
  at releases/2026.2.toml:3:21: "today"
error: unknown key `epoch` in [release]
  at releases/2026.2.toml:5:1: epoch
  hint: there are `name`, `source_date_epoch`, `constraints`
error: `30.*` is not a version
  at releases/2026.2.toml:7:12: "30.*"
  hint: a release names one exact version, without `==`, `>=` or `*`
error: `oslo-db` is 17.0 in [sources] and 18.1.0 in the constraints
  at releases/2026.2.toml:8:13: "17.0"
  and releases/2026.2-constraints.txt:3:1: oslo.db==18.1.0 (the constraint)
error: `a b` is not a name of a distribution on PyPI
  at releases/2026.2.toml:9:1: "a b"
error: `sources.six` should be a string, not an integer
  at releases/2026.2.toml:10:7: 1
  hint: write it in quotes: "1"
error: `haproxy=2` is not a Debian package: it is a name, without `=2`
  at releases/2026.2.toml:12:1: "haproxy=2"
error: `1 2` is not a version of a Debian package
  at releases/2026.2.toml:13:8: "1 2"
error: unknown key `rpm` in [packages]
  at releases/2026.2.toml:14:11: rpm
  hint: there is only `deb`
error: unknown key `suit` in [bases.debian]
  at releases/2026.2.toml:17:1: suit
  hint: did you mean `suite`?
"##);
    let tree = with(&[("releases/2026.2.toml", "[relaese]\n"), ("images/base/Dockerfile", "")]);
    assert_snapshot!(building(&tree), @r##"
error: `recipe` stands beside `images/base/Dockerfile`
  at images/base/image.toml:4:10: "service"
  hint: keep one of them
error: unknown key `relaese`
  at releases/2026.2.toml:1:2: relaese
  hint: did you mean `release`?
"##);
    let tree = with(&[("releases/2026.2.toml", "[release]\nconstraints = \"../x.txt\"\n")]);
    assert_snapshot!(building(&tree), @r##"
error: [release] has no `name`
  at releases/2026.2.toml:1:1: [release]
  hint: add `name = "2026.2"`
error: `../x.txt` is not the name of a file beside the release's: it leads out of the definition's own folder
  at releases/2026.2.toml:2:15: "../x.txt"
"##);
    let tree = with(&[("releases/2026.2.toml", "[release]\nname = \"2026.2\"\nconstraints = \"gone.txt\"\n")]);
    assert_snapshot!(building(&tree), @r##"
error: cannot read the constraints `releases/gone.txt`: No such file or directory (os error 2)
  at releases/2026.2.toml:3:15: "gone.txt"
  hint: the file is looked for beside the release's
"##);
}

#[test]
fn what_the_release_changed_is_still_judged() {
    let tree = with(&[("releases/2026.2.toml", &RELEASE.replace("haproxy = \"2.6.12-1\"", "curl = \"1.0\""))]);
    let keystone = KEYSTONE.replace("\"haproxy\", \"curl\"", "\"curl=1.0\", \"curl\"");
    std::fs::write(tree.path().join("images/keystone/image.toml"), keystone).unwrap();
    assert_snapshot!(building(&tree), @r##"
error: `curl=1.0` is twice in `packages.deb`
  at releases/2026.2.toml:9:8: "1.0"
"##);
}
