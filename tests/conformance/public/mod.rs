//! Dockerfiles that other projects publish, built by Docker and by Kollage from clones of them, and compared in full.
//!
//! Two builds of one Dockerfile by Docker differ by themselves: times in logs, compiled Python, random salts. So Docker
//! builds each of them twice, and where its two results differ nothing is expected of Kollage's. Needs network, a Docker (`DOCKER_HOST`), and what the variables below name; README.md has the commands.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::build::run;
use crate::image::{self, Base, ImageFacts};
use crate::variable;

/// Directory with a clone of each repository, `OWNER+NAME/repo` or `OWNER/NAME`.
const CLONES: &str = "KOLLAGE_PUBLIC_CLONES";
/// Tar of a root file system that the stand-in is made of.
const ROOTFS: &str = "KOLLAGE_PUBLIC_ROOTFS";
/// Where stores, stand-ins and results are kept between runs.
const WORK: &str = "KOLLAGE_PUBLIC_WORK";
/// Only those with this in their name.
const FILTER: &str = "KOLLAGE_PUBLIC";

const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance/public");
const CONSTRAINTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/releases/2026.2-constraints.txt");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    dockerfile: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    repository: String,
    commit: String,
    #[serde(default)]
    context: String,
    /// Image that the Dockerfile names: stand-in that plays it.
    from: BTreeMap<String, String>,
    #[serde(default)]
    args: BTreeMap<String, String>,
    /// A script `prepare-NAME` that completes the context.
    prepare: Option<String>,
}

struct Place {
    work: PathBuf,
    base: Base,
}

pub fn compare() {
    let needed = |name: &str| variable(name).unwrap_or_else(|| panic!("{name} is not set; see README.md"));
    let (clones, work) = (PathBuf::from(needed(CLONES)), PathBuf::from(needed(WORK)));
    assert!(std::env::var_os("DOCKER_HOST").is_some(), "DOCKER_HOST is not set; see README.md");
    fs::create_dir_all(&work).unwrap();
    let list: List = toml::from_str(&fs::read_to_string(format!("{HERE}/list.toml")).unwrap()).unwrap();
    let filter = variable(FILTER).unwrap_or_default();
    let place = stand_ins(work);

    let mut report = String::from("| Dockerfile | Docker | Kollage | result |\n| --- | ---: | ---: | --- |\n");
    let mut wrong = 0;
    for entry in list.dockerfile.iter().filter(|e| e.name.contains(&filter)) {
        let (line, differences) = place.entry(entry, &clones);
        eprintln!("{line}");
        differences.iter().for_each(|difference| eprintln!("    {difference}"));
        wrong += usize::from(!differences.is_empty());
        report.push_str(&line);
        report.push('\n');
    }
    fs::write(place.work.join("table.md"), report).unwrap();
    assert_eq!(wrong, 0, "{wrong} Dockerfiles differ");
}

/// Makes the images that play others, gives them to Docker, and leaves them in Kollage's store by name.
fn stand_ins(work: PathBuf) -> Place {
    let context = work.join("standin");
    fs::create_dir_all(&context).unwrap();
    for (number, certificate) in host_certificates().iter().enumerate() {
        fs::write(context.join(format!("host{number}.crt")), certificate).unwrap();
    }
    fs::copy(CONSTRAINTS, context.join("upper-constraints.txt")).unwrap();
    for name in ["standin", "loci-base", "loci-wheels"] {
        let archive = work.join(format!("{name}.tar"));
        if archive.exists() {
            continue;
        }
        let mut command = kollage(&work);
        command.arg("--dockerfile").arg(format!("{HERE}/{name}.Dockerfile")).arg("--context").arg(&context);
        command.args(["-t", name]).arg("-o").arg(format!("type=docker,dest={}", archive.display()));
        if name == "standin" {
            let rootfs = variable(ROOTFS).unwrap_or_else(|| panic!("{ROOTFS} is not set; see README.md"));
            command.arg("--build-arg").arg(format!("ROOTFS={rootfs}"));
        }
        succeeds(&mut command);
        succeeds(Command::new("docker").arg("load").arg("-i").arg(&archive));
    }
    let base = Base::of_archive(&work.join("standin.tar"));
    Place { work, base }
}

/// What HTTPS needs on this machine, so that both sides have the same.
fn host_certificates() -> Vec<String> {
    let bundle = fs::read_to_string("/etc/ssl/certs/ca-certificates.crt").unwrap_or_default();
    bundle.split_inclusive("-----END CERTIFICATE-----\n").map(str::to_owned).collect()
}

fn kollage(work: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kollage"));
    command.arg("build").arg("--store").arg(work.join("store")).args(["--progress", "plain"]);
    command.args(["--set", "build.ca_bundle=off"]);
    command
}

fn succeeds(command: &mut Command) {
    let (code, stderr) = run(command);
    assert_eq!(code, 0, "{command:?}: {stderr}");
}

fn timed(command: &mut Command) -> Result<Duration, String> {
    let begun = Instant::now();
    match run(command) {
        (0, _) => Ok(begun.elapsed()),
        (code, stderr) => {
            let tail: Vec<_> = stderr.lines().rev().take(15).collect();
            Err(format!("exit code {code}: {}", tail.into_iter().rev().collect::<Vec<_>>().join("\n      ")))
        }
    }
}

impl Place {
    fn entry(&self, entry: &Entry, clones: &Path) -> (String, Vec<String>) {
        let told = |docker: &str, kollage: &str, result: &str| {
            let from = if entry.context.is_empty() { String::new() } else { format!(", {}", entry.context) };
            let at = &entry.commit[..10];
            format!("| {} ({}{from}, {at}) | {docker} | {kollage} | {result} |", entry.name, entry.repository)
        };
        let dir = self.work.join(&entry.name);
        let context = match check_out(entry, clones, &dir) {
            Ok(context) => context,
            Err(problem) => return (told("", "", "not built"), vec![problem]),
        };
        let mut facts = Vec::new();
        let mut times = Vec::new();
        for round in ["docker1", "docker2", "kollage"] {
            let archive = dir.join(format!("{round}.tar"));
            let built = match round {
                "kollage" => self.by_kollage(entry, &context, &archive),
                _ => by_docker(entry, &context, &archive),
            };
            match built {
                Ok(time) => times.push(format!("{:.0} s", time.as_secs_f64())),
                Err(problem) => return (told("", "", "not built"), vec![format!("{round}: {problem}")]),
            }
            facts.push(image::read(&archive, &self.base));
            fs::remove_file(&archive).unwrap();
        }
        let [docker, again, own] = facts.try_into().unwrap_or_else(|_| panic!("three results"));
        let noise: BTreeSet<String> = paths(&docker, &again).into_iter().map(|path| without_numbers(path)).collect();
        let differences = differences(&docker, &own, &noise);
        let mut result = format!("{} paths above the base", docker.files.len());
        match differences.len() {
            0 => result.push_str(", equal"),
            n => write!(result, ", {n} different").unwrap(),
        }
        write!(result, "; {} differ between two builds by Docker", noise.len()).unwrap();
        (told(&times[0], &times[2], &result), differences)
    }

    fn by_kollage(&self, entry: &Entry, context: &Path, archive: &Path) -> Result<Duration, String> {
        for (name, player) in &entry.from {
            let dockerfile = self.work.join("as.Dockerfile");
            fs::write(&dockerfile, format!("FROM {player}\n")).unwrap();
            succeeds(kollage(&self.work).arg("--dockerfile").arg(&dockerfile).args(["-t", name]));
        }
        let mut command = kollage(&self.work);
        command.arg("--no-cache").arg("--dockerfile").arg(context.join("Dockerfile")).arg("--context").arg(context);
        arguments(entry, &mut command);
        command.args(["-t", "public"]).arg("-o").arg(format!("type=docker,dest={}", archive.display()));
        timed(&mut command)
    }
}

fn arguments(entry: &Entry, command: &mut Command) {
    for (name, value) in &entry.args {
        command.arg("--build-arg").arg(format!("{name}={value}"));
    }
}

fn by_docker(entry: &Entry, context: &Path, archive: &Path) -> Result<Duration, String> {
    for (name, player) in &entry.from {
        succeeds(Command::new("docker").args(["tag", player, name]));
    }
    let mut command = Command::new("docker");
    command.env("DOCKER_BUILDKIT", "1").args(["build", "--network", "host", "--no-cache", "--progress", "plain"]);
    command.args(["-t", "public"]);
    arguments(entry, &mut command);
    let time = timed(command.arg(context))?;
    succeeds(Command::new("docker").arg("save").arg("-o").arg(archive).arg("public"));
    succeeds(Command::new("docker").args(["rmi", "public"]));
    succeeds(Command::new("docker").args(["builder", "prune", "-af"]));
    Ok(time)
}

/// The context, as the commit has it.
fn check_out(entry: &Entry, clones: &Path, dir: &Path) -> Result<PathBuf, String> {
    let places = [clones.join(entry.repository.replace('/', "+")).join("repo"), clones.join(&entry.repository)];
    let clone = places.iter().find(|p| p.exists()).ok_or_else(|| format!("no clone of {}", entry.repository))?;
    let tree = dir.join("tree");
    let _ = fs::remove_dir_all(dir);
    fs::create_dir_all(&tree).unwrap();
    let tar = dir.join("tree.tar");
    let mut archive = Command::new("git");
    archive.arg("-C").arg(clone).args(["-c", "safe.directory=*", "archive", "-o"]).arg(&tar).arg(&entry.commit);
    let (code, stderr) = run(&mut archive);
    if code != 0 {
        return Err(stderr);
    }
    succeeds(Command::new("tar").arg("-xf").arg(&tar).arg("-C").arg(&tree));
    if let Some(script) = &entry.prepare {
        succeeds(Command::new(format!("{HERE}/prepare-{script}")).arg(&tree));
    }
    Ok(tree.join(&entry.context))
}

/// Where two results differ.
fn paths<'a>(one: &'a ImageFacts, two: &'a ImageFacts) -> Vec<&'a String> {
    let all: BTreeSet<&String> = one.files.keys().chain(two.files.keys()).collect();
    all.into_iter().filter(|path| one.files.get(*path) != two.files.get(*path)).collect()
}

/// Names of logs have a time in them.
fn without_numbers(path: &str) -> String {
    path.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect()
}

fn differences(docker: &ImageFacts, own: &ImageFacts, noise: &BTreeSet<String>) -> Vec<String> {
    let mut out = Vec::new();
    for path in paths(docker, own) {
        if noise.contains(&without_numbers(path)) {
            continue;
        }
        let line = |facts: &ImageFacts| facts.files.get(path).cloned().unwrap_or_else(|| "nothing".into());
        out.push(format!("{path}: Docker has {}; Kollage has {}", line(docker), line(own)));
    }
    let mut differ = |what: &str, docker: String, own: String| {
        if docker != own {
            out.push(format!("{what}: Docker has {docker}; Kollage has {own}"));
        }
    };
    differ("config", format!("{:?}", docker.config), format!("{:?}", own.config));
    differ("removed", docker.removed.join(" "), own.removed.join(" "));
    differ("stands on the base", docker.on_base.to_string(), own.on_base.to_string());
    // Docker adds an empty layer for a WORKDIR whose directory is there already.
    let history = |facts: &ImageFacts| {
        let lines = facts.history.iter().map(|line| line.strip_prefix("(empty) ").unwrap_or(line).to_owned());
        lines.collect::<Vec<_>>().join("\n")
    };
    differ("history", history(docker), history(own));
    differ("faults of layers", docker.faults.join("; "), own.faults.join("; "));
    out
}
