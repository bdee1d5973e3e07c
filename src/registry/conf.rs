//! `registries.conf` (containers-registries.conf(5), its second version): where a registry is really reached, by which
//! mirrors, and which registries are not talked to at all.
//!
//! The caller says which files. Short names are Docker's here, whatever `unqualified-search-registries` says: what a
//! catalogue's FROM means must not depend on the machine.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::diag::{Diagnostic, Diagnostics, SourceFile};
use crate::error::{Error, Result};
use crate::image::reference::Reference;

#[derive(Clone, Debug, Default)]
pub struct Registries {
    entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    prefix: String,
    location: String,
    insecure: bool,
    blocked: bool,
    mirrors: Vec<Mirror>,
    digest_only: bool,
    file: PathBuf,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Mirror {
    location: String,
    #[serde(default)]
    insecure: bool,
    #[serde(default)]
    pull_from_mirror: Which,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Which {
    #[default]
    All,
    DigestOnly,
    TagOnly,
}

#[derive(Deserialize)]
struct RawFile {
    #[serde(default)]
    registry: Vec<RawEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawEntry {
    prefix: Option<toml::Spanned<String>>,
    location: Option<toml::Spanned<String>>,
    #[serde(default)]
    insecure: bool,
    #[serde(default)]
    blocked: bool,
    #[serde(default)]
    mirror: Vec<Mirror>,
    #[serde(default)]
    mirror_by_digest_only: bool,
}

/// One place where an image may be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub reference: Reference,
    pub insecure: bool,
    pub mirror: bool,
}

impl Registries {
    /// Files that are not there are left out; an entry of a later file takes the place of one of the same prefix.
    pub fn load(files: &[PathBuf]) -> Result<Registries> {
        let mut registries = Registries::default();
        for file in files {
            match crate::text::read_to_string(file) {
                Ok(text) => {
                    for entry in parse(file, &text)? {
                        registries.entries.retain(|known| known.prefix != entry.prefix);
                        registries.entries.push(entry);
                    }
                }
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => return Err(Error::unusable(format!("{} cannot be read", file.display())).cause(e)),
            }
        }
        Ok(registries)
    }

    fn entry(&self, reference: &Reference) -> Option<&Entry> {
        let name = format!("{}/{}", reference.registry(), reference.repository());
        let matching = self.entries.iter().filter(|entry| matched(&entry.prefix, &name).is_some());
        matching.max_by_key(|entry| entry.prefix.len())
    }

    /// Where an image is pulled from, in the order in which it is tried.
    pub(super) fn pull_from(&self, reference: &Reference) -> Result<Vec<Place>> {
        let own = self.push_to(reference)?;
        let Some(entry) = self.entry(reference) else { return Ok(vec![own]) };
        let pinned = reference.digest().is_some();
        let wanted = |mirror: &&Mirror| match mirror.pull_from_mirror {
            Which::All => pinned || !entry.digest_only,
            Which::DigestOnly => pinned,
            Which::TagOnly => !pinned,
        };
        let mut places = Vec::new();
        for mirror in entry.mirrors.iter().filter(wanted) {
            let reference = rewritten(reference, &entry.prefix, &mirror.location)
                .map_err(|e| e.context(format!("the mirror {} in {}", mirror.location, entry.file.display())))?;
            places.push(Place { reference, insecure: mirror.insecure, mirror: true });
        }
        places.push(own);
        Ok(places)
    }

    /// Where an image is pushed to: never to a mirror.
    pub(super) fn push_to(&self, reference: &Reference) -> Result<Place> {
        let Some(entry) = self.entry(reference) else {
            return Ok(Place { reference: reference.clone(), insecure: false, mirror: false });
        };
        if entry.blocked {
            return Err(Error::unusable(format!("the registry {} is blocked on this machine", reference.registry()))
                .cause(format!("{} blocks `{}`", entry.file.display(), entry.prefix)));
        }
        let moved = rewritten(reference, &entry.prefix, &entry.location)
            .map_err(|e| e.context(format!("the location {} in {}", entry.location, entry.file.display())))?;
        Ok(Place { reference: moved, insecure: entry.insecure, mirror: false })
    }
}

fn parse(file: &Path, text: &str) -> Result<Vec<Entry>> {
    let source = SourceFile::new(file, text);
    let wrong = |message: String, span: Option<std::ops::Range<usize>>| {
        let problem = Diagnostic::error(message);
        let problem = match span {
            Some(span) => problem.at(&source, span),
            None => problem,
        };
        Error::from_diagnostics("registries cannot be told apart", Diagnostics(vec![problem]))
    };
    let raw: RawFile = toml::from_str(text).map_err(|e| wrong(e.message().to_owned(), e.span()))?;
    let mut entries = Vec::new();
    for entry in raw.registry {
        let text = |spanned: &toml::Spanned<String>| spanned.get_ref().trim_end_matches('/').to_owned();
        let prefix = entry.prefix.as_ref().map(text).filter(|prefix| !prefix.is_empty());
        let location = entry.location.as_ref().map(text).filter(|location| !location.is_empty());
        let (prefix, location) = match (prefix, location) {
            (Some(prefix), Some(location)) => (prefix, location),
            (None, Some(location)) => (location.clone(), location),
            // A prefix of many hosts stays what each of them is.
            (Some(prefix), None) => (prefix.clone(), if prefix.starts_with("*.") { String::new() } else { prefix }),
            (None, None) => return Err(wrong("a registry has neither `prefix` nor `location`".into(), None)),
        };
        if prefix.contains('*') && (!prefix.starts_with("*.") || prefix[1..].contains(['*', '/'])) {
            let span = entry.prefix.as_ref().map(|prefix| prefix.span());
            return Err(wrong(format!("`{prefix}` is not a prefix: `*.` stands for hosts at its beginning"), span));
        }
        entries.push(Entry {
            prefix,
            location,
            insecure: entry.insecure,
            blocked: entry.blocked,
            mirrors: entry.mirror,
            digest_only: entry.mirror_by_digest_only,
            file: file.to_owned(),
        });
    }
    Ok(entries)
}

/// What of a name comes after a prefix of it: nothing, or `/` and more.
fn matched<'a>(prefix: &str, name: &'a str) -> Option<&'a str> {
    if let Some(domain) = prefix.strip_prefix('*') {
        let (host, _) = name.split_once('/')?;
        let host = host.split(':').next().unwrap_or(host);
        return host.ends_with(domain).then(|| &name[host.len()..]);
    }
    let rest = name.strip_prefix(prefix)?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

fn rewritten(reference: &Reference, prefix: &str, location: &str) -> Result<Reference> {
    let name = format!("{}/{}", reference.registry(), reference.repository());
    let rest = matched(prefix, &name).unwrap_or_default();
    if location.is_empty() || location == prefix {
        return Ok(reference.clone());
    }
    let mut text = format!("{location}{rest}");
    if let Some(tag) = reference.tag() {
        text.push_str(&format!(":{tag}"));
    }
    if let Some(digest) = reference.digest() {
        text.push_str(&format!("@{digest}"));
    }
    text.parse()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    fn load(text: &str) -> Registries {
        Registries { entries: parse(Path::new("registries.conf"), text).unwrap() }
    }

    fn places(registries: &Registries, name: &str) -> String {
        let places = registries.pull_from(&name.parse().unwrap()).map_err(|e| e.to_string());
        let shown = |place: &Place| {
            let insecure = if place.insecure { " insecure" } else { "" };
            format!("{}{insecure}", place.reference)
        };
        places.map_or_else(|e| e, |all| all.iter().map(shown).collect::<Vec<_>>().join(", "))
    }

    #[test]
    fn the_longest_prefix_says_where_an_image_is() {
        let registries = load(
            r#"
            unqualified-search-registries = ["x.org"]
            short-name-mode = "enforcing"
            [[registry]]
            location = "docker.io"
            [[registry.mirror]]
            location = "mirror.example.org/hub"
            [[registry]]
            prefix = "docker.io/team"
            location = "own.example.org:5000/team"
            insecure = true
            [[registry]]
            prefix = "*.internal.example.org"
            insecure = true
            [[registry]]
            prefix = "bad.example.org"
            blocked = true
            [aliases]
            "debian" = "docker.io/library/debian"
            "#,
        );
        let digest = format!("sha256:{}", "a".repeat(64));
        for (name, wanted) in [
            ("debian:12", "mirror.example.org/hub/library/debian:12, docker.io/library/debian:12".to_owned()),
            ("team/app:1", "own.example.org:5000/team/app:1 insecure".into()),
            ("teams/app:1", "mirror.example.org/hub/teams/app:1, docker.io/teams/app:1".into()),
            ("a.internal.example.org:5000/x", "a.internal.example.org:5000/x insecure".into()),
            ("internal.example.org/x", "internal.example.org/x".into()),
            ("other.org/x:1", "other.org/x:1".into()),
            (
                "bad.example.org/x",
                "the registry bad.example.org is blocked on this machine: registries.conf blocks `bad.example.org`"
                    .into(),
            ),
            (
                &format!("debian@{digest}"),
                format!("mirror.example.org/hub/library/debian@{digest}, docker.io/library/debian@{digest}"),
            ),
        ] {
            assert_eq!(places(&registries, name), wanted, "{name}");
        }
        let own = registries.push_to(&"debian:12".parse().unwrap()).unwrap();
        assert_eq!((own.reference.to_string().as_str(), own.mirror), ("docker.io/library/debian:12", false));
    }

    #[test]
    fn mirrors_for_digests_or_tags_alone() {
        let text = |which: &str| {
            let mirror = "[[registry.mirror]]\nlocation = \"m.org\"\n";
            format!("[[registry]]\nlocation = \"r.org\"\n{which}\n{mirror}")
        };
        let digest = format!("r.org/a@sha256:{}", "a".repeat(64));
        let uses = |text: &str| {
            let registries = load(text);
            ["r.org/a:1", &digest].map(|name| places(&registries, name).contains("m.org"))
        };
        assert_eq!(uses(&text("")), [true, true]);
        assert_eq!(uses(&text("mirror-by-digest-only = true")), [false, true]);
        assert_eq!(uses(&(text("") + "pull-from-mirror = \"digest-only\"")), [false, true]);
        assert_eq!(uses(&(text("") + "pull-from-mirror = \"tag-only\"")), [true, false]);
    }

    #[test]
    fn later_files_win_and_what_is_wrong_has_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let one = write("1", "[[registry]]\nlocation = \"r.org\"\nblocked = true\n");
        let two = write("2", "[[registry]]\nlocation = \"r.org\"\n");
        let registries = Registries::load(&[one, dir.path().join("none"), two]).unwrap();
        assert_eq!(places(&registries, "r.org/a"), "r.org/a");
        for text in
            ["[[registry]]\nlocation = 7\n", "[[registry]\n", "[[registry]]\nprefix = \"a.*\"\nlocation = \"b\"\n"]
        {
            let error = Registries::load(&[write("3", text)]).unwrap_err();
            assert_eq!(error.kind(), Kind::BadInput);
            assert!(error.diagnostics().0[0].place.is_some(), "{error:?}");
        }
        assert!(Registries::load(&[write("4", "[[registry]]\ninsecure = true\n")]).is_err());
    }
}
