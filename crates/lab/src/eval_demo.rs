//! Figures over many runs of the demo: `firm eval demo`.

use std::fmt;

use serde::Serialize;

use crate::demo::RunReport;
use crate::demo::report::{Budget, Times};

/// Seconds within which the objective has to hold again after the change.
const HOLD_WITHIN_S: f64 = 3.0;

/// Figures over all seeds. Medians are over the runs in which the figure exists.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DemoSummary {
    /// Seeds run.
    pub seeds: usize,
    /// Runs whose first culprit was the instance that was hurt.
    pub culprit_right: usize,
    /// Runs in which limits of others were changed too.
    pub others_changed: usize,
    /// Runs in which a limit was changed at all.
    pub acted: usize,
    /// Median seconds from injection to effective limit.
    pub injection_to_effective_s: Option<f64>,
    /// Median seconds from violation, by the load generator's clock, to effective limit.
    pub violation_to_effective_s: Option<f64>,
    /// Median seconds from violation to the objective holding again.
    pub violation_to_holding_s: Option<f64>,
    /// Runs in which the objective held again within 3 s of the change.
    pub held_within_3s: usize,
    /// Violations of all runs with mitigation.
    pub violations: usize,
    /// Violations of all runs without.
    pub violations_without: usize,
    /// Violations without over violations with.
    pub times_fewer: Option<f64>,
    /// The least of that ratio over the seeds.
    pub times_fewer_least: Option<f64>,
    /// Runs with mitigation after which every limit file was as before.
    pub limits_identical: usize,
    /// Findings before the injection, over all runs of both kinds.
    pub false_alarms: usize,
    /// Violations of all runs with mitigation after the objective held again.
    pub violations_after_holding: usize,
    /// Runs without mitigation in which the objective held again under contention.
    pub held_without: usize,
    /// Median milliseconds of each part of the budget.
    pub budget_ms: Option<BudgetMillis>,
}

/// Medians of the parts of [`Budget`], milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BudgetMillis {
    /// Exporter's interval and the way.
    pub export: f64,
    /// Until the trace counted as complete.
    pub grace: f64,
    /// Until the loop looked.
    pub window: f64,
    /// Paths, ranking, policy, validation.
    pub decision: f64,
    /// Journal, write, read back.
    pub write: f64,
}

/// Sums up pairs of a run with mitigation and the same seed's run without.
#[must_use]
pub fn summary(runs: &[(RunReport, RunReport)]) -> DemoSummary {
    let with = || runs.iter().map(|(with, _)| with);
    let times = |of: &dyn Fn(&Times) -> Option<f64>| {
        median(with().filter_map(|run| of(&run.times)).collect())
    };
    let ratio = |fewer: usize, more: usize| more as f64 / fewer.max(1) as f64;
    let violations = with().map(|run| run.violations).sum();
    let violations_without = runs.iter().map(|(_, without)| without.violations).sum();
    let budgets: Vec<Budget> = with().filter_map(|run| run.budget).collect();
    let part = |of: &dyn Fn(&Budget) -> firm_model::Latency| {
        median(
            budgets
                .iter()
                .map(|budget| of(budget).as_millis_f64())
                .collect(),
        )
    };
    DemoSummary {
        seeds: runs.len(),
        culprit_right: with().filter(|run| run.culprit_right).count(),
        others_changed: with().filter(|run| !run.others_changed.is_empty()).count(),
        acted: with().filter(|run| run.action.is_some()).count(),
        injection_to_effective_s: times(&|t| Times::seconds(t.injected, t.effective)),
        violation_to_effective_s: times(&|t| Times::seconds(t.violated, t.effective)),
        violation_to_holding_s: times(&|t| Times::seconds(t.violated, t.holding)),
        held_within_3s: with()
            .filter_map(|run| Times::seconds(run.times.effective, run.times.holding))
            .filter(|seconds| *seconds <= HOLD_WITHIN_S)
            .count(),
        violations,
        violations_without,
        times_fewer: (!runs.is_empty()).then(|| ratio(violations, violations_without)),
        times_fewer_least: runs
            .iter()
            .map(|(with, without)| ratio(with.violations, without.violations))
            .min_by(f64::total_cmp),
        false_alarms: runs
            .iter()
            .map(|(with, without)| with.false_alarms + without.false_alarms)
            .sum(),
        violations_after_holding: with().filter_map(|run| run.violations_after_holding).sum(),
        held_without: runs
            .iter()
            .filter(|(_, without)| without.times.holding.is_some())
            .count(),
        limits_identical: with()
            .filter(|run| run.limits.files > 0 && run.limits.identical == run.limits.files)
            .count(),
        budget_ms: (|| {
            Some(BudgetMillis {
                export: part(&|budget| budget.export)?,
                grace: part(&|budget| budget.grace)?,
                window: part(&|budget| budget.window)?,
                decision: part(&|budget| budget.decision)?,
                write: part(&|budget| budget.write)?,
            })
        })(),
    }
}

/// The middle value, or the mean of the two in the middle.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    Some((values.get(middle - 1)? + upper) / 2.0)
}

impl fmt::Display for DemoSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |value: Option<f64>| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2} s"))
        };
        let seeds = self.seeds;
        writeln!(
            f,
            "culprit right                 {} of {seeds}; false alarms before: {}",
            self.culprit_right, self.false_alarms
        )?;
        writeln!(f, "a limit was changed in        {} of {seeds}", self.acted)?;
        writeln!(
            f,
            "limits of others changed in   {} of {seeds}",
            self.others_changed
        )?;
        writeln!(
            f,
            "injection to effective limit  {}",
            seconds(self.injection_to_effective_s)
        )?;
        writeln!(
            f,
            "violation to effective limit  {}",
            seconds(self.violation_to_effective_s)
        )?;
        writeln!(
            f,
            "violation to holding          {}",
            seconds(self.violation_to_holding_s)
        )?;
        writeln!(
            f,
            "holding within 3 s of action  {} of {seeds}; without mitigation it held again in {}",
            self.held_within_3s, self.held_without
        )?;
        let fewer = |value: Option<f64>| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
        };
        writeln!(
            f,
            "violations                    {} with ({} after it held), {} without: {} times \
             fewer, least {}",
            self.violations,
            self.violations_after_holding,
            self.violations_without,
            fewer(self.times_fewer),
            fewer(self.times_fewer_least)
        )?;
        if let Some(budget) = &self.budget_ms {
            writeln!(
                f,
                "budget, medians in ms         export {:.0}, grace {:.0}, window {:.0}, \
                 decision {:.2}, write {:.2}",
                budget.export, budget.grace, budget.window, budget.decision, budget.write
            )?;
        }
        write!(
            f,
            "limit files as before in      {} of {seeds} runs with mitigation",
            self.limits_identical
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_even_and_none() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(Vec::new()), None);
    }
}
