use proptest::prelude::*;

use super::*;
use crate::testing::{Row, graph, key, names, row};

fn observe(graph: &ExecutionGraph) -> Observation {
    Observer::new(PathRule::Firm)
        .observe(graph, graph.roots()[0])
        .unwrap()
}

fn parts(observation: &Observation) -> Vec<(String, Part, i64, u32)> {
    observation
        .parts
        .iter()
        .map(|p| {
            let name = names().resolve(p.key.instance).to_string();
            (name, p.part, p.nanos, p.calls)
        })
        .collect()
}

use SpanKind::{Client, Internal, Server, Unspecified};

#[test]
fn gap_is_charged_to_the_callee() {
    let graph = graph(&[
        row("a", None, Server, 0, 100),
        row("a", Some(0), Client, 10, 90),
        row("b", Some(1), Server, 40, 80),
    ]);
    let observation = observe(&graph);
    assert_eq!(
        parts(&observation),
        vec![
            ("a".to_owned(), Part::Server, 20, 1),
            ("b".to_owned(), Part::Gap, 40, 1),
            ("b".to_owned(), Part::Server, 40, 1),
        ]
    );
    assert_eq!(observation.parts[1].caller, Some(key("a", "a")));
    assert_eq!(observation.root_nanos, 100);
}

#[test]
fn without_kinds_a_span_that_only_calls_out_is_a_client() {
    let graph = graph(&[
        row("a", None, Unspecified, 0, 100),
        row("a", Some(0), Unspecified, 10, 50),
        row("b", Some(1), Unspecified, 20, 45),
        row("b", Some(2), Unspecified, 25, 40),
        row("a", Some(0), Unspecified, 60, 70),
    ]);
    let kinds: Vec<_> = graph.nodes().map(|n| callee(&graph, n)).collect();
    assert_eq!(kinds, vec![None, Some(key("b", "b")), None, None, None]);
}

#[test]
fn without_kinds_an_entered_span_is_work_even_if_it_has_one_remote_child() {
    let graph = graph(&[
        row("a", None, Unspecified, 0, 100),
        row("b", Some(0), Unspecified, 10, 90),
        row("c", Some(1), Unspecified, 20, 80),
    ]);
    assert!(graph.nodes().all(|n| callee(&graph, n).is_none()));
}

#[test]
fn client_without_an_instrumented_callee_is_work_of_the_caller() {
    let graph = graph(&[
        row("a", None, Server, 0, 100),
        row("a", Some(0), Client, 10, 90),
        row("a", Some(1), Internal, 20, 30),
    ]);
    assert_eq!(
        parts(&observe(&graph)),
        vec![("a".to_owned(), Part::Server, 100, 3)]
    );
}

#[test]
fn signature_tells_paths_apart_and_ignores_times() {
    let two = |callee: &'static str, end: i64| {
        let graph = graph(&[
            row("a", None, Server, 0, 100),
            row(callee, Some(0), Server, 10, end),
        ]);
        observe(&graph).signature
    };
    assert_eq!(two("b", 50), two("b", 70));
    assert_ne!(two("b", 50), two("c", 50));
}

#[test]
fn many_instances_are_told_apart_as_few_are() {
    // Each of 200 instances is called twice by the root.
    let names: Vec<&'static str> = (0..200)
        .map(|n| -> &'static str { Box::leak(format!("i{n}").into_boxed_str()) })
        .collect();
    let mut rows = vec![row("root", None, Server, 0, 4000)];
    for (call, name) in (0..).zip(names.iter().chain(&names)) {
        rows.push(row(name, Some(0), Server, call * 10, call * 10 + 10));
    }
    let observation = observe(&graph(&rows));
    assert_eq!(observation.parts.len(), 201);
    let called = observation
        .parts
        .iter()
        .filter(|p| (p.calls, p.nanos) == (2, 20));
    assert_eq!(called.count(), 200);
}

#[test]
fn call_whose_callee_is_inferred_is_gap_as_a_whole() {
    let call = |seen: bool| {
        let mut rows = vec![
            row("a", None, Server, 0, 100),
            row("a", Some(0), Client, 10, 90),
        ];
        if seen {
            rows.push(row("b", Some(1), Server, 40, 80));
        }
        graph(&rows)
    };
    let mut callees = Callees::default();
    (0..crate::callees::STEADY).for_each(|_| callees.learn(&call(true)));
    let observe = |graph: &ExecutionGraph| {
        let mut observer = Observer::new(PathRule::Firm);
        observer.observe_with(graph, graph.roots()[0], &callees)
    };
    let (seen, unseen) = (
        observe(&call(true)).unwrap(),
        observe(&call(false)).unwrap(),
    );
    let gap = |o: &Observation| *o.parts.iter().find(|p| p.part == Part::Gap).unwrap();
    assert_eq!(
        parts(&unseen),
        vec![
            ("a".to_owned(), Part::Server, 20, 1),
            ("b".to_owned(), Part::Gap, 80, 1),
        ]
    );
    assert_eq!(
        (gap(&unseen).inferred, gap(&unseen).inferred_nanos),
        (1, 80)
    );
    assert_eq!((gap(&seen).inferred, gap(&seen).whole_nanos), (0, 80));
    // It is the same path, and without the overlay it is the caller's work.
    assert_eq!(seen.signature, unseen.signature);
    assert_eq!(parts(&self::observe(&call(false))).len(), 1);
}

proptest! {
    #[test]
    fn parts_sum_to_the_root(
        rows in prop::collection::vec(
            (0_usize..4, 0_i64..20, 0_i64..40, any::<prop::sample::Index>(), 0_usize..4),
            1..30,
        ),
    ) {
        const NAMES: [&str; 4] = ["a", "b", "c", "d"];
        const KINDS: [SpanKind; 4] = [Client, Server, Internal, Unspecified];
        let mut start = 0;
        let rows: Vec<Row> = rows.iter().enumerate().map(|(i, (name, step, length, parent, kind))| {
            start += step;
            let parent = (i > 0).then(|| u32::try_from(parent.index(i)).unwrap());
            row(NAMES[*name], parent, KINDS[*kind], start, start + length)
        }).collect();
        let graph = graph(&rows);
        let mut callees = Callees::default();
        (0..crate::callees::STEADY).for_each(|_| callees.learn(&graph));
        for node in graph.nodes() {
            let mut observer = Observer::new(PathRule::Firm);
            let plain = observer.observe(&graph, node).unwrap();
            for observation in [&plain, &observer.observe_with(&graph, node, &callees).unwrap()] {
                let sum: i64 = observation.parts.iter().map(|p| p.nanos).sum();
                prop_assert_eq!(sum, observation.root_nanos);
                prop_assert_eq!(observation.root_nanos, plain.root_nanos);
            }
        }
    }
}
