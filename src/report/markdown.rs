//! A run as a table of Markdown, for the summary page of a CI job, a comment, or a document.

use crate::report::human::{self, of_seconds};
use crate::report::record::{NodeRecord, RunRecord};
use crate::report::summary::Group;
use crate::report::table::Table;

/// How it ended in one line, and a row for each node: what became of it, how long it took, what it weighs, and why.
pub fn run(run: &RunRecord) -> String {
    let counts = Group::OF_A_RUN.map(|group| (run.count(group), group.as_str()));
    let counts: Vec<String> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    let ended = if run.interrupted { "Interrupted after" } else { "Ended after" };
    let jobs = human::count(run.jobs, "job");
    let mut table = Table::with_heading(&["image", "result", "time", "compressed", "why"]).right(2).right(3);
    for node in run.nodes.iter().filter(|node| node.status != Group::NotMatched) {
        let worked = matches!(node.status, Group::Built | Group::Failed);
        table.row([
            node.name.clone(),
            node.status.as_str().to_owned(),
            if worked { of_seconds(node.seconds) } else { String::new() },
            node.size.map(human::size).unwrap_or_default(),
            why(node).to_owned(),
        ]);
    }
    format!("{ended} {} with {jobs}: {}\n\n{}", of_seconds(run.seconds), counts.join(", "), table.markdown())
}

/// The message of an error; its causes and excerpts are on the page.
fn why(node: &NodeRecord) -> &str {
    let error = node.failure.as_ref().and_then(|failure| failure.error.lines().next());
    error.or(node.reason.as_deref()).unwrap_or_default()
}
