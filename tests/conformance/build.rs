//! Builds a case with Docker or with Kollage, and reads the result.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::base::Bases;
use crate::case::{Case, Outcome};
use crate::image::{self, Base, ImageFacts};
use crate::rootless::Ids;
use crate::server::Server;
use crate::user::User;

/// Stands in the flags of a case for the path of an ssh-agent's socket.
const AGENT: &str = "AGENT";

/// Where both sides work.
pub struct Place {
    pub dir: PathBuf,
    pub bases: Bases,
    pub base: Base,
    pub server: Server,
    /// Who calls Kollage: root where it is nobody else.
    pub user: Option<(User, Ids)>,
}

/// A case on its way: its context is laid out, and there is room beside it.
struct Work {
    context: PathBuf,
    archive: PathBuf,
    dir: PathBuf,
    /// Stands for an ssh-agent: a socket on which nobody answers.
    agent: Option<UnixListener>,
}

impl Place {
    /// Results without addresses and commits, which are others in each run.
    fn named_back(&self, facts: ImageFacts) -> ImageFacts {
        serde_json::from_str(&self.server.mapped_back(&serde_json::to_string(&facts).unwrap())).unwrap()
    }

    /// The value of a named context that means the same for both.
    fn local(&self, work: &Work, value: &str) -> String {
        match value.strip_prefix("dir:") {
            Some(path) => work.context.join(path).display().to_string(),
            None => String::from_utf8(self.server.mapped(value.as_bytes())).unwrap(),
        }
    }

    fn work(&self, case: &Case, side: &str) -> Work {
        let dir = self.dir.join(side).join(case.name.replace('/', "."));
        let context = dir.join("context");
        fs::create_dir_all(&context).unwrap();
        case.lay_out(&context);
        if self.server.is_named(&case.dockerfile()) {
            fs::write(context.join("Dockerfile"), self.server.mapped(&case.dockerfile())).unwrap();
        }
        for (id, value) in &case.settings.secrets {
            fs::write(dir.join(format!("secret.{id}")), value).unwrap();
        }
        let wanted = case.settings.flags.iter().any(|flag| flag.contains(AGENT));
        let agent = wanted.then(|| UnixListener::bind(dir.join("agent")).unwrap());
        Work { context, archive: dir.join("image.tar"), dir, agent }
    }
}

impl Work {
    /// Arguments that both command lines have in common.
    fn arguments(&self, case: &Case, command: &mut Command) {
        let settings = &case.settings;
        if let Some(target) = &settings.target {
            command.args(["--target", target]);
        }
        for (name, value) in &settings.args {
            command.arg("--build-arg").arg(format!("{name}={value}"));
        }
        for (name, value) in &settings.labels {
            command.arg("--label").arg(format!("{name}={value}"));
        }
        for flag in &settings.flags {
            let socket = self.agent.as_ref().map(|_| self.dir.join("agent").display().to_string());
            command.arg(flag.replace(AGENT, &socket.unwrap_or_default()));
        }
        for id in settings.secrets.keys() {
            let file = self.dir.join(format!("secret.{id}"));
            command.arg("--secret").arg(format!("id={id},src={}", file.display()));
        }
    }
}

/// Exit code and what was said on standard error.
pub fn run(command: &mut Command) -> (i32, String) {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
}

pub struct Docker {
    pub version: String,
}

impl Docker {
    /// The daemon that DOCKER_HOST names, with the bases loaded.
    pub fn start(bases: &Bases) -> Docker {
        assert!(
            std::env::var_os("DOCKER_HOST").is_some(),
            "recording needs DOCKER_HOST; see tests/conformance/README.md"
        );
        let (code, stderr) = run(Command::new("docker").arg("load").arg("-i").arg(&bases.archive));
        assert_eq!(code, 0, "docker load: {stderr}");
        let version = Command::new("docker").args(["version", "--format", "{{.Server.Version}}"]).output().unwrap();
        Docker { version: String::from_utf8_lossy(&version.stdout).trim().to_owned() }
    }

    pub fn build(&self, place: &Place, case: &Case) -> Outcome {
        let work = place.work(case, "docker");
        let tag = format!("conformance-case:{}", case.name.replace('/', "."));
        let mut command = Command::new("docker");
        command.env("DOCKER_BUILDKIT", "1").args(["build", "--network", "none", "--no-cache", "--progress", "plain"]);
        if case.settings.newer_frontend {
            command.arg("--build-arg").arg(format!("BUILDKIT_SYNTAX={}", frontend()));
        }
        command.arg("-t").arg(&tag).arg("-f").arg(work.context.join("Dockerfile"));
        work.arguments(case, &mut command);
        for (name, value) in &case.settings.contexts {
            let value = match value.split_once(':') {
                Some(("image", base)) => format!("docker-image://{base}"),
                _ => place.local(&work, value),
            };
            command.arg("--build-context").arg(format!("{name}={value}"));
        }
        let (code, stderr) = run(command.arg(&work.context));
        if code != 0 {
            return Outcome::Error(place.server.mapped_back(&reason(&stderr)));
        }
        let (code, stderr) = run(Command::new("docker").arg("save").arg("-o").arg(&work.archive).arg(&tag));
        assert_eq!(code, 0, "docker save {tag}: {stderr}");
        run(Command::new("docker").args(["rmi", &tag]));
        Outcome::Image(Box::new(place.named_back(image::read(&work.archive, &place.base))))
    }
}

/// An image with a Dockerfile frontend that the daemon knows.
pub fn frontend() -> String {
    std::env::var("KOLLAGE_CONFORMANCE_FRONTEND").expect("this case needs KOLLAGE_CONFORMANCE_FRONTEND; see README.md")
}

/// What stands after `ERROR:`, without what every message begins with, and without names that are of this one run.
fn reason(stderr: &str) -> String {
    let text = stderr.rsplit_once("ERROR: ").map_or(stderr, |(_, text)| text).trim();
    let text = text.strip_prefix("failed to build: ").unwrap_or(text);
    let text = text.strip_prefix("failed to solve: ").unwrap_or(text);
    let of_run = [r"/\S+/overlay2/[0-9a-z]+/merged", r"[0-9a-f-]{36}::[0-9a-z]{25}", r"\b[0-9a-z]{25}\b"];
    of_run
        .iter()
        .fold(text.to_owned(), |text, pattern| regex::Regex::new(pattern).unwrap().replace_all(&text, "…").into_owned())
}

pub struct Kollage {
    pub code: i32,
    pub stderr: String,
    pub outcome: Outcome,
}

pub fn kollage(place: &Place, case: &Case) -> Kollage {
    let work = place.work(case, "kollage");
    let dockerfile = work.dir.join("Dockerfile");
    fs::write(&dockerfile, place.server.mapped(&place.bases.mapped(&case.dockerfile()))).unwrap();
    let ignore = work.context.join("Dockerfile.dockerignore");
    if ignore.exists() {
        fs::copy(&ignore, work.dir.join("Dockerfile.dockerignore")).unwrap();
    }
    let mut command = match &place.user {
        None => Command::new(env!("CARGO_BIN_EXE_kollage")),
        Some((user, _)) => {
            user.give(&work.dir);
            user.command()
        }
    };
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", &place.dir);
    command.arg("build").arg("--store").arg(store(&place.dir)).args(["--network", "none", "--progress", "plain"]);
    // What the host lends to steps is no part of Docker's behaviour.
    command.args(["--set", "build.ca_bundle=off"]);
    // A server that fails on purpose is not asked again and again.
    command.args(["--set", "build.retries=0"]);
    command.args(["-j", "1", "-t", "conformance:latest"]).arg("--logs-dir").arg(work.dir.join("logs"));
    command.arg("--dockerfile").arg(&dockerfile).arg("--context").arg(&work.context);
    work.arguments(case, &mut command);
    for (name, value) in &case.settings.contexts {
        let value = match value.split_once(':') {
            Some(("image", base)) => format!("oci-layout://{}:latest", place.bases.layout(base).display()),
            _ => place.local(&work, value),
        };
        command.arg("--build-context").arg(format!("{name}={value}"));
    }
    command.arg("-o").arg(format!("type=docker,dest={}", work.archive.display()));
    let (code, stderr) = run(&mut command);
    let outcome = match code {
        0 => {
            let facts = image::read(&work.archive, &place.base);
            Outcome::Image(Box::new(place.named_back(place.bases.mapped_back(facts))))
        }
        _ => Outcome::Error(stderr.clone()),
    };
    let stderr = place.server.mapped_back(&stderr);
    Kollage { code, stderr, outcome }
}

pub fn store(dir: &Path) -> PathBuf {
    dir.join("store")
}
