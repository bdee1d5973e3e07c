//! `--no-cache`, `--no-cache=STAGE` and `--no-cache-filter STAGE`.

use std::collections::BTreeSet;

use crate::cli::args::Again;
use crate::engine::NoCache;
use crate::error::{Error, Result};
use crate::graph::node::{Graph, Node};
use crate::suggest;

/// The stages have to be of some Dockerfile of the graph: a name that is misspelt would reuse everything.
pub fn no_cache(flags: &Again, graph: &Graph) -> Result<NoCache> {
    let mut stages = BTreeSet::new();
    for (flag, names) in [("--no-cache", &flags.no_cache), ("--no-cache-filter", &flags.no_cache_filter)] {
        for name in names {
            match (flag, name.as_str()) {
                // Docker's flag is either true or false.
                ("--no-cache", "true") => return Ok(NoCache::Everything),
                ("--no-cache", "false") => {}
                _ => {
                    known(flag, name, graph)?;
                    stages.insert(name.to_ascii_lowercase());
                }
            }
        }
    }
    Ok(if stages.is_empty() { NoCache::Nothing } else { NoCache::Stages(stages) })
}

fn known(flag: &str, name: &str, graph: &Graph) -> Result<()> {
    let dockerfiles = graph.nodes.iter().filter_map(Node::spec).map(|spec| &spec.resolved.dockerfile);
    let stages: BTreeSet<&str> = dockerfiles
        .flat_map(|dockerfile| &dockerfile.stages)
        .filter_map(|stage| stage.from.name.as_ref().map(|name| name.value.as_str()))
        .collect();
    if stages.iter().any(|stage| stage.eq_ignore_ascii_case(name)) {
        return Ok(());
    }
    let error = Error::bad_input(format!("`{flag}`: there is no stage `{name}`"));
    Err(error.hint(match suggest::hint(&name.to_ascii_lowercase(), stages) {
        Some(hint) => hint,
        None => "give the stage a name: `FROM … AS NAME`".into(),
    }))
}
