//! Cases 21 to 25 from the field (docs/cases.md): selection and graph.

use std::fs;

use crate::sandbox::{Sandbox, field, is_root};

/// base → a-base → a, and b on base; one file of its own in each.
fn family() -> Sandbox {
    let sandbox = Sandbox::with_base();
    sandbox.base("FROM {{ parent }}\nENV PATH=/bin\nCOPY file /base\n");
    sandbox.write("images/base/file", "one\n");
    sandbox.image("a-base", "base", "FROM {{ parent }}\nRUN cat /base > /a-base\n");
    sandbox.image("a", "a-base", "FROM {{ parent }}\nCOPY file /file\nRUN cat /a-base > /a\n");
    sandbox.write("images/a/file", "one\n");
    sandbox.image("b", "base", "FROM {{ parent }}\nRUN cat /base > /b\n");
    let settings = fs::read_to_string(sandbox.catalogue().join("kollage.toml")).unwrap();
    sandbox.write("kollage.toml", &format!("{settings}[profiles]\nmain = [\"b\"]\n"));
    sandbox
}

fn planned(sandbox: &Sandbox, args: &[&str]) -> Vec<String> {
    sandbox.plan(args).into_iter().filter(|(_, action)| action == "build").map(|(name, _)| name).collect()
}

/// There are no flags to skip parents: those that did not change are taken as they are, whatever the selection.
#[test]
fn case_21_only_what_changed_is_built_and_grandchildren_are_not_left_out() {
    if !is_root() {
        return;
    }
    let sandbox = family();
    assert_eq!(planned(&sandbox, &["a"]), ["base", "a-base", "a"], "and not b");
    sandbox.build(&[]);
    sandbox.write("images/a/file", "two\n");
    assert_eq!(planned(&sandbox, &["a"]), ["a"]);
    assert_eq!(planned(&sandbox, &[]), ["a"], "without a pattern as well");
    // The parent that changed is not selected, nor is the one between: the grandchild is built on both.
    sandbox.write("images/base/file", "two\n");
    let built = sandbox.build(&["a"]);
    for name in ["base", "a-base", "a"] {
        assert_eq!(field(&built, name, "status"), "built", "{name}");
    }
}

#[test]
fn case_22_a_profile_and_patterns_add_up_and_neither_may_find_nothing() {
    let sandbox = family();
    assert_eq!(planned(&sandbox, &["-p", "main"]), ["base", "b"]);
    let mut both = planned(&sandbox, &["-p", "main", "a"]);
    both.sort();
    assert_eq!(both, ["a", "a-base", "b", "base"]);
    sandbox.run(&["plan", "-p", "mian", "a"]).exits(2).says("`mian`").says("did you mean `main`");
    sandbox.run(&["plan", "-p", "main", "zz-*"]).exits(2).says("`zz-*`");
}

#[test]
fn case_23_a_name_means_a_whole_name() {
    let sandbox = family();
    sandbox.write("images/a-base/image.toml", "[image]\nparent = \"base\"\n[plugins]\naccept = [\"*\"]\n");
    sandbox.write("plugins/p/plugin.toml", "[plugin]\nimages = [\"a-base\"]\n");
    sandbox.write("plugins/p/Dockerfile.j2", "FROM {{ parent }}\nRUN echo p > /p\n");
    let names = |args: &[&str]| sandbox.plan(args).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let chosen = names(&["--plugin", "a-base=p"]);
    assert!(chosen.contains(&"a-base+p".into()) && !chosen.contains(&"base+p".into()), "{chosen:?}");
    assert!(!names(&["base"]).contains(&"a-base".into()), "a pattern is no part of a name either");
    sandbox.run(&["plan", "--plugin", "base=p"]).exits(2).says("`base`");
    sandbox.write("plugins/p/plugin.toml", "[plugin]\nimages = [\"b\"]\n");
    sandbox.write("images/b/image.toml", "[image]\nparent = \"base\"\n[plugins]\naccept = [\"*\"]\n");
    sandbox.run(&["plan", "--plugin", "a-base=p"]).exits(2).says("plugin `p` is not made for image `a-base`");
}

#[test]
fn case_24_a_child_is_built_on_the_parent_of_this_run() {
    if !is_root() {
        return;
    }
    let sandbox = family();
    sandbox.build(&[]);
    // The store has an image of the parent's very name, which is what FROM says.
    let listed = sandbox.run(&["store", "ls", "--format", "json"]).ok().stdout;
    assert!(listed.contains("a-base:"), "{listed}");
    sandbox.write("images/base/file", "two\n");
    sandbox.build(&["a"]);
    assert_eq!(sandbox.run(&["run", "a", "--", "cat", "/a", "/a-base"]).ok().stdout, "two\ntwo\n");
}

#[test]
fn case_25_a_failure_shows_in_the_exit_code_and_stdout_is_for_machines() {
    if !is_root() {
        return;
    }
    let sandbox = family();
    sandbox.image("b", "base", "FROM {{ parent }}\nRUN echo noise; false\n");
    let failed = sandbox.run(&["build", "--progress", "plain"]).exits(1);
    assert_eq!(failed.stdout, "");
    assert!(failed.stderr.contains("noise"), "{}", failed.stderr);
    let built = sandbox.run(&["build", "a"]).ok();
    assert_eq!(built.stdout, "", "nobody asked for a result");
    // A warning beside it goes elsewhere.
    sandbox.write("images/a/Dockerfile.j2", "FROM {{ parent }}\nCOPY file /file\nRUN cat /a-base > /a\n");
    fs::create_dir(sandbox.catalogue().join("images/empty")).unwrap();
    let plan = sandbox.run(&["plan", "--format", "json"]).ok().says("holds no definition");
    plan.json();
    let events = sandbox.run(&["build", "--progress", "rawjson"]).exits(1);
    let lines: Vec<&str> =
        [events.stdout.as_str(), events.stderr.as_str()].iter().flat_map(|out| out.lines()).collect();
    assert!(lines.iter().any(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "{events:?}");
}
