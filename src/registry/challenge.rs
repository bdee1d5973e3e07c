//! `WWW-Authenticate`: what a registry wants to see before it answers (RFC 9110, 11.6.1).

use std::collections::BTreeMap;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Challenge {
    /// Lower case: `bearer`, `basic`.
    pub scheme: String,
    /// Names in lower case.
    pub params: BTreeMap<String, String>,
}

/// All challenges of one header, in order. What cannot be understood ends the list.
pub(super) fn parse(header: &str) -> Vec<Challenge> {
    let mut challenges: Vec<Challenge> = Vec::new();
    let mut rest = header;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let (word, after) = token(rest);
        if word.is_empty() {
            return challenges;
        }
        let spaces = after.trim_start_matches([' ', '\t']);
        match (spaces.strip_prefix('='), challenges.last_mut()) {
            (Some(value), Some(challenge)) => {
                let Some((value, after)) = parameter(value.trim_start_matches([' ', '\t'])) else {
                    return challenges;
                };
                challenge.params.insert(word.to_ascii_lowercase(), value);
                rest = after;
            }
            (Some(_), None) => return challenges,
            (None, _) => {
                challenges.push(Challenge { scheme: word.to_ascii_lowercase(), params: BTreeMap::new() });
                rest = spaces;
            }
        }
    }
}

fn token(text: &str) -> (&str, &str) {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    text.split_at(text.find(|c| !is_token(c)).unwrap_or(text.len()))
}

fn parameter(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        // Some registries leave out the quotes around a realm.
        let (value, after) = text.split_at(text.find([',', ' ', '\t']).unwrap_or(text.len()));
        return Some((value.to_owned(), after));
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => value.push(chars.next()?.1),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn challenge(scheme: &str, params: &[(&str, &str)]) -> Challenge {
        Challenge {
            scheme: scheme.into(),
            params: params.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        }
    }

    #[test]
    fn as_registries_write_them() {
        assert_eq!(
            parse(
                r#"Bearer realm="https://auth.example.org/token",service="r.example.org",scope="repository:a/b:pull,push""#
            ),
            [challenge(
                "bearer",
                &[
                    ("realm", "https://auth.example.org/token"),
                    ("service", "r.example.org"),
                    ("scope", "repository:a/b:pull,push")
                ]
            )]
        );
        assert_eq!(
            parse(r#"Basic realm="a \"b\"", Bearer Realm=https://x/t , service = "s", Negotiate"#),
            [
                challenge("basic", &[("realm", "a \"b\"")]),
                challenge("bearer", &[("realm", "https://x/t"), ("service", "s")]),
                challenge("negotiate", &[])
            ]
        );
        assert_eq!(parse("basic"), [challenge("basic", &[])]);
        assert_eq!(parse(r#"Bearer realm="open"#), [challenge("bearer", &[])]);
        assert_eq!(parse("=x"), []);
    }

    proptest! {
        #[test]
        fn any_value_comes_through(value in "\\PC{0,30}") {
            let quoted = value.replace('\\', "\\\\").replace('"', "\\\"");
            let parsed = parse(&format!("Bearer realm=\"{quoted}\", service=\"s\""));
            prop_assert_eq!(parsed, [challenge("bearer", &[("realm", &value), ("service", "s")])]);
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,60}") {
            parse(&text);
        }
    }
}
