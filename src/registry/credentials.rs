//! Logins from files that `podman login` and `docker login` write: `auth.json`, `config.json`.
//!
//! The caller says which files, and where the programs are that some of them leave logins to (credential helpers).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use serde::Deserialize;

use crate::error::{Context as _, Error, Result};
use crate::image::reference::Reference;
use crate::registry::helper::{self, Answer};

/// What credential helpers know Docker Hub as.
const HUB_SERVER: &str = "https://index.docker.io/v1/";

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

/// An OAuth refresh token, from registries that give no password away.
#[derive(Clone, PartialEq, Eq)]
pub struct RefreshToken(pub String);

impl fmt::Debug for RefreshToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RefreshToken")
    }
}

/// Files with logins, the first one that knows a registry wins.
#[derive(Debug, Default)]
pub struct Credentials {
    files: Vec<AuthFile>,
    /// PATH, for credential helpers.
    path: OsString,
    /// What helpers have answered, by helper and server: each is asked once.
    asked: Mutex<BTreeMap<(String, String), Lookup>>,
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
    Token(RefreshToken),
}

/// What is known about a registry.
#[derive(Clone, Debug)]
pub enum Lookup {
    Login(Login),
    Token(RefreshToken),
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
        Ok(Credentials { files, ..Credentials::default() })
    }

    /// Where credential helpers are looked for, as in PATH.
    pub fn with_path(self, path: OsString) -> Credentials {
        Credentials { path, ..self }
    }

    pub fn lookup(&self, reference: &Reference) -> Lookup {
        for file in &self.files {
            for key in keys(reference) {
                match file.entries.get(&key) {
                    Some(Entry::Login(login)) => return Lookup::Login(login.clone()),
                    Some(Entry::Token(token)) => return Lookup::Token(token.clone()),
                    Some(Entry::Helper(helper)) => match self.ask(file, helper, &key) {
                        Lookup::Nothing => {}
                        found => return found,
                    },
                    None => {}
                }
            }
            if let Some(helper) = &file.default_helper {
                match self.ask(file, helper, reference.registry()) {
                    Lookup::Nothing => {}
                    found => return found,
                }
            }
        }
        Lookup::Nothing
    }

    fn ask(&self, file: &AuthFile, helper: &str, name: &str) -> Lookup {
        // Docker's name for its own registry is older than the others.
        let server = if name == "docker.io" { HUB_SERVER } else { name };
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = asked.entry((helper.to_owned(), server.to_owned())).or_insert_with(|| {
            match helper::ask(helper, server, &self.path) {
                Ok(Answer::Login(login)) => Lookup::Login(login),
                Ok(Answer::Token(token)) => Lookup::Token(RefreshToken(token)),
                Ok(Answer::Nothing) => Lookup::Nothing,
                Err(why) => Lookup::Unusable(format!("{why} ({} names it for {name})", file.path.display())),
            }
        });
        answer.clone()
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
            return Ok(Some(Entry::Token(RefreshToken(self.identitytoken))));
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
        let files = vec![AuthFile::parse(Path::new("auth.json"), text.as_bytes())?];
        Ok(Credentials { files, ..Credentials::default() })
    }

    fn user(credentials: &Credentials, reference: &str) -> String {
        match credentials.lookup(&reference.parse().unwrap()) {
            Lookup::Login(login) => format!("{}:{}", login.username, login.password),
            Lookup::Token(RefreshToken(token)) => format!("token {token}"),
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
    fn helpers_are_asked_once_and_for_what_they_know() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let helper = |name: &str, script: &str| {
            let path = dir.path().join(format!("docker-credential-{name}"));
            std::fs::write(&path, format!("#!/bin/sh\nread -r server\n{script}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        let log = dir.path().join("log").display().to_string();
        helper("good", &format!(r#"echo "$1 $server" >> {log}; echo "{{\"Username\":\"u\",\"Secret\":\"$server\"}}""#));
        helper("token", r#"echo '{"Username":"<token>","Secret":"refresh"}'"#);
        helper("none", "echo credentials not found in native keychain; exit 1");
        helper("bad", "echo s3cret; exit 3");
        helper("odd", "echo s3cret");
        let text = r#"{
            "auths": {"r.org/other": {"auth": "dTpw"}},
            "credHelpers": {"g.org": "good", "g.org/ns": "token", "n.org": "none", "b.org": "bad", "o.org": "odd",
                "a.org": "absent", "e.org": "../evil"},
            "credsStore": "good"
        }"#;
        let credentials = file(text).unwrap().with_path(dir.path().as_os_str().to_owned());
        for (reference, found) in [
            ("g.org/a", "u:g.org"),
            ("g.org/ns/a", "token refresh"),
            ("debian", "u:https://index.docker.io/v1/"),
            ("r.org/other/a", "u:p"),
            ("r.org/a", "u:r.org"),
            ("n.org/a", "u:n.org"),
            (
                "b.org/a",
                "the credential helper docker-credential-bad failed: exit status: 3 (auth.json names it for b.org)",
            ),
            (
                "o.org/a",
                "the credential helper docker-credential-odd failed: it didn't answer with JSON (auth.json names it for o.org)",
            ),
            (
                "a.org/a",
                "the credential helper docker-credential-absent is not on this machine (auth.json names it for a.org)",
            ),
            ("e.org/a", "`../evil` is not a name of a credential helper (auth.json names it for e.org)"),
        ] {
            assert_eq!(user(&credentials, reference), found, "{reference}");
            assert_eq!(user(&credentials, reference), found, "{reference}");
        }
        let asked = std::fs::read_to_string(dir.path().join("log")).unwrap();
        assert_eq!(asked, "get g.org\nget https://index.docker.io/v1/\nget r.org\nget n.org\n");
        assert!(!format!("{credentials:?}").contains("refresh"));
    }

    #[test]
    fn identity_tokens_are_read() {
        let credentials = file(r#"{"auths": {"t.org": {"auth": "dTo=", "identitytoken": "refresh"}}}"#).unwrap();
        assert_eq!(user(&credentials, "t.org/a"), "token refresh");
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
