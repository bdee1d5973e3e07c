//! Builds that Debian's dockerd and podman carry out: the same catalogue, plan and summary as with the embedded engine.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use crate::sandbox::{Ran, Sandbox, field, is_root, ran};
use crate::support::Podman;
use crate::tools::{Docker, ready};

/// Two stages, here-documents, modes, a check.
const APP: &str = "ARG WHO=nobody\nFROM {{ parent }} AS tools\nRUN echo tool > /tool\nFROM {{ parent }}\nARG WHO\n\
                   COPY --chmod=0600 --chown=1000:1001 files /data\nCOPY --from=tools /tool /srv/tool\n\
                   COPY <<END /note\nfor ${WHO}\nEND\nRUN <<END\ncat /note\necho \"two\" > /two\nEND\n\
                   LABEL org.example.a=b\nUSER app\nCMD [\"cat\", \"/note\"]\n";

/// Docker's bridge is none of these dockerds' business.
fn settings(sandbox: &Sandbox, builder: &str) {
    let build = "[build]\nbase = \"debian\"\nnetwork = \"none\"\n";
    sandbox.write("kollage.toml", &format!("{build}[engine.docker]\nbuilder = \"{builder}\"\n"));
}

fn catalogue(builder: &str) -> Sandbox {
    let sandbox = Sandbox::with_base();
    settings(&sandbox, builder);
    sandbox.base("FROM {{ parent }}\nENV PATH=/bin\n# title: Say hello\nRUN echo hello && echo base > /base\n");
    sandbox.image("app", "base", APP);
    let toml = fs::read_to_string(sandbox.catalogue().join("images/app/image.toml")).unwrap();
    sandbox.write("images/app/image.toml", &format!("{toml}[[check]]\nrun = [\"test\", \"-e\", \"/note\"]\n"));
    sandbox.write("images/app/files/one", "1");
    sandbox.write("images/app/files/ignored.log", "log");
    sandbox.write("images/app/.dockerignore", "**/*.log\n");
    sandbox
}

fn build(sandbox: &Sandbox, host: &str, args: &[&str]) -> Ran {
    let file = sandbox.path("summary.json");
    let fixed = ["build", "--engine", "docker", "--progress", "plain", "--summary-json-file", file.to_str().unwrap()];
    ran(sandbox.command(&[&fixed, args].concat()).env("DOCKER_HOST", host))
}

fn summary(sandbox: &Sandbox) -> serde_json::Value {
    serde_json::from_slice(&fs::read(sandbox.path("summary.json")).unwrap()).unwrap()
}

/// The catalogue on an engine: built, found again, as it was meant, and brought into the store for an output.
fn the_catalogue_is_built(host: &str, builder: &str) -> Sandbox {
    let sandbox = catalogue(builder);
    let first = build(&sandbox, host, &["--build-arg", "WHO=me"]).ok();
    for said in ["Say hello", "hello", "RUN <<END", "for me", "Check: test -e /note"] {
        assert!(first.stderr.contains(said), "`{said}` is not in {}", first.stderr);
    }
    assert!(!first.stderr.contains("Successfully"), "the builder's own lines:\n{}", first.stderr);
    assert_eq!(field(&summary(&sandbox), "app", "status"), "built");
    build(&sandbox, host, &["--build-arg", "WHO=me"]).ok();
    assert_eq!(field(&summary(&sandbox), "base", "status"), "reused");
    assert_eq!(field(&summary(&sandbox), "app", "status"), "reused");

    let tree = sandbox.path("tree");
    let output = format!("type=local,dest={}", tree.display());
    build(&sandbox, host, &["app", "--build-arg", "WHO=me", "-o", &output]).ok();
    let one = fs::metadata(tree.join("data/one")).unwrap();
    assert_eq!((one.uid(), one.gid(), one.permissions().mode() & 0o7777), (1000, 1001, 0o600));
    assert!(!tree.join("data/ignored.log").exists());
    for (file, text) in [("note", "for me\n"), ("two", "two\n"), ("srv/tool", "tool\n"), ("base", "base\n")] {
        assert_eq!(fs::read_to_string(tree.join(file)).unwrap(), text);
    }
    sandbox
}

/// Of the image and of what fails, whichever builder it was.
fn it_is_dockers_image_and_failures_have_a_place(docker: &Docker, sandbox: &Sandbox) {
    let host = docker.host();
    let said = docker.run(&["run", "--rm", "--network=none", "kollage/app:debian-bookworm"]);
    assert_eq!(said, "for me\n");
    let label = docker.run(&["inspect", "-f", "{{.Config.Labels}} {{.Config.User}}", "kollage/app:debian-bookworm"]);
    assert_eq!(label.trim(), "map[org.example.a:b] app");

    // What fails says where, and is not taken for a result.
    let toml = fs::read_to_string(sandbox.catalogue().join("images/app/image.toml")).unwrap();
    sandbox.write("images/app/image.toml", &toml.replace("\"-e\", \"/note\"", "\"-e\", \"/missing\""));
    for _ in 0..2 {
        build(sandbox, &host, &[]).exits(1).says("the check `test -e /missing` failed");
    }
    let names = docker.run(&["images", "--format", "{{.Repository}}"]);
    assert!(!names.contains("kollage-unchecked"), "{names}");
    sandbox.write("images/app/Dockerfile.j2", "FROM {{ parent }}\n\nRUN echo why >&2; exit 3\n");
    let failed = build(sandbox, &host, &[]).exits(1).says("images/app/Dockerfile");
    assert!(failed.stderr.contains(":3: `RUN echo why >&2; exit 3` failed"), "{}", failed.stderr);
}

#[test]
fn dockers_buildkit_builds_a_catalogue() {
    if !is_root() || !ready(&["dockerd", "docker", "busybox"]) {
        return;
    }
    let docker = Docker::start();
    let host = docker.host();
    let sandbox = the_catalogue_is_built(&host, "buildkit");
    it_is_dockers_image_and_failures_have_a_place(&docker, &sandbox);

    // What only BuildKit has, on a parent of this run that no registry knows.
    sandbox.write("images/app/image.toml", "[image]\nparent = \"base\"\n");
    sandbox.write("secret", "s3cret-value");
    sandbox.write(
        "images/app/Dockerfile.j2",
        "FROM {{ parent }} AS tools\nRUN echo tool > /tool\nFROM {{ parent }}\n\
         RUN --mount=type=cache,target=/c,id=shared echo kept > /c/kept\n\
         RUN --mount=type=cache,target=/d,id=shared cp /d/kept /kept\n\
         RUN --mount=type=secret,id=word,target=/word cat /word && wc -c < /word > /length\n\
         RUN --mount=type=tmpfs,target=/t --mount=type=bind,source=files,target=/f --mount=from=tools,target=/from \\\n    \
         touch /t/gone && cp /f/one /from/tool /\nRUN grep 'one$' /etc/hosts && grep 'two$' /etc/hosts\n",
    );
    let secret = format!("id=word,src={}", sandbox.catalogue().join("secret").display());
    let more = ["--secret", &secret, "--add-host", "one=192.0.2.1", "--add-host", "two=192.0.2.2"];
    let built = build(&sandbox, &host, &more).ok().says("***");
    assert!(!built.stderr.contains("s3cret-value"), "{}", built.stderr);
    // An older one leaves the places of mounts behind.
    let script = "cat /kept /length /one /tool; ls /t /c 2>/dev/null | grep -v : | grep .; test ! -s /word";
    let said = docker.run(&["run", "--rm", "--network=none", "kollage/app:debian-bookworm", "sh", "-c", script]);
    assert_eq!(said, "kept\n12\n1tool\n");

    // What an older one doesn't know is said before anything is built.
    sandbox.write(
        "images/app/Dockerfile.j2",
        "FROM {{ parent }}\nCOPY --link files /x\nRUN --network=none ulimit -n > /limit; ls /x >> /limit\n",
    );
    if docker.run(&["version", "-f", "{{.Server.Version}}"]).starts_with("20.") {
        let refused = build(&sandbox, &host, &[]).exits(2).says("nothing was built").says("too old for COPY --link");
        assert!(refused.stderr.contains(":2:") && refused.stderr.contains(":3:"), "{}", refused.stderr);
        sandbox.write("images/app/Dockerfile.j2", "FROM {{ parent }}\nRUN true\n");
        build(&sandbox, &host, &["--ulimit", "nofile=100"]).exits(2).says("too old for `--ulimit`");
    } else {
        build(&sandbox, &host, &["--ulimit", "nofile=100"]).ok();
        let said = docker.run(&["run", "--rm", "--network=none", "kollage/app:debian-bookworm", "cat", "/limit"]);
        assert_eq!(said, "100\none\n");
    }
}

#[test]
fn dockers_older_builder_builds_a_catalogue() {
    if !is_root() || !ready(&["dockerd", "docker", "busybox"]) {
        return;
    }
    let docker = Docker::start();
    let host = docker.host();
    let sandbox = the_catalogue_is_built(&host, "classic");
    it_is_dockers_image_and_failures_have_a_place(&docker, &sandbox);

    // What it cannot do is said before anything is built.
    sandbox.write(
        "images/app/Dockerfile.j2",
        "FROM {{ parent }}\nRUN --mount=type=cache,target=/c true\nCOPY --link files /x\nRUN --mount=type=secret,id=s true\n",
    );
    let refused = build(&sandbox, &host, &["--secret", "id=s,src=/etc/hostname", "--no-cache"]).exits(2);
    let refused = refused.says("nothing was built").says("RUN --mount=type=cache").says("COPY --link").says("hint");
    assert!(refused.stderr.contains(":2:") && refused.stderr.contains(":3:") && refused.stderr.contains(":4:"));
    assert!(!refused.stderr.contains("started"), "{}", refused.stderr);
    build(&sandbox, &host, &["base", "--ulimit", "nofile=9", "--no-cache"])
        .exits(2)
        .says("`--ulimit`")
        .says("BuildKit");
}

/// What Docker keeps of the image beside its layers, and the files of its last layer.
fn kept(docker: &Docker, sandbox: &Sandbox, image: &str) -> (String, Vec<String>) {
    let (archive, dir) = (sandbox.path("saved.tar"), sandbox.path("saved"));
    docker.run(&["save", "-o", archive.to_str().unwrap(), image]);
    tar::Archive::new(fs::File::open(&archive).unwrap()).unpack(&dir).unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&fs::read(dir.join("manifest.json")).unwrap()).unwrap();
    let config = fs::read_to_string(dir.join(manifest[0]["Config"].as_str().unwrap())).unwrap();
    let last = manifest[0]["Layers"].as_array().unwrap().last().unwrap().as_str().unwrap();
    let (_, layer) = kollage::image::layer::decompress::decompress(fs::File::open(dir.join(last)).unwrap()).unwrap();
    let mut layer = tar::Archive::new(layer);
    let names = layer.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string());
    (config, names.collect())
}

#[test]
fn what_is_lent_to_steps_leaves_no_trace() {
    if !is_root() || !ready(&["dockerd", "docker", "busybox"]) {
        return;
    }
    let docker = Docker::start();
    let sandbox = Sandbox::with_base();
    let bundle = sandbox.path("bundle.pem");
    // Above the 500 KB that are said to be the limit of secrets, and is none for what this client gives.
    let many = "c2VjcmV0\n".repeat(100_000);
    fs::write(&bundle, format!("-----BEGIN CERTIFICATE-----\n{many}MARK\n-----END CERTIFICATE-----\n")).unwrap();
    let proxy = "http://me:pr0xy-word@proxy.example:3128";
    // Names are written so that a search for them finds only what was lent.
    let script = "env | grep -i '^http_[p]roxy' | sed 's/^/with /'; bundle=$(env | sed -n 's/^SSL_[C]ERT_FILE=//p')\n\
                  test -z \"$bundle\" || { grep '^[M]ARK' $bundle; cat $(env | sed -n 's/^APT_[C]ONFIG=//p'); }\n\
                  for name in SSL_[C]ERT_FILE CURL_[C]A_BUNDLE REQUESTS_[C]A_BUNDLE GIT_[S]SL_CAINFO NODE_[E]XTRA_CA_CERTS; do\n\
                  env | grep \"^$name=$bundle$\"; done; env | grep '^PIP_[C]ERT'; touch /made\n";
    sandbox.base(&format!("FROM {{{{ parent }}}}\nENV PIP_CERT=mine\nRUN true\nRUN <<END\n{script}END\n"));
    for builder in ["buildkit", "classic"] {
        settings(&sandbox, builder);
        let toml = fs::read_to_string(sandbox.catalogue().join("kollage.toml")).unwrap();
        let lent = format!("[build]\nca_bundle = \"{}\"\n", bundle.display());
        sandbox.write("kollage.toml", &toml.replace("[build]\n", &lent));
        let mut command = sandbox.command(&["build", "--engine", "docker", "--progress", "plain", "--no-cache"]);
        let ran = ran(command.env("DOCKER_HOST", docker.host()).env("http_proxy", proxy)).ok();
        let ran = ran.says("with http_proxy=http://me:***@proxy.example:3128").says("PIP_CERT=mine");
        assert_eq!(ran.stderr.contains("NODE_EXTRA_CA_CERTS="), builder == "buildkit", "{}", ran.stderr);
        assert_eq!(ran.stderr.contains("| MARK"), builder == "buildkit", "{}", ran.stderr);
        assert_eq!(ran.stderr.contains("Acquire::https::CaInfo"), builder == "buildkit", "{}", ran.stderr);
        let lacks = "cannot be lent this host's certificates";
        assert_eq!(ran.stderr.matches(lacks).count(), usize::from(builder == "classic"), "{}", ran.stderr);
        let (config, mut files) = kept(&docker, &sandbox, "kollage/base:debian-bookworm");
        // Every step touches it in Docker: there are hosts and resolv.conf, which this image has not.
        files.retain(|name| name != "etc/");
        assert_eq!(files, ["made"], "{builder}");
        for trace in ["proxy.example", "pr0xy-word", "MARK", "kollage", "SSL_CERT", "NODE_EXTRA", "APT_CONFIG", "/dev/"]
        {
            assert!(!config.contains(trace), "{builder}: {trace} in {config}");
        }
        assert!(config.contains("PIP_CERT=mine"), "{config}");
    }
}

#[test]
fn plugins_are_judged_on_docker_too() {
    if !is_root() || !ready(&["dockerd", "docker", "busybox"]) {
        return;
    }
    let docker = Docker::start();
    let sandbox = catalogue("auto");
    sandbox.write("images/app/Dockerfile.j2", "FROM {{ parent }}\nRUN echo app > /app\n");
    sandbox.write("images/app/image.toml", "[image]\nparent = \"base\"\n[plugins]\naccept = [\"*\"]\n");
    for (name, recipe) in [
        ("good", "RUN echo good > /good"),
        ("bold", "RUN echo bold > /app"),
        ("big", "RUN echo 1 > /1\nRUN echo 2 > /2"),
    ] {
        sandbox.write(&format!("plugins/{name}/plugin.toml"), "[plugin]\nimages = [\"app\"]\n");
        sandbox.write(&format!("plugins/{name}/Dockerfile.j2"), &format!("FROM {{{{ parent }}}}\n{recipe}\n"));
    }
    build(&sandbox, &docker.host(), &["app", "--plugin", "app=good"]).ok();
    let cat = docker.run(&["run", "--rm", "--network=none", "kollage/app:debian-bookworm", "cat", "/good", "/app"]);
    assert_eq!(cat, "good\napp\n");
    let bold = build(&sandbox, &docker.host(), &["app", "--plugin", "app=bold"]).exits(1);
    bold.says("plugin `bold` does not fit on `app`").says("changed /app");
    build(&sandbox, &docker.host(), &["app", "--plugin", "app=big"]).exits(2).says("makes 2 layers");
}

#[test]
fn images_of_the_embedded_engine_are_loaded_and_compared() {
    if !is_root() || !ready(&["dockerd", "docker", "busybox"]) {
        return;
    }
    let docker = Docker::start();
    let host = docker.host();
    let sandbox = catalogue("classic");
    let embedded = |args: &[&str]| {
        ran(sandbox.command(&[&["build", "--engine", "embedded"], args].concat()).env("DOCKER_HOST", &host))
    };
    embedded(&["app", "-o", "type=docker"]).ok().says("1 image loaded into Docker");
    let said = docker.run(&["run", "--rm", "--network=none", "kollage/app:debian-bookworm"]);
    assert_eq!(said, "for nobody\n");
    let nowhere = sandbox.path("nowhere").display().to_string();
    ran(sandbox.command(&["build", "-o", "type=docker"]).env("DOCKER_HOST", &nowhere))
        .exits(3)
        .says("no engine answers");

    // Of a directory that is copied to a new place, the older builder keeps everything but its own mode.
    let found = embedded(&["--verify-engine", "docker"]).exits(4).stdout;
    let expected = "base: embedded and docker give the same\napp: embedded and docker differ in 1 place\n  \
                    /data: mode 600 and 755\n";
    assert_eq!(found, expected);

    sandbox.image("host", "base", "FROM {{ parent }}\nRUN hostname > /host\n");
    let differs = embedded(&["host", "--verify-engine", "docker"]).exits(4);
    let lines: Vec<&str> = differs.stdout.lines().collect();
    assert_eq!(lines[0], "host: embedded and docker differ in 1 place");
    assert!(lines[1].starts_with("  /host: "), "{lines:?}");
    // The other way round, on parents that only Docker has.
    sandbox.write("images/base/Dockerfile.j2", "FROM {{ parent }}\nENV PATH=/bin\nRUN echo new > /base\n");
    let back = build(&sandbox, &host, &["host", "--verify-engine", "embedded"]).exits(4);
    assert!(back.stdout.starts_with("host: docker and embedded differ in 1 place\n  /host: "), "{}", back.stdout);
}

#[test]
fn podman_builds_a_catalogue() {
    if !is_root() || !ready(&["podman", "runc", "busybox"]) {
        return;
    }
    let podman = Podman::new();
    let service = podman.serve();
    let host = service.host();
    let sandbox = the_catalogue_is_built(&host, "auto");
    // Its builder knows mounts; secrets go over no way that it has.
    sandbox.write("images/app/Dockerfile.j2", "FROM {{ parent }}\nRUN --mount=type=cache,target=/c echo 1 > /c/1\n");
    sandbox.write("images/app/image.toml", "[image]\nparent = \"base\"\n");
    build(&sandbox, &host, &[]).ok();
    sandbox.write("images/app/Dockerfile.j2", "FROM {{ parent }}\nRUN --mount=type=secret,id=s true\n");
    build(&sandbox, &host, &[]).exits(2).says("RUN --mount=type=secret");
}

#[test]
fn an_engine_that_cannot_be_used_is_said_before_the_build() {
    let sandbox = catalogue("auto");
    let nowhere = format!("unix://{}", sandbox.path("nowhere").display());
    build(&sandbox, &nowhere, &[]).exits(3).says("no engine answers").says("DOCKER_HOST").says("hint");
    build(&sandbox, "docker:2375", &[]).exits(2).says("no address of an engine").says("it has no scheme");
    let mut command = sandbox.command(&["build"]);
    ran(command.env("DOCKER_CONTEXT", "missing").env("KOLLAGE_ENGINE", "docker"))
        .exits(3)
        .says("no Docker context `missing`");

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = format!("tcp://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let body = r#"{"Version":"1.13.1","ApiVersion":"1.26","MinAPIVersion":"1.12"}"#;
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nApi-Version: 1.26\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(format!("{head}{body}").as_bytes());
        }
    });
    build(&sandbox, &host, &[]).exits(3).says("Docker 1.13.1 is too old").says("1.26").says("hint");
}
