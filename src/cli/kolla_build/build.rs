//! Building a Kolla tree: its images as a catalogue, built by `kollage build` with what kolla-build's options mean there.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Parser as _;

use crate::cli::args::{Cli, Command};
use crate::cli::workspace::store_path;
use crate::cli::{App, build, machine};
use crate::error::{Error, Result};
use crate::event::{Cancel, Event, Sink};
use crate::fetch::Fetcher;
use crate::kolla::house;
use crate::kolla::images::{Image, Status};
use crate::kolla::options::Options;
use crate::kolla::settings::Settings;
use crate::kolla::sources::{self, Sources};
use crate::kolla::value::Value;
use crate::net::Caller;

/// What has no meaning here, said once when somebody asks for it.
const WITHOUT_MEANING: [(&str, &str); 7] = [
    ("skip_existing", "what is unchanged is reused"),
    ("keep", "a failed step's files are kept in the store; `kollage shell IMAGE` opens them"),
    ("buildkit", "the engine is Kollage's own"),
    ("buildkit_builder", "the engine is Kollage's own"),
    ("push_threads", "blobs are pushed side by side anyway"),
    ("podman_base_url", "the engine is Kollage's own"),
    ("locals_base", "a local source names its whole path"),
];

pub fn run(
    app: &App,
    options: &Options<'_>,
    settings: &Settings,
    roots: &[PathBuf],
    images: &mut [Image],
) -> Result<u8> {
    for (key, why) in WITHOUT_MEANING {
        if options.is_given(key) {
            app.say(&format!("note: `{}` has no meaning here: {why}", key.replace('_', "-")));
        }
    }
    if options.flag("squash")? {
        return Err(Error::bad_input("`--squash` is not in this version").hint("leave it out; every image is built"));
    }
    if !images.iter().any(|image| image.status == Status::Matched) {
        return Err(Error::bad_input("no image is selected").hint("`--list-images` without a pattern shows all"));
    }
    let arch = if settings.base_arch == "aarch64" { "arm64" } else { "amd64" };
    // Everything that is wrong with a source is found before anything is fetched.
    let mut wanted: Vec<(String, Sources)> = Vec::new();
    for image in images.iter().filter(|image| image.status == Status::Matched) {
        wanted.push((image.name.clone(), sources::sources(image, options, arch)?));
    }
    let work = super::work_dir(options)?;
    let folders = house::write(&work, images, settings, roots, &build_args(options)?)?;
    if let Some(base) = folders.get("base") {
        super::apt_files(options, base)?;
    }
    let store = machine::open_store(&store_path(&app.global, &app.env)?)?;
    let fetcher = Fetcher::new(store, machine::fetch_options(&app.env)?);
    let cancel = Cancel::new()?;
    for (name, sources) in &wanted {
        let Some(dir) = folders.get(name) else { continue };
        let node: Arc<str> = name.as_str().into();
        let told = Told(app);
        sources::write(sources, dir, &fetcher, &Caller { node: &node, sink: &told, cancel: &cancel })?;
        house::patches(settings, name, dir)?;
    }
    let mut arguments = vec!["kollage".to_owned(), "-C".into(), work.display().to_string(), "build".into()];
    arguments.extend(flags(options)?);
    let chosen = skipped(options, images)?;
    arguments
        .extend(images.iter().filter(|image| chosen.contains(image.name.as_str())).map(|i| house::name(i, settings)));
    let cli = Cli::try_parse_from(&arguments)
        .map_err(|e| Error::bad_input("these options cannot be carried out together").cause(e))?;
    let Command::Build(args) = cli.command else { return Err(Error::failed("`build` is no build")) };
    let mut global = app.global.clone();
    global.directory = Some(work.clone());
    let inner = App { global, env: app.env.clone(), facts: app.facts.clone(), look: app.look };
    let code = build::run(&inner, &args)?;
    if options.text("work_dir")?.is_none() {
        let _ = std::fs::remove_dir_all(&work);
    }
    Ok(code)
}

/// What is fetched, told as it happens.
struct Told<'a>(&'a App);

impl Sink for Told<'_> {
    fn event(&self, event: Event) {
        match event {
            Event::Background { node, title } => self.0.say(&format!("{node}: {title}")),
            Event::Warning { message, .. } => self.0.say(&format!("warning: {message}")),
            _ => {}
        }
    }
}

/// Images to build by name: all that are selected but parents, when they are to be left alone.
fn skipped<'a>(options: &Options<'_>, images: &'a [Image]) -> Result<BTreeSet<&'a str>> {
    let without_parents = options.flag("skip_parents")?;
    let matched = images.iter().filter(|image| image.status == Status::Matched);
    let chosen = matched.filter(|image| !without_parents || image.children.is_empty());
    Ok(chosen.map(|image| image.name.as_str()).collect())
}

fn build_args(options: &Options<'_>) -> Result<Vec<(String, String)>> {
    let mut args: Vec<(String, String)> = match options.get("DEFAULT", "build_args")? {
        Value::Dict(entries) => entries.into_iter().map(|(key, value)| (key, value.printed())).collect(),
        _ => Vec::new(),
    };
    for (key, name) in [
        ("pip_index_url", "PIP_INDEX_URL"),
        ("pip_trusted_host", "PIP_TRUSTED_HOST"),
        ("pip_extra_index_url", "PIP_EXTRA_INDEX_URL"),
    ] {
        if options.has(key)
            && let Some(value) = options.text(key)?.filter(|value| !value.is_empty())
            && !args.iter().any(|(there, _)| there == name)
        {
            args.push((name.to_owned(), value));
        }
    }
    Ok(args)
}

/// The flags of `kollage build` that say what kolla-build's options say.
fn flags(options: &Options<'_>) -> Result<Vec<String>> {
    let mut flags = Vec::new();
    let mut flag = |name: &str, value: Option<String>| {
        flags.push(name.to_owned());
        flags.extend(value);
    };
    if options.is_given("threads") {
        flag("--jobs", options.text("threads")?);
    }
    if options.is_given("retries") {
        flag("--retries", options.text("retries")?);
    }
    if let Some(mode) = options.text("network_mode")?.filter(|mode| ["none", "host"].contains(&mode.as_str())) {
        // Kolla's own default is what steps have here anyway.
        if mode == "none" {
            flag("--network", Some(mode));
        }
    }
    if !options.flag("cache")? {
        flag("--no-cache", None);
    }
    if options.is_given("pull") && options.flag("pull")? {
        flag("--pull", None);
    }
    if options.flag("quiet")? {
        flag("--progress", Some("quiet".into()));
    }
    for (key, name) in
        [("logs_dir", "--logs-dir"), ("summary_json_file", "--summary-json-file"), ("platform", "--platform")]
    {
        if let Some(value) = options.text(key)? {
            flag(name, Some(value));
        }
    }
    if options.flag("push")? {
        flag("--push", None);
    }
    if options.is_given("engine") {
        // Podman answers where CONTAINER_HOST or its usual socket is.
        flag("--engine", Some("docker".into()));
    }
    Ok(flags)
}
