//! `kollage deploy render|up|down|status`

use std::collections::BTreeMap;
use std::io::{self, Write as _};

use serde_json::{Value, json};

use crate::catalogue::{Catalogue, names};
use crate::cli::App;
use crate::cli::args::{
    self, AtHost, DeployCommand, DeployDown, DeployRender, DeployStatus, DeployTarget, DeployTask, DeployUp, Select,
    TextOrJson,
};
use crate::cli::machine;
use crate::cli::signals;
use crate::cli::workspace::{catalogue_root, config_files, overrides, wrong_definitions};
use crate::daemon;
use crate::deploy::engine::Engine;
use crate::deploy::files::{Change, Kind};
use crate::deploy::plan::Step;
use crate::deploy::run::{Host, State, Status};
use crate::deploy::{self, BundleBy, Deployment, Known, KnownImage, Target};
use crate::error::{Error, Kind as ErrorKind, Result};
use crate::event::{Cancel, Event, Sink};
use crate::registry::credentials::Credentials;
use crate::report::human;
use crate::report::style::{Look, Paint};
use crate::report::table::{Cell, Table};
use crate::report::text::one_line;
use crate::start::Definitions;
use crate::suggest;

pub fn run(app: &App, command: &DeployCommand) -> Result<u8> {
    match command {
        DeployCommand::Render(args) => render(app, args),
        DeployCommand::Up(args) => up(app, args),
        DeployCommand::Down(args) => down(app, args),
        DeployCommand::Status(args) => status(app, args),
        DeployCommand::Task(args) => task(app, args),
    }
}

fn load(app: &App, args: &args::Deployment) -> Result<Deployment> {
    let root = catalogue_root(&app.global)?;
    let mut images = BTreeMap::new();
    // One that has start definitions alone deploys images from elsewhere.
    if root.join("images").is_dir() {
        let overrides = overrides(&app.env, &Select::default(), &args.settings)?;
        let catalogue = Catalogue::load(&root, &overrides, &config_files(&app.env)).map_err(wrong_definitions)?;
        let known = |image: &str, start| KnownImage { reference: catalogue.image_ref(image), start };
        images.extend(catalogue.images.iter().map(|(name, image)| (name.clone(), known(name, image.start.clone()))));
    }
    let services = Definitions::load(&root)?;
    deploy::load(&args.file, &Known { services: &services, images: &images })
}

fn render(app: &App, args: &DeployRender) -> Result<u8> {
    let deployment = load(app, &args.deployment)?;
    let target = match (args.target, args.bundle_by_init) {
        (DeployTarget::Compose, _) => Target::Compose,
        (DeployTarget::Quadlet, _) => Target::Quadlet,
        (DeployTarget::Kubernetes, false) => Target::Kubernetes(BundleBy::Volume),
        (DeployTarget::Kubernetes, true) => Target::Kubernetes(BundleBy::Init),
    };
    let rendering = deploy::render(&deployment, target);
    if args.check || args.diff {
        let changes = rendering.changes(&args.output)?;
        if args.diff {
            app.print(&changes.iter().map(|change| change.diff.as_str()).collect::<String>())?;
        }
        return Ok(match changes.is_empty() {
            true => 0,
            false => {
                app.say(&format!("{} in {}: {}", differ(&changes), args.output.display(), paths(&changes)));
                ErrorKind::Difference.exit_code()
            }
        });
    }
    let changes = rendering.write(&args.output)?;
    let unchanged = rendering.files.len() - changes.iter().filter(|change| change.kind != Kind::Gone).count();
    for change in &changes {
        let word = match change.kind {
            Kind::New | Kind::Changed => "wrote",
            Kind::Gone => "removed",
        };
        app.say(&format!("{word} {}", args.output.join(&change.path).display()));
    }
    if unchanged > 0 {
        app.say(&format!("{} unchanged", human::count(unchanged, "file")));
    }
    for note in &rendering.notes {
        app.say(note);
    }
    Ok(0)
}

fn differ(changes: &[Change]) -> String {
    let verb = if changes.len() == 1 { "differs" } else { "differ" };
    format!("{} {verb}", human::count(changes.len(), "file"))
}

fn paths(changes: &[Change]) -> String {
    let (shown, rest) = changes.split_at(changes.len().min(5));
    let mut names: Vec<String> = shown.iter().map(|change| change.path.clone()).collect();
    if !rest.is_empty() {
        names.push(format!("{} more", rest.len()));
    }
    names.join(", ")
}

/// Shows steps as lines.
struct Lines {
    look: Look,
}

impl Sink for Lines {
    fn event(&self, event: Event) {
        let line = match event {
            Event::StepStarted { node, step, steps, title } => {
                let number = self.look.paint(Paint::Dim, format!("[{}/{steps}]", step + 1));
                format!("{number} {}: {}", self.look.paint(Paint::Strong, node), one_line(&title))
            }
            Event::Output { line, .. } => format!("    {}", self.look.paint(Paint::Dim, one_line(&line))),
            Event::Warning { node, message } => {
                let node = node.map(|node| format!("{node}: ")).unwrap_or_default();
                format!("{} {node}{}", self.look.paint(Paint::Warning, "warning:"), one_line(&message))
            }
            _ => return,
        };
        // Nothing can be done about a closed stream.
        let _ = writeln!(io::stderr(), "{line}");
    }
}

/// Runs something with an engine that Ctrl-C ends cleanly.
fn with_host<T>(
    app: &App,
    at: &AtHost,
    deployment: &Deployment,
    act: impl FnOnce(&Host<'_>) -> Result<T>,
) -> Result<T> {
    let cancel = Cancel::new()?;
    signals::watch(&cancel, |count| {
        if count == 1 {
            let _ = writeln!(io::stderr(), "stopping; what was done stays done");
        }
    })?;
    let endpoint = daemon::find(at.host.as_deref(), &app.env.daemon())?;
    let engine = Engine::connect(endpoint, &cancel)?;
    let lookup = |name: &str| app.env.named(name);
    let credentials = Credentials::load(&machine::auth_files(&app.env))?;
    let credentials = credentials.with_path(app.env.path.clone().unwrap_or_default());
    let sink = Lines { look: app.look };
    act(&Host { deployment, engine: &engine, lookup: &lookup, credentials: &credentials, sink: &sink, cancel: &cancel })
}

fn up(app: &App, args: &DeployUp) -> Result<u8> {
    let deployment = load(app, &args.deployment)?;
    let services = &args.running.services;
    if args.dry_run {
        let steps = with_host(app, &args.running.engine, &deployment, |host| host.plan(services))?;
        return app.print(&listed(&deployment, &steps)).map(|()| 0);
    }
    match with_host(app, &args.running.engine, &deployment, |host| host.up(services))? {
        0 => app.say("all is as the deployment says; nothing was touched"),
        count => app.say(&format!("{} done", human::count(count, "step"))),
    }
    Ok(0)
}

fn listed(deployment: &Deployment, steps: &[Step]) -> String {
    if steps.is_empty() {
        return "nothing: all is as the deployment says\n".into();
    }
    let line = |step: &Step| format!("{}: {}\n", step.service.as_ref().unwrap_or(&deployment.name), step.title);
    steps.iter().map(line).collect()
}

fn down(app: &App, args: &DeployDown) -> Result<u8> {
    let deployment = load(app, &args.deployment)?;
    match with_host(app, &args.running.engine, &deployment, |host| host.down(&args.running.services, args.volumes))? {
        0 => app.say("there was nothing to be removed"),
        count => app.say(&format!("{} done", human::count(count, "step"))),
    }
    Ok(0)
}

fn task(app: &App, args: &DeployTask) -> Result<u8> {
    let deployment = load(app, &args.deployment)?;
    let start = deployment.service(&args.service).map(|service| service.start.clone());
    let mut more = BTreeMap::new();
    for text in &args.environment {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text.as_str(), None),
        };
        names::env(name).map_err(|why| Error::bad_input(format!("`{name}` is not a name of a variable: {why}")))?;
        let known = start.as_ref().and_then(|start| start.variables.get(name));
        let value = match value {
            Some(_) if known.is_some_and(|variable| variable.secret) => {
                return Err(Error::bad_input(format!("{name} is a secret, whose value others can see in a command"))
                    .hint(format!("export {name}, and write `-e {name}`")));
            }
            Some(value) => value,
            None => app.env.named(name).and_then(|value| value.into_string().ok()).ok_or_else(|| {
                Error::bad_input(format!("{name} isn't set in the environment"))
                    .hint(format!("write `-e {name}=VALUE`"))
            })?,
        };
        if let Some(start) = &start
            && known.is_none()
            && let Some(hint) = suggest::near(name, start.variables.keys().map(String::as_str))
        {
            return Err(Error::bad_input(format!("{} has no variable {name}", start.name)).hint(hint));
        }
        more.insert(name.to_owned(), value);
    }
    with_host(app, &args.engine, &deployment, |host| host.task(&args.service, &args.task, more))?;
    app.say(&format!("{}: the task {} is done", args.service, args.task));
    Ok(0)
}

fn status(app: &App, args: &DeployStatus) -> Result<u8> {
    let deployment = load(app, &args.deployment)?;
    let all = with_host(app, &args.running.engine, &deployment, |host| host.status(&args.running.services))?;
    if args.format == TextOrJson::Json {
        let rows = all.iter().map(|one| {
            json!({
                "service": one.service,
                "image": one.image,
                "state": state(one.state),
                "health": one.health,
                "changed": one.changed,
            })
        });
        app.print_json(&Value::Array(rows.collect()))?;
        return Ok(0);
    }
    let mut table = Table::with_heading(&["service", "state", "health", "up would change", "image"]);
    for one in &all {
        let paint = match one.state {
            State::Runs => Paint::Done,
            State::Absent => Paint::Dim,
            State::Restarts | State::Ended(_) => Paint::Failed,
        };
        table.row([
            Cell::new(&one.service).paint(Paint::Strong),
            Cell::new(state(one.state)).paint(paint),
            Cell::new(one.health.as_deref().unwrap_or("")),
            Cell::new(would_change(one)),
            Cell::new(&one.image).paint(Paint::Dim),
        ]);
    }
    let (look, width) = app.table_look();
    app.print(&table.render(look, width))?;
    Ok(0)
}

fn would_change(one: &Status) -> String {
    match one.state {
        State::Absent => "start it".into(),
        _ => one.changed.join(", "),
    }
}

fn state(state: State) -> String {
    match state {
        State::Absent => "not there".into(),
        State::Runs => "runs".into(),
        State::Restarts => "starts again and again".into(),
        State::Ended(code) => format!("ended ({code})"),
    }
}
