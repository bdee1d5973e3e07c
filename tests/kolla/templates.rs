//! Every template of every release, with default settings and with others.

use std::fs;
use std::process::Command;

use crate::place::{NEWEST, RELEASES, compare, docker, ours, package, release, said, same};

#[test]
fn every_template_of_three_releases_is_equal() {
    for version in RELEASES {
        let bases: &[&str] =
            if version == NEWEST { &["debian", "ubuntu", "rocky"] } else { &["debian", "ubuntu", "rocky", "centos"] };
        for base in bases {
            for arch in ["x86_64", "aarch64"] {
                same(version, &["-b", base, "--base-arch", arch], &[]);
            }
        }
    }
}

#[test]
fn settings_reach_the_templates() {
    let room = tempfile::tempdir().unwrap();
    let config = room.path().join("kolla-build.conf");
    let text = "[DEFAULT]\n# a comment\nregistry = registry.example.org:5000\nnamespace : mine\n\
                image_name_prefix = pre-\ntag = t1\nmaintainer = Somebody <s@example.org>\n\
                clean_package_cache = no\npatches_path = /srv/patches\nopenstack_release = master\n\
                rpm_setup_config = http://example.org/a.repo,http://example.org/b.rpm,\n  local.repo\n\
                base_image = ${namespace}/base\ndistro_package_manager = yum\n\
                [nova-user]\nuid = 7777\ngid = 7778\n[mine-user]\nuid = 1\ngid = 2\n";
    fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap();
    for base in ["debian", "rocky"] {
        same(NEWEST, &["-b", base, "--config-file", config], &[]);
        same(RELEASES[1], &["-b", base, "--config-file", config], &[]);
        same(NEWEST, &["-b", base, "--nouse-dumb-init", "--nodocker-healthchecks", "--base-tag", "x", "-n", "y"], &[]);
    }
    same(
        NEWEST,
        &["-b", "debian"],
        &[("http_proxy", "http://proxy.example.org:3128"), ("OS_DEFAULT__TAG", "from-env")],
    );
}

#[test]
fn pip_s_index_becomes_an_argument() {
    let room = tempfile::tempdir().unwrap();
    let config = room.path().join("kolla-build.conf");
    fs::write(&config, "[DEFAULT]\npip_index_url = https://example.org/simple\npip_trusted_host = example.org\n")
        .unwrap();
    same(NEWEST, &["-b", "debian", "--config-file", config.to_str().unwrap()], &[]);
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
    let repos = repos.to_str().unwrap();
    for base in ["debian", "rocky"] {
        same(NEWEST, &["-b", base, "--repos-yaml", repos], &[]);
    }
    // Part of what shares a file cannot be replaced.
    fs::write(room.path().join("part.yaml"), "rocky:\n  baseos: {name: b, baseurl: u, gpgkey: k}\n").unwrap();
    let tree = release(NEWEST);
    let part = room.path().join("part.yaml");
    let output =
        ours(&tree, room.path()).args(["--template-only", "-b", "rocky", "--repos-yaml"]).arg(part).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("replaces baseos and leaves appstream"), "{}", said(&output));
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
    let found = compare(&release, &tree, &["-b", "debian"], &[]);
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
    same(NEWEST, &["-b", "debian", "--docker-dir", over.to_str().unwrap()], &[]);
}
