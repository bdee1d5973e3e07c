//! Base images from outside the catalogue: what `from` of an image and FROM of a Dockerfile may say.
//!
//! Paths are relative to the catalogue's root, wherever they are written: a base is shared by images, and a FROM in a
//! rendered recipe has no folder of its own.

use std::path::Path;

use crate::engine::{BaseSource, Bootstrap};
use crate::image::digest::KeyHasher;

use super::definition::House;
use super::names;
use super::reader::{Reader, error};
use super::tree::Value;
use super::types::Parent;
use crate::suggest;

/// Variants that mmdebstrap knows; debootstrap has `minbase` and `buildd` of them.
pub(super) const VARIANTS: [&str; 9] =
    ["minbase", "extract", "custom", "essential", "apt", "required", "buildd", "important", "standard"];

pub(super) const DISTRIBUTIONS: [&str; 2] = ["debian", "ubuntu"];

/// The schemes of references that aren't names in a registry.
const SCHEMES: [&str; 4] = ["bootstrap", "oci", "docker-archive", "rootfs"];

/// What a FROM says: `docker.io/library/debian:bookworm`, `bootstrap:debian/bookworm`, `oci:PATH[:ref]`,
/// `docker-archive:PATH[:ref]`, `rootfs:PATH`. The error says what is wrong without repeating the text.
pub fn parse_reference(text: &str, root: &Path) -> Result<BaseSource, String> {
    let (scheme, rest) = match text.split_once(':') {
        Some((scheme, rest)) if SCHEMES.contains(&scheme) => (scheme, rest),
        _ => {
            names::reference(text)?;
            return Ok(BaseSource::Registry { reference: text.to_owned() });
        }
    };
    let archive = || {
        // A colon may belong to the path only when no reference follows it, which can't be told: it never does.
        let (path, reference) = rest.rsplit_once(':').map_or((rest, None), |(p, r)| (p, Some(r)));
        if path.is_empty() || reference == Some("") {
            return Err(format!("`{scheme}:` is followed by a path and perhaps `:` and a name"));
        }
        Ok((root.join(path), reference.map(str::to_owned)))
    };
    match scheme {
        "bootstrap" => {
            let example = "it has the form `bootstrap:debian/bookworm`";
            let (distribution, suite) = rest.split_once('/').ok_or(example)?;
            if !DISTRIBUTIONS.contains(&distribution) {
                return Err(format!("`{distribution}` cannot be bootstrapped, only debian and ubuntu can"));
            }
            word(suite)?;
            Ok(BaseSource::Bootstrap(plain(distribution, suite)))
        }
        "oci" => archive().map(|(path, reference)| BaseSource::OciLayout { path, reference }),
        "docker-archive" => archive().map(|(path, reference)| BaseSource::DockerArchive { path, reference }),
        _ if rest.is_empty() => Err("`rootfs:` is followed by the path of a tar file".into()),
        _ => Ok(BaseSource::RootfsTar { path: root.join(rest) }),
    }
}

fn plain(distribution: &str, suite: &str) -> Bootstrap {
    Bootstrap {
        distribution: distribution.to_owned(),
        suite: suite.to_owned(),
        mirror: None,
        components: Vec::new(),
        keyring: None,
        variant: "minbase".into(),
        packages: Vec::new(),
        snapshot: None,
    }
}

/// Reads `from` of an image.
pub(super) fn read(reader: &mut Reader<'_>, house: &House) -> Option<Parent> {
    let parent = read_parent(reader, &house.root)?;
    if !house.is_overlay {
        return Some(parent);
    }
    // Paths of two catalogues may be the same and mean two files; the names of bases must tell them apart.
    let Parent::External { reference, source } = parent else { return Some(parent) };
    let reference = match &source {
        BaseSource::OciLayout { path, reference } => archive_name("oci", path, reference),
        BaseSource::DockerArchive { path, reference } => archive_name("docker-archive", path, reference),
        BaseSource::RootfsTar { path } => archive_name("rootfs", path, &None),
        _ => reference,
    };
    Some(Parent::External { reference, source })
}

fn archive_name(scheme: &str, path: &Path, reference: &Option<String>) -> String {
    let name = reference.as_ref().map(|name| format!(":{name}")).unwrap_or_default();
    format!("{scheme}:{}{name}", path.display())
}

fn read_parent(reader: &mut Reader<'_>, root: &Path) -> Option<Parent> {
    let node = reader.node("from")?;
    let name = reader.name("from");
    match &node.value {
        Value::String(text) => match parse_reference(text, root) {
            Ok(source) => Some(Parent::External { reference: text.clone(), source }),
            Err(why) => {
                reader.out.problems.push(
                    error(&node.place, format!("`{text}` is not a base image: {why}"))
                        .hint("for example `docker.io/library/debian:bookworm` or `bootstrap:debian/bookworm`"),
                );
                None
            }
        },
        Value::Table(_) => reader.table_of(&name, node, |from| table(from, root)).flatten(),
        _ => {
            reader.wrong_type(&name, node, "a string or a table");
            None
        }
    }
}

fn table(reader: &mut Reader<'_>, root: &Path) -> Option<Parent> {
    let said: Vec<&str> = SCHEMES.into_iter().filter(|s| reader.has(s)).collect();
    let scheme = match said.as_slice() {
        [one] => *one,
        [] => {
            let message = "`from` says no kind of base";
            let hint = "one of `bootstrap`, `oci`, `docker-archive`, `rootfs`; an image of a registry is a string";
            reader.out.problems.push(error(reader.place, message).hint(hint));
            know_all(reader);
            return None;
        }
        [first, second, ..] => {
            let place = reader.key_place(second).unwrap_or(reader.place);
            let message = format!("`from` says two kinds of base, `{first}` and `{second}`");
            reader.out.problems.push(error(place, message).hint("keep one of them"));
            know_all(reader);
            return None;
        }
    };
    match scheme {
        "bootstrap" => bootstrap(reader, root),
        "oci" => archive(reader, "oci", root, |path, reference| BaseSource::OciLayout { path, reference }),
        "docker-archive" => {
            archive(reader, "docker-archive", root, |path, reference| BaseSource::DockerArchive { path, reference })
        }
        _ => {
            let path = reader.string("rootfs")?;
            Some(Parent::External {
                reference: format!("rootfs:{path}"),
                source: BaseSource::RootfsTar { path: root.join(&path) },
            })
        }
    }
}

/// Makes every key known that any kind has, so that only truly unknown ones are reported beside the real problem.
fn know_all(reader: &mut Reader<'_>) {
    let rest = ["ref", "suite", "mirror", "components", "keyring", "variant", "packages"];
    for key in SCHEMES.into_iter().chain(rest) {
        reader.node(key);
    }
}

fn archive(
    reader: &mut Reader<'_>,
    scheme: &'static str,
    root: &Path,
    source: impl FnOnce(std::path::PathBuf, Option<String>) -> BaseSource,
) -> Option<Parent> {
    let path = reader.string(scheme);
    let name = reader.form("ref", "a name of an image", word);
    let path = path?;
    let reference = match &name {
        Some(name) => format!("{scheme}:{path}:{name}"),
        None => format!("{scheme}:{path}"),
    };
    Some(Parent::External { reference, source: source(root.join(&path), name) })
}

fn bootstrap(reader: &mut Reader<'_>, root: &Path) -> Option<Parent> {
    let distributions = DISTRIBUTIONS.map(|d| (d, d));
    let distribution = reader.choice("bootstrap", &distributions);
    let suite = reader.form("suite", "a suite", word);
    if !reader.has_like("suite") {
        let hint = "for example `suite = \"bookworm\"`";
        reader.out.problems.push(error(reader.place, "a bootstrapped base needs a `suite`").hint(hint));
    }
    let mirror = reader.form("mirror", "the address of a mirror", |text| {
        let fine = ["http://", "https://", "file:/", "copy:/"].iter().any(|scheme| text.starts_with(scheme));
        if !fine || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err("it begins with http://, https:// or file:/ and has no blanks".into());
        }
        Ok(())
    });
    let components = reader.forms("components", "a component of an archive", |text| {
        if text.split('/').all(|part| word(part).is_ok()) { Ok(()) } else { word(text) }
    });
    let keyring = reader.string("keyring").map(|path| root.join(path));
    let variant = reader.form("variant", "a variant of mmdebstrap", |text| {
        if VARIANTS.contains(&text) {
            return Ok(());
        }
        Err(suggest::hint(text, VARIANTS).unwrap_or_default())
    });
    let packages = reader.forms("packages", "a Debian package", names::deb);
    let plain = plain(distribution?, &suite?);
    let bootstrap = Bootstrap {
        mirror,
        components,
        keyring,
        packages,
        variant: variant.unwrap_or("minbase".into()),
        ..plain.clone()
    };
    let mut reference = format!("bootstrap:{}/{}", bootstrap.distribution, bootstrap.suite);
    if bootstrap != plain {
        // Two bases of one suite that differ in the rest need two names; what is usual keeps the plain one.
        let mut hasher = KeyHasher::new("kollage bootstrap reference 1");
        hasher.part("mirror", bootstrap.mirror.as_deref().unwrap_or_default());
        hasher.part("variant", &bootstrap.variant);
        hasher
            .part("keyring", bootstrap.keyring.as_deref().map(|k| k.to_string_lossy()).unwrap_or_default().as_bytes());
        for component in &bootstrap.components {
            hasher.part("component", component);
        }
        for package in &bootstrap.packages {
            hasher.part("package", package);
        }
        reference.push('@');
        reference.push_str(&hasher.finish().as_str()[..8]);
    }
    Some(Parent::External { reference, source: BaseSource::Bootstrap(bootstrap) })
}

fn word(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("it is empty".into());
    }
    match text.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))) {
        Some(c) => Err(format!("it contains {c:?}")),
        None => Ok(()),
    }
}
