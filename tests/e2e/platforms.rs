//! Images for several platforms, as far as one machine can make them: without RUN for a foreign one.

use std::path::Path;

use crate::sandbox::{Sandbox, field};
use crate::tools::{Registry, ready, run};
use kollage::image::config::Platform;

/// One whose programs this machine does not run, and one that it is.
pub fn platforms() -> [String; 2] {
    let foreign = if Platform::host().architecture == "s390x" { "riscv64" } else { "s390x" };
    [Platform::host().to_string(), format!("linux/{foreign}")]
}

/// What the layout has under a name, as one `skopeo` of a platform sees it.
fn config(layout: &Path, name: &str, platform: &str) -> serde_json::Value {
    let architecture = platform.rsplit('/').next().unwrap();
    let image = format!("oci:{}:{name}", layout.display());
    let text = run("skopeo", &["--override-arch", architecture, "inspect", "--config", &image]);
    serde_json::from_str(&text).unwrap()
}

fn all_reused(summary: &serde_json::Value) {
    let nodes = summary["built"].as_array().unwrap();
    assert!(!nodes.is_empty() && nodes.iter().all(|node| node["status"] == "reused"), "{summary}");
}

#[test]
fn images_for_two_platforms_are_one_index() {
    if !ready(&["busybox", "skopeo"]) {
        return;
    }
    let sandbox = Sandbox::with_base();
    sandbox.base("FROM {{ parent }}\nLABEL of=base\n");
    sandbox.write("images/app/file", "same\n");
    let recipe = "FROM {{ parent }}\nARG TARGETARCH\nLABEL arch=$TARGETARCH\nCOPY file /file\n";
    sandbox.image("app", "base", recipe);
    let [host, foreign] = platforms();
    let both = format!("{host},{foreign}");
    let layout = sandbox.path("out");
    let output = format!("type=oci,dest={}", layout.display());
    let first = sandbox.build(&["--platform", &both, "app", "-o", &output]);
    let reference = field(&first, &format!("app ({host})"), "reference");

    // One image alone in a layout is called by its tag.
    let tag = reference.rsplit(':').next().unwrap();
    let raw = run("skopeo", &["inspect", "--raw", &format!("oci:{}:{tag}", layout.display())]);
    let index: serde_json::Value = serde_json::from_str(&raw).unwrap();
    assert_eq!(index["mediaType"], "application/vnd.oci.image.index.v1+json");
    let manifests = index["manifests"].as_array().unwrap();
    let named = |entry: &serde_json::Value| {
        let part = |name: &str| entry["platform"][name].as_str().unwrap().to_owned();
        format!("{}/{}", part("os"), part("architecture"))
    };
    assert_eq!(manifests.iter().map(named).collect::<Vec<_>>(), [host.as_str(), foreign.as_str()]);
    for platform in [&host, &foreign] {
        let config = config(&layout, tag, platform);
        let architecture = platform.rsplit('/').next().unwrap();
        assert_eq!(config["architecture"], architecture);
        assert_eq!(config["config"]["Labels"]["arch"], architecture);
    }

    // The name in the store is the image for this machine; nothing is built again for either.
    let layout = sandbox.path("own");
    let output = format!("type=oci,dest={}", layout.display());
    assert_eq!(sandbox.run(&["run", "app", "--", "cat", "/file"]).ok().stdout, "same\n");
    let again = sandbox.build(&["--platform", &both, "app", "-o", &output]);
    all_reused(&again);
    // The image for this machine is the one that is built without saying for which.
    let alone = sandbox.build(&["app"]);
    all_reused(&alone);

    // What the project is built for, where no flag says otherwise; what runs here is for this machine.
    let project = |platforms: &str| sandbox.write("kollage.toml", &format!("[build]\nplatforms = [{platforms}]\n"));
    project(&format!("\"{host}\", \"{foreign}\""));
    let both = sandbox.build(&["app"]);
    for platform in [&host, &foreign] {
        assert!(!field(&both, &format!("app ({platform})"), "reference").is_empty());
    }
    assert!(!field(&sandbox.build(&["--platform", &host, "app"]), "app", "reference").is_empty());
    assert_eq!(sandbox.run(&["run", "app", "--", "cat", "/file"]).ok().stdout, "same\n");
    let bake = sandbox.run(&["export", "--format", "bake", "-o", "bake", "app"]).exits(2);
    bake.says("is of one platform, and 2 are asked for");
    project("\"linux/amd46\"");
    sandbox
        .run(&["plan"])
        .exits(2)
        .says("kollage.toml:2:")
        .says("`linux/amd46` is not a platform that images are built for");
}

#[test]
fn images_for_two_platforms_are_pushed_as_one() {
    if !ready(&["busybox", "skopeo", "docker-registry"]) {
        return;
    }
    let sandbox = Sandbox::with_base();
    sandbox.base("FROM {{ parent }}\nLABEL of=base\n");
    let registry = Registry::start(false);
    let both = platforms().join(",");
    let args = ["--platform", &both, "base", "--registry", registry.address(), "--push"];
    let first = sandbox.build(&args);
    let reference = field(&first, &format!("base ({})", platforms()[0]), "reference");
    let name = format!("docker://{}/{reference}", registry.address());
    let raw = run("skopeo", &["inspect", "--tls-verify=false", "--raw", &name]);
    let index: serde_json::Value = serde_json::from_str(&raw).unwrap();
    assert_eq!(index["mediaType"], "application/vnd.oci.image.index.v1+json");
    for (platform, entry) in platforms().iter().zip(index["manifests"].as_array().unwrap()) {
        let architecture = platform.rsplit('/').next().unwrap();
        assert_eq!(entry["platform"]["architecture"], architecture);
        let args = ["--override-arch", architecture, "inspect", "--tls-verify=false", "--config", &name];
        let config: serde_json::Value = serde_json::from_str(&run("skopeo", &args)).unwrap();
        assert_eq!(config["architecture"], architecture);
    }
    // Once more: all of it is there, and the name leads to it.
    sandbox.run(&[&["build"], args.as_slice()].concat()).ok().says("no blob sent").says("all names led there already");
    assert_eq!(run("skopeo", &["inspect", "--tls-verify=false", "--raw", &name]), raw);
}

#[test]
fn what_cannot_be_built_for_a_platform_is_said_before_anything_is() {
    let sandbox = Sandbox::with_base();
    sandbox.base("FROM {{ parent }}\nLABEL of=base\n");
    sandbox.image("app", "base", "FROM {{ parent }}\nRUN echo app > /app\n");
    let [host, foreign] = platforms();
    let both = format!("{host},{foreign}");
    let ran = sandbox.run(&["build", "--platform", &both, "app"]).exits(3);
    ran.says(&format!("cannot build app ({foreign})"))
        .says(":2: `RUN echo app > /app` runs programs for")
        .says("--builder ADDRESS");
    sandbox.run(&["build", "--platform", "linux/amd46,", "base"]).exits(2).says("linux/amd46");
    sandbox.run(&["build", "--platform", "plan9/amd64", "base"]).exits(2).says("plan9/amd64");
    let output = format!("type=docker,dest={}", sandbox.path("out.tar").display());
    sandbox.run(&["build", "--platform", &both, "base", "-o", &output]).exits(2).says("one platform");
    assert!(!sandbox.path("out.tar").exists());
}
