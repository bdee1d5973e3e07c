//! Go's filepath.Match, as regular expressions: `*` and `?` within one component, `[a-z]`, `[^a]` and escapes.

use std::iter::Peekable;
use std::str::Chars;

use regex::Regex;

/// Whether there is anything in it that is more than a plain name.
pub(super) fn has_wildcards(component: &str) -> bool {
    let mut chars = component.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '*' | '?' | '[' => return true,
            _ => {}
        }
    }
    false
}

/// A plain name as it is on disk.
pub(super) fn unescape(component: &str) -> String {
    let mut name = String::new();
    let mut chars = component.chars();
    while let Some(c) = chars.next() {
        name.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
    }
    name
}

/// The whole pattern, component by component or with slashes in it.
pub(super) fn compile(pattern: &str) -> Result<Regex, String> {
    let mut regex = String::from("(?s)^");
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '*' => regex.push_str("[^/]*"),
            '?' => regex.push_str("[^/]"),
            '[' => regex.push_str(&class(&mut chars)?),
            '\\' => literal(&mut regex, chars.next().ok_or("nothing follows the last `\\`")?),
            c => literal(&mut regex, c),
        }
    }
    regex.push('$');
    Regex::new(&regex).map_err(|e| e.to_string())
}

pub(super) fn literal(regex: &mut String, c: char) {
    regex.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
}

/// After the opening bracket, up to and with the closing one.
pub(super) fn class(chars: &mut Peekable<Chars<'_>>) -> Result<String, String> {
    let negated = chars.next_if_eq(&'^').is_some();
    let mut ranges = String::new();
    let mut count = 0;
    while count == 0 || chars.next_if_eq(&']').is_none() {
        let low = member(chars)?;
        let high = if chars.next_if_eq(&'-').is_some() { member(chars)? } else { low };
        if low <= high {
            ranges.push_str(&format!("\\x{{{:x}}}-\\x{{{:x}}}", u32::from(low), u32::from(high)));
        }
        count += 1;
    }
    // A range that runs backwards matches nothing, so that its negation matches everything.
    Ok(match (negated, ranges.is_empty()) {
        (false, false) => format!("[{ranges}]"),
        (true, false) => format!("[^{ranges}]"),
        (false, true) => "[^\\s\\S]".into(),
        (true, true) => "[\\s\\S]".into(),
    })
}

fn member(chars: &mut Peekable<Chars<'_>>) -> Result<char, String> {
    const OPEN: &str = "a `[` without its `]`";
    match chars.next() {
        Some(c @ ('-' | ']')) => Err(format!("`{c}` has to be escaped between brackets")),
        Some('\\') => chars.next().ok_or_else(|| OPEN.into()),
        Some(c) => Ok(c),
        None => Err(OPEN.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of Go's own documentation and tests.
    #[test]
    fn as_filepath_match() {
        for (pattern, name, expected) in [
            ("abc", "abc", true),
            ("*", "abc", true),
            ("*c", "abc", true),
            ("a*", "a", true),
            ("a*", "ab/c", false),
            ("a*/b", "abc/b", true),
            ("a*/b", "a/c/b", false),
            ("a*b*c*d*e*/f", "axbxcxdxe/f", true),
            ("a*b?c*x", "abxbbxdbxebxczzx", true),
            ("a*b?c*x", "abxbbxdbxebxczzy", false),
            ("ab[c]", "abc", true),
            ("ab[b-d]", "abc", true),
            ("ab[e-g]", "abc", false),
            ("ab[^c]", "abc", false),
            ("ab[^e-g]", "abc", true),
            ("a\\*b", "a*b", true),
            ("a\\*b", "ab", false),
            ("a?b", "a☺b", true),
            ("a[^a]b", "a☺b", true),
            ("a???b", "a☺b", false),
            ("[a-ζ]*", "α", true),
            ("*[a-ζ]", "A", false),
            ("a?b", "a/b", false),
            ("[\\]a]", "]", true),
            ("[\\-x]", "-", true),
            ("[x\\-]", "x", true),
            ("*x", "xxx", true),
            ("a.b", "axb", false),
            ("[b-a]", "a", false),
        ] {
            assert_eq!(compile(pattern).unwrap().is_match(name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn bad_patterns() {
        for pattern in ["[", "[a", "[]a]", "[-]", "[x-]", "[-x]", "[a-b-c]", "[^", "[^bc", "a[", "a\\", "[\\"] {
            assert!(compile(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn plain_names() {
        assert!(!has_wildcards("a\\*b"));
        assert!(has_wildcards("a[b"));
        assert_eq!(unescape("a\\*\\\\b\\"), "a*\\b\\");
    }
}
