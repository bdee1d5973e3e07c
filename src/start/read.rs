//! `start.toml` to a definition, all problems at once.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::catalogue::definition::{head_of, read as read_file};
use crate::catalogue::names;
use crate::catalogue::reader::{Out, Reader, error};
use crate::catalogue::tree;
use crate::diag::{Diagnostics, SourceFile};

use super::definition::{
    Definition, Make, Missing, Mode, Needs, SCHEMA, Step, Stop, Takes, Task, Then, User, Variable, When,
};
use super::steps;
use super::text::{Allows, Uses};

/// Reads the definition in a folder that is named after the service.
pub(super) fn load(dir: &Path, name: &str, problems: &mut Diagnostics) -> Option<Definition> {
    let file = read_file(&dir.join("start.toml"), problems)?;
    let mut definition = read(name, &file, Some(dir), problems)?;
    if dir.join("extend_start.sh").is_file() {
        definition.script = Some(format!("{name}.sh"));
    }
    Some(definition)
}

/// Without a directory, files beside the definition are taken to be there.
pub(super) fn read(
    name: &str,
    file: &Arc<SourceFile>,
    dir: Option<&Path>,
    problems: &mut Diagnostics,
) -> Option<Definition> {
    let root = tree::parse(file, problems)?;
    let tree::Value::Table(table) = &root.value else { return None };
    let mut out = Out::default();
    let mut root = Reader::new(table, &root.place, &mut out);
    let mut uses = Uses::default();
    let head = root.table("service", |reader| read_head(reader, &mut uses));
    if head.is_none() && !root.has("service") {
        let problem = error(&head_of(file), "there is no [service] table");
        root.out.problems.push(problem.hint("a definition has at least `[service]` with a `summary`"));
    }
    let user = root.table("user", read_user).flatten();
    let environment = texts_by_name(&mut root, "environment", Allows::Plain, &mut uses);
    let variables = read_variables(&mut root);
    let needs = root.table("needs", read_needs).unwrap_or_default();
    let mut prepare = Vec::new();
    for (key, directory) in [("directory", true), ("file", false)] {
        root.tables(key, |reader| prepare.extend(read_made(reader, directory, &mut uses)));
    }
    let steps = read_steps(&mut root, dir, &mut uses);
    let mut tasks: Vec<Task> = Vec::new();
    root.tables("task", |reader| {
        let Some(task) = read_task(reader, dir, &mut uses) else { return };
        for (key, twice) in [
            ("name", tasks.iter().any(|other| other.name == task.name)),
            ("variable", tasks.iter().any(|other| other.variable.is_some() && other.variable == task.variable)),
        ] {
            if twice {
                let message = format!("another task has this `{key}` already");
                reader.out.problems.push(error(reader.value_place(key), message));
            }
        }
        tasks.push(task);
    });
    root.finish();
    uses.judge(&variables, &mut out.problems);
    problems.extend(out.problems);
    let head = head?;
    Some(Definition {
        schema: SCHEMA,
        name: name.to_owned(),
        summary: head.summary,
        command: head.command,
        arguments: head.arguments,
        user,
        capabilities: head.capabilities,
        environment,
        variables,
        stop: head.stop,
        health: head.health,
        needs,
        prepare,
        steps,
        tasks,
        script: None,
    })
}

struct Head {
    summary: String,
    command: Vec<String>,
    arguments: Vec<String>,
    stop: Stop,
    health: Vec<String>,
    capabilities: Vec<String>,
}

const SIGNALS: [&str; 7] = ["HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "WINCH"];

fn read_head(reader: &mut Reader<'_>, uses: &mut Uses) -> Head {
    let signals = SIGNALS.map(|name| (name, name));
    Head {
        summary: reader.string("summary").unwrap_or_default(),
        command: read_command(reader, "command", uses),
        arguments: read_command(reader, "arguments", uses),
        stop: Stop {
            signal: reader.choice("stop_signal", &signals).map(str::to_owned),
            timeout: reader.number::<u32>("stop_timeout", 1..=86_400).map(|seconds| seconds.to_string()),
        },
        health: read_health(reader, uses),
        capabilities: reader.forms("capabilities", "a capability", names::capability),
    }
}

/// It stands in for the `command` of a configuration, which is one line that is cut at blanks.
fn read_command(reader: &mut Reader<'_>, key: &'static str, uses: &mut Uses) -> Vec<String> {
    let word = |word: &str| match word.chars().find(|c| c.is_whitespace() || matches!(c, '*' | '?' | '[')) {
        Some(c) => Err(format!("it has {c:?} in it, which a configuration's command couldn't have")),
        None if word.is_empty() => Err("it is empty".into()),
        None => Ok(()),
    };
    let Some(node) = reader.node(key) else { return Vec::new() };
    let words = reader.list_of(&reader.name(key), node, "a word of a command", word, false);
    steps::note(reader, key, &words, Allows::Plain, uses);
    words
}

fn read_health(reader: &mut Reader<'_>, uses: &mut Uses) -> Vec<String> {
    let words = reader.strings("health");
    steps::note(reader, "health", &words, Allows::Plain, uses);
    let place = reader.value_place("health").clone();
    let wrong = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] | ["http", _, ..] | ["port" | "listen", _, _, ..] | ["socket" | "file-age", _, _] => None,
        [kind, ..] => {
            let kinds = ["http", "port", "listen", "socket", "file-age"];
            let hint = crate::suggest::hint(kind, kinds);
            let usage = "[\"http\", URL], [\"port\", PROCESS, PORT], [\"listen\", PROCESS, PORT], \
                         [\"socket\", PROCESS, PATH] or [\"file-age\", FILE, SECONDS]";
            Some(match kinds.contains(&kind) {
                true => (format!("`{kind}` lacks an argument, or has too many"), Some(format!("it is {usage}"))),
                false => (format!("there is no check `{kind}`"), hint),
            })
        }
    };
    if let Some((message, hint)) = wrong {
        let mut problem = error(&place, message);
        problem.hint = hint;
        reader.out.problems.push(problem);
    }
    words
}

fn read_user(reader: &mut Reader<'_>) -> Option<User> {
    let ids = 0..=i64::from(u32::MAX - 1);
    let name = reader.form("name", "a name of a user", names::user);
    let uid = reader.number("uid", ids.clone());
    let gid = reader.number("gid", ids);
    let missing = [("image", Missing::Image), ("number", Missing::Number), ("error", Missing::Error)];
    let missing = reader.choice("missing", &missing).unwrap_or_default();
    for key in ["name", "uid"] {
        if !reader.has_like(key) {
            reader.out.problems.push(error(reader.place, format!("[user] has no `{key}`")));
        }
    }
    let uid = uid?;
    Some(User { name: name?, uid, gid: gid.unwrap_or(uid), missing })
}

fn read_variables(root: &mut Reader<'_>) -> BTreeMap<String, Variable> {
    let mut variables = BTreeMap::new();
    root.each("variables", |name, entry, reader| {
        if let Err(why) = names::env(name) {
            reader.out.problems.push(error(&entry.place, format!("`{name}` is not a name of a variable: {why}")));
        }
        let full = reader.name(name);
        let variable = reader.table_of(&full, &entry.node, |reader| {
            let summary = reader.string("summary");
            if summary.is_none() && !reader.has_like("summary") {
                let problem = error(reader.place, format!("the variable `{name}` has no `summary`"));
                reader.out.problems.push(problem.hint("say in a few words what it is, for whoever has to set it"));
            }
            let default = reader.string("default");
            let secret = reader.boolean("secret");
            if secret && default.is_some() {
                let place = reader.value_place("default");
                reader.out.problems.push(error(place, format!("the secret `{name}` has a default, which all know")));
            }
            let flag = reader.boolean("flag");
            if flag && (secret || default.is_some()) {
                let why = format!("`{name}` is a flag, which is set or not, and has neither default nor secret");
                reader.out.problems.push(error(reader.value_place("flag"), why));
            }
            Variable { summary: summary.unwrap_or_default(), default, secret, flag }
        });
        variables.extend(variable.map(|variable| (name.to_owned(), variable)));
    });
    variables
}

fn read_needs(reader: &mut Reader<'_>) -> Needs {
    Needs {
        programs: reader.forms("programs", "a program", |text| match text.is_empty() || text.contains(' ') {
            true => Err("it is a name or a path, without arguments".into()),
            false => Ok(()),
        }),
        paths: reader.forms("paths", "a path in the image", names::absolute),
    }
}

/// `[[directory]]` and `[[file]]`
fn read_made(reader: &mut Reader<'_>, directory: bool, uses: &mut Uses) -> Option<Step> {
    let path = steps::path(reader, "path", uses);
    let (owner, mode) = (steps::owner(reader), steps::mode(reader));
    if path.is_none() && !reader.has_like("path") {
        reader.out.problems.push(error(reader.place, "there is no `path`"));
    }
    let path = path?;
    let title = format!("Make {path}");
    let make = Make { path, directory, owner, mode: mode.map(Mode) };
    Some(Step { title, when: When::default(), action: super::definition::Action::Make(make) })
}

fn read_task(reader: &mut Reader<'_>, dir: Option<&Path>, uses: &mut Uses) -> Option<Task> {
    let name = reader.form("name", "a name of a task", names::component);
    if name.is_none() && !reader.has_like("name") {
        reader.out.problems.push(error(reader.place, "a task has no `name`"));
    }
    let summary = reader.string("summary").unwrap_or_default();
    let variable = reader.form("variable", "a name of a variable", names::env);
    let then = reader.choice("then", &[("end", Then::End), ("start", Then::Start)]).unwrap_or_default();
    let takes = reader.choice("while", &[("running", Takes::Running), ("stopped", Takes::Stopped)]).unwrap_or_default();
    let steps = read_steps(reader, dir, uses);
    if steps.is_empty() && !reader.has_like("step") {
        let problem = error(reader.place, "a task has no step").hint("write at least one `[[task.step]]`");
        reader.out.problems.push(problem);
    }
    Some(Task { name: name?, summary, variable, then, takes, steps })
}

fn read_steps(reader: &mut Reader<'_>, dir: Option<&Path>, uses: &mut Uses) -> Vec<Step> {
    let mut all = Vec::new();
    reader.tables("step", |reader| all.extend(steps::read(reader, dir, uses)));
    all
}

/// A table of texts whose keys are names of variables.
pub(super) fn texts_by_name(
    reader: &mut Reader<'_>,
    key: &'static str,
    allows: Allows,
    uses: &mut Uses,
) -> BTreeMap<String, String> {
    let map = reader.string_map(key, "a name of a variable", names::env);
    for (name, text) in &map {
        let place = reader.out.places.get(&reader.name(&format!("{key}.{name}"))).cloned();
        uses.text(text, place.as_ref().unwrap_or(reader.value_place(key)), allows);
    }
    map
}
