//! The scheduler on its own: an engine that only notes what it is asked, and graphs of bases.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::context::HashTable;
use crate::engine::surroundings::Surroundings;
use crate::engine::{BaseSource, NoCache};
use crate::event::Silent;
use crate::fetch::{Pin, Remote};
use crate::graph::node::{Edge, EdgeKind, Node};
use crate::graph::plan::{Memory, NodeHistory, Settings};
use crate::image::config::{ImageConfig, Platform};
use crate::image::digest::{Digest, Key};
use crate::image::layer::changes::Change;

/// What the engine does with the node of this suite's name.
type Behaviour = Box<dyn Fn(&str, &Ctl<'_>) -> Result<()> + Send + Sync>;

struct Fake {
    order: Mutex<Vec<String>>,
    running: AtomicUsize,
    most: AtomicUsize,
    behaviour: Behaviour,
}

impl Fake {
    fn new(behaviour: impl Fn(&str, &Ctl<'_>) -> Result<()> + Send + Sync + 'static) -> Self {
        Fake {
            order: Mutex::default(),
            running: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            behaviour: Box::new(behaviour),
        }
    }

    fn order(&self) -> Vec<String> {
        self.order.lock().unwrap().clone()
    }
}

impl Engine for Fake {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn preflight(&self) -> Vec<Error> {
        Vec::new()
    }

    fn recall(&self, _: &Key) -> Result<Option<Built>> {
        Ok(None)
    }

    fn changes(&self, _: &Built, _: usize) -> Result<Vec<Change>> {
        Ok(Vec::new())
    }

    fn named(&self, _: &str) -> Result<Option<Built>> {
        Ok(None)
    }

    fn foresee(&self, _: &BaseSource, _: &Platform) -> Option<ImageConfig> {
        None
    }

    fn known(&self, _: &Remote) -> Option<Pin> {
        None
    }

    fn pin(&self, _: &Remote, _: &Ctl<'_>) -> Result<Pin> {
        Err(Error::failed("nothing is fetched here"))
    }

    fn base(&self, job: &BaseJob, ctl: &Ctl<'_>) -> Result<Built> {
        self.order.lock().unwrap().push(ctl.node.to_string());
        let now = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        let result = (self.behaviour)(ctl.node, ctl);
        self.running.fetch_sub(1, Ordering::SeqCst);
        result.map(|()| Built { key: job.key.clone(), config: ImageConfig::new(&job.platform), size: 0 })
    }

    fn build(&self, _: &BuildJob, _: &Ctl<'_>) -> Result<Built> {
        Err(Error::failed("these graphs have bases only"))
    }

    fn finish(&self, _: &Built, _: &[String], _: &Ctl<'_>) -> Result<Published> {
        Ok(Published { digest: Digest::of(b""), config_digest: Digest::of(b""), size: 0 })
    }
}

struct Nothing;

impl Memory for Nothing {
    fn known(&self, _: &Remote) -> Option<Pin> {
        None
    }

    fn named(&self, _: &str) -> Option<Built> {
        None
    }

    fn recall(&self, _: &Key) -> Option<Built> {
        None
    }

    fn history(&self, _: &str) -> Option<&NodeHistory> {
        None
    }

    fn foresee(&self, _: &BaseSource, _: &Platform) -> Option<ImageConfig> {
        None
    }
}

/// `(name, positions of what it needs)`
pub(super) fn graph(nodes: &[(&str, &[usize])]) -> Graph {
    let mut graph = Graph::default();
    for (name, needs) in nodes {
        let edge = |to: &usize| Edge { to: NodeId(*to), kind: EdgeKind::Parent, reference: nodes[*to].0.into() };
        graph.push(Node {
            name: (*name).into(),
            kind: NodeKind::Base(BaseSource::Registry { reference: (*name).into() }),
            needs: needs.iter().map(edge).collect(),
            selected: true,
            platform: Platform::host(),
        });
    }
    graph
}

fn run(graph: &Graph, engine: &Fake, jobs: usize, fail_fast: bool, cancel: &Cancel) -> Vec<NodeResult> {
    let settings = Settings {
        source_date_epoch: None,
        no_cache: NoCache::Nothing,
        refresh: false,
        surroundings: Surroundings::default(),
        locked: BTreeMap::new(),
        squash: false,
        only_locked: false,
    };
    let table = HashTable::default();
    let planner = Planner::new(graph, &settings, &table, &Nothing);
    let options = Options { jobs, fail_fast };
    Run { planner: &planner, engine, options: &options, sink: &Silent, cancel, expected: &[] }.run()
}

fn words(results: &[NodeResult]) -> Vec<String> {
    let word = |r: &NodeResult| match &r.outcome {
        Outcome::Built => "built".to_owned(),
        Outcome::Reused(_) => "reused".to_owned(),
        Outcome::Failed(error) => format!("failed: {error}"),
        Outcome::Skipped(by) => format!("skipped for {by}"),
        Outcome::Cancelled => "cancelled".to_owned(),
    };
    results.iter().map(word).collect()
}

#[test]
fn the_longest_chain_goes_first_and_needs_come_before_dependents() {
    let graph = graph(&[("short", &[]), ("long", &[]), ("middle", &[1]), ("end", &[2])]);
    let engine = Fake::new(|_, _| Ok(()));
    let results = run(&graph, &engine, 1, false, &Cancel::new().unwrap());
    // The other two are equally urgent.
    assert_eq!(engine.order()[..2], ["long", "middle"]);
    assert_eq!(words(&results), ["built"; 4]);
    assert!(results.iter().all(|r| r.published.is_some()));
}

#[test]
fn a_failure_takes_its_descendants_and_nobody_else() {
    let graph = graph(&[("a", &[]), ("bad", &[]), ("child", &[1]), ("both", &[0, 2]), ("other", &[0])]);
    let engine = Fake::new(|name, _| if name == "bad" { Err(Error::failed("no")) } else { Ok(()) });
    let results = run(&graph, &engine, 2, false, &Cancel::new().unwrap());
    assert_eq!(words(&results), ["built", "failed: no", "skipped for bad", "skipped for bad", "built"]);
}

#[test]
fn fail_fast_starts_nothing_after_the_first_failure() {
    let graph = graph(&[("bad", &[]), ("a", &[]), ("b", &[]), ("c", &[2])]);
    let engine = Fake::new(|name, _| if name == "bad" { Err(Error::failed("no")) } else { Ok(()) });
    let results = run(&graph, &engine, 1, true, &Cancel::new().unwrap());
    // `b` has the longest chain; whatever came before `bad` is kept.
    assert_eq!(words(&results)[0], "failed: no");
    let after: Vec<String> = engine.order().into_iter().skip_while(|n| n != "bad").skip(1).collect();
    assert_eq!(after, Vec::<String>::new());
}

#[test]
fn jobs_limit_what_runs_at_once() {
    let nodes: Vec<(String, &[usize])> = (0..12).map(|i| (format!("n{i}"), &[][..])).collect();
    let nodes: Vec<(&str, &[usize])> = nodes.iter().map(|(n, d)| (n.as_str(), *d)).collect();
    let graph = graph(&nodes);
    let engine = Fake::new(|_, _| {
        std::thread::sleep(Duration::from_millis(5));
        Ok(())
    });
    run(&graph, &engine, 3, false, &Cancel::new().unwrap());
    assert_eq!(engine.order().len(), 12);
    assert_eq!(engine.most.load(Ordering::SeqCst), 3);
}

#[test]
fn after_a_cancel_nothing_starts_and_what_was_done_stays_done() {
    let graph = graph(&[("a", &[]), ("b", &[0]), ("c", &[1])]);
    let engine = Fake::new(|name, ctl| {
        if name == "b" {
            ctl.cancel.cancel();
            return Err(Error::interrupted());
        }
        Ok(())
    });
    let results = run(&graph, &engine, 2, false, &Cancel::new().unwrap());
    assert_eq!(words(&results), ["built", "cancelled", "cancelled"]);
}

#[test]
fn an_empty_graph_is_done_at_once() {
    let engine = Fake::new(|_, _| Ok(()));
    assert!(run(&Graph::default(), &engine, 2, false, &Cancel::new().unwrap()).is_empty());
}
