//! docs/reference/cli.md, from the command line itself; a test holds the file against it.

use clap::{Arg, Command, CommandFactory as _};

use crate::cli::App;
use crate::cli::args::Cli;
use crate::error::Result;

pub fn run(app: &App) -> Result<u8> {
    app.print(&markdown())?;
    Ok(0)
}

fn markdown() -> String {
    let mut root = Cli::command();
    root.build();
    let mut out = String::from(
        "# Commands and flags\n\n<!-- Written by `cargo test --test docs` with KOLLAGE_WRITE_DOCS=1 from the command \
         line itself. -->\n\n",
    );
    out.push_str("Every command takes these:\n\n");
    let global: Vec<&Arg> = root.get_arguments().filter(|arg| arg.is_global_set() && !arg.is_hide_set()).collect();
    flags(&mut out, &global);
    for command in root.get_subcommands().filter(|command| !command.is_hide_set()) {
        section(&mut out, command, "kollage", 2);
    }
    out
}

fn section(out: &mut String, command: &Command, above: &str, depth: usize) {
    let name = format!("{above} {}", command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    out.push_str(&format!("{} {name}\n\n{}.\n\n", "#".repeat(depth), about.trim_end_matches('.')));
    let usage = command.clone().bin_name(&name).render_usage().to_string();
    out.push_str(&format!("```text\n{}\n```\n\n", usage.trim_start_matches("Usage: ")));
    let own = |arg: &&Arg| {
        !arg.is_global_set() && !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str())
    };
    let args: Vec<&Arg> = command.get_arguments().filter(own).collect();
    flags(out, &args);
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        section(out, sub, &name, depth + 1);
    }
}

fn flags(out: &mut String, args: &[&Arg]) {
    if args.is_empty() {
        return;
    }
    out.push_str("| argument | what it does |\n| --- | --- |\n");
    for arg in args {
        out.push_str(&format!("| {} | {} |\n", spelled(arg), about(arg)));
    }
    out.push('\n');
}

/// `-p`, `--profile NAME`
fn spelled(arg: &Arg) -> String {
    let value = arg.get_value_names().map(|names| names.join(" ")).filter(|_| arg.get_action().takes_values());
    if arg.is_positional() {
        return format!("`{}`", escaped(&value.unwrap_or_default()));
    }
    let long = arg.get_long().map(|long| match (&value, arg.is_require_equals_set()) {
        (Some(value), true) => format!("`--{long}[={value}]`"),
        (Some(value), false) => format!("`--{long} {value}`"),
        (None, _) => format!("`--{long}`"),
    });
    let short = arg.get_short().map(|short| format!("`-{short}`"));
    escaped(&short.into_iter().chain(long).collect::<Vec<_>>().join(", "))
}

fn about(arg: &Arg) -> String {
    let mut about = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let words: Vec<String> = arg.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
    if !words.is_empty() && arg.get_action().takes_values() {
        about.push_str(&format!(": {}", words.join(", ")));
    }
    let defaults: Vec<String> = arg.get_default_values().iter().map(|v| v.to_string_lossy().into_owned()).collect();
    if !defaults.is_empty() && arg.get_action().takes_values() {
        about.push_str(&format!(" (default: `{}`)", defaults.join(" ")));
    }
    escaped(about.trim_start_matches(": "))
}

/// A bar would end the cell.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
