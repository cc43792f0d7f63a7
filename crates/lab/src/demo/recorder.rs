//! Every request as the load generator saw it, and what its clock says about the objectives.

use std::collections::BTreeMap;
use std::time::Duration;

use firm_extractor::trigger::Trigger;
use firm_model::{Latency, Objective, Timestamp};
use firm_testbed::load::{Outcome, RequestRecord};

use super::event::Status;
use crate::controller::trigger_of;
use crate::settings::TriggerSettings;

/// How far back the live figures look.
const LIVE_NANOS: i64 = 2_000_000_000;
/// Length of the window in which an objective has to hold to hold again.
const HOLD: Duration = Duration::from_secs(1);

/// All requests of a run.
#[derive(Debug)]
pub(super) struct Recorder {
    objectives: BTreeMap<String, Objective>,
    records: Vec<RequestRecord>,
}

/// What became of the objectives, by the load generator's clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Outcomes {
    /// When the trigger fired on the requests as the load generator saw them.
    pub(super) violated_at: Option<Timestamp>,
    /// Since when every objective held until contention ended.
    pub(super) holding_at: Option<Timestamp>,
    /// Violations from then on, to the end of the run.
    pub(super) violations_after: Option<usize>,
    /// Requests that were due from the injection on.
    pub(super) requests: usize,
    /// Those over their bound, failed, given up or never sent.
    pub(super) violations: usize,
}

impl Recorder {
    pub(super) fn new(objectives: &[Objective]) -> Self {
        let named = |objective: &Objective| {
            (
                format!("{}/{}", objective.service, objective.operation),
                objective.clone(),
            )
        };
        Self {
            objectives: objectives.iter().map(named).collect(),
            records: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, record: &RequestRecord) {
        self.records.push(record.clone());
    }

    pub(super) fn count(&self) -> usize {
        self.records.len()
    }

    /// The request type furthest from its objective, as of `now`.
    pub(super) fn status(&self, now: Timestamp) -> Option<Status> {
        let from = now.saturating_add_nanos(-LIVE_NANOS);
        let second = now.saturating_add_nanos(-1_000_000_000);
        let recent: Vec<&RequestRecord> = self
            .records
            .iter()
            .rev()
            .take_while(|record| ended(record) >= from)
            .collect();
        let per_second = recent
            .iter()
            .filter(|record| ended(record) >= second)
            .count();
        let of_type = |(name, objective): (&String, &Objective)| {
            let mut nanos: Vec<u64> = recent
                .iter()
                .filter(|record| *record.request_type == **name)
                .map(|record| judged(record).as_nanos())
                .collect();
            nanos.sort_unstable();
            let p50 = *nanos.get(nanos.len() / 2)?;
            let p99 = *nanos.get((nanos.len() * 99).div_ceil(100) - 1)?;
            Some(Status {
                at_s: 0.0,
                of_s: 0.0,
                request_type: name.clone(),
                p50: answered(p50),
                p99: answered(p99),
                bound: objective.bound,
                quantile: objective.quantile.get(),
                per_second,
                changed: Vec::new(),
            })
        };
        let distance = |status: &Status| {
            status.p99.map_or(f64::INFINITY, |p99| {
                p99.as_nanos() as f64 / status.bound.as_nanos().max(1) as f64
            })
        };
        self.objectives
            .iter()
            .filter_map(of_type)
            .max_by(|a, b| distance(a).total_cmp(&distance(b)))
    }

    /// What the load generator's clock says, given from when to when there was contention, and
    /// when the first change took effect. Without a change the objective may hold again from
    /// its violation on.
    pub(super) fn outcomes(
        &self,
        trigger: &TriggerSettings,
        contention: (Timestamp, Timestamp),
        effective_at: Option<Timestamp>,
    ) -> Outcomes {
        let (injected_at, contention_end) = contention;
        // Fed from before on, so that the trigger has its window full when contention begins.
        let mut all: Vec<&RequestRecord> = self.records.iter().collect();
        all.sort_by_key(|record| ended(record));
        let mut triggers = self.triggers(trigger);
        let violated_at = all.iter().find_map(|record| {
            let trigger = triggers.get_mut(&*record.request_type)?;
            let is_violated = trigger.push(ended(record), judged(record));
            (is_violated && ended(record) >= injected_at).then(|| ended(record))
        });
        let mut since: Vec<&RequestRecord> = all
            .into_iter()
            .filter(|record| record.intended >= injected_at)
            .collect();
        let violations = since
            .iter()
            .filter(|record| self.is_violation(record))
            .count();
        since.sort_by_key(|record| record.intended);
        let holding_at = effective_at
            .or(violated_at)
            .and_then(|from| self.holding(&since, trigger, from, contention_end));
        Outcomes {
            violated_at,
            holding_at,
            violations_after: holding_at.map(|at| {
                let after = since.iter().filter(|record| record.intended >= at);
                after.filter(|record| self.is_violation(record)).count()
            }),
            requests: since.len(),
            violations,
        }
    }

    fn is_violation(&self, record: &RequestRecord) -> bool {
        let over = |objective: &Objective| judged(record) > objective.bound;
        self.objectives.get(&*record.request_type).is_some_and(over)
    }

    fn triggers(&self, settings: &TriggerSettings) -> BTreeMap<&str, Trigger> {
        let objectives = self.objectives.iter();
        objectives
            .map(|(name, objective)| (name.as_str(), trigger_of(objective, settings)))
            .collect()
    }

    /// Since when every objective holds: begin of the first [`HOLD`] from `from` on in which it
    /// does, and after which no trigger fires on the requests until `until`. `since` is in the
    /// order of intended sending.
    fn holding(
        &self,
        since: &[&RequestRecord],
        trigger: &TriggerSettings,
        from: Timestamp,
        until: Timestamp,
    ) -> Option<Timestamp> {
        let bad = since.iter().filter(|record| self.is_violation(record));
        let after_bad = bad.map(|record| record.intended.saturating_add_nanos(1));
        let mut begins: Vec<Timestamp> = std::iter::once(from)
            .chain(after_bad.filter(|at| *at >= from))
            .collect();
        begins.sort_unstable();
        let hold = i64::try_from(HOLD.as_nanos()).unwrap_or(i64::MAX);
        begins.into_iter().find(|begin| {
            let end = begin.saturating_add_nanos(hold);
            let within = |end: Timestamp| {
                let records = since.iter().copied();
                records.filter(move |record| record.intended >= *begin && record.intended < end)
            };
            end <= until && self.holds(within(end)) && !self.is_violated(within(until), trigger)
        })
    }

    /// Whether a trigger fires on these requests alone.
    fn is_violated<'a>(
        &self,
        records: impl Iterator<Item = &'a RequestRecord>,
        settings: &TriggerSettings,
    ) -> bool {
        let mut records: Vec<&RequestRecord> = records.collect();
        records.sort_by_key(|record| ended(record));
        let mut triggers = self.triggers(settings);
        records.iter().any(|record| {
            let trigger = triggers.get_mut(&*record.request_type);
            trigger.is_some_and(|trigger| trigger.push(ended(record), judged(record)))
        })
    }

    /// Whether of every type no more requests are over the bound than the quantile allows,
    /// rounded up to whole requests.
    fn holds<'a>(&self, records: impl Iterator<Item = &'a RequestRecord>) -> bool {
        let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for record in records {
            let count = counts.entry(&record.request_type).or_default();
            count.0 += 1;
            count.1 += usize::from(self.is_violation(record));
        }
        counts.iter().all(|(name, (all, over))| {
            self.objectives.get(*name).is_none_or(|objective| {
                *over as f64 <= ((1.0 - objective.quantile.get()) * *all as f64).ceil()
            })
        })
    }
}

fn ended(record: &RequestRecord) -> Timestamp {
    let nanos = i64::try_from(record.latency.as_nanos()).unwrap_or(i64::MAX);
    record.intended.saturating_add_nanos(nanos)
}

/// A latency that stands for no answer is none.
fn answered(nanos: u64) -> Option<Latency> {
    (nanos != u64::MAX).then(|| Latency::from_nanos(nanos))
}

/// The latency that counts: what was not answered was answered never.
fn judged(record: &RequestRecord) -> Latency {
    match record.outcome {
        Outcome::Ok => record.latency,
        Outcome::Error | Outcome::Timeout | Outcome::Dropped => Latency::from_nanos(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use firm_model::Quantile;

    fn at(ms: i64) -> Timestamp {
        Timestamp::EPOCH.saturating_add_nanos(ms * 1_000_000)
    }

    /// A request every 20 ms; those intended within `slow` take 100 ms, the others 5.
    fn recorder(slow: std::ops::Range<i64>) -> Recorder {
        let objective = Objective {
            service: "a".to_owned(),
            operation: "b".to_owned(),
            quantile: Quantile::new(0.99).unwrap(),
            bound: Latency::from_millis(50),
        };
        let mut recorder = Recorder::new(&[objective]);
        for ms in (0..10_000).step_by(20) {
            let latency = Latency::from_millis(if slow.contains(&ms) { 100 } else { 5 });
            recorder.add(&RequestRecord {
                request_type: "a/b".into(),
                intended: at(ms),
                latency,
                outcome: Outcome::Ok,
            });
        }
        recorder
    }

    #[test]
    fn times_and_counts_are_those_of_the_requests() {
        let recorder = recorder(2000..4000);
        let trigger = Settings::default().extractor.trigger;
        let outcomes = recorder.outcomes(&trigger, (at(1000), at(9000)), Some(at(3000)));
        assert_eq!((outcomes.requests, outcomes.violations), (450, 100));
        let violated = outcomes.violated_at.unwrap();
        assert!(violated > at(2100) && violated < at(2400), "{violated}");
        // One slow request in a second of fifty is what a p99 allows.
        let holding = outcomes.holding_at.unwrap();
        assert!(holding > at(3900) && holding <= at(3981), "{holding}");
    }

    #[test]
    fn objective_that_never_holds_again_has_no_such_time() {
        let recorder = recorder(2000..10_000);
        let trigger = Settings::default().extractor.trigger;
        assert_eq!(
            recorder
                .outcomes(&trigger, (at(1000), at(9000)), Some(at(3000)))
                .holding_at,
            None
        );
    }

    #[test]
    fn objective_that_fails_again_was_not_holding() {
        // Slow until 4 s, well for two seconds, slow again from 6 to 7 s.
        let mut recorder = recorder(2000..4000);
        for record in &mut recorder.records {
            if record.intended >= at(6000) && record.intended < at(7000) {
                record.latency = Latency::from_millis(100);
            }
        }
        let trigger = Settings::default().extractor.trigger;
        let outcomes = recorder.outcomes(&trigger, (at(1000), at(9000)), Some(at(3000)));
        let holding = outcomes.holding_at.unwrap();
        assert!(holding > at(6900) && holding <= at(6981), "{holding}");
        assert_eq!(outcomes.violations_after, Some(1));
    }

    #[test]
    fn without_a_change_it_holds_again_only_if_contention_is_survived() {
        let trigger = Settings::default().extractor.trigger;
        let contention = (at(1000), at(9000));
        let through = recorder(2000..9500).outcomes(&trigger, contention, None);
        assert_eq!(through.holding_at, None);
        let passing = recorder(2000..4000).outcomes(&trigger, contention, None);
        assert!(passing.holding_at.is_some_and(|at_| at_ > at(3900)));
    }

    #[test]
    fn calm_run_has_no_violation() {
        let recorder = recorder(0..0);
        let outcomes = recorder.outcomes(
            &Settings::default().extractor.trigger,
            (at(0), at(9000)),
            None,
        );
        assert_eq!((outcomes.violated_at, outcomes.violations), (None, 0));
        assert_eq!(
            recorder.status(at(10_000)).unwrap().p99,
            Some(Latency::from_millis(5))
        );
    }

    #[test]
    fn unanswered_requests_are_violations_however_fast_they_failed() {
        let mut recorder = recorder(0..0);
        recorder.add(&RequestRecord {
            request_type: "a/b".into(),
            intended: at(9_990),
            latency: Latency::from_millis(1),
            outcome: Outcome::Error,
        });
        let outcomes = recorder.outcomes(
            &Settings::default().extractor.trigger,
            (at(0), at(9000)),
            None,
        );
        assert_eq!(outcomes.violations, 1);
    }
}
