//! Patterns as in shells and in Python's `glob`: `*`, `?`, `[…]`, by bytes, so that names that aren't UTF-8 match too.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

pub fn has_magic(pattern: &str) -> bool {
    pattern.contains(['*', '?', '['])
}

/// The paths that match, sorted. A pattern without magic matches the path itself if there is anything, a dangling link
/// included. A slash at the end of the pattern keeps what isn't a directory out, and stays.
pub fn expand(pattern: &str) -> Vec<PathBuf> {
    let directories = pattern.len() > 1 && pattern.ends_with('/');
    let parts: Vec<&str> = pattern.split('/').filter(|part| !part.is_empty()).collect();
    let start = if pattern.starts_with('/') { PathBuf::from("/") } else { PathBuf::new() };
    let mut found = vec![start];
    for part in &parts {
        let mut next = Vec::new();
        for parent in &found {
            if has_magic(part) {
                next.extend(names(parent, part.as_bytes()).into_iter().map(|name| parent.join(name)));
            } else {
                let path = parent.join(part);
                if path.symlink_metadata().is_ok() {
                    next.push(path);
                }
            }
        }
        found = next;
    }
    found.retain(|path| !path.as_os_str().is_empty() && (!directories || path.is_dir()));
    if directories {
        for path in &mut found {
            let mut text = std::mem::take(path).into_os_string().into_vec();
            text.push(b'/');
            *path = OsString::from_vec(text).into();
        }
    }
    found.sort();
    found
}

fn names(directory: &Path, pattern: &[u8]) -> Vec<OsString> {
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    entries.flatten().map(|entry| entry.file_name()).filter(|name| name_matches(pattern, name)).collect()
}

/// Whether a path is one that the pattern could have given.
pub fn matches(pattern: &Path, path: &Path) -> bool {
    let mut parts = pattern.components();
    let mut names = path.components();
    loop {
        match (parts.next(), names.next()) {
            (None, None) => return true,
            (Some(part), Some(name)) => {
                let (part, name) = (part.as_os_str(), name.as_os_str());
                if part != name && !name_matches(part.as_bytes(), name) {
                    return false;
                }
            }
            _ => return false,
        }
    }
}

/// Hidden names are only matched by patterns that begin with a dot.
fn name_matches(pattern: &[u8], name: &OsStr) -> bool {
    let name = name.as_bytes();
    (name.first() != Some(&b'.') || pattern.first() == Some(&b'.')) && matches_bytes(pattern, name)
}

fn matches_bytes(pattern: &[u8], name: &[u8]) -> bool {
    // Where to go on after the last star when what follows it doesn't match here.
    let mut again: Option<(usize, usize)> = None;
    let (mut at, mut done) = (0, 0);
    while done < name.len() {
        let step = match pattern.get(at) {
            Some(b'*') => {
                again = Some((at + 1, done));
                at += 1;
                continue;
            }
            Some(b'?') => Some(1),
            Some(b'[') => match class(&pattern[at..], name[done]) {
                Some((true, length)) => Some(length),
                Some((false, _)) => None,
                None => (name[done] == b'[').then_some(1),
            },
            Some(byte) => (*byte == name[done]).then_some(1),
            None => None,
        };
        match (step, &mut again) {
            (Some(length), _) => {
                at += length;
                done += 1;
            }
            (None, Some((after, from))) => {
                *from += 1;
                at = *after;
                done = *from;
            }
            (None, None) => return false,
        }
    }
    pattern[at.min(pattern.len())..].iter().all(|byte| *byte == b'*')
}

/// Whether the class at the start of the pattern has the byte, and how long the class is. None: it doesn't end.
fn class(pattern: &[u8], byte: u8) -> Option<(bool, usize)> {
    let mut at = 1;
    let negated = matches!(pattern.get(at), Some(b'!' | b'^'));
    at += usize::from(negated);
    let start = at;
    let mut has = false;
    loop {
        let low = *pattern.get(at)?;
        if low == b']' && at > start {
            return Some((has != negated, at + 1));
        }
        let high = match (pattern.get(at + 1), pattern.get(at + 2)) {
            (Some(b'-'), Some(high)) if *high != b']' => {
                at += 2;
                *high
            }
            _ => low,
        };
        has |= (low..=high).contains(&byte);
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_as_in_shells() {
        for (pattern, name, wanted) in [
            ("*.conf", "a.conf", true),
            ("*.conf", ".conf", false),
            (".*", ".conf", true),
            ("*", "", true),
            ("a*b*c", "aXbYbc", true),
            ("a*b*c", "aXbY", false),
            ("?", "ab", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]]", "]", true),
            ("[", "[", true),
            ("[a", "[a", true),
            ("**", "deep", true),
            ("a-[0-9]*", "a-7z", true),
        ] {
            assert_eq!(name_matches(pattern.as_bytes(), OsStr::new(name)), wanted, "{pattern} {name}");
        }
        assert!(name_matches(b"*x", OsStr::from_bytes(b"\xff\xfex")));
    }

    #[test]
    fn paths_are_found_sorted_with_links_and_foreign_names() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for name in [&b"b.conf"[..], b"a.conf", b".hidden.conf", b"\xff.conf"] {
            std::fs::write(root.join(OsStr::from_bytes(name)), "").unwrap();
        }
        std::fs::create_dir(root.join("d")).unwrap();
        std::os::unix::fs::symlink("nowhere", root.join("c.conf")).unwrap();
        let text = |pattern: &str| format!("{}/{pattern}", root.display());
        let names = |pattern: &str| -> Vec<Vec<u8>> {
            let prefix = root.as_os_str().len() + 1;
            expand(&text(pattern)).iter().map(|path| path.as_os_str().as_bytes()[prefix..].to_vec()).collect()
        };
        assert_eq!(names("*.conf"), [&b"a.conf"[..], b"b.conf", b"c.conf", b"\xff.conf"]);
        assert_eq!(names("c.conf"), [b"c.conf"]);
        assert_eq!(names("*/"), [b"d/"]);
        assert_eq!(names("none"), Vec::<Vec<u8>>::new());
        assert!(matches(Path::new("/etc/*/x"), Path::new("/etc/nova/x")));
        assert!(!matches(Path::new("/etc/*"), Path::new("/etc/nova/x")));
    }
}
