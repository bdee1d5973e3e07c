//! kollage.lock: written by asking, used by builds, moved on demand, and refused where it doesn't pin everything.
//! PyPI is played by recipes that leave a report of pip's; docs/howto/lock.md tells of the real one.

use std::fs;
use std::process::Command;

use serde_json::json;

use crate::fetch::{Daemon, Web, repository};
use crate::sandbox::{Sandbox, field, is_root};
use crate::tools::{Registry, ready, run};

fn lock(sandbox: &Sandbox) -> String {
    fs::read_to_string(sandbox.catalogue().join("kollage.lock")).unwrap()
}

#[test]
fn a_moved_pin_builds_what_uses_it_and_nothing_else() {
    if !is_root() {
        return;
    }
    let (web, other) = (Web::start("one"), Web::start("other"));
    let dir = tempfile::tempdir().unwrap();
    let commit = repository(dir.path());
    commit("first");
    let daemon = Daemon::start(dir.path());
    let sandbox = Sandbox::with_base();
    sandbox.base("FROM {{ parent }}\nENV PATH=/bin\n");
    for (name, address) in [
        ("one", format!("http://{}/f", web.host)),
        ("two", format!("http://{}/f", other.host)),
        ("three", format!("git://{}/r.git#main", daemon.address)),
    ] {
        sandbox.image(name, "base", &format!("FROM {{{{ parent }}}}\nADD {address} /got/\n"));
    }
    sandbox.run(&["build", "--locked"]).exits(2).says("kollage.lock does not say what").says("kollage lock");
    let first = sandbox.run(&["lock"]).ok().says("3 lines moved");
    assert!(first.stdout.contains(&format!("url http://{}/f: nothing -> sha256:", web.host)), "{}", first.stdout);
    assert_eq!(sandbox.run(&["lock"]).ok().says("nothing moved").stdout, "");
    sandbox.build(&["--locked"]);

    *web.content.lock().unwrap() = "two".into();
    commit("second");
    web.requests();
    // What it pins isn't asked for, here or on a machine that has nothing.
    for store in ["store", "fresh"] {
        let out = sandbox.path(&format!("out-{store}"));
        let dest = format!("type=local,dest={}", out.display());
        sandbox.run_on(store, &["build", "three", "--locked", "-o", &dest]).ok();
        assert_eq!(fs::read_to_string(out.join("got/f")).unwrap(), "first");
    }
    assert!(web.requests().is_empty());
    assert!(sandbox.plan(&["--locked"]).iter().all(|(_, action)| action == "reuse"));
    sandbox.run_on("fresh", &["build", "one", "--locked"]).exits(1).says("it changed meanwhile");

    let name = format!("http://{}/f", web.host);
    let nothing = sandbox.run(&["lock", "--update", "http://nowhere"]).exits(2);
    nothing.says("nothing that is locked and selected is called");
    let moved = sandbox.run(&["lock", "--update", &name]).ok().says("1 line moved").stdout;
    assert!(moved.starts_with(&format!("url {name}: sha256:")) && moved.contains(" -> sha256:"), "{moved}");
    let built = sandbox.build(&["--locked"]);
    let status = |name: &str| field(&built, name, "status");
    assert_eq!([status("one"), status("two"), status("three")], ["built", "reused", "reused"]);

    assert!(sandbox.run(&["lock", "--update"]).ok().stdout.starts_with("git git://"));
    assert_eq!(field(&sandbox.build(&["--locked"]), "three", "status"), "built");
    // What only another selection uses stays; what nothing uses goes.
    sandbox.run(&["lock", "two"]).ok().says("nothing moved");
    fs::remove_dir_all(sandbox.catalogue().join("images/two")).unwrap();
    sandbox.run(&["lock"]).ok().says("1 line moved");
    assert!(!lock(&sandbox).contains(&other.host));
}

/// An image that takes from PyPI what its file `report` says pip found.
fn python(sandbox: &Sandbox, name: &str, parent: &str, asks: &str) {
    let recipe = format!(
        "FROM {{{{ parent }}}} AS resolve\nRUN echo {asks}\nCOPY report /lock/report.json\n\
         FROM {{{{ parent }}}}\n{{% if image.locked is none %}}RUN echo asked > /{name}\n{{% else %}}\
         COPY <<END /{name}\n{{{{ image.locked | join(\" \") }}}}\nEND\n{{% endif %}}\n"
    );
    sandbox.image(name, parent, &recipe);
}

fn report(sandbox: &Sandbox, name: &str, versions: &[(&str, &str)]) {
    let install: Vec<_> = versions
        .iter()
        .map(|(name, version)| {
            let hashes = json!({ "sha256": "a".repeat(64) });
            let info = json!({ "url": "https://h/x.whl", "archive_info": { "hashes": hashes } });
            json!({ "metadata": { "name": name, "version": version }, "download_info": info })
        })
        .collect();
    sandbox.write(&format!("images/{name}/report"), &json!({ "version": "1", "install": install }).to_string());
}

#[test]
fn packages_are_found_in_the_parent_and_used_until_the_question_changes() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::with_base();
    sandbox.base("FROM {{ parent }}\nENV PATH=/bin\n");
    python(&sandbox, "low", "base", "for-low");
    python(&sandbox, "high", "low", "for-high");
    report(&sandbox, "low", &[("Low.Lib", "1.0")]);
    report(&sandbox, "high", &[("high", "2.0")]);
    let gaps = sandbox.run(&["lock", "--check"]).exits(4).stdout;
    assert_eq!(gaps, "low has no packages of PyPI\nhigh has no packages of PyPI\n");
    let refused = sandbox.run(&["build", "--locked"]).exits(2).says("does not pin everything");
    assert!(refused.stderr.contains("high has no packages"), "{}", refused.stderr);

    let locked = sandbox.run(&["lock"]).ok().stdout;
    assert_eq!(locked, "high high: nothing -> 2.0\nlow low-lib: nothing -> 1.0\n");
    sandbox.run(&["lock", "--check"]).ok();
    let out = format!("type=local,dest={}", sandbox.path("out").display());
    sandbox.run(&["build", "high", "--locked", "-o", &out]).ok();
    let read = |name: &str| fs::read_to_string(sandbox.path("out").join(name)).unwrap();
    assert_eq!(read("low"), format!("low-lib==1.0 --hash=sha256:{}\n", "a".repeat(64)));
    assert!(read("high").starts_with("high==2.0 --hash="));

    // What can be had now doesn't count until it is wanted.
    report(&sandbox, "high", &[("high", "2.1"), ("new", "1")]);
    assert!(sandbox.plan(&["--locked"]).iter().all(|(_, action)| action == "reuse"));
    sandbox.run(&["lock"]).ok().says("nothing moved");
    let moved = sandbox.run(&["lock", "--update", "high"]).ok().stdout;
    assert_eq!(moved, "high high: 2.0 -> 2.1\nhigh new: nothing -> 1\n");
    let built = sandbox.build(&["--locked"]);
    assert_eq!([field(&built, "low", "status"), field(&built, "high", "status")], ["reused", "built"]);

    // Another question, and all that were asked above it.
    python(&sandbox, "low", "base", "for-something-else");
    let gaps = sandbox.run(&["lock", "--check"]).exits(4).stdout;
    assert!(gaps.contains("low has packages of PyPI that were found for another definition"), "{gaps}");
    assert!(gaps.contains("high has packages"), "{gaps}");
    sandbox.run(&["build", "--locked"]).exits(2);
    let again = format!("type=local,dest={}", sandbox.path("again").display());
    sandbox.run(&["build", "low", "-o", &again]).ok().says("were found for another definition");
    assert_eq!(fs::read_to_string(sandbox.path("again/low")).unwrap(), "asked\n");
    sandbox.run(&["lock"]).ok();
    sandbox.run(&["build", "--locked"]).ok();

    fs::write(sandbox.catalogue().join("images/low/report"), "{}").unwrap();
    sandbox.run(&["lock", "--update", "low-lib"]).exits(1).says("cannot lock low").says("report cannot be understood");
    sandbox.write("kollage.lock", "version = 1\n[pypi]\nlow = \"?\"\n");
    sandbox.run(&["plan"]).exits(2).says("kollage.lock:3:7");
}

#[test]
fn a_base_of_a_registry_stays_what_it_was() {
    if !is_root() || !ready(&["docker-registry", "skopeo"]) {
        return;
    }
    let registry = Registry::start(false);
    let source = Sandbox::with_base();
    source.base("FROM {{ parent }}\nCOPY word /word\n");
    let push = |word: &str| {
        source.write("images/base/word", word);
        let layout = source.path(&format!("layout-{word}"));
        source.run(&["build", "-o", &format!("type=oci,dest={}", layout.display())]).ok();
        let name = fs::read_to_string(layout.join("index.json")).unwrap();
        let index: serde_json::Value = serde_json::from_str(&name).unwrap();
        let name = index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"].as_str().unwrap();
        let from = format!("oci:{}:{name}", layout.display());
        let to = format!("docker://{}/word:1", registry.address());
        run("skopeo", &["copy", "-q", "--dest-tls-verify=false", &from, &to]);
    };
    push("first");
    let sandbox = Sandbox::new();
    sandbox.write("kollage.toml", "[build]\nbase = \"debian\"\n");
    sandbox.image("app", &format!("from = \"{}/word:1\"", registry.address()), "FROM {{ parent }}\nENV a=b\n");
    sandbox.run(&["build", "--locked"]).exits(2).says("has no digest");
    sandbox.run(&["lock"]).ok().says("1 line moved");
    push("second");
    let word = |store: &str| {
        let dest = sandbox.path(&format!("out-{store}"));
        sandbox.run_on(store, &["build", "--locked", "-o", &format!("type=local,dest={}", dest.display())]).ok();
        fs::read_to_string(dest.join("word")).unwrap()
    };
    assert_eq!(word("one"), "first");
    let moved = sandbox.run(&["lock", "--update"]).ok().stdout;
    assert!(moved.starts_with(&format!("base {}/word:1: sha256:", registry.address())), "{moved}");
    assert_eq!(word("two"), "second");
}

#[test]
fn a_day_of_debians_archive_is_written_down_only_where_it_is_wanted() {
    let sandbox = Sandbox::new();
    sandbox.write("kollage.toml", "[build]\nbase = \"debian\"\n");
    sandbox.image("base", "from = { bootstrap = \"debian\", suite = \"bookworm\" }", "FROM {{ parent }}\n");
    sandbox.run(&["lock", "--check"]).ok();
    let auto = ["--set", "build.debian.snapshot=auto"];
    let gap = sandbox.run(&[&["lock", "--check"], &auto[..]].concat()).exits(4).stdout;
    assert_eq!(gap, "debian/bookworm has no day of the archive\n");
    sandbox.run(&["plan", "--set", "build.debian.snapshot=2026-13"]).exits(2).says("is not a day of Debian's archive");
    if !is_root() {
        return;
    }
    sandbox.run(&[&["lock"], &auto[..]].concat()).ok().says("1 line moved");
    let today = Command::new("date").args(["-u", "+%Y%m%d"]).output().unwrap().stdout;
    let today = String::from_utf8_lossy(&today).trim().to_owned();
    assert!(lock(&sandbox).contains(&format!("\"debian/bookworm\" = \"{today}T000000Z\"")), "{}", lock(&sandbox));
    sandbox.run(&[&["lock", "--check"], &auto[..]].concat()).ok();
}

#[test]
fn the_recipes_for_python_packages_take_sources_of_every_kind_and_what_is_locked() {
    let sandbox = Sandbox::new();
    let root = env!("CARGO_MANIFEST_DIR");
    for name in ["images", "plugins", "releases", "kollage.toml"] {
        run("cp", &["-r", &format!("{root}/{name}"), &sandbox.catalogue().display().to_string()]);
    }
    let overlay = |source: &str| {
        let change = format!("[[change]]\nimages = [\"keystone\"]\nsources.keystone.override = {{ {source} }}\n");
        sandbox.write("ours/overlay.toml", &change);
        sandbox.run(&["render", "keystone", "--overlay", "ours"])
    };
    let git = "git = \"https://h/keystone\", ref = \"main\", version = \"31.0.0\"";
    let text = overlay(git).ok().stdout;
    for line in [
        "ADD https://h/keystone.git#main /sources/keystone",
        "PBR_VERSION=31.0.0",
        "FROM tools AS resolve",
        "--report /lock/report.json",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let sum = "a".repeat(64);
    let text = overlay(&format!("url = \"https://h/keystone-1.tar.gz\", sha256 = \"{sum}\"")).ok().stdout;
    let add = format!("ADD --checksum=sha256:{sum} https://h/keystone-1.tar.gz /sources/keystone/\n");
    assert!(text.contains(&add) && text.contains(" /sources/keystone/*"), "{text}");

    let locked = format!("version = 1\n[pypi]\nkeystone = \"0\"\n[packages.keystone]\nlib = \"1.0 sha256:{sum}\"\n");
    sandbox.write("kollage.lock", &locked);
    let stale = overlay(git).ok();
    assert!(!stale.stdout.contains("lib==1.0"), "it was found for another definition: {}", stale.stdout);
    let gap = sandbox.run(&["lock", "keystone", "--check", "--overlay", "ours"]).exits(4).stdout;
    assert!(gap.contains("keystone has packages of PyPI that were found for another definition"), "{gap}");
}
