//! Which processes have which sockets: /proc/PID/fd names the inodes, /proc/PID/net what they are.

use crate::config::Pattern;
use crate::error::{Failure, Result, shown};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A process whose command line the pattern finds has a connection with one of the ports at either end.
pub fn connected(pattern: &str, ports: &[u16]) -> Result<()> {
    // LISTEN, SYN_RECV, TIME_WAIT and CLOSE are no connections.
    let connected = |socket: &Inet| socket.tcp && ![0x0a, 0x03, 0x06, 0x07].contains(&socket.state);
    let has = |socket: &Inet| connected(socket) && (ports.contains(&socket.local) || ports.contains(&socket.remote));
    inet(pattern, has, &format!("is connected with port {}", joined(ports)))
}

/// A process whose command line the pattern finds listens on one of the ports.
pub fn listening(pattern: &str, ports: &[u16]) -> Result<()> {
    let listens = |socket: &Inet| if socket.tcp { socket.state == 0x0a } else { socket.remote == 0 };
    inet(
        pattern,
        |socket| listens(socket) && ports.contains(&socket.local),
        &format!("listens on port {}", joined(ports)),
    )
}

fn joined(ports: &[u16]) -> String {
    ports.iter().map(u16::to_string).collect::<Vec<_>>().join(" or ")
}

fn inet(pattern: &str, wanted: impl Fn(&Inet) -> bool, what: &str) -> Result<()> {
    let regex =
        Pattern::new(pattern).map_err(|why| Failure::wrong(format!("`{pattern}` is no regular expression: {why}")))?;
    let processes = processes(|process| regex.finds_bytes(&process.command));
    let tables = |process: &Process| {
        let inodes = ["tcp", "tcp6", "udp", "udp6"].into_iter().flat_map(|table| {
            let text = fs::read_to_string(process.directory.join("net").join(table)).unwrap_or_default();
            let sockets = text.lines().skip(1).filter_map(|line| Inet::read(line, table.starts_with("tcp")));
            sockets.filter(|socket| wanted(socket)).map(|socket| socket.inode).collect::<Vec<_>>()
        });
        inodes.collect()
    };
    owned(&processes, tables, pattern, what)
}

/// A process of that name (as far as the kernel keeps names) has the socket open.
pub fn unix(name: &str, socket: &Path) -> Result<()> {
    let name = &name.as_bytes()[..name.len().min(15)];
    let processes = processes(|process| process.name.starts_with(name));
    let path = socket.as_os_str().as_bytes();
    let tables = |process: &Process| {
        let text = fs::read(process.directory.join("net/unix")).unwrap_or_default();
        text.split(|byte| *byte == b'\n').filter_map(|line| named(line, path)).collect()
    };
    owned(&processes, tables, &String::from_utf8_lossy(name), &format!("has the socket {} open", shown(socket)))
}

/// The inode of a line of /proc/net/unix with that path, which is all after the seventh field.
fn named(line: &[u8], path: &[u8]) -> Option<u64> {
    let mut fields = line.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
    let inode = fields.nth(6)?;
    let start = inode.as_ptr() as usize - line.as_ptr() as usize + inode.len() + 1;
    (line.get(start..) == Some(path)).then(|| std::str::from_utf8(inode).ok()?.parse().ok())?
}

struct Inet {
    tcp: bool,
    local: u16,
    remote: u16,
    state: u8,
    inode: u64,
}

impl Inet {
    fn read(line: &str, tcp: bool) -> Option<Inet> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let port = |field: usize| u16::from_str_radix(fields.get(field)?.rsplit_once(':')?.1, 16).ok();
        Some(Inet {
            tcp,
            local: port(1)?,
            remote: port(2)?,
            state: u8::from_str_radix(fields.get(3)?, 16).ok()?,
            inode: fields.get(9)?.parse().ok()?,
        })
    }
}

struct Process {
    id: u32,
    directory: PathBuf,
    name: Vec<u8>,
    /// Its arguments with blanks between them, or its name if it has none.
    command: Vec<u8>,
}

fn processes(wanted: impl Fn(&Process) -> bool) -> Vec<Process> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let directory = entry.path();
        // This check has the pattern in its own arguments.
        if id == std::process::id() {
            continue;
        }
        let Ok(mut name) = fs::read(directory.join("comm")) else { continue };
        name.pop_if(|last| *last == b'\n');
        let mut command = fs::read(directory.join("cmdline")).unwrap_or_default();
        while command.pop_if(|last| *last == 0).is_some() {}
        command.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b' ');
        if command.is_empty() {
            command.clone_from(&name);
        }
        let process = Process { id, directory, name, command };
        if wanted(&process) {
            found.push(process);
        }
    }
    found
}

/// Whether one of the processes has a socket with one of the inodes that `tables` finds for it.
fn owned(processes: &[Process], tables: impl Fn(&Process) -> BTreeSet<u64>, name: &str, what: &str) -> Result<()> {
    if processes.is_empty() {
        return Err(Failure::wrong(format!("no process is like `{name}`")));
    }
    let mut hidden = None;
    for process in processes {
        let wanted = tables(process);
        match fs::read_dir(process.directory.join("fd")) {
            Ok(entries) => {
                let links = entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
                if links.filter_map(|link| socket(&link)).any(|inode| wanted.contains(&inode)) {
                    return Ok(());
                }
            }
            // Another user's, unless it has just ended.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => hidden = Some(process.id),
            Err(_) => {}
        }
    }
    Err(Failure::wrong(match hidden {
        Some(id) => format!("cannot see what process {id} has open; check as its user, or as root"),
        None => format!("no process like `{name}` {what}"),
    }))
}

fn socket(link: &Path) -> Option<u64> {
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}
