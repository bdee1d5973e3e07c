//! The forms that names have: of images, packages, users, references. Each check says what is wrong, without
//! repeating the text.

/// A component of an OCI repository's path: `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*`.
pub(crate) fn component(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("it is empty".into());
    }
    if let Some(c) = text.chars().find(|c| c.is_ascii_uppercase()) {
        return Err(format!("it has a capital letter, `{c}`"));
    }
    if let Some(c) = text.chars().find(|c| !matches!(c, 'a'..='z' | '0'..='9' | '.' | '_' | '-')) {
        return Err(format!("it contains {c:?}; only a-z, 0-9, `.`, `_` and `-` are allowed"));
    }
    if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) || !text.ends_with(|c: char| c.is_ascii_alphanumeric()) {
        return Err("it has to begin and end with a letter or digit".into());
    }
    let mut separator = String::new();
    for c in text.chars() {
        if c.is_ascii_alphanumeric() {
            if !matches!(separator.as_str(), "" | "." | "_" | "__") && !separator.chars().all(|c| c == '-') {
                return Err(format!("`{separator}` cannot stand between two words of a name"));
            }
            separator.clear();
        } else {
            separator.push(c);
        }
    }
    Ok(())
}

/// Components with `/` between them.
pub(super) fn repository(text: &str) -> Result<(), String> {
    if text.len() > 255 {
        return Err("it has more than 255 characters".into());
    }
    text.split('/').try_for_each(component)
}

/// `[registry/]path`: what comes before the names of images.
pub(super) fn namespace(text: &str) -> Result<(), String> {
    match text.split_once('/') {
        Some((host, path)) if is_host(host) => registry_host(host).and_then(|()| repository(path)),
        _ => repository(text),
    }
}

pub(super) fn tag(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("it is empty".into());
    }
    if text.len() > 128 {
        return Err("it has more than 128 characters".into());
    }
    if let Some(c) = text.chars().find(|c| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '.' | '-')) {
        return Err(format!("it contains {c:?}; only letters, digits, `_`, `.` and `-` are allowed"));
    }
    if text.starts_with(['.', '-']) {
        return Err("it has to begin with a letter, a digit or `_`".into());
    }
    Ok(())
}

/// `host[:port][/path]`
pub(super) fn registry(text: &str) -> Result<(), String> {
    if text.contains("://") {
        return Err("it is a host name without `https://` in front".into());
    }
    let (host, path) = text.split_once('/').map_or((text, None), |(h, p)| (h, Some(p)));
    registry_host(host)?;
    path.map_or(Ok(()), |p| repository(p.trim_end_matches('/')))
}

pub(super) fn registry_host(text: &str) -> Result<(), String> {
    if text.contains('/') {
        return Err("it is a host name (and a port), without a path".into());
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !text.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let plain = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let allowed = |c: char| match plain {
        Some(_) => c.is_ascii_hexdigit() || c == ':',
        None => c.is_ascii_alphanumeric() || matches!(c, '.' | '-'),
    };
    let name = plain.unwrap_or(host);
    if name.is_empty() || !name.chars().all(allowed) || name.starts_with('-') || name.ends_with('-') {
        return Err("it isn't a host name".into());
    }
    match port {
        Some(port) if port.parse::<u16>().map_or(true, |p| p == 0) => Err(format!("`{port}` isn't a port")),
        _ => Ok(()),
    }
}

/// `[registry/]repository[:tag][@sha256:…]`, Docker's short forms allowed.
pub(crate) fn reference(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("it is empty".into());
    }
    if text.contains("://") {
        return Err("it is written without `https://` or `docker://` in front".into());
    }
    let (name, digest) = text.split_once('@').map_or((text, None), |(n, d)| (n, Some(d)));
    if let Some(digest) = digest {
        let hex = digest.strip_prefix("sha256:").ok_or("its digest has to begin with `sha256:`")?;
        sha256(hex).map_err(|e| format!("its digest is wrong: {e}"))?;
    }
    let path_at = name.find('/').map_or(0, |i| if is_host(&name[..i]) { i + 1 } else { 0 });
    if path_at > 0 {
        registry_host(&name[..path_at - 1])?;
    }
    let path = &name[path_at..];
    let (path, tag_text) = path.rsplit_once(':').map_or((path, None), |(p, t)| (p, Some(t)));
    repository(path)?;
    tag_text.map_or(Ok(()), |t| tag(t).map_err(|e| format!("its tag is wrong: {e}")))
}

/// Docker's rule: what is before the first slash is a host when it has a dot or a port, or is localhost.
pub(super) fn is_host(first: &str) -> bool {
    first.contains(['.', ':']) || first == "localhost"
}

/// The registry of a reference: `docker.io` when it names none.
pub fn registry_of(reference: &str) -> &str {
    match reference.split_once('/') {
        Some((first, _)) if is_host(first) => first,
        _ => "docker.io",
    }
}

pub(super) fn sha256(text: &str) -> Result<(), String> {
    if text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return Ok(());
    }
    let count = text.chars().count();
    match text.chars().find(|c| !matches!(c, '0'..='9' | 'a'..='f')) {
        Some(c) => Err(format!("a sha256 has the digits 0-9 and a-f, not {c:?}")),
        None => Err(format!("a sha256 has 64 digits, not {count}")),
    }
}

/// As useradd takes it.
pub(crate) fn user(text: &str) -> Result<(), String> {
    let mut chars = text.chars();
    match chars.next() {
        None => return Err("it is empty".into()),
        Some('a'..='z' | '_') => {}
        Some(c) => return Err(format!("it begins with {c:?}; a-z or `_` is allowed there")),
    }
    if let Some(c) = chars.find(|c| !matches!(c, 'a'..='z' | '0'..='9' | '_' | '-')) {
        return Err(format!("it contains {c:?}; only a-z, 0-9, `_` and `-` are allowed"));
    }
    if text.len() > 32 {
        return Err("it has more than 32 characters".into());
    }
    Ok(())
}

/// What the distribution's own program installs.
pub(crate) fn package(kind: super::PackageType, text: &str) -> Result<(), String> {
    match kind {
        super::PackageType::Deb => deb(text),
        super::PackageType::Rpm => rpm(text),
    }
}

/// What apt-get install takes: `name`, `name:arch`, `name=version`, `name/suite`.
pub(super) fn deb(text: &str) -> Result<(), String> {
    let end = text.find([':', '=', '/']).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    if name.len() < 2 {
        return Err("a package name has at least two characters".into());
    }
    if let Some(c) = name.chars().find(|c| !matches!(c, 'a'..='z' | '0'..='9' | '+' | '-' | '.')) {
        return Err(format!("it contains {c:?}; a Debian package has a-z, 0-9, `+`, `-` and `.`"));
    }
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Err("it has to begin with a letter or digit".into());
    }
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.' | '~' | ':' | '=' | '/' | '*');
    match rest.chars().find(|c| !fine(*c)) {
        Some(c) => Err(format!("it contains {c:?} after the name")),
        None if rest.len() == 1 => Err(format!("nothing stands after `{rest}`")),
        None => Ok(()),
    }
}

/// What dnf install takes by name: `name`, `name-version`, `name.arch`, `@group`, `pkgconfig(x)`.
pub(super) fn rpm(text: &str) -> Result<(), String> {
    let name = text.strip_prefix('@').unwrap_or(text);
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
        return Err("it has to begin with a letter or digit".into());
    }
    let fine = |c: char| c.is_ascii_alphanumeric() || "._+-:~^()*/".contains(c);
    match name.chars().find(|c| !fine(*c)) {
        Some(c) => Err(format!("it contains {c:?}, which no package name has")),
        None => Ok(()),
    }
}

/// What pip takes: a name, extras, and version specifiers. No URLs, no options.
pub(super) fn requirement(text: &str) -> Result<(), String> {
    let Requirement { name, extras, specifiers } = Requirement::split(text);
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) || !name.ends_with(|c: char| c.is_ascii_alphanumeric()) {
        return Err("it has to begin with the name of a distribution on PyPI".into());
    }
    if let Some(extras) = extras.strip_prefix('[') {
        let extras = extras.strip_suffix(']').ok_or("`[` is never closed")?;
        let fine = |e: &str| !e.is_empty() && e.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
        if !extras.split(',').map(str::trim).all(fine) {
            return Err(format!("`[{extras}]` isn't a list of extras"));
        }
    }
    if specifiers.is_empty() {
        return Ok(());
    }
    for specifier in specifiers.split(',').map(str::trim) {
        let version = ["===", "==", "~=", "!=", "<=", ">=", "<", ">"].iter().find_map(|op| specifier.strip_prefix(op));
        let version = version.ok_or_else(|| format!("`{specifier}` isn't a version specifier, such as `>=1.0`"))?;
        let version = version.trim();
        if version.is_empty() || !version.chars().all(|c| c.is_ascii_alphanumeric() || ".*+!_-".contains(c)) {
            return Err(format!("`{version}` isn't a version"));
        }
    }
    Ok(())
}

/// `keystone[ldap]>=30`, taken apart and not judged.
pub(super) struct Requirement<'a> {
    pub name: &'a str,
    /// With their brackets.
    pub extras: &'a str,
    pub specifiers: &'a str,
}

impl<'a> Requirement<'a> {
    pub fn split(text: &'a str) -> Self {
        let name_end = text.find(|c: char| !(c.is_ascii_alphanumeric() || "._-".contains(c))).unwrap_or(text.len());
        let (name, rest) = text.split_at(name_end);
        let extras_end = if rest.starts_with('[') { rest.find(']').map_or(rest.len(), |at| at + 1) } else { 0 };
        let (extras, specifiers) = rest.split_at(extras_end);
        Requirement { name, extras, specifiers: specifiers.trim() }
    }

    /// The version behind `==`.
    pub fn exact(&self) -> Option<&'a str> {
        let version = self.specifiers.strip_prefix("===").or_else(|| self.specifiers.strip_prefix("=="))?;
        Some(version.trim())
    }
}

/// The name of a distribution as PyPI compares it: `Oslo.DB` and `oslo-db` are one.
pub(crate) fn normalised(name: &str) -> String {
    let parts = name.split(['-', '_', '.']).filter(|part| !part.is_empty());
    parts.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
}

/// A package by its name alone.
pub(super) fn deb_name(text: &str) -> Result<(), String> {
    match text.find([':', '=', '/']) {
        Some(at) => Err(format!("it is a name, without `{}`", &text[at..])),
        None => deb(text),
    }
}

pub(crate) fn env(text: &str) -> Result<(), String> {
    if text.starts_with(|c: char| c.is_ascii_digit()) || text.is_empty() {
        return Err("it has to begin with a letter or `_`".into());
    }
    match text.chars().find(|c| !(c.is_ascii_alphanumeric() || *c == '_')) {
        Some(c) => Err(format!("it contains {c:?}; only letters, digits and `_` are allowed")),
        None => Ok(()),
    }
}

/// As EXPOSE has it: `80`, `53/udp`, `8000-8010`.
pub(super) fn port(text: &str) -> Result<(), String> {
    let (numbers, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    if !matches!(protocol, "tcp" | "udp" | "sctp") {
        return Err(format!("its protocol is `{protocol}`, not tcp, udp or sctp"));
    }
    let (first, last) = numbers.split_once('-').unwrap_or((numbers, numbers));
    match (first.parse::<u16>(), last.parse::<u16>()) {
        (Ok(a), Ok(b)) if a > 0 && a <= b => Ok(()),
        _ => Err("a port is a number from 1 to 65535, or a range of them".into()),
    }
}

pub(crate) fn absolute(text: &str) -> Result<(), String> {
    if !text.starts_with('/') {
        return Err("it has to begin with `/`".into());
    }
    if text.split('/').any(|part| part == "..") || text.chars().any(char::is_control) {
        return Err("it isn't a plain absolute path".into());
    }
    Ok(())
}

/// A path that stays where it begins: relative, without `..`.
pub(crate) fn inside(text: &str) -> Result<(), String> {
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err("it isn't a path".into());
    }
    if text.starts_with('/') || text.split('/').any(|part| part == "..") {
        return Err("it leads out of the definition's own folder".into());
    }
    Ok(())
}

/// A capability of the kernel, without `CAP_`.
pub(crate) fn capability(text: &str) -> Result<(), String> {
    if text.starts_with("CAP_") {
        return Err("it is written without `CAP_`".into());
    }
    match !text.is_empty() && text.chars().all(|c| c.is_ascii_uppercase() || c == '_') {
        true => Ok(()),
        false => Err("it is written like NET_ADMIN".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn components() {
        for good in ["a", "neutron-l3-agent", "a.b", "a__b", "a---b", "0"] {
            component(good).unwrap_or_else(|e| panic!("{good}: {e}"));
        }
        for bad in ["", "A", "-a", "a-", "a..b", "a___b", "a.-b", "ä", "a/b"] {
            assert!(component(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn namespaces() {
        for good in
            ["kolla", "a/b", "registry.example.org/kolla", "127.0.0.1:5000/kolla", "[::1]:5000/a/b", "localhost/a"]
        {
            namespace(good).unwrap_or_else(|e| panic!("{good}: {e}"));
        }
        for bad in ["", "Kolla", "kolla:5000", "r.org:0/a", "r.org:5000/", "r.org/A", "kolla/r.org:5000"] {
            assert!(namespace(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn references() {
        for good in [
            "debian",
            "debian:bookworm",
            "docker.io/library/debian:bookworm",
            "localhost:5000/a/b:c",
            "registry.example.org/a@sha256:0000000000000000000000000000000000000000000000000000000000000000",
            "[::1]:5000/a",
        ] {
            reference(good).unwrap_or_else(|e| panic!("{good}: {e}"));
        }
        for bad in
            ["", "Debian", "debian:", "debian:a b", "docker://debian", "debian@sha256:12", "a//b", "debian@md5:1"]
        {
            assert!(reference(bad).is_err(), "{bad}");
        }
        assert_eq!(registry_of("debian:bookworm"), "docker.io");
        assert_eq!(registry_of("kolla/base"), "docker.io");
        assert_eq!(registry_of("localhost:5000/a"), "localhost:5000");
    }

    #[test]
    fn packages_and_requirements() {
        for good in ["libldap2", "g++", "libc6:amd64", "nginx=1.22.1-9", "curl/bookworm-backports", "python3.11"] {
            deb(good).unwrap_or_else(|e| panic!("{good}: {e}"));
        }
        for bad in ["", "a", "Foo", "lib_x", "lib x", "curl=", "--allow-x", "curl;id"] {
            assert!(deb(bad).is_err(), "{bad}");
        }
        for good in ["openldap", "cyrus-sasl-lib", "@core", "pkgconfig(x)", "MySQL-python"] {
            rpm(good).unwrap_or_else(|e| panic!("{good}: {e}"));
        }
        for bad in ["", "-x", "a b", "a;b"] {
            assert!(rpm(bad).is_err(), "{bad}");
        }
        for good in ["keystone", "keystone[ldap]", "keystone[ldap,memcache]==29.0.0", "a>=1,<2", "x ~= 1.0"] {
            requirement(good).unwrap_or_else(|e| panic!("{good}: {e}"));
        }
        for bad in ["", "-r file", "keystone[", "keystone[]", "a==", "a=1", "https://x", "a; x", "a b"] {
            assert!(requirement(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_rest() {
        assert!(user("keystone").is_ok() && user("Keystone").is_err() && user("").is_err() && user("a:b").is_err());
        assert!(port("53/udp").is_ok() && port("8000-8010").is_ok() && port("0").is_err() && port("90-80").is_err());
        assert!(registry("registry.example.org:5000/team").is_ok() && registry("https://x").is_err());
        assert!(tag("2026.1-debian-bookworm").is_ok() && tag("-a").is_err() && tag("a/b").is_err());
        assert!(inside("a/b").is_ok() && inside("../a").is_err() && inside("/a").is_err());
        assert!(absolute("/var/lib/x").is_ok() && absolute("var").is_err() && absolute("/a/../b").is_err());
        assert!(env("PATH_2").is_ok() && env("2P").is_err() && env("A-B").is_err());
    }

    proptest! {
        #[test]
        fn no_check_panics(text in "\\PC{0,20}|[a-z/:@\\[\\]=.-]{0,20}") {
            for check in [component, repository, tag, registry, reference, sha256, user, deb, rpm, requirement, env, port, absolute, inside] {
                let _ = check(&text);
            }
            registry_of(&text);
        }
    }
}
