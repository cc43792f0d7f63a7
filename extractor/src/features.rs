//! Features of each instance and part over many requests (FIRM Algorithm 3.2).
//!
//! - RI is Pearson's correlation of the instance's time with the path's time over all requests
//!   given; where the instance is not on the path its time is 0.
//! - The covariance share cov(T_i, T_CP) / var(T_CP) is taken likewise. It sums to 1 over all
//!   instances and parts where their times sum to the path's, under the rules `firm` and
//!   `jaeger-ui`.
//! - p50, p99, their ratio CI, and the mean are over the requests in which the instance was on
//!   the path. Quantiles are exact, by nearest rank ([`crate::quantile`]).
//!
//! What is undefined is `None`: RI and the share without variance or with fewer than two
//! requests, CI when the median is 0. Times are integer nanoseconds; sums are taken of
//! differences from the mean, so that large latencies do not lose small variances.

use std::collections::{BTreeMap, HashMap};

use firm_model::{Features, InstanceKey, Part, RequestType};

use crate::observation::Observation;
use crate::quantile::nearest_rank;

/// Features over `observations`, which should be of one request type, sorted by instance and
/// part.
#[must_use]
pub fn features<'a>(observations: impl IntoIterator<Item = &'a Observation>) -> Vec<Features> {
    let mut table = FeatureTable::default();
    for observation in observations {
        table.add(observation);
    }
    table.finish()
}

/// Features per request type.
#[must_use]
pub fn features_by_request<'a>(
    observations: impl IntoIterator<Item = &'a Observation>,
) -> BTreeMap<RequestType, Vec<Features>> {
    let mut tables: BTreeMap<RequestType, FeatureTable> = BTreeMap::new();
    for observation in observations {
        tables
            .entry(observation.request)
            .or_default()
            .add(observation);
    }
    tables
        .into_iter()
        .map(|(request, table)| (request, table.finish()))
        .collect()
}

/// Fewest requests of one path signature that are a group of their own.
pub const MIN_GROUP: usize = 30;

/// Features per critical path, as the paper takes them (FIRM 3.2.3):
/// requests of one type are grouped by path signature, and those whose signature has fewer than
/// [`MIN_GROUP`] requests are one group under `None`.
#[must_use]
pub fn features_by_path<'a>(
    observations: impl IntoIterator<Item = &'a Observation>,
) -> BTreeMap<(RequestType, Option<u64>), Vec<Features>> {
    let mut groups: BTreeMap<(RequestType, u64), Vec<&Observation>> = BTreeMap::new();
    for observation in observations {
        let group = groups.entry((observation.request, observation.signature));
        group.or_default().push(observation);
    }
    let mut tables: BTreeMap<(RequestType, Option<u64>), FeatureTable> = BTreeMap::new();
    for ((request, signature), group) in groups {
        let key = (group.len() >= MIN_GROUP).then_some(signature);
        let table = tables.entry((request, key)).or_default();
        group
            .into_iter()
            .for_each(|observation| table.add(observation));
    }
    tables
        .into_iter()
        .map(|(key, table)| (key, table.finish()))
        .collect()
}

/// Gathers requests of one type.
#[derive(Debug, Default)]
pub struct FeatureTable {
    path_nanos: Vec<i64>,
    rows: HashMap<(InstanceKey, Part), Row, foldhash::fast::RandomState>,
}

/// Times of one instance and part, with the number of the request each is of.
#[derive(Debug, Default)]
struct Row {
    requests: Vec<u32>,
    nanos: Vec<i64>,
}

impl FeatureTable {
    /// Adds a request.
    pub fn add(&mut self, observation: &Observation) {
        // More than 2^32 requests are not held in memory.
        let Ok(request) = u32::try_from(self.path_nanos.len()) else {
            return;
        };
        self.path_nanos.push(observation.root_nanos);
        for part in &observation.parts {
            let row = self.rows.entry((part.key, part.part)).or_default();
            match row.nanos.last_mut() {
                // The same instance, called by several.
                Some(nanos) if row.requests.last() == Some(&request) => {
                    *nanos = nanos.saturating_add(part.nanos);
                }
                _ => {
                    row.requests.push(request);
                    row.nanos.push(part.nanos);
                }
            }
        }
    }

    /// Requests added.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.path_nanos.len()
    }

    /// The features of what was added, sorted by instance and part.
    #[must_use]
    pub fn finish(mut self) -> Vec<Features> {
        let path = Centred::of(&self.path_nanos);
        let mut made: Vec<Features> = self
            .rows
            .iter_mut()
            .map(|((key, part), row)| row.features(*key, *part, &path))
            .collect();
        made.sort_unstable_by_key(|f| (f.key, f.part == Part::Gap));
        made
    }
}

/// Path times as differences from their mean.
struct Centred {
    differences: Vec<f64>,
    /// Of the differences: 0 but for rounding.
    sum: f64,
    sum_of_squares: f64,
}

impl Centred {
    fn of(nanos: &[i64]) -> Self {
        // Taken from a common offset first, which is exact, so that no digits cancel.
        let offset = nanos.first().copied().unwrap_or(0);
        let shifted = nanos.iter().map(|n| n.saturating_sub(offset) as f64);
        let mean = shifted.clone().sum::<f64>() / nanos.len().max(1) as f64;
        let differences: Vec<f64> = shifted.map(|d| d - mean).collect();
        Self {
            sum: differences.iter().sum(),
            sum_of_squares: differences.iter().map(|d| d * d).sum(),
            differences,
        }
    }
}

impl Row {
    fn features(&mut self, key: InstanceKey, part: Part, path: &Centred) -> Features {
        let requests = path.differences.len();
        let sum: f64 = self.nanos.iter().map(|n| *n as f64).sum();
        let mean_of_all = sum / requests as f64;
        let absent = (requests - self.nanos.len()) as f64;
        let (mut covariance, mut variance) = (0.0, absent * mean_of_all * mean_of_all);
        let mut path_of_present = 0.0;
        for (request, nanos) in self.requests.iter().zip(&self.nanos) {
            let of_path = path.differences[*request as usize];
            let own = *nanos as f64 - mean_of_all;
            covariance += own * of_path;
            path_of_present += of_path;
            variance += own * own;
        }
        // Absent ones differ from the mean by all of it.
        covariance -= mean_of_all * (path.sum - path_of_present);
        let ri = (variance > 0.0 && path.sum_of_squares > 0.0)
            .then(|| covariance / (variance.sqrt() * path.sum_of_squares.sqrt()))
            .filter(|r| r.is_finite())
            .map(|r| r.clamp(-1.0, 1.0));
        let cov_share = (path.sum_of_squares > 0.0).then(|| covariance / path.sum_of_squares);
        let p50 = nearest_rank(&mut self.nanos, 0.5).unwrap_or_default();
        let p99 = nearest_rank(&mut self.nanos, 0.99).unwrap_or_default();
        Features {
            key,
            part,
            samples: self.nanos.len(),
            ri,
            ci: (p50 > 0).then(|| p99 as f64 / p50 as f64),
            cov_share: cov_share.filter(|share| share.is_finite()),
            p50_ns: p50 as f64,
            p99_ns: p99 as f64,
            mean_ns: mean(&self.nanos),
        }
    }
}

fn mean(nanos: &[i64]) -> f64 {
    if nanos.is_empty() {
        return 0.0;
    }
    nanos.iter().map(|n| *n as f64).sum::<f64>() / nanos.len() as f64
}

#[cfg(test)]
mod tests;
