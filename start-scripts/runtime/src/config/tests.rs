use super::*;

fn read(text: &str) -> Result<Config> {
    Config::read(text, Path::new("/c/config.json"), None)
}

fn problems(text: &str) -> Vec<String> {
    read(text).unwrap_err().problems
}

#[test]
fn every_section_is_read() {
    let config = read(
        r#"{"command": "nova-api --config-file /etc/nova/nova.conf",
            "config_files": [
              {"source": "/s/a", "dest": "/etc/a", "owner": "nova", "perm": "0600"},
              {"source": "/s/*", "dest": "/etc/b/", "owner": "nova:kolla", "perm": "2775", "optional": true, "merge": true},
              {"source": "/s/c", "dest": "/etc/c", "preserve_properties": true}],
            "directories": [{"path": "/d", "owner": "42424:0", "perm": "1777"}],
            "files": [{"path": "/f", "owner": "root:", "perm": "0o640"}],
            "permissions": [{"path": "/p", "owner": "a", "recurse": true, "exclude": ["x$", "^/p/(?!keep)"]}]}"#,
    )
    .unwrap();
    assert_eq!(config.command, "nova-api --config-file /etc/nova/nova.conf");
    let owner = |user: &str, group: &str| Owner { user: user.into(), group: group.into() };
    let given = |owner, perm| Properties::Given { owner, perm: Some(perm) };
    assert_eq!(config.copies[0].properties, given(owner("nova", "nova"), 0o600));
    assert_eq!(config.copies[1].properties, given(owner("nova", "kolla"), 0o2775));
    assert!(config.copies[1].optional && config.copies[1].merge && !config.copies[0].merge);
    assert_eq!(config.copies[2].properties, Properties::Preserved);
    assert_eq!((config.directories[0].perm, config.directories[0].owner.clone()), (0o1777, owner("42424", "0")));
    assert_eq!((config.files[0].perm, config.files[0].owner.clone()), (0o640, owner("root", "root")));
    let [first, second] = &config.permissions[0].exclude[..] else { panic!() };
    assert!(first.finds(Path::new("/p/x")) && !first.finds(Path::new("/p/xy")));
    assert!(second.finds(Path::new("/p/other")) && !second.finds(Path::new("/p/keep")));
}

#[test]
fn a_section_without_entries_may_be_null_or_an_empty_mapping() {
    let config = read(r#"{"command": "x", "config_files": {}, "permissions": null, "files": []}"#).unwrap();
    assert!(config.copies.is_empty() && config.permissions.is_empty());
}

#[test]
fn permissions_in_every_notation() {
    for (text, bits) in [
        ("644", Some(0o644)),
        ("0644", Some(0o644)),
        ("2775", Some(0o2775)),
        ("1777", Some(0o1777)),
        ("0o640", Some(0o640)),
        ("0o4755", Some(0o4755)),
        ("", None),
        ("64", None),
        ("0x1f", None),
        ("00644", None),
        ("u+x", None),
        ("888", None),
        ("+644", None),
    ] {
        assert_eq!(perm(text), bits, "{text}");
    }
}

#[test]
fn yaml_reads_the_same_and_octal_without_quotes() {
    let text = "command: x\nconfig_files:\n- {source: /s, dest: /d, owner: nova, perm: 0640, optional: yes}\n";
    let config = Config::read(text, Path::new("/c/config.yaml"), None).unwrap();
    let owner = Owner { user: "nova".into(), group: "nova".into() };
    assert_eq!(config.copies[0].properties, Properties::Given { owner, perm: Some(0o640) });
    assert!(config.copies[0].optional);
}

#[test]
fn all_problems_are_named_with_entry_and_place() {
    let found = problems(
        r#"{"comand": "x",
 "config_files": [{"source": "s", "dest": "/d", "ownr": "a", "perm": "9"}, 3],
 "directories": [{"path": "/a*", "owner": ":x", "perm": "0755"}],
 "permissions": [{"path": "/p", "owner": "a", "exclude": ["("], "recurse": "yes"}]}"#,
    );
    let wanted = [
        "/c/config.json:1:2: unknown key `comand`; did you mean `command`?",
        "/c/config.json:1:1: the key `command` is missing",
        "/c/config.json:2:49: config_files[0]: unknown key `ownr`; did you mean `owner`?",
        "/c/config.json:2:30: config_files[0].source: `s` is no absolute path",
        "/c/config.json:2:70: config_files[0].perm: `9` is no permission",
        "/c/config.json:2:19: config_files[0]: `owner` is missing",
        "/c/config.json:2:76: config_files[1]: must be a mapping, not a number",
        "/c/config.json:3:43: directories[0].owner: `:x` is not USER or USER:GROUP",
        "/c/config.json:3:18: directories[0]: path `/a*` is a pattern",
        "/c/config.json:4:76: permissions[0].recurse: must be true or false, not a string",
        "/c/config.json:4:59: permissions[0].exclude[0]: `(` is no regular expression",
    ];
    for (found, wanted) in found.iter().zip(wanted) {
        assert!(found.starts_with(wanted), "{found}\n{wanted}");
    }
    assert_eq!(found.len(), wanted.len(), "{found:#?}");
}

#[test]
fn a_perm_that_may_be_decimal_is_refused() {
    let found = problems(r#"{"command": "x", "files": [{"path": "/f", "owner": "a", "perm": 420}]}"#);
    assert!(found[0].contains("files[0].perm: `420` is a number, and may be decimal"), "{found:?}");
}

#[test]
fn what_cannot_be_a_configuration_is_said_in_one_line() {
    assert_eq!(problems(""), ["/c/config.json:1:1: not valid JSON: the file is empty"]);
    assert_eq!(problems("[]"), ["/c/config.json:1:1: the configuration: must be a mapping, not a list"]);
    assert_eq!(problems("{\"command\": 3}"), ["/c/config.json:1:13: command: must be a string, not a number"]);
    assert_eq!(problems("{\"command\": \" \"}"), ["/c/config.json:1:1: command: is empty"]);
    for text in ["{", "nonsense", "{\"command\": \"x\",}"] {
        let found = problems(text);
        assert!(found.len() == 1 && found[0].contains("not valid JSON"), "{found:?}");
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(2000))]

    #[test]
    fn no_text_breaks_the_reader(text in "([a-c:{}\\[\\],'\"|>&*!%#?<~ \n\t\r\u{85}\u{feff}\\\\-]|---|command: x\n|\\.\\.\\.|\\PC){0,24}") {
        for name in ["/c/config.json", "/c/config.yaml"] {
            if let Err(failure) = Config::read(&text, Path::new(name), None) {
                proptest::prop_assert!(failure.problems.iter().all(|line| line.starts_with(name)), "{:?}", failure);
                proptest::prop_assert!(failure.problems.iter().all(|line| !line.contains('\n')), "{:?}", failure);
            }
        }
    }
}
