//! A campaign under its seed: what exactly happens when.

use std::time::Duration;

use firm_model::{AnomalyKind, InstanceId, Intensity};
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::campaign::{AnomalySpec, Campaign};

/// One anomaly with nothing left open.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// Its type.
    pub kind: AnomalyKind,
    /// Its target.
    pub target: InstanceId,
    /// When it starts, from the campaign's start.
    pub start: Duration,
    /// How long it lasts.
    pub duration: Duration,
    /// How strong it is.
    pub intensity: Intensity,
}

/// Draws what the campaign leaves open, in the order of start. The same campaign gives the same
/// schedule, and each anomaly's draws are independent of the others': adding one to the end
/// changes none before it.
#[must_use]
pub fn schedule(campaign: &Campaign) -> Vec<Planned> {
    let mut planned: Vec<Planned> = campaign
        .anomalies
        .iter()
        .zip(0..)
        .filter_map(|(spec, index)| {
            let mut random = ChaCha8Rng::seed_from_u64(campaign.seed);
            random.set_stream(index);
            draw(spec, &campaign.targets, &mut random)
        })
        .collect();
    planned.sort_by_key(|one| one.start);
    planned
}

/// `None` only for a campaign made by hand without targets.
fn draw(spec: &AnomalySpec, targets: &[InstanceId], random: &mut ChaCha8Rng) -> Option<Planned> {
    let drawn = targets.choose(random);
    let (from, to) = spec.intensity;
    let share: f64 = random.random();
    let value = from.get() + (to.get() - from.get()) * share;
    Some(Planned {
        kind: spec.kind,
        target: spec.target.as_ref().or(drawn)?.clone(),
        start: spec.start,
        duration: spec.duration,
        intensity: Intensity::new(value).unwrap_or(to),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn campaign(seed: u64, anomalies: usize) -> Campaign {
        let open = AnomalySpec {
            kind: AnomalyKind::Cpu,
            target: None,
            start: Duration::ZERO,
            duration: Duration::from_secs(1),
            intensity: (Intensity::new(0.2).unwrap(), Intensity::new(0.8).unwrap()),
        };
        Campaign {
            seed,
            targets: ["a", "b", "c"].map(InstanceId::new).to_vec(),
            anomalies: (0..anomalies)
                .map(|index| AnomalySpec {
                    start: Duration::from_secs(index as u64 % 5),
                    ..open.clone()
                })
                .collect(),
        }
    }

    proptest! {
        #[test]
        fn a_seed_repeats_within_the_bounds_in_order(seed in any::<u64>(), count in 0_usize..20) {
            let campaign = campaign(seed, count);
            let planned = schedule(&campaign);
            prop_assert_eq!(&planned, &schedule(&campaign));
            prop_assert_eq!(planned.len(), count);
            prop_assert!(planned.windows(2).all(|pair| pair[0].start <= pair[1].start));
            for one in &planned {
                prop_assert!((0.2..=0.8).contains(&one.intensity.get()));
                prop_assert!(campaign.targets.contains(&one.target));
            }
        }
    }

    #[test]
    fn targets_are_drawn_evenly_and_seeds_differ() {
        let planned = schedule(&campaign(3, 3000));
        for target in ["a", "b", "c"] {
            let hits = planned
                .iter()
                .filter(|one| one.target.as_str() == target)
                .count();
            assert!((900..1100).contains(&hits), "{target}: {hits}");
        }
        assert_ne!(schedule(&campaign(1, 5)), schedule(&campaign(2, 5)));
    }

    #[test]
    fn what_is_given_is_not_drawn() {
        let mut campaign = campaign(1, 1);
        let fixed = Intensity::new(0.5).unwrap();
        campaign.anomalies[0].target = Some(InstanceId::new("b"));
        campaign.anomalies[0].intensity = (fixed, fixed);
        let planned = schedule(&campaign);
        assert_eq!(planned[0].target.as_str(), "b");
        assert_eq!(planned[0].intensity, fixed);
    }
}
