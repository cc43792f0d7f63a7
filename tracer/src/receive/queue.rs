//! A queue of span batches, bounded by spans as well as by batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError};
use std::time::Duration;

use firm_model::Span;

/// Bounds of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// Most batches.
    pub batches: usize,
    /// Most spans. A batch larger than this is taken when the queue is empty.
    pub spans: usize,
}

impl Default for QueueLimits {
    /// 4,096 batches, 500,000 spans (about 50 MB).
    fn default() -> Self {
        Self {
            batches: 4096,
            spans: 500_000,
        }
    }
}

/// Why a batch was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is no room.
    #[error("the span queue is full")]
    Full,
    /// Nobody will read it.
    #[error("the span queue is closed")]
    Closed,
}

/// The sending end; clones share the bounds.
#[derive(Debug, Clone)]
pub struct SpanSender {
    batches: SyncSender<Vec<Span>>,
    queued: Arc<AtomicUsize>,
    max_spans: usize,
}

/// The receiving end.
#[derive(Debug)]
pub struct SpanReceiver {
    batches: Receiver<Vec<Span>>,
    queued: Arc<AtomicUsize>,
}

/// A queue that is empty.
#[must_use]
pub fn span_queue(limits: QueueLimits) -> (SpanSender, SpanReceiver) {
    let (sender, receiver) = mpsc::sync_channel(limits.batches.max(1));
    let queued = Arc::new(AtomicUsize::new(0));
    let sender = SpanSender {
        batches: sender,
        queued: Arc::clone(&queued),
        max_spans: limits.spans,
    };
    let receiver = SpanReceiver {
        batches: receiver,
        queued,
    };
    (sender, receiver)
}

impl SpanSender {
    /// Puts a batch into the queue, without waiting.
    ///
    /// # Errors
    /// The batch was dropped because the queue is full or closed.
    pub fn offer(&self, batch: Vec<Span>) -> Result<(), Refused> {
        if batch.is_empty() {
            return Ok(());
        }
        let count = batch.len();
        let before = self.queued.fetch_add(count, Ordering::Relaxed);
        let refused = if before > 0 && before.saturating_add(count) > self.max_spans {
            Refused::Full
        } else {
            match self.batches.try_send(batch) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(_)) => Refused::Full,
                Err(TrySendError::Disconnected(_)) => Refused::Closed,
            }
        };
        self.queued.fetch_sub(count, Ordering::Relaxed);
        Err(refused)
    }

    /// Spans waiting.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }
}

impl SpanReceiver {
    /// The next batch, waiting at most `wait`; `Ok(None)` when none came.
    ///
    /// # Errors
    /// [`Refused::Closed`] when the queue is empty and all senders are gone.
    pub fn next(&self, wait: Duration) -> Result<Option<Vec<Span>>, Refused> {
        match self.batches.recv_timeout(wait) {
            Ok(batch) => Ok(Some(self.taken(batch))),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Refused::Closed),
        }
    }

    /// The next batch if one is there.
    ///
    /// # Errors
    /// As [`SpanReceiver::next`].
    pub fn try_next(&self) -> Result<Option<Vec<Span>>, Refused> {
        match self.batches.try_recv() {
            Ok(batch) => Ok(Some(self.taken(batch))),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(Refused::Closed),
        }
    }

    fn taken(&self, batch: Vec<Span>) -> Vec<Span> {
        self.queued.fetch_sub(batch.len(), Ordering::Relaxed);
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firm_model::{Interner, Span};

    fn batch(count: usize) -> Vec<Span> {
        let mut spans = Vec::new();
        let row =
            b"TraceID,SpanID,ParentID,PodName,OperationName,StartTimeUnixNano,EndTimeUnixNano\n\
            1,1,root,a-b-c,op,1,2\n";
        crate::decode::nezha_csv::decode(row, &Interner::new(), &mut spans).unwrap();
        vec![spans[0]; count]
    }

    #[test]
    fn bounded_by_spans_and_by_batches() {
        let (sender, receiver) = span_queue(QueueLimits {
            batches: 2,
            spans: 10,
        });
        // Larger than the bound, but alone.
        sender.offer(batch(50)).unwrap();
        assert_eq!(sender.offer(batch(1)), Err(Refused::Full));
        assert_eq!(receiver.try_next().unwrap().unwrap().len(), 50);
        sender.offer(batch(5)).unwrap();
        sender.offer(batch(5)).unwrap();
        assert_eq!(sender.offer(batch(1)), Err(Refused::Full));
        receiver.try_next().unwrap().unwrap();
        assert_eq!(sender.waiting(), 5);
        sender.offer(batch(1)).unwrap();
        assert_eq!(sender.offer(batch(1)), Err(Refused::Full), "two batches");
        drop(receiver);
        assert_eq!(sender.offer(batch(1)), Err(Refused::Closed));
    }

    #[test]
    fn what_was_sent_is_read_after_the_senders_are_gone() {
        let (sender, receiver) = span_queue(QueueLimits::default());
        sender.offer(batch(1)).unwrap();
        drop(sender);
        assert!(receiver.next(Duration::ZERO).unwrap().is_some());
        assert_eq!(receiver.next(Duration::ZERO), Err(Refused::Closed));
    }
}
