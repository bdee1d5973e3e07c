//! What the main process asks of the helper, and what it hears back. Sent as JSON over a socket and never seen in an
//! argument list or an environment, because secrets travel with it.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::mode::ModeChange;
use crate::engine::surroundings::Ulimit;
use crate::error::{Error, Kind};

/// Bytes that are never shown: secrets, scripts, contents of heredocs.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({} bytes)", self.0.len())
    }
}

/// Text where it is text, numbers where it is not: JSON knows no bytes.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Encoded {
    Text(String),
    Raw(Vec<u8>),
}

impl Encoded {
    fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Encoded::Text(text.to_owned()),
            Err(_) => Encoded::Raw(bytes.to_vec()),
        }
    }

    fn into_bytes(self) -> Vec<u8> {
        match self {
            Encoded::Text(text) => text.into_bytes(),
            Encoded::Raw(bytes) => bytes,
        }
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Encoded::of(&self.0).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Bytes(Encoded::deserialize(deserializer)?.into_bytes()))
    }
}

/// A path that need not be UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RawPath(pub PathBuf);

impl std::ops::Deref for RawPath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

/// Made absolute: the helper's working directory is `/`.
impl From<&Path> for RawPath {
    fn from(path: &Path) -> Self {
        RawPath(std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()))
    }
}

impl From<PathBuf> for RawPath {
    fn from(path: PathBuf) -> Self {
        RawPath(path)
    }
}

impl Serialize for RawPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Encoded::of(self.0.as_os_str().as_bytes()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RawPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(RawPath(OsString::from_vec(Encoded::deserialize(deserializer)?.into_bytes()).into()))
    }
}

/// The first and only request of a helper.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    Run(Box<RunSpec>),
    Copy(Box<CopySpec>),
    Workdir(WorkdirSpec),
    /// A program of the host, in namespaces of its own so that neither its mounts nor its children outlive it.
    Tool(ToolSpec),
    /// Find out whether everything that the others need is there.
    Probe(RootSpec),
}

/// The root file system of a step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RootSpec {
    /// A directory of this step's own, on the store's file system. The upper directory is `upper` in it.
    pub work: RawPath,
    /// Layers, lowest first, each of them once and none of them empty.
    pub lower: Vec<RawPath>,
    /// Mount points of every step, ready to be put below the layers.
    pub scaffold: Option<RawPath>,
}

impl RootSpec {
    pub const UPPER: &'static str = "upper";
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RunSpec {
    pub root: RootSpec,
    /// Trees that `mounts` take things from: layers, lowest first.
    pub trees: Vec<Vec<RawPath>>,
    pub process: ProcessSpec,
    pub mounts: Vec<MountSpec>,
    /// Files of the host's that are lent: copies, mounted where nothing of them stays in the layer.
    pub lent: Vec<LentFile>,
    pub hostname: String,
    /// A network namespace of its own, with nothing but a loopback.
    pub no_network: bool,
    /// Of /dev/shm, in bytes; None is Docker's default.
    pub shm_size: Option<u64>,
    /// It has a secret in memory, which must not get into a core dump: that would lie in the layer.
    pub no_core_dump: bool,
    /// What `/dev/pipes/<name>` holds, for a heredoc that names its own interpreter.
    pub script: Option<Script>,
}

/// What the innermost process needs to know.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ProcessSpec {
    pub argv: Vec<String>,
    pub env: Vec<(String, Bytes)>,
    pub cwd: String,
    /// As USER has it; empty for root.
    pub user: String,
    /// `RUN --security=insecure`: all capabilities that the caller has, nothing of /proc masked.
    pub insecure: bool,
    pub ulimits: Vec<Ulimit>,
    /// A terminal of its own is its standard streams, and this is its size.
    pub terminal: Option<TerminalSize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    pub rows: u16,
    pub columns: u16,
}

impl From<TerminalSize> for rustix::termios::Winsize {
    fn from(size: TerminalSize) -> Self {
        rustix::termios::Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Script {
    pub name: String,
    pub content: Bytes,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LentFile {
    pub target: String,
    pub source: LentSource,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum LentSource {
    Host(RawPath),
    Text(Bytes),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MountSpec {
    pub target: String,
    pub kind: MountSpecKind,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum MountSpecKind {
    /// From one of the trees; what is written is thrown away.
    Tree {
        tree: usize,
        path: String,
        writable: bool,
    },
    /// From the build context: a copy of what it selects, so that neither ignored files nor the owner are seen.
    Context {
        items: Vec<ContextItem>,
        writable: bool,
    },
    Cache {
        dir: RawPath,
        /// What a new cache starts with.
        fill: Option<(usize, String)>,
        read_only: bool,
        mode: u32,
        uid: u32,
        gid: u32,
    },
    Tmpfs {
        size: Option<u64>,
    },
    Secret {
        value: Bytes,
        mode: u32,
        uid: u32,
        gid: u32,
    },
    /// A socket that was made for this step.
    Agent {
        socket: RawPath,
        mode: u32,
        uid: u32,
        gid: u32,
    },
    /// A path of the host's, for `kollage run`.
    Host {
        path: RawPath,
        read_only: bool,
    },
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct CopySpec {
    pub root: RootSpec,
    /// Layers of the stage or image that is copied from, lowest first.
    pub from: Option<Vec<RawPath>>,
    pub items: Vec<CopyItem>,
    /// Absolute; a trailing slash makes it a directory.
    pub dest: String,
    pub chown: Option<String>,
    pub chmod: Option<ModeChange>,
    /// Archives of the context are unpacked, those from elsewhere only where they say so.
    pub unpack: bool,
    pub excludes: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum CopyItem {
    Context(ContextItem),
    /// A pattern, evaluated on the tree that is copied from.
    Tree(String),
    /// The same, of what is below the pivot, with the directories that lead there.
    TreeParents {
        pivot: String,
        pattern: String,
    },
    Inline {
        name: String,
        content: Bytes,
    },
    /// What a web address gave: a file of the store's, which nobody else may read in the image.
    File {
        path: RawPath,
        name: String,
        /// Seconds since 1970.
        modified: i64,
        unpack: bool,
    },
}

/// One match of a pattern on the context.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ContextItem {
    /// Directory of the context.
    pub context: RawPath,
    /// The match, relative to it, links followed; empty for the context itself.
    pub base: RawPath,
    /// What it is called where it is copied to.
    pub name: RawPath,
    /// What was selected of it, relative to the context; the match itself may be among them.
    pub entries: Vec<EntrySpec>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EntrySpec {
    pub path: RawPath,
    /// A directory that only leads to something that was selected.
    pub on_the_way: bool,
}

impl From<crate::context::Entry> for EntrySpec {
    fn from(entry: crate::context::Entry) -> EntrySpec {
        EntrySpec { path: RawPath(entry.path), on_the_way: entry.on_the_way }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkdirSpec {
    pub root: RootSpec,
    pub path: String,
    pub user: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The program as an absolute path, and its arguments.
    pub argv: Vec<String>,
    pub env: Vec<(String, Bytes)>,
    /// A directory and where the program sees it, too.
    pub seen_at: Option<(RawPath, RawPath)>,
}

/// What the innermost helper becomes.
#[derive(Debug, Serialize, Deserialize)]
pub enum Inner {
    Step { process: ProcessSpec, root: RawPath },
    Tool(ToolSpec),
}

/// What the main process says while a step runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// End, with time to clean up.
    Terminate,
    /// End now.
    Kill,
}

/// What the helper says before it ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// Comes first, and with our side of the terminal, when the step has one. All others are the last word.
    Terminal,
    Exited(i32),
    Signalled(i32),
    /// The command could not be executed: 127 when it isn't there, 126 when it can't be run.
    NotExecuted {
        code: i32,
        message: String,
        hint: Option<String>,
    },
    /// Done; whether something was made.
    Done {
        changed: bool,
    },
    /// It did not come to that.
    Failure(Failure),
}

/// An [`Error`] on its way through the socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    kind: FailureKind,
    message: String,
    causes: Vec<String>,
    hint: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum FailureKind {
    Failed,
    BadInput,
    Unusable,
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        Failure {
            kind: match error.kind() {
                Kind::BadInput => FailureKind::BadInput,
                Kind::Unusable => FailureKind::Unusable,
                Kind::Failed | Kind::Difference | Kind::Interrupted => FailureKind::Failed,
            },
            message: error.message().to_owned(),
            causes: error.causes().to_vec(),
            hint: error.hint_text().map(str::to_owned),
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let kind = match failure.kind {
            FailureKind::Failed => Kind::Failed,
            FailureKind::BadInput => Kind::BadInput,
            FailureKind::Unusable => Kind::Unusable,
        };
        let mut error = Error::new(kind, failure.message);
        for cause in failure.causes {
            error = error.cause(cause);
        }
        match failure.hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_paths_survive_although_they_are_not_text() {
        let path = RawPath(PathBuf::from(OsString::from_vec(vec![b'a', 0xff, b'b'])));
        let json = serde_json::to_string(&(Bytes(vec![0, 159, 146, 150]), &path, Bytes(b"text".to_vec()))).unwrap();
        let (bytes, back, text): (Bytes, RawPath, Bytes) = serde_json::from_str(&json).unwrap();
        assert_eq!((bytes.0.as_slice(), &back, text.0.as_slice()), (&[0u8, 159, 146, 150][..], &path, &b"text"[..]));
    }

    #[test]
    fn secrets_do_not_show_when_a_request_is_printed() {
        let kind = MountSpecKind::Secret { value: Bytes(b"hunter2".to_vec()), mode: 0o400, uid: 0, gid: 0 };
        assert!(!format!("{kind:?}").contains("hunter2"));
    }

    #[test]
    fn an_error_comes_through_with_its_kind_and_hint() {
        let error = Error::unusable("no overlayfs").cause("EINVAL").hint("load it");
        let back = Error::from(Failure::from(&error));
        assert_eq!((back.kind(), back.message(), back.causes()), (Kind::Unusable, "no overlayfs", error.causes()));
        assert_eq!(back.hint_text(), Some("load it"));
    }
}
