//! The files of a commit, and of those that its submodules name.

use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use reqwest::Url;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};

use super::address::{self, GitAddress};
use super::command::Git;
use super::{Fetcher, Keep, Pin, git};
use crate::error::{Context as _, Error, Result};
use crate::image::archive::staging;
use crate::net::Caller;

/// Submodules within submodules.
const DEEPEST: usize = 10;

pub(super) fn checkout(
    fetcher: &Fetcher,
    address: &GitAddress,
    pin: &Pin,
    keep: Keep,
    into: &Path,
    caller: &Caller<'_>,
) -> Result<()> {
    let Pin::Commit { id, name } = pin else { return Err(Error::failed("it is not a repository")) };
    // Below a name of its own, so that a directory of the repository can become the whole.
    let whole = into.join("whole");
    std::fs::create_dir_all(&whole).unusable(|| format!("cannot make {}", whole.display()))?;
    let lock = fetcher.store.lock_key(&git_lock(address), caller.cancel)?;
    let git = git::fetched(fetcher, address, id, name.as_deref(), caller)?;
    let time = git.local(&["log", "-1", "--format=%ct", id.as_str(), "--"])?;
    let time: i64 = time.trim().parse().failed(|| format!("the commit {id} has no time"))?;
    if keep != Keep::Nothing && address.subdir.is_empty() {
        clone(&git, address, id, name.as_deref(), &whole)?;
        if keep == Keep::History {
            git::complete(&git, address, id, name.as_deref(), caller)?;
            history(&git, id, &whole.join(".git"), into)?;
        }
    } else {
        write_tree(&git, id, &whole, into)?;
    }
    let submodules = if address.submodules { submodules(&git, address, id)? } else { Vec::new() };
    drop(lock);
    for submodule in submodules {
        place(fetcher, &submodule, &whole, into, caller, 1)?;
    }
    let root = match address.subdir.as_str() {
        "" => whole.clone(),
        subdir => directory(&whole, subdir)?,
    };
    tidy(&root, time)?;
    let tree = into.join("tree");
    std::fs::rename(&root, &tree).unusable(|| format!("cannot move {}", root.display()))
}

/// Where the files are after a checkout.
pub fn tree(into: &Path) -> PathBuf {
    into.join("tree")
}

fn git_lock(address: &GitAddress) -> crate::image::digest::Key {
    crate::image::digest::KeyHasher::new("kollage repository lock 1").part("remote", &address.remote).finish()
}

/// `scratch` is a directory in which nothing of the repository is.
fn write_tree(git: &Git<'_>, commit: &str, into: &Path, scratch: &Path) -> Result<()> {
    let index = scratch.join(format!("index-{commit}"));
    let env = [("GIT_INDEX_FILE", index.as_os_str()), ("GIT_WORK_TREE", into.as_os_str())];
    git.local_with(&["read-tree", commit], &env)?;
    git.local_with(&["checkout-index", "--all", "--force"], &env)?;
    // It is not part of what was wanted.
    let _ = std::fs::remove_file(&index);
    Ok(())
}

/// A repository of its own around the files, with one commit in it and nothing that differs from run to run.
fn clone(git: &Git<'_>, address: &GitAddress, commit: &str, name: Option<&str>, into: &Path) -> Result<()> {
    let dir = into.join(".git");
    let in_clone = |args: &[&OsStr], env: &[(&str, &OsStr)]| {
        let mut all: Vec<&OsStr> =
            vec![OsStr::new("--git-dir"), dir.as_os_str(), OsStr::new("--work-tree"), into.as_os_str()];
        all.extend(args);
        git.local_with(&all, env)
    };
    let text = |args: &[&str]| args.iter().map(OsString::from).collect::<Vec<_>>();
    let run = |args: &[&str], env: &[(&str, &OsStr)]| {
        let args = text(args);
        in_clone(&args.iter().map(OsString::as_os_str).collect::<Vec<_>>(), env)
    };
    run(&["init", "--quiet"], &[])?;
    run(&["remote", "add", "origin", &address.remote], &[])?;
    let from = git.dir.to_string_lossy().into_owned();
    let own = format!("refs/kollage/{commit}");
    git.local(&["update-ref", own.as_str(), commit])?;
    let spec = match name {
        Some(name) => format!("+{own}:{name}"),
        None => own.clone(),
    };
    // The store is a directory of this machine; nothing else may be fetched from one.
    let file = [("GIT_ALLOW_PROTOCOL", OsStr::new("file"))];
    run(&["fetch", "--quiet", "--update-head-ok", "--depth=1", "--no-tags", "--", &from, &spec], &file)?;
    run(&["checkout", "--quiet", "--force", "--detach", commit], &[])?;
    run(&["reflog", "expire", "--all", "--expire=now"], &[])?;
    for left in ["FETCH_HEAD", "ORIG_HEAD", "index"] {
        let _ = std::fs::remove_file(dir.join(left));
    }
    // An index without the times and numbers of this machine's files.
    run(&["read-tree", commit], &[])?;
    Ok(())
}

/// All commits that lead to this one and the tags on them, without the files of earlier ones: enough for whatever tells a
/// version from them. The bytes depend on the commits and the tags alone.
fn history(git: &Git<'_>, commit: &str, dir: &Path, scratch: &Path) -> Result<()> {
    let merged = format!("--merged={commit}");
    let format = "--format=%(objectname) %(refname) %(*objectname)";
    let tags = git.local(&["for-each-ref", &merged, format, "--sort=refname", "refs/tags"])?;
    let mut wanted = git.local(&["rev-list", commit, "--"])?;
    let mut refs = String::from("# pack-refs with: peeled fully-peeled sorted \n");
    for line in tags.lines() {
        let mut words = line.split(' ');
        let (Some(id), Some(name)) = (words.next(), words.next()) else { continue };
        refs.push_str(&format!("{id} {name}\n"));
        if let Some(peeled) = words.next().filter(|peeled| !peeled.is_empty()) {
            wanted.push_str(&format!("{id}\n"));
            refs.push_str(&format!("^{peeled}\n"));
        }
    }
    let say = || format!("cannot write {}", dir.display());
    let list = scratch.join("history");
    std::fs::write(&list, wanted).unusable(say)?;
    let pack = dir.join("objects/pack/pack");
    let mut args: Vec<&OsStr> =
        ["pack-objects", "--quiet", "--window=0", "--no-reuse-delta", "--no-reuse-object"].map(OsStr::new).into();
    args.push(pack.as_os_str());
    git.local_from(&args, std::fs::File::open(&list).unusable(say)?)?;
    std::fs::remove_file(&list).unusable(say)?;
    std::fs::write(dir.join("packed-refs"), refs).unusable(say)?;
    // Where the history was said to end.
    staging::remove(&dir.join("shallow")).unusable(say)
}

/// One submodule of a commit.
struct Submodule {
    path: String,
    address: GitAddress,
    commit: String,
}

fn submodules(git: &Git<'_>, address: &GitAddress, commit: &str) -> Result<Vec<Submodule>> {
    let listed = git.local(&["ls-tree", "-r", "-z", commit])?;
    let links: Vec<(String, String)> = listed
        .split('\0')
        .filter_map(|entry| {
            let (head, path) = entry.split_once('\t')?;
            let mut head = head.split(' ');
            (head.next()? == "160000").then_some(())?;
            Some((path.to_owned(), head.nth(1)?.to_owned()))
        })
        .collect();
    if links.is_empty() {
        return Ok(Vec::new());
    }
    let blob = format!("{commit}:.gitmodules");
    let config = git
        .local(&["config", "--blob", blob.as_str(), "--list", "-z"])
        .map_err(|e| e.context("it has submodules, and nothing says where they are"))?;
    let entries: Vec<(&str, &str)> = config.split('\0').filter_map(|entry| entry.split_once('\n')).collect();
    let mut out = Vec::new();
    for (path, commit) in links {
        let name = entries.iter().find_map(|(key, value)| {
            (*value == path).then(|| key.strip_prefix("submodule.")?.strip_suffix(".path")).flatten()
        });
        // A link that .gitmodules doesn't know is no submodule, for git either.
        let Some(name) = name else { continue };
        let key = format!("submodule.{name}.url");
        let Some((_, url)) = entries.iter().find(|(k, _)| *k == key) else {
            return Err(Error::failed(format!("the submodule `{path}` has no address")));
        };
        let (remote, login) = submodule_address(&address.remote, address.login.as_ref(), url).ok_or_else(|| {
            Error::failed(format!(
                "the submodule `{path}` is at `{}`, which cannot be fetched",
                address::without_secrets(url)
            ))
        })?;
        let address = GitAddress {
            remote,
            login,
            reference: None,
            subdir: String::new(),
            checksum: None,
            keep_git_dir: None,
            submodules: true,
        };
        out.push(Submodule { path, address, commit });
    }
    Ok(out)
}

type Login = (String, String);

/// `../other.git` is relative to the repository that names it.
fn submodule_address(parent: &str, login: Option<&Login>, url: &str) -> Option<(String, Option<Login>)> {
    if url.starts_with("./") || url.starts_with("../") {
        let (base, mut rest) = (parent.trim_end_matches('/'), url);
        let mut base = base.to_owned();
        loop {
            if let Some(after) = rest.strip_prefix("../") {
                let at = base.rfind(['/', ':'])?;
                base.truncate(at);
                rest = after;
            } else if let Some(after) = rest.strip_prefix("./") {
                rest = after;
            } else {
                break;
            }
        }
        return Some((format!("{base}/{rest}"), login.cloned()));
    }
    match Url::parse(url) {
        Ok(mut parsed) if matches!(parsed.scheme(), "http" | "https" | "ssh" | "git") => {
            let own = (parsed.password().is_some() && parsed.scheme().starts_with("http"))
                .then(|| (parsed.username().to_owned(), parsed.password().unwrap_or_default().to_owned()));
            let _ = parsed.set_password(None);
            if own.is_some() {
                let _ = parsed.set_username("");
            }
            Some((parsed.to_string(), own))
        }
        Ok(_) => None,
        Err(_) => matches!(GitAddress::parse(url), Some(Ok(_))).then(|| (url.to_owned(), None)),
    }
}

fn place(
    fetcher: &Fetcher,
    submodule: &Submodule,
    whole: &Path,
    scratch: &Path,
    caller: &Caller<'_>,
    depth: usize,
) -> Result<()> {
    let inside = || {
        if depth > DEEPEST {
            return Err(Error::failed(format!("submodules lie more than {DEEPEST} deep in each other")));
        }
        let target = directory(whole, &submodule.path)?;
        let lock = fetcher.store.lock_key(&git_lock(&submodule.address), caller.cancel)?;
        let git = git::fetched(fetcher, &submodule.address, &submodule.commit, None, caller)?;
        write_tree(&git, &submodule.commit, &target, scratch)?;
        let deeper = submodules(&git, &submodule.address, &submodule.commit)?;
        drop(lock);
        deeper.iter().try_for_each(|one| place(fetcher, one, &target, scratch, caller, depth + 1))
    };
    inside().map_err(|e: Error| {
        e.context(format!("cannot fetch the submodule `{}` ({})", submodule.path, submodule.address.shown()))
    })
}

/// A directory below another, reached by no link.
fn directory(root: &Path, relative: &str) -> Result<PathBuf> {
    let mut path = root.to_owned();
    for component in Path::new(relative).components() {
        let Component::Normal(name) = component else {
            return Err(Error::failed(format!("`{relative}` leads out of the repository")));
        };
        path.push(name);
        match std::fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => return Err(Error::failed(format!("`{relative}` is not a directory of the repository"))),
            Err(_) => return Err(Error::failed(format!("there is no directory `{relative}` in the repository"))),
        }
    }
    Ok(path)
}

/// Modes as git knows them, whatever umask this process has, and the time of the commit.
fn tidy(path: &Path, time: i64) -> Result<()> {
    let what = || format!("cannot write {}", path.display());
    let metadata = std::fs::symlink_metadata(path).unusable(what)?;
    if metadata.is_dir() {
        for entry in std::fs::read_dir(path).unusable(what)? {
            tidy(&entry.unusable(what)?.path(), time)?;
        }
    }
    if !metadata.is_symlink() {
        let mode = if metadata.is_dir() || metadata.permissions().mode() & 0o100 != 0 { 0o755 } else { 0o644 };
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unusable(what)?;
    }
    let time = Timespec { tv_sec: time, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unusable(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_submodules() {
        let login = ("u".to_owned(), "p".to_owned());
        for (url, expected, with_login) in [
            ("../b.git", Some("https://h/x/b.git"), true),
            ("../../y/b.git", Some("https://h/y/b.git"), true),
            ("./b.git", Some("https://h/x/a.git/b.git"), true),
            ("https://other/b.git", Some("https://other/b.git"), false),
            ("git@other:b.git", Some("git@other:b.git"), false),
            ("file:///etc", None, false),
            ("/etc", None, false),
            ("ext::sh -c id", None, false),
        ] {
            let found = submodule_address("https://h/x/a.git", Some(&login), url);
            let expected = expected.map(|e| (e.to_owned(), with_login.then(|| login.clone())));
            assert_eq!(found, expected, "{url}");
        }
    }
}
