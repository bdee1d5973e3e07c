//! Which task a start is about.

use super::{Service, Task};
use crate::error::{Failure, Result};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// What a person, or a variable, asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Wanted<'a> {
    /// The service, unless a variable says otherwise.
    Start,
    Task(&'a str),
}

impl Service {
    /// The task that was asked for by name, or by its variable: set counts, even to nothing.
    pub fn selected(
        &self,
        wanted: Wanted<'_>,
        environment: &BTreeMap<OsString, OsString>,
        skip: bool,
    ) -> Result<Option<&Task>> {
        match wanted {
            Wanted::Task(name) => self.task(name).map(Some),
            // Whoever leaves a service's start steps out leaves those of its tasks out.
            Wanted::Start if skip => Ok(None),
            Wanted::Start => {
                let set = |task: &&Task| {
                    task.variable.as_ref().is_some_and(|name| environment.contains_key(OsStr::new(name)))
                };
                let selected: Vec<&Task> = self.tasks.iter().filter(set).collect();
                match selected[..] {
                    [] => Ok(None),
                    [task] => Ok(Some(task)),
                    [..] => {
                        let names: Vec<&str> = selected.iter().filter_map(|task| task.variable.as_deref()).collect();
                        let all = names.join(" and ");
                        Err(Failure::wrong(format!("{all} are all set, and a start does one task of {}", self.name)))
                    }
                }
            }
        }
    }
}
