//! What a working tree is a checkout of, asked of the host's git: for what is written on images.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use reqwest::Url;

use super::command::find;
use crate::error::{Context as _, Error, Result};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// The commit; with `-dirty` when tracked files differ from it.
    pub revision: String,
    /// The address of `origin`, without what unlocks it.
    pub source: Option<String>,
}

/// `path`: where git is looked for, as in PATH.
pub fn about(dir: &Path, path: &OsStr) -> Result<About> {
    let program = find(path, "git")?;
    let git = |args: &[&str]| -> Result<Option<String>> {
        let mut command = Command::new(&program);
        command.arg("-C").arg(dir).args(["-c", "core.fsmonitor=false"]).args(args);
        command.env_clear().env("PATH", path).env("LC_ALL", "C").env("HOME", "/dev/null");
        command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
        let output = command.stdin(Stdio::null()).output().unusable(|| "cannot run git".to_owned())?;
        Ok(output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned()))
    };
    // Neither of them runs anything that the repository names, whoever it belongs to.
    let any = "safe.directory=*";
    let Some(commit) = git(&["-c", any, "rev-parse", "--verify", "HEAD"])? else {
        return Err(Error::bad_input(format!("{} is in no git repository with a commit", dir.display())));
    };
    let source = git(&["-c", any, "config", "--get", "remote.origin.url"])?.filter(|url| !url.is_empty());
    // This may run filters: only in a repository that git trusts.
    let dirty = git(&["status", "--porcelain", "--untracked-files=no"])?.is_some_and(|changes| !changes.is_empty());
    let revision = if dirty { format!("{commit}-dirty") } else { commit };
    Ok(About { revision, source: source.map(|url| without_login(&url)) })
}

/// `git@host:path` has no secret in it, and stays.
fn without_login(text: &str) -> String {
    let Ok(mut url) = Url::parse(text) else { return text.to_owned() };
    if url.scheme() != "ssh" {
        // Fails for addresses that have none.
        let _ = url.set_username("");
    }
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git(dir: &Path, args: &[&str]) {
        let mut command = Command::new("git");
        command.arg("-C").arg(dir).args(["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"]);
        let output = command.args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    #[test]
    fn a_checkout_says_what_it_is_of_and_keeps_what_unlocks_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = std::env::var_os("PATH").unwrap();
        assert!(about(dir.path(), &path).unwrap_err().to_string().contains("no git repository"));
        git(dir.path(), &["init", "-q"]);
        std::fs::write(dir.path().join("a"), "one").unwrap();
        git(dir.path(), &["add", "a"]);
        git(dir.path(), &["commit", "-q", "-m", "one"]);
        git(dir.path(), &["remote", "add", "origin", "https://me:s3cret@git.example.org/a/b.git?token=s3cret"]);
        let clean = about(dir.path(), &path).unwrap();
        assert_eq!(clean.source.as_deref(), Some("https://git.example.org/a/b.git"));
        assert_eq!(clean.revision.len(), 40);
        std::fs::write(dir.path().join("a"), "two").unwrap();
        assert_eq!(about(dir.path(), &path).unwrap().revision, format!("{}-dirty", clean.revision));
    }

    #[test]
    fn addresses_without_secrets_stay_as_they_are() {
        for text in ["git@example.org:a/b.git", "ssh://git@example.org/a/b.git", "https://example.org/a"] {
            assert_eq!(without_login(text), text);
        }
    }
}
