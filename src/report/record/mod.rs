//! What is kept of a run, to be shown later: what was done with each node and why, when and by which worker, the sizes
//! of layers, and of what failed the error and its last output.
//!
//! A record is written once, when its run ends, and read by `kollage report`. It has no command line and no values of
//! build arguments or secrets in it; titles and output come from events, where none are. Its size has a limit, whatever
//! a build writes.

use serde::{Deserialize, Serialize};

use crate::error::{Context as _, Error, Result};
use crate::report::summary::{Group, NodeKind};

pub mod recorder;

/// Of the form of records; others are not read.
const VERSION: u32 = 1;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    pub v: u32,
    /// `20261129T193600Z-1234`
    pub name: String,
    /// Of Kollage.
    pub version: String,
    /// RFC 3339.
    pub started: String,
    pub seconds: f64,
    pub jobs: usize,
    pub interrupted: bool,
    /// What was expected in the beginning, and of how many nodes nothing was known.
    pub expected: Option<(f64, usize)>,
    /// In an order in which each stands after those it needs.
    pub nodes: Vec<NodeRecord>,
    /// All layers of all nodes.
    pub layers: Vec<LayerRecord>,
    pub warnings: Vec<String>,
    /// Work behind the nodes: compressing and writing, which only an export waits for.
    pub behind: Vec<Behind>,
    /// Where the logs are.
    pub logs: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeRecord {
    pub name: String,
    pub kind: NodeKind,
    pub status: Group,
    pub reason: Option<String>,
    pub needs: Vec<NeedRecord>,
    pub reference: Option<String>,
    pub digest: Option<String>,
    /// Compressed.
    pub size: Option<u64>,
    pub seconds: f64,
    pub expected: Option<f64>,
    pub retries: usize,
    /// Positions in the run's layers, the lowest first.
    pub layers: Vec<usize>,
    pub turn: Option<Turn>,
    pub failure: Option<Failure>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeedRecord {
    /// Position in the run's nodes.
    pub node: usize,
    /// `parent`, `copies-from`, `plugin-of`
    pub kind: String,
}

/// When work on a node was done, in seconds since the run began. What was only looked up has none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    pub worker: usize,
    pub start: f64,
    pub end: f64,
    pub steps: Vec<StepRecord>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    pub number: usize,
    pub title: String,
    pub start: f64,
    /// None: it was not finished.
    pub end: Option<f64>,
    pub reused: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Behind {
    pub node: String,
    pub start: f64,
    /// None: it had not ended when the run did.
    pub end: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LayerRecord {
    pub digest: String,
    /// Uncompressed.
    pub size: u64,
    pub created_by: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// As a terminal shows it: message, causes, excerpts, hint.
    pub error: String,
    /// The last lines of the step that failed.
    pub output: Vec<String>,
    /// How many lines came before them.
    pub left_out: usize,
}

impl RunRecord {
    pub fn new(name: &str, started: &str) -> RunRecord {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        RunRecord { v: VERSION, name: name.to_owned(), started: started.to_owned(), version, ..RunRecord::default() }
    }

    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).failed(|| "cannot turn the record of the run into JSON".into())
    }

    pub fn from_bytes(name: &str, bytes: &[u8]) -> Result<RunRecord> {
        let cannot = || format!("the record of the run {name} cannot be read");
        #[derive(Deserialize)]
        struct Version {
            v: u32,
        }
        let Version { v } = serde_json::from_slice(bytes).failed(cannot)?;
        if v != VERSION {
            return Err(Error::failed(cannot()).cause(format!("its format is {v}, and this program knows {VERSION}")));
        }
        let record: RunRecord = serde_json::from_slice(bytes).failed(cannot)?;
        let nodes = record.nodes.len();
        let whole = record.nodes.iter().enumerate().all(|(i, node)| {
            node.needs.iter().all(|need| need.node < i) && node.layers.iter().all(|l| *l < record.layers.len())
        });
        match whole {
            true => Ok(record),
            false => Err(Error::failed(cannot()).cause(format!("its {nodes} nodes don't fit together"))),
        }
    }

    pub fn count(&self, status: Group) -> usize {
        self.nodes.iter().filter(|node| node.status == status).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(needs: &[usize]) -> NodeRecord {
        NodeRecord {
            name: "a".into(),
            kind: NodeKind::Image,
            status: Group::Built,
            reason: None,
            needs: needs.iter().map(|node| NeedRecord { node: *node, kind: "parent".into() }).collect(),
            reference: None,
            digest: None,
            size: None,
            seconds: 1.5,
            expected: None,
            retries: 0,
            layers: Vec::new(),
            turn: Some(Turn::default()),
            failure: None,
        }
    }

    #[test]
    fn what_is_written_is_read_and_what_makes_no_sense_is_said() {
        let whole = RunRecord { nodes: vec![node(&[]), node(&[0])], ..RunRecord::new("r", "2026-01-01T00:00:00Z") };
        assert_eq!(RunRecord::from_bytes("r", &whole.to_bytes().unwrap()).unwrap(), whole);
        let said =
            |record: &RunRecord| RunRecord::from_bytes("r", &record.to_bytes().unwrap()).unwrap_err().to_string();
        let newer = RunRecord { v: 2, ..whole.clone() };
        assert_eq!(said(&newer), "the record of the run r cannot be read: its format is 2, and this program knows 1");
        let circle = RunRecord { nodes: vec![node(&[1]), node(&[])], ..whole };
        assert!(said(&circle).contains("don't fit together"));
        assert!(RunRecord::from_bytes("r", b"{\"v\":1}").is_err());
    }
}
