//! How services are started, apart from their images: `start-scripts/<service>/start.toml`, read into checked types, and
//! from there to the JSON that a bundle has. What carries it out in a container is the start runtime, which shares
//! nothing with this room but the schema of that JSON.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::catalogue::names;
use crate::diag::{Diagnostic, Diagnostics};
use crate::error::{Error, Result};

pub mod adopt;
pub mod bundle;
pub mod check;
pub mod definition;
mod elf;
mod libraries;
mod read;
pub mod runtime;
pub mod schema;
mod steps;
#[cfg(test)]
mod tests;
mod text;
pub mod view;

pub use definition::Definition;

/// All definitions below `start-scripts`, by name, each with its folder.
#[derive(Debug, Default)]
pub struct Definitions {
    pub services: BTreeMap<String, (PathBuf, Definition)>,
}

impl Definitions {
    /// Reads them all; what is wrong with any of them comes in one report.
    pub fn load(root: &Path) -> Result<Definitions> {
        let dir = if root == Path::new(".") { PathBuf::from("start-scripts") } else { root.join("start-scripts") };
        let mut problems = Diagnostics::default();
        let mut services = BTreeMap::new();
        for folder in folders(&dir)? {
            let Some(name) = folder.file_name().and_then(|name| name.to_str()) else { continue };
            if let Err(why) = names::component(name) {
                let message = format!("`{name}` is not a name of a service: {why}");
                problems.push(Diagnostic::error(message).hint(format!("rename the folder `{}`", folder.display())));
            }
            let definition = read::load(&folder, name, &mut problems);
            services.extend(definition.map(|definition| (name.to_owned(), (folder.clone(), definition))));
        }
        if problems.has_errors() {
            return Err(Error::from_diagnostics("definitions of services are wrong", problems));
        }
        Ok(Definitions { services })
    }

    pub fn get(&self, name: &str) -> Result<&Definition> {
        let found = self.services.get(name).map(|(_, definition)| definition);
        found.ok_or_else(|| {
            let error = Error::bad_input(format!("there is no definition of a service `{name}`"));
            let known = self.services.keys().map(String::as_str);
            error.hint(crate::suggest::near(name, known).unwrap_or_else(|| "`kollage start ls` lists them".into()))
        })
    }
}

/// The services that a catalogue has definitions of, which are not read.
pub fn names(root: &Path) -> Vec<String> {
    let found = folders(&root.join("start-scripts")).unwrap_or_default();
    found.iter().filter_map(|folder| Some(folder.file_name()?.to_str()?.to_owned())).collect()
}

/// What is wrong with the text of one definition: for editors and for fuzzing.
pub fn check_text(text: &str) -> Diagnostics {
    let mut problems = Diagnostics::default();
    read::read("service", &crate::diag::SourceFile::new("start.toml", text), None, &mut problems);
    problems
}

/// The folders with a `start.toml`, sorted. None at all is an error: whoever asks for services has a bundle in mind.
fn folders(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(dir).map_err(|error| {
        Error::bad_input(format!("cannot read the definitions of services in `{}`", dir.display()))
            .cause(error)
            .hint("they are in `start-scripts/NAME/start.toml` of a catalogue; -C names its directory")
    })?;
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    found.retain(|path| path.join("start.toml").is_file());
    found.sort();
    if found.is_empty() {
        return Err(Error::bad_input(format!("there is no NAME/start.toml in `{}`", dir.display())));
    }
    Ok(found)
}
