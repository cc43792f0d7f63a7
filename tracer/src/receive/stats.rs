//! Counters of receivers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::decode::{Decoded, Note, Reason, Reject};

/// Status codes that the HTTP receiver answers with; others share the last counter.
const STATUSES: [u16; 10] = [200, 400, 404, 405, 408, 413, 415, 429, 503, 500];

/// Counters that only grow, safe to share.
#[derive(Debug, Default)]
pub struct ReceiverStats {
    spans: AtomicU64,
    rejected: [AtomicU64; Reject::ALL.len()],
    notes: [AtomicU64; Note::ALL.len()],
    dropped_full: AtomicU64,
    dropped_closed: AtomicU64,
    datagrams: AtomicU64,
    datagrams_malformed: AtomicU64,
    socket_errors: AtomicU64,
    requests: [AtomicU64; STATUSES.len()],
}

/// [`ReceiverStats`] at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ReceiverCounts {
    /// Spans put into the queue.
    pub spans: u64,
    /// Spans refused by a decoder, by reason; without zeros.
    pub rejected: BTreeMap<&'static str, u64>,
    /// What was odd about spans kept, by note; without zeros.
    pub notes: BTreeMap<&'static str, u64>,
    /// Spans dropped because the queue was full.
    pub dropped_full: u64,
    /// Spans dropped because nobody read the queue any more.
    pub dropped_closed: u64,
    /// Datagrams received.
    pub datagrams: u64,
    /// Datagrams that were broken; the spans before the break were kept.
    pub datagrams_malformed: u64,
    /// Failures to accept a connection or to read a datagram.
    pub socket_errors: u64,
    /// HTTP requests by status answered; without zeros.
    pub requests: BTreeMap<u16, u64>,
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

fn named<R: Reason>(counters: &[AtomicU64]) -> BTreeMap<&'static str, u64> {
    R::ALL
        .iter()
        .zip(counters)
        .map(|(reason, counter)| (reason.name(), counter.load(Ordering::Relaxed)))
        .filter(|(_, count)| *count > 0)
        .collect()
}

impl ReceiverStats {
    /// The counters now.
    #[must_use]
    pub fn counts(&self) -> ReceiverCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ReceiverCounts {
            spans: get(&self.spans),
            rejected: named::<Reject>(&self.rejected),
            notes: named::<Note>(&self.notes),
            dropped_full: get(&self.dropped_full),
            dropped_closed: get(&self.dropped_closed),
            datagrams: get(&self.datagrams),
            datagrams_malformed: get(&self.datagrams_malformed),
            socket_errors: get(&self.socket_errors),
            requests: STATUSES
                .iter()
                .zip(&self.requests)
                .map(|(status, counter)| (*status, get(counter)))
                .filter(|(_, count)| *count > 0)
                .collect(),
        }
    }

    /// Counts refusals and notes of a decoder, not its spans.
    pub(super) fn decoded(&self, decoded: &Decoded) {
        for (reason, count) in decoded.rejected.iter() {
            if let Some(counter) = self.rejected.get(reason.index()) {
                add(counter, count);
            }
        }
        for (note, count) in decoded.notes.iter() {
            if let Some(counter) = self.notes.get(note.index()) {
                add(counter, count);
            }
        }
    }

    pub(super) fn queued(&self, spans: usize) {
        add(&self.spans, spans as u64);
    }

    pub(super) fn dropped(&self, spans: usize, why: super::Refused) {
        let counter = match why {
            super::Refused::Full => &self.dropped_full,
            super::Refused::Closed => &self.dropped_closed,
        };
        add(counter, spans as u64);
    }

    pub(super) fn datagram(&self, malformed: bool) {
        add(&self.datagrams, 1);
        add(&self.datagrams_malformed, malformed.into());
    }

    pub(super) fn socket_error(&self) {
        add(&self.socket_errors, 1);
    }

    pub(super) fn answered(&self, status: u16) {
        let known = STATUSES.iter().position(|known| *known == status);
        if let Some(counter) = self.requests.get(known.unwrap_or(STATUSES.len() - 1)) {
            add(counter, 1);
        }
    }
}
