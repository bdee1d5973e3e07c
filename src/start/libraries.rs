//! The shared libraries that a program takes, and those that they take, looked for as the loaders of glibc and musl do.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use super::elf::{self, Elf};
use super::view::View;
use crate::error::{Context as _, Result};
use crate::image::layer::stack::Found;

/// A library that isn't there.
#[derive(Debug, PartialEq, Eq)]
pub struct Lacking {
    pub name: String,
    /// The library that takes it, unless it is the program itself.
    pub by: Option<String>,
}

/// An ELF file of an image; None: it is none.
pub fn elf(found: &Found) -> Result<Option<Elf>> {
    let file = std::fs::File::open(&found.path).unusable(|| format!("cannot open {}", found.path.display()))?;
    Ok(elf::read(file))
}

/// Where a program's libraries are looked for, whatever they are.
struct Search<'a> {
    view: &'a View,
    /// LD_LIBRARY_PATH
    first: Vec<PathBuf>,
    usual: Vec<PathBuf>,
    /// Of the loader of the program, which is a library as well.
    loader: &'a str,
    program: &'a Elf,
    program_dir: PathBuf,
}

/// More than any program takes; a circle ends by itself, since each is looked at once.
const MAX_LIBRARIES: usize = 4096;

/// Those that cannot be found. `place` is the program's own, with every link followed.
pub fn lacking(view: &View, program: &Elf, place: &Path, library_path: Option<&str>) -> Result<Vec<Lacking>> {
    // What names no loader loads nothing.
    let Some(loader) = &program.interpreter else { return Ok(Vec::new()) };
    let dir_of = |place: &Path| place.parent().unwrap_or(Path::new("/")).to_owned();
    let split = |text: &str| text.split([':', ';']).filter(|dir| dir.starts_with('/')).map(PathBuf::from).collect();
    let search = Search {
        view,
        first: library_path.map(split).unwrap_or_default(),
        usual: usual(view, loader)?,
        loader,
        program,
        program_dir: dir_of(place),
    };
    let mut lacking = Vec::new();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let own = program.needed.iter().map(|name| (name.clone(), None));
    let mut open: VecDeque<(String, Option<String>)> = own.collect();
    let mut found_by: Vec<(String, Elf, PathBuf)> = Vec::new();
    while let Some((name, by)) = open.pop_front() {
        if seen.len() > MAX_LIBRARIES || !seen.insert(name.clone()) || search.is_loader(&name) {
            continue;
        }
        let parent = by.as_ref().and_then(|by| found_by.iter().find(|(name, ..)| name == by));
        match search.find(&name, parent.map(|(_, elf, dir)| (elf, dir.as_path())))? {
            None => lacking.push(Lacking { name, by }),
            Some((place, library)) => {
                open.extend(library.needed.iter().map(|next| (next.clone(), Some(name.clone()))));
                found_by.push((name, library, dir_of(&place)));
            }
        }
    }
    Ok(lacking)
}

impl Search<'_> {
    fn is_musl(&self) -> bool {
        is_musl(self.loader)
    }

    fn is_loader(&self, name: &str) -> bool {
        if Path::new(self.loader).file_name().is_some_and(|own| own == name) {
            return true;
        }
        // musl is one file by many names.
        let parts = ["libc.", "libpthread.", "librt.", "libm.", "libdl.", "libutil.", "libxnet.", "libcrypt.so.1"];
        self.is_musl() && parts.iter().any(|part| name.starts_with(part))
    }

    fn find(&self, name: &str, by: Option<(&Elf, &Path)>) -> Result<Option<(PathBuf, Elf)>> {
        if name.contains('/') {
            return self.at(Path::new(name));
        }
        let (elf, dir) = by.unwrap_or((self.program, &self.program_dir));
        let mut dirs = Vec::new();
        let mut add = |texts: &[String], dir: &Path| dirs.extend(texts.iter().map(|text| expand(text, dir)));
        if elf.runpath.is_empty() || self.is_musl() {
            add(&elf.rpath, dir);
            if self.program.runpath.is_empty() || self.is_musl() {
                add(&self.program.rpath, &self.program_dir);
            }
        }
        dirs.extend(self.first.iter().cloned());
        dirs.extend(elf.runpath.iter().map(|text| expand(text, dir)));
        if self.is_musl() {
            dirs.extend(self.program.runpath.iter().map(|text| expand(text, &self.program_dir)));
        }
        dirs.extend(self.usual.iter().cloned());
        for dir in dirs {
            if let Some(found) = self.at(&dir.join(name))? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// One for another architecture is passed over, as loaders do.
    fn at(&self, path: &Path) -> Result<Option<(PathBuf, Elf)>> {
        let Some((place, found)) = self.view.resolve(path)? else { return Ok(None) };
        if found.is_dir() {
            return Ok(None);
        }
        let elf = elf(&found)?.filter(|elf| elf.architecture == self.program.architecture);
        Ok(elf.map(|elf| (place, elf)))
    }
}

fn is_musl(loader: &str) -> bool {
    loader.contains("/ld-musl-")
}

/// `$ORIGIN` is the directory of the file that names it.
fn expand(text: &str, dir: &Path) -> PathBuf {
    let dir = dir.display().to_string();
    PathBuf::from(text.replace("${ORIGIN}", &dir).replace("$ORIGIN", &dir))
}

fn usual(view: &View, loader: &str) -> Result<Vec<PathBuf>> {
    if is_musl(loader) {
        let name = Path::new(loader).file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let architecture = name.trim_start_matches("ld-musl-").split('.').next().unwrap_or_default();
        let text = view.text(&format!("/etc/ld-musl-{architecture}.path"))?;
        let own: Vec<PathBuf> = text.split(['\n', ':']).filter(|dir| !dir.is_empty()).map(PathBuf::from).collect();
        return Ok(match own.is_empty() {
            true => ["/lib", "/usr/local/lib", "/usr/lib"].map(PathBuf::from).to_vec(),
            false => own,
        });
    }
    let mut dirs = Vec::new();
    configured(view, "/etc/ld.so.conf", &mut dirs, 0)?;
    // Those that a distribution's glibc knows without being told; one that isn't there costs nothing.
    for top in ["/lib", "/usr/lib"] {
        let architectures = ["x86_64-linux-gnu", "aarch64-linux-gnu"];
        dirs.extend(architectures.map(|architecture| Path::new(top).join(architecture)));
    }
    dirs.extend(["/lib64", "/usr/lib64", "/lib", "/usr/lib"].map(PathBuf::from));
    Ok(dirs)
}

/// What ldconfig reads; its cache is made from that, and an image may have none.
fn configured(view: &View, path: &str, dirs: &mut Vec<PathBuf>, depth: usize) -> Result<()> {
    if depth > 8 {
        return Ok(());
    }
    for line in view.text(path)?.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(pattern) = line.strip_prefix("include").filter(|rest| rest.starts_with([' ', '\t'])) {
            for path in view.matching(pattern.trim())? {
                configured(view, &path, dirs, depth + 1)?;
            }
        } else if line.starts_with('/') {
            dirs.push(PathBuf::from(line));
        }
    }
    Ok(())
}
