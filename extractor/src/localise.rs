//! Who makes the slow requests slow: instances ranked by how much their time has grown.
//!
//! With a baseline the score of an instance is the growth of its mean time against what is
//! normal, in nanoseconds a request in which it took part:
//! - *server*: growth of the mean time a call in its own spans, times its calls a request;
//! - *gap*: likewise for the way to it, per caller, the largest caller counting;
//! - what the ways from one caller to all its callees have gained together is the caller's: a
//!   caller that does not get to run sees every answer late. Together means the lower median
//!   over the callees; it is taken off the callees and put on the caller as server time.
//!
//! A mean over few requests is worth little, so each growth is shrunk by n / (n + 3), n being
//! the requests that show it, now or in the baseline, whichever are fewer.
//!
//! The measure is per call, so that a change in the mix of requests is not taken for growth, and
//! an instance that is new is held against its service, and a new service against nothing.
//!
//! A call whose callee was inferred ([`crate::callees`]) is gap as a whole, so it is held against
//! what such calls last as a whole; and the growth of a server time counts for the share of the
//! instance's calls in which it was seen, as the others show theirs in the gap.
//!
//! Without a baseline the score is the covariance share of Algorithm 3.2 and the decision is on
//! RI and CI.

use std::collections::{BTreeMap, HashMap};

use firm_model::{Features, InstanceKey, Part};

use crate::baseline::{PartKey, RequestBaseline, Stat};
use crate::features::features;
use crate::observation::Observation;

/// Requests on which half of a growth is believed.
const SHRINK_REQUESTS: f64 = 3.0;

/// When a ranked instance is held to be a culprit. A closed set, so that a trained classifier
/// can stand beside the threshold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Classifier {
    /// Stated thresholds.
    Threshold(Threshold),
}

impl Default for Classifier {
    fn default() -> Self {
        Self::Threshold(Threshold::default())
    }
}

/// Thresholds of a culprit. The first three hold with a baseline, the last two without.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Threshold {
    /// Least score as a share of the highest.
    pub of_highest: f64,
    /// Least growth of the instance's time over its normal time.
    pub growth: f64,
    /// Least growth as a share of the normal latency of the request.
    pub of_request: f64,
    /// Least relative importance.
    pub ri: f64,
    /// Least congestion intensity.
    pub ci: f64,
}

impl Default for Threshold {
    fn default() -> Self {
        Self {
            of_highest: 0.5,
            growth: 0.5,
            of_request: 0.05,
            ri: 0.5,
            ci: 2.0,
        }
    }
}

/// One instance in the order of blame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ranked {
    /// The instance.
    pub key: InstanceKey,
    /// The part that speaks most against it.
    pub part: Part,
    /// By what it is ranked; larger is surer. Nanoseconds with a baseline, else a share.
    pub score: f64,
    /// Growth of its server time a request, nanoseconds; `None` without a baseline.
    pub server_growth_ns: Option<f64>,
    /// Growth of the gap to it a request, nanoseconds, less what its caller is to blame for.
    pub gap_growth_ns: Option<f64>,
    /// Growth, on the way to all its callees together, that is put on it, nanoseconds a request.
    pub caller_growth_ns: Option<f64>,
    /// Growth over the normal time of the same parts; `None` where there was no such time.
    pub growth_ratio: Option<f64>,
    /// Features of its server time in these requests.
    pub server: Option<Features>,
    /// Features of the gap to it in these requests.
    pub gap: Option<Features>,
    /// Whether it has grown enough to be a culprit, whatever the others have.
    pub has_grown: bool,
    /// Whether it is held to be a culprit.
    pub is_culprit: bool,
}

impl Ranked {
    /// The features of the part that speaks most against it.
    #[must_use]
    pub fn features(&self) -> Option<&Features> {
        match self.part {
            Part::Server => self.server.as_ref(),
            Part::Gap => self.gap.as_ref(),
        }
    }
}

/// Ranks the instances on the paths of `requests`, which should be of one type, most blamed
/// first.
#[must_use]
pub fn localise<'a>(
    requests: impl IntoIterator<Item = &'a Observation> + Clone,
    baseline: Option<&RequestBaseline>,
    classifier: &Classifier,
) -> Vec<Ranked> {
    let mut ranked: HashMap<InstanceKey, Ranked, foldhash::fast::RandomState> = HashMap::default();
    for feature in features(requests.clone()) {
        let entry = ranked.entry(feature.key).or_insert(Ranked {
            key: feature.key,
            part: feature.part,
            score: f64::NEG_INFINITY,
            server_growth_ns: None,
            gap_growth_ns: None,
            caller_growth_ns: None,
            growth_ratio: None,
            server: None,
            gap: None,
            has_grown: false,
            is_culprit: false,
        });
        let score = feature.cov_share.unwrap_or(0.0);
        if score > entry.score {
            (entry.score, entry.part) = (score, feature.part);
        }
        match feature.part {
            Part::Server => entry.server = Some(feature),
            Part::Gap => entry.gap = Some(feature),
        }
    }
    if let Some(normal) = baseline.filter(|normal| normal.root.requests > 0) {
        let mut now = RequestBaseline::default();
        for request in requests {
            now.add(request);
        }
        for (key, blame) in blame(&now, normal) {
            if let Some(entry) = ranked.get_mut(&key) {
                blame.write(entry);
            }
        }
    }
    let mut ranked: Vec<Ranked> = ranked.into_values().collect();
    ranked.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(a.key.cmp(&b.key)));
    let Classifier::Threshold(threshold) = classifier;
    let highest = ranked.first().map_or(0.0, |first| first.score);
    let request_ns = baseline
        .and_then(|b| b.root.mean_per_request())
        .unwrap_or(0.0);
    for entry in &mut ranked {
        entry.has_grown = threshold.has_grown(entry, request_ns);
        // Without a baseline the score says nothing of growth.
        entry.is_culprit = entry.has_grown
            && (entry.server_growth_ns.is_none() || entry.score >= threshold.of_highest * highest);
    }
    ranked
}

impl Threshold {
    fn has_grown(&self, entry: &Ranked, request_ns: f64) -> bool {
        if entry.server_growth_ns.is_some() {
            entry.score > 0.0
                && entry
                    .growth_ratio
                    .is_none_or(|growth| growth >= self.growth)
                && entry.score >= self.of_request * request_ns
        } else {
            let at_least = |value: Option<f64>, least| value.is_some_and(|value| value >= least);
            entry
                .features()
                .is_some_and(|f| at_least(f.ri, self.ri) && at_least(f.ci, self.ci))
        }
    }
}

/// Growth of one instance, nanoseconds a request, beside what is normal for the same.
#[derive(Debug, Clone, Copy, Default)]
struct Blame {
    server: f64,
    gap: Option<f64>,
    caller: f64,
    normal_server: f64,
    normal_gap: f64,
}

impl Blame {
    fn write(self, entry: &mut Ranked) {
        let gap = self.gap.unwrap_or(0.0);
        entry.server_growth_ns = Some(self.server);
        entry.gap_growth_ns = Some(gap);
        entry.caller_growth_ns = Some(self.caller);
        let inside = self.server + self.caller;
        entry.part = if gap > inside {
            Part::Gap
        } else {
            Part::Server
        };
        entry.score = self.server.max(0.0) + gap.max(0.0) + self.caller;
        let normal = self.normal_server + self.normal_gap;
        entry.growth_ratio = (normal > 0.0).then(|| entry.score / normal);
    }
}

/// Growth of the mean a call.
struct Growth {
    per_call: f64,
    calls: f64,
    normal: f64,
}

fn growth(now: &Stat, normal: Option<&Stat>) -> Growth {
    let seen_before = normal.and_then(Stat::mean_per_seen_call).unwrap_or(0.0);
    let whole_before = normal.and_then(Stat::mean_whole_call).unwrap_or(0.0);
    let inferred = now.inferred_share();
    // Not the weighted mean where nothing is inferred: it must not differ in the last digit.
    let before = if now.inferred == 0 {
        seen_before
    } else {
        (1.0 - inferred) * seen_before + inferred * whole_before
    };
    let seen = normal.map_or(now.requests, |normal| normal.requests.min(now.requests)) as f64;
    let weight = seen / (seen + SHRINK_REQUESTS);
    Growth {
        per_call: weight * (now.mean_per_call().unwrap_or(0.0) - before),
        calls: now.calls as f64 / now.requests.max(1) as f64,
        normal: before,
    }
}

fn blame(
    now: &RequestBaseline,
    normal: &RequestBaseline,
) -> HashMap<InstanceKey, Blame, foldhash::fast::RandomState> {
    let mut blames: HashMap<InstanceKey, Blame, _> = HashMap::default();
    // In a fixed order, because sums of floating-point numbers depend on it.
    let mut parts: Vec<(PartKey, &Stat)> = now.parts().collect();
    parts.sort_unstable_by_key(|(key, _)| *key);
    let seen = seen_share(&parts);
    let mut ways: BTreeMap<InstanceKey, Vec<(InstanceKey, Growth)>> = BTreeMap::new();
    for (key, stat) in parts {
        let growth = growth(stat, normal.normal(key));
        match key.caller {
            Some(caller) => ways.entry(caller).or_default().push((key.key, growth)),
            None => {
                let seen = seen.get(&key.key).copied().unwrap_or(1.0);
                let blame = blames.entry(key.key).or_default();
                blame.server = seen * growth.per_call * growth.calls;
                blame.normal_server = seen * growth.normal * growth.calls;
            }
        }
    }
    for (caller, ways) in ways {
        let common = common_growth(&ways);
        for (callee, way) in ways {
            blames.entry(caller).or_default().caller += common * way.calls;
            let blame = blames.entry(callee).or_default();
            let own = (way.per_call - common) * way.calls;
            if blame.gap.is_none_or(|gap| own > gap) {
                blame.gap = Some(own);
                blame.normal_gap = way.normal * way.calls;
            }
        }
    }
    blames
}

/// Of the calls to each instance the share in which its own spans were seen, 0 to 1; only for
/// those where some were not.
fn seen_share(parts: &[(PartKey, &Stat)]) -> BTreeMap<InstanceKey, f64> {
    let mut calls: BTreeMap<InstanceKey, (u64, u64)> = BTreeMap::new();
    for (key, stat) in parts.iter().filter(|(key, _)| key.caller.is_some()) {
        let (all, inferred) = calls.entry(key.key).or_default();
        *all += stat.calls;
        *inferred += stat.inferred;
    }
    calls
        .into_iter()
        .filter(|(_, (_, inferred))| *inferred > 0)
        .map(|(key, (all, inferred))| (key, (all - inferred) as f64 / all as f64))
        .collect()
}

/// What the ways to all callees of one caller have gained a call: the lower median, 0 for a
/// single callee, for which it cannot be told.
fn common_growth(ways: &[(InstanceKey, Growth)]) -> f64 {
    if ways.len() < 2 {
        return 0.0;
    }
    let mut gains: Vec<f64> = ways.iter().map(|(_, way)| way.per_call).collect();
    gains.sort_unstable_by(f64::total_cmp);
    gains[(gains.len() - 1) / 2].max(0.0)
}

#[cfg(test)]
mod tests;
