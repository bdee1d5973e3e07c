//! Which flags each instruction takes, and reading them with a place for every problem.

use super::ast::{Span, Spanned, Word};
use super::lines::Logical;
use super::parse::Problems;
use super::words::RawFlag;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Switch,
    One,
    Many,
}

fn known(keyword: &str) -> &'static [(&'static str, Kind)] {
    use Kind::{Many, One, Switch};
    match keyword {
        "FROM" => &[("platform", One)],
        "RUN" => &[("mount", Many), ("network", One), ("security", One), ("device", Many)],
        "COPY" => {
            &[("from", One), ("chown", One), ("chmod", One), ("link", Switch), ("parents", Switch), ("exclude", Many)]
        }
        "ADD" => &[
            ("chown", One),
            ("chmod", One),
            ("link", Switch),
            ("exclude", Many),
            ("checksum", One),
            ("keep-git-dir", Switch),
            ("unpack", Switch),
        ],
        "HEALTHCHECK" => {
            &[("interval", One), ("timeout", One), ("start-period", One), ("start-interval", One), ("retries", One)]
        }
        _ => &[],
    }
}

/// The flags of one instruction by name; those that are wrong have been reported and are left out.
pub(super) struct Flags(Vec<(&'static str, Word)>);

impl Flags {
    pub fn read(keyword: &str, raw: &[RawFlag], line: &Logical, problems: &mut Problems<'_>) -> Flags {
        let table = known(keyword);
        let mut flags: Vec<(&'static str, Word)> = Vec::new();
        for flag in raw {
            let span = line.place(flag.range.clone());
            let (name, value) = match flag.text.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (flag.text.as_str(), None),
            };
            let name = name.trim_start_matches("--");
            let Some((name, kind)) = table.iter().find(|(known, _)| *known == name) else {
                let names = table.iter().map(|(name, _)| format!("--{name}"));
                let hint = super::nearest(&format!("--{name}"), names).unwrap_or_else(|| match table {
                    [] => format!("{keyword} takes no flags"),
                    _ => format!("{keyword} knows {}", list(table)),
                });
                problems.error(format!("{keyword} has no flag `--{name}`"), span, "not a flag of this", Some(hint));
                continue;
            };
            if *kind != Kind::Many && flags.iter().any(|(seen, _)| seen == name) {
                problems.error(format!("`--{name}` is given twice"), span, "the second time", None);
                continue;
            }
            let value = match (kind, value) {
                (Kind::Switch, None) => "true".to_owned(),
                (Kind::Switch, Some(value)) => match value.to_ascii_lowercase() {
                    value if value == "true" || value == "false" => value,
                    _ => {
                        let hint = Some(format!("write `--{name}` or `--{name}=false`"));
                        problems.error(format!("`--{name}` is either true or false"), span, "neither", hint);
                        continue;
                    }
                },
                (_, Some(value)) => value.to_owned(),
                (_, None) => {
                    let hint = Some(format!("write `--{name}=…`"));
                    problems.error(format!("`--{name}` needs a value"), span, "no value", hint);
                    continue;
                }
            };
            flags.push((name, Spanned { value, span }));
        }
        Flags(flags)
    }

    pub fn word(&self, name: &str) -> Option<Word> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, word)| word.clone())
    }

    pub fn words(&self, name: &str) -> Vec<Word> {
        self.0.iter().filter(|(known, _)| *known == name).map(|(_, word)| word.clone()).collect()
    }

    pub fn switch(&self, name: &str) -> Option<bool> {
        self.word(name).map(|word| word.value == "true")
    }

    pub fn first_place(&self) -> Option<Span> {
        self.0.first().map(|(_, word)| word.span.clone())
    }
}

fn list(table: &[(&str, Kind)]) -> String {
    table.iter().map(|(name, _)| format!("`--{name}`")).collect::<Vec<_>>().join(", ")
}
