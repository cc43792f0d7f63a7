//! The rule loop against a simple plant: demand in, use and throttling out, quota as the loop
//! sets it. Time is a number here, so every run is the same.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use firm_mitigator::{Reading, RuleLoop, RuleLoopConfig, Step, StepKind};
use firm_model::{Action, Bounds, CpuRate, InstanceBounds, InstanceId, MilliCores, Monotonic};
use proptest::prelude::*;

const TICK: Duration = Duration::from_millis(100);

/// One instance under a CFS quota with a period of one tick: work that does not fit waits.
struct Plant {
    limit: u64,
    waiting: u64,
}

impl Plant {
    /// Runs one period with `demand` new work, all in thousandths of a core times a tick.
    fn period(&mut self, demand: u64) -> CpuRate {
        self.waiting += demand;
        let used = self.waiting.min(self.limit);
        self.waiting -= used;
        CpuRate {
            interval_ns: 100_000_000,
            usage: Some(MilliCores::new(used)),
            periods: Some(u64::from(used > 0)),
            throttled_periods: Some(u64::from(self.waiting > 0)),
        }
    }
}

struct Case {
    name: &'static str,
    /// Limit before anybody did anything, and after the policy's raise.
    limits: (u64, u64),
    bounds: (u64, u64),
    /// Seconds and demand in thousandths of a core.
    demand: &'static [(u64, u64)],
    /// Allowed range of the limit at the end.
    end: (u64, u64),
    /// Most ticks with work waiting.
    waiting_ticks: usize,
    /// Most steps.
    steps: usize,
    /// Cuts undone, exactly.
    undone: usize,
    /// Whether all has to be taken back.
    complete: bool,
}

const CASES: &[Case] = &[
    Case {
        name: "contention that ends: all is taken back",
        limits: (300, 600),
        bounds: (100, 1000),
        demand: &[(10, 500), (30, 150)],
        end: (300, 300),
        waiting_ticks: 0,
        steps: 8,
        undone: 0,
        complete: true,
    },
    Case {
        name: "the raise was not enough: more at once",
        limits: (200, 300),
        bounds: (100, 1000),
        demand: &[(20, 700)],
        end: (770, 1000),
        waiting_ticks: 20,
        steps: 8,
        undone: 0,
        complete: false,
    },
    Case {
        name: "no more than the upper bound",
        limits: (200, 400),
        bounds: (100, 500),
        demand: &[(5, 2000)],
        end: (500, 500),
        waiting_ticks: 50,
        steps: 1,
        undone: 0,
        complete: false,
    },
    Case {
        name: "no more use than before: back within seconds of calm",
        limits: (300, 900),
        bounds: (100, 1000),
        demand: &[(20, 100)],
        end: (300, 300),
        waiting_ticks: 0,
        steps: 11,
        undone: 0,
        complete: true,
    },
    Case {
        name: "lasting need: what is used stays given",
        limits: (200, 800),
        bounds: (100, 1000),
        demand: &[(60, 500)],
        end: (550, 560),
        waiting_ticks: 0,
        steps: 5,
        undone: 0,
        complete: false,
    },
    Case {
        name: "idle: the floor, not the lower bound",
        limits: (300, 600),
        bounds: (10, 1000),
        demand: &[(30, 0)],
        end: (300, 300),
        waiting_ticks: 0,
        steps: 8,
        undone: 0,
        complete: true,
    },
];

struct Run {
    limits: Vec<u64>,
    steps: Vec<Step>,
    waiting_ticks: usize,
    complete: bool,
}

fn bounds(range: (u64, u64)) -> Bounds {
    Bounds::new(MilliCores::new(range.0), MilliCores::new(range.1)).unwrap()
}

fn id() -> InstanceId {
    InstanceId::new("cart-0")
}

/// As the node would: through validation, every tick.
fn run(limits: (u64, u64), range: (u64, u64), demand: impl Iterator<Item = u64>) -> Run {
    let rules = InstanceBounds {
        instance: id(),
        cpu: bounds(range),
        threads: None,
        protected: false,
    };
    let mut plant = Plant {
        limit: limits.1,
        waiting: 0,
    };
    let mut rule_loop = RuleLoop::new(RuleLoopConfig::default());
    let mut now = Monotonic::from_nanos(0);
    rule_loop.grant(id(), rules.cpu, MilliCores::new(limits.0), now);
    let mut run = Run {
        limits: vec![],
        steps: vec![],
        waiting_ticks: 0,
        complete: false,
    };
    for demand in demand {
        now = now + TICK;
        let rate = plant.period(demand);
        run.waiting_ticks += usize::from(plant.waiting > 0);
        let reading = Reading {
            instance: id(),
            rate,
            limit: Some(MilliCores::new(plant.limit)),
        };
        for step in rule_loop.tick(now, &[reading]) {
            let valid = firm_model::validate(&step.action, &rules).unwrap();
            assert_eq!(
                valid.to_action(),
                step.action,
                "the loop keeps the bounds itself"
            );
            plant.limit = valid.cpu().unwrap().get();
            run.steps.push(step);
        }
        run.limits.push(plant.limit);
    }
    run.complete = rule_loop.take_back_complete();
    run
}

#[test]
fn cases_stay_within_their_ranges() {
    for case in CASES {
        let demand = case
            .demand
            .iter()
            .flat_map(|(seconds, demand)| (0..seconds * 10).map(|_| *demand));
        let run = run(case.limits, case.bounds, demand);
        let end = *run.limits.last().unwrap();
        let name = case.name;
        let steps: Vec<_> = run.steps.iter().map(|s| (s.kind, s.action.cpu)).collect();
        assert!(
            (case.end.0..=case.end.1).contains(&end),
            "{name}: ends at {end}, {steps:?}"
        );
        assert!(
            run.waiting_ticks <= case.waiting_ticks,
            "{name}: {}",
            run.waiting_ticks
        );
        assert!(run.steps.len() <= case.steps, "{name}: {steps:?}");
        let undone = run.steps.iter().filter(|s| s.kind == StepKind::UndoCut);
        assert_eq!(undone.count(), case.undone, "{name}: {steps:?}");
        assert_eq!(run.complete, case.complete, "{name}");
    }
}

#[test]
fn a_cut_that_hurts_is_undone_at_once_and_cuts_become_rare() {
    // Every other 2 s a burst of 550, in between 100: the quantile of use is blind to the burst
    // while it is away, and a cut that meets the burst is undone.
    let demand = (0..600).map(|tick| if (tick / 20) % 4 == 3 { 560 } else { 100 });
    let run = run((200, 600), (100, 600), demand);
    let undone: Vec<_> = run
        .steps
        .windows(2)
        .filter(|pair| pair[1].kind == StepKind::UndoCut)
        .collect();
    assert!(!undone.is_empty(), "{:?}", run.steps);
    for pair in &undone {
        assert_eq!(pair[0].kind, StepKind::TakeBack, "only a cut is undone");
    }
    let budget = RuleLoopConfig::default().flap_budget;
    assert!(undone.len() <= budget, "{} in a minute", undone.len());
}

#[test]
fn missing_data_holds() {
    let mut rule_loop = RuleLoop::new(RuleLoopConfig::default());
    rule_loop.grant(
        id(),
        bounds((100, 1000)),
        MilliCores::new(200),
        Monotonic::from_nanos(0),
    );
    let nothing = CpuRate {
        interval_ns: 100_000_000,
        usage: None,
        periods: None,
        throttled_periods: None,
    };
    let limit = Some(MilliCores::new(800));
    for tick in 1..=200_u64 {
        let now = Monotonic::from_nanos(tick * 100_000_000);
        let readings = match tick % 3 {
            0 => vec![],
            1 => vec![Reading {
                instance: id(),
                rate: nothing,
                limit,
            }],
            _ => vec![Reading {
                instance: id(),
                rate: nothing,
                limit: None,
            }],
        };
        assert_eq!(rule_loop.tick(now, &readings), []);
    }
    assert!(!rule_loop.take_back_complete());
    // Data again: calm has to be seen anew, for its whole length.
    let calm = CpuRate {
        usage: Some(MilliCores::new(50)),
        periods: Some(1),
        throttled_periods: Some(0),
        ..nothing
    };
    let first = (201..400_u64).find(|tick| {
        let reading = Reading {
            instance: id(),
            rate: calm,
            limit,
        };
        let now = Monotonic::from_nanos(tick * 100_000_000);
        !rule_loop.tick(now, &[reading]).is_empty()
    });
    assert!(first.unwrap() >= 231, "{first:?}");
}

#[test]
fn instances_without_a_grant_are_never_touched() {
    let mut rule_loop = RuleLoop::new(RuleLoopConfig::default());
    let throttled = Reading {
        instance: InstanceId::new("other"),
        rate: CpuRate {
            interval_ns: 100_000_000,
            usage: Some(MilliCores::new(100)),
            periods: Some(1),
            throttled_periods: Some(1),
        },
        limit: Some(MilliCores::new(100)),
    };
    rule_loop.grant(
        id(),
        bounds((100, 1000)),
        MilliCores::new(200),
        Monotonic::from_nanos(0),
    );
    for tick in 1..100_u64 {
        let now = Monotonic::from_nanos(tick * 100_000_000);
        assert_eq!(rule_loop.tick(now, std::slice::from_ref(&throttled)), []);
    }
    rule_loop.revoke(&id());
    assert!(rule_loop.take_back_complete());
}

#[test]
fn throttling_that_was_always_there_is_calm() {
    let complete = |tolerated: f64| {
        let mut rule_loop = RuleLoop::new(RuleLoopConfig::default());
        let start = Monotonic::from_nanos(0);
        rule_loop.grant(id(), bounds((100, 1000)), MilliCores::new(300), start);
        rule_loop.tolerate(&id(), tolerated);
        for tick in 1..200_u64 {
            let reading = Reading {
                instance: id(),
                rate: CpuRate {
                    interval_ns: 100_000_000,
                    usage: Some(MilliCores::new(200)),
                    periods: Some(1),
                    throttled_periods: Some(u64::from(tick % 5 == 0)),
                },
                limit: Some(MilliCores::new(300)),
            };
            rule_loop.tick(Monotonic::from_nanos(tick * 100_000_000), &[reading]);
        }
        rule_loop.take_back_complete()
    };
    assert!(complete(0.2));
    assert!(
        !complete(0.0),
        "a fifth of the periods throttled is not calm by itself"
    );
}

proptest! {
    #[test]
    fn limits_stay_between_floor_and_upper_bound(
        floor in 50_u64..500, raised in 1_u64..4, upper in 500_u64..2000,
        demand in proptest::collection::vec((1_usize..40, 0_u64..1500), 1..30),
    ) {
        let demand = demand.into_iter().flat_map(|(ticks, d)| std::iter::repeat_n(d, ticks));
        let start = (floor * raised).min(upper);
        let run = run((floor, start), (20, upper), demand);
        for limit in &run.limits {
            prop_assert!(*limit >= floor && *limit <= upper, "{limit}");
        }
        if run.complete {
            prop_assert_eq!(run.limits.last(), Some(&floor));
        }
    }
}

#[test]
fn a_step_names_its_instance() {
    let run = run((200, 300), (100, 1000), std::iter::repeat_n(700, 10));
    let first = &run.steps[0];
    let Action { instance, cpu } = &first.action;
    assert_eq!(
        (instance, first.kind, *cpu),
        (&id(), StepKind::Up, Some(MilliCores::new(450)))
    );
}
