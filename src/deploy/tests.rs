//! Deployments from outside: what is read, what is said about what is wrong, and what becomes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::files::{Kind, Rendering};
use super::{BundleBy, Deployment, Known, KnownImage, Target, read, render, schema};
use crate::catalogue::reader::known;
use crate::diag::{Diagnostics, SourceFile};
use crate::start::Definitions;

const EXAMPLE: &str = r#"
[deployment]
name = "identity"

[bundle]
directory = "/opt/kollage/start"

[environment]
TZ = "Europe/Berlin"

[secrets]
db-root = { env = "DB_ROOT" }
admin = { file = "secrets/admin" }

[[service]]
name = "keystone"
image = "keystone"
config = "config/keystone"
ports = ["127.0.0.1:5000:5000"]
volumes = ["fernet:/etc/keystone/fernet-keys", "./policy:/etc/keystone/policy:ro"]
environment = { OS_BOOTSTRAP_USERNAME = "admin", PRICE = "5$" }
secrets = { OS_BOOTSTRAP_PASSWORD = "admin" }
after = ["mariadb", "cache"]
capabilities = ["SYS_NICE"]

[[service]]
name = "mariadb"
start = "mariadb-server"
image = "registry.example.org/mariadb:11"
volumes = ["data:/var/lib/mysql"]
secrets = { DB_ROOT_PASSWORD = "db-root" }
restart = "always"
health_timeout = 60
tasks = { upgrade = ["backup"], finish = ["upgrade"] }

[[service]]
name = "cache"
start = "keystone"
image = "quay.io/x/cache@sha256:0000000000000000000000000000000000000000000000000000000000000000"
network = "host"
tasks = { first = [] }
"#;

struct Room {
    dir: tempfile::TempDir,
    services: Definitions,
    images: BTreeMap<String, KnownImage>,
}

impl Room {
    fn new() -> Room {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("config/keystone/sub");
        fs::create_dir_all(&config).unwrap();
        fs::write(config.parent().unwrap().join("keystone.conf"), "[DEFAULT]\ndebug = false\n").unwrap();
        fs::write(config.join("policy.yaml"), "{}\n").unwrap();
        let image = |name: &str, start: Option<&str>| {
            let reference = format!("kollage/{name}:1");
            (name.to_owned(), KnownImage { reference, start: start.map(str::to_owned) })
        };
        let images = BTreeMap::from([image("keystone", None), image("maria", Some("mariadb-server"))]);
        let services = Definitions::load(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
        Room { dir, services, images }
    }

    fn read(&self, text: &str) -> (Option<Deployment>, Vec<String>) {
        let mut problems = Diagnostics::default();
        let known = Known { services: &self.services, images: &self.images };
        let file = SourceFile::new("deployment.toml", text);
        let deployment = read::read(&file, self.dir.path(), &known, &mut problems);
        let said = problems.0.iter().map(|problem| {
            let (line, column) = problem.place.as_ref().map_or((0, 0), |p| p.file.line_column(p.span.start));
            let hint = problem.hint.as_ref().map(|hint| format!(" | {hint}")).unwrap_or_default();
            format!("{line}:{column} {}{hint}", problem.message)
        });
        (deployment, said.collect())
    }

    fn deployment(&self) -> Deployment {
        let (deployment, problems) = self.read(EXAMPLE);
        assert!(problems.is_empty(), "{problems:#?}");
        deployment.unwrap()
    }

    fn render(&self, target: Target) -> Rendering {
        render(&self.deployment(), target)
    }

    /// All that a rendering would write, with what differs from test to test left out.
    fn rendered(&self, target: Target) -> String {
        let mut out = String::new();
        let rendering = self.render(target);
        for (path, file) in &rendering.files {
            let text = String::from_utf8_lossy(&file.bytes);
            out.push_str(&format!("--- {path} {:04o}\n{text}", file.mode));
        }
        for note in &rendering.notes {
            out.push_str(&format!("note: {note}\n"));
        }
        out.replace(&self.dir.path().display().to_string(), "DIR")
    }
}

#[test]
fn services_come_after_those_that_they_need() {
    let deployment = Room::new().deployment();
    let names: Vec<&str> = deployment.services.iter().map(|service| service.name.as_str()).collect();
    assert_eq!(names, ["mariadb", "cache", "keystone"]);
    assert_eq!(deployment.service("keystone").unwrap().image, "kollage/keystone:1");
    assert_eq!(deployment.service("mariadb").unwrap().environment["TZ"], "Europe/Berlin");
    let tasks = &deployment.service("mariadb").unwrap().tasks;
    assert_eq!(
        (&tasks.first[..], tasks.upgrade.len(), &tasks.finish[..]),
        (&["bootstrap".into()][..], 1, &["upgrade".into()][..])
    );
}

#[test]
fn a_definition_says_when_its_tasks_can_be_done() {
    let room = Room::new();
    let service = |more: &str| {
        let head = "[deployment]\nname = \"a\"\n[bundle]\nvolume = \"b\"\n";
        room.read(&format!("{head}[[service]]\nname = \"db\"\nimage = \"maria\"\n{more}"))
    };
    // The definition is the image's. Its tables are brought up to date by the new server.
    let (deployment, problems) = service("");
    assert!(problems.is_empty(), "{problems:?}");
    let deployment = deployment.unwrap();
    let db = deployment.service("db").unwrap();
    assert_eq!((db.start.name.as_str(), &db.tasks.finish[..]), ("mariadb-server", &["upgrade".to_owned()][..]));
    assert!(db.tasks.upgrade.is_empty());
    let (_, problems) = service("tasks = { first = [\"backup\"], upgrade = [\"backup\"], finish = [\"restore\"] }");
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].contains("takes the service running, which it isn't before its first start"), "{problems:?}");
    assert!(problems[1].contains("takes the service stopped, which it isn't once it is well"), "{problems:?}");
}

#[test]
fn compose() {
    insta::assert_snapshot!(Room::new().rendered(Target::Compose));
}

#[test]
fn quadlet() {
    insta::assert_snapshot!(Room::new().rendered(Target::Quadlet));
}

#[test]
fn kubernetes() {
    insta::assert_snapshot!(Room::new().rendered(Target::Kubernetes(BundleBy::Volume)));
}

#[test]
fn kubernetes_with_a_bundle_that_is_an_image() {
    let room = Room::new();
    let text = EXAMPLE.replace("directory = \"/opt/kollage/start\"", "image = \"example.org/bundle:1\"");
    let deployment = room.read(&text).0.unwrap();
    let manifest = |by| {
        let rendering = render(&deployment, Target::Kubernetes(by));
        String::from_utf8(rendering.files["identity-cache.yaml"].bytes.clone()).unwrap()
    };
    let (volume, init) = (manifest(BundleBy::Volume), manifest(BundleBy::Init));
    assert!(volume.contains("image:\n            reference: \"example.org/bundle:1\""), "{volume}");
    assert!(!volume.contains("initContainers") && init.contains("- install\n"), "{init}");
    assert!(init.contains("emptyDir: {}"), "{init}");
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let wrong = r#"
[deployment]
name = "Identity"

[bundle]
directory = "/a"
image = "b"

[secrets]
plain = "hunter2"
both = { env = "A", file = "b" }

[[service]]
name = "keystone"
image = "keystne"
prots = []
volumes = ["data", "data:relative", "a:/x", "b:/x/", "c:/var/lib/kollage/start"]
ports = ["80", "1:2:3:4", "0:1", "1:1/sctp"]
environment = { OS_BOOTSTRAP_PASSWORD = "hunter2", "A-B" = "x" }
secrets = { A = "bth" }
restart = "allways"
capabilities = ["CAP_NET_ADMIN"]
config = "nowhere"
after = ["mariadb", "keystone"]
tasks = { first = ["bootstrp"] }

[[service]]
name = "keystone"
image = "a:1"

[[service]]
name = "mariadb"
image = "a:1"
start = "mariadb-serve"

[[service]]
name = "x"
image = "a:1"
start = "keystone"
after = ["y"]
network = "host"
ports = ["80:80"]

[[service]]
name = "y"
image = "a:1"
start = "keystone"
after = ["x", "mariadb"]
"#;
    let room = Room::new();
    let (_, said) = room.read(wrong);
    let said = said.join("\n").replace(&room.dir.path().display().to_string(), "DIR");
    assert!(!said.contains("hunter2"), "{said}");
    insta::assert_snapshot!(said);
}

#[test]
fn a_file_without_anything_says_what_it_takes() {
    let (deployment, said) = Room::new().read("");
    assert!(deployment.is_none());
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn the_schema_has_every_key_that_is_read() {
    let validator = jsonschema::validator_for(&schema::schema()).unwrap();
    let value = serde_json::to_value(toml::from_str::<toml::Table>(EXAMPLE).unwrap()).unwrap();
    let wrong: Vec<String> = validator.iter_errors(&value).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(wrong.is_empty(), "{wrong:?}");

    let room = Room::new();
    known::take();
    room.deployment();
    let read: BTreeSet<String> = known::take()
        .into_iter()
        // Names of services and secrets are no keys of ours.
        .map(|key| {
            let places = |part| if str::parse::<u32>(part).is_ok() { "0" } else { part };
            key.split('.').map(places).collect::<Vec<_>>().join(".")
        })
        .map(|key| key.replace("secrets.db-root", "secrets.x").replace("secrets.admin", "secrets.x"))
        .collect();
    assert_eq!(read, known::described(&schema::schema()));
}

#[test]
fn writing_touches_what_differs_and_takes_back_what_is_no_longer_wanted() {
    let room = Room::new();
    let out = room.dir.path().join("out");
    let first = room.render(Target::Compose);
    assert_eq!(first.write(&out).unwrap().len(), 3);
    assert!(first.changes(&out).unwrap().is_empty());

    fs::write(room.dir.path().join("config/keystone/keystone.conf"), "[DEFAULT]\ndebug = true\n").unwrap();
    fs::remove_dir_all(room.dir.path().join("config/keystone/sub")).unwrap();
    let second = room.render(Target::Compose);
    let changes = second.changes(&out).unwrap();
    let kinds: Vec<_> = changes.iter().map(|change| (change.path.as_str(), change.kind)).collect();
    let conf = "config/keystone/keystone.conf";
    assert_eq!(kinds, [(conf, Kind::Changed), ("config/keystone/sub/policy.yaml", Kind::Gone)]);
    assert_eq!(
        changes[0].diff,
        format!("--- a/{conf}\n+++ b/{conf}\n@@ -1,2 +1,2 @@\n [DEFAULT]\n-debug = false\n+debug = true\n")
    );
    second.write(&out).unwrap();
    assert!(second.changes(&out).unwrap().is_empty() && !out.join("config/keystone/sub/policy.yaml").exists());
}

#[test]
fn what_somebody_else_wrote_stays() {
    let room = Room::new();
    let out = room.dir.path().join("out");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("compose.yaml"), "mine").unwrap();
    fs::write(out.join(".kollage-rendered"), "../config/keystone/keystone.conf\n/etc/hostname\n").unwrap();
    let error = room.render(Target::Compose).write(&out).unwrap_err();
    assert!(error.message().contains("no earlier rendering wrote it"), "{error}");
    assert_eq!(fs::read_to_string(out.join("compose.yaml")).unwrap(), "mine");
    assert!(room.dir.path().join("config/keystone/keystone.conf").exists());
}

#[test]
fn configuration_with_passwords_is_not_shown() {
    let room = Room::new();
    let (deployment, _) = room.read(&EXAMPLE.replace("config = ", "config_secret = true\nconfig = "));
    let changes = render(&deployment.unwrap(), Target::Compose).changes(&room.dir.path().join("out")).unwrap();
    let all: String = changes.iter().map(|change| change.diff.as_str()).collect();
    assert!(all.contains("keystone.conf: differs; its content is not shown") && !all.contains("debug"), "{all}");
}
