//! Kollage's result against the one that stands beside the case.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::build::{Kollage, Place, kollage};
use crate::case::{Case, Outcome};
use crate::image::ImageFacts;
use crate::rootless;

pub enum Verdict {
    Equal,
    /// As case.toml says and kollage.json pins.
    Meant,
    /// Another one for an ordinary user, as rootless.toml says.
    Excused,
    /// One line a difference.
    Wrong(Vec<String>),
}

pub fn judge(place: &Place, case: &Case) -> Verdict {
    let verdict = judge_as_root(place, case);
    let Some((_, ids)) = place.user.as_ref() else { return verdict };
    let excuses = rootless::excuses();
    let Some(excuse) = rootless::excuse(&excuses, *ids, case) else { return verdict };
    let Verdict::Wrong(differences) = verdict else {
        return Verdict::Wrong(vec!["it does not differ: take it out of rootless.toml".into()]);
    };
    let only = regex::Regex::new(&excuse.only).unwrap();
    let others: Vec<_> = differences.into_iter().filter(|d| !only.is_match(d)).collect();
    if others.is_empty() { Verdict::Excused } else { Verdict::Wrong(others) }
}

fn judge_as_root(place: &Place, case: &Case) -> Verdict {
    let Some(recorded) = case.expected() else {
        return Verdict::Wrong(vec!["there is no expected.json; record it as README.md says".into()]);
    };
    let built = kollage(place, case);
    if let Some(problem) = ["panicked at", "internal error"].iter().find(|p| built.stderr.contains(**p)) {
        return Verdict::Wrong(vec![format!("{problem}: {}", built.stderr)]);
    }
    let differences = against(case, &recorded.outcome, &built);
    if case.settings.differs.is_none() {
        return if differences.is_empty() { Verdict::Equal } else { Verdict::Wrong(differences) };
    }
    if differences.is_empty() {
        return Verdict::Wrong(vec!["it does not differ any more: take `differs` out of case.toml".into()]);
    }
    let Some(own) = case.own() else {
        return Verdict::Wrong(vec!["there is no kollage.json to pin what is meant".into()]);
    };
    let differences = against(case, &own, &built);
    if differences.is_empty() { Verdict::Meant } else { Verdict::Wrong(differences) }
}

fn against(case: &Case, expected: &Outcome, built: &Kollage) -> Vec<String> {
    match (expected, &built.outcome) {
        (Outcome::Image(expected), Outcome::Image(got)) => facts(expected, got),
        (Outcome::Image(_), Outcome::Error(_)) => vec![format!("exit code {}: {}", built.code, built.stderr.trim())],
        (Outcome::Error(reason), Outcome::Image(_)) => vec![format!("builds, but must not: {reason}")],
        (Outcome::Error(_), Outcome::Error(_)) => message(case, built),
    }
}

/// A refusal names the line, and is one of Kollage's own.
fn message(case: &Case, built: &Kollage) -> Vec<String> {
    let mut out = Vec::new();
    if !case.settings.code.map_or(matches!(built.code, 1 | 2), |code| built.code == code) {
        out.push(format!("exit code {}: {}", built.code, built.stderr.trim()));
    }
    if let Some(line) = case.settings.line
        && ![format!("Dockerfile:{line}:"), format!("Dockerfile:{line}\n"), format!("line {line}")]
            .iter()
            .any(|form| built.stderr.contains(form.as_str()))
    {
        out.push(format!("does not name line {line}: {}", built.stderr.trim()));
    }
    if let Some(words) = &case.settings.says
        && !built.stderr.contains(words.as_str())
    {
        out.push(format!("does not say `{words}`: {}", built.stderr.trim()));
    }
    out
}

/// The one difference that is excused everywhere, because no process can see it: Docker adds an empty layer for a
/// WORKDIR whose directory is there already, and Kollage adds none.
fn without_idle_workdirs(expected: &ImageFacts, got: &ImageFacts) -> ImageFacts {
    let mut expected = expected.clone();
    for (line, other) in expected.history.iter_mut().zip(&got.history) {
        if line.starts_with("WORKDIR ") && other.strip_prefix("(empty) ") == Some(line) {
            line.clone_from(other);
            expected.layers -= 1;
        }
    }
    expected
}

fn facts(expected: &ImageFacts, got: &ImageFacts) -> Vec<String> {
    let expected = &without_idle_workdirs(expected, got);
    let mut out = Vec::new();
    let mut differ = |what: &str, expected: Option<String>, got: Option<String>| {
        if expected != got {
            let told = |value: Option<String>| value.unwrap_or_else(|| "nothing".into());
            out.push(format!("{what}: Docker has {}; Kollage has {}", told(expected), told(got)));
        }
    };
    let keys = |one: &serde_json::Map<String, Value>, two: &serde_json::Map<String, Value>| {
        one.keys().chain(two.keys()).cloned().collect::<std::collections::BTreeSet<_>>()
    };
    for key in keys(&expected.config, &got.config) {
        let value = |facts: &ImageFacts| facts.config.get(&key).map(Value::to_string);
        differ(&format!("config {key}"), value(expected), value(got));
    }
    let files: BTreeMap<&String, ()> = expected.files.keys().chain(got.files.keys()).map(|k| (k, ())).collect();
    for path in files.into_keys() {
        differ(path, expected.files.get(path).cloned(), got.files.get(path).cloned());
    }
    let list = |facts: &ImageFacts| Some(facts.removed.join(" "));
    differ("removed", list(expected), list(got));
    differ("stands on the base", Some(expected.on_base.to_string()), Some(got.on_base.to_string()));
    differ("layers", Some(expected.layers.to_string()), Some(got.layers.to_string()));
    differ("history", Some(format!("{:#?}", expected.history)), Some(format!("{:#?}", got.history)));
    differ("faults of layers", Some(expected.faults.join("; ")), Some(got.faults.join("; ")));
    out
}
