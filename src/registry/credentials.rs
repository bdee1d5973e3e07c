//! Logins from files that `podman login` and `docker login` write: `auth.json`, `config.json`.
//!
//! The caller says which files. Credential helpers are programs and not run here; where a file names one for a
//! registry, the error that follows says so.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use serde::Deserialize;

use crate::error::{Context as _, Error, Result};
use crate::image::reference::Reference;

#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    pub username: String,
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("username", &self.username).finish_non_exhaustive()
    }
}

/// Files with logins, the first one that knows a registry wins.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    files: Vec<AuthFile>,
}

#[derive(Clone, Debug)]
struct AuthFile {
    path: PathBuf,
    /// By registry, or registry and the start of a repository's path.
    entries: BTreeMap<String, Entry>,
    default_helper: Option<String>,
}

#[derive(Clone, Debug)]
enum Entry {
    Login(Login),
    Helper(String),
    /// An OAuth refresh token, from registries that give no password away.
    IdentityToken,
}

/// What is known about a registry.
#[derive(Clone, Debug)]
pub enum Lookup {
    Login(Login),
    Nothing,
    /// There is something that cannot be used, in words for a hint.
    Unusable(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawFile {
    #[serde(default)]
    auths: BTreeMap<String, RawEntry>,
    #[serde(default)]
    cred_helpers: BTreeMap<String, String>,
    #[serde(default)]
    creds_store: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
struct RawEntry {
    #[serde(default)]
    auth: String,
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    identitytoken: String,
}

impl Credentials {
    /// Files that do not exist are left out.
    pub fn load<P: AsRef<Path>>(paths: &[P]) -> Result<Credentials> {
        let mut files = Vec::new();
        for path in paths {
            let path = path.as_ref();
            match std::fs::read(path) {
                Ok(bytes) => files.push(AuthFile::parse(path, &bytes)?),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => return Err(Error::unusable(format!("{} cannot be read", path.display())).cause(e)),
            }
        }
        Ok(Credentials { files })
    }

    pub fn lookup(&self, reference: &Reference) -> Lookup {
        for file in &self.files {
            for key in keys(reference) {
                let (name, path) = (&key, file.path.display());
                match file.entries.get(&key) {
                    Some(Entry::Login(login)) => return Lookup::Login(login.clone()),
                    Some(Entry::Helper(helper)) => {
                        return Lookup::Unusable(format!(
                            "{path} leaves {name} to the credential helper `{helper}`, which this version does not \
                             ask; `podman login {name}` writes a login that it can use"
                        ));
                    }
                    Some(Entry::IdentityToken) => {
                        return Lookup::Unusable(format!(
                            "{path} has an identity token for {name}, which this version cannot use; log in with a \
                             password or an access token"
                        ));
                    }
                    None => {}
                }
            }
            if let Some(helper) = &file.default_helper {
                return Lookup::Unusable(format!(
                    "{} leaves every login to the credential helper `{helper}`, which this version does not ask; \
                     `podman login {}` writes a login that it can use",
                    file.path.display(),
                    reference.registry()
                ));
            }
        }
        Lookup::Nothing
    }

    /// The files that were read, for a hint.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|file| &*file.path)
    }
}

/// From the most specific to the registry alone.
fn keys(reference: &Reference) -> impl Iterator<Item = String> {
    let whole = format!("{}/{}", reference.registry(), reference.repository());
    std::iter::successors(Some(whole), |key| key.rfind('/').map(|slash| key[..slash].to_owned()))
}

impl AuthFile {
    fn parse(path: &Path, bytes: &[u8]) -> Result<AuthFile> {
        // What cannot be understood may be a secret: the cause says where, never what.
        let raw: RawFile = serde_json::from_slice(bytes).map_err(|e| {
            Error::bad_input(format!("{} is not a file of logins", path.display()))
                .cause(format!("line {}, column {}", e.line(), e.column()))
                .hint("it should be as `podman login` writes it")
        })?;
        let mut entries = BTreeMap::new();
        for (name, helper) in raw.cred_helpers {
            entries.insert(normalise(&name), Entry::Helper(helper));
        }
        for (name, entry) in raw.auths {
            if let Some(entry) = entry.understand(&name, path)? {
                entries.insert(normalise(&name), entry);
            }
        }
        Ok(AuthFile { path: path.to_path_buf(), entries, default_helper: raw.creds_store.filter(|s| !s.is_empty()) })
    }
}

impl RawEntry {
    fn understand(self, name: &str, path: &Path) -> Result<Option<Entry>> {
        if !self.identitytoken.is_empty() {
            return Ok(Some(Entry::IdentityToken));
        }
        if !self.auth.is_empty() {
            let pair = base64::engine::general_purpose::STANDARD
                .decode(self.auth.trim())
                .ok()
                .and_then(|bytes| String::from_utf8(bytes).ok())
                .ok_or("it is not base64 of text");
            let login = pair.and_then(|pair| {
                let (username, password) = pair.split_once(':').ok_or("it has no colon after the user")?;
                // Docker pads it.
                let password = password.trim_end_matches('\0').to_owned();
                Ok(Login { username: username.to_owned(), password })
            });
            return login
                .map(|login| Some(Entry::Login(login)))
                .bad_input(|| format!("the login for {name} in {} cannot be understood", path.display()));
        }
        if self.username.is_empty() {
            // What Docker leaves behind where a helper keeps the login.
            return Ok(None);
        }
        Ok(Some(Entry::Login(Login { username: self.username, password: self.password })))
    }
}

/// Old files say `https://index.docker.io/v1/` for what is called docker.io everywhere else.
fn normalise(name: &str) -> String {
    let name = name.strip_prefix("https://").or_else(|| name.strip_prefix("http://")).unwrap_or(name);
    let name = name.trim_end_matches('/');
    let name = name.strip_suffix("/v1").or_else(|| name.strip_suffix("/v2")).unwrap_or(name);
    match name.split_once('/') {
        Some((host, path)) => format!("{}/{path}", registry(host)),
        None => registry(name).to_owned(),
    }
}

fn registry(host: &str) -> &str {
    if matches!(host, "index.docker.io" | "registry-1.docker.io") { "docker.io" } else { host }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Result<Credentials> {
        Ok(Credentials { files: vec![AuthFile::parse(Path::new("auth.json"), text.as_bytes())?] })
    }

    fn user(credentials: &Credentials, reference: &str) -> String {
        match credentials.lookup(&reference.parse().unwrap()) {
            Lookup::Login(login) => format!("{}:{}", login.username, login.password),
            Lookup::Nothing => "nothing".into(),
            Lookup::Unusable(why) => why,
        }
    }

    #[test]
    fn the_most_specific_entry_counts() {
        // u:host, u:ns, u:repo, u:hub with a padded password
        let credentials = file(
            r#"{"auths": {
                "r.org": {"auth": "dTpob3N0"},
                "r.org/ns": {"auth": "dTpucw=="},
                "r.org/ns/repo": {"auth": "dTpyZXBv"},
                "https://index.docker.io/v1/": {"auth": "dTpodWIAAA=="},
                "plain.org": {"username": "u", "password": "p:q"},
                "empty.org": {}
            }}"#,
        )
        .unwrap();
        for (reference, login) in [
            ("r.org/other/repo", "u:host"),
            ("r.org/nsx/repo", "u:host"),
            ("r.org/ns/x/y", "u:ns"),
            ("r.org/ns/repo:1", "u:repo"),
            ("debian", "u:hub"),
            ("plain.org/a", "u:p:q"),
            ("empty.org/a", "nothing"),
            ("r.org:5000/ns/repo", "nothing"),
        ] {
            assert_eq!(user(&credentials, reference), login, "{reference}");
        }
    }

    #[test]
    fn the_first_file_that_knows_wins_and_missing_ones_do_not_matter() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, auth: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, format!(r#"{{"auths": {{{auth}}}}}"#)).unwrap();
            path
        };
        let one = write("1", r#""a.org": {"auth": "dTox"}"#);
        let two = write("2", r#""a.org": {"auth": "dToy"}, "b.org": {"auth": "dToy"}"#);
        let credentials = Credentials::load(&[dir.path().join("none"), one.clone(), two.clone()]).unwrap();
        assert_eq!((&*user(&credentials, "a.org/x"), &*user(&credentials, "b.org/x")), ("u:1", "u:2"));
        assert_eq!(credentials.paths().collect::<Vec<_>>(), [one, two]);
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let credentials = file(
            r#"{"auths": {"h.org": {}, "t.org": {"auth": "dTo=", "identitytoken": "secret"}}, "credHelpers": {"h.org": "gcr"}}"#,
        )
        .unwrap();
        insta::assert_snapshot!(user(&credentials, "h.org/a"), @"auth.json leaves h.org to the credential helper `gcr`, which this version does not ask; `podman login h.org` writes a login that it can use");
        insta::assert_snapshot!(user(&credentials, "t.org/a"), @"auth.json has an identity token for t.org, which this version cannot use; log in with a password or an access token");
        let all = file(r#"{"credsStore": "desktop"}"#).unwrap();
        assert!(user(&all, "debian").contains("`desktop`"));
    }

    #[test]
    fn a_broken_file_is_named_without_what_it_holds() {
        for text in [r#"{"auths": {"a.org": {"auth": "s3cret!"}}}"#, r#"{"auths": {"a.org": "s3cret"}}"#, "s3cret"] {
            let error = file(text).unwrap_err();
            assert!(error.to_string().contains("auth.json"), "{error}");
            assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
        }
        let login = Login { username: "u".into(), password: "s3cret".into() };
        assert!(!format!("{login:?}").contains("s3cret"));
    }
}
