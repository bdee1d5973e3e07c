//! How long a plan is going to take, as far as earlier runs tell: the schedule played through with the times that its
//! nodes took before. What was never measured counts nothing and is said to be missing: no guess gets into a figure
//! that a person sees.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Duration;

use crate::graph::node::{Graph, NodeId};
use crate::schedule::order;

/// What is left to do of one node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Left {
    Done,
    Seconds(f64),
    /// It was never measured.
    Unknown,
}

impl Left {
    /// The whole of a node that is expected to take so long; nothing is what is reused.
    pub fn whole(expected: Option<f64>) -> Left {
        match expected {
            None => Left::Unknown,
            Some(seconds) if seconds <= 0.0 => Left::Done,
            Some(seconds) => Left::Seconds(seconds),
        }
    }

    fn seconds(self) -> f64 {
        match self {
            Left::Seconds(seconds) => seconds.max(0.0),
            Left::Done | Left::Unknown => 0.0,
        }
    }
}

/// When everything is done, from now on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// What was measured takes this long; none where nothing of it was.
    pub time: Option<Duration>,
    /// Nodes that are still to be done and were never measured. With any of them, `time` is the least that it takes.
    pub unmeasured: usize,
}

/// The longest chain of nodes that wait for each other: more jobs make no run shorter than it.
#[derive(Clone, Debug, PartialEq)]
pub struct CriticalPath {
    /// In the order in which they are done. Empty when there is nothing to do.
    pub nodes: Vec<NodeId>,
    pub estimate: Estimate,
}

/// Plays the schedule through. `left` is by node; those for which `running` holds have a job already.
pub fn estimate(graph: &Graph, left: &[Left], running: &dyn Fn(NodeId) -> bool, jobs: usize) -> Estimate {
    let unmeasured = left.iter().filter(|left| **left == Left::Unknown).count();
    if !left.iter().any(|left| matches!(left, Left::Seconds(_))) {
        let time = if unmeasured == 0 { Some(Duration::ZERO) } else { None };
        return Estimate { time, unmeasured };
    }
    let dependents = graph.dependents();
    let seconds: Vec<Option<f64>> = left.iter().map(|left| Some(left.seconds())).collect();
    let priority = order::priorities(graph, &dependents, &seconds);
    let mut waiting = vec![0usize; graph.nodes.len()];
    for list in &dependents {
        for dependent in list {
            waiting[dependent.0] += 1;
        }
    }
    // Of what is ready the most urgent goes first, and what has a job keeps it.
    let urgency = |id: NodeId| By(if running(id) { f64::INFINITY } else { priority[id.0] }, id);
    let mut ready: BinaryHeap<By> = graph.ids().filter(|id| waiting[id.0] == 0).map(urgency).collect();
    // By the time at which they end, the earliest on top.
    let mut busy: BinaryHeap<By> = BinaryHeap::new();
    let mut now = 0.0;
    loop {
        while busy.len() < jobs.max(1)
            && let Some(By(_, id)) = ready.pop()
        {
            busy.push(By(-(now + seconds[id.0].unwrap_or(0.0)), id));
        }
        let Some(By(ends, id)) = busy.pop() else { break };
        now = -ends;
        for &next in &dependents[id.0] {
            waiting[next.0] -= 1;
            if waiting[next.0] == 0 {
                ready.push(urgency(next));
            }
        }
    }
    Estimate { time: Duration::try_from_secs_f64(now).ok(), unmeasured }
}

/// The chain that decides how long it takes at least. What was never measured finds its place in it by what the others
/// take on average, and adds no time to it.
pub fn critical_path(graph: &Graph, left: &[Left]) -> CriticalPath {
    let dependents = graph.dependents();
    let known: Vec<f64> = left.iter().filter(|l| matches!(l, Left::Seconds(_))).map(|l| l.seconds()).collect();
    // Without any, the order of building has guesses of its own.
    let average = (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64);
    let seconds: Vec<Option<f64>> = left
        .iter()
        .map(|left| match left {
            Left::Unknown => average,
            other => Some(other.seconds()),
        })
        .collect();
    let longest = order::priorities(graph, &dependents, &seconds);
    // Of equals the first in the order of the graph.
    let most = |ids: &mut dyn Iterator<Item = NodeId>| {
        ids.filter(|id| longest[id.0] > 0.0).reduce(|best, id| if longest[id.0] > longest[best.0] { id } else { best })
    };
    let mut nodes = Vec::new();
    let mut next = most(&mut graph.ids());
    while let Some(id) = next {
        if left[id.0] != Left::Done {
            nodes.push(id);
        }
        next = most(&mut dependents[id.0].iter().copied());
    }
    let unmeasured = nodes.iter().filter(|id| left[id.0] == Left::Unknown).count();
    let measured: f64 = nodes.iter().map(|id| left[id.0].seconds()).sum();
    let known = nodes.len() > unmeasured || nodes.is_empty();
    let time = Duration::try_from_secs_f64(measured).ok().filter(|_| known);
    CriticalPath { nodes, estimate: Estimate { time, unmeasured } }
}

/// Ordered by the number; of equals the node that stands earlier in the graph is the greater.
#[derive(Clone, Copy, PartialEq)]
struct By(f64, NodeId);

impl Eq for By {}

impl Ord for By {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0).then(other.1.cmp(&self.1))
    }
}

impl PartialOrd for By {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::schedule::tests::graph;

    fn time(seconds: f64) -> Option<Duration> {
        Some(Duration::from_secs_f64(seconds))
    }

    fn none(_: NodeId) -> bool {
        false
    }

    /// base (10) → a (20), b (5), c (6); c → d (2)
    fn family() -> (Graph, [Left; 5]) {
        let graph = graph(&[("base", &[]), ("a", &[0]), ("b", &[0]), ("c", &[0]), ("d", &[3])]);
        (graph, [10.0, 20.0, 5.0, 6.0, 2.0].map(Left::Seconds))
    }

    #[test]
    fn jobs_shorten_a_run_down_to_its_critical_path() {
        let (graph, left) = family();
        let with = |jobs| estimate(&graph, &left, &none, jobs).time;
        assert_eq!(with(1), time(43.0));
        // One has `a`; the other has `c`, `b` and `d`.
        assert_eq!(with(2), time(30.0));
        assert_eq!(with(9), time(30.0));
        let path = critical_path(&graph, &left);
        assert_eq!(path.nodes, [NodeId(0), NodeId(1)]);
        assert_eq!(path.estimate, Estimate { time: time(30.0), unmeasured: 0 });
    }

    #[test]
    fn what_runs_keeps_its_job_and_what_is_done_costs_nothing() {
        let (graph, mut left) = family();
        (left[0], left[2]) = (Left::Done, Left::Seconds(1.0));
        // `b` would be the last to start; it runs already.
        assert_eq!(estimate(&graph, &left, &|id| id.0 == 2, 1).time, time(29.0));
        assert_eq!(critical_path(&graph, &left).nodes, [NodeId(1)]);
        assert_eq!(estimate(&graph, &[Left::Done; 5], &none, 2), Estimate { time: time(0.0), unmeasured: 0 });
        assert_eq!(critical_path(&graph, &[Left::Done; 5]).nodes, []);
    }

    #[test]
    fn no_figure_has_a_guess_in_it() {
        let (graph, mut left) = family();
        left[1] = Left::Unknown;
        assert_eq!(estimate(&graph, &left, &none, 2), Estimate { time: time(18.0), unmeasured: 1 });
        // On average the others take 5.75 s, so `c` and `d` are the longer way.
        assert_eq!(critical_path(&graph, &left).nodes, [NodeId(0), NodeId(3), NodeId(4)]);
        left[4] = Left::Done;
        let path = critical_path(&graph, &left);
        // 7 s on average: `a` is named, and no time is given for it.
        assert_eq!(
            (path.nodes, path.estimate),
            (vec![NodeId(0), NodeId(1)], Estimate { time: time(10.0), unmeasured: 1 })
        );
        assert_eq!(estimate(&graph, &[Left::Unknown; 5], &none, 2), Estimate { time: None, unmeasured: 5 });
        assert_eq!(critical_path(&graph, &[Left::Unknown; 5]).estimate.time, None);
    }

    proptest! {
        #[test]
        fn a_run_is_never_shorter_than_its_critical_path_nor_longer_than_its_work(
            needs in proptest::collection::vec(proptest::collection::vec(0usize..20, 0..3), 1..20),
            times in proptest::collection::vec(0u32..100, 20),
            jobs in 1usize..6,
        ) {
            let names: Vec<String> = (0..needs.len()).map(|i| format!("n{i}")).collect();
            let needs: Vec<Vec<usize>> =
                needs.iter().enumerate().map(|(i, n)| n.iter().copied().filter(|to| *to < i).collect()).collect();
            let nodes: Vec<(&str, &[usize])> =
                names.iter().zip(&needs).map(|(name, needs)| (name.as_str(), needs.as_slice())).collect();
            let graph = graph(&nodes);
            let left: Vec<Left> = times[..needs.len()].iter().map(|t| Left::whole(Some(f64::from(*t)))).collect();
            let work: f64 = left.iter().map(|l| l.seconds()).sum();
            let path = critical_path(&graph, &left).estimate.time.unwrap().as_secs_f64();
            let whole = estimate(&graph, &left, &none, jobs).time.unwrap().as_secs_f64();
            prop_assert!(path <= whole + 1e-6 && whole <= work + 1e-6, "{path} {whole} {work}");
            prop_assert!(whole + 1e-6 >= work / jobs as f64);
        }
    }
}
