//! One page's commands, typed one after the other.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::page::{Block, Page};

pub struct Session {
    dir: tempfile::TempDir,
    store: PathBuf,
    /// Where `cd` has led.
    here: PathBuf,
}

impl Session {
    pub fn new(store: Option<&Path>) -> Session {
        let dir = tempfile::Builder::new().prefix("kollage-docs-").tempdir().unwrap();
        for name in ["home", "work"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let store = store.map_or_else(|| dir.path().join("store"), Path::to_owned);
        Session { here: dir.path().join("work"), store, dir }
    }

    pub fn block(&mut self, page: &Page, block: &Block) {
        let place = format!("{}:{}", page.name, block.line);
        if block.not_run.is_some() {
            return;
        }
        if let Some(name) = &block.file {
            let path = self.here.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, &block.text).unwrap();
            return;
        }
        for (position, command) in block.commands.iter().enumerate() {
            let expected = if position + 1 == block.commands.len() { block.exits } else { 0 };
            let (code, output) = self.types(&command.typed);
            let failed = |what: &str| panic!("{place}: {what}\n$ {}\n{output}", command.typed);
            if code != expected {
                failed(&format!("exits with {code}, not {expected}"));
            }
            let mut rest = output.lines();
            for shown in &command.shown {
                // In the order in which the page has them; what stands between them is left out.
                if !rest.any(|line| resembles(shown, line)) {
                    failed(&format!("does not show\n{shown}\n"));
                }
            }
        }
    }

    fn types(&mut self, typed: &str) -> (i32, String) {
        let left = self.dir.path().join("left");
        let program = Path::new(env!("CARGO_BIN_EXE_kollage")).parent().unwrap();
        // Standard error with standard output, in the order in which a person sees them.
        let script = format!("exec 2>&1; trap 'pwd > {}' EXIT; {typed}", left.display());
        let mut bash = Command::new("bash");
        bash.arg("-c").arg(script).current_dir(&self.here).env_clear().stdin(Stdio::null());
        bash.env("PATH", format!("{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", program.display()));
        bash.env("HOME", self.dir.path().join("home")).env("LANG", "C.UTF-8").env("KOLLAGE_STORE", &self.store);
        let output = bash.output().unwrap();
        if let Ok(here) = fs::read_to_string(&left) {
            self.here = PathBuf::from(here.trim_end());
        }
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// `…` stands for anything; blanks at the ends and how many there are between words don't count.
fn resembles(shown: &str, line: &str) -> bool {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (shown, line) = (words(shown), words(line));
    let parts: Vec<&str> = shown.split('…').map(str::trim).collect();
    let [first, middle @ .., last] = parts.as_slice() else { return shown == line };
    let Some(rest) = line.strip_prefix(first) else { return false };
    let mut rest = rest;
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}
