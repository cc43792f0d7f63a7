use std::collections::BTreeMap;
use std::time::Duration;

use firm_model::{
    EdgeKind, ExecutionGraph, Interner, Monotonic, NodeId, ParentRelation, Span, SpanId, SpanKind,
    Symbol, Timestamp, TraceId, UnusedReason,
};
use proptest::prelude::*;

use super::*;

fn trace(number: u8) -> TraceId {
    TraceId::new([number; 16]).unwrap()
}

fn id(number: u32) -> SpanId {
    SpanId::new(u64::from(number).to_be_bytes()).unwrap()
}

fn span(number: u32, parent: Option<u32>, start: i64, end: i64) -> Span {
    Span {
        trace_id: trace(1),
        span_id: id(number),
        parent_id: parent.map(id),
        start: Timestamp::EPOCH.saturating_add_nanos(start),
        end: Timestamp::EPOCH.saturating_add_nanos(end),
        service: Symbol::EMPTY,
        operation: Symbol::EMPTY,
        instance: Symbol::EMPTY,
        kind: SpanKind::Unspecified,
        relation: ParentRelation::ChildOf,
        error: false,
        shared: false,
    }
}

fn assemble(spans: &[Span]) -> ExecutionGraph {
    assemble_trace(trace(1), spans.to_vec(), &AssemblyLimits::default())
}

type Half = (SpanId, SpanKind);

/// Each node as (span id, kind, parent's span id, parent's kind).
fn shape(graph: &ExecutionGraph) -> Vec<(SpanId, SpanKind, Option<Half>)> {
    graph
        .nodes()
        .map(|node| {
            let of = |n: NodeId| (graph.span(n).span_id, graph.span(n).kind);
            let (span_id, kind) = of(node);
            (span_id, kind, graph.parent(node).map(of))
        })
        .collect()
}

fn reasons(graph: &ExecutionGraph) -> Vec<(SpanId, UnusedReason)> {
    graph
        .unused()
        .iter()
        .map(|u| (u.span_id, u.reason))
        .collect()
}

#[test]
fn child_whose_parent_is_elsewhere_is_a_root_and_keeps_the_link() {
    let graph = assemble(&[span(2, Some(9), 5, 6), span(3, Some(2), 5, 6)]);
    assert_eq!(graph.roots().len(), 1);
    let root = graph.roots()[0];
    assert_eq!(graph.span(root).parent_id, Some(id(9)));
    assert_eq!(graph.children(root).len(), 1);
}

#[test]
fn halves_that_share_an_id_are_split() {
    let mut client = span(2, Some(1), 10, 50);
    client.kind = SpanKind::Client;
    let mut server = span(2, Some(1), 15, 45);
    server.kind = SpanKind::Server;
    server.shared = true;
    let graph = assemble(&[
        span(3, Some(2), 20, 30),
        server,
        client,
        span(1, None, 0, 60),
    ]);
    let parent = |n: u32, kind| Some((id(n), kind));
    assert_eq!(
        shape(&graph),
        vec![
            (id(1), SpanKind::Unspecified, None),
            (id(2), SpanKind::Client, parent(1, SpanKind::Unspecified)),
            (id(2), SpanKind::Server, parent(2, SpanKind::Client)),
            (id(3), SpanKind::Unspecified, parent(2, SpanKind::Server)),
        ]
    );
    assert!(graph.unused().is_empty());
}

#[test]
fn server_half_that_starts_first_because_of_skew_is_still_the_child() {
    let mut client = span(2, None, 10, 50);
    client.kind = SpanKind::Client;
    let mut server = span(2, None, 5, 45);
    server.kind = SpanKind::Server;
    let graph = assemble(&[client, server, span(3, Some(2), 20, 30)]);
    let server_parent = Some((id(2), SpanKind::Client));
    assert_eq!(
        shape(&graph),
        vec![
            (id(2), SpanKind::Server, server_parent),
            (id(2), SpanKind::Client, None),
            (
                id(3),
                SpanKind::Unspecified,
                Some((id(2), SpanKind::Server))
            ),
        ]
    );
}

#[test]
fn third_span_of_one_id_conflicts() {
    let other = span(2, Some(1), 12, 13);
    let longer = span(2, Some(1), 12, 19);
    let graph = assemble(&[span(1, None, 0, 60), other, longer]);
    assert_eq!(reasons(&graph), vec![(id(2), UnusedReason::ConflictingId)]);
    assert_eq!(graph.spans()[1], longer);
}

#[test]
fn cycle_is_cut_at_its_last_member_and_counted() {
    let graph = assemble(&[
        span(1, None, 0, 60),
        span(2, Some(4), 1, 9),
        span(3, Some(2), 2, 8),
        span(4, Some(3), 3, 7),
        span(5, Some(4), 4, 6),
    ]);
    assert_eq!(reasons(&graph), vec![(id(4), UnusedReason::Cycle)]);
    assert_eq!(graph.roots().len(), 3);
    assert_eq!(graph.spans().len(), 4);
}

#[test]
fn self_parent_is_a_root_only_if_there_is_no_other() {
    let alone = assemble(&[span(1, Some(1), 0, 9), span(2, Some(1), 1, 2)]);
    assert_eq!((alone.roots().len(), alone.unused().len()), (1, 0));
    let two = assemble(&[
        span(1, None, 0, 9),
        span(2, Some(2), 1, 8),
        span(3, Some(2), 2, 3),
    ]);
    assert_eq!(reasons(&two), vec![(id(2), UnusedReason::SelfParent)]);
    assert_eq!(two.roots().len(), 2);
}

#[test]
fn follows_from_and_consumers_under_producers_are_background() {
    let mut producer = span(2, Some(1), 1, 2);
    producer.kind = SpanKind::Producer;
    let mut consumer = span(3, Some(2), 5, 9);
    consumer.kind = SpanKind::Consumer;
    let mut follows = span(4, Some(1), 6, 7);
    follows.relation = ParentRelation::FollowsFrom;
    let mut consumer_of_other = span(5, Some(1), 7, 8);
    consumer_of_other.kind = SpanKind::Consumer;
    let graph = assemble(&[
        span(1, None, 0, 10),
        producer,
        consumer,
        follows,
        consumer_of_other,
    ]);
    let edges: Vec<EdgeKind> = graph.nodes().map(|n| graph.edge(n)).collect();
    use EdgeKind::{Background, Call};
    assert_eq!(edges, vec![Call, Call, Background, Background, Call]);
}

#[test]
fn spans_above_the_cap_are_left_out_from_the_end() {
    let limits = AssemblyLimits {
        max_trace_spans: 2,
        ..AssemblyLimits::default()
    };
    let spans = vec![
        span(3, Some(1), 2, 3),
        span(2, Some(1), 1, 2),
        span(1, None, 0, 9),
    ];
    let graph = assemble_trace(trace(1), spans, &limits);
    assert_eq!(reasons(&graph), vec![(id(3), UnusedReason::TraceFull)]);
}

#[test]
fn hundred_thousand_deep_and_wide() {
    let deep: Vec<Span> = (0_u32..100_000)
        .rev()
        .map(|n| {
            span(
                n + 1,
                n.checked_sub(1).map(|p| p + 1),
                i64::from(n),
                200_000,
            )
        })
        .collect();
    let graph = assemble(&deep);
    assert_eq!((graph.spans().len(), graph.roots().len()), (100_000, 1));
    let wide: Vec<Span> = (1_u32..=100_000)
        .map(|n| span(n, (n > 1).then_some(1), i64::from(n), 200_000))
        .collect();
    let graph = assemble(&wide);
    assert_eq!(graph.children(graph.roots()[0]).len(), 99_999);
    let ring: Vec<Span> = (0_u32..100_000)
        .map(|n| span(n + 1, Some((n + 1) % 100_000 + 1), i64::from(n), 200_000))
        .collect();
    assert_eq!(assemble(&ring).unused().len(), 1);
}

fn at(ms: u64) -> Monotonic {
    Monotonic::from_nanos(ms * 1_000_000)
}

fn poll(stream: &mut StreamAssembler, ms: u64) -> Vec<ExecutionGraph> {
    let mut out = Vec::new();
    stream.poll(at(ms), &mut out);
    out
}

#[test]
fn trace_is_ready_a_grace_after_its_last_span_once_the_root_is_there() {
    let mut stream = StreamAssembler::new(AssemblyLimits::default());
    stream.push(span(2, Some(1), 1, 2), at(0));
    assert!(poll(&mut stream, 1000).is_empty());
    stream.push(span(1, None, 0, 9), at(1000));
    stream.push(span(3, Some(1), 4, 5), at(1100));
    assert!(poll(&mut stream, 1200).is_empty());
    let graphs = poll(&mut stream, 1250);
    assert_eq!(graphs.len(), 1);
    assert_eq!(graphs[0].spans().len(), 3);
    assert_eq!(stream.counts().complete, 1);
}

#[test]
fn late_span_hands_the_whole_graph_on_again_and_a_repetition_does_not() {
    let mut stream = StreamAssembler::new(AssemblyLimits::default());
    stream.push(span(1, None, 0, 9), at(0));
    assert_eq!(poll(&mut stream, 150).len(), 1);
    stream.push(span(1, None, 0, 9), at(200));
    assert!(poll(&mut stream, 400).is_empty());
    assert_eq!(stream.counts().duplicate, 1);
    stream.push(span(2, Some(1), 1, 2), at(500));
    let again = poll(&mut stream, 700);
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].spans().len(), 2);
    assert_eq!(stream.counts().reopened, 1);
    // Past the remembered time it is a trace of its own, without root.
    stream.push(span(3, Some(1), 1, 2), at(20_000));
    assert!(poll(&mut stream, 20_000).is_empty());
    assert_eq!(poll(&mut stream, 25_000)[0].spans().len(), 1);
}

#[test]
fn remembered_spans_are_given_back() {
    let mut stream = StreamAssembler::new(AssemblyLimits::default());
    stream.push(span(1, None, 0, 9), at(0));
    poll(&mut stream, 150);
    assert_eq!(stream.held_spans(), 1);
    poll(&mut stream, 10_150);
    assert_eq!(stream.held_spans(), 0);
    stream.push(span(2, Some(1), 1, 2), at(20_000));
    let graph = poll(&mut stream, 25_000);
    assert_eq!(graph[0].spans().len(), 1);
    assert_eq!(stream.counts().idle, 1);
}

#[test]
fn endless_trace_is_handed_on_at_its_maximum_age() {
    let mut stream = StreamAssembler::new(AssemblyLimits::default());
    for n in 0..300_u32 {
        stream.push(span(n + 2, Some(1), 0, 1), at(u64::from(n) * 100));
        assert!(poll(&mut stream, u64::from(n) * 100).is_empty());
    }
    assert_eq!(poll(&mut stream, 30_000).len(), 1);
    assert_eq!(stream.counts().max_age, 1);
}

#[test]
fn over_the_cap_the_oldest_trace_is_shed_whole() {
    let limits = AssemblyLimits {
        max_held_spans: 2,
        ..AssemblyLimits::default()
    };
    let mut stream = StreamAssembler::new(limits);
    let of = |number: u8, mut s: Span| {
        s.trace_id = trace(number);
        s
    };
    stream.push(of(1, span(1, None, 0, 9)), at(0));
    stream.push(of(2, span(1, None, 0, 9)), at(1));
    stream.push(of(3, span(1, None, 0, 9)), at(2));
    stream.push(of(1, span(2, Some(1), 0, 9)), at(3));
    let mut ids: Vec<TraceId> = poll(&mut stream, 500)
        .iter()
        .map(|g| g.trace_id())
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, vec![trace(2), trace(3)]);
    let counts = stream.counts();
    assert_eq!((counts.shed_traces, counts.shed_spans), (1, 2));
}

#[test]
fn flush_hands_everything_on() {
    let mut stream = StreamAssembler::new(AssemblyLimits::default());
    stream.push(span(2, Some(1), 0, 1), at(0));
    let mut out = Vec::new();
    stream.flush(at(0), &mut out);
    assert_eq!((out.len(), stream.counts().flushed), (1, 1));
    assert_eq!(
        stream.next_due().map(|_| poll(&mut stream, 99_999).len()),
        Some(0)
    );
}

prop_compose! {
    fn any_span()(
        number in 1_u32..12,
        parent in prop::option::weighted(0.8, 1_u32..14),
        start in 0_i64..6,
        length in -2_i64..6,
        kind in prop::sample::select(vec![
            SpanKind::Unspecified, SpanKind::Client, SpanKind::Server, SpanKind::Producer,
            SpanKind::Consumer,
        ]),
        shared in prop::bool::weighted(0.1),
        trace_number in 1_u8..3,
    ) -> Span {
        let mut made = span(number, parent, start, (start + length).max(0));
        (made.kind, made.shared, made.trace_id) = (kind, shared, trace(trace_number));
        made
    }
}

/// Graphs by trace without what was left out: repetitions are, and may be, listed there.
fn by_trace(graphs: Vec<ExecutionGraph>) -> BTreeMap<TraceId, impl PartialEq + std::fmt::Debug> {
    graphs
        .into_iter()
        .map(|g| {
            let links: Vec<_> = g.nodes().map(|n| (g.parent(n), g.edge(n))).collect();
            (g.trace_id(), (g.spans().to_vec(), links))
        })
        .collect()
}

proptest! {
    #[test]
    fn graph_does_not_depend_on_order_batching_or_repetition(
        (spans, shuffled) in prop::collection::vec(any_span(), 1..60)
            .prop_flat_map(|v| (Just(v.clone()), Just(v).prop_shuffle())),
        cuts in prop::collection::vec(0_u64..400, 60),
        twice in any::<bool>(),
    ) {
        let limits = AssemblyLimits::default();
        let batch = by_trace(assemble_batch(spans.clone(), &limits));
        prop_assert_eq!(&batch, &by_trace(assemble_batch(shuffled.clone(), &limits)));
        let doubled = [spans.as_slice(), shuffled.as_slice()].concat();
        prop_assert_eq!(&batch, &by_trace(assemble_batch(doubled, &limits)));

        let mut stream = StreamAssembler::new(limits);
        let (mut now, mut out) = (0, Vec::new());
        for round in 0..=usize::from(twice) {
            for (item, wait) in shuffled.iter().zip(&cuts) {
                stream.push(*item, at(now));
                now += *wait / 4 * (1 + round as u64);
                stream.poll(at(now), &mut out);
            }
        }
        stream.poll(at(now + 40_000), &mut out);
        // A graph handed on again replaces the one before.
        prop_assert_eq!(&batch, &by_trace(out));
    }

    #[test]
    fn every_span_is_in_the_graph_or_left_out_with_a_reason(
        spans in prop::collection::vec(any_span(), 0..80),
        cap in 1_usize..100,
    ) {
        let limits = AssemblyLimits { max_trace_spans: cap, ..AssemblyLimits::default() };
        let count = spans.len();
        let graph = assemble_trace(trace(1), spans, &limits);
        prop_assert_eq!(graph.spans().len() + graph.unused().len(), count);
        prop_assert!(graph.spans().len() <= cap);
    }

    #[test]
    fn scan_and_hash_find_the_same_parents(
        parents in prop::collection::vec(any::<prop::sample::Index>(), 40..60),
    ) {
        // Forty and more spans are hashed; the first thirty alone are scanned.
        let spans: Vec<Span> = (0_u32..).zip(&parents).map(|(n, pick)| {
            let parent = (n > 0).then(|| u32::try_from(pick.index(n as usize)).unwrap() + 1);
            span(n + 1, parent, i64::from(n), 1000)
        }).collect();
        let (all, few) = (assemble(&spans), assemble(&spans[..30]));
        for node in few.nodes() {
            prop_assert_eq!(few.parent(node), all.parent(node));
        }
    }
}

#[test]
fn names_are_not_looked_at() {
    // Symbols of one interner order by first use; the graph's structure must not hang on it.
    let names = Interner::new();
    let (a, b) = (names.intern("b"), names.intern("a"));
    let mut spans = [span(1, None, 0, 9), span(2, Some(1), 0, 9)];
    (spans[0].service, spans[1].service) = (a, b);
    let before = shape(&assemble(&spans));
    (spans[0].service, spans[1].service) = (b, a);
    assert_eq!(before, shape(&assemble(&spans)));
    assert_eq!(Duration::from_millis(150), AssemblyLimits::default().grace);
}
