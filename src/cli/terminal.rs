//! The terminal that a person sits at, lent to a command that has one of its own.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcsetattr};
use signal_hook::consts::SIGWINCH;
use signal_hook::low_level::pipe;

use crate::engine::embedded::terminal::Terminal;
use crate::error::{Context as _, Error, Result};

/// Until it is dropped, everything that is typed is passed on: Ctrl-C is one more byte, for the command.
pub struct Raw {
    before: Termios,
}

/// The terminal behind standard input and output.
pub fn borrow(flag: &str) -> Result<(Terminal, Raw)> {
    for (name, is_one) in [("input", isatty(io::stdin())), ("output", isatty(io::stdout()))] {
        if !is_one {
            return Err(Error::bad_input(format!("{flag} needs a terminal, and standard {name} is none")));
        }
    }
    let say = || "cannot use the terminal".to_owned();
    let (resized, write) = UnixStream::pair().unusable(say)?;
    pipe::register(SIGWINCH, write).unusable(say)?;
    let terminal = Terminal {
        input: io::stdin().as_fd().try_clone_to_owned().unusable(say)?,
        output: io::stdout().as_fd().try_clone_to_owned().unusable(say)?,
        resized: resized.into(),
    };
    let before = tcgetattr(io::stdin()).unusable(say)?;
    let mut raw = before.clone();
    raw.make_raw();
    tcsetattr(io::stdin(), OptionalActions::Now, &raw).unusable(say)?;
    Ok((terminal, Raw { before }))
}

impl Drop for Raw {
    fn drop(&mut self) {
        // If it is gone, so is whoever would mind.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}
