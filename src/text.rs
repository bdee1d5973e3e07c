//! Texts that people write: definitions, recipes, Dockerfiles, lists of patterns.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Thousands of pages; whoever has more of them has a generator that went wrong.
const LONGEST: u64 = 64 << 20;

/// As `std::fs::read`, of regular files of a bounded size only: a FIFO would be waited for, and /dev/zero has no end.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = File::options().read(true).custom_flags(nonblock).open(path)?;
    let meta = file.metadata()?;
    if meta.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !meta.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    read_stream(file)
}

/// All of a bounded size that there is to be read, of something that is open already, such as standard input.
pub(crate) fn read_stream(reader: impl io::Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        return Err(io::Error::other(format!("it is longer than {} MB", LONGEST >> 20)));
    }
    Ok(bytes)
}

/// As `std::fs::read_to_string`.
pub(crate) fn read_to_string(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_are_read_and_nobody_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text");
        std::fs::write(&path, "text").unwrap();
        assert_eq!(read_to_string(&path).unwrap(), "text");
        std::fs::write(&path, [0xff]).unwrap();
        assert_eq!(read_to_string(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(read(Path::new("/dev/zero")).unwrap_err().to_string().contains("not a regular file"));
        assert_eq!(read(dir.path()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        let fifo = dir.path().join("fifo");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(read(&fifo).is_err());
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("longer than 64 MB"));
    }
}
