//! Reuse that is never wrong: for every input of a key (the table at the head of `graph/key.rs`), what is built again
//! when it alone changes; and for what is no input, that nothing is.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use crate::sandbox::{Ran, Sandbox, busybox_rootfs, field, is_root, ran};

/// A Dockerfile with one step of each kind, marked so that a step is known by what it makes.
const DOCKERFILE: &str = r#"ARG GLOBAL=1
FROM rootfs:BASE AS tools
ENV PATH=/bin
ARG TOOL=1
RUN echo $TOOL > /tool

FROM rootfs:BASE
ARG LATE
ENV PATH=/bin KIND=plain
LABEL org.example.note=one
RUN echo first > /first
COPY app /srv/app
ADD --chmod=640 archive.tar /srv/archive/
COPY --from=tools /tool /srv/tool
COPY <<END /srv/note
written here
END
RUN --mount=type=bind,source=script,target=/script --mount=type=secret,id=token --mount=type=cache,target=/cache sh /script > /srv/out
ARG LATE
ARG UNUSED=0
WORKDIR /srv/work
USER app
RUN echo last > /tmp/last
CMD ["cat", "/srv/out"]
"#;

/// Steps by number, as progress counts them.
const NAMES: [&str; 9] = ["tool", "first", "app", "archive", "from", "note", "bind", "workdir", "last"];

/// Everything that a build is given.
struct World {
    sandbox: Sandbox,
    dockerfile: String,
    args: Vec<String>,
    env: BTreeMap<&'static str, String>,
}

impl World {
    fn new() -> World {
        let sandbox = Sandbox::new();
        busybox_rootfs(&sandbox.path("base.tar"));
        let context = sandbox.catalogue();
        fs::create_dir(context.join("app")).unwrap();
        for (name, text) in [
            ("app/main", "main"),
            ("app/data", "data"),
            ("script", "echo out; echo out2"),
            ("beside", "not copied"),
            (".dockerignore", "app/ignored\n"),
            ("app/ignored", "one"),
        ] {
            fs::write(context.join(name), text).unwrap();
        }
        symlink("main", context.join("app/link")).unwrap();
        archive(&context, "in the archive");
        fs::write(sandbox.path("token"), "s3cret-one").unwrap();
        let dockerfile = DOCKERFILE.replace("BASE", &sandbox.path("base.tar").display().to_string());
        // Without it a step that is carried out again makes files of another time, and so another layer.
        let env = BTreeMap::from([("SOURCE_DATE_EPOCH", "1700000000".into())]);
        World { sandbox, dockerfile, args: Vec::new(), env }
    }

    fn context(&self, name: &str) -> std::path::PathBuf {
        self.sandbox.catalogue().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.context(name), text).unwrap();
    }

    fn replace(&mut self, what: &str, with: &str) {
        assert!(self.dockerfile.contains(what), "{what}");
        self.dockerfile = self.dockerfile.replacen(what, with, 1);
    }

    fn add(&mut self, args: &[&str]) {
        self.args.extend(args.iter().map(|a| (*a).to_owned()));
    }

    fn run(&self) -> Ran {
        fs::write(self.sandbox.path("Dockerfile"), &self.dockerfile).unwrap();
        let path = |name: &str| self.sandbox.path(name).display().to_string();
        let secret = format!("id=token,src={}", path("token"));
        let dockerfile = path("Dockerfile");
        let mut args = vec!["build", "--dockerfile", &dockerfile, "--context", ".", "--progress", "rawjson"];
        args.extend(["--secret", &secret]);
        if !self.args.iter().any(|a| a == "-t") {
            args.extend(["-t", "reuse:latest"]);
        }
        args.extend(self.args.iter().map(String::as_str));
        let mut command = self.sandbox.command(&args);
        for (name, value) in &self.env {
            command.env(name, value);
        }
        ran(&mut command).ok()
    }

    /// Names of the steps that were carried out; none when the image as a whole was there.
    fn build(&self) -> Vec<&'static str> {
        let ran = self.run();
        let lines = ran.stdout.lines().chain(ran.stderr.lines());
        let events = lines.filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let mut built = Vec::new();
        for event in events.filter(|e| e["event"] == "step_finished" && e["reused"] == false) {
            let number = event["step"].as_u64().unwrap() as usize;
            built.push(NAMES[number - 1]);
        }
        built
    }
}

fn archive(context: &Path, text: &str) {
    let mut header = tar::Header::new_ustar();
    header.set_size(text.len() as u64);
    header.set_mode(0o644);
    header.set_mtime(1_000_000_000);
    let mut builder = tar::Builder::new(Vec::new());
    builder.append_data(&mut header, "inside", text.as_bytes()).unwrap();
    fs::write(context.join("archive.tar"), builder.into_inner().unwrap()).unwrap();
}

fn set_time(path: &Path) {
    let time = Timespec { tv_sec: 1_234_567_890, tv_nsec: 5 };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

type Change = fn(&mut World);

/// What changes, how, and which steps are carried out again. Steps above one whose layer came out other than before are
/// carried out again, since they stand on other files; where it came out equal they are not.
const INPUTS: &[(&str, Change, &[&str])] = &[
    (
        "the parent's files",
        |w| add_to_base(w),
        &["tool", "first", "app", "archive", "from", "note", "bind", "workdir", "last"],
    ),
    (
        "a command",
        |w| w.replace("echo first", "echo FIRST"),
        &["first", "app", "archive", "from", "note", "bind", "workdir", "last"],
    ),
    ("a command that comes to the same", |w| w.replace("RUN echo last", "RUN  true; echo last"), &["last"]),
    ("a variable of the image", |w| w.replace("KIND=plain", "KIND=other"), &["first", "bind", "last"]),
    ("an argument in scope", |w| w.add(&["--build-arg", "LATE=x"]), &["first", "bind", "last"]),
    ("a default of an argument", |w| w.replace("ARG UNUSED=0", "ARG UNUSED=1"), &["last"]),
    (
        "an argument of another stage",
        |w| w.add(&["--build-arg", "TOOL=2"]),
        &["tool", "from", "note", "bind", "workdir", "last"],
    ),
    (
        "a file's content",
        |w| w.write("app/main", "MAIN"),
        &["app", "archive", "from", "note", "bind", "workdir", "last"],
    ),
    (
        "a file's mode",
        |w| fs::set_permissions(w.context("app/main"), fs::Permissions::from_mode(0o755)).unwrap(),
        &["app", "archive", "from", "note", "bind", "workdir", "last"],
    ),
    ("a new file", |w| w.write("app/new", ""), &["app", "archive", "from", "note", "bind", "workdir", "last"]),
    (
        "a file that is gone",
        |w| fs::remove_file(w.context("app/data")).unwrap(),
        &["app", "archive", "from", "note", "bind", "workdir", "last"],
    ),
    (
        "a file of another name",
        |w| fs::rename(w.context("app/data"), w.context("app/atad")).unwrap(),
        &["app", "archive", "from", "note", "bind", "workdir", "last"],
    ),
    (
        "a new empty directory",
        |w| fs::create_dir(w.context("app/empty")).unwrap(),
        &["app", "archive", "from", "note", "bind", "workdir", "last"],
    ),
    (
        "where a link points",
        |w| {
            fs::remove_file(w.context("app/link")).unwrap();
            symlink("data", w.context("app/link")).unwrap();
        },
        &["app", "archive", "from", "note", "bind", "workdir", "last"],
    ),
    (
        "a link that becomes a file",
        |w| {
            fs::remove_file(w.context("app/link")).unwrap();
            w.write("app/link", "main");
        },
        &["app", "archive", "from", "note", "bind", "workdir", "last"],
    ),
    (
        "what is ignored",
        |w| w.write(".dockerignore", ""),
        &["app", "archive", "from", "note", "bind", "workdir", "last"],
    ),
    (
        "an archive's content",
        |w| archive(&w.sandbox.catalogue(), "other"),
        &["archive", "from", "note", "bind", "workdir", "last"],
    ),
    ("--chmod", |w| w.replace("--chmod=640", "--chmod=600"), &["archive"]),
    (
        "--chown",
        |w| w.replace("COPY app", "COPY --chown=1000 app"),
        &["app", "archive", "from", "note", "bind", "workdir", "last"],
    ),
    (
        "--exclude",
        |w| w.replace("COPY app", "COPY --exclude=data app"),
        &["app", "archive", "from", "note", "bind", "workdir", "last"],
    ),
    (
        "where files go",
        |w| w.replace("/srv/app", "/srv/ppa"),
        &["app", "archive", "from", "note", "bind", "workdir", "last"],
    ),
    (
        "ADD in place of COPY",
        |w| w.replace("ADD --chmod=640 archive", "COPY --chmod=640 archive"),
        &["archive", "from", "note", "bind", "workdir", "last"],
    ),
    ("a heredoc", |w| w.replace("written here", "written there"), &["note", "bind", "workdir", "last"]),
    ("a file that is mounted", |w| w.write("script", "echo out3"), &["bind", "workdir", "last"]),
    (
        "the id of a secret",
        |w| {
            w.replace("id=token", "id=token2,target=/run/secrets/token");
        },
        &["bind"],
    ),
    ("a cache of another id", |w| w.replace("type=cache,", "type=cache,id=other,"), &["bind"]),
    ("the network of a step", |w| w.replace("RUN echo last", "RUN --network=none echo last"), &["last"]),
    ("the network of the build", |w| w.add(&["--network", "none"]), &["tool", "first", "bind", "last"]),
    ("the working directory", |w| w.replace("/srv/work", "/srv/krow"), &["workdir", "last"]),
    ("the user", |w| w.replace("USER app", "USER 1000"), &["last"]),
    ("the shell", |w| w.replace("USER app", "USER app\nSHELL [\"/bin/sh\", \"-ec\"]"), &["last"]),
    (
        "SOURCE_DATE_EPOCH",
        |w| {
            w.env.insert("SOURCE_DATE_EPOCH", "1000000000".into());
        },
        &["tool", "first", "app", "archive", "from", "note", "bind", "workdir", "last"],
    ),
    (
        "the order of two instructions",
        |w| {
            w.replace("COPY app /srv/app\n", "");
            w.replace("COPY --from", "COPY app /srv/app\nCOPY --from");
        },
        &["app", "archive", "from", "note", "bind", "workdir", "last"],
    ),
];

/// No input of any layer.
const OUTSIDE: &[(&str, Change)] = &[
    ("nothing", |_| {}),
    ("times in the context", |w| {
        for name in ["app", "app/main", "app/link", "archive.tar", "script"] {
            set_time(&w.context(name));
        }
    }),
    ("a file that nothing names", |w| w.write("beside", "changed")),
    ("an ignored file", |w| w.write("app/ignored", "two")),
    (".dockerignore, to the same effect", |w| w.write(".dockerignore", "# a comment\napp/ignored\n!app/nothing\n")),
    ("comments and layout", |w| {
        w.replace("RUN echo first", "# a comment\n\nRUN \\\n  echo first");
        w.replace("WORKDIR", "workdir");
    }),
    ("the value of a secret", |w| fs::write(w.sandbox.path("token"), "another").unwrap()),
    ("an argument that nothing declares", |w| w.add(&["--build-arg", "NOBODY=1"])),
    ("a global argument that no stage takes", |w| w.add(&["--build-arg", "GLOBAL=2"])),
    ("its name", |w| w.add(&["-t", "another:tag"])),
    ("jobs and progress", |w| w.add(&["-j", "1", "--color", "never"])),
    ("the proxy", |w| {
        w.env.insert("http_proxy", "http://user:word@127.0.0.1:1".into());
    }),
    ("the CA bundle", |w| w.add(&["--set", "build.ca_bundle=off"])),
    ("the codec", |w| w.add(&["--set", "build.compression=zstd"])),
    ("an owner in the context", |w| {
        std::os::unix::fs::chown(w.context("app/main"), Some(1234), Some(1234)).unwrap();
    }),
    ("the place of the context", |w| {
        let from = w.sandbox.catalogue();
        fs::rename(&from, w.sandbox.path("elsewhere")).unwrap();
        symlink("elsewhere", from).unwrap();
    }),
    ("a stage that nothing needs", |w| {
        let extra = "FROM scratch AS unneeded\nCOPY beside /\n\n";
        w.dockerfile = w.dockerfile.replacen("FROM rootfs", &format!("{extra}FROM rootfs"), 1);
    }),
    ("the name of a stage", |w| w.dockerfile = w.dockerfile.replace("tools", "helpers")),
];

/// Only the configuration: an image with other digests, and not one step carried out.
const CONFIGURATION: &[(&str, Change)] = &[
    ("a label", |w| w.replace("note=one", "note=two")),
    ("a label of the command line", |w| w.add(&["--label", "a=b"])),
    ("the command", |w| w.replace("/srv/out\"]", "/srv/other\"]")),
    ("a port", |w| w.replace("CMD", "EXPOSE 80\nCMD")),
    ("a volume", |w| w.replace("CMD", "VOLUME /data\nCMD")),
    ("a variable after the last step", |w| w.replace("CMD", "ENV LAST=1\nCMD")),
    ("a health check", |w| w.replace("CMD", "HEALTHCHECK CMD true\nCMD")),
];

fn add_to_base(world: &World) {
    let tar = world.sandbox.path("base.tar");
    let mut bytes = fs::read(&tar).unwrap();
    while bytes.ends_with(&[0; 512]) {
        bytes.truncate(bytes.len() - 512);
    }
    let mut header = tar::Header::new_ustar();
    header.set_size(0);
    header.set_mode(0o644);
    let mut builder = tar::Builder::new(bytes);
    builder.append_data(&mut header, "new-in-base", &b""[..]).unwrap();
    fs::write(&tar, builder.into_inner().unwrap()).unwrap();
}

#[test]
fn each_input_alone_builds_what_stands_on_it_and_nothing_else() {
    if !is_root() {
        return;
    }
    let mut wrong = Vec::new();
    for (what, change, expected) in INPUTS {
        let mut world = World::new();
        assert_eq!(world.build(), NAMES, "the first build");
        change(&mut world);
        let built = world.build();
        if built != *expected {
            wrong.push(format!("{what}: built {built:?}, not {expected:?}"));
        }
        let again = world.build();
        if !again.is_empty() {
            wrong.push(format!("{what}: built {again:?} when nothing had changed"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_no_input_builds_nothing() {
    if !is_root() {
        return;
    }
    let mut wrong = Vec::new();
    for (what, change) in OUTSIDE.iter().chain(CONFIGURATION) {
        let mut world = World::new();
        assert_eq!(world.build(), NAMES, "the first build");
        change(&mut world);
        let built = world.build();
        if !built.is_empty() {
            wrong.push(format!("{what}: built {built:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_configuration_that_changes_makes_another_image_of_the_same_layers() {
    if !is_root() {
        return;
    }
    for (what, change) in CONFIGURATION {
        let mut world = World::new();
        let image = |world: &mut World, name: &str| {
            let file = world.sandbox.path(name);
            world.args.extend(["--summary-json-file".into(), file.display().to_string()]);
            world.run();
            world.args.truncate(world.args.len() - 2);
            let summary: serde_json::Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
            let nodes = summary["built"].as_array().unwrap();
            let node = nodes.iter().find(|node| node["reference"] == "reuse:latest").unwrap();
            node["digest"].as_str().unwrap().to_owned()
        };
        let before = image(&mut world, "before.json");
        change(&mut world);
        assert_ne!(before, image(&mut world, "after.json"), "{what}");
    }
}

/// Case 10: neither the instruction nor the script changes, only what the script finds in its environment.
#[test]
fn a_value_that_only_a_script_reads_counts() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::new();
    busybox_rootfs(&sandbox.path("base.tar"));
    sandbox.write("script", "echo $E > /said\n");
    let base = sandbox.path("base.tar");
    sandbox.write(
        "Dockerfile",
        &format!("FROM rootfs:{}\nENV PATH=/bin\nARG E\nENV E=$E\nCOPY script /\nRUN sh /script\n", base.display()),
    );
    for value in ["one", "two", "one"] {
        let arg = format!("E={value}");
        sandbox.run(&["build", "--dockerfile", "Dockerfile", "-t", "case:10", "--build-arg", &arg]).ok();
        assert_eq!(sandbox.run(&["run", "case:10", "--", "cat", "/said"]).ok().stdout, format!("{value}\n"));
    }
}

/// Cases 14 and 15: two runs at once on one store, of images on one parent, one of which fails.
#[test]
fn runs_at_once_share_their_work_and_a_failure_takes_nothing_from_its_siblings() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::with_base();
    sandbox.base("FROM {{ parent }}\nENV PATH=/bin\nRUN sleep 1; echo base > /base\n");
    let names: Vec<String> = (0..6).map(|number| format!("child{number}")).collect();
    for name in &names {
        let end = if name == "child3" { "false" } else { "sleep 0.3" };
        sandbox.image(name, "base", &format!("FROM {{{{ parent }}}}\nRUN cat /base > /{name}; {end}\n"));
    }
    let file = |run: &str| sandbox.path(&format!("{run}.json")).display().to_string();
    let start = |run: &str| {
        let mut command = sandbox.command(&["build", "-j", "4", "--summary-json-file", &file(run)]);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap()
    };
    let mut runs = [start("one"), start("two")];
    for run in &mut runs {
        assert_eq!(run.wait().unwrap().code(), Some(1), "one of its images fails");
    }
    let read = |run: &str| -> serde_json::Value { serde_json::from_slice(&fs::read(file(run)).unwrap()).unwrap() };
    let (one, two) = (read("one"), read("two"));
    for name in names.iter().filter(|name| *name != "child3") {
        assert_eq!(field(&one, name, "digest"), field(&two, name, "digest"), "{name} was made twice");
        assert_eq!(sandbox.run(&["run", name, "--", "cat", &format!("/{name}")]).ok().stdout, "base\n");
    }
    assert_eq!((field(&one, "child3", "status"), field(&two, "child3", "status")), ("failed".into(), "failed".into()));
    sandbox.run(&["store", "verify"]).ok();
}
