use proptest::prelude::*;

use super::*;
use crate::observation::PartTime;
use crate::testing::{gap, key, observation, seconds, server};

const MS: i64 = 1_000_000;
/// What is believed of a growth that fifty requests show.
const FIFTY: f64 = 50.0 / 53.0;

/// Front calls cart and mail; each argument is milliseconds.
fn request(n: u32, front: i64, cart: (i64, i64), mail: (i64, i64)) -> Observation {
    let caller = key("front", "front-0");
    // A little noise, so that nothing is without variance.
    let noise = i64::from(n % 5) * 10_000;
    let parts: Vec<PartTime> = vec![
        server("front", "front-0", front * MS + noise),
        gap(caller, "cart", "cart-0", cart.0 * MS),
        server("cart", "cart-0", cart.1 * MS),
        gap(caller, "mail", "mail-0", mail.0 * MS),
        server("mail", "mail-0", mail.1 * MS),
    ];
    observation(n, seconds(f64::from(n)), &parts)
}

fn many(front: i64, cart: (i64, i64), mail: (i64, i64)) -> Vec<Observation> {
    (0..50).map(|n| request(n, front, cart, mail)).collect()
}

fn ranked(now: &[Observation]) -> Vec<Ranked> {
    let normal = many(5, (1, 4), (1, 20));
    let mut baseline = RequestBaseline::default();
    normal.iter().for_each(|o| baseline.add(o));
    localise(now, Some(&baseline), &Classifier::default())
}

fn culprits(ranked: &[Ranked]) -> Vec<(InstanceKey, Part)> {
    let blamed = ranked.iter().filter(|r| r.is_culprit);
    blamed.map(|r| (r.key, r.part)).collect()
}

#[test]
fn slow_work_is_the_instance_itself() {
    let ranked = ranked(&many(5, (1, 64), (1, 20)));
    assert_eq!(
        culprits(&ranked),
        vec![(key("cart", "cart-0"), Part::Server)]
    );
    assert!((ranked[0].score - 60e6 * FIFTY).abs() < 1.0);
}

#[test]
fn slow_way_to_one_callee_is_the_callee() {
    let ranked = ranked(&many(5, (61, 4), (1, 20)));
    assert_eq!(culprits(&ranked), vec![(key("cart", "cart-0"), Part::Gap)]);
}

#[test]
fn slow_way_to_all_callees_is_the_caller() {
    let ranked = ranked(&many(6, (31, 4), (33, 20)));
    assert_eq!(
        culprits(&ranked),
        vec![(key("front", "front-0"), Part::Server)]
    );
    let caller = ranked[0].caller_growth_ns.unwrap();
    assert!((caller - 60e6 * FIFTY).abs() < 1.0);
}

/// The same request as the tracer shows it while cart's spans are missing.
fn unseen(mut request: Observation) -> Observation {
    let cart = key("cart", "cart-0");
    let work = |p: &&PartTime| p.key == cart && p.part == Part::Server;
    let nanos = request.parts.iter().find(work).unwrap().nanos;
    request.parts.retain(|p| !work(&p));
    for gap in request.parts.iter_mut().filter(|p| p.key == cart) {
        gap.nanos += nanos;
        (gap.whole_nanos, gap.inferred, gap.inferred_nanos) = (gap.nanos, 1, gap.nanos);
    }
    request
}

/// Requests whose gaps say what the whole call lasted, cart's spans missing where asked.
fn partly_unseen(cart: (i64, i64), missing: impl Fn(usize) -> bool) -> Vec<Observation> {
    let all = many(5, cart, (1, 20)).into_iter().enumerate();
    all.map(|(n, mut request)| {
        let work = |p: &PartTime| p.part == Part::Server;
        let server: HashMap<InstanceKey, i64> = request
            .parts
            .iter()
            .filter(|p| work(p))
            .map(|p| (p.key, p.nanos))
            .collect();
        for part in request.parts.iter_mut().filter(|p| !work(p)) {
            part.whole_nanos = part.nanos + server[&part.key];
        }
        if missing(n) { unseen(request) } else { request }
    })
    .collect()
}

fn ranked_against_seen(now: &[Observation]) -> Vec<Ranked> {
    let mut baseline = RequestBaseline::default();
    partly_unseen((1, 4), |_| false)
        .iter()
        .for_each(|o| baseline.add(o));
    localise(now, Some(&baseline), &Classifier::default())
}

#[test]
fn callee_whose_spans_are_missing_is_blamed_for_what_the_call_has_gained() {
    for (missing, part) in [(1, Part::Gap), (2, Part::Gap), (100, Part::Server)] {
        let ranked = ranked_against_seen(&partly_unseen((1, 64), |n| n % missing == 0));
        assert_eq!(
            culprits(&ranked).first(),
            Some(&(key("cart", "cart-0"), part)),
            "{missing}"
        );
        assert_eq!(culprits(&ranked).len(), 1);
        // Sixty milliseconds, however many of the answers were seen.
        let error = ranked[0].score - 60e6 * FIFTY;
        assert!(error.abs() < 2e6, "{missing}: {error}");
    }
}

#[test]
fn callee_that_is_only_late_with_its_spans_is_not_blamed() {
    for missing in [1, 2, 7] {
        let ranked = ranked_against_seen(&partly_unseen((1, 4), |n| n % missing == 0));
        assert!(culprits(&ranked).is_empty(), "{ranked:?}");
    }
    // Nor does it matter if some were missing while the normal was learned.
    let mut baseline = RequestBaseline::default();
    partly_unseen((1, 4), |n| n % 3 == 0)
        .iter()
        .for_each(|o| baseline.add(o));
    for missing in [1, 2, 100] {
        let now = partly_unseen((1, 4), |n| n % missing == 0);
        let ranked = localise(&now, Some(&baseline), &Classifier::default());
        assert!(ranked.iter().all(|r| r.score < 1e5), "{ranked:?}");
    }
}

#[test]
fn two_culprits_at_once() {
    let ranked = ranked(&many(5, (1, 44), (1, 70)));
    let keys: Vec<_> = culprits(&ranked).into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, vec![key("mail", "mail-0"), key("cart", "cart-0")]);
}

#[test]
fn nothing_has_grown_and_nobody_is_blamed() {
    assert!(culprits(&ranked(&many(5, (1, 4), (1, 20)))).is_empty());
    assert!(culprits(&ranked(&many(5, (1, 5), (1, 20)))).is_empty());
    assert!(localise(&[], None, &Classifier::default()).is_empty());
}

#[test]
fn change_of_the_mix_is_not_growth() {
    // Twice as many calls to cart in each request, none slower.
    let mut now = many(5, (1, 4), (1, 20));
    for part in now.iter_mut().flat_map(|o| &mut o.parts) {
        if part.key == key("cart", "cart-0") {
            (part.nanos, part.calls) = (part.nanos * 2, 2);
        }
    }
    let ranked = ranked(&now);
    let cart = ranked
        .iter()
        .find(|r| r.key == key("cart", "cart-0"))
        .unwrap();
    assert!(cart.score.abs() < 1.0);
}

#[test]
fn one_odd_request_does_not_outweigh_many() {
    // Cart is slow in all fifty; mail took part once, and that once was far slower.
    let mut now = many(5, (1, 44), (1, 20));
    for (n, request) in now.iter_mut().enumerate() {
        let mail = key("mail", "mail-0");
        request.parts.retain(|p| n == 0 || p.key != mail);
        for part in &mut request.parts {
            part.nanos += if part.key == mail { 50 * MS } else { 0 };
        }
    }
    assert_eq!(ranked(&now)[0].key, key("cart", "cart-0"));
}

#[test]
fn without_a_baseline_variance_and_congestion_decide() {
    let now: Vec<Observation> = (0..100)
        .map(|n| request(n, 5, (1, if n % 4 == 0 { 90 } else { 4 }), (1, 20)))
        .collect();
    let ranked = localise(&now, None, &Classifier::default());
    assert_eq!(
        culprits(&ranked),
        vec![(key("cart", "cart-0"), Part::Server)]
    );
    assert_eq!(ranked[0].server_growth_ns, None);
}

proptest! {
    #[test]
    fn order_of_requests_does_not_matter(
        (now, shuffled) in prop::collection::vec((1_i64..50, 0_i64..50, 0_i64..50), 2..20)
            .prop_map(|rows| -> Vec<Observation> {
                (0_u32..).zip(rows).map(|(n, (f, g, s))| request(n, f, (g, s), (1, 20))).collect()
            })
            .prop_flat_map(|v| (Just(v.clone()), Just(v).prop_shuffle())),
    ) {
        let names = |r: &[Ranked]| -> Vec<_> { r.iter().map(|r| (r.key, r.score.to_bits())).collect() };
        prop_assert_eq!(names(&ranked(&now)), names(&ranked(&shuffled)));
        prop_assert!(ranked(&now).iter().all(|r| r.score.is_finite()));
    }
}
