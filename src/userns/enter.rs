//! An ordinary user becomes root of a namespace of their own: before this process has a second thread it makes a user
//! namespace and a mount namespace, and executes itself again in them with the same arguments. Number, terminal and
//! parent of the process stay what they are.
//!
//! newuidmap and newgidmap give the ranges. They have to be called from outside of the new namespace, by somebody who
//! is still the user, so a child is started before: this program again, which waits for its word.
//!
//! `unsafe`: rustix calls `unshare` unsafe because of CLONE_FILES. There is one thread here, and the kernel refuses a
//! new user namespace to a process with more.
#![allow(unsafe_code)]

use std::convert::Infallible;
use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::UnshareFlags;

use super::problem::{self, Machine, Step};
use super::{Extent, subid};
use crate::error::{Context as _, Error, Result};

/// The hidden command of the child.
const MAPPER: &str = "__map-ids";
const SEARCHED: [&str; 4] = ["/usr/bin", "/bin", "/usr/local/bin", "/run/wrappers/bin"];
const SELF: &str = "/proc/self/exe";

/// What the namespace will have.
struct Plan {
    uids: Vec<Extent>,
    gids: Vec<Extent>,
    tools: Option<Tools>,
}

struct Tools {
    newuidmap: PathBuf,
    newgidmap: PathBuf,
}

/// Never returns when it succeeds: this program is executed again, as root of the namespace.
pub fn enter() -> Result<Infallible> {
    let plan = plan()?;
    let mapper = plan.tools.as_ref().map(|tools| Mapper::start(&plan, tools)).transpose()?;
    let machine = Machine::read();
    // SAFETY: see the head of this module.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }
        .map_err(|e| problem::explain(Step::Unshare, e, &machine))?;
    match mapper {
        Some(mapper) => mapper.map()?,
        None => map_one(&plan).map_err(|e| problem::explain(Step::Map, e, &machine))?,
    }
    // What the host mounts from now on is seen; nothing that is mounted here is seen there. Ubuntu lets everybody make
    // a namespace, and takes the rights in it away: this is the first call to notice.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .map_err(|e| problem::explain(Step::Mount, e, &machine))?;
    let mut args = std::env::args_os();
    let mut command = Command::new(SELF);
    if let Some(name) = args.next() {
        command.arg0(name);
    }
    let error = command.args(args).exec();
    Err(Error::unusable("cannot start again in a user namespace").cause(error))
}

fn plan() -> Result<Plan> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let names = names(uid);
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let uids = subid::ranges(&read("/etc/subuid"), &names);
    let gids = subid::ranges(&read("/etc/subgid"), &names);
    let who = names.first().map_or_else(|| uid.to_string(), Clone::clone);
    for (have, lack, file, option) in
        [(&uids, &gids, "/etc/subgid", "--add-subgids"), (&gids, &uids, "/etc/subuid", "--add-subuids")]
    {
        if let (Some((first, count)), true) = (have.first(), lack.is_empty()) {
            return Err(Error::unusable(format!("{who} has a range of ids, but none in {file}"))
                .hint(format!("as root: `usermod {option} {first}-{} {who}`", first + (count - 1))));
        }
    }
    let tools = match uids.is_empty() {
        true => None,
        false => {
            let find = |name: &str| SEARCHED.iter().map(|dir| Path::new(dir).join(name)).find(|p| p.is_file());
            let (Some(newuidmap), Some(newgidmap)) = (find("newuidmap"), find("newgidmap")) else {
                return Err(Error::unusable(format!(
                    "{who} has a range of ids in /etc/subuid, and newuidmap, which gives them out, is not there"
                ))
                .hint("install it: `apt-get install uidmap`"));
            };
            Some(Tools { newuidmap, newgidmap })
        }
    };
    Ok(Plan { uids: subid::map(uid, &uids), gids: subid::map(gid, &gids), tools })
}

/// What the files may call a user: by name, wherever names come from, and by number.
fn names(uid: u32) -> Vec<String> {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = name_of(&passwd, uid).or_else(|| {
        let output = Command::new("getent").arg("passwd").arg(uid.to_string()).stderr(Stdio::null()).output().ok()?;
        name_of(&String::from_utf8_lossy(&output.stdout), uid)
    });
    name.into_iter().chain([uid.to_string()]).collect()
}

fn name_of(passwd: &str, uid: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

/// Only the one id: a process may write that itself, once it has given up its groups.
fn map_one(plan: &Plan) -> std::io::Result<()> {
    std::fs::write("/proc/self/setgroups", "deny")?;
    for (name, ids) in [("uid_map", &plan.uids), ("gid_map", &plan.gids)] {
        let line = |e: &Extent| format!("{} {} {}\n", e.inside, e.outside, e.count);
        std::fs::write(format!("/proc/self/{name}"), ids.iter().map(line).collect::<String>())?;
    }
    Ok(())
}

/// The child that has stayed outside.
struct Mapper {
    child: Child,
}

impl Mapper {
    fn start(plan: &Plan, tools: &Tools) -> Result<Mapper> {
        let mut command = Command::new(SELF);
        command.arg(MAPPER).arg(std::process::id().to_string());
        for (program, ids) in [(&tools.newuidmap, &plan.uids), (&tools.newgidmap, &plan.gids)] {
            command.arg(program).arg(ids.len().to_string());
            for e in ids {
                command.args([e.inside, e.outside, e.count].map(|n| n.to_string()));
            }
        }
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        Ok(Mapper { child: child.unusable(|| "cannot start the helper that maps ids".into())? })
    }

    /// Tells it to go on, and waits for what it has to say: nothing when all went well.
    fn map(mut self) -> Result<()> {
        let cannot = || "cannot talk to the helper that maps ids".to_owned();
        if let Some(mut go) = self.child.stdin.take() {
            go.write_all(b"go").unusable(cannot)?;
        }
        let output = self.child.wait_with_output().unusable(cannot)?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Err(problem::not_mapped(&said))
    }
}

/// To be called before there are threads: does the child's work when this process is one.
pub fn mapper_if_called(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut args = args.into_iter().skip(1);
    if args.next()? != MAPPER {
        return None;
    }
    let mut word = String::new();
    // The parent may have failed meanwhile; then there is nothing to map.
    if std::io::stdin().read_to_string(&mut word).is_err() || word != "go" {
        return Some(ExitCode::FAILURE);
    }
    let said = map_with_tools(&mut args)?;
    // Whoever reads this is the parent; when it is gone, nobody needs to know.
    let _ = std::io::stdout().write_all(said.as_bytes());
    Some(if said.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What went wrong; None for arguments that the parent doesn't give.
fn map_with_tools(args: &mut impl Iterator<Item = OsString>) -> Option<String> {
    let process = args.next()?;
    while let Some(program) = args.next() {
        let extents: usize = args.next()?.to_str()?.parse().ok()?;
        let numbers: Vec<OsString> = args.by_ref().take(extents.checked_mul(3)?).collect();
        let name = Path::new(&program).display().to_string();
        match Command::new(&program).arg(&process).args(numbers).stdin(Stdio::null()).output() {
            Ok(output) if output.status.success() => {}
            Ok(output) => {
                let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                return Some(if text.is_empty() { format!("{name}: {}", output.status) } else { text });
            }
            Err(e) => return Some(format!("{name}: {e}")),
        }
    }
    Some(String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_passwd() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nbad\nkim:x:1001:1001::/home/kim:/bin/sh\n";
        assert_eq!(name_of(passwd, 1001).as_deref(), Some("kim"));
        assert_eq!(name_of(passwd, 1), None);
    }

    #[test]
    fn the_child_calls_each_tool_with_its_numbers() {
        let args = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>().into_iter();
        let ok = map_with_tools(&mut args(&["7", "/bin/true", "1", "0", "1", "1", "/bin/true", "0"]));
        assert_eq!(ok.as_deref(), Some(""));
        let script = "/bin/false";
        let failed = map_with_tools(&mut args(&["7", script, "1", "0", "1", "1"])).unwrap();
        assert!(failed.contains("/bin/false: exit status"), "{failed}");
        let missing = map_with_tools(&mut args(&["7", "/nowhere/newuidmap", "0"])).unwrap();
        assert!(missing.contains("/nowhere/newuidmap: "), "{missing}");
        assert_eq!(map_with_tools(&mut args(&["7", "/bin/true", "many"])), None);
        assert!(mapper_if_called(args(&["kollage", "build"])).is_none());
    }
}
