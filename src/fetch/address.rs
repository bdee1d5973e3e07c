//! Addresses of what is fetched, taken apart: what names the thing, what only unlocks it, and what may be shown.

use std::fmt;

use reqwest::Url;

/// A git repository as ADD and contexts name it: `https://h/x.git#ref:dir`, `git@h:x.git?tag=v1&subdir=dir`, …
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GitAddress {
    /// Where it is, with nothing secret in it.
    pub remote: String,
    /// User and password that stood in the address; they go to the server and nowhere else.
    pub login: Option<(String, String)>,
    /// A branch, a tag, a full name (`refs/…`) or a commit; the default branch when there is none.
    pub reference: Option<String>,
    /// Clean and relative; empty for everything.
    pub subdir: String,
    /// The commit that it must be, or the beginning of it.
    pub checksum: Option<String>,
    pub keep_git_dir: Option<bool>,
    pub submodules: bool,
}

impl fmt::Debug for GitAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GitAddress").field(&self.shown()).finish()
    }
}

impl GitAddress {
    /// None when this is no repository; an error when it is one that cannot be understood. A web address is one only
    /// when its path ends in `.git`.
    pub fn parse(text: &str) -> Option<Result<GitAddress, String>> {
        match text.split_once("://") {
            Some((scheme, _)) => {
                let scheme = scheme.to_ascii_lowercase();
                if !matches!(scheme.as_str(), "http" | "https" | "ssh" | "git") {
                    return None;
                }
                let url = Url::parse(text).ok()?;
                if scheme.starts_with("http") && !url.path().ends_with(".git") {
                    return None;
                }
                Some(from_url(url))
            }
            None => from_scp(text),
        }
    }

    /// Of something that is known to be a repository, whatever its name ends in.
    pub fn of_repository(text: &str) -> Result<GitAddress, String> {
        match text.split_once("://") {
            Some(("http" | "https" | "ssh" | "git", _)) => from_url(Url::parse(text).map_err(|e| e.to_string())?),
            _ => from_scp(text).unwrap_or_else(|| Err("it is no http, https, ssh or git address".into())),
        }
    }

    /// As it may be shown anywhere.
    pub fn shown(&self) -> String {
        let mut out = self.remote.clone();
        if self.reference.is_some() || !self.subdir.is_empty() {
            out.push('#');
            out.push_str(self.reference.as_deref().unwrap_or_default());
        }
        if !self.subdir.is_empty() {
            out.push(':');
            out.push_str(&self.subdir);
        }
        out
    }
}

fn from_url(mut url: Url) -> Result<GitAddress, String> {
    let fragment = url.fragment().map(decode).unwrap_or_default();
    let query: Vec<(String, String)> = url.query_pairs().map(|(k, v)| (k.into_owned(), v.into_owned())).collect();
    url.set_fragment(None);
    url.set_query(None);
    let user = decode(url.username());
    let password = url.password().map(decode);
    let is_web = matches!(url.scheme(), "http" | "https");
    // The user of ssh is part of where it is; a password is never.
    let login = (is_web && !(user.is_empty() && password.is_none())).then(|| (user, password.unwrap_or_default()));
    // Fails for addresses that cannot have any, which have none.
    let _ = url.set_password(None);
    if is_web {
        let _ = url.set_username("");
    }
    address(url.to_string(), login, &fragment, &query)
}

/// `user@host:path`, with the same fragment and query.
fn from_scp(text: &str) -> Option<Result<GitAddress, String>> {
    let (text, fragment) = text.split_once('#').unwrap_or((text, ""));
    let (remote, query) = text.split_once('?').unwrap_or((text, ""));
    let (host, path) = remote.split_once(':')?;
    let (user, host) = host.split_once('@')?;
    let word = |s: &str, more: &str| !s.is_empty() && s.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c));
    if path.is_empty() || !word(user, "-_") || !word(host, ".-_") || host.starts_with('-') {
        return None;
    }
    let query = Url::parse(&format!("x:?{query}")).ok()?;
    let query: Vec<(String, String)> = query.query_pairs().map(|(k, v)| (k.into_owned(), v.into_owned())).collect();
    Some(address(remote.to_owned(), None, fragment, &query))
}

fn address(
    remote: String,
    login: Option<(String, String)>,
    fragment: &str,
    query: &[(String, String)],
) -> Result<GitAddress, String> {
    let (reference, subdir) = fragment.split_once(':').unwrap_or((fragment, ""));
    let mut out = GitAddress {
        remote,
        login,
        reference: Some(reference.to_owned()).filter(|r| !r.is_empty()),
        subdir: below(subdir),
        checksum: None,
        keep_git_dir: None,
        submodules: true,
    };
    let mut seen: Vec<&str> = Vec::new();
    for (name, value) in query {
        if seen.contains(&name.as_str()) {
            return Err(format!("`{name}` is given twice"));
        }
        seen.push(name);
        match name.as_str() {
            "keep-git-dir" => out.keep_git_dir = Some(switch(name, value)?),
            "submodules" => out.submodules = switch(name, value)?,
            "ref" | "tag" | "branch" | "subdir" | "checksum" | "commit" if value.is_empty() => {
                return Err(format!("`{name}` has no value"));
            }
            "ref" => set(&mut out.reference, value.clone())?,
            "tag" => set(&mut out.reference, prefixed("refs/tags/", value))?,
            "branch" => set(&mut out.reference, prefixed("refs/heads/", value))?,
            "subdir" => {
                let subdir = below(value);
                if !out.subdir.is_empty() && out.subdir != subdir {
                    return Err(format!("it names two directories: `{}` and `{subdir}`", out.subdir));
                }
                out.subdir = subdir;
            }
            "checksum" | "commit" => set(&mut out.checksum, value.clone())?,
            _ => return Err(format!("`{name}` is not known; what is: {}", KNOWN.join(", "))),
        }
    }
    if let Some(reference) = &out.reference
        && (reference.starts_with('-') || reference.chars().any(|c| c.is_control() || c.is_whitespace()))
    {
        return Err(format!("`{reference}` cannot be the name of a branch, tag or commit"));
    }
    if out.remote.starts_with('-') {
        return Err("it begins with `-`".into());
    }
    Ok(out)
}

const KNOWN: [&str; 8] = ["ref", "tag", "branch", "commit", "checksum", "subdir", "submodules", "keep-git-dir"];

fn set(place: &mut Option<String>, value: String) -> Result<(), String> {
    match place {
        Some(old) if *old != value => Err(format!("it names both `{old}` and `{value}`")),
        _ => {
            *place = Some(value);
            Ok(())
        }
    }
}

fn prefixed(prefix: &str, name: &str) -> String {
    if name.starts_with(prefix) { name.to_owned() } else { format!("{prefix}{name}") }
}

fn switch(name: &str, value: &str) -> Result<bool, String> {
    match value {
        "" | "1" | "t" | "T" | "true" | "True" | "TRUE" => Ok(true),
        "0" | "f" | "F" | "false" | "False" | "FALSE" => Ok(false),
        _ => Err(format!("`{name}` is either true or false, not `{value}`")),
    }
}

/// Relative and clean; what climbs out ends at the top.
fn below(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// `%2F` and the like.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|two| std::str::from_utf8(two).ok()).filter(|_| *first == b'%');
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What a file that comes from a web address is called, as Docker has it.
pub fn file_name(url: &str) -> String {
    let path = Url::parse(url).map(|url| decode(url.path())).unwrap_or_default();
    match path.trim_end_matches('/').rsplit('/').next() {
        None | Some("" | "." | "..") => "__unnamed__".into(),
        Some(name) => name.to_owned(),
    }
}

/// For messages and names: what may stand in an address before `@` or behind `?` is nobody's business.
pub fn without_secrets(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    match url.split_once("://") {
        Some((scheme, rest)) => {
            let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            format!("{scheme}://{}{path}", host.rsplit('@').next().unwrap_or_default())
        }
        None => url.to_owned(),
    }
}

/// Any text that may have addresses in it, without the users and passwords of those.
pub fn without_logins(text: &str) -> String {
    rewrite_logins(text, |scheme, login, out| {
        // The user of ssh is no secret, and part of the address.
        if scheme == "ssh" && !login.contains(':') {
            out.push_str(login);
            out.push('@');
        }
    })
}

/// The same, with stars of the same length in their place: places within the text stay where they are.
pub fn mask_logins(text: &str) -> String {
    let stars = |c: char| if matches!(c, '$' | '{' | '}' | ':') { c.to_string() } else { "*".repeat(c.len_utf8()) };
    rewrite_logins(text, |_, login, out| {
        // A variable is no secret, and what it holds is not in the text.
        match login.contains('$') {
            true => out.push_str(login),
            false => out.extend(login.chars().map(stars)),
        }
        out.push('@');
    })
}

/// `put` gets scheme and login of each address in the text that has a login, and writes what is to stand there, `@`
/// included.
fn rewrite_logins(text: &str, put: impl Fn(&str, &str, &mut String)) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        rest = after;
        let end = after.find(|c: char| c == '/' || c.is_whitespace() || c == '"').unwrap_or(after.len());
        if let Some(at) = after[..end].rfind('@') {
            let scheme = before.trim_end_matches("://").rsplit(|c: char| !c.is_ascii_alphanumeric()).next();
            put(scheme.unwrap_or_default(), &after[..at], &mut out);
            rest = &after[at + 1..];
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git(text: &str) -> GitAddress {
        GitAddress::parse(text).unwrap_or_else(|| panic!("{text}")).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn what_is_a_repository() {
        for text in
            ["a/b", "github.com/a/b", "https://h/x.tar", "https://x.git", "a:b", "ftp://h/x.git", "file:///x.git"]
        {
            assert!(GitAddress::parse(text).is_none(), "{text}");
        }
        for text in ["https://h/x.git", "http://h/x.git#v1", "git@h:a", "ssh://git@h/a", "git://h/a", "SSH://h/a"] {
            assert!(matches!(GitAddress::parse(text), Some(Ok(_))), "{text}");
        }
    }

    #[test]
    fn fragments_and_queries_say_the_same() {
        for (text, remote, reference, subdir) in [
            ("https://h/x.git", "https://h/x.git", None, ""),
            ("https://h/x.git#v1", "https://h/x.git", Some("v1"), ""),
            ("https://h/x.git#v1:a/../b/", "https://h/x.git", Some("v1"), "b"),
            ("https://h/x.git#:a", "https://h/x.git", None, "a"),
            ("https://h/x.git?ref=v1&subdir=a", "https://h/x.git", Some("v1"), "a"),
            ("https://h/x.git?tag=v1", "https://h/x.git", Some("refs/tags/v1"), ""),
            ("https://h/x.git?branch=a%2Fb", "https://h/x.git", Some("refs/heads/a/b"), ""),
            ("git@h:a/x.git?branch=b#:sub", "git@h:a/x.git", Some("refs/heads/b"), "sub"),
            ("ssh://git@h:22/a#b", "ssh://git@h/a", Some("b"), ""),
            ("https://h/x.git#../..:../../a", "https://h/x.git", Some("../.."), "a"),
        ] {
            let address = git(text);
            let expected = (remote.to_owned(), reference.map(str::to_owned), subdir.to_owned());
            let remote = address.remote.replace(":22", "");
            assert_eq!((remote, address.reference, address.subdir), expected, "{text}");
        }
        let all = git("https://h/x.git?commit=abc&keep-git-dir&submodules=false");
        assert_eq!((all.checksum.as_deref(), all.keep_git_dir, all.submodules), (Some("abc"), Some(true), false));
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        for (query, says) in [
            ("?tag=a&branch=b", "both"),
            ("?ref=a#b", "both"),
            ("?ref=", "no value"),
            ("?tag=a&tag=b", "twice"),
            ("?subdir=a#:b", "two directories"),
            ("?keep-git-dir=maybe", "either true or false"),
            ("?depth=1", "not known"),
            ("?ref=--upload-pack=x", "cannot be the name"),
        ] {
            let error = GitAddress::parse(&format!("https://h/x.git{query}")).unwrap().unwrap_err();
            assert!(error.contains(says), "{query}: {error}");
        }
    }

    #[test]
    fn secrets_are_apart_from_the_address() {
        let address = git("https://user:t%2Fk@h/x.git#v1");
        assert_eq!(address.login, Some(("user".into(), "t/k".into())));
        assert_eq!(address.shown(), "https://h/x.git#v1");
        assert!(!format!("{address:?}").contains("t/k"));
        assert_eq!(git("ssh://git:secret@h/a").remote, "ssh://git@h/a");
        assert_eq!(without_secrets("https://u:p@h/x?token=1#y"), "https://h/x");
        assert_eq!(without_secrets("git@h:a/b.git"), "git@h:a/b.git");
        for (text, expected) in [
            ("ADD https://u:p@h/x.git /y", "ADD https://h/x.git /y"),
            ("a http://t@h b https://h/x@1", "a http://h b https://h/x@1"),
            ("ssh://git@h/x ssh://git:pw@h/x", "ssh://git@h/x ssh://h/x"),
            ("no address: a@b", "no address: a@b"),
        ] {
            assert_eq!(without_logins(text), expected);
        }
        assert_eq!(mask_logins("ADD https://us:töken@h/x@1 $U://$T@h"), "ADD https://**:******@h/x@1 $U://$T@h");
    }

    #[test]
    fn names_of_files() {
        for (url, name) in [
            ("https://h/a/b.tar.gz", "b.tar.gz"),
            ("https://h/a/b.txt?x=/c#d", "b.txt"),
            ("https://h/a%20b", "a b"),
            ("https://h/", "__unnamed__"),
            ("https://h", "__unnamed__"),
            ("https://h/dir/", "dir"),
            ("https://h/a%2Fb", "b"),
            ("https://h/a%2F..", "__unnamed__"),
        ] {
            assert_eq!(file_name(url), name, "{url}");
        }
    }
}
