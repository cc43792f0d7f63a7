use firm_model::SpanKind::{Client, Internal, Server, Unspecified};

use std::time::Duration;

use firm_model::{Part, PathRule, TraceId};

use super::*;
use crate::baseline::Baseline;
use crate::localise::{Classifier, Ranked, localise};
use crate::observation::{Observation, Observer};
use crate::testing::{Row, graph, key, row, seconds};
use crate::window::Window;

/// `a` calls; `by` answers, `None` for nobody that is traced.
fn call(by: Option<&'static str>) -> ExecutionGraph {
    let mut rows = vec![
        row("a", None, Server, 0, 100),
        row("a", Some(0), Client, 10, 90),
    ];
    rows.extend(by.map(|by| row(by, Some(1), Server, 20, 80)));
    graph(&rows)
}

fn learn<const N: usize>(turns: u32, answers: [Option<&'static str>; N]) -> Callees {
    let mut callees = Callees::default();
    for _ in 0..turns {
        answers.iter().for_each(|by| callees.learn(&call(*by)));
    }
    callees
}

fn inferred(callees: &Callees) -> Option<InstanceKey> {
    callees.infer(&call(None), NodeId::new(1))
}

#[test]
fn one_instance_that_always_answered_is_named() {
    assert_eq!(inferred(&learn(STEADY - 1, [Some("b")])), None);
    assert_eq!(inferred(&learn(STEADY, [Some("b")])), Some(key("b", "b")));
}

#[test]
fn replicas_that_take_turns_are_not_named() {
    assert_eq!(inferred(&learn(100, [Some("b"), Some("c")])), None);
}

#[test]
fn replaced_instance_is_forgotten() {
    let mut callees = learn(1000, [Some("b")]);
    callees.learn(&call(Some("c")));
    assert_eq!(inferred(&callees), None);
    (1..STEADY).for_each(|_| callees.learn(&call(Some("c"))));
    assert_eq!(inferred(&callees), Some(key("c", "c")));
}

#[test]
fn call_that_is_mostly_unanswered_is_nobodys() {
    assert_eq!(inferred(&learn(100, [Some("b"), None, None])), None);
    // Late spans: each trace is seen without its answer, then with it.
    let mut late = learn(50, [Some("b")]);
    (0..1000).for_each(|_| {
        late.learn(&call(None));
        late.learn(&call(Some("b")));
    });
    assert_eq!(inferred(&late), Some(key("b", "b")));
}

#[test]
fn only_a_client_span_without_children_is_inferred() {
    let callees = learn(STEADY, [Some("b")]);
    let others = graph(&[
        row("a", None, Client, 0, 100),
        row("a", Some(0), Internal, 10, 30),
        row("a", Some(0), Unspecified, 40, 50),
        row("c", Some(0), Client, 60, 70),
    ]);
    assert!(others.nodes().all(|n| callees.infer(&others, n).is_none()));
}

/// A request in milliseconds: `front` works for 10, calls `cart`, which works for `cart`, and then
/// `mail`, which works for 20; each way takes 1 in both directions together. While cart's spans
/// are missing its part is left out.
fn request(cart: i64, is_seen: bool) -> ExecutionGraph {
    const MS: i64 = 1_000_000;
    let at = |instance, parent, kind, start: i64, end: i64| -> Row {
        row(instance, parent, kind, start * MS, end * MS)
    };
    let call = |operation, start, end| {
        let mut call = at("front", Some(0), Client, start, end);
        call.operation = operation;
        call
    };
    let back = 6 + cart;
    let mut rows = vec![
        at("front", None, Server, 0, back + 26),
        call("get cart", 5, back),
    ];
    if is_seen {
        rows.push(at("cart", Some(1), Server, 6, back));
    }
    let mail = u32::try_from(rows.len()).unwrap();
    rows.push(call("send mail", back, back + 21));
    rows.push(at("mail", Some(mail), Server, back + 1, back + 21));
    graph(&rows)
}

/// The loop around the overlay, as the controller runs it.
struct Loop {
    callees: Callees,
    observer: Observer,
    window: Window,
    normal: Baseline,
}

impl Loop {
    fn after_normal(requests: u32) -> Self {
        let mut made = Self {
            callees: Callees::default(),
            observer: Observer::new(PathRule::Firm),
            window: Window::new(Duration::from_secs(60), 1000),
            normal: Baseline::default(),
        };
        for n in 0..requests {
            let normal = made.observe(n, &request(10, true));
            made.normal.add(&normal);
        }
        made
    }

    fn observe(&mut self, n: u32, graph: &ExecutionGraph) -> Observation {
        self.callees.learn(graph);
        let root = graph.roots()[0];
        let observed = self.observer.observe_with(graph, root, &self.callees);
        let mut made = observed.unwrap();
        // One trace after the other, a hundred a second.
        made.trace_id = TraceId::new((u128::from(n) + 1).to_be_bytes()).unwrap();
        made.end = seconds(f64::from(n) / 100.0);
        made
    }

    fn see(&mut self, n: u32, graph: &ExecutionGraph) {
        let observation = self.observe(n, graph);
        self.window.push(observation);
    }

    fn ranked(&self) -> Vec<Ranked> {
        let request = self.window.iter().next().unwrap().request;
        let normal = self.normal.request(request);
        let held: Vec<&Observation> = self.window.iter().collect();
        localise(held.iter().copied(), normal, &Classifier::default())
    }
}

fn blamed(ranked: &[Ranked]) -> Vec<(InstanceKey, Part)> {
    let culprits = ranked.iter().filter(|r| r.is_culprit);
    culprits.map(|r| (r.key, r.part)).collect()
}

#[test]
fn starved_callee_is_blamed_before_and_after_its_spans_arrive() {
    let mut now = Loop::after_normal(30);
    (100..120).for_each(|n| now.see(n, &request(90, false)));
    let early = now.ranked();
    assert_eq!(blamed(&early), vec![(key("cart", "cart"), Part::Gap)]);
    // The late spans come, and each trace is seen again in full.
    (100..120).for_each(|n| now.see(n, &request(90, true)));
    assert_eq!(now.window.len(), 20);
    assert!(
        now.window
            .iter()
            .flat_map(|o| &o.parts)
            .all(|p| p.inferred == 0)
    );
    let late = now.ranked();
    assert_eq!(blamed(&late), vec![(key("cart", "cart"), Part::Server)]);
    assert!(
        (early[0].score - late[0].score).abs() < 1e3,
        "{early:?} {late:?}"
    );
}

#[test]
fn without_the_overlay_the_caller_would_be_blamed() {
    let mut now = Loop::after_normal(30);
    now.callees = Callees::default();
    (100..120).for_each(|n| now.see(n, &request(90, false)));
    assert_eq!(
        blamed(&now.ranked()),
        vec![(key("front", "front"), Part::Server)]
    );
}
