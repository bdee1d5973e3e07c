//! How a kolla-build.conf says things: oslo.config's own reading of a file against ours, seen in what templates are told.

use std::fs;
use std::path::PathBuf;

use crate::place::{Call, NEWEST, call, ours, release, said, same};

/// What templates see of all that can be set.
const SEEN: &str = "{{ namespace }}|{{ image_prefix }}|{{ tag }}|{{ maintainer }}|{{ base_image }}|{{ base_distro_tag }}|\
                    {{ openstack_release }}|{{ openstack_branch }}|{{ openstack_branch_slashed }}|\
                    {{ distro_package_manager }}|{{ base_package_type }}|{{ rpm_setup }}|{{ users['nova'] }}|\
                    {{ clean_package_cache }}|{{ use_dumb_init }}|{{ patches_path }}|{{ debian_arch }}\n";

struct Room(tempfile::TempDir);

impl Room {
    fn new() -> Room {
        let room = Room(tempfile::tempdir().unwrap());
        for over in ["one", "two", "three"] {
            room.file(&format!("{over}/mine/Dockerfile.j2"), &format!("FROM {{{{ namespace }}}}/base\n{over}\n{SEEN}"));
            room.file(&format!("{over}/{over}/Dockerfile.j2"), "FROM scratch\n");
        }
        room
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// A file in which `@` is this directory.
    fn config(&self, name: &str, text: &str) -> PathBuf {
        self.file(name, &text.replace('@', self.0.path().to_str().unwrap()))
    }
}

/// Comments, continued lines, both signs, quotation marks, blanks, keys that come again.
const WORDS: &str = "\
# a comment
; another
[DEFAULT]
base = debian
maintainer = \"in 'marks'\"
namespace: one:two = three
tag = a # no comment ; neither
tag = b ; # 50% %(base)s
image_name_prefix =
base_image =
\tone
   # two
  three

openstack_branch = '
distro_package_manager = 'a'b'
clean_package_cache = OFF
use_dumb_init = 0
docker_dir = @/one
unknown = of nobody
[Nova-User]
uid=7
[nova-User]
gid = 8
[default]
tag = of nobody
[DEFAULT]
rpm_setup_config = a.rpm , http://b.example/b.repo,
    local.repo,
docker_dir=@/two\r
patches_path = \"\"
";

/// One option in another's value, with what follows from others among them.
const REFERENCES: &str = "\
[DEFAULT]
maintainer = $tag ${tag}x $base_tag-${openstack_branch}/$openstack_branch_slashed $debian_arch
namespace = $$base \\$base $ {base} $1 ${} ${base}$base-${openstack_release}
base_image = $image_name_prefix$namespace
image_name_prefix = ${nova-user.uid}-$profiles.infra
docker_dir = @/${openstack_release}
openstack_release = one
[nova-user]
gid = $uid
group = ${uid}x
";

/// Later files, and files of a directory in their order.
fn several(room: &Room) -> Vec<Call> {
    let first = room.config("first.conf", "[DEFAULT]\ndocker_dir = @/one\ntag = first\nnamespace = first\n");
    let second = room.config("second.conf", "[DEFAULT]\ndocker_dir = @/two\ntag = second\n");
    room.config("dir/b.conf", "[DEFAULT]\ntag = b\ndocker_dir = @/three\n");
    room.config("dir/a.conf", "[DEFAULT]\ntag = a\nmaintainer = $tag\n");
    room.config("dir/c.other", "[DEFAULT]\ntag = c\n");
    let debian = || call("-b debian");
    vec![
        debian().and("--config-file").and(&first).and("--config-file").and(&second),
        debian().and("--config-dir").and(room.path("dir")).and("--config-file").and(&first),
        debian().and("--config-file").and(&second).and("--config-dir").and(room.path("dir")),
        debian().and("--docker-dir").and(room.path("three")).and("--config-file").and(&first),
        debian().and("--config-file").and(&second).and("--docker-dir").and(room.path("one")),
    ]
}

#[test]
fn files_are_read_as_oslo_config_reads_them() {
    let room = Room::new();
    let words = room.config("words.conf", WORDS);
    let references = room.config("references.conf", REFERENCES);
    let mut calls = vec![call("--config-file").and(words), call("-b debian --config-file").and(references)];
    calls.extend(several(&room));
    same(NEWEST, &calls);
}

/// What oslo.config refuses is refused, with its line.
#[test]
fn files_that_oslo_config_refuses_are_refused_with_the_line() {
    let tree = release(NEWEST);
    let room = Room::new();
    for (text, line) in [
        ("tag = 1\n", 1),
        ("[DEFAULT]\n  tag = 1\n", 2),
        ("[DEFAULT] # x\ntag = 1\n", 1),
        ("[]\ntag = 1\n", 1),
        ("[DEFAULT]\ntag = a\n# comment\n  b\n", 4),
        ("[DEFAULT]\ntag = a\n\n  b\n", 4),
        ("[DEFAULT]\nwords\n", 2),
        ("[DEFAULT]\nclean_package_cache = t\n", 2),
        ("[DEFAULT]\nthreads = 5x\n", 2),
        ("[DEFAULT]\nthreads = 0\n", 2),
        ("[DEFAULT]\nbuild_args = a\n", 2),
    ] {
        let config = room.file("wrong.conf", text);
        let mut command = ours(&tree, room.0.path());
        let output = command.args(["-b", "debian", "--list-images", "--config-file"]).arg(config).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}: {}", said(&output));
        assert!(said(&output).contains(&format!("wrong.conf:{line}:")), "{text}: {}", said(&output));
    }
}

/// Without `--config-file` and `--config-dir` the usual places are read.
#[test]
fn files_in_the_usual_places_are_found() {
    let room = Room::new();
    room.config("home/.kolla/kolla-build.conf", "[DEFAULT]\ntag = of-home\nnamespace = n\n");
    room.config("home/.kolla/kolla-build.conf.d/a.conf", "[DEFAULT]\nnamespace = d\n");
    let tree = release(NEWEST);
    let work = room.path("work");
    let mut command = ours(&tree, &room.path("home"));
    command.args(["-b", "debian", "--template-only", "--work-dir"]).arg(&work);
    assert!(command.output().unwrap().status.success());
    let text = fs::read_to_string(work.join("docker/cron/Dockerfile")).unwrap();
    assert!(text.starts_with("FROM d/base:of-home\n"), "{text}");
}
