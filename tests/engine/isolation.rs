//! What a step sees of the host outside its root: nothing. Each of these is a way out that some builder once had.

use std::io::Write as _;
use std::os::unix::net::UnixListener;

use crate::lab::{Lab, Setup, is_root};
use kollage::dockerfile::step::{Entitlement, Network};
use kollage::engine::embedded::Options;
use kollage::engine::embedded::run::{HostMount, RunRequest};

/// `sc NUMBER [ARGUMENT…]` makes a system call and exits with its errno, for x86_64: its source is
/// tests/conformance/cases/run/seccomp.S.
const SC: &str = "H4sIAAAAAAACA6t39XFjYmRkgAEmBjsGEG8DgwOY7wAVD0AoAYpZANU5MLAwMIPVsoPVQwBMH4xuhoqfgNIcUDrwaUkKGwPxQABK+3TbqPj0lqgIeP4/79OrWwoU8m39X2Lo2W3m2XyMAyhqeJt/G1vLgRIRj//HbCzLmHTUdQw8Dj5m8eA8/PqpZ2csg2fzUY7Xp4CaLYCaPbtdgbiWw7O7VMCzO1TCtztUwbfbVcO329eAn9Xwv4ctw4f//8tYvt/oPL7jOVADPyuDXnFGcUlRSWISg15JakUJg15ScTEDlQA3EMPCFDU8GVDCEwYY0fiC0DBmhvItGCH6jRkZUOKTAS0+kM1jxuIumH4xAvYDAMkWhzRQAgAA";

/// `escape PATH` leaves a chroot by a directory that it has kept open and by `..`, and exits with 0 if it then sees PATH.
const ESCAPE: &str = "H4sIAAAAAAACA6t39XFjYmRkgAEmBjsGEK+CwQHMd4CKSyCUAMUsgGocGJiBqkHC7GD1EADTB6P7oOIwGmbMjmAg4dFrWwqk9r0FivKz7mCCCGWAhEAq+VkdO4/sWAgR9WEAqwkEUi6dz4FSe1NAxgRAZM3Aso7/z5a+hWlQg2gQBfG6a1QEDL/xs36/0Xl8x3OwhH5KamoBgz6Dnh6DHgODXnFGcUlRSWISg15JakUJA8WAG+pXdoxwQQ0PBrRwQeYzYzGXDapQkIB+AIsQnCPYAQAA";

/// Makes a program in the image.
fn program(name: &str, packed: &str) -> String {
    format!("RUN echo {packed} | /bin/busybox base64 -d | /bin/busybox gunzip > {name} && chmod +x {name}\n")
}

/// Runs lines of shell, each told by a name, and compares what they say.
#[track_caller]
fn say(lab: &Lab, before: &str, rows: &[(&str, &str, &str)]) {
    let script: Vec<String> = rows.iter().map(|(name, line, _)| format!("echo \"{name}: $( {line})\"")).collect();
    let script = script.join("\n");
    let out = lab.output(&format!("{before}RUN <<'EOF'\nexec 2>/dev/null\n{script}\nEOF\n"));
    let wanted: Vec<String> = rows.iter().map(|(name, _, said)| format!("{name}: {said}")).collect();
    assert_eq!(out, wanted);
}

#[test]
fn what_the_kernel_offers_of_the_host_is_closed() {
    if !is_root("what_the_kernel_offers_of_the_host_is_closed") {
        return;
    }
    let opens = |path: &str| format!("(: >> {path}) && echo written || echo refused");
    let lab = Lab::new();
    let lines = [
        ("sysctl", opens("/proc/sys/kernel/hostname"), "refused"),
        ("core pattern", opens("/proc/sys/kernel/core_pattern"), "refused"),
        ("modprobe", opens("/proc/sys/kernel/modprobe"), "refused"),
        ("sysctl of the network", opens("/proc/sys/net/ipv4/ip_forward"), "refused"),
        ("sysrq", opens("/proc/sysrq-trigger"), "refused"),
        ("interrupts", opens("/proc/irq/default_smp_affinity"), "refused"),
        ("uevent helper", opens("/sys/kernel/uevent_helper"), "refused"),
        ("power", opens("/sys/power/state"), "refused"),
        ("memory", "cat /proc/kcore | wc -c".into(), "0"),
        ("keys", "cat /proc/keys | wc -c".into(), "0"),
        ("timers", "cat /proc/timer_list | wc -c".into(), "0"),
        ("firmware", "ls /sys/firmware | wc -l".into(), "0"),
        ("energy", "ls /sys/devices/virtual/powercap | wc -l".into(), "0"),
        ("control groups", "ls /sys/fs/cgroup | wc -l".into(), "0"),
        ("own control group", "sed 's/.*://' /proc/self/cgroup | grep -v '^/$' | wc -l".into(), "0"),
        ("debugging", "ls /sys/kernel/debug /sys/kernel/tracing | grep -v : | tr -d '\\n' | wc -c".into(), "0"),
        ("formats", opens("/proc/sys/fs/binfmt_misc/register"), "refused"),
        ("proc again", "mount -t proc proc /tmp && echo mounted || echo refused".into(), "refused"),
        ("proc writable", "mount -o remount,rw /proc/sys && echo mounted || echo refused".into(), "refused"),
        ("unmounting a mask", "/bin/busybox umount /proc/kcore && echo bare || echo refused".into(), "refused"),
        ("control group", "mount -t cgroup -o memory x /tmp && echo mounted || echo refused".into(), "refused"),
        ("namespaces", "/bin/busybox unshare -Urm true && echo made || echo refused".into(), "refused"),
        ("log", "/bin/busybox dmesg && echo read || echo refused".into(), "refused"),
        ("host name", "hostname other && echo set || echo refused".into(), "refused"),
        ("clock", "/bin/busybox date -s 2030-01-01 2>&1 | grep -c 'not permitted'".into(), "1"),
        ("priority", "echo -1000 > /proc/self/oom_score_adj && echo set || echo refused".into(), "refused"),
        ("interfaces", "ip link add kollage0 type dummy && echo made || echo refused".into(), "refused"),
    ];
    let rows: Vec<(&str, &str, &str)> = lines.iter().map(|(name, line, said)| (*name, line.as_str(), *said)).collect();
    say(&lab, "", &rows);
}

#[test]
fn device_nodes_open_nothing() {
    if !is_root("device_nodes_open_nothing") {
        return;
    }
    let lab = Lab::new();
    // The host's disk, whichever it is: none of them may open. And what a step needs does.
    let script = "ls /dev/loop-control /dev/mem /dev/kmsg /dev/fuse /dev/kvm /dev/net/tun /dev/mapper\n\
         for dir in /tmp /dev /dev/shm /cache /memory /bind; do\n\
         mknod $dir/disk b 254 0; mknod $dir/loop b 7 0; mknod $dir/mem c 1 1; mknod $dir/kmsg c 1 11; mknod $dir/nought c 1 5\n\
         for node in disk loop mem kmsg nought; do\n\
         (: < $dir/$node) && echo $dir/$node is open; (: >> $dir/$node) && echo $dir/$node is writable; done; done\n\
         head -c 1 /dev/zero | wc -c; true";
    let mounts = "--mount=type=cache,target=/cache --mount=type=tmpfs,target=/memory --mount=type=bind,target=/bind,rw";
    let out = lab.output(&format!("RUN {mounts} <<'EOF'\nexec 2>/dev/null\n{script}\nEOF\n"));
    assert_eq!(out, ["1"]);
}

#[test]
fn other_processes_are_neither_seen_nor_signalled() {
    if !is_root("other_processes_are_neither_seen_nor_signalled") {
        return;
    }
    let lab = Lab::new();
    let host = std::process::id();
    // Left open by whoever started the program: it must go no further.
    let leaked = std::fs::File::open("/").unwrap();
    let kept = rustix::io::fcntl_dupfd_cloexec(&leaked, 100).unwrap();
    rustix::io::fcntl_setfd(&kept, rustix::io::FdFlags::empty()).unwrap();
    let store = lab.engine.store().root().display().to_string();
    let rows = [
        ("signal", format!("kill -0 {host} && echo there || echo nobody"), "nobody"),
        ("environment of the first", "cat /proc/1/environ | wc -c".into(), "0"),
        ("memory of the first", "(: < /proc/1/mem) && echo open || echo refused".into(), "refused"),
        ("files of the first", "readlink /proc/1/fd/* | wc -l".into(), "0"),
        ("root of the first", "ls /proc/1/root/ | wc -l".into(), "0"),
        ("directory of the first", "ls /proc/1/cwd/ | wc -l".into(), "0"),
        ("namespaces of the first", "readlink /proc/1/ns/mnt || echo refused".into(), "refused"),
        ("store", format!("ls -d {store} /proc/*/root{store} /proc/*/cwd{store} | wc -l"), "0"),
        ("layers", format!("grep -c -F {store} /proc/self/mountinfo /proc/mounts | grep -v :0 | wc -l"), "0"),
        // What ls has open is the directory itself.
        ("open files", "ls /proc/self/fd | tr '\\n' ' '".into(), "0 1 2 3 "),
        (
            "variables",
            "env | sed 's/=.*//' | grep -v -e PWD -e OLDPWD -e SHLVL -e '^_$' | sort | tr '\\n' ' '".into(),
            "HOME PATH ",
        ),
    ];
    let rows: Vec<(&str, &str, &str)> = rows.iter().map(|(name, line, said)| (*name, line.as_str(), *said)).collect();
    say(&lab, "", &rows);
}

#[test]
fn sockets_of_the_host_are_its_own_without_network() {
    use std::os::linux::net::SocketAddrExt as _;
    if !is_root("sockets_of_the_host_are_its_own_without_network") {
        return;
    }
    let lab = Lab::with(Options { network: Network::None, ..Options::default() });
    let name = format!("kollage-test-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let _listening = UnixListener::bind_addr(&address).unwrap();
    let seen = std::fs::read_to_string("/proc/net/unix").unwrap();
    assert!(seen.contains(&name));
    let rows = [
        ("sockets", format!("grep -c {name} /proc/net/unix"), "0"),
        ("interfaces", "ls /sys/class/net | grep -v bonding_masters".into(), "lo"),
    ];
    let rows: Vec<(&str, &str, &str)> = rows.iter().map(|(name, line, said)| (*name, line.as_str(), *said)).collect();
    say(&lab, "", &rows);
}

#[test]
fn what_a_step_mounts_is_seen_by_nobody_else() {
    if !is_root("what_a_step_mounts_is_seen_by_nobody_else") {
        return;
    }
    let lab = Lab::with(Options { entitlements: [Entitlement::SecurityInsecure].into(), ..Options::default() });
    let shared = lab.dir.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    let before = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    // One that may mount: its mounts are in its own namespace, and on its own root.
    lab.build("RUN --security=insecure mkdir /m && mount -t tmpfs kollage-test /m && touch /m/f && mount -t tmpfs kollage-test /tmp").unwrap();
    assert_eq!(std::fs::read_to_string("/proc/self/mountinfo").unwrap(), before);
    let built = lab.build("RUN true").unwrap();
    let request = RunRequest {
        args: ["sh", "-c", "mount -t tmpfs x /shared; test $? != 0"].map(str::to_owned).into(),
        mounts: vec![HostMount { source: shared, target: "/shared".into(), read_only: false }],
        ..RunRequest::default()
    };
    assert_eq!(lab.engine.run(&built, &request, None, &lab.cancel).unwrap().code, 0);
    assert_eq!(std::fs::read_to_string("/proc/self/mountinfo").unwrap(), before);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn system_calls_lead_nowhere_either() {
    if !is_root("system_calls_lead_nowhere_either") {
        return;
    }
    let lab = Lab::new();
    let before = program("/sc", SC) + &program("/escape", ESCAPE);
    let outside = lab.dir.path().display().to_string();
    let rows = [
        // Opening a file by a handle would need no path to it.
        ("open_by_handle_at", "/sc 130 0 0 0; echo $?".into(), "1"),
        ("ptrace of the first", "/sc 65 10 1 0 0; echo $?".into(), "1"),
        ("setns", "/sc 134 0 0; echo $?".into(), "1"),
        ("pivot_root", "/sc 9b 0 0; echo $?".into(), "1"),
        ("kexec_load", "/sc f6 0 0 0 0; echo $?".into(), "1"),
        ("swapon", "/sc a7 0 0; echo $?".into(), "1"),
        ("iopl", "/sc ac 3; echo $?".into(), "1"),
        ("escape from a chroot", format!("/escape {outside} && echo out || echo in"), "in"),
        // It works: what it finds outside of the chroot is the image.
        ("escape to the image", "/escape /etc/passwd && echo out || echo in".into(), "out"),
    ];
    let rows: Vec<(&str, &str, &str)> = rows.iter().map(|(name, line, said)| (*name, line.as_str(), *said)).collect();
    say(&lab, &before, &rows);
}

/// A key that only the session of this thread possesses.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
fn key_in_own_session() -> libc::c_long {
    // SAFETY: constants, and strings that live as long as the calls.
    unsafe {
        let joined = libc::syscall(libc::SYS_keyctl, 1, std::ptr::null::<libc::c_char>());
        assert!(joined > 0, "{}", std::io::Error::last_os_error());
        let (kind, name, value) = (c"user", c"kollage-test", b"secret");
        let key = libc::syscall(libc::SYS_add_key, kind.as_ptr(), name.as_ptr(), value.as_ptr(), value.len(), -3i32);
        assert!(key > 0, "{}", std::io::Error::last_os_error());
        key
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn keys_of_the_caller_are_out_of_reach() {
    if !is_root("keys_of_the_caller_are_out_of_reach") {
        return;
    }
    let key = key_in_own_session();
    let lab = Lab::with(Options { entitlements: [Entitlement::SecurityInsecure].into(), ..Options::default() });
    let read = format!("/sc fa b {key:x} 0 0; echo $?");
    // Even where the call itself is allowed, the key is not possessed: EACCES.
    let out = lab.output(&format!("{}RUN --security=insecure {read}", program("/sc", SC)));
    assert_eq!(out, ["13"]);
    let out = lab.output(&format!("{}RUN {read}", program("/sc", SC)));
    assert_eq!(out, ["1"]);
}

/// `kollage run` on a terminal: what runs there must not type on it.
#[test]
#[cfg(target_arch = "x86_64")]
fn nothing_is_typed_on_an_inherited_terminal() {
    if !is_root("nothing_is_typed_on_an_inherited_terminal") {
        return;
    }
    let lab = Lab::new();
    let context = lab.context();
    let mut file = std::fs::File::create(context.join("base.tar")).unwrap();
    file.write_all(&std::fs::read(lab.dir.path().join("busybox.tar")).unwrap()).unwrap();
    let dockerfile = format!("FROM scratch\nADD base.tar /\n{}", program("/sc", SC));
    std::fs::write(context.join("Dockerfile"), dockerfile).unwrap();
    let store = lab.dir.path().join("other");
    let kollage = env!("CARGO_BIN_EXE_kollage");
    let call = |command: &str| {
        let mut script = std::process::Command::new("script");
        script.args(["-q", "-e", "-c", command, "/dev/null"]).current_dir(&context).env_clear();
        script.env("PATH", "/usr/bin:/bin").env("HOME", lab.dir.path()).env("KOLLAGE_STORE", &store);
        script.stdin(std::process::Stdio::null()).output().unwrap()
    };
    let built = call(&format!("{kollage} build --dockerfile Dockerfile -t typed:1"));
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stdout));
    // TIOCSTI of a byte of the program itself, and TIOCLINUX.
    let run = |request: &str, address: &str| {
        let script = format!("test -t 0 && echo terminal; /sc 10 0 {request} {address}; echo errno $?");
        call(&format!("{kollage} run typed:1 -- sh -c '{script}'"))
    };
    for request in ["5412", "541c"] {
        let said = String::from_utf8_lossy(&run(request, "4000b0").stdout).into_owned();
        assert!(said.contains("terminal") && said.contains("errno "), "{said}");
        assert!(!said.contains("errno 0"), "{said}");
    }
}

#[test]
fn a_check_has_no_network_even_where_steps_have_the_hosts() {
    if !is_root("a_check_has_no_network_even_where_steps_have_the_hosts") {
        return;
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let seen = format!("grep -q '0100007F:{:04X} ' /proc/net/tcp", listener.local_addr().unwrap().port());
    let lab = Lab::new();
    let run = ["sh", "-c", &format!("! {seen}")].map(str::to_owned).to_vec();
    let setup =
        Setup { checks: vec![kollage::engine::Check { run, ..kollage::engine::Check::default() }], ..Setup::default() };
    lab.build_with(&format!("RUN {seen}"), &setup).unwrap();
}

#[test]
fn a_check_is_as_isolated_as_a_step() {
    if !is_root("a_check_is_as_isolated_as_a_step") {
        return;
    }
    let lab = Lab::new();
    let script = "grep -q 'Seccomp:.*2' /proc/self/status && ! (: >> /proc/sys/kernel/hostname) 2>/dev/null";
    let run = ["sh", "-c", script].map(str::to_owned).to_vec();
    let checks = vec![kollage::engine::Check { run: run.clone(), ..kollage::engine::Check::default() }];
    let built = lab.build_with("RUN true", &Setup { checks, ..Setup::default() }).unwrap();
    let request = RunRequest { args: run, ..RunRequest::default() };
    assert_eq!(lab.engine.run(&built, &request, None, &lab.cancel).unwrap().code, 0);
}
