//! Measurements of instances. A sample (counters at an instant) and a rate (from two samples)
//! are different types; absent is not zero.

use serde::{Deserialize, Serialize};

use crate::time::Monotonic;
use crate::unit::MilliCores;

/// A measurement that cannot be had, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} is unavailable: {why}")]
pub struct Unavailable {
    /// The measurement.
    pub what: &'static str,
    /// The reason.
    pub why: String,
}

/// CPU counters of a group at one instant (kernel documents: `cgroup-v2.rst` cpu.stat,
/// `sched-bwc.rst`). Fields the kernel lacks are `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuSample {
    /// When it was read.
    pub at: Monotonic,
    /// CPU time used, nanoseconds.
    pub usage_ns: Option<u64>,
    /// Enforcement periods that have passed while runnable.
    pub periods: Option<u64>,
    /// Periods in which the quota ran out.
    pub throttled_periods: Option<u64>,
    /// Time that threads waited for the next period, nanoseconds.
    pub throttled_ns: Option<u64>,
}

/// What happened between two samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CpuRate {
    /// Length of the interval, nanoseconds.
    pub interval_ns: u64,
    /// CPU used.
    pub usage: Option<MilliCores>,
    /// Periods passed.
    pub periods: Option<u64>,
    /// Periods throttled.
    pub throttled_periods: Option<u64>,
}

impl CpuRate {
    /// Share of periods that were throttled, 0 to 1; `None` where the counters are absent or no
    /// period passed.
    #[must_use]
    pub fn throttled_ratio(&self) -> Option<f64> {
        match (self.throttled_periods, self.periods) {
            (Some(throttled), Some(periods)) if periods > 0 => {
                Some(throttled as f64 / periods as f64)
            }
            _ => None,
        }
    }
}

impl CpuSample {
    /// The rate from `earlier` to `self`. A counter that ran backwards (a group made anew) is
    /// absent; so is everything when no time passed.
    #[must_use]
    pub fn rate_since(&self, earlier: &CpuSample) -> CpuRate {
        let interval = self.at - earlier.at;
        let interval_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        let grown = |now: Option<u64>, then: Option<u64>| now?.checked_sub(then?);
        let usage = grown(self.usage_ns, earlier.usage_ns)
            .and_then(|used| used.saturating_mul(1000).checked_div(interval_ns))
            .map(MilliCores::new);
        CpuRate {
            interval_ns,
            usage,
            periods: grown(self.periods, earlier.periods),
            throttled_periods: grown(self.throttled_periods, earlier.throttled_periods),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_ms: u64, usage_ms: u64, periods: u64, throttled: u64) -> CpuSample {
        CpuSample {
            at: Monotonic::from_nanos(at_ms * 1_000_000),
            usage_ns: Some(usage_ms * 1_000_000),
            periods: Some(periods),
            throttled_periods: Some(throttled),
            throttled_ns: None,
        }
    }

    #[test]
    fn rate_is_the_difference_over_time() {
        let rate = sample(200, 60, 12, 3).rate_since(&sample(100, 10, 10, 2));
        assert_eq!(rate.usage, Some(MilliCores::new(500)));
        assert_eq!(rate.throttled_ratio(), Some(0.5));
    }

    #[test]
    fn counter_that_ran_backwards_is_absent_not_zero() {
        let rate = sample(200, 5, 1, 0).rate_since(&sample(100, 10, 10, 2));
        assert_eq!((rate.usage, rate.throttled_ratio()), (None, None));
        let still = sample(100, 10, 10, 2);
        assert_eq!(still.rate_since(&still).usage, None);
    }
}
