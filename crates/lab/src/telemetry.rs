//! What was measured of each instance over the last second or so, beside what was normal.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use firm_extractor::resource::Share;
use firm_host::sched::SchedSample;
use firm_model::{CpuRate, CpuSample, InstanceId, MilliCores, Monotonic};

/// How far back the present reaches: five enforcement periods.
const PRESENT: Duration = Duration::from_millis(500);

/// Counters of one instance at one instant. `None` where they cannot be had here.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counters {
    /// CPU use and throttling of its group.
    pub cpu: Option<CpuSample>,
    /// Scheduler counters of its process.
    pub sched: Option<SchedSample>,
    /// Its CPU limit.
    pub limit: Option<MilliCores>,
}

/// The latest counters of all instances, and what was normal.
#[derive(Debug, Default)]
pub struct Telemetry {
    instances: BTreeMap<InstanceId, History>,
}

#[derive(Debug, Default)]
struct History {
    recent: VecDeque<(Monotonic, Counters)>,
    begin: Option<Counters>,
    normal_throttled: Option<f64>,
    normal_waiting: Option<f64>,
}

impl Telemetry {
    /// Takes counters read at `at`.
    pub fn add(&mut self, instance: &InstanceId, at: Monotonic, counters: Counters) {
        let history = self.instances.entry(instance.clone()).or_default();
        history.recent.push_back((at, counters));
        while history.recent.len() > 2 && at - history.recent[1].0 > PRESENT {
            history.recent.pop_front();
        }
    }

    /// From now on is normal, until [`Telemetry::end_normal`].
    pub fn begin_normal(&mut self) {
        for history in self.instances.values_mut() {
            history.begin = history.recent.back().map(|(_, counters)| *counters);
        }
    }

    /// What lies between is what is normal.
    pub fn end_normal(&mut self) {
        for history in self.instances.values_mut() {
            let now = history.recent.back().map(|(_, counters)| *counters);
            if let (Some(begin), Some(now)) = (history.begin, now) {
                history.normal_throttled = throttled(&begin, &now);
                history.normal_waiting = waiting(&begin, &now);
            }
        }
    }

    /// CPU use and throttling between the two latest readings.
    #[must_use]
    pub fn latest(&self, instance: &InstanceId) -> Option<(CpuRate, Option<MilliCores>)> {
        let recent = &self.instances.get(instance)?.recent;
        let mut from_last = recent.iter().rev();
        let (_, now) = from_last.next()?;
        let (_, before) = from_last.next()?;
        Some((now.cpu?.rate_since(&before.cpu?), now.limit))
    }

    /// CPU use and throttling over the present.
    #[must_use]
    pub fn present(&self, instance: &InstanceId) -> Option<CpuRate> {
        let (before, now) = self.span(instance)?;
        Some(now.cpu?.rate_since(&before.cpu?))
    }

    /// The limit last read.
    #[must_use]
    pub fn limit(&self, instance: &InstanceId) -> Option<MilliCores> {
        self.instances.get(instance)?.recent.back()?.1.limit
    }

    /// Share of throttled periods, now and normally.
    #[must_use]
    pub fn throttled(&self, instance: &InstanceId) -> Share {
        Share {
            now: self
                .span(instance)
                .and_then(|(before, now)| throttled(before, now)),
            normal: self
                .instances
                .get(instance)
                .and_then(|history| history.normal_throttled),
        }
    }

    /// Share of runnable time spent waiting for a processor, now and normally.
    #[must_use]
    pub fn waiting(&self, instance: &InstanceId) -> Share {
        Share {
            now: self
                .span(instance)
                .and_then(|(before, now)| waiting(before, now)),
            normal: self
                .instances
                .get(instance)
                .and_then(|history| history.normal_waiting),
        }
    }

    fn span(&self, instance: &InstanceId) -> Option<(&Counters, &Counters)> {
        let recent = &self.instances.get(instance)?.recent;
        let (_, before) = recent.front()?;
        let (_, now) = recent.back()?;
        Some((before, now))
    }
}

fn throttled(before: &Counters, now: &Counters) -> Option<f64> {
    now.cpu?.rate_since(&before.cpu?).throttled_ratio()
}

/// A thread that ended takes its counters with it, so a sum that fell says nothing.
fn waiting(before: &Counters, now: &Counters) -> Option<f64> {
    let (before, now) = (before.sched?, now.sched?);
    let waited = now.wait_ns.checked_sub(before.wait_ns)?;
    let ran = now.run_ns.checked_sub(before.run_ns)?;
    let runnable = waited.checked_add(ran).filter(|nanos| *nanos > 0)?;
    Some(waited as f64 / runnable as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(at_ms: u64, periods: u64, throttled: u64, wait_ms: u64) -> Counters {
        let at = Monotonic::from_nanos(at_ms * 1_000_000);
        Counters {
            cpu: Some(CpuSample {
                at,
                usage_ns: Some(at_ms * 200_000),
                periods: Some(periods),
                throttled_periods: Some(throttled),
                throttled_ns: None,
            }),
            sched: Some(SchedSample {
                at,
                run_ns: at_ms * 200_000,
                wait_ns: wait_ms * 1_000_000,
                threads: 3,
            }),
            limit: Some(MilliCores::new(200)),
        }
    }

    #[test]
    fn normal_and_present_are_told_apart() {
        let mut telemetry = Telemetry::default();
        let cart = InstanceId::new("cart-0");
        let add = |telemetry: &mut Telemetry, at_ms, periods, throttled, wait| {
            let at = Monotonic::from_nanos(at_ms * 1_000_000);
            telemetry.add(&cart, at, counters(at_ms, periods, throttled, wait));
        };
        add(&mut telemetry, 0, 0, 0, 0);
        telemetry.begin_normal();
        add(&mut telemetry, 1000, 10, 1, 0);
        telemetry.end_normal();
        for step in 1..=10 {
            let at = 1000 + 100 * step;
            add(&mut telemetry, at, 10 + step, 1 + step, 80 * step);
        }
        let cart = InstanceId::new("cart-0");
        let share = telemetry.throttled(&cart);
        assert_eq!((share.now, share.normal), (Some(1.0), Some(0.1)));
        assert_eq!(telemetry.waiting(&cart).now, Some(0.8));
        let (rate, limit) = telemetry.latest(&cart).unwrap();
        assert_eq!((rate.periods, limit), (Some(1), Some(MilliCores::new(200))));
    }

    #[test]
    fn nothing_measured_is_absent_not_zero() {
        let mut telemetry = Telemetry::default();
        let cart = InstanceId::new("cart-0");
        for at in [0, 100_000_000] {
            telemetry.add(&cart, Monotonic::from_nanos(at), Counters::default());
        }
        assert_eq!(telemetry.throttled(&cart).now, None);
        assert_eq!(telemetry.waiting(&cart).now, None);
        assert!(telemetry.latest(&cart).is_none());
        assert!(telemetry.present(&InstanceId::new("other")).is_none());
    }
}
