//! Names of images as people write them: `debian:bookworm`, `registry.example.org:5000/kollage/keystone@sha256:…`.
//!
//! Docker's rules: a first component that has a dot, a colon or an upper-case letter, or is `localhost`, is a registry;
//! everything else lives on Docker Hub, and a name of one component there is in `library/`.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;
use crate::image::digest::Digest;

const DOCKER_HUB: &str = "docker.io";
const MAX_NAME: usize = 255;
pub const MAX_TAG: usize = 128;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl Reference {
    /// `docker.io`, `registry.example.org:5000`; see [`Reference::host`] for where it is reached.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// `library/debian`
    pub fn repository(&self) -> &str {
        &self.repository
    }

    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// The tag, `latest` where none was written and there is no digest either.
    pub fn tag_or_latest(&self) -> Option<&str> {
        match (&self.tag, &self.digest) {
            (Some(tag), _) => Some(tag),
            (None, None) => Some("latest"),
            (None, Some(_)) => None,
        }
    }

    /// Host and port that answer for this registry: Docker Hub's API has a host of its own.
    pub fn host(&self) -> &str {
        if self.registry == DOCKER_HUB { "registry-1.docker.io" } else { &self.registry }
    }

    /// What identifies the manifest in a request; the digest is the stricter of the two.
    pub fn manifest_id(&self) -> String {
        match &self.digest {
            Some(digest) => digest.to_string(),
            None => self.tag.clone().unwrap_or_else(|| "latest".to_owned()),
        }
    }

    /// Whether a name says which registry it belongs to.
    pub fn names_registry(text: &str) -> bool {
        text.split_once('/').is_some_and(|(first, _)| is_registry(first))
    }

    /// The shortest form that means the same: `debian:bookworm`.
    pub fn familiar(&self) -> String {
        let path = match self.repository.strip_prefix("library/") {
            Some(name) if !name.contains('/') => name,
            _ => &self.repository,
        };
        // `docker.io/a.b/c` without its registry would be `c` on the host a.b.
        let ambiguous = path.split_once('/').is_some_and(|(first, _)| is_registry(first));
        if self.registry == DOCKER_HUB && !ambiguous { self.with_suffix(path.to_owned()) } else { self.to_string() }
    }

    /// With the tag `latest` written out where nothing else was said, as archives need it.
    pub fn with_default_tag(mut self) -> Self {
        self.tag = self.tag_or_latest().map(str::to_owned);
        self
    }

    fn with_suffix(&self, mut name: String) -> String {
        if let Some(tag) = &self.tag {
            name.push(':');
            name.push_str(tag);
        }
        if let Some(digest) = &self.digest {
            name.push('@');
            name.push_str(&digest.to_string());
        }
        name
    }
}

impl fmt::Display for Reference {
    /// The full form: `docker.io/library/debian:bookworm`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.with_suffix(format!("{}/{}", self.registry, self.repository)))
    }
}

impl FromStr for Reference {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        parse(text).map_err(|why| {
            Error::bad_input(format!("`{text}` is not the name of an image"))
                .cause(why)
                .hint("write it as [registry[:port]/]name[:tag][@sha256:…]")
        })
    }
}

fn parse(text: &str) -> Result<Reference, String> {
    let (rest, digest) = match text.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest.parse::<Digest>()?)),
        None => (text, None),
    };
    // A colon after the last slash starts the tag; any other belongs to the registry's port.
    let name_start = rest.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match rest[name_start..].find(':') {
        Some(colon) => (&rest[..name_start + colon], Some(&rest[name_start + colon + 1..])),
        None => (rest, None),
    };
    if let Some(tag) = tag {
        check_tag(tag)?;
    }
    let (registry, path) = match name.split_once('/') {
        Some((first, path)) if is_registry(first) => (first, path),
        _ => (DOCKER_HUB, name),
    };
    check_registry(registry)?;
    check_path(path)?;
    let registry = if registry == "index.docker.io" { DOCKER_HUB } else { registry };
    let repository =
        if registry == DOCKER_HUB && !path.contains('/') { format!("library/{path}") } else { path.to_owned() };
    if registry.len() + 1 + repository.len() > MAX_NAME {
        return Err(format!("the name is longer than {MAX_NAME} characters"));
    }
    Ok(Reference { registry: registry.to_owned(), repository, tag: tag.map(str::to_owned), digest })
}

fn is_registry(first: &str) -> bool {
    first == "localhost" || first.contains(['.', ':']) || first.chars().any(|c| c.is_ascii_uppercase())
}

fn check_registry(registry: &str) -> Result<(), String> {
    let (host, port) = match registry.strip_prefix('[') {
        Some(v6) => {
            let (address, rest) = v6.split_once(']').ok_or_else(|| format!("`{registry}` lacks a `]`"))?;
            address.parse::<std::net::Ipv6Addr>().map_err(|_| format!("`{address}` is not an IPv6 address"))?;
            match rest {
                "" => return Ok(()),
                rest => (None, Some(rest.strip_prefix(':').ok_or_else(|| format!("`{registry}` is not a host"))?)),
            }
        }
        None => match registry.split_once(':') {
            Some((host, port)) => (Some(host), Some(port)),
            None => (Some(registry), None),
        },
    };
    let label = |l: &str| {
        !l.is_empty()
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !l.starts_with('-')
            && !l.ends_with('-')
    };
    if host.is_some_and(|host| !host.split('.').all(label)) {
        return Err(format!("`{registry}` is not the host of a registry"));
    }
    match port {
        Some(port) if port.parse::<u16>().is_err() || port.starts_with('+') => Err(format!("`{port}` is not a port")),
        _ => Ok(()),
    }
}

fn check_tag(tag: &str) -> Result<(), String> {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    match tag.bytes().next() {
        None => Err("the tag after `:` is empty".into()),
        Some(first) if !word(first) => Err(format!("the tag `{tag}` starts with `{}`", char::from(first))),
        _ if tag.len() > MAX_TAG => Err(format!("the tag is longer than {MAX_TAG} characters")),
        _ => match tag.chars().find(|&c| !(c.is_ascii() && (word(c as u8) || c == '.' || c == '-'))) {
            Some(c) => Err(format!("`{c}` cannot stand in a tag")),
            None => Ok(()),
        },
    }
}

/// Components of lower-case letters and digits, joined inside by `.`, `_`, `__` or dashes.
fn check_path(path: &str) -> Result<(), String> {
    if path.is_empty() {
        return Err("the name is empty".into());
    }
    // It would be taken for the identifier of an image.
    if path.len() == 64 && path.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return Err("a name of 64 hexadecimal digits is an identifier".into());
    }
    for component in path.split('/') {
        if let Some(c) = component.chars().find(|c| c.is_uppercase()) {
            return Err(format!("`{c}` in `{component}`: names are lower case"));
        }
        if !is_component(component) {
            return Err(format!("`{component}` cannot be a part of a name"));
        }
    }
    Ok(())
}

fn is_component(component: &str) -> bool {
    let bytes = component.as_bytes();
    let alnum = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let ends = |b: Option<&u8>| b.is_some_and(|&b| alnum(b));
    if !ends(bytes.first()) || !ends(bytes.last()) {
        return false;
    }
    bytes
        .split(|&b| alnum(b))
        .all(|separator| matches!(separator, b"" | b"." | b"_" | b"__") || separator.iter().all(|&b| b == b'-'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn full(text: &str) -> String {
        text.parse::<Reference>().map_or_else(|e| format!("error: {e}"), |r| r.to_string())
    }

    #[test]
    fn short_forms_are_dockers() {
        for (short, long) in [
            ("debian", "docker.io/library/debian"),
            ("debian:bookworm", "docker.io/library/debian:bookworm"),
            ("kollage/keystone:1", "docker.io/kollage/keystone:1"),
            ("index.docker.io/debian", "docker.io/library/debian"),
            ("docker.io/debian", "docker.io/library/debian"),
            ("localhost/debian", "localhost/debian"),
            ("localhost:5000/debian:1", "localhost:5000/debian:1"),
            ("[::1]:5000/a/b:t", "[::1]:5000/a/b:t"),
            ("Registry/a", "Registry/a"),
            ("r.example.org/a/b__c/d-e.f:T_1.2-3", "r.example.org/a/b__c/d-e.f:T_1.2-3"),
        ] {
            assert_eq!(full(short), long);
        }
        assert_eq!(full(&format!("debian@{DIGEST}")), format!("docker.io/library/debian@{DIGEST}"));
        assert_eq!(full(&format!("a.b/c:t@{DIGEST}")), format!("a.b/c:t@{DIGEST}"));
    }

    #[test]
    fn what_a_request_needs() {
        let hub: Reference = "debian".parse().unwrap();
        assert_eq!(
            (hub.host(), hub.repository(), &*hub.manifest_id()),
            ("registry-1.docker.io", "library/debian", "latest")
        );
        let pinned: Reference = format!("h:1/a:t@{DIGEST}").parse().unwrap();
        assert_eq!((pinned.host(), &*pinned.manifest_id()), ("h:1", DIGEST));
        assert_eq!(pinned.clone().with_default_tag(), pinned);
        assert_eq!(hub.with_default_tag().to_string(), "docker.io/library/debian:latest");
    }

    #[test]
    fn refused() {
        for text in [
            "",
            ":",
            "a:",
            "a@",
            "A",
            "a/B",
            "a//b",
            "/a",
            "a/",
            "a:b:c",
            "a_",
            "a..b",
            "a___b",
            "-a",
            "a:-t",
            "a:ü",
            "ü",
            "h:99999/a",
            "h:x/a",
            "[::1/a",
            "[x]/a",
            "-h.org/a",
            "a@sha256:12",
            "a b",
            "a.org/",
            "a:t\n",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        ] {
            assert!(full(text).starts_with("error: "), "{text:?} gave {}", full(text));
        }
        let error = "kollage/Keystone".parse::<Reference>().unwrap_err();
        insta::assert_snapshot!(error, @"`kollage/Keystone` is not the name of an image: `K` in `Keystone`: names are lower case");
    }

    proptest! {
        #[test]
        fn both_forms_mean_the_same(
            registry in proptest::option::of("([a-z][a-z0-9]{0,8}\\.[a-z]{2,3}|localhost)(:[1-9][0-9]{0,3})?"),
            path in "[a-z0-9]{1,6}([._-][a-z0-9]{1,4})?(/[a-z0-9]{1,6}){0,2}",
            tag in proptest::option::of("[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}"),
            pinned in any::<bool>(),
        ) {
            let mut text = registry.map(|r| r + "/").unwrap_or_default() + &path;
            if let Some(tag) = &tag {
                text += &format!(":{tag}");
            }
            if pinned {
                text += &format!("@{DIGEST}");
            }
            // `a.b/c` without a registry in front is one.
            let reference: Reference = text.parse().unwrap();
            prop_assert_eq!(&reference.to_string().parse::<Reference>().unwrap(), &reference);
            prop_assert_eq!(&reference.familiar().parse::<Reference>().unwrap(), &reference);
            prop_assert_eq!(reference.tag(), tag.as_deref());
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            let _ = text.parse::<Reference>();
        }
    }
}
