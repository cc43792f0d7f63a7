//! The latest observations, by span time.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use firm_model::{RequestType, SpanId, Timestamp, TraceId};

use crate::observation::Observation;

/// A sliding window of observations: those that ended within `length` before the latest end, and
/// at most `capacity` of them, the latest kept. An observation of the same trace and root
/// replaces the one before.
#[derive(Debug)]
pub struct Window {
    length_nanos: i64,
    capacity: usize,
    /// By end.
    held: VecDeque<Observation>,
    known: HashSet<(TraceId, SpanId), foldhash::fast::RandomState>,
    /// Observations that came too late to be in the window.
    late: u64,
}

impl Window {
    /// An empty window.
    #[must_use]
    pub fn new(length: Duration, capacity: usize) -> Self {
        Self {
            length_nanos: i64::try_from(length.as_nanos()).unwrap_or(i64::MAX),
            capacity,
            held: VecDeque::new(),
            known: HashSet::default(),
            late: 0,
        }
    }

    /// Adds an observation and lets go of those that no longer belong.
    pub fn push(&mut self, observation: Observation) {
        let id = (observation.trace_id, observation.root);
        if !self.known.insert(id) {
            self.held.retain(|o| (o.trace_id, o.root) != id);
        }
        let place = self.held.partition_point(|o| o.end <= observation.end);
        let newest = self.held.back().map_or(observation.end, |o| o.end);
        if observation.end < newest.saturating_add_nanos(-self.length_nanos) {
            self.known.remove(&id);
            self.late += 1;
            return;
        }
        self.held.insert(place, observation);
        let newest = self.held.back().map_or(Timestamp::EPOCH, |o| o.end);
        self.forget_before(newest.saturating_add_nanos(-self.length_nanos));
        while self.held.len() > self.capacity {
            self.pop();
        }
    }

    /// Lets go of what ended before `limit`.
    pub fn forget_before(&mut self, limit: Timestamp) {
        while self.held.front().is_some_and(|o| o.end < limit) {
            self.pop();
        }
    }

    fn pop(&mut self) {
        if let Some(gone) = self.held.pop_front() {
            self.known.remove(&(gone.trace_id, gone.root));
        }
    }

    /// Whether an observation of this trace and root is held.
    #[must_use]
    pub fn holds(&self, trace: TraceId, root: SpanId) -> bool {
        self.known.contains(&(trace, root))
    }

    /// All held, by end.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Observation> {
        self.held.iter()
    }

    /// Those of one request type that ended at or after `from`, by end.
    pub fn of(
        &self,
        request: RequestType,
        from: Timestamp,
    ) -> impl DoubleEndedIterator<Item = &Observation> {
        self.held
            .range(self.held.partition_point(|o| o.end < from)..)
            .filter(move |o| o.request == request)
    }

    /// Number held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether none is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Observations refused because they had ended before the window began.
    #[must_use]
    pub const fn late(&self) -> u64 {
        self.late
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{observation, seconds};

    #[test]
    fn holds_the_length_and_the_capacity() {
        let mut window = Window::new(Duration::from_secs(10), 3);
        for (trace, end) in [(1, 1.0), (2, 8.0), (3, 11.5)] {
            window.push(observation(trace, seconds(end), &[]));
        }
        assert_eq!(window.len(), 2);
        // Older than the window, then within it but out of order.
        window.push(observation(4, seconds(1.0), &[]));
        assert_eq!(window.late(), 1);
        window.push(observation(5, seconds(9.0), &[]));
        let ends: Vec<_> = window.iter().map(|o| o.end).collect();
        assert_eq!(ends, [8.0, 9.0, 11.5].map(seconds));
        window.push(observation(6, seconds(11.6), &[]));
        assert_eq!(window.len(), 3);
        let request = window.iter().next().unwrap().request;
        assert_eq!(window.of(request, seconds(11.55)).count(), 1);
    }

    #[test]
    fn observation_of_the_same_root_replaces() {
        let mut window = Window::new(Duration::from_secs(10), 3);
        window.push(observation(1, seconds(1.0), &[]));
        window.push(observation(1, seconds(2.0), &[]));
        assert_eq!(window.len(), 1);
        let (trace, root) = window.iter().map(|o| (o.trace_id, o.root)).next().unwrap();
        assert!(window.holds(trace, root));
        window.forget_before(seconds(3.0));
        assert!(window.is_empty() && !window.holds(trace, root));
        window.push(observation(1, seconds(2.0), &[]));
        assert_eq!(window.len(), 1);
    }
}
