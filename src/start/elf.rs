//! The little that is asked of an ELF file: what loads it, and which shared libraries it takes.

use std::io::{Read, Seek};

use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_STRSZ, DT_STRTAB, EM_AARCH64, EM_X86_64, FileHeader64, Machine};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _};
use object::{Endianness, ReadCache, ReadRef};

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Elf {
    pub architecture: Architecture,
    /// The loader that it names, or nothing where that can't be read; None: the kernel starts it alone.
    pub interpreter: Option<String>,
    /// Names of shared libraries.
    pub needed: Vec<String>,
    /// Where they are looked for first, by it and, without a RUNPATH, by all that it loads.
    pub rpath: Vec<String>,
    pub runpath: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Architecture {
    Amd64,
    Arm64,
    #[default]
    Other,
}

/// None: it is none of 64 bits, or is broken.
pub fn read(file: impl Read + Seek) -> Option<Elf> {
    let cache = ReadCache::new(file);
    parse(&cache)
}

type Header = FileHeader64<Endianness>;

fn parse<'data>(data: impl ReadRef<'data>) -> Option<Elf> {
    let header = Header::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let architecture = match header.e_machine.get(endian) {
        EM_X86_64 => Architecture::Amd64,
        EM_AARCH64 => Architecture::Arm64,
        Machine(_) => Architecture::Other,
    };
    let mut elf = Elf { architecture, ..Elf::default() };
    let segments = header.program_headers(endian, data).ok()?;
    let mut dynamic: &[_] = &[];
    for segment in segments {
        match segment.interpreter(endian, data) {
            Ok(None) => {}
            Ok(Some(name)) => elf.interpreter = Some(String::from_utf8_lossy(name).into_owned()),
            Err(_) => elf.interpreter = Some(String::new()),
        }
        if let Ok(Some(entries)) = segment.dynamic(endian, data) {
            dynamic = entries;
        }
    }
    let value = |tag| dynamic.iter().find(|entry| entry.tag(endian) == tag).map(|entry| entry.val(endian));
    let (Some(at), Some(size)) = (value(DT_STRTAB), value(DT_STRSZ)) else { return Some(elf) };
    let strings = segments.iter().find_map(|segment| segment.data_range(endian, data, at, size).ok().flatten())?;
    for entry in dynamic {
        let texts = match entry.tag(endian) {
            DT_NEEDED => &mut elf.needed,
            DT_RPATH => &mut elf.rpath,
            DT_RUNPATH => &mut elf.runpath,
            _ => continue,
        };
        let rest = strings.get(usize::try_from(entry.val(endian)).ok()?..)?;
        let text = String::from_utf8_lossy(rest.split(|byte| *byte == 0).next().unwrap_or(rest)).into_owned();
        match entry.tag(endian) {
            DT_NEEDED => texts.push(text),
            _ => texts.extend(text.split(':').map(str::to_owned)),
        }
    }
    Some(elf)
}
