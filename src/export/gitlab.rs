//! A pipeline of GitLab CI: no stages, jobs begin when those that they need are done.

use super::{Job, Jobs, names};
use crate::deploy::yaml::Yaml;

/// Names of jobs that mean something else at the top of the file.
const KEYWORDS: [&str; 15] = [
    "after_script",
    "before_script",
    "cache",
    "default",
    "false",
    "image",
    "include",
    "nil",
    "pages",
    "services",
    "spec",
    "stages",
    "true",
    "variables",
    "workflow",
];

pub fn pipeline(jobs: &[Job<'_>], how: &Jobs) -> String {
    let names = names::unique(jobs.iter().map(|job| job.image), name);
    let mut document = Vec::new();
    if let Some(store) = &how.store {
        document.push(("variables".to_owned(), Yaml::map([("KOLLAGE_STORE", store.clone())])));
    }
    if let Some(runner) = &how.runner {
        document.push(("default".to_owned(), Yaml::map([("tags", Yaml::list([runner.clone()]))])));
    }
    for job in jobs {
        let needs = Yaml::list(job.needs.iter().map(|image| names[image].clone()));
        let script = Yaml::list([job.command(how)]);
        document.push((names[job.image].clone(), Yaml::map([("needs", needs), ("script", script)])));
    }
    Yaml::map(document).document()
}

fn name(image: &str) -> String {
    if KEYWORDS.contains(&image) || image.starts_with('.') { format!("image {image}") } else { image.to_owned() }
}
