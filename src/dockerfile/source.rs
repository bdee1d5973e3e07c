//! What a source of COPY or ADD is: a path below the context, a URL, a git repository.

use super::step::Source;
use crate::fetch::address::GitAddress;

/// What is wrong with a repository's address comes as a text.
pub(super) fn classify(source: &str) -> Result<Source, String> {
    match GitAddress::parse(source) {
        Some(address) => Ok(Source::Git(address?)),
        None if is_http(source) => Ok(Source::Url(source.to_owned())),
        None => Ok(Source::Path(below_root(source))),
    }
}

/// With `--parents`, what stands before `/./` is not made again at the destination; without it, everything is.
pub(super) fn with_parents(source: &str) -> Source {
    let (pivot, pattern) = source.split_once("/./").unwrap_or(("", source));
    Source::Parents { pivot: below_root(pivot), pattern: below_root(pattern) }
}

fn is_http(source: &str) -> bool {
    source.starts_with("http://") || source.starts_with("https://")
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
            ("https://x.git", Source::Url("https://x.git".into())),
        ] {
            assert_eq!(classify(source), Ok(expected), "{source}");
        }
        for source in ["https://h/x.git#v1:sub", "git@h.org:a/b.git", "ssh://git@h/a", "git://h/a"] {
            assert!(matches!(classify(source), Ok(Source::Git(_))), "{source}");
        }
        assert!(classify("https://h/x.git?depth=1").is_err());
    }

    #[test]
    fn the_pivot_of_parents() {
        for (source, pivot, pattern) in [
            ("a/b", ".", "a/b"),
            ("./a/b/", ".", "a/b"),
            ("./a/./b/c", "a", "b/c"),
            ("/a/*/./**/c.txt", "a/*", "**/c.txt"),
            ("a/./b/./c", "a", "b/c"),
            ("../a/./../b", "a", "b"),
            ("a/./", "a", "."),
        ] {
            let expected = Source::Parents { pivot: pivot.into(), pattern: pattern.into() };
            assert_eq!(with_parents(source), expected, "{source}");
        }
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
