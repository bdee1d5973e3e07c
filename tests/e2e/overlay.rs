//! Overlays from outside: what they change is built, what they don't keeps its key, and patches are applied or fail.

use std::fs;

use crate::sandbox::{Sandbox, field, is_root};

const SOURCE: &str = "#!/bin/sh\necho hello\necho from the source\n";
const PATCH: &str =
    "--- a/hello.sh\n+++ b/hello.sh\n@@ -1,3 +1,3 @@\n #!/bin/sh\n-echo hello\n+echo patched\n echo from the source\n";
/// Installs its source and applies the patches of an overlay to it, with what busybox has.
const RECIPE: &str = r#"FROM {{ parent }}
WORKDIR /opt/hello
COPY hello.sh hello.sh
{% for patch in image.sources.hello.patches %}
RUN <<"{{ patch.delimiter }}" busybox patch -p 1
{{ patch.text }}{{ patch.delimiter }}
{% endfor %}
{% block extra %}{% endblock %}
RUN echo {{ image.vars.word }} > /word
"#;

fn catalogue() -> Sandbox {
    let sandbox = Sandbox::with_base();
    sandbox.base("FROM {{ parent }}\nENV PATH=/bin\nRUN echo base > /base\n");
    sandbox.image("hello", "base", RECIPE);
    sandbox.write(
        "images/hello/image.toml",
        "[image]\nparent = \"base\"\n[sources.hello]\nlocal = \"hello.sh\"\n[vars]\nword = \"theirs\"\n",
    );
    sandbox.write("images/hello/hello.sh", SOURCE);
    sandbox.image("other", "base", "FROM {{ parent }}\nRUN echo other > /other\n");
    sandbox
}

fn keys(sandbox: &Sandbox, args: &[&str]) -> Vec<(String, String)> {
    let plan = sandbox.run(&[&["plan", "--format", "json"], args].concat()).ok().json();
    let text = |value: &serde_json::Value| value.to_string();
    let nodes = plan["nodes"].as_array().or(plan.as_array()).unwrap();
    nodes.iter().map(|node| (node["name"].as_str().unwrap().to_owned(), text(&node["key"]))).collect()
}

fn overlay(sandbox: &Sandbox, text: &str) -> String {
    let dir = sandbox.path("mine");
    fs::create_dir_all(dir.join("patches")).unwrap();
    fs::write(dir.join("overlay.toml"), text).unwrap();
    fs::write(dir.join("patches/1.patch"), PATCH).unwrap();
    dir.to_str().unwrap().to_owned()
}

#[test]
fn what_an_overlay_changes_is_built_and_the_rest_keeps_its_key() {
    if !is_root() {
        return;
    }
    let sandbox = catalogue();
    sandbox.build(&[]);
    let before = keys(&sandbox, &[]);
    let dir = overlay(
        &sandbox,
        "[[change]]\nimages = [\"hel*\"]\nvars.word.override = \"ours\"\nblocks.extra = '''\nRUN echo {{ image.name }} > /extra\n'''\n\
         [[patch]]\nimages = [\"hello\"]\nsource = \"hello\"\nfiles = [\"patches/*.patch\"]\n",
    );
    fs::create_dir_all(sandbox.path("mine/images/added")).unwrap();
    fs::write(sandbox.path("mine/images/added/image.toml"), "[image]\nparent = \"hello\"\n").unwrap();
    fs::write(sandbox.path("mine/images/added/Dockerfile.j2"), "FROM {{ parent }}\nCOPY file /from-overlay\n").unwrap();
    fs::write(sandbox.path("mine/images/added/file"), "its own context\n").unwrap();
    let with = ["--overlay", dir.as_str()];
    let after = keys(&sandbox, &with);
    for (name, key) in &before {
        let changed = after.iter().find(|(other, _)| other == name).map(|(_, key)| key) != Some(key);
        assert_eq!(changed, name == "hello", "{name}: {before:?} {after:?}");
    }
    let built = sandbox.build(&with);
    assert_eq!((field(&built, "other", "status"), field(&built, "hello", "status")), ("reused".into(), "built".into()));
    let shown =
        sandbox.run(&["run", "hello", "--", "sh", "-c", "cat /word /extra; sh /opt/hello/hello.sh; ls /opt/hello"]);
    assert_eq!(shown.ok().stdout, "ours\nhello\npatched\nfrom the source\nhello.sh\n");

    // The text of a patch is an input as any other.
    fs::write(sandbox.path("mine/patches/1.patch"), PATCH.replace("patched", "again")).unwrap();
    assert_ne!(keys(&sandbox, &with), after);

    let explained = sandbox.run(&["plan", "--explain", "hello", "--overlay", &dir]).ok().stdout;
    let line = explained.lines().find(|line| line.starts_with("word = ")).unwrap();
    assert!(line.starts_with("word = \"ours\"") && line.ends_with("mine/overlay.toml:3"), "{explained}");
    let line = explained.lines().find(|line| line.starts_with("parent = ")).unwrap();
    assert!(line.ends_with("images/hello/image.toml:2"), "{explained}");
}

#[test]
fn a_patch_that_does_not_fit_ends_the_build() {
    if !is_root() {
        return;
    }
    let sandbox = catalogue();
    sandbox.write("images/hello/hello.sh", &SOURCE.replace("echo hello", "echo changed upstream"));
    let dir = overlay(&sandbox, "[[patch]]\nimages = [\"hello\"]\nsource = \"hello\"\nfiles = [\"patches/1.patch\"]\n");
    sandbox.run(&["build", "hello", "--overlay", &dir]).exits(1).says("busybox patch").says("FAILED");
    sandbox.run(&["build", "hello"]).ok();
}

#[test]
fn what_is_wrong_is_told_before_the_build_with_both_places() {
    let sandbox = catalogue();
    let dir = overlay(
        &sandbox,
        "[[change]]\nimages = [\"hello\"]\nimage.parent.override = \"bsae\"\nvars.wrod.override = \"x\"\n",
    );
    sandbox
        .run(&["build", "--overlay", &dir])
        .exits(2)
        .says("unknown parent `bsae`")
        .says("mine/overlay.toml:3:25")
        .says("images/hello/image.toml:2:10")
        .says("image `hello` has no `vars.wrod`")
        .says("images/hello/image.toml:5:1")
        .says("did you mean `word`?");
    sandbox.run(&["build", "--overlay", "../gone"]).exits(2).says("../gone");
    sandbox.run(&["plan", "--explain", "helo"]).exits(2).says("did you mean `hello`?");
}
