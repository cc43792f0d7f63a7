//! What one request says about each instance on its critical path.
//!
//! The time that an instance owns on the path is kept in two parts. *Server* is the time of its
//! own spans. *Gap* is the own time of the client span that called it: network, and queueing
//! before its work begins. The gap is charged to the callee, because a delay on the way to an
//! instance shows nowhere else. Where the callee's spans are missing, [`Callees`] may still tell
//! who it is; the gap is then the whole call.

use std::collections::HashMap;

use firm_model::{
    CriticalPath, EdgeKind, ExecutionGraph, InstanceKey, NodeId, Part, PathRule, RequestType,
    SpanId, SpanKind, Timestamp, TraceId,
};

use crate::callees::Callees;
use crate::critical_path::PathFinder;

/// Time on the path of one instance in one part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartTime {
    /// The instance it is charged to.
    pub key: InstanceKey,
    /// Which part.
    pub part: Part,
    /// For [`Part::Gap`] the instance that called.
    pub caller: Option<InstanceKey>,
    /// Nanoseconds owned on the path.
    pub nanos: i64,
    /// Spans on the path that this is the time of.
    pub calls: u32,
    /// For [`Part::Gap`] the durations of these client spans together, nanoseconds; else 0.
    pub whole_nanos: i64,
    /// Of `calls` those whose callee was inferred ([`Callees`]), because none of its spans is in
    /// the trace.
    pub inferred: u32,
    /// Of `nanos` the time of those: not only the way but the whole call.
    pub inferred_nanos: i64,
}

/// One request, as its critical path shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// The trace.
    pub trace_id: TraceId,
    /// Span id of the root.
    pub root: SpanId,
    /// What was asked for.
    pub request: RequestType,
    /// Begin of the root span.
    pub start: Timestamp,
    /// End of the root span.
    pub end: Timestamp,
    /// Duration of the root span, nanoseconds.
    pub root_nanos: i64,
    /// Whether the root span is marked as failed.
    pub error: bool,
    /// Equal for requests whose paths lead through the same instances in the same order; only
    /// comparable among observations made with one interner.
    pub signature: u64,
    /// Time per instance and part, each pair of them and caller once, as met on the path. Under
    /// [`PathRule::Firm`] and [`PathRule::JaegerUi`] it sums to `root_nanos`.
    pub parts: Vec<PartTime>,
}

/// Makes observations one after the other with the same buffers.
#[derive(Debug)]
pub struct Observer {
    rule: PathRule,
    finder: PathFinder,
    path: Option<CriticalPath>,
    own: Vec<i64>,
    ledger: Ledger,
}

/// Up to here a scan finds a part faster than a hash table.
const SCAN_LIMIT: usize = 48;

type PartId = (InstanceKey, Part, Option<InstanceKey>);

/// Adds times up by instance, part and caller.
#[derive(Debug, Default)]
struct Ledger {
    parts: Vec<PartTime>,
    /// Places in `parts`, filled in once there are more than [`SCAN_LIMIT`].
    places: HashMap<PartId, usize, foldhash::fast::RandomState>,
}

impl Ledger {
    fn add(&mut self, id: PartId, nanos: i64) -> &mut PartTime {
        let place = if self.parts.len() <= SCAN_LIMIT {
            self.parts.iter().position(|part| part.id() == id)
        } else {
            if self.places.is_empty() {
                let places = self.parts.iter().enumerate();
                self.places
                    .extend(places.map(|(place, part)| (part.id(), place)));
            }
            self.places.get(&id).copied()
        };
        if let Some(place) = place {
            let part = &mut self.parts[place];
            // Under rules with overlaps nonsense times may sum to more than can be told.
            part.nanos = part.nanos.saturating_add(nanos);
            part.calls += 1;
            return part;
        }
        let place = self.parts.len();
        if !self.places.is_empty() {
            self.places.insert(id, place);
        }
        let (key, part, caller) = id;
        self.parts.push(PartTime {
            key,
            part,
            caller,
            nanos,
            calls: 1,
            whole_nanos: 0,
            inferred: 0,
            inferred_nanos: 0,
        });
        &mut self.parts[place]
    }

    /// What was added, in the order met; empties the ledger.
    fn take(&mut self) -> Vec<PartTime> {
        let taken = self.parts.as_slice().to_vec();
        self.parts.clear();
        self.places.clear();
        taken
    }
}

impl PartTime {
    fn id(&self) -> PartId {
        (self.key, self.part, self.caller)
    }
}

impl Observer {
    /// An observer that finds paths by `rule`.
    #[must_use]
    pub fn new(rule: PathRule) -> Self {
        Self {
            rule,
            finder: PathFinder::default(),
            path: None,
            own: Vec::new(),
            ledger: Ledger::default(),
        }
    }

    /// Observes the request below `root`. `None` if `root` is not of this graph.
    pub fn observe(&mut self, graph: &ExecutionGraph, root: NodeId) -> Option<Observation> {
        self.run(graph, root, None)
    }

    /// Observes the request below `root`, and charges calls whose callee the graph does not show
    /// to the instance that `callees` names.
    pub fn observe_with(
        &mut self,
        graph: &ExecutionGraph,
        root: NodeId,
        callees: &Callees,
    ) -> Option<Observation> {
        self.run(graph, root, Some(callees))
    }

    /// Observes the request below `root`, and gives the path and what each node of the graph
    /// owns on it, in nanoseconds, by [`NodeId::index`].
    pub fn observe_with_path(
        &mut self,
        graph: &ExecutionGraph,
        root: NodeId,
    ) -> Option<(Observation, (&CriticalPath, &[i64]))> {
        let made = self.run(graph, root, None)?;
        let path = self.path.as_ref()?;
        Some((made, (path, &self.own)))
    }

    fn run(
        &mut self,
        graph: &ExecutionGraph,
        root: NodeId,
        callees: Option<&Callees>,
    ) -> Option<Observation> {
        let span = graph.spans().get(root.index())?;
        let path = match &mut self.path {
            Some(path) => {
                self.finder.find_into(graph, root, self.rule, path);
                path
            }
            empty => empty.insert(self.finder.find(graph, root, self.rule)),
        };
        self.own.clear();
        self.own.resize(graph.spans().len(), 0);
        for section in &path.sections {
            self.own[section.node.index()] += section.nanos();
        }
        let mut signature = Signature::default();
        for node in &path.nodes {
            let span = graph.span(*node);
            let (own, nanos) = (span.instance_key(), self.own[node.index()]);
            signature.add(own);
            let seen = callee(graph, *node);
            let inferred = match seen {
                None => callees.and_then(|callees| callees.infer(graph, *node)),
                Some(_) => None,
            };
            let Some(callee) = seen.or(inferred) else {
                self.ledger.add((own, Part::Server, None), nanos);
                continue;
            };
            let gap = self.ledger.add((callee, Part::Gap, Some(own)), nanos);
            gap.whole_nanos = gap.whole_nanos.saturating_add(span.duration_nanos());
            if inferred.is_some() {
                // The path would have led through it.
                signature.add(callee);
                gap.inferred += 1;
                gap.inferred_nanos = gap.inferred_nanos.saturating_add(nanos);
            }
        }
        Some(Observation {
            trace_id: graph.trace_id(),
            root: span.span_id,
            request: span.request_type(),
            start: span.start,
            end: span.end.max(span.start),
            root_nanos: path.root_nanos,
            error: span.error,
            signature: signature.value,
            parts: self.ledger.take(),
        })
    }
}

/// The instance that a client span calls, `None` for a span that is not a client span.
///
/// A client span is one that says so and has a child in another instance. Where kinds are not
/// said, it is a span whose only child is in another instance, while its own parent is in its
/// own: work inside an instance that does nothing but call out. A span entered from elsewhere is
/// never taken for one, as its time may be work.
#[must_use]
pub fn callee(graph: &ExecutionGraph, node: NodeId) -> Option<InstanceKey> {
    let span = graph.span(node);
    let children = graph.children(node);
    let own = span.instance_key();
    let remote = |child: &&NodeId| {
        graph.span(**child).instance_key() != own && graph.edge(**child) == EdgeKind::Call
    };
    match span.kind {
        SpanKind::Client => {}
        SpanKind::Unspecified => {
            let inner = graph
                .parent(node)
                .is_some_and(|parent| graph.span(parent).instance_key() == own);
            if children.len() != 1 || !inner {
                return None;
            }
        }
        _ => return None,
    }
    children
        .iter()
        .find(remote)
        .map(|child| graph.span(*child).instance_key())
}

/// FNV-1a over the instances of a path, runs of the same counted once.
#[derive(Debug)]
struct Signature {
    value: u64,
    latest: Option<InstanceKey>,
}

impl Default for Signature {
    fn default() -> Self {
        Self {
            value: 0xcbf2_9ce4_8422_2325,
            latest: None,
        }
    }
}

impl Signature {
    fn add(&mut self, key: InstanceKey) {
        if self.latest == Some(key) {
            return;
        }
        self.latest = Some(key);
        for part in [key.service.index(), key.instance.index()] {
            self.value = (self.value ^ part as u64).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests;
