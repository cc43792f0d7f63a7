//! What a run will do, drawn from its seed.

use std::time::Duration;

use firm_model::{InstanceId, Intensity};
use firm_testbed::Topology;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

/// Shortest run that has room for all phases.
pub const SHORTEST: Duration = Duration::from_secs(15);

/// Time before what is seen counts as normal: connections are made, caches fill.
const WARM_UP: Duration = Duration::from_secs(2);

/// Time between the end of learning and contention, in which a false alarm would show.
const WATCH: Duration = Duration::from_millis(1500);

/// Asked intensities lie between these: enough to starve an instance of its own quota, little
/// enough that the core has room to cure it.
const INTENSITY: (f64, f64) = (0.35, 0.5);

/// A run, from its first request on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Length of the whole run.
    pub duration: Duration,
    /// When learning begins.
    pub learn_at: Duration,
    /// When learning ends and the objectives begin to count.
    pub watch_at: Duration,
    /// When contention begins.
    pub inject_at: Duration,
    /// How long contention lasts.
    pub inject_for: Duration,
    /// The instance that is hurt.
    pub target: InstanceId,
    /// How much.
    pub intensity: Intensity,
}

/// Why a run cannot be planned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// No room for the phases.
    #[error("a run of {0:?} is too short, at least {SHORTEST:?} are needed")]
    TooShort(Duration),
    /// The topology has no instance.
    #[error("the topology has no instance to hurt")]
    NoTarget,
}

/// Draws a run of `duration` of this topology. The same seed gives the same plan.
///
/// About a third of the run learns what is normal, a third is under contention, the rest is for
/// taking back.
///
/// # Errors
/// [`PlanError`].
pub fn plan(topology: &Topology, seed: u64, duration: Duration) -> Result<Plan, PlanError> {
    if duration < SHORTEST {
        return Err(PlanError::TooShort(duration));
    }
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let instances: Vec<String> = topology
        .services
        .iter()
        .flat_map(|service| service.instances())
        .collect();
    let target = instances.choose(&mut random).ok_or(PlanError::NoTarget)?;
    let share: f64 = random.random();
    let intensity = INTENSITY.0 + (INTENSITY.1 - INTENSITY.0) * share;
    let jitter = Duration::from_secs_f64(random.random::<f64>());
    let inject_at = duration.mul_f64(0.3) + jitter;
    Ok(Plan {
        seed,
        duration,
        learn_at: WARM_UP,
        watch_at: inject_at.saturating_sub(WATCH),
        inject_at,
        inject_for: duration.mul_f64(0.35),
        target: InstanceId::new(target.clone()),
        intensity: Intensity::new(intensity).map_err(|_| PlanError::NoTarget)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn topology() -> Topology {
        Topology::parse("demo.yaml", firm_testbed::topology::DEMO).unwrap()
    }

    #[test]
    fn same_seed_same_plan_and_seeds_differ() {
        let duration = Duration::from_secs(40);
        let of = |seed| plan(&topology(), seed, duration).unwrap();
        assert_eq!(of(3), of(3));
        let targets: BTreeSet<InstanceId> = (1..=40).map(|seed| of(seed).target).collect();
        assert_eq!(
            targets.len(),
            7,
            "40 seeds reach every instance: {targets:?}"
        );
    }

    #[test]
    fn phases_fit_into_every_allowed_run() {
        for seconds in [15, 40, 300] {
            let plan = plan(&topology(), 1, Duration::from_secs(seconds)).unwrap();
            assert!(plan.learn_at < plan.watch_at && plan.watch_at < plan.inject_at);
            assert!(plan.inject_at + plan.inject_for < plan.duration);
        }
        let short = Duration::from_secs(14);
        assert_eq!(plan(&topology(), 1, short), Err(PlanError::TooShort(short)));
    }
}
