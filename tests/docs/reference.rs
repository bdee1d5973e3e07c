//! Pages that are made from the code.

use std::process::Command;

use crate::{read, root};

/// `KOLLAGE_WRITE_DOCS=1 cargo test --test docs reference` writes it again.
#[test]
fn the_reference_of_commands_is_the_command_line() {
    let output = Command::new(env!("CARGO_BIN_EXE_kollage")).arg("__reference").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("## kollage build"), "{text}");
    if std::env::var_os("KOLLAGE_WRITE_DOCS").is_some() {
        std::fs::write(root().join("docs/reference/cli.md"), &text).unwrap();
    }
    let kept = read("docs/reference/cli.md");
    assert!(kept == text, "docs/reference/cli.md is not what the program says; see this test");
}

/// Every variable that the program reads is described, and no other.
#[test]
fn the_reference_of_variables_is_what_is_read() {
    let code = read("src/cli/environment.rs");
    let page = read("docs/reference/environment.md");
    let is_name = |word: &&str| word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let quoted: Vec<&str> = code.split('"').skip(1).step_by(2).filter(is_name).collect();
    assert!(quoted.len() > 15, "{quoted:?}");
    for name in quoted {
        assert!(page.contains(&format!("`{name}`")), "docs/reference/environment.md does not describe {name}");
    }
    for described in page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`')).map(|(name, _)| name) {
        let lower = format!("\"{}\"", described.to_lowercase());
        assert!(code.contains(&format!("\"{described}\"")) || code.contains(&lower), "{described} is not read");
    }
}

/// Every key of every schema is described where the files are.
#[test]
fn the_reference_of_files_has_every_key() {
    let page = read("docs/reference/files.md");
    for file in ["kollage", "image", "plugin", "release", "overlay"] {
        let output = Command::new(env!("CARGO_BIN_EXE_kollage")).args(["schema", file]).output().unwrap();
        let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let mut keys = Vec::new();
        collect(&schema, &mut keys);
        for key in keys {
            // By itself, as a table, or as the first or last part of a dotted key.
            let forms = ["`{}`", "`[{}]`", "`[[{}]]`", ".{}`", "`{}."].map(|form| form.replace("{}", &key));
            let described = forms.iter().any(|form| page.contains(form.as_str()));
            assert!(described, "docs/reference/files.md does not describe {key} of {file}");
        }
    }
}

fn collect(schema: &serde_json::Value, keys: &mut Vec<String>) {
    match schema {
        serde_json::Value::Object(map) => {
            keys.extend(
                map.get("properties").and_then(|p| p.as_object()).into_iter().flatten().map(|(k, _)| k.clone()),
            );
            map.values().for_each(|value| collect(value, keys));
        }
        serde_json::Value::Array(list) => list.iter().for_each(|value| collect(value, keys)),
        _ => {}
    }
}

/// The page about start definitions has every key of theirs, every service of the catalogue and each of its tasks.
#[test]
fn the_page_of_start_definitions_has_every_key_and_service() {
    let page = read("docs/start-scripts.md");
    let output = Command::new(env!("CARGO_BIN_EXE_kollage")).args(["schema", "start"]).output().unwrap();
    let mut keys = Vec::new();
    collect(&serde_json::from_slice(&output.stdout).unwrap(), &mut keys);
    for key in keys {
        let forms = ["`{}`", "`[{}]`", "`[[{}]]`"].map(|form| form.replace("{}", &key));
        assert!(forms.iter().any(|form| page.contains(form.as_str())), "docs/start-scripts.md does not describe {key}");
    }
    let mut list = Command::new(env!("CARGO_BIN_EXE_kollage"));
    let output = list.args(["start", "ls", "--format", "json"]).current_dir(root()).output().unwrap();
    let services: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    let rows: Vec<(&str, &str)> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split_once(" |"))
        .filter(|(names, _)| !names.starts_with('`'))
        .collect();
    for service in &services {
        let name = service["name"].as_str().unwrap();
        let row = rows.iter().find(|(names, _)| names.split(", ").any(|one| one == name));
        let (_, described) = row.unwrap_or_else(|| panic!("docs/start-scripts.md has no {name}"));
        for task in service["tasks"].as_array().unwrap() {
            let task = task["name"].as_str().unwrap();
            assert!(described.contains(&format!("`{task}`")), "docs/start-scripts.md: {name} has a task {task}");
        }
    }
    let images = std::fs::read_dir(root().join("images")).unwrap().flatten();
    let images = images.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())));
    for (name, path) in images.filter(|(_, path)| path.join("image.toml").is_file()) {
        let base = std::fs::read_to_string(path.join("image.toml")).unwrap().contains("kind = \"base\"");
        let defined = services.iter().any(|service| service["name"] == name.as_str());
        assert!(base || defined, "{name} has no start definition");
    }
}
