//! What a push moved: names, what each led to before, and what it leads to since. Kept in a file, so that a release
//! can be taken back.

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};

use crate::error::{Context as _, Error, Result};
use crate::event::{Cancel, Sink};
use crate::image::digest::Digest;
use crate::net::{Caller, block_on, block_on_unless};
use crate::registry::conf::Place;
use crate::registry::push::Push;
use crate::registry::{Options, Reference};

const VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    pub version: u32,
    /// RFC 3339.
    pub made: String,
    pub tags: Vec<Tag>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tag {
    /// `registry.example.org/kollage/keystone:2026.1`
    pub name: String,
    /// None: there was no such tag.
    pub old: Option<Digest>,
    pub new: Digest,
}

impl Release {
    pub fn of(tags: Vec<Tag>) -> Release {
        let now = jiff::Timestamp::now();
        let made = jiff::Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
        Release { version: VERSION, made, tags }
    }

    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec_pretty(self).failed(|| "cannot write a release".into())?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    pub fn parse(bytes: &[u8]) -> Result<Release> {
        let strange = || "this is not a file that a push wrote".to_owned();
        let value: serde_json::Value = serde_json::from_slice(bytes).bad_input(strange)?;
        match value["version"].as_u64() {
            Some(version) if version == u64::from(VERSION) => serde_json::from_value(value).bad_input(strange),
            Some(version) => {
                Err(Error::bad_input(format!("its version is {version}, and this program knows {VERSION}"))
                    .hint("use a newer kollage"))
            }
            None => Err(Error::bad_input(strange()).cause("it has no `version`")),
        }
    }
}

/// What became of one name of a release that is taken back.
#[derive(Debug)]
pub enum Undone {
    Restored,
    /// It was new, and is gone.
    Removed,
    /// It led to the old image already, or there was none.
    Already,
    Stays(Error),
}

/// Takes a release back, as far as its names still lead to it: when others were moved since, nothing is done without
/// `force`. What is known to be impossible is said before anything is done.
pub fn roll_back(
    release: &Release,
    force: bool,
    options: &Options,
    sink: &dyn Sink,
    cancel: &Cancel,
) -> Result<Vec<(Tag, Undone)>> {
    let names: Vec<Reference> = release.tags.iter().map(|tag| tag.name.parse()).collect::<Result<_>>()?;
    let nodes: Vec<_> = names.iter().map(|name| name.repository().into()).collect();
    let callers: Vec<Caller<'_>> = nodes.iter().map(|node| Caller { node, sink, cancel }).collect();
    let tags = &release.tags;
    let places: Vec<Place> = names.iter().map(|name| options.registries.push_to(name)).collect::<Result<_>>()?;
    let now = block_on(cancel, async {
        let push = Push::new(options);
        let looks = places.iter().zip(&callers).zip(tags).map(|((place, caller), tag)| async {
            let client = push.client(place, caller).await?;
            let now = client.tag_digest(place.reference.tag().unwrap_or("latest")).await?;
            if let Some(old) = tag.old.as_ref().filter(|old| now.as_ref() != Some(old)) {
                let what = client.manifest_name(&old.to_string());
                if !client.exists(&format!("manifests/{old}"), &what).await? {
                    return Err(Error::unusable(format!("the registry {} no longer has {what}", client.host()))
                        .cause(format!("it is what {} led to", tag.name)));
                }
            }
            Ok(now)
        });
        join_all(looks).await.into_iter().collect::<Result<Vec<_>>>()
    })?;
    let differs: Vec<String> = tags
        .iter()
        .zip(&now)
        .filter(|(tag, now)| **now != tag.old && now.as_ref() != Some(&tag.new))
        .map(|(tag, now)| match now {
            Some(now) => format!("{} leads to {now} by now", tag.name),
            None => format!("{} is gone", tag.name),
        })
        .collect();
    if !differs.is_empty() && !force {
        let error = Error::failed("names were moved since this release; nothing was done");
        return Err(differs.into_iter().fold(error, Error::cause).hint("`--force` takes it back all the same"));
    }
    block_on_unless(|| cancel.is_forced(), async {
        let push = Push::new(options);
        let moves = places.iter().zip(&callers).zip(tags.iter().zip(&now)).map(|((place, caller), (tag, now))| async {
            if *now == tag.old {
                return Undone::Already;
            }
            let restored = async {
                let client = push.client(place, caller).await?;
                client.restore(tag).await
            };
            match (restored.await, &tag.old) {
                (Ok(()), Some(_)) => Undone::Restored,
                (Ok(()), None) => Undone::Removed,
                (Err(error), _) => Undone::Stays(error),
            }
        });
        Ok(tags.iter().cloned().zip(join_all(moves).await).collect())
    })
}
