//! The program called by an ordinary user, with a range of ids and without one. tests/conformance has the Dockerfiles;
//! here is what surrounds them: stores, results, messages, and what a machine may lack.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::sandbox::{Ran, Sandbox, field, is_root, ran};
use crate::support::ready;
use crate::user::{COUNT, FIRST, RANGE, UID, User};

/// A catalogue that the user can read, and the user. The store is `store`.
struct Home {
    sandbox: Sandbox,
    user: User,
}

impl Home {
    /// base → service, with an owner, a device, a capability and a deletion in it.
    fn new(ranges: &str) -> Home {
        Home::on_a_machine(ranges, ranges, "")
    }

    fn on_a_machine(subuid: &str, subgid: &str, change: &str) -> Home {
        let sandbox = Sandbox::with_base();
        add_device(&sandbox.path("base.tar"));
        sandbox.base("FROM {{ parent }}\nENV PATH=/bin\nRUN echo base > /base && mkdir /dir && touch /dir/gone\n");
        sandbox.image(
            "service",
            "base",
            "FROM {{ parent }}\nCOPY --chown=app:extra --chmod=4755 file /etc/file\nRUN rm -r /dir && mkdir /dir\n\
             USER app\nWORKDIR /var/work\n",
        );
        sandbox.write("images/service/file", "one\n");
        let place = sandbox.path("");
        let user = User::new(&place, subuid, subgid, change);
        user.give(&sandbox.catalogue());
        user.give(&sandbox.path("home"));
        Home { sandbox, user }
    }

    fn command(&self, store: &str, args: &[&str]) -> Command {
        let mut command = self.user.command();
        command.args(args).current_dir(self.sandbox.catalogue()).env_clear().stdin(Stdio::null());
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LANG", "C.UTF-8");
        command.env("HOME", self.sandbox.path("home")).env("KOLLAGE_STORE", self.sandbox.path(store));
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        ran(&mut self.command("store", args))
    }

    /// A Dockerfile on the same base; `text` is what comes after FROM.
    fn dockerfile(&self, text: &str) -> Ran {
        let path = self.sandbox.path("Dockerfile");
        let base = self.sandbox.path("base.tar");
        fs::write(&path, format!("FROM rootfs:{}\n{text}\n", base.display())).unwrap();
        // What this machine lends to steps is not the subject.
        let off = ["build", "--progress", "plain", "--set", "build.ca_bundle=off", "--dockerfile"];
        self.run(&[&off[..], &[path.to_str().unwrap()]].concat())
    }
}

/// One more entry at the end of the base: /srv/null.
fn add_device(tar: &Path) {
    let mut bytes = fs::read(tar).unwrap();
    while bytes.ends_with(&[0; 512]) {
        bytes.truncate(bytes.len() - 512);
    }
    let mut builder = tar::Builder::new(bytes);
    for (path, kind, uid) in [("srv/", tar::EntryType::Directory, 0), ("srv/null", tar::EntryType::Char, 1000)] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o755);
        header.set_uid(uid);
        header.set_gid(0);
        header.set_mtime(1_600_000_000);
        header.set_size(0);
        header.set_device_major(1).unwrap();
        header.set_device_minor(3).unwrap();
        builder.append_data(&mut header, path, std::io::empty()).unwrap();
    }
    fs::write(tar, builder.into_inner().unwrap()).unwrap();
}

#[test]
fn a_user_builds_what_root_builds() {
    if !is_root() {
        return;
    }
    for ranges in [RANGE, ""] {
        let home = Home::new(ranges);
        let (summary, oci) = (home.sandbox.path("home/summary.json"), home.sandbox.path("home/oci"));
        let output = format!("type=oci,dest={}", oci.display());
        home.run(&["build", "--summary-json-file", summary.to_str().unwrap(), "-o", &output]).ok();
        let told: serde_json::Value = serde_json::from_slice(&fs::read(&summary).unwrap()).unwrap();
        let by_root = home.sandbox.build_on("roots", &[]);
        for name in ["base", "service"] {
            assert_eq!(field(&told, name, "digest"), field(&by_root, name, "digest"), "{name} with `{ranges}`");
        }
        // Nothing of it belongs to anybody else, and the store is nobody else's to look into.
        for path in [&summary, &oci, &oci.join("index.json"), &home.sandbox.path("store/logs")] {
            assert_eq!(fs::metadata(path).unwrap().uid(), UID, "{}", path.display());
        }
        assert_eq!(fs::metadata(home.sandbox.path("store")).unwrap().permissions().mode() & 0o777, 0o700);

        let plan = home.run(&["plan", "--format", "json"]).ok();
        assert!(plan.json().as_array().unwrap().iter().all(|node| node["action"] == "reuse"), "{}", plan.stdout);
        home.run(&["store", "ls"]).ok();
        home.run(&["store", "verify"]).ok();
        let inside = home.run(&["run", "base", "--", "cat", "/base"]).ok();
        assert_eq!(inside.stdout, "base\n");
        if !ranges.is_empty() {
            let owner =
                home.run(&["run", "service", "--", "sh", "-c", "id -u; stat -c '%u:%g %a' /etc/file /srv/null"]);
            assert_eq!(owner.ok().stdout, "1000\n1000:2000 4755\n1000:0 755\n");
        } else {
            home.run(&["run", "service", "--", "id"]).exits(3).says("nothing can be run here as user `app`");
        }
        home.run(&["store", "prune", "--all"]).ok();
        assert_eq!(fs::read_dir(home.sandbox.path("store/layers")).unwrap().count(), 0);
        // What needs no store needs no namespace.
        home.run(&["list"]).ok();
    }
}

#[test]
fn files_for_a_user_are_the_users_own() {
    if !is_root() {
        return;
    }
    let home = Home::new(RANGE);
    let dir = home.sandbox.path("home/tree");
    let output = format!("type=local,dest={}", dir.display());
    home.run(&["build", "service", "-o", &output]).ok().says("2 of other users").says("1 that are devices");
    let file = fs::metadata(dir.join("etc/file")).unwrap();
    assert_eq!((file.uid(), file.gid(), file.permissions().mode() & 0o7777), (UID, UID, 0o755));
    assert!(!dir.join("srv/null").exists() && dir.join("dir").is_dir() && !dir.join("dir/gone").exists());
    // A tar keeps everything.
    let tar = home.sandbox.path("home/tree.tar");
    home.run(&["build", "service", "-o", &format!("type=tar,dest={}", tar.display())]).ok();
    let bytes = fs::read(&tar).unwrap();
    let mut archive = tar::Archive::new(bytes.as_slice());
    let kept: Vec<(String, u64, tar::EntryType)> = archive
        .entries()
        .unwrap()
        .map(|e| e.unwrap())
        .map(|e| (e.path().unwrap().display().to_string(), e.header().uid().unwrap(), e.header().entry_type()))
        .collect();
    assert!(kept.contains(&("srv/null".into(), 1000, tar::EntryType::Char)), "{kept:?}");
    assert!(kept.contains(&("etc/file".into(), 1000, tar::EntryType::Regular)), "{kept:?}");
    // In the store they belong to the range.
    let in_store =
        Command::new("find").arg(home.sandbox.path("store/layers")).args(["-name", "file"]).output().unwrap();
    let path = String::from_utf8(in_store.stdout).unwrap();
    let owner = fs::metadata(path.trim()).unwrap().uid();
    assert!((FIRST..FIRST + COUNT).contains(&owner), "{owner}");
}

#[test]
fn stores_of_different_people_do_not_mix() {
    if !is_root() {
        return;
    }
    let (home, other) = (Home::new(RANGE), Home::new(""));
    home.run(&["build", "base"]).ok();
    let at = |home: &Home, store: &Path, args: &[&str]| ran(home.command("", args).env("KOLLAGE_STORE", store));
    let users = home.sandbox.path("store");
    // Root, who could read everything there.
    home.sandbox
        .run_on("store", &["build", "base"])
        .exits(3)
        .says("it belongs to user 54321 with the range of ids 600000:65536, and this is root")
        .says("run Kollage as that user");
    // A user in root's, even if it is open to all.
    home.sandbox.build_on("roots", &["base"]);
    let roots = home.sandbox.path("roots");
    at(&home, &roots, &["store", "ls"]).exits(3).says("Permission denied");
    fs::set_permissions(&roots, fs::Permissions::from_mode(0o777)).unwrap();
    at(&home, &roots, &["store", "ls"]).exits(3).says("it belongs to root").says("run Kollage with sudo");
    // The same user, without the range.
    at(&other, &users, &["store", "ls"]).exits(3).says("this is user 54321 without a range").says("remove it");
    // A range that has grown reads what was written before.
    let grown = Home::new("builder:600000:65536\nbuilder:700000:10\n");
    at(&grown, &users, &["store", "verify"]).ok();
    at(&home, &users, &["store", "ls"]).exits(3).says("600000:65536 700000:10");
}

#[test]
fn a_user_without_a_range_is_told_what_cannot_be() {
    if !is_root() {
        return;
    }
    let home = Home::new("");
    home.dockerfile("RUN true").ok().says("note: this user has no range of ids").says("usermod --add-subuids");
    home.dockerfile("RUN chown app /tmp")
        .exits(1)
        .says("chown: /tmp: Invalid argument")
        .says("hint: this user has no range");
    home.dockerfile("RUN false").exits(1);
    home.dockerfile("USER app\nRUN id").exits(3).says("Dockerfile:3").says("user id 1000 does not exist here");
    // apt must not try to become somebody else; where there is no apt, nobody is told of it.
    home.dockerfile("RUN test -z \"$APT_CONFIG\" && mkdir -p /etc/apt").ok();
    home.dockerfile("RUN mkdir -p /etc/apt\nRUN cat $APT_CONFIG").ok().says("APT::Sandbox::User \"root\";");
    let bootstrap = "kind = \"base\"\nfrom = \"bootstrap:debian/bookworm\"";
    home.sandbox.image("base", bootstrap, "FROM {{ parent }}\nRUN true\n");
    home.run(&["build", "base"]).exits(3).says("cannot be bootstrapped by a user without a range").says("usermod");
    // With a range there is nothing to be told but what is beyond it.
    let home = Home::new(RANGE);
    let ran =
        home.dockerfile("RUN chown 70000 /tmp").exits(1).says("hint: an ordinary user's step makes no device nodes");
    assert!(!ran.stderr.contains("note:"), "{}", ran.stderr);
    home.dockerfile("COPY --chown=70000 <<EOF /f\nEOF")
        .exits(3)
        .says("70000 is beyond the range")
        .says("which ends at 65536");
}

#[test]
fn what_a_machine_lacks_is_said_with_its_remedy() {
    if !is_root() {
        return;
    }
    let hidden = Home::on_a_machine(RANGE, RANGE, "mount --bind /dev/null /usr/bin/newuidmap");
    hidden.run(&["plan"]).exits(3).says("newuidmap, which gives them out, is not there").says("apt-get install uidmap");
    hidden.run(&["list"]).ok();
    Home::on_a_machine(RANGE, "", "").run(&["plan"]).exits(3).says("none in /etc/subgid").says("usermod --add-subgids");
    // A service of systemd's may be forbidden to gain rights, and newuidmap has some.
    let bound = Home::on_a_machine(RANGE, RANGE, "options=--no-new-privs");
    bound.run(&["plan"]).exits(3).says("cannot use the range of ids").says("newuidmap: ").says("NoNewPrivileges");
    // A file system without attributes.
    let home = Home::on_a_machine(RANGE, RANGE, "mount -t ramfs none $dir/none; chown 54321 $dir/none");
    fs::create_dir(home.sandbox.path("none")).unwrap();
    let store = home.sandbox.path("none/store").display().to_string();
    home.run(&["--store", &store, "build", "base"]).exits(3).says("cannot hold layers").says("extended attributes");
}

/// The limit of namespaces is each namespace's own, so this machine can be without any in one.
#[test]
fn a_machine_without_user_namespaces() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::with_base();
    sandbox.base("FROM {{ parent }}\n");
    fs::set_permissions(sandbox.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    // The shell has all rights there only once it is executed after its ids are mapped.
    let within = format!(
        "read go; exec sh -c 'echo 0 > /proc/sys/user/max_user_namespaces; exec setpriv --reuid 1234 --regid 1234 \
         --clear-groups {} plan'",
        env!("CARGO_BIN_EXE_kollage")
    );
    let mut child = Command::new("unshare")
        .args(["--user", "sh", "-c", &within])
        .current_dir(sandbox.catalogue())
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("KOLLAGE_STORE", sandbox.path("store"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may not have come so far as to be in the namespace: then the map is that of this one, and full.
    for file in ["uid_map", "gid_map"] {
        let path = format!("/proc/{}/{file}", child.id());
        while fs::write(&path, "0 0 65536\n").is_err() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let ran = Ran { code: output.status.code().unwrap_or(-1), stdout: String::new(), stderr };
    ran.exits(3).says("this machine gives none").says("sysctl -w user.max_user_namespaces=15000");
}

/// Debian's own packages, with all their owners, as an ordinary user. `make demo` does the same with more of them.
#[test]
fn a_user_bootstraps_a_base_and_builds_a_service() {
    if !ready(&["mmdebstrap"]) {
        return;
    }
    let home = Home::new(RANGE);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::remove_dir_all(home.sandbox.catalogue()).unwrap();
    fs::create_dir(home.sandbox.catalogue()).unwrap();
    for name in ["kollage.toml", "images", "plugins", "releases"] {
        let status = Command::new("cp").arg("-a").arg(root.join(name)).arg(home.sandbox.catalogue()).status().unwrap();
        assert!(status.success());
    }
    home.user.give(&home.sandbox.catalogue());
    home.run(&["build", "--progress", "plain", "memcached"]).ok();
    assert_eq!(home.run(&["run", "memcached", "--", "id", "-un"]).ok().stdout, "memcached\n");
    let shadow = home.run(&["run", "memcached", "--user", "0", "--", "stat", "-c", "%U:%G", "/etc/shadow"]);
    assert_eq!(shadow.ok().stdout, "root:shadow\n");
    // Nothing that looks like a device is one, in anybody's eyes.
    for entry in fs::read_dir(home.sandbox.path("store/layers")).unwrap() {
        let dev = entry.unwrap().path().join("fs/dev");
        let nodes = fs::read_dir(&dev).map(|entries| entries.flatten().collect::<Vec<_>>()).unwrap_or_default();
        assert!(nodes.iter().all(|n| !n.file_type().unwrap().is_char_device()), "{}", dev.display());
    }
    home.run(&["store", "verify"]).ok();
}

#[test]
fn doctor_tells_what_a_range_of_ids_would_add() {
    if !is_root() {
        return;
    }
    let examined = |ranges: &str| {
        let json = Home::new(ranges).run(&["doctor", "--format", "json"]).ok().json();
        let check = |name: &str| json.as_array().unwrap().iter().find(|f| f["check"] == name).unwrap().clone();
        assert_eq!(check("engine")["state"], "ok", "{json}");
        (check("user"), check("bootstrap"))
    };
    let (user, bootstrap) = examined("");
    assert_eq!((&user["state"], &bootstrap["state"]), (&"warn".into(), &"warn".into()));
    assert!(user["hint"].as_str().unwrap().contains("usermod --add-subuids"), "{user}");
    if ready(&["newuidmap", "mmdebstrap"]) {
        let (user, bootstrap) = examined(RANGE);
        assert_eq!((&user["state"], &bootstrap["state"]), (&"ok".into(), &"ok".into()), "{user} {bootstrap}");
    }
    // A range in one file alone is a mistake, and the doctor's to name rather than to end with.
    let home = Home::on_a_machine(RANGE, "", "");
    let ran = home.run(&["doctor"]).exits(3);
    assert!(ran.stdout.contains("fail  user"), "{}", ran.stdout);
    assert!(ran.stdout.contains("usermod --add-subgids"), "{}", ran.stdout);
}
