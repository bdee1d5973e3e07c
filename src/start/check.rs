//! Whether an image has what a service needs, asked before anything runs: programs and what they are loaded by, the
//! user, paths, and a shell only if there is a script.

use std::collections::BTreeMap;

use serde::Serialize;

use super::definition::{Definition, Missing};
use super::view::View;
use crate::error::Result;
use crate::image::config::ImageConfig;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Need {
    pub kind: Kind,
    /// A program, user or path.
    pub what: String,
    /// What needs it: `the command`, `the task backup`, …
    pub by: Vec<String>,
    pub state: State,
    /// Where it is, or why it won't do.
    pub note: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Program,
    User,
    Path,
    Shell,
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Program => "program",
            Kind::User => "user",
            Kind::Path => "path",
            Kind::Shell => "shell",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Found,
    /// It isn't there, and a start goes on without.
    Replaced,
    Missing,
}

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub fn check(definition: &Definition, view: &View, config: &ImageConfig) -> Result<Vec<Need>> {
    let path = config.config.env_get("PATH").unwrap_or(DEFAULT_PATH);
    let mut needs = Vec::new();
    for ((kind, what), by) in wanted(definition) {
        let (state, note) = match kind {
            Kind::Program | Kind::Shell => program(view, &what, path)?,
            Kind::Path => match view.find(what.as_ref())? {
                Some(_) => (State::Found, String::new()),
                None => (State::Missing, String::new()),
            },
            Kind::User => user(definition, view, config, &what)?,
        };
        needs.push(Need { kind, what, by, state, note });
    }
    Ok(needs)
}

/// Everything that is needed, with what needs it.
fn wanted(definition: &Definition) -> BTreeMap<(Kind, String), Vec<String>> {
    let mut wanted: BTreeMap<(Kind, String), Vec<String>> = BTreeMap::new();
    let mut want = |kind, what: &str, by: String| {
        let all = wanted.entry((kind, what.to_owned())).or_default();
        if !all.contains(&by) {
            all.push(by);
        }
    };
    let known = |word: &&String| !word.contains("${");
    if let Some(program) = definition.command.first().filter(known) {
        want(Kind::Program, program, "the command".into());
    }
    for (task, step) in definition.all_steps() {
        let by = task.map_or_else(|| "the start".to_owned(), |task| format!("the task {}", task.name));
        let Some(run) = step.runs() else { continue };
        if let Some(program) = run.command.first().filter(known) {
            want(Kind::Program, program, by.clone());
        }
        if let Some(user) = &run.user {
            want(Kind::User, user.split(':').next().unwrap_or(user), by);
        }
    }
    definition.needs.programs.iter().for_each(|program| want(Kind::Program, program, "the service".into()));
    definition.needs.paths.iter().for_each(|path| want(Kind::Path, path, "the service".into()));
    if let Some(user) = &definition.user {
        want(Kind::User, &user.name, "the service".into());
    }
    if definition.script.is_some() {
        want(Kind::Shell, "bash", "extend_start.sh".into());
    }
    wanted
}

fn program(view: &View, name: &str, path: &str) -> Result<(State, String)> {
    let Some((place, found)) = view.program(name, path)? else {
        let note = if name.contains('/') { String::new() } else { format!("in none of {path}") };
        return Ok((State::Missing, note));
    };
    let head = view.head(&found, 4096)?;
    let place = place.display().to_string();
    match loader(&head) {
        Some(loader) if view.find(loader.as_ref())?.is_none() => {
            Ok((State::Missing, format!("{place} takes {loader}, which isn't there")))
        }
        _ => Ok((State::Found, place)),
    }
}

/// What the kernel starts to run a program: the interpreter of a script, the loader of an ELF file.
fn loader(head: &[u8]) -> Option<String> {
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or(line);
        let line = String::from_utf8_lossy(line);
        return line.split_whitespace().next().map(str::to_owned);
    }
    let (at, size) = super::runtime::interpreter(head)?;
    let name = head.get(at..at.checked_add(size)?)?;
    let name = name.split(|byte| *byte == 0).next().unwrap_or(name);
    Some(String::from_utf8_lossy(name).into_owned())
}

fn user(definition: &Definition, view: &View, config: &ImageConfig, name: &str) -> Result<(State, String)> {
    if name.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok((State::Found, String::new()));
    }
    let passwd = view.text("/etc/passwd")?;
    let entry = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        matches!(fields[..], [first, _, uid, _, ..] if first == name && uid.parse::<u32>().is_ok())
    };
    if passwd.lines().any(entry) {
        return Ok((State::Found, String::new()));
    }
    let own = definition.user.as_ref().filter(|user| user.name == name);
    Ok(match (own, config.config.user.as_str()) {
        (None, _) if name == "root" => (State::Replaced, "number 0 is taken".into()),
        (None, _) => (State::Missing, "not in /etc/passwd".into()),
        (Some(user), _) if user.missing == Missing::Error => (State::Missing, "not in /etc/passwd".into()),
        (Some(user), image) if user.missing == Missing::Image && !image.is_empty() => {
            (State::Replaced, format!("not in /etc/passwd; the image's user {image} is taken"))
        }
        (Some(user), _) => (State::Replaced, format!("not in /etc/passwd; {}:{} is taken", user.uid, user.gid)),
    })
}
