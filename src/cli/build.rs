//! `kollage build`

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use clap::Parser as _;
use rayon::prelude::*;

use crate::catalogue::{Catalogue, EngineName, limit_of_steps};
use crate::cli::App;
use crate::cli::args::{Build, Cli, Command, OneDockerfile, Select};
use crate::cli::builders::Asked;
use crate::cli::context::{contexts, refuse_remote};
use crate::cli::entitlements::entitlements;
use crate::cli::load;
use crate::cli::machine::{self, Builder, EngineFlags};
use crate::cli::no_cache::no_cache;
use crate::cli::publishing::Publishing;
use crate::cli::record;
use crate::cli::secret::secrets;
use crate::cli::ssh::agents;
use crate::cli::surroundings::surroundings;
use crate::cli::verify::Verify;
use crate::cli::workspace::{self, Workspace, store_path, wrong_definitions};
use crate::cli::{outcome, signals};
use crate::context::{Context, HashTable};
use crate::daemon;
use crate::diag::{Diagnostic, Diagnostics, SourceFile};
use crate::dockerfile::Inputs;
use crate::engine::BaseSource;
use crate::error::{Context as _, Error, Kind, Result};
use crate::event::{Cancel, Event, Sink};
use crate::fetch::Pin;
use crate::graph::assemble::assemble_one;
use crate::graph::node::{Graph, Node, NodeKind};
use crate::graph::plan::{Action, Planned, Planner, Settings};
use crate::image::archive::{self, ExportImage, Output};
use crate::image::config::Platform;
use crate::image::reference::Reference;
use crate::image::store::Store;
use crate::registry::push::Tally;
use crate::report::logs::LogDir;
use crate::report::progress::{self, Progress};
use crate::report::record::recorder::Recorder;
use crate::report::summary::{self, Detail, NodeSummary, RunSummary};
use crate::report::{Clock, files, metrics, tee::Tee};
use crate::schedule::history::History;
use crate::schedule::{NodeResult, Options, Run};

/// `kollage build` with these arguments for a catalogue that another command has written.
pub(super) fn written(app: &App, catalogue: &Path, arguments: Vec<String>) -> Result<u8> {
    let arguments = ["kollage".to_owned(), "build".into()].into_iter().chain(arguments);
    let cli = Cli::try_parse_from(arguments)
        .map_err(|e| Error::bad_input("these options cannot be carried out together").cause(e))?;
    let Command::Build(args) = cli.command else { return Err(Error::failed("`build` is no build")) };
    let mut global = app.global.clone();
    global.directory = Some(catalogue.to_owned());
    run(&App { global, env: app.env.clone(), facts: app.facts.clone(), look: app.look }, &args)
}

pub fn run(app: &App, args: &Build) -> Result<u8> {
    let (loads, texts): (Vec<&String>, Vec<&String>) =
        args.results.outputs.iter().partition(|text| *text == load::SPEC);
    let outputs: Vec<Output> = texts.into_iter().map(|text| text.parse()).collect::<Result<_>>()?;
    outputs.iter().try_for_each(archive::check_destination)?;
    let target = Target::load(app, args)?;
    let metrics_file = args.results.metrics_file.clone().or_else(|| target.settings.build.metrics_file.clone());
    refuse_nameless(&target.graph, &outputs)?;
    refuse_platforms(&target.graph, &outputs)?;
    app.show_warnings(&target.warnings);
    app.show_warnings(&target.graph.warnings());
    let name = machine::chosen(args.how.engine.as_deref(), &target.settings, &app.env)?;
    let flags = engine_flags(app, args, &target)?;
    machine::refuse_unsupported(&target.graph, Some(&flags.entitlements))?;
    let store = machine::open_store(&store_path(&app.global, &app.env)?)?;
    let local = machine::engine(store.clone(), flags.clone(), &target.settings, &app.env)?;
    let cancel = Cancel::new()?;
    let asked = Asked {
        flags: &args.how.builders,
        settings: &target.settings,
        env: &app.env,
        platforms: target.graph.platforms().into_iter().cloned().collect(),
        jobs: args.how.jobs,
    };
    let keep = !outputs.is_empty() || args.push;
    let builder = Builder::open(name, local, keep, &asked, &cancel)?;
    let second = match &args.how.verify_engine {
        None => None,
        Some(text) => {
            let name = machine::chosen(Some(text), &target.settings, &app.env)?;
            let local = machine::engine(store.clone(), flags.clone(), &target.settings, &app.env)?;
            Some(Builder::open(name, local, false, &asked, &cancel)?)
        }
    };
    // Where the images are loaded, asked before they are built.
    let loader = match &builder {
        Builder::Embedded(_) | Builder::Buildkit(_) if !loads.is_empty() => {
            need_names(&target.graph, "docker")?;
            Some(daemon::Engine::open(daemon::find(None, &app.env.daemon())?, &cancel)?)
        }
        _ => None,
    };
    let engine = builder.engine();
    let table_path = store.state_path(machine::HASH_TABLE);
    let table = HashTable::load(&table_path);
    let history = History::load(&store.state_path(machine::HISTORY), engine);
    let settings = Settings {
        source_date_epoch: target.source_date_epoch,
        no_cache: no_cache(&args.how.again, &target.graph)?,
        refresh: args.how.pull,
        surroundings: surroundings(&args.how.surroundings, target.settings.build.network)?,
        squash: args.how.squash,
        locked: target.locked.clone(),
        only_locked: args.settings.locked,
    };
    let planner = Planner::new(&target.graph, &settings, &table, &history);
    let planned = planner.plan().map_err(wrong_definitions)?;
    machine::refuse_planned(&target.graph, &planned, &flags)?;
    if name != EngineName::Buildkit {
        machine::refuse_platforms(&target.graph, &planned)?;
    }
    builder.refuse(&target.graph, &planned, &settings.surroundings)?;
    if let Some(second) = &second {
        second.refuse(&target.graph, &planned, &settings.surroundings)?;
    }
    preflight(&builder, &target.graph, &planned)?;
    let publishing = Publishing::prepare(app, args, &target.graph, &target.settings, target.root.as_deref(), &store)?;
    if planned.iter().any(|p| p.action != Action::Reuse) {
        machine::say_what_is_missing(app);
        if let Some(message) = builder.lacks() {
            app.show_warnings(&Diagnostics(vec![Diagnostic::warning(message)]));
        }
    }

    let expected = history.expected(&target.graph, &planned);
    let session = Session::start(app, args, &store, &target.graph, cancel)?;
    let started = Instant::now();
    let options = Options { jobs: builder.jobs(args.how.jobs, &target.settings), fail_fast: args.how.fail_fast };
    let run = Run {
        planner: &planner,
        engine,
        options: &options,
        sink: &*session.sink,
        cancel: &session.cancel,
        expected: &expected,
    };
    let (results, ahead) = match &publishing {
        None => (run.run(), Tally::default()),
        Some(publishing) => publishing.alongside(&store, &run),
    };
    let interrupted = session.interrupted();
    // What was learned is worth keeping whatever happened; losing it costs time only.
    let kept = table.save(&table_path).and(history.save(&target.graph, &results));
    if let Err(error) = kept {
        session.sink.event(Event::Warning { node: None, message: error.to_string() });
    }
    let mut code = outcome::exit_code(&results, interrupted);
    let mut run_summary = outcome::summary(&target.graph, &results, started.elapsed(), interrupted);
    run_summary.nodes.extend(target.left_out.iter().cloned());
    let mut problem = None;
    if code == 0 {
        match write_outputs(&store, &target, &results, &outputs, &session.cancel) {
            Ok(lines) => run_summary.results = lines,
            Err(error) => problem = Some(error),
        }
        if let (Some(publishing), None) = (&publishing, &problem) {
            let (lines, error) = publishing.push(ahead, &store, &results, &run);
            run_summary.results.extend(lines);
            problem = error;
        }
        if let Some(error) = &problem {
            code = error.kind().exit_code();
            run_summary.not_written = true;
        }
    }
    if let (0, Some(loader)) = (code, &loader) {
        match load::load(loader, &store, &target.graph, &results, &session.cancel) {
            Ok(line) => run_summary.results.push(line),
            Err(error) => {
                code = error.kind().exit_code();
                run_summary.not_written = true;
                problem = Some(error);
            }
        }
    }
    let mut verified = None;
    if let (0, Some(second)) = (code, &second) {
        let verify =
            Verify { planner: &planner, first: &builder, second, sink: &*session.sink, cancel: &session.cancel };
        match verify.run(&results) {
            Ok(report) => {
                code = if report.differs { Kind::Difference.exit_code() } else { 0 };
                verified = Some(report.text);
            }
            Err(error) => {
                code = error.kind().exit_code();
                problem = Some(error.context("what was built could not be verified on the other engine"));
            }
        }
    }
    run_summary.duration = started.elapsed();
    run_summary.logs = Some(session.logs.dir().to_owned());
    let facts =
        record::Facts { name: &session.name, started: &session.started, jobs: options.jobs, expected: &expected };
    let record = record::record(&facts, &target.graph, &results, &run_summary, &session.recorder, &store);
    if let Err(error) = record.to_bytes().and_then(|bytes| store.put_run(&session.name, &bytes)) {
        session.sink.event(Event::Warning { node: None, message: error.to_string() });
    }
    let counters = metrics::Counters::update(&store.state_path(machine::METRICS), &run_summary);
    session.end(args, &run_summary)?;
    let counters = counters?;
    if let Some(file) = &metrics_file {
        files::write(file, metrics::render(&run_summary, &counters, SystemTime::now()).as_bytes())?;
    }
    if let Some(report) = verified {
        app.print(&report)?;
    }
    if let Some(error) = problem {
        app.show_error(&error);
    }
    Ok(code)
}

fn engine_flags(app: &App, args: &Build, target: &Target) -> Result<EngineFlags> {
    let how = &args.how;
    let step_timeout = how
        .step_timeout
        .as_deref()
        .map(|text| limit_of_steps(text).map_err(|why| Error::bad_input(format!("`--step-timeout {text}`: {why}"))));
    Ok(EngineFlags {
        network: how.surroundings.network,
        secrets: secrets(&how.secrets, &app.env)?,
        ssh: agents(&how.ssh, app.env.ssh_auth_sock.as_deref())?,
        entitlements: entitlements(&how.allow, how.surroundings.network, &target.settings)?,
        step_timeout: step_timeout.transpose()?,
        disk_limit: how.disk_limit,
        retries: how.retries,
        registries: args.registries.clone(),
    })
}

/// What is to be built, from a catalogue or from one Dockerfile.
struct Target {
    graph: Graph,
    settings: crate::catalogue::Settings,
    source_date_epoch: Option<i64>,
    warnings: Diagnostics,
    /// What kollage.lock says of things elsewhere.
    locked: BTreeMap<String, Pin>,
    /// Images of the catalogue that this run has nothing to do with.
    left_out: Vec<NodeSummary>,
    /// The directory of the catalogue, or the context of a single Dockerfile.
    root: Option<PathBuf>,
}

impl Target {
    fn load(app: &App, args: &Build) -> Result<Target> {
        if let Some(file) = &args.one.dockerfile {
            return Target::one(app, args, file);
        }
        let workspace = Workspace::load(&app.global, &app.env, &args.select, &args.settings)?;
        let graph = workspace.graph()?;
        let Workspace { catalogue, source_date_epoch, .. } = workspace;
        let left_out = outcome::left_out(&catalogue, &graph);
        let Catalogue { settings, warnings, root, lock, .. } = catalogue;
        let (locked, root) = (lock.remotes, Some(root));
        Ok(Target { graph, settings, source_date_epoch, warnings, locked, left_out, root })
    }

    fn one(app: &App, args: &Build, file: &Path) -> Result<Target> {
        let OneDockerfile { context, names, target, labels, build_contexts, .. } = &args.one;
        let source = SourceFile::new(file, dockerfile(file)?);
        let contexts = contexts(build_contexts)?;
        let root = match context {
            Some(dir) => {
                refuse_remote(dir)?;
                dir.clone()
            }
            None => match file.parent() {
                Some(dir) if !dir.as_os_str().is_empty() => dir.to_owned(),
                _ => PathBuf::from("."),
            },
        };
        let context = Context::open(&root, Some(file))?;
        let overrides = workspace::overrides(&app.env, &Select::default(), &args.settings)?;
        let files = workspace::config_files(&app.env);
        let settings =
            Catalogue::single("image", &source, &root, &overrides, &files).map_err(wrong_definitions)?.settings;
        let mut label_map = BTreeMap::new();
        for text in labels {
            let (name, value) = text.split_once('=').unwrap_or((text, ""));
            if name.is_empty() {
                return Err(Error::bad_input(format!("`--label {text}` has no name before the `=`")));
            }
            label_map.insert(name.to_owned(), value.to_owned());
        }
        let names = names.iter().map(|name| full_name(name)).collect::<Result<Vec<_>>>()?;
        let source_date_epoch = workspace::source_date_epoch(&app.env)?.or(settings.build.source_date_epoch);
        let inputs = Inputs {
            target: target.clone(),
            build_args: workspace::with_epoch(settings.build.build_args.clone(), source_date_epoch),
            platform: Platform::host(),
            contexts: contexts.keys().cloned().collect(),
        };
        let graphs = workspace::platforms(&args.settings, &settings)?.into_iter().map(|platform| {
            let inputs = Inputs { platform, ..inputs.clone() };
            assemble_one(&source, context.clone(), names.clone(), label_map.clone(), &inputs, &contexts)
        });
        let graphs: Result<Vec<Graph>, Diagnostics> = graphs.collect();
        let graph = Graph::side_by_side(graphs.map_err(wrong_definitions)?);
        let (warnings, left_out) = (Diagnostics::default(), Vec::new());
        let (locked, root) = (BTreeMap::new(), Some(root));
        Ok(Target { graph, settings, source_date_epoch, warnings, locked, left_out, root })
    }
}

/// The text of a Dockerfile; `-` is standard input.
fn dockerfile(file: &Path) -> Result<String> {
    let say = || format!("cannot read {}", file.display());
    let bytes = if file == Path::new("-") {
        crate::text::read_stream(io::stdin()).bad_input(|| "cannot read a Dockerfile from standard input".to_owned())?
    } else if std::fs::metadata(file).bad_input(say)?.is_file() {
        crate::text::read(file).bad_input(say)?
    } else {
        return Err(Error::bad_input(say()).cause("it is not a regular file"));
    };
    String::from_utf8(bytes).map_err(|e| not_utf8(file, e.as_bytes()))
}

/// Says where the first byte stands that is no UTF-8.
fn not_utf8(file: &Path, bytes: &[u8]) -> Error {
    let good = std::str::from_utf8(bytes).map_or_else(|e| e.valid_up_to(), str::len);
    let source = SourceFile::new(file, String::from_utf8_lossy(bytes));
    let end = source.text.get(good..).and_then(|rest| rest.chars().next()).map_or(good, |c| good + c.len_utf8());
    let problem = Diagnostic::error("the Dockerfile is not UTF-8").at(&source, good..end);
    let hint = "save it as UTF-8; `iconv -f LATIN1 -t UTF-8` converts an older file";
    wrong_definitions(Diagnostics(vec![problem.label("no character of UTF-8").hint(hint)]))
}

/// A name as it is kept: with a tag, and otherwise as it was written.
fn full_name(name: &str) -> Result<String> {
    let reference: Reference = name.parse().map_err(|e: Error| e.context(format!("`-t {name}` is no image name")))?;
    let _ = reference;
    let last = name.rsplit('/').next().unwrap_or(name);
    Ok(if last.contains(':') { name.to_owned() } else { format!("{name}:latest") })
}

/// Fails in seconds what would otherwise fail after forty minutes: all that is missing at once.
fn preflight(builder: &Builder, graph: &Graph, planned: &[Planned]) -> Result<()> {
    let local = builder.local();
    if planned.iter().all(|p| p.action == Action::Reuse && p.asks.is_empty()) {
        return Ok(());
    }
    let mut problems = builder.engine().preflight();
    let bases = graph.nodes.par_iter().zip(planned).filter_map(|(node, planned)| match &node.kind {
        // Daemons ask registries by themselves, as they were told to.
        NodeKind::Base(BaseSource::Registry { .. }) if !matches!(builder, Builder::Embedded(_)) => None,
        NodeKind::Base(source) if matches!(planned.action, Action::Bootstrap | Action::Pull) => {
            local.base_preflight(source, &node.platform).err()
        }
        _ => None,
    });
    problems.extend(bases.collect::<Vec<_>>());
    for planned in planned {
        for ask in &planned.asks {
            if let Err(error) = local.fetch_preflight(&ask.remote)
                && !problems.iter().any(|known| known.message() == error.message())
            {
                problems.push(error);
            }
        }
    }
    let mut problems = problems.into_iter();
    match problems.next() {
        None => Ok(()),
        Some(first) => Err(problems.fold(first, |all, next| {
            let hint = next.hint_text().map(|h| format!(" ({h})")).unwrap_or_default();
            all.cause(format!("and {next}{hint}"))
        })),
    }
}

/// Where a run is shown and recorded, and how it is told to stop.
struct Session {
    name: String,
    /// RFC 3339.
    started: String,
    sink: Arc<dyn Sink>,
    progress: Arc<dyn Progress>,
    logs: Arc<LogDir>,
    recorder: Arc<Recorder>,
    cancel: Cancel,
    signalled: Arc<std::sync::atomic::AtomicUsize>,
}

impl Session {
    fn start(app: &App, args: &Build, store: &Store, graph: &Graph, cancel: Cancel) -> Result<Session> {
        let clock = Clock::start();
        let now = jiff::Timestamp::try_from(SystemTime::now()).unwrap_or_default();
        let name = run_name(now);
        let dir = match &args.results.logs_dir {
            Some(dir) => dir.clone(),
            None => store.logs_dir().join(&name),
        };
        let logs = Arc::new(LogDir::new(dir, clock.clone())?);
        let mode = args.results.progress.mode(&app.env)?;
        let mut options = progress::Options::new(app.look);
        options.clock = clock.clone();
        options.logs = Some(logs.dir().to_owned());
        options.detail = if args.results.verbose { Detail::Full } else { Detail::Short };
        options.name_width = graph.nodes.iter().map(|n| n.name.chars().count()).max().unwrap_or(0);
        let progress = progress::start(app.facts.resolve(mode), Box::new(io::stderr()), App::size(), options);
        let shown: Arc<dyn Sink> = progress.clone();
        let recorder = Arc::new(Recorder::new(clock));
        let sink: Arc<dyn Sink> = Arc::new(Tee::new(vec![shown, logs.clone(), recorder.clone()]));
        let signalled = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let (count, told) = (signalled.clone(), sink.clone());
        signals::watch(&cancel, move |n| {
            count.store(n, std::sync::atomic::Ordering::SeqCst);
            let message = match n {
                1 => "stopping: what runs is ended, what is finished is kept; once more stops at once",
                _ => "stopping at once",
            };
            told.event(Event::Warning { node: None, message: message.into() });
        })?;
        let started = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        Ok(Session { name, started, sink, progress, logs, recorder, cancel, signalled })
    }

    fn interrupted(&self) -> bool {
        self.signalled.load(std::sync::atomic::Ordering::SeqCst) > 0
    }

    fn end(&self, args: &Build, run: &RunSummary) -> Result<()> {
        if let Some(problem) = self.logs.problem() {
            self.sink.event(Event::Warning { node: None, message: problem.to_string() });
        }
        self.progress.finish(run);
        if let Some(path) = &args.results.summary_json_file {
            summary::write_json(run, path)?;
        }
        if let Some(path) = &args.results.metadata_file {
            summary::write_metadata(run, path)?;
        }
        Ok(())
    }
}

/// `20261129T193600Z-1234`: sorts by time, and two runs never share one.
fn run_name(now: jiff::Timestamp) -> String {
    format!("{}-{}", now.strftime("%Y%m%dT%H%M%SZ"), std::process::id())
}

/// Writes the selected images, and says where they are.
fn write_outputs(
    store: &Store,
    target: &Target,
    results: &[NodeResult],
    outputs: &[Output],
    cancel: &Cancel,
) -> Result<Vec<String>> {
    let mut images = Vec::new();
    for (node, result) in target.graph.nodes.iter().zip(results) {
        if !node.selected {
            continue;
        }
        let (Some(spec), Some(published)) = (node.spec(), &result.published) else { continue };
        for name in &spec.names {
            images.push(ExportImage { name: name.parse()?, manifest: published.digest.clone() });
        }
        if spec.names.is_empty() && !has_plugin(&target.graph, node) {
            images.push(ExportImage { name: NAMELESS.parse()?, manifest: published.digest.clone() });
        }
    }
    let mut lines = Vec::new();
    for output in outputs {
        let lost = archive::export(store, &images, output, target.source_date_epoch, cancel)?;
        let line = format!("{} {}", output.format, output.dest.display());
        lines.push(lost.map_or(line.clone(), |lost| format!("{line} ({lost})")));
    }
    Ok(lines)
}

/// Stands where a name is needed for something that has none and shows none.
const NAMELESS: &str = "image:latest";

/// An image, or a plugin, below a plugin has no name because what is above it has it.
fn has_plugin(graph: &Graph, node: &Node) -> bool {
    let is_above = |n: &Node| n.needs.iter().any(|edge| graph.node(edge.to).name == node.name);
    graph.nodes.iter().any(|n| matches!(&n.kind, NodeKind::Plugin { .. }) && is_above(n))
}

/// Images for several platforms can only go where an image can be one of them all.
fn refuse_platforms(graph: &Graph, outputs: &[Output]) -> Result<()> {
    match outputs.iter().find(|output| !output.format.holds_platforms()) {
        Some(output) if graph.platforms().len() > 1 => {
            Err(Error::bad_input(format!("`-o type={}` holds one platform", output.format))
                .hint("give one with `--platform`, or write type=oci"))
        }
        _ => Ok(()),
    }
}

/// A Dockerfile built without `-t` can only go where images have no names.
fn refuse_nameless(graph: &Graph, outputs: &[Output]) -> Result<()> {
    match outputs.iter().find(|o| o.format.holds_several() && o.name.is_none()) {
        Some(output) => need_names(graph, &output.format.to_string()),
        None => Ok(()),
    }
}

/// Refuses an output that only images with names can have.
pub(super) fn need_names(graph: &Graph, format: &str) -> Result<()> {
    let is_nameless = |node: &Node| node.spec().is_some_and(|s| s.names.is_empty()) && !has_plugin(graph, node);
    match graph.nodes.iter().any(|node| node.selected && is_nameless(node)) {
        true => Err(Error::bad_input(format!("`-o type={format}` needs a name for the image"))
            .hint("give it one with `-t NAME[:TAG]`")),
        false => Ok(()),
    }
}
