//! What a Kolla tree calls itself in its images: the commit of a checkout, else the version of the package.

use std::fs;
use std::io::Read as _;
use std::path::Path;

/// Git shortens a commit to no less.
const SHORTEST: usize = 7;

/// `root` is the directory with the package `kolla` in it.
pub fn of(root: &Path) -> String {
    let git = root.join(".git");
    if let Some(commit) = commit(&git) {
        return commit.chars().take(length(objects(&git.join("objects"), 0))).collect();
    }
    metadata(root).map_or_else(|| "unknown".into(), |version| brief(&version))
}

/// What HEAD names, without running git.
fn commit(git: &Path) -> Option<String> {
    let head = fs::read_to_string(git.join("HEAD")).ok()?;
    let Some(reference) = head.trim().strip_prefix("ref: ") else { return Some(head.trim().to_owned()) };
    if let Ok(commit) = fs::read_to_string(git.join(reference)) {
        return Some(commit.trim().to_owned());
    }
    let packed = fs::read_to_string(git.join("packed-refs")).ok()?;
    packed.lines().find_map(|line| line.strip_suffix(reference)?.split_whitespace().next().map(str::to_owned))
}

/// Digits of a commit's short form: git takes more of them the more objects there are.
fn length(objects: u64) -> usize {
    let bits = (u64::BITS - objects.leading_zeros()) as usize;
    bits.div_ceil(2).max(SHORTEST)
}

/// In all packs, those of repositories that objects are borrowed from included.
fn objects(dir: &Path, depth: usize) -> u64 {
    const DEEPEST: usize = 5;
    let packs = fs::read_dir(dir.join("pack")).into_iter().flatten().flatten();
    let own: u64 = packs.filter_map(|entry| in_pack(&entry.path())).sum();
    let others = fs::read_to_string(dir.join("info/alternates")).unwrap_or_default();
    let others = others.lines().filter(|line| depth < DEEPEST && !line.is_empty() && !line.starts_with('#'));
    own + others.map(|line| objects(&dir.join(line), depth + 1)).sum::<u64>()
}

/// The last entry of an index's table of first bytes counts all objects.
fn in_pack(path: &Path) -> Option<u64> {
    const HEAD: [u8; 8] = [0xff, b't', b'O', b'c', 0, 0, 0, 2];
    const TABLE: usize = 256 * 4;
    path.extension().filter(|extension| *extension == "idx")?;
    let mut start = [0; HEAD.len() + TABLE];
    fs::File::open(path).ok()?.read_exact(&mut start).ok()?;
    let last = start.last_chunk::<4>().filter(|_| start.starts_with(&HEAD))?;
    Some(u32::from_be_bytes(*last).into())
}

/// The version that the package's metadata say.
fn metadata(root: &Path) -> Option<String> {
    fs::read_dir(root).ok()?.flatten().find_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let file = match name {
            _ if name.starts_with("kolla-") && name.ends_with(".dist-info") => "METADATA",
            _ if name.starts_with("kolla") && name.ends_with(".egg-info") => "PKG-INFO",
            _ => return None,
        };
        let text = fs::read_to_string(entry.path().join(file)).ok()?;
        text.lines().find_map(|line| line.strip_prefix("Version: ")).map(|version| version.trim().to_owned())
    })
}

/// The release that a version leads to: `24.0.0.dev1` and `24.0.0.0rc1` are called 24.0.0.
fn brief(version: &str) -> String {
    let number = |part: &&str| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit());
    let numbers: Vec<&str> = version.split('.').take_while(number).collect();
    match numbers.as_slice() {
        [] => version.to_owned(),
        numbers => numbers.iter().copied().chain(["0", "0"]).take(3).collect::<Vec<_>>().join("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_shortened_as_in_kolla_s_images() {
        for (version, short) in
            [("23.0.0", "23.0.0"), ("24.0.0.dev15", "24.0.0"), ("24.0.0.0rc1", "24.0.0"), ("24.1", "24.1.0")]
        {
            assert_eq!(brief(version), short);
        }
    }

    #[test]
    fn a_checkout_is_called_as_git_calls_it() {
        let dir = tempfile::tempdir().unwrap();
        let git = |args: &[&str]| {
            let mut command = std::process::Command::new("git");
            command.env("HOME", dir.path()).env("GIT_CONFIG_NOSYSTEM", "1").current_dir(dir.path());
            let name = ["-c", "user.name=t", "-c", "user.email=t@example.org"];
            let output = command.args(name).args(args).output().unwrap();
            assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        git(&["init", "-q"]);
        git(&["commit", "-q", "--allow-empty", "-m", "one"]);
        assert_eq!(of(dir.path()), git(&["log", "-n1", "--format=%h"]));
        git(&["pack-refs", "--all"]);
        git(&["repack", "-q", "-a", "-d"]);
        assert_eq!(objects(&dir.path().join(".git/objects"), 0), 2);
        assert_eq!(of(dir.path()), git(&["log", "-n1", "--format=%h"]));
        // 7 digits are enough for a repository of this size; a large one has more.
        assert_eq!([1, 16_383, 16_384, 200_000].map(length), [7, 7, 8, 9]);
    }
}
