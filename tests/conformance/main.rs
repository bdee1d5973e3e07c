//! Shows that a Dockerfile means here what it means in Docker: builds every case with Kollage and compares file tree and
//! configuration with what Docker made of it, which is stored beside the case. See README.md in this folder.

// Clippy takes helpers of tests for production code.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

mod base;
mod build;
mod case;
mod compare;
mod files;
mod image;
mod public;
mod rootless;
mod server;
mod table;
mod tree;
#[path = "../user/mod.rs"]
mod user;

use build::{Docker, Place};
use case::{Case, Outcome, Recorded};
use compare::Verdict;
use rootless::Ids;
use user::User;

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance/cases");
const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/conformance.md");

const ROOTLESS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/rootless.md");

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[test]
fn a_dockerfile_means_what_it_means_in_docker() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: no case is built");
        return;
    }
    let filter = variable("KOLLAGE_CONFORMANCE").unwrap_or_default();
    let cases = case::load(Path::new(CASES), &filter);
    assert!(!cases.is_empty(), "no case has that name");
    let dir = work_dir();
    let bases = base::Bases::make(dir.path());
    let server = server::Server::start(dir.path());
    let place = Place { base: bases.compared(), bases, server, dir: dir.path().to_owned(), user: None };

    match variable("KOLLAGE_CONFORMANCE_REFRESH").as_deref() {
        None => {}
        Some("own") => return record_own(&place, &cases),
        Some(which) => return record(&place, &cases, which == "missing"),
    }

    let verdicts = in_parallel(&cases, |case| compare::judge(&place, case));
    let table = table::markdown(&cases, &verdicts);
    if let Some(path) = variable("KOLLAGE_CONFORMANCE_TABLE") {
        std::fs::write(path, &table).unwrap();
    }
    eprint!("{}", table::summary(&cases, &verdicts));
    let wrong = verdicts.iter().filter(|v| matches!(v, Verdict::Wrong(_))).count();
    if variable("KOLLAGE_CONFORMANCE_KEEP").is_some() {
        eprintln!("kept: {}", dir.keep().display());
    }
    assert_eq!(wrong, 0, "{wrong} of {} cases differ from Docker", cases.len());
    if filter.is_empty() {
        let written = std::fs::read_to_string(TABLE).unwrap_or_default();
        assert!(written == table, "{TABLE} is out of date; KOLLAGE_CONFORMANCE_TABLE={TABLE} writes it");
    }
}

#[test]
#[ignore = "needs clones of other projects, a network and Docker; see README.md"]
fn dockerfiles_of_other_projects_come_to_the_same() {
    public::compare();
}

#[test]
fn it_means_the_same_to_a_user_with_a_range_of_ids() {
    as_user(Ids::Range);
}

#[test]
fn it_means_the_same_to_a_user_with_a_single_id() {
    as_user(Ids::Single);
}

/// The same cases, called by an ordinary user; what comes out otherwise is in rootless.toml, with why.
fn as_user(ids: Ids) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: no other user can be made");
        return;
    }
    let only = variable("KOLLAGE_CONFORMANCE_IDS");
    if only.is_some_and(|only| only != ids.name()) || variable("KOLLAGE_CONFORMANCE_REFRESH").is_some() {
        return;
    }
    let cases = case::load(Path::new(CASES), &variable("KOLLAGE_CONFORMANCE").unwrap_or_default());
    let dir = work_dir();
    let bases = base::Bases::make(dir.path());
    let user = Some((User::new(dir.path(), ids.ranges(), ids.ranges(), ""), ids));
    let server = server::Server::start(dir.path());
    let place = Place { base: bases.compared(), bases, server, dir: dir.path().to_owned(), user };
    let verdicts = in_parallel(&cases, |case| compare::judge(&place, case));
    eprint!("{} ids: {}", ids.name(), table::summary(&cases, &verdicts));
    if variable("KOLLAGE_CONFORMANCE_KEEP").is_some() {
        eprintln!("kept: {}", dir.keep().display());
    }
    let wrong = verdicts.iter().filter(|v| matches!(v, Verdict::Wrong(_))).count();
    assert_eq!(wrong, 0, "{wrong} of {} cases differ for an ordinary user", cases.len());
}

#[test]
fn the_table_of_what_differs_for_users_is_current() {
    const BEGIN: &str = "<!-- written by cargo test --test conformance -->\n";
    const END: &str = "<!-- end -->\n";
    let excuses = rootless::excuses();
    let cases = case::load(Path::new(CASES), "");
    for name in excuses.iter().flat_map(|e| &e.cases) {
        assert!(cases.iter().any(|case| case.name == *name), "rootless.toml names `{name}`, which is no case");
    }
    let table = table::rootless(&excuses);
    let text = std::fs::read_to_string(ROOTLESS).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (written, after) = rest.split_once(END).unwrap();
    if variable("KOLLAGE_CONFORMANCE_TABLE").is_some() {
        std::fs::write(ROOTLESS, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
    } else {
        assert!(written == table, "{ROOTLESS} is out of date; KOLLAGE_CONFORMANCE_TABLE=docs/conformance.md writes it");
    }
}

/// In memory where that is possible: what a store writes is synced, some thousand times here.
fn work_dir() -> tempfile::TempDir {
    let mut builder = tempfile::Builder::new();
    builder.prefix("kollage-conformance-");
    builder.tempdir_in("/dev/shm").or_else(|_| builder.tempdir()).unwrap()
}

/// Asks Docker again what each case comes to.
fn record(place: &Place, cases: &[Case], only_missing: bool) {
    let docker = Docker::start(&place.bases);
    let cases: Vec<_> = cases.iter().filter(|case| !only_missing || case.expected().is_none()).collect();
    let wrong = in_parallel(&cases, |case| {
        let outcome = docker.build(place, case);
        let wrong = match (&outcome, case.settings.error) {
            (Outcome::Error(reason), false) => Some(format!("{}: Docker refuses it: {reason}", case.name)),
            (Outcome::Image(_), true) => Some(format!("{}: Docker builds it", case.name)),
            _ => None,
        };
        let with = if case.settings.newer_frontend { " with a newer frontend" } else { "" };
        case.record(&Recorded { docker: format!("{}{with}", docker.version), outcome });
        wrong
    });
    let wrong: Vec<_> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "recorded, but not what case.toml says:\n{}", wrong.join("\n"));
}

/// Pins what Kollage makes of the cases that are meant to differ.
fn record_own(place: &Place, cases: &[Case]) {
    for case in cases.iter().filter(|case| case.settings.differs.is_some()) {
        let built = build::kollage(place, case);
        match built.outcome {
            Outcome::Image(_) => case.record_own(&built.outcome),
            Outcome::Error(_) => case.record_own(&Outcome::Error(format!("exit code {}", built.code))),
        }
    }
}

fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(2, usize::from) * 2;
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((at, item)) =
                    Some(next.fetch_add(1, Ordering::SeqCst)).and_then(|i| Some((i, items.get(i)?)))
                {
                    let result = work(item);
                    done.lock().unwrap().push((at, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap();
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}
