use proptest::prelude::*;

use super::*;
use crate::testing::seconds;

fn trigger() -> Trigger {
    let quantile = Quantile::new(0.99).unwrap();
    Trigger::new(TriggerConfig::new(quantile, Latency::from_millis(100)))
}

const FAST: Latency = Latency::from_millis(20);
const SLOW: Latency = Latency::from_millis(300);

/// Pushes requests 20 ms apart from `from` on until the reading is `wanted`; the number needed.
fn until(trigger: &mut Trigger, wanted: bool, from: f64, latency: impl Fn(u32) -> Latency) -> u32 {
    (0..1000)
        .find(|n| trigger.push(seconds(from + f64::from(*n) * 0.02), latency(*n)) == wanted)
        .unwrap()
}

#[test]
fn half_of_the_requests_slow_fires_within_a_third_of_a_second() {
    let mut trigger = trigger();
    for n in 0..100 {
        assert!(!trigger.push(seconds(f64::from(n) * 0.02), FAST));
    }
    let alternate = |n: u32| if n.is_multiple_of(2) { SLOW } else { FAST };
    let needed = until(&mut trigger, true, 2.0, alternate);
    assert!(needed <= 16, "{needed} requests at 50 a second");
    let cleared = until(&mut trigger, false, 3.0, |_| FAST);
    // The slow ones, the last of them before 2.32 s, have to leave the window of two seconds.
    assert!((55..=67).contains(&cleared), "{cleared}");
}

#[test]
fn one_or_two_slow_requests_do_not_fire() {
    let mut trigger = trigger();
    for n in 0..20 {
        let latency = if n % 10 == 5 { SLOW } else { FAST };
        assert!(!trigger.push(seconds(f64::from(n) * 0.02), latency));
    }
}

#[test]
fn few_requests_neither_fire_nor_clear() {
    let mut trigger = trigger();
    for n in 0..19 {
        assert!(!trigger.push(seconds(f64::from(n) * 0.02), SLOW));
    }
    assert!(trigger.push(seconds(0.4), SLOW));
    // Ten seconds without traffic tell nothing.
    assert!(trigger.advance(seconds(10.0)));
    assert_eq!(trigger.status().count, 0);
    trigger.clear();
    assert!(!trigger.is_violated());
}

#[test]
fn objective_on_the_median_can_be_violated_too() {
    let quantile = Quantile::new(0.5).unwrap();
    let mut trigger = Trigger::new(TriggerConfig::new(quantile, Latency::from_millis(100)));
    assert!(until(&mut trigger, true, 0.0, |_| SLOW) < 30);
}

#[test]
fn status_is_the_exact_quantile_with_a_minimum_count() {
    let mut trigger = trigger();
    for n in 0..99_u32 {
        trigger.push(
            seconds(f64::from(n) * 0.01),
            Latency::from_millis(u64::from(n)),
        );
    }
    assert_eq!(trigger.status().latency, None);
    trigger.push(seconds(1.0), Latency::from_millis(500));
    let status = trigger.status();
    assert_eq!(status.latency, Some(Latency::from_millis(98)));
    assert_eq!((status.count, status.over), (100, 1));
}

#[test]
fn tail_of_the_binomial_distribution() {
    // Of 20 at 1 %: P(X >= 1) = 1 - 0.99^20, P(X >= 2) takes off 20 * 0.01 * 0.99^19.
    let none = 0.99_f64.powi(20);
    let one = 20.0 * 0.01 * 0.99_f64.powi(19);
    assert!((binomial_tail(20, 1, 0.01) - (1.0 - none)).abs() < 1e-12);
    assert!((binomial_tail(20, 2, 0.01) - (1.0 - none - one)).abs() < 1e-12);
    assert!((binomial_tail(10, 10, 0.5) - 0.5_f64.powi(10)).abs() < 1e-15);
    assert!(
        (binomial_tail(300, 300, 0.01).log10() + 600.0).abs() < 1e-6
            || binomial_tail(300, 300, 0.01) == 0.0
    );
}

proptest! {
    #[test]
    fn tail_falls_with_the_count_and_is_a_probability(n in 1_usize..300, p in 0.001_f64..0.9) {
        let mut before = 1.0;
        for k in 0..=n {
            let tail = binomial_tail(n, k, p);
            prop_assert!((0.0..=1.0 + 1e-9).contains(&tail));
            prop_assert!(tail <= before + 1e-9);
            before = tail;
        }
    }

    #[test]
    fn counts_agree_with_what_is_held(
        pushes in prop::collection::vec((0_u32..4000, 0_u64..200), 1..400),
    ) {
        let mut trigger = trigger();
        for (at, millis) in pushes {
            trigger.push(seconds(f64::from(at) / 1000.0), Latency::from_millis(millis));
            let over = trigger.recent.iter().filter(|(_, n)| *n > 100_000_000).count();
            prop_assert_eq!((trigger.status().over, trigger.over()), (over, over));
            prop_assert!(trigger.recent.len() <= 300);
        }
    }
}
