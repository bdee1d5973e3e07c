//! .dockerignore and patterns of COPY over a small tree, against a slow matcher that knows no shortcut.

use std::collections::BTreeSet;
use std::fs;

use kollage::context::Context;

use super::Place;

const FILES: [&str; 9] = ["a", "b.c", "d/a", "d/e/f.c", "d/e/[x]", "d/e/g/a", "ab/a.c", "ab/.h", "\u{e4}/a"];

thread_local! {
    /// The tree; what a matcher says about it is read from a file beside it.
    static PLACE: Place = {
        let place = Place::new();
        for path in FILES {
            let full = place.path("tree").join(path);
            fs::create_dir_all(full.parent().expect("a path with a parent")).expect("a directory");
            fs::write(full, path).expect("a file");
        }
        place
    };
}

/// The first line is a pattern of COPY, the rest the file.
pub fn dockerignore(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (pattern, ignore) = text.split_once('\n').unwrap_or((text, ""));
    // The system, not Kollage, refuses these.
    if pattern.contains('\0') || pattern.len() > 4000 {
        return;
    }
    let root = PLACE.with(|place| place.path("tree"));
    let dockerfile = root.with_file_name("Dockerfile");
    fs::write(root.with_file_name("Dockerfile.dockerignore"), ignore).expect("the file of patterns");
    let Ok(context) = Context::open(&root, Some(&dockerfile)) else { return };
    if let Ok(selected) = context.select(pattern, &[]) {
        for entry in selected.iter().flat_map(|selected| &selected.entries) {
            assert!(entry.path.is_relative() && root.join(&entry.path).exists(), "{:?}", entry.path);
        }
    }

    // Brackets are a language of their own, which the slow matcher doesn't know; and it is slow.
    if ignore.contains('[') || ignore.len() > 400 {
        return;
    }
    let selected = context.select(".", &[]).expect("the whole tree can be selected");
    let entries = selected.iter().flat_map(|selected| &selected.entries);
    let found: BTreeSet<String> = entries.map(|entry| entry.path.to_string_lossy().into_owned()).collect();
    let patterns = patterns(ignore);
    for path in FILES {
        let left_out = left_out(&patterns, path);
        assert_eq!(found.contains(path), !left_out, "{path} under {patterns:?}");
        assert_eq!(context.is_ignored(path.as_ref()), left_out, "{path} under {patterns:?}");
    }
}

/// Exceptions are true.
fn patterns(text: &str) -> Vec<(bool, String)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = text.lines().filter(|line| !line.starts_with('#')).map(str::trim).filter(|line| !line.is_empty());
    let split = |line: &str| match line.strip_prefix('!') {
        Some(rest) => (true, clean(rest.trim())),
        None => (false, clean(line)),
    };
    lines.map(split).collect()
}

fn clean(pattern: &str) -> String {
    let mut out: Vec<&str> = Vec::new();
    for part in pattern.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part != ".." {
            out.push(part);
        } else if out.last().is_some_and(|last| *last != "..") {
            out.pop();
        } else if !pattern.starts_with('/') {
            out.push(part);
        }
    }
    if out.is_empty() { ".".into() } else { out.join("/") }
}

/// As Docker goes down a tree: each pattern is asked about a path only where its answer could change something, and what
/// it matches it matches with all that is below.
fn left_out(patterns: &[(bool, String)], path: &str) -> bool {
    let mut above = vec![false; patterns.len()];
    let mut left_out = false;
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    for end in ends {
        left_out = false;
        for (state, (exception, pattern)) in above.iter_mut().zip(patterns) {
            *state = *state || (*exception == left_out && pattern_matches(pattern, &path[..end]));
            if *state {
                left_out = !exception;
            }
        }
    }
    left_out
}

fn pattern_matches(pattern: &str, path: &str) -> bool {
    // `**name` matches the end of a path, `/` or not before it.
    if let Some(end) = pattern.strip_prefix("**").filter(|end| !end.contains(['*', '?', '\\', ']'])) {
        return path.ends_with(end) || end.strip_prefix('/') == Some(path);
    }
    let (pattern, path): (Vec<char>, Vec<char>) = (pattern.chars().collect(), path.chars().collect());
    matches(&pattern, &path)
}

fn matches(pattern: &[char], path: &[char]) -> bool {
    match pattern {
        [] => path.is_empty(),
        ['*', '*', rest @ ..] => {
            let rest = rest.strip_prefix(&['/']).unwrap_or(rest);
            rest.is_empty()
                || matches(rest, path)
                || (0..path.len()).any(|at| path[at] == '/' && matches(rest, &path[at + 1..]))
        }
        ['*', rest @ ..] => {
            let end = path.iter().position(|c| *c == '/').unwrap_or(path.len());
            (0..=end).any(|at| matches(rest, &path[at..]))
        }
        ['?', rest @ ..] => path.first().is_some_and(|c| *c != '/') && matches(rest, &path[1..]),
        ['\\', c, rest @ ..] => path.first() == Some(c) && matches(rest, &path[1..]),
        [c, rest @ ..] => path.first() == Some(c) && matches(rest, &path[1..]),
    }
}
