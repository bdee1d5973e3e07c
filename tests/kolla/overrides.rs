//! Template overrides: every list and every block that the tree can be customised by.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

use crate::place::{Call, NEWEST, call, distributions, docker, everything, ours, release, said, same};

/// What can be customised: lists as `IMAGE_LIST`, blocks, and words that stand in lists.
struct Names {
    lists: BTreeSet<String>,
    blocks: BTreeSet<String>,
    words: Vec<String>,
}

fn names(docker: &Path) -> Names {
    let list = Regex::new(r#"customizable\(\s*["'](\w+)["']"#).unwrap();
    let block = Regex::new(r"block\s+(\w+)").unwrap();
    let word = Regex::new(r"'([\w.+-]+)'").unwrap();
    let mut names = Names { lists: BTreeSet::new(), blocks: BTreeSet::new(), words: Vec::new() };
    let mut words = BTreeSet::new();
    let mut open = vec![docker.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.file_name().is_some_and(|name| name == "Dockerfile.j2") {
                let image = dir.file_name().unwrap().to_str().unwrap().replace('-', "_");
                let text = fs::read_to_string(&path).unwrap();
                names.lists.extend(list.captures_iter(&text).map(|c| format!("{image}_{}", &c[1])));
                names.blocks.extend(block.captures_iter(&text).map(|c| c[1].to_owned()));
                words.extend(word.captures_iter(&text).map(|c| c[1].to_owned()));
            }
        }
    }
    names.words = words.into_iter().step_by(40).collect();
    names
}

fn written(dir: &Path, name: &str, lines: impl Iterator<Item = String>) -> PathBuf {
    let path = dir.join(name);
    let body: String = lines.map(|line| line + "\n").collect();
    fs::write(&path, format!("{{% extends parent_template %}}\n{body}")).unwrap();
    path
}

/// By distribution, whether each file is tried alone as well.
fn customised(version: &str, bases: &[(impl AsRef<Path>, bool)]) {
    let room = tempfile::tempdir().unwrap();
    let names = names(&docker(&release(version)));
    assert!(names.lists.len() > 100 && names.blocks.len() > 300);
    let words = names.words.iter().map(|w| format!("'{w}'")).collect::<Vec<_>>().join(", ");
    let lists = |what: &str, value: &str| {
        let lines = names.lists.iter().map(|name| format!("{{% set {name}_{what} = [{value}] %}}"));
        written(room.path(), what, lines)
    };
    let blocks = |file: &str, inside: &str| {
        let lines =
            names.blocks.iter().map(|b| format!("{{% block {b} %}}# {b} {{{{ image_name }}}}{inside}{{% endblock %}}"));
        written(room.path(), file, lines)
    };
    let append = lists("append", "'added', 'https://example.org/a.deb'");
    let remove = lists("remove", &words);
    let replaced = lists("override", "'only'");
    let without = blocks("blocks", "");
    let with = blocks("super", "\n{{ super() }}# after\n");
    let mut calls = Vec::new();
    let alone = [vec![&append], vec![&remove], vec![&replaced], vec![&without], vec![&with]];
    let together = vec![&append, &remove, &with];
    for (base, each) in bases {
        for files in alone.iter().filter(|_| *each).chain([&together]) {
            let customised = |call: Call, file: &&PathBuf| call.and("--template-override").and(file);
            calls.push(files.iter().fold(call("-b").and(base), customised));
        }
    }
    same(version, &calls);
}

#[test]
fn every_list_and_every_block() {
    customised(NEWEST, &[("debian", true), ("rocky", false)]);
}

#[test]
#[ignore = "takes many minutes; every distribution of every release"]
fn every_list_and_every_block_everywhere() {
    for version in everything() {
        let bases: Vec<(String, bool)> =
            distributions(&release(version)).into_iter().map(|base| (base, true)).collect();
        customised(version, &bases);
    }
}

#[test]
fn an_override_that_cannot_be_used_says_where() {
    let tree = release(NEWEST);
    let room = tempfile::tempdir().unwrap();
    let path = room.path().join("over.j2");
    let refused = |text: &str| {
        fs::write(&path, text).unwrap();
        let mut command = ours(&tree, room.path());
        let output =
            command.args(["--template-only", "-b", "debian", "--template-override"]).arg(&path).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        said(&output)
    };
    let nothing = refused("{% block x %}{% endblock %}\n");
    assert!(nothing.contains("extends nothing") && nothing.contains("over.j2:1:1"), "{nothing}");
    let wrong =
        refused("{% extends parent_template %}\n{% block base_header %}\n{{ nothing.at.all }}\n{% endblock %}\n");
    assert!(wrong.contains("over.j2:3:1") && wrong.contains("image `base`"), "{wrong}");
    let broken = refused("{% extends parent_template %}\n{% block base_header %}\n");
    assert!(broken.contains("over.j2:"), "{broken}");
}

/// Kolla makes one template of several; what is wrong in one is told of the file that has it.
#[test]
fn of_several_overrides_the_one_with_the_mistake_is_named() {
    let tree = release(NEWEST);
    let room = tempfile::tempdir().unwrap();
    let first = written(
        room.path(),
        "first.j2",
        ["{% set a = 1 %}", "{% block base_header %}{% endblock %}"].map(str::to_owned).into_iter(),
    );
    let refused = |text: &str| {
        let second = room.path().join("second.j2");
        fs::write(&second, text).unwrap();
        let mut command = ours(&tree, room.path());
        command.args(["--template-only", "-b", "debian", "--template-override"]).arg(&first);
        let output = command.arg("--template-override").arg(second).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        said(&output)
    };
    let head = "# of mine\n{% extends parent_template %}\n";
    let wrong = refused(&format!("{head}{{% block base_footer %}}\n{{{{ nothing.at.all }}}}\n{{% endblock %}}\n"));
    assert!(wrong.contains("second.j2:4:1") && wrong.contains("{{ nothing.at.all }}"), "{wrong}");
    let place = refused(&format!("{head}\n{{% set b = [] %}}{{% set x = b.append(1) %}}\n"));
    assert!(place.contains("second.j2:4:") && place.contains("`append`"), "{place}");
    let twice = refused(&format!("{head}{{% block base_header %}}{{% endblock %}}\n"));
    assert!(twice.contains("second.j2:3:") && twice.contains("base_header"), "{twice}");
    let broken = refused(&format!("{head}{{% if %}}\n"));
    assert!(broken.contains("second.j2:3:"), "{broken}");
}
