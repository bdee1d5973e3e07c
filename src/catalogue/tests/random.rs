//! Texts that nobody would write on purpose.

use proptest::prelude::*;

use super::super::*;

const IMAGE: &str = r#"[image]
kind = "service"
parent = "base"
recipe = "service"
from = { bootstrap = "debian", suite = "é" }
[user]
name = "k"
uid = 1
[packages]
deb = ["ab"]
[sources.a]
pypi = "x"
git = "https://a@b/c"
[[check]]
run = ["a"]
"#;

const PLUGIN: &str = r#"[plugin]
images = ["a-*", "re:x"]
requires = ["b"]
order = 5
[sources.a]
local = "x"
"#;

const SETTINGS: &str = r#"[build]
base = "debian"
tag = "{release}-{base}"
release = "1"
jobs = 4
[profiles]
a = ["b", "@c"]
[images.a]
plugins = ["x"]
[policy]
engines = ["embedded"]
[vars]
x = 1
"#;

/// Pieces that tend to break readers, put anywhere into a sound file.
fn mutated() -> impl Strategy<Value = (String, String)> {
    const PIECES: &[&str] = &[
        "[",
        "\"",
        "= 99999999999999999999",
        "= 0xffffffffffffffffff\n",
        "= 1e999\n",
        "é\u{301}",
        "\u{feff}",
        "{",
        "'''",
        "\n[image]\n",
        "image.user.x = 1\n",
        "= [[[]]]\n",
        "= 2026-01-01\n",
        "\r\n",
        "# \u{0}",
        "= 1_0.0_1\n",
    ];
    let piece = prop_oneof![prop::sample::select(PIECES).prop_map(str::to_owned), "\\PC{0,6}"];
    let file = prop::sample::select(&[("image.toml", IMAGE), ("plugin.toml", PLUGIN), ("kollage.toml", SETTINGS)][..]);
    let edits = prop::collection::vec((any::<prop::sample::Index>(), 0usize..12, piece), 0..4);
    (file, edits).prop_map(|((name, text), edits)| {
        let mut chars: Vec<char> = text.chars().collect();
        for (at, drop, piece) in edits {
            let at = at.index(chars.len() + 1);
            let end = (at + drop).min(chars.len());
            chars.splice(at..end, piece.chars());
        }
        (name.to_owned(), chars.into_iter().collect())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Whatever a file holds, it loads or there are problems, each with a place within its file.
    #[test]
    fn no_text_panics((name, text) in mutated()) {
        for problem in &check_text(&name, &text).0 {
            if let Some(place) = &problem.place {
                prop_assert!(place.file.text.get(place.span.clone()).is_some(), "{:?} in {:?}", place.span, text);
            }
        }
    }

    #[test]
    fn no_override_panics(assignment in "[a-z.]{0,12}=?\\PC{0,12}", literal in "\\PC{0,12}") {
        let mut overrides = Overrides::new();
        let _ = overrides.set("--set", &assignment);
        overrides.string("--tag", "build.tag", &literal);
        let mut problems = Diagnostics::default();
        settings::load(None, &overrides, &ConfigFiles::default(), &mut problems);
        for problem in &problems.0 {
            if let Some(place) = &problem.place {
                prop_assert!(place.file.text.get(place.span.clone()).is_some());
            }
        }
    }
}
