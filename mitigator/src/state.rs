//! The state of one instance as policies see it (FIRM Table 3.2; the rules for what the chapter
//! leaves open are given per entry). What was not measured is masked.

use firm_model::{Bounds, CpuRate, Latency, MilliCores, Spec, State};

/// Objective over current latency ("SM"): 1 at the objective, less when it is missed; 1 for an
/// instance that is no culprit or gets no requests. At most 2.
pub const SM: usize = 0;
/// Current over previous arrival rate ("WC"), within [0, 10]; 1 where both are 0.
pub const WC: usize = 1;
/// Composition of the requests ("RC"), see [`request_composition`].
pub const RC: usize = 2;
/// CPU used over the capacity bound ("RU"), so that a change of limit hides no change of use.
pub const RU_CPU: usize = 3;
/// Share of the last periods in which the quota ran out.
pub const THROTTLED_CPU: usize = 4;
/// CPU limit over the capacity bound.
pub const LIMIT_CPU: usize = 5;
/// Lower bound of the CPU limit over the capacity bound.
pub const LOWER_CPU: usize = 6;

const SM_CAP: f64 = 2.0;
const WC_CAP: f64 = 10.0;
/// Bins that a request type's share falls into: quarters.
const SHARE_BINS: u32 = 4;
/// Request types told apart; the rest is one more, "other".
const REQUEST_TYPES: usize = 8;

/// Names and bounds of the entries.
#[must_use]
pub fn spec() -> Spec {
    let entries: [(&str, f64); 7] = [
        ("sm", SM_CAP),
        ("wc", WC_CAP),
        ("rc", 1.0),
        ("ru_cpu", 1.0),
        ("throttled_cpu", 1.0),
        ("limit_cpu", 1.0),
        ("lower_cpu", 1.0),
    ];
    Spec {
        version: 1,
        names: entries.iter().map(|(name, _)| (*name).to_owned()).collect(),
        lower: vec![0.0; entries.len()],
        upper: entries.iter().map(|(_, upper)| narrow(*upper)).collect(),
    }
}

/// One request type that passes through the instance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RequestLoad {
    /// Bound of its objective.
    pub objective: Latency,
    /// Its latency at the objective's quantile in the last step; `None` where no request came.
    pub current: Option<Latency>,
    /// Requests a second in the last step.
    pub arrivals: f64,
}

/// What was measured of one instance in the last step.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation<'a> {
    /// Whether it is held to be the cause of slow requests.
    pub is_culprit: bool,
    /// The request types that pass through it.
    pub requests: &'a [RequestLoad],
    /// Requests a second of all types in the step before, `None` in the first.
    pub previous_arrivals: Option<f64>,
    /// Its CPU use and throttling, `None` where not measured.
    pub cpu: Option<CpuRate>,
    /// Its CPU limit, `None` where there is none or it is not known.
    pub limit: Option<MilliCores>,
    /// Bounds of the limit; the upper is the capacity bound.
    pub bounds: Bounds,
}

/// The state of an instance, after [`spec`].
#[must_use]
pub fn observe(seen: &Observation<'_>) -> State {
    let capacity = seen.bounds.upper();
    let over_capacity =
        |value: MilliCores| (capacity.get() > 0).then(|| value.as_cores() / capacity.as_cores());
    let entries = [
        Some(objective_ratio(seen)),
        workload_change(seen),
        request_composition(seen.requests),
        seen.cpu.and_then(|cpu| cpu.usage).and_then(over_capacity),
        seen.cpu.and_then(|cpu| cpu.throttled_ratio()),
        seen.limit.and_then(over_capacity),
        over_capacity(seen.bounds.lower()),
    ];
    let upper = spec().upper;
    // NaN and infinities (a rate that is none) are as good as not measured.
    let kept = entries.map(|entry| entry.filter(|value| value.is_finite()));
    State {
        values: kept
            .iter()
            .zip(upper)
            .map(|(value, upper)| narrow(value.unwrap_or(0.0)).clamp(0.0, upper))
            .collect(),
        present: kept.iter().map(Option::is_some).collect(),
    }
}

/// With several request types the smallest counts.
fn objective_ratio(seen: &Observation<'_>) -> f64 {
    if !seen.is_culprit {
        return 1.0;
    }
    seen.requests
        .iter()
        .filter_map(|request| {
            let current = request.current?.as_nanos();
            let ratio = request.objective.as_nanos() as f64 / current.max(1) as f64;
            Some(ratio.min(SM_CAP))
        })
        .min_by(f64::total_cmp)
        .unwrap_or(1.0)
}

fn workload_change(seen: &Observation<'_>) -> Option<f64> {
    let previous = seen.previous_arrivals?;
    let current: f64 = seen.requests.iter().map(|request| request.arrivals).sum();
    if previous == 0.0 && current == 0.0 {
        return Some(1.0);
    }
    // From nothing to something is infinitely more: the cap.
    Some(if previous == 0.0 {
        WC_CAP
    } else {
        current / previous
    })
}

/// The shares of the request types as one number: each share's bin (quarters) is a digit of a
/// number in base 4, as `numpy.ravel_multi_index` orders it (first type most significant), over
/// the largest such number. The eight types that come most often are told apart, the rest is one
/// more digit. `None` where no request came.
#[must_use]
pub fn request_composition(requests: &[RequestLoad]) -> Option<f64> {
    let mut rates: Vec<f64> = requests.iter().map(|request| request.arrivals).collect();
    let total: f64 = rates.iter().sum();
    if !(total.is_finite() && total > 0.0) {
        return None;
    }
    if rates.len() > REQUEST_TYPES {
        let mut order: Vec<usize> = (0..rates.len()).collect();
        order.sort_by(|a, b| rates[*b].total_cmp(&rates[*a]).then(a.cmp(b)));
        let (most, rest) = order.split_at(REQUEST_TYPES);
        let other: f64 = rest.iter().map(|index| rates[*index]).sum();
        let mut most = most.to_vec();
        most.sort_unstable();
        rates = most.iter().map(|index| rates[*index]).collect();
        rates.push(other);
    }
    let base = f64::from(SHARE_BINS);
    let digit = |rate: &f64| (rate / total * base).floor().clamp(0.0, base - 1.0);
    let number = rates
        .iter()
        .fold(0.0, |number, rate| number * base + digit(rate));
    let largest = rates
        .iter()
        .fold(0.0, |number, _| number * base + base - 1.0);
    Some(number / largest)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "policies work in single precision"
)]
const fn narrow(value: f64) -> f32 {
    value as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn load(objective_ms: u64, current_ms: Option<u64>, arrivals: f64) -> RequestLoad {
        RequestLoad {
            objective: Latency::from_millis(objective_ms),
            current: current_ms.map(Latency::from_millis),
            arrivals,
        }
    }

    fn seen(requests: &[RequestLoad]) -> Observation<'_> {
        Observation {
            is_culprit: true,
            requests,
            previous_arrivals: Some(50.0),
            cpu: Some(CpuRate {
                interval_ns: 1_000_000_000,
                usage: Some(MilliCores::new(500)),
                periods: Some(10),
                throttled_periods: Some(4),
            }),
            limit: Some(MilliCores::new(600)),
            bounds: Bounds::new(MilliCores::new(100), MilliCores::new(1000)).unwrap(),
        }
    }

    #[test]
    fn known_values() {
        let requests = [load(100, Some(200), 75.0), load(100, Some(50), 25.0)];
        let state = observe(&seen(&requests));
        let expected = [0.5, 2.0, 13.0 / 15.0, 0.5, 0.4, 0.6, 0.1];
        for (index, expected) in expected.into_iter().enumerate() {
            let value = state.get(index).unwrap();
            assert!((value - expected).abs() < 1e-6, "{index}: {value}");
        }
        assert_eq!(state.values.len(), spec().names.len());
    }

    #[test]
    fn what_was_not_measured_is_masked() {
        let mut nothing = seen(&[]);
        (nothing.cpu, nothing.limit, nothing.previous_arrivals) = (None, None, None);
        let state = observe(&nothing);
        let present = [true, false, false, false, false, false, true];
        assert_eq!(state.present, present);
        assert_eq!(state.get(SM), Some(1.0), "no message came");
    }

    #[test]
    fn rules_at_the_edges() {
        let fast = [load(100, Some(1), 0.0)];
        assert_eq!(observe(&seen(&fast)).get(SM), Some(2.0), "capped");
        let mut other = seen(&fast);
        other.is_culprit = false;
        assert_eq!(observe(&other).get(SM), Some(1.0), "no culprit");
        other.previous_arrivals = Some(0.0);
        assert_eq!(observe(&other).get(WC), Some(1.0), "none before, none now");
        let some = [load(100, None, 3.0)];
        let mut woken = seen(&some);
        woken.previous_arrivals = Some(0.0);
        assert_eq!(observe(&woken).get(WC), Some(10.0));
    }

    #[test]
    fn rare_types_are_one() {
        // Nine types besides the first: the least frequent two become "other".
        let mut requests = vec![load(1, None, 90.0)];
        requests.extend((0..9).map(|_| load(1, None, 1.0)));
        let expected = 3.0 * 4_f64.powi(8) / (4_f64.powi(9) - 1.0);
        let value = request_composition(&requests).unwrap();
        assert!((value - expected).abs() < 1e-12, "{value}");
        assert_eq!(request_composition(&[load(1, None, 0.0)]), None);
    }

    proptest! {
        #[test]
        fn every_entry_is_within_its_bounds(
            rates in proptest::collection::vec((any::<f64>(), proptest::option::of(any::<u64>())), 0..12),
            previous in proptest::option::of(any::<f64>()), usage in any::<u64>(),
        ) {
            let requests: Vec<_> = rates.iter().map(|(rate, ms)| load(50, *ms, *rate)).collect();
            let mut seen = seen(&requests);
            seen.previous_arrivals = previous;
            seen.cpu = seen.cpu.map(|cpu| CpuRate { usage: Some(MilliCores::new(usage)), ..cpu });
            let (state, spec) = (observe(&seen), spec());
            for index in 0..spec.names.len() {
                if let Some(value) = state.get(index) {
                    prop_assert!(value >= spec.lower[index] && value <= spec.upper[index]);
                }
            }
        }
    }
}
