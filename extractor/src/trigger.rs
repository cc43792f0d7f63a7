//! Is an objective violated? Two readings of the latest requests: a fast trigger, and the status.
//!
//! A p99 of a hundred samples is one request, so the trigger does not look at the quantile. It
//! asks whether so many of the latest requests are over the bound that this would be all but
//! impossible if the objective held: the tail of the binomial distribution is below
//! [`TriggerConfig::false_alarm`].

use std::collections::VecDeque;
use std::time::Duration;

use firm_model::{Latency, Quantile, Timestamp};

use crate::quantile::nearest_rank;

/// When a trigger fires and clears.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TriggerConfig {
    /// The quantile of the objective.
    pub quantile: Quantile,
    /// Its bound.
    pub bound: Latency,
    /// How far back it looks, in span time from the latest end. Default 2 s.
    pub window: Duration,
    /// How many requests it looks at, at most. Default 300.
    pub most: usize,
    /// Fewest requests on which it fires or clears. Default 20.
    pub least: usize,
    /// Chance, under a held objective, of as many slow requests as fire it. Default 0.0001.
    pub false_alarm: f64,
}

impl TriggerConfig {
    /// The defaults for an objective.
    #[must_use]
    pub const fn new(quantile: Quantile, bound: Latency) -> Self {
        Self {
            quantile,
            bound,
            window: Duration::from_secs(2),
            most: 300,
            least: 20,
            false_alarm: 1e-4,
        }
    }
}

/// The status of an objective over the requests that its trigger looks at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Status {
    /// Requests looked at.
    pub count: usize,
    /// Those over the bound.
    pub over: usize,
    /// Latency at the objective's quantile, exact by nearest rank; `None` on fewer requests than
    /// make the quantile more than the largest value, 1 / (1 - quantile).
    pub latency: Option<Latency>,
}

/// The trigger of one objective. Pure: fed with ends and latencies in span time.
#[derive(Debug)]
pub struct Trigger {
    config: TriggerConfig,
    /// (end, latency in nanoseconds), in order of arrival.
    recent: VecDeque<(Timestamp, u64)>,
    over: usize,
    newest: Timestamp,
    violated: bool,
}

impl Trigger {
    /// A trigger that has seen nothing and is not violated.
    #[must_use]
    pub const fn new(config: TriggerConfig) -> Self {
        Self {
            config,
            recent: VecDeque::new(),
            over: 0,
            newest: Timestamp::EPOCH,
            violated: false,
        }
    }

    /// Takes a request. Returns whether the objective is violated now.
    pub fn push(&mut self, end: Timestamp, latency: Latency) -> bool {
        self.newest = self.newest.max(end);
        self.over += usize::from(latency > self.config.bound);
        self.recent.push_back((end, latency.as_nanos()));
        self.advance(self.newest)
    }

    /// Lets span time go on without a request. Returns whether the objective is violated now.
    pub fn advance(&mut self, now: Timestamp) -> bool {
        self.newest = self.newest.max(now);
        let window = i64::try_from(self.config.window.as_nanos()).unwrap_or(i64::MAX);
        let from = self.newest.saturating_add_nanos(-window);
        while let Some((end, latency)) = self.recent.front().copied() {
            if end >= from && self.recent.len() <= self.config.most {
                break;
            }
            self.recent.pop_front();
            self.over -= usize::from(Latency::from_nanos(latency) > self.config.bound);
        }
        let count = self.recent.len();
        if count >= self.config.least {
            let allowed = 1.0 - self.config.quantile.get();
            if self.violated {
                self.violated = self.over as f64 > (allowed * count as f64).ceil();
            } else {
                // No more than allowed is no alarm, and needs no sum.
                self.violated = self.over as f64 > allowed * count as f64
                    && binomial_tail(count, self.over, allowed) < self.config.false_alarm;
            }
        }
        self.violated
    }

    /// Whether the objective is violated by the latest requests.
    #[must_use]
    pub const fn is_violated(&self) -> bool {
        self.violated
    }

    /// Requests over the bound among those looked at.
    #[must_use]
    pub const fn over(&self) -> usize {
        self.over
    }

    /// Forgets all requests, as after a change whose effect is to be judged afresh.
    pub fn clear(&mut self) {
        self.recent.clear();
        self.over = 0;
        self.violated = false;
    }

    /// The percentile reading over the same requests.
    #[must_use]
    pub fn status(&self) -> Status {
        let quantile = self.config.quantile.get();
        let count = self.recent.len();
        let enough = count as f64 * (1.0 - quantile) >= 1.0;
        let latency = enough.then(|| {
            let mut nanos: Vec<i64> = self
                .recent
                .iter()
                .map(|(_, nanos)| i64::try_from(*nanos).unwrap_or(i64::MAX))
                .collect();
            nearest_rank(&mut nanos, quantile)
        });
        Status {
            count,
            over: self.over,
            latency: latency
                .flatten()
                .and_then(|nanos| u64::try_from(nanos).ok())
                .map(Latency::from_nanos),
        }
    }
}

/// P(X >= k) for X binomial of `n` trials with chance `p`, 0 < p < 1.
fn binomial_tail(n: usize, k: usize, p: f64) -> f64 {
    if k == 0 {
        return 1.0;
    }
    // Terms in logarithms, so that neither (1 - p)^n nor the coefficients leave the range.
    let odds = (p / (1.0 - p)).ln();
    let mut log_term = n as f64 * (1.0 - p).ln();
    let mut below = log_term.exp();
    for i in 1..k {
        log_term += ((n - i + 1) as f64 / i as f64).ln() + odds;
        below += log_term.exp();
    }
    if below < 0.5 {
        return 1.0 - below;
    }
    // Summed from the small end, so that no digits cancel.
    let mut tail = 0.0;
    for i in k..=n {
        log_term += ((n - i + 1) as f64 / i as f64).ln() + odds;
        tail += log_term.exp();
    }
    tail
}

#[cfg(test)]
mod tests;
