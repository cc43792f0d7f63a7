//! Times as integer nanoseconds: wall-clock instants of spans, monotonic instants of control
//! loops, and lengths.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

const NANOS_PER_SEC: i64 = 1_000_000_000;

/// A wall-clock instant: nanoseconds since 1970-01-01T00:00:00Z, within 1970..=2262.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The first instant that can be told.
    pub const EPOCH: Timestamp = Timestamp(0);
    /// The last instant that can be told, in 2262.
    pub const MAX: Timestamp = Timestamp(i64::MAX);

    /// An instant from unsigned nanoseconds, as OTLP carries it; `None` past 2262.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Option<Self> {
        if nanos > i64::MAX as u64 {
            None
        } else {
            Some(Self(nanos.cast_signed()))
        }
    }

    /// An instant from signed microseconds, as Jaeger and Zipkin carry it; `None` before 1970
    /// or past 2262.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Option<Self> {
        match micros.checked_mul(1_000) {
            Some(nanos) if nanos >= 0 => Some(Self(nanos)),
            _ => None,
        }
    }

    /// Nanoseconds since the epoch.
    #[must_use]
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Signed distance in nanoseconds, positive when `self` is the later.
    #[must_use]
    pub const fn nanos_since(self, earlier: Timestamp) -> i64 {
        // Both lie in 0..=i64::MAX, so the difference cannot overflow.
        self.0 - earlier.0
    }

    /// The instant moved by signed nanoseconds, held within the range that can be told.
    #[must_use]
    pub const fn saturating_add_nanos(self, nanos: i64) -> Self {
        let moved = self.0.saturating_add(nanos);
        Self(if moved < 0 { 0 } else { moved })
    }
}

/// A non-negative length of time in integer nanoseconds.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Latency(u64);

impl Latency {
    /// No time at all.
    pub const ZERO: Latency = Latency(0);

    /// A length of `nanos` nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// A length of `millis` milliseconds, saturating.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Milliseconds, for people and plots.
    #[must_use]
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl From<Duration> for Latency {
    fn from(value: Duration) -> Self {
        Self(u64::try_from(value.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Latency> for Duration {
    fn from(value: Latency) -> Self {
        Duration::from_nanos(value.0)
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..=9_999 => write!(f, "{} ns", self.0),
            10_000..=9_999_999 => write!(f, "{:.1} µs", self.0 as f64 / 1e3),
            10_000_000..=9_999_999_999 => write!(f, "{:.1} ms", self.as_millis_f64()),
            _ => write!(f, "{:.1} s", self.0 as f64 / 1e9),
        }
    }
}

/// An instant of the machine's monotonic clock, in nanoseconds from an arbitrary start. Only for
/// control loops; never written to a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Monotonic(u64);

impl Monotonic {
    /// An instant `nanos` after the clock's start.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's start.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
}

impl Add<Duration> for Monotonic {
    type Output = Monotonic;
    fn add(self, rhs: Duration) -> Monotonic {
        Self(
            self.0
                .saturating_add(u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

impl Sub for Monotonic {
    type Output = Duration;
    /// Saturates at zero when `rhs` is the later.
    fn sub(self, rhs: Monotonic) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(rhs.0))
    }
}

impl fmt::Display for Timestamp {
    /// Seconds and nanoseconds since the epoch, exact.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{:09}",
            self.0 / NANOS_PER_SEC,
            self.0 % NANOS_PER_SEC
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_and_past_2262_cannot_be_told() {
        assert_eq!(Timestamp::from_nanos(u64::MAX), None);
        assert_eq!(Timestamp::from_micros(-1), None);
        assert_eq!(Timestamp::from_micros(i64::MAX), None);
        assert_eq!(Timestamp::EPOCH.saturating_add_nanos(-5), Timestamp::EPOCH);
    }

    #[test]
    fn monotonic_difference_saturates() {
        let (a, b) = (Monotonic::from_nanos(5), Monotonic::from_nanos(9));
        assert_eq!(a - b, Duration::ZERO);
        assert_eq!(b - a, Duration::from_nanos(4));
    }
}
