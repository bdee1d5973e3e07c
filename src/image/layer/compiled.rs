//! Whether two compiled files differ in nothing that runs. What they hold for debuggers names the directory that they were
//! compiled in, which pip and others draw by chance; the build id is made of that.

use std::fs::File;
use std::io;
use std::path::Path;

use object::elf::{FileHeader64, SHF_ALLOC};
use object::read::elf::{FileHeader as _, SectionHeader as _};
use object::{Endianness, ReadCache, ReadRef};

type Header = FileHeader64<Endianness>;

const BUILD_ID: &[u8] = b".note.gnu.build-id";

/// No for whatever is not ELF of 64 bits.
pub fn same_code(one: &Path, other: &Path) -> io::Result<bool> {
    let (one, other) = (ReadCache::new(File::open(one)?), ReadCache::new(File::open(other)?));
    Ok(match (loaded(&one), loaded(&other)) {
        (Some(one), Some(other)) => !one.sections.is_empty() && one == other,
        _ => false,
    })
}

#[derive(PartialEq, Eq)]
struct Loaded<'data> {
    kind: (u16, u16, u64),
    /// What is in memory when it runs.
    sections: Vec<Section<'data>>,
}

#[derive(PartialEq, Eq)]
struct Section<'data> {
    name: &'data [u8],
    /// Type, flags, address and size.
    place: [u64; 4],
    content: &'data [u8],
}

fn loaded<'data>(data: impl ReadRef<'data>) -> Option<Loaded<'data>> {
    let header = Header::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let table = header.sections(endian, data).ok()?;
    let mut sections = Vec::new();
    for section in table.iter() {
        let (name, flags) = (table.section_name(endian, section).ok()?, section.sh_flags(endian).0);
        if flags & SHF_ALLOC.0 != 0 && name != BUILD_ID {
            let kind = u64::from(section.sh_type(endian).0);
            let place = [kind, flags, section.sh_addr(endian), section.sh_size(endian)];
            sections.push(Section { name, place, content: section.data(endian, data).ok()? });
        }
    }
    let kind = (header.e_type(endian).0, header.e_machine(endian).0, header.e_entry(endian));
    Some(Loaded { kind, sections })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    /// A library compiled for debuggers in a directory of its own.
    fn compiled(dir: &Path, text: &str) -> std::path::PathBuf {
        fs::create_dir(dir).unwrap();
        fs::write(dir.join("it.c"), text).unwrap();
        let cc = Command::new("cc").args(["-g", "-shared", "-fPIC", "-o", "it.so", "it.c"]).current_dir(dir).status();
        assert!(cc.unwrap().success());
        dir.join("it.so")
    }

    #[test]
    fn only_what_runs_counts() {
        let room = tempfile::tempdir().unwrap();
        let library = |dir: &str, text: &str| compiled(&room.path().join(dir), text);
        let (one, other) = (library("a", "int f(void) { return 1; }\n"), library("b", "int f(void) { return 1; }\n"));
        assert_ne!(fs::read(&one).unwrap(), fs::read(&other).unwrap());
        assert!(same_code(&one, &other).unwrap());
        assert!(!same_code(&one, &library("c", "int f(void) { return 2; }\n")).unwrap());
        let text = room.path().join("text");
        fs::write(&text, "text").unwrap();
        assert!(!same_code(&text, &text).unwrap());
        // Nothing in it can be shown to be the same.
        fs::write(&text, &fs::read(&one).unwrap()[..64]).unwrap();
        assert!(!same_code(&text, &text).unwrap());
    }
}
