//! The command of a configuration: its words as a shell without quotes would see them, and where its program is.

use crate::error::{Failure, NOT_EXECUTABLE, NOT_FOUND, Result, reason, shown};
use crate::glob;
use crate::plan::{Plan, Want};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Kolla's `exec ${CMD}`: words are cut at blanks, those with patterns expanded; quotes mean nothing.
pub fn words(command: &str) -> Vec<OsString> {
    let mut words = Vec::new();
    for word in command.split([' ', '\t', '\n']).filter(|word| !word.is_empty()) {
        let found = if glob::has_magic(word) { glob::expand(word) } else { Vec::new() };
        if found.is_empty() {
            words.push(word.into());
        } else {
            words.extend(found.into_iter().map(OsString::from));
        }
    }
    words
}

/// Where a program is. What `plan` will put there counts as well.
pub fn locate(program: &OsStr, path: &OsStr, plan: Option<&Plan>) -> Result<PathBuf> {
    let named = Path::new(program);
    let places: Vec<PathBuf> = if program.as_encoded_bytes().contains(&b'/') {
        vec![named.into()]
    } else {
        std::env::split_paths(path).map(|directory| directory.join(named)).collect()
    };
    let mut failure = None;
    for place in places {
        match executable(&place, plan) {
            Ok(true) => return Ok(place),
            Ok(false) => {}
            Err(why) => failure = failure.or(Some(why)),
        }
    }
    Err(failure.unwrap_or_else(|| {
        let place = if named.is_absolute() { String::new() } else { format!(" in {}", path.to_string_lossy()) };
        Failure { problems: vec![format!("command: there is no `{}`{place}", shown(named))], code: NOT_FOUND }
    }))
}

fn executable(path: &Path, plan: Option<&Plan>) -> Result<bool> {
    let mode = match plan.and_then(|plan| plan.at(path)).map(|node| &node.want) {
        Some(Want::File { own, .. }) => own.mode,
        Some(Want::Link { .. }) => return Ok(true),
        Some(Want::Directory { .. }) => 0,
        _ => match std::fs::metadata(path) {
            Ok(there) if there.is_file() => there.permissions().mode(),
            Ok(_) => 0,
            Err(_) => return Ok(false),
        },
    };
    if mode & 0o111 == 0 {
        let problem = format!("command: {} is not executable", shown(path));
        return Err(Failure { problems: vec![problem], code: NOT_EXECUTABLE });
    }
    Ok(true)
}

/// What the system's refusal to execute a program means.
pub fn refused(program: &Path, error: &io::Error) -> Failure {
    let missing = error.kind() == io::ErrorKind::NotFound;
    let why = if missing && program.exists() {
        "the interpreter or loader that it names is not in this image".into()
    } else {
        reason(error)
    };
    let problem = format!("command: cannot execute {}: {why}", shown(program));
    Failure { problems: vec![problem], code: if missing { NOT_FOUND } else { NOT_EXECUTABLE } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_a_shell_without_quotes() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.conf", "b.conf"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let at = dir.path().display();
        let command = format!("  x --file={at}/none* {at}/*.conf\t'a b'\n-v ");
        let wanted =
            ["x", &format!("--file={at}/none*"), &format!("{at}/a.conf"), &format!("{at}/b.conf"), "'a", "b'", "-v"];
        assert_eq!(words(&command), wanted.map(OsString::from));
    }

    #[test]
    fn a_program_that_is_missing_or_not_executable_has_its_own_code() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tool");
        std::fs::write(&file, "").unwrap();
        let path = dir.path().as_os_str();
        assert_eq!(locate(OsStr::new("tool"), path, None).unwrap_err().code, NOT_EXECUTABLE);
        assert_eq!(locate(OsStr::new("none"), path, None).unwrap_err().code, NOT_FOUND);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(locate(OsStr::new("tool"), path, None).unwrap(), file);
        assert_eq!(locate(OsStr::new("/none/tool"), path, None).unwrap_err().code, NOT_FOUND);
        assert_eq!(locate(path, OsStr::new(""), None).unwrap_err().code, NOT_EXECUTABLE);
    }
}
