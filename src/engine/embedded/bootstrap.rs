//! Debian and Ubuntu bases made by mmdebstrap, or by debootstrap where that is all there is. The tools run in
//! namespaces of their own: what they mount is not mounted for anybody else, and nothing of them survives a run.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use super::helper::spec::{Bytes, RawPath, Report, Request, ToolSpec};
use super::run::DEFAULT_PATH;
use super::sandbox::{self, Streams};
use super::{EmbeddedEngine, build};
use crate::engine::{Bootstrap, Ctl, Snapshot};
use crate::error::{Context as _, Error, Result};
use crate::event::{Event, Stream};
use crate::image::store::Layer;
use crate::userns;

const LAST_LINES: usize = 12;
const SEARCHED: [&str; 4] = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"];
const KEYRINGS: &str = "/usr/share/keyrings";
/// Both tools copy the host's own into the base.
const OF_THE_HOST: [&str; 2] = ["etc/resolv.conf", "etc/hostname"];
const FORGET_HOST: &str = "rm -f \"$1/etc/resolv.conf\" \"$1/etc/hostname\"";
/// Where the tools see their temporary directory. apt downloads as a user of its own, who cannot get into a store, and
/// does so as root otherwise, which shows in the base. A directory that exists everywhere, and that no tool looks into.
const TEMPORARY: &str = "/boot";
/// Makes /bin, /sbin and /lib links before the first package is unpacked, where the suite wants them; without it the
/// package that does so afterwards comes with all of Perl.
const MERGED_USR_HOOK: &str = "/usr/share/mmdebstrap/hooks/maybe-merged-usr";

#[derive(Clone, Debug, PartialEq, Eq)]
enum Tool {
    Mmdebstrap(PathBuf),
    Debootstrap(PathBuf),
}

fn find_tool() -> Option<Tool> {
    let find = |name: &str| SEARCHED.iter().map(|dir| Path::new(dir).join(name)).find(|p| p.is_file());
    let mmdebstrap = find("mmdebstrap").map(Tool::Mmdebstrap);
    // The other one makes device nodes, or nothing.
    let is_root = userns::current().is_initial();
    mmdebstrap.or_else(|| find("debootstrap").filter(|_| is_root).map(Tool::Debootstrap))
}

pub fn preflight(wanted: &Bootstrap) -> Result<()> {
    if userns::current().is_single() {
        return Err(Error::unusable(format!(
            "the base {}:{} cannot be bootstrapped by a user without a range of ids",
            wanted.distribution, wanted.suite
        ))
        .cause("its packages have files of other users than root")
        .hint(format!("as root: `{}`, and install uidmap; or begin with an image that is there", userns::RANGES)));
    }
    if let (Some(_), Some(Tool::Debootstrap(_))) = (&wanted.snapshot, find_tool()) {
        let message = format!("the base {}:{} as it was once needs mmdebstrap", wanted.distribution, wanted.suite);
        return Err(Error::unusable(message)
            .cause("debootstrap takes one archive, and Debian's security updates are in another")
            .hint("apt-get install mmdebstrap"));
    }
    let no_tool = find_tool().is_none().then(|| no_tool(wanted));
    match (no_tool, keyring_problem(wanted, Path::new(KEYRINGS))) {
        (None, None) => Ok(()),
        (Some(one), None) | (None, Some(one)) => Err(one),
        (Some(one), Some(other)) => {
            let hint = other.hint_text().map(|h| format!(" ({h})")).unwrap_or_default();
            Err(one.cause(format!("and {other}{hint}")))
        }
    }
}

fn no_tool(wanted: &Bootstrap) -> Error {
    let tools = if userns::current().is_initial() { "mmdebstrap or debootstrap" } else { "mmdebstrap" };
    Error::unusable(format!("the base {}:{} needs {tools}", wanted.distribution, wanted.suite))
        .hint("apt-get install mmdebstrap")
}

/// A distribution whose keys are not those of the host needs its keyring.
fn keyring_problem(wanted: &Bootstrap, keyrings: &Path) -> Option<Error> {
    let base = format!("{}:{}", wanted.distribution, wanted.suite);
    if let Some(path) = &wanted.keyring {
        let missing = std::fs::metadata(path).err()?;
        return Some(
            Error::bad_input(format!("cannot read the keyring `{}` of the base {base}", path.display())).cause(missing),
        );
    }
    let (file, package) = match wanted.distribution.as_str() {
        "ubuntu" => ("ubuntu-archive-keyring.gpg", "ubuntu-keyring"),
        "debian" => ("debian-archive-keyring.gpg", "debian-archive-keyring"),
        _ => return None,
    };
    if keyrings.join(file).exists() {
        return None;
    }
    Some(
        Error::unusable(format!("the base {base} cannot be verified: `{KEYRINGS}/{file}` is not there"))
            .hint(format!("apt-get install {package}, or name another file with `keyring`")),
    )
}

/// Makes the base's one layer.
pub fn bootstrap(
    engine: &EmbeddedEngine,
    wanted: &Bootstrap,
    source_date_epoch: Option<i64>,
    ctl: &Ctl<'_>,
) -> Result<Layer> {
    if let Some(problem) = keyring_problem(wanted, Path::new(KEYRINGS)) {
        return Err(problem);
    }
    let tool = find_tool().ok_or_else(|| no_tool(wanted))?;
    let work = engine.store.work_dir()?;
    let temporary = work.path().join("tmp");
    std::fs::create_dir(&temporary).unusable(|| format!("cannot make `{}`", temporary.display()))?;
    let target = work.path().join("root");
    let argv = match &tool {
        Tool::Mmdebstrap(program) => mmdebstrap(program, wanted, Path::new(MERGED_USR_HOOK).is_dir()),
        Tool::Debootstrap(program) => debootstrap(program, wanted, &target),
    };
    let elsewhere = Path::new(TEMPORARY).is_dir();
    let seen = if elsewhere { Path::new(TEMPORARY) } else { &temporary };
    let env = environment(engine, seen, source_date_epoch);
    let seen_at = elsewhere.then(|| (RawPath::from(temporary.as_path()), RawPath::from(seen)));
    let request = Request::Tool(ToolSpec { argv, env, seen_at });
    let mut last = VecDeque::with_capacity(LAST_LINES);
    let mut show = |stream: Stream, line: String| {
        if last.len() == LAST_LINES {
            last.pop_front();
        }
        last.push_back(line.clone());
        ctl.sink.event(Event::Output { node: ctl.node.clone(), step: 1, stream, line });
    };
    let title = format!("Bootstrap {} {}", wanted.distribution, wanted.suite);
    let begun = std::time::Instant::now();
    ctl.sink.event(Event::StepStarted { node: ctl.node.clone(), step: 1, steps: 1, title });
    let helper = &engine.options.helper;
    let (report, layer) = match tool {
        Tool::Mmdebstrap(_) => {
            let (mut tar, writer) = std::io::pipe().unusable(|| "cannot make a pipe".into())?;
            let store = &engine.store;
            let cancel = ctl.cancel;
            let imported = std::thread::scope(|scope| {
                // The helper dies with the thread that starts it: that is this one, which waits for it.
                let import = scope.spawn(move || store.import_rootfs(&mut tar, source_date_epoch, cancel));
                let report = sandbox::call(helper, &request, Streams::Pipe(writer, &mut show), cancel);
                (report, import.join())
            });
            let layer = imported.1.unwrap_or_else(|_| Err(Error::failed("unpacking the base came to a sudden end")));
            (imported.0?, layer)
        }
        Tool::Debootstrap(_) => {
            let report = sandbox::call(helper, &request, Streams::Capture(&mut show), ctl.cancel)?;
            let layer = match report {
                Report::Exited(0) => tidy(&target)
                    .unusable(|| format!("cannot tidy up `{}`", target.display()))
                    .and_then(|()| engine.store.commit_upper(&target, &[], source_date_epoch)),
                _ => Err(Error::failed("nothing was made")),
            };
            (report, layer)
        }
    };
    if report != Report::Exited(0) {
        return Err(failed(wanted, &report, &last));
    }
    let layer = layer?;
    ctl.sink.event(Event::StepFinished { node: ctl.node.clone(), step: 1, reused: false, duration: begun.elapsed() });
    Ok(layer)
}

/// Most of these are about a mirror that cannot be reached: then the machine is in the way, not the definition.
fn failed(wanted: &Bootstrap, report: &Report, last: &VecDeque<String>) -> Error {
    let network = [
        "Could not resolve",
        "Failed to fetch",
        "Could not connect",
        "Unable to connect",
        "Couldn't download",
        "does not have a Release file",
    ];
    let telling = last.iter().find(|line| network.iter().any(|n| line.contains(n)));
    let unreachable = telling.is_some();
    let inner = build::ended_badly(report);
    let message = format!("cannot bootstrap {} {}", wanted.distribution, wanted.suite);
    let mut error = if unreachable { Error::unusable(message) } else { Error::failed(message) };
    error = error.cause(inner.message());
    if let Some(line) = telling {
        error = error.cause(line.trim());
    }
    match (unreachable, inner.hint_text()) {
        (true, _) => error.hint(match wanted.snapshot.as_deref() {
            None => "its mirror could not be reached: see `mirror` in the definition, and the machine's network".into(),
            Some(Snapshot { archive, moment }) => format!(
                "{archive} could not be reached, or has nothing of {moment}: `[build.debian] archive` names a copy that \
                 can be, and `snapshot = \"none\"` takes what mirrors have now"
            ),
        }),
        (false, Some(hint)) => error.hint(hint),
        (false, None) => error,
    }
}

fn mmdebstrap(program: &Path, wanted: &Bootstrap, merged_usr: bool) -> Vec<String> {
    let mut argv = vec![
        program.display().to_string(),
        "--mode=root".into(),
        "--format=tar".into(),
        format!("--variant={}", wanted.variant),
    ];
    if !wanted.components.is_empty() {
        argv.push(format!("--components={}", wanted.components.join(",")));
    }
    if !wanted.packages.is_empty() {
        argv.push(format!("--include={}", wanted.packages.join(",")));
    }
    if let Some(keyring) = &wanted.keyring {
        argv.push(format!("--keyring={}", keyring.display()));
    }
    if merged_usr {
        argv.push(format!("--hook-dir={MERGED_USR_HOOK}"));
    }
    argv.push(format!("--customize-hook={FORGET_HOST}"));
    if wanted.snapshot.is_some() {
        // What an archive had once was valid then. It stays in the base, whose sources are the same.
        argv.push("--aptopt=Acquire::Check-Valid-Until \"false\"".into());
    }
    argv.extend([wanted.suite.clone(), "-".into()]);
    argv.extend(wanted.mirror.clone());
    argv.extend(wanted.snapshot.iter().flat_map(|snapshot| snapshot_sources(wanted, snapshot)));
    argv
}

/// What a stable suite has on a mirror, as it was at one moment.
fn snapshot_sources(wanted: &Bootstrap, Snapshot { archive: root, moment }: &Snapshot) -> Vec<String> {
    let suite = &wanted.suite;
    let components = if wanted.components.is_empty() { "main".into() } else { wanted.components.join(" ") };
    let line = |archive: &str, suite: &str| format!("deb {root}/{archive}/{moment}/ {suite} {components}");
    let mut lines = vec![line("debian", suite)];
    if !matches!(suite.as_str(), "sid" | "unstable" | "experimental" | "rc-buggy") {
        lines.push(line("debian", &format!("{suite}-updates")));
        lines.push(line("debian-security", &format!("{suite}-security")));
    }
    lines
}

fn debootstrap(program: &Path, wanted: &Bootstrap, target: &Path) -> Vec<String> {
    let mut argv = vec![program.display().to_string()];
    // `standard` and `-` have other names or none here.
    if matches!(wanted.variant.as_str(), "minbase" | "buildd") {
        argv.push(format!("--variant={}", wanted.variant));
    }
    if !wanted.components.is_empty() {
        argv.push(format!("--components={}", wanted.components.join(",")));
    }
    if !wanted.packages.is_empty() {
        argv.push(format!("--include={}", wanted.packages.join(",")));
    }
    if let Some(keyring) = &wanted.keyring {
        argv.push(format!("--keyring={}", keyring.display()));
    }
    argv.extend([wanted.suite.clone(), target.display().to_string()]);
    argv.extend(wanted.mirror.clone());
    argv
}

/// Nothing of the caller's environment but the proxy: the result must not depend on who calls.
fn environment(engine: &EmbeddedEngine, temporary: &Path, source_date_epoch: Option<i64>) -> Vec<(String, Bytes)> {
    let mut env = vec![
        ("PATH".to_owned(), DEFAULT_PATH.to_owned()),
        // Root's own files say how root likes things; a user cannot even read them.
        ("HOME".to_owned(), temporary.display().to_string()),
        ("LANG".to_owned(), "C.UTF-8".to_owned()),
        ("DEBIAN_FRONTEND".to_owned(), "noninteractive".to_owned()),
        ("TMPDIR".to_owned(), temporary.display().to_string()),
    ];
    if let Some(epoch) = source_date_epoch {
        env.push(("SOURCE_DATE_EPOCH".to_owned(), epoch.to_string()));
    }
    env.extend(engine.options.lending.proxy.iter().cloned());
    env.into_iter().map(|(name, value)| (name, Bytes(value.into_bytes()))).collect()
}

/// debootstrap leaves what it downloaded, and logs and identities of one machine at one moment; mmdebstrap doesn't.
fn tidy(root: &Path) -> std::io::Result<()> {
    for dir in ["var/cache/apt/archives", "var/lib/apt/lists", "var/cache/apt"] {
        let Ok(entries) = std::fs::read_dir(root.join(dir)) else { continue };
        for entry in entries {
            let entry = entry?;
            let keep = ["lock", "partial", "archives", "auxfiles"];
            if !keep.iter().any(|name| entry.file_name() == *name) && entry.file_type()?.is_file() {
                std::fs::remove_file(entry.path())?;
            }
        }
    }
    let logs =
        ["var/log/bootstrap.log", "var/log/dpkg.log", "var/log/alternatives.log", "var/cache/ldconfig/aux-cache"];
    for file in logs.into_iter().chain(OF_THE_HOST) {
        match std::fs::remove_file(root.join(file)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    // Empty, it is made anew at the first boot.
    let machine_id = root.join("etc/machine-id");
    if std::fs::symlink_metadata(&machine_id).is_ok_and(|m| m.is_file()) {
        std::fs::write(&machine_id, "")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> Bootstrap {
        Bootstrap {
            distribution: "debian".into(),
            suite: "bookworm".into(),
            mirror: Some("http://localhost/debian".into()),
            components: vec!["main".into(), "contrib".into()],
            keyring: Some("/k.gpg".into()),
            variant: "minbase".into(),
            packages: vec!["ca-certificates".into(), "usr-is-merged".into()],
            snapshot: None,
        }
    }

    #[test]
    fn tools_are_called_with_what_the_definition_says() {
        let line = mmdebstrap(Path::new("/m"), &wanted(), true).join(" ");
        assert_eq!(
            line,
            "/m --mode=root --format=tar --variant=minbase --components=main,contrib \
             --include=ca-certificates,usr-is-merged --keyring=/k.gpg \
             --hook-dir=/usr/share/mmdebstrap/hooks/maybe-merged-usr \
             --customize-hook=rm -f \"$1/etc/resolv.conf\" \"$1/etc/hostname\" bookworm - http://localhost/debian"
        );
        let moment = "20261130T000000Z".to_owned();
        let snapshot = Snapshot { archive: "http://snapshot.debian.org/archive".into(), moment };
        let once = Bootstrap { mirror: None, snapshot: Some(Box::new(snapshot)), ..wanted() };
        let line = mmdebstrap(Path::new("/m"), &once, false);
        assert_eq!(
            line[line.len() - 6..],
            [
                "--aptopt=Acquire::Check-Valid-Until \"false\"",
                "bookworm",
                "-",
                "deb http://snapshot.debian.org/archive/debian/20261130T000000Z/ bookworm main contrib",
                "deb http://snapshot.debian.org/archive/debian/20261130T000000Z/ bookworm-updates main contrib",
                "deb http://snapshot.debian.org/archive/debian-security/20261130T000000Z/ bookworm-security main contrib",
            ]
        );
        let bare = Bootstrap { mirror: None, keyring: None, packages: Vec::new(), variant: "-".into(), ..wanted() };
        let line = debootstrap(Path::new("/d"), &bare, Path::new("/t")).join(" ");
        assert_eq!(line, "/d --components=main,contrib bookworm /t");
    }

    #[test]
    fn a_missing_keyring_is_said_with_its_package() {
        let dir = tempfile::tempdir().unwrap();
        let ubuntu = Bootstrap { distribution: "ubuntu".into(), keyring: None, ..wanted() };
        let error = keyring_problem(&ubuntu, dir.path()).unwrap();
        assert!(error.hint_text().unwrap().contains("ubuntu-keyring"));
        std::fs::write(dir.path().join("ubuntu-archive-keyring.gpg"), "").unwrap();
        assert!(keyring_problem(&ubuntu, dir.path()).is_none());
        let named = Bootstrap { keyring: Some(dir.path().join("none.gpg")), ..ubuntu };
        assert_eq!(keyring_problem(&named, dir.path()).unwrap().kind(), crate::error::Kind::BadInput);
    }

    #[test]
    fn an_unreachable_mirror_is_the_machines_fault() {
        let last = VecDeque::from(["E: Failed to fetch http://localhost/x  Could not connect".to_owned()]);
        let error = failed(&wanted(), &Report::Exited(25), &last);
        assert_eq!(error.kind(), crate::error::Kind::Unusable);
        assert!(error.causes().iter().any(|c| c.contains("Could not connect")), "{error}");
        assert_eq!(failed(&wanted(), &Report::Exited(1), &VecDeque::new()).kind(), crate::error::Kind::Failed);
    }
}
