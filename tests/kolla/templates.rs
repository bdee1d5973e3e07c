//! Every template of every release, with default settings and with others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use crate::place::{
    Call, NEWEST, RELEASES, call, compare, distributions, docker, everything, ours, ours_all, package, release, said,
    same, theirs,
};

#[test]
fn every_template_of_three_releases_is_equal() {
    let calls: Vec<Call> = ["debian", "ubuntu", "rocky"].map(|base| call("-b").and(base)).into();
    for version in RELEASES {
        same(version, &calls);
    }
    same(NEWEST, &["debian", "rocky"].map(|base| call("--base-arch aarch64 -b").and(base)));
}

#[test]
#[ignore = "takes a minute or two; every distribution of every release on both architectures"]
fn every_template_everywhere_is_equal() {
    for version in everything() {
        let calls = distributions(&release(version))
            .into_iter()
            .flat_map(|base| ["x86_64", "aarch64"].map(|arch| call("-b").and(&base).and("--base-arch").and(arch)));
        same(version, &calls.collect::<Vec<_>>());
    }
}

/// Settings that are none of the defaults.
const SETTINGS: &str = "\
[DEFAULT]
# a comment
base = rocky
registry = registry.example.org:5000
namespace : mine
image_name_prefix = pre-
tag = t1
maintainer = Somebody <s@example.org>
clean_package_cache = no
patches_path = /srv/patches
openstack_release = master
rpm_setup_config = http://example.org/a.repo,http://example.org/b.rpm,
  local.repo
base_image = ${namespace}/base
distro_package_manager = yum
[nova-user]
uid = 7777
gid = 7778
[mine-user]
uid = 1
gid = 2
";

fn with_settings(version: &str, bases: &[impl AsRef<Path>]) {
    let room = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = room.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let config = file("kolla-build.conf", SETTINGS);
    let pip = "[DEFAULT]\npip_index_url = https://example.org/simple\npip_trusted_host = example.org\n";
    let pip = file("pip.conf", pip);
    let mut calls = vec![
        call("-b debian").with("http_proxy", "http://proxy.example.org:3128").with("OS_DEFAULT__TAG", "from-env"),
        // What pip is told becomes arguments.
        call("-b debian --config-file").and(&pip),
        // What stands later wins, and so does a file over what stands before it.
        call("-b debian --tag first --config-file").and(&config).and("--tag").and("last"),
        call("-b debian --config-file").and(&config).with("OS_DEFAULT__TAG", "from-env"),
    ];
    for base in bases {
        calls.push(call("--config-file").and(&config).and("-b").and(base));
        calls.push(call("--nouse-dumb-init --nodocker-healthchecks --base-tag x -n y -b").and(base));
    }
    same(version, &calls);
}

#[test]
fn settings_reach_the_templates() {
    with_settings(NEWEST, &["debian", "rocky"]);
}

#[test]
#[ignore = "takes minutes; every distribution of every release"]
fn settings_reach_the_templates_everywhere() {
    for version in everything() {
        with_settings(version, &distributions(&release(version)));
    }
}

#[test]
fn repositories_of_one_s_own_are_merged_as_the_release_merges_them() {
    let room = tempfile::tempdir().unwrap();
    let repos = room.path().join("repos.yaml");
    let text = "deb:\n  grafana: {url: 'https://example.org/g', suite: s, component: c, gpg_key: /k.gpg, trusted: yes}\n\
                debian:\n  debian: {url: 'https://example.org/d', suite: 'x-{openstack_release_codename}', component: main, \
                gpg_key: d.gpg, build_only: true, arch: amd64}\n\
                rocky:\n  appstream: &a {name: as, baseurl: \"https://example.org/a\\nhttps://example.org/b\\n\", \
                gpgkey: \"k1\\nk2\", build_only: true, gpgcheck: 1}\n  baseos: *a\n  crb: *a\n";
    fs::write(&repos, text).unwrap();
    same(NEWEST, &["debian", "rocky"].map(|base| call("-b").and(base).and("--repos-yaml").and(&repos)));
    // Part of what shares a file cannot be replaced.
    fs::write(room.path().join("part.yaml"), "rocky:\n  baseos: {name: b, baseurl: u, gpgkey: k}\n").unwrap();
    let tree = release(NEWEST);
    let part = room.path().join("part.yaml");
    let output =
        ours(&tree, room.path()).args(["--template-only", "-b", "rocky", "--repos-yaml"]).arg(part).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("replaces baseos and leaves appstream"), "{}", said(&output));
}

/// One more image, made of what a template says.
fn image_of(dir: &Path, text: &str) {
    fs::create_dir_all(dir.join("mine")).unwrap();
    fs::write(dir.join("mine/Dockerfile.j2"), format!("from {{{{ namespace }}}}/base:{{{{ tag }}}}\n{text}\n"))
        .unwrap();
}

/// Repositories of each kind, enabled and disabled, alone and together, kept and put back.
#[test]
fn repositories_are_set_up_as_kolla_sets_them_up() {
    let room = tempfile::tempdir().unwrap();
    let text = "{% set deb = base_package_type == 'deb' %}\n\
                {% set kinds = [['grafana'], ['rabbitmq'], ['grafana', 'rabbitmq'], ['one', 'two']] %}\n\
                {% set more = [['debian']] if deb else [['crb'], ['ceph'], ['crb', 'grafana'], ['baseos', 'appstream']] %}\n\
                {% for kind in kinds + more %}{{ kind }}\n{{ handle_repos(kind, 'enable') }}\n\
                {{ handle_repos(kind, 'disable') }}\n{% endfor %}{{ cleanup_repos() }}";
    image_of(room.path(), text);
    let repos = room.path().join("repos.yaml");
    let of = |name: &str| format!("{{build_only: true, file_group: shared.repo, name: {name}, baseurl: u, gpgkey: k}}");
    let deb = "{build_only: true, url: u, suite: s, component: c, gpg_key: /k.gpg}";
    let [one, two, base, stream, crb] = ["one", "two", "baseos", "appstream", "crb"].map(of);
    let text = format!(
        "rpm:\n  one: {one}\n  two: {two}\nrocky:\n  baseos: {base}\n  appstream: {stream}\n  crb: {crb}\n\
         debian:\n  one: {deb}\n  two: {deb}\n"
    );
    fs::write(&repos, text.replace("file_group: shared.repo, name: baseos", "name: baseos")).unwrap();
    let calls = ["debian", "rocky"]
        .map(|base| call("-b").and(base).and("--docker-dir").and(room.path()).and("--repos-yaml").and(&repos));
    same(NEWEST, &calls);
}

#[test]
fn repositories_that_cannot_be_set_up_are_named() {
    let room = tempfile::tempdir().unwrap();
    let (tree, repos) = (release(NEWEST), room.path().join("repos.yaml"));
    fs::write(&repos, "rpm:\n  nowhere: {name: n}\n  unsigned: {name: u, baseurl: u}\n").unwrap();
    for (call, says) in [
        ("handle_repos(['grafanna'], 'enable')", "`grafanna`"),
        ("handle_repos('grafana', 'disable')", "a list of repositories"),
        ("handle_repos(['nowhere'], 'enable')", "no baseurl, metalink or mirrorlist"),
        ("handle_repos(['unsigned'], 'enable')", "no `gpgkey`"),
        ("self.__init__.__globals__", "image `mine`"),
    ] {
        image_of(room.path(), &format!("{{{{ {call} }}}}"));
        let mut command = ours(&tree, room.path());
        command.args(["--list-images", "-b", "rocky", "--docker-dir"]).arg(room.path()).arg("--repos-yaml").arg(&repos);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{call}: {}", said(&output));
        assert!(said(&output).contains(says) && said(&output).contains("mine/Dockerfile.j2:2"), "{}", said(&output));
    }
}

/// Below a directory: kind, mode and content of everything.
fn everything_in(root: &Path) -> BTreeMap<String, (u32, Vec<u8>)> {
    let (mut found, mut open) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(path) = open.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let content = if metadata.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        if metadata.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        found.insert(path.strip_prefix(root).unwrap().display().to_string(), (metadata.mode(), content));
    }
    found
}

/// Not the Dockerfiles alone: what they copy, patches, files for apt, and nothing of what was not selected.
#[test]
fn template_only_leaves_the_whole_tree_that_kolla_leaves() {
    let room = tempfile::tempdir().unwrap();
    let path = |name: &str| room.path().join(name);
    let write = |name: &str, text: &str| {
        fs::create_dir_all(path(name).parent().unwrap()).unwrap();
        fs::write(path(name), text).unwrap();
        path(name).display().to_string()
    };
    image_of(&path("over"), "COPY f /f");
    write("over/mine/f", "data");
    write("patches/cron/series", "# first\none.patch\nnot-there.patch\n");
    write("patches/cron/one.patch", "1");
    write("patches/cron/two.patch", "2");
    let [sources, preferences] = ["sources", "preferences"].map(|name| write(name, name));
    let patches = path("patches");
    let text = format!(
        "[DEFAULT]\napt_sources_list = {sources}\napt_preferences = {preferences}\npatches_path = {}\n",
        patches.display()
    );
    let config = write("kolla-build.conf", &text);
    let calls = ["-b debian ^cron$ mine keystone", "-b rocky -p infra", "-b ubuntu"]
        .map(|arguments| call(arguments).and("--config-file").and(&config).and("--docker-dir").and(path("over")));
    for version in RELEASES {
        let release = release(version);
        let left = |which: &str, all: &dyn Fn(&[Call])| -> Vec<BTreeMap<String, (u32, Vec<u8>)>> {
            let into = |number: usize| path(&format!("{version}-{which}{number}"));
            let rendering = calls
                .iter()
                .enumerate()
                .map(|(number, call)| call.clone().and("--template-only").and("--work-dir").and(into(number)));
            all(&rendering.collect::<Vec<_>>());
            (0..calls.len()).map(|number| everything_in(&into(number))).collect()
        };
        let theirs = left("theirs", &|calls| drop(theirs(&release, calls)));
        let ours = left("ours", &|calls| drop(ours_all(&release, calls)));
        for ((theirs, ours), call) in theirs.iter().zip(&ours).zip(&calls) {
            let names: BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
            let differing: Vec<_> = names.into_iter().filter(|name| theirs.get(*name) != ours.get(*name)).collect();
            assert!(theirs.len() > 100, "{version} {call:?}: {}", theirs.len());
            assert!(differing.is_empty(), "{version} {call:?}: {differing:?}");
        }
        assert!(
            ours[0].contains_key("docker/cron/patches/one.patch") && ours[0].contains_key("docker/base/sources.list")
        );
    }
}

/// What is found equal could also be found different.
#[test]
fn a_changed_tree_is_found_out() {
    let release = release(NEWEST);
    let room = tempfile::tempdir().unwrap();
    let tree = room.path().join("kolla");
    let copied = Command::new("cp").arg("-r").arg(package(&release)).arg(&tree).status().unwrap();
    assert!(copied.success());
    let template = docker(&release).strip_prefix(package(&release)).map(|below| tree.join(below)).unwrap();
    let template = template.join("cron/Dockerfile.j2");
    let text = fs::read_to_string(&template).unwrap();
    fs::write(&template, text + "\n# changed\n").unwrap();
    // The version of a copy cannot be told: it differs in one image more.
    let found = compare(&release, &tree, &[call("-b debian")]).remove(0);
    assert!(found.differing.contains(&"cron/Dockerfile".to_owned()), "{:?}", found.differing);
    assert!(found.differing.len() <= 2, "{:?}", found.differing);
}

#[test]
fn additional_directories_lie_over_the_tree() {
    let room = tempfile::tempdir().unwrap();
    let over = room.path().join("over");
    fs::create_dir_all(over.join("cron")).unwrap();
    fs::create_dir_all(over.join("mine/mine-api")).unwrap();
    fs::write(
        over.join("cron/Dockerfile.j2"),
        "FROM {{ namespace }}/base:{{ tag }}\r\nRUN '{{ 'a\\/b' }}' {{ none }}\r\n",
    )
    .unwrap();
    fs::write(
        over.join("mine/mine-api/Dockerfile.j2"),
        "FROM {{ namespace }}/{{ image_prefix }}base:{{ tag }}\n{% set l = ['a'] + ['b'] %}\n{% import 'macros.j2' as m with context %}\n\
         RUN {{ m.install_pip(l) }} {{ l }} {{ true }} {{ {'k': 1} }} {{ missing }} {{ 'X'.lower() }} {{ '%s-%d' | format('a', 3) }}",
    )
    .unwrap();
    // What pip is told stands behind FROM in any letters.
    image_of(&over, "RUN true");
    let pip = room.path().join("pip.conf");
    fs::write(&pip, "[DEFAULT]\npip_index_url = https://example.org/simple\n").unwrap();
    same(NEWEST, &[call("-b debian --docker-dir").and(&over).and("--config-file").and(&pip)]);
}
