//! A Kolla tree: its templates, and the tables that stand in its Python package. The tables are read, never run, so that
//! each Kolla release brings its own options, defaults, sources, users and repositories.

use std::path::{Path, PathBuf};

use crate::diag::Diagnostic;
use crate::error::{Error, Result};
use crate::kolla::python::Module;
use crate::kolla::value::Value;
use crate::kolla::{version, yaml};

#[derive(Debug)]
pub struct Tree {
    /// The directory of the images.
    pub docker: PathBuf,
    /// The Python package `kolla`.
    pub package: PathBuf,
    /// As Kolla names itself in its images.
    pub version: String,
    pub config: Module,
    /// Format strings of the commands that repositories are set up with.
    pub methods: Module,
    /// `[image] type, location, …` of every source, in the tree's order.
    pub sources: Vec<(String, Value)>,
    /// `NAME-user` to uid, gid and group.
    pub users: Vec<(String, Value)>,
    /// `distro`, `arch` or `distro+arch` to the names of images.
    pub unbuildable: Vec<(String, Vec<String>)>,
    /// The repositories that come with the tree.
    pub repos: Value,
    /// Whether templates are told the day; from 23 on it is a label of the build.
    pub dated: bool,
}

impl Tree {
    /// `dir` is a checkout of Kolla, its Python package, the prefix that it is installed in, or its `share/kolla`.
    pub fn open(dir: &Path) -> Result<Tree> {
        if !dir.is_dir() {
            return Err(Error::bad_input(format!("there is no directory {}", dir.display())));
        }
        let Some((docker, package)) = parts(dir) else {
            return Err(Error::bad_input(format!("{} is no Kolla tree", dir.display())).hint(
                "it is a checkout of Kolla, or the prefix that its package is installed in: the one with `docker/base` \
                 and `kolla/common/config.py` somewhere below it",
            ));
        };
        let module = |path: &str| {
            let path = package.join(path);
            let text = crate::text::read_to_string(&path)
                .map_err(|e| Error::bad_input(format!("cannot read {}", path.display())).cause(e))?;
            Ok::<Module, Error>(Module::read(&text))
        };
        let table = |module: &Module, path: &str, name: &str| match module.get(name) {
            Some(Value::Dict(entries)) => Ok(entries.clone()),
            _ => Err(Error::bad_input(format!("{} has no table {name}", package.join(path).display()))
                .hint("this Kolla release is laid out otherwise than those that Kollage knows (21 to 23)")),
        };
        let sources = match package.join("common/sources.yaml") {
            path if path.is_file() => load(&path)?.dict().to_vec(),
            _ => table(&module("common/sources.py")?, "common/sources.py", "SOURCES")?,
        };
        let users = table(&module("common/users.py")?, "common/users.py", "USERS")?;
        let unbuildable = table(&module("image/unbuildable.py")?, "image/unbuildable.py", "UNBUILDABLE_IMAGES")?;
        let worker = crate::text::read_to_string(&package.join("image/kolla_worker.py")).unwrap_or_default();
        Ok(Tree {
            dated: worker.contains("'build_date'"),
            version: version::of(package.parent().unwrap_or(&docker)),
            config: module("common/config.py")?,
            methods: module("template/methods.py")?,
            sources,
            users,
            unbuildable: unbuildable
                .into_iter()
                .map(|(tag, names)| (tag, names.texts().map(str::to_owned).collect()))
                .collect(),
            repos: load(&package.join("template/repos.yaml"))?,
            docker,
            package,
        })
    }
}

pub fn load(path: &Path) -> Result<Value> {
    let wrong = |problem: Box<Diagnostic>| {
        Error::from_diagnostics(format!("{} cannot be used", path.display()), crate::diag::Diagnostics(vec![*problem]))
    };
    yaml::load(path).map_err(wrong)
}

/// Where the images and the package are, from any of the places that a person may name.
fn parts(dir: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut packages = vec![dir.to_owned(), dir.join("kolla")];
    packages.extend(installed(dir));
    // `PREFIX/share/kolla`
    packages.extend(dir.ancestors().nth(2).into_iter().flat_map(installed));
    let package = packages.into_iter().find(|p| p.join("common/config.py").is_file())?;
    let images = [
        dir.join("docker"),
        dir.to_owned(),
        package.join("docker"),
        package.parent()?.join("docker"),
        dir.join("share/kolla/docker"),
    ];
    let docker = images.into_iter().find(|d| d.join("base").is_dir() && d.join("macros.j2").is_file())?;
    Some((docker, package))
}

/// The packages `kolla` below a Python prefix.
fn installed(prefix: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for lib in ["lib", "local/lib"] {
        let Ok(entries) = std::fs::read_dir(prefix.join(lib)) else { continue };
        let mut names: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
        names.sort();
        for python in names {
            found.extend(["site-packages/kolla", "dist-packages/kolla"].map(|below| python.join(below)));
        }
    }
    found
}
