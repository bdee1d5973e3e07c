//! BuildKit as builder: the one inside Debian's dockerd.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};

use kollage::engine::buildkit::client::{Build, Connection, Exporter, Problem};
use kollage::engine::buildkit::dial::{self, Certificates, Kind};
use kollage::engine::buildkit::progress::Watch;
use kollage::engine::buildkit::session::Lent;
use kollage::engine::embedded::output::Redactor;
use kollage::engine::{Ctl, SecretSource};
use kollage::event::{Cancel, Event, Sink};

use crate::tools::{Docker, ready};

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
