//! Who of the ranked is held to be a culprit, once telemetry has spoken too.
//!
//! Spans alone mislead under back-pressure: a caller whose threads all wait for a starved callee
//! keeps its own callers waiting, and may have gained more time than the callee. So
//! 1. the culprits are those that the ranking flags;
//! 2. if none of them is proven to lack CPU, those among the first [`LOOKED_AT`] are added that
//!    have grown enough but for the comparison with the highest score, and are newly throttled
//!    ([`Evidence::is_newly_throttled`]);
//! 3. those proven to lack CPU come first, those of which nothing is known last, the others
//!    between; within each by rank;
//! 4. the first [`MOST_CULPRITS`] of these are kept.

use firm_extractor::localise::Ranked;
use firm_extractor::resource::{Evidence, name_resource};
use firm_model::{Resource, Verdict};

/// Most culprits of a finding.
const MOST_CULPRITS: usize = 3;
/// Ranked instances that are looked at for proof where no culprit has any.
const LOOKED_AT: usize = 5;

/// A culprit, and what speaks against it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Chosen<'a> {
    pub(super) ranked: &'a Ranked,
    pub(super) evidence: Evidence,
    pub(super) verdict: Verdict,
}

/// The culprits among `ranked`, which is most blamed first, in the order of blame with telemetry.
pub(super) fn choose<'a>(
    ranked: &'a [Ranked],
    evidence: impl Fn(&Ranked) -> Evidence,
) -> Vec<Chosen<'a>> {
    let weigh = |ranked: &'a Ranked| {
        let evidence = evidence(ranked);
        Chosen {
            ranked,
            evidence,
            verdict: name_resource(ranked.part, &evidence),
        }
    };
    let flagged = ranked.iter().filter(|ranked| ranked.is_culprit);
    let mut chosen: Vec<Chosen<'a>> = flagged.map(weigh).collect();
    if !chosen.iter().any(|culprit| culprit.order() == 0) {
        let others = ranked.iter().take(LOOKED_AT);
        let others = others.filter(|ranked| ranked.has_grown && !ranked.is_culprit);
        chosen.extend(
            others
                .map(weigh)
                .filter(|other| other.evidence.is_newly_throttled()),
        );
    }
    chosen.sort_by_key(Chosen::order);
    chosen.truncate(MOST_CULPRITS);
    chosen
}

impl Chosen<'_> {
    fn order(&self) -> u8 {
        match self.verdict {
            // Never said without throttling or waiting that was measured.
            Verdict::Resource(Resource::Cpu) => 0,
            Verdict::Unknown => 2,
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use firm_extractor::resource::Share;
    use firm_model::{InstanceKey, Interner, Part};
    use proptest::prelude::*;

    use super::*;

    fn ranked(name: &str, score: f64, is_culprit: bool) -> Ranked {
        static NAMES: LazyLock<Interner> = LazyLock::new(Interner::new);
        let symbol = NAMES.intern(name);
        Ranked {
            key: InstanceKey {
                service: symbol,
                instance: symbol,
            },
            part: Part::Server,
            score,
            server_growth_ns: Some(score),
            gap_growth_ns: Some(0.0),
            caller_growth_ns: Some(0.0),
            growth_ratio: None,
            server: None,
            gap: None,
            has_grown: true,
            is_culprit,
        }
    }

    fn throttled(now: f64, normal: Option<f64>) -> Evidence {
        Evidence {
            throttled: Share {
                now: Some(now),
                normal,
            },
            ..Evidence::default()
        }
    }

    /// The place of each chosen in `all`.
    fn places(all: &[Ranked], evidence: &[Evidence]) -> Vec<usize> {
        let place = |one: &Ranked| all.iter().position(|other| other.key == one.key).unwrap();
        choose(all, |one| evidence[place(one)])
            .iter()
            .map(|chosen| place(chosen.ranked))
            .collect()
    }

    const CALM: Evidence = Evidence {
        throttled: Share {
            now: Some(0.0),
            normal: Some(0.0),
        },
        waiting: Share {
            now: None,
            normal: None,
        },
        errors: Share {
            now: None,
            normal: None,
        },
    };

    #[test]
    fn proven_starvation_comes_before_a_caller_that_lacks_nothing() {
        let all = [ranked("gateway", 90.0, true), ranked("cart", 60.0, true)];
        assert_eq!(
            places(&all, &[CALM, throttled(0.9, Some(0.05))]),
            vec![1, 0]
        );
        // Both proven: by rank.
        let both = [throttled(0.2, None), throttled(0.9, None)];
        assert_eq!(places(&all, &both), vec![0, 1]);
    }

    #[test]
    fn proven_culprit_beyond_the_most_is_not_cut_off() {
        let all = ["gateway", "mail", "db", "cart"].map(|name| ranked(name, 9.0, true));
        let evidence = [CALM, CALM, CALM, throttled(0.9, Some(0.0))];
        assert_eq!(places(&all, &evidence), vec![3, 0, 1]);
    }

    #[test]
    fn starved_callee_below_the_highest_is_found_when_no_culprit_is_starved() {
        let all = [ranked("gateway", 90.0, true), ranked("cart", 20.0, false)];
        let starved = throttled(0.9, Some(0.05));
        assert_eq!(places(&all, &[CALM, starved]), vec![1, 0]);
        // Not where a culprit is proven already.
        assert_eq!(places(&all, &[starved, starved]), vec![0]);
    }

    #[test]
    fn suspicion_needs_growth_and_throttling_that_is_new() {
        let mut all = [ranked("gateway", 90.0, true), ranked("cart", 20.0, false)];
        // Always throttled so, or who knows.
        assert_eq!(places(&all, &[CALM, throttled(0.9, Some(0.8))]), vec![0]);
        assert_eq!(places(&all, &[CALM, throttled(0.9, None)]), vec![0]);
        all[1].has_grown = false;
        assert_eq!(places(&all, &[CALM, throttled(0.9, Some(0.0))]), vec![0]);
    }

    #[test]
    fn suspicion_does_not_reach_far_down() {
        let all = ["gateway", "mail", "db", "log", "far", "cart"];
        let all = all.map(|name| ranked(name, 9.0, name == "gateway"));
        let mut evidence = [CALM; 6];
        evidence[5] = throttled(0.9, Some(0.0));
        assert_eq!(places(&all, &evidence), vec![0]);
        evidence[4] = throttled(0.9, Some(0.0));
        assert_eq!(places(&all, &evidence), vec![4, 0]);
    }

    proptest! {
        #[test]
        fn nothing_unknown_precedes_what_is_proven(
            rows in prop::collection::vec((any::<bool>(), any::<bool>(), 0.0..1.0_f64, 0.0..1.0_f64), 6),
        ) {
            let names = ["gateway", "cart", "mail", "db", "log", "far"];
            let mut all = names.map(|name| ranked(name, 1.0, false));
            for (one, row) in all.iter_mut().zip(&rows) {
                (one.has_grown, one.is_culprit) = (row.0 || row.1, row.1);
            }
            let place = |one: &Ranked| all.iter().position(|other| other.key == one.key).unwrap();
            let chosen = choose(&all, |one| throttled(rows[place(one)].2, Some(rows[place(one)].3)));
            prop_assert!(chosen.iter().map(Chosen::order).is_sorted());
            prop_assert!(chosen.iter().all(|one| one.ranked.has_grown));
            let flagged = rows.iter().filter(|row| row.1).count();
            prop_assert!(chosen.len() >= flagged.min(MOST_CULPRITS));
        }
    }
}
