//! Whether programs for another platform run on this machine: by the processor itself, or by an emulator that the kernel
//! starts for them (binfmt_misc).

use std::path::Path;

use crate::image::config::Platform;

/// Where the kernel lists what it starts for whom.
pub const BINFMT: &str = "/proc/sys/fs/binfmt_misc";

/// Why programs for the platform do not run here; None where they do.
pub fn refusal(platform: &Platform, binfmt: &Path) -> Option<String> {
    let host = Platform::host();
    let (own, wanted) = (host.architecture.as_str(), platform.architecture.as_str());
    if own == wanted || (own, wanted) == ("amd64", "386") {
        return None;
    }
    let name = format!("qemu-{}", qemu(platform));
    let Ok(entry) = std::fs::read_to_string(binfmt.join(&name)) else {
        return Some(format!("this machine is {host}, and has no emulator `{name}`"));
    };
    let line = |start: &str| entry.lines().find_map(|line| line.strip_prefix(start));
    if entry.lines().next() != Some("enabled") {
        return Some(format!("the emulator `{name}` is switched off"));
    }
    // Without `F` the kernel looks for the emulator in the image, where it isn't.
    if !line("flags:").is_some_and(|flags| flags.contains('F')) {
        return Some(format!("the emulator `{name}` does not work in images: it was set up without the flag F"));
    }
    None
}

/// What QEMU calls an architecture.
fn qemu(platform: &Platform) -> &str {
    match platform.architecture.as_str() {
        "amd64" => "x86_64",
        "386" => "i386",
        "arm64" => "aarch64",
        "loong64" => "loongarch64",
        "mips64le" => "mips64el",
        "mipsle" => "mipsel",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dockerfile::platform;

    #[test]
    fn what_runs_here_is_what_the_processor_or_an_emulator_runs() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(refusal(&Platform::host(), dir.path()), None);
        let foreign = if Platform::host().architecture == "arm64" { "riscv64" } else { "arm64" };
        let wanted = platform(&format!("linux/{foreign}")).unwrap();
        let entry = dir.path().join(format!("qemu-{}", qemu(&wanted)));
        let why = || refusal(&wanted, dir.path()).unwrap_or_default();
        assert!(why().contains("has no emulator"), "{}", why());
        std::fs::write(&entry, "enabled\ninterpreter /usr/bin/qemu\nflags: OC\noffset 0\n").unwrap();
        assert!(why().contains("without the flag F"), "{}", why());
        std::fs::write(&entry, "disabled\ninterpreter /usr/bin/qemu\nflags: F\n").unwrap();
        assert!(why().contains("switched off"), "{}", why());
        std::fs::write(&entry, "enabled\ninterpreter /usr/bin/qemu\nflags: POCF\noffset 0\n").unwrap();
        assert_eq!(refusal(&wanted, dir.path()), None);
    }
}
