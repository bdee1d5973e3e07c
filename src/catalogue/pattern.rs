//! Patterns that select images and plugins by name: a name, a glob, or `re:` and a regular expression.

use std::fmt;

use globset::{GlobBuilder, GlobMatcher};
use regex::Regex;

#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    matcher: Matcher,
}

#[derive(Clone, Debug)]
enum Matcher {
    Name,
    /// A glob whose only wildcards are `*`: its literal parts. Nearly all are, and they need no compiling.
    Stars(Vec<String>),
    Glob(GlobMatcher),
    Regex(Regex),
}

impl Pattern {
    /// The error says what is wrong with the text, without repeating it.
    pub fn parse(text: &str) -> Result<Pattern, String> {
        if text.is_empty() {
            return Err("it is empty".into());
        }
        let matcher = if let Some(expression) = text.strip_prefix("re:") {
            // The whole name has to match: a person who writes `base` does not mean `neutron-base-agent`.
            let whole = format!("^(?:{expression})$");
            Matcher::Regex(Regex::new(&whole).map_err(|e| last_line(&e.to_string()))?)
        } else if let Some(c) =
            text.chars().find(|c| c.is_whitespace() || *c == '/' || (*c == ',' && !text.contains('{')))
        {
            return Err(format!("it contains {c:?}, which no name does"));
        } else if !text.contains(['*', '?', '[', ']', '{', '}', '\\']) {
            Matcher::Name
        } else if !text.contains(['?', '[', ']', '{', '}', '\\']) {
            Matcher::Stars(text.split('*').map(str::to_owned).collect())
        } else {
            let glob = GlobBuilder::new(text).literal_separator(true).build();
            Matcher::Glob(glob.map_err(|e| e.kind().to_string())?.compile_matcher())
        };
        Ok(Pattern { text: text.to_owned(), matcher })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The name itself, when the pattern can match nothing else.
    pub fn literal(&self) -> Option<&str> {
        matches!(self.matcher, Matcher::Name).then_some(self.text.as_str())
    }

    pub fn matches(&self, name: &str) -> bool {
        match &self.matcher {
            Matcher::Name => self.text == name,
            Matcher::Stars(parts) => stars(parts, name),
            Matcher::Glob(glob) => glob.is_match(name),
            Matcher::Regex(regex) => regex.is_match(name),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// There is at least one star, so at least two parts: the first is a prefix, the last a suffix, and those between
/// are found from left to right, which is enough because stars match anything.
fn stars(parts: &[String], name: &str) -> bool {
    let [first, middle @ .., last] = parts else { return false };
    let Some(rest) = name.strip_prefix(first.as_str()) else { return false };
    let Some(mut rest) = rest.strip_suffix(last.as_str()) else { return false };
    for part in middle {
        match rest.find(part.as_str()) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

/// The regex crate draws the expression over several lines; the last says what is wrong.
fn last_line(text: &str) -> String {
    text.lines().last().unwrap_or(text).trim().trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(pattern: &str, name: &str) -> bool {
        Pattern::parse(pattern).unwrap().matches(name)
    }

    #[test]
    fn a_name_matches_itself_alone() {
        assert!(matches("base", "base"));
        assert!(!matches("base", "neutron-base"));
        assert!(!matches("base", "base2"));
    }

    #[test]
    fn stars_match_anything_between() {
        assert!(matches("neutron-*-agent", "neutron-l3-agent"));
        assert!(!matches("neutron-*-agent", "neutron-agent"));
        assert!(matches("*", "x"));
        assert!(matches("a**b", "ab"));
        assert!(!matches("ab*ba", "aba"));
    }

    #[test]
    fn expressions_match_whole_names() {
        assert!(matches("re:nova|neutron", "nova"));
        assert!(!matches("re:nova|neutron", "nova-api"));
        assert!(matches("nova-{api,compute}", "nova-api"));
        assert!(matches("no?a", "nova"));
    }

    #[test]
    fn bad_patterns_say_why() {
        assert_eq!(Pattern::parse("").unwrap_err(), "it is empty");
        assert!(Pattern::parse("a[").is_err());
        assert!(Pattern::parse("re:(").unwrap_err().contains("unclosed group"));
        assert_eq!(Pattern::parse("a b").unwrap_err(), "it contains ' ', which no name does");
    }

    proptest! {
        #[test]
        fn own_star_matcher_agrees_with_globset(pattern in "[ab*]{1,8}", name in "[ab]{0,8}") {
            prop_assume!(pattern.contains('*'));
            let glob = GlobBuilder::new(&pattern).build().unwrap().compile_matcher();
            prop_assert_eq!(matches(&pattern, &name), glob.is_match(&name));
        }

        #[test]
        fn parsing_never_panics(text in ".{0,40}") {
            if let Ok(pattern) = Pattern::parse(&text) {
                pattern.matches("keystone");
            }
        }
    }
}
