//! The start runtime as it is shipped: one static program. One that isn't static would start on the machine that made
//! it and in few images, so it is refused.

use std::path::{Path, PathBuf};

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
        match program(&bytes) {
            Some(Program { interpreter: false, architecture }) => {
                let platform = Platform { os: "linux".into(), architecture: architecture.into(), variant: None };
                Ok(Runtime { bytes, platform })
            }
            Some(_) => {
                let hint = "tools/build-start makes one that is: target/start/kollage-start";
                Err(wrong("isn't a static program, and would not start in every image").hint(hint))
            }
            None => Err(wrong("is no program for Linux on amd64 or arm64")),
        }
    }
}

struct Program {
    architecture: &'static str,
    /// Whether it names a loader, which is in no image that has another libc or none.
    interpreter: bool,
}

/// The little that is asked of an ELF file.
fn program(bytes: &[u8]) -> Option<Program> {
    let architecture = match number(bytes, 18, 2)? {
        _ if !bytes.starts_with(ELF64) => return None,
        62 => "amd64",
        183 => "arm64",
        _ => return None,
    };
    let interpreter = segments(bytes)?.any(|header| number(bytes, header, 4) == Some(PT_INTERP));
    Some(Program { architecture, interpreter })
}

/// Where the name of its loader is in an ELF file, and how long it is; None: it needs none.
pub(super) fn interpreter(bytes: &[u8]) -> Option<(usize, usize)> {
    let header = segments(bytes)?.find(|header| number(bytes, *header, 4) == Some(PT_INTERP))?;
    let (at, size) = (number(bytes, header + 8, 8)?, number(bytes, header + 32, 8)?);
    Some((usize::try_from(at).ok()?, usize::try_from(size).ok()?))
}

/// 64 bits, little-endian.
const ELF64: &[u8] = b"\x7fELF\x02\x01";
const PT_INTERP: u64 = 3;
/// As much of a header as is looked at; none begins where this would not be there.
const HEADER: usize = 56;

/// Where the headers of its segments are.
fn segments(bytes: &[u8]) -> Option<impl Iterator<Item = usize>> {
    if !bytes.starts_with(ELF64) {
        return None;
    }
    let field = |at, length| number(bytes, at, length).and_then(|n| usize::try_from(n).ok());
    let (table, size, count) = (field(32, 8)?, field(54, 2)?, field(56, 2)?);
    let end = table.checked_add(size * count)?;
    let whole = size >= HEADER && end <= bytes.len();
    whole.then(|| (0..count).map(move |index| table + index * size))
}

fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let field = bytes.get(at..at.checked_add(length)?)?;
    Some(field.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
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
