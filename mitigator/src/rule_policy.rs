//! The rule that decides how much CPU a culprit is given.
//!
//! A throttled instance's use tells only the limit, not the need. So the first decision is
//! generous, to end the violation in one step, and the rule loop takes back what was too much:
//! the limit times 2, up to 3 as every period is throttled, and at least the use with a margin.

use firm_model::{Policy, RawAction, State};

use crate::state;

/// Parameters of the rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RulePolicyConfig {
    /// Throttled share at which an instance counts as short of CPU.
    pub throttled: f32,
    /// Use over limit at which it does, where throttling cannot be seen.
    pub full: f32,
    /// Least factor on the limit.
    pub factor: f32,
    /// Added to the factor when every period is throttled.
    pub throttled_factor: f32,
    /// Room above the use, as a share of it.
    pub margin: f32,
}

impl Default for RulePolicyConfig {
    fn default() -> Self {
        Self {
            throttled: 0.05,
            full: 0.9,
            factor: 2.0,
            throttled_factor: 1.0,
            margin: 0.5,
        }
    }
}

/// Gives a culprit that is short of CPU enough of it in one decision; holds everything else.
#[derive(Debug, Clone, Copy, Default)]
pub struct RulePolicy {
    config: RulePolicyConfig,
}

impl RulePolicy {
    /// With these parameters.
    #[must_use]
    pub const fn new(config: RulePolicyConfig) -> Self {
        Self { config }
    }

    /// The limit to set, over the capacity bound.
    fn wanted(&self, state: &State) -> Option<f32> {
        let limit = state.get(state::LIMIT_CPU)?;
        let usage = state.get(state::RU_CPU);
        let throttled = state.get(state::THROTTLED_CPU);
        let is_short = match (throttled, usage) {
            (Some(ratio), _) if ratio >= self.config.throttled => true,
            (_, Some(usage)) => usage >= self.config.full * limit,
            _ => false,
        };
        let factor = self
            .config
            .throttled_factor
            .mul_add(throttled.unwrap_or(0.0), self.config.factor);
        let for_use = usage.unwrap_or(0.0) * (1.0 + self.config.margin);
        is_short.then(|| (limit * factor).max(for_use).min(1.0))
    }
}

impl Policy for RulePolicy {
    fn name(&self) -> &'static str {
        "rule"
    }

    fn decide(&mut self, state: &State) -> RawAction {
        let raw = || {
            let wanted = self.wanted(state)?;
            let lower = state.get(state::LOWER_CPU)?;
            // Bounds that leave no choice leave nothing to decide.
            (lower < 1.0).then(|| ((wanted - lower) / (1.0 - lower)).mul_add(2.0, -1.0))
        };
        RawAction(vec![raw().map(|value| value.clamp(-1.0, 1.0))])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::decode;
    use crate::state::{Observation, observe};
    use firm_model::{Bounds, CpuRate, InstanceId, MilliCores};
    use proptest::prelude::*;

    fn decide(limit: Option<u64>, usage: u64, throttled: Option<u64>, upper: u64) -> Option<u64> {
        let bounds = Bounds::new(MilliCores::new(50), MilliCores::new(upper)).unwrap();
        let seen = Observation {
            is_culprit: true,
            requests: &[],
            previous_arrivals: None,
            cpu: Some(CpuRate {
                interval_ns: 1_000_000_000,
                usage: Some(MilliCores::new(usage)),
                periods: Some(10),
                throttled_periods: throttled,
            }),
            limit: limit.map(MilliCores::new),
            bounds,
        };
        let raw = RulePolicy::default().decide(&observe(&seen));
        decode(&raw, &InstanceId::new("a"), bounds)
            .cpu
            .map(MilliCores::get)
    }

    #[test]
    fn known_decisions() {
        assert_eq!(
            decide(Some(200), 200, Some(10), 1000),
            Some(600),
            "every period throttled"
        );
        assert_eq!(decide(Some(200), 200, Some(1), 1000), Some(420));
        assert_eq!(
            decide(Some(200), 190, None, 1000),
            Some(400),
            "throttling not seen, but full"
        );
        assert_eq!(
            decide(Some(800), 800, Some(10), 1000),
            Some(1000),
            "no more than there is"
        );
        assert_eq!(
            decide(Some(200), 100, Some(0), 1000),
            None,
            "not short of CPU"
        );
        assert_eq!(
            decide(None, 100, Some(9), 1000),
            None,
            "no limit, nothing to raise"
        );
    }

    proptest! {
        #[test]
        fn never_less_than_it_has(
            limit in 50_u64..1000, usage in 0_u64..1200, throttled in 0_u64..=10,
        ) {
            if let Some(given) = decide(Some(limit), usage, Some(throttled), 1000) {
                prop_assert!(given >= limit && given <= 1000);
                prop_assert!(given >= (2 * limit).min(1000) - 1);
            }
        }
    }
}
