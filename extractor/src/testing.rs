//! Short ways to write down observations in tests.

use firm_model::{
    EdgeKind, ExecutionGraph, InstanceKey, Interner, NodeId, ParentRelation, Part, RequestType,
    Span, SpanId, SpanKind, Timestamp, TraceId,
};

use crate::observation::{Observation, PartTime};

/// One interner for all tests, so that equal names are equal symbols.
pub(crate) fn names() -> &'static Interner {
    static NAMES: std::sync::LazyLock<Interner> = std::sync::LazyLock::new(Interner::new);
    &NAMES
}

pub(crate) fn key(service: &str, instance: &str) -> InstanceKey {
    InstanceKey {
        service: names().intern(service),
        instance: names().intern(instance),
    }
}

pub(crate) fn server(service: &str, instance: &str, nanos: i64) -> PartTime {
    PartTime {
        key: key(service, instance),
        part: Part::Server,
        caller: None,
        nanos,
        calls: 1,
        whole_nanos: 0,
        inferred: 0,
        inferred_nanos: 0,
    }
}

pub(crate) fn gap(caller: InstanceKey, service: &str, instance: &str, nanos: i64) -> PartTime {
    PartTime {
        part: Part::Gap,
        caller: Some(caller),
        whole_nanos: nanos,
        ..server(service, instance, nanos)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "tests use small numbers")]
pub(crate) fn seconds(value: f64) -> Timestamp {
    Timestamp::EPOCH.saturating_add_nanos((value * 1e9).round() as i64)
}

/// A request that lasted as long as its parts together.
pub(crate) fn observation(trace: u32, end: Timestamp, parts: &[PartTime]) -> Observation {
    let root_nanos: i64 = parts.iter().map(|p| p.nanos).sum();
    Observation {
        trace_id: TraceId::new((u128::from(trace) + 1).to_be_bytes()).unwrap(),
        root: SpanId::new([1; 8]).unwrap(),
        request: RequestType {
            service: names().intern("front"),
            operation: names().intern("GET /"),
        },
        start: end.saturating_add_nanos(-root_nanos),
        end,
        root_nanos,
        error: false,
        signature: 0,
        parts: parts.to_vec(),
    }
}

/// A span in a word: who, under which row, what role, when.
pub(crate) struct Row {
    instance: &'static str,
    /// `op` unless changed.
    pub(crate) operation: &'static str,
    parent: Option<u32>,
    kind: SpanKind,
    start: i64,
    end: i64,
}

pub(crate) fn row(
    instance: &'static str,
    parent: Option<u32>,
    kind: SpanKind,
    start: i64,
    end: i64,
) -> Row {
    Row {
        instance,
        operation: "op",
        parent,
        kind,
        start,
        end,
    }
}

/// Rows must be in order of start.
pub(crate) fn graph(rows: &[Row]) -> ExecutionGraph {
    let trace_id = TraceId::new([3; 16]).unwrap();
    let span = |(number, row): (usize, &Row)| Span {
        trace_id,
        span_id: SpanId::new((number as u64 + 1).to_be_bytes()).unwrap(),
        parent_id: None,
        start: Timestamp::EPOCH.saturating_add_nanos(row.start),
        end: Timestamp::EPOCH.saturating_add_nanos(row.end),
        service: names().intern(row.instance),
        operation: names().intern(row.operation),
        instance: names().intern(row.instance),
        kind: row.kind,
        relation: ParentRelation::ChildOf,
        error: false,
        shared: false,
    };
    let spans = rows.iter().enumerate().map(span).collect();
    let parents = rows.iter().map(|r| r.parent.map(NodeId::new)).collect();
    let edges = vec![EdgeKind::Call; rows.len()];
    ExecutionGraph::from_parents(trace_id, spans, parents, edges, Vec::new()).unwrap()
}
