//! What a step sees besides its layers: /dev and /sys, files lent by the host, and RUN --mount.
//!
//! Everything is mounted by the outer helper, which still sees the host; only /proc has to wait for the process that
//! lives in the new pid namespace (see [`super::step`]).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, OFlags};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::pty::OpenptFlags;

use super::inroot::{Made, Owner, Root, kind_of, proc_path};
use super::overlay::{self, Place, Point};

use super::spec::{LentFile, LentSource, MountSpec, MountSpecKind, RunSpec, TerminalSize};
use super::{copy, isolate, overlay::mount_tree};
use crate::engine::embedded::{fs_error, lend};
use crate::error::{Context as _, Error, Result};
use crate::image::layer::standin;
use crate::userns;

/// The group that terminals belong to, in every distribution.
const TTY: u32 = 5;
const SYSTEM: [&str; 3] = ["proc", "sys", "dev"];
const NODES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
const LINKS: [(&str, &str); 6] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
    ("core", "/proc/kcore"),
];

/// Of /dev/shm, as in Docker.
const SHM_SIZE: u64 = 64 << 20;

/// The mounted root of a step, and what has to be taken away from it afterwards.
pub struct Prepared {
    root: Root,
    /// Where it is mounted.
    path: PathBuf,
    /// Whose interfaces /sys shows, where that is not the step's own network.
    network: Option<File>,
    made: Vec<Made>,
    /// Real paths, in the order of mounting.
    mounted: Vec<PathBuf>,
}

/// Something to be mounted, found before the root is there.
struct Source {
    what: What,
    target: PathBuf,
    directory: bool,
    flags: MountFlags,
}

enum What {
    Bind(PathBuf),
    Tmpfs(Option<u64>),
}

pub fn prepare(place: &Place, spec: &RunSpec) -> Result<Prepared> {
    let mut sources = lend(place, &spec.lent)?;
    let lent = sources.len();
    let secrets = Secrets::new(place, spec)?;
    for (number, wanted) in spec.mounts.iter().enumerate() {
        sources.push(find(place, spec, number, wanted, secrets.as_ref())?);
    }
    // What is lent has its mount points in the scaffold of every step.
    let wanted = sources[lent..].iter();
    let points: Vec<Point> = wanted.map(|s| Point { path: s.target.clone(), directory: s.directory }).collect();
    // Outer directories first, so that nothing is hidden by what comes after it.
    sources.sort_by_key(|s| s.target.components().count());
    let root = overlay::mount_root(place, &spec.root, &points)?;
    let mut prepared = Prepared { root, path: place.root(), network: None, made: Vec::new(), mounted: Vec::new() };
    prepared.system_mounts(spec)?;
    for source in &sources {
        prepared.mount(source)?;
    }
    prepared.working_directory(spec)?;
    Ok(prepared)
}

/// What is lent: copies in memory. Those in the directory that is for them alone are mounted with it, so that nothing of it
/// gets into a layer either, and a step may change them with all that is around (`chown -R /run`). The others are in places
/// that images have as well, and can't be written there, as with BuildKit.
fn lend(place: &Place, lent: &[LentFile]) -> Result<Vec<Source>> {
    let own = place.in_memory("lent");
    let mut sources = Vec::new();
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    for (number, LentFile { target, source }) in lent.iter().enumerate() {
        let target = PathBuf::from(target);
        let path = match target.strip_prefix(lend::DIRECTORY) {
            Ok(name) => {
                if !own.is_dir() {
                    std::fs::create_dir(&own).unusable(|| format!("cannot make `{}`", own.display()))?;
                    let target = PathBuf::from(lend::DIRECTORY);
                    sources.push(Source { what: What::Bind(own.clone()), target, directory: true, flags });
                }
                own.join(name)
            }
            Err(_) => {
                let path = place.in_memory(format!("lent{number}"));
                let flags = flags | MountFlags::RDONLY;
                sources.push(Source { what: What::Bind(path.clone()), target, directory: false, flags });
                path
            }
        };
        let written = match source {
            LentSource::Host(from) => std::fs::copy(&from.0, &path).map(drop),
            LentSource::Text(text) => std::fs::write(&path, &text.0),
        };
        written
            .and_then(|()| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)))
            .unusable(|| format!("cannot write `{}`", path.display()))?;
    }
    Ok(sources)
}

/// The mount points that every step needs.
pub fn standard_points<'a>(lent: impl IntoIterator<Item = &'a LentFile>) -> Vec<Point> {
    let system = SYSTEM.map(|name| Point { path: Path::new("/").join(name), directory: true });
    let lent = lent.into_iter().map(|lent| Point { path: PathBuf::from(&lent.target), directory: false });
    system.into_iter().chain(lent).collect()
}

impl Prepared {
    /// /proc, /sys and /dev must be where everybody looks for them: a link there is refused, as by Docker.
    fn system_mounts(&mut self, spec: &RunSpec) -> Result<()> {
        for name in SYSTEM {
            let stat = self.root.stat(Path::new(name)).map_err(|e| cannot_mount(name, e))?;
            if stat.is_some_and(|s| kind_of(&s) != FileType::Directory) {
                return Err(Error::failed(format!("`/{name}` of the image is not a directory")));
            }
            self.point(Path::new(name), true).map_err(|e| cannot_mount(name, e))?;
        }
        let strict = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        // The step itself mounts this one.
        self.mounted.push("proc".into());
        let sys = self.root.open_at(Path::new("sys"), OFlags::PATH).map_err(|e| cannot_mount("sys", e))?;
        let writable = if spec.process.insecure { MountFlags::empty() } else { MountFlags::RDONLY };
        if userns::current().is_initial() || spec.no_network {
            mount("sysfs", proc_path(sys.as_fd()), "sysfs", strict | writable, None)
                .map_err(|e| cannot_mount("sys", e.into()))?;
        } else {
            // The host's network is not this user's, and sysfs would show it.
            let network = isolate::mount_foreign_sysfs(&self.path.join("sys"), strict | writable);
            self.network = Some(network.map_err(|e| cannot_mount("sys", e))?);
        }
        self.mounted.push("sys".into());
        self.devices(spec).map_err(|e| cannot_mount("dev", e))?;
        self.mounted.push("dev".into());
        Ok(())
    }

    /// Device nodes are the host's own, mounted one by one, and nothing else a step sees honours device nodes: with
    /// CAP_MKNOD but without a cgroup of devices, a step could make itself the host's disk otherwise.
    fn devices(&mut self, spec: &RunSpec) -> io::Result<()> {
        let nodev = if spec.process.insecure { MountFlags::empty() } else { MountFlags::NODEV };
        let under = self.root.open_at(Path::new("dev"), OFlags::PATH)?;
        let flags = MountFlags::NOSUID | MountFlags::STRICTATIME | nodev;
        mount("tmpfs", proc_path(under.as_fd()), "tmpfs", flags, c"mode=755,size=65536k")?;
        let opened = self.root.open_at(Path::new("dev"), OFlags::PATH)?;
        let dev = proc_path(opened.as_fd());
        for name in NODES {
            let host = Path::new("/dev").join(name);
            if host.exists() {
                let target = dev.join(name);
                File::create(&target)?;
                isolate::bind(&host, &target, MountFlags::empty())?;
            }
        }
        for (name, target) in LINKS {
            symlink(target, dev.join(name))?;
        }
        let strict = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        for name in ["pts", "shm", "mqueue"] {
            std::fs::create_dir(dev.join(name))?;
        }
        let devpts = MountFlags::NOSUID | MountFlags::NOEXEC;
        let options = match userns::current().has_gid(TTY) {
            true => c"newinstance,ptmxmode=0666,mode=0620,gid=5",
            false => c"newinstance,ptmxmode=0666,mode=0620",
        };
        mount("devpts", dev.join("pts"), "devpts", devpts, options)?;
        let shm = format!("mode=1777,size={}", spec.shm_size.unwrap_or(SHM_SIZE));
        mount("shm", dev.join("shm"), "tmpfs", strict, std::ffi::CString::new(shm)?.as_c_str())?;
        mount("mqueue", dev.join("mqueue"), "mqueue", strict, None)?;
        if let Some(script) = &spec.script {
            std::fs::create_dir(dev.join("pipes"))?;
            let path = dev.join("pipes").join(&script.name);
            std::fs::write(&path, &script.content.0)?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
        }
        Ok(())
    }

    /// A terminal of the step's own devpts, so that it has the name there that its users look for: our side of it, and
    /// that of the step.
    pub fn terminal(&self, size: TerminalSize) -> io::Result<(OwnedFd, OwnedFd)> {
        let ours = self.root.open_at(Path::new("dev/pts/ptmx"), OFlags::RDWR | OFlags::NOCTTY)?;
        rustix::pty::unlockpt(&ours)?;
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let theirs = rustix::pty::ioctl_tiocgptpeer(&ours, flags)?;
        rustix::termios::tcsetwinsize(&ours, size.into())?;
        Ok((ours, theirs))
    }

    fn mount(&mut self, source: &Source) -> Result<()> {
        let failed =
            |e: io::Error| Error::failed(format!("cannot mount `{}` for the step", source.target.display())).cause(e);
        let real = self.root.real_path(&source.target).map_err(failed)?;
        self.point(&real, source.directory).map_err(failed)?;
        let opened = self.root.open_at(&real, OFlags::PATH | OFlags::NOFOLLOW).map_err(failed)?;
        let target = proc_path(opened.as_fd());
        match &source.what {
            What::Bind(path) => {
                mount_bind_at(path, &target, source.flags, &self.root, &real).map_err(failed)?;
            }
            What::Tmpfs(size) => {
                let options = size.map(|s| format!("size={s}")).unwrap_or_default();
                let options = std::ffi::CString::new(options).map_err(|e| failed(e.into()))?;
                mount("tmpfs", &target, "tmpfs", source.flags, options.as_c_str()).map_err(|e| failed(e.into()))?;
            }
        }
        self.mounted.push(real);
        Ok(())
    }

    /// Something to mount on; the scaffold has it unless a layer hides it or a link leads elsewhere.
    fn point(&mut self, real: &Path, directory: bool) -> io::Result<()> {
        match self.root.stat(real)? {
            Some(stat) if (kind_of(&stat) == FileType::Directory) == directory => Ok(()),
            Some(_) => Err(io::Error::other(if directory { "it is not a directory" } else { "it is a directory" })),
            None if directory => self.root.make_dirs(real, Owner { uid: 0, gid: 0 }, 0o755, &mut self.made).map(drop),
            None => self.root.make_file(real, &mut self.made),
        }
    }

    /// A WORKDIR makes its directory; one that an image only mentions is made here, as Docker does.
    fn working_directory(&mut self, spec: &RunSpec) -> Result<()> {
        let cwd = &spec.process.cwd;
        let failed = |e| fs_error(format!("cannot make the working directory `{cwd}`"), e);
        let real = self.root.real_path(Path::new(cwd)).map_err(failed)?;
        if self.root.stat(&real).map_err(failed)?.is_none() {
            let mut kept = Vec::new();
            self.root.make_dirs(&real, Owner { uid: 0, gid: 0 }, 0o755, &mut kept).map_err(failed)?;
        }
        Ok(())
    }

    /// After the step: mount points that nobody else made or used are taken away. By then the root of this process is
    /// the image's, and whatever the step put in the way of these paths can only lead within it.
    pub fn clean(self) {
        if self.made.is_empty() {
            return;
        }
        for real in self.mounted.iter().rev() {
            // What cannot be unmounted stays a mount point, and thus cannot be removed either.
            let _ = unmount(Path::new("/").join(real), UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        }
        self.made.into_iter().rev().for_each(Made::unmake);
    }
}

/// A read-only bind mount needs a second step, on the mount and no longer on what is under it.
fn mount_bind_at(source: &Path, target: &Path, flags: MountFlags, root: &Root, real: &Path) -> io::Result<()> {
    isolate::bind(source, target, MountFlags::empty())?;
    let mounted = root.open_at(real, OFlags::PATH | OFlags::NOFOLLOW)?;
    isolate::restrict(&proc_path(mounted.as_fd()), flags)
}

/// Where the thing to be mounted is, and whether it is a directory.
fn find(place: &Place, spec: &RunSpec, number: usize, wanted: &MountSpec, secrets: Option<&Secrets>) -> Result<Source> {
    let target = PathBuf::from(&wanted.target);
    let read_only = |yes: bool| if yes { MountFlags::RDONLY } else { MountFlags::empty() };
    let bind = |path: PathBuf, directory, flags: MountFlags| Source {
        what: What::Bind(path),
        target: target.clone(),
        directory,
        flags: flags | MountFlags::NODEV,
    };
    match &wanted.kind {
        MountSpecKind::Tree { tree, path, writable } => {
            let lower = spec.trees.get(*tree).map(Vec::as_slice).unwrap_or_default();
            let source = mount_tree(place, &format!("mount{number}"), lower, *writable)?;
            let opened = source.open_at(&inside(path), OFlags::PATH).map_err(|e| missing(path, &e))?;
            let stat = rustix::fs::fstat(&opened).map_err(|e| missing(path, &e.into()))?;
            let real = source.real_path(Path::new(path)).map_err(|e| missing(path, &e))?;
            let path = place.in_memory(format!("mount{number}")).join(real);
            Ok(bind(path, kind_of(&stat) == FileType::Directory, read_only(!writable)))
        }
        MountSpecKind::Context { items, writable } => {
            let staged = place.on_disk(format!("mount{number}"));
            let file = copy::stage_context(items, &staged)?;
            Ok(match file {
                Some(file) => bind(file, false, read_only(!writable)),
                None => bind(staged, true, read_only(!writable)),
            })
        }
        MountSpecKind::Cache { dir, fill, read_only: ro, mode, uid, gid } => {
            let data = cache(place, spec, number, dir, fill.as_ref(), *mode, Owner { uid: *uid, gid: *gid })?;
            Ok(bind(data, true, read_only(*ro)))
        }
        MountSpecKind::Tmpfs { size } => Ok(Source {
            what: What::Tmpfs(*size),
            target,
            directory: true,
            flags: MountFlags::NOSUID | MountFlags::NODEV,
        }),
        MountSpecKind::Secret { value, mode, uid, gid } => {
            let Some(secrets) = secrets else {
                return Err(Error::failed("a secret has no place to be kept"));
            };
            let file = secrets.add(number, &value.0, *mode, Owner { uid: *uid, gid: *gid })?;
            Ok(bind(file, false, MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NOEXEC))
        }
        MountSpecKind::Agent { socket, mode, uid, gid } => {
            standin::chown_path(socket, *uid, *gid)
                .and_then(|()| std::fs::set_permissions(&**socket, std::fs::Permissions::from_mode(*mode)))
                .unusable(|| "cannot hand an ssh-agent to the step".into())?;
            Ok(bind(socket.0.clone(), false, MountFlags::NOSUID | MountFlags::NOEXEC))
        }
        MountSpecKind::Host { path, read_only: ro } => {
            let meta = std::fs::metadata(&**path).bad_input(|| format!("cannot mount `{}`", path.display()))?;
            Ok(bind(path.0.clone(), meta.is_dir(), read_only(*ro)))
        }
    }
}

/// A cache is a directory in its own one, which is renamed into place once it has what it starts with.
fn cache(
    place: &Place,
    spec: &RunSpec,
    number: usize,
    dir: &Path,
    fill: Option<&(usize, String)>,
    mode: u32,
    owner: Owner,
) -> Result<PathBuf> {
    let data = dir.join("data");
    let failed = |e: io::Error| fs_error(format!("cannot prepare the cache `{}`", dir.display()), e);
    if data.is_dir() {
        return Ok(data);
    }
    let fresh = dir.join(format!("new.{}", std::process::id()));
    std::fs::create_dir(&fresh).map_err(failed)?;
    if let Some((tree, path)) = fill {
        let lower = spec.trees.get(*tree).map(Vec::as_slice).unwrap_or_default();
        let name = format!("fill{number}");
        let source = mount_tree(place, &name, lower, false)?;
        copy::fill(&source, &place.in_memory(name), path, &fresh)?;
    }
    standin::chown_path(&fresh, owner.uid, owner.gid).map_err(failed)?;
    std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(mode)).map_err(failed)?;
    match std::fs::rename(&fresh, &data) {
        Ok(()) => {}
        // A step that shares the cache was faster.
        Err(_) if data.is_dir() => std::fs::remove_dir_all(&fresh).map_err(failed)?,
        Err(e) => return Err(failed(e)),
    }
    Ok(data)
}

/// Secrets lie in memory, in a file system that only this helper's namespace has.
struct Secrets {
    dir: PathBuf,
}

impl Secrets {
    fn new(place: &Place, spec: &RunSpec) -> Result<Option<Secrets>> {
        if !spec.mounts.iter().any(|m| matches!(m.kind, MountSpecKind::Secret { .. })) {
            return Ok(None);
        }
        let dir = place.in_memory("secrets");
        let what = || "cannot make a place for secrets".to_owned();
        std::fs::create_dir(&dir).unusable(what)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        // `noswap` needs Linux 6.4.
        mount("secrets", &dir, "tmpfs", flags, c"mode=700,noswap")
            .or_else(|_| mount("secrets", &dir, "tmpfs", flags, c"mode=700"))
            .unusable(what)?;
        Ok(Some(Secrets { dir }))
    }

    fn add(&self, number: usize, value: &[u8], mode: u32, owner: Owner) -> Result<PathBuf> {
        let path = self.dir.join(number.to_string());
        let write = || -> io::Result<()> {
            let mut file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
            io::Write::write_all(&mut file, value)?;
            standin::chown_fd(file.as_fd(), owner.uid, owner.gid)?;
            file.set_permissions(std::fs::Permissions::from_mode(mode))
        };
        write().unusable(|| "cannot put a secret into memory".into())?;
        Ok(path)
    }
}

fn inside(path: &str) -> PathBuf {
    match path.trim_start_matches('/') {
        "" => PathBuf::from("."),
        relative => PathBuf::from(relative),
    }
}

fn missing(path: &str, error: &io::Error) -> Error {
    Error::bad_input(format!("there is no `{path}` to mount")).cause(error)
}

fn cannot_mount(name: &str, error: io::Error) -> Error {
    Error::unusable(format!("cannot mount `/{name}` for a step"))
        .cause(error)
        .hint("a container that Kollage runs in must be privileged")
}
