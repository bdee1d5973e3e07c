//! kollage.lock: written by asking, used by builds, moved on demand, and refused where it doesn't pin everything.
//! PyPI is played by recipes that leave a report of pip's; docs/howto/lock.md tells of the real one.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::fetch::{Daemon, Web, repository};
use crate::platforms::platforms;
use crate::sandbox::{Sandbox, field, is_root};
use crate::tools::{self, Registry, ready, run};
use kollage::image::config::Platform;
use kollage::image::digest::Digest;

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
    let on = Platform::host();
    assert_eq!(gaps, format!("low ({on}) has no packages of PyPI\nhigh ({on}) has no packages of PyPI\n"));
    let refused = sandbox.run(&["build", "--locked"]).exits(2).says("does not pin everything");
    assert!(refused.stderr.contains(&format!("high ({on}) has no packages")), "{}", refused.stderr);

    let locked = sandbox.run(&["lock"]).ok().stdout;
    assert_eq!(locked, format!("high ({on}) high: nothing -> 2.0\nlow ({on}) low-lib: nothing -> 1.0\n"));
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
    assert_eq!(moved, format!("high ({on}) high: 2.0 -> 2.1\nhigh ({on}) new: nothing -> 1\n"));
    let built = sandbox.build(&["--locked"]);
    assert_eq!([field(&built, "low", "status"), field(&built, "high", "status")], ["reused", "built"]);

    // Another question, and all that were asked above it.
    python(&sandbox, "low", "base", "for-something-else");
    let gaps = sandbox.run(&["lock", "--check"]).exits(4).stdout;
    assert!(
        gaps.contains(&format!("low ({on}) has packages of PyPI that were found for another definition")),
        "{gaps}"
    );
    assert!(gaps.contains(&format!("high ({on}) has packages")), "{gaps}");
    sandbox.run(&["build", "--locked"]).exits(2);
    let again = format!("type=local,dest={}", sandbox.path("again").display());
    sandbox.run(&["build", "low", "-o", &again]).ok().says("were found for another definition");
    assert_eq!(fs::read_to_string(sandbox.path("again/low")).unwrap(), "asked\n");
    sandbox.run(&["lock"]).ok();
    sandbox.run(&["build", "--locked"]).ok();

    fs::write(sandbox.catalogue().join("images/low/report"), "{}").unwrap();
    sandbox.run(&["lock", "--update", "low-lib"]).exits(1).says("cannot lock low").says("report cannot be understood");
    sandbox.write("kollage.lock", "version = 2\n[pypi]\n\"low (linux/amd64)\" = \"?\"\n");
    sandbox.run(&["plan"]).exits(2).says("kollage.lock:3:23");
}

/// One that finds other packages on each platform, without running anything.
#[test]
fn several_platforms_are_in_one_lock() {
    if !is_root() {
        return;
    }
    let [host, foreign] = platforms();
    let both = format!("{host},{foreign}");
    let sandbox = Sandbox::with_base();
    sandbox.base("FROM {{ parent }}\nENV PATH=/bin\n");
    let recipe = "FROM {{ parent }} AS resolve\nARG TARGETARCH\nCOPY $TARGETARCH/report /lock/report.json\n\
                  FROM {{ parent }}\n{% if image.locked is not none %}COPY <<END /lib\n\
                  {{ image.locked | join(\" \") }}\nEND\n{% endif %}\n";
    sandbox.image("app", "base", recipe);
    let arch = |platform: &str| platform.rsplit('/').next().unwrap().to_owned();
    report(&sandbox, &format!("app/{}", arch(&host)), &[("lib", "1.0")]);
    report(&sandbox, &format!("app/{}", arch(&foreign)), &[("lib", "1.0"), ("more", "2.0")]);
    let moved = sandbox.run(&["lock", "--platform", &both]).ok().stdout;
    let expected = format!(
        "app ({host}) lib: nothing -> 1.0\napp ({foreign}) lib: nothing -> 1.0\napp ({foreign}) more: nothing -> 2.0\n"
    );
    assert_eq!(moved, expected);
    sandbox.run(&["build", "--locked", "--platform", &both]).ok();
    for (platform, packages) in [(&host, 1), (&foreign, 2)] {
        let out = sandbox.path(&arch(platform));
        let dest = format!("type=local,dest={}", out.display());
        sandbox.run(&["build", "app", "--locked", "--platform", platform, "-o", &dest]).ok();
        assert_eq!(fs::read_to_string(out.join("lib")).unwrap().matches("==").count(), packages);
    }
    // What is locked for others says nothing of a third, and stays when one is looked at.
    let third = if foreign.ends_with("s390x") { "linux/ppc64le" } else { "linux/s390x" };
    sandbox.run(&["build", "--locked", "--platform", third]).exits(2).says("app").says("has no packages of PyPI");
    sandbox.run(&["lock"]).ok().says("nothing moved");
    sandbox.run(&["lock", "--update", "app"]).ok().says("nothing moved");
    assert!(lock(&sandbox).contains(&format!("[packages.\"app ({foreign})\"]")));

    // As the project's own platforms.
    let project = format!("[build]\nbase = \"debian\"\nplatforms = [\"{host}\", \"{foreign}\"]\n");
    sandbox.write("kollage.toml", &project);
    sandbox.run(&["lock"]).ok().says("nothing moved");
    let built = sandbox.build(&["--locked"]);
    for platform in [&host, &foreign] {
        assert!(!field(&built, &format!("app ({platform})"), "status").is_empty());
    }

    let recipe = recipe.replace("ARG TARGETARCH\n", "ARG TARGETARCH\nRUN true\n");
    sandbox.image("app", "base", &recipe);
    let refused = sandbox.run(&["lock", "--platform", &both]).exits(3).says(&format!("runs programs for {foreign}"));
    refused.says("qemu-user-static");
}

/// The real pip is in `python.rs`.
#[test]
fn what_packages_are_built_with_is_asked_for_and_missed() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::with_base();
    sandbox.base("FROM {{ parent }}\nENV PATH=/bin\n");
    let found = |name: &str, version: &str, file: &str| {
        let hashes = json!({ "sha256": "a".repeat(64) });
        let info = json!({ "url": format!("https://h/{file}"), "archive_info": { "hashes": hashes } });
        json!({ "install": [{ "metadata": { "name": name, "version": version }, "download_info": info }] }).to_string()
    };
    let recipe = |copy: &str| {
        let recipe = format!(
            "FROM {{{{ parent }}}} AS resolve\nCOPY report /lock/report.json\n{copy}FROM {{{{ parent }}}}\n\
             {{% if image.locked_builds %}}COPY <<END /builds\n{{{{ image.locked_builds | map('join', ' ') | join(';') }}}}\n\
             END\n{{% endif %}}\n"
        );
        sandbox.image("app", "base", &recipe);
    };
    recipe("");
    sandbox.write("images/app/report", &found("lib", "1", "lib-1.whl"));
    assert!(!sandbox.run(&["lock"]).ok().stderr.contains("warning"));
    sandbox.write("images/app/report", &found("lib", "1", "lib-1.tar.gz"));
    let missing = sandbox.run(&["lock", "--update"]).ok().says("lib has no wheel").says("leaves no /lock/builds.json");
    missing.says("nothing moved");

    recipe("COPY builds /lock/builds.json\n");
    let (old, new) = (found("tool", "1.0", "t.whl"), found("tool", "2.0", "t.whl"));
    sandbox.write("images/app/builds", &[found("make", "3", "m.zip"), new, old].concat());
    let on = Platform::host();
    let moved = sandbox.run(&["lock"]).ok().stdout;
    assert_eq!(moved, format!("app ({on}) build make: nothing -> 3\napp ({on}) build tool: nothing -> 1.0\n"));
    let out = format!("type=local,dest={}", sandbox.path("out").display());
    sandbox.run(&["build", "app", "--locked", "-o", &out]).ok();
    let lines = fs::read_to_string(sandbox.path("out/builds")).unwrap();
    let lines: Vec<&str> = lines.trim().split(';').map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(lines, ["tool==1.0", "tool==2.0", "make==3"]);

    sandbox.write("images/app/builds", &found("tool", "2.1", "t.whl"));
    sandbox.run(&["lock"]).ok().says("nothing moved");
    let moved = sandbox.run(&["lock", "--update", "tool"]).ok().stdout;
    assert_eq!(moved, format!("app ({on}) build make: 3 -> nothing\napp ({on}) build tool: 1.0 -> 2.1\n"));
    sandbox.write("images/app/builds", "{}");
    sandbox.run(&["lock", "--update", "app"]).exits(1).says("reports on its builds cannot be understood");
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
fn a_base_that_its_registry_lacks_is_told_before_anything_is_built() {
    if !is_root() || !ready(&["docker-registry"]) {
        return;
    }
    let registry = Registry::start(false);
    let sandbox = Sandbox::with_base();
    sandbox.base("FROM {{ parent }}\nRUN true\n");
    let missing = format!("{}/word:1", registry.address());
    sandbox.image("app", &format!("from = \"{missing}\""), "FROM {{ parent }}\nENV a=b\n");
    let ran = sandbox.run(&["build"]).exits(3);
    ran.says("cannot look at").says(&missing).says("does not have the manifest");
    assert!(sandbox.plan(&["base"]).iter().all(|(_, action)| action != "reuse"));
    sandbox.run(&["build", "base"]).ok();
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

/// What Debian's archive is for apt: a few days of a suite with its updates, each signed, and long out of date.
struct Archive {
    _daemon: tools::Daemon,
    dir: tempfile::TempDir,
    address: String,
}

impl Archive {
    /// Versions of the one package `probe`, by `archive/day/suite`.
    fn start(versions: &[(&str, Option<&str>)]) -> Archive {
        let dir = tempfile::tempdir().unwrap();
        let gpg = |args: &[&str]| {
            let home = dir.path().join("gpg").display().to_string();
            let fixed =
                ["--homedir", &home, "--batch", "--yes", "--quiet", "--pinentry-mode=loopback", "--passphrase="];
            run("gpg", &[&fixed[..], args].concat())
        };
        fs::create_dir(dir.path().join("gpg")).unwrap();
        gpg(&["--quick-generate-key", "archive@example.org", "ed25519", "sign", "never"]);
        gpg(&["--output", &dir.path().join("keyring.gpg").display().to_string(), "--export"]);
        for (place, version) in versions {
            let [archive, day, suite] = place.split('/').collect::<Vec<_>>().try_into().unwrap();
            let top = dir.path().join("web").join(archive).join(day);
            let packages = version.map(|version| package(&top, version)).unwrap_or_default();
            let dist = top.join("dists").join(suite);
            fs::create_dir_all(dist.join("main/binary-amd64")).unwrap();
            fs::write(dist.join("main/binary-amd64/Packages"), &packages).unwrap();
            let digest = Digest::of(packages.as_bytes());
            let release = format!(
                "Origin: Debian\nSuite: stable\nCodename: {suite}\nArchitectures: amd64\nComponents: main\n\
                 Date: Sun, 01 Nov 2020 00:00:00 UTC\nValid-Until: Sun, 08 Nov 2020 00:00:00 UTC\nSHA256:\n \
                 {} {} main/binary-amd64/Packages\n",
                digest.hex(),
                packages.len()
            );
            fs::write(dist.join("Release"), release).unwrap();
            let file = |name: &str| dist.join(name).display().to_string();
            gpg(&["--clearsign", "--output", &file("InRelease"), &file("Release")]);
        }
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut command = Command::new("busybox");
        command.args(["httpd", "-f", "-p", &address, "-h"]).arg(dir.path().join("web"));
        let mut daemon = tools::Daemon::start(&mut command, dir.path().join("log"));
        daemon.wait_until("httpd", || TcpStream::connect(&address).is_ok());
        Archive { _daemon: daemon, dir, address: format!("http://{address}") }
    }
}

/// A package in the pool, and what the index says of it.
fn package(top: &Path, version: &str) -> String {
    let control = format!(
        "Package: probe\nVersion: {version}\nArchitecture: amd64\nMaintainer: nobody <n@example.org>\n\
         Description: a file\n"
    );
    let tree = tempfile::tempdir().unwrap();
    fs::create_dir_all(tree.path().join("DEBIAN")).unwrap();
    fs::write(tree.path().join("DEBIAN/control"), &control).unwrap();
    fs::create_dir_all(tree.path().join("usr/share/probe")).unwrap();
    fs::write(tree.path().join("usr/share/probe/version"), version).unwrap();
    let name = format!("pool/probe_{version}_amd64.deb");
    fs::create_dir_all(top.join("pool")).unwrap();
    let deb = top.join(&name);
    run("dpkg-deb", &["--root-owner-group", "--build", &tree.path().display().to_string(), &deb.display().to_string()]);
    let bytes = fs::read(&deb).unwrap();
    format!("{control}Filename: {name}\nSize: {}\nSHA256: {}\n", bytes.len(), Digest::of(&bytes).hex())
}

#[test]
fn a_base_is_made_of_the_day_that_the_lock_has() {
    if !is_root() || !ready(&["mmdebstrap", "gpg", "dpkg-deb", "busybox"]) {
        return;
    }
    let archive = Archive::start(&[
        ("debian/20201101T000000Z/bookworm", Some("1.0")),
        ("debian/20201101T000000Z/bookworm-updates", None),
        ("debian-security/20201101T000000Z/bookworm-security", None),
        ("debian/20201102T000000Z/bookworm", Some("1.0")),
        ("debian/20201102T000000Z/bookworm-updates", None),
        ("debian-security/20201102T000000Z/bookworm-security", Some("1.0+deb1")),
    ]);
    let sandbox = Sandbox::new();
    let settings = |address: &str| {
        let text =
            format!("[build]\nbase = \"debian\"\n[build.debian]\nsnapshot = \"auto\"\narchive = \"{address}\"\n");
        sandbox.write("kollage.toml", &text);
    };
    settings(&archive.address);
    let keyring = archive.dir.path().join("keyring.gpg");
    let from = format!(
        "from = {{ bootstrap = \"debian\", suite = \"bookworm\", variant = \"extract\", packages = [\"probe\"], \
         keyring = \"{}\" }}",
        keyring.display()
    );
    sandbox.image("base", &from, "FROM {{ parent }}\n");
    let version = |day: &str| {
        sandbox.write("kollage.lock", &format!("version = 2\n[debian]\n\"debian/bookworm\" = \"{day}T000000Z\"\n"));
        let out = sandbox.path(day);
        let _ = fs::remove_dir_all(&out);
        sandbox.run(&["build", "--locked", "-o", &format!("type=local,dest={}", out.display())]).ok();
        // What is installed on top is of that day too.
        let sources = fs::read_to_string(out.join("etc/apt/sources.list")).unwrap();
        let line = format!("deb {}/debian-security/{day}T000000Z/ bookworm-security main", archive.address);
        assert!(sources.contains(&line), "{sources}");
        fs::read_to_string(out.join("usr/share/probe/version")).unwrap()
    };
    assert_eq!(version("20201101"), "1.0");
    assert_eq!(version("20201102"), "1.0+deb1");
    // Coming back is no download.
    assert_eq!(version("20201101"), "1.0");

    sandbox.write("kollage.lock", "version = 2\n[debian]\n\"debian/bookworm\" = \"20201103T000000Z\"\n");
    let missing = sandbox.run(&["build", "--locked"]).exits(3).says("has nothing of 20201103T000000Z");
    missing.says(&archive.address).says("`[build.debian] archive` names a copy");
    settings("http://127.0.0.1:1");
    sandbox.run(&["build", "--locked"]).exits(3).says("http://127.0.0.1:1 could not be reached");
    settings("ftp://h/archive");
    sandbox.run(&["plan"]).exits(2).says("is not the address of an archive of Debian").says("kollage.toml:5:11");
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

    let entry = format!("\"keystone ({})\"", Platform::host());
    let locked = format!("version = 2\n[pypi]\n{entry} = \"0\"\n[packages.{entry}]\nlib = \"1.0 sha256:{sum}\"\n");
    sandbox.write("kollage.lock", &locked);
    let stale = overlay(git).ok();
    assert!(!stale.stdout.contains("lib==1.0"), "it was found for another definition: {}", stale.stdout);
    let gap = sandbox.run(&["lock", "keystone", "--check", "--overlay", "ours"]).exits(4).stdout;
    assert!(gap.contains(") has packages of PyPI that were found for another definition"), "{gap}");
}
