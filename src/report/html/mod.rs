//! A run as one page: a file that needs nothing beside it, no network and no script to be read.
//!
//! Everything that the page says is in its HTML; the script only filters. Templates escape whatever comes from a build,
//! and the page's own policy (Content-Security-Policy) lets a browser load nothing, whatever got into it.

use minijinja::value::{Serde, Value};
use minijinja::{AutoEscape, Environment, UndefinedBehavior, context};

use crate::error::{Context as _, Result};
use crate::report::human;
use crate::report::record::RunRecord;

mod view;

const PAGE: &str = include_str!("page.html.j2");
const STYLE: &str = concat!(include_str!("style.css"), include_str!("../svg/style.css"));
const SCRIPT: &str = include_str!("script.js");

pub fn render(run: &RunRecord) -> Result<String> {
    let name = &run.name;
    let cannot = || format!("cannot make a page of the run {name}");
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.add_filter("time", human::of_seconds);
    environment.add_filter("size", human::size);
    environment.add_template("page", PAGE).failed(cannot)?;
    let view = view::view(run);
    let page = environment.get_template("page").failed(cannot)?;
    let run = Value::from(Serde(view));
    page.render(context! { run, style => STYLE, script => SCRIPT }).failed(cannot)
}

#[cfg(test)]
mod tests;
