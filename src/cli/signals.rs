//! Ctrl-C, SIGTERM and SIGHUP: once stops cleanly, twice stops now.

use std::io::Read;
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use crate::error::{Context as _, Result};
use crate::event::Cancel;

/// Sends every interruption of this process to `cancel`. `told` is called with how often it happened.
pub fn watch(cancel: &Cancel, told: impl Fn(usize) + Send + 'static) -> Result<()> {
    let say = || "cannot listen to signals".to_owned();
    let (mut read, write) = UnixStream::pair().unusable(say)?;
    pipe::register(SIGINT, write.try_clone().unusable(say)?).unusable(say)?;
    // The terminal was closed.
    pipe::register(SIGHUP, write.try_clone().unusable(say)?).unusable(say)?;
    pipe::register(SIGTERM, write).unusable(say)?;
    let cancel = cancel.clone();
    std::thread::spawn(move || {
        let mut count = 0;
        while matches!(read.read(&mut [0]), Ok(1)) {
            count += 1;
            cancel.cancel();
            told(count);
        }
    });
    Ok(())
}
