//! A page of the documentation, as far as it can be run.

use std::path::Path;

use crate::{read, root};

#[derive(Debug)]
pub struct Page {
    pub name: String,
    pub blocks: Vec<Block>,
    pub needs_network: bool,
}

#[derive(Debug, Default)]
pub struct Block {
    /// Of the opening fence, from 1.
    pub line: usize,
    pub file: Option<String>,
    pub exits: i32,
    pub not_run: Option<String>,
    pub text: String,
    pub commands: Vec<Command>,
}

#[derive(Debug)]
pub struct Command {
    pub typed: String,
    pub shown: Vec<String>,
}

/// README.md and every page below docs/.
pub fn pages() -> Vec<Page> {
    let mut names = vec!["README.md".to_owned()];
    collect(&root().join("docs"), &mut names);
    names.sort();
    names.iter().map(|name| Page::parse(name, &read(name))).collect()
}

pub fn collect(dir: &Path, names: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, names);
        } else if path.extension().is_some_and(|e| e == "md") {
            names.push(path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned());
        }
    }
}

impl Page {
    pub fn parse(name: &str, text: &str) -> Page {
        let mut page = Page { name: name.to_owned(), blocks: Vec::new(), needs_network: false };
        let mut next = Block { ..Block::default() };
        let mut lines = text.lines().enumerate();
        while let Some((number, line)) = lines.next() {
            let comment = line.trim().strip_prefix("<!-- ").and_then(|c| c.strip_suffix(" -->"));
            if let Some((key, value)) = comment.and_then(|comment| comment.split_once(": ")) {
                match key {
                    "file" => next.file = Some(value.to_owned()),
                    "exits" => next.exits = value.parse().unwrap_or_else(|_| panic!("{name}:{}", number + 1)),
                    "not run" => next.not_run = Some(value.to_owned()),
                    "needs" if value == "network" => page.needs_network = true,
                    _ => panic!("{name}:{}: `{key}` says nothing here", number + 1),
                }
                continue;
            }
            let Some(language) = line.strip_prefix("```") else {
                assert!(
                    line.trim().is_empty() || next.file.is_none() && next.not_run.is_none() && next.exits == 0,
                    "{name}:{}: a comment without its block",
                    number + 1
                );
                continue;
            };
            let body: Vec<&str> = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
            next.line = number + 1;
            next.text = body.join("\n") + "\n";
            if language == "console" {
                next.commands = commands(name, number + 1, &body);
            }
            if language == "console" || next.file.is_some() {
                page.blocks.push(std::mem::take(&mut next));
            }
        }
        page
    }
}

fn commands(page: &str, at: usize, body: &[&str]) -> Vec<Command> {
    let mut commands: Vec<Command> = Vec::new();
    for line in body {
        if let Some(typed) = line.strip_prefix("$ ").or_else(|| line.strip_prefix("# ")) {
            commands.push(Command { typed: typed.to_owned(), shown: Vec::new() });
            continue;
        }
        let command = commands.last_mut().unwrap_or_else(|| panic!("{page}:{at}: begins with no command"));
        if let Some(more) = command.typed.strip_suffix('\\') {
            command.typed = format!("{more}{}", line.trim_start());
        } else if !line.trim().is_empty() {
            command.shown.push((*line).to_owned());
        }
    }
    for command in &mut commands {
        // What a person reads beside it.
        if let Some((typed, _)) = command.typed.split_once("  # ") {
            command.typed = typed.trim_end().to_owned();
        }
    }
    commands
}
