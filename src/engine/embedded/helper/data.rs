//! Contents of files, and the holes in them: a log of 200 GB that is nearly all hole stays a small file.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::unix::fs::FileExt as _;

use rustix::fs::{SeekFrom, Stat};
use rustix::io::Errno;

/// How much is looked at for zeros at once; a hole is never smaller than a page.
const BLOCK: usize = 64 << 10;

/// Copies a file with the holes that it has.
pub fn copy(mut input: &File, mut output: &File, stat: &Stat) -> io::Result<()> {
    let size = stat.st_size.try_into().unwrap_or(0u64);
    if u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512) >= size {
        io::copy(&mut input, &mut output)?;
        return Ok(());
    }
    let mut at = 0;
    while at < size {
        at = match rustix::fs::seek(input, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(Errno::NXIO) => break,
            Err(e) => return Err(e.into()),
        };
        let end = rustix::fs::seek(input, SeekFrom::Hole(at))?;
        input.seek(io::SeekFrom::Start(at))?;
        output.seek(io::SeekFrom::Start(at))?;
        if io::copy(&mut input.take(end - at), &mut output)? == 0 {
            break;
        }
        at = end;
    }
    output.set_len(size)
}

/// Writes a stream, which cannot say where it has holes: whole blocks of zeros become some.
pub fn spread(input: &mut dyn io::Read, output: &File) -> io::Result<()> {
    let mut buffer = vec![0; BLOCK];
    let mut at = 0;
    loop {
        let n = read_block(input, &mut buffer)?;
        if !buffer[..n].iter().all(|byte| *byte == 0) {
            output.write_all_at(&buffer[..n], at)?;
        }
        at += n as u64;
        if n < buffer.len() {
            return output.set_len(at);
        }
    }
}

/// As much as fits; less only at the end.
fn read_block(input: &mut dyn io::Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn spread_out(content: &[u8]) -> (Vec<u8>, u64) {
        let file = tempfile::NamedTempFile::new().unwrap();
        spread(&mut &*content, file.as_file()).unwrap();
        (std::fs::read(file.path()).unwrap(), file.as_file().metadata().unwrap().blocks() * 512)
    }

    #[test]
    fn zeros_of_a_stream_become_holes_and_nothing_else_changes() {
        let mut content = vec![0; 8 << 20];
        content[3 << 20] = 1;
        let (written, blocks) = spread_out(&content);
        assert!(written == content);
        assert!(blocks <= 2 * BLOCK as u64, "{blocks} bytes on disk");
    }

    #[test]
    fn every_length_around_a_block_is_kept() {
        for length in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK] {
            for byte in [0, 7] {
                let content = vec![byte; length];
                assert!(spread_out(&content).0 == content, "{length} times {byte}");
            }
        }
    }
}
