//! What a branch or tag is at the moment, and its commit brought into the store: one bare repository for each address,
//! which grows by what is new.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::address::GitAddress;
use super::command::{Git, is_repository};
use super::{Fetcher, Pin};
use crate::error::{Context as _, Error, Result};
use crate::image::digest::{Key, KeyHasher};
use crate::net::Caller;

/// The last answer for an address.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    pin: Pin,
}

fn key(address: &GitAddress) -> Key {
    KeyHasher::new("kollage git 1")
        .part("remote", &address.remote)
        .part("ref", address.reference.as_deref().unwrap_or_default())
        .finish()
}

pub(super) fn known(fetcher: &Fetcher, address: &GitAddress) -> Option<Pin> {
    if let Some(commit) = address.reference.as_deref().filter(|r| is_commit(r)) {
        return Some(Pin::Commit { id: commit.to_owned(), name: None });
    }
    fetcher.store.source_record::<Record>(&key(address)).map(|record| record.pin)
}

pub(super) fn pin(fetcher: &Fetcher, address: &GitAddress, caller: &Caller<'_>) -> Result<Pin> {
    if let Some(sum) = address.checksum.as_deref().filter(|sum| !sum.bytes().all(|b| b.is_ascii_hexdigit())) {
        return Err(Error::bad_input(format!("`{sum}` is not a commit")).hint("a checksum of git is a commit's number"));
    }
    if let Some(commit) = address.reference.as_deref().filter(|r| is_commit(r)) {
        check(address, &[commit])?;
        return Ok(Pin::Commit { id: commit.to_owned(), name: None });
    }
    let git = Git::new(&fetcher.options, address, directory(fetcher, address), caller)?;
    caller.background(format!("Ask for {}", address.shown()));
    let found = resolve(&git, address)?;
    let mut ids = vec![found.id.as_str()];
    ids.extend(found.tag.as_deref());
    check(address, &ids)?;
    let pin = Pin::Commit { id: found.id, name: Some(found.name) };
    fetcher.store.put_source_record(&key(address), &Record { pin: pin.clone() })?;
    Ok(pin)
}

fn check(address: &GitAddress, ids: &[&str]) -> Result<()> {
    match &address.checksum {
        Some(sum) if !ids.iter().any(|id| id.starts_with(sum.to_ascii_lowercase().as_str())) => {
            let name = address.reference.as_deref().unwrap_or("the default branch");
            Err(Error::failed(format!("`{name}` is not the commit that the checksum gives"))
                .cause(format!("it is {}, and {sum} was expected", ids.join(" or "))))
        }
        _ => Ok(()),
    }
}

struct Found {
    /// Of the commit.
    id: String,
    /// Of the annotated tag that leads to it.
    tag: Option<String>,
    name: String,
}

fn resolve(git: &Git<'_>, address: &GitAddress) -> Result<Found> {
    let remote = address.remote.as_str();
    let wanted = match &address.reference {
        Some(reference) => reference.clone(),
        None => {
            let answer = git.remote(&["ls-remote", "--symref", "--", remote, "HEAD"], remote)?;
            let branch = answer.lines().find_map(|line| line.strip_prefix("ref: ")?.split_whitespace().next());
            branch.map(str::to_owned).ok_or_else(|| Error::failed("the repository has no default branch"))?
        }
    };
    let peeled = format!("{wanted}^{{}}");
    let answer = git.remote(&["ls-remote", "--", remote, &wanted, &peeled], remote)?;
    pick(&answer, &wanted).ok_or_else(|| {
        Error::bad_input(format!("the repository has no branch, tag or other reference `{wanted}`"))
            .hint("a commit is given with all of its digits")
    })
}

/// A full name first, then a branch, then a tag, as `git checkout` has it.
fn pick(answer: &str, wanted: &str) -> Option<Found> {
    let id_of = |name: &str| {
        let line = answer.lines().filter_map(|line| line.split_once('\t')).find(|(_, found)| *found == name);
        line.map(|(id, _)| id.to_owned()).filter(|id| is_commit(id))
    };
    let full = format!("refs/{}", wanted.trim_start_matches("refs/"));
    let branch = format!("refs/heads/{}", wanted.trim_start_matches("refs/heads/"));
    let tag = format!("refs/tags/{}", wanted.trim_start_matches("refs/tags/"));
    for name in [full, branch, tag] {
        let Some(id) = id_of(&name) else { continue };
        return Some(match id_of(&format!("{name}^{{}}")) {
            Some(commit) => Found { id: commit, tag: Some(id), name },
            None => Found { id, tag: None, name },
        });
    }
    None
}

/// All digits of a commit, in either length.
pub(super) fn is_commit(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn directory(fetcher: &Fetcher, address: &GitAddress) -> PathBuf {
    fetcher.store.source_repository(&KeyHasher::new("kollage repository 1").part("remote", &address.remote).finish())
}

/// What leads to a commit that was fetched, and all tags: a commit alone is fetched without. Asked once for a commit.
pub(super) fn complete(
    git: &Git<'_>,
    address: &GitAddress,
    commit: &str,
    name: Option<&str>,
    caller: &Caller<'_>,
) -> Result<()> {
    let done = format!("refs/kollage/history/{commit}");
    if git.asks(&["rev-parse", "--verify", "--quiet", done.as_str()]) {
        return Ok(());
    }
    caller.background(format!("Fetch the history of {}", address.shown()));
    let remote = address.remote.as_str();
    let tip = match name {
        Some(name) => format!("+{name}:refs/kollage/tip/{commit}"),
        None => "+refs/heads/*:refs/kollage/all/heads/*".into(),
    };
    let mut args = vec!["fetch", "--quiet", "--no-tags"];
    args.extend(git.dir.join("shallow").exists().then_some("--unshallow"));
    args.extend(["--", remote, &tip, "+refs/tags/*:refs/tags/*"]);
    git.remote(&args, remote)?;
    git.local(&["update-ref", done.as_str(), commit]).map(drop)
}

/// A bare repository that has the commit; the caller holds its lock.
pub(super) fn fetched<'a>(
    fetcher: &'a Fetcher,
    address: &GitAddress,
    commit: &str,
    name: Option<&str>,
    caller: &'a Caller<'a>,
) -> Result<Git<'a>> {
    let dir = directory(fetcher, address);
    let git = Git::new(&fetcher.options, address, dir, caller)?;
    let object = format!("{commit}^{{commit}}");
    let has = || is_repository(&git.dir) && git.asks(&["cat-file", "-e", object.as_str()]);
    if has() {
        return Ok(git);
    }
    if !is_repository(&git.dir) {
        // What an interrupted run left is of no use.
        let _ = std::fs::remove_dir_all(&git.dir);
        std::fs::create_dir_all(&git.dir).unusable(|| format!("cannot make {}", git.dir.display()))?;
        let format = if commit.len() == 64 { "--object-format=sha256" } else { "--object-format=sha1" };
        git.local(&["init", "--quiet", "--bare", "--template=", format])?;
    }
    // Left by a git that was killed.
    let _ = std::fs::remove_file(git.dir.join("shallow.lock"));
    caller.background(format!("Fetch {}", address.shown()));
    let remote = address.remote.as_str();
    // One commit is all that is wanted; its own number may not be asked for everywhere, and the branch may have moved.
    let own = format!("refs/kollage/{commit}");
    if let Some(name) = name {
        let spec = format!("+{name}:{own}");
        git.remote(&["fetch", "--quiet", "--depth=1", "--no-tags", "--", remote, &spec], remote)?;
    }
    if !has() {
        let spec = format!("+{commit}:{own}");
        let alone = git.remote(&["fetch", "--quiet", "--depth=1", "--no-tags", "--", remote, &spec], remote);
        if alone.is_err() || !has() {
            caller.cancel.check()?;
            let all = "+refs/*:refs/kollage/all/*";
            let unshallow = if git.dir.join("shallow").exists() { "--unshallow" } else { "--no-tags" };
            git.remote(&["fetch", "--quiet", unshallow, "--", remote, all], remote)?;
        }
    }
    if !has() {
        return Err(Error::bad_input(format!("the repository has no commit {commit}")));
    }
    Ok(git)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_as_git_checkout_finds_them() {
        let (a, b, c) = ("a".repeat(40), "b".repeat(40), "c".repeat(40));
        let answer = format!(
            "{a}\trefs/heads/v1\n{b}\trefs/tags/v1\n{c}\trefs/tags/v1^{{}}\n{b}\trefs/heads/x/v1\n{c}\trefs/pull/1/head\n"
        );
        let found = |wanted: &str| pick(&answer, wanted).map(|f| (f.name, f.id, f.tag));
        assert_eq!(found("v1"), Some(("refs/heads/v1".into(), a.clone(), None)));
        assert_eq!(found("refs/tags/v1"), Some(("refs/tags/v1".into(), c.clone(), Some(b.clone()))));
        assert_eq!(found("tags/v1"), Some(("refs/tags/v1".into(), c.clone(), Some(b.clone()))));
        assert_eq!(found("pull/1/head"), Some(("refs/pull/1/head".into(), c.clone(), None)));
        assert_eq!(found("x"), None);
    }
}
