//! Where results meet: one repository of a registry that all builders can reach, with a tag for every key.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::engine::embedded::EmbeddedEngine;
use crate::engine::{Built, Ctl, Engine as _};
use crate::error::{Context as _, Error, Result};
use crate::event::{Cancel, Event, Silent};
use crate::image::config::{ImageConfig, Platform};
use crate::image::digest::{Digest, Key};
use crate::image::reference::MAX_TAG;
use crate::registry::form::Form;
use crate::registry::push::{self, Move};
use crate::registry::{self, Caller, Reference, Retry};

#[derive(Debug)]
pub struct Results {
    /// Without a tag.
    repository: String,
    registry: registry::Options,
    /// What is known to be there: the digest of its manifest. The lock of a key is held by whoever looks or pushes.
    there: Mutex<HashMap<Key, Arc<Mutex<Option<Digest>>>>>,
}

/// What is known of an image without its layers.
pub struct Known {
    pub config: ImageConfig,
    pub digest: Digest,
    pub config_digest: Digest,
    /// Of its layers, as they are in the registry.
    pub size: u64,
}

impl Results {
    pub fn new(repository: String, registry: registry::Options) -> Results {
        Results { repository, registry, there: Mutex::default() }
    }

    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// Where builders put the result of a key.
    pub fn name(&self, key: &Key) -> String {
        format!("{}:{key}", self.repository)
    }

    /// Where builders keep what the steps of a node gave, for whoever builds it next.
    pub fn cache(&self, node: &str, platform: &Platform) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
        let tag: String = format!("cache-{platform}-{node}").chars().map(plain).take(MAX_TAG).collect();
        format!("{}:{tag}", self.repository)
    }

    /// By its digest, so that a builder that has it already needs to ask nobody.
    pub fn by_digest(&self, digest: &Digest) -> String {
        format!("{}@{digest}", self.repository)
    }

    fn reference(&self, key: &Key) -> Result<Reference> {
        self.name(key).parse().bad_input(|| format!("`{}` is no name of a repository", self.repository))
    }

    /// Whether results can be put there.
    pub fn check(&self, cancel: &Cancel) -> Result<()> {
        let name: Reference =
            self.repository.parse().bad_input(|| format!("`{}` is no name of a repository", self.repository))?;
        let caller = Caller { node: &Arc::from("builders"), sink: &Silent, cancel };
        push::check(&[name], &self.registry, &caller)
    }

    /// The result of a key that some builder has put there, in this run or an earlier one, here or elsewhere. A registry
    /// that doesn't answer has nothing: that it has to is said by the preflight.
    pub fn recall(&self, own: &EmbeddedEngine, key: &Key, platform: &Platform) -> Option<Built> {
        let cancel = Cancel::new().ok()?;
        let caller = Caller { node: &Arc::from("builders"), sink: &Silent, cancel: &cancel };
        let found = self.look(own, &self.reference(key).ok()?, platform, &self.once(), &caller).ok()?;
        self.note(key, &found.digest);
        Some(built(key, &found))
    }

    fn look(
        &self,
        own: &EmbeddedEngine,
        name: &Reference,
        platform: &Platform,
        options: &registry::Options,
        caller: &Caller<'_>,
    ) -> Result<Known> {
        let digest = match name.digest() {
            Some(digest) => digest.clone(),
            None => registry::head(name, options, caller)?,
        };
        let exact = self.by_digest(&digest);
        let exact: Reference = exact.parse().failed(|| format!("`{exact}` is no name of an image"))?;
        let (manifest, config) = registry::inspect(own.store(), &exact, platform, options, caller)?;
        let size = manifest.layers.iter().map(|layer| layer.size).sum();
        Ok(Known { config, digest, config_digest: manifest.config.digest, size })
    }

    /// For looking whether something is there, which is no reason to try again.
    fn once(&self) -> registry::Options {
        registry::Options { retry: Retry { attempts: 1, ..self.registry.retry.clone() }, ..self.registry.clone() }
    }

    fn slot(&self, key: &Key) -> Arc<Mutex<Option<Digest>>> {
        self.there.lock().unwrap_or_else(PoisonError::into_inner).entry(key.clone()).or_default().clone()
    }

    fn note(&self, key: &Key, digest: &Digest) {
        *self.slot(key).lock().unwrap_or_else(PoisonError::into_inner) = Some(digest.clone());
    }

    /// A result that a builder has just put there; its digest where the builder has said it.
    pub fn arrived(
        &self,
        own: &EmbeddedEngine,
        key: &Key,
        digest: Option<&Digest>,
        platform: &Platform,
        ctl: &Ctl<'_>,
    ) -> Result<(Built, Known)> {
        let name = digest.map_or_else(|| self.name(key), |digest| self.by_digest(digest));
        let reference: Reference = name.parse().failed(|| format!("`{name}` is no name of an image"))?;
        let caller = Caller { node: ctl.node, sink: ctl.sink, cancel: ctl.cancel };
        let found = self.look(own, &reference, platform, &self.registry, &caller)?;
        self.note(key, &found.digest);
        Ok((built(key, &found), found))
    }

    /// What a builder calls the image, which is put there when it isn't: a base, or what the embedded engine made.
    pub fn ensure(&self, own: &EmbeddedEngine, image: &Built, platform: &Platform, ctl: &Ctl<'_>) -> Result<Digest> {
        let slot = self.slot(&image.key);
        let mut there = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(digest) = &*there {
            return Ok(digest.clone());
        }
        let name = self.reference(&image.key)?;
        let caller = Caller { node: ctl.node, sink: ctl.sink, cancel: ctl.cancel };
        if let Ok(found) = self.look(own, &name, platform, &self.once(), &caller)
            && found.config.result_id() == image.config.result_id()
        {
            return Ok(there.insert(found.digest).clone());
        }
        let published = own.finish(image, &[], ctl)?;
        let pushed = Form::default().prepare(own.store(), ctl.node, &name, &published.digest, ctl.cancel)?;
        let digest = pushed.digest();
        let outcome = push::push(&[pushed], Move::Each, &self.registry, ctl.sink, ctl.cancel, &|_| Ok(()));
        ctl.sink.event(Event::BackgroundFinished { node: ctl.node.clone() });
        match outcome.error {
            None => Ok(there.insert(digest).clone()),
            Some(error) => Err(error),
        }
    }

    /// Brings an image into the store, layers and all.
    pub fn bring(&self, own: &EmbeddedEngine, image: &Built, ctl: &Ctl<'_>) -> Result<Built> {
        let key = &image.key;
        let slot = self.slot(key);
        let digest = slot.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(digest) = digest else {
            return Err(Error::failed(format!("the result of {} is nowhere", ctl.node)));
        };
        let name = self.by_digest(&digest);
        let reference: Reference = name.parse().failed(|| format!("`{name}` is no name of an image"))?;
        let caller = Caller { node: ctl.node, sink: ctl.sink, cancel: ctl.cancel };
        let platform = image.config.platform();
        let imported = registry::pull(own.store(), &reference, &platform, &self.registry, &caller)?;
        let built = Built { key: key.clone(), config: imported.config, size: imported.size };
        own.store().put_result(key, &built)?;
        Ok(built)
    }
}

fn built(key: &Key, found: &Known) -> Built {
    Built { key: key.clone(), config: found.config.clone(), size: found.size }
}
