//! Sources of kolla-build.conf as those of a definition.

use std::path::{Path, PathBuf};

use crate::error::{Context as _, Result};
use crate::kolla::house;
use crate::kolla::settings::Settings;
use crate::kolla::sources::{Kind, Source, last};

/// Where a definition keeps files of local sources.
pub const LOCAL: &str = "sources";

/// A source as a definition has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Carried {
    pub name: String,
    /// Keys and values of its table.
    pub keys: Vec<(&'static str, String)>,
    /// What is copied beside the definition.
    from: Option<PathBuf>,
}

impl Carried {
    /// The error says why it cannot be carried over.
    pub fn of(source: &Source) -> std::result::Result<Carried, String> {
        let name = source.name.clone();
        let (keys, from) = match &source.kind {
            Kind::Url(file) => {
                let url = without_login(&name, &file.url)?;
                let sum = file.checksum.as_ref().map(|digest| ("sha256", digest.to_string().replace("sha256:", "")));
                ([Some(("url", url)), sum].into_iter().flatten().collect(), None)
            }
            Kind::Git(address) => {
                let url = without_login(&name, &address.remote)?;
                if !url.contains("://") && !url.contains('@') {
                    return Err(format!("[{name}] is a repository on this machine, which a definition cannot name"));
                }
                let reference = address.reference.clone().map(|reference| ("ref", reference));
                ([Some(("git", url)), reference].into_iter().flatten().collect(), None)
            }
            Kind::Local(path) => {
                let below = match path.is_dir() {
                    true => format!("{LOCAL}/{name}"),
                    false => format!("{LOCAL}/{name}/{}", last(path)),
                };
                (vec![("local", below)], Some(path.clone()))
            }
        };
        Ok(Carried { name, keys, from })
    }

    /// Brings local files into the definition's folder. A directory keeps its name below its source's: Kolla's archives have it.
    pub fn copy(&self, dir: &Path) -> Result<()> {
        let Some(from) = &self.from else { return Ok(()) };
        let room = dir.join(LOCAL).join(&self.name);
        std::fs::create_dir_all(&room).unusable(|| format!("cannot make {}", room.display()))?;
        let to = room.join(last(from));
        match from.is_dir() {
            true => house::copy(from, &to),
            false => std::fs::copy(from, &to).map(drop).bad_input(|| format!("cannot copy {}", from.display())),
        }
    }
}

/// Definitions hold no secrets.
fn without_login(name: &str, address: &str) -> std::result::Result<String, String> {
    let login = address.split_once("://").is_some_and(|(scheme, rest)| {
        let host = rest.split('/').next().unwrap_or_default();
        host.rsplit_once('@').is_some_and(|(user, _)| scheme.starts_with("http") || user.contains(':'))
    });
    match login {
        true => {
            Err(format!("the address of [{name}] holds a login, which no definition may; add the source without it"))
        }
        false => Ok(address.to_owned()),
    }
}

/// The label that each of Kolla's templates begins with.
pub fn label(image: &str, settings: &Settings) -> String {
    format!("LABEL maintainer=\"{}\" name=\"{image}\"", settings.maintainer)
}
