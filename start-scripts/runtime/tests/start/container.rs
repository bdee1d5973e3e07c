//! The program as it is shipped, in root file systems that have little or nothing else: alone, as process 1, giving up
//! root, on a read-only root, and as an ordinary user.

use crate::lab::Ran;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn shipped() -> &'static Path {
    crate::runtime::shipped(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
}

pub struct Root {
    directory: tempfile::TempDir,
    pub variables: Vec<(&'static str, String)>,
}

const CONFIG: &str = "var/lib/kolla/config_files/config.json";

impl Root {
    /// With nothing but the program by all its names, users, and a configuration with this command and more.
    pub fn new(command: &str, rest: &str) -> Option<Root> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("passed over: this test needs root");
            return None;
        }
        let mut root = Root { directory: tempfile::tempdir().unwrap(), variables: Vec::new() };
        fs::set_permissions(root.path(""), fs::Permissions::from_mode(0o755)).unwrap();
        for directory in ["bin", "etc", "proc", "run", "tmp", "dev"] {
            fs::create_dir(root.path(directory)).unwrap();
        }
        fs::copy(shipped(), root.path("bin/kollage-start")).unwrap();
        for name in ["kolla_start", "kolla_set_configs", "kolla_copy_cacerts", "healthcheck_listen"] {
            symlink("kollage-start", root.path("bin").join(name)).unwrap();
        }
        root.write("etc/passwd", "root:x:0:0::/root:\nsvc:x:4711:4712::/var/lib/svc:\n");
        root.write("etc/group", "root:x:0:\nsvc:x:4712:\nextra:x:4713:root,svc\n");
        root.write(CONFIG, format!("{{\"command\": \"{command}\"{rest}}}"));
        root.variables.push(("KOLLA_CONFIG_STRATEGY", "COPY_ALWAYS".into()));
        Some(root)
    }

    /// With a shell, and a script that is the command.
    fn with_shell(script: &str) -> Option<Root> {
        let root = Root::new("/bin/busybox sh /service", "")?;
        fs::copy("/bin/busybox", root.path("bin/busybox"))
            .or_else(|_| fs::copy("/usr/bin/busybox", root.path("bin/busybox")))
            .unwrap();
        for name in ["sleep", "grep", "id", "cat", "ls", "kill", "env", "touch"] {
            symlink("busybox", root.path("bin").join(name)).unwrap();
        }
        // For background jobs of the shell.
        root.write("dev/null", "");
        root.write("service", script);
        Some(root)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub fn prepared(&self, mut command: Command) -> Command {
        command.env_clear().env("PATH", "/bin:/usr/bin:/usr/sbin:/sbin").envs(self.variables.clone());
        command.stdin(Stdio::null());
        command
    }

    /// In the root, with this process's ids.
    pub fn command(&self, name: &str) -> Command {
        let mut command = Command::new("chroot");
        command.arg(self.path("")).arg(format!("/bin/{name}"));
        self.prepared(command)
    }

    /// In the root, as process 1 of namespaces of its own, which outlives neither the test nor its failure.
    fn container(&self) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "unshare", "--pid", "--mount", "--fork", "--kill-child"]);
        command.arg(format!("--mount-proc={}", self.path("proc").display()));
        command.arg("chroot").arg(self.path("")).arg("/bin/kolla_start");
        self.prepared(command)
    }
}

fn said(command: &mut Command) -> (i32, String) {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
}

/// A container whose script has written `/ready`.
struct Running {
    child: Child,
    /// Process 1, as this namespace knows it.
    first: i32,
}

impl Running {
    fn start(root: &Root) -> Running {
        let child = root.container().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait(|| root.path("ready").exists());
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
        Running { child, first: children.trim().parse().unwrap() }
    }

    fn signal(&self, name: &str) {
        assert!(Command::new("kill").args(["-s", name, &self.first.to_string()]).status().unwrap().success());
    }

    fn end(self) -> (i32, String) {
        let output = self.child.wait_with_output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
    }
}

/// Far longer than anything takes; only a failure waits that long.
fn wait(until: impl Fn() -> bool) {
    for _ in 0..6000 {
        if until() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it did not come to it within a minute");
}

#[test]
fn it_is_small_and_needs_no_library() {
    let Some(root) = Root::new("/bin/kollage-start --version", "") else { return };
    let size = fs::metadata(shipped()).unwrap().len();
    assert!(size < 4_000_000, "{size} bytes");
    let (code, text) = said(&mut root.command("kollage-start"));
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("Usage"), "{text}");
}

#[test]
fn an_image_with_nothing_but_a_program_is_started() {
    let rest = r#", "config_files": [{"source": "/var/lib/kolla/config_files/svc.conf", "dest": "/etc/svc/svc.conf",
        "owner": "svc:extra", "perm": "0640"}]"#;
    let Some(root) = Root::new("/bin/kollage-start --version", rest) else { return };
    root.write("var/lib/kolla/config_files/svc.conf", "configured");
    for _ in 0..2 {
        let (code, text) = said(&mut root.container());
        assert_eq!(code, 0, "{text}");
        assert!(text.contains(concat!("kollage-start ", env!("CARGO_PKG_VERSION"))), "{text}");
    }
    let there = fs::metadata(root.path("etc/svc/svc.conf")).unwrap();
    assert_eq!((there.uid(), there.gid(), there.mode() & 0o7777), (4711, 4713, 0o640));
    assert_eq!(fs::read_to_string(root.path("run_command")).unwrap(), "/bin/kollage-start --version");
    assert_eq!(said(root.command("kolla_set_configs").arg("--check")).0, 0);
    fs::write(root.path("etc/svc/svc.conf"), "other").unwrap();
    assert_eq!(said(root.command("kolla_set_configs").arg("--check")).0, 1);
}

#[test]
fn process_1_passes_signals_on_and_keeps_the_exit_code() {
    let script =
        "trap 'echo hung up' HUP; trap 'echo stopping; exit 7' TERM; touch /ready; while :; do sleep 0.05; done";
    let Some(root) = Root::with_shell(script) else { return };
    let running = Running::start(&root);
    running.signal("HUP");
    running.signal("WINCH");
    running.signal("TERM");
    let (code, text) = running.end();
    assert_eq!(code, 7, "{text}");
    assert!(text.contains("hung up") && text.contains("stopping"), "{text}");
}

#[test]
fn process_1_reaps_what_others_leave_behind() {
    // Grandchildren that outlive their parent are process 1's. Two of them end while the script lasts.
    let script = "(sleep 0.1 & sleep 0.1 &) ; while ls -d /proc/[0-9]* | grep -vqE '/(1|'$$')$' && \
        cat /proc/[0-9]*/stat 2>/dev/null | grep -q ' (sleep) [SR] '; do :; done; sleep 0.5; \
        cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z '";
    let Some(root) = Root::with_shell(script) else { return };
    let (_, text) = said(&mut root.container());
    assert!(text.lines().any(|line| line == "0"), "{text}");
}

#[test]
fn a_command_that_does_not_stop_is_killed_in_time() {
    let script = "trap '' TERM; touch /ready; while :; do sleep 0.05; done";
    let Some(mut root) = Root::with_shell(script) else { return };
    root.variables.push(("KOLLAGE_STOP_TIMEOUT", "1".into()));
    let running = Running::start(&root);
    running.signal("TERM");
    let (code, text) = running.end();
    assert_eq!(code, 137, "{text}");
    assert!(text.contains("did not stop within 1 seconds"), "{text}");
}

#[test]
fn a_stop_is_passed_on_as_the_signal_that_the_command_wants() {
    let script = "trap 'echo gracefully; exit 3' WINCH; touch /ready; while :; do sleep 0.05; done";
    let Some(mut root) = Root::with_shell(script) else { return };
    root.variables.push(("KOLLAGE_STOP_SIGNAL", "SIGWINCH".into()));
    let running = Running::start(&root);
    running.signal("TERM");
    assert_eq!(running.end().0, 3);
}

#[test]
fn signals_reach_the_child_or_the_whole_group() {
    let script = "trap 'touch /outer' USR1; trap 'exit 0' TERM; /bin/busybox sh -c \
        'trap \"touch /inner\" USR1; touch /ready; while :; do sleep 0.05; done' & while :; do wait; done";
    for (mode, inner) in [("single", false), ("group", true)] {
        let Some(mut root) = Root::with_shell(script) else { return };
        root.variables.push(("KOLLAGE_INIT", mode.into()));
        let running = Running::start(&root);
        running.signal("USR1");
        wait(|| root.path("outer").exists() && (!inner || root.path("inner").exists()));
        running.signal("TERM");
        assert_eq!(running.end().0, 0, "{mode}");
        assert_eq!(root.path("inner").exists(), inner, "{mode}");
    }
}

#[test]
fn what_ends_by_a_signal_ends_with_its_number() {
    let Some(root) = Root::with_shell("kill -s KILL $$") else { return };
    assert_eq!(said(&mut root.container()).0, 137);
}

#[test]
fn where_an_init_is_already_the_command_takes_the_place_of_the_start() {
    let Some(root) = Root::with_shell("echo \"pid $$\"") else { return };
    let child = root.command("kolla_start").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(&format!("pid {pid}\n")), "{text} is not of {pid}");
}

#[test]
fn root_becomes_the_service_s_user() {
    let script = "id; echo HOME=$HOME; grep -E 'Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs' /proc/self/status";
    for container in [true, false] {
        let Some(mut root) = Root::with_shell(script) else { return };
        root.variables.push(("KOLLAGE_USER", "svc".into()));
        root.variables.push(("KOLLAGE_CAPABILITIES", "net_bind_service,CAP_NET_RAW".into()));
        root.variables.push(("KOLLAGE_NO_NEW_PRIVS", "yes".into()));
        let mut command = if container { root.container() } else { root.command("kolla_start") };
        if !container {
            // /proc of this namespace, where the process isn't 1.
            command = root.prepared(Command::new("unshare"));
            let mount = "mount -t proc none \"$0/proc\" && exec chroot \"$0\" /bin/kolla_start";
            command.args(["--mount", "sh", "-c", mount]).arg(root.path(""));
        }
        let (code, text) = said(&mut command);
        assert_eq!(code, 0, "{text}");
        for part in [
            "uid=4711",
            "gid=4712",
            "groups=4712",
            "4713",
            "HOME=/var/lib/svc",
            "CapInh:\t0000000000002400",
            "CapPrm:\t0000000000002400",
            "CapEff:\t0000000000002400",
            "CapAmb:\t0000000000002400",
            "NoNewPrivs:\t1",
        ] {
            assert!(text.contains(part), "no {part} in {text}");
        }
        // Other groups of root's are gone.
        assert!(!text.contains("(root)"), "{text}");
    }
}

#[test]
fn without_capabilities_to_keep_none_is_kept() {
    let Some(mut root) = Root::with_shell("grep -E 'Cap(Prm|Amb)' /proc/self/status") else { return };
    root.variables.push(("KOLLAGE_USER", "4711:4712".into()));
    let (code, text) = said(&mut root.container());
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("CapPrm:\t0000000000000000") && text.contains("CapAmb:\t0000000000000000"), "{text}");
}

/// A service in this root, as the bundle has it.
fn define(root: &mut Root, definition: &str) {
    let user = r#""user": {"name": "svc", "uid": 4711, "gid": 4712, "missing": "error"}"#;
    let text = format!("{{\"schema\": 1, \"name\": \"svc\", {user}, {definition}}}");
    root.write("start/services/svc.json", text);
    root.variables.push(("KOLLAGE_START_DIR", "/start".into()));
    root.variables.push(("KOLLAGE_SERVICE", "svc".into()));
}

#[test]
fn a_service_keeps_the_capabilities_that_its_definition_names() {
    let Some(mut root) = Root::with_shell("grep CapEff /proc/self/status") else { return };
    define(&mut root, r#""capabilities": ["NET_ADMIN", "SYS_NICE"]"#);
    let (code, text) = said(&mut root.container());
    assert!(code == 0 && text.contains("CapEff:\t0000000000801000"), "{code} {text}");
    let mut less = root.prepared(Command::new("setpriv"));
    less.args(["--bounding-set=-net_admin", "chroot"]).arg(root.path("")).arg("/bin/kolla_start");
    let (code, text) = said(&mut less);
    assert!(code == 2 && text.contains("svc: the container was not given net_admin"), "{code} {text}");
    // What whoever starts the container says counts more.
    root.variables.push(("KOLLAGE_CAPABILITIES", "net_raw".into()));
    let (code, text) = said(&mut root.container());
    assert!(code == 0 && text.contains("CapEff:\t0000000000002000"), "{code} {text}");
}

/// Engines run it as root, but without the capability to look into the processes of others.
#[test]
fn a_probe_is_made_as_the_service_s_user() {
    let Some(mut root) = Root::with_shell("") else { return };
    symlink("busybox", root.path("bin/nc")).unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    root.write("service", format!("nc -l -p {port} & touch /ready; wait\n"));
    fs::set_permissions(root.path(""), fs::Permissions::from_mode(0o777)).unwrap();
    define(&mut root, &format!("\"health\": [\"listen\", \"nc\", \"{port}\"]"));
    let running = Running::start(&root);
    let probe = |user: &str| {
        let mut command = root.prepared(Command::new("nsenter"));
        command.env("KOLLAGE_USER", user);
        command.args(["--target", &running.first.to_string(), "--mount", "--pid", "--wd=/"]);
        command.args(["setpriv", "--bounding-set=-sys_ptrace", "chroot"]).arg(root.path(""));
        said(command.args(["/bin/kollage-start", "healthcheck"]))
    };
    // The script says that it is ready before the listener is.
    wait(|| probe("svc").0 == 0);
    let (code, text) = probe("root");
    assert_eq!(code, 1, "root sees what it could not be sure to see: {text}");
    running.signal("KILL");
    running.end();
}

#[test]
fn a_read_only_root_works_with_a_tmpfs_for_what_is_written() {
    let rest = r#", "config_files": [{"source": "/var/lib/kolla/config_files/svc.conf", "dest": "/etc/svc/svc.conf",
        "owner": "svc", "perm": "0600"}]"#;
    let Some(mut root) = Root::new("/bin/kollage-start --version", rest) else { return };
    root.write("var/lib/kolla/config_files/svc.conf", "configured");
    fs::create_dir(root.path("etc/svc")).unwrap();
    let mounts = "mount --bind \"$0\" \"$0\" && mount -t tmpfs none \"$0/run\" && mount -t tmpfs none \"$0/etc/svc\" && \
        mount -o remount,bind,ro \"$0\" && for program in \"$@\"; do chroot \"$0\" $program || exit; done";
    let run = |root: &Root| {
        let mut command = root.prepared(Command::new("unshare"));
        command.args(["--mount", "sh", "-c", mounts]).arg(root.path(""));
        said(command.args(["/bin/kolla_start", "/bin/kolla_start", "/bin/kolla_set_configs --check"]))
    };
    let (code, text) = run(&root);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("KOLLAGE_STATE_DIR names another place"), "{text}");
    root.variables.push(("KOLLAGE_STATE_DIR", "/run/kollage".into()));
    let (code, text) = run(&root);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("writing /etc/svc/svc.conf"), "{text}");
    root.variables.push(("KOLLA_CONFIG_STRATEGY", "COPY_ONCE".into()));
    let (code, text) = run(&root);
    assert_eq!(code, 0, "{text}");
}

#[test]
fn an_ordinary_user_is_told_each_thing_that_it_cannot_do() {
    let rest = r#", "config_files": [
        {"source": "/var/lib/kolla/config_files/svc.conf", "dest": "/data/mine.conf", "owner": "svc", "perm": "0600"},
        {"source": "/var/lib/kolla/config_files/svc.conf", "dest": "/data/theirs.conf", "owner": "root", "perm": "0600"},
        {"source": "/var/lib/kolla/config_files/svc.conf", "dest": "/etc/svc.conf", "owner": "svc", "perm": "0600"}],
        "permissions": [{"path": "/etc/passwd", "owner": "svc"}]"#;
    let Some(mut root) = Root::new("/bin/kollage-start --version", rest) else { return };
    root.write("var/lib/kolla/config_files/svc.conf", "configured");
    fs::create_dir(root.path("data")).unwrap();
    std::os::unix::fs::chown(root.path("data"), Some(4711), Some(4712)).unwrap();
    root.variables.push(("KOLLAGE_STATE_DIR", "/data/state".into()));
    let run = |root: &Root| {
        let mut command = Command::new("chroot");
        command.arg("--userspec=4711:4712").arg(root.path("")).arg("/bin/kolla_start");
        Ran::of(root.prepared(command))
    };
    let ran = run(&root);
    assert_eq!((ran.code, ran.errors.len()), (2, 3), "{}", ran.said);
    for (error, parts) in ran.errors.iter().zip([
        ["config_files[1]", "/data/theirs.conf", "can't give it to 0:0"],
        ["config_files[2]", "/etc/svc.conf", "/etc can't be changed: permission denied"],
        ["permissions[0]", "/etc/passwd", "can't give it to 4711:4712"],
    ]) {
        for part in parts {
            assert!(error.contains(part), "no {part} in {error}");
        }
    }
    assert!(!root.path("data/mine.conf").exists());

    root.variables.push(("KOLLAGE_USER", "root".into()));
    run(&root).says(2, &["KOLLAGE_USER", "user 4711 can't become 0:0"]);
    root.variables.pop();
    let config = r#"{"command": "/bin/kollage-start --version", "config_files": [
        {"source": "/var/lib/kolla/config_files/svc.conf", "dest": "/data/mine.conf", "owner": "svc", "perm": "0600"}]}"#;
    root.write(CONFIG, config);
    for _ in 0..2 {
        assert_eq!(run(&root).code, 0);
    }
    assert_eq!(fs::metadata(root.path("data/mine.conf")).unwrap().uid(), 4711);
}

#[test]
fn a_user_that_the_image_lacks_is_mapped() {
    let rest = r#", "config_files": [{"source": "/var/lib/kolla/config_files/k.conf", "dest": "/etc/keystone/k.conf",
        "owner": "keystone", "perm": "0600"}]"#;
    let Some(mut root) = Root::new("/bin/kollage-start --version", rest) else { return };
    root.write("var/lib/kolla/config_files/k.conf", "");
    Ran::of(root.command("kolla_start")).says(1, &["config_files[0]", "/etc/keystone/k.conf", "the user `keystone`"]);
    for (users, ids) in [("keystone=svc", (4711, 4712)), ("keystone=42424:42425", (42424, 42425))] {
        root.variables.push(("KOLLAGE_USERS", users.into()));
        assert_eq!(Ran::of(root.command("kolla_start")).code, 0);
        let there = fs::metadata(root.path("etc/keystone/k.conf")).unwrap();
        assert_eq!((there.uid(), there.gid()), ids);
    }
}
