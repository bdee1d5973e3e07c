//! What definitions and the release tell about whether plugins fit.

use insta::assert_snapshot;

use super::super::*;
use super::Tree;

fn with(plugin: &str, files: &[(&str, &str)]) -> Tree {
    let plugin = format!("[plugin]\nimages = [\"keystone\"]\nrecipe = \"service\"\n{plugin}");
    let sound = [
        ("kollage.toml", "[build]\nrelease = \"r\"\n[images.keystone]\nplugins = [\"keystone-x\"]\n"),
        (
            "images/keystone/image.toml",
            "[image]\nparent = \"base\"\nrecipe = \"service\"\n[plugins]\naccept = [\"*\"]\n\
             [sources.keystone]\npypi = \"keystone\"\n",
        ),
        (
            "releases/r.toml",
            "[release]\nname = \"r\"\nconstraints = \"c.txt\"\n[sources]\nkeystone = \"30.0.0.0rc1\"\n",
        ),
        ("releases/c.txt", "oslo.db==17.0.0\n"),
        ("plugins/keystone-x/plugin.toml", plugin.as_str()),
    ];
    Tree::with(&[&sound, files].concat())
}

#[test]
fn versions_within_the_range_fit() {
    let tree =
        with("needs = { keystone = \">=29,<31\", oslo_db = \"~=17.0\" }\nchanges = [\"/etc/keystone/*\"]\n", &[]);
    let catalogue = tree.load().unwrap_or_else(|e| panic!("{}", tree.show(&e)));
    assert!(catalogue.warnings.is_empty(), "{}", tree.show(&catalogue.warnings));
    assert_eq!(catalogue.plugins["keystone-x"].changes, ["/etc/keystone/*"]);
}

#[test]
fn versions_outside_the_range_have_both_places() {
    let tree = with("needs = { keystone = \"<30.0.0.0rc1\", \"oslo.db\" = \">17\" }\n", &[]);
    assert_snapshot!(tree.problems(), @r##"
error: plugin `keystone-x` needs keystone <30.0.0.0rc1, and `keystone` has 30.0.0.0rc1
  at plugins/keystone-x/plugin.toml:4:22: "<30.0.0.0rc1"
  and releases/r.toml:5:12: "30.0.0.0rc1" (the version)
  hint: choose another version of one of them, or allow it: `allow = ["keystone-x"]` in [plugins] of kollage.toml
error: plugin `keystone-x` needs oslo.db >17, and `keystone` has 17.0.0
  at plugins/keystone-x/plugin.toml:4:50: ">17"
  and releases/c.txt:1:1: oslo.db==17.0.0 (the version)
  hint: choose another version of one of them, or allow it: `allow = ["keystone-x"]` in [plugins] of kollage.toml
"##);
    let mut overrides = Overrides::new();
    overrides.set("--set", "plugins.allow=[\"keystone-x\"]").unwrap();
    let catalogue = tree.load_with(&overrides).unwrap_or_else(|e| panic!("{}", tree.show(&e)));
    assert_eq!(catalogue.warnings.0.len(), 2, "{}", tree.show(&catalogue.warnings));
    let mut overrides = Overrides::new();
    overrides.plugins("--plugin", "keystone", &[]);
    assert!(tree.load_with(&overrides).unwrap().warnings.is_empty(), "it is not chosen");
}

#[test]
fn the_version_may_come_from_a_parent() {
    let tree = with(
        "needs = { keystone = \"<30\" }\n",
        &[
            (
                "images/keystone/image.toml",
                "[image]\nparent = \"between\"\nrecipe = \"service\"\n[plugins]\naccept = [\"*\"]\n",
            ),
            (
                "images/between/image.toml",
                "[image]\nparent = \"base\"\nrecipe = \"service\"\n[sources.k]\npypi = \"Keystone==31.1\"\n",
            ),
        ],
    );
    assert_snapshot!(tree.problems(), @r##"
error: plugin `keystone-x` needs keystone <30, and `keystone` has 31.1
  at plugins/keystone-x/plugin.toml:4:22: "<30"
  and images/between/image.toml:5:8: "Keystone==31.1" (the version)
  hint: choose another version of one of them, or allow it: `allow = ["keystone-x"]` in [plugins] of kollage.toml
"##);
}

#[test]
fn a_version_that_nobody_knows_is_told() {
    let tree = with("needs = { nova = \">=1\" }\n", &[]);
    assert_snapshot!(tree.show(&tree.load().unwrap().warnings), @r##"
warning: plugin `keystone-x` needs nova >=1, and nothing says which version `keystone` has
  at plugins/keystone-x/plugin.toml:4:18: ">=1"
  hint: a release (`releases/NAME.toml`) or a source with `==` says it; until then it is not checked
"##);
}

#[test]
fn what_fit_may_not_look_like() {
    let tree = with(
        "needs = { keystone = \"30\", \"a b\" = \">1\", \"\" = \">=1\" }\nchanges = [\"etc/x\", \"/a[\", \"/ok\", \"/ok\"]\n",
        &[("kollage.toml", "[plugins]\nallow = [\"keystone-y\"]\nalow = []\n")],
    );
    assert_snapshot!(tree.problems(), @r##"
error: unknown plugin `keystone-y`
  at kollage.toml:2:10: "keystone-y"
  hint: did you mean `keystone-x`?
error: unknown key `alow` in [plugins]
  at kollage.toml:3:1: alow
  hint: did you mean `allow`?
error: `30` is not a range of versions
  at plugins/keystone-x/plugin.toml:4:22: "30"
  hint: for example `>=28,<30`
error: `a b` is not a name of a distribution on PyPI: `b` isn't a version specifier, such as `>=1.0`
  at plugins/keystone-x/plugin.toml:4:28: "a b"
error: `` is not a name of a distribution on PyPI: it has to begin with the name of a distribution on PyPI
  at plugins/keystone-x/plugin.toml:4:42: ""
error: `etc/x` is not a pattern of files: it is a path in the image and begins with `/`
  at plugins/keystone-x/plugin.toml:5:12: "etc/x"
error: `/a[` is not a pattern of files: unclosed character class; missing ']'
  at plugins/keystone-x/plugin.toml:5:21: "/a["
error: `/ok` is twice in `plugin.changes`
  at plugins/keystone-x/plugin.toml:5:35: "/ok"
"##);
}
