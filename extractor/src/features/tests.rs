use proptest::prelude::*;

use super::*;
use crate::testing::{gap, key, observation, seconds, server};

fn of<'a>(made: &'a [Features], name: &str, part: Part) -> &'a Features {
    made.iter()
        .find(|f| f.key == key(name, name) && f.part == part)
        .unwrap()
}

#[test]
fn known_values() {
    // Times of x and y over three requests; the path is their sum: 4, 4, 10.
    let rows = [(1, 3), (2, 2), (3, 7)];
    let observations: Vec<Observation> = (0_u32..)
        .zip(rows)
        .map(|(n, (x, y))| {
            observation(n, seconds(1.0), &[server("x", "x", x), server("y", "y", y)])
        })
        .collect();
    let made = features(&observations);
    let x = of(&made, "x", Part::Server);
    // By hand: differences -1 0 1 and -2 -2 4, so 6 / (sqrt 2 * sqrt 24).
    assert!((x.ri.unwrap() - 6.0 / 48_f64.sqrt()).abs() < 1e-12);
    assert!((x.cov_share.unwrap() - 6.0 / 24.0).abs() < 1e-12);
    assert_eq!((x.p50_ns, x.p99_ns, x.mean_ns), (2.0, 3.0, 2.0));
    assert_eq!((x.ci, x.samples), (Some(1.5), 3));
}

#[test]
fn absent_instance_counts_as_no_time_for_ri_and_not_at_all_for_quantiles() {
    let with = observation(
        1,
        seconds(1.0),
        &[server("x", "x", 10), server("y", "y", 90)],
    );
    let without = observation(2, seconds(1.0), &[server("x", "x", 10)]);
    let made = features([&with, &without]);
    let y = of(&made, "y", Part::Server);
    assert_eq!((y.samples, y.p50_ns), (1, 90.0));
    assert!((y.ri.unwrap() - 1.0).abs() < 1e-12);
    let x = of(&made, "x", Part::Server);
    assert_eq!((x.ri, x.ci), (None, Some(1.0)));
}

#[test]
fn undefined_is_none_never_nan() {
    let one = observation(1, seconds(1.0), &[server("x", "x", 0)]);
    let made = features([&one]);
    assert_eq!(
        (made[0].ri, made[0].ci, made[0].cov_share),
        (None, None, None)
    );
    assert!(features([]).is_empty());
}

#[test]
fn four_independent_equal_parts_have_coefficients_that_sum_to_two() {
    // All 16 combinations of four parts of 100 or 200: independent and of equal variance.
    let observations: Vec<Observation> = (0_u32..16)
        .map(|bits| {
            let parts: Vec<_> = ["a", "b", "c", "d"]
                .iter()
                .zip(0..)
                .map(|(name, bit)| server(name, name, 100 + 100 * i64::from(bits >> bit & 1)))
                .collect();
            observation(bits, seconds(1.0), &parts)
        })
        .collect();
    let made = features(&observations);
    let sum: f64 = made.iter().filter_map(|f| f.ri).sum();
    assert!((sum - 2.0).abs() < 1e-9, "{sum}");
}

#[test]
fn request_types_are_kept_apart() {
    let first = observation(1, seconds(1.0), &[server("x", "x", 10)]);
    let mut second = observation(2, seconds(1.0), &[server("x", "x", 90)]);
    second.request.operation = crate::testing::names().intern("other");
    let made = features_by_request([&first, &second]);
    assert_eq!(made.len(), 2);
    assert!(made.values().all(|f| f[0].samples == 1));
}

#[test]
fn thin_paths_share_a_group() {
    let observations: Vec<Observation> = (0_u32..)
        .zip([1_u64; MIN_GROUP].into_iter().chain([2; 5]).chain([3; 7]))
        .map(|(n, signature)| {
            let mut made = observation(n, seconds(1.0), &[server("x", "x", i64::from(n))]);
            made.signature = signature;
            made
        })
        .collect();
    let made = features_by_path(&observations);
    let groups: Vec<_> = made.iter().map(|((_, s), f)| (*s, f[0].samples)).collect();
    assert_eq!(groups, vec![(None, 12), (Some(1), MIN_GROUP)]);
}

proptest! {
    #[test]
    fn shares_sum_to_one_and_coefficients_are_bounded(
        rows in prop::collection::vec(
            prop::collection::vec((0_usize..4, any::<bool>(), 0_i64..1_000_000), 1..6), 2..40),
        offset in prop::sample::select(vec![0_i64, 1_000_000_000_000]),
    ) {
        const NAMES: [&str; 4] = ["a", "b", "c", "d"];
        let observations: Vec<Observation> = (0_u32..).zip(&rows).map(|(n, parts)| {
            let mut made: Vec<_> = parts.iter().map(|(name, is_gap, nanos)| {
                let name = NAMES[*name];
                if *is_gap { gap(key("e", "e"), name, name, *nanos) } else { server(name, name, *nanos) }
            }).collect();
            // A long constant part must not drown the variance of the others.
            made.push(server("f", "f", offset));
            observation(n, seconds(1.0), &made)
        }).collect();
        let made = features(&observations);
        let shares: Vec<f64> = made.iter().filter_map(|f| f.cov_share).collect();
        if !shares.is_empty() {
            prop_assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-6, "{:?}", shares);
        }
        for feature in &made {
            prop_assert!(feature.ri.is_none_or(|r| (-1.0..=1.0).contains(&r)));
            prop_assert!(feature.ci.is_none_or(|c| c >= 1.0));
            prop_assert!(feature.p50_ns <= feature.p99_ns);
        }
    }
}
