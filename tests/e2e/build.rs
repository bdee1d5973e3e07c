//! The main job on small images: what is built, reused and why, and what is left behind.

use std::fs;
use std::time::Duration;

use crate::sandbox::{Sandbox, field, is_root};

/// base → service, other; a plugin on service.
fn family() -> Sandbox {
    let sandbox = Sandbox::with_base();
    sandbox.base("FROM {{ parent }}\nENV PATH=/bin\nRUN echo base > /base\n");
    sandbox.image(
        "service",
        "base",
        "FROM {{ parent }}\nCOPY file /etc/file\nRUN cat /etc/file /base > /service\nCMD [\"cat\", \"/service\"]\n",
    );
    sandbox.write("images/service/file", "one\n");
    sandbox.image("other", "base", "FROM {{ parent }}\nRUN echo other > /other\n");
    let toml = fs::read_to_string(sandbox.catalogue().join("images/service/image.toml")).unwrap();
    sandbox.write("images/service/image.toml", &format!("{toml}\n[plugins]\naccept = [\"extra\"]\n"));
    sandbox.write(
        "plugins/extra/plugin.toml",
        "[plugin]\nimages = [\"service\"]\n\n[[check]]\nrun = [\"test\", \"-f\", \"/extra\"]\n",
    );
    sandbox.write("plugins/extra/Dockerfile.j2", "FROM {{ parent }}\nRUN echo extra > /extra\n");
    sandbox
}

fn actions(sandbox: &Sandbox, args: &[&str]) -> Vec<String> {
    let plan = sandbox.plan(args);
    plan.into_iter().filter(|(_, action)| action != "reuse").map(|(name, _)| name).collect()
}

#[test]
fn a_second_build_does_nothing() {
    if !is_root() {
        return;
    }
    let sandbox = family();
    let first = sandbox.build(&[]);
    assert_eq!(field(&first, "service", "status"), "built");
    assert!(actions(&sandbox, &[]).is_empty());
    let second = sandbox.build(&[]);
    assert_eq!(field(&second, "service", "status"), "reused");
    assert_eq!(field(&first, "service", "digest"), field(&second, "service", "digest"));
    sandbox.run(&["store", "verify"]).ok();
}

#[test]
fn two_stores_give_equal_digests() {
    if !is_root() {
        return;
    }
    let sandbox = family();
    let one = sandbox.build_on("one", &["--plugin", "service=extra", "-j", "1"]);
    std::thread::sleep(Duration::from_millis(1100));
    let two = sandbox.build_on("two", &["--plugin", "service=extra", "-j", "4"]);
    for name in ["base", "service", "other", "service+extra"] {
        assert_eq!(field(&one, name, "digest"), field(&two, name, "digest"), "{name}");
        assert!(field(&one, name, "digest").starts_with("sha256:"));
    }
}

#[test]
fn a_file_of_one_image_rebuilds_that_image_alone() {
    if !is_root() {
        return;
    }
    let sandbox = family();
    sandbox.build(&[]);
    sandbox.write("images/service/file", "two\n");
    assert_eq!(actions(&sandbox, &[]), ["service"]);
    let plan = sandbox.run(&["plan"]).ok();
    assert!(plan.stdout.contains("`file` in the context changed"), "{}", plan.stdout);
    // What is run is what was built, and that it isn't what would be built is said.
    let old = sandbox.run(&["run", "service"]).ok().says("is not what the catalogue makes now");
    assert_eq!(old.stdout, "one\nbase\n");
    sandbox.build(&[]);
    let new = sandbox.run(&["run", "service"]).ok();
    assert_eq!((new.stdout.as_str(), new.stderr.as_str()), ("two\nbase\n", ""));
    // A comment, a time and another file beside it are no input.
    sandbox.write("images/service/unused", "x");
    let recipe = fs::read_to_string(sandbox.catalogue().join("images/service/Dockerfile.j2")).unwrap();
    sandbox.write("images/service/Dockerfile.j2", &format!("# a comment\n{recipe}"));
    sandbox.write("images/service/file", "two\n");
    assert!(actions(&sandbox, &[]).is_empty());
}

#[test]
fn a_parent_rebuilt_to_the_same_bytes_rebuilds_nothing_below() {
    if !is_root() {
        return;
    }
    let sandbox = family();
    let before = sandbox.build(&[]);
    let again = sandbox.build(&["--no-cache", "base"]);
    assert_eq!(field(&again, "base", "status"), "built");
    assert_eq!(field(&before, "base", "digest"), field(&again, "base", "digest"));
    // Another instruction with the same result: `base` is built, and the cascade stops there.
    sandbox.base("FROM {{ parent }}\nENV PATH=/bin\nRUN   echo base   > /base\n");
    let after = sandbox.build(&[]);
    assert_eq!(field(&after, "base", "status"), "built");
    assert_eq!(field(&after, "service", "status"), "reused");
    assert_eq!(field(&after, "other", "status"), "reused");
}

#[test]
fn a_plugin_is_one_layer_above_an_untouched_image() {
    if !is_root() {
        return;
    }
    let sandbox = family();
    let without = sandbox.build(&["service"]);
    let with = sandbox.build(&["service", "--plugin", "service=extra"]);
    assert_eq!(field(&with, "service", "status"), "reused");
    assert_eq!(with["not_matched"].as_array().unwrap().len(), 1, "{with}");
    assert_eq!(with["not_matched"][0]["name"], "other");
    assert_eq!(field(&without, "service", "digest"), field(&with, "service", "digest"));
    assert_eq!(field(&with, "service+extra", "reference"), field(&without, "service", "reference"));
    let layers = |name: &str| {
        let dest = sandbox.path(name);
        let plugin = if name == "with" { "service=extra" } else { "service=" };
        let output = format!("type=oci,dest={}", dest.display());
        sandbox.run(&["build", "service", "--plugin", plugin, "-o", &output]).ok();
        let index: serde_json::Value = serde_json::from_slice(&fs::read(dest.join("index.json")).unwrap()).unwrap();
        let digest = index["manifests"][0]["digest"].as_str().unwrap().replace(':', "/");
        let manifest = fs::read(dest.join("blobs").join(digest)).unwrap();
        let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
        let config = manifest["config"]["digest"].as_str().unwrap().replace(':', "/");
        let config: serde_json::Value =
            serde_json::from_slice(&fs::read(dest.join("blobs").join(config)).unwrap()).unwrap();
        let list = manifest["layers"].as_array().unwrap().iter().map(|l| l["digest"].to_string()).collect::<Vec<_>>();
        (list, config["config"]["Labels"]["org.kollage.plugins"].as_str().map(str::to_owned))
    };
    let (plain, none) = layers("without");
    let (extended, label) = layers("with");
    assert_eq!(extended.len(), plain.len() + 1);
    assert_eq!(extended[..plain.len()], plain[..]);
    assert_eq!((none, label.as_deref()), (None, Some("extra")));
    // The choice alone rebuilds nothing.
    assert!(actions(&sandbox, &["service"]).is_empty());
    assert!(actions(&sandbox, &["service", "--plugin", "service=extra"]).is_empty());
}

#[test]
fn a_failure_takes_only_its_descendants() {
    if !is_root() {
        return;
    }
    let sandbox = family();
    sandbox.image("broken", "base", "FROM {{ parent }}\nRUN echo before; echo the reason >&2; exit 7\n");
    sandbox.image("below", "broken", "FROM {{ parent }}\nRUN true\n");
    let summary = sandbox.path("s.json");
    let ran = sandbox.run(&["build", "--summary-json-file", summary.to_str().unwrap()]).exits(1);
    let ran = ran.says("the reason").says("broken");
    assert_eq!(ran.stdout, "");
    let summary: serde_json::Value = serde_json::from_slice(&fs::read(summary).unwrap()).unwrap();
    assert_eq!(field(&summary, "broken", "status"), "failed");
    assert_eq!(field(&summary, "below", "status"), "skipped");
    assert_eq!(field(&summary, "other", "status"), "built");
    assert!(field(&summary, "broken", "reason").contains('7'), "{summary}");
    // Nothing that was finished is lost.
    assert_eq!(actions(&sandbox, &["service", "other"]), Vec::<String>::new());
}

#[test]
fn a_failing_check_fails_the_image() {
    if !is_root() {
        return;
    }
    let sandbox = family();
    let toml = fs::read_to_string(sandbox.catalogue().join("images/other/image.toml")).unwrap();
    sandbox.write("images/other/image.toml", &format!("{toml}\n[[check]]\nrun = [\"test\", \"-f\", \"/nowhere\"]\n"));
    sandbox.run(&["build", "other"]).exits(1).says("check");
    assert_eq!(actions(&sandbox, &["other"]), ["other"]);
}

#[test]
fn run_keeps_the_exit_code_and_nothing_else() {
    if !is_root() {
        return;
    }
    let sandbox = family();
    sandbox.build(&["service"]);
    assert_eq!(sandbox.run(&["run", "service"]).ok().stdout, "one\nbase\n");
    sandbox.run(&["run", "service", "--", "sh", "-c", "echo x > /service; exit 3"]).exits(3);
    assert_eq!(sandbox.run(&["run", "service"]).ok().stdout, "one\nbase\n");
    assert_eq!(sandbox.run(&["run", "service", "-u", "app", "--", "id", "-u"]).ok().stdout, "1000\n");
    // As with docker run, and with what is like an option.
    assert_eq!(sandbox.run(&["run", "service", "echo", "-n", "--", "-t"]).ok().stdout, "-- -t");
    sandbox.run(&["run", "service", "--", "no-such-program"]).exits(127);
    sandbox.run(&["run", "servce"]).exits(2).says("service");
}

#[test]
fn a_secret_is_seen_by_its_step_and_kept_nowhere() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::with_base();
    let recipe = "RUN --mount=type=secret,id=token,required=true cat /run/secrets/token | wc -c > /length";
    sandbox.base(&format!("FROM {{{{ parent }}}}\nENV PATH=/bin\n{recipe}\n"));
    sandbox.run(&["build"]).exits(2).says("token");
    let file = sandbox.path("token");
    fs::write(&file, "hunter2-value").unwrap();
    sandbox.run(&["build", "--secret", &format!("id=token,src={}", file.display())]).ok();
    assert_eq!(sandbox.run(&["run", "base", "--", "cat", "/length"]).ok().stdout.trim(), "13");
    let grep =
        std::process::Command::new("grep").arg("-rl").arg("hunter2").arg(sandbox.path("store")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&grep.stdout), "");
    // Its value is no input of the key.
    fs::write(&file, "other").unwrap();
    assert!(actions(&sandbox, &[]).is_empty());
}

#[test]
fn an_interrupted_build_leaves_nothing_running() {
    if !is_root() {
        return;
    }
    let sandbox = family();
    sandbox.image("slow", "base", "FROM {{ parent }}\nRUN sleep 987654\n");
    let mut child = sandbox.start(&["build"]);
    wait_for(|| running("sleep 987654") && actions(&sandbox, &["service", "other"]).is_empty());
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(child.id() as i32).unwrap(),
        rustix::process::Signal::INT,
    )
    .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!running("sleep 987654"));
    assert_eq!(mounts_below(&sandbox), Vec::<String>::new());
    // What was done before is there.
    assert_eq!(actions(&sandbox, &["service", "other"]), Vec::<String>::new());
    sandbox.run(&["store", "verify"]).ok();
}

#[test]
fn a_killed_build_leaves_a_good_store() {
    if !is_root() {
        return;
    }
    let sandbox = family();
    sandbox.image("slow", "base", "FROM {{ parent }}\nRUN echo x > /x; sleep 987653\n");
    let mut child = sandbox.start(&["build"]);
    wait_for(|| running("sleep 987653"));
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for(|| !running("sleep 987653"));
    assert_eq!(mounts_below(&sandbox), Vec::<String>::new());
    sandbox.run(&["store", "verify"]).ok();
    sandbox.build(&["service", "other"]);
    // The next run removes what the dead one left.
    let left = fs::read_dir(sandbox.path("store/tmp")).map_or(0, Iterator::count);
    assert_eq!(left, 0);
}

#[test]
fn two_builds_at_once_do_the_work_once() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::with_base();
    sandbox.base(
        "FROM {{ parent }}\nENV PATH=/bin\nRUN --mount=type=cache,target=/count echo x >> /count/runs; sleep 1\n",
    );
    let mut one = sandbox.start(&["build"]);
    let mut two = sandbox.start(&["build"]);
    assert!(one.wait().unwrap().success() && two.wait().unwrap().success());
    sandbox.base("FROM {{ parent }}\nENV PATH=/bin\nRUN --mount=type=cache,target=/count cat /count/runs > /runs\n");
    sandbox.build(&[]);
    assert_eq!(sandbox.run(&["run", "base", "--", "cat", "/runs"]).ok().stdout, "x\n");
    sandbox.run(&["store", "verify"]).ok();
}

#[test]
fn one_dockerfile_can_build_on_what_is_in_the_store() {
    if !is_root() {
        return;
    }
    let sandbox = family();
    sandbox.build(&["service"]);
    sandbox.write("one/Dockerfile", "FROM kollage/service:debian-bookworm\nRUN cat /service > /one\nCMD cat /one\n");
    let build = ["build", "--dockerfile", "one/Dockerfile", "-t", "shop/one", "--progress", "quiet"];
    sandbox.run(&build).ok();
    assert_eq!(sandbox.run(&["run", "shop/one"]).ok().stdout, "one\nbase\n");
    // What stands under the name counts, not the name.
    sandbox.write("images/service/file", "two\n");
    sandbox.build(&["service"]);
    sandbox.run(&build).ok();
    assert_eq!(sandbox.run(&["run", "shop/one"]).ok().stdout, "two\nbase\n");
}

fn wait_for(condition: impl Fn() -> bool) {
    for _ in 0..600 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("it did not happen within 30 s");
}

/// Whether a process with this command line exists.
fn running(command: &str) -> bool {
    let wanted: Vec<u8> = command.bytes().map(|b| if b == b' ' { 0 } else { b }).collect();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut lines = processes.filter_map(|p| fs::read(p.path().join("cmdline")).ok());
    lines.any(|line| line.strip_suffix(b"\0").is_some_and(|line| line.ends_with(&wanted)))
}

fn mounts_below(sandbox: &Sandbox) -> Vec<String> {
    let store = sandbox.path("store");
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().filter(|l| l.contains(store.to_str().unwrap())).map(str::to_owned).collect()
}

#[test]
fn stages_are_built_again_where_reuse_is_switched_off() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::with_base();
    let dockerfile = format!(
        "FROM rootfs:{} AS one\nRUN /bin/busybox touch /one\nFROM one AS Two\nRUN /bin/busybox cat /proc/uptime > /two\nFROM two\nRUN /bin/busybox touch /three\n",
        sandbox.path("base.tar").display()
    );
    sandbox.write("Dockerfile", &dockerfile);
    // For each step, whether it was reused; None where nothing had to be built.
    let steps = |args: &[&str]| {
        let epoch = "build.source_date_epoch=1700000000";
        let build = ["build", "--dockerfile", "Dockerfile", "-t", "x", "--progress", "rawjson", "--set", epoch];
        let ran = sandbox.run(&[&build[..], args].concat()).ok();
        let events = ran.stderr.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        events.filter(|e| e["event"] == "step_finished").map(|e| e["reused"] == true).collect::<Vec<_>>()
    };
    assert_eq!(steps(&[]), [false, false, false]);
    assert!(steps(&[]).is_empty());
    assert!(steps(&["--no-cache=false"]).is_empty());
    assert_eq!(steps(&["--no-cache-filter", "two"]), [true, false, false]);
    assert_eq!(steps(&["--no-cache=TWO"]), [true, false, false]);
    // It comes out as it was: what stands on it is as it was, too.
    assert_eq!(steps(&["--no-cache-filter=one"]), [false, true, true]);
    assert_eq!(steps(&["--no-cache=one,two"]), [false, false, false]);
    assert_eq!(steps(&["--no-cache"]), [false, false, false]);
    assert!(steps(&[]).is_empty());
    let build = ["build", "--dockerfile", "Dockerfile", "-t", "x"];
    sandbox.run(&[&build[..], &["--no-cache-filter", "tow"]].concat()).exits(2).says("tow").says("did you mean `two`?");
    sandbox.run(&[&build[..], &["--no-cache=one,thre"]].concat()).exits(2).says("no stage `thre`");
}
