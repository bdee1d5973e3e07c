//! The catalogue that comes with Kollage, without building it: what its definitions promise each other, and whoever
//! deploys them. `demo` builds a part of it.

use std::path::Path;
use std::process::{Command, Stdio};

use kollage::catalogue::{Catalogue, ConfigFiles, Overrides, Packages};

use crate::sandbox::{Ran, Sandbox, ran};

fn shipped() -> Catalogue {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    Catalogue::load(root, &Overrides::default(), &ConfigFiles::default()).unwrap()
}

/// In the repository's own catalogue, on a store of the test's.
fn run(args: &[&str]) -> Ran {
    let sandbox = Sandbox::new();
    ran(sandbox.command(args).current_dir(env!("CARGO_MANIFEST_DIR")))
}

#[test]
fn every_profile_can_be_planned_in_every_release() {
    let catalogue = shipped();
    for release in ["2026.1", "2026.2"] {
        for profile in catalogue.settings.profiles.keys() {
            let release = format!("build.release={release}");
            let plan = run(&["plan", "--profile", profile, "--set", &release]).ok();
            assert!(plan.stdout.contains(" to build"), "{profile}: {}", plan.stdout);
        }
    }
    let keystone =
        |release: &str| run(&["render", "keystone", "--set", &format!("build.release={release}")]).ok().stdout;
    assert!(keystone("2026.2").contains("'keystone[ldap]==30.0.0'"));
    assert!(keystone("2026.1").contains("'keystone[ldap]==29.0.0'"));
}

#[test]
fn everything_is_in_a_profile_or_below_something_that_is() {
    let catalogue = shipped();
    let mut wanted: Vec<String> = Vec::new();
    for profile in catalogue.settings.profiles.keys() {
        let planned = run(&["plan", "--profile", profile, "--format", "json"]).ok().json();
        let names = planned.as_array().unwrap().iter().map(|n| n["name"].as_str().unwrap().to_owned());
        wanted.extend(names);
    }
    let left_out: Vec<&String> = catalogue.images.keys().filter(|name| !wanted.contains(name)).collect();
    assert!(left_out.is_empty(), "{left_out:?}");
}

/// Volumes of a deployment that was made for Kolla's images belong to these.
#[test]
fn users_have_the_numbers_of_kollas() {
    let numbers = [
        ("ceph", 64045),
        ("cinder", 42407),
        ("glance", 42415),
        ("haproxy", 42454),
        ("heat", 42418),
        ("horizon", 42420),
        ("keystone", 42425),
        ("kolla", 42400),
        ("memcached", 42457),
        ("mysql", 42434),
        ("neutron", 42435),
        ("nova", 42436),
        ("openvswitch", 42476),
        ("placement", 42482),
        ("prometheus", 42472),
        ("rabbitmq", 42439),
    ];
    let catalogue = shipped();
    let users = catalogue.images.values().filter_map(|image| image.user.as_ref());
    let mut seen: Vec<&str> = Vec::new();
    for user in users {
        let (name, number) = numbers.iter().find(|(name, _)| *name == user.name).expect(&user.name);
        assert_eq!((user.uid, user.gid), (*number, *number), "{name}");
        seen.push(name);
    }
    assert!(numbers.iter().all(|(name, _)| seen.contains(name)), "{seen:?}");
}

#[test]
fn everything_is_checked_and_names_its_packages_for_both_kinds_of_distribution() {
    let catalogue = shipped();
    let both = |packages: &Packages| packages.deb.is_empty() == packages.rpm.is_empty();
    for image in catalogue.images.values() {
        assert!(!image.checks.is_empty(), "{} has no check", image.name);
        assert!(both(&image.packages), "{}", image.name);
        // What others are built on is called so.
        assert_eq!(image.name.ends_with("base"), !image.is_service(), "{}", image.name);
    }
    for plugin in catalogue.plugins.values() {
        assert!(!plugin.checks.is_empty(), "{} has no check", plugin.name);
        assert!(both(&plugin.packages), "{}", plugin.name);
    }
}

#[test]
fn plugins_that_need_or_exclude_each_other_say_so_before_anything_is_built() {
    let alone = run(&["plan", "neutron-server", "--plugin", "neutron-server=networking-bagpipe"]).exits(2);
    alone.says("networking-bgpvpn").says("networking-sfc");
    let both = "nova-compute=nova-compute-vmware,nova-compute-zvm";
    run(&["plan", "nova-compute", "--plugin", both]).exits(2).says("cannot both be");
    run(&["plan", "nova-compute", "--plugin", "nova-compute=nova-compute-zvm"]).ok();
    run(&["plan", "glance-api", "--plugin", "glance-api=networking-sfc"]).exits(2).says("networking-sfc");
}

/// Whatever installs something into an image looks for compilers afterwards, and knows them when it sees them.
#[test]
fn no_image_can_have_a_compiler() {
    let rendered = run(&["render"]).ok().stdout;
    let mut pattern = None;
    let mut installs = 0;
    for image in rendered.split("\n# --- ") {
        let last = image.rsplit("\nFROM ").next().unwrap();
        for step in last.split("\nRUN ").filter(|step| step.contains("apt-get") || step.contains("pip install")) {
            let (_, after) = step.split_once("ls /usr/bin | grep -E '").unwrap_or_else(|| panic!("no check: {step}"));
            pattern = after.split('\'').next();
            installs += 1;
        }
    }
    assert!(installs > 30, "{installs}");
    let pattern = pattern.unwrap();
    let matches = |name: &str| {
        let mut grep = Command::new("grep").args(["-qE", pattern]).stdin(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut grep.stdin.take().unwrap(), name.as_bytes()).unwrap();
        grep.wait().unwrap().success()
    };
    for compiler in ["cc", "c++", "gcc", "g++-12", "x86_64-linux-gnu-gcc-12", "clang-14", "cpp", "c99-gcc", "rustc"] {
        assert!(matches(compiler), "{compiler}");
    }
    for other in ["ccat", "python3", "gcc-ar.txt", "dpkg-preconfigure", "lessecho", "tcc-config", "c_rehash"] {
        assert!(!matches(other), "{other}");
    }
}
