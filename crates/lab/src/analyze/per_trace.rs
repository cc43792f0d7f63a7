//! `firm analyze --per-trace`: the critical path of each trace, one JSON line each.

use std::sync::Arc;

use firm_extractor::critical_path::PathFinder;
use firm_model::{
    CriticalPath, ExecutionGraph, Interner, NodeId, PathRule, Section, Span, SpanId, TraceId,
    Unused,
};
use firm_tracer::assemble::{AssemblyLimits, assemble_each};
use serde::Serialize;

/// One trace. Field names are part of the command's interface and stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TraceLine {
    /// The trace.
    pub trace_id: TraceId,
    /// The span that the path is of: the first to start among those without a parent, else the
    /// longest of those whose parent is elsewhere; `null` for a trace of which no span is used.
    pub root_span_id: Option<SpanId>,
    /// Its duration, nanoseconds.
    pub root_ns: i64,
    /// What is owned on the path, in time order.
    pub sections: Vec<SectionLine>,
    /// Spans left out, with reasons.
    pub unused: Vec<Unused>,
}

/// A stretch of time that one span owns on the path; times are nanoseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SectionLine {
    /// The span.
    pub span_id: SpanId,
    /// Its service.
    #[serde(serialize_with = "as_text")]
    pub service: Arc<str>,
    /// Its operation.
    #[serde(serialize_with = "as_text")]
    pub operation: Arc<str>,
    /// Its instance.
    #[serde(serialize_with = "as_text")]
    pub instance: Arc<str>,
    /// Begin.
    pub start_ns: i64,
    /// End.
    pub end_ns: i64,
}

fn as_text<S: serde::Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

/// Hands a line for each trace to `take`, in the order of the traces' first spans.
pub fn per_trace(
    spans: &[Span],
    rule: PathRule,
    names: &Interner,
    mut take: impl FnMut(TraceLine),
) {
    let mut finder = PathFinder::default();
    assemble_each(spans, &AssemblyLimits::default(), |graph| {
        let path = main_root(&graph).map(|root| finder.find(&graph, root, rule));
        take(line(&graph, path.as_ref(), names));
    });
}

fn main_root(graph: &ExecutionGraph) -> Option<NodeId> {
    let roots = graph.roots();
    let own = roots
        .iter()
        .find(|root| graph.span(**root).parent_id.is_none());
    let longest = || {
        // The first of several that are as long.
        let by_length = |root: &&NodeId| graph.span(**root).duration_nanos();
        roots.iter().rev().max_by_key(by_length)
    };
    own.or_else(longest).copied()
}

fn line(graph: &ExecutionGraph, path: Option<&CriticalPath>, names: &Interner) -> TraceLine {
    let section = |section: &Section| {
        let span = graph.span(section.node);
        SectionLine {
            span_id: span.span_id,
            service: names.resolve(span.service),
            operation: names.resolve(span.operation),
            instance: names.resolve(span.instance),
            start_ns: section.start.as_nanos(),
            end_ns: section.end.as_nanos(),
        }
    };
    TraceLine {
        trace_id: graph.trace_id(),
        root_span_id: path.map(|path| graph.span(path.root).span_id),
        root_ns: path.map_or(0, |path| path.root_nanos),
        sections: path.map_or_else(Vec::new, |p| p.sections.iter().map(section).collect()),
        unused: graph.unused().to_vec(),
    }
}
