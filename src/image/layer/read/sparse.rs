//! Sparse files: GNU's old format, and the three ways of saying the same in PAX records.

use std::io::Read;

use super::fields::{decimal, number};
use super::{BLOCK, Extensions, TarEntry, TarReader, damaged, damaged_at, fill};
use crate::error::Result;

impl<R: Read> TarReader<R> {
    /// The map is in the header and in the blocks after it.
    pub(super) fn old_gnu_sparse(&mut self, block: &[u8; BLOCK], entry: &mut TarEntry) -> Result<()> {
        let bad = |path: &[u8]| damaged_at(path, "its map of holes makes no sense");
        let mut map = Vec::new();
        let mut pairs = |bytes: &[u8]| -> Option<()> {
            for pair in bytes.chunks_exact(24) {
                if pair.iter().all(|b| *b == 0) {
                    break;
                }
                let offset = u64::try_from(number(&pair[..12])?).ok()?;
                let length = u64::try_from(number(&pair[12..])?).ok()?;
                map.push((offset, length));
            }
            Some(())
        };
        pairs(&block[386..482]).ok_or_else(|| bad(&entry.path))?;
        let mut more = block[482] != 0;
        let mut blocks = 0u64;
        while more {
            let mut next = [0u8; BLOCK];
            let n = fill(&mut self.stream, &mut next).map_err(|e| damaged(e.to_string()))?;
            blocks += 1;
            if n < BLOCK || blocks * BLOCK as u64 > self.limits.max_header_size {
                return Err(bad(&entry.path));
            }
            pairs(&next[..504]).ok_or_else(|| bad(&entry.path))?;
            more = next[504] != 0;
        }
        let real = number(&block[483..495]).and_then(|n| u64::try_from(n).ok()).ok_or_else(|| bad(&entry.path))?;
        self.set_sparse(entry, map, real)
    }

    pub(super) fn pax_sparse(&mut self, extensions: &Extensions, entry: &mut TarEntry) -> Result<()> {
        let bad = || damaged_at(&entry.path, "its map of holes makes no sense");
        let get = |key: &str| extensions.pax.get(key.as_bytes());
        let size = |key: &str| get(key).and_then(|v| decimal(v)).ok_or_else(bad);
        if get("GNU.sparse.major").is_some_and(|v| v == b"1") {
            let real = size("GNU.sparse.realsize")?;
            // Decimal numbers, one a line, in whole blocks at the beginning of the contents.
            let mut numbers = Vec::new();
            let mut digits = Vec::new();
            let mut wanted = 1u64;
            let mut read = 0u64;
            while (numbers.len() as u64) < wanted {
                let mut block = [0u8; BLOCK];
                let n = fill(&mut *self, &mut block).map_err(|e| damaged(e.to_string()))?;
                read += n as u64;
                if n < BLOCK || read > self.limits.max_header_size {
                    return Err(bad());
                }
                for byte in block {
                    if (numbers.len() as u64) == wanted {
                        break;
                    }
                    if byte != b'\n' {
                        digits.push(byte);
                        if digits.len() > 20 {
                            return Err(bad());
                        }
                        continue;
                    }
                    numbers.push(decimal(&digits).ok_or_else(bad)?);
                    digits.clear();
                    if numbers.len() == 1 {
                        wanted = numbers[0].checked_mul(2).and_then(|n| n.checked_add(1)).ok_or_else(bad)?;
                    }
                }
            }
            let map = numbers[1..].chunks_exact(2).map(|p| (p[0], p[1])).collect();
            return self.set_sparse(entry, map, real);
        }
        if get("GNU.sparse.size").is_some() {
            let real = size("GNU.sparse.size")?;
            let numbers = match get("GNU.sparse.map") {
                Some(map) if map.is_empty() => Vec::new(),
                Some(map) => map.split(|b| *b == b',').map(decimal).collect::<Option<Vec<u64>>>().ok_or_else(bad)?,
                None => extensions.sparse_pairs.clone(),
            };
            let map = numbers.chunks_exact(2).map(|p| (p[0], p[1])).collect();
            return self.set_sparse(entry, map, real);
        }
        Ok(())
    }

    fn set_sparse(&self, entry: &mut TarEntry, map: Vec<(u64, u64)>, real: u64) -> Result<()> {
        let (mut end, mut stored) = (0u64, 0u64);
        for (offset, length) in &map {
            let next = offset.checked_add(*length).filter(|next| *offset >= end && *next <= real);
            end = next.ok_or_else(|| damaged_at(&entry.path, "its map of holes makes no sense"))?;
            stored = stored.saturating_add(*length);
        }
        if stored > self.remaining {
            return Err(damaged_at(&entry.path, "its map of holes names more than it has"));
        }
        entry.size = real;
        entry.sparse = Some(map);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::*;

    #[test]
    fn sparse_files_as_gnu_tar_writes_them() {
        let dir = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(dir.path().join("sparse")).unwrap();
        for i in 0..40u64 {
            std::os::unix::fs::FileExt::write_all_at(&file, format!("part {i}").as_bytes(), i * 65536).unwrap();
        }
        file.set_len(5 << 20).unwrap();
        let whole = std::fs::read(dir.path().join("sparse")).unwrap();
        for format in [
            &["--format=gnu"][..],
            &["--format=pax"],
            &["--format=pax", "--sparse-version=0.1"],
            &["--format=pax", "--sparse-version=0.0"],
        ] {
            let out = std::process::Command::new("tar")
                .arg("-S")
                .args(format)
                .arg("-cf-")
                .arg("-C")
                .arg(dir.path())
                .arg("sparse")
                .output();
            let Ok(out) = out else { return };
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            assert!(out.stdout.len() < 1 << 20, "{format:?} is not sparse");
            let mut reader = TarReader::new(out.stdout.as_slice(), Limits::default());
            let entry = reader.next_entry().unwrap().unwrap();
            assert_eq!(entry.path, b"sparse", "{format:?}");
            assert_eq!(entry.size, whole.len() as u64, "{format:?}");
            let mut contents = vec![0u8; whole.len()];
            for (offset, length) in entry.sparse.unwrap() {
                reader.read_exact(&mut contents[offset as usize..(offset + length) as usize]).unwrap();
            }
            assert!(contents == whole, "{format:?}");
            assert!(reader.next_entry().unwrap().is_none(), "{format:?}");
        }
    }
}
