//! The thread between receivers and whoever uses graphs: takes batches from the queue, assembles,
//! hands on what is ready.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::thread::JoinHandle;
use std::time::Duration;

use firm_model::{Clock, ExecutionGraph};
use serde::Serialize;

use crate::assemble::{AssemblyCounts, AssemblyLimits, StreamAssembler};
use crate::receive::{Refused, SpanReceiver};

/// Longest wait between two looks for what is ready, so that readiness is noticed in time.
const TICK: Duration = Duration::from_millis(20);

/// Most batches taken between two looks for what is ready.
const BURST: usize = 64;

/// What became of spans and graphs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LiveCounts {
    /// The assembler's counts.
    pub assembly: AssemblyCounts,
    /// Graphs handed on.
    pub graphs: u64,
    /// Graphs dropped because the consumer had no room.
    pub dropped_graphs: u64,
    /// Spans that the assembler holds.
    pub held_spans: u64,
}

/// Assembly running in a thread of its own.
#[derive(Debug)]
pub struct Tracer {
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    counts: std::sync::Mutex<LiveCounts>,
}

impl Shared {
    fn counts(&self) -> LiveCounts {
        // Plain numbers: right even if a writer died.
        *self
            .counts
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn publish(&self, counts: LiveCounts) {
        *self
            .counts
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = counts;
    }
}

impl Tracer {
    /// Starts the thread. Graphs go into `graphs`; one that finds no room is dropped and counted,
    /// so that a slow consumer never holds up spans.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        spans: SpanReceiver,
        limits: AssemblyLimits,
        clock: Arc<dyn Clock>,
        graphs: SyncSender<ExecutionGraph>,
    ) -> std::io::Result<Self> {
        Self::start_with(spans, limits, clock, move |graph| {
            match graphs.try_send(graph) {
                Ok(()) => true,
                Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
            }
        })
    }

    /// Starts the thread with a function that is called with every graph, in that thread; it says
    /// whether it took it.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start_with(
        spans: SpanReceiver,
        limits: AssemblyLimits,
        clock: Arc<dyn Clock>,
        consume: impl FnMut(ExecutionGraph) -> bool + Send + 'static,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let worker = Worker {
            spans,
            assembler: StreamAssembler::new(limits),
            clock,
            consume,
            shared: Arc::clone(&shared),
            counts: LiveCounts::default(),
            ready: Vec::new(),
        };
        let thread = std::thread::Builder::new()
            .name("assembly".to_owned())
            .spawn(move || worker.run())?;
        Ok(Self {
            thread: Some(thread),
            shared,
        })
    }

    /// The counts of a moment ago.
    #[must_use]
    pub fn counts(&self) -> LiveCounts {
        self.shared.counts()
    }

    /// Takes what is queued, hands on every open trace, ends the thread, and returns the counts.
    pub fn stop(mut self) -> LiveCounts {
        self.finish();
        self.shared.counts()
    }

    fn finish(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the consumer has been reported by its own thread.
            let _ = thread.join();
        }
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.finish();
    }
}

struct Worker<F> {
    spans: SpanReceiver,
    assembler: StreamAssembler,
    clock: Arc<dyn Clock>,
    consume: F,
    shared: Arc<Shared>,
    counts: LiveCounts,
    ready: Vec<ExecutionGraph>,
}

impl<F: FnMut(ExecutionGraph) -> bool> Worker<F> {
    fn run(mut self) {
        loop {
            let stop = self.shared.stop.load(Ordering::Relaxed);
            let taken = if stop {
                self.take(Duration::ZERO)
            } else {
                self.take(self.wait())
            };
            let now = self.clock.monotonic();
            let ended = match taken {
                Ok(0) => stop,
                Ok(_) => false,
                Err(_) => true,
            };
            if ended {
                self.assembler.flush(now, &mut self.ready);
            } else {
                self.assembler.poll(now, &mut self.ready);
            }
            self.hand_on();
            if ended {
                return;
            }
        }
    }

    /// Until a trace may be ready, at most a tick.
    fn wait(&self) -> Duration {
        self.assembler
            .next_due()
            .map_or(TICK, |due| (due - self.clock.monotonic()).min(TICK))
    }

    /// Takes what is queued, up to a burst; the number of batches.
    fn take(&mut self, wait: Duration) -> Result<usize, Refused> {
        let mut next = self.spans.next(wait)?;
        let now = self.clock.monotonic();
        let mut batches = 0;
        while let Some(batch) = next {
            batches += 1;
            for span in batch {
                self.assembler.push(span, now);
            }
            // The end of the queue shows again at the next call.
            next = if batches < BURST {
                self.spans.try_next().unwrap_or(None)
            } else {
                None
            };
        }
        Ok(batches)
    }

    fn hand_on(&mut self) {
        for graph in self.ready.drain(..) {
            if (self.consume)(graph) {
                self.counts.graphs += 1;
            } else {
                self.counts.dropped_graphs += 1;
            }
        }
        self.counts.assembly = self.assembler.counts();
        self.counts.held_spans = self.assembler.held_spans() as u64;
        self.shared.publish(self.counts);
    }
}
