//! The tar format going out: POSIX ustar headers, and a PAX header before an entry that needs one. What comes out
//! depends on the entries alone: owners are numbers, times are whole seconds, records are sorted.

use std::collections::BTreeMap;
use std::io::{self, Write};

use tar::{EntryType, Header};

/// One entry before it is written; `path` is relative, and that of a directory ends in `/`.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    pub path: &'a [u8],
    pub kind: EntryType,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Seconds since 1970.
    pub mtime: i64,
    /// Of the contents that follow; files only.
    pub size: u64,
    /// Target of a symbolic or hard link.
    pub link: &'a [u8],
    pub device: (u32, u32),
    pub xattrs: &'a BTreeMap<Vec<u8>, Vec<u8>>,
}

pub struct TarWriter<W> {
    out: W,
    entries: u64,
    /// Bytes of contents that the current entry still lacks, and of padding after them.
    missing: u64,
    padding: usize,
}

const BLOCK: usize = 512;
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// Largest numbers that fit the octal fields of 8 and 12 bytes.
const MAX_OCTAL_8: u64 = 0o7777777;
const MAX_OCTAL_12: u64 = 0o77777777777;

impl<W: Write> TarWriter<W> {
    pub fn new(out: W) -> Self {
        TarWriter { out, entries: 0, missing: 0, padding: 0 }
    }

    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Writes the headers of an entry. Exactly `size` bytes of contents have to follow.
    pub fn entry(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        self.end_of_entry()?;
        let mut pax: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut header = Header::new_ustar();
        header.set_entry_type(entry.kind);
        header.set_mode(entry.mode & 0o7777);
        header.set_uid(fitting(&mut pax, "uid", entry.uid.into(), MAX_OCTAL_8));
        header.set_gid(fitting(&mut pax, "gid", entry.gid.into(), MAX_OCTAL_8));
        header.set_size(fitting(&mut pax, "size", entry.size, MAX_OCTAL_12));
        let mtime = match u64::try_from(entry.mtime) {
            Ok(mtime) if mtime <= MAX_OCTAL_12 => mtime,
            _ => {
                pax.insert(b"mtime".to_vec(), entry.mtime.to_string().into_bytes());
                0
            }
        };
        header.set_mtime(mtime);
        if matches!(entry.kind, EntryType::Char | EntryType::Block) {
            header.set_device_major(entry.device.0)?;
            header.set_device_minor(entry.device.1)?;
        }
        if let Some(ustar) = header.as_ustar_mut() {
            text(&mut pax, "path", entry.path, &mut ustar.name);
            text(&mut pax, "linkpath", entry.link, &mut ustar.linkname);
        }
        header.set_cksum();
        for (name, value) in entry.xattrs {
            if name.contains(&b'=') {
                let name = super::sys::show(name);
                return Err(io::Error::other(format!(
                    "the name of the attribute `{name}` contains `=`, which tar cannot say"
                )));
            }
            pax.insert([b"SCHILY.xattr.", name.as_slice()].concat(), value.clone());
        }
        if !pax.is_empty() {
            self.pax(entry.path, &pax)?;
        }
        self.out.write_all(header.as_bytes())?;
        self.entries += 1;
        self.missing = entry.size;
        self.padding = entry.size.next_multiple_of(BLOCK as u64).wrapping_sub(entry.size) as usize;
        Ok(())
    }

    fn pax(&mut self, path: &[u8], records: &BTreeMap<Vec<u8>, Vec<u8>>) -> io::Result<()> {
        let mut body = Vec::new();
        for (key, value) in records {
            body.extend_from_slice(&record(key, value));
        }
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::XHeader);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(body.len() as u64);
        let name = path.strip_suffix(b"/").unwrap_or(path);
        let name = name.rsplit(|b| *b == b'/').next().unwrap_or(name);
        if let Some(ustar) = header.as_ustar_mut() {
            fill(&mut ustar.name, &[b"PaxHeaders.0/", name].concat());
        }
        header.set_cksum();
        self.out.write_all(header.as_bytes())?;
        self.out.write_all(&body)?;
        let padding = body.len().next_multiple_of(BLOCK) - body.len();
        self.out.write_all(&ZEROS[..padding])
    }

    pub fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        let n = bytes.len() as u64;
        if n > self.missing {
            return Err(io::Error::other("more contents than the entry's size"));
        }
        self.missing -= n;
        self.out.write_all(bytes)
    }

    pub fn zeros(&mut self, mut count: u64) -> io::Result<()> {
        while count > 0 {
            let n = count.min(ZEROS.len() as u64);
            self.data(&ZEROS[..n as usize])?;
            count -= n;
        }
        Ok(())
    }

    fn end_of_entry(&mut self) -> io::Result<()> {
        if self.missing > 0 {
            return Err(io::Error::other("fewer contents than the entry's size"));
        }
        let padding = std::mem::take(&mut self.padding);
        self.out.write_all(&ZEROS[..padding])
    }

    pub fn finish(mut self) -> io::Result<W> {
        self.end_of_entry()?;
        self.out.write_all(&ZEROS[..2 * BLOCK])?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// The number when its field can hold it, else 0 and a PAX record.
fn fitting(pax: &mut BTreeMap<Vec<u8>, Vec<u8>>, key: &str, value: u64, max: u64) -> u64 {
    if value <= max {
        return value;
    }
    pax.insert(key.as_bytes().to_vec(), value.to_string().into_bytes());
    0
}

/// Old readers take the bytes of a header for ASCII, so everything else goes into a PAX record too.
fn text(pax: &mut BTreeMap<Vec<u8>, Vec<u8>>, key: &str, value: &[u8], field: &mut [u8]) {
    if value.len() > field.len() || !value.is_ascii() {
        pax.insert(key.as_bytes().to_vec(), value.to_vec());
    }
    fill(field, value);
}

fn fill(field: &mut [u8], value: &[u8]) {
    for (to, from) in field.iter_mut().zip(value) {
        *to = if from.is_ascii() { *from } else { b'_' };
    }
}

/// `LENGTH KEY=VALUE\n`, where LENGTH counts itself.
fn record(key: &[u8], value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    let mut out = Vec::with_capacity(length);
    out.extend_from_slice(length.to_string().as_bytes());
    out.push(b' ');
    out.extend_from_slice(key);
    out.push(b'=');
    out.extend_from_slice(value);
    out.push(b'\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_record_counts_its_own_length() {
        assert_eq!(record(b"a", b"b"), b"6 a=b\n");
        for n in 0..300 {
            let record = record(b"key", &vec![b'x'; n]);
            let text = String::from_utf8(record.clone()).unwrap();
            let length: usize = text.split(' ').next().unwrap().parse().unwrap();
            assert_eq!(length, record.len());
        }
    }

    #[test]
    fn what_does_not_fit_a_header_is_read_back_whole() {
        let long = [b"d/".repeat(200), "\u{e4}".as_bytes().to_vec(), vec![0xff]].concat();
        let xattrs = BTreeMap::from([(b"user.x".to_vec(), b"line\0".to_vec())]);
        let entry = Entry {
            path: &long,
            kind: EntryType::Regular,
            mode: 0o4755,
            uid: 3_000_000,
            gid: u32::MAX - 1,
            mtime: -5,
            size: 3,
            link: b"",
            device: (0, 0),
            xattrs: &xattrs,
        };
        let mut tar = TarWriter::new(Vec::new());
        tar.entry(&entry).unwrap();
        tar.data(b"abc").unwrap();
        let bytes = tar.finish().unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let mut read = archive.entries().unwrap().next().unwrap().unwrap();
        assert_eq!(*read.path_bytes(), *long);
        let pax: Vec<(String, Vec<u8>)> = read
            .pax_extensions()
            .unwrap()
            .unwrap()
            .map(|r| r.map(|r| (r.key().unwrap().to_owned(), r.value_bytes().to_vec())).unwrap())
            .collect();
        assert!(pax.contains(&("mtime".into(), b"-5".to_vec())), "{pax:?}");
        assert!(pax.contains(&("uid".into(), b"3000000".to_vec())));
        assert!(pax.contains(&("SCHILY.xattr.user.x".into(), b"line\0".to_vec())));
        let mut contents = String::new();
        read.read_to_string(&mut contents).unwrap();
        assert_eq!(contents, "abc");
        assert_eq!(read.header().mode().unwrap(), 0o4755);
    }

    #[test]
    fn contents_must_have_the_promised_size() {
        let none = BTreeMap::new();
        let entry = Entry {
            path: b"f",
            kind: EntryType::Regular,
            mode: 0o644,
            uid: 0,
            gid: 0,
            mtime: 0,
            size: 3,
            link: b"",
            device: (0, 0),
            xattrs: &none,
        };
        let mut tar = TarWriter::new(Vec::new());
        tar.entry(&entry).unwrap();
        assert!(tar.data(b"abcd").is_err());
        tar.data(b"ab").unwrap();
        assert!(tar.finish().is_err());
    }
}
