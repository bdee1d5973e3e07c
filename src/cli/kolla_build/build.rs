//! Building a Kolla tree: its images as a catalogue, built by `kollage build` with what kolla-build's options mean there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rayon::prelude::*;

use crate::cli::kolla_build::Chosen;
use crate::cli::kolla_build::summary::Ends;
use crate::cli::workspace::store_path;
use crate::cli::{App, build, machine};
use crate::diag::Diagnostic;
use crate::error::{Context as _, Error, Result};
use crate::event::{Cancel, Event, Sink};
use crate::fetch::Fetcher;
use crate::kolla::house;
use crate::kolla::images::{Image, Status};
use crate::kolla::options::{ELSEWHERE, Options};
use crate::kolla::sources::{self, By, Source, Sources};
use crate::kolla::value::Value;
use crate::net::Caller;

const SOURCES_AT_ONCE: usize = 8;

/// What has no meaning here, said once when somebody asks for it.
const WITHOUT_MEANING: [(&str, &str); 8] = [
    ("debug", "logs are whole anyway"),
    ("keep", "a failed step's files are kept in the store; `kollage shell IMAGE` opens them"),
    ("buildkit", "an engine is used as it is; `kollage build --engine` knows more of them"),
    ("buildkit_builder", "an engine is used as it is; `kollage build --engine` knows more of them"),
    ("podman_base_url", "Podman is found where CONTAINER_HOST says, or at its usual place"),
    (ELSEWHERE, "settings are those of files, of the environment and of the command line"),
    ("squash_cleanup", "nothing else is left of what is squashed"),
    ("squash_tmp_dir", "what is squashed is the store's from the beginning"),
];

pub fn run(app: &App, chosen: &Chosen<'_>) -> Result<u8> {
    let Chosen { options, settings, images, layers, .. } = chosen;
    for (key, why) in WITHOUT_MEANING {
        if options.is_given(key) {
            app.say(&format!("note: `{}` has no meaning here: {why}", options.spelled(key)));
        }
    }
    let mode = options.filled("network_mode")?.filter(|mode| !["none", "host"].contains(&mode.as_str()));
    if let Some(mode) = mode {
        app.say(&format!(
            "note: the network mode `{mode}` has no meaning here: steps have the machine's network, or none"
        ));
    }
    if !images.iter().any(|image| image.status == Status::Matched) {
        return Err(Error::bad_input("no image is selected").hint("`--list-images` without a pattern shows all"));
    }
    let kept = super::Work::new(options)?;
    let work = &kept.path;
    catalogue(app, chosen, work)?;
    let mut arguments = flags(options)?;
    arguments.extend(build_args(options)?.into_iter().flat_map(|arg| ["--build-arg".to_owned(), arg]));
    let summary = work.join("summary.json");
    arguments.extend(["--summary-json-file".to_owned(), summary.display().to_string()]);
    let _ = std::fs::remove_file(&summary);
    let named = skipped(options, images)?;
    arguments
        .extend(images.iter().filter(|image| named.contains(image.name.as_str())).map(|i| house::name(i, settings)));
    let code = build::written(app, work, arguments).map_err(|error| without_layers(error, work))?;
    let ends = Ends::read(&summary, images, layers, options, settings)?;
    ends.write(app, options)?;
    ends.code(code, options)
}

/// What kolla-build's command line has for it where an engine can't make a plugin's layer: it has no `--engine embedded`.
fn without_layers(error: Error, work: &Path) -> Error {
    let plugins = work.join("plugins");
    let of_layers =
        |problem: &Diagnostic| problem.place.as_ref().is_some_and(|place| place.file.path().starts_with(&plugins));
    match error.diagnostics().0.iter().any(of_layers) {
        true => error.hint(
            "build without `--plugins-as-layers`, or without `engine`: Kollage's own makes layers and needs no daemon",
        ),
        false => error,
    }
}

/// Writes the selected images as a catalogue into `work`, with all that they are made from.
pub fn catalogue(app: &App, chosen: &Chosen<'_>, work: &Path) -> Result<()> {
    let LaidOut { images, plugins } = laid_out(chosen, work)?;
    let fetcher = fetcher(app, &chosen.options)?;
    let cancel = Cancel::new()?;
    let told = Fetched(app);
    // Most of the time is waited for others, so that there are more at once than processors.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(SOURCES_AT_ONCE).build();
    pool.failed(|| "cannot start threads".into())?.install(|| {
        images.par_iter().try_for_each(|(name, sources, dir)| {
            let node: Arc<str> = name.as_str().into();
            let caller = Caller { node: &node, sink: &told, cancel: &cancel };
            sources::write(sources, dir, &By { fetcher: &fetcher, caller: &caller, asks: true })
        })?;
        plugins.par_iter().try_for_each(|(image, source, dir)| {
            let node: Arc<str> = image.as_str().into();
            let caller = Caller { node: &node, sink: &told, cancel: &cancel };
            let by = By { fetcher: &fetcher, caller: &caller, asks: true };
            sources::bundle("plugins", std::slice::from_ref(source), dir, &by)
        })
    })
}

/// A catalogue but for what its sources become: by whose they are, and the folders that they go to.
struct LaidOut {
    images: Vec<(String, Sources, PathBuf)>,
    /// Those that are layers of their own.
    plugins: Vec<(String, Source, PathBuf)>,
}

fn laid_out(chosen: &Chosen<'_>, work: &Path) -> Result<LaidOut> {
    let Chosen { options, settings, images, layers, .. } = chosen;
    let wanted = wanted(chosen)?;
    let mut folders = house::write(&chosen.house(), work, images)?;
    let plugins = layers.write(work, images, settings)?;
    if let Some(base) = folders.get("base") {
        super::put_apt_files(options, base)?;
    }
    let mut laid_out = Vec::new();
    for (image, sources) in wanted {
        if let Some(dir) = folders.remove(&image.name) {
            house::patches(settings, &image.name, &dir)?;
            laid_out.push((image.name.clone(), sources, dir));
        }
    }
    Ok(LaidOut { images: laid_out, plugins })
}

/// The selected images with what they are made from: everything that is wrong with a source is found before anything is
/// fetched.
pub fn wanted<'a>(chosen: &'a Chosen<'_>) -> Result<Vec<(&'a Image, Sources)>> {
    let Chosen { options, settings, images, layers, .. } = chosen;
    let matched = images.iter().filter(|image| image.status == Status::Matched);
    let with_sources = matched.map(|image| {
        let sources = sources::sources(image, options, settings.source_arch())?;
        Ok((image, layers.below(&image.name, sources)))
    });
    with_sources.collect()
}

/// What sources are fetched by.
pub fn fetcher(app: &App, options: &Options<'_>) -> Result<Fetcher> {
    let store = machine::open_store(&store_path(&app.global, &app.env)?)?;
    let mut limits = machine::fetch_options(&app.env)?;
    if options.is_given("timeout")
        && let Value::Int(seconds) = options.get("DEFAULT", "timeout")?
    {
        let limit = Duration::from_secs(u64::try_from(seconds).unwrap_or_default().max(1));
        (limits.connect_timeout, limits.idle_timeout) = (limit, limit);
    }
    if options.is_given("retries")
        && let Value::Int(retries) = options.get("DEFAULT", "retries")?
    {
        limits.retry.attempts = u32::try_from(retries).unwrap_or(u32::MAX).saturating_add(1);
    }
    Ok(Fetcher::new(store, limits))
}

/// What is fetched, told as it happens.
pub struct Fetched<'a>(pub &'a App);

impl Sink for Fetched<'_> {
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

/// As `--build-arg` takes them.
pub fn build_args(options: &Options<'_>) -> Result<Vec<String>> {
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
            && let Some(value) = options.filled(key)?
            && !args.iter().any(|(there, _)| there == name)
        {
            args.push((name.to_owned(), value));
        }
    }
    Ok(args.into_iter().map(|(name, value)| format!("{name}={value}")).collect())
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
    if let Some(mode) = options.filled("network_mode")?.filter(|mode| ["none", "host"].contains(&mode.as_str())) {
        // `host`, Kolla's own default, is what steps have anyway with Kollage's own engine, and not with others.
        flag("--network", Some(mode));
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
    if options.is_given("push_threads") {
        flag("--push-jobs", options.text("push_threads")?);
    }
    for (key, name) in [("logs_dir", "--logs-dir"), ("platform", "--platform")] {
        if let Some(value) = options.filled(key)? {
            flag(name, Some(value));
        }
    }
    if options.flag("squash")? {
        flag("--squash", None);
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
