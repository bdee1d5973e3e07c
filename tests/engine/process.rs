//! Processes of the embedded engine: they end when they should, whatever ends the one that started them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::lab::{Lab, Setup, is_root};
use kollage::engine::embedded::run::{HostMount, RunRequest};
use kollage::engine::embedded::{EmbeddedEngine, Options};
use kollage::engine::{Ctl, Engine as _};
use kollage::error::Kind;
use kollage::event::{Cancel, Silent};
use kollage::image::store::Store;

/// For waiting on what has to happen; never for what has to happen fast.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Processes whose command line has a word that nobody else uses.
pub fn processes(word: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if words.split(|b| *b == 0).any(|w| w == word.as_bytes()) && pid != std::process::id() {
            found.push(pid);
        }
    }
    found
}

/// Mounts below a directory that anybody can see.
pub fn mounts_below(dir: &Path) -> Vec<String> {
    let dir = dir.to_str().unwrap();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let text = std::fs::read_to_string(entry.path().join("mountinfo")).unwrap_or_default();
        found.extend(text.lines().filter(|l| l.contains(dir)).map(str::to_owned));
    }
    found
}

pub fn work_dirs(store: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for owner in std::fs::read_dir(store.join("tmp")).unwrap().flatten() {
        if let Ok(entries) = std::fs::read_dir(owner.path()) {
            found.extend(entries.flatten().map(|e| e.path()).filter(|p| p.join("upper").exists()));
        }
    }
    found
}

/// A number of seconds that tells this test's processes from all others.
pub fn marker(number: u32) -> String {
    format!("{}{number:02}", 100_000 + std::process::id())
}

#[test]
fn a_cancelled_step_ends_and_leaves_nothing() {
    if !is_root("a_cancelled_step_ends_and_leaves_nothing") {
        return;
    }
    for (number, script, asked) in [
        // Ends when it is asked to.
        (1, "sleep MARK & sleep MARK", 1),
        // Does not listen: ends when it is told a second time.
        (2, "trap '' TERM; sleep MARK & while true; do sleep MARK; done", 2),
        // A child that left its group and its parent.
        (3, "(setsid sleep MARK >/dev/null 2>&1 &) ; sleep MARK", 1),
    ] {
        let lab = Lab::new();
        let mark = marker(number);
        let script = script.replace("MARK", &mark).replace("setsid", "/bin/busybox setsid");
        let cancel = lab.cancel.clone();
        let watched = mark.clone();
        let canceller = std::thread::spawn(move || {
            wait_until("the step starts", || processes(&watched).len() >= 2);
            for _ in 0..asked {
                cancel.cancel();
            }
        });
        let error = lab.build(&format!("RUN {script}")).unwrap_err();
        canceller.join().unwrap();
        assert_eq!(error.kind(), Kind::Interrupted, "{script}: {error}");
        // Nothing is waited for here: it is all gone when the build has returned.
        assert_eq!(processes(&mark), Vec::<u32>::new(), "{script}");
        assert_eq!(mounts_below(lab.dir.path()), Vec::<String>::new(), "{script}");
        assert_eq!(work_dirs(lab.engine.store().root()), Vec::<PathBuf>::new(), "{script}");
    }
}

#[test]
fn what_a_step_leaves_running_ends_with_it() {
    if !is_root("what_a_step_leaves_running_ends_with_it") {
        return;
    }
    let lab = Lab::new();
    let mark = marker(10);
    lab.build(&format!("RUN (/bin/busybox setsid sleep {mark} >/dev/null 2>&1 &) ; sleep {mark} & touch /done"))
        .unwrap();
    assert_eq!(processes(&mark), Vec::<u32>::new());
}

/// Not a test: what the next one starts and kills.
#[test]
#[ignore = "started by another test"]
fn builds_until_it_is_killed() {
    let Ok(mark) = std::env::var("KOLLAGE_TEST_MARK") else { return };
    let store = std::env::var("KOLLAGE_TEST_STORE").unwrap();
    let lab = Lab::at(Path::new(&store));
    lab.build(&format!("RUN touch /before\nRUN (/bin/busybox setsid sleep {mark} &) ; sleep {mark}")).unwrap();
}

#[test]
fn a_killed_run_leaves_a_store_that_the_next_one_tidies() {
    if !is_root("a_killed_run_leaves_a_store_that_the_next_one_tidies") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let mark = marker(20);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "process::builds_until_it_is_killed", "--ignored", "--nocapture"])
        .env("KOLLAGE_TEST_MARK", &mark)
        .env("KOLLAGE_TEST_STORE", &store)
        // What it leaves goes with this test.
        .env("TMPDIR", dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the step starts", || processes(&mark).len() >= 2);
    assert_eq!(work_dirs(&store).len(), 1);
    // The step's mounts are nobody's but its own.
    assert!(
        std::fs::read_to_string("/proc/self/mountinfo").unwrap().lines().all(|l| !l.contains(store.to_str().unwrap()))
    );
    child.kill().unwrap();
    child.wait().unwrap();
    // SIGKILL gives nobody time to wait for the others.
    wait_until("the step ends", || processes(&mark).is_empty() && mounts_below(&store).is_empty());
    let lab = Lab::at(&store);
    assert_eq!(work_dirs(&store), Vec::<PathBuf>::new());
    // What had been finished is still there.
    lab.events.clear();
    lab.build("RUN touch /before\nRUN true").unwrap();
    assert_eq!(lab.events.reused(), [true, false]);
}

#[test]
fn a_helper_that_is_killed_takes_its_step_along() {
    if !is_root("a_helper_that_is_killed_takes_its_step_along") {
        return;
    }
    for (number, role) in [(30, "outer"), (31, "init")] {
        let lab = Lab::new();
        let mark = marker(number);
        let watched = mark.clone();
        let killer = std::thread::spawn(move || {
            wait_until("the step starts", || !processes(&watched).is_empty());
            let step = processes(&watched)[0];
            // Up from the step to the helper that is meant.
            let mut pid = step;
            loop {
                let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
                if words.split(|b| *b == 0).any(|w| w == role.as_bytes()) {
                    break;
                }
                let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
                let parent = status.lines().find_map(|l| l.strip_prefix("PPid:")).unwrap();
                pid = parent.trim().parse().unwrap();
                assert!(pid > 1, "there is no helper {role} above the step");
            }
            let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        });
        let error = lab.build(&format!("RUN sleep {mark} & sleep {mark}")).unwrap_err();
        killer.join().unwrap();
        assert_ne!(error.kind(), Kind::Interrupted, "{role}: {error}");
        wait_until("the step ends", || processes(&mark).is_empty());
    }
}

#[test]
fn two_builds_of_one_job_do_its_work_once() {
    if !is_root("two_builds_of_one_job_do_its_work_once") {
        return;
    }
    let lab = Lab::new();
    // Each run of the step leaves a line in a cache.
    let job = lab.job(
        "FROM example.org/busybox:latest\nRUN --mount=type=cache,target=/c,id=count sleep 1; echo ran >> /c/count; cp /c/count /count\n",
        &Setup::default(),
    );
    let built: Vec<_> = std::thread::scope(|scope| {
        let builds: Vec<_> = (0..3).map(|_| scope.spawn(|| lab.carry_out(&job).unwrap())).collect();
        builds.into_iter().map(|b| b.join().unwrap()).collect()
    });
    assert!(built.iter().all(|b| b.config.rootfs == built[0].config.rootfs));
    assert_eq!(lab.read(&built[0], "/count").unwrap(), b"ran\n");
    let mut reused = lab.events.reused();
    reused.sort_unstable();
    assert_eq!(reused, [false, true, true]);
    assert!(lab.engine.recall(&job.key).unwrap().is_some());
}

#[test]
fn locked_and_private_caches_are_used_by_one_at_a_time() {
    if !is_root("locked_and_private_caches_are_used_by_one_at_a_time") {
        return;
    }
    let lab = Lab::new();
    let build = |sharing: &str, name: &str| {
        lab.build(&format!(
            "RUN --mount=type=cache,target=/c,id={sharing},sharing={sharing} test ! -e /c/used || exit 7; touch /c/used; sleep 0.5; rm /c/used; echo {name} >> /c/names; cp /c/names /names"
        ))
    };
    for (sharing, names) in [("locked", 2), ("private", 1)] {
        let results = std::thread::scope(|scope| {
            let other = scope.spawn(|| build(sharing, "other"));
            [build(sharing, "one"), other.join().unwrap()]
        });
        let counts = results.map(|r| lab.read(&r.unwrap(), "/names").unwrap().split(|b| *b == b'\n').count() - 1);
        assert_eq!(counts.iter().max(), Some(&names), "{sharing}");
    }
}

#[test]
fn a_command_is_run_in_an_image() {
    if !is_root("a_command_is_run_in_an_image") {
        return;
    }
    let lab = Lab::new();
    let built = lab.build("ENV WHO=image\nWORKDIR /srv\nUSER kim\nCMD [\"sh\", \"-c\", \"exit 5\"]").unwrap();
    let run = |request: RunRequest| lab.engine.run(&built, &request, None, &lab.cancel).unwrap().code;
    let sh =
        |script: &str| RunRequest { args: ["sh", "-c", script].map(str::to_owned).into(), ..RunRequest::default() };
    assert_eq!(run(RunRequest::default()), 5);
    assert_eq!(run(sh("test $WHO = image && test $(pwd) = /srv && test $(id -u) = 1000 && exit 3")), 3);
    assert_eq!(run(sh("kill -9 $$")), 137);
    assert_eq!(run(RunRequest { args: vec!["nowhere".into()], ..RunRequest::default() }), 127);
    let shared = lab.dir.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    let mount = |read_only| HostMount { source: shared.clone(), target: "/shared/deep".into(), read_only };
    let request = |read_only| RunRequest {
        user: Some("0".into()),
        env: vec![("WHO".into(), "caller".into())],
        cwd: Some("/".into()),
        mounts: vec![mount(read_only)],
        ..sh("echo $WHO > /shared/deep/said && touch /thrown-away")
    };
    assert_eq!(run(request(true)), 1);
    assert_eq!(run(request(false)), 0);
    assert_eq!(std::fs::read(shared.join("said")).unwrap(), b"caller\n");
    assert!(lab.read(&built, "/thrown-away").is_none());
    // Standard input reaches the command.
    let (reader, mut writer) = std::io::pipe().unwrap();
    std::io::Write::write_all(&mut writer, b"exit 9\n").unwrap();
    drop(writer);
    let shell = RunRequest { args: vec!["sh".into()], ..RunRequest::default() };
    let stdin = std::os::fd::AsFd::as_fd(&reader);
    assert_eq!(lab.engine.run(&built, &shell, Some(stdin), &lab.cancel).unwrap().code, 9);
}

#[test]
fn the_machine_is_looked_at_before_anything_starts() {
    if !is_root("the_machine_is_looked_at_before_anything_starts") {
        return;
    }
    let lab = Lab::new();
    assert_eq!(lab.engine.preflight().len(), 0);
    let store = Store::open(lab.dir.path().join("other").as_path()).unwrap();
    let helper = lab.dir.path().join("not-there");
    let engine = EmbeddedEngine::new(store, Options { helper, min_free: u64::MAX, ..Options::default() });
    let problems = engine.preflight();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems.iter().all(|p| p.kind() == Kind::Unusable));
    // A cancelled run starts nothing at all.
    let cancel = Cancel::new().unwrap();
    cancel.cancel();
    let node: Arc<str> = "node".into();
    let job = lab.job("FROM example.org/busybox:latest\nRUN true\n", &Setup::default());
    let error = lab.engine.build(&job, &Ctl { node: &node, sink: &Silent, cancel: &cancel }).unwrap_err();
    assert_eq!(error.kind(), Kind::Interrupted);
}
