//! `kollage doctor`: what of this machine works, and how to mend what doesn't.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::catalogue::check_text;
use crate::cli::App;
use crate::cli::args::{Doctor, TextOrJson};
use crate::cli::environment::Environment;
use crate::cli::machine;
use crate::cli::workspace::{config_files, store_path};
use crate::diag::Severity;
use crate::engine::embedded::lend::{TrustPaths, extra_authorities};
use crate::engine::embedded::{EmbeddedEngine, Options};
use crate::engine::{BaseSource, Bootstrap, Engine as _};
use crate::error::{Error, Kind, Result};
use crate::image::space::Space;
use crate::registry::Credentials;
use crate::report::human;
use crate::report::style::Paint;
use crate::report::text;
use crate::userns;

/// A store with less is worth a word, although a small build fits.
const LITTLE: u64 = 10 << 30;

pub fn run(app: &App, args: &Doctor) -> Result<u8> {
    let mut findings = Vec::new();
    if !rustix::process::geteuid().is_root() {
        // When it succeeds, this is where the program begins once more, as root of the namespace.
        let Err(error) = userns::enter();
        findings.push(Finding::failed("user", &error));
    }
    if findings.is_empty() {
        findings.push(user());
    }
    store_and_engine(app, &mut findings);
    findings.push(bootstrap());
    findings.push(git(&app.env));
    findings.push(logins(&app.env));
    findings.push(certificates());
    findings.push(proxy(&app.env));
    findings.extend(settings(&app.env));
    match args.format {
        TextOrJson::Json => {
            app.print_json(&Value::Array(findings.iter().map(Finding::json).collect()))?;
        }
        TextOrJson::Text => {
            let text: String = findings.iter().map(|finding| finding.text(app)).collect();
            app.print(&text)?;
        }
    }
    let bad = findings.iter().filter(|finding| finding.state == State::Fail).count();
    if bad > 0 {
        app.say(&format!("{} to be mended before this machine can build", human::count(bad, "thing")));
        return Ok(Kind::Unusable.exit_code());
    }
    Ok(0)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ok,
    /// Something cannot be done that many never need.
    Warn,
    Fail,
}

impl State {
    fn as_str(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Warn => "warn",
            State::Fail => "fail",
        }
    }
}

struct Finding {
    what: &'static str,
    state: State,
    says: String,
    hint: Option<String>,
}

impl Finding {
    fn ok(what: &'static str, says: impl Into<String>) -> Finding {
        Finding { what, state: State::Ok, says: says.into(), hint: None }
    }

    fn failed(what: &'static str, error: &Error) -> Finding {
        let says = [&[error.message().to_owned()], error.causes()].concat().join(": ");
        Finding { what, state: State::Fail, says, hint: error.hint_text().map(str::to_owned) }
    }

    /// What is needed for some catalogues only.
    fn missing(what: &'static str, error: &Error) -> Finding {
        Finding { state: State::Warn, ..Finding::failed(what, error) }
    }

    fn json(&self) -> Value {
        json!({"check": self.what, "state": self.state.as_str(), "says": self.says, "hint": self.hint})
    }

    fn text(&self, app: &App) -> String {
        let paint = match self.state {
            State::Ok => Paint::Done,
            State::Warn => Paint::Warning,
            State::Fail => Paint::Failed,
        };
        let (look, _) = app.table_look();
        let state = look.paint(paint, format!("{:<4}", self.state.as_str()));
        let says = text::one_line(&self.says);
        let mut out = format!("{state}  {}  {says}\n", look.paint(Paint::Strong, format!("{:<12}", self.what)));
        if let Some(hint) = &self.hint {
            out.push_str(&format!("{:20}{}\n", "", look.paint(Paint::Hint, text::one_line(hint))));
        }
        out
    }
}

fn user() -> Finding {
    let here = userns::current();
    if here.is_initial() {
        return Finding::ok("user", "root");
    }
    if here.is_single() {
        return Finding {
            what: "user",
            state: State::Warn,
            says: "an ordinary user without a range of ids: steps run as root only, and nothing is bootstrapped".into(),
            hint: Some(format!("as root: `{}`, and install uidmap", userns::RANGES)),
        };
    }
    Finding::ok("user", "an ordinary user with a range of ids (/etc/subuid, newuidmap)")
}

/// What the engine needs is found in a store, so that a store that can't be used is told first.
fn store_and_engine(app: &App, findings: &mut Vec<Finding>) {
    let opened = store_path(&app.global, &app.env).and_then(|path| machine::open_store(&path));
    let store = match opened {
        Ok(store) => store,
        Err(error) => {
            findings.push(Finding::failed("store", &error));
            return;
        }
    };
    let root = store.root().display().to_string();
    findings.push(match Space::of(store.root()) {
        Err(error) => Finding::failed("store", &error),
        Ok(space) if space.free < LITTLE => Finding {
            what: "store",
            state: State::Warn,
            says: format!("{root} has {} free; a family of large images wants more", human::size(space.free)),
            hint: Some("`kollage store prune` frees space; `--store DIR` takes another file system".into()),
        },
        Ok(space) => Finding::ok("store", format!("{root}, {} free", human::size(space.free))),
    });
    let problems = EmbeddedEngine::new(store, Options::default()).preflight();
    if problems.is_empty() {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let says = format!("embedded: overlays, namespaces and filters of system calls work (Linux {release})");
        findings.push(Finding::ok("engine", says));
    }
    findings.extend(problems.iter().map(|problem| Finding::failed("engine", problem)));
}

fn bootstrap() -> Finding {
    let wanted = BaseSource::Bootstrap(Bootstrap {
        distribution: "debian".into(),
        suite: "bookworm".into(),
        mirror: None,
        components: Vec::new(),
        keyring: None,
        variant: "minbase".into(),
        packages: Vec::new(),
        snapshot: None,
    });
    match crate::engine::embedded::base_preflight(&wanted) {
        Ok(()) => Finding::ok("bootstrap", "Debian bases can be made from packages"),
        Err(error) => Finding::missing("bootstrap", &error),
    }
}

fn git(env: &Environment) -> Finding {
    let dirs: Vec<PathBuf> = env.path.as_ref().map(|path| std::env::split_paths(path).collect()).unwrap_or_default();
    match dirs.iter().map(|dir| dir.join("git")).find(|path| path.is_file()) {
        Some(path) => Finding::ok("git", path.display().to_string()),
        None => Finding::missing(
            "git",
            &Error::unusable("not there; it is needed where a Dockerfile names a repository")
                .hint("apt-get install git"),
        ),
    }
}

fn logins(env: &Environment) -> Finding {
    let files = machine::auth_files(env);
    if let Err(error) = Credentials::load(&files) {
        return Finding::failed("registries", &error);
    }
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    match names.as_slice() {
        [] => Finding::ok("registries", "no logins; images are pulled as by anybody"),
        names => Finding::ok("registries", format!("logins in {}", names.join(", "))),
    }
}

fn certificates() -> Finding {
    match extra_authorities(&TrustPaths::default()) {
        Err(error) => Finding::failed("certificates", &error),
        Ok(None) => Finding::ok("certificates", "none besides those that distributions ship; nothing is lent to steps"),
        Ok(Some(path)) => {
            Finding::ok("certificates", format!("authorities of this machine's own, lent to steps: {}", path.display()))
        }
    }
}

/// Names only: an address can have a password in it.
fn proxy(env: &Environment) -> Finding {
    let names: Vec<&str> = env.proxy.iter().map(|(name, _)| name.as_str()).collect();
    match names.as_slice() {
        [] => Finding::ok("proxy", "none"),
        names => Finding::ok("proxy", format!("lent to steps: {}", names.join(", "))),
    }
}

/// The files that count for every catalogue, where they are.
fn settings(env: &Environment) -> Vec<Finding> {
    let files = config_files(env);
    let there = |path: &Path| path.exists();
    [files.system, files.user].into_iter().flatten().filter(|path| there(path)).map(|path| judged(&path)).collect()
}

fn judged(path: &Path) -> Finding {
    let text = match crate::text::read_to_string(path) {
        Ok(text) => text,
        Err(e) => {
            return Finding::failed("settings", &Error::unusable(format!("cannot read {}", path.display())).cause(e));
        }
    };
    let problems = check_text("kollage.toml", &text);
    match problems.0.iter().find(|problem| problem.severity == Severity::Error) {
        None => Finding::ok("settings", path.display().to_string()),
        Some(problem) => Finding {
            what: "settings",
            state: State::Fail,
            says: format!("{}: {}", path.display(), problem.message),
            hint: problem.hint.clone(),
        },
    }
}
