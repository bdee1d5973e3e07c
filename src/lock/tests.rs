//! The file as it is written, read and compared.

use super::*;
use crate::diag::{Diagnostics, SourceFile};

fn digest(c: char) -> Digest {
    format!("sha256:{}", c.to_string().repeat(64)).parse().unwrap()
}

fn lock() -> Lock {
    let packages = BTreeMap::from([
        ("a-b".to_owned(), Package { version: "1.0".into(), hashes: vec![digest('a'), digest('b')] }),
        ("c".to_owned(), Package { version: "2!3.0rc1+x".into(), hashes: vec![digest('c')] }),
    ]);
    let tool = |version: &str, c, source| Tool {
        package: Package { version: version.into(), hashes: vec![digest(c)] },
        source,
    };
    let builds = BTreeMap::from([
        ("setuptools".to_owned(), vec![tool("59.8.0", '1', false), tool("80.9.0", '2', false)]),
        ("calver".to_owned(), vec![tool("2022.6.26", '3', true)]),
        ("wheel".to_owned(), vec![tool("0.45.1", '4', false)]),
    ]);
    Lock {
        bases: BTreeMap::from([("docker.io/library/debian:13".to_owned(), digest('d'))]),
        debian: BTreeMap::from([("debian/bookworm".to_owned(), "20261130T000000Z".to_owned())]),
        remotes: BTreeMap::from([
            ("https://h/x.git#v1".to_owned(), Pin::Commit { id: "1".repeat(40), name: Some("refs/tags/v1".into()) }),
            ("https://h/y.git".to_owned(), Pin::Commit { id: "2".repeat(40), name: None }),
            ("https://h/\"z\"".to_owned(), Pin::File { digest: digest('e'), modified: Some(-5) }),
            ("https://h/w".to_owned(), Pin::File { digest: digest('f'), modified: None }),
        ]),
        pypi: BTreeMap::from([
            ("web+theme (linux/amd64)".to_owned(), Resolved { inputs: "0123456789abcdef".into(), packages, builds }),
            ("idle (linux/arm64)".to_owned(), Resolved { inputs: "00".into(), ..Resolved::default() }),
        ]),
    }
}

fn read(text: &str) -> Result<Lock, Diagnostics> {
    let mut problems = Diagnostics::default();
    let lock = parse(&SourceFile::new("kollage.lock", text.to_owned()), &mut problems);
    lock.ok_or(problems)
}

#[test]
fn it_is_read_as_it_was_written_with_a_line_for_each_thing() {
    let text = lock().text();
    insta::assert_snapshot!(text);
    assert_eq!(read(&text).unwrap(), lock());
    assert_eq!(read(&Lock::default().text()).unwrap(), Lock::default());
}

#[test]
fn requirements_are_lines_that_pip_checks_hashes_of() {
    let lines = lock().pypi["web+theme (linux/amd64)"].requirements();
    assert_eq!(lines[0], format!("a-b==1.0 --hash={} --hash={}", digest('a'), digest('b')));
    assert_eq!(lines.len(), 2);
}

#[test]
fn what_builds_come_with_goes_to_pip_a_name_once_and_sources_last() {
    let line = |name: &str, c| format!("{name} --hash={}", digest(c));
    let rounds = [
        vec![line("setuptools==59.8.0", '1'), line("wheel==0.45.1", '4')],
        vec![line("setuptools==80.9.0", '2')],
        vec![line("calver==2022.6.26", '3')],
    ];
    assert_eq!(lock().pypi["web+theme (linux/amd64)"].build_rounds(), rounds);
    assert!(lock().pypi["idle (linux/arm64)"].build_rounds().is_empty());
}

#[test]
fn a_platform_takes_what_was_found_for_it() {
    let on = |text: &str| lock().on(&crate::dockerfile::platform(text).unwrap());
    assert_eq!(on("linux/amd64").pypi.keys().collect::<Vec<_>>(), ["web+theme"]);
    assert_eq!(on("linux/arm64").pypi.keys().collect::<Vec<_>>(), ["idle"]);
    assert_eq!(on("linux/s390x"), Lock { pypi: BTreeMap::new(), ..lock() });
}

#[test]
fn what_moved_is_told_from_old_to_new() {
    let old = lock();
    let mut new = lock();
    new.bases.insert("docker.io/library/debian:13".into(), digest('0'));
    new.debian.clear();
    new.remotes.insert("https://h/new".into(), Pin::File { digest: digest('1'), modified: None });
    let theme = new.pypi.get_mut("web+theme (linux/amd64)").unwrap();
    theme.inputs = "ff".into();
    theme.packages.get_mut("a-b").unwrap().version = "1.1".into();
    theme.packages.get_mut("c").unwrap().hashes = vec![digest('2')];
    theme.builds.remove("calver");
    theme.builds.get_mut("wheel").unwrap()[0].package.version = "0.46".into();
    let moved: Vec<String> = new.moved(&old).iter().map(Moved::to_string).collect();
    assert_eq!(
        moved,
        [
            format!("base docker.io/library/debian:13: {} -> {}", digest('d'), digest('0')),
            "snapshot debian/bookworm: 20261130T000000Z -> nothing".into(),
            format!("url https://h/new: nothing -> {}", digest('1')),
            "web+theme (linux/amd64) a-b: 1.0 -> 1.1".into(),
            format!("web+theme (linux/amd64) c: 2!3.0rc1+x {} -> 2!3.0rc1+x {}", digest('c'), digest('2')),
            "web+theme (linux/amd64) build calver: 2022.6.26 -> nothing".into(),
            "web+theme (linux/amd64) build wheel: 0.45.1 -> 0.46".into(),
        ]
    );
    assert!(old.moved(&old).is_empty());
}

#[test]
fn every_line_that_cannot_be_meant_is_named() {
    let good = "version = 2\n";
    for (text, says) in [
        ("", "does not say its version"),
        ("version = 1\n", "is of version 1"),
        ("version = \"1\"\n", "should be an integer"),
        (&format!("{good}[base]\n"), "unknown key `base`"),
        (&format!("{good}[bases]\na = \"sha256:12\"\n"), "`sha256:12` is not a digest"),
        (&format!("{good}[bases]\na = 1\n"), "should be a string"),
        (&format!("{good}[debian]\na = \"2026-11-30\"\n"), "is not a time"),
        (&format!("{good}[git]\na = \"main\"\n"), "is not a commit"),
        (&format!("{good}[git]\na = \"{} main\"\n", "1".repeat(40)), "is not a commit"),
        (&format!("{good}[urls]\na = \"{} soon\"\n", digest('a')), "is not a digest and perhaps a time"),
        (&format!("{good}[pypi]\na = \"x y\"\n"), "is not a digest of what was asked"),
        (&format!("{good}[pypi]\na = \"0\"\n"), "is not a digest of what was asked, for an image and its platform"),
        (&format!("{good}[packages.a]\nb = \"1 {}\"\n", digest('a')), "[pypi] has no line for `a`"),
        (&format!("{good}[pypi]\n\"a (linux/s390x)\" = \"0\"\n[packages]\na = 1\n"), "should be a table"),
        // Nothing but a version and digests gets into a Dockerfile.
        (
            &format!("{good}[pypi]\n\"a (linux/s390x)\" = \"0\"\n[packages.\"a (linux/s390x)\"]\nb = \"1\"\n"),
            "is not a package with a version",
        ),
        (
            &format!(
                "{good}[pypi]\n\"a (linux/s390x)\" = \"0\"\n[packages.\"a (linux/s390x)\"]\nb = \"1\\n {}\"\n",
                digest('a')
            ),
            "is not a package",
        ),
        (
            &format!(
                "{good}[pypi]\n\"a (linux/s390x)\" = \"0\"\n[packages.\"a (linux/s390x)\"]\n\"b\\nRUN\" = \"1 {}\"\n",
                digest('a')
            ),
            "is not a package",
        ),
        (&format!("{good}[builds.a]\nb = \"1 {}\"\n", digest('a')), "[pypi] has no line for `a`"),
        (
            &format!(
                "{good}[pypi]\n\"a (linux/s390x)\" = \"0\"\n[builds.\"a (linux/s390x)\"]\nb = \"1 {0}, 2; {0}\"\n",
                digest('a')
            ),
            "`b` is not a package with versions",
        ),
        ("version = \n", "not valid TOML"),
    ] {
        let problems = read(text).unwrap_err();
        assert!(problems.0.iter().any(|problem| problem.message.contains(says)), "{text}: {problems:?}");
        assert!(problems.0.iter().all(|problem| problem.place.is_some()), "{text}");
    }
}

fn installed(name: &str, version: &str, info: serde_json::Value) -> serde_json::Value {
    serde_json::json!({ "metadata": { "name": name, "version": version }, "download_info": info, "is_direct": false })
}

fn archive(file: &str, c: char) -> serde_json::Value {
    let hashes = serde_json::json!({ "sha256": c.to_string().repeat(64) });
    serde_json::json!({ "url": format!("https://h/{file}"), "archive_info": { "hashes": hashes } })
}

fn of_pip(install: &[serde_json::Value]) -> String {
    serde_json::json!({ "version": "1", "install": install }).to_string()
}

#[test]
fn a_report_of_pip_gives_versions_and_digests_of_files() {
    let local = serde_json::json!({ "url": "file:///sources/own", "dir_info": {} });
    let wheel = installed("Oslo.Config", "1.0", archive("a.whl#x", 'a'));
    let package = Package { version: "1.0".into(), hashes: vec![digest('a')] };
    let packages = BTreeMap::from([("oslo-config".to_owned(), package)]);
    let found = report(of_pip(std::slice::from_ref(&wheel)).as_bytes()).unwrap();
    assert_eq!(found, Report { packages: packages.clone(), source: None });
    let found = report(of_pip(&[wheel, installed("own", "1", local)]).as_bytes()).unwrap();
    assert_eq!(found, Report { packages, source: Some("own".into()) });
    let none = serde_json::json!({ "url": "https://h/a.whl", "archive_info": {} });
    let error = report(of_pip(&[installed("x", "1.0", none)]).as_bytes()).unwrap_err();
    assert!(error.to_string().contains("no sha256 of x 1.0"), "{error}");
    assert!(report(b"{}").is_err());
}

#[test]
fn reports_on_builds_come_one_behind_the_other() {
    let old = installed("setuptools", "59.8.0", archive("s-59.whl", '1'));
    let new = installed("setuptools", "80.9.0", archive("s-80.whl", '2'));
    let source = installed("CalVer", "2022.6.26", archive("c.tar.gz", '3'));
    let wheel = installed("wheel", "0.45.1", archive("w.whl", '4'));
    let reports =
        [of_pip(std::slice::from_ref(&new)), of_pip(&[old, wheel]), of_pip(&[new, source]), "\n".into()].concat();
    let built = builds(reports.as_bytes()).unwrap();
    assert_eq!(built, lock().pypi["web+theme (linux/amd64)"].builds);
    assert_eq!(builds(b"").unwrap(), BTreeMap::new());
    for cut in [reports.len() - 3, 10] {
        assert!(builds(&reports.as_bytes()[..cut]).unwrap_err().to_string().contains("cannot be understood"));
    }
}

#[test]
fn the_schema_takes_what_is_written() {
    let schema = jsonschema::validator_for(&schema::schema()).unwrap();
    let value = |text: &str| serde_json::to_value(text.parse::<toml::Table>().unwrap()).unwrap();
    assert!(schema.is_valid(&value(&lock().text())));
    assert!(!schema.is_valid(&value("version = 1\n")));
    assert!(!schema.is_valid(&value("version = 2\n[bases]\na = \"latest\"\n")));
}

#[test]
fn addresses_that_only_a_query_tells_apart_are_two_and_no_query_is_written_down() {
    let name = |url: &str| Remote::File(crate::fetch::WebFile { url: url.into(), checksum: None }).name();
    assert_eq!(name("https://user:pw@h/f#x"), "https://h/f");
    let one = name("https://h/f?token=secret");
    assert!(one.starts_with("https://h/f?") && !one.contains("secret"), "{one}");
    assert_ne!(one, name("https://h/f?token=other"));
}
