//! A Task that builds one image, and a Pipeline that runs it for each.

use super::{Job, Jobs, names};
use crate::deploy::yaml::Yaml;

const TASK: &str = "kollage-build";

pub fn pipeline(jobs: &[Job<'_>], how: &Jobs) -> String {
    format!("{}---\n{}", task(how).document(), tasks(jobs, how).document())
}

fn head(kind: &str, name: &str) -> Vec<(&'static str, Yaml)> {
    vec![
        ("apiVersion", Yaml::from("tekton.dev/v1")),
        ("kind", Yaml::from(kind)),
        ("metadata", Yaml::map([("name", name)])),
    ]
}

fn parameter(name: &str, description: &str) -> Yaml {
    Yaml::map([("name", name), ("type", "string"), ("description", description)])
}

fn workspace(name: &str, description: &str) -> Yaml {
    Yaml::map([("name", name), ("description", description)])
}

fn workspaces() -> Yaml {
    Yaml::List(vec![
        workspace("catalogue", "The directory with kollage.toml"),
        workspace("store", "Where results are kept from one task to the next"),
    ])
}

fn kollage_image() -> Yaml {
    parameter("kollage-image", "An image with kollage, and what it needs, in it")
}

fn task(how: &Jobs) -> Yaml {
    let store = how.store.as_deref().unwrap_or("$(workspaces.store.path)");
    let arguments = Yaml::List(vec![Yaml::from("build"), Yaml::from("$(params.arguments[*])")]);
    let step = Yaml::map([
        ("name", Yaml::from("build")),
        ("image", Yaml::from("$(params.kollage-image)")),
        ("workingDir", Yaml::from("$(workspaces.catalogue.path)")),
        ("command", Yaml::list(["kollage"])),
        ("args", arguments),
        ("env", Yaml::List(vec![Yaml::map([("name", "KOLLAGE_STORE"), ("value", store)])])),
        // Steps of a build are in namespaces of their own, on mounts of their own.
        ("securityContext", Yaml::map([("privileged", true)])),
    ]);
    let mut entries = head("Task", TASK);
    let array = Yaml::map([("name", "arguments"), ("type", "array"), ("description", "What kollage build gets")]);
    let params = Yaml::List(vec![array, kollage_image()]);
    let spec = [("params", params), ("workspaces", workspaces()), ("steps", Yaml::List(vec![step]))];
    entries.push(("spec", Yaml::map(spec)));
    Yaml::map(entries)
}

fn tasks(jobs: &[Job<'_>], how: &Jobs) -> Yaml {
    let names = names::unique(jobs.iter().map(|job| job.image), names::label);
    let tasks = jobs.iter().map(|job| {
        let arguments = job.arguments(how);
        let mut entries = vec![("name", Yaml::from(names[job.image].clone()))];
        entries.push(("taskRef", Yaml::map([("name", TASK)])));
        if !job.needs.is_empty() {
            entries.push(("runAfter", Yaml::list(job.needs.iter().map(|image| names[image].clone()))));
        }
        let image = Yaml::map([("name", "kollage-image"), ("value", "$(params.kollage-image)")]);
        let arguments = Yaml::map([("name", Yaml::from("arguments")), ("value", Yaml::list(arguments))]);
        entries.push(("params", Yaml::List(vec![arguments, image])));
        let workspaces = ["catalogue", "store"].map(|name| Yaml::map([("name", name), ("workspace", name)]));
        entries.push(("workspaces", Yaml::List(workspaces.to_vec())));
        Yaml::map(entries)
    });
    let tasks = Yaml::List(tasks.collect());
    let mut entries = head("Pipeline", "images");
    let spec = [("params", Yaml::List(vec![kollage_image()])), ("workspaces", workspaces()), ("tasks", tasks)];
    entries.push(("spec", Yaml::map(spec)));
    Yaml::map(entries)
}
