//! What a source of COPY or ADD is: a path below the context, a URL, a git repository.

use super::step::Source;

pub(super) fn classify(source: &str) -> Source {
    if is_git(source) {
        Source::Git(source.to_owned())
    } else if is_http(source) {
        Source::Url(source.to_owned())
    } else {
        Source::Path(below_root(source))
    }
}

fn is_http(source: &str) -> bool {
    source.starts_with("http://") || source.starts_with("https://")
}

/// A web address is a repository only when its path ends in `.git`.
fn is_git(source: &str) -> bool {
    match source.split_once("://") {
        Some((scheme, rest)) if matches!(scheme.to_ascii_lowercase().as_str(), "http" | "https") => {
            let rest = rest.split(['#', '?']).next().unwrap_or_default();
            rest.split_once('/').is_some_and(|(_, path)| path.ends_with(".git"))
        }
        Some((scheme, _)) => matches!(scheme.to_ascii_lowercase().as_str(), "ssh" | "git"),
        // `user@host:path`
        None => source.split_once(':').is_some_and(|(host, path)| {
            let word =
                |s: &str, more: &str| !s.is_empty() && s.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c));
            !path.is_empty() && host.split_once('@').is_some_and(|(user, host)| word(user, "-_") && word(host, ".-_"))
        }),
    }
}

/// Relative and clean: whatever climbs out of the root ends up in the root, as Docker has it. The root is `.`.
pub(super) fn below_root(path: &str) -> String {
    match &clean(&format!("/{path}"))[1..] {
        "" => ".".into(),
        path => path.to_owned(),
    }
}

/// Lexically, of an absolute path: no `.`, no `..`, no doubled and no last slash.
pub(super) fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// `path` seen from `directory`, clean and absolute.
pub(super) fn join(directory: &str, path: &str) -> String {
    if path.starts_with('/') { clean(path) } else { clean(&format!("/{directory}/{path}")) }
}

/// Like `join`, but a destination that is written as a directory stays one.
pub(super) fn destination(directory: &str, path: &str) -> String {
    let joined = join(directory, path);
    let is_directory = matches!(path, "" | ".") || path.ends_with('/') || path.ends_with("/.");
    if is_directory && joined != "/" { joined + "/" } else { joined }
}

/// For messages: what may stand in an address before `@` or behind `?` is nobody's business.
pub(super) fn without_secrets(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    match url.split_once("://") {
        Some((scheme, rest)) => {
            let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            format!("{scheme}://{}{path}", host.rsplit('@').next().unwrap_or_default())
        }
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_sources() {
        for (source, expected) in [
            ("a/b", Source::Path("a/b".into())),
            (".", Source::Path(".".into())),
            ("./", Source::Path(".".into())),
            ("/", Source::Path(".".into())),
            ("/abs/", Source::Path("abs".into())),
            ("../../x", Source::Path("x".into())),
            ("a/../../x/*.c", Source::Path("x/*.c".into())),
            ("a:b", Source::Path("a:b".into())),
            ("github.com/a/b", Source::Path("github.com/a/b".into())),
            ("https://h/x.tar.gz", Source::Url("https://h/x.tar.gz".into())),
            ("https://h/x.git#v1:sub", Source::Git("https://h/x.git#v1:sub".into())),
            ("https://x.git", Source::Url("https://x.git".into())),
            ("git@h.org:a/b.git", Source::Git("git@h.org:a/b.git".into())),
            ("ssh://git@h/a", Source::Git("ssh://git@h/a".into())),
            ("git://h/a", Source::Git("git://h/a".into())),
        ] {
            assert_eq!(classify(source), expected, "{source}");
        }
    }

    #[test]
    fn addresses_are_shown_without_what_is_secret() {
        assert_eq!(without_secrets("https://u:p@h/x?token=1#y"), "https://h/x");
        assert_eq!(without_secrets("git@h:a/b.git"), "git@h:a/b.git");
    }

    #[test]
    fn destinations() {
        for (directory, path, expected) in [
            ("/w", "x", "/w/x"),
            ("/w", ".", "/w/"),
            ("/w", "./", "/w/"),
            ("/w", "", "/w/"),
            ("/w", "..", "/"),
            ("/w", "d/.", "/w/d/"),
            ("/w", "/a//b/../c/", "/a/c/"),
            ("/", ".", "/"),
            ("w", "x", "/w/x"),
        ] {
            assert_eq!(destination(directory, path), expected, "{directory} {path}");
        }
    }
}
