//! What is written, for a catalogue with everything that an export has to tell apart.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::bake::{Bake, Exported, export};
use super::{Jobs, Pipeline, pipeline};
use crate::catalogue::{Catalogue, ConfigFiles, Overrides};
use crate::dockerfile::Inputs;
use crate::fetch::Pin;
use crate::graph::assemble::assemble;
use crate::graph::node::Graph;
use crate::image::config::{ImageConfig, Platform};
use crate::image::digest::KeyHasher;

const FILES: [(&str, &str); 10] = [
    (
        "kollage.toml",
        "[build]\nbase = \"debian\"\ntag = \"1\"\n[profiles]\nall = [\"*\"]\n\"web.only\" = [\"web\"]\n\
      [images.web]\nplugins = [\"theme\"]\n[build.build_args]\nCOLOUR = \"${red}\"\nUNUSED = \"x\"\n",
    ),
    ("images/base/image.toml", "[image]\nkind = \"base\"\nfrom = { rootfs = \"base.tar\" }\nsummary = \"b\"\n"),
    (
        "images/base/Dockerfile.j2",
        "FROM {{ parent }} AS one\nARG COLOUR\nCOPY conf /conf\nRUN --mount=type=bind,from={{ parent }},target=/m true\n",
    ),
    ("images/base/conf", "x"),
    ("images/base/.dockerignore", "secret\n"),
    ("images/base/secret", "never"),
    (
        "images/web/image.toml",
        "[image]\nparent = \"base\"\nsummary = \"w\"\n[plugins]\naccept = [\"*\"]\n[labels]\na = \"%{b}\"\n\
      [[check]]\nrun = [\"true\"]\n[[check]]\nrun = [\"id\", \"a\\nb\"]\nuser = \"42\"\n",
    ),
    ("images/web/Dockerfile.j2", "FROM {{ parent }}\nRUN --mount=type=secret,id=token --mount=type=ssh true\n"),
    ("plugins/theme/plugin.toml", "[plugin]\nimages = [\"web\"]\n"),
    ("plugins/theme/Dockerfile.j2", "FROM {{ parent }}\nCOPY --from=docker.io/library/debian:13 /etc/issue /issue\n"),
];

fn graph(change: &[(&str, &str)]) -> (tempfile::TempDir, Catalogue, Graph) {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in FILES.iter().chain(change) {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    std::os::unix::fs::symlink("conf", dir.path().join("images/base/link")).unwrap();
    let catalogue = Catalogue::load(dir.path(), &Overrides::new(), &ConfigFiles::default()).unwrap();
    let inputs = Inputs {
        target: None,
        build_args: catalogue.settings.build.build_args.clone(),
        platform: Platform::host(),
        contexts: Default::default(),
    };
    let selected = catalogue.images.keys().cloned().collect();
    let graph = assemble(&catalogue, &selected, &inputs).unwrap();
    (dir, catalogue, graph)
}

#[derive(Default)]
struct Given {
    registry: Option<&'static str>,
    platforms: Vec<String>,
    secrets: BTreeMap<String, String>,
    digests: BTreeMap<String, String>,
    pins: BTreeMap<String, Pin>,
    ca_bundle: Option<PathBuf>,
}

fn baked(catalogue: &Catalogue, graph: &Graph, given: &Given) -> crate::error::Result<Exported> {
    let profiles = catalogue.settings.profiles.keys();
    let profiles = profiles.map(|name| (name.clone(), catalogue.profile_images(name).unwrap())).collect();
    let base = |_| {
        let mut config = ImageConfig::new(&Platform::host());
        config.config.env_set("PATH", "/bin:$x \"y\"");
        config.config.cmd = Some(vec!["/bin/sh".into()]);
        Ok((KeyHasher::new("x").finish(), config))
    };
    let Given { registry, platforms, secrets, digests, pins, ca_bundle } = given;
    let (registry, ca_bundle, profiles, ssh) = (*registry, ca_bundle.as_deref(), &profiles, &BTreeMap::new());
    let bake = Bake { registry, platforms, profiles, secrets, ssh, digests, pins, ca_bundle, base: &base };
    export(graph, &bake)
}

fn json(exported: &Exported) -> Value {
    serde_json::from_slice(&exported.rendering.files["docker-bake.json"].bytes).unwrap()
}

fn text(exported: &Exported, path: &str) -> String {
    String::from_utf8(exported.rendering.files[path].bytes.clone()).unwrap()
}

#[test]
fn nodes_are_targets_that_name_each_other() {
    let (dir, catalogue, graph) = graph(&[]);
    let exported = baked(&catalogue, &graph, &Given::default()).unwrap();
    let bake = json(&exported);
    let target = |name: &str| bake["target"][name].clone();
    let base = exported.tars.keys().next().unwrap().strip_suffix("/rootfs.tar").unwrap();
    assert_eq!(target("base")["contexts"], json!({ base: format!("target:{base}") }));
    assert_eq!(target("base")["context"], "base/context");
    assert_eq!(target("base")["dockerfile"], "../Dockerfile");
    assert_eq!(target("base")["args"], json!({ "COLOUR": "$${red}" }), "only what it asks for, and as it is");
    assert_eq!(target("base")["tags"], json!(["kollage/base:1"]));
    assert_eq!(target("web")["contexts"], json!({ "kollage/base:1": "target:base" }));
    assert_eq!(target("web")["context"], "web", "it takes nothing from its context");
    assert_eq!(target("web")["tags"], json!([]), "the plugin has the name");
    assert_eq!(target("web")["labels"], json!({ "a": "%%{b}" }));
    assert_eq!(target("web_theme")["contexts"], json!({ "kollage/web:1": "target:web" }));
    assert_eq!(target("web_theme")["tags"], json!(["kollage/web:1"]));
    assert_eq!(target("web_theme")["labels"]["org.kollage.plugins"], "theme");
    let groups = &bake["group"];
    assert_eq!(groups["default"]["targets"], json!(["base", "web_theme"]));
    assert_eq!(groups["all"], groups["default"]);
    assert_eq!(groups["web_only"]["targets"], json!(["web_theme"]));

    let dockerfile = text(&exported, "base/Dockerfile");
    assert_eq!(
        dockerfile,
        format!("FROM {base} AS one\nARG COLOUR\nCOPY conf /conf\nRUN --mount=type=bind,from={base},target=/m true\n")
    );
    let files: Vec<&String> = exported.rendering.files.keys().filter(|path| path.starts_with("base/context")).collect();
    assert_eq!(files, ["base/context/.dockerignore", "base/context/conf", "base/context/link"]);
    assert!(
        text(&exported, &format!("{base}/Dockerfile"))
            .ends_with("FROM scratch\nADD rootfs.tar /\nENV PATH=\"/bin:\\$x \\\"y\\\"\"\nCMD [\"/bin/sh\"]\n")
    );

    let out = dir.path().join("out");
    exported.rendering.write(&out).unwrap();
    assert!(exported.rendering.changes(&out).unwrap().is_empty(), "links included");
    assert_eq!(fs::read_link(out.join("base/context/link")).unwrap().to_str(), Some("conf"));
    fs::remove_file(out.join("base/context/link")).unwrap();
    std::os::unix::fs::symlink("other", out.join("base/context/link")).unwrap();
    assert_eq!(exported.rendering.changes(&out).unwrap().len(), 1);
}

#[test]
fn everything_in_a_context_is_taken_where_everything_is_copied() {
    let (_dir, catalogue, graph) = graph(&[("images/base/Dockerfile.j2", "FROM {{ parent }}\nCOPY . /all\n")]);
    let exported = baked(&catalogue, &graph, &Given::default()).unwrap();
    assert!(exported.rendering.files.contains_key("base/context/image.toml"));
    assert!(!exported.rendering.files.contains_key("base/context/secret"));
}

#[test]
fn checks_are_a_target_that_leaves_nothing() {
    let (_dir, catalogue, graph) = graph(&[]);
    let exported = baked(&catalogue, &graph, &Given::default()).unwrap();
    let lines = text(&exported, "web_checks/Dockerfile");
    let lines: Vec<&str> = lines.lines().skip(1).collect();
    assert_eq!(
        lines,
        ["FROM checked", r#"RUN --network=none ["true"]"#, "USER 42", r#"RUN --network=none ["id","a\nb"]"#]
    );
    let bake = json(&exported);
    assert_eq!(bake["target"]["web_checks"]["output"], json!(["type=cacheonly"]));
    assert_eq!(bake["group"]["checks"]["targets"], json!(["web_checks", "web_theme_checks"]));
}

#[test]
fn what_only_some_images_need_is_given_to_those() {
    let (_dir, catalogue, graph) = graph(&[]);
    let exported = baked(&catalogue, &graph, &Given::default()).unwrap();
    let bake = json(&exported);
    assert_eq!(bake["target"]["web"]["secret"], json!(["id=token"]));
    assert_eq!(bake["target"]["web"]["ssh"], json!(["default"]));
    assert_eq!(bake["target"]["base"]["secret"], Value::Null);
    assert!(exported.rendering.notes[0].contains("web needs the secret `token`"), "{:?}", exported.rendering.notes);

    let one = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
    let given = Given {
        registry: Some("r:5000"),
        secrets: one("token", "id=token,src=t"),
        digests: one("docker.io/library/debian:13", "debian@sha256:x"),
        ..Given::default()
    };
    let bake = json(&baked(&catalogue, &graph, &given).unwrap());
    assert_eq!(bake["target"]["web"]["secret"], json!(["id=token,src=t"]));
    assert_eq!(bake["target"]["web_theme"]["contexts"]["debian:13"], "docker-image://debian@sha256:x");
    assert_eq!(bake["target"]["base"]["tags"], json!(["r:5000/kollage/base:1"]));

    let several = Given { platforms: vec!["linux/amd64".into(), "linux/arm64".into()], ..Given::default() };
    let error = baked(&catalogue, &graph, &several).err().unwrap();
    assert!(error.to_string().contains("is of one platform, and 2 are asked for"), "{error}");
}

#[test]
fn what_is_fetched_is_what_the_lock_says() {
    let recipe = "FROM {{ parent }}\nARG V=1\nADD http://h/f-$V.tar /f\nADD https://h/r.git#main:sub /r\n\
                  ADD [\"git@h:r.git\", \"/s\"]\nADD https://h/open /o\n";
    let (_dir, catalogue, graph) = graph(&[("images/base/Dockerfile.j2", recipe)]);
    let digest = crate::image::digest::Digest::of(b"f");
    let commit = |id: &str| Pin::Commit { id: id.repeat(40), name: None };
    let pins = BTreeMap::from([
        ("http://h/f-1.tar".to_owned(), Pin::File { digest: digest.clone(), modified: None }),
        ("https://h/r.git#main:sub".to_owned(), commit("a")),
        ("git@h:r.git".to_owned(), commit("b")),
    ]);
    let exported = baked(&catalogue, &graph, &Given { pins, ..Given::default() }).unwrap();
    let text = text(&exported, "base/Dockerfile");
    let (a, b) = ("a".repeat(40), "b".repeat(40));
    let lines: Vec<&str> = text.lines().skip(2).collect();
    assert_eq!(
        lines,
        [
            format!("ADD --checksum={digest} http://h/f-$V.tar /f"),
            format!("ADD https://h/r.git#{a}:sub /r"),
            format!("ADD [\"git@h:r.git#{b}\", \"/s\"]"),
            "ADD https://h/open /o".to_owned()
        ]
    );
    let notes: Vec<&String> = exported.rendering.notes.iter().filter(|note| note.contains("fetches")).collect();
    assert_eq!(notes, ["base fetches https://h/open as it is on the day of the build; `kollage lock` pins it"]);
}

#[test]
fn a_ca_bundle_is_lent_to_steps_and_to_nothing_else() {
    let (_dir, catalogue, graph) = graph(&[]);
    let given = Given { ca_bundle: Some("/ca.pem".into()), ..Given::default() };
    let exported = baked(&catalogue, &graph, &given).unwrap();
    let web = text(&exported, "web/Dockerfile");
    assert!(web.starts_with("FROM kollage/base:1\nARG SSL_CERT_FILE=/run/kollage/ca-certificates.crt CURL_"), "{web}");
    let run = "RUN --mount=type=secret,id=kollage-ca-bundle,target=/run/kollage/ca-certificates.crt,mode=0444 \
               --mount=type=secret,id=kollage-apt-conf,target=/run/kollage/apt.conf,mode=0444 \
               --mount=type=secret,id=token";
    assert!(web.contains(run), "{web}");
    let bake = json(&exported);
    let lent = json!(["id=kollage-ca-bundle,src=/ca.pem", "id=kollage-apt-conf,src=lent/apt.conf"]);
    assert_eq!(bake["target"]["web"]["secret"].as_array().unwrap()[1..], lent.as_array().unwrap()[..]);
    assert_eq!(bake["target"]["web_theme"]["secret"], Value::Null, "it runs nothing");
    assert!(!text(&exported, "web_theme/Dockerfile").contains("/run/kollage"));
    assert!(text(&exported, "lent/apt.conf").contains("CaInfo"));
}

#[test]
fn a_name_that_cannot_be_replaced_is_said() {
    let recipe = "ARG FROM_IT={{ parent }}\nFROM ${FROM_IT}\n";
    let (_dir, catalogue, graph) = graph(&[("images/base/Dockerfile.j2", recipe)]);
    let error = baked(&catalogue, &graph, &Given::default()).err().unwrap();
    assert!(error.diagnostics().0[0].message.contains("only Kollage understands"), "{error}");
}

#[test]
fn pipelines_have_a_job_an_image_in_the_right_order() {
    let (_dir, _catalogue, graph) = graph(&[
        ("images/9.odd/image.toml", "[image]\nparent = \"web\"\nsummary = \"o\"\n"),
        ("images/9.odd/Dockerfile.j2", "FROM {{ parent }}\nCOPY --from=base /conf /\n"),
        ("images/image/Dockerfile", "FROM web\n"),
    ]);
    let how = Jobs { flags: vec!["--tag=it's".into()], store: Some("/srv/store".into()), runner: Some("big".into()) };
    let of = |kind| pipeline(&graph, kind, &how);
    insta::assert_snapshot!("github", of(Pipeline::Github));
    insta::assert_snapshot!("gitlab", of(Pipeline::Gitlab));
    insta::assert_snapshot!("tekton", of(Pipeline::Tekton));
}
