//! CA certificates, in roots laid out as those of the families.

use crate::container::Root;
use crate::lab::Ran;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

const CA: &str = include_str!("data/ca.pem");
/// What openssl says of it.
const HASH: &str = include_str!("data/ca.hash");
const SYSTEM: &str = "# the system's\n";

fn root() -> Option<Root> {
    let root = Root::new("/bin/kollage-start --version", "")?;
    root.write("var/lib/kolla/config_files/ca-certificates/site.crt", CA);
    root.write("var/lib/kolla/config_files/ca-certificates/README", "no certificate");
    Some(root)
}

#[track_caller]
fn copied(root: &Root) {
    let ran = Ran::of(root.command("kolla_copy_cacerts"));
    assert_eq!(ran.code, 0, "{}", ran.said);
}

#[track_caller]
fn has(root: &Root, name: &str, content: &str) {
    assert_eq!(fs::read_to_string(root.path(name)).unwrap(), content, "{name}");
}

#[test]
fn debian_without_its_tools() {
    let Some(root) = root() else { return };
    let hash = HASH.trim();
    root.write("etc/debian_version", "12");
    root.write("etc/ssl/certs/ca-certificates.crt", SYSTEM);
    // Another certificate of the same name has the first place.
    root.write(&format!("etc/ssl/certs/{hash}.0"), "another");
    for _ in 0..2 {
        copied(&root);
        has(&root, "etc/ssl/certs/ca-certificates.crt", &format!("{SYSTEM}{CA}"));
        has(&root, "usr/local/share/ca-certificates/kolla-customca-site.crt", CA);
        let link = |name: &str| fs::read_link(root.path("etc/ssl/certs").join(name)).unwrap();
        let target = Path::new("/usr/local/share/ca-certificates/kolla-customca-site.crt");
        assert_eq!(link("kolla-customca-site.pem"), target);
        assert_eq!(link(&format!("{hash}.1")), Path::new("kolla-customca-site.pem"));
        has(&root, &format!("etc/ssl/certs/{hash}.0"), "another");
        assert!(!root.path(&format!("etc/ssl/certs/{hash}.2")).exists());
    }
    fs::remove_dir_all(root.path("var/lib/kolla/config_files/ca-certificates")).unwrap();
    copied(&root);
    has(&root, "etc/ssl/certs/ca-certificates.crt", SYSTEM);
    let left: Vec<_> =
        fs::read_dir(root.path("etc/ssl/certs")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(!root.path("usr/local").exists());
}

#[test]
fn red_hat_without_its_tools() {
    let Some(root) = root() else { return };
    root.write("etc/redhat-release", "9");
    let pem = "etc/pki/ca-trust/extracted/pem";
    root.write(&format!("{pem}/tls-ca-bundle.pem"), SYSTEM.trim_end());
    root.write("etc/pki/ca-trust/extracted/openssl/ca-bundle.trust.crt", "");
    fs::create_dir_all(root.path(&format!("{pem}/directory-hash"))).unwrap();
    copied(&root);
    has(&root, &format!("{pem}/tls-ca-bundle.pem"), &format!("{SYSTEM}{CA}"));
    has(&root, "etc/pki/ca-trust/extracted/openssl/ca-bundle.trust.crt", CA);
    has(&root, "etc/pki/ca-trust/source/anchors/kolla-customca-site.crt", CA);
    has(&root, &format!("{pem}/directory-hash/{}.0", HASH.trim()), CA);
}

#[test]
fn other_images_have_a_bundle_or_are_told_so() {
    let Some(root) = root() else { return };
    Ran::of(root.command("kolla_copy_cacerts")).says(1, &["CA certificates", "no bundle", "KOLLAGE_CA_BUNDLE"]);
    root.write("etc/ssl/certs/ca-certificates.crt", SYSTEM);
    symlink("certs/ca-certificates.crt", root.path("etc/ssl/cert.pem")).unwrap();
    copied(&root);
    has(&root, "etc/ssl/cert.pem", &format!("{SYSTEM}{CA}"));
}

#[test]
fn without_certificates_nothing_is_touched() {
    let Some(root) = Root::new("x", "") else { return };
    copied(&root);
    assert!(!root.path("etc/kolla").exists());
}

#[test]
fn a_bundle_elsewhere_leaves_the_system_s_alone() {
    let Some(mut root) = root() else { return };
    root.write("etc/ssl/certs/ca-certificates.crt", SYSTEM);
    root.variables.push(("KOLLAGE_CA_BUNDLE", "/run/ca.crt".into()));
    copied(&root);
    has(&root, "run/ca.crt", &format!("{SYSTEM}{CA}"));
    has(&root, "etc/ssl/certs/ca-certificates.crt", SYSTEM);
}
