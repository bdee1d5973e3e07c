//! Files from elsewhere: web addresses and git repositories, kept in the store and asked again only for what changed.
//!
//! Two questions, one after the other. [`Fetcher::pin`] asks what an address means now: the digest of a file, the
//! commit of a branch; that goes into keys. [`Fetcher::file`] and [`Fetcher::checkout`] then bring exactly that, if a
//! step is really carried out. [`Fetcher::known`] says what the last answer was, and asks nobody.
//!
//! Nothing here knows an engine or a graph. Users and passwords that stand in an address go to its server, and neither
//! into the store nor into a message nor to a command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::image::digest::{Digest, Key, KeyHasher};
use crate::image::store::{Store, WorkDir};
use crate::net::{Caller, Retry};

mod about;
pub mod address;
mod checkout;
mod command;
mod git;
mod http;
mod made;
#[cfg(test)]
mod tests;

pub use about::about;
use address::GitAddress;
pub use checkout::tree;

/// How others are asked.
#[derive(Clone, Debug)]
pub struct Options {
    pub retry: Retry,
    pub connect_timeout: Duration,
    /// A connection on which nothing arrives for this long is given up.
    pub idle_timeout: Duration,
    /// Where `git` and `ssh` are looked for, as in PATH.
    pub path: OsString,
    /// Variables about proxies, for git; the HTTP library finds them by itself.
    pub proxy: Vec<(String, String)>,
    /// What git trusts besides what it trusts anyway.
    pub ca_bundle: Option<PathBuf>,
    /// Tokens for web repositories.
    pub tokens: Vec<Token>,
    /// The agent that ssh asks for keys; without one it has none, not even the user's own.
    pub ssh_agent: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            retry: Retry::default(),
            connect_timeout: Duration::from_secs(15),
            idle_timeout: Duration::from_secs(60),
            path: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into(),
            proxy: Vec::new(),
            ca_bundle: None,
            tokens: Vec::new(),
            ssh_agent: None,
        }
    }
}

/// A value of `Authorization` for web repositories.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// None: any.
    pub host: Option<String>,
    pub header: String,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("host", &self.host).finish_non_exhaustive()
    }
}

/// Something to be fetched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Remote {
    File(WebFile),
    Git(GitAddress),
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WebFile {
    pub url: String,
    pub checksum: Option<Digest>,
}

impl std::fmt::Debug for WebFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("WebFile").field(&address::without_secrets(&self.url)).finish()
    }
}

impl Remote {
    /// Whether the address itself says what it is: with a digest or a commit in it there is nothing to ask.
    pub fn is_fixed(&self) -> bool {
        match self {
            Remote::File(file) => file.checksum.is_some(),
            Remote::Git(git) => git.checksum.is_none() && git.reference.as_deref().is_some_and(git::is_commit),
        }
    }

    /// What kollage.lock calls it: as it may be shown, and where that leaves out a query, a digest of that. Two files
    /// that only a query tells apart are two.
    pub fn name(&self) -> String {
        let shown = self.shown();
        let query = match self {
            Remote::File(file) => file.url.split('#').next().and_then(|url| url.split_once('?')),
            Remote::Git(_) => None,
        };
        match query {
            Some((_, query)) => {
                let digest = KeyHasher::new("kollage query 1").part("query", query).finish();
                format!("{shown}?{}", digest.short())
            }
            None => shown,
        }
    }

    /// As it may be shown anywhere.
    pub fn shown(&self) -> String {
        match self {
            Remote::File(file) => address::without_secrets(&file.url),
            Remote::Git(git) => git.shown(),
        }
    }
}

/// What an address means at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pin {
    File {
        digest: Digest,
        /// Seconds since 1970, where the server says so and nobody demanded a digest.
        modified: Option<i64>,
    },
    Commit {
        id: String,
        /// The full name by which it was found: `refs/heads/main`.
        name: Option<String>,
    },
}

impl Pin {
    /// For keys.
    pub fn key(&self) -> Key {
        let mut hasher = KeyHasher::new("kollage remote 1");
        match self {
            Pin::File { digest, modified } => hasher
                .part("file", digest.hex())
                .part("modified", modified.map(|time| time.to_string()).unwrap_or_default()),
            Pin::Commit { id, .. } => hasher.part("commit", id),
        };
        hasher.finish()
    }
}

/// What of a repository stays with the files of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    Nothing,
    /// A repository with that one commit.
    Commit,
    /// One with all commits that lead to it, and their tags.
    History,
}

impl From<bool> for Keep {
    /// As `--keep-git-dir` says it.
    fn from(keep_git_dir: bool) -> Keep {
        if keep_git_dir { Keep::Commit } else { Keep::Nothing }
    }
}

/// A file of the store, with what its server said about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    pub path: PathBuf,
    pub modified: Option<i64>,
}

/// Fetches into a store. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Fetcher {
    store: Store,
    options: Options,
}

impl Fetcher {
    pub fn new(store: Store, options: Options) -> Fetcher {
        Fetcher { store, options }
    }

    /// For what is made of what was fetched.
    pub fn work_dir(&self) -> Result<WorkDir> {
        self.store.work_dir()
    }

    /// With an agent that ssh asks for keys.
    pub fn with_agent(&self, agent: Option<PathBuf>) -> Fetcher {
        let options = Options { ssh_agent: agent, ..self.options.clone() };
        Fetcher { store: self.store.clone(), options }
    }

    /// What is missing on this machine to fetch this; asks nobody.
    pub fn preflight(&self, remote: &Remote) -> Result<()> {
        match remote {
            Remote::File(_) => Ok(()),
            Remote::Git(_) => command::find(&self.options.path, "git").map(drop),
        }
    }

    /// The last answer, or one that needs no asking.
    pub fn known(&self, remote: &Remote) -> Option<Pin> {
        match remote {
            Remote::File(file) => http::known(self, file),
            Remote::Git(address) => git::known(self, address),
        }
    }

    /// Whether the store has the file that it was the last time.
    pub fn has(&self, file: &WebFile) -> bool {
        let known = http::known(self, file);
        matches!(known, Some(Pin::File { digest, .. }) if self.store.source_file(&digest).exists())
    }

    /// What it means now.
    pub fn pin(&self, remote: &Remote, caller: &Caller<'_>) -> Result<Pin> {
        let pin = match remote {
            Remote::File(file) => http::pin(self, file, caller),
            Remote::Git(address) => git::pin(self, address, caller),
        };
        pin.map_err(|e| e.context(format!("cannot fetch {}", remote.shown())))
    }

    /// The file that was pinned.
    pub fn file(&self, file: &WebFile, digest: &Digest, caller: &Caller<'_>) -> Result<Fetched> {
        http::file(self, file, digest, caller)
            .map_err(|e| e.context(format!("cannot fetch {}", address::without_secrets(&file.url))))
    }

    /// Puts the files of a commit into an empty directory: of root's, with modes and times that depend on nothing but
    /// the commit.
    pub fn checkout(
        &self,
        address: &GitAddress,
        pin: &Pin,
        keep: Keep,
        into: &Path,
        caller: &Caller<'_>,
    ) -> Result<()> {
        checkout::checkout(self, address, pin, keep, into, caller)
            .map_err(|e| e.context(format!("cannot check out {}", address.shown())))
    }
}
