use std::path::PathBuf;

use super::*;

fn change(kind: ChangeKind, path: &str) -> Change {
    Change { path: PathBuf::from(path), kind }
}

fn rules(changes: &[&str], requires: &[&str]) -> Rules {
    let strings = |texts: &[&str]| texts.iter().map(|t| (*t).to_owned()).collect();
    Rules { changes: strings(changes), requires: strings(requires), allowed: false }
}

#[test]
fn what_is_added_and_what_always_changes_fits() {
    let own = [
        change(ChangeKind::Added, "/usr/lib/python3/new.py"),
        change(ChangeKind::Changed, "/var/lib/kolla/venv/lib/python3.11/site-packages/six-1.dist-info/RECORD"),
        change(ChangeKind::Removed, "/usr/lib/python3/__pycache__/old.pyc"),
        change(ChangeKind::Changed, "/var/lib/dpkg/status"),
        change(ChangeKind::Changed, "/var/lib/dpkg/info/format"),
    ];
    assert_eq!(judge(&rules(&[], &[]), &own, &[]).unwrap(), []);
}

#[test]
fn what_is_not_declared_is_found_and_what_is_declared_is_not() {
    let own = [
        change(ChangeKind::Changed, "/etc/keystone/keystone.conf"),
        change(ChangeKind::Removed, "/etc/keystone/policy.d/x"),
        change(ChangeKind::Changed, "/var/lib/dpkg/status-of-mine"),
    ];
    let found = judge(&rules(&[], &[]), &own, &[]).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].whose, Whose::Image);
    assert_eq!(
        found[0].files,
        [
            "changed /etc/keystone/keystone.conf",
            "changed /var/lib/dpkg/status-of-mine",
            "removed /etc/keystone/policy.d/x"
        ]
    );
    let declared = rules(&["/etc/keystone/**", "/var/lib/dpkg/*"], &[]);
    assert_eq!(judge(&declared, &own, &[]).unwrap(), []);
    let one_level = judge(&rules(&["/etc/keystone/*"], &[]), &own, &[]).unwrap();
    assert_eq!(one_level[0].files.len(), 2, "a star stays within a directory: {one_level:?}");
}

#[test]
fn two_plugins_that_write_one_file_are_named() {
    let first = vec![change(ChangeKind::Added, "/etc/both"), change(ChangeKind::Changed, "/etc/dir/inner")];
    let own = [change(ChangeKind::Changed, "/etc/both"), change(ChangeKind::Removed, "/etc/dir")];
    let below = [("a", first), ("b", vec![change(ChangeKind::Changed, "/etc/both")])];
    let found = judge(&rules(&["/etc/**"], &[]), &own, &below).unwrap();
    let whose: Vec<&Whose> = found.iter().map(|misfit| &misfit.whose).collect();
    assert_eq!(whose, [&Whose::Plugin("a".into()), &Whose::Plugin("b".into())], "the one that wrote it last");
    let required = judge(&rules(&["/etc/**"], &["a", "b"]), &own, &below).unwrap();
    assert_eq!(required, [], "it is made to go on top of them, and says what it changes");
    assert_eq!(judge(&rules(&[], &["a", "b"]), &own, &below).unwrap().len(), 2);
}

#[test]
fn an_error_names_a_few_files_and_what_to_do() {
    let files = (0..8).map(|i| format!("changed /f{i}")).collect();
    let misfits = vec![Misfit { whose: Whose::Image, files }];
    let verdict = Verdict { image: "keystone".into(), plugin: "p".into(), allowed: false, misfits };
    let error = verdict.error().unwrap();
    assert_eq!(error.message(), "plugin `p` does not fit on `keystone`");
    assert!(error.causes()[0].ends_with("changed /f4, and 3 more"), "{:?}", error.causes());
    assert!(error.hint_text().unwrap().contains("plugins/p/plugin.toml"));
}

#[test]
fn patterns_are_paths() {
    assert!(check_pattern("/etc/**").is_ok());
    assert!(check_pattern("etc/x").is_err() && check_pattern("/a[").is_err());
}
