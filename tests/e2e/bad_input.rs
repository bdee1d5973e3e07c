//! What a person gets to see for what is wrong: exit code 2 before anything is built, all problems at once, each with
//! its place and a hint; exit code 3 where the machine is in the way.

use std::fs;

use crate::sandbox::{self, Ran, Sandbox};

/// A catalogue without a base that exists: nothing here gets as far as needing one.
fn catalogue() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("kollage.toml", "[build]\nbase = \"debian\"\n\n[profiles]\nmain = [\"web\"]\n");
    sandbox.image("base", "kind = \"base\"\nfrom = \"bootstrap:debian/bookworm\"", "FROM {{ parent }}\nRUN true\n");
    sandbox.image("web", "base", "FROM {{ parent }}\nRUN true\n");
    sandbox
}

/// The store must not even have been made.
#[track_caller]
fn refused(sandbox: &Sandbox, args: &[&str]) -> Ran {
    let ran = sandbox.run(args).exits(2);
    assert_eq!(ran.stdout, "");
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    assert!(!sandbox.path("store/layers").exists() || fs::read_dir(sandbox.path("store/layers")).unwrap().count() == 0);
    ran
}

#[test]
fn all_problems_of_all_files_come_at_once_with_their_places() {
    let sandbox = catalogue();
    sandbox.write("images/web/image.toml", "[image]\nparnt = \"base\"\nsummary = 3\n");
    sandbox.write("images/loose/image.toml", "[image]\nparent = \"bsae\"\n");
    sandbox.write("images/loose/Dockerfile.j2", "FROM {{ parent }}\n");
    sandbox.write("plugins/extra/plugin.toml", "[plugin]\nimages = [\"nothing-*\"]\n");
    let ran = refused(&sandbox, &["build"]);
    let ran = ran.says("images/web/image.toml:2:1").says("did you mean `parent`").says("images/web/image.toml:3:");
    ran.says("bsae").says("did you mean `base`").says("plugins/extra/plugin.toml");
}

#[test]
fn a_circle_is_shown_as_a_path() {
    let sandbox = catalogue();
    sandbox.image("a", "b", "FROM {{ parent }}\n");
    sandbox.image("b", "c", "FROM {{ parent }}\n");
    sandbox.image("c", "a", "FROM {{ parent }}\n");
    let ran = refused(&sandbox, &["plan"]);
    assert!(
        ["a -> b -> c -> a", "b -> c -> a -> b", "c -> a -> b -> c"].iter().any(|c| ran.stderr.contains(c)),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_selection_that_selects_nothing_is_named() {
    let sandbox = catalogue();
    refused(&sandbox, &["build", "-p", "mian"]).says("mian").says("did you mean `main`");
    refused(&sandbox, &["build", "wbe"]).says("wbe").says("did you mean `web`");
    refused(&sandbox, &["build", "zz-*"]).says("zz-*");
    refused(&sandbox, &["build", "re:("]).says("re:(");
    refused(&sandbox, &["build", "--plugin", "web=nope"]).says("nope");
    refused(&sandbox, &["build", "--plugin", "web"]).says("IMAGE=PLUGIN");
    sandbox.write("kollage.toml", "[build]\nbase = \"debian\"\n\n[profiles]\nmain = [\"nothing-*\"]\n");
    refused(&sandbox, &["build"]).says("nothing-*").says("kollage.toml:5:");
}

#[test]
fn a_plugin_must_be_accepted() {
    let sandbox = catalogue();
    sandbox.write("plugins/extra/plugin.toml", "[plugin]\nimages = [\"web\"]\n");
    sandbox.write("plugins/extra/Dockerfile.j2", "FROM {{ parent }}\nRUN true\n");
    refused(&sandbox, &["build", "--plugin", "web=extra"]).says("extra").says("accept");
}

#[test]
fn a_bad_template_or_dockerfile_names_its_line() {
    let sandbox = catalogue();
    sandbox.write("images/web/Dockerfile.j2", "FROM {{ parent }}\nRUN {{ image.nmae }}\n");
    refused(&sandbox, &["build"]).says("images/web/Dockerfile.j2:2:");
    sandbox.write("images/web/Dockerfile.j2", "FROM {{ parent }}\n{% if %}\n");
    refused(&sandbox, &["build"]).says("images/web/Dockerfile.j2:2");
    sandbox.write("images/web/Dockerfile.j2", "FROM {{ parent }}\nRNU true\nCOPYY a b\n");
    refused(&sandbox, &["build"]).says("RNU").says("RUN").says("COPYY");
    sandbox.write("images/web/Dockerfile.j2", "FROM {{ parent }}\nCOPY missing.conf /etc/\n");
    refused(&sandbox, &["build"]).says("missing.conf");
    sandbox.write("images/web/Dockerfile.j2", "FROM {{ parent }}\nRUN --security=insecure true\n");
    refused(&sandbox, &["build"]).says("insecure").says(":2:1");
    sandbox.write("images/web/Dockerfile.j2", "FROM {{ parent }}\nRUN {% for i in range(100000000) %}x{% endfor %}\n");
    refused(&sandbox, &["build"]);
    sandbox.write("images/web/Dockerfile.j2", "{% include \"../../../etc/passwd\" %}\n");
    refused(&sandbox, &["build"]);
}

#[test]
fn the_command_line_is_checked_first() {
    let sandbox = catalogue();
    for args in [
        &["build", "--no-such-flag"][..],
        &["frobnicate"],
        &["build", "-o", "type=ioc,dest=x"],
        &["build", "-o", "type=oci"],
        &["build", "--secret", "src=x"],
        &["build", "--set", "build.nmaespace=x"],
        &["build", "--set", "nonsense"],
        &["build", "--engine", "dokcer"],
        &["build", "--dockerfile", "nowhere"],
        &["build", "-C", "nowhere"],
    ] {
        let ran = refused(&sandbox, args);
        assert!(!ran.stderr.is_empty(), "{args:?}");
    }
    // A pipe would be waited for, a device replaced.
    fs::create_dir(sandbox.path("taken")).unwrap();
    std::os::unix::fs::symlink("/dev/null", sandbox.path("null")).unwrap();
    for dest in ["taken", "null"] {
        let output = format!("type=docker,dest={}", sandbox.path(dest).display());
        refused(&sandbox, &["build", "web", "-o", &output]).says(dest);
    }
    let directory = sandbox.path("taken");
    refused(&sandbox, &["build", "--dockerfile", directory.to_str().unwrap()]).says("not a regular file");
    refused(&sandbox, &["build", "-j", "0"]);
    let empty = Sandbox::new();
    refused(&empty, &["build"]).says("kollage init");
    let mut command = sandbox.command(&["plan"]);
    sandbox::ran(command.env("SOURCE_DATE_EPOCH", "yesterday")).exits(2).says("yesterday");
}

#[test]
fn a_machine_in_the_way_is_no_fault_of_the_definitions() {
    let sandbox = catalogue();
    // A file where the store should be.
    fs::write(sandbox.path("store"), "x").unwrap();
    sandbox.run(&["build"]).exits(3).says("store");
    fs::remove_file(sandbox.path("store")).unwrap();
    if sandbox::is_root() {
        sandbox.image("far", "kind = \"base\"\nfrom = \"127.0.0.1:1/nobody/home:1\"", "FROM {{ parent }}\nRUN true\n");
        sandbox.run(&["build", "far"]).exits(3).says("127.0.0.1:1");
    }
    sandbox.run(&["build", "--platform", "linux/s390x"]).exits(3).says("s390x");
}

#[test]
fn help_and_version_go_to_standard_output() {
    let sandbox = Sandbox::new();
    for args in [&["--help"][..], &["build", "--help"], &["--version"]] {
        let ran = sandbox.run(args).ok();
        assert!(ran.stdout.contains("kollage"), "{}", ran.stdout);
        assert_eq!(ran.stderr, "");
    }
}

#[test]
fn a_single_dockerfile_is_built_under_the_settings_too() {
    let sandbox = Sandbox::new();
    sandbox.write("Dockerfile", "FROM scratch\nCOPY Dockerfile /\n");
    let build = ["build", "--dockerfile", "Dockerfile", "-t", "x"];
    refused(&sandbox, &[&build[..], &["--set", "build.nonsense=1"]].concat()).says("nonsense");
    // A machine may have a Docker; builders it has none.
    sandbox.run(&[&build[..], &["--set", "engine.default=buildkit"]].concat()).exits(2).says("buildkit");
    let settings = sandbox.path("home/.config/kollage");
    fs::create_dir_all(&settings).unwrap();
    fs::write(settings.join("kollage.toml"), "[engine]\ndefault = \"buildkit\"\n").unwrap();
    sandbox.run(&build).exits(2).says("buildkit");
}
