//! When requests are to be sent: decided by a seed before any is sent, so that a slow answer
//! cannot move it.

use std::time::Duration;

use firm_model::Monotonic;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, Exp1};

use crate::topology::Arrivals;

/// One request that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// When, from the start, as if the rate factor were 1 all the time.
    pub at: Duration,
    /// Which type, as an index into the shares.
    pub request: usize,
}

/// An endless stream of arrivals, the same for the same seed.
#[derive(Debug, Clone)]
pub struct Schedule {
    /// Upper ends of the types' intervals in 0..=1.
    upper: Vec<f64>,
    rate: f64,
    arrivals: Arrivals,
    count: u64,
    last: f64,
    random: ChaCha8Rng,
}

impl Schedule {
    /// Arrivals at `rate` a second, of types in proportion to `shares`. Both must be positive.
    #[must_use]
    pub fn new(shares: &[f64], rate: f64, arrivals: Arrivals, seed: u64) -> Self {
        let sum: f64 = shares.iter().sum();
        let mut upper = Vec::with_capacity(shares.len());
        let mut total = 0.0;
        for share in shares {
            total += share / sum;
            upper.push(total);
        }
        Self {
            upper,
            rate,
            arrivals,
            count: 0,
            last: 0.0,
            random: ChaCha8Rng::seed_from_u64(seed),
        }
    }
}

impl Iterator for Schedule {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        let seconds = match self.arrivals {
            // From the count, so that rounding does not add up.
            Arrivals::Constant => self.count as f64 / self.rate,
            Arrivals::Poisson => {
                let gap: f64 = Exp1.sample(&mut self.random);
                self.last + gap / self.rate
            }
        };
        self.count += 1;
        self.last = seconds;
        let draw: f64 = self.random.random();
        let request = self.upper.iter().position(|upper| draw < *upper);
        Some(Arrival {
            at: Duration::try_from_secs_f64(seconds).ok()?,
            request: request.unwrap_or(self.upper.len().checked_sub(1)?),
        })
    }
}

/// From the schedule's time to the clock's, under a rate factor that may change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pacer {
    since: Monotonic,
    done: Duration,
    factor: f64,
}

impl Pacer {
    pub(crate) fn new(start: Monotonic) -> Self {
        Self {
            since: start,
            done: Duration::ZERO,
            factor: 1.0,
        }
    }

    /// Changes the factor at `now`; what came before stays where it was.
    pub(crate) fn set_factor(&mut self, factor: f64, now: Monotonic) {
        if factor.to_bits() != self.factor.to_bits() {
            self.done += (now - self.since).mul_f64(self.factor);
            self.since = now;
            self.factor = factor;
        }
    }

    /// When an arrival is due; `None` while the factor is too small for that ever to be.
    pub(crate) fn due(&self, at: Duration) -> Option<Monotonic> {
        let left = at.saturating_sub(self.done);
        let seconds = left.as_secs_f64() / self.factor;
        Duration::try_from_secs_f64(seconds)
            .ok()
            .map(|wait| self.since + wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn constant_arrivals_are_a_grid() {
        let schedule = Schedule::new(&[1.0], 300.0, Arrivals::Constant, 1);
        let last = schedule.take(300_001).last().unwrap();
        assert_eq!(last.at, Duration::from_secs(1000));
    }

    #[test]
    fn a_seed_repeats_and_shares_and_rate_hold() {
        let draw = |seed| {
            Schedule::new(&[3.0, 1.0], 100.0, Arrivals::Poisson, seed)
                .take(40_000)
                .collect::<Vec<_>>()
        };
        let arrivals = draw(7);
        assert_eq!(arrivals, draw(7));
        assert_ne!(arrivals, draw(8));
        let first = arrivals.iter().filter(|a| a.request == 0).count();
        assert!((29_000..31_000).contains(&first), "{first}");
        let seconds = arrivals.last().unwrap().at.as_secs_f64();
        assert!((390.0..410.0).contains(&seconds), "{seconds}");
    }

    #[test]
    fn factor_zero_stops_and_two_doubles() {
        let at = |ms: u64| Monotonic::from_nanos(ms * 1_000_000);
        let mut pacer = Pacer::new(at(100));
        assert_eq!(pacer.due(Duration::from_millis(30)), Some(at(130)));
        pacer.set_factor(0.0, at(120));
        assert_eq!(pacer.due(Duration::from_millis(30)), None);
        pacer.set_factor(2.0, at(220));
        assert_eq!(pacer.due(Duration::from_millis(30)), Some(at(225)));
    }

    proptest! {
        #[test]
        fn arrivals_never_go_back(seed in any::<u64>(), rate in 0.1_f64..1e5) {
            let schedule = Schedule::new(&[1.0, 2.0], rate, Arrivals::Poisson, seed);
            let arrivals: Vec<Arrival> = schedule.take(100).collect();
            prop_assert!(arrivals.windows(2).all(|pair| pair[0].at <= pair[1].at));
            prop_assert!(arrivals.iter().all(|arrival| arrival.request < 2));
        }
    }
}
