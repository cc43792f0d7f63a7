//! From the queue to graphs, in the thread that does it.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use firm_model::clock::SystemClock;
use firm_model::{Interner, Span};
use firm_tracer::assemble::AssemblyLimits;
use firm_tracer::decode::nezha_csv;
use firm_tracer::file::read_path;
use firm_tracer::live::Tracer;
use firm_tracer::receive::{QueueLimits, span_queue};

fn trace(number: u64) -> Vec<Span> {
    let table = format!(
        "TraceID,SpanID,ParentID,PodName,OperationName,StartTimeUnixNano,EndTimeUnixNano\n\
         {number:x},1,root,front-1-a,get,1000,9000\n\
         {number:x},2,1,cart-1-a,list,2000,8000\n"
    );
    let mut spans = Vec::new();
    nezha_csv::decode(table.as_bytes(), &Interner::new(), &mut spans).unwrap();
    spans
}

#[test]
fn a_trace_is_handed_on_when_its_grace_has_passed() {
    let (sender, receiver) = span_queue(QueueLimits::default());
    let (graphs, ready) = mpsc::sync_channel(16);
    let limits = AssemblyLimits {
        grace: Duration::from_millis(30),
        ..AssemblyLimits::default()
    };
    let tracer = Tracer::start(receiver, limits, Arc::new(SystemClock), graphs).unwrap();
    let spans = trace(7);
    // Child and root in two batches.
    sender.offer(spans[1..].to_vec()).unwrap();
    sender.offer(spans[..1].to_vec()).unwrap();
    // The senders stay, so only the grace can have made it ready.
    let graph = ready.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!((graph.spans().len(), graph.roots().len()), (2, 1));
    let counts = tracer.stop();
    assert_eq!(
        (
            counts.graphs,
            counts.assembly.complete,
            counts.assembly.spans
        ),
        (1, 1, 2)
    );
    drop(sender);
}

#[test]
fn stopping_hands_on_what_is_open() {
    let (sender, receiver) = span_queue(QueueLimits::default());
    let (graphs, ready) = mpsc::sync_channel(1024);
    let limits = AssemblyLimits {
        grace: Duration::from_secs(3600),
        ..AssemblyLimits::default()
    };
    let tracer = Tracer::start(receiver, limits, Arc::new(SystemClock), graphs).unwrap();
    let export =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/wire/otlp-export-500spans.pb");
    let mut spans = Vec::new();
    read_path(&export, &Interner::new(), &mut spans).unwrap();
    let traces: std::collections::BTreeSet<_> = spans.iter().map(|s| s.trace_id).collect();
    sender.offer(spans).unwrap();
    let counts = tracer.stop();
    assert_eq!(counts.assembly.spans, 500);
    assert_eq!(counts.graphs, traces.len() as u64);
    assert_eq!(
        ready
            .try_iter()
            .map(|graph| graph.spans().len())
            .sum::<usize>(),
        500
    );
}

#[test]
fn a_consumer_without_room_loses_graphs_that_are_counted() {
    let (sender, receiver) = span_queue(QueueLimits::default());
    let (graphs, ready) = mpsc::sync_channel(2);
    let tracer = Tracer::start(
        receiver,
        AssemblyLimits::default(),
        Arc::new(SystemClock),
        graphs,
    )
    .unwrap();
    for number in 1..=5 {
        sender.offer(trace(number)).unwrap();
    }
    let counts = tracer.stop();
    assert_eq!((counts.graphs, counts.dropped_graphs), (2, 3));
    assert_eq!(ready.try_iter().count(), 2);
}
