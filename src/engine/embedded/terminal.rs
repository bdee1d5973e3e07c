//! A terminal of a command's own, shown on the caller's: what is typed there goes to it byte for byte, what the command
//! writes comes back, and a change of the one's size becomes the other's.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::termios::{tcgetwinsize, tcsetwinsize};

use super::helper::spec::TerminalSize;
use crate::error::{Context as _, Result};

/// The caller's, which has to pass on everything that is typed (raw mode).
#[derive(Debug)]
pub struct Terminal {
    pub input: OwnedFd,
    pub output: OwnedFd,
    /// Becomes readable whenever its size has changed.
    pub resized: OwnedFd,
}

/// One that is being shown.
#[derive(Debug)]
pub(super) struct Shown(JoinHandle<()>);

impl Terminal {
    pub(super) fn size(&self) -> TerminalSize {
        match tcgetwinsize(&self.output) {
            Ok(size) => TerminalSize { rows: size.ws_row, columns: size.ws_col },
            Err(_) => TerminalSize { rows: 24, columns: 80 },
        }
    }

    /// Passes bytes both ways until nobody has the command's side open any more.
    pub(super) fn show(self, theirs: OwnedFd) -> Result<Shown> {
        rustix::io::ioctl_fionbio(&theirs, true).unusable(|| "cannot use the terminal of a step".into())?;
        let shown = std::thread::Builder::new().name("terminal".into()).spawn(move || self.pass_on(theirs));
        Ok(Shown(shown.unusable(|| "cannot start a thread".into())?))
    }

    fn pass_on(self, theirs: OwnedFd) {
        let (mut input, mut output) = (Some(File::from(self.input)), File::from(self.output));
        let (mut resized, mut theirs) = (File::from(self.resized), File::from(theirs));
        let mut typed: Vec<u8> = Vec::new();
        let mut buffer = vec![0u8; 16 * 1024];
        loop {
            // What was typed waits for whoever reads slowly, and more is not taken meanwhile.
            let interest = if typed.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
            let mut fds = vec![PollFd::new(&theirs, interest), PollFd::new(&resized, PollFlags::IN)];
            if let Some(input) = input.as_ref().filter(|_| typed.is_empty()) {
                fds.push(PollFd::from_borrowed_fd(input.as_fd(), PollFlags::IN));
            }
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            let ready: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
            if ready[0].intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                match theirs.read(&mut buffer) {
                    // A terminal that nobody sees any more is no reason to stop the command.
                    Ok(n) if n > 0 => drop(output.write_all(&buffer[..n]).and_then(|()| output.flush())),
                    Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::AGAIN | Errno::INTR)) => {}
                    // EIO: the last one on the other side has closed it.
                    _ => return,
                }
            }
            if ready[0].contains(PollFlags::OUT)
                && let Ok(n) = theirs.write(&typed)
            {
                typed.drain(..n);
            }
            if !ready[1].is_empty() {
                let told = resized.read(&mut buffer);
                if matches!(told, Ok(n) if n > 0)
                    && let Ok(size) = tcgetwinsize(&output)
                {
                    let _ = tcsetwinsize(&theirs, size);
                }
            }
            if ready.get(2).is_some_and(|ready| !ready.is_empty()) {
                match input.as_mut().map(|input| input.read(&mut buffer)) {
                    Some(Ok(n)) if n > 0 => typed.extend_from_slice(&buffer[..n]),
                    // Nothing more will be typed.
                    _ => input = None,
                }
            }
        }
    }
}

impl Shown {
    /// Returns when everything that the command has written is shown.
    pub(super) fn finish(self) {
        // A thread that panicked has shown what it could.
        let _ = self.0.join();
    }
}
