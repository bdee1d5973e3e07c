//! Definitions from outside: what is read, what is said about what is wrong, and what the bundle has of it.

mod images;

use std::path::Path;

use crate::catalogue::reader::known;
use crate::diag::{Diagnostics, SourceFile};

use super::{Definitions, check_text, read, schema};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The runtime's tests read what is committed; this one says that the builder would write it.
#[test]
fn the_example_of_the_schema_is_what_a_definition_becomes() {
    let dir = root().join("start-scripts/schema");
    let mut problems = Diagnostics::default();
    let text = std::fs::read_to_string(dir.join("example.toml")).unwrap();
    let file = SourceFile::new("example.toml", text);
    let definition = read::read("example", &file, Some(&dir), &mut problems);
    assert!(problems.0.is_empty(), "{problems:?}");
    let json = definition.unwrap().json().unwrap();
    let committed = std::fs::read_to_string(dir.join("example.json")).unwrap();
    assert_eq!(json, committed, "write it anew: cp this to start-scripts/schema/example.json\n{json}");
}

#[test]
fn every_definition_of_the_catalogue_is_right() {
    let definitions = Definitions::load(root()).unwrap();
    assert!(definitions.services.contains_key("keystone"));
    let validator = jsonschema::validator_for(&schema::schema()).unwrap();
    for (folder, definition) in definitions.services.values() {
        let text = std::fs::read_to_string(folder.join("start.toml")).unwrap();
        let value = serde_json::to_value(toml::from_str::<toml::Table>(&text).unwrap()).unwrap();
        let wrong: Vec<String> = validator.iter_errors(&value).map(|e| format!("{}: {e}", e.instance_path())).collect();
        assert!(wrong.is_empty(), "{}: {wrong:?}", definition.name);
        assert!(!definition.summary.is_empty(), "{} has no summary", definition.name);
    }
}

/// Messages with the text that they underline.
fn said(text: &str) -> Vec<String> {
    let underlined =
        |place: &crate::diag::Place| text[place.span.clone()].lines().next().unwrap_or_default().to_owned();
    let problems = check_text(text).0.into_iter();
    problems
        .map(|p| {
            let place = p.place.as_ref().map(underlined).unwrap_or_default();
            format!("{place} | {}{}", p.message, p.hint.map(|hint| format!(" | {hint}")).unwrap_or_default())
        })
        .collect()
}

#[track_caller]
fn one(text: &str, parts: &[&str]) {
    let said = said(text);
    assert_eq!(said.len(), 1, "{said:#?}");
    for part in parts {
        assert!(said[0].contains(part), "no {part:?} in {:?}", said[0]);
    }
}

/// A program with one header of a segment of this kind.
pub(super) fn elf(segment: u8) -> Vec<u8> {
    let mut bytes = vec![0; 64 + 56];
    bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    bytes[18] = 62;
    bytes[32] = 64;
    bytes[54] = 56;
    bytes[56] = 1;
    bytes[64] = segment;
    bytes
}

/// A program, or without a loader a library, that takes these libraries and looks for them in `runpath` first.
pub(super) fn dynamic(loader: Option<&str>, needed: &[&str], runpath: Option<&str>) -> Vec<u8> {
    let mut texts = vec![0];
    let mut text = |text: &str| {
        let at = texts.len() as u64;
        texts.extend(text.bytes().chain([0]));
        at
    };
    let mut entries: Vec<(u64, u64)> = needed.iter().map(|name| (1, text(name))).collect();
    entries.extend(runpath.map(|dirs| (29, text(dirs))));
    let interpreter = loader.map(|loader| (text(loader), loader.len() as u64 + 1));
    // Its header, then those of three segments, the texts and the entries.
    let (texts_at, size) = (64 + 3 * 56, texts.len() as u64);
    let table = texts_at + size;
    entries.extend([(5, texts_at), (10, size), (0, 0)]);
    let end = table + 16 * entries.len() as u64;
    let mut bytes = elf(1);
    bytes[56] = 3;
    let mut segment = |at: usize, kind: u64, offset: u64, size: u64| {
        bytes.resize(bytes.len().max(at + 56), 0);
        for (field, value) in [(0, kind), (8, offset), (16, offset), (32, size), (40, size)] {
            bytes[at + field..at + field + 8].copy_from_slice(&value.to_le_bytes());
        }
    };
    segment(64, 1, 0, end);
    segment(64 + 56, 2, table, end - table);
    match interpreter {
        Some((at, size)) => segment(64 + 2 * 56, 3, texts_at + at, size),
        None => segment(64 + 2 * 56, 0, 0, 0),
    }
    bytes.extend(texts);
    entries.iter().flat_map(|(tag, value)| [tag, value]).for_each(|word| bytes.extend(word.to_le_bytes()));
    bytes
}

const HEAD: &str = "[service]\nsummary = \"x\"\n";

#[test]
fn what_is_wrong_is_said_at_its_place() {
    for (text, parts) in [
        ("", &["there is no [service] table"][..]),
        ("[service]\nsumary = \"x\"\n", &["sumary | unknown key `sumary`", "`summary`"]),
        ("[service]\ncommand = [\"a b\"]\n", &["\"a b\" |", "configuration's command"]),
        ("[service]\nhealth = [\"htp\", \"u\"]\n", &["no check `htp`", "`http`"]),
        ("[service]\nhealth = [\"listen\", \"x\"]\n", &["`listen` lacks an argument"]),
        ("[service]\nstop_signal = \"TEM\"\n", &["`TEM` is not a value", "`TERM`"]),
        ("[service]\ncommand = [\"x\", \"${PORT}\"]\n", &["\"${PORT}\" | `PORT` is no variable", "declare it"]),
        ("[service]\ncommand = [\"x\", \"${PORT\"]\n", &["`${PORT` doesn't end"]),
        ("[service]\n[user]\nname = \"x\"\n", &["[user] has no `uid`"]),
        ("[service]\n[variables]\nA = { default = \"x\" }\n", &["the variable `A` has no `summary`"]),
    ] {
        one(text, parts);
    }
    for (step, parts) in [
        ("run = [\"x\"]", &["a step has no `title`"][..]),
        ("title = \"t\"", &["a step does nothing", "`make`"]),
        ("title = \"t\"\nrnu = [\"x\"]", &["rnu | unknown key `rnu`", "`run`"]),
        ("title = \"t\"\nrun = [\"x\"]\nmake = \"/x\"", &["a step does one thing, and this has `make` and `run`"]),
        ("title = \"t\"\nrun = []", &["[] | it names no program"]),
        ("title = \"t\"\nrun = [\"x\"]\nmode = \"0755\"", &["unknown key `mode` in [[step]]"]),
        ("title = \"t\"\nmake = \"x\"", &["\"x\" |", "has to begin with `/`"]),
        ("title = \"t\"\nmake = \"/x/../y\"", &["it isn't a plain absolute path"]),
        ("title = \"t\"\nmake = \"/x\"\nmode = \"755x\"", &["`755x` is not a mode"]),
        ("title = \"t\"\nown = \"/x\"", &["neither `owner` nor `mode`"]),
        ("title = \"t\"\nlink = \"/x\"", &["there is no `to`"]),
        ("title = \"t\"\nwrite = \"/x\"", &["one of `text`, `template` and `fragments`"]),
        ("title = \"t\"\nwrite = \"/x\"\ntext = \"a\"\nowner = \"A\"", &["`A` is not an owner"]),
        ("title = \"t\"\nwhen = { set = [\"A\"] }\nrun = [\"x\"]", &["\"A\" | `A` is no variable"]),
    ] {
        one(&format!("{HEAD}[[step]]\n{step}\n"), parts);
    }
}

#[test]
fn a_secret_is_only_where_nobody_else_sees_it() {
    let with = |step: &str| {
        format!("{HEAD}[variables]\nS = {{ summary = \"s\", secret = true }}\n[[step]]\ntitle=\"t\"\n{step}\n")
    };
    for step in [
        "run = [\"x\"]\nenvironment = { S = \"${S}\" }",
        "run = [\"x\"]\ninput = \"${S}\"",
        "write = \"/x\"\ntext = \"${S}\"\nmode = \"0640\"",
    ] {
        assert_eq!(said(&with(step)), Vec::<String>::new(), "{step}");
    }
    for step in ["run = [\"x\", \"${S}\"]", "make = \"/x/${S}\"", "refuse = \"${S}\""] {
        one(&with(step), &["the secret `S` stands where others can see it"]);
    }
    one(&with("write = \"/x\"\ntext = \"${S}\""), &["to a file that anybody can read", "0640"]);
    let default = "[service]\n[variables]\nS = { summary = \"s\", secret = true, default = \"x\" }\n";
    one(default, &["the secret `S` has a default"]);
}

#[test]
fn tasks_are_told_apart_by_name_and_variable() {
    let task = "[[task]]\nname = \"a\"\nvariable = \"V\"\n[[task.step]]\ntitle = \"t\"\nrun = [\"x\"]\n";
    assert_eq!(said(&format!("{HEAD}{task}")), Vec::<String>::new());
    let twice = said(&format!("{HEAD}{task}{task}"));
    assert_eq!(twice.len(), 2, "{twice:?}");
    one(&format!("{HEAD}[[task]]\nname = \"a\"\n"), &["a task has no step"]);
}

#[test]
fn every_key_that_the_reader_knows_is_in_the_schema_and_no_other() {
    let steps = |table: &str| {
        let keys = ["make", "own", "link", "remove", "write", "run", "refuse"];
        keys.map(|key| format!("[[{table}]]\n{key} = 1\nwhen = {{}}\n")).concat()
    };
    // A step of each kind knows keys of its own; all count as keys of the first.
    known::take();
    for table in ["step", "task.step"] {
        for part in steps(table).split_inclusive("when = {}\n") {
            let task = if table == "task.step" { "[[task]]\n" } else { "" };
            let rest = "[user]\n[environment]\n[variables.x]\n[needs]\n[[directory]]\n[[file]]\n";
            check_text(&format!("[service]\n{rest}{task}{part}"));
        }
    }
    let read = known::take();
    let described = known::described(&schema::schema());
    let (missing, extra): (Vec<_>, Vec<_>) =
        (read.difference(&described).collect(), described.difference(&read).collect());
    assert!(missing.is_empty() && extra.is_empty(), "not described {missing:?}, not read {extra:?}");
}
