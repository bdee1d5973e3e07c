//! `kollage build --push`: what is asked before the build, blobs that go while it runs, and manifests and names in the end.

use std::collections::BTreeMap;
use std::path::Path;

use tokio::sync::mpsc::unbounded_channel;

use crate::catalogue::Settings;
use crate::cli::App;
use crate::cli::args::Build;
use crate::cli::publish::{self, Publisher, Target};
use crate::engine::Published;
use crate::error::{Error, Kind, Result};
use crate::event::{Cancel, Event, Silent};
use crate::graph::node::{Graph, Node};
use crate::image::store::Store;
use crate::registry::Reference;
use crate::registry::push::Tally;
use crate::schedule::{NodeResult, Run};

pub struct Publishing {
    publisher: Publisher,
    /// By the name that a node gives its image.
    names: BTreeMap<String, Reference>,
}

impl Publishing {
    /// Asks everything that can be asked before the build. `root`: of the catalogue.
    pub fn prepare(
        app: &App,
        args: &Build,
        graph: &Graph,
        settings: &Settings,
        root: Option<&Path>,
        store: &Store,
    ) -> Result<Option<Publishing>> {
        if !args.push {
            return Ok(None);
        }
        let registry = settings.build.registry.as_deref();
        let selected = graph.nodes.iter().filter(|node| node.selected).filter_map(|node| node.spec());
        let mut names = BTreeMap::new();
        for name in selected.flat_map(|spec| &spec.names) {
            names.insert(name.clone(), publish::target(name, registry)?);
        }
        if names.is_empty() {
            return Err(
                Error::bad_input("there is no name to push the image to").hint("give it one with `-t NAME[:TAG]`")
            );
        }
        let mut publisher = Publisher::new(app, &args.pushing, &args.registries, settings, store, root)?;
        if let Some(retries) = args.how.retries {
            publisher.options.retry.attempts = retries.saturating_add(1);
        }
        let cancel = Cancel::new()?;
        let all: Vec<Reference> = names.values().cloned().collect();
        publisher.check(settings, &all, &Silent, &cancel).map_err(|e| e.context("nothing was built"))?;
        Ok(Some(Publishing { publisher, names }))
    }

    fn targets(&self, node: &Node, published: &Published) -> Vec<Target> {
        let Some(spec) = node.spec().filter(|_| node.selected) else { return Vec::new() };
        let target = |name: &Reference| {
            let (name, manifest) = (name.clone(), published.digest.clone());
            Target { node: node.name.clone(), name, manifest }
        };
        spec.names.iter().filter_map(|name| self.names.get(name)).map(target).collect()
    }

    /// Carries the run out, and sends what is finished meanwhile.
    pub fn alongside(&self, store: &Store, run: &Run<'_>) -> (Vec<NodeResult>, Tally) {
        let (sender, coming) = unbounded_channel();
        std::thread::scope(|scope| {
            let sending = scope.spawn(|| self.publisher.ahead(store, coming, run.sink, run.cancel));
            let results = run.run_telling(&|id, published| {
                for target in self.targets(run.planner.graph.node(id), published) {
                    // Whoever has given up has said why.
                    let _ = sender.send(target);
                }
            });
            drop(sender);
            let ended = |_| (Tally::default(), Err(Error::failed("sending came to a sudden end")));
            let (tally, sent) = sending.join().unwrap_or_else(ended);
            if let Err(error) = sent
                && error.kind() != Kind::Interrupted
            {
                let message = format!("not all could be sent while it was built: {error}");
                run.sink.event(Event::Warning { node: None, message });
            }
            (results, tally)
        })
    }

    pub fn push(
        &self,
        ahead: Tally,
        store: &Store,
        results: &[NodeResult],
        run: &Run<'_>,
    ) -> (Vec<String>, Option<Error>) {
        let nodes = run.planner.graph.nodes.iter().zip(results);
        let published = nodes.filter_map(|(node, result)| Some((node, result.published.as_ref()?)));
        let targets: Vec<Target> = published.flat_map(|(node, published)| self.targets(node, published)).collect();
        self.publisher.push_after(ahead, store, &targets, run.sink, run.cancel)
    }
}
