use std::os::unix::fs::{PermissionsExt, symlink};

use proptest::prelude::*;

use super::*;

/// A tree of files that hold their own names; `link -> target` for links, a slash at the end for directories.
fn tree(paths: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for path in paths {
        let (path, target) = path.split_once(" -> ").map_or((*path, None), |(p, t)| (p, Some(t)));
        let full = dir.path().join(path);
        if path.ends_with('/') {
            fs::create_dir_all(&full).unwrap();
            continue;
        }
        fs::create_dir_all(full.parent().unwrap()).unwrap();
        match target {
            Some(target) => symlink(target, &full).unwrap(),
            None => fs::write(&full, path).unwrap(),
        }
    }
    dir
}

fn open(dir: &tempfile::TempDir) -> Arc<Context> {
    Context::open(dir.path(), None).unwrap()
}

/// Names of matches, and paths of everything below that is no directory.
fn files(context: &Context, pattern: &str) -> Vec<String> {
    let selected = context.select(pattern, &[]).unwrap();
    let entries = selected.iter().flat_map(|s| &s.entries).filter(|e| e.kind != EntryKind::Directory);
    entries.map(|e| e.path.display().to_string()).collect()
}

fn all(context: &Context, pattern: &str, excludes: &[&str]) -> Vec<String> {
    let excludes: Vec<String> = excludes.iter().map(|e| (*e).to_owned()).collect();
    let selected = context.select(pattern, &excludes).unwrap();
    selected.iter().flat_map(|s| &s.entries).map(|e| e.path.display().to_string()).collect()
}

#[test]
fn everything_in_order_with_kinds_and_modes() {
    let dir = tree(&["b/x", "a", "b/y/", "l -> b/x"]);
    fs::set_permissions(dir.path().join("a"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::set_permissions(dir.path().join("b/y"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    for pattern in [".", "/", "./", "", "x/.."] {
        let selected = open(&dir).select(pattern, &[]).unwrap();
        assert_eq!((selected.len(), selected[0].root.as_path()), (1, Path::new("")));
        let facts: Vec<_> =
            selected[0].entries.iter().map(|e| (e.path.to_str().unwrap(), e.kind.clone(), e.mode)).collect();
        assert_eq!(facts[0], ("", EntryKind::Directory, 0o755));
        assert_eq!(facts[1], ("a", EntryKind::File, 0o4751));
        assert_eq!(facts.iter().map(|f| f.0).collect::<Vec<_>>(), ["", "a", "b", "b/x", "b/y", "l"]);
        assert_eq!(facts[4], ("b/y", EntryKind::Directory, 0o700));
        assert_eq!(facts[5].1, EntryKind::Symlink("b/x".into()));
    }
}

#[test]
fn patterns() {
    let dir = tree(&["a.txt", "b.txt", "c.md", "d1/x.txt", "d1/e/y.txt", "d2/x.txt", "[z].txt", "w*.c"]);
    let context = open(&dir);
    assert_eq!(files(&context, "*.txt"), ["[z].txt", "a.txt", "b.txt"]);
    assert_eq!(files(&context, "?.md"), ["c.md"]);
    assert_eq!(files(&context, "d*/x.txt"), ["d1/x.txt", "d2/x.txt"]);
    assert_eq!(files(&context, "d[^2]"), ["d1/e/y.txt", "d1/x.txt"]);
    assert_eq!(files(&context, "*/*/*.txt"), ["d1/e/y.txt"]);
    assert_eq!(files(&context, "../d1/../d2/"), ["d2/x.txt"]);
    assert_eq!(files(&context, "[[]z].txt"), ["[z].txt"]);
    assert_eq!(files(&context, "\\[z].txt"), ["[z].txt"]);
    assert_eq!(files(&context, "w\\*.c"), ["w*.c"]);
    for missing in ["nothing", "no*thing", "a.txt/x", "a.txt/*", "d1/x.txt/..//nothing"] {
        assert_eq!(files(&context, missing), Vec::<String>::new(), "{missing}");
    }
    let error = context.select("a[", &[]).unwrap_err();
    assert_eq!(error.message(), "`a[` is not a pattern: a `[` without its `]`");
    assert_eq!(error.kind(), crate::error::Kind::BadInput);
}

/// As docker 20.10 copies `link` and `l*`: the content of the target under the link's own name.
#[test]
fn links_that_are_named_are_followed_within_the_context() {
    let dir = tree(&["d/y", "link -> d/y", "ldir -> /d", "up -> ../../../d", "d/in -> y", "round -> round"]);
    let context = open(&dir);
    let facts = |pattern: &str| {
        let selected = context.select(pattern, &[]).unwrap();
        let facts = |s: Selected| (s.name.into_string().unwrap(), s.root.display().to_string(), s.entries.len());
        selected.into_iter().map(facts).collect::<Vec<_>>()
    };
    let own = |name: &str, root: &str, count| vec![(name.to_owned(), root.to_owned(), count)];
    assert_eq!(facts("link"), own("link", "d/y", 1));
    assert_eq!(facts("lin*"), own("link", "d/y", 1));
    assert_eq!(facts("ldir"), own("ldir", "d", 3));
    assert_eq!(facts("up/y"), own("y", "d/y", 1));
    assert_eq!(facts("ldir/*n"), own("in", "d/y", 1));
    // Below a match, links stay links; a wildcard doesn't look into linked directories.
    assert_eq!(files(&context, "d"), ["d/in", "d/y"]);
    assert_eq!(facts("ld*/y"), []);
    assert!(context.select("round", &[]).is_err());
}

#[test]
fn links_that_lead_nowhere() {
    let dir = tree(&["gone -> nowhere", "a"]);
    let context = open(&dir);
    assert_eq!(files(&context, "gone"), Vec::<String>::new());
    assert!(context.select("g*", &[]).unwrap_err().message().contains("`gone`"));
    assert_eq!(files(&context, "."), ["a", "gone"]);
}

/// Case 6: moby 38645.
#[test]
fn an_exception_below_what_is_left_out() {
    let dir = tree(&["dir/target/file1", "dir/target/file2", "dir/other", "top"]);
    fs::write(dir.path().join(".dockerignore"), "*\n!*/target/*file1\n").unwrap();
    let context = open(&dir);
    assert_eq!(all(&context, ".", &[]), ["", "dir", "dir/target", "dir/target/file1"]);
    assert_eq!(files(&context, "dir/target/file*"), ["dir/target/file1"]);
    assert_eq!(files(&context, "dir"), ["dir/target/file1"]);
    assert_eq!(files(&context, "dir/other"), Vec::<String>::new());
    assert!(context.is_ignored(Path::new("/dir/other")));
    assert!(!context.is_ignored(Path::new("dir/target/file1")));
}

#[test]
fn what_is_left_out_is_not_there() {
    let dir = tree(&["Dockerfile", ".dockerignore", "secret/key", "a", "to-secret -> secret/key", "empty/", "only/x"]);
    fs::write(dir.path().join(".dockerignore"), "Dockerfile\n.dockerignore\nsecret\nonly/x\n").unwrap();
    let context = open(&dir);
    assert_eq!(all(&context, ".", &[]), ["", "a", "empty", "only", "to-secret"]);
    for missing in ["Dockerfile", "secret", "secret/key", "secret/*", "sec*", "to-secret"] {
        assert_eq!(all(&context, missing, &[]), Vec::<String>::new(), "{missing}");
    }
    assert_eq!(all(&context, "empty", &[]), ["empty"]);
}

/// Reading it would fail, were it tried.
#[test]
#[allow(clippy::print_stdout)]
fn a_directory_that_is_left_out_is_not_read() {
    if rustix::process::geteuid().is_root() {
        println!("skipped: root may read every directory");
        return;
    }
    let dir = tree(&["locked/x", "a"]);
    fs::write(dir.path().join(".dockerignore"), "locked\n.dockerignore\n!a/b\n").unwrap();
    fs::set_permissions(dir.path().join("locked"), fs::Permissions::from_mode(0o000)).unwrap();
    assert_eq!(all(&open(&dir), ".", &[]), ["", "a"]);
    fs::set_permissions(dir.path().join("locked"), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn the_file_beside_the_dockerfile_wins() {
    let dir = tree(&["a", "b", "sub/x"]);
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    write(".dockerignore", "a\n*ignore\n");
    write("other.dockerignore", "b\n*ignore\n");
    assert_eq!(files(&open(&dir), "[ab]"), ["b"]);
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("D.dockerignore"), "*").unwrap();
    for (dockerfile, expected) in [
        (PathBuf::from("other"), &["a"][..]),
        (dir.path().join("other"), &["a"]),
        (dir.path().join("Dockerfile"), &["b"]),
        (outside.path().join("D"), &[]),
    ] {
        let context = Context::open(dir.path(), Some(&dockerfile)).unwrap();
        assert_eq!(files(&context, "[ab]"), expected, "{dockerfile:?}");
    }
}

#[test]
fn a_bad_ignore_file_is_named_with_its_line() {
    let dir = tree(&["a"]);
    fs::write(dir.path().join(".dockerignore"), "# x\n\na[\n").unwrap();
    let error = Context::open(dir.path(), None).unwrap_err();
    assert!(error.message().starts_with("`a[` in line 3 of "), "{error}");
    assert!(Context::open(&dir.path().join("a"), None).unwrap_err().message().ends_with("is not a directory"));
    assert!(Context::open(&dir.path().join("none"), None).is_err());
}

#[test]
fn a_whole_tree_has_no_ignore_file() {
    let dir = tree(&["a"]);
    fs::write(dir.path().join(".dockerignore"), "*").unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711)).unwrap();
    let selected = Context::whole(dir.path()).select("/", &[]).unwrap();
    assert_eq!(selected[0].entries.len(), 3);
    assert_eq!(selected[0].entries[0].mode, 0o711);
}

/// The cases of the tests of BuildKit's `--exclude`.
#[test]
fn excludes_are_relative_to_the_match() {
    let dir = tree(&["d1/a.png", "d1/b.txt", "d2/c.png", "d2/e/f.txt", "hom.txt", "home"]);
    let context = open(&dir);
    assert_eq!(all(&context, ".", &["*/*.png"]), ["", "d1", "d1/b.txt", "d2", "d2/e", "d2/e/f.txt", "hom.txt", "home"]);
    assert_eq!(all(&context, "d*", &["*.png", "e"]), ["d1", "d1/b.txt", "d2"]);
    assert_eq!(all(&context, "d*", &["*"]), ["d1", "d2"]);
    assert_eq!(all(&context, "d2", &["*", "!e/f.txt"]), ["d2", "d2/e", "d2/e/f.txt"]);
    // What is named itself, or by a pattern, is never left out.
    assert_eq!(all(&context, "hom*", &["*.txt"]), ["hom.txt", "home"]);
    assert!(context.select(".", &["[".into()]).is_err());
}

#[test]
fn the_digest_is_of_content_and_not_of_time() {
    let dir = tree(&["d/a", "d/b", "d/l -> a"]);
    let table = HashTable::default();
    let digest = || {
        let context = open(&dir);
        context.digest(&context.select("d", &[]).unwrap(), &table).unwrap()
    };
    let before = digest();
    assert_eq!(digest(), before);
    let file = dir.path().join("d/a");
    fs::File::options().write(true).open(&file).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(digest(), before);
    let mut seen = vec![before];
    let mut changed = |what: &str| {
        let now = digest();
        assert!(!seen.contains(&now), "{what}");
        seen.push(now);
    };
    fs::write(&file, "other").unwrap();
    changed("content");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o700)).unwrap();
    changed("mode");
    fs::rename(&file, dir.path().join("d/c")).unwrap();
    changed("name");
    fs::remove_file(dir.path().join("d/l")).unwrap();
    symlink("b", dir.path().join("d/l")).unwrap();
    changed("link target");
    fs::remove_file(dir.path().join("d/l")).unwrap();
    fs::write(dir.path().join("d/l"), "b").unwrap();
    changed("kind");
    fs::create_dir(dir.path().join("d/z")).unwrap();
    changed("an empty directory");
}

#[test]
fn many_files_give_the_same_digest_in_any_order_of_threads() {
    let names: Vec<String> = (0..200).map(|n| format!("f{n}")).collect();
    let dir = tree(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let context = open(&dir);
    let selected = context.select(".", &[]).unwrap();
    let digests: Vec<_> = (0..3).map(|_| context.digest(&selected, &HashTable::default()).unwrap()).collect();
    assert_eq!(digests[0], digests[1]);
    assert_eq!(digests[1], digests[2]);
}

#[test]
fn a_file_that_goes_away_in_between_is_an_error_that_names_it() {
    let dir = tree(&["a"]);
    let context = open(&dir);
    let selected = context.select("a", &[]).unwrap();
    fs::remove_file(dir.path().join("a")).unwrap();
    let error = context.digest(&selected, &HashTable::default()).unwrap_err();
    assert!(error.message().ends_with("/a"), "{error}");
}

/// As `COPY --parents` sees it: paths of everything, directories with a slash.
fn parents(context: &Context, pivot: &str, pattern: &str, excludes: &[&str]) -> Vec<String> {
    let excludes: Vec<String> = excludes.iter().map(|e| (*e).to_owned()).collect();
    let selected = context.select_parents(pivot, pattern, &excludes).unwrap();
    let below = |s: &Selected| {
        let entries = s.entries.iter().filter(|e| e.path != s.root);
        entries
            .map(|e| (e.path.strip_prefix(&s.root).unwrap().display().to_string(), e.kind.clone()))
            .collect::<Vec<_>>()
    };
    let slash = |(path, kind)| if kind == EntryKind::Directory { format!("{path}/") } else { path };
    selected.iter().flat_map(below).map(slash).collect()
}

#[test]
fn parents_bring_the_directories_above_a_match() {
    let dir = tree(&["a/b/one.c", "a/b/two.h", "a/d/", "a/three.c", "e/b/four.c", "l -> a"]);
    let context = open(&dir);
    for (pivot, pattern, excludes, expected) in [
        (".", "a/b/one.c", &[][..], &["a/", "a/b/", "a/b/one.c"][..]),
        (".", "a/b", &[], &["a/", "a/b/", "a/b/one.c", "a/b/two.h"]),
        (".", "**/*.c", &[], &["a/", "a/b/", "a/b/one.c", "a/three.c", "e/", "e/b/", "e/b/four.c"]),
        (".", "a/d", &[], &["a/", "a/d/"]),
        (".", "*/b", &["**/*.h", "e"], &["a/", "a/b/", "a/b/one.c"]),
        ("a", "b/*.c", &[], &["b/", "b/one.c"]),
        ("*", "b/*.c", &[], &["b/", "b/one.c", "b/", "b/four.c", "b/", "b/one.c"]),
        ("l", "three.c", &[], &["three.c"]),
        (".", "l/three.c", &[], &[]),
        (".", "l", &[], &["l"]),
        (".", "none", &[], &[]),
    ] {
        assert_eq!(parents(&context, pivot, pattern, excludes), expected, "{pivot}/./{pattern}");
    }
    // A name that isn't there is nothing; a pattern that matches nothing still is the pivot.
    assert!(context.select_parents(".", "a/none", &[]).unwrap().is_empty());
    assert_eq!(context.select_parents(".", "a/none*", &[]).unwrap().len(), 1);
}

#[test]
fn parents_see_through_dockerignore() {
    let dir = tree(&["a/b/one.c", "a/b/two.c", "a/c/three.c"]);
    fs::write(dir.path().join(".dockerignore"), "a/b\n!a/b/two.c\n").unwrap();
    assert_eq!(parents(&open(&dir), ".", "**/*.c", &[]), ["a/", "a/b/", "a/b/two.c", "a/c/", "a/c/three.c"]);
}

/// What is put together is what would have been copied together.
fn copied(parts: &Parts, root: &Path) -> tempfile::TempDir {
    fn copy(from: &Path, to: &Path) {
        let metadata = fs::metadata(from).unwrap();
        if metadata.is_dir() {
            fs::create_dir_all(to).unwrap();
            for entry in fs::read_dir(from).unwrap() {
                let name = entry.unwrap().file_name();
                copy(&from.join(&name), &to.join(&name));
            }
            fs::set_permissions(to, metadata.permissions()).unwrap();
        } else {
            fs::copy(from, to).unwrap();
        }
    }
    let dir = tempfile::tempdir().unwrap();
    for from in parts.below.iter().rev().map(PathBuf::as_path).chain([root]) {
        copy(from, dir.path());
    }
    for (name, from) in &parts.put {
        copy(from, &dir.path().join(name));
    }
    dir
}

proptest! {
    #[test]
    fn parts_are_what_a_copy_of_them_would_be(
        places in prop::collection::vec(prop::collection::btree_map("[ab]/[cd]/[ef]|[ab]/[gh]|[ij]", "[xy]", 0..6), 3),
        modes in prop::collection::vec(0o700u32..0o777, 3),
        pattern in prop::sample::select(vec![".", "a", "*", "b/c", "?/g", "i", "put", "put/*", "*/c/e", "link", "a/../b"]),
    ) {
        let dirs: Vec<_> = places
            .iter()
            .zip(&modes)
            .map(|(files, mode)| {
                let names: Vec<&str> = files.keys().map(String::as_str).collect();
                let dir = tree(&names);
                for (name, text) in files {
                    fs::write(dir.path().join(name), text).unwrap();
                    fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(*mode)).unwrap();
                }
                if let Some(first) = names.first() {
                    symlink(first, dir.path().join("link")).unwrap();
                }
                dir
            })
            .collect();
        let put = [("put".into(), dirs[2].path().to_owned())].into();
        let parts = Parts { below: vec![dirs[1].path().to_owned()], put, follows: true };
        let copy = copied(&parts, dirs[0].path());
        let [seen, copied] = [
            Context::of_parts(dirs[0].path(), parts, None).unwrap(),
            Context::of_parts(copy.path(), Parts::default(), None).unwrap(),
        ];
        let [a, b] = [&seen, &copied].map(|context| context.select(pattern, &[]).unwrap());
        prop_assert_eq!(&a, &b);
        let table = HashTable::default();
        prop_assert_eq!(seen.digest(&a, &table).unwrap(), copied.digest(&b, &table).unwrap());
    }
}
