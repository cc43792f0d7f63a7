//! Who answers a call, learned over many traces.
//!
//! A starved instance exports its spans late too, so its half of a call may be missing when a
//! trace is looked at. The client span is then a leaf, and its time would be blamed on the
//! caller. What answered such calls before tells whose time it is.
//!
//! This is an overlay, applied when an observation is made
//! ([`crate::observation::Observer::observe_with`]), never part of a graph: without it an
//! observation depends on its own trace alone.

use std::collections::HashMap;

use firm_model::{ExecutionGraph, InstanceKey, NodeId, SpanKind, Symbol};

use crate::observation::callee;

/// Answers in a row, all by one instance, from which it is held to answer all such calls. With
/// two replicas taken at random it happens by chance once in 2^15.
pub const STEADY: u32 = 16;
/// Most kinds of call that are kept; later ones are not learned.
pub const MOST_CALLS: usize = 1 << 16;

/// A kind of call: who calls, and the operation of its client span.
type Call = (InstanceKey, Symbol);

/// What was seen of one kind of call.
#[derive(Debug, Clone, Copy)]
struct Answers {
    latest: InstanceKey,
    /// Answers by `latest` since another instance answered.
    in_a_row: u32,
    answered: u64,
    /// Client spans without any child.
    unanswered: u64,
}

/// Which instance answers the calls of which caller and operation.
///
/// An instance is held to answer a kind of call if
/// - it gave the last [`STEADY`] answers, so that a replaced instance is forgotten, and where
///   replicas take turns nobody is named: which of them it was cannot be told;
/// - more of these calls were answered than not, so that an operation that mostly goes where
///   nothing is traced (a database, another company) is charged to nobody.
#[derive(Debug, Clone, Default)]
pub struct Callees {
    calls: HashMap<Call, Answers, foldhash::fast::RandomState>,
}

impl Callees {
    /// Learns from all client spans of a graph, on its critical path or not. A graph that comes
    /// again with late spans may be learned again.
    pub fn learn(&mut self, graph: &ExecutionGraph) {
        for node in graph.nodes() {
            let span = graph.span(node);
            if span.kind != SpanKind::Client {
                continue;
            }
            let call = (span.instance_key(), span.operation);
            match callee(graph, node) {
                Some(by) => self.answered(call, by),
                None if graph.children(node).is_empty() => {
                    // Of a call that nobody ever answered there is nothing to learn.
                    if let Some(known) = self.calls.get_mut(&call) {
                        known.unanswered += 1;
                    }
                }
                None => {}
            }
        }
    }

    fn answered(&mut self, call: Call, by: InstanceKey) {
        if self.calls.len() >= MOST_CALLS && !self.calls.contains_key(&call) {
            return;
        }
        let known = self.calls.entry(call).or_insert(Answers {
            latest: by,
            in_a_row: 0,
            answered: 0,
            unanswered: 0,
        });
        if known.latest != by {
            (known.latest, known.in_a_row) = (by, 0);
        }
        known.in_a_row = known.in_a_row.saturating_add(1);
        known.answered += 1;
    }

    /// The instance that answers the call at `node`, where the graph does not show it: for a
    /// client span without any child. A span whose kind is not said may be work, and is never
    /// taken for a call.
    #[must_use]
    pub fn infer(&self, graph: &ExecutionGraph, node: NodeId) -> Option<InstanceKey> {
        let span = graph.span(node);
        if span.kind != SpanKind::Client || !graph.children(node).is_empty() {
            return None;
        }
        let known = self.calls.get(&(span.instance_key(), span.operation))?;
        (known.in_a_row >= STEADY && known.answered > known.unanswered).then_some(known.latest)
    }
}

#[cfg(test)]
mod tests;
