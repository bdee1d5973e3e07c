//! Steps: instructions of one stage after every ARG and ENV has been expanded against what the parent brought.
//! This is what keys are computed from and what the embedded engine carries out.

use std::ops::Range;

use crate::fetch::address::GitAddress;
use crate::fetch::{Remote, WebFile};
use crate::image::config::ImageConfig;
use crate::image::digest::Digest;

/// A stage that the target needs, ready to be carried out.
#[derive(Clone, Debug)]
pub struct LoweredStage {
    /// Position in the Dockerfile, counted from 0; `StageBase::Stage` and `From::Stage` refer to it.
    pub index: usize,
    pub name: Option<String>,
    pub base: StageBase,
    pub steps: Vec<Step>,
    /// Configuration at the end of the stage: the base's with every change applied. `rootfs`, `created` and
    /// `history` are still the base's; the engine adds to them.
    pub config: ImageConfig,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StageBase {
    Scratch,
    Stage(usize),
    /// As FROM names it after expansion.
    Image(String),
}

/// One instruction. ONBUILD makes none: all that it does is in the stage's configuration.
#[derive(Clone, Debug)]
pub struct Step {
    /// One-based line of the Dockerfile; instructions from a parent's ONBUILD have the line of the FROM.
    pub line: usize,
    pub span: Range<usize>,
    /// For a person: the instruction in one line, shortened, without heredoc bodies.
    pub title: String,
    /// For the history, in the form that BuildKit gives it.
    pub created_by: String,
    pub action: Action,
}

#[derive(Clone, Debug)]
pub enum Action {
    Run(Run),
    Copy(Copy),
    /// Makes the directory when it isn't there; absolute.
    Workdir {
        path: String,
        user: String,
    },
    /// Changes the configuration only.
    Config,
}

impl Action {
    /// Whether the step adds a layer (Docker's rule: RUN, COPY and ADD always do; WORKDIR when it makes something).
    pub fn touches_files(&self) -> bool {
        !matches!(self, Action::Config)
    }
}

#[derive(Clone, Debug)]
pub struct Run {
    /// What is executed, the shell of the shell form included.
    pub argv: Vec<String>,
    /// A heredoc with a shebang: contents of the file that `argv[0]` (`/dev/pipes/<name>`) names.
    pub script: Option<Vec<u8>>,
    /// Environment of the process: ENV, then what only the ARGs in scope set. Where both set a name, the later one
    /// of the two in the file wins, as in BuildKit.
    pub env: Vec<(String, String)>,
    /// Proxy variables that were given as build arguments but not declared: the process gets them as well, but they
    /// belong to neither a key nor the history. No name in it is in `env`.
    pub proxy_env: Vec<(String, String)>,
    pub cwd: String,
    /// As USER gave it, empty for root.
    pub user: String,
    pub mounts: Vec<Mount>,
    pub network: Network,
    pub security: Security,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    #[default]
    Default,
    None,
    Host,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Security {
    #[default]
    Sandbox,
    Insecure,
}

/// What a RUN can ask for that has to be granted (`--allow`), by the names that docker buildx has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Entitlement {
    /// `RUN --network=host`
    NetworkHost,
    /// `RUN --security=insecure`
    SecurityInsecure,
}

impl Entitlement {
    pub const ALL: [Entitlement; 2] = [Entitlement::NetworkHost, Entitlement::SecurityInsecure];

    pub fn as_str(self) -> &'static str {
        match self {
            Entitlement::NetworkHost => "network.host",
            Entitlement::SecurityInsecure => "security.insecure",
        }
    }

    /// The flag of RUN that asks for it.
    pub fn flag(self) -> &'static str {
        match self {
            Entitlement::NetworkHost => "--network=host",
            Entitlement::SecurityInsecure => "--security=insecure",
        }
    }
}

impl Run {
    pub fn asks_for(&self) -> impl Iterator<Item = Entitlement> {
        let network = (self.network == Network::Host).then_some(Entitlement::NetworkHost);
        let security = (self.security == Security::Insecure).then_some(Entitlement::SecurityInsecure);
        network.into_iter().chain(security)
    }
}

#[derive(Clone, Debug)]
pub struct Mount {
    /// Absolute; a secret that is only an environment variable has none.
    pub target: String,
    pub kind: MountKind,
}

#[derive(Clone, Debug)]
pub enum MountKind {
    Bind {
        from: From,
        /// Relative to the root of where files come from, `.` for all of it; never climbs out.
        source: String,
        writable: bool,
    },
    Cache {
        id: String,
        sharing: Sharing,
        /// What the cache begins with; None is empty.
        from: Option<From>,
        source: String,
        read_only: bool,
        mode: u32,
        uid: u32,
        gid: u32,
    },
    Tmpfs {
        size: Option<u64>,
    },
    Secret {
        id: String,
        env: Option<String>,
        required: bool,
        mode: u32,
        uid: u32,
        gid: u32,
    },
    Ssh {
        id: String,
        required: bool,
        mode: u32,
        uid: u32,
        gid: u32,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    #[default]
    Shared,
    Private,
    Locked,
}

/// Where files come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From {
    Context,
    Stage(usize),
    Image(String),
}

#[derive(Clone, Debug)]
pub struct Copy {
    /// ADD: local archives are unpacked, URLs fetched.
    pub add: bool,
    pub from: From,
    pub sources: Vec<Source>,
    /// Absolute after WORKDIR; ends in `/` when it was written so (or as `.`), which makes it a directory.
    pub dest: String,
    pub chown: Option<String>,
    pub chmod: Option<String>,
    pub link: bool,
    pub excludes: Vec<String>,
    /// What a URL must give.
    pub checksum: Option<Digest>,
    pub keep_git_dir: bool,
    pub unpack: Option<bool>,
}

impl Copy {
    /// With `--link` the files are put on nothing, and the layer is the same whatever is below it. Docker makes an
    /// ordinary copy when there is a `--chmod` as well.
    pub fn stands_alone(&self) -> bool {
        self.link && self.chmod.is_none()
    }

    /// What a source is elsewhere; None for what is here already.
    pub fn remote(&self, source: &Source) -> Option<Remote> {
        match source {
            Source::Url(url) => Some(Remote::File(WebFile { url: url.clone(), checksum: self.checksum.clone() })),
            Source::Git(address) => Some(Remote::Git(address.clone())),
            Source::Path(_) | Source::Parents { .. } | Source::Inline { .. } => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A pattern (Go's filepath.Match) relative to the root of where files come from, `.` for all of it; never climbs
    /// out.
    Path(String),
    /// `COPY --parents`: everything below `pivot` that `pattern` (one of .dockerignore's, relative to it) matches, with
    /// the directories that lead there.
    Parents {
        pivot: String,
        pattern: String,
    },
    Url(String),
    Git(GitAddress),
    /// A heredoc, already expanded.
    Inline {
        name: String,
        content: Vec<u8>,
    },
}
