//! What every graph store has to do. A store passes by a line `suite!(its_name, maker)`.
#![expect(clippy::unwrap_used, reason = "tests")]

mod sample;

use firm_model::{GraphStore, TraceId};
use firm_store::{MemoryBounds, MemoryError, MemoryStore};
use proptest::prelude::*;
use sample::{anomaly, change, finding, graph, path, trace};

fn returns_only_what_was_stored<S: GraphStore>(mut store: S) {
    assert!(store.graph(trace(1)).unwrap().is_none());
    store.put_graph(&graph(1, 3)).unwrap();
    store.put_graph(&graph(2, 1)).unwrap();
    assert_eq!(store.graph(trace(1)).unwrap().unwrap(), graph(1, 3));
    assert_eq!(store.graph(trace(2)).unwrap().unwrap(), graph(2, 1));
    assert!(store.graph(trace(3)).unwrap().is_none());
}

fn replaces_a_graph_of_the_same_trace<S: GraphStore>(mut store: S) {
    store.put_graph(&graph(1, 3)).unwrap();
    store.put_graph(&graph(1, 5)).unwrap();
    assert_eq!(store.graph(trace(1)).unwrap().unwrap(), graph(1, 5));
    store.put_graph(&graph(1, 2)).unwrap();
    assert_eq!(store.graph(trace(1)).unwrap().unwrap(), graph(1, 2));
}

fn takes_every_write_twice<S: GraphStore>(mut store: S) {
    for _ in 0..2 {
        store.put_graph(&graph(1, 3)).unwrap();
        store.annotate(&path(1)).unwrap();
        store.put_finding(&finding(1)).unwrap();
        store.put_change(&change(5)).unwrap();
        store.put_anomaly(&anomaly(5, None)).unwrap();
    }
    assert_eq!(store.graph(trace(1)).unwrap().unwrap(), graph(1, 3));
}

fn passes_over_a_path_without_its_graph<S: GraphStore>(mut store: S) {
    store.annotate(&path(9)).unwrap();
    assert!(store.graph(trace(9)).unwrap().is_none());
}

macro_rules! suite {
    ($store:ident, $make:expr) => {
        mod $store {
            use super::*;

            #[test]
            fn returns_only_what_was_stored() {
                super::returns_only_what_was_stored($make);
            }

            #[test]
            fn replaces_a_graph_of_the_same_trace() {
                super::replaces_a_graph_of_the_same_trace($make);
            }

            #[test]
            fn takes_every_write_twice() {
                super::takes_every_write_twice($make);
            }

            #[test]
            fn passes_over_a_path_without_its_graph() {
                super::passes_over_a_path_without_its_graph($make);
            }
        }
    };
}

suite!(memory, MemoryStore::new(MemoryBounds::default()));

fn small(traces: usize, spans: usize) -> MemoryStore {
    MemoryStore::new(MemoryBounds {
        traces,
        spans,
        events: 2,
    })
}

#[test]
fn memory_lets_the_oldest_go() {
    let mut store = small(2, 100);
    for id in 1..=3 {
        store.put_graph(&graph(id, 3)).unwrap();
    }
    assert!(store.graph(trace(1)).unwrap().is_none());
    assert!(store.graph(trace(2)).unwrap().is_some());
    assert_eq!((store.traces(), store.spans()), (2, 6));
    // Replaced, trace 2 is the younger.
    store.put_graph(&graph(2, 4)).unwrap();
    store.put_graph(&graph(4, 1)).unwrap();
    assert!(store.graph(trace(3)).unwrap().is_none());
    assert_eq!((store.traces(), store.spans()), (2, 5));
}

#[test]
fn memory_refuses_what_can_never_fit() {
    let mut store = small(10, 5);
    store.put_graph(&graph(1, 3)).unwrap();
    let error = store.put_graph(&graph(2, 6)).unwrap_err();
    let MemoryError::TooLarge { spans, most, .. } = error;
    assert_eq!((spans, most), (6, 5));
    assert!(
        store.graph(trace(1)).unwrap().is_some(),
        "nothing was let go for it"
    );
}

#[test]
fn memory_keeps_events_once_and_the_latest() {
    let mut store = small(10, 10);
    for id in [1, 2, 2, 3] {
        store.put_finding(&finding(id)).unwrap();
        store.put_change(&change(id)).unwrap();
        store.put_anomaly(&anomaly(id, None)).unwrap();
    }
    store.put_anomaly(&anomaly(3, Some(0.5))).unwrap();
    let findings: Vec<_> = store.findings().map(|finding| finding.id).collect();
    assert_eq!(findings, [2, 3]);
    assert_eq!(
        store.changes().cloned().collect::<Vec<_>>(),
        [change(2), change(3)]
    );
    let anomalies: Vec<_> = store.anomalies().cloned().collect();
    assert_eq!(anomalies, [anomaly(2, None), anomaly(3, Some(0.5))]);
}

#[test]
fn memory_keeps_a_path_as_long_as_its_graph() {
    let mut store = small(1, 10);
    store.put_graph(&graph(1, 3)).unwrap();
    store.annotate(&path(1)).unwrap();
    store.put_graph(&graph(1, 3)).unwrap();
    assert_eq!(store.path(trace(1)), Some(&path(1)), "the same graph again");
    store.put_graph(&graph(1, 4)).unwrap();
    assert_eq!(store.path(trace(1)), None, "another graph has other nodes");
}

proptest! {
    #[test]
    fn memory_stays_within_its_bounds(
        puts in proptest::collection::vec((1_u8..20, 1_u8..9), 0..60),
    ) {
        let mut store = small(4, 15);
        for (id, spans) in puts {
            store.put_graph(&graph(u64::from(id), spans)).unwrap();
            prop_assert!(store.traces() <= 4 && store.spans() <= 15);
            let kept: Vec<TraceId> = (1..20).map(trace).collect();
            let found = kept.iter().filter_map(|id| store.graph(*id).unwrap());
            let (mut traces, mut all) = (0, 0);
            for graph in found {
                traces += 1;
                all += graph.spans().len();
            }
            prop_assert_eq!((traces, all), (store.traces(), store.spans()));
            prop_assert!(store.graph(trace(u64::from(id))).unwrap().is_some(), "the latest is kept");
        }
    }
}
