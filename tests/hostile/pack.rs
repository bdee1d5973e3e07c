//! Tars and compressed streams that no honest program writes.

use std::io::Write as _;

/// A tar, entry by entry.
#[derive(Default)]
pub struct Tar(Vec<u8>);

pub fn tar() -> Tar {
    Tar::default()
}

impl Tar {
    /// An entry with any name, kind and link.
    pub fn entry(mut self, kind: u8, name: &str, link: &str, content: &[u8]) -> Self {
        let mut block = header(kind, name, content.len() as u64);
        block[157..157 + link.len()].copy_from_slice(link.as_bytes());
        self.add(block);
        self.content(content)
    }

    pub fn file(self, name: &str) -> Self {
        self.entry(b'0', name, "", b"hostile")
    }

    pub fn directory(self, name: &str) -> Self {
        self.entry(b'5', name, "", b"")
    }

    pub fn link(self, name: &str, target: &str) -> Self {
        self.entry(b'2', name, target, b"")
    }

    pub fn hard(self, name: &str, target: &str) -> Self {
        self.entry(b'1', name, target, b"")
    }

    pub fn device(mut self, kind: u8, name: &str, major: u32, minor: u32) -> Self {
        let mut block = header(kind, name, 0);
        block[329..337].copy_from_slice(format!("{major:07o}\0").as_bytes());
        block[337..345].copy_from_slice(format!("{minor:07o}\0").as_bytes());
        self.add(block);
        self
    }

    /// Records for the entry that follows.
    pub fn pax(mut self, records: &[(&str, &[u8])]) -> Self {
        let mut body = Vec::new();
        for (key, value) in records {
            let rest = key.len() + value.len() + 3;
            let mut length = rest + rest.to_string().len();
            if rest + length.to_string().len() > length {
                length += 1;
            }
            body.extend(format!("{length} {key}=").as_bytes());
            body.extend(*value);
            body.push(b'\n');
        }
        self.add(header(b'x', "pax", body.len() as u64));
        self.content(&body)
    }

    /// A header that says so many bytes follow, and nothing does.
    pub fn claim(mut self, kind: u8, name: &str, size: u64) -> Self {
        self.add(header(kind, name, size));
        self
    }

    /// A header with these bytes as its size.
    pub fn odd_size(mut self, name: &str, size: [u8; 12]) -> Self {
        let mut block = header(b'0', name, 0);
        block[124..136].copy_from_slice(&size);
        self.add(block);
        self
    }

    /// A header whose checksum is wrong.
    pub fn damaged(mut self, name: &str) -> Self {
        let mut block = header(b'0', name, 0);
        sum(&mut block);
        block[0] ^= 1;
        self.0.extend(block);
        self
    }

    fn add(&mut self, mut block: [u8; 512]) {
        sum(&mut block);
        self.0.extend(block);
    }

    fn content(mut self, content: &[u8]) -> Self {
        self.0.extend(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    /// Without the end.
    pub fn open(self) -> Vec<u8> {
        self.0
    }

    pub fn end(mut self) -> Vec<u8> {
        self.0.extend([0; 1024]);
        self.0
    }
}

fn header(kind: u8, name: &str, size: u64) -> [u8; 512] {
    let mut block = [0; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[100..108].copy_from_slice(b"0000644\0");
    block[108..116].copy_from_slice(b"0000000\0");
    block[116..124].copy_from_slice(b"0000000\0");
    if size < 1 << 33 {
        block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
    } else {
        block[124] = 0x80;
        block[128..136].copy_from_slice(&size.to_be_bytes());
    }
    block[136..148].copy_from_slice(b"00000000000\0");
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    block
}

fn sum(block: &mut [u8; 512]) {
    block[148..156].fill(b' ');
    let total: u32 = block.iter().map(|b| u32::from(*b)).sum();
    block[148..156].copy_from_slice(format!("{total:06o}\0 ").as_bytes());
}

/// Compresses with one of `gz`, `zst`, `xz`, `bz2`.
pub fn compress(bytes: &[u8], how: &str) -> Vec<u8> {
    match how {
        "gz" => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        "zst" => zstd::encode_all(bytes, 3).unwrap(),
        "xz" => {
            let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        "bz2" => {
            let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::new(9));
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        other => panic!("{other}"),
    }
}

/// A tar with one file of so many zeros, from a few kilobytes: streams that follow each other are read as one.
pub fn bomb(gigabytes: u64, how: &str) -> Vec<u8> {
    const PIECE: usize = 16 << 20;
    let mut out = compress(&tar().claim(b'0', "bomb", gigabytes << 30).open(), how);
    let piece = compress(&vec![0; PIECE], how);
    for _ in 0..(gigabytes << 30) / PIECE as u64 {
        out.extend(&piece);
    }
    out
}

/// Entries without end, nearly.
pub fn flood(how: &str) -> Vec<u8> {
    let mut many = tar();
    for number in 0..8192 {
        many = many.file(&format!("f{number}"));
    }
    let piece = compress(&many.open(), how);
    piece.repeat(300)
}
