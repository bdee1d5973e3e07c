//! The variables in texts of a definition, judged once all of the file has been read: whether they exist, and whether
//! a secret is where others could see it.

use std::collections::BTreeMap;

use crate::catalogue::reader::error;
use crate::diag::{Diagnostics, Place};
use crate::suggest;

use super::definition::Variable;

/// What may stand in a text besides plain variables.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Allows {
    Plain,
    /// Nobody else sees it.
    Secrets,
    /// Anybody can read the file that it is written to.
    OpenFile,
    /// The name of a new file, for the program that looks at it.
    Candidate,
}

pub(super) const CANDIDATE: &str = "CANDIDATE";

/// Texts in which variables stand, and names of variables that stand alone.
#[derive(Default)]
pub(super) struct Uses {
    texts: Vec<(String, Place, Allows)>,
    names: Vec<(String, Place)>,
}

impl Uses {
    pub fn text(&mut self, text: &str, place: &Place, allows: Allows) {
        if text.contains("${") {
            self.texts.push((text.to_owned(), place.clone(), allows));
        }
    }

    pub fn name(&mut self, name: &str, place: &Place) {
        self.names.push((name.to_owned(), place.clone()));
    }

    pub fn judge(self, variables: &BTreeMap<String, Variable>, problems: &mut Diagnostics) {
        let unknown = |name: &str, place: &Place, more: Option<&'static str>| {
            let known = variables.keys().map(String::as_str).chain(more);
            let mut problem = error(place, format!("`{name}` is no variable of this definition"));
            problem.hint = suggest::near(name, known)
                .or_else(|| Some(format!("declare it: `[variables]` and below it `{name} = {{ summary = \"…\" }}`")));
            problem
        };
        for (name, place) in &self.names {
            if !variables.contains_key(name) {
                problems.push(unknown(name, place, None));
            }
        }
        for (text, place, allows) in &self.texts {
            let names = match names(text) {
                Ok(names) => names,
                Err(rest) => {
                    let hint = "variables are written `${NAME}`, and `$${` stands for `${`";
                    problems.push(error(place, format!("`{rest}` doesn't end")).hint(hint));
                    continue;
                }
            };
            for name in names {
                let candidate = *allows == Allows::Candidate;
                match variables.get(name) {
                    None if candidate && name == CANDIDATE => {}
                    None => problems.push(unknown(name, place, candidate.then_some(CANDIDATE))),
                    Some(variable) if variable.secret => match allows {
                        Allows::Secrets => {}
                        Allows::OpenFile => {
                            let message = format!("the secret `{name}` is written to a file that anybody can read");
                            problems.push(error(place, message).hint("give the file a `mode` like \"0640\""));
                        }
                        Allows::Plain | Allows::Candidate => {
                            let message = format!("the secret `{name}` stands where others can see it");
                            let hint = "secrets are for `environment` and `input` of a command, and for files";
                            problems.push(error(place, message).hint(hint));
                        }
                    },
                    Some(_) => {}
                }
            }
        }
    }
}

/// The names in a text; an error is what begins and doesn't end.
fn names(text: &str) -> Result<Vec<&str>, &str> {
    let mut names = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let escaped = rest[..at].ends_with('$');
        let after = &rest[at + 2..];
        if escaped {
            rest = after;
            continue;
        }
        let end = after.find('}').ok_or_else(|| rest[at..].lines().next().unwrap_or_default())?;
        names.push(&after[..end]);
        rest = &after[end + 1..];
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_stands_in_braces() {
        assert_eq!(names("a ${B}${C} $D $${E} ${}"), Ok(vec!["B", "C", ""]));
        assert_eq!(names("x ${A y\nz"), Err("${A y"));
    }
}
