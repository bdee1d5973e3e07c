//! A socket of one step's own, behind which an ssh-agent answers as long as the step runs.
//!
//! Requests are looked at: a step may ask for the public keys and for signatures, and nothing else. It can neither
//! remove the caller's keys from the agent nor put some in. (Messages: draft-ietf-sshm-ssh-agent, section 5.)

use std::collections::HashMap;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::Timeout;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// What OpenSSH takes.
const LONGEST: u32 = 256 << 10;
/// Connections of one step at the same time.
const MOST: usize = 64;
/// For an agent that doesn't take a connection.
const PATIENCE: Duration = Duration::from_secs(10);

const FAILURE: u8 = 5;
const REQUEST_IDENTITIES: u8 = 11;
const SIGN_REQUEST: u8 = 13;
const EXTENSION: u8 = 27;
/// Tells the agent for which connection it is going to sign; a key that is bound to hosts needs it.
const SESSION_BIND: &[u8] = b"session-bind@openssh.com";

/// Ends, with everything that came through it, when it is dropped.
#[derive(Debug)]
pub struct Forward {
    socket: PathBuf,
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Forward {
    /// Makes the socket `name` in `dir`.
    pub fn start(dir: &Path, name: &str, agent: PathBuf) -> io::Result<Forward> {
        // A path of a socket has to be short; that of a store need not be.
        let opened = std::fs::File::open(dir)?;
        let short = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd())).join(name);
        let listener = UnixListener::bind(&short)?;
        std::fs::set_permissions(&short, std::fs::Permissions::from_mode(0o600))?;
        let (stopped, stop) = io::pipe()?;
        let thread =
            std::thread::Builder::new().name("ssh-agent".into()).spawn(move || accept(&listener, &stopped, &agent))?;
        Ok(Forward { socket: dir.join(name), stop: Some(stop), thread: Some(thread) })
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // Whatever became of it, it is over.
            let _ = thread.join();
        }
    }
}

/// Both ends of what is open, so that they can be shut from outside.
#[derive(Default)]
struct Open {
    next: u64,
    ends: HashMap<u64, Vec<UnixStream>>,
    stopped: bool,
}

type Shared = Arc<Mutex<Open>>;

impl Open {
    fn lock(shared: &Shared) -> std::sync::MutexGuard<'_, Open> {
        shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// None when there are too many, or it is too late.
    fn enter(shared: &Shared, client: &UnixStream) -> Option<u64> {
        let mut open = Open::lock(shared);
        if open.stopped || open.ends.len() >= MOST {
            return None;
        }
        let id = open.next;
        open.next += 1;
        open.ends.insert(id, vec![client.try_clone().ok()?]);
        Some(id)
    }

    fn add(shared: &Shared, id: u64, agent: &UnixStream) -> Option<()> {
        let mut open = Open::lock(shared);
        let ends = open.ends.get_mut(&id)?;
        ends.push(agent.try_clone().ok()?);
        (!open.stopped).then_some(())
    }

    fn leave(shared: &Shared, id: u64) {
        Open::lock(shared).ends.remove(&id);
    }

    fn stop(shared: &Shared) {
        let mut open = Open::lock(shared);
        open.stopped = true;
        for end in open.ends.values().flatten() {
            // One that is closed already needs no closing.
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

fn accept(listener: &UnixListener, stopped: &PipeReader, agent: &Path) {
    let shared = Shared::default();
    std::thread::scope(|scope| {
        loop {
            let mut fds = [
                PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(stopped.as_fd(), PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => break,
            }
            if !fds[1].revents().is_empty() {
                break;
            }
            let Ok((client, _)) = listener.accept() else { continue };
            let Some(id) = Open::enter(&shared, &client) else { continue };
            let shared = shared.clone();
            scope.spawn(move || {
                // Either side may go away at any time.
                let _ = serve(&client, agent, &shared, id);
                Open::leave(&shared, id);
            });
        }
        Open::stop(&shared);
    });
}

fn serve(mut client: &UnixStream, agent: &Path, shared: &Shared, id: u64) -> io::Result<()> {
    let agent = connect(agent)?;
    if Open::add(shared, id, &agent).is_none() {
        return Ok(());
    }
    while let Some(request) = receive(client)? {
        let answer = match is_allowed(&request) {
            true => {
                send(&agent, &request)?;
                receive(&agent)?.ok_or(io::ErrorKind::UnexpectedEof)?
            }
            false => vec![FAILURE],
        };
        send(client, &answer)?;
        client.flush()?;
    }
    Ok(())
}

/// Gives up on an agent that doesn't listen any more.
fn connect(agent: &Path) -> io::Result<UnixStream> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::net::sockopt::set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(agent)?)?;
    Ok(UnixStream::from(socket))
}

fn is_allowed(request: &[u8]) -> bool {
    match request.split_first() {
        Some((&(REQUEST_IDENTITIES | SIGN_REQUEST), _)) => true,
        Some((&EXTENSION, rest)) => {
            let length = u32::try_from(SESSION_BIND.len()).unwrap_or_default().to_be_bytes();
            rest.strip_prefix(&length).is_some_and(|rest| rest.starts_with(SESSION_BIND))
        }
        _ => false,
    }
}

/// None at the end.
fn receive(mut from: &UnixStream) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let length = u32::from_be_bytes(length);
    if length == 0 || length > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut message = vec![0; length as usize];
    from.read_exact(&mut message)?;
    Ok(Some(message))
}

fn send(mut to: &UnixStream, message: &[u8]) -> io::Result<()> {
    let length = u32::try_from(message.len()).map_err(|_| io::ErrorKind::InvalidData)?;
    to.write_all(&[&length.to_be_bytes()[..], message].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(message: &[u8]) -> Vec<u8> {
        [&u32::try_from(message.len()).unwrap().to_be_bytes()[..], message].concat()
    }

    fn extension(name: &[u8]) -> Vec<u8> {
        [&[EXTENSION][..], &frame(name), b"data"].concat()
    }

    /// An agent that answers with what it was asked, until its connection ends.
    fn echo(dir: &Path) -> PathBuf {
        let path = dir.join("echo");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                std::thread::spawn(move || {
                    while let Ok(Some(message)) = receive(&stream) {
                        send(&stream, &[b"echo", &message[..]].concat()).unwrap();
                    }
                });
            }
        });
        path
    }

    #[test]
    fn only_keys_and_signatures_are_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let forward = Forward::start(dir.path(), "step", echo(dir.path())).unwrap();
        let client = UnixStream::connect(forward.socket()).unwrap();
        let ask = |message: &[u8]| {
            send(&client, message).unwrap();
            receive(&client).unwrap().unwrap()
        };
        for allowed in [vec![REQUEST_IDENTITIES], [&[SIGN_REQUEST][..], b"blob"].concat(), extension(SESSION_BIND)] {
            assert_eq!(ask(&allowed), [b"echo", &allowed[..]].concat());
        }
        // Add, remove, remove all, lock, with constraints, from a token; other extensions.
        for kind in [1, 9, 17, 18, 19, 20, 22, 23, 25, 26, 0, 255] {
            assert_eq!(ask(&[kind, 0, 0, 0, 0]), [FAILURE], "{kind}");
        }
        assert_eq!(ask(&extension(b"other@example.org")), [FAILURE]);
        assert_eq!(ask(&[EXTENSION]), [FAILURE]);
    }

    #[test]
    fn it_ends_whatever_a_client_does() {
        let dir = tempfile::tempdir().unwrap();
        let forward = Forward::start(dir.path(), "step", echo(dir.path())).unwrap();
        let connect = || UnixStream::connect(forward.socket()).unwrap();
        // Says nothing; stops in the middle; announces too much.
        let silent = connect();
        let mut half = connect();
        half.write_all(&[0, 0, 0, 9, REQUEST_IDENTITIES]).unwrap();
        let mut huge = connect();
        huge.write_all(&[255; 16]).unwrap();
        assert_eq!(huge.read(&mut [0; 8]).unwrap_or(0), 0);
        // More than are served at once.
        let many: Vec<UnixStream> = (0..2 * MOST).map(|_| connect()).collect();
        drop(forward);
        for mut stream in [silent, half].into_iter().chain(many) {
            assert_eq!(stream.read(&mut [0; 8]).unwrap_or(0), 0);
        }
        assert!(UnixStream::connect(dir.path().join("step")).is_err());
    }

    #[test]
    fn an_agent_that_is_gone_is_a_connection_that_ends() {
        let dir = tempfile::tempdir().unwrap();
        let forward = Forward::start(dir.path(), "step", dir.path().join("nowhere")).unwrap();
        let mut client = UnixStream::connect(forward.socket()).unwrap();
        let _ = client.write_all(&frame(&[REQUEST_IDENTITIES]));
        assert_eq!(client.read(&mut [0; 8]).unwrap_or(0), 0);
    }

    #[test]
    fn a_deep_directory_is_no_obstacle() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(100)).join("e".repeat(100));
        std::fs::create_dir_all(&deep).unwrap();
        let forward = Forward::start(&deep, "step", echo(dir.path())).unwrap();
        assert!(std::fs::symlink_metadata(forward.socket()).is_ok());
    }
}
