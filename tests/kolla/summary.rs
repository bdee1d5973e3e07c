//! What both programs say in the end: Kolla of images that are said to have ended so, Kollage of images that do.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::place::{RELEASES, ours, package, release, succeed};

/// What is left in a directory of logs: links, and where they lead.
fn links(dir: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let links = entries.filter_map(|entry| Some((entry.file_name(), fs::read_link(entry.path()).ok()?)));
    links.map(|(name, to)| (name.into_string().unwrap(), to.display().to_string())).collect()
}

/// Exit code and standard output of Kolla's.
fn theirs(release: &Path, images: &[(&str, &str)], options: &serde_json::Value) -> (i32, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kolla/summary.py");
    let mut python = Command::new(release.join("bin/python"));
    let mut python =
        python.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let job = serde_json::json!({ "images": images, "options": options });
    python.stdin.take().unwrap().write_all(job.to_string().as_bytes()).unwrap();
    let output = python.wait_with_output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn the_summary_is_kolla_s_byte_for_byte() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: this test passes over itself");
        return;
    }
    for version in RELEASES {
        let release = release(version);
        let room = tempfile::tempdir().unwrap();
        let path = |name: &str| room.path().join(name);
        let write = |name: &str, text: &str| {
            fs::create_dir_all(path(name).parent().unwrap()).unwrap();
            fs::write(path(name), text).unwrap();
        };
        std::os::unix::fs::symlink(package(&release), path("kolla")).unwrap();
        write("docker/macros.j2", "");
        write("docker/base/Dockerfile.j2", "FROM {{ base_image }}:{{ base_distro_tag }}\nENV PATH=/bin\n");
        // Kolla can't build tgtd for Rocky Linux.
        for (image, parent, step) in [
            ("good", "base", "true"),
            ("bad", "base", "exit 7"),
            ("bad/bad-child", "bad", "true"),
            ("other", "base", "true"),
            ("tgtd", "base", "true"),
        ] {
            let text = format!("FROM {{{{ namespace }}}}/{parent}:{{{{ tag }}}}\nRUN {step}\n");
            write(&format!("docker/{image}/Dockerfile.j2"), &text);
        }
        fs::create_dir_all(path("root/bin")).unwrap();
        let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|busybox| Path::new(busybox).exists());
        fs::copy(busybox.expect("busybox-static (tools/install-deps test)"), path("root/bin/sh")).unwrap();
        succeed(Command::new("tar").arg("-cf").arg(path("root.tar")).arg("-C").arg(path("root")).arg("."));

        let ended = [
            ("base", "BUILT"),
            ("good", "BUILT"),
            ("bad", "ERROR"),
            ("bad-child", "PARENT_ERROR"),
            ("other", "UNMATCHED"),
            ("tgtd", "UNBUILDABLE"),
        ];
        let skipped = [&[("base", "SKIPPED"), ("good", "SKIPPED")], &ended[2..]].concat();
        // An earlier link is replaced.
        for dir in ["theirs", "ours"] {
            fs::create_dir(path(dir)).unwrap();
            std::os::unix::fs::symlink("elsewhere", path(dir).join("000_FAILED_bad.log")).unwrap();
        }
        for (images, allowed, more) in [
            (&ended[..], &[][..], &[][..]),
            (&skipped, &["bad", "bad-child"], &["--skip-existing"]),
            (&skipped, &["bad"], &["--skip-existing", "--nosummary"]),
            (&skipped, &[], &["--skip-existing", "--format", "none"]),
        ] {
            for file in [false, true] {
                let [theirs_file, ours_file] = ["theirs.json", "ours.json"].map(path);
                let (format, summary) =
                    (if more.contains(&"none") { "none" } else { "json" }, !more.contains(&"--nosummary"));
                let options = serde_json::json!({
                    "summary_json_file": file.then_some(&theirs_file), "format": format, "logs_dir": path("theirs"),
                    "allowed_to_fail": allowed,
                });
                let (code, mut said) = theirs(&release, images, &options);
                if !summary {
                    said.clear();
                }
                write("allowed.conf", &format!("[DEFAULT]\nallowed_to_fail = {}\n", allowed.join(",")));
                let mut command = ours(room.path(), room.path());
                command.env("KOLLAGE_STORE", path("store")).args(["--config-file", "allowed.conf", "--retries", "0"]);
                command.arg("--base-image").arg(format!("rootfs:{}", path("root.tar").display()));
                command.arg("--logs-dir").arg(path("ours")).args(more).args(["good", "bad"]);
                if file {
                    command.arg("--summary-json-file").arg(&ours_file);
                }
                let output = command.output().unwrap();
                let about = format!("{version} {more:?} {file}: {}", String::from_utf8_lossy(&output.stderr));
                assert_eq!(output.status.code(), Some(code), "{about}");
                assert_eq!(String::from_utf8_lossy(&output.stdout), said, "{about}");
                let read = |file: &Path| fs::read_to_string(file).unwrap_or_default();
                if summary {
                    assert_eq!(read(&theirs_file), read(&ours_file), "{about}");
                }
                assert_eq!(said.is_empty(), file || more.len() > 1, "{about}");
                for file in [theirs_file, ours_file] {
                    let _ = fs::remove_file(file);
                }
                assert_eq!(links(&path("theirs")), links(&path("ours")), "{about}");
                assert!(links(&path("ours")).contains_key("000_FAILED_bad.log"));
            }
        }
    }
}
