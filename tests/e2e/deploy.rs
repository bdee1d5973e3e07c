//! `kollage deploy` on Debian's dockerd and podman, with services of busybox started by the real runtime.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::sandbox::{Ran, Sandbox, busybox_rootfs, ran};
use crate::support::{Podman, PodmanService};
use crate::tools::{Docker, Registry, ready, run};

const START: &str = r#"
[service]
summary = "Says hello"
command = ["/bin/serve", "${ADDRESS}:${PORT}"]
health = ["http", "http://127.0.0.1:${PORT}/"]
stop_timeout = 5

[variables]
ADDRESS = { summary = "Address", default = "127.0.0.1" }
PORT = { summary = "Port" }
PASSWORD = { summary = "Of nothing", secret = true }
MAY = { summary = "Whether it may be reset", default = "no" }

[[directory]]
path = "/data"

[[task]]
name = "bootstrap"
[[task.step]]
title = "Note that this was done"
run = ["/bin/busybox", "sh", "-c", "echo bootstrap >> /data/log; echo the password is $PASSWORD"]
environment = { PASSWORD = "${PASSWORD}" }

[[task]]
name = "flag"
[[task.step]]
title = "See that the flag is there"
run = ["/bin/busybox", "test", "-e", "/flag/up"]

[[task]]
name = "upgrade"
[[task.step]]
title = "Note that this was done"
run = ["/bin/busybox", "sh", "-c", "echo upgrade >> /data/log"]

[[task]]
name = "finish-upgrade"
[[task.step]]
title = "Note that this was done"
run = ["/bin/busybox", "sh", "-c", "echo finish >> /data/log"]

[[task]]
name = "look"
while = "running"
[[task.step]]
title = "Ask it for its page"
run = ["/bin/busybox", "wget", "-q", "-O", "-", "http://127.0.0.1:${PORT}/"]

[[task]]
name = "reset"
while = "stopped"
[[task.step]]
title = "See that nobody answers"
run = ["/bin/busybox", "sh", "-c", "! /bin/busybox wget -q -O - http://127.0.0.1:${PORT}/ && test $MAY = yes"]
[[task.step]]
title = "Note that this was done"
run = ["/bin/busybox", "sh", "-c", "echo reset >> /data/log"]
"#;

pub fn shipped() -> &'static Path {
    crate::runtime::shipped(Path::new(env!("CARGO_MANIFEST_DIR")))
}

enum Engine {
    Docker(Docker),
    Podman(Podman, PodmanService),
}

impl Engine {
    fn docker() -> Option<Engine> {
        ready(&["dockerd", "docker", "busybox"]).then(|| Engine::Docker(Docker::start()))
    }

    fn podman() -> Option<Engine> {
        if !ready(&["podman", "runc", "busybox"]) {
            return None;
        }
        let podman = Podman::new();
        let service = podman.serve();
        Some(Engine::Podman(podman, service))
    }

    fn host(&self) -> String {
        match self {
            Engine::Docker(docker) => docker.host(),
            Engine::Podman(_, service) => service.host(),
        }
    }

    fn run(&self, args: &[&str]) -> String {
        match self {
            Engine::Docker(docker) => docker.run(args),
            Engine::Podman(podman, _) => podman.run(args),
        }
    }
}

struct Place {
    sandbox: Sandbox,
    engine: Engine,
    ports: [u16; 2],
}

impl Place {
    fn new(engine: Engine) -> Place {
        let sandbox = Sandbox::new();
        sandbox.write("kollage.toml", "[build]\nbase = \"debian\"\n");
        sandbox.write("start-scripts/web/start.toml", START);
        let runtime = shipped();
        let bundle = format!("dir:{}", sandbox.path("bundle").display());
        sandbox.run(&["start", "pack", "-o", &bundle, "--runtime", runtime.to_str().unwrap()]).ok();
        fs::create_dir(sandbox.path("flag")).unwrap();
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = listeners.map(|listener| listener.local_addr().unwrap().port());
        let place = Place { sandbox, engine, ports };
        let says = |what: &str| {
            format!(
                "#!/bin/sh\nmkdir -p /www; echo {what} > /www/index.html\nexec /bin/busybox httpd -f -p $1 -h /www\n"
            )
        };
        place.image("localhost/web:1", &says("one"));
        place.image("localhost/web:2", &says("two"));
        place.image("localhost/web:3", "#!/bin/sh\necho cannot go on >&2\nexit 7\n");
        place
    }

    /// Busybox and what serves.
    fn image(&self, name: &str, serve: &str) {
        let (tar, root) = (self.sandbox.path("base.tar"), self.sandbox.path("root"));
        busybox_rootfs(&tar);
        fs::create_dir_all(&root).unwrap();
        run("tar", &["-C", root.to_str().unwrap(), "-xf", tar.to_str().unwrap()]);
        fs::write(root.join("bin/serve"), serve).unwrap();
        run("chmod", &["0755", root.join("bin/serve").to_str().unwrap()]);
        run("tar", &["-C", root.to_str().unwrap(), "-cf", tar.to_str().unwrap(), "."]);
        self.engine.run(&["import", tar.to_str().unwrap(), name]);
    }

    /// Two services, the second of which needs the first.
    fn deployment(&self, image: &str, more: &str) {
        let [first, second] = self.ports;
        let dir = self.sandbox.path("");
        let dir = dir.display();
        let text = format!(
            r#"
[deployment]
name = "site"
[bundle]
directory = "{dir}/bundle"
[secrets]
password = {{ env = "WEB_PASSWORD" }}

[[service]]
name = "front"
start = "web"
image = "{image}"
network = "host"
volumes = ["data:/data", "{dir}/flag:/flag:ro"]
environment = {{ PORT = "{second}"{more} }}
secrets = {{ PASSWORD = "password" }}
after = ["back"]
tasks = {{ first = ["bootstrap", "flag"] }}
health_timeout = 60

[[service]]
name = "back"
start = "web"
image = "localhost/web:1"
network = "host"
environment = {{ PORT = "{first}" }}
tasks = {{ first = [] }}
"#
        );
        self.sandbox.write("deployment.toml", &text);
    }

    fn deploy(&self, args: &[&str]) -> Ran {
        self.deploy_on(&self.engine.host(), args)
    }

    fn deploy_on(&self, host: &str, args: &[&str]) -> Ran {
        let mut command = self.sandbox.command(&[&["deploy"], args].concat());
        ran(command.env("DOCKER_HOST", host).env("WEB_PASSWORD", "hunter2-xyz"))
    }

    fn id(&self, container: &str) -> String {
        self.engine.run(&["inspect", "--format", "{{.Id}} {{.State.StartedAt}}", container])
    }

    fn log(&self) -> String {
        self.engine.run(&["exec", "site-front", "/bin/busybox", "cat", "/data/log"])
    }

    /// What the front service answers.
    fn page(&self) -> String {
        ask(self.ports[1])
    }
}

/// The last line that is answered.
pub fn ask(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.lines().last().unwrap_or_default().to_owned()
}

#[test]
fn a_deployment_comes_up_is_upgraded_goes_back_and_goes_away() {
    Engine::docker().into_iter().for_each(life);
}

#[test]
fn podman_does_the_same() {
    Engine::podman().into_iter().for_each(life);
}

/// An engine's socket, at which what a container says never ends.
struct Endless {
    host: String,
    /// Whether somebody waited for the end.
    waited: Arc<AtomicBool>,
}

impl Endless {
    fn new(behind: &str, socket: &Path) -> Endless {
        let (behind, waited) = (behind.strip_prefix("unix://").unwrap().to_owned(), Arc::<AtomicBool>::default());
        let listener = UnixListener::bind(socket).unwrap();
        let found = waited.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (behind, found) = (behind.clone(), found.clone());
                // Whoever hangs up has what it wanted.
                std::thread::spawn(move || drop(relay(client.unwrap(), &behind, &found)));
            }
        });
        Endless { host: format!("unix://{}", socket.display()), waited }
    }
}

/// One request for each connection; the last words and the end of what is followed are kept back.
fn relay(mut client: UnixStream, behind: &str, waited: &AtomicBool) -> std::io::Result<()> {
    let mut engine = UnixStream::connect(behind)?;
    let mut back = (client.try_clone()?, engine.try_clone()?);
    let follows = Arc::new(AtomicBool::new(false));
    let asked = follows.clone();
    std::thread::spawn(move || {
        let mut bytes = [0; 1 << 16];
        while let Ok(count @ 1..) = client.read(&mut bytes) {
            let text = String::from_utf8_lossy(&bytes[..count]);
            asked.store(text.contains("/logs?") && text.contains("follow=true"), Ordering::SeqCst);
            if engine.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        drop(engine.shutdown(std::net::Shutdown::Both));
    });
    let mut bytes = [0; 1 << 16];
    let mut held = false;
    loop {
        let count = back.1.read(&mut bytes)?;
        if follows.load(Ordering::SeqCst) && (held || !bytes[..count].starts_with(b"HTTP/")) {
            held = true;
            if bytes[..count].ends_with(b"0\r\n\r\n") {
                std::thread::sleep(Duration::from_secs(30));
                waited.store(back.0.write_all(b"0\r\n\r\n").is_ok(), Ordering::SeqCst);
                return Ok(());
            }
        } else if count == 0 {
            return back.0.shutdown(std::net::Shutdown::Write);
        } else {
            back.0.write_all(&bytes[..count])?;
        }
    }
}

/// Podman has lost the end of what a container says.
#[test]
fn a_task_has_ended_when_its_container_has() {
    let Some(engine) = Engine::docker() else { return };
    let place = Place::new(engine);
    place.deployment("localhost/web:1", "");
    fs::write(place.sandbox.path("flag/up"), "").unwrap();
    let endless = Endless::new(&place.engine.host(), &place.sandbox.path("endless.sock"));
    place.deploy_on(&endless.host, &["up"]).ok().says("    the password is ***").says("front: Note the image");
    place.deploy_on(&endless.host, &["task", "front", "look"]).ok().says("    one").says("the task look is done");
    place.deploy(&["down", "--volumes"]).ok();
    assert!(!endless.waited.load(Ordering::SeqCst), "somebody waited for the end of what is followed");
}

fn life(engine: Engine) {
    let place = Place::new(engine);
    place.deployment("localhost/web:1", "");

    // The second task fails; what was done before it isn't done again.
    let ran = place.deploy(&["up"]).exits(1).says("the task flag of front failed with exit code");
    let back = ran.stderr.find("back: Start it").unwrap();
    assert!(back < ran.stderr.find("front: Run the task bootstrap").unwrap(), "{}", ran.stderr);
    assert!(ran.stderr.contains("the password is ***") && !ran.stderr.contains("hunter2"), "{}", ran.stderr);
    fs::write(place.sandbox.path("flag/up"), "").unwrap();
    let planned = place.deploy(&["up", "--dry-run"]).ok().stdout;
    let expected = "front: Run the task flag\nfront: Start it\nfront: Wait until it is well\n\
                    front: Note the image that it runs with\n";
    assert_eq!(planned, expected);
    place.deploy(&["up"]).ok().says("4 steps done");
    assert_eq!((place.page(), place.log()), ("one".into(), "bootstrap\n".into()));

    let before = (place.id("site-back"), place.id("site-front"));
    place.deploy(&["up"]).ok().says("nothing was touched");
    assert_eq!(before, (place.id("site-back"), place.id("site-front")));

    // Tasks at any time, with what they take.
    place.deploy(&["task", "front", "look"]).ok().says("    one").says("the task look is done");
    place.deploy(&["task", "front", "lok"]).exits(2).says("did you mean `look`?");
    place.deploy(&["task", "front", "look", "-e", "PASSWORD=x"]).exits(2).says("PASSWORD is a secret");
    place.deploy(&["task", "front", "look", "-e", "PORTS=x"]).exits(2).says("did you mean `PORT`?");
    place.deploy(&["task", "front", "reset"]).exits(1).says("front stays stopped");
    place.deploy(&["task", "front", "look"]).exits(1).says("takes front running, and it isn't");
    assert!(place.deploy(&["status"]).ok().stdout.contains("ended ("));
    place.deploy(&["up"]).ok().says("front: Start it again");
    place.deploy(&["task", "front", "reset", "-e", "MAY=yes"]).ok().says("[4/4] front: Wait until it is well");
    assert_eq!((place.page(), place.log()), ("one".into(), "bootstrap\nreset\n".into()));
    place.engine.run(&["exec", "site-front", "/bin/busybox", "sed", "-i", "/reset/d", "/data/log"]);
    let before = (place.id("site-back"), place.id("site-front"));

    // Only what changed is touched, and what changed is named.
    place.deployment("localhost/web:1", ", LANGUAGE = \"de\"");
    place.deploy(&["up"]).ok().says("front: Replace it: new environment");
    assert_eq!(before.0, place.id("site-back"));
    assert_eq!(place.log(), "bootstrap\n");

    place.deployment("localhost/web:2", ", LANGUAGE = \"de\"");
    let status = place.deploy(&["status", "--format", "json"]).ok().json();
    assert_eq!(status[1]["changed"], serde_json::json!(["image"]), "{status}");
    place.deploy(&["up"]).ok();
    assert_eq!((place.page(), place.log()), ("two".into(), "bootstrap\nupgrade\nfinish\n".into()));
    place.deploy(&["up"]).ok().says("nothing was touched");

    // The new image doesn't come up: the old one runs again, and nothing was finished.
    place.deployment("localhost/web:3", ", LANGUAGE = \"de\"");
    let front = place.id("site-front");
    place.deploy(&["up"]).exits(1).says("the container that ran before runs again").says("cannot go on");
    assert_eq!((place.page(), place.log()), ("two".into(), "bootstrap\nupgrade\nfinish\nupgrade\n".into()));
    assert_eq!(front.split(' ').next(), place.id("site-front").split(' ').next());
    place.deployment("localhost/web:2", ", LANGUAGE = \"de\"");
    place.deploy(&["up"]).ok().says("nothing was touched");

    // Data stays unless it is to go.
    place.deploy(&["down", "front"]).ok().says("front: Stop and remove it");
    assert_eq!(before.0, place.id("site-back"));
    place.deploy(&["up"]).ok();
    assert_eq!(place.log(), "bootstrap\nupgrade\nfinish\nupgrade\n");
    place.deploy(&["down", "--volumes"]).ok().says("Remove the volume site-data and all data in it");
    assert_eq!(place.engine.run(&["ps", "-aq"]) + &place.engine.run(&["volume", "ls", "-q"]), "");
}

/// Everything comes from a registry that wants a login, the runtime as an image; other services are reached by name.
#[test]
fn a_deployment_with_a_network_of_its_own_comes_from_a_registry() {
    let Some(engine) = Engine::docker().filter(|_| ready(&["docker-registry", "skopeo"])) else { return };
    let place = Place::new(engine);
    let registry = Registry::start(true);
    let address = registry.address();
    let auth = place.sandbox.path("auth.json").display().to_string();
    let skopeo = |args: &[&str]| run("skopeo", &[&["copy", "-q", "--dest-authfile", &auth][..], args].concat());
    // me:s3cret
    fs::write(&auth, format!("{{\"auths\": {{\"{address}\": {{\"auth\": \"bWU6czNjcmV0\"}}}}}}")).unwrap();
    let (runtime, layout) = (shipped(), place.sandbox.path("layout").display().to_string());
    let pack = |epoch: &str| {
        let output = format!("oci:{layout}");
        let args = ["start", "pack", "-o", &output, "--runtime", runtime.to_str().unwrap()];
        ran(place.sandbox.command(&args).env("SOURCE_DATE_EPOCH", epoch)).ok();
        let dest = format!("docker://{address}/start:1");
        skopeo(&["--dest-tls-verify=false", &format!("oci:{layout}:latest"), &dest]);
        fs::remove_dir_all(&layout).unwrap();
    };
    pack("0");
    let image = format!("{address}/web:1");
    place.engine.run(&["tag", "localhost/web:1", &image]);
    place.engine.run(&["login", "--username", "me", "--password", "s3cret", address]);
    place.engine.run(&["push", "-q", &image]);
    place.engine.run(&["rmi", &image, "localhost/web:1"]);
    place.engine.run(&["logout", address]);
    let deployment = format!(
        r#"
[deployment]
name = "shop"
[bundle]
image = "{address}/start:1"
[environment]
PORT = "80"
ADDRESS = "0.0.0.0"

[[service]]
name = "front"
start = "web"
image = "{image}"
ports = ["127.0.0.1:{}:80"]
after = ["back"]
volumes = ["data:/data"]
tasks = {{ first = [] }}

[[service]]
name = "back"
start = "web"
image = "{image}"
tasks = {{ first = [] }}
"#,
        place.ports[1]
    );
    place.sandbox.write("deployment.toml", &deployment);
    let login = |file: &str, args: &[&str]| {
        let mut command = place.sandbox.command(&[&["deploy"], args].concat());
        ran(command.env("DOCKER_HOST", place.engine.host()).env("REGISTRY_AUTH_FILE", file))
    };
    let refused = login("/nowhere", &["up"]).exits(1).says(&format!("cannot get the image {address}/start:1"));
    assert!(!refused.stderr.contains("s3cret"), "{}", refused.stderr);
    let deploy = |args: &[&str]| login(&auth, args);
    let planned = deploy(&["up", "--dry-run"]).ok().stdout;
    assert!(planned.contains("Copy the start runtime from its image to a volume\nshop: Make the network"), "{planned}");
    let up = deploy(&["up"]).ok();
    assert!(!up.stderr.contains("s3cret"), "{}", up.stderr);
    assert_eq!(place.page(), "one");
    let ask = ["exec", "shop-front", "/bin/busybox", "wget", "-q", "-O", "-", "http://back/"];
    assert_eq!(place.engine.run(&ask), "one\n");
    deploy(&["task", "front", "look"]).ok().says("    one");
    deploy(&["up"]).ok().says("nothing was touched");

    // Another runtime under the same name: what runs is started anew with it, and the old one goes away.
    pack("86400");
    place.engine.run(&["rmi", "-f", &format!("{address}/start:1")]);
    deploy(&["up"]).ok().says("front: Replace it: new start runtime").says("a copy of the start runtime");
    assert_eq!(
        (place.page(), place.engine.run(&["volume", "ls", "-q"]).matches("..bundle.").count()),
        ("one".into(), 1)
    );
    deploy(&["down", "--volumes"]).ok();
    let left = place.engine.run(&["ps", "-aq"]) + &place.engine.run(&["volume", "ls", "-q"]);
    assert_eq!(left + &place.engine.run(&["network", "ls", "-q", "--filter", "name=shop"]), "");
}

#[test]
fn what_is_missing_for_a_deployment_is_said() {
    let sandbox = Sandbox::new();
    sandbox.write("kollage.toml", "");
    sandbox.write("start-scripts/web/start.toml", START);
    sandbox.run(&["deploy", "up"]).exits(2).says("deployment.toml");
    let deployment =
        "[deployment]\nname = \"a\"\n[bundle]\ndirectory = \"x\"\n[[service]]\nname = \"web\"\nimage = \"a:1\"\n";
    sandbox.write("deployment.toml", deployment);
    let nowhere = format!("unix://{}", sandbox.path("nowhere").display());
    sandbox.run(&["deploy", "up", "--host", &nowhere]).exits(3).says("no engine answers").says("DOCKER_HOST");

    let output = sandbox.path("out");
    let render = ["deploy", "render", "--target", "compose", "-o", output.to_str().unwrap()];
    sandbox.run(&[&render[..], &["--check"]].concat()).exits(4).says("1 file differs");
    sandbox.run(&render).ok().says("compose.yaml");
    sandbox.run(&[&render[..], &["--check"]].concat()).ok();
    sandbox.write("deployment.toml", &deployment.replace("a:1", "a:2"));
    let diff = sandbox.run(&[&render[..], &["--diff"]].concat()).exits(4).stdout;
    assert!(diff.contains("-    image: \"a:1\"\n+    image: \"a:2\"\n"), "{diff}");
}
