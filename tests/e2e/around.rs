//! The commands around a build: doctor, schemas, completions, manual pages.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::sandbox::{Ran, Sandbox, is_root, ran};

fn finding<'a>(json: &'a Value, check: &str) -> &'a Value {
    json.as_array().unwrap().iter().find(|f| f["check"] == check).unwrap_or_else(|| panic!("{check}: {json}"))
}

#[test]
fn a_new_catalogue_has_names_of_its_own() {
    let sandbox = Sandbox::new();
    for (directory, expected) in [("shop", "shop/hello:"), ("Über uns", "example/hello:"), ("a.b", "example/hello:")] {
        let path = sandbox.path(directory);
        sandbox.run(&["init", path.to_str().unwrap()]).ok();
        let listed = sandbox.run(&["list", "-C", path.to_str().unwrap(), "--format", "json"]).ok().stdout;
        assert!(listed.contains(&format!("\"{expected}")), "{listed}");
    }
}

#[test]
fn a_name_that_is_nearly_an_image_of_the_catalogue_is_pointed_out() {
    let sandbox = Sandbox::with_base();
    sandbox.base("FROM {{ parent }}\n");
    sandbox.write("images/web/Dockerfile", "FROM bsae\n");
    let warned = sandbox.run(&["plan", "web"]).ok().says("no image of the catalogue is called `bsae`");
    warned.says("images/web/Dockerfile:1:6").says("did you mean `base`?");
    sandbox.write("images/web/Dockerfile", "FROM debian\n");
    assert_eq!(sandbox.run(&["plan", "web"]).ok().stderr, "");
}

#[test]
fn doctor_says_what_works_and_what_is_to_be_mended() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let doctor = |env: &[(&str, &str)]| -> Ran {
        ran(sandbox.command(&["doctor", "--format", "json"]).envs(env.iter().copied()))
    };
    let well = doctor(&[]).ok().json();
    for (check, says) in [("user", "root"), ("engine", "embedded"), ("store", "free"), ("registries", "no logins")] {
        // How much room there is on the machine of the test is no matter of the test.
        assert!(check == "store" || finding(&well, check)["state"] == "ok", "{well}");
        assert!(finding(&well, check)["says"].as_str().unwrap().contains(says), "{well}");
    }
    let table = sandbox.run(&["doctor"]).ok().stdout;
    assert!(table.contains("ok    engine        embedded: overlays"), "{table}");

    // What some catalogues need is a warning.
    let poor = doctor(&[("PATH", "/nowhere")]).ok().json();
    assert_eq!(
        (&finding(&poor, "git")["state"], &finding(&poor, "git")["hint"]),
        (&"warn".into(), &"apt-get install git".into())
    );
    // Of a proxy only the name is told.
    let proxied = doctor(&[("https_proxy", "http://kim:hunter2@proxy:3128")]).ok();
    assert!(finding(&proxied.json(), "proxy")["says"].as_str().unwrap().contains("https_proxy"));
    assert!(!proxied.stdout.contains("hunter2"));

    fs::create_dir_all(sandbox.path("home/.docker")).unwrap();
    fs::write(sandbox.path("home/.docker/config.json"), "{").unwrap();
    fs::create_dir_all(sandbox.path("home/.config/kollage")).unwrap();
    fs::write(sandbox.path("home/.config/kollage/kollage.toml"), "[build]\njbos = 2\n").unwrap();
    let ill = doctor(&[]).exits(3);
    assert_eq!(finding(&ill.json(), "registries")["state"], "fail", "{}", ill.stdout);
    assert_eq!(finding(&ill.json(), "settings")["hint"], "did you mean `jobs`?");
    ill.says("2 things to be mended");
    // A store that is none.
    fs::write(sandbox.path("home/thesis.tex"), "").unwrap();
    let ill = doctor(&[("KOLLAGE_STORE", sandbox.path("home").to_str().unwrap())]).exits(3);
    assert!(finding(&ill.json(), "store")["says"].as_str().unwrap().contains("it is no store"), "{}", ill.stdout);
}

#[test]
fn schemas_are_shown_and_written() {
    let sandbox = Sandbox::new();
    let image = sandbox.run(&["schema", "image"]).ok().json();
    assert_eq!(image["title"], "image.toml");
    let dir = sandbox.path("schemas");
    sandbox.run(&["schema", "--output", dir.to_str().unwrap()]).ok().says("plugin.json");
    assert_eq!(serde_json::from_slice::<Value>(&fs::read(dir.join("image.json")).unwrap()).unwrap(), image);
    sandbox.run(&["schema", "imgae"]).exits(2).says("image");
    sandbox.run(&["schema"]).exits(2);
}

#[test]
fn manual_pages_are_written_for_every_command() {
    let sandbox = Sandbox::new();
    let dir = sandbox.path("man");
    sandbox.run(&["man", dir.to_str().unwrap()]).ok();
    let page = |name: &str| fs::read_to_string(dir.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(page("kollage.1").starts_with(".ie"));
    assert!(page("kollage-build.1").contains("summary\\-json\\-file"));
    assert!(page("kollage-store-prune.1").contains("unused"));
    assert!(!dir.join("kollage-__reference.1").exists(), "hidden commands have no page");
}

/// What bash would offer for a line that ends in `word`.
fn offered(sandbox: &Sandbox, words: &[&str]) -> Vec<String> {
    let mut command = sandbox.command(&[&["--", "kollage"], words].concat());
    command.env("KOLLAGE_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", words.len().to_string());
    command.env("_CLAP_IFS", "\n").env("_CLAP_COMPLETE_COMP_TYPE", "9").env("_CLAP_COMPLETE_SPACE", "true");
    ran(&mut command).ok().stdout.lines().map(|line| line.trim().to_owned()).collect()
}

#[test]
fn commands_images_and_profiles_are_completed() {
    let sandbox = Sandbox::new();
    sandbox.run(&["init"]).ok();
    assert_eq!(offered(&sandbox, &["comp"]), ["completions"]);
    let all = offered(&sandbox, &[""]);
    assert!(all.contains(&"build".to_owned()) && !all.iter().any(|word| word.starts_with("__")), "{all:?}");
    assert_eq!(offered(&sandbox, &["build", "he"]), ["hello"]);
    assert_eq!(offered(&sandbox, &["build", "--profile", "m"]), ["main"]);
    assert_eq!(offered(&sandbox, &["shell", "b"]), ["base"]);
    assert_eq!(offered(&sandbox, &["build", "--summary-j"]), ["--summary-json-file"]);
    // A catalogue that is broken, or none, completes no names and says nothing.
    sandbox.write("kollage.toml", "[build]\nbsae = 1\n");
    assert!(!offered(&sandbox, &["build", "he"]).contains(&"hello".to_owned()));
}

#[test]
fn bash_completes_with_what_it_is_given() {
    let sandbox = Sandbox::new();
    sandbox.run(&["init"]).ok();
    for shell in ["bash", "zsh", "fish"] {
        let script = sandbox.run(&["completions", shell]).ok().stdout;
        assert!(script.contains("kollage"), "{script}");
        // Where the shell is there, it finds nothing wrong with it.
        let mut check = Command::new(shell);
        check.arg("-n").stdin(Stdio::piped()).stdout(Stdio::null());
        let Ok(mut child) = check.spawn() else { continue };
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), script.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "{shell}");
    }
    let script = "source <(kollage completions bash); COMP_WORDS=(kollage build he); COMP_CWORD=2; COMP_TYPE=9; \
                  $(complete -p kollage | sed 's/.*-F \\([^ ]*\\).*/\\1/') kollage he build; echo \"${COMPREPLY[*]}\"";
    let ours = sandbox.command(&[]);
    let dir = std::path::Path::new(ours.get_program()).parent().unwrap().to_owned();
    let mut bash = Command::new("bash");
    bash.args(["-c", script]).current_dir(sandbox.catalogue()).env_clear();
    bash.envs(ours.get_envs().filter_map(|(name, value)| Some((name, value?))));
    bash.env("PATH", format!("{}:/usr/bin:/bin", dir.display()));
    assert_eq!(ran(&mut bash).ok().stdout.trim(), "hello");
}
