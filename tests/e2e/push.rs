//! `kollage push` and `kollage build --push` to Debian's docker-registry, read back by skopeo.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};

use crate::sandbox::{Ran, Sandbox, ran};
use crate::support::{Registry, ready, run};
use crate::tools::succeed;

/// base → service, other.
fn family() -> Sandbox {
    let sandbox = Sandbox::with_base();
    sandbox.base("FROM {{ parent }}\nENV PATH=/bin\nRUN echo base > /base\n");
    sandbox.image("service", "base", "FROM {{ parent }}\nRUN echo service > /service\n");
    sandbox.image("other", "base", "FROM {{ parent }}\nRUN echo other > /other\n");
    sandbox
}

struct World {
    sandbox: Sandbox,
    registry: Registry,
    dir: tempfile::TempDir,
}

impl World {
    fn new(login: bool) -> Option<World> {
        ready(&["docker-registry", "skopeo"]).then(|| {
            let dir = tempfile::tempdir().unwrap();
            let registry = Registry::start_in(dir.path(), login, None);
            World { sandbox: family(), registry, dir }
        })
    }

    /// `METHOD path status` of all requests so far, from the registry's log.
    fn requests(&self) -> Vec<String> {
        let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        let line = |line: &str| {
            let (method, rest) = line.split_once('"')?.1.split_once(' ')?;
            let (path, rest) = rest.split_once(' ')?;
            let status = rest.split_once("\" ")?.1.split(' ').next()?;
            path.starts_with("/v2/").then(|| format!("{method} {path} {status}"))
        };
        log.lines().filter_map(line).collect()
    }

    fn push(&self, args: &[&str]) -> Ran {
        self.sandbox.run(&[&["push", "--registry", self.registry.address()], args].concat())
    }

    fn build(&self, args: &[&str]) -> Ran {
        self.sandbox.run(&[&["build", "--push", "--registry", self.registry.address()], args].concat())
    }

    /// What skopeo sees.
    fn inspect(&self, image: &str, extra: &[&str]) -> Option<Value> {
        let name = format!("docker://{}/{}", self.registry.address(), self.name(image));
        let mut command = Command::new("skopeo");
        command.args(["inspect", "--tls-verify=false"]).args(extra).arg(name);
        let output = command.output().unwrap();
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    fn name(&self, image: &str) -> String {
        let list = self.sandbox.run(&["list", "--format", "json"]).ok().json();
        let images = list.as_array().unwrap().iter();
        let found = images.filter(|i| i["name"] == image).filter_map(|i| i["reference"].as_str()).next();
        found.unwrap_or_else(|| panic!("{image}: {list}")).to_owned()
    }

    /// Blobs that were sent, by digest.
    fn sent(&self) -> BTreeSet<String> {
        let requests = self.requests();
        let puts = requests.iter().filter(|r| r.starts_with("PUT ") && r.contains("/blobs/") && r.ends_with(" 201"));
        puts.map(|r| r.split("digest=").nth(1).unwrap().split(['&', ' ']).next().unwrap().to_owned()).collect()
    }
}

#[test]
fn a_build_is_pushed_as_a_whole_and_only_once() {
    let Some(world) = World::new(false) else { return };
    let built = world.build(&["--summary-json-file", "summary.json"]).ok().says("pushed 3 images");
    assert!(built.stderr.contains("mounted"), "{}", built.stderr);
    let summary = fs::read(world.sandbox.catalogue().join("summary.json")).unwrap();
    let summary: Value = serde_json::from_slice(&summary).unwrap();
    for node in summary["built"].as_array().unwrap().iter().filter(|node| node["kind"] == "image") {
        let seen = world.inspect(node["name"].as_str().unwrap(), &[]).unwrap();
        assert_eq!(seen["Digest"], node["digest"]);
    }
    let sent = world.sent();
    // Every blob once, though images share most of them.
    let puts = world.requests().iter().filter(|r| r.starts_with("PUT") && r.contains("/blobs/")).count();
    assert_eq!(puts, sent.len());
    world.push(&[]).ok().says("no blob sent").says("all names led there already");
    world.build(&[]).ok().says("no blob sent");
    assert_eq!(world.sent(), sent);
    // Under another tag: the same images, and no blob.
    world.push(&["service", "--tag", "next"]).ok().says("1 name moved");
    assert_eq!(world.sent(), sent);
    let next = format!("docker://{}/kollage/service:next", world.registry.address());
    run("skopeo", &["inspect", "--tls-verify=false", &next]);
}

/// The step of an image that ends when the registry has something of another.
#[test]
fn blobs_go_while_other_images_are_built() {
    let Some(world) = World::new(false) else { return };
    let wait = format!(
        "RUN for n in $(/bin/busybox seq 600); do /bin/busybox wget -q -O- http://{}/v2/_catalog \
         | grep -q kollage/other && exit 0; sleep 0.1; done; exit 1\n",
        world.registry.address()
    );
    world.sandbox.image("service", "base", &format!("FROM {{{{ parent }}}}\n{wait}"));
    let whole = world.sandbox.catalogue().join("images/service/Dockerfile.j2");
    // What fails has moved no name, and what was sent is not sent again.
    let recipe = fs::read_to_string(&whole).unwrap();
    fs::write(&whole, recipe.replace("exit 0", "exit 7")).unwrap();
    let failed = world.build(&["--jobs", "2"]).exits(1);
    assert!(!failed.stderr.contains("pushed"), "{}", failed.stderr);
    assert!(world.inspect("other", &[]).is_none());
    assert!(!world.sent().is_empty());
    fs::write(&whole, recipe).unwrap();
    world.build(&["--jobs", "2"]).ok().says("pushed 3 images: ").says("3 names moved");
    let uploads = world.requests().iter().filter(|r| r.starts_with("PUT ") && r.contains("/blobs/")).count();
    assert_eq!(uploads, world.sent().len(), "{:?}", world.requests());
}

#[test]
fn a_release_can_be_taken_back() {
    let Some(world) = World::new(false) else { return };
    world.build(&[]).ok();
    let digest = |image: &str| world.inspect(image, &[]).map(|seen| seen["Digest"].as_str().unwrap().to_owned());
    let before = digest("service").unwrap();
    world.sandbox.image("service", "base", "FROM {{ parent }}\nRUN echo changed > /service\n");
    world.build(&["--release-file", "release.json"]).ok().says("kollage push --rollback release.json");
    let file = world.sandbox.catalogue().join("release.json");
    let release: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let tag = release["tags"].as_array().unwrap().iter().find(|t| t["name"].as_str().unwrap().contains("/service:"));
    assert_eq!(tag.unwrap()["old"], json!(before));
    assert_eq!(tag.unwrap()["new"], json!(digest("service").unwrap()));
    world.push(&["--rollback", "release.json"]).ok().says("again").says("as it was before");
    assert_eq!(digest("service").unwrap(), before);
    // What was moved on by somebody else.
    world.sandbox.image("service", "base", "FROM {{ parent }}\nRUN echo third > /service\n");
    world.build(&[]).ok();
    let third = digest("service");
    world.push(&["--rollback", "release.json"]).exits(1).says("were moved since").says("--force");
    assert_eq!(digest("service"), third);
    world.push(&["--rollback", "release.json", "--force"]).ok();
    assert_eq!(digest("service").unwrap(), before);
    // A tag that was new. Debian's registry removes manifests only.
    world.push(&["service", "--tag", "new", "--release-file", "new.json"]).ok();
    world.push(&["--rollback", "new.json"]).exits(1).says("service:new stays").says("it is new");
    world.push(&["--rollback", "none.json"]).exits(2).says("cannot read none.json");
    fs::write(world.sandbox.catalogue().join("bad.json"), "{}").unwrap();
    world.push(&["--rollback", "bad.json"]).exits(2).says("cannot take back bad.json");
}

#[test]
fn killed_in_the_middle_it_goes_on_where_it_was() {
    let Some(world) = World::new(false) else { return };
    // Eight layers that no compression makes small.
    let steps: String = (0..8).map(|i| format!("RUN head -c 3000000 /dev/urandom > /random{i}\n")).collect();
    world.sandbox.image("service", "base", &format!("FROM {{{{ parent }}}}\n{steps}"));
    world.sandbox.run(&["build"]).ok();
    let args = ["push", "--registry", world.registry.address(), "--push-jobs", "1", "--push-chunk", "100k"];
    let mut child = world.sandbox.start(&args);
    let start = Instant::now();
    while world.sent().len() < 6 {
        assert!(
            start.elapsed() < Duration::from_secs(120) && child.try_wait().unwrap().is_none(),
            "{:?}",
            world.sent()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let first = world.sent();
    assert!(first.len() < 14, "{first:?}");
    for image in ["base", "service", "other"] {
        assert!(world.inspect(image, &[]).is_none(), "{image}");
    }
    world.push(&[]).ok().says("pushed 3 images");
    let puts = |digest: &String| {
        world.requests().iter().filter(|r| r.contains(digest.as_str()) && r.starts_with("PUT")).count()
    };
    for digest in &first {
        assert_eq!(puts(digest), 1, "{digest}");
    }
    assert!(world.sent().len() > first.len());
    for image in ["base", "service", "other"] {
        assert!(world.inspect(image, &[]).is_some(), "{image}");
    }
}

/// Case 18, and what is known before anything is built.
#[test]
fn what_cannot_be_pushed_is_not_built() {
    let Some(world) = World::new(true) else { return };
    let not_built = |ran: Ran| {
        assert!(!ran.stderr.contains("pushed"), "{}", ran.stderr);
        let images = world.sandbox.run(&["images", "--all", "--format", "json"]).ok().json();
        assert_eq!(images["images"], json!([]));
    };
    not_built(world.build(&[]).exits(3).says("wants a login for a push to kollage/").says("nothing was built"));
    let login = |password: &str| {
        let auth = base64::engine::general_purpose::STANDARD.encode(format!("me:{password}"));
        let file = world.sandbox.path("auth.json");
        fs::write(&file, json!({ "auths": { world.registry.address(): { "auth": auth } } }).to_string()).unwrap();
        file.display().to_string()
    };
    let refused = world.build(&["--authfile", &login("wr0ng")]).exits(3).says("refuses a push").says("user `me`");
    assert!(!refused.stderr.contains("wr0ng"), "{}", refused.stderr);
    not_built(refused);
    not_built(world.build(&["--authfile", "nowhere.json"]).exits(2).says("there is no file nowhere.json"));
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let down = ["build", "--push", "--retries", "0", "--registry", &free];
    not_built(world.sandbox.run(&down).exits(3).says("cannot be reached"));
    not_built(world.sandbox.run(&["build", "--push"]).exits(2).says("names no registry").says("--registry"));
    not_built(
        world.build(&["--format", "docker", "--compression", "zstd"]).exits(2).says("no layers compressed by zstd"),
    );
    world.build(&["--authfile", &login("s3cret")]).ok().says("pushed 3 images");
    // By the environment, as podman takes it.
    let mut command = world.sandbox.command(&["push", "--registry", world.registry.address(), "--tag", "two"]);
    ran(command.env("REGISTRY_AUTH_FILE", world.sandbox.path("auth.json"))).ok();
}

#[test]
fn types_compression_and_notes() {
    let Some(world) = World::new(false) else { return };
    world.sandbox.run(&["build", "service"]).ok();
    let raw = |image: &str| world.inspect(image, &["--raw"]).unwrap();
    world.push(&["service", "--format", "docker"]).ok();
    let docker = raw("service");
    assert_eq!(docker["mediaType"], "application/vnd.docker.distribution.manifest.v2+json");
    world.push(&["service", "--compression", "zstd", "--annotation", "a=b"]).ok();
    let zstd = raw("service");
    assert!(zstd["layers"][0]["mediaType"].as_str().unwrap().ends_with("tar+zstd"), "{zstd}");
    assert_eq!((&zstd["annotations"]["a"], &zstd["config"]["digest"]), (&json!("b"), &docker["config"]["digest"]));
    world.push(&["service", "--annotation", "a"]).exits(2).says("NAME=VALUE");
    // From git.
    world.push(&["service", "--git-info"]).exits(2).says("no git repository");
    let catalogue = world.sandbox.catalogue().display().to_string();
    let git = |args: &[&str]| {
        run("git", &[&["-C", &catalogue, "-c", "user.name=t", "-c", "user.email=t@t"], args].concat());
    };
    git(&["init", "-q"]);
    git(&["add", "-A"]);
    git(&["commit", "-q", "-m", "one"]);
    git(&["remote", "add", "origin", "https://me:s3cret@git.example.org/a.git"]);
    world.push(&["service", "--git-info=both"]).ok();
    let noted = raw("service");
    let source = "org.opencontainers.image.source";
    assert_eq!(noted["annotations"][source], "https://git.example.org/a.git");
    assert_eq!(noted["annotations"]["org.opencontainers.image.revision"].as_str().unwrap().len(), 40);
    let labels = world.inspect("service", &[]).unwrap();
    assert_eq!(labels["Labels"][source], "https://git.example.org/a.git");
    // It is no input of any key.
    assert!(world.sandbox.plan(&["service"]).iter().all(|(_, action)| action == "reuse"));
}

#[test]
fn names_that_are_not_there_and_what_is_pushed_outside_of_a_catalogue() {
    let Some(world) = World::new(false) else { return };
    world.push(&[]).exits(2).says("not built yet").says("kollage build");
    world.sandbox.run(&["build", "base"]).ok();
    world.push(&["service"]).exits(2).says("not built yet: kollage/service:");
    world.push(&["servise"]).exits(2);
    // Of all images, those that are there.
    world.push(&[]).ok().says("pushed 1 image");
    let outside = |args: &[&str]| {
        let mut command = world.sandbox.command(&[&["push", "--registry", world.registry.address()], args].concat());
        ran(command.current_dir("/"))
    };
    outside(&[]).exits(2).says("--all");
    outside(&["bas*"]).ok().says("pushed 1 image");
    // A single Dockerfile.
    fs::write(world.sandbox.path("Dockerfile"), "FROM scratch\nLABEL a=b\n").unwrap();
    let file = world.sandbox.path("Dockerfile").display().to_string();
    let name = format!("{}/team/one:1", world.registry.address());
    world.sandbox.run(&["build", "--dockerfile", &file, "-t", &name, "--push"]).ok().says("pushed 1 image");
    run("skopeo", &["inspect", "--tls-verify=false", &format!("docker://{name}")]);
    world.sandbox.run(&["build", "--dockerfile", &file, "-t", "one", "--push"]).exits(2).says("names no registry");
    world.sandbox.run(&["build", "--dockerfile", &file, "--push"]).exits(2).says("no name to push");
}

/// An authority, and certificates by it, for 127.0.0.1 and for a client: `ca.crt`, `server.crt` and `server.key`,
/// `client.crt` and `client.key`.
pub fn certificates(dir: &Path) {
    let openssl = |args: &str| {
        let mut command = Command::new("openssl");
        succeed(command.args(args.split(' ')).current_dir(dir));
    };
    openssl("req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 30 -subj /CN=test-authority");
    openssl("req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=127.0.0.1");
    fs::write(dir.join("san"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    openssl("x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.crt -days 30 -extfile san");
    fs::write(dir.join("usage"), "extendedKeyUsage=clientAuth\n").unwrap();
    openssl("req -newkey rsa:2048 -nodes -keyout client.key -out client.csr -subj /CN=client");
    openssl(
        "x509 -req -in client.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out client.crt -days 30 -extfile usage",
    );
}

#[test]
fn tls_with_an_authority_of_ones_own() {
    if !ready(&["docker-registry", "skopeo", "openssl"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    certificates(dir.path());
    let path = |name: &str| dir.path().join(name);
    let registry = Registry::start_in(dir.path(), false, Some((&path("server.crt"), &path("server.key"))));
    let world = World { sandbox: family(), registry, dir };
    world.sandbox.run(&["build", "base"]).ok();
    let strict = |extra: &[&str]| world.push(&[&["base", "--tls-verify=true"], extra].concat());
    strict(&[]).exits(3).says("cannot be reached safely").says("authority");
    let certs = world.sandbox.path("certs");
    fs::create_dir(&certs).unwrap();
    fs::copy(world.dir.path().join("ca.crt"), certs.join("ca.crt")).unwrap();
    let certs = certs.display().to_string();
    strict(&["--cert-dir", &certs]).ok().says("pushed 1 image");
    world.push(&["base", "--tls-verify=false"]).ok().says("no blob sent");
    strict(&["--cert-dir", "nowhere"]).exits(2).says("there is no directory nowhere");
    fs::write(world.sandbox.path("certs/broken.crt"), "x").unwrap();
    strict(&["--cert-dir", &certs]).exits(3).says("broken.crt cannot be used");
}

#[test]
fn a_registry_is_where_registries_conf_says() {
    let Some(world) = World::new(false) else { return };
    world.sandbox.run(&["build", "base"]).ok();
    let conf = world.sandbox.path("registries.conf");
    let push = |text: &str| {
        fs::write(&conf, text).unwrap();
        let mut command = world.sandbox.command(&["push", "base", "--registry", "registry.example.org"]);
        ran(command.env("CONTAINERS_REGISTRIES_CONF", &conf))
    };
    let at = world.registry.address();
    let mirrored = format!(
        "[[registry]]\nprefix = \"registry.example.org\"\nlocation = \"{at}/moved\"\n\n\
         [[registry.mirror]]\nlocation = \"mirror.example.org\"\n"
    );
    push(&mirrored).ok().says("pushed 1 image");
    let name = world.name("base");
    run("skopeo", &["inspect", "--tls-verify=false", &format!("docker://{at}/moved/{name}")]);
    push("[[registry]]\nlocation = \"registry.example.org\"\nblocked = true\n")
        .exits(3)
        .says("is blocked on this machine");
    push("[[registry]]\nlocation = 7\n").exits(2).says("registries.conf:2");
    let mut command = world.sandbox.command(&["push", "base", "--registry", at]);
    ran(command.env("CONTAINERS_REGISTRIES_CONF", "/nowhere")).exits(2).says("/nowhere, which isn't there");
}

#[test]
fn layers_of_an_image_that_was_pushed_before_are_mounted() {
    let Some(world) = World::new(false) else { return };
    world.build(&["base"]).ok();
    let sent = world.sent();
    world.build(&["service"]).ok().says("mounted");
    // Its own layer and its configuration.
    assert_eq!(world.sent().len(), sent.len() + 2);
}

/// Case 18.
#[test]
fn a_push_that_fails_shows() {
    let Some(world) = World::new(false) else { return };
    world.sandbox.run(&["build", "base"]).ok();
    let images = world.sandbox.run(&["images", "base", "--format", "json"]).ok().json();
    let manifest = images["images"][0]["digest"].as_str().unwrap().to_owned();
    let blobs = world.sandbox.path("store/blobs");
    let manifest: Value = serde_json::from_slice(&fs::read(blobs.join(manifest.replace(':', "/"))).unwrap()).unwrap();
    fs::remove_file(blobs.join(manifest["layers"][0]["digest"].as_str().unwrap().replace(':', "/"))).unwrap();
    let failed = world.push(&["base"]).exits(1).says("layer 1 of").says("kollage store verify --repair");
    assert!(!failed.stderr.contains("pushed"), "{}", failed.stderr);
    assert!(world.inspect("base", &[]).is_none());
    // A build makes it again, and the same push succeeds.
    world.build(&["base"]).ok().says("pushed 1 image");
}

#[test]
fn case_24_what_is_in_the_registry_is_not_taken_for_a_parent() {
    let Some(world) = World::new(false) else { return };
    world.build(&[]).ok();
    let layers = |image: &str| world.inspect(image, &[]).unwrap()["Layers"].as_array().unwrap().clone();
    let old = layers("base");
    world.sandbox.base("FROM {{ parent }}\nENV PATH=/bin\nRUN echo newer > /base\n");
    world.build(&["service"]).ok();
    assert_eq!(layers("base"), old, "what wasn't selected isn't pushed");
    assert_ne!(layers("service")[..old.len()], old[..]);
    let says = world.sandbox.run(&["run", "service", "--", "cat", "/base"]).ok().stdout;
    assert_eq!(says, "newer\n");
}

#[test]
fn the_bundle_goes_to_a_registry_and_onto_an_image_there() {
    let Some(world) = World::new(false) else { return };
    world.build(&["base"]).ok();
    world.sandbox.write("start-scripts/svc/start.toml", crate::start::SERVICE);
    let runtime = crate::start::shipped().display().to_string();
    let at = world.registry.address();
    let raw = |name: &str| -> Value {
        let name = format!("docker://{at}/{name}");
        serde_json::from_str(&run("skopeo", &["inspect", "--raw", "--tls-verify=false", &name])).unwrap()
    };
    let push = |name: &str, extra: &[&str]| {
        let name = format!("{at}/{name}");
        world.sandbox.run(&[&["start", "push", &name, "--runtime", &runtime], extra].concat())
    };
    push("kollage/start:1", &[]).ok().says("pushed 1 image");
    assert_eq!(raw("kollage/start:1")["layers"].as_array().unwrap().len(), 1);
    push("kollage/start:1-file", &["--artifact", "--annotation", "a=b"]).ok().says("pushed 1 image");
    let artifact = raw("kollage/start:1-file");
    assert_eq!(artifact["artifactType"], "application/vnd.kollage.start.bundle.v1");
    assert_eq!(artifact["layers"][0]["annotations"]["org.opencontainers.image.title"], "kollage-start.tar.gz");
    world.sandbox.run(&["start", "push", "kollage/start", "--runtime", &runtime]).exits(2).says("names no registry");

    // In a store that has nothing of the image.
    let base = format!("{at}/{}", world.name("base"));
    let other = |args: &[&str]| world.sandbox.run_on("other", args);
    let layers = raw(&world.name("base"))["layers"].as_array().unwrap().clone();
    let fetched = || {
        let requests = world.requests();
        let get = |layer: &Value| {
            let digest = layer["digest"].as_str().unwrap().to_owned();
            requests.iter().any(|r| r.starts_with("GET") && r.contains(&format!("blobs/{digest}")))
        };
        layers.iter().any(get)
    };
    for (name, mounts) in [(base.replace("base:", "adopted:"), true), (base.clone() + "-started", false)] {
        let before = world.requests().len();
        let adopt = ["start", "adopt", &base, "--service", "svc", "-t", &name, "--runtime", &runtime];
        let adopted = other(&adopt).ok().says("its files were not looked at");
        assert!(adopted.stdout.starts_with("sha256:"), "{}", adopted.stdout);
        let mounted = world.requests()[before..].iter().any(|r| r.contains("mount=") && r.ends_with(" 201"));
        assert_eq!((mounted, fetched()), (mounts, false));
        assert_eq!(other(&adopt).ok().says("no blob sent").stdout, adopted.stdout);
    }
    // To another registry: layers are copied.
    let dir = tempfile::tempdir().unwrap();
    let second = Registry::start_in(dir.path(), false, None);
    let name = format!("{}/team/adopted:1", second.address());
    let adopt = ["start", "adopt", &base, "--service", "svc", "-t", &name, "--runtime", &runtime];
    other(&adopt).ok().says("pushed 1 image");
    // It has what it needs, and starts by its definition.
    other(&["start", "check", &name]).ok().says("has what svc needs");
    fs::write(world.sandbox.path("Dockerfile"), format!("FROM {name}\n")).unwrap();
    let file = world.sandbox.path("Dockerfile").display().to_string();
    other(&["build", "--dockerfile", &file, "-t", "started"]).ok();
    assert_eq!(other(&["run", "started"]).ok().stdout, "hello, by 4711\n");
    // Checked, it is as one of the store.
    world
        .sandbox
        .write("start-scripts/svc/start.toml", &crate::start::SERVICE.replace("\"cat\", \"/run", "\"catt\", \"/run"));
    other(&[&adopt[..], &["--check"]].concat()).exits(4).says("lacks what svc needs: catt");
    other(&["start", "check", &format!("{at}/none:1"), "--service", "svc"]).exits(3).says("does not have the manifest");
    other(&["start", "check", "none:1", "--service", "svc"]).exits(2).says("docker.io included");
}
