//! Small graphs and events that the tests put into stores.

use firm_model::graph::{EdgeKind, ExecutionGraph, NodeId};
use firm_model::{
    Anomaly, AnomalyKind, Applied, Change, CriticalPath, Finding, InstanceId, Intensity,
    MilliCores, ParentRelation, PathRule, Resource, Section, Span, SpanId, SpanKind, Symbol,
    Timestamp, TraceId,
};

pub(crate) fn trace(id: u64) -> TraceId {
    format!("{id:x}").parse().unwrap()
}

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos).unwrap()
}

/// A chain of spans, each called by the one before.
pub(crate) fn graph(id: u64, spans: u8) -> ExecutionGraph {
    let span_id = |index: u8| SpanId::new([index + 1; 8]).unwrap();
    let nodes = (0..spans).map(|index| Span {
        trace_id: trace(id),
        span_id: span_id(index),
        parent_id: index.checked_sub(1).map(span_id),
        start: at(1_000 + u64::from(index)),
        end: at(2_000 - u64::from(index)),
        service: Symbol::EMPTY,
        operation: Symbol::EMPTY,
        instance: Symbol::OVERFLOW,
        kind: SpanKind::Server,
        relation: ParentRelation::ChildOf,
        error: index % 2 == 1,
        shared: false,
    });
    let parents = (0..spans).map(|index| index.checked_sub(1).map(|p| NodeId::new(p.into())));
    ExecutionGraph::from_parents(
        trace(id),
        nodes.collect(),
        parents.collect(),
        vec![EdgeKind::Call; spans.into()],
        vec![],
    )
    .unwrap()
}

pub(crate) fn path(id: u64) -> CriticalPath {
    let root = NodeId::new(0);
    CriticalPath {
        trace_id: trace(id),
        root,
        rule: PathRule::Firm,
        root_nanos: 1_000,
        sections: vec![Section {
            node: root,
            start: at(1_000),
            end: at(2_000),
        }],
        nodes: vec![root],
    }
}

pub(crate) fn finding(id: u64) -> Finding {
    Finding {
        id,
        at: at(3_000),
        window_start: at(1_000),
        window_end: at(2_000),
        request_type: "web/GET /".to_owned(),
        culprits: vec![],
        evidence: vec![trace(1)],
    }
}

pub(crate) fn change(nanos: u64) -> Change {
    Change {
        applied: Applied {
            instance: InstanceId::new("cart-0"),
            resource: Resource::Cpu,
            from: Some(MilliCores::new(200)),
            to: Some(MilliCores::new(400)),
            at: at(nanos),
        },
        finding: Some(1),
        by: "rule".to_owned(),
        undo: false,
    }
}

pub(crate) fn anomaly(start: u64, achieved: Option<f64>) -> Anomaly {
    Anomaly {
        kind: AnomalyKind::Cpu,
        target: InstanceId::new("cart-0"),
        start: at(start),
        end: at(start + 10),
        asked: Intensity::new(0.5).unwrap(),
        achieved: achieved.map(|value| Intensity::new(value).unwrap()),
    }
}
