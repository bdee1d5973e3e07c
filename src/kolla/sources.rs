//! What an image is made from besides its template: sources, plugins and additions, fetched as Kolla does, into archives
//! that depend on nothing but their content.

use std::fs;
use std::io::{Read, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::error::{Context as _, Error, Result};
use crate::fetch::address::GitAddress;
use crate::fetch::{self, Fetcher, Keep, Pin, Remote, WebFile};
use crate::image::digest::{Key, KeyHasher};
use crate::image::layer::decompress::decompress;
use crate::kolla::images::Image;
use crate::kolla::options::Options;
use crate::kolla::value::Value;
use crate::net::Caller;

/// One section of kolla-build.conf that names a source.
#[derive(Clone, Debug)]
pub struct Source {
    /// The section.
    pub name: String,
    /// Where its location was written, in words and in a file.
    pub origin: String,
    pub place: Option<Place>,
    pub kind: Kind,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    Url(WebFile),
    Git(GitAddress),
    Local(PathBuf),
}

impl Source {
    /// The file that an image of this name ADDs.
    pub fn archive(&self) -> String {
        format!("{}-archive", self.name)
    }

    /// What has to be asked for it.
    fn remote(&self) -> Option<Remote> {
        match &self.kind {
            Kind::Url(file) => Some(Remote::File(file.clone())),
            Kind::Git(address) => Some(Remote::Git(address.clone())),
            Kind::Local(_) => None,
        }
    }

    /// Whether the store has what it was the last time.
    fn is_here(&self, by: &By<'_>) -> bool {
        match &self.kind {
            Kind::Git(address) => {
                let pin = by.fetcher.known(&Remote::Git(address.clone()));
                pin.is_some_and(|pin| by.fetcher.made(&packed(self, address, &pin)).is_some())
            }
            Kind::Url(file) => by.fetcher.has(file),
            Kind::Local(_) => true,
        }
    }

    /// What the section names isn't there or isn't what it should be: that has a place. All else is the machine's.
    fn failed(&self, e: Error) -> Error {
        let Some(place) = self.place.as_ref().filter(|_| e.kind() == crate::error::Kind::BadInput) else {
            return e.context(format!("cannot get the source [{}] ({})", self.name, self.origin));
        };
        let why: Vec<&str> = std::iter::once(e.message()).chain(e.causes().iter().map(String::as_str)).collect();
        let problem = Diagnostic::error(format!("the source [{}] cannot be had: {}", self.name, why.join(": ")));
        let problem = problem.at(&place.file, place.span.clone()).hint(e.hint_text().unwrap_or("check its `location`"));
        let message = format!("{} cannot be used", place.file.path().display());
        Error::from_diagnostics(message, Diagnostics(vec![problem]))
    }
}

/// How sources are brought.
pub struct By<'a> {
    pub fetcher: &'a Fetcher,
    pub caller: &'a Caller<'a>,
    /// Whether servers are asked what an address means now; else it is what it was the last time.
    pub asks: bool,
}

impl By<'_> {
    fn pin(&self, remote: Remote) -> Result<Pin> {
        match self.fetcher.known(&remote).filter(|_| !self.asks) {
            Some(pin) => Ok(pin),
            None => self.fetcher.pin(&remote, self.caller),
        }
    }
}

/// Everything that one image takes.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    pub own: Option<Source>,
    pub plugins: Vec<Source>,
    pub additions: Vec<Source>,
}

impl Sources {
    /// What each archive of several sources is called, and what is in it.
    fn bundles(&self) -> [(&'static str, &[Source]); 2] {
        [("plugins", &self.plugins), ("additions", &self.additions)]
    }
}

/// What the options say of an image. `arch` is Debian's name of the architecture.
pub fn sources(image: &Image, options: &Options<'_>, arch: &str) -> Result<Sources> {
    let sections = options.sections();
    let of = |kind: &str| -> Result<Vec<Source>> {
        let prefix = format!("{}-{kind}-", image.name);
        let named = sections.iter().filter(|section| section.len() > prefix.len() && section.starts_with(&prefix));
        named.filter_map(|section| source(section, options, arch).transpose()).collect()
    };
    Ok(Sources { own: source(&image.name, options, arch)?, plugins: of("plugin")?, additions: of("additions")? })
}

fn source(section: &str, options: &Options<'_>, arch: &str) -> Result<Option<Source>> {
    let text = |key: &str| -> Result<Option<String>> {
        Ok(match options.get(section, key)? {
            Value::None => None,
            value => Some(value.printed()),
        })
    };
    let (Some(kind), true) = (text("type")?, options.get(section, "enabled")?.is_true()) else { return Ok(None) };
    let refused = |key: &str, problem: String, hint: &str| options.refused(section, key, problem, hint);
    let location = text("location")?.filter(|location| !location.is_empty()).ok_or_else(|| {
        let hint = "say where the source is, or leave it out with `enabled = false`";
        refused("type", format!("[{section}] has a `type` and no `location`"), hint)
    })?;
    let kind = match kind.as_str() {
        "url" => {
            if !["http://", "https://"].iter().any(|scheme| location.to_ascii_lowercase().starts_with(scheme)) {
                let problem = format!("the `location` of [{section}] is no address of the web");
                return Err(refused(
                    "location",
                    problem,
                    "it begins with `https://`; what is on this machine is `local`",
                ));
            }
            let sums = options.get(section, "sha256")?;
            let no_sum =
                |hint: &str| refused("sha256", format!("`sha256` in [{section}] has no checksum for {arch}"), hint);
            let checksum = match sums.get(arch).map(Value::printed) {
                Some(sum) => Some(format!("sha256:{sum}").parse().map_err(|why: String| no_sum(&why))?),
                None if sums.is_true() => {
                    let known: Vec<&str> = sums.dict().iter().map(|(arch, _)| arch.as_str()).collect();
                    return Err(no_sum(&format!("it has those for {}", known.join(", "))));
                }
                None => None,
            };
            Kind::Url(WebFile { url: location, checksum })
        }
        "git" => {
            let reference = text("reference")?.filter(|reference| !reference.is_empty()).ok_or_else(|| {
                let problem = format!("[{section}] is a git source without a `reference`");
                refused("type", problem, "name a branch, a tag or a commit")
            })?;
            let address = GitAddress::of_repository(&location).map_err(|why| {
                refused("location", format!("the `location` of [{section}] names no git repository: {why}"), HTTPS)
            })?;
            Kind::Git(GitAddress { reference: Some(reference), keep_git_dir: Some(true), submodules: false, ..address })
        }
        _ => {
            let path = PathBuf::from(location);
            if !path.exists() {
                let problem = format!("[{section}] names {}, which is not there", path.display());
                return Err(refused("location", problem, LOCAL));
            }
            // A pipe would be waited for.
            if !path.is_dir() && !path.is_file() {
                let problem = format!("[{section}] names {}, which is neither a directory nor a file", path.display());
                return Err(refused("location", problem, LOCAL));
            }
            Kind::Local(path)
        }
    };
    let (origin, place) = (options.origin(section, "location"), options.place(section, "location"));
    Ok(Some(Source { name: section.to_owned(), origin, place, kind }))
}

const LOCAL: &str = "a local source is a directory or an archive";

const HTTPS: &str = "a repository on this machine is a `local` source, or is named as `git://`, `ssh://` or `https://`";

/// Writes what an image takes into its directory: `NAME-archive`, `plugins-archive` and `additions-archive`.
pub fn write(sources: &Sources, dir: &Path, by: &By<'_>) -> Result<()> {
    if let Some(source) = &sources.own {
        archive(source, &dir.join(source.archive()), by)?;
    }
    sources.bundles().into_iter().try_for_each(|(what, all)| bundle(what, all, dir, by))
}

/// One file of those, as far as nothing has to be fetched for it.
pub struct AtHand {
    pub name: String,
    /// Where it is; None: something has to be fetched first.
    pub file: Option<PathBuf>,
    /// Something that has to be asked for it: if it is there, it is what the store has.
    pub remote: Option<Remote>,
}

/// Those of an image that are `wanted`. What has to be written is written into `dir`, and an archive of nothing is in
/// `empties`.
pub fn at_hand(
    sources: &Sources,
    wanted: &dyn Fn(&str) -> bool,
    dir: &Path,
    empties: &Path,
    by: &By<'_>,
) -> Result<Vec<AtHand>> {
    let mut found = Vec::new();
    let made = || fs::create_dir_all(dir).unusable(|| format!("cannot make {}", dir.display()));
    if let Some(source) = sources.own.as_ref().filter(|source| wanted(&source.archive())) {
        let (name, remote) = (source.archive(), source.remote());
        let file = match source.is_here(by) {
            true => Some(made().and_then(|()| ready(source, &dir.join(&name), by))?),
            false => None,
        };
        found.push(AtHand { name, file, remote });
    }
    for (what, all) in sources.bundles().into_iter().filter(|(what, _)| wanted(&bundled(what))) {
        found.push(match all {
            [] => AtHand { name: bundled(what), file: Some(empties.join(bundled(what))), remote: None },
            all => made().and_then(|()| bundle_at_hand(what, all, dir, by))?,
        });
    }
    Ok(found)
}

/// The archives of nothing.
pub fn empties(dir: &Path) -> Result<()> {
    let none = Sources::default();
    none.bundles().into_iter().try_for_each(|(what, _)| empty(what, &dir.join(bundled(what))))
}

/// A bundle as far as nothing has to be fetched for it, and what has to be asked for it.
pub fn bundle_at_hand(what: &str, all: &[Source], dir: &Path, by: &By<'_>) -> Result<AtHand> {
    let missing = all.iter().find(|source| !source.is_here(by)).and_then(Source::remote);
    let name = bundled(what);
    let file = match missing {
        Some(_) => None,
        None => bundle(what, all, dir, by).map(|()| Some(dir.join(&name)))?,
    };
    Ok(AtHand { name, file, remote: missing.or_else(|| all.iter().find_map(Source::remote)) })
}

fn bundled(what: &str) -> String {
    format!("{what}-archive")
}

/// Plugins or additions beside each other, in one archive.
pub fn bundle(what: &str, all: &[Source], dir: &Path, by: &By<'_>) -> Result<()> {
    let to = dir.join(bundled(what));
    if all.is_empty() {
        return empty(what, &to);
    }
    let room = by.fetcher.work_dir()?;
    let items = room.path().join(what);
    fs::create_dir(&items).unusable(|| format!("cannot make {}", items.display()))?;
    for source in all {
        let path = room.path().join("archive");
        archive(source, &path, by)?;
        unpack(source, &path, &items)?;
    }
    pack(&items, what, &to)
}

fn archive(source: &Source, to: &Path, by: &By<'_>) -> Result<()> {
    let from = ready(source, to, by)?;
    if from == to {
        return Ok(());
    }
    fs::copy(&from, to).map(drop).unusable(|| format!("cannot copy {} to {}", from.display(), to.display()))
}

/// Where the archive is: a file that is it already, or `to`, where it was written.
fn ready(source: &Source, to: &Path, by: &By<'_>) -> Result<PathBuf> {
    let written = |()| to.to_owned();
    let failed = |e: Error| source.failed(e);
    match &source.kind {
        Kind::Local(path) if path.is_dir() => pack(path, &last(path), to).map(written).map_err(failed),
        Kind::Local(path) => {
            let readable = fs::File::open(path).bad_input(|| format!("cannot read {}", path.display()));
            readable.map(|_| path.clone()).map_err(failed)
        }
        Kind::Url(file) => {
            let pin = by.pin(Remote::File(file.clone())).map_err(failed)?;
            let Pin::File { digest, .. } = &pin else { return Err(Error::failed("a file without a digest")) };
            let fetched = by.fetcher.file(file, digest, by.caller).map_err(|e| match e.kind() {
                // Only another content than the section's own `sha256` fails so.
                crate::error::Kind::Failed if file.checksum.is_some() => {
                    let wrong = Error::bad_input("what its address has is not what `sha256` says");
                    failed(e.causes().iter().fold(wrong, |wrong, cause| wrong.cause(cause)))
                }
                _ => failed(e),
            })?;
            Ok(fetched.path)
        }
        Kind::Git(address) => {
            let pin = by.pin(Remote::Git(address.clone())).map_err(failed)?;
            let key = packed(source, address, &pin);
            if let Some(made) = by.fetcher.made(&key) {
                return Ok(made);
            }
            let room = by.fetcher.work_dir()?;
            by.fetcher.checkout(address, &pin, Keep::History, room.path(), by.caller).map_err(failed)?;
            pack(&fetch::tree(room.path()), &checked_out(source, address), to)?;
            by.fetcher.keep(&key, to)
        }
    }
}

/// Of the archive of a repository. What tags a commit has is asked once in a store, so that they are no part of it.
fn packed(source: &Source, address: &GitAddress, pin: &Pin) -> Key {
    let mut key = KeyHasher::new("kollage repository archive 1");
    key.part("remote", &address.remote).part("within", checked_out(source, address));
    if let Pin::Commit { id, name } = pin {
        key.part("commit", id).part("name", name.as_deref().unwrap_or_default());
    }
    key.finish()
}

/// The one directory in the archive of a repository.
pub fn checked_out(source: &Source, address: &GitAddress) -> String {
    let reference = address.reference.as_deref().unwrap_or_default().replace('/', "-");
    format!("{}-{reference}", source.archive())
}

/// What a local source is called in its archive.
pub fn last(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_else(|| "source".into())
}

/// Of something that is root's and of the year 1970.
fn header(mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_mode(mode);
    header.set_size(0);
    let _ = header.set_username("root").and_then(|()| header.set_groupname("root"));
    header
}

/// An archive with nothing but its one directory.
fn empty(name: &str, to: &Path) -> Result<()> {
    let mut header = header(0o755);
    header.set_entry_type(tar::EntryType::Directory);
    let mut archive = tar::Builder::new(Vec::new());
    let written = archive.append_data(&mut header, name, std::io::empty()).and_then(|()| archive.into_inner());
    written.and_then(|bytes| fs::write(to, bytes)).unusable(|| format!("cannot write {}", to.display()))
}

/// A tar of a directory as Kolla makes it: everything root's and of the year 1970, directories writable, sorted.
pub fn pack(dir: &Path, name: &str, to: &Path) -> Result<()> {
    let say = || format!("cannot write {}", to.display());
    let file = fs::File::create(to).unusable(say)?;
    let mut archive = tar::Builder::new(std::io::BufWriter::new(file));
    archive.mode(tar::HeaderMode::Complete);
    archive.follow_symlinks(false);
    let mut open = vec![(dir.to_owned(), PathBuf::from(name))];
    while let Some((path, name)) = open.pop() {
        let metadata = fs::symlink_metadata(&path).bad_input(|| format!("cannot read {}", path.display()))?;
        let mut header = header(metadata.permissions().mode() & 0o7777 | 0o200);
        if metadata.is_dir() {
            header.set_entry_type(tar::EntryType::Directory);
            archive.append_data(&mut header, &name, std::io::empty()).unusable(say)?;
            let entries = fs::read_dir(&path).bad_input(|| format!("cannot read {}", path.display()))?;
            let mut inside: Vec<std::ffi::OsString> = entries.flatten().map(|entry| entry.file_name()).collect();
            inside.sort();
            open.extend(inside.into_iter().rev().map(|entry| (path.join(&entry), name.join(&entry))));
        } else if metadata.is_symlink() {
            header.set_entry_type(tar::EntryType::Symlink);
            let target = fs::read_link(&path).bad_input(|| format!("cannot read {}", path.display()))?;
            archive.append_link(&mut header, &name, &target).unusable(say)?;
        } else if metadata.is_file() {
            header.set_entry_type(tar::EntryType::Regular);
            header.set_size(metadata.len());
            let content = fs::File::open(&path).bad_input(|| format!("cannot read {}", path.display()))?;
            archive.append_data(&mut header, &name, content.take(metadata.len())).unusable(say)?;
        }
    }
    let mut file = archive.into_inner().unusable(say)?;
    file.flush().unusable(say)
}

/// Unpacks a plugin or an addition beside the others.
fn unpack(source: &Source, path: &Path, into: &Path) -> Result<()> {
    let say = || format!("cannot unpack the source [{}] ({})", source.name, source.origin);
    let (_, content) = decompress(fs::File::open(path).unusable(say)?).map_err(|e| e.context(say()))?;
    let wrong = |why: String| Error::bad_input(say()).cause(why);
    if fs::metadata(path).unusable(say)?.len() == 0 {
        return Err(wrong("it is empty".into()));
    }
    let mut archive = tar::Archive::new(content);
    archive.set_overwrite(true);
    for entry in archive.entries().map_err(|e| wrong(e.to_string()))? {
        let mut entry = entry.map_err(|e| wrong(format!("it is no tar archive: {e}")))?;
        let name = entry.path().map_err(|e| wrong(e.to_string()))?.into_owned();
        let climbs = name.components().any(|c| matches!(c, Component::ParentDir | Component::RootDir));
        if climbs || !entry.unpack_in(into).map_err(|e| wrong(format!("{}: {e}", name.display())))? {
            return Err(wrong(format!("`{}` in it leads out of the archive", name.display())));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_say_nothing_of_the_day() {
        let room = tempfile::tempdir().unwrap();
        let (dir, to) = (room.path().join("d"), room.path().join("archive"));
        fs::create_dir_all(dir.join("sub")).unwrap();
        fs::write(dir.join("sub/f"), "f").unwrap();
        fs::set_permissions(dir.join("sub"), fs::Permissions::from_mode(0o555)).unwrap();
        let packed = |seconds: u64| {
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            fs::File::open(dir.join("sub/f")).unwrap().set_modified(time).unwrap();
            pack(&dir, "d", &to).unwrap();
            fs::read(&to).unwrap()
        };
        assert_eq!(packed(1_000_000_000), packed(2_000_000_000));
        let told = || {
            let mut archive = tar::Archive::new(fs::File::open(&to).unwrap());
            let entries = archive.entries().unwrap().map(|entry| {
                let entry = entry.unwrap();
                let header = entry.header();
                let owner = (header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap());
                assert_eq!(
                    (owner, header.username(), header.groupname()),
                    ((0, 0, 0), Ok(Some("root")), Ok(Some("root")))
                );
                (entry.path().unwrap().display().to_string(), header.mode().unwrap() & 0o200)
            });
            entries.collect::<Vec<_>>()
        };
        // What is unpacked over an earlier try has to be writable.
        assert_eq!(told(), ["d", "d/sub", "d/sub/f"].map(|name| (name.to_owned(), 0o200)));
        empty("plugins", &to).unwrap();
        assert_eq!(told(), [("plugins".to_owned(), 0o200)]);
    }
}
