//! Inputs made to do harm, each given to the real program: archives, images, registries, Dockerfiles, contexts,
//! definitions. Every one of them is refused with a clear error or contained, within a bound of memory and of time,
//! without a panic, and without a trace outside of the image.
//!
//!     cargo test --test hostile
//!
//! `KOLLAGE_HOSTILE=word` takes the rows with that word in them, and shows what the program said;
//! `KOLLAGE_HOSTILE_TABLE=docs/hostile-input.md` writes the table.

// Clippy takes helpers of tests for production code.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

mod archives;
mod catalogues;
mod contexts;
mod docker_archives;
mod dockerfiles;
mod layers;
mod layouts;
mod pack;
mod place;
mod registries;
mod table;

use place::Place;
use table::Row;

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/hostile-input.md");

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[test]
fn hostile_input_is_refused_or_contained() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: nothing is tried");
        return;
    }
    let all: Vec<Row> = [
        archives::rows(),
        layers::rows(),
        layouts::rows(),
        docker_archives::rows(),
        registries::rows(),
        dockerfiles::rows(),
        contexts::rows(),
        catalogues::rows(),
    ]
    .into_iter()
    .flatten()
    .collect();
    let filter = variable("KOLLAGE_HOSTILE").unwrap_or_default();
    let rows: Vec<&Row> = all.iter().filter(|row| row.group.contains(&filter) || row.input.contains(&filter)).collect();
    assert!(!rows.is_empty(), "no row has that word");
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(row) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let place = Place::new();
                    let ran = (row.attempt)(&place);
                    if !filter.is_empty() {
                        eprintln!("--- {}: {}\nexit code {}\n{}", row.group, row.input, ran.code, ran.stderr);
                    }
                    if let Err(why) = row.judge(&place, &ran) {
                        let why = format!("{}: {}: {why}\n{}", row.group, row.input, ran.stderr);
                        eprintln!("WRONG {why}");
                        wrong.lock().unwrap().push(why);
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} of {} rows:\n\n{}", wrong.len(), rows.len(), wrong.join("\n\n"));
    let table = table::markdown(&all);
    if let Some(path) = variable("KOLLAGE_HOSTILE_TABLE") {
        std::fs::write(path, &table).unwrap();
    }
    if filter.is_empty() {
        let written = std::fs::read_to_string(TABLE).unwrap_or_default();
        assert!(written == table, "{TABLE} is out of date; KOLLAGE_HOSTILE_TABLE={TABLE} writes it");
    }
}
