//! Kollage's own content-addressed store: blobs, unpacked layers, what steps and nodes resulted in, and names.
//!
//! Layout below the root:
//!
//! ```text
//! version                     format of the store, "1"
//! owner                       who writes to it: root, or a user with their ids
//! lock                        shared while in use, exclusive while pruning
//! blobs/sha256/<hex>          configs, manifests, compressed layers
//! layers/<diff id hex>/fs     the layer as overlayfs wants it (whiteouts are 0:0 devices, opaque directories marked)
//! layers/<diff id hex>/layer.json
//! layers/<diff id hex>/over/<chain id>/   the same over other layers, where it depends on what is below it
//! layers/<diff id hex>/<codec>.json   which blob is its compressed form
//! steps/<key>.json            step key to the layer it made
//! results/<key>.json          node key to image
//! refs/<encoded name>.json    image name to manifest
//! cache/<id>/                 RUN --mount=type=cache
//! sources/files/<sha256>      what ADD fetched; sources/git/<key> bare repositories; sources/addresses what is known of each
//! locks/<key>                 one builder at a time for each key
//! tmp/<owner>/                work in progress; swept when its owner is gone
//! logs/  runs/                logs and records of runs
//! releases/                   what pushes moved, for whoever takes it back
//! state/                      fingerprints, durations, hash table
//! ```
//!
//! Everything is written below `tmp`, and renamed: a reader never sees half of anything. A record names the boot in
//! which it was written until its data is known to be on disk, so that a crash of the machine cannot make it lie.
//!
//! A layer's directory is exactly what its tar unpacks to, whether it was built here or unpacked; a built layer's tar
//! is made again from the directory when it is wanted. A tar that came from elsewhere cannot be made again byte by
//! byte, so its blob stays in the store as long as the layer does.

use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::image::digest::Digest;
use crate::image::layer::Limits;
use crate::image::layer::standin;
use crate::image::layer::sys::{self, OsContext};
use crate::userns::{self, Identity};

mod blobs;
mod images;
mod layers;
mod locks;
mod prune;
mod records;
mod refs;
mod runs;
mod sources;
#[cfg(test)]
mod tests;
mod tmp;
mod usage;
mod verify;

pub use crate::image::layer::compress::Codec;
pub use blobs::BlobWriter;
pub use images::Written;
pub use locks::KeyLock;
pub use prune::{PruneOptions, PruneReport};
pub use tmp::WorkDir;
pub use usage::{DiskUse, ImageInfo, LayerInfo};
pub use verify::{Damage, Finding};

/// The only format so far.
const VERSION: &str = "1";
const OWNER: &str = "owner";
/// How long `open` waits for a prune to end.
const PATIENCE: Duration = Duration::from_secs(60);
const DIRECTORIES: [&str; 13] = [
    "blobs/sha256",
    "layers",
    "steps",
    "results",
    "refs",
    "cache",
    "locks",
    "logs",
    "runs",
    "state",
    "sources/files",
    "sources/addresses",
    "sources/git",
];

/// A handle to an open store; cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    /// Holds the shared lock for as long as the store is open.
    lock: File,
    owner: tmp::Owner,
    boot: String,
    limits: Limits,
    /// Of all files of a layer that comes from elsewhere, where less is allowed than `limits` do.
    most: AtomicU64,
    /// Work directories and key locks of this process: with any of them there is a build running.
    active: AtomicUsize,
    /// Records that are not known to be on disk.
    unsettled: Mutex<records::Unsettled>,
}

/// An unpacked layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    pub diff_id: Digest,
    /// Size of the uncompressed tar.
    pub size: u64,
    pub entries: u64,
}

/// What a step made. `layer` is None when it changed nothing that makes a layer (a WORKDIR that was there already).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepRecord {
    pub layer: Option<Digest>,
}

/// A name of an image in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ref {
    /// `kollage/keystone:2026.1-debian-bookworm`
    pub name: String,
    pub manifest: Digest,
    /// RFC 3339.
    pub updated: String,
}

impl Store {
    /// Creates the store where there is none, takes the shared lock, and sweeps what dead owners left in `tmp`.
    pub fn open(root: &Path) -> Result<Store> {
        Store::open_with(root, Limits::default())
    }

    /// With other limits for what a layer may hold.
    pub fn open_with(root: &Path, limits: Limits) -> Result<Store> {
        let root = std::path::absolute(root).bad_store(root)?;
        create(&root)?;
        let lock = open_lock(&root)?;
        // A newer program may have taken the store over while this one waited.
        check_version(&root)?;
        for directory in DIRECTORIES {
            let path = root.join(directory);
            std::fs::create_dir_all(&path).os(&path, || cannot_use(&root))?;
        }
        let boot = tmp::boot_id();
        let owner = tmp::Owner::new(&root, &boot)?;
        tmp::sweep(&root, &boot);
        let (active, unsettled) = (AtomicUsize::new(0), Mutex::default());
        Ok(Store {
            inner: Arc::new(Inner {
                root,
                lock,
                owner,
                boot,
                limits,
                most: AtomicU64::new(u64::MAX),
                active,
                unsettled,
            }),
        })
    }

    pub fn root(&self) -> &Path {
        &self.inner.root
    }

    /// Whether the file system can hold layers: deletions, owners, and the attributes that overlayfs and a user's
    /// stand-ins need. A problem that every build would run into sooner or later.
    pub fn check_filesystem(&self) -> Result<()> {
        let work = self.work_dir()?;
        let cannot = || format!("the file system of the store {} cannot hold layers", self.root().display());
        sys::mark_opaque(work.path()).os(work.path(), cannot)?;
        let here = userns::current();
        let device = work.path().join("device");
        match rustix::fs::mknodat(CWD, &device, FileType::CharacterDevice, Mode::empty(), 0) {
            Ok(()) => {}
            Err(e) => return Err(e).os(&device, cannot),
        }
        let file = work.path().join("file");
        std::fs::write(&file, "").os(&file, cannot)?;
        if here.has_uid(1) && here.has_gid(1) {
            standin::chown_path(&file, 1, 1).os(&file, cannot)?;
        }
        // What a user cannot make is kept in attributes of this kind.
        let attribute = if here.is_initial() { Ok(()) } else { sys::set_xattr(&file, b"user.kollage.probe", b"1") };
        attribute.os(&file, cannot)
    }

    /// Layers that come from elsewhere may have no more than this in their files.
    pub fn limit_layers(&self, bytes: u64) {
        self.inner.most.fetch_min(bytes, Ordering::Relaxed);
    }

    /// For what is unpacked.
    pub(crate) fn unpack_limits(&self) -> Limits {
        let limits = self.inner.limits.clone();
        let most = self.inner.most.load(Ordering::Relaxed);
        Limits { max_total_size: limits.max_total_size.min(most), ..limits }
    }

    /// Path of a small file of state (`state/<name>`): durations, fingerprints, the hash table.
    pub fn state_path(&self, name: &str) -> PathBuf {
        self.inner.root.join("state").join(name)
    }

    /// Where logs of runs go.
    pub fn logs_dir(&self) -> PathBuf {
        self.inner.root.join("logs")
    }

    /// Where RUN --mount=type=cache keeps its directory for this id; made when it isn't there.
    pub fn cache_dir(&self, id: &str) -> Result<PathBuf> {
        let path = self.inner.root.join("cache").join(file_name(id));
        match std::fs::create_dir(&path) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e).os(&path, || format!("cannot make the cache directory for `{id}`")),
        }
        Ok(path)
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.inner.root.join(relative)
    }

    /// Writes beside and renames; with `durable` the bytes are on disk when this returns.
    fn write_file(&self, path: &Path, bytes: &[u8], durable: bool) -> Result<()> {
        let cannot = || format!("cannot write {}", path.display());
        let beside = self.inner.owner.fresh("record");
        let result = (|| {
            std::fs::write(&beside, bytes)?;
            if durable {
                File::open(&beside)?.sync_all()?;
            }
            std::fs::rename(&beside, path)?;
            if durable && let Some(parent) = path.parent() {
                File::open(parent)?.sync_all()?;
            }
            Ok::<(), std::io::Error>(())
        })();
        if result.is_err() {
            let _ = std::fs::remove_file(&beside);
        }
        result.os(path, cannot)
    }
}

fn cannot_use(root: &Path) -> String {
    format!("cannot use the store {}", root.display())
}

trait BadStore<T> {
    fn bad_store(self, root: &Path) -> Result<T>;
}

impl<T, E: Into<std::io::Error>> BadStore<T> for Result<T, E> {
    /// Whatever it is, nothing can be built.
    fn bad_store(self, root: &Path) -> Result<T> {
        self.os(root, || cannot_use(root)).map_err(|e| {
            let mut error = Error::unusable(e.message());
            for cause in e.causes() {
                error = error.cause(cause);
            }
            error.hint(e.hint_text().unwrap_or("choose another place with --store DIR"))
        })
    }
}

/// Makes the root and its `version`. A directory that holds something else is left alone.
fn create(root: &Path) -> Result<()> {
    std::fs::create_dir_all(root).bad_store(root)?;
    let version = root.join("version");
    if version.exists() {
        check_version(root)?;
        return check_owner(root);
    }
    for entry in std::fs::read_dir(root).bad_store(root)? {
        let name = entry.bad_store(root)?.file_name();
        let ours = name == "lost+found" || name == OWNER || name.to_string_lossy().starts_with(".version-");
        // Another process may be creating the store right now; it writes `version` first.
        if !ours && !version.exists() {
            return Err(Error::unusable(cannot_use(root))
                .cause(format!("it is no store, and it is not empty: `{}` is in it", name.display()))
                .hint("choose another place with --store DIR"));
        }
    }
    // Layers have programs in them that make whoever executes them their owner: nobody else has any business here.
    // Where the directory is somebody else's, it is theirs to decide.
    let _ = std::fs::set_permissions(root, std::fs::Permissions::from_mode(0o700));
    let owner = serde_json::to_string(&userns::current().identity()).unwrap_or_default();
    create_file(root, OWNER, &owner)?;
    create_file(root, "version", VERSION)?;
    check_version(root)?;
    check_owner(root)
}

/// Whole or not at all; somebody else may be faster.
fn create_file(root: &Path, name: &str, text: &str) -> Result<()> {
    let beside = root.join(format!(".version-{}-{}", std::process::id(), tmp::unique()));
    std::fs::write(&beside, format!("{text}\n")).bad_store(root)?;
    match rustix::fs::renameat_with(CWD, &beside, CWD, root.join(name), rustix::fs::RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST) => {
            let _ = std::fs::remove_file(&beside);
            Ok(())
        }
        Err(e) => Err(e).bad_store(root),
    }
}

/// Files that somebody else wrote have other owners, other marks, and rights that nobody here has.
fn check_owner(root: &Path) -> Result<()> {
    let written = match std::fs::read(root.join(OWNER)) {
        Ok(text) => serde_json::from_slice::<Identity>(&text).ok(),
        // Older than the file: there was only root.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Some(Identity::Root),
        Err(e) => return Err(e).bad_store(root),
    };
    let here = userns::current().identity();
    let Some(written) = written else {
        return Err(Error::unusable(cannot_use(root)).cause(format!("its file `{OWNER}` makes no sense")));
    };
    if !here.reads(&written) {
        let hint = match (&here, &written) {
            (_, Identity::Root) => "run Kollage with sudo, or choose another place with --store DIR".to_owned(),
            (Identity::Root, _) => "run Kollage as that user, or choose another place with --store DIR".to_owned(),
            // The same user, with other ids than before.
            _ => format!(
                "remove it and build again (`chmod -R u+rwX {0}; rm -rf {0}`, as root where it had a range), or choose \
                 another place with --store DIR",
                root.display()
            ),
        };
        let cause = format!("it belongs to {written}, and this is {here}");
        return Err(Error::unusable(cannot_use(root)).cause(cause).hint(hint));
    }
    if here != written {
        // The range has grown.
        let text = serde_json::to_vec(&here).unwrap_or_default();
        let beside = root.join(format!(".version-{}-{}", std::process::id(), tmp::unique()));
        std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, root.join(OWNER))).bad_store(root)?;
    }
    Ok(())
}

fn check_version(root: &Path) -> Result<()> {
    let text = std::fs::read_to_string(root.join("version")).bad_store(root)?;
    if text.trim() == VERSION {
        return Ok(());
    }
    let cause = format!("its format is `{}`, and this program knows `{VERSION}`", text.trim());
    Err(Error::unusable(cannot_use(root)).cause(cause).hint("use a newer kollage, or another store: --store DIR"))
}

/// Takes the shared lock. Only a prune holds it exclusively, and that ends.
fn open_lock(root: &Path) -> Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let lock = File::from(rustix::fs::open(root.join("lock"), flags, Mode::from_raw_mode(0o644)).bad_store(root)?);
    let start = Instant::now();
    loop {
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared) {
            Ok(()) => return Ok(lock),
            Err(Errno::WOULDBLOCK) if start.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(50)),
            Err(Errno::WOULDBLOCK) => {
                return Err(Error::unusable(format!("the store {} is being pruned", root.display()))
                    .hint("try again when the other kollage is done"));
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e).bad_store(root),
        }
    }
}

/// A file name for any text: letters, digits and `-_.` stay, everything else is `%XX`; what would be too long ends in
/// a hash of the whole.
fn file_name(text: &str) -> String {
    use std::fmt::Write as _;
    let mut name = String::new();
    for (i, byte) in text.bytes().enumerate() {
        if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' || (byte == b'.' && i > 0) {
            name.push(char::from(byte));
        } else {
            let _ = write!(name, "%{byte:02X}");
        }
    }
    // The longest name is 255 bytes, and an extension comes after it. `~` is in no name that was not shortened.
    if name.len() > 200 || name.is_empty() {
        name.truncate(130);
        let _ = write!(name, "~{}", Digest::of(text.as_bytes()).hex());
    }
    name
}
