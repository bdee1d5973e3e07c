//! Every option that Kolla registers, asked of Kolla itself: in each spelling, from files and from the environment, what
//! both programs take and refuse, and what it is then.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use kollage::kolla::options::Options;
use kollage::kolla::settings;

use crate::place::{Call, RELEASES, everything, release};
use crate::probe::{Opt, Release, theirs};

#[test]
fn every_option_is_taken_in_every_spelling() {
    for version in everything() {
        let release = Release::new(version);
        let spelled = |form: &dyn Fn(&Opt, &str) -> Vec<String>| {
            let options = release.cli().filter(|option| !option.is("Boolean"));
            release.call(options.flat_map(|option| {
                release.values(option).into_iter().flat_map(|value| form(option, &value)).collect::<Vec<_>>()
            }))
        };
        let short = |option: &Opt| option.short.map(|short| format!("-{short}"));
        let flags = |before: &str| {
            release.call(release.cli().filter(|option| option.is("Boolean")).map(|o| format!("--{before}{}", o.name)))
        };
        let short_flags: Vec<String> = release.cli().filter(|option| option.is("Boolean")).filter_map(short).collect();
        let positional = release.main().filter(|option| option.positional).flat_map(|option| release.values(option));
        let calls = [
            spelled(&|option, value| vec![format!("--{}", option.name), value.to_owned()]),
            spelled(&|option, value| vec![format!("--{}={value}", option.name)]),
            spelled(&|option, value| short(option).into_iter().flat_map(|s| [s, value.to_owned()]).collect()),
            spelled(&|option, value| short(option).into_iter().map(|s| format!("{s}{value}")).collect()),
            spelled(&|option, value| short(option).into_iter().map(|s| format!("{s}={value}")).collect()),
            spelled(&|option, _| {
                vec![format!("--{}=", option.name)]
                    .into_iter()
                    .filter(|_| option.is("String") && option.choices.is_empty())
                    .collect()
            }),
            flags(""),
            flags("no"),
            release.call(short_flags.clone()),
            release.call([format!("-{}", short_flags.iter().map(|flag| flag[1..].to_owned()).collect::<String>())]),
            release.call(positional),
            release.call([]),
        ];
        assert_eq!(release.same(&calls), calls.len(), "{version}");
    }
}

#[test]
fn every_option_is_taken_from_files() {
    for version in everything() {
        let release = Release::new(version);
        let lines = |form: &dyn Fn(&Opt, &str) -> String| -> String {
            let of = |option: &Opt| release.values(option).iter().map(|value| form(option, value)).collect::<String>();
            release.main().map(of).collect()
        };
        let is_text = |option: &Opt| option.is("String") && option.choices.is_empty() && option.key != "repos_yaml";
        let of_kind = |kind: &str, form: &dyn Fn(&Opt) -> String| -> String {
            let all = release.main().filter(|option| if kind == "String" { is_text(option) } else { option.is(kind) });
            all.map(form).collect()
        };
        let first = lines(&|option, value| format!("{} = {value}\n", option.key));
        let dashes: Vec<&Opt> = release.main().filter(|option| option.name != option.key).collect();
        let mut calls = vec![
            release.with_file("equal.conf", &first),
            release.with_file("colon.conf", &lines(&|option, value| format!("{}: {value}\n", option.key))),
            release.with_file("quoted.conf", &lines(&|option, value| format!("{} = \"{value}\"\n", option.key))),
            release.with_file("continued.conf", &of_kind("String", &|option| format!("{} = a\n  b\n", option.key))),
            release.with_file("empty.conf", &of_kind("String", &|option| format!("{} =\n", option.key))),
            release.with_file("list.conf", &of_kind("List", &|option| format!("{} = a.rpm,\n  b.rpm,,\n", option.key))),
            release.with_file("dict.conf", &of_kind("Dict", &|option| format!("{} = a:1,\n  b:$base\n", option.key))),
            release.with_file("no-dict.conf", &of_kind("Dict", &|option| format!("{} =\n", option.key))),
            // Names as the command line has them say nothing in a file.
            release.with_file(
                "dashes.conf",
                &dashes.iter().map(|option| format!("{} = x\n", option.name)).collect::<String>(),
            ),
            release.with_file(
                "referring.conf",
                &of_kind("String", &|option| match option.key.as_str() {
                    "tag" | "base_tag" => String::new(),
                    key => format!("{key} = x-${{tag}}-$base_tag-$base_arch $$ \\$$\n"),
                }),
            ),
        ];
        for word in ["true", "1", "on", "yes", "TRUE", "false", "0", "off", "no", "Off"] {
            let all = of_kind("Boolean", &|option| format!("{} = {word}\n", option.key));
            calls.push(release.with_file(&format!("{word}.conf"), &all));
        }
        // What stands later wins, and what can be given again adds up.
        let file = calls[0].arguments[2..].to_vec();
        let again = |option: &Opt| match option.kind.as_str() {
            "Boolean" => vec![format!("--{}{}", if option.value == true { "" } else { "no" }, option.name)],
            "Integer" => vec![format!("--{}=43", option.name)],
            "Multi" => release.values(option).iter().map(|value| format!("--{}={value}", option.name)).collect(),
            _ if option.choices.is_empty() && option.key != "repos_yaml" => vec![format!("--{}=z:1", option.name)],
            _ => Vec::new(),
        };
        let again: Vec<String> = release.cli().flat_map(again).collect();
        calls.push(release.call(file.iter().chain(&again).cloned()));
        calls.push(release.call(again.iter().chain(&file).cloned()));
        calls.push(release.call(again.iter().chain(&again).cloned()));
        let twice =
            release.with_file("twice.conf", &(first.clone() + &of_kind("String", &|o| format!("{} = later\n", o.key))));
        calls.push(twice);
        for (base, arch) in [("debian", "aarch64"), ("ubuntu", "x86_64"), ("rocky", "aarch64")] {
            let more = ["-b", base, "--base-arch", arch, "--openstack-release", "master"].map(str::to_owned);
            calls.push(release.call(more.clone()));
            calls.push(release.call(more.into_iter().chain(["--base-tag=mine".to_owned()])));
        }
        assert_eq!(release.same(&calls), calls.len(), "{version}");
        let said = release.probe.ours(&calls[0]).said;
        assert!(!said.contains("no option"), "{said}");
    }
}

/// What a file may look like, and what is none.
#[test]
fn files_are_read_as_oslo_config_reads_them() {
    let texts = [
        "tag = a # b\n; c\n# d\n",
        "tag = a\n  b\n\tc\n\nbase_tag = d\n",
        "tag = a\n   \nbase_tag = b",
        "tag = a\n\n  b\n",
        "tag = a\n# c\n  b\n",
        "tag = a\n[DEFAULT]\n  b\n",
        " tag = a\n",
        "tag = 'a\nbase_tag = \"a'\n",
        "tag = \"\nbase_tag = '\n",
        "tag = \"\"\nbase_tag = ''\n",
        "tag = \"'a'\"\nbase_tag = ' a '\n",
        "tag = \"a\"b\"\nbase_tag = \"a\" # b\n",
        "tag = a\r\nbase_tag = b\r\n",
        "tag==a\nbase_tag:=a\n",
        "tag=:a\nbase_tag = a=b:c\n",
        "tag a\n",
        "= a\n",
        ": a\n",
        "tag = a\nnamespace\n",
        "[x\n",
        "[x]y\n",
        "[]\n",
        "[ x ]\ntag = a\n",
        "[x]\ntag = a\n[DEFAULT]\ntag = b\n[DEFAULT]\nbase_tag = c\n",
        "[default]\ntag = a\n",
        "TAG = a\n",
        "tag = \u{e9}\u{a0}\n",
        "tag = a\\\n  b\n",
        "tag =\n  a\n",
        "tag = a\ntag =\n",
        "registry = $tag/$$/${base}/$base.x\ntag = ${base\n",
        "registry = $no_such_option\n",
        "tag = $tag\n",
    ];
    for version in everything() {
        let release = Release::new(version);
        let calls = texts.iter().enumerate();
        let calls: Vec<Call> = calls.map(|(n, text)| release.with_file(&format!("text-{n}.conf"), text)).collect();
        let taken = release.same(&calls);
        assert!(taken > 15 && taken < texts.len() - 8, "{version}: {taken}");
    }
}

#[test]
fn the_environment_says_what_options_are() {
    for version in everything() {
        let release = Release::new(version);
        // Kolla takes each letter for a value of an option that can be given again.
        let one = |option: &&Opt| !option.is("Multi");
        let with = |mut call: Call| {
            for option in release.main().filter(one) {
                let value = release.values(option).remove(0);
                call = call.with(&format!("OS_DEFAULT__{}", option.key.to_uppercase()), &value);
            }
            call
        };
        let flags = |before: &'static str| {
            release.cli().filter(|o| o.is("Boolean")).map(move |o| format!("--{before}{}", o.name))
        };
        let integers: String =
            release.main().filter(|o| o.is("Integer")).map(|o| format!("{} = 44\n", o.key)).collect();
        let calls = [
            with(release.call([])),
            with(release.call(flags(""))),
            with(release.call(flags("no"))),
            with(release.with_file("integers.conf", &integers)),
        ];
        assert_eq!(release.same(&calls), calls.len(), "{version}");
    }
}

#[test]
fn what_an_option_does_not_take_is_refused() {
    for version in everything() {
        let release = Release::new(version);
        let mut calls = Vec::new();
        let says = |calls: &mut Vec<Call>, option: &Opt, value: &str| {
            if option.cli {
                calls.push(release.call([format!("--{}={value}", option.name)]));
                calls.push(release.call([format!("--{}", option.name), value.to_owned()]));
            } else {
                calls.push(release.call([format!("--{}={value}", option.name.replace('_', "-"))]));
            }
            let file = format!("{}-{}.conf", option.key, value.replace(['/', '\0'], "-"));
            calls.push(release.with_file(&file, &format!("{} = {value}\n", option.key)));
        };
        for option in release.main().filter(|option| !option.positional) {
            match option.kind.as_str() {
                "Integer" => {
                    let least = option.least.unwrap_or(-5);
                    let near = [least - 1, least, least + 1].map(|number| number.to_string());
                    near.iter()
                        .map(String::as_str)
                        .chain(["x", "1.5", "+5", "0x10", "1 2"])
                        .for_each(|v| says(&mut calls, option, v));
                }
                "Boolean" => {
                    let wrong = if option.cli { vec!["--", "--no"] } else { vec!["--"] };
                    let wrong = wrong.iter().map(|before| format!("{before}{}=true", option.name));
                    calls.extend(wrong.map(|argument| release.call([argument])));
                    for value in ["maybe", ""] {
                        let file = format!("{}-{value}.conf", option.key);
                        calls.push(release.with_file(&file, &format!("{} = {value}\n", option.key)));
                    }
                }
                "Dict" => ["a", "a:1,a:2", ":1", "a:1,,b:2", "a:1,", "a:1,2", "a,b:2", "a:"]
                    .iter()
                    .for_each(|v| says(&mut calls, option, v)),
                "String" if !option.choices.is_empty() => {
                    option.choices.iter().for_each(|choice| says(&mut calls, option, choice));
                    says(&mut calls, option, &option.choices[0].to_uppercase());
                    says(&mut calls, option, "none of them");
                    says(&mut calls, option, "");
                }
                _ if option.cli => {
                    // One that begins with a dash, and none at all.
                    calls.push(release.call([format!("--{}", option.name), "-x".to_owned()]));
                    calls.push(release.call([format!("--{}", option.name)]));
                }
                _ => calls.push(release.call([format!("--{}=x", option.name)])),
            }
            if option.cli {
                // As much of a name as tells it from others; and with the other sign between its words.
                let shorter = &option.name[..option.name.len() - 1];
                let other = match option.name.contains('_') {
                    true => option.name.replace('_', "-"),
                    false => option.name.replace('-', "_"),
                };
                let value = if option.is("Boolean") { Vec::new() } else { release.values(option) };
                for name in [shorter, &other] {
                    calls.push(release.call(std::iter::once(format!("--{name}")).chain(value.iter().take(1).cloned())));
                }
            }
        }
        let taken = release.same(&calls);
        assert!(taken > 50 && calls.len() - taken > 100, "{version}: {taken} of {} were taken", calls.len());
    }
}

/// One letter less: it isn't Kolla's, and what it is nearest to is said.
#[test]
fn an_option_that_is_not_kolla_s_is_refused_with_the_nearest() {
    for version in everything() {
        let release = Release::new(version);
        let misspelled = |name: &str| format!("{}{}", &name[..1], &name[2..]);
        let names: Vec<String> = release.cli().map(|option| option.name.clone()).collect();
        let calls: Vec<Call> = names.iter().map(|name| release.call([format!("--{}", misspelled(name))])).collect();
        for ((name, call), theirs) in names.iter().zip(&calls).zip(theirs(&release.probe.release, &calls).1) {
            let ours = release.probe.ours(call);
            assert_eq!((theirs.code, ours.code), (2, 2), "{name}: {} {}", theirs.said, ours.said);
            assert!(ours.said.contains(&format!("did you mean `--{name}`?")), "{name}: {}", ours.said);
        }
        let file: String = release.main().map(|option| format!("{} = x\n", misspelled(&option.key))).collect();
        let call = release.with_file("misspelled.conf", &file);
        // What looks wrong is told where templates are right.
        release.probe.write("docker/base/Dockerfile.j2", "FROM x\n");
        let said = release.probe.ours(&call).said;
        let lines = said.lines().filter(|line| line.contains("no option")).count();
        assert_eq!(lines, release.main().count(), "{said}");
        for option in release.main() {
            assert!(said.contains(&format!("did you mean `{}`?", option.key)), "{}: {said}", option.key);
        }
    }
}

/// Defaults of all sections: those of profiles, sources and users as well.
#[test]
fn what_nobody_sets_is_what_it_is_in_kolla() {
    for version in everything() {
        let dir = release(version);
        let tree = kollage::kolla::tree::Tree::open(&dir).unwrap();
        let machine = rustix::system::uname().machine().to_string_lossy().into_owned();
        let mut options = Options::new(&tree, &machine);
        settings::derive(&mut options).unwrap();
        let declared = theirs(&dir, &[]).0;
        let mut sections = BTreeSet::new();
        for option in declared.iter().filter(|option| !option.says_where()) {
            // Kolla puts it into place where other options don't see it.
            if option.key == "base_image" {
                continue;
            }
            let own = options.get(&option.group, &option.key).unwrap();
            let own: serde_json::Value = serde_json::from_str(&own.json(None)).unwrap();
            let same =
                own == option.value || (option.is("Multi") && option.value.is_null() && own == serde_json::json!([]));
            assert!(same, "{version} [{}] {}: theirs {}, ours {own}", option.group, option.key, option.value);
            sections.insert(option.group.as_str());
        }
        let own: BTreeSet<&str> = options.sections();
        assert_eq!(sections, own, "{version}");
        assert!(sections.len() > 150, "{version}: {}", sections.len());
    }
}

/// An option is read by what builds the tree, or one line says that it has no meaning here; the docs have the same list.
#[test]
fn an_option_has_a_meaning_or_a_line_says_that_it_has_none() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = fs::read_to_string(root.join("docs/kolla.md")).unwrap();
    let sentence = docs.split("\n\n").find(|part| part.contains("have no meaning here")).unwrap();
    let documented = |option: &Opt| {
        [&option.name, &option.key, &format!("--{}", option.name)]
            .iter()
            .any(|name| sentence.contains(&format!("`{name}`")))
    };
    for version in everything() {
        let release = Release::new(version);
        release.probe.write("docker/base/Dockerfile.j2", "FROM {{ base_image }}:{{ base_distro_tag }}\n");
        let nothing = "^nothing-is-called-so$".to_owned();
        let mut without = 0;
        for option in release.main() {
            // These say something else instead of building.
            if ["list_images", "list_dependencies", "save_dependency", "template_only", "profile"]
                .contains(&option.key.as_str())
            {
                continue;
            }
            let lines: String =
                release.values(option).iter().map(|value| format!("{} = {value}\n", option.key)).collect();
            let mut call = release.with_file("one.conf", &lines);
            call.arguments.push(nothing.clone());
            let ours = release.probe.ours(&call);
            assert!(ours.said.contains("no image is selected"), "{}: {}", option.key, ours.said);
            let lines = ours.said.lines().filter(|line| line.contains("no meaning here")).count();
            let named = ours.said.contains(&format!("`{}` has no meaning here", option.name));
            assert!(lines == usize::from(named) || option.key == "network_mode", "{}: {}", option.key, ours.said);
            assert_eq!(documented(option), named || option.key == "network_mode", "{}", option.key);
            without += lines;
        }
        assert!(without > 4, "{version}");
        let ours = release.probe.ours(&release.call([nothing]));
        assert!(!ours.said.contains("no meaning"), "{}", ours.said);
    }
}

/// What is found equal could also be found different.
#[test]
fn options_of_another_release_are_found_out() {
    let [newest, older] = [RELEASES[0], RELEASES[1]].map(Release::new);
    let calls = [newest.call([])];
    let theirs = theirs(&newest.probe.release, &calls).1.remove(0);
    let ours = older.probe.ours(&older.call([]));
    for (name, differs) in [("opt-openstack_release", true), ("opt-tag", true), ("opt-base", false)] {
        assert_eq!(theirs.values.get(name) != ours.values.get(name), differs, "{name}");
    }
    assert!(theirs.values.contains_key("opt-buildkit") && !ours.values.contains_key("opt-buildkit"));
    assert_eq!(older.probe.ours(&older.call(["--nobuildkit".to_owned()])).code, 2);
}
