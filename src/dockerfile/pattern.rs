//! The patterns of `${v#p}`, `${v%p}` and `${v/p/r}`: `*`, `?` and escapes, but no brackets.

use regex::Regex;

pub(super) fn trim_prefix(pattern: &str, value: &str, greedy: bool) -> Result<String, String> {
    let regex = compile(pattern, greedy, true)?;
    Ok(regex.find(value).map_or(value, |found| &value[found.end()..]).to_owned())
}

/// The shortest match at the end is the shortest one at the start of both turned around.
pub(super) fn trim_suffix(pattern: &str, value: &str, greedy: bool) -> Result<String, String> {
    let rest = trim_prefix(&reverse_pattern(pattern), &value.chars().rev().collect::<String>(), greedy)?;
    Ok(rest.chars().rev().collect())
}

pub(super) fn replace(
    pattern: &str,
    replacement: &str,
    value: &str,
    all: bool,
    longest: usize,
) -> Result<String, String> {
    let regex = compile(pattern, true, false)?;
    let mut out = String::new();
    let mut rest = 0;
    for found in regex.find_iter(value).take(if all { usize::MAX } else { 1 }) {
        out.push_str(&value[rest..found.start()]);
        out.push_str(replacement);
        rest = found.end();
        if out.len() > longest {
            return Err("the value becomes longer than 128 KiB".into());
        }
    }
    out.push_str(&value[rest..]);
    Ok(out)
}

fn compile(pattern: &str, greedy: bool, anchored: bool) -> Result<Regex, String> {
    let wrong = |why: String| format!("`{pattern}` is not a pattern: {why}");
    let mut regex = String::from(if anchored { "^" } else { "" });
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '*' => regex.push_str(if greedy { ".*" } else { ".*?" }),
            '?' => regex.push('.'),
            // `}` and `/` have to be escaped to be in the pattern at all; the escape is not part of it.
            '\\' if matches!(chars.peek(), Some('}' | '/')) => {}
            '\\' => match chars.next() {
                Some(c @ ('*' | '?' | '\\')) => regex.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
                Some(c) => return Err(wrong(format!("`\\{c}` means nothing"))),
                None => return Err(wrong("it ends in `\\`".into())),
            },
            c => regex.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
        }
    }
    Regex::new(&regex).map_err(|e| wrong(e.to_string()))
}

/// An escape stays in front of what it escapes.
fn reverse_pattern(pattern: &str) -> String {
    let mut pieces: Vec<String> = Vec::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match (c, (c == '\\').then(|| chars.next()).flatten()) {
            ('\\', Some(escaped)) => pieces.push(format!("\\{escaped}")),
            (c, _) => pieces.push(c.into()),
        }
    }
    pieces.into_iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_survive_being_turned_around() {
        assert_eq!(reverse_pattern(r"a\*c"), r"c\*a");
        assert_eq!(trim_suffix(r"\*c", "ab*c", false).unwrap(), "ab");
        assert_eq!(trim_suffix(r"\*c", "abxc", false).unwrap(), "abxc");
    }

    #[test]
    fn characters_that_mean_something_elsewhere_are_plain() {
        assert_eq!(trim_prefix("a.b[c]", "a.b[c]d", false).unwrap(), "d");
        assert_eq!(replace("(", "$1", "a(b(", true, 99).unwrap(), "a$1b$1");
    }

    #[test]
    fn a_bad_escape_is_an_error() {
        assert_eq!(trim_prefix(r"\n", "x", false).unwrap_err(), r"`\n` is not a pattern: `\n` means nothing");
        assert!(trim_prefix("\\", "x", false).is_err());
    }
}
