//! The start runtime as it is shipped: one static program. One that isn't static would start on the machine that made
//! it and in few images, so it is refused.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use super::elf::{self, Architecture};
use crate::error::{Error, Result};
use crate::image::config::Platform;

pub struct Runtime {
    pub bytes: Vec<u8>,
    pub platform: Platform,
}

impl Runtime {
    /// From the file that was named, else from the first place where there is one that is static.
    pub fn find(named: Option<&Path>, places: &[PathBuf]) -> Result<Runtime> {
        if let Some(path) = named {
            return Runtime::read(path);
        }
        let usable = |path: &PathBuf| path.is_file().then(|| Runtime::read(path)).and_then(Result::ok);
        places.iter().find_map(usable).ok_or_else(|| {
            let places: Vec<String> = places.iter().map(|place| format!("`{}`", place.display())).collect();
            Error::bad_input(format!("there is no start runtime at {}", places.join(" or at ")))
                .hint("make it with tools/build-start, or name one with `--runtime FILE`")
        })
    }

    pub fn read(path: &Path) -> Result<Runtime> {
        let wrong = |why: &str| Error::bad_input(format!("`{}` {why}", path.display()));
        let bytes = crate::text::read(path).map_err(|e| wrong("cannot be read as the start runtime").cause(e))?;
        let program = elf::read(Cursor::new(&bytes));
        let architecture = match program.as_ref().map(|program| program.architecture) {
            Some(Architecture::Amd64) => "amd64",
            Some(Architecture::Arm64) => "arm64",
            Some(Architecture::Other) | None => return Err(wrong("is no program for Linux on amd64 or arm64")),
        };
        if program.is_some_and(|program| program.interpreter.is_some()) {
            let hint = "tools/build-start makes one that is: target/start/kollage-start";
            return Err(wrong("isn't a static program, and would not start in every image").hint(hint));
        }
        let platform = Platform { os: "linux".into(), architecture: architecture.into(), variant: None };
        Ok(Runtime { bytes, platform })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_needs_a_loader_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let fixed = file("static", &super::super::tests::elf(1));
        assert_eq!(Runtime::read(&fixed).unwrap().platform.architecture, "amd64");
        let dynamic = file("dynamic", &super::super::tests::elf(3));
        assert!(Runtime::read(&dynamic).err().unwrap().message().contains("isn't a static program"));
        let script = file("script", b"#!/bin/sh\n");
        assert!(Runtime::read(&script).err().unwrap().message().contains("no program"));
        let cut = file("cut", &super::super::tests::elf(1)[..100]);
        assert!(Runtime::read(&cut).is_err());

        let none = dir.path().join("none");
        assert!(Runtime::find(None, &[none.clone(), dynamic.clone(), fixed]).is_ok());
        let error = Runtime::find(None, &[none, dynamic]).err().unwrap();
        assert!(error.hint_text().unwrap().contains("tools/build-start"), "{error:?}");
    }
}
