//! Content digests of files, kept between runs.
//!
//! A digest is believed as long as device, inode, size, mtime and ctime are what they were when it was computed.
//! Clocks of file systems are coarse: a file that was changed within the last two seconds may change again without
//! any of these changing, so its digest is used once but not kept.

use std::collections::HashMap;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::{Context as _, Result};
use crate::image::digest::{Key, KeyHasher};

const MAGIC: &[u8; 16] = b"kollage-hashes-1";
/// device, inode, size, mtime and ctime with nanoseconds, day of last use, digest.
const RECORD: usize = 8 * 3 + 12 * 2 + 4 + 32;
const CHECKSUM: usize = 32;
/// A younger change than this may be followed by one that leaves no trace.
const SETTLED: Duration = Duration::from_secs(2);
/// Days without use after which a record is forgotten.
const KEPT_DAYS: u32 = 30;

pub(super) type Hash = [u8; 32];

/// Content digests of files by device, inode, size, mtime and ctime, kept between runs so that a warm run reads
/// almost nothing. Shared by all threads; a damaged or missing file means starting empty.
#[derive(Debug, Default)]
pub struct HashTable {
    table: RwLock<Table>,
}

#[derive(Debug, Default)]
struct Table {
    records: HashMap<Id, Record>,
    changed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Id {
    device: u64,
    inode: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    size: u64,
    modified: (i64, u32),
    changed: (i64, u32),
}

#[derive(Clone, Copy, Debug)]
struct Record {
    stamp: Stamp,
    used_day: u32,
    hash: Hash,
}

impl HashTable {
    pub fn load(path: &Path) -> HashTable {
        let records = fs::read(path).ok().and_then(|bytes| decode(&bytes)).unwrap_or_default();
        HashTable { table: RwLock::new(Table { records, changed: false }) }
    }

    /// Written beside and renamed; entries that were not used for a long time are left out. Nothing is written when
    /// there is nothing new.
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        if !table.changed {
            return Ok(());
        }
        // Another run may have written since this one read: what it has found out isn't thrown away.
        let mut records = fs::read(path).ok().and_then(|bytes| decode(&bytes)).unwrap_or_default();
        records.extend(table.records.iter().map(|(id, record)| (*id, *record)));
        let oldest = today().saturating_sub(KEPT_DAYS);
        records.retain(|_, record| record.used_day >= oldest);
        write_beside(path, &encode(&records))
            .unusable(|| format!("cannot write the table of file digests {}", path.display()))?;
        table.changed = false;
        Ok(())
    }

    /// Digest of one file's content, for bases that are files. Links are followed.
    pub fn file(&self, path: &Path) -> Result<Key> {
        let read = || {
            let path = fs::canonicalize(path)?;
            let metadata = fs::metadata(&path)?;
            if !metadata.is_file() {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
            }
            self.digest(&path, &metadata)
        };
        let hash = read().bad_input(|| format!("cannot read {}", path.display()))?;
        Ok(KeyHasher::new("kollage file 1").part("content", hash).finish())
    }

    /// The digest of a regular file's content. `seen` is what its directory said about it.
    pub(super) fn digest(&self, path: &Path, seen: &Metadata) -> io::Result<Hash> {
        self.digest_at(path, seen, SystemTime::now())
    }

    fn digest_at(&self, path: &Path, seen: &Metadata, now: SystemTime) -> io::Result<Hash> {
        if let Some(hash) = self.known(seen) {
            return Ok(hash);
        }
        // A link or a pipe that has taken the file's place is neither followed nor waited for.
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let mut file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
        let before = file.metadata()?;
        if !before.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no longer a regular file"));
        }
        let hash = hash(&mut file)?;
        let after = file.metadata()?;
        let (stamp, unchanged) = (Stamp::of(&after), Stamp::of(&before) == Stamp::of(&after));
        if unchanged && stamp.is_settled(now) {
            let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
            table.records.insert(Id::of(&after), Record { stamp, used_day: today(), hash });
            table.changed = true;
        }
        Ok(hash)
    }

    fn known(&self, seen: &Metadata) -> Option<Hash> {
        let (id, stamp, day) = (Id::of(seen), Stamp::of(seen), today());
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let record = *table.records.get(&id).filter(|record| record.stamp == stamp)?;
        drop(table);
        if record.used_day != day {
            let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
            if let Some(record) = table.records.get_mut(&id) {
                record.used_day = day;
            }
            table.changed = true;
        }
        Some(record.hash)
    }
}

impl Id {
    fn of(metadata: &Metadata) -> Id {
        Id { device: metadata.dev(), inode: metadata.ino() }
    }
}

impl Stamp {
    fn of(metadata: &Metadata) -> Stamp {
        let nanoseconds = |n: i64| u32::try_from(n).unwrap_or(0);
        Stamp {
            size: metadata.size(),
            modified: (metadata.mtime(), nanoseconds(metadata.mtime_nsec())),
            changed: (metadata.ctime(), nanoseconds(metadata.ctime_nsec())),
        }
    }

    fn is_settled(&self, now: SystemTime) -> bool {
        let Some(limit) = now.duration_since(UNIX_EPOCH).ok().and_then(|now| now.checked_sub(SETTLED)) else {
            return false;
        };
        let limit = (i64::try_from(limit.as_secs()).unwrap_or(i64::MAX), limit.subsec_nanos());
        self.modified < limit && self.changed < limit
    }
}

fn hash(file: &mut File) -> io::Result<Hash> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 128 * 1024];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hasher.finalize().into()),
            Ok(read) => hasher.update(&buffer[..read]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
    }
}

fn today() -> u32 {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    u32::try_from(seconds / 86_400).unwrap_or(u32::MAX)
}

fn encode(records: &HashMap<Id, Record>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(MAGIC.len() + records.len() * RECORD + CHECKSUM);
    bytes.extend(MAGIC);
    for (id, record) in records {
        for number in [id.device, id.inode, record.stamp.size] {
            bytes.extend(number.to_le_bytes());
        }
        for (seconds, nanoseconds) in [record.stamp.modified, record.stamp.changed] {
            bytes.extend(seconds.to_le_bytes());
            bytes.extend(nanoseconds.to_le_bytes());
        }
        bytes.extend(record.used_day.to_le_bytes());
        bytes.extend(record.hash);
    }
    let checksum: Hash = blake3::hash(&bytes).into();
    bytes.extend(checksum);
    bytes
}

/// None when anything about it is not as it was written.
fn decode(bytes: &[u8]) -> Option<HashMap<Id, Record>> {
    let (content, checksum) = bytes.split_last_chunk::<CHECKSUM>()?;
    if *checksum != <Hash>::from(blake3::hash(content)) {
        return None;
    }
    let records = content.strip_prefix(MAGIC)?;
    if !records.len().is_multiple_of(RECORD) {
        return None;
    }
    records.chunks_exact(RECORD).map(decode_record).collect()
}

fn decode_record(mut bytes: &[u8]) -> Option<(Id, Record)> {
    fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
        let (first, rest) = bytes.split_first_chunk::<N>()?;
        *bytes = rest;
        Some(*first)
    }
    let bytes = &mut bytes;
    let id = Id { device: u64::from_le_bytes(take(bytes)?), inode: u64::from_le_bytes(take(bytes)?) };
    let size = u64::from_le_bytes(take(bytes)?);
    let modified = (i64::from_le_bytes(take(bytes)?), u32::from_le_bytes(take(bytes)?));
    let changed = (i64::from_le_bytes(take(bytes)?), u32::from_le_bytes(take(bytes)?));
    let used_day = u32::from_le_bytes(take(bytes)?);
    Some((id, Record { stamp: Stamp { size, modified, changed }, used_day, hash: take(bytes)? }))
}

fn write_beside(path: &Path, bytes: &[u8]) -> io::Result<()> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}-{number}.tmp", std::process::id()));
    let beside = PathBuf::from(name);
    let written = File::create(&beside).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_data()
    });
    let renamed = written.and_then(|()| fs::rename(&beside, path));
    if renamed.is_err() {
        // Whatever went wrong is what is reported.
        let _ = fs::remove_file(&beside);
    }
    renamed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn later() -> SystemTime {
        SystemTime::now() + Duration::from_secs(60)
    }

    fn is_known(table: &HashTable, path: &Path) -> bool {
        table.known(&fs::symlink_metadata(path).unwrap()).is_some()
    }

    #[test]
    fn a_settled_file_is_remembered_across_runs() {
        let dir = tempfile::tempdir().unwrap();
        let (file, saved) = (dir.path().join("f"), dir.path().join("state/table"));
        fs::write(&file, "content").unwrap();
        let table = HashTable::load(&saved);
        let hash = table.digest_at(&file, &fs::symlink_metadata(&file).unwrap(), later()).unwrap();
        assert_eq!(hash, <Hash>::from(blake3::hash(b"content")));
        table.save(&saved).unwrap();
        assert!(is_known(&HashTable::load(&saved), &file));
        assert_eq!(fs::read_dir(dir.path().join("state")).unwrap().count(), 1);
        fs::write(&file, "changed").unwrap();
        assert!(!is_known(&HashTable::load(&saved), &file));
    }

    #[test]
    fn a_file_that_was_just_changed_is_not_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        fs::write(&file, "a").unwrap();
        let table = HashTable::default();
        let hash = table.digest(&file, &fs::symlink_metadata(&file).unwrap()).unwrap();
        assert!(!is_known(&table, &file));
        fs::write(&file, "b").unwrap();
        assert_ne!(table.digest(&file, &fs::symlink_metadata(&file).unwrap()).unwrap(), hash);
        // An old mtime alone proves nothing: ctime tells of the change.
        File::options().write(true).open(&file).unwrap().set_modified(UNIX_EPOCH).unwrap();
        table.digest(&file, &fs::symlink_metadata(&file).unwrap()).unwrap();
        assert!(!is_known(&table, &file));
    }

    #[test]
    fn a_change_that_keeps_size_and_mtime_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        fs::write(&file, "aaaa").unwrap();
        let before = fs::metadata(&file).unwrap();
        let table = HashTable::default();
        table.digest_at(&file, &before, later()).unwrap();
        assert!(is_known(&table, &file));
        // Until the coarse clock of the file system has moved on.
        while fs::metadata(&file).unwrap().ctime_nsec() == before.ctime_nsec() {
            fs::write(&file, "bbbb").unwrap();
            let open = File::options().write(true).open(&file).unwrap();
            open.set_modified(before.modified().unwrap()).unwrap();
        }
        assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), before.modified().unwrap());
        assert!(!is_known(&table, &file));
    }

    #[test]
    fn damage_means_starting_empty() {
        let dir = tempfile::tempdir().unwrap();
        let (file, saved) = (dir.path().join("f"), dir.path().join("table"));
        fs::write(&file, "x").unwrap();
        let table = HashTable::default();
        table.digest_at(&file, &fs::symlink_metadata(&file).unwrap(), later()).unwrap();
        table.save(&saved).unwrap();
        let good = fs::read(&saved).unwrap();
        assert_eq!(decode(&good).map(|r| r.len()), Some(1));
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(decode(&bad).is_none(), "{at}");
            assert!(decode(&good[..at]).is_none(), "{at}");
        }
        fs::write(&saved, "rubbish").unwrap();
        assert!(!is_known(&HashTable::load(&saved), &file));
    }

    #[test]
    fn two_runs_do_not_throw_away_what_the_other_found() {
        let dir = tempfile::tempdir().unwrap();
        let saved = dir.path().join("table");
        let files = [dir.path().join("a"), dir.path().join("b")];
        let tables = [HashTable::load(&saved), HashTable::load(&saved)];
        for (file, table) in files.iter().zip(&tables) {
            fs::write(file, "x").unwrap();
            table.digest_at(file, &fs::symlink_metadata(file).unwrap(), later()).unwrap();
            table.save(&saved).unwrap();
        }
        let both = HashTable::load(&saved);
        assert!(files.iter().all(|file| is_known(&both, file)));
    }

    #[test]
    fn what_nobody_used_for_long_is_forgotten() {
        let record = |used_day| {
            let stamp = Stamp { size: 1, modified: (0, 0), changed: (0, 0) };
            Record { stamp, used_day, hash: [0; 32] }
        };
        let dir = tempfile::tempdir().unwrap();
        let saved = dir.path().join("table");
        let records = [(1, today()), (2, today() - KEPT_DAYS - 1)];
        let records = records.map(|(inode, day)| (Id { device: 0, inode }, record(day))).into_iter().collect();
        let table = HashTable { table: RwLock::new(Table { records, changed: true }) };
        table.save(&saved).unwrap();
        assert_eq!(decode(&fs::read(&saved).unwrap()).unwrap().len(), 1);
    }

    #[test]
    fn a_link_in_the_place_of_a_file_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("f"), dir.path().join("l"));
        fs::write(&file, "x").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(HashTable::default().digest(&link, &fs::symlink_metadata(&link).unwrap()).is_err());
    }
}
