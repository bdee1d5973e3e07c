//! `config.json` and `config.yaml`: what a container does before its command. Every problem is found before any of it
//! is done, and named by entry, file, line and column.

mod decode;
pub mod json;
pub mod value;
mod yaml;

pub(crate) use decode::nearest;

use crate::error::{Failure, Result, shown};
use fancy_regex::BytesMode;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub struct Config {
    /// The file that it was read from.
    pub file: PathBuf,
    pub command: String,
    pub directories: Vec<Made>,
    pub files: Vec<Made>,
    pub copies: Vec<Copy>,
    pub permissions: Vec<Permission>,
}

/// An entry of `config_files`.
#[derive(Debug)]
pub struct Copy {
    pub name: String,
    /// A pattern as in shells.
    pub source: String,
    /// With a slash at its end: the directory to copy into.
    pub dest: String,
    pub properties: Properties,
    pub optional: bool,
    pub merge: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Properties {
    /// `preserve_properties`: those of the source.
    Preserved,
    /// Without a perm, the source's.
    Given { owner: Owner, perm: Option<u32> },
}

/// An entry of `directories` or `files`.
#[derive(Debug)]
pub struct Made {
    pub name: String,
    pub path: PathBuf,
    pub owner: Owner,
    pub perm: u32,
}

/// An entry of `permissions`.
#[derive(Debug)]
pub struct Permission {
    pub name: String,
    pub path: String,
    pub owner: Owner,
    pub perm: Option<u32>,
    pub recurse: bool,
    pub exclude: Vec<Pattern>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Owner {
    pub user: String,
    pub group: String,
}

/// A regular expression in Python's notation, found anywhere in a path.
#[derive(Debug)]
pub struct Pattern {
    regex: fancy_regex::Regex,
}

impl Pattern {
    /// In bytes, since names needn't be UTF-8; `\\w` and its like are ASCII's, which saves half a megabyte of tables.
    pub fn new(text: &str) -> std::result::Result<Pattern, String> {
        match fancy_regex::RegexBuilder::new(text).bytes_mode(BytesMode::Ascii).build() {
            Ok(regex) => Ok(Pattern { regex }),
            Err(error) => Err(error.to_string().lines().collect::<Vec<_>>().join(" ")),
        }
    }

    pub fn finds(&self, path: &Path) -> bool {
        self.finds_bytes(path.as_os_str().as_bytes())
    }

    pub fn finds_bytes(&self, bytes: &[u8]) -> bool {
        // What can't be decided within the limit of backtracking isn't found.
        self.regex.is_match(bytes).unwrap_or(false)
    }
}

impl Config {
    /// The configuration of a directory: `config.yaml` if it is there, else `config.json`.
    pub fn file(directory: &Path) -> PathBuf {
        let yaml = directory.join("config.yaml");
        if yaml.exists() { yaml } else { directory.join("config.json") }
    }

    /// What there is to do when there is only a command.
    pub fn of_command(command: String, file: PathBuf) -> Config {
        let (directories, files, copies, permissions) = Default::default();
        Config { file, command, directories, files, copies, permissions }
    }

    /// The configuration of a directory; `command` is the one that counts when it has none.
    pub fn load(directory: &Path, command: Option<&str>) -> Result<Config> {
        let file = Config::file(directory);
        let bytes = std::fs::read(&file).map_err(|error| Failure {
            code: crate::error::WRONG,
            ..Failure::system(format_args!("read the configuration {}", shown(&file)), error)
        })?;
        let text = std::str::from_utf8(&bytes).map_err(|error| {
            let line = bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
            Failure::wrong(format!("{}:{line}: not UTF-8", shown(&file)))
        })?;
        Config::read(text, &file, command)
    }

    pub fn read(text: &str, file: &Path, command: Option<&str>) -> Result<Config> {
        let yaml = file.extension().is_some_and(|extension| extension == "yaml");
        let value = if yaml { yaml::read(text) } else { json::read(text) };
        let value = value.map_err(|malformed| {
            let format = if yaml { "YAML" } else { "JSON" };
            Failure::wrong(format!("{}:{}: not valid {format}: {}", shown(file), malformed.at, malformed.why))
        })?;
        decode::config(value, file, command)
    }

    /// The sections that leave no trace by which `--check` could see that an entry changed, an entry a line.
    pub fn fixed_sections(&self) -> Vec<String> {
        let made = |kind: &'static str| {
            move |made: &Made| {
                format!("{kind} {} {}:{} {:o}", shown(&made.path), made.owner.user, made.owner.group, made.perm)
            }
        };
        let rules = self.permissions.iter().map(|rule| {
            let perm = rule.perm.map_or(String::from("-"), |perm| format!("{perm:o}"));
            let exclude: Vec<&str> = rule.exclude.iter().map(|pattern| pattern.regex.as_str()).collect();
            let Owner { user, group } = &rule.owner;
            format!("permissions {} {user}:{group} {perm} {} {exclude:?}", rule.path, rule.recurse)
        });
        let directories = self.directories.iter().map(made("directories"));
        directories.chain(self.files.iter().map(made("files"))).chain(rules).collect()
    }
}

/// A permission in any notation that Kolla takes: `644`, `0644`, `2775`, `0o644`.
pub fn perm(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    let octal = (3..=4).contains(&digits.len()) && digits.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    if octal { u32::from_str_radix(digits, 8).ok() } else { None }
}

#[cfg(test)]
mod tests;
