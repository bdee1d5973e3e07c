//! `kollage report`: runs that were, as a page or a list.

use std::path::Path;

use serde_json::{Value, json};

use crate::cli::App;
use crate::cli::args::{Report, TableFormat};
use crate::cli::machine;
use crate::cli::workspace::store_path;
use crate::error::{Error, Result};
use crate::image::store::Store;
use crate::report::record::RunRecord;
use crate::report::style::Paint;
use crate::report::summary::Group;
use crate::report::table::{Cell, Table};
use crate::report::{files, html, human, markdown};
use crate::suggest;

/// The one that was the last.
const LAST: &str = "last";

pub fn run(app: &App, args: &Report) -> Result<u8> {
    let store = machine::open_store(&store_path(&app.global, &app.env)?)?;
    if args.list {
        return list(app, &store, args.format);
    }
    let name = find(&store, args.run.as_deref().unwrap_or(LAST))?;
    let record = RunRecord::from_bytes(&name, &store.read_run(&name)?)?;
    match args.format {
        TableFormat::Text => {}
        TableFormat::Json => {
            let value = serde_json::to_value(&record).map_err(|e| Error::failed("cannot write JSON").cause(e))?;
            app.print_json(&value)?;
            return Ok(0);
        }
        TableFormat::Markdown => {
            app.print(&markdown::run(&record))?;
            return Ok(0);
        }
    }
    let page = html::render(&record)?;
    if args.output == Path::new("-") {
        app.print(&page)?;
        return Ok(0);
    }
    files::write(&args.output, page.as_bytes())?;
    app.say(&format!("the run {name} is in {}", args.output.display()));
    Ok(0)
}

/// A whole name, `last`, or the beginning of just one.
fn find(store: &Store, wanted: &str) -> Result<String> {
    let runs = store.runs()?;
    let Some(last) = runs.last() else {
        return Err(Error::bad_input(format!("no run is recorded in {}", store.root().display()))
            .hint("`kollage build` records each run"));
    };
    if wanted == LAST {
        return Ok(last.clone());
    }
    let begin: Vec<&String> = runs.iter().filter(|run| run.starts_with(wanted)).collect();
    match begin.as_slice() {
        _ if runs.iter().any(|run| run == wanted) => Ok(wanted.to_owned()),
        [one] if !wanted.is_empty() => Ok((*one).clone()),
        [] => {
            let error = Error::bad_input(format!("no run `{wanted}` is recorded"));
            let near = suggest::near(wanted, runs.iter().map(String::as_str));
            Err(error.hint(near.unwrap_or_else(|| "`kollage report --list` shows those that are".into())))
        }
        several => Err(Error::bad_input(format!("`{wanted}` is the beginning of {} runs", several.len()))
            .hint("`kollage report --list` shows them")),
    }
}

fn list(app: &App, store: &Store, format: TableFormat) -> Result<u8> {
    let mut table = Table::with_heading(&["run", "started", "time", "built", "reused", "failed", "left out", ""])
        .right(2)
        .right(3)
        .right(4)
        .right(5)
        .right(6);
    let mut values: Vec<Value> = Vec::new();
    for name in store.runs()? {
        let record = match RunRecord::from_bytes(&name, &store.read_run(&name)?) {
            Ok(record) => record,
            Err(error) => {
                app.say(&format!("{error}"));
                continue;
            }
        };
        let count = |group| record.count(group);
        let left_out = count(Group::Skipped) + count(Group::Cancelled);
        let number = |n: usize, paint| Cell::new(n.to_string()).paint(if n > 0 { paint } else { Paint::Dim });
        table.row([
            Cell::new(&name).paint(Paint::Strong),
            Cell::new(&record.started),
            Cell::new(human::of_seconds(record.seconds)),
            number(count(Group::Built), Paint::Done),
            number(count(Group::Reused), Paint::None),
            number(count(Group::Failed), Paint::Failed),
            number(left_out, Paint::Warning),
            Cell::new(if record.interrupted { "interrupted" } else { "" }).paint(Paint::Warning),
        ]);
        let mut value = json!({
            "name": record.name,
            "started": record.started,
            "duration": record.seconds,
            "jobs": record.jobs,
            "interrupted": record.interrupted,
        });
        for group in Group::OF_A_RUN {
            value[group.as_str()] = json!(count(group));
        }
        values.push(value);
    }
    match format {
        TableFormat::Json => app.print_json(&Value::Array(values))?,
        _ if table.is_empty() => app.say("no run is recorded"),
        TableFormat::Markdown => app.print(&table.markdown())?,
        TableFormat::Text => {
            let (look, width) = app.table_look();
            app.print(&table.render(look, width))?;
        }
    }
    Ok(0)
}
