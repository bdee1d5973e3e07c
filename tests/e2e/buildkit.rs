//! BuildKit as builder: the one inside Debian's dockerd, and two of them as two builders. Needs root.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kollage::engine::buildkit::client::{Build, Connection, Exporter, Problem};
use kollage::engine::buildkit::dial::{self, Certificates, Kind};
use kollage::engine::buildkit::progress::Watch;
use kollage::engine::buildkit::session::Lent;
use kollage::engine::embedded::output::Redactor;
use kollage::engine::{Ctl, SecretSource};
use kollage::event::{Cancel, Event, Sink};

use crate::sandbox::{Sandbox, field};
use crate::support::{kill, newer_docker};
use crate::tools::{Docker, Registry, ready, run};

const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Sink for Heard {
    fn event(&self, event: Event) {
        let text = match event {
            Event::StepStarted { title, .. } => title,
            Event::Output { line, .. } => line,
            Event::StepFinished { reused: true, .. } => "reused".into(),
            _ => return,
        };
        self.0.lock().unwrap().push(text);
    }
}

/// A tar with a Dockerfile and busybox.
fn context(dockerfile: &str) -> Lent {
    let mut tar = tar::Builder::new(Vec::new());
    let busybox = fs::read("/bin/busybox").unwrap();
    for (name, mode, content) in [("Dockerfile", 0o644, dockerfile.as_bytes()), ("busybox", 0o755, &busybox)] {
        let mut head = tar::Header::new_gnu();
        head.set_mode(mode);
        head.set_size(content.len() as u64);
        tar.append_data(&mut head, name, content).unwrap();
    }
    let bytes = tar.into_inner().unwrap();
    let write = move |out: &mut dyn std::io::Write| {
        out.write_all(&bytes).unwrap();
        Ok(())
    };
    Lent { context: Some(Arc::new(write)), ..Lent::default() }
}

fn image(name: &str) -> Build {
    let attributes = BTreeMap::from([("name".to_owned(), name.to_owned())]);
    Build {
        attributes: BTreeMap::from([("force-network-mode".to_owned(), "none".to_owned())]),
        exporter: Some(Exporter { name: "moby".into(), attributes }),
        ..Build::default()
    }
}

/// What the builder said at the end, and meanwhile.
fn built(docker: &Docker, build: &Build, lent: Lent) -> (Result<String, Problem>, Vec<String>) {
    let dial = dial::dial(&docker.host().parse().unwrap(), &Certificates(None)).unwrap();
    let (node, cancel, heard) = (Arc::from("web"), Cancel::new().unwrap(), Heard::default());
    let ctl = Ctl { node: &node, sink: &heard, cancel: &cancel };
    let mut redactor = Redactor::default();
    redactor.add(b"s3cret-value");
    let mut watch = Watch::new(&ctl, redactor, &|_| None);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let answer = runtime.block_on(async {
        let connection = Connection::open(&dial).await.unwrap();
        assert_eq!(connection.kind, Kind::Docker);
        let facts = connection.facts().await.unwrap();
        assert!(facts.platforms.contains(&kollage::image::config::Platform::host().to_string()), "{facts:?}");
        assert!(!facts.pushes);
        connection.build(build, lent, &mut |status| watch.status(status)).await
    });
    if let Some(failed) = &watch.failed {
        heard.0.lock().unwrap().push(format!("{} failed: {}", failed.title, failed.why));
    }
    (answer.map(|answer| answer["containerimage.digest"].clone()), heard.0.into_inner().unwrap())
}

#[test]
fn a_dockerfile_is_built_by_dockerds_buildkit_with_all_that_it_is_lent() {
    if !ready(&["dockerd", "docker", "busybox"]) {
        return;
    }
    let docker = Docker::start();
    let dockerfile = concat!(
        "FROM scratch\nCOPY busybox /bin/busybox\n",
        "RUN --mount=type=secret,id=word [\"/bin/busybox\", \"cat\", \"/run/secrets/word\"]\n",
        "RUN --mount=type=ssh [\"/bin/busybox\", \"sh\", \"-c\", ",
        "\"echo hello | /bin/busybox nc local:$SSH_AUTH_SOCK; echo over\"]\n",
        "CMD [\"/bin/busybox\", \"true\"]\n",
    );
    // An agent that says one thing.
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("agent");
    let listener = UnixListener::bind(&socket).unwrap();
    let agent = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = [0; 6];
        stream.read_exact(&mut asked).unwrap();
        stream.write_all(b"from the agent\n").unwrap();
        asked
    });
    let lent = Lent {
        secrets: BTreeMap::from([("word".to_owned(), SecretSource::Value(b"s3cret-value".to_vec()))]),
        ssh: BTreeMap::from([("default".to_owned(), socket)]),
        images: BTreeSet::new(),
        ..context(dockerfile)
    };
    let (answer, heard) = built(&docker, &image("made:1"), lent.clone());
    let digest = answer.unwrap();
    assert_eq!(docker.run(&["image", "inspect", "--format", "{{.Id}}", "made:1"]).trim(), digest);
    assert_eq!(
        docker.run(&["image", "inspect", "--format", "{{.Config.Cmd}}", "made:1"]).trim(),
        "[/bin/busybox true]"
    );
    assert!(heard.contains(&"COPY busybox /bin/busybox".to_owned()), "{heard:?}");
    assert!(heard.contains(&"***".to_owned()), "{heard:?}");
    assert!(!heard.iter().any(|line| line.contains("s3cret-value")), "{heard:?}");
    assert!(heard.contains(&"over".to_owned()), "{heard:?}");
    if heard.contains(&"from the agent".to_owned()) {
        assert_eq!(&agent.join().unwrap(), b"hello\n");
    } else {
        // Not every busybox can talk to a socket.
        assert!(heard.iter().any(|line| line.contains("nc")), "{heard:?}");
    }

    // Once more: all of it is there.
    let (answer, heard) = built(&docker, &image("made:2"), lent);
    assert_eq!(answer.unwrap(), digest);
    assert_eq!(heard.iter().filter(|line| *line == "reused").count(), 3, "{heard:?}");

    let (answer, heard) =
        built(&docker, &image("made:3"), context("FROM scratch\nCOPY busybox /b\nRUN [\"/b\", \"false\"]\n"));
    assert!(matches!(answer, Err(Problem::Failed(_))), "{answer:?}");
    let last = heard.last().unwrap();
    assert!(last.starts_with("RUN [\"/b\", \"false\"] failed: ") && last.contains("exit code: 1"), "{heard:?}");
}

const LEAVES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// A base, six images on it and one on the first of these.
fn family(seconds: u32) -> Sandbox {
    let sandbox = Sandbox::with_base();
    sandbox.write("kollage.toml", "[build]\nbase = \"debian\"\nsource_date_epoch = 1700000000\nnetwork = \"none\"\n");
    sandbox.base("FROM {{ parent }}\nRUN echo base > /base\n");
    for name in LEAVES {
        sandbox.write(&format!("images/{name}/file"), name);
        let steps = format!("RUN sleep {seconds}; echo {name} > /{name}\nCOPY --chmod=600 file /file\n");
        sandbox.image(name, "base", &format!("FROM {{{{ parent }}}}\n{steps}LABEL of={name}\n"));
    }
    sandbox.image("top", "a", "FROM {{ parent }}\nRUN test -e /a && echo top > /top\n");
    sandbox
}

/// Arguments for these builders.
fn on<'a>(builders: &'a [String], repository: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["--engine", "buildkit", "--builder-repository", repository];
    args.extend(builders.iter().flat_map(|builder| ["--builder", builder]));
    args.extend(more);
    args
}

fn all_reused(summary: &serde_json::Value) {
    let nodes = summary["built"].as_array().unwrap();
    assert!(nodes.len() > LEAVES.len() && nodes.iter().all(|node| node["status"] == "reused"), "{summary}");
}

/// Images of the repository that a builder has.
fn images(docker: &Docker, repository: &str) -> usize {
    docker.run(&["image", "ls", "--format", "{{.Repository}}", repository]).lines().count()
}

#[test]
fn a_profile_is_spread_over_two_builders_and_found_again_by_another_machine() {
    if !ready(&["dockerd", "docker", "docker-registry", "busybox", "skopeo"]) {
        return;
    }
    let sandbox = family(1);
    let (registry, dockers) = (Registry::start(false), [Docker::start(), Docker::start()]);
    let builders = dockers.each_ref().map(Docker::host);
    let repository = format!("{}/kollage/work", registry.address());
    let layout = sandbox.path("out");
    let output = format!("type=oci,dest={}", layout.display());
    let args = on(&builders, &repository, &["-o", &output]);
    let first = sandbox.build(&args);
    for name in LEAVES.iter().chain(&["base", "top"]) {
        assert_eq!(field(&first, name, "status"), "built", "{first}");
    }
    let spread = dockers.each_ref().map(|docker| images(docker, &repository));
    assert!(spread.iter().all(|n| *n >= 3), "{spread:?}");

    // What they made is what was said, with everything below it.
    let reference = field(&first, "top", "reference");
    let config = run("skopeo", &["inspect", "--config", &format!("oci:{}:{reference}", layout.display())]);
    let config: serde_json::Value = serde_json::from_str(&config).unwrap();
    assert_eq!(config["rootfs"]["diff_ids"].as_array().unwrap().len(), 5, "{config}");
    assert_eq!(config["config"]["Labels"]["of"], "a");
    let said = sandbox.run(&["run", "top", "--", "sh", "-c", "cat /base /a /top /file; stat -c %a /file"]).ok();
    assert_eq!(said.stdout, "base\na\ntop\na600\n");

    // Nothing changed: nothing is built, neither here nor from a store that knows nothing.
    for store in ["store", "other"] {
        let again = sandbox.build_on(store, &on(&builders, &repository, &[]));
        all_reused(&again);
    }

    // Keys don't depend on the engine: the embedded one finds what the builders made.
    let again = sandbox.build(&[]);
    all_reused(&again);
}

/// With containerd's image store dockerd pushes by itself, and can keep what steps gave where another one finds it.
#[test]
fn what_steps_gave_is_found_by_a_builder_that_has_nothing() {
    if !ready(&["dockerd", "docker", "docker-registry", "busybox"]) {
        return;
    }
    let sandbox = Sandbox::with_base();
    sandbox.write("kollage.toml", "[build]\nbase = \"debian\"\nsource_date_epoch = 1700000000\nnetwork = \"none\"\n");
    sandbox.base("FROM {{ parent }}\nRUN echo base > /base\n");
    sandbox.write("ca.pem", "a certificate\n");
    sandbox.write("daemon.json", r#"{"features": {"containerd-snapshotter": true}}"#);
    let config = format!("--config-file={}", sandbox.catalogue().join("daemon.json").display());
    let start = || newer_docker(&[config.clone(), "--storage-driver=overlayfs".into()]).0;
    let (registry, dockers) = (Registry::start(false), [start(), start()]);
    let repository = format!("{}/kollage/work", registry.address());
    for bundle in ["off", "ca.pem"] {
        let lends = format!("build.ca_bundle={bundle}");
        let name = bundle.trim_end_matches(".pem");
        let (mut once, mut last) = (Vec::new(), Vec::new());
        for (docker, store) in dockers.iter().zip(["store", "other"]) {
            let recipe = "FROM {{ parent }}\nRUN cat /proc/sys/kernel/random/uuid > /once\n";
            sandbox.image(name, "base", &format!("{recipe}RUN echo {store} > /last\n"));
            let layout = format!("type=oci,dest={}", sandbox.path(&format!("{name}-{store}")).display());
            let builders = [docker.host()];
            sandbox.build_on(store, &on(&builders, &repository, &[name, "--set", &lends, "-o", &layout]));
            once.push(sandbox.run_on(store, &["run", name, "--", "cat", "/once"]).ok().stdout);
            last.push(sandbox.run_on(store, &["run", name, "--", "cat", "/last"]).ok().stdout);
        }
        assert_eq!(last, ["store\n", "other\n"]);
        assert_eq!(once[0], once[1], "{bundle}: the step was not done again");
    }
}

#[test]
fn a_dockerd_alone_needs_no_registry() {
    if !ready(&["dockerd", "docker", "busybox"]) {
        return;
    }
    let (sandbox, docker) = (family(0), Docker::start());
    let host = docker.host();
    let args = ["--engine", "buildkit", "--builder", &host];
    sandbox.build(&args);
    let said =
        docker.run(&["run", "--rm", "--network=none", "kollage/top:debian-bookworm", "cat", "/base", "/a", "/top"]);
    assert_eq!(said, "base\na\ntop\n");
    all_reused(&sandbox.build(&args));
}

/// What is deleted, replaced and put under what was there, in several layers of which some undo others.
const MANY: &str = "FROM {{ parent }}\nRUN rm /base && rm -r /dir && mkdir /dir && echo new > /dir/new\n\
                    RUN echo gone > /gone && echo first > /kept && mkdir -p /etc/x && touch /etc/x/1\n\
                    RUN rm /gone && echo last > /kept && rm -r /etc/x && mkdir /etc/x && touch /etc/x/2\n\
                    COPY --chmod=640 file /file\nENV A=b\n";

#[test]
fn squashed_images_have_one_layer_on_their_base_whoever_builds_them() {
    if !ready(&["dockerd", "docker", "docker-registry", "busybox"]) {
        return;
    }
    let sandbox = Sandbox::with_base();
    sandbox.write("kollage.toml", "[build]\nbase = \"debian\"\nsource_date_epoch = 1700000000\nnetwork = \"none\"\n");
    sandbox.base("FROM {{ parent }}\nRUN echo base > /base\nRUN mkdir -p /dir /etc && echo old > /dir/old\n");
    sandbox.image("app", "base", MANY);
    sandbox.write("images/app/file", "file");
    let (docker, registry) = (Docker::start(), Registry::start(false));
    let (host, repository) = (docker.host(), format!("{}/work", registry.address()));
    let seen = "cd /; ls dir etc/x; test ! -e base && test ! -e gone && cat kept file; stat -c %a file; echo $A";
    for engine in ["embedded", "docker", "buildkit"] {
        let layout = sandbox.path(&format!("{engine}.oci"));
        let output = format!("type=oci,dest={}", layout.display());
        let mut args = vec!["build", "app", "--squash", "--engine", engine, "-o", &output];
        if engine == "buildkit" {
            args.extend(["--builder", &host, "--builder-repository", &repository]);
        }
        let build = || crate::sandbox::ran(sandbox.command_on(engine, &args).env("DOCKER_HOST", &host)).ok();
        build();
        let config = run("skopeo", &["inspect", "--config", &format!("oci:{}", layout.display())]);
        let config: serde_json::Value = serde_json::from_str(&config).unwrap();
        // The root file system, what base adds, what app adds.
        assert_eq!(config["rootfs"]["diff_ids"].as_array().unwrap().len(), 3, "{engine}: {config}");
        let layers = config["history"].as_array().unwrap().iter().filter(|line| line["empty_layer"] != true);
        assert_eq!(layers.count(), 3, "{engine}: {config}");
        let said = sandbox.run_on(engine, &["run", "app", "--", "sh", "-c", seen]).ok().stdout;
        assert_eq!(said, "dir:\nnew\n\netc/x:\n2\nlast\nfile640\nb\n", "{engine}");
        assert!(build().stderr.contains("nothing changed"), "{engine}");
        // With and without are two images.
        let plan = sandbox.run_on(engine, &["plan", "app", "--format", "json"]).ok().json();
        assert!(
            plan.as_array().unwrap().iter().any(|node| node["name"] == "app" && node["action"] != "reuse"),
            "{plan}"
        );
    }
}

#[test]
fn a_builder_that_goes_away_gives_its_work_to_the_other() {
    if !ready(&["dockerd", "docker", "docker-registry", "busybox"]) {
        return;
    }
    let sandbox = family(3);
    let (registry, first, second) = (Registry::start(false), Docker::start(), Docker::start());
    let builders = [first.host(), second.host()];
    let repository = format!("{}/kollage/work", registry.address());
    let args = on(&builders, &repository, &["--progress", "plain"]);
    let log = sandbox.path("log");
    let mut command = sandbox.command(&[&["build"], args.as_slice()].concat());
    let mut child = command.stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
    let text = || fs::read_to_string(&log).unwrap();
    let start = Instant::now();
    // Four of them run at once, two on each.
    while text().matches("RUN sleep").count() < 4 {
        assert!(child.try_wait().unwrap().is_none() && start.elapsed() < PATIENCE, "{}", text());
        std::thread::sleep(Duration::from_millis(50));
    }
    kill(&first);
    let status = child.wait().unwrap();
    assert!(status.success(), "{}", text());
    assert!(text().contains(&format!("the builder {} went away", builders[0])), "{}", text());
    assert!(images(&second, &repository) >= 4);
    // From a store that knows nothing, and with the one builder that is left: all of it is in the registry.
    let again = sandbox.build_on("other", &on(&builders[1..], &repository, &[]));
    all_reused(&again);
}

#[test]
fn what_cannot_work_is_said_before_anything_is_built() {
    let sandbox = family(0);
    let nobody = sandbox.path("nobody.sock");
    let dead = format!("unix://{}", nobody.display());
    let builders = [dead.clone()];
    let ran = sandbox.run(&[&["build"], on(&builders, "127.0.0.1:1/work", &[]).as_slice()].concat()).exits(3);
    ran.says(&format!("the builder {dead} does not answer")).says("hint:");
    let ran = sandbox.run(&["build", "--engine", "buildkit", "--builder", &dead, "--builder", "unix:///else"]).exits(3);
    ran.says("no registry where their results can meet").says("--builder-repository");
    // One alone needs none if it is a dockerd, which has to be asked.
    let ran = sandbox.run(&["build", "--engine", "buildkit", "--builder", &dead]).exits(3);
    ran.says(&format!("the builder {dead} does not answer"));
    sandbox.run(&["build", "--engine", "buildkit"]).exits(2).says("BUILDKIT_HOST");
    let ran = sandbox.run(&["build", "--engine", "buildkit", "--builder", "tpc://host"]).exits(2);
    ran.says("`tcp`");

    // Somebody answers, and is no builder.
    let listener = UnixListener::bind(&nobody).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 100]);
            let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\n\r\n");
        }
    });
    let ran = sandbox.run(&[&["build"], on(&builders, "127.0.0.1:1/work", &[]).as_slice()].concat()).exits(3);
    ran.says("status 404");
}

#[test]
fn each_platform_has_its_builder() {
    if !ready(&["dockerd", "docker", "docker-registry", "busybox", "skopeo"]) {
        return;
    }
    let [host, other] = ["linux/amd64", "linux/386"];
    if kollage::image::config::Platform::host().to_string() != host {
        return;
    }
    let sandbox = Sandbox::with_base();
    let (registry, dockers) = (Registry::start(false), [Docker::start(), Docker::start()]);
    let repository = format!("{}/kollage/work", registry.address());
    // Busybox of the one runs on the other as well.
    let settings = format!(
        "[build]\nbase = \"debian\"\nnetwork = \"none\"\n[engine]\ndefault = \"buildkit\"\n[engine.buildkit]\n\
         repository = \"{repository}\"\nbuilders = [\n    {{ address = \"{}\", platform = \"{host}\" }},\n    \
         {{ address = \"{}\", platform = \"{other}\" }},\n]\n",
        dockers[0].host(),
        dockers[1].host()
    );
    sandbox.write("kollage.toml", &settings);
    sandbox.base("FROM {{ parent }}\nARG TARGETARCH\nRUN echo $TARGETARCH > /arch\n");
    let layout = sandbox.path("out");
    let output = format!("type=oci,dest={}", layout.display());
    sandbox.build(&["--platform", &format!("{host},{other}"), "-o", &output]);
    for docker in &dockers {
        assert_eq!(images(docker, &repository), 1);
    }
    let image = format!("oci:{}:debian-bookworm", layout.display());
    let raw: serde_json::Value = serde_json::from_str(&run("skopeo", &["inspect", "--raw", &image])).unwrap();
    assert_eq!(raw["manifests"].as_array().unwrap().len(), 2, "{raw}");
    for architecture in ["amd64", "386"] {
        let text = run("skopeo", &["--override-arch", architecture, "inspect", "--config", &image]);
        let config: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(config["architecture"], architecture);
    }
    let ran = sandbox.run(&["build", "--platform", "linux/s390x"]).exits(3);
    ran.says("no builder builds for linux/s390x").says("linux/386, linux/amd64");
}
