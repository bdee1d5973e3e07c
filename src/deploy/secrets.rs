//! Values of secrets, for as long as a run needs them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

use super::definition::{Deployment, SecretSource, Service};
use crate::engine::embedded::output::Redactor;
use crate::error::{Context as _, Error, Result};

/// Says what an environment variable is; the library doesn't look.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

#[derive(Default)]
pub struct Secrets {
    /// By name.
    values: BTreeMap<String, String>,
    redactor: Redactor,
}

impl Secrets {
    /// Those that these services use.
    pub fn read(deployment: &Deployment, services: &[&Service], lookup: Lookup<'_>) -> Result<Secrets> {
        let used: BTreeSet<&String> = services.iter().flat_map(|service| service.secrets.values()).collect();
        let mut secrets = Secrets::default();
        for name in used {
            let Some(source) = deployment.secrets.get(name) else { continue };
            let value = value(name, source, lookup)?;
            if value.is_empty() || value.contains('\0') {
                return Err(Error::bad_input(format!("the secret `{name}` is empty, or no text")));
            }
            secrets.redactor.add(value.as_bytes());
            secrets.values.insert(name.clone(), value);
        }
        Ok(secrets)
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// A value that isn't of the deployment.
    pub fn hide(&mut self, value: &str) {
        self.redactor.add(value.as_bytes());
    }

    pub fn redact(&self, line: String) -> String {
        self.redactor.redact(line)
    }
}

fn value(name: &str, source: &SecretSource, lookup: Lookup<'_>) -> Result<String> {
    match source {
        SecretSource::Environment(variable) => {
            let missing = || {
                Error::bad_input(format!("the secret `{name}` is to come from {variable}, which isn't set"))
                    .hint(format!("export {variable}, or name a file in [secrets]"))
            };
            let value = lookup(variable).filter(|value| !value.is_empty()).ok_or_else(missing)?;
            value.into_string().map_err(|_| Error::bad_input(format!("the secret `{name}` is no text")))
        }
        SecretSource::File(path) => {
            let what = || format!("cannot read the secret `{name}` from `{}`", path.display());
            let text = crate::text::read_to_string(path).bad_input(what)?;
            // Editors and `echo` end a line that means nothing.
            Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
        }
    }
}
