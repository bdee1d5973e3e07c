//! What a test needs of the machine.

use std::path::PathBuf;

/// Whether this machine can run the test. Where it has to, a missing tool fails.
pub fn ready(tools: &[&str]) -> bool {
    let missing: Vec<&str> = tools.iter().copied().filter(|tool| find(tool).is_none()).collect();
    let root = rustix::process::geteuid().is_root();
    if root && missing.is_empty() {
        return true;
    }
    assert!(std::env::var_os("CI").is_none(), "CI has to have root rights ({root}) and {missing:?}");
    eprintln!("skipped: needs root and {tools:?}; missing are {missing:?}");
    false
}

fn find(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(tool)).find(|file| file.is_file())
}
