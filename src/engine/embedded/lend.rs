//! What the host lends to a RUN step and takes back: its CA bundle and its proxy. Neither ever gets into a layer, a
//! configuration, a key or a log.

use std::path::{Path, PathBuf};

use crate::error::{Context as _, Result};

/// The directory of what is there for a step of the embedded engine alone.
pub const DIRECTORY: &str = "/run/kollage";

/// Where a step sees the bundle, and the configuration that makes apt use it.
pub struct Places {
    pub bundle: &'static str,
    pub apt_config: &'static str,
}

/// In the embedded engine.
pub const PLACES: Places = Places { bundle: "/run/kollage/ca-certificates.crt", apt_config: "/run/kollage/apt.conf" };

/// The variables by which programs are told of a CA bundle.
const BUNDLE_VARIABLES: [&str; 6] =
    ["SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS"];

/// Docker's predefined build arguments, which are no part of a key either.
pub const PROXY_VARIABLES: [&str; 10] = [
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "FTP_PROXY",
    "ftp_proxy",
    "NO_PROXY",
    "no_proxy",
    "ALL_PROXY",
    "all_proxy",
];

/// What a run lends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lending {
    pub ca_bundle: Option<PathBuf>,
    /// Names out of [`PROXY_VARIABLES`] with their values.
    pub proxy: Vec<(String, String)>,
    /// apt, where it is, downloads as root: with a single id there is no other user that it could become.
    pub apt_as_root: bool,
}

impl Lending {
    /// Variables to be added to a step's own; what the step has set itself stays.
    pub fn variables(&self, own: &[(String, String)], places: &Places) -> Vec<(String, String)> {
        let is_set = |name: &str| own.iter().any(|(n, _)| n == name);
        let mut out = Vec::new();
        if self.ca_bundle.is_some() {
            out.extend(BUNDLE_VARIABLES.map(|name| (name.to_owned(), places.bundle.to_owned())));
        }
        if self.apt_config(places).is_some() {
            out.push(("APT_CONFIG".to_owned(), places.apt_config.to_owned()));
        }
        out.extend(self.proxy.iter().filter(|(name, _)| PROXY_VARIABLES.contains(&name.as_str())).cloned());
        out.retain(|(name, _)| !is_set(name));
        out
    }

    /// The text of apt's configuration, where there is anything to tell apt.
    pub fn apt_config(&self, places: &Places) -> Option<String> {
        let mut text = String::new();
        if self.ca_bundle.is_some() {
            text.push_str(&format!("Acquire::https::CaInfo \"{}\";\n", places.bundle));
        }
        if self.apt_as_root {
            text.push_str("APT::Sandbox::User \"root\";\n");
        }
        Some(text).filter(|text| !text.is_empty())
    }

    pub fn is_empty(&self) -> bool {
        self.ca_bundle.is_none() && self.proxy.is_empty()
    }

    /// Passwords within the proxies' addresses, which no output may show.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        self.proxy.iter().filter_map(|(_, value)| {
            let authority = value.split_once("://").map_or(value.as_str(), |(_, rest)| rest);
            let (user, _) = authority.rsplit_once('@')?;
            user.split_once(':').map(|(_, password)| password)
        })
    }
}

/// Where a machine keeps its certificates; in tests somewhere else.
#[derive(Clone, Debug)]
pub struct TrustPaths {
    /// The bundle that ca-certificates makes.
    pub bundle: PathBuf,
    /// The list of what ca-certificates itself puts into it, and where the files are that it names.
    pub list: PathBuf,
    pub shipped: PathBuf,
    /// Certificates that an administrator added.
    pub local: PathBuf,
}

impl Default for TrustPaths {
    fn default() -> Self {
        TrustPaths {
            bundle: "/etc/ssl/certs/ca-certificates.crt".into(),
            list: "/etc/ca-certificates.conf".into(),
            shipped: "/usr/share/ca-certificates".into(),
            local: "/usr/local/share/ca-certificates".into(),
        }
    }
}

/// The host's bundle when it trusts more than its distribution does: then a step needs it to get through. None
/// otherwise: an image's own bundle is as good.
pub fn extra_authorities(paths: &TrustPaths) -> Result<Option<PathBuf>> {
    let bundle = match std::fs::read_to_string(&paths.bundle) {
        Ok(bundle) => bundle,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => {
            return Err(e).unusable(|| format!("cannot read the CA bundle `{}`", paths.bundle.display()));
        }
    };
    let found = certificates(&bundle);
    let added = has_certificates(&paths.local);
    // A machine without ca-certificates has no list to compare with, and its bundle is as its maker wanted it.
    let Ok(list) = std::fs::read_to_string(&paths.list) else {
        return Ok((added && found > 0).then(|| paths.bundle.clone()));
    };
    let expected: usize = list
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty() && !l.starts_with(['#', '!']))
        .filter_map(|name| std::fs::read_to_string(paths.shipped.join(name)).ok())
        .map(|text| certificates(&text))
        .sum();
    Ok((found > expected || (added && found > 0)).then(|| paths.bundle.clone()))
}

fn certificates(pem: &str) -> usize {
    pem.matches("-----BEGIN CERTIFICATE-----").count() + pem.matches("-----BEGIN TRUSTED CERTIFICATE-----").count()
}

fn has_certificates(dir: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(dir) else { return false };
    entries.flatten().any(|entry| {
        let path = entry.path();
        // update-ca-certificates takes files that end in .crt, in directories of one level, too.
        path.extension().is_some_and(|e| e == "crt") || (path.is_dir() && has_certificates(&path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEM: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

    fn machine(bundled: usize, local: bool) -> (tempfile::TempDir, TrustPaths) {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let paths = TrustPaths { bundle: at("bundle"), list: at("list"), shipped: at("shipped"), local: at("local") };
        std::fs::create_dir_all(paths.shipped.join("mozilla")).unwrap();
        std::fs::create_dir_all(&paths.local).unwrap();
        std::fs::write(paths.shipped.join("mozilla/a.crt"), PEM).unwrap();
        std::fs::write(paths.shipped.join("mozilla/b.crt"), PEM).unwrap();
        std::fs::write(&paths.list, "# comment\nmozilla/a.crt\nmozilla/b.crt\n!mozilla/off.crt\n").unwrap();
        std::fs::write(&paths.bundle, PEM.repeat(bundled)).unwrap();
        if local {
            std::fs::write(paths.local.join("corporate.crt"), PEM).unwrap();
        }
        (dir, paths)
    }

    #[test]
    fn a_bundle_is_lent_when_the_host_trusts_more() {
        for (bundled, local, lent) in [(2, false, false), (1, false, false), (3, false, true), (2, true, true)] {
            let (_dir, paths) = machine(bundled, local);
            let expected = lent.then(|| paths.bundle.clone());
            assert_eq!(extra_authorities(&paths).unwrap(), expected, "{bundled} certificates, local: {local}");
        }
        let (_dir, mut paths) = machine(3, true);
        paths.bundle = "/nowhere/at/all".into();
        assert_eq!(extra_authorities(&paths).unwrap(), None);
    }

    #[test]
    fn a_steps_own_variables_stay() {
        let lending = Lending {
            ca_bundle: Some("/bundle".into()),
            proxy: vec![
                ("http_proxy".into(), "http://user:secret@proxy:3128".into()),
                ("LD_PRELOAD".into(), "evil".into()),
            ],
            apt_as_root: false,
        };
        let own = [("PIP_CERT".to_owned(), "/mine".to_owned()), ("http_proxy".to_owned(), String::new())];
        let variables = lending.variables(&own, &PLACES);
        let names: Vec<&str> = variables.iter().map(|(n, _)| n.as_str()).collect();
        assert!(names.contains(&"SSL_CERT_FILE") && names.contains(&"APT_CONFIG"));
        assert!(!names.contains(&"PIP_CERT") && !names.contains(&"http_proxy") && !names.contains(&"LD_PRELOAD"));
        assert_eq!(lending.secrets().collect::<Vec<_>>(), ["secret"]);

        assert_eq!(Lending::default().apt_config(&PLACES), None);
        let single = Lending { apt_as_root: true, ..Lending::default() };
        assert_eq!(single.variables(&[], &PLACES), [("APT_CONFIG".to_owned(), PLACES.apt_config.to_owned())]);
        assert_eq!(single.apt_config(&PLACES).unwrap(), "APT::Sandbox::User \"root\";\n");
        let both = Lending { apt_as_root: true, ..lending };
        assert_eq!(both.apt_config(&PLACES).unwrap().lines().count(), 2);
    }
}
