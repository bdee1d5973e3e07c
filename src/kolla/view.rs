//! A rendered tree as a catalogue that is in no file, to be looked at: contexts are the tree's own directories, and nothing
//! is fetched. What `house` writes has the same keys.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;

use crate::catalogue::Given;
use crate::context::Parts;
use crate::diag::SourceFile;
use crate::error::{Context as _, Result};
use crate::fetch::Remote;
use crate::kolla::house::{self, House};
use crate::kolla::images::Image;
use crate::kolla::sources::{self, AtHand, By, Source, Sources};

/// What is in no file of the catalogue's directory.
#[derive(Default)]
pub struct View {
    pub images: Vec<Arc<Given>>,
    /// What files of contexts are made of that come from elsewhere.
    pub awaited: BTreeMap<PathBuf, Remote>,
}

/// What makes the catalogue, besides the tree.
pub struct Wanted<'a> {
    pub images: Vec<(&'a Image, Sources)>,
    /// Plugins that are layers of their own, with their folders.
    pub plugins: Vec<(String, Source, PathBuf)>,
    /// Files that are put into the context of `base`.
    pub base: Vec<(&'static str, PathBuf)>,
}

/// `room` is the catalogue's directory: what cannot be looked at where it is goes there.
pub fn view(house: &House<'_>, room: &Path, wanted: &Wanted<'_>, by: &By<'_>) -> Result<View> {
    let all = room.join("images");
    fs::create_dir_all(&all).unusable(|| format!("cannot make {}", all.display()))?;
    sources::empties(room)?;
    house::write_project(house, room)?;
    let seen = wanted.images.par_iter().map(|(image, sources)| {
        let put: &[_] = if image.name == "base" { &wanted.base } else { &[] };
        Seen::of(house, room, image, sources, put, by)
    });
    let mut view = View::default();
    for seen in seen.collect::<Result<Vec<_>>>()? {
        view.images.extend(seen.given);
        view.awaited.extend(seen.awaited);
    }
    let plugins = wanted.plugins.par_iter().map(|(_, source, dir)| {
        let AtHand { name, remote, .. } = sources::bundle_at_hand("plugins", std::slice::from_ref(source), dir, by)?;
        Ok(remote.map(|remote| (dir.join(name), remote)))
    });
    view.awaited.extend(plugins.collect::<Result<Vec<_>>>()?.into_iter().flatten());
    Ok(view)
}

struct Seen {
    /// None: it was written.
    given: Option<Arc<Given>>,
    awaited: Vec<(PathBuf, Remote)>,
}

impl Seen {
    fn of(
        house: &House<'_>,
        room: &Path,
        image: &Image,
        sources: &Sources,
        put: &[(&'static str, PathBuf)],
        by: &By<'_>,
    ) -> Result<Seen> {
        let name = house::name(image, house.settings);
        let own = room.join("made").join(&name);
        let written = house::own_base(&image.parent_name).is_some() || takes_everything(&image.text);
        let mentioned = |file: &str| written || image.text.contains(file);
        let at_hand = sources::at_hand(sources, &mentioned, &own, room, by)?;
        let files = at_hand.iter().filter_map(|found| Some((found.name.as_str(), found.file.clone()?)));
        let mut put: BTreeMap<&str, PathBuf> = files.chain(put.iter().cloned()).collect();
        if mentioned("patches") {
            house::patches(house.settings, &image.name, &own)?;
            put.insert("patches", own.join("patches"));
        }
        let (dir, given) = match written {
            true => {
                let dir = house::folder(house, &room.join("images"), image)?;
                for (name, file) in &put {
                    let to = dir.join(name);
                    let copied = if file.is_dir() { house::copy(file, &to) } else { copy(file, &to) };
                    copied.map_err(|e| e.context(format!("cannot look at {}", image.name)))?;
                }
                (dir, None)
            }
            false => given(house, name, image, put).map(|given| (given.dir.clone(), Some(Arc::new(given))))?,
        };
        let awaited = at_hand.into_iter().filter_map(|found| Some((dir.join(&found.name), found.remote?))).collect();
        Ok(Seen { given, awaited })
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).map(drop).unusable(|| format!("cannot copy {} to {}", from.display(), to.display()))
}

fn given(house: &House<'_>, name: String, image: &Image, put: BTreeMap<&str, PathBuf>) -> Result<Given> {
    let mut dirs: Vec<PathBuf> = house.roots.iter().rev().map(|root| root.join(&image.path)).collect();
    if dirs.len() > 1 {
        dirs.retain(|dir| dir.is_dir());
    }
    let dir = dirs.remove(0);
    let put = put.into_iter().map(|(name, path)| (name.into(), path)).collect();
    Ok(Given {
        name,
        definition: SourceFile::new(dir.join("image.toml"), house::described(house, image)?),
        dockerfile: SourceFile::new(dir.join("Dockerfile (rendered)"), image.text.as_str()),
        dir,
        parts: Parts { below: dirs, put, follows: true },
    })
}

/// Whether an instruction takes what it finds: then the definition itself is among it, which is nowhere to be found here. It
/// says so too often rather than too seldom.
fn takes_everything(text: &str) -> bool {
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let word = line.split_whitespace().next().unwrap_or_default().to_ascii_uppercase();
        if word == "RUN" && line.contains("--mount") {
            return true;
        }
        if word != "COPY" && word != "ADD" {
            continue;
        }
        let mut whole = line.trim_end().to_owned();
        while whole.ends_with('\\')
            && let Some(more) = lines.next()
        {
            whole.pop();
            whole.push_str(more.trim_end());
        }
        let words: Vec<&str> = whole.split_whitespace().skip(1).collect();
        let sources = words.split_last().map(|(_, sources)| sources).unwrap_or_default();
        let plain =
            |word: &&str| word.starts_with(|c: char| c.is_ascii_alphanumeric()) && !word.contains(['*', '?', '[', '$']);
        let flag = |word: &&str| word.starts_with("--chmod=") || word.starts_with("--chown=");
        if !sources.iter().all(|word| plain(word) || flag(word)) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::takes_everything;

    #[test]
    fn what_takes_more_than_it_names_is_found_out() {
        for text in [
            "FROM a\nCOPY . /x",
            "FROM a\n  copy --chmod=644 ./ /x",
            "COPY a \\\n  * /x",
            "ADD [\".\", \"/x\"]",
            "ADD ${what} /x",
            "COPY --parents a/b /x",
            "RUN --mount=type=bind,target=/x ls",
            "COPY ../ /x",
            "COPY <<E /x\nE",
        ] {
            assert!(takes_everything(text), "{text}");
        }
        for text in ["FROM a\nCOPY a b/c /x", "ADD --chown=a:b plugins-archive /", "RUN cp . /x", "COPY a \\\n b /x"] {
            assert!(!takes_everything(text), "{text}");
        }
    }
}
