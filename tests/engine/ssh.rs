//! `RUN --mount=type=ssh` with a real ssh-agent and Debian's ssh-add in the step. And `--allow`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use kollage::dockerfile::step::Entitlement;
use kollage::engine::SshSource;
use kollage::engine::embedded::Options;
use kollage::error::Kind;

use crate::lab::{Lab, is_root};
use crate::process::{processes, wait_until};

struct Agent {
    child: Child,
    socket: PathBuf,
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn tool(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().expect("these tests need Debian's openssh-client");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn key(dir: &Path, name: &str, passphrase: &str) -> PathBuf {
    let path = dir.join(name);
    tool(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-C", name, "-N", passphrase, "-f"]).arg(&path));
    path
}

fn agent(dir: &Path, key: &Path) -> Agent {
    let socket = dir.join("agent");
    let mut command = Command::new("ssh-agent");
    let child = command.arg("-D").arg("-a").arg(&socket).stdout(Stdio::null()).spawn().unwrap();
    let agent = Agent { child, socket };
    wait_until("the agent listens", || std::os::unix::net::UnixStream::connect(&agent.socket).is_ok());
    tool(Command::new("ssh-add").arg("-q").arg(key).env("SSH_AUTH_SOCK", &agent.socket));
    agent
}

/// Puts ssh-add and the libraries that it needs into the context, below `tools/`.
fn bring_ssh_add(lab: &Lab) {
    let program = "/usr/bin/ssh-add";
    let libraries = tool(Command::new("ldd").arg(program));
    let paths = libraries.split_whitespace().filter(|word| word.starts_with('/')).chain([program]);
    for path in paths {
        let to = format!("tools{path}");
        lab.file(&to, std::fs::read(path).unwrap());
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(lab.context().join(to), mode).unwrap();
    }
    // The base has a link where the libraries are.
    std::fs::rename(lab.context().join("tools/lib"), lab.context().join("tools/usr/lib")).unwrap_or_default();
}

fn lab(ssh: &[(&str, SshSource)]) -> Lab {
    let ssh: BTreeMap<String, SshSource> = ssh.iter().map(|(id, source)| ((*id).to_owned(), source.clone())).collect();
    let lab = Lab::with(Options { ssh, ..Options::default() });
    bring_ssh_add(&lab);
    lab
}

/// ssh-agents that stand in a directory of a store.
fn agents_below(store: &Path) -> usize {
    let agents = processes("/usr/bin/ssh-agent").into_iter();
    agents.filter(|pid| std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(store))).count()
}

const TOOLS: &str = "COPY tools/ /\n";

#[test]
fn a_step_that_names_an_agent_can_use_its_keys_and_no_more() {
    if !is_root("a_step_that_names_an_agent_can_use_its_keys_and_no_more") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let key = key(dir.path(), "hosts-key", "");
    let agent = agent(dir.path(), &key);
    let lab = lab(&[("default", SshSource::Socket(agent.socket.clone()))]);
    lab.file("key.pub", std::fs::read(key.with_extension("pub")).unwrap());
    lab.file("other", std::fs::read(&key).unwrap());
    let output = lab.output(&format!("{TOOLS}RUN --mount=type=ssh echo $SSH_AUTH_SOCK; ssh-add -l"));
    assert_eq!(output[0], "/run/buildkit/ssh_agent.0");
    assert!(output[1].contains("hosts-key (ED25519)"), "{output:?}");
    // A signature, made and checked.
    lab.output(&format!("{TOOLS}COPY key.pub /\nRUN --mount=type=ssh ssh-add -T /key.pub"));
    // What would change the agent is refused.
    let script = "ssh-add -D; ssh-add -x </dev/null; ssh-add -l | grep -c hosts-key";
    let output = lab.output(&format!("{TOOLS}RUN --mount=type=ssh {script}"));
    assert_eq!(output.last().map(String::as_str), Some("1"), "{output:?}");
    let listed = tool(Command::new("ssh-add").arg("-l").env("SSH_AUTH_SOCK", &agent.socket));
    assert!(listed.contains("hosts-key"), "{listed}");
    // The next step has nothing, and nothing stays behind.
    let output = lab.output(&format!(
        "{TOOLS}RUN --mount=type=ssh ssh-add -l\nRUN ls -a /run 2>&1; echo [$SSH_AUTH_SOCK]; ssh-add -l || true"
    ));
    assert!(output.iter().any(|line| line == "[]"), "{output:?}");
    assert!(output.iter().any(|line| line.contains("Could not open a connection")), "{output:?}");
    let built = lab.build("RUN --mount=type=ssh touch /x").unwrap();
    assert_eq!(lab.top_layer(&built), ["x"]);
    assert_eq!(built.config.config.env_get("SSH_AUTH_SOCK"), None);
}

#[test]
fn the_socket_has_the_owner_and_the_place_that_were_asked_for() {
    if !is_root("the_socket_has_the_owner_and_the_place_that_were_asked_for") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let key = key(dir.path(), "hosts-key", "");
    let agent = agent(dir.path(), &key);
    let lab = lab(&[("default", SshSource::Socket(agent.socket.clone()))]);
    let list = "ssh-add -l >/dev/null 2>&1 && echo yes || echo no";
    let output = lab.output(&format!("{TOOLS}USER kim\nRUN --mount=type=ssh {list}"));
    assert_eq!(output, ["no"]);
    let output = lab.output(&format!("{TOOLS}USER kim\nRUN --mount=type=ssh,uid=1000 {list}"));
    assert_eq!(output, ["yes"]);
    let output = lab.output(&format!("{TOOLS}USER kim\nRUN --mount=type=ssh,mode=0666 {list}"));
    assert_eq!(output, ["yes"]);
}

#[test]
fn keys_from_files_are_in_an_agent_that_ends_with_the_engine() {
    if !is_root("keys_from_files_are_in_an_agent_that_ends_with_the_engine") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let keys = vec![key(dir.path(), "one-key", ""), key(dir.path(), "two-key", "")];
    // OpenSSH itself would refuse a file that others can read.
    std::fs::set_permissions(&keys[0], std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let lab = lab(&[("deploy", SshSource::Keys(keys))]);
    let store = lab.engine.store().root().to_owned();
    let run = format!("{TOOLS}RUN --mount=type=ssh,id=deploy,required ssh-add -l\nRUN --mount=type=ssh,id=deploy true");
    assert_eq!(agents_below(&store), 0);
    let output = lab.output(&run);
    assert!(output.len() == 2 && output[0].contains("one-key") && output[1].contains("two-key"), "{output:?}");
    assert_eq!(agents_below(&store), 1);
    drop(lab);
    assert_eq!(agents_below(&store), 0);
}

#[test]
fn an_agent_that_cannot_be_had_is_said() {
    if !is_root("an_agent_that_cannot_be_had_is_said") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let locked = key(dir.path(), "locked", "secret words");
    let lab = Lab::with(Options {
        ssh: BTreeMap::from([("locked".to_owned(), SshSource::Keys(vec![locked]))]),
        ..Options::default()
    });
    let error = lab.build("RUN --mount=type=ssh,id=locked true").unwrap_err();
    assert_eq!(error.kind(), Kind::BadInput, "{error}");
    assert!(error.to_string().contains("cannot use the key"), "{error}");
    assert!(error.hint_text().unwrap_or_default().contains("--ssh default"), "{error:?}");
    let error = lab.build("RUN --mount=type=ssh,id=none,required true").unwrap_err();
    assert!(error.to_string().contains("line 2: there is no ssh-agent `none`"), "{error}");
    // Not required: the variable is there, as in Docker, and the socket isn't.
    let output =
        lab.output("RUN --mount=type=ssh,id=none echo $SSH_AUTH_SOCK; ls $SSH_AUTH_SOCK 2>/dev/null || echo no");
    assert_eq!(output, ["/run/buildkit/ssh_agent.0", "no"]);
}

#[test]
fn more_rights_need_to_be_granted() {
    if !is_root("more_rights_need_to_be_granted") {
        return;
    }
    let all = BTreeSet::from(Entitlement::ALL);
    let lab = Lab::with(Options { entitlements: all, ..Options::default() });
    let capabilities = |flags: &str| {
        let output = lab.output(&format!("RUN {flags} grep CapEff /proc/self/status"));
        u64::from_str_radix(output[0].split_whitespace().last().unwrap(), 16).unwrap()
    };
    let (usual, more) = (capabilities(""), capabilities("--security=insecure"));
    assert_eq!(usual & more, usual);
    // CAP_SYS_ADMIN
    assert!(usual & 1 << 21 == 0 && more & 1 << 21 != 0, "{usual:x} {more:x}");
    assert_eq!(capabilities("--security=sandbox"), usual);
    let interfaces = |flags: &str| lab.output(&format!("RUN {flags} ls /sys/class/net | wc -l"))[0].clone();
    assert_eq!(interfaces("--network=host"), interfaces(""));

    let lab = Lab::new();
    for flag in ["--network=host", "--security=insecure"] {
        let error = lab.build(&format!("RUN {flag} true")).unwrap_err();
        assert_eq!(error.kind(), Kind::BadInput);
        assert!(error.to_string().contains(&format!("line 2: RUN {flag} is not allowed")), "{error}");
    }
}
