//! The time since the run started, as a value that a test can set.

use std::sync::Arc;
use std::time::{Duration, Instant};

/// Tells how long the run has been going on. Cheap to clone; all clones agree.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl Clock {
    /// Starts now.
    pub fn start() -> Self {
        let start = Instant::now();
        Clock::new(move || start.elapsed())
    }

    pub fn new(elapsed: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Clock(Arc::new(elapsed))
    }

    pub fn elapsed(&self) -> Duration {
        (self.0)()
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Clock").field(&self.elapsed()).finish()
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A clock that stands still until it is told otherwise.
    #[derive(Clone, Default)]
    pub(crate) struct Hand(Arc<AtomicU64>);

    impl Hand {
        pub(crate) fn clock(&self) -> Clock {
            let millis = self.0.clone();
            Clock::new(move || Duration::from_millis(millis.load(Ordering::SeqCst)))
        }

        pub(crate) fn set(&self, millis: u64) {
            self.0.store(millis, Ordering::SeqCst);
        }
    }
}
