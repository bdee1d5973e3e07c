//! The variables that texts of a definition have: `${NAME}`. `$${` is `${` as it stands.

use super::{Escape, Service, Variable};
use crate::error::{Failure, Result, shown};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// What the container's environment and the definition say about the variables of a service.
pub struct Variables<'a> {
    declared: &'a [Variable],
    environment: &'a BTreeMap<OsString, OsString>,
    /// Beyond what is declared: `CANDIDATE`.
    more: Vec<(&'static str, String)>,
}

impl<'a> Variables<'a> {
    pub fn new(service: &'a Service, environment: &'a BTreeMap<OsString, OsString>) -> Variables<'a> {
        Variables { declared: &service.variables, environment, more: Vec::new() }
    }

    pub fn with(&self, name: &'static str, value: String) -> Variables<'a> {
        Variables { declared: self.declared, environment: self.environment, more: vec![(name, value)] }
    }

    /// The value of a variable: its own, else what the file that `NAME_FILE` names has, else its default.
    pub fn value(&self, name: &str) -> Result<Option<String>> {
        if let Some((_, value)) = self.more.iter().find(|(more, _)| *more == name) {
            return Ok(Some(value.clone()));
        }
        let get = |name: &str| self.environment.get(OsStr::new(name)).filter(|value| !value.is_empty());
        if let Some(value) = get(name) {
            let text = value.to_str().ok_or_else(|| Failure::wrong(format!("{name} is not UTF-8")))?;
            return Ok(Some(text.into()));
        }
        if let Some(file) = get(&format!("{name}_FILE")) {
            let file = Path::new(file);
            let text = std::fs::read_to_string(file).map_err(|error| {
                Failure::system(format_args!("read {}, which {name}_FILE names", shown(file)), error)
            })?;
            return Ok(Some(text.strip_suffix('\n').unwrap_or(&text).into()));
        }
        Ok(self.declared.iter().find(|variable| variable.name == name).and_then(|variable| variable.default.clone()))
    }

    pub fn has(&self, name: &str) -> Result<bool> {
        if self.declared.iter().any(|variable| variable.flag && variable.name == name) {
            return Ok(self.environment.contains_key(OsStr::new(name)));
        }
        Ok(self.value(name)?.is_some_and(|value| !value.is_empty()))
    }

    pub fn expand(&self, text: &str) -> Result<String> {
        self.expand_as(text, Escape::None)
    }

    pub fn expand_as(&self, text: &str, escape: Escape) -> Result<String> {
        let mut expanded = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            if rest[..at].ends_with('$') {
                expanded.push_str(&rest[..at]);
                expanded.push('{');
                rest = &rest[at + 2..];
                continue;
            }
            expanded.push_str(&rest[..at]);
            let Some(length) = rest[at..].find('}') else {
                return Err(Failure::wrong(format!("`{}` doesn't end", &rest[at..])));
            };
            let name = &rest[at + 2..at + length];
            let value = self.value(name)?.ok_or_else(|| missing(name))?;
            expanded.push_str(&escaped(&value, escape));
            rest = &rest[at + length + 1..];
        }
        expanded.push_str(rest);
        Ok(expanded)
    }

    /// What steps and the command are not given unless a step asks for it.
    pub fn secrets(&self) -> impl Iterator<Item = OsString> + '_ {
        self.declared.iter().filter(|variable| variable.secret).map(|variable| variable.name.clone().into())
    }
}

fn missing(name: &str) -> Failure {
    Failure::wrong(format!("{name} is not set (nor {name}_FILE, which can name a file with it)"))
}

fn escaped(value: &str, escape: Escape) -> String {
    match escape {
        Escape::None => value.into(),
        Escape::Sql => value.replace('\\', "\\\\").replace('\'', "''"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> BTreeMap<OsString, OsString> {
        pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    #[test]
    fn a_value_is_the_containers_a_files_or_the_default() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("secret");
        std::fs::write(&file, "from a file\n").unwrap();
        let declared = [
            Variable { name: "PORT".into(), default: Some("5000".into()), secret: false, flag: false },
            Variable { name: "KEY".into(), default: None, secret: true, flag: false },
        ];
        let environment = environment(&[("EMPTY", ""), ("PORT", ""), ("KEY_FILE", file.to_str().unwrap()), ("A", "b")]);
        let variables = Variables { declared: &declared, environment: &environment, more: Vec::new() };
        assert_eq!(variables.expand("${A}:${PORT}/${KEY} $A $${A} {}").unwrap(), "b:5000/from a file $A ${A} {}");
        let none = variables.expand("${NONE}").unwrap_err().problems;
        assert_eq!(none, ["NONE is not set (nor NONE_FILE, which can name a file with it)"]);
        assert!(!variables.has("EMPTY").unwrap() && variables.has("KEY").unwrap());
        assert_eq!(variables.secrets().collect::<Vec<_>>(), ["KEY"]);
        assert!(variables.expand("${A").is_err());
    }

    #[test]
    fn no_value_ends_the_string_that_it_is_in() {
        let environment = environment(&[("P", r"it's \'")]);
        let variables = Variables { declared: &[], environment: &environment, more: Vec::new() };
        assert_eq!(variables.expand_as("BY '${P}'", Escape::Sql).unwrap(), r"BY 'it''s \\'''");
    }
}
