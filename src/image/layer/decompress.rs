//! Compressed streams, told by their content and never by a name.

use std::io::{self, Read};

use crate::error::{Error, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    Plain,
    Gzip,
    Zstd,
    Xz,
    Bzip2,
}

const BLOCK: usize = 512;

/// A stream from its beginning, after its first bytes were looked at.
pub type Peeked<R> = io::Chain<io::Cursor<Vec<u8>>, R>;

/// Tells what a stream is compressed with, and gives it back whole.
pub fn detect<R: Read>(mut stream: R) -> io::Result<(Compression, Peeked<R>)> {
    let mut head = Vec::with_capacity(BLOCK);
    stream.by_ref().take(BLOCK as u64).read_to_end(&mut head)?;
    Ok((compression(&head), io::Cursor::new(head).chain(stream)))
}

/// The first 512 bytes decide. A tar header's checksum comes first: a file name may begin like anything.
fn compression(head: &[u8]) -> Compression {
    if super::read::is_header(head) {
        return Compression::Plain;
    }
    match head {
        [0x1f, 0x8b, ..] => Compression::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Compression::Zstd,
        // A skippable frame before the first one.
        [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Compression::Zstd,
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Compression::Xz,
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => Compression::Bzip2,
        _ => Compression::Plain,
    }
}

/// Gives the uncompressed stream. Several members (gzip), frames (zstd) and streams (xz, bzip2) are read as one.
pub fn decompress<'a>(stream: impl Read + 'a) -> Result<(Compression, Box<dyn Read + 'a>)> {
    let broken = |e: io::Error| Error::failed("cannot read the archive").cause(e);
    let (kind, stream) = detect(stream).map_err(broken)?;
    let reader: Box<dyn Read + 'a> = match kind {
        Compression::Plain => Box::new(stream),
        Compression::Gzip => {
            Box::new(flate2::bufread::MultiGzDecoder::new(io::BufReader::with_capacity(128 * 1024, stream)))
        }
        Compression::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::new(stream).map_err(broken)?;
            // As much as the zstd program takes with --long=27; more is refused rather than allocated.
            decoder.window_log_max(27).map_err(broken)?;
            Box::new(decoder)
        }
        Compression::Xz => Box::new(liblzma::read::XzDecoder::new_multi_decoder(stream)),
        Compression::Bzip2 => Box::new(bzip2::read::MultiBzDecoder::new(stream)),
    };
    Ok((kind, reader))
}
