//! What is normal: per request type, instance, part and caller, learned while nothing is wrong.

use std::collections::HashMap;

use firm_model::{InstanceKey, Part, RequestType, Symbol};

use crate::histogram::Histogram;
use crate::observation::{Observation, PartTime};

/// Time that one instance adds in one part, when called by one caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartKey {
    /// The instance it is charged to.
    pub key: InstanceKey,
    /// Which part.
    pub part: Part,
    /// For [`Part::Gap`] the caller.
    pub caller: Option<InstanceKey>,
}

/// The same by service, for instances that came later.
type ServiceKey = (Symbol, Part, Option<Symbol>);

/// Sums over requests. Merging is adding, so any split of the requests gives the same.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stat {
    /// Requests in which it was on the path.
    pub requests: u64,
    /// Spans on the path.
    pub calls: u64,
    /// Time owned, nanoseconds.
    pub sum_nanos: i128,
    /// Of a gap, durations of the client spans, nanoseconds.
    pub whole_nanos: i128,
    /// Of `calls` those whose callee was inferred.
    pub inferred: u64,
    /// Of `sum_nanos` the time of those.
    pub inferred_nanos: i128,
    /// Time owned per request in which it was on the path.
    pub per_request: Histogram,
}

impl Stat {
    fn add(&mut self, nanos: i64, calls: u32) {
        self.requests += 1;
        self.calls += u64::from(calls);
        self.sum_nanos += i128::from(nanos);
        self.per_request.add(nanos);
    }

    fn add_part(&mut self, part: &PartTime) {
        self.add(part.nanos, part.calls);
        self.whole_nanos += i128::from(part.whole_nanos);
        self.inferred += u64::from(part.inferred);
        self.inferred_nanos += i128::from(part.inferred_nanos);
    }

    fn merge(&mut self, other: &Stat) {
        self.requests += other.requests;
        self.calls += other.calls;
        self.sum_nanos += other.sum_nanos;
        self.whole_nanos += other.whole_nanos;
        self.inferred += other.inferred;
        self.inferred_nanos += other.inferred_nanos;
        self.per_request.merge(&other.per_request);
    }

    /// Mean nanoseconds a call, `None` without calls.
    #[must_use]
    pub fn mean_per_call(&self) -> Option<f64> {
        (self.calls > 0).then(|| self.sum_nanos as f64 / self.calls as f64)
    }

    /// Mean nanoseconds a call, of the calls whose callee was seen; `None` without such calls.
    #[must_use]
    pub fn mean_per_seen_call(&self) -> Option<f64> {
        let calls = self.calls.checked_sub(self.inferred).filter(|n| *n > 0)?;
        Some((self.sum_nanos - self.inferred_nanos) as f64 / calls as f64)
    }

    /// Of a gap, mean duration of its client spans, nanoseconds; `None` without calls.
    #[must_use]
    pub fn mean_whole_call(&self) -> Option<f64> {
        (self.calls > 0).then(|| self.whole_nanos as f64 / self.calls as f64)
    }

    /// Share of the calls whose callee was inferred, 0 to 1.
    #[must_use]
    pub fn inferred_share(&self) -> f64 {
        self.inferred as f64 / self.calls.max(1) as f64
    }

    /// Mean nanoseconds a request in which it was on the path, `None` without requests.
    #[must_use]
    pub fn mean_per_request(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.sum_nanos as f64 / self.requests as f64)
    }
}

/// Statistics of one request type.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RequestBaseline {
    /// Duration of the root span.
    pub root: Stat,
    parts: HashMap<PartKey, Stat, foldhash::fast::RandomState>,
    services: HashMap<ServiceKey, Stat, foldhash::fast::RandomState>,
}

impl RequestBaseline {
    /// Adds a request.
    pub fn add(&mut self, observation: &Observation) {
        self.root.add(observation.root_nanos, 1);
        for part in &observation.parts {
            let key = PartKey {
                key: part.key,
                part: part.part,
                caller: part.caller,
            };
            let stat = self.parts.entry(key).or_default();
            stat.add_part(part);
            let service = self.services.entry(service_key(key)).or_default();
            service.add_part(part);
        }
    }

    /// Adds what another has learned.
    pub fn merge(&mut self, other: &RequestBaseline) {
        self.root.merge(&other.root);
        for (key, stat) in &other.parts {
            self.parts.entry(*key).or_default().merge(stat);
        }
        for (key, stat) in &other.services {
            self.services.entry(*key).or_default().merge(stat);
        }
    }

    /// What is normal for `key`: its own statistics, or for an instance that was not there, those
    /// of its service under that calling service.
    #[must_use]
    pub fn normal(&self, key: PartKey) -> Option<&Stat> {
        self.parts
            .get(&key)
            .or_else(|| self.services.get(&service_key(key)))
    }

    /// All statistics, in no order.
    pub fn parts(&self) -> impl Iterator<Item = (PartKey, &Stat)> {
        self.parts.iter().map(|(key, stat)| (*key, stat))
    }
}

fn service_key(key: PartKey) -> ServiceKey {
    (key.key.service, key.part, key.caller.map(|c| c.service))
}

/// Statistics of all request types. Learning stops when the owner stops adding; baselines of
/// several replicas merge.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Baseline {
    requests: HashMap<RequestType, RequestBaseline, foldhash::fast::RandomState>,
}

impl Baseline {
    /// Learns from observations.
    #[must_use]
    pub fn learn<'a>(observations: impl IntoIterator<Item = &'a Observation>) -> Self {
        let mut made = Self::default();
        for observation in observations {
            made.add(observation);
        }
        made
    }

    /// Adds a request.
    pub fn add(&mut self, observation: &Observation) {
        self.requests
            .entry(observation.request)
            .or_default()
            .add(observation);
    }

    /// Adds what another has learned with the same interner.
    pub fn merge(&mut self, other: &Baseline) {
        for (request, learned) in &other.requests {
            self.requests.entry(*request).or_default().merge(learned);
        }
    }

    /// What is normal for a request type.
    #[must_use]
    pub fn request(&self, request: RequestType) -> Option<&RequestBaseline> {
        self.requests.get(&request)
    }

    /// All request types, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (RequestType, &RequestBaseline)> {
        self.requests
            .iter()
            .map(|(request, learned)| (*request, learned))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{key, observation, seconds, server};

    #[test]
    fn merged_baselines_are_as_if_learned_together() {
        let first = observation(1, seconds(1.0), &[server("a", "a-0", 30)]);
        let second = observation(2, seconds(2.0), &[server("a", "a-1", 50)]);
        let together = Baseline::learn([&first, &second]);
        let mut merged = Baseline::learn([&second]);
        merged.merge(&Baseline::learn([&first]));
        assert_eq!(merged, together);
    }

    #[test]
    fn new_instance_is_held_against_its_service() {
        let seen = observation(1, seconds(1.0), &[server("a", "a-0", 30)]);
        let baseline = Baseline::learn([&seen]);
        let learned = baseline.request(seen.request).unwrap();
        let part = |service, instance| PartKey {
            key: key(service, instance),
            part: Part::Server,
            caller: None,
        };
        let mean = |k| learned.normal(k).and_then(Stat::mean_per_call);
        assert_eq!(mean(part("a", "a-0")), Some(30.0));
        assert_eq!(mean(part("a", "a-9")), Some(30.0));
        assert_eq!(mean(part("b", "b-0")), None);
    }
}
