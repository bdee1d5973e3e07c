//! Any edits through a real overlay, and any entries in a tar.

use std::collections::BTreeSet;
use std::process::Command;

use proptest::prelude::*;
use tar::EntryType;

use super::*;
use crate::image::layer::unpack::unpack_plain;

#[derive(Clone, Debug)]
enum Edit {
    Write(usize, u8),
    Mkdir(usize),
    Remove(usize),
    Symlink(usize, usize),
    HardLink(usize, usize),
    Rename(usize, usize),
    Chmod(usize, u16),
}

/// Few names, so that edits meet.
const PATHS: [&str; 9] = ["a", "b", "a/a", "a/b", "b/a", "b/b", "a/a/a", "a/b/a", "b/a/b"];

fn edits() -> impl Strategy<Value = Vec<Vec<Edit>>> {
    let path = 0..PATHS.len();
    let edit = prop_oneof![
        3 => (path.clone(), any::<u8>()).prop_map(|(p, c)| Edit::Write(p, c)),
        4 => path.clone().prop_map(Edit::Mkdir),
        3 => path.clone().prop_map(Edit::Remove),
        1 => (path.clone(), path.clone()).prop_map(|(a, b)| Edit::Symlink(a, b)),
        1 => (path.clone(), path.clone()).prop_map(|(a, b)| Edit::HardLink(a, b)),
        2 => (path.clone(), path.clone()).prop_map(|(a, b)| Edit::Rename(a, b)),
        1 => (path, 0u16..0o7777).prop_map(|(p, m)| Edit::Chmod(p, m | 0o700)),
    ];
    proptest::collection::vec(proptest::collection::vec(edit, 1..12), 1..5)
}

/// Each edit either works or fails; what counts is what is there afterwards.
fn script(edits: &[Edit]) -> String {
    let mut out = String::new();
    for edit in edits {
        let line = match edit {
            Edit::Write(p, c) => format!("printf {c} > {}", PATHS[*p]),
            Edit::Mkdir(p) => format!("mkdir -p {}", PATHS[*p]),
            Edit::Remove(p) => format!("rm -rf {}", PATHS[*p]),
            Edit::Symlink(a, b) => format!("ln -sfn {} {}", PATHS[*a], PATHS[*b]),
            Edit::HardLink(a, b) => format!("ln -fnP {} {}", PATHS[*a], PATHS[*b]),
            Edit::Rename(a, b) => format!("mv -fT {} {}", PATHS[*a], PATHS[*b]),
            Edit::Chmod(p, m) => format!("[ -L {0} ] || chmod {m:o} {0}", PATHS[*p]),
        };
        out.push_str(&format!("{{ {line}; }} 2>/dev/null\n"));
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// A real overlay is edited in a mount namespace of its own; its upper directories become layers; what the layers
    /// show when they are unpacked is what the overlay showed.
    #[test]
    fn layers_of_any_edits_show_what_the_overlay_showed(steps in edits()) {
        if !root() {
            return Ok(());
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("base")).unwrap();
        let mut built = vec![dir.path().join("base")];
        let mut unpacked = built.clone();
        for (i, step) in steps.iter().enumerate() {
            let (upper, work, merged, seen) =
                (dir.path().join(format!("u{i}")), dir.path().join(format!("w{i}")), dir.path().join("m"), dir.path().join("seen.tar"));
            for path in [&upper, &work, &merged] {
                std::fs::create_dir_all(path).unwrap();
            }
            let lower: Vec<String> = built.iter().rev().map(|p| p.display().to_string()).collect();
            // Overlayfs may drop a mark that a directory no longer needs while it is read, and tar then says that the
            // directory changed: its exit code 1, which says nothing else.
            let script = format!(
                "mount -t overlay overlay -o lowerdir={},upperdir={},workdir={},redirect_dir=off,metacopy=off {m} || exit 9\n\
                 cd {m}\n{}tar --sort=name -cf {} .; [ $? -le 1 ] || exit 8\ncd /\numount {m}",
                lower.join(":"), upper.display(), work.display(), script(step), seen.display(), m = merged.display(),
            );
            let status = Command::new("unshare").args(["-m", "sh", "-c", &script]).status().unwrap();
            prop_assert!(status.success(), "{status}");
            let tar = commit(&upper, &built, None);
            prop_assert!(tar_of(&upper) == tar, "the directory isn't what its tar says");
            let marks = listing(&tar);
            prop_assert_eq!(marks.iter().collect::<BTreeSet<_>>().len(), marks.len());
            for name in &marks {
                let (parent, name) = name.rsplit_once('/').map_or(("", name.as_str()), |(p, n)| (p, n));
                if let Some(gone) = name.strip_prefix(".wh.").filter(|n| *n != ".wh..opq") {
                    let other = if parent.is_empty() { gone.to_owned() } else { format!("{parent}/{gone}") };
                    prop_assert!(!marks.iter().any(|m| *m == other || *m == format!("{other}/")), "{:?}", marks);
                }
            }
            let back = dir.path().join(format!("b{i}"));
            unpack(&tar, &back, &unpacked).unwrap();
            prop_assert!(tar_of(&back) == tar, "unpacked and written again it is another tar");
            built.push(upper);
            unpacked.push(back);

            let shown = dir.path().join(format!("shown{i}"));
            std::fs::create_dir(&shown).unwrap();
            let seen = std::fs::read(&seen).unwrap();
            unpack_plain(&mut seen.as_slice(), &shown, &Limits::default(), &Cancel::new().unwrap()).unwrap();
            let shown = describe(&tar_of(&shown));
            prop_assert_eq!(&merged_tree(&built), &shown);
            prop_assert_eq!(&merged_tree(&unpacked), &shown);
        }
    }

    /// Anything may stand in a tar: it is an error, or it is unpacked inside of the directory.
    #[test]
    fn any_entries_stay_inside(entries in proptest::collection::vec((0usize..14, 0usize..5, 0usize..14), 0..12)) {
        let names = ["a", "a/b", "/c", "../x", "a/../../y", ".wh.a", "a/.wh..wh..opq", ".", "l", "l/x", "l/l/x", ".wh..wh..opq", "b/.wh.l", "a/b/c/d"];
        let kinds = [FILE, DIR, LINK, HARD, EntryType::Fifo];
        let list: Vec<(&str, EntryType, &str)> =
            entries.iter().map(|(n, k, t)| (names[*n], kinds[*k], names[*t])).collect();
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("in")).unwrap();
        std::fs::write(dir.path().join("x"), "safe").unwrap();
        let _ = unpack(&archive(&list), &dir.path().join("in"), &[]);
        prop_assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
        prop_assert_eq!(std::fs::read(dir.path().join("x")).unwrap(), b"safe");
    }
}
