//! Carries steps out, one after the other, each by its title; the first that fails ends the start.

use super::{Action, Run, Service, Step, Variables, When, Write, files};
use crate::command::locate;
use crate::environment::Environment;
use crate::error::{Failure, Problems, Result, WRONG};
use crate::init::{Init, Launch};
use crate::privileges::Privileges;
use crate::users::Users;
use crate::{glob, log};
use std::ffi::{OsStr, OsString};

/// What all steps of a start have in common.
pub struct Stage<'a> {
    pub service: &'a Service,
    pub environment: &'a Environment,
    pub users: &'a Users,
    pub init: &'a Init,
    /// Where the operator's CA certificates are, for those who ask the environment.
    pub certificates: Vec<(OsString, OsString)>,
}

/// The name of a file that is looked at before it takes effect, in the arguments of the program that looks.
const CANDIDATE: &str = "CANDIDATE";

impl<'a> Stage<'a> {
    fn variables(&self) -> Variables<'a> {
        Variables::new(self.service, &self.environment.all)
    }

    /// Whether steps have the values and users that they name, asked before the first of them changes anything. What a
    /// step would do that isn't due as things stand doesn't matter.
    pub fn look(&self, steps: &[Step]) -> Result<()> {
        let variables = self.variables();
        let mut problems = Problems::default();
        for step in steps {
            let Some(true) = problems.keep(holds(&step.when, &variables)) else { continue };
            for text in texts(&step.action) {
                // Only the program that looks at a file has its name.
                let variables = variables.with(CANDIDATE, String::new());
                problems.keep(variables.expand(text).map_err(|failure| failure.of(&step.title)));
            }
            if let Action::Run(run) = &step.action {
                problems.keep(self.privileges(run).map_err(|failure| failure.of(&step.title)));
            }
        }
        problems.end().map_err(|failure| failure.of(&self.service.name))
    }

    /// `what` is the name of a task, or nothing.
    pub fn carry_out(&self, what: &str, steps: &[Step]) -> Result<()> {
        let name = &self.service.name;
        let what = if what.is_empty() { name.clone() } else { format!("{name}: {what}") };
        let variables = self.variables();
        for (number, step) in steps.iter().enumerate() {
            let done = || -> Result<()> {
                if !holds(&step.when, &variables)? {
                    return Ok(());
                }
                let title = variables.expand(&step.title)?;
                log::info(format_args!("{what} {}/{}: {title}", number + 1, steps.len()));
                self.step(&step.action, &variables)
            };
            done().map_err(|failure| failure.of(&format!("{what}: {}", step.title)))?;
        }
        Ok(())
    }

    fn step(&self, action: &Action, variables: &Variables<'_>) -> Result<()> {
        match action {
            Action::Make { path, directory, owner, mode } => {
                let owned = files::Owned { owner: self.owner(owner.as_deref())?, mode: *mode };
                files::make(variables.expand(path)?.as_ref(), *directory, &owned, self.default_owner()?)
            }
            Action::Own { path, owner, mode, recurse } => {
                let owned = files::Owned { owner: self.owner(owner.as_deref())?, mode: *mode };
                for path in glob::expand(&variables.expand(path)?) {
                    files::own(&path, &owned, *recurse)?;
                }
                Ok(())
            }
            Action::Link { path, to } => files::link(variables.expand(path)?.as_ref(), variables.expand(to)?.as_ref()),
            Action::Remove { path } => {
                let found = glob::expand(&variables.expand(path)?);
                found.iter().try_for_each(|path| files::remove(path))
            }
            Action::Write(write) => self.write(write, variables),
            Action::Run(run) => self.run(run, variables),
            Action::Refuse { reason } => Err(Failure::wrong(variables.expand(reason)?)),
        }
    }

    fn write(&self, write: &Write, variables: &Variables<'_>) -> Result<()> {
        let owner = self.owner(write.owner.as_deref())?.or(self.default_owner()?);
        let target = variables.expand(&write.path)?;
        let file = files::New { path: target.as_ref(), owner, mode: write.mode.unwrap_or(0o644), keep: write.keep };
        let bytes = files::content(&write.content, variables)?;
        file.put(&bytes, |candidate| {
            let Some(check) = &write.check else { return Ok(()) };
            let variables = variables.with(CANDIDATE, candidate.to_string_lossy().into_owned());
            self.run(check, &variables).map_err(|failure| Failure {
                problems: failure.problems.into_iter().map(|why| format!("{target} stays as it was: {why}")).collect(),
                code: WRONG,
            })
        })
    }

    fn run(&self, run: &Run, variables: &Variables<'_>) -> Result<()> {
        let words: Vec<String> = run.command.iter().map(|word| variables.expand(word)).collect::<Result<_>>()?;
        let name = words.first().cloned().unwrap_or_default();
        let mut environment = self.defaults(variables)?;
        for (name, value) in &run.environment {
            environment.push((name.into(), variables.expand(value)?.into()));
        }
        let input = run.input.as_ref().map(|input| variables.expand_as(input, run.escape)).transpose()?;
        let launch = Launch {
            program: locate(OsStr::new(&name), &self.environment.path, None)?,
            words: words.into_iter().map(OsString::from).collect(),
            privileges: self.privileges(run)?,
            environment,
            without: variables.secrets().collect(),
            input: Some(input.unwrap_or_default().into_bytes()),
            directory: run.directory.as_ref().map(|path| variables.expand(path)).transpose()?.map(Into::into),
        };
        match self.init.supervise(&launch)? {
            0 => Ok(()),
            code @ 129.. => {
                Err(Failure { problems: vec![format!("`{name}` was ended by signal {}", code - 128)], code })
            }
            code => Err(Failure { problems: vec![format!("`{name}` ended with {code}")], code }),
        }
    }

    /// What the definition has for the environment of steps and of the command, unless the container has it.
    pub fn defaults(&self, variables: &Variables<'_>) -> Result<Vec<(OsString, OsString)>> {
        let mut defaults = self.certificates.clone();
        for (name, value) in &self.service.environment {
            if !self.environment.all.contains_key(OsStr::new(name)) {
                defaults.push((name.into(), variables.expand(value)?.into()));
            }
        }
        Ok(defaults)
    }

    fn privileges(&self, run: &Run) -> Result<Privileges> {
        let own = self.service.user.as_ref().map(|user| user.name.as_str());
        match run.user.as_deref().or(own) {
            Some(user) => Privileges::of(self.users, user, self.environment.no_new_privs.as_deref()),
            None => Ok(Privileges::default()),
        }
    }

    /// `USER`, with that user's group, or `USER:GROUP`.
    fn owner(&self, owner: Option<&str>) -> Result<Option<(u32, u32)>> {
        let identity = owner.map(|owner| self.users.identity(owner)).transpose()?;
        Ok(identity.map(|identity| (identity.uid, identity.gid)))
    }

    fn default_owner(&self) -> Result<Option<(u32, u32)>> {
        self.owner(self.service.user.as_ref().map(|user| user.name.as_str()))
    }
}

fn holds(when: &When, variables: &Variables<'_>) -> Result<bool> {
    let there = |path: &String| -> Result<bool> { Ok(!glob::expand(&variables.expand(path)?).is_empty()) };
    for (conditions, wanted) in [(&when.exists, true), (&when.missing, false)] {
        for path in conditions {
            if there(path)? != wanted {
                return Ok(false);
            }
        }
    }
    for (conditions, wanted) in [(&when.set, true), (&when.unset, false)] {
        for name in conditions {
            if variables.has(name)? != wanted {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// All that has variables in it.
fn texts(action: &Action) -> Vec<&String> {
    fn run(run: &Run) -> impl Iterator<Item = &String> {
        let environment = run.environment.iter().map(|(_, value)| value);
        run.command.iter().chain(environment).chain(&run.input).chain(&run.directory)
    }
    match action {
        Action::Make { path, .. } | Action::Own { path, .. } | Action::Remove { path } => vec![path],
        Action::Link { path, to } => vec![path, to],
        Action::Write(write) => {
            let content = match &write.content {
                super::Content::Text { text, .. } => std::slice::from_ref(text),
                super::Content::Fragments(patterns) => patterns,
            };
            std::iter::once(&write.path).chain(content).chain(write.check.iter().flat_map(run)).collect()
        }
        Action::Run(it) => run(it).collect(),
        Action::Refuse { reason } => vec![reason],
    }
}
