//! One stream of events to several readers.

use std::sync::Arc;

use crate::event::{Event, Sink};

/// Hands each event to every sink, in order.
pub struct Tee(Vec<Arc<dyn Sink>>);

impl Tee {
    pub fn new(sinks: Vec<Arc<dyn Sink>>) -> Self {
        Tee(sinks)
    }
}

impl Sink for Tee {
    fn event(&self, event: Event) {
        let Some((last, others)) = self.0.split_last() else { return };
        for sink in others {
            sink.event(event.clone());
        }
        last.event(event);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl Sink for Counter {
        fn event(&self, _: Event) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn every_sink_sees_every_event() {
        let (a, b) = (Arc::new(Counter::default()), Arc::new(Counter::default()));
        let tee = Tee::new(vec![a.clone(), b.clone()]);
        tee.event(Event::RunStarted { nodes: 1 });
        tee.event(Event::RunStarted { nodes: 2 });
        assert_eq!((a.0.load(Ordering::SeqCst), b.0.load(Ordering::SeqCst)), (2, 2));
        Tee::new(Vec::new()).event(Event::RunStarted { nodes: 1 });
    }
}
