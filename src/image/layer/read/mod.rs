//! The tar format coming in: v7, ustar, GNU and PAX headers, sparse files of all four kinds.
//!
//! The `tar` crate reads long names and PAX headers whole, however long they say they are, and applies no PAX time;
//! layers come from anywhere, so headers are read here, with a limit. Nothing that a stream can say makes this panic
//! or allocate more than [`Limits::max_header_size`].

use std::collections::BTreeMap;
use std::io::{self, Read};

use fields::{checksum_holds, decimal, header_path, number, pax_time, text};

use super::Limits;
use super::sys::show;
use crate::error::{Error, Result};

mod fields;
mod sparse;

pub(super) use fields::is_header;

const BLOCK: usize = 512;
/// Writers need two or three: a name, a link, records.
const MAX_EXTENDED: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    File,
    HardLink,
    Symlink,
    Char,
    Block,
    Directory,
    Fifo,
    /// By its letter; nothing that can be unpacked.
    Other(u8),
}

/// One entry with everything that its extended headers say applied.
#[derive(Clone, Debug)]
pub struct TarEntry {
    pub path: Vec<u8>,
    pub kind: EntryKind,
    pub mode: u32,
    pub uid: u64,
    pub gid: u64,
    pub mtime: i64,
    pub mtime_nanoseconds: u32,
    /// Of the file; a sparse file has fewer bytes in the stream.
    pub size: u64,
    pub link: Vec<u8>,
    pub device: (u32, u32),
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Offset and length of the parts that are in the stream; None: all of it.
    pub sparse: Option<Vec<(u64, u64)>>,
}

pub struct TarReader<R> {
    stream: R,
    limits: Limits,
    /// Bytes of contents not read yet, and padding after them.
    remaining: u64,
    padding: u64,
    ended: bool,
}

/// What extended headers said about the entry that follows.
#[derive(Default)]
struct Extensions {
    gnu_path: Option<Vec<u8>>,
    gnu_link: Option<Vec<u8>>,
    pax: BTreeMap<Vec<u8>, Vec<u8>>,
    /// `GNU.sparse.offset` and `.numbytes` of format 0.0, which come again and again.
    sparse_pairs: Vec<u64>,
}

fn damaged(what: impl Into<String>) -> Error {
    Error::failed("the archive is damaged").cause(what.into())
}

fn damaged_at(path: &[u8], what: impl std::fmt::Display) -> Error {
    damaged(format!("entry `{}`: {what}", show(path)))
}

impl<R: Read> TarReader<R> {
    pub fn new(stream: R, limits: Limits) -> Self {
        TarReader { stream, limits, remaining: 0, padding: 0, ended: false }
    }

    pub fn into_inner(self) -> R {
        self.stream
    }

    /// None at the end. What was not read of the entry before is skipped.
    pub fn next_entry(&mut self) -> Result<Option<TarEntry>> {
        let mut extensions = Extensions::default();
        let mut extended = 0;
        loop {
            self.skip()?;
            if extended > MAX_EXTENDED {
                return Err(damaged(format!("more than {MAX_EXTENDED} extended headers belong to one entry")));
            }
            let Some(block) = self.header()? else {
                if extended > 0 {
                    return Err(damaged("it ends after an extended header"));
                }
                return Ok(None);
            };
            let size = number(&block[124..136]).and_then(|n| u64::try_from(n).ok());
            let kind = block[156];
            match kind {
                b'L' | b'K' | b'x' | b'X' | b'g' => {
                    extended += 1;
                    let body = self.extended_header(size)?;
                    match kind {
                        b'L' => extensions.gnu_path = Some(text(&body)),
                        b'K' => extensions.gnu_link = Some(text(&body)),
                        // Git writes a comment in a global header; Docker ignores global headers too.
                        b'g' => {}
                        _ => extensions.pax(&body)?,
                    }
                }
                _ => return self.entry(&block, size, &extensions).map(Some),
            }
        }
    }

    fn header(&mut self) -> Result<Option<[u8; BLOCK]>> {
        if self.ended {
            return Ok(None);
        }
        let mut block = [0u8; BLOCK];
        let n = fill(&mut self.stream, &mut block).map_err(|e| damaged(e.to_string()))?;
        if n == 0 || (n == BLOCK && block.iter().all(|b| *b == 0)) {
            self.ended = true;
            return Ok(None);
        }
        if n < BLOCK {
            return Err(damaged("it ends within a header"));
        }
        if !checksum_holds(&block) {
            return Err(damaged("a header's checksum is wrong"));
        }
        Ok(Some(block))
    }

    fn extended_header(&mut self, size: Option<u64>) -> Result<Vec<u8>> {
        let size = size.ok_or_else(|| damaged("an extended header has no size"))?;
        if size > self.limits.max_header_size {
            let cause = format!("an extended header of {size} bytes; the limit is {}", self.limits.max_header_size);
            return Err(damaged(cause));
        }
        self.set_remaining(size);
        let mut body = Vec::new();
        self.by_ref().take(size).read_to_end(&mut body).map_err(|e| damaged(e.to_string()))?;
        Ok(body)
    }

    fn set_remaining(&mut self, size: u64) {
        self.remaining = size;
        let rest = size % BLOCK as u64;
        self.padding = if rest == 0 { 0 } else { BLOCK as u64 - rest };
    }

    /// Passes over what was not read of the entry without reading it; gives the place where that begins. What lies
    /// beyond the end of a file is found out when it is read.
    pub fn seek_past(&mut self) -> io::Result<u64>
    where
        R: io::Seek,
    {
        let start = self.stream.stream_position()?;
        let end = start.saturating_add(self.remaining).saturating_add(self.padding);
        (self.remaining, self.padding) = (0, 0);
        self.stream.seek(io::SeekFrom::Start(end))?;
        Ok(start)
    }

    fn skip(&mut self) -> Result<()> {
        let mut left = self.remaining.saturating_add(self.padding);
        (self.remaining, self.padding) = (0, 0);
        let mut buffer = [0u8; 16 * 1024];
        while left > 0 {
            let want = left.min(buffer.len() as u64) as usize;
            let n = fill(&mut self.stream, &mut buffer[..want]).map_err(|e| damaged(e.to_string()))?;
            if n < want {
                return Err(damaged("it ends within an entry"));
            }
            left -= n as u64;
        }
        Ok(())
    }

    fn entry(&mut self, block: &[u8; BLOCK], size: Option<u64>, extensions: &Extensions) -> Result<TarEntry> {
        let pax = |key: &str| extensions.pax.get(key.as_bytes()).filter(|v| !v.is_empty());
        let path = match pax("GNU.sparse.name").or_else(|| pax("path")).or(extensions.gnu_path.as_ref()) {
            Some(path) => path.clone(),
            None => header_path(block),
        };
        let link = match pax("linkpath").or(extensions.gnu_link.as_ref()) {
            Some(link) => link.clone(),
            None => text(&block[157..257]),
        };
        let field = |range: std::ops::Range<usize>, what: &str| {
            number(&block[range]).ok_or_else(|| damaged_at(&path, format!("its {what} is not a number")))
        };
        let pax_number = |key: &str| match pax(key) {
            Some(value) => {
                let value = decimal(value);
                value.map(Some).ok_or_else(|| damaged_at(&path, format!("its `{key}` record is not a number")))
            }
            None => Ok(None),
        };
        let owner = |key: &str, range: std::ops::Range<usize>| -> Result<u64> {
            match pax_number(key)? {
                Some(id) => Ok(id),
                None => {
                    u64::try_from(field(range, key)?).map_err(|_| damaged_at(&path, format!("its {key} is negative")))
                }
            }
        };
        let uid = owner("uid", 108..116)?;
        let gid = owner("gid", 116..124)?;
        let (mtime, mtime_nanoseconds) = match pax("mtime") {
            Some(time) => pax_time(time).ok_or_else(|| damaged_at(&path, "its time is not a number"))?,
            None => (field(136..148, "time")?, 0),
        };
        let stored = match pax_number("size")? {
            Some(size) => size,
            None => size.ok_or_else(|| damaged_at(&path, "its size is not a number"))?,
        };
        let letter = block[156];
        let kind = match letter {
            b'0' | 0 | b'7' | b'S' if path.ends_with(b"/") => EntryKind::Directory,
            b'0' | 0 | b'7' | b'S' => EntryKind::File,
            b'1' => EntryKind::HardLink,
            b'2' => EntryKind::Symlink,
            b'3' => EntryKind::Char,
            b'4' => EntryKind::Block,
            b'5' | b'D' => EntryKind::Directory,
            b'6' => EntryKind::Fifo,
            other => EntryKind::Other(other),
        };
        let device = match kind {
            EntryKind::Char | EntryKind::Block => {
                let part = |range, what| {
                    u32::try_from(field(range, what)?)
                        .map_err(|_| damaged_at(&path, format!("its {what} is too large")))
                };
                (part(329..337, "device number")?, part(337..345, "device number")?)
            }
            _ => (0, 0),
        };
        let mut xattrs = BTreeMap::new();
        for (key, value) in &extensions.pax {
            if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                xattrs.insert(name.to_vec(), value.clone());
            }
        }
        let mode = (field(100..108, "mode")? as u32) & 0o7777;

        // Links and devices have no contents, whatever the size says; only the size of an old hard link counts.
        let contents = match kind {
            EntryKind::File | EntryKind::Other(_) | EntryKind::Directory => stored,
            EntryKind::HardLink if pax("size").is_some() => stored,
            _ => 0,
        };
        self.set_remaining(contents);
        let mut entry = TarEntry {
            path,
            kind,
            mode,
            uid,
            gid,
            mtime,
            mtime_nanoseconds,
            size: if kind == EntryKind::File { contents } else { 0 },
            link,
            device,
            xattrs,
            sparse: None,
        };
        if letter == b'S' && kind == EntryKind::File {
            self.old_gnu_sparse(block, &mut entry)?;
        } else if kind == EntryKind::File {
            self.pax_sparse(extensions, &mut entry)?;
        }
        Ok(entry)
    }
}

impl Extensions {
    fn pax(&mut self, body: &[u8]) -> Result<()> {
        let bad = || damaged("an extended header makes no sense");
        let mut rest = body;
        while !rest.is_empty() {
            // Some writers fill up with zeros.
            if rest.iter().all(|b| *b == 0) {
                break;
            }
            let space = rest.iter().position(|b| *b == b' ').ok_or_else(bad)?;
            let length = decimal(&rest[..space]).and_then(|n| usize::try_from(n).ok()).ok_or_else(bad)?;
            let record = rest.get(space + 1..length).and_then(|r| r.strip_suffix(b"\n")).ok_or_else(bad)?;
            let equals = record.iter().position(|b| *b == b'=').ok_or_else(bad)?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            if key == b"GNU.sparse.offset" || key == b"GNU.sparse.numbytes" {
                self.sparse_pairs.push(decimal(value).ok_or_else(bad)?);
            } else {
                self.pax.insert(key.to_vec(), value.to_vec());
            }
            rest = &rest[length..];
        }
        Ok(())
    }
}

/// As much as there is, up to the whole buffer.
fn fill(stream: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

/// Contents of the entry that `next_entry` gave.
impl<R: Read> Read for TarReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.remaining == 0 || buffer.is_empty() {
            return Ok(0);
        }
        let want = self.remaining.min(buffer.len() as u64) as usize;
        let n = self.stream.read(&mut buffer[..want])?;
        if n == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ends within an entry"));
        }
        self.remaining -= n as u64;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extended_header_cannot_fill_the_memory() {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::XHeader);
        header.set_size(1 << 33);
        header.set_cksum();
        let stream = header.as_bytes().as_slice().chain(io::repeat(0));
        let error = TarReader::new(stream, Limits::default()).next_entry().unwrap_err();
        assert!(error.to_string().contains("extended header of"), "{error}");
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_an_error_or_entries(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..3000)) {
            let mut reader = TarReader::new(bytes.as_slice(), Limits::default());
            while let Ok(Some(_)) = reader.next_entry() {}
        }

        #[test]
        fn any_header_with_a_right_checksum(mut bytes in proptest::collection::vec(proptest::num::u8::ANY, 512..2048)) {
            let block: [u8; 512] = bytes[..512].try_into().unwrap();
            let mut header = tar::Header::from_byte_slice(&block).clone();
            header.set_cksum();
            bytes[..512].copy_from_slice(header.as_bytes());
            let mut reader = TarReader::new(bytes.as_slice(), Limits::default());
            while let Ok(Some(_)) = reader.next_entry() {}
        }
    }
}
