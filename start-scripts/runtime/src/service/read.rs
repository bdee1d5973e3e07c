//! JSON to a definition. The schema has a number; what it doesn't name is an error, since a step that is only half
//! understood must not run as root. Whoever writes definitions is shown all problems by the builder, so one is enough here.

use super::{Action, Content, Escape, Missing, Run, Service, ServiceUser, Step, Task, Variable, When, Write};
use crate::config::value::{Kind, Place, Value};
use crate::config::{json, perm};
use crate::error::{Failure, Result, shown};
use std::path::Path;

/// The version of the schema that this program reads.
const SCHEMA: &str = "1";

pub(super) fn service(text: &str, file: &Path) -> Result<Service> {
    let value = json::read(text).map_err(|malformed| {
        Failure::wrong(format!("{}:{}: not valid JSON: {}", shown(file), malformed.at, malformed.why))
    })?;
    let wrong = |(at, why): Problem| Failure::wrong(format!("{}:{at}: {why}", shown(file)));
    let mut service = top(value).map_err(wrong)?;
    if let Some(script) = &service.script {
        service.script = Some(file.with_file_name(script));
    }
    Ok(service)
}

type Problem = (Place, String);
type Read<T> = std::result::Result<T, Problem>;

/// A mapping whose keys are taken one after the other; what is left over is unknown.
struct Entry {
    at: Place,
    keys: Vec<(crate::config::value::Key, Value)>,
}

fn entry(value: Value) -> Read<Entry> {
    let at = value.at;
    match value.kind {
        Kind::Map(keys) => Ok(Entry { at, keys }),
        other => Err((at, format!("expected a mapping, not {}", other.name()))),
    }
}

impl Entry {
    fn take(&mut self, key: &str) -> Option<Value> {
        let found = self.keys.iter().position(|(there, _)| there.name == key)?;
        Some(self.keys.remove(found).1)
    }

    fn need(&mut self, key: &str) -> Read<Value> {
        self.take(key).ok_or_else(|| (self.at, format!("the key `{key}` is missing")))
    }

    fn text(&mut self, key: &str) -> Read<String> {
        text(self.need(key)?)
    }

    fn text_if(&mut self, key: &str) -> Read<Option<String>> {
        self.take(key).map(text).transpose()
    }

    fn flag(&mut self, key: &str) -> Read<bool> {
        match self.take(key) {
            None => Ok(false),
            Some(Value { kind: Kind::Bool(flag), .. }) => Ok(flag),
            Some(value) => Err((value.at, format!("expected true or false, not {}", value.kind.name()))),
        }
    }

    fn number(&mut self, key: &str) -> Read<u32> {
        let value = self.need(key)?;
        let number = if let Kind::Number(number) = &value.kind { number.parse().ok() } else { None };
        number.ok_or_else(|| (value.at, format!("`{key}` is no number of a user or group")))
    }

    fn list<T>(&mut self, key: &str, read: impl Fn(Value) -> Read<T>) -> Read<Vec<T>> {
        match self.take(key) {
            None => Ok(Vec::new()),
            Some(Value { kind: Kind::List(items), .. }) => items.into_iter().map(read).collect(),
            Some(value) => Err((value.at, format!("expected a list, not {}", value.kind.name()))),
        }
    }

    fn texts(&mut self, key: &str) -> Read<Vec<String>> {
        self.list(key, text)
    }

    /// A mapping whose keys are names.
    fn named<T>(&mut self, key: &str, read: impl Fn(String, Value) -> Read<T>) -> Read<Vec<T>> {
        let Some(value) = self.take(key) else { return Ok(Vec::new()) };
        entry(value)?.keys.into_iter().map(|(key, value)| read(key.name, value)).collect()
    }

    fn pairs(&mut self, key: &str) -> Read<Vec<(String, String)>> {
        self.named(key, |name, value| Ok((name, text(value)?)))
    }

    fn mode(&mut self) -> Read<Option<u32>> {
        let Some(value) = self.take("mode") else { return Ok(None) };
        let at = value.at;
        let text = text(value)?;
        perm(&text).map(Some).ok_or_else(|| (at, format!("`{text}` is no mode")))
    }

    fn end<T>(self, value: T) -> Read<T> {
        match self.keys.first() {
            None => Ok(value),
            Some((key, _)) => Err((key.at, format!("unknown key `{}`", key.name))),
        }
    }
}

fn text(value: Value) -> Read<String> {
    match value.kind {
        Kind::Text(text) => Ok(text),
        other => Err((value.at, format!("expected a string, not {}", other.name()))),
    }
}

fn top(value: Value) -> Read<Service> {
    let mut top = entry(value)?;
    let schema = top.need("schema")?;
    if schema.kind != Kind::Number(SCHEMA.into()) {
        let why =
            format!("another schema than {SCHEMA}: the bundle's definitions and its program are not of one version");
        return Err((schema.at, why));
    }
    // What a service needs of an image is asked before it is started, by `kollage start check`.
    top.take("needs");
    top.take("summary");
    let mut stop = match top.take("stop") {
        Some(value) => entry(value)?,
        None => Entry { at: top.at, keys: Vec::new() },
    };
    let (stop_signal, stop_timeout) = (stop.text_if("signal")?, stop.text_if("timeout")?);
    stop.end(())?;
    let service = Service {
        name: top.text("name")?,
        command: top.texts("command")?,
        arguments: top.texts("arguments")?,
        user: top.take("user").map(user).transpose()?,
        capabilities: top.texts("capabilities")?,
        environment: top.pairs("environment")?,
        variables: top.named("variables", variable)?,
        stop_signal,
        stop_timeout,
        health: top.texts("health")?,
        prepare: top.list("prepare", step)?,
        steps: top.list("steps", step)?,
        tasks: top.list("tasks", task)?,
        script: top.text_if("script")?.map(Into::into),
    };
    top.end(service)
}

fn user(value: Value) -> Read<ServiceUser> {
    let mut user = entry(value)?;
    let missing = user.need("missing")?;
    let at = missing.at;
    let missing = match text(missing)?.as_str() {
        "image" => Missing::Image,
        "number" => Missing::Number,
        "error" => Missing::Error,
        other => return Err((at, format!("`{other}` is not image, number or error"))),
    };
    let read = ServiceUser { name: user.text("name")?, uid: user.number("uid")?, gid: user.number("gid")?, missing };
    user.end(read)
}

fn variable(name: String, value: Value) -> Read<Variable> {
    let mut variable = entry(value)?;
    variable.take("summary");
    let (secret, flag) = (variable.flag("secret")?, variable.flag("flag")?);
    let read = Variable { name, default: variable.text_if("default")?, secret, flag };
    variable.end(read)
}

fn task(value: Value) -> Read<Task> {
    let mut task = entry(value)?;
    task.take("summary");
    let then = task.need("then")?;
    let at = then.at;
    let then_start = match text(then)?.as_str() {
        "end" => false,
        "start" => true,
        other => return Err((at, format!("`{other}` is not end or start"))),
    };
    let (name, variable) = (task.text("name")?, task.text_if("variable")?);
    let steps = task.list("steps", step)?;
    task.end(Task { name, variable, then_start, steps })
}

fn step(value: Value) -> Read<Step> {
    let mut step = entry(value)?;
    let title = step.text("title")?;
    let when = step.take("when").map(when).transpose()?.unwrap_or_default();
    let at = step.at;
    let (key, value) = step.keys.pop().ok_or_else(|| (at, "a step that does nothing".to_owned()))?;
    let mut entry = entry(value)?;
    let action = match key.name.as_str() {
        "make" => Action::Make {
            path: entry.text("path")?,
            directory: entry.flag("directory")?,
            owner: entry.text_if("owner")?,
            mode: entry.mode()?,
        },
        "own" => Action::Own {
            path: entry.text("path")?,
            owner: entry.text_if("owner")?,
            mode: entry.mode()?,
            recurse: entry.flag("recurse")?,
        },
        "link" => Action::Link { path: entry.text("path")?, to: entry.text("to")? },
        "remove" => Action::Remove { path: entry.text("path")? },
        "write" => Action::Write(write(&mut entry)?),
        "run" => Action::Run(run(&mut entry)?),
        "refuse" => Action::Refuse { reason: entry.text("reason")? },
        other => return Err((key.at, format!("`{other}` is nothing that a step does"))),
    };
    entry.end(())?;
    step.end(Step { title, when, action })
}

fn when(value: Value) -> Read<When> {
    let mut when = entry(value)?;
    let read = When {
        exists: when.texts("exists")?,
        missing: when.texts("missing")?,
        set: when.texts("set")?,
        unset: when.texts("unset")?,
    };
    when.end(read)
}

fn write(write: &mut Entry) -> Read<Write> {
    let content = match write.take("text") {
        Some(value) => Content::Text { text: text(value)?, escape: escape(write)? },
        None => Content::Fragments(write.texts("fragments")?),
    };
    let check = match write.take("check") {
        Some(value) => {
            let mut check = entry(value)?;
            let read = run(&mut check)?;
            Some(check.end(read)?)
        }
        None => None,
    };
    Ok(Write {
        path: write.text("path")?,
        content,
        owner: write.text_if("owner")?,
        mode: write.mode()?,
        check,
        keep: write.flag("keep")?,
    })
}

fn run(run: &mut Entry) -> Read<Run> {
    Ok(Run {
        command: run.texts("command")?,
        user: run.text_if("user")?,
        environment: run.pairs("environment")?,
        input: run.text_if("input")?,
        escape: escape(run)?,
        directory: run.text_if("directory")?,
    })
}

fn escape(entry: &mut Entry) -> Read<Escape> {
    let Some(value) = entry.take("escape") else { return Ok(Escape::None) };
    let at = value.at;
    match text(value)?.as_str() {
        "sql" => Ok(Escape::Sql),
        other => Err((at, format!("`{other}` is no way to escape values"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The builder's tests say that this is what a `start.toml` becomes.
    #[test]
    fn everything_that_the_builder_writes_is_understood() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schema/example.json");
        let read = service(&std::fs::read_to_string(&file).unwrap(), &file).unwrap();
        let text = |text: &str| Some(text.to_owned());
        assert_eq!((read.name.as_str(), &read.command[2][..]), ("example", "${EXAMPLE_PORT}"));
        assert_eq!((read.stop_signal, read.stop_timeout), (text("QUIT"), text("30")));
        assert_eq!(read.health, ["listen", "exampled", "${EXAMPLE_PORT}"]);
        let user = ServiceUser { name: "example".into(), uid: 42400, gid: 42401, missing: Missing::Number };
        assert_eq!(read.user, Some(user));
        assert_eq!(read.environment, [("EXAMPLE_HOME".to_owned(), "/var/lib/example".to_owned())]);
        assert_eq!(read.arguments, ["${EXAMPLE_ARGUMENTS}"]);
        let variable = |name: &str, default| Variable { name: name.into(), default, secret: false, flag: false };
        let more = variable("EXAMPLE_ARGUMENTS", text(""));
        let flag = Variable { flag: true, ..variable("EXAMPLE_FLAG", None) };
        let key = Variable { secret: true, ..variable("EXAMPLE_KEY", None) };
        assert_eq!(read.variables, [more, flag, key, variable("EXAMPLE_PORT", text("80"))]);

        let made = |path: &str, directory, owner: &str, mode| Action::Make {
            path: path.into(),
            directory,
            owner: Some(owner.to_owned()).filter(|owner| !owner.is_empty()),
            mode,
        };
        let actions = |steps: Vec<Step>| steps.into_iter().map(|step| step.action).collect::<Vec<_>>();
        let prepare = [
            made("/var/lib/example", true, "example:example", Some(0o750)),
            made("/var/lib/example/state", false, "", None),
        ];
        assert_eq!(actions(read.prepare), prepare);
        let when = When {
            exists: vec!["/etc/example.bad".into()],
            missing: vec!["/etc/example.good".into()],
            set: vec!["EXAMPLE_KEY".into()],
            unset: vec!["EXAMPLE_PORT".into()],
        };
        assert_eq!(read.steps.last().map(|step| (&step.title[..], &step.when)), Some(("Refuse", &when)));
        let steps = [
            made("/run/example", true, "root", Some(0o1777)),
            made("/run/example/file", false, "", None),
            Action::Own { path: "/var/lib/example".into(), owner: text("example"), mode: Some(0o700), recurse: true },
            Action::Link { path: "/run/example/link".into(), to: "file".into() },
            Action::Remove { path: "/run/example/*.old".into() },
            Action::Write(Write {
                path: "/etc/example.conf".into(),
                content: Content::Text { text: "key = '${EXAMPLE_KEY}'\n".into(), escape: Escape::Sql },
                owner: text("root:example"),
                mode: Some(0o640),
                check: None,
                keep: true,
            }),
            Action::Write(Write {
                path: "/etc/example.d.conf".into(),
                content: Content::Fragments(vec!["/etc/example.d/*.conf".into(), "/etc/example.local/*.conf".into()]),
                owner: None,
                mode: None,
                check: Some(Run {
                    command: ["exampled", "--check", "${CANDIDATE}"].map(String::from).into(),
                    user: text("root"),
                    ..Run::default()
                }),
                keep: false,
            }),
            Action::Refuse { reason: "no".into() },
        ];
        assert_eq!(actions(read.steps), steps);
        let [bootstrap, backup] = <[Task; 2]>::try_from(read.tasks).unwrap();
        assert_eq!((bootstrap.variable, bootstrap.then_start), (text("KOLLA_BOOTSTRAP"), true));
        let run = Run {
            command: ["exampled", "init"].map(String::from).into(),
            user: text("root"),
            environment: vec![("EXAMPLE_KEY".into(), "${EXAMPLE_KEY}".into())],
            input: text("SET '${EXAMPLE_KEY}'"),
            escape: Escape::Sql,
            directory: text("/var/lib/example"),
        };
        assert_eq!(actions(bootstrap.steps), [Action::Run(run)]);
        assert_eq!((backup.name.as_str(), backup.variable, backup.then_start), ("backup", None, false));
    }
}
