//! Whether an image has what a service needs, asked before anything runs: programs with their interpreter, loader and
//! shared libraries, the user, paths, and a shell only if there is a script.

use std::collections::BTreeMap;

use serde::Serialize;

use super::definition::{Definition, Missing};
use super::libraries;
use super::view::View;
use crate::error::Result;
use crate::image::config::ImageConfig;
use crate::image::layer::stack::Found;

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

/// Where programs of an image are looked for, and their libraries.
struct Image<'a> {
    path: &'a str,
    library_path: Option<&'a str>,
}

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub fn check(definition: &Definition, view: &View, config: &ImageConfig) -> Result<Vec<Need>> {
    let library_path = definition.environment.get("LD_LIBRARY_PATH").map(String::as_str);
    let image = Image {
        path: config.config.env_get("PATH").unwrap_or(DEFAULT_PATH),
        library_path: config.config.env_get("LD_LIBRARY_PATH").or(library_path),
    };
    let mut needs = Vec::new();
    for ((kind, what), by) in wanted(definition) {
        let (state, note) = match kind {
            Kind::Program | Kind::Shell => program(view, &what, &image)?,
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

fn program(view: &View, name: &str, image: &Image<'_>) -> Result<(State, String)> {
    let path = image.path;
    let Some((place, found)) = view.program(name, path)? else {
        let note = if name.contains('/') { String::new() } else { format!("in none of {path}") };
        return Ok((State::Missing, note));
    };
    let place = place.display().to_string();
    Ok(match taken(view, &place, &found, image)? {
        None => (State::Found, place),
        Some(lacks) => (State::Missing, lacks),
    })
}

/// As many interpreters of interpreters as the kernel starts.
const INTERPRETERS: usize = 4;

/// What the kernel or a loader would not find, in words.
fn taken(view: &View, place: &str, found: &Found, image: &Image<'_>) -> Result<Option<String>> {
    let (mut place, mut found) = (place.to_owned(), found.clone());
    for _ in 0..INTERPRETERS {
        let Some((interpreter, argument)) = script(&view.head(&found, 4096)?) else {
            return libraries_of(view, &place, &found, image);
        };
        let Some(next) = view.find(interpreter.as_ref())? else {
            return Ok(Some(format!("{place} takes {interpreter}, which isn't there")));
        };
        let by_name = interpreter.ends_with("/env") && argument.as_ref().is_some_and(|name| !name.contains(['=', '-']));
        (place, found) = match argument.filter(|_| by_name) {
            None => (interpreter, next),
            Some(name) => match view.program(&name, image.path)? {
                Some((place, found)) => (place.display().to_string(), found),
                None => return Ok(Some(format!("{place} takes {name}, which is in none of {}", image.path))),
            },
        };
    }
    Ok(None)
}

/// The interpreter of a script, and the argument that stands behind it.
fn script(head: &[u8]) -> Option<(String, Option<String>)> {
    let line = head.strip_prefix(b"#!")?;
    let line = String::from_utf8_lossy(line.split(|byte| *byte == b'\n').next().unwrap_or(line)).into_owned();
    let mut words = line.split_whitespace().map(str::to_owned);
    Some((words.next()?, words.next()))
}

fn libraries_of(view: &View, place: &str, found: &Found, image: &Image<'_>) -> Result<Option<String>> {
    let Some(elf) = libraries::elf(found)? else { return Ok(None) };
    if elf.interpreter.as_deref() == Some("") {
        return Ok(Some(format!("{place} names a loader that cannot be read")));
    }
    if let Some(loader) = elf.interpreter.as_ref()
        && view.find(loader.as_ref())?.is_none()
    {
        return Ok(Some(format!("{place} takes {loader}, which isn't there")));
    }
    let resolved = view.resolve(place.as_ref())?.map_or_else(|| place.into(), |(resolved, _)| resolved);
    let lacking = libraries::lacking(view, &elf, &resolved, image.library_path)?;
    let names = lacking.iter().map(|one| match &one.by {
        None => one.name.clone(),
        Some(by) => format!("{} (for {by})", one.name),
    });
    let names = names.collect::<Vec<_>>().join(", ");
    Ok((!lacking.is_empty()).then(|| match lacking.len() {
        1 => format!("{place} takes {names}, which isn't there"),
        _ => format!("{place} takes {names}, which aren't there"),
    }))
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
