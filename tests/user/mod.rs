//! Kollage called by an ordinary user who exists only as long as the call: in a mount namespace of its own, the call
//! sees an /etc/passwd with this user in it, and an /etc/subuid and /etc/subgid as the test wants them. Nothing of it is
//! in the machine's own files, so nothing has to be taken away. Takes root; shared by the test programs.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Of the user.
pub const UID: u32 = 54_321;
/// The range that `RANGE` gives, as useradd would.
pub const FIRST: u32 = 600_000;
pub const COUNT: u32 = 65_536;
pub const RANGE: &str = "builder:600000:65536\n";

pub struct User {
    script: PathBuf,
    range: bool,
}

impl User {
    /// `dir`, which must exist and have room for files of this, is made the user's. `change` is shell commands that make
    /// the machine another one before the user comes, for each call alone; they find `dir` in `$dir`, and may set
    /// `$options` of setpriv.
    pub fn new(dir: &Path, subuid: &str, subgid: &str, change: &str) -> User {
        let passwd = fs::read_to_string("/etc/passwd").unwrap();
        let own = dir.join("etc");
        fs::create_dir(&own).unwrap();
        fs::write(own.join("passwd"), format!("{passwd}builder:x:{UID}:{UID}::/nonexistent:/bin/sh\n")).unwrap();
        fs::write(own.join("subuid"), subuid).unwrap();
        fs::write(own.join("subgid"), subgid).unwrap();
        let (script, program) = (dir.join("as-user"), dir.join("program"));
        // Where the program was compiled, not everybody may look.
        fs::write(&program, "").unwrap();
        let text = format!(
            "set -e\ndir={dir} options=\nfor f in passwd subuid subgid; do mount --bind {etc}/$f /etc/$f; done\n\
             mount --bind {compiled} {program}\n{change}\n\
             exec setpriv $options --reuid {UID} --regid {UID} --clear-groups -- {program} \"$@\"\n",
            dir = dir.display(),
            etc = own.display(),
            compiled = env!("CARGO_BIN_EXE_kollage"),
            program = program.display(),
        );
        fs::write(&script, text).unwrap();
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
        lchown(dir, Some(UID), Some(UID)).unwrap();
        User { script, range: !subuid.is_empty() }
    }

    /// Kollage, as the user.
    pub fn command(&self) -> Command {
        let mut command = Command::new("/usr/bin/unshare");
        command.args(["--mount", "/bin/sh"]).arg(&self.script);
        command
    }

    /// Gives everything below `path` to the user: what was root's is theirs, and what was somebody else's belongs to
    /// one of their range, if they have one.
    pub fn give(&self, path: &Path) {
        let meta = path.symlink_metadata().unwrap();
        let id = |id: u32| match id {
            1..=COUNT if self.range && id < FIRST => FIRST + id - 1,
            _ => UID,
        };
        lchown(path, Some(id(meta.uid())), Some(id(meta.gid()))).unwrap();
        if !meta.is_symlink() {
            // A change of the owner takes bits away.
            fs::set_permissions(path, meta.permissions()).unwrap();
        }
        if meta.is_dir() {
            for entry in fs::read_dir(path).unwrap() {
                self.give(&entry.unwrap().path());
            }
        }
    }
}
