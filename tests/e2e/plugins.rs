//! Whether plugins fit: by the files that their layers change, by pip, and by versions.

use std::fs;

use crate::sandbox::{Sandbox, field, is_root};

/// A service that accepts every plugin; one plugin for each of these, with its recipe's RUN.
fn catalogue(plugins: &[(&str, &str, &str)]) -> Sandbox {
    let sandbox = Sandbox::with_base();
    sandbox.base("FROM {{ parent }}\nENV PATH=/bin\nRUN mkdir /etc/service && echo 1 > /etc/service/conf\n");
    sandbox.image("service", "base", "FROM {{ parent }}\nRUN echo service > /service\n");
    let toml = fs::read_to_string(sandbox.catalogue().join("images/service/image.toml")).unwrap();
    sandbox.write("images/service/image.toml", &format!("{toml}[plugins]\naccept = [\"*\"]\n"));
    for (name, head, run) in plugins {
        sandbox.write(&format!("plugins/{name}/plugin.toml"), &format!("[plugin]\nimages = [\"service\"]\n{head}\n"));
        sandbox.write(&format!("plugins/{name}/Dockerfile.j2"), &format!("FROM {{{{ parent }}}}\nRUN {run}\n"));
    }
    sandbox
}

#[test]
fn a_plugin_that_changes_its_parent_undeclared_is_named() {
    if !is_root() {
        return;
    }
    let run = "echo 2 > /etc/service/conf && rm /service && touch /etc/passwd && echo new > /new";
    let sandbox = catalogue(&[("bold", "", run)]);
    let args = ["service", "--plugin", "service=bold"];
    let build = [&["build"], args.as_slice()].concat();
    sandbox.run(&["plugin", "check", "--plugin", "service=bold"]).ok();
    for _ in 0..2 {
        // Found in the store it fits no better.
        let failed = sandbox.run(&build).exits(1).says("plugin `bold` does not fit on `service`");
        let failed = failed.says("changed /etc/service/conf, removed /service").says("changes = [");
        assert!(!failed.stderr.contains("changed /etc/passwd"), "only touched:\n{}", failed.stderr);
    }
    let check = ["plugin", "check", "service", "--plugin", "service=bold"];
    sandbox.run(&check).exits(1).says("removed /service");

    let allowed = sandbox.run(&[build.as_slice(), &["--set", "plugins.allow=[\"bold\"]"]].concat()).ok();
    assert!(allowed.stderr.contains("as allowed"), "{}", allowed.stderr);

    let declared = "changes = [\"/etc/service/*\", \"/service\"]";
    sandbox.write("plugins/bold/plugin.toml", &format!("[plugin]\nimages = [\"service\"]\n{declared}\n"));
    let built = sandbox.build(&args);
    assert_eq!(field(&built, "service+bold", "status"), "reused", "what is declared changes no layer");
    let fits = sandbox.run(&check).ok().stdout;
    assert!(fits.contains("service") && fits.contains("yes"), "{fits}");
}

#[test]
fn an_image_with_two_plugins_is_written_under_its_one_name() {
    if !is_root() {
        return;
    }
    let sandbox = catalogue(&[("one", "", "echo > /etc/one"), ("two", "", "echo > /etc/two")]);
    let dest = sandbox.path("image.tar");
    let output = format!("type=docker,dest={}", dest.display());
    sandbox.run(&["build", "service", "--plugin", "service=one,two", "-o", &output]).ok();
    let manifest = crate::tools::run("tar", &["-xOf", dest.to_str().unwrap(), "manifest.json"]);
    let images: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!(images.as_array().unwrap().len(), 1, "{images}");
    assert!(images[0]["RepoTags"][0].as_str().unwrap().starts_with("kollage/service:"), "{images}");
}

#[test]
fn what_is_built_on_an_image_has_the_plugins_that_are_inherited() {
    if !is_root() {
        return;
    }
    let sandbox = catalogue(&[("one", "", "echo 1 > /one"), ("two", "", "echo 2 > /two")]);
    let accept = "[plugins]\naccept = [\"*\"]\n";
    let service = "[image]\nkind = \"base\"\nparent = \"base\"\n";
    sandbox.write("images/service/image.toml", &format!("{service}{accept}default = [\"one\"]\ninherited = true\n"));
    sandbox.write("plugins/own/plugin.toml", "[plugin]\nimages = [\"child\"]\n");
    sandbox.write("plugins/own/Dockerfile.j2", "FROM {{ parent }}\nRUN echo > /own\n");
    sandbox.image("child", "service", "FROM {{ parent }}\nRUN cat /one > /child\n");
    let toml = fs::read_to_string(sandbox.catalogue().join("images/child/image.toml")).unwrap();
    sandbox.write("images/child/image.toml", &format!("{toml}{accept}default = [\"own\"]\n"));
    let dest = sandbox.path("image.tar");
    let output = format!("type=docker,dest={}", dest.display());
    let ran = sandbox.build(&["child", "-o", &output]);
    for node in ["service", "service+one", "child", "child+own"] {
        assert_eq!(field(&ran, node, "status"), "built", "{node}");
    }
    let manifest = crate::tools::run("tar", &["-xOf", dest.to_str().unwrap(), "manifest.json"]);
    let images: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    let config = crate::tools::run("tar", &["-xOf", dest.to_str().unwrap(), images[0]["Config"].as_str().unwrap()]);
    let config: serde_json::Value = serde_json::from_str(&config).unwrap();
    assert_eq!(config["config"]["Labels"]["org.kollage.plugins"], "one,own");

    // Another one below: only the image itself stays.
    let ran = sandbox.build(&["child", "--plugin", "service=one,two"]);
    let status = |node: &str| field(&ran, node, "status").to_owned();
    let all = ["service", "service+one", "service+one+two", "child", "child+own"].map(status);
    assert_eq!(all, ["reused", "reused", "built", "built", "built"]);
}

#[test]
fn two_plugins_that_write_one_file_are_named() {
    if !is_root() {
        return;
    }
    let sandbox = catalogue(&[
        ("one", "order = 1", "echo one > /etc/both"),
        ("same", "order = 2", "echo one > /etc/both"),
        ("two", "order = 3", "echo two > /etc/both"),
        ("knows", "order = 4\nrequires = [\"one\"]\nchanges = [\"/etc/both\"]", "echo more >> /etc/both"),
    ]);
    sandbox.run(&["build", "service", "--plugin", "service=one,same"]).ok();
    sandbox
        .run(&["build", "service", "--plugin", "service=one,two"])
        .exits(1)
        .says("plugin `two` does not fit on `service`")
        .says("files of plugin `one`: changed /etc/both");
    sandbox.run(&["build", "service", "--plugin", "service=one,knows"]).ok();
}

#[test]
fn pip_check_is_run_where_there_is_pip() {
    if !is_root() {
        return;
    }
    let sandbox = catalogue(&[("good", "", "echo x > /x"), ("broken", "", "echo broken > /broken")]);
    // Stands for pip: says what it is asked, and is unhappy with one plugin.
    let pip = "printf '#!/bin/sh\\ntest \"$*\" = check && ! test -e /broken || { echo b 1 requires a; exit 1; }\\n' > /bin/pip && chmod 755 /bin/pip";
    sandbox.image("service", "base", &format!("FROM {{{{ parent }}}}\nRUN {pip}\n"));
    let toml = fs::read_to_string(sandbox.catalogue().join("images/service/image.toml")).unwrap();
    sandbox.write("images/service/image.toml", &format!("{toml}[plugins]\naccept = [\"*\"]\n"));
    sandbox.run(&["build", "service", "--plugin", "service=good"]).ok();
    let build = ["build", "service", "--plugin", "service=broken"];
    sandbox.run(&build).exits(1).says("`pip check` failed").says("service+broken").says("b 1 requires a");
    sandbox.run(&[build.as_slice(), &["--set", "plugins.allow=[\"broken\"]"]].concat()).ok();
    sandbox.run(&build).exits(1);
}

#[test]
fn plugins_are_listed_with_what_they_fit_and_where_they_are_chosen() {
    let sandbox = catalogue(&[
        ("one", "needs = { thing = \">=2\" }\nconflicts = [\"two\"]", "true"),
        ("two", "requires = [\"three\"]", "true"),
        ("three", "", "true"),
    ]);
    let kollage = fs::read_to_string(sandbox.catalogue().join("kollage.toml")).unwrap();
    sandbox.write("kollage.toml", &format!("{kollage}[images.service]\nplugins = [\"one\"]\n"));
    let listed = sandbox.run(&["plugin", "ls", "--format", "json"]).ok().says("nothing says which version");
    let listed = listed.json();
    assert_eq!(listed[0]["name"], "one");
    assert_eq!(listed[0]["fits"], serde_json::json!(["service"]));
    assert_eq!(listed[0]["chosen"], serde_json::json!([{"image": "service", "by": "kollage.toml"}]));
    assert_eq!((&listed[0]["needs"]["thing"], &listed[2]["requires"][0]), (&">=2".into(), &"three".into()));
    let text = sandbox.run(&["plugin", "ls"]).ok().stdout;
    assert!(text.contains("thing>=2") && text.contains("service ("), "{text}");

    sandbox.write(
        "images/service/image.toml",
        "[image]\nparent = \"base\"\n[plugins]\naccept = [\"*\"]\n[sources.thing]\npypi = \"thing==1.9\"\n",
    );
    let found = sandbox.run(&["plugin", "check"]).exits(2).says("plugin `one` needs thing >=2, and `service` has 1.9");
    found.says("plugins/one/plugin.toml:3:").says("images/service/image.toml:6:");
}
