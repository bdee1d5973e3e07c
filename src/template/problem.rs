//! What minijinja says went wrong, as a problem with a place, and a hint where one can be found.

use std::error::Error as _;

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

use crate::diag::Diagnostic;
use crate::suggest;

use super::environment::{FUEL, Recipes};

/// `owner` is what was being rendered, `name` its template.
pub(super) fn diagnostic(error: &Error, owner: &str, name: &str, recipes: &Recipes, variables: &Value) -> Diagnostic {
    // The innermost error that knows where it happened is the cause; those around it are the way there.
    let mut cause = error;
    let mut way: Vec<String> = Vec::new();
    let mut next = error.source();
    while let Some(inner) = next.and_then(|e| e.downcast_ref::<Error>()) {
        if let (Some(file), Some(line)) = (cause.name(), cause.line()) {
            way.push(format!("{}:{line}", shown(file, recipes)));
        }
        if inner.name().is_some() || cause.name().is_none() {
            cause = inner;
        }
        next = inner.source();
    }
    let reason = reason(cause, name);
    let mut problem = Diagnostic::error(format!("the recipe of {owner} cannot be rendered: {reason}"));
    let template = cause.name().unwrap_or(name);
    if let Some(place) = cause.range().and_then(|span| recipes.made_place(template, &span)) {
        problem = problem.at(&place.file, place.span);
    } else if let Some(file) = recipes.file(template) {
        let span = cause.range().filter(|span| file.text.get(span.clone()).is_some());
        if let Some(span) = span.or_else(|| cause.line().map(|line| line_span(&file.text, line))) {
            problem = problem.at(&file, span);
        }
    }
    let line = problem.place.as_ref().map(|p| line_around(&p.file.text, p.span.start)).unwrap_or_default();
    problem.hint = hint(cause, variables, line);
    way.dedup();
    if let (None, Some(first)) = (&problem.hint, way.first()) {
        problem.hint = Some(format!("it was reached from {first}"));
    }
    problem
}

fn shown(template: &str, recipes: &Recipes) -> String {
    recipes.file(template).map_or_else(|| template.to_owned(), |file| file.path.display().to_string())
}

fn reason(error: &Error, name: &str) -> String {
    match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => format!("it was stopped after {FUEL} operations; a loop in it may never end"),
        (ErrorKind::TemplateNotFound, _) if error.name().is_none() => format!("there is no template `{name}`"),
        (ErrorKind::SyntaxError, Some(detail)) => format!("syntax error: {detail}"),
        (ErrorKind::UnknownFunction, Some(detail)) => {
            format!("there is no function `{}`", detail.trim_end_matches(" is unknown"))
        }
        (ErrorKind::UnknownFilter, Some(_)) => format!("there is no filter `{}`", unknown_filter(error)),
        (_, Some(detail)) => detail.to_owned(),
        (kind, None) => kind.to_string(),
    }
}

/// minijinja says "filter NAME is unknown".
fn unknown_filter(error: &Error) -> &str {
    error.detail().unwrap_or_default().trim_start_matches("filter ").trim_end_matches(" is unknown")
}

/// `line` is the text of the line with the error.
fn hint(error: &Error, variables: &Value, line: &str) -> Option<String> {
    let detail = error.detail().unwrap_or_default();
    if let Some((before, _)) = detail.split_once("` is undefined") {
        return undefined(before.rsplit('`').next()?, variables);
    }
    match error.kind() {
        // A filter was given the value and can't tell where it came from.
        ErrorKind::UndefinedError => {
            let word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
            let words = line.split(|c: char| !word(c)).filter(|w| w.contains('.'));
            words.into_iter().find_map(|w| undefined(w, variables).map(|hint| format!("`{w}` is undefined; {hint}")))
        }
        ErrorKind::TemplateNotFound => {
            Some("templates are named from the catalogue's root: `_recipes/NAME.j2` or `images/NAME/FILE`".into())
        }
        ErrorKind::UnknownFilter => suggest::near(unknown_filter(error), FILTERS),
        _ => None,
    }
}

/// The filters that are worth suggesting: ours, and those of minijinja's that recipes use.
const FILTERS: [&str; 20] = [
    "shell_quote",
    "env_quote",
    "json",
    "tojson",
    "default",
    "join",
    "items",
    "first",
    "last",
    "length",
    "list",
    "lower",
    "upper",
    "map",
    "replace",
    "select",
    "selectattr",
    "sort",
    "trim",
    "unique",
];

/// For `image.pakages`: what there is where the first unknown name was looked up.
fn undefined(expression: &str, variables: &Value) -> Option<String> {
    let mut scope = variables.clone();
    let mut path = String::new();
    for name in expression.split('.') {
        if scope.kind() != ValueKind::Map {
            return None;
        }
        match scope.get_attr(name) {
            Ok(value) if !value.is_undefined() => {
                if value.is_none() {
                    return Some(format!("the definition says nothing for `{path}{name}`; test it with `if` first"));
                }
                path.push_str(name);
                path.push('.');
                scope = value;
            }
            _ => {
                let known: Vec<String> = scope.try_iter().ok()?.map(|key| key.to_string()).collect();
                if let Some(near) = suggest::nearest(name, known.iter().map(String::as_str)) {
                    return Some(format!("did you mean `{path}{near}`?"));
                }
                let all: Vec<String> = known.iter().map(|k| format!("`{path}{k}`")).collect();
                let who = if path.ends_with(".vars.") { "; [vars] of the definition sets them" } else { "" };
                return match all.len() {
                    0 => Some(format!("`{}` is empty{who}", path.trim_end_matches('.'))),
                    1..=16 => Some(format!("there are {}{who}", all.join(", "))),
                    _ => None,
                };
            }
        }
    }
    None
}

fn line_around(text: &str, offset: usize) -> &str {
    let offset = offset.min(text.len());
    let start = text[..offset].rfind('\n').map_or(0, |i| i + 1);
    let end = text[offset..].find('\n').map_or(text.len(), |i| offset + i);
    &text[start..end]
}

fn line_span(text: &str, line: usize) -> std::ops::Range<usize> {
    let start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let length = text[start..].find('\n').unwrap_or(text.len() - start);
    start..start + length
}
