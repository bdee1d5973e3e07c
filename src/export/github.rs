//! A workflow of GitHub Actions.

use super::{Job, Jobs, names};
use crate::deploy::yaml::Yaml;

pub fn workflow(jobs: &[Job<'_>], how: &Jobs) -> String {
    let names = names::unique(jobs.iter().map(|job| job.image), id);
    let runner = how.runner.as_deref().unwrap_or("self-hosted");
    let mut document = vec![
        ("name".to_owned(), Yaml::from("images")),
        ("on".to_owned(), Yaml::map([("workflow_dispatch", Yaml::Map(Vec::new())), ("push", Yaml::Map(Vec::new()))])),
        ("permissions".to_owned(), Yaml::map([("contents", "read")])),
        // What one run publishes, another must not overtake.
        ("concurrency".to_owned(), Yaml::map([("group", "images")])),
    ];
    if let Some(store) = &how.store {
        document.push(("env".to_owned(), Yaml::map([("KOLLAGE_STORE", store.clone())])));
    }
    let jobs = jobs.iter().map(|job| {
        let mut entries = vec![("name", Yaml::from(job.image)), ("runs-on", Yaml::from(runner))];
        if !job.needs.is_empty() {
            entries.push(("needs", Yaml::list(job.needs.iter().map(|image| names[image].clone()))));
        }
        let steps = vec![Yaml::map([("uses", "actions/checkout@v4")]), Yaml::map([("run", job.command(how))])];
        entries.push(("steps", Yaml::List(steps)));
        (names[job.image].clone(), Yaml::map(entries))
    });
    document.push(("jobs".to_owned(), Yaml::map(jobs)));
    Yaml::map(document).document()
}

/// It begins with a letter or `_`, and has letters, digits, `-` and `_`.
fn id(image: &str) -> String {
    let id = names::word(image);
    if id.starts_with(|c: char| c.is_ascii_alphabetic()) { id } else { format!("_{id}") }
}
