//! A release's options as Kolla itself has them, and a tree of one image that says what Kollage makes of them.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::place::{Call, call, ours, package, release, said};

/// An option, as Kolla registers it.
#[derive(Debug, Deserialize)]
pub struct Opt {
    pub group: String,
    pub name: String,
    pub key: String,
    pub kind: String,
    pub short: Option<char>,
    pub choices: Vec<String>,
    pub least: Option<i64>,
    pub positional: bool,
    pub cli: bool,
    pub value: serde_json::Value,
}

impl Opt {
    pub fn is(&self, kind: &str) -> bool {
        self.kind == kind
    }

    /// Where options are read from is no option of a file.
    pub fn says_where(&self) -> bool {
        ["config_file", "config_dir", "shell_completion"].contains(&self.key.as_str())
    }
}

#[derive(Debug, Deserialize)]
pub struct Answer {
    pub code: i32,
    #[serde(default)]
    pub said: String,
    #[serde(default)]
    pub values: BTreeMap<String, String>,
}

impl Answer {
    pub fn taken(&self) -> bool {
        self.code == 0
    }
}

/// What Kolla has, and what it makes of each call.
pub fn theirs(release: &Path, calls: &[Call]) -> (Vec<Opt>, Vec<Answer>) {
    let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kolla/options.py");
    let mut python = Command::new(release.join("bin/python"));
    let mut python = python.arg(driver).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let jobs: String = calls
        .iter()
        .map(|call| {
            let environment: BTreeMap<_, _> = call.environment.iter().cloned().collect();
            format!("{}\n", serde_json::json!({ "arguments": call.arguments, "environment": environment }))
        })
        .collect();
    let mut stdin = python.stdin.take().unwrap();
    // Answers come while jobs are written.
    let writing = std::thread::spawn(move || stdin.write_all(jobs.as_bytes()).unwrap());
    let output = String::from_utf8(python.wait_with_output().unwrap().stdout).unwrap();
    writing.join().unwrap();
    let (declared, answers) = output.split_once('\n').unwrap();
    let answers: Vec<Answer> = answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), calls.len());
    (serde_json::from_str(declared).unwrap(), answers)
}

/// A release's options and tables with one image, whose template says what all options are.
pub struct Probe {
    pub room: tempfile::TempDir,
    pub release: PathBuf,
}

pub const TOLD: &str = "options are told:";

impl Probe {
    pub fn new(version: &str) -> Probe {
        let (release, room) = (release(version), tempfile::tempdir().unwrap());
        let probe = Probe { room, release };
        let package = package(&probe.release);
        std::os::unix::fs::symlink(&package, probe.path("kolla")).unwrap();
        for entry in fs::read_dir(package.parent().unwrap()).unwrap().map(|entry| entry.unwrap()) {
            let name = entry.file_name().into_string().unwrap();
            // What tells the version.
            if name.starts_with("kolla-") && name.ends_with("-info") {
                std::os::unix::fs::symlink(entry.path(), probe.path(&name)).unwrap();
            }
        }
        probe.write("docker/base/Dockerfile.j2", &format!("{{{{ raise_error('{TOLD}' ~ (users | tojson)) }}}}\n"));
        probe.write("docker/macros.j2", "");
        probe
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.room.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// What Kollage makes of a call.
    pub fn ours(&self, call: &Call) -> Answer {
        let home = tempfile::tempdir().unwrap();
        let mut command = ours(self.room.path(), home.path());
        command.args(&call.arguments).envs(call.environment.iter().cloned());
        let output = command.output().unwrap();
        let said = said(&output);
        // The template is read where nothing was refused.
        let Some((_, told)) = said.split_once(TOLD) else {
            return Answer { code: output.status.code().unwrap_or(-1), said, values: BTreeMap::new() };
        };
        let users: BTreeMap<String, serde_json::Value> = serde_json::from_str(told.lines().next().unwrap()).unwrap();
        let own = users.into_iter().filter(|(name, _)| name.starts_with("opt-"));
        let values = own.map(|(name, user)| (name, user["group"].as_str().unwrap().to_owned()));
        let said = said.split(TOLD).next().unwrap().to_owned();
        Answer { code: 0, said, values: values.collect() }
    }
}

/// Every option of a release in one room, with a value for each that is none of its own.
pub struct Release {
    pub probe: Probe,
    pub options: Vec<Opt>,
    /// Names each option in another one, so that both programs say what it is.
    pub asking: String,
}

impl Release {
    pub fn new(version: &str) -> Release {
        let probe = Probe::new(version);
        let options = theirs(&probe.release, &[]).0;
        let main = options.iter().filter(|option| option.group == "DEFAULT" && !option.says_where());
        let asking: String = main.map(|option| format!("[opt-{0}-user]\ngroup = ${{{0}}}\n", option.key)).collect();
        let asking = probe.write("asking.conf", &asking);
        probe.write("over/mine/file", "");
        probe.write("over-1.j2", "{% extends parent_template %}\n");
        probe.write("over-2.j2", "{% extends parent_template %}\n");
        probe.write("repos.yaml", "{}\n");
        Release { probe, options, asking }
    }

    pub fn main(&self) -> impl Iterator<Item = &Opt> {
        self.options.iter().filter(|option| option.group == "DEFAULT" && !option.says_where())
    }

    pub fn cli(&self) -> impl Iterator<Item = &Opt> {
        self.main().filter(|option| option.cli && !option.positional)
    }

    /// Values that can be meant, none of them the default. Options that a file has several times have several.
    pub fn values(&self, option: &Opt) -> Vec<String> {
        let path = |name: &str| self.probe.path(name).display().to_string();
        let other = |of: &[String]| of.iter().find(|choice| option.value != **choice).unwrap().clone();
        match option.key.as_str() {
            "docker_dir" => vec![path("over"), path("over/mine")],
            "template_override" => vec![path("over-1.j2"), path("over-2.j2")],
            "repos_yaml" => vec![path("repos.yaml")],
            "rpm_setup_config" => vec!["one.rpm, two.repo".into()],
            "profile" => vec!["infra".into(), "main".into()],
            _ => match option.kind.as_str() {
                "Multi" => vec!["one".into(), "two".into()],
                "List" => vec!["one, two".into()],
                "Dict" => vec!["one:1, two:2:3".into()],
                "Integer" => vec!["42".into()],
                "Boolean" => vec![(option.value != true).to_string()],
                "String" if !option.choices.is_empty() => vec![other(&option.choices)],
                "String" => vec![format!("a {}", option.key)],
                kind => panic!("an option of a new kind: {kind} {}", option.name),
            },
        }
    }

    pub fn call(&self, arguments: impl IntoIterator<Item = String>) -> Call {
        let mut call = call("--config-file").and(&self.asking);
        call.arguments.extend(arguments);
        call
    }

    /// With a file that says this in `[DEFAULT]`.
    pub fn with_file(&self, name: &str, lines: &str) -> Call {
        let file = self.probe.write(name, &format!("[DEFAULT]\n{lines}"));
        self.call(["--config-file".to_owned(), file])
    }

    /// Both programs take or refuse each call, and all options are the same then. Gives how many calls were taken.
    pub fn same(&self, calls: &[Call]) -> usize {
        let (_, theirs) = theirs(&self.probe.release, calls);
        let mut taken = 0;
        let mut problems = Vec::new();
        for (call, theirs) in calls.iter().zip(theirs) {
            let ours = self.probe.ours(call);
            let about = format!("{:?} {:?}", &call.arguments[2..], call.environment);
            if theirs.taken() != ours.taken() {
                problems.push(format!(
                    "{about}\n  theirs: {} {}\n  ours: {} {}",
                    theirs.code, theirs.said, ours.code, ours.said
                ));
            } else if !theirs.taken() {
                assert_eq!(ours.code, 2, "{about}: {}", ours.said);
            } else {
                taken += 1;
                assert!(theirs.values.len() > 60, "{about}: {:?}", theirs.values);
                for (name, value) in &theirs.values {
                    let own = ours.values.get(name);
                    if own != Some(value) {
                        problems.push(format!("{about}\n  {name}: theirs {value:?}, ours {own:?}"));
                    }
                }
                assert_eq!(theirs.values.len(), ours.values.len());
            }
        }
        assert!(problems.is_empty(), "{}", problems.join("\n"));
        taken
    }
}
