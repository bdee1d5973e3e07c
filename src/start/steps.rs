//! One step of a definition: what it does, when, and by which title it is shown.

use std::path::Path;

use crate::catalogue::names;
use crate::catalogue::reader::{Reader, error};
use crate::catalogue::tree::Value;
use crate::suggest;

use super::definition::{Action, Content, Escape, Make, Mode, Own, Run, Step, When, Write};
use super::read::texts_by_name;
use super::text::{Allows, Uses};

/// What a step does is said by the one of these keys that it has.
const ACTIONS: [&str; 7] = ["make", "own", "link", "remove", "write", "run", "refuse"];

pub(super) fn read(reader: &mut Reader<'_>, dir: Option<&Path>, uses: &mut Uses) -> Option<Step> {
    let title = reader.string("title");
    if title.as_ref().is_none_or(|title| title.trim().is_empty()) && (title.is_some() || !reader.has_like("title")) {
        let problem = error(reader.place, "a step has no `title`");
        reader.out.problems.push(problem.hint("say in plain words what it does: it is shown when the service starts"));
    }
    if let Some(title) = &title {
        uses.text(title, reader.value_place("title"), Allows::Plain);
    }
    let when = reader.table("when", |reader| read_when(reader, uses)).unwrap_or_default();
    let said: Vec<&'static str> = ACTIONS.into_iter().filter(|action| reader.has(action)).collect();
    let action = match said[..] {
        [action] => read_action(reader, action, dir, uses),
        [] => {
            let near = reader.keys().find_map(|key| suggest::nearest(key, ACTIONS).map(|near| (key, near)));
            let mut problem = match near {
                Some((key, _)) => error(reader.key_place(key).unwrap_or(reader.place), format!("unknown key `{key}`")),
                None => error(reader.place, "a step does nothing"),
            };
            problem.hint = Some(match near {
                Some((_, near)) => format!("did you mean `{near}`?"),
                None => format!("it has one of {}", ACTIONS.map(|action| format!("`{action}`")).join(", ")),
            });
            reader.out.problems.push(problem);
            // Which of its other keys are right isn't known.
            reader.any_key();
            None
        }
        [_, second, ..] => {
            let problem = error(
                reader.key_place(second).unwrap_or(reader.place),
                format!("a step does one thing, and this has {}", quoted(&said)),
            );
            reader.out.problems.push(problem.hint("make a step of each"));
            reader.any_key();
            None
        }
    };
    Some(Step { title: title?, when, action: action? })
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" and ")
}

fn read_action(reader: &mut Reader<'_>, action: &'static str, dir: Option<&Path>, uses: &mut Uses) -> Option<Action> {
    match action {
        "make" => {
            let path = path(reader, "make", uses);
            let kinds = [("directory", true), ("file", false)];
            let directory = reader.choice("kind", &kinds).unwrap_or(true);
            let (owner, mode) = (owner(reader), mode(reader).map(Mode));
            Some(Action::Make(Make { path: path?, directory, owner, mode }))
        }
        "own" => {
            let path = path(reader, "own", uses);
            let (owner, mode) = (owner(reader), mode(reader).map(Mode));
            let recurse = reader.boolean("recurse");
            if owner.is_none() && mode.is_none() && !reader.has_like("owner") && !reader.has_like("mode") {
                reader.out.problems.push(error(reader.place, "a step that owns has neither `owner` nor `mode`"));
            }
            Some(Action::Own(Own { path: path?, owner, mode, recurse }))
        }
        "link" => {
            let path = path(reader, "link", uses);
            let to = text(reader, "to", Allows::Plain, uses);
            needs(reader, "to", "where the link leads");
            Some(Action::Link { path: path?, to: to? })
        }
        "remove" => Some(Action::Remove { path: path(reader, "remove", uses)? }),
        "write" => read_write(reader, dir, uses).map(Action::Write),
        "run" => {
            let command = command(reader, "run", Allows::Plain, uses);
            let user = reader.form("user", "a user", owned_by);
            let environment = texts_by_name(reader, "environment", Allows::Secrets, uses);
            let input = text(reader, "input", Allows::Secrets, uses);
            let escape = escape(reader);
            let directory = path(reader, "directory", uses);
            Some(Action::Run(Run { command: command?, user, environment, input, escape, directory }))
        }
        _ => Some(Action::Refuse { reason: text(reader, "refuse", Allows::Plain, uses)? }),
    }
}

fn read_write(reader: &mut Reader<'_>, dir: Option<&Path>, uses: &mut Uses) -> Option<Write> {
    let path = path(reader, "write", uses);
    let (owner, mode) = (owner(reader), mode(reader));
    let keep = reader.boolean("keep");
    let check = command(reader, "check", Allows::Candidate, uses);
    let user = reader.form("check_user", "a user", owned_by);
    let check = check.map(|command| Run { command, user, ..Run::default() });
    let sources: Vec<&str> = ["text", "template", "fragments"].into_iter().filter(|key| reader.has(key)).collect();
    if sources.len() != 1 {
        let problem = error(reader.place, "a file is written from one of `text`, `template` and `fragments`");
        reader.out.problems.push(problem);
    }
    let others = mode.unwrap_or(0o644) & 0o007 != 0;
    let allows = if others { Allows::OpenFile } else { Allows::Secrets };
    let here = text(reader, "text", allows, uses);
    let template = template(reader, dir, allows, uses);
    let escape = escape(reader);
    let fragments = reader.forms("fragments", "a path or pattern", path_form);
    note(reader, "fragments", &fragments, Allows::Plain, uses);
    let content = match here.or(template) {
        Some(text) => Content::Text { text, escape },
        None => Content::Fragments { fragments },
    };
    Some(Write { path: path?, content, owner, mode: mode.map(Mode), check, keep })
}

/// A file beside the definition, which is in the bundle as a part of it.
fn template(reader: &mut Reader<'_>, dir: Option<&Path>, allows: Allows, uses: &mut Uses) -> Option<String> {
    let name = reader.form("template", "a file beside the definition", names::inside)?;
    let place = reader.value_place("template").clone();
    let Some(dir) = dir else { return Some(String::new()) };
    let path = dir.join(&name);
    match crate::text::read_to_string(&path) {
        Ok(text) => {
            uses.text(&text, &place, allows);
            Some(text)
        }
        Err(why) => {
            let problem = error(&place, format!("cannot read the template `{}`: {why}", path.display()));
            reader.out.problems.push(problem);
            None
        }
    }
}

fn read_when(reader: &mut Reader<'_>, uses: &mut Uses) -> When {
    let mut paths = |key: &'static str| {
        let paths = reader.forms(key, "a path or pattern", path_form);
        note(reader, key, &paths, Allows::Plain, uses);
        paths
    };
    let (exists, missing) = (paths("exists"), paths("missing"));
    let mut variables = |key: &'static str| {
        let placed = reader.placed_forms(key, "a name of a variable", names::env);
        placed.iter().for_each(|(name, place)| uses.name(name, place));
        placed.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    let (set, unset) = (variables("set"), variables("unset"));
    When { exists, missing, set, unset }
}

/// A list of words, the first of which is a program.
fn command(reader: &mut Reader<'_>, key: &'static str, allows: Allows, uses: &mut Uses) -> Option<Vec<String>> {
    let words = reader.strings(key);
    note(reader, key, &words, allows, uses);
    let node = reader.peek(key)?;
    match (&node.value, words.first()) {
        (_, Some(program)) if !program.is_empty() => return Some(words),
        // Anything else than a list was said already.
        (Value::Array(_), _) => reader.out.problems.push(error(&node.place, "it names no program")),
        _ => {}
    }
    None
}

/// Remembers the texts of a list.
pub(super) fn note(reader: &Reader<'_>, key: &str, texts: &[String], allows: Allows, uses: &mut Uses) {
    for (index, text) in texts.iter().enumerate() {
        let place = reader.out.places.get(&reader.name(&format!("{key}.{index}")));
        uses.text(text, place.unwrap_or(reader.value_place(key)), allows);
    }
}

fn text(reader: &mut Reader<'_>, key: &'static str, allows: Allows, uses: &mut Uses) -> Option<String> {
    let text = reader.string(key)?;
    uses.text(&text, reader.value_place(key), allows);
    Some(text)
}

pub(super) fn path(reader: &mut Reader<'_>, key: &'static str, uses: &mut Uses) -> Option<String> {
    let text = reader.form(key, "a path in the image", path_form)?;
    uses.text(&text, reader.value_place(key), Allows::Plain);
    Some(text)
}

/// A variable can be the beginning of a path.
fn path_form(text: &str) -> Result<(), String> {
    let rest = if text.starts_with("${") { text.split_once('}').map_or("", |(_, rest)| rest) } else { text };
    match text.starts_with("${") && rest.is_empty() {
        true => Ok(()),
        false => names::absolute(rest),
    }
}

pub(super) fn owner(reader: &mut Reader<'_>) -> Option<String> {
    reader.form("owner", "an owner", owned_by)
}

/// `USER` or `USER:GROUP`, as names or numbers.
fn owned_by(text: &str) -> Result<(), String> {
    let (user, group) = text.split_once(':').unwrap_or((text, "root"));
    for part in [user, group] {
        if part.is_empty() || !part.chars().all(|c| c.is_ascii_digit()) {
            names::user(part)?;
        }
    }
    Ok(())
}

pub(super) fn mode(reader: &mut Reader<'_>) -> Option<u32> {
    let octal = |text: &str| match (3..=4).contains(&text.len()) && text.bytes().all(|c| (b'0'..=b'7').contains(&c)) {
        true => Ok(()),
        false => Err("write three or four octal digits in quotes, like \"0750\"".to_owned()),
    };
    let text = reader.form("mode", "a mode", octal)?;
    u32::from_str_radix(&text, 8).ok()
}

fn escape(reader: &mut Reader<'_>) -> Option<Escape> {
    reader.choice("escape", &[("sql", Escape::Sql)])
}

fn needs(reader: &mut Reader<'_>, key: &str, what: &str) {
    if !reader.has_like(key) {
        reader.out.problems.push(error(reader.place, format!("there is no `{key}`: {what}")));
    }
}
