//! Whole catalogues, good and bad, in temporary directories.

use std::fmt::Write as _;
use std::path::Path;

mod bad;
mod fit;
mod overlay;
mod random;
mod release;
mod schema;
mod settings;

use super::*;
use crate::engine::BaseSource;

/// Files of a catalogue, written to a directory that goes away with the value.
pub(crate) struct Tree(tempfile::TempDir);

impl Tree {
    pub(crate) fn new(files: &[(&str, &str)]) -> Tree {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Tree(dir)
    }

    /// A sound catalogue of a base and a service, with these files over it.
    pub(crate) fn with(files: &[(&str, &str)]) -> Tree {
        let sound = [
            ("kollage.toml", ""),
            ("images/_recipes/service.j2", "FROM {{ parent }}\n"),
            ("images/base/image.toml", "[image]\nkind = \"base\"\nfrom = \"debian:bookworm\"\nrecipe = \"service\"\n"),
            (
                "images/keystone/image.toml",
                "[image]\nparent = \"base\"\nrecipe = \"service\"\n[plugins]\naccept = [\"keystone-*\"]\n",
            ),
        ];
        Tree::new(&[&sound, files].concat())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn load(&self) -> Result<Catalogue, Diagnostics> {
        self.load_with(&Overrides::new())
    }

    pub(crate) fn load_with(&self, overrides: &Overrides) -> Result<Catalogue, Diagnostics> {
        Catalogue::load(self.path(), overrides, &ConfigFiles::default())
    }

    /// What is wrong, as text without the directory's name.
    pub(crate) fn problems(&self) -> String {
        match self.load() {
            Ok(_) => "nothing is wrong".into(),
            Err(problems) => self.show(&problems),
        }
    }

    pub(crate) fn show(&self, problems: &Diagnostics) -> String {
        let mut text = String::new();
        for d in &problems.0 {
            let severity = if d.severity == Severity::Error { "error" } else { "warning" };
            writeln!(text, "{severity}: {}", d.message).unwrap();
            if let Some(place) = &d.place {
                let (line, column) = place.file.line_column(place.span.start);
                let underlined = place.file.text[place.span.clone()].replace('\n', "⏎");
                writeln!(text, "  at {}:{line}:{column}: {underlined}", place.file.path.display()).unwrap();
            }
            for (place, label) in &d.related {
                let (line, column) = place.file.line_column(place.span.start);
                let underlined = place.file.text[place.span.clone()].replace('\n', "⏎");
                writeln!(text, "  and {}:{line}:{column}: {underlined} ({label})", place.file.path.display()).unwrap();
            }
            if let Some(hint) = &d.hint {
                writeln!(text, "  hint: {hint}").unwrap();
            }
        }
        self.shown(&text)
    }

    /// A text without the directory's name.
    pub(crate) fn shown(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.path().display()), "")
    }
}

#[test]
fn a_sound_catalogue_loads() {
    let tree = Tree::new(&[
        (
            "kollage.toml",
            "[build]\nrelease = \"2026.1\"\nnamespace = \"kollage\"\ntag = \"{release}-{base}-{base_tag}\"\n\
             [profiles]\nmain = [\"keystone\", \"@bases\"]\nbases = [\"*base\"]\n\
             [images.keystone]\nplugins = [\"keystone-b\", \"keystone-a\"]\n",
        ),
        ("images/_recipes/service.j2", ""),
        ("images/_not-an-image/x", ""),
        (
            "images/base/image.toml",
            "[image]\nkind = \"base\"\nfrom = { bootstrap = \"debian\", suite = \"bookworm\" }\nrecipe = \"service\"\n",
        ),
        ("images/plain/Dockerfile", "FROM kollage/base:x\n"),
        (
            "images/keystone/image.toml",
            r#"
[image]
kind = "service"
parent = "base"
start = "keystone"
summary = "OpenStack identity service"
ports = ["5000"]
[user]
name = "keystone"
uid = 42425
groups = ["kolla"]
[packages]
deb = ["libldap2"]
rpm = ["openldap"]
deb_build = ["gcc"]
[sources.keystone]
pypi = "keystone[ldap]"
[sources.extra]
local = "extra"
[plugins]
accept = ["keystone-*"]
[[check]]
run = ["keystone-manage", "--version"]
user = "keystone"
[vars]
depth = { of = [1, 2.5, true, 2026-01-01] }
"#,
        ),
        ("images/keystone/Dockerfile.j2", ""),
        ("images/keystone/extra/setup.py", ""),
        ("start-scripts/keystone/start.toml", ""),
        (
            "plugins/keystone-a/plugin.toml",
            "[plugin]\nimages = [\"keystone\"]\nrequires = [\"keystone-b\"]\norder = 1\n",
        ),
        ("plugins/keystone-a/Dockerfile.j2", ""),
        ("plugins/keystone-b/plugin.toml", "[plugin]\nimages = [\"key*\"]\nrecipe = \"service\"\n"),
    ]);
    let catalogue = tree.load().unwrap_or_else(|problems| panic!("{}", tree.show(&problems)));
    assert!(catalogue.warnings.is_empty());
    assert_eq!(catalogue.images.keys().collect::<Vec<_>>(), ["base", "keystone", "plain"]);
    assert_eq!(catalogue.image_ref("base"), "kollage/base:2026.1-debian-bookworm");
    let keystone = &catalogue.images["keystone"];
    assert_eq!(keystone.parent, Parent::Image("base".into()));
    let user = keystone.user.as_ref().unwrap();
    assert_eq!((user.uid, user.gid, user.home.as_str()), (42425, 42425, "/var/lib/keystone"));
    let Parent::External { reference, source: BaseSource::Bootstrap(bootstrap) } = &catalogue.images["base"].parent
    else {
        panic!("{:?}", catalogue.images["base"].parent);
    };
    assert_eq!(reference, "bootstrap:debian/bookworm");
    assert_eq!(bootstrap.variant, "minbase");
    assert_eq!(catalogue.images["plain"].parent, Parent::Dockerfile);
    let plugins: Vec<String> = catalogue.plugins_of(keystone).iter().map(|p| p.name.clone()).collect();
    assert_eq!(plugins, ["keystone-b", "keystone-a"], "what is required comes below, whatever the order says");
    let main = catalogue.profile_images("main").unwrap();
    assert_eq!(main.into_iter().collect::<Vec<_>>(), ["base", "keystone"]);
    assert!(catalogue.profile_images("other").is_none());
}
