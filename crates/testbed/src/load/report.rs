//! How requests ended.

use std::sync::Arc;

use firm_model::{Latency, Quantile, Timestamp};
use hdrhistogram::Histogram;

use super::{LoadError, LoadRequest};

/// Largest latency that the histograms tell apart, nanoseconds.
const MOST: u64 = 100_000_000_000;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Answered.
    Ok,
    /// Refused, answered with an error, or the connection broke.
    Error,
    /// Given up.
    Timeout,
    /// Never sent, because too many were in flight.
    Dropped,
}

/// One request that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRecord {
    /// `SERVICE/OPERATION`.
    pub request_type: Arc<str>,
    /// When it was to be sent, on the wall clock.
    pub intended: Timestamp,
    /// From then until it ended.
    pub latency: Latency,
    /// How it ended.
    pub outcome: Outcome,
}

/// Figures of one request type. `ok + errors + timeouts + dropped` is what was due and ended.
#[derive(Debug, Clone)]
pub struct TypeReport {
    /// `SERVICE/OPERATION`.
    pub request_type: Arc<str>,
    /// Answered.
    pub ok: u64,
    /// Failed.
    pub errors: u64,
    /// Given up.
    pub timeouts: u64,
    /// Never sent.
    pub dropped: u64,
    /// Latencies of answered and of given-up requests, nanoseconds. Those given up took longer
    /// than it says, and leaving them out would flatter; errors and drops have no latency.
    pub latency: Histogram<u64>,
}

// === impl TypeReport ===

impl TypeReport {
    pub(super) fn new(request: &LoadRequest) -> Result<Self, LoadError> {
        Ok(Self {
            request_type: format!("{}/{}", request.service, request.operation).into(),
            ok: 0,
            errors: 0,
            timeouts: 0,
            dropped: 0,
            latency: Histogram::new_with_bounds(1_000, MOST, 3).map_err(|error| {
                LoadError::System {
                    what: "a histogram",
                    source: std::io::Error::other(error),
                }
            })?,
        })
    }

    pub(super) fn count(&mut self, record: &RequestRecord) {
        match record.outcome {
            Outcome::Ok => self.ok += 1,
            Outcome::Error => self.errors += 1,
            Outcome::Timeout => self.timeouts += 1,
            Outcome::Dropped => self.dropped += 1,
        }
        if matches!(record.outcome, Outcome::Ok | Outcome::Timeout) {
            self.latency.saturating_record(record.latency.as_nanos());
        }
    }

    /// Requests that were due and have ended.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.ok + self.errors + self.timeouts + self.dropped
    }

    /// The latency at a quantile; zero before the first.
    #[must_use]
    pub fn quantile(&self, quantile: Quantile) -> Latency {
        Latency::from_nanos(self.latency.value_at_quantile(quantile.get()))
    }
}
