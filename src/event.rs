//! What happens during a run, told to whoever wants to show or record it; and how a run is told to stop.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::error::{Error, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// Nodes are named the way a person names them: `keystone`, `neutron-server+networking-bgpvpn`, `debian:bookworm`.
#[derive(Clone, Debug)]
pub enum Event {
    /// The plan is known: how many nodes there are to deal with.
    RunStarted {
        nodes: usize,
    },
    /// How long it will take from now on, as far as earlier runs tell. Told again whenever that has changed.
    Forecast {
        remaining: Duration,
        /// Nodes that were never measured and are not in it: with any of them it takes longer.
        unmeasured: usize,
    },
    NodeStarted {
        node: Arc<str>,
        reason: String,
        /// Which of the run's workers has it, from 0.
        worker: usize,
    },
    /// `title` is what a person reads: `Install packages: memcached` or the instruction itself.
    StepStarted {
        node: Arc<str>,
        step: usize,
        steps: usize,
        title: String,
    },
    /// One line of output, without its line end; never contains a secret's value.
    Output {
        node: Arc<str>,
        step: usize,
        stream: Stream,
        line: String,
    },
    /// It failed for want of the network, and will be tried again after `wait`.
    StepRetried {
        node: Arc<str>,
        step: usize,
        /// The one that comes, counted from 1, and how many there may be.
        attempt: u32,
        attempts: u32,
        wait: Duration,
        reason: String,
    },
    StepFinished {
        node: Arc<str>,
        step: usize,
        reused: bool,
        duration: Duration,
    },
    /// Built or reused; `duration` is the time it took in this run.
    NodeFinished {
        node: Arc<str>,
        outcome: Outcome,
        duration: Duration,
    },
    /// Work behind the critical path: compressing, writing an archive, pulling a blob.
    Background {
        node: Arc<str>,
        title: String,
    },
    /// Nothing goes on behind this node any more; the end of a node ends its background work too.
    BackgroundFinished {
        node: Arc<str>,
    },
    Warning {
        node: Option<Arc<str>>,
        message: String,
    },
}

#[derive(Clone, Debug)]
pub enum Outcome {
    Built,
    /// With the reason, as the plan words it.
    Reused(String),
    Failed(Error),
    /// Names the failed node on which this one depends.
    Skipped(Arc<str>),
    Cancelled,
}

pub trait Sink: Send + Sync {
    fn event(&self, event: Event);
}

/// For callers that show nothing.
pub struct Silent;

impl Sink for Silent {
    fn event(&self, _: Event) {}
}

/// Asked once: stop cleanly. Asked twice: stop now.
#[derive(Clone, Debug)]
pub struct Cancel {
    inner: Arc<CancelInner>,
}

#[derive(Debug)]
struct CancelInner {
    level: AtomicU8,
    wake: OwnedFd,
}

impl Cancel {
    pub fn new() -> Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| Error::unusable("cannot create an eventfd").cause(e))?;
        Ok(Cancel { inner: Arc::new(CancelInner { level: AtomicU8::new(0), wake }) })
    }

    pub fn cancel(&self) {
        self.inner.level.fetch_add(1, Ordering::SeqCst);
        // A full counter means that it is readable already, which is all that is wanted.
        let _ = rustix::io::write(&self.inner.wake, &1u64.to_ne_bytes());
    }

    pub fn is_cancelled(&self) -> bool {
        self.inner.level.load(Ordering::SeqCst) > 0
    }

    pub fn is_forced(&self) -> bool {
        self.inner.level.load(Ordering::SeqCst) > 1
    }

    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::interrupted()) } else { Ok(()) }
    }

    /// Ends early, with an error, when the run is cancelled.
    pub fn sleep(&self, time: Duration) -> Result<()> {
        let mut fds = [PollFd::from_borrowed_fd(self.fd(), PollFlags::IN)];
        let until = Instant::now().checked_add(time);
        loop {
            self.check()?;
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(());
            }
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut fds, left.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(Error::unusable("cannot wait").cause(e)),
            }
        }
    }

    /// Becomes and stays readable once the run is cancelled: for `poll` beside a child's output.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.inner.wake.as_fd()
    }
}
